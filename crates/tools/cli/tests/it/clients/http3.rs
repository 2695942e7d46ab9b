//! HTTP/3 with aioquic, quic-go and libcurl on ngtcp2, which share no code with Apus.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;
use serde_json::Value;

use super::{Curl, certificate, program};
use crate::harness::{Apus, Home, free_port, wait_until};
use crate::proxy::Origin;

/// A client in `tests/clients`, in the environment that `make tools` makes.
fn in_python(client: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../../.tools/python/bin/python");
    let mut command = program(python.to_str().unwrap());
    command.arg(root.join("tests/clients").join(client));
    command
}

fn aioquic() -> Command {
    in_python("http3.py")
}

fn curl() -> Command {
    in_python("http3_curl.py")
}

/// The program `tests/clients/quic-go`, built once. Where Go is too old for quic-go, `make tools` gets a newer one.
pub(crate) fn quic_go() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients/quic-go");
        let newer = root.join("../../../.tools/go/bin/go");
        let mut go = if newer.is_file() {
            Command::new(newer)
        } else {
            program("go")
        };
        let output = go
            .args(["build", "-o"])
            .arg(&built)
            .current_dir(root.join("tests/clients/quic-go"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        built
    });
    Command::new(built)
}

fn check(mut client: Command, port: u16, home: &Home, checks: &[&str]) {
    let output = client
        .arg(port.to_string())
        .arg(home.path("site.pem"))
        .args(checks)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let passed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(passed.lines().collect::<Vec<_>>(), checks, "{errors}");
}

/// Lines with their numbers of seven digits or more, from 0 on. Formatting each of millions would take seconds.
fn lines_of_numbers(count: usize) -> Vec<u8> {
    let mut lines = Vec::with_capacity(count * 9);
    let mut block = Vec::new();
    for thousand in 0..count.div_ceil(1000) {
        let start = format!("{thousand:04}");
        let width = start.len() + 4;
        if block.len() != 1000 * width {
            let ends = (0..1000).map(|end| format!("{start}{end:03}\n").into_bytes());
            block = ends.flatten().collect();
        }
        for line in block.chunks_exact_mut(width) {
            line[..start.len()].copy_from_slice(start.as_bytes());
        }
        let left = (count - thousand * 1000).min(1000);
        lines.extend_from_slice(&block[..left * width]);
    }
    lines
}

/// A site with files of these sizes in MiB, and an origin that sends bodies back.
fn serve(home: &Home, sizes: &[usize], http3: &str) -> (Apus, Origin, u16) {
    home.write("site/small.txt", "small\n");
    for size in sizes {
        home.write(
            &format!("site/large-{size}.bin"),
            lines_of_numbers(size << 17),
        );
    }
    let origin = Origin::python();
    let (apus, port) = serve_before(home, &origin, "~ ^/(echo|request)$", http3);
    (apus, origin, port)
}

/// A site with this origin at a path.
fn serve_before(home: &Home, origin: &Origin, path: &str, http3: &str) -> (Apus, u16) {
    serve_with(
        home,
        &SiteOptions {
            path,
            http3,
            ..SiteOptions::new(origin)
        },
    )
}

/// What a site has beside its files.
struct SiteOptions<'a> {
    origin: &'a Origin,
    /// The path of the origin.
    path: &'a str,
    /// Keys of HTTP/3.
    http3: &'a str,
    /// What stands before the site.
    global: &'a str,
}

impl<'a> SiteOptions<'a> {
    fn new(origin: &'a Origin) -> Self {
        Self {
            origin,
            path: "/origin",
            http3: "",
            global: "",
        }
    }
}

fn serve_with(home: &Home, options: &SiteOptions<'_>) -> (Apus, u16) {
    let SiteOptions {
        origin,
        path,
        http3,
        global,
    } = options;
    certificate(home, "site", "localhost");
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            "{global}[[sites]]\nlisten_tls = [\"127.0.0.1:{port}\"]\nserver_name = [\"localhost\"]\n\
             root = \"site\"\nclient_max_body_size = 64\n\
             tls = {{ cert = \"site.pem\", key = \"site.key\", http3 = {{ {http3} }} }}\n\
             [[sites.locations]]\npath = \"{path}\"\nupstream = \"http://{}\"\n",
            origin.address()
        ),
    );
    (home.serve(&[]), port)
}

#[test]
fn aioquic_opens_resumes_and_moves_connections() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[1, 10], "");
    let checks = [
        "handshake",
        "version_negotiation",
        "resumption",
        "early_data",
        "key_update",
        "migration",
    ];
    check(aioquic(), port, &home, &checks);
}

/// What Wireshark needs, and what qvis shows, of a connection of another implementation.
#[test]
fn a_key_log_has_the_secrets_of_aioquic_and_a_qlog_file_its_packets() {
    let home = Home::new();
    for name in ["keys", "qlog"] {
        home.make_folder(name);
    }
    let origin = Origin::python();
    home.write("site/small.txt", "small\n");
    let (_apus, port) = serve_with(
        &home,
        &SiteOptions {
            global: "[global]\ntls_key_log = \"keys/server\"\n",
            http3: "qlog = \"qlog\"",
            ..SiteOptions::new(&origin)
        },
    );
    let mut client = aioquic();
    client.env("SSLKEYLOGFILE", home.path("keys-of-client"));
    check(client, port, &home, &["handshake"]);
    let of_client = home.read("keys-of-client");
    assert!(of_client.lines().count() >= 4, "{of_client}");
    wait_until("the lines of the client in the file of the server", || {
        let of_server = home.read("keys/server");
        of_client
            .lines()
            .all(|line| of_server.lines().any(|own| own == line))
    });

    let files = || {
        let found = fs::read_dir(home.path("qlog")).unwrap();
        found.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    wait_until("the end of the connection", || {
        let read = files().pop().map(|path| fs::read_to_string(path).unwrap());
        read.is_some_and(|text| text.contains("\"quic:connection_closed\""))
    });
    let [path] = &files()[..] else {
        panic!("{:?}", files());
    };
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let name = path.file_name().unwrap().to_str().unwrap();
    let id = name.strip_suffix("_server.sqlog").unwrap();
    assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let text = fs::read_to_string(path).unwrap();
    let records: Vec<Value> = text
        .split_terminator('\n')
        .map(|record| serde_json::from_str(record.strip_prefix('\u{1e}').unwrap()).unwrap())
        .collect();
    assert_eq!(records[0]["trace"]["common_fields"]["group_id"], id);
    let packets = |name: &str, packet_type: &str| {
        let named = records.iter().filter(|record| record["name"] == name);
        named
            .filter(|record| record["data"]["header"]["packet_type"] == packet_type)
            .count()
    };
    for packet_type in ["initial", "handshake", "1RTT"] {
        for name in ["quic:packet_sent", "quic:packet_received"] {
            assert!(packets(name, packet_type) > 0, "{name} {packet_type}");
        }
    }
}

/// RFC 9369, and RFC 9368. aioquic updates keys as in version 1.
#[test]
fn aioquic_speaks_version_2() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[1, 10], "");
    let checks = [
        "handshake@2",
        "compatible_version_negotiation",
        "resumption@2",
        "early_data@2",
        "migration@2",
        "parallel@2",
    ];
    check(aioquic(), port, &home, &checks);
}

#[test]
fn aioquic_proves_its_address_by_a_retry_packet_and_then_by_a_token() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "retry = \"always\"");
    check(aioquic(), port, &home, &["retry", "retry@2"]);
}

#[test]
fn aioquic_sends_and_receives_large_bodies_whole() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[25], "");
    check(aioquic(), port, &home, &["download", "upload"]);
}

#[test]
fn aioquic_sends_two_hundred_requests_at_once() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "");
    check(aioquic(), port, &home, &["parallel"]);
}

/// RFC 9220.
#[test]
fn aioquic_opens_websockets() {
    let home = Home::new();
    let origin = Origin::websocket();
    home.write("site/small.txt", "small\n");
    let (_apus, port) = serve_before(&home, &origin, "/chat", "");
    check(aioquic(), port, &home, &["websocket"]);
}

#[test]
fn quic_go_opens_resumes_and_moves_connections() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[1, 10], "");
    let checks = [
        "handshake",
        "resumption",
        "early_data",
        "key_update",
        "migration",
    ];
    check(quic_go(), port, &home, &checks);
}

/// RFC 9369. quic-go updates keys as in version 1, after a hundred packets.
#[test]
fn quic_go_speaks_version_2() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "");
    let checks = ["handshake@2", "resumption@2", "early_data@2"];
    check(quic_go(), port, &home, &checks);
}

#[test]
fn quic_go_proves_its_address_by_a_retry_packet_and_then_by_a_token() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "retry = \"always\"");
    check(quic_go(), port, &home, &["retry", "retry@2"]);
}

#[test]
fn quic_go_sends_and_receives_large_bodies_whole() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[100], "");
    check(quic_go(), port, &home, &["download", "upload"]);
}

#[test]
fn quic_go_sends_two_hundred_requests_at_once() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "");
    check(quic_go(), port, &home, &["parallel"]);
}

/// Clients waited for their idle timeout: the keys of stateless resets ended with the process.
#[test]
fn a_server_resets_the_connections_of_the_one_that_was_killed_before_it() {
    let home = Home::new();
    let (mut apus, _origin, port) = serve(&home, &[], "");
    let mut client = quic_go()
        .arg(port.to_string())
        .arg(home.path("site.pem"))
        .arg("reset")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "connected");
    apus.signal(Signal::KILL);
    assert!(!apus.wait().success());
    let _next = home.serve(&[]);
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "reset");
    assert!(client.wait().unwrap().success());
}

#[test]
fn curl_opens_connections() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "");
    check(curl(), port, &home, &["handshake", "as_browsers"]);
}

#[test]
fn curl_proves_its_address_by_a_retry_packet() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "retry = \"always\"");
    check(curl(), port, &home, &["handshake"]);
}

#[test]
fn curl_sends_and_receives_large_bodies_whole() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[100], "");
    check(curl(), port, &home, &["download", "upload"]);
}

#[test]
fn curl_sends_two_hundred_requests() {
    let home = Home::new();
    let (_apus, _origin, port) = serve(&home, &[], "");
    check(curl(), port, &home, &["parallel"]);
}

#[test]
fn an_application_serves_all_versions_of_http_at_a_listener_with_tls() {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let serve = |http3: bool| {
        let files = [home.path("site.pem"), home.path("site.key")];
        let certificate = apus::Certificate::from_files(&files[0], &files[1]).unwrap();
        let app = apus::App::new().get("/small.txt", async || "small\n");
        let port = free_port();
        let server = apus::Server::new(app).workers(std::num::NonZeroUsize::MIN);
        let server = if http3 { server } else { server.http3(None) };
        let address = format!("127.0.0.1:{port}");
        let server = server.listen_tls(address, certificate).unwrap();
        (server.start().unwrap(), port)
    };
    let (_running, port) = serve(true);
    check(curl(), port, &home, &["handshake"]);
    let (_without, port_without) = serve(false);
    let authority = home.path("site.pem");
    for (port, offers) in [(port, true), (port_without, false)] {
        for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            let curl = Curl::new().args(&[option, "--cacert", authority.to_str().unwrap()]);
            let resolve = format!("localhost:{port}:127.0.0.1");
            let reply = curl
                .args(&["--resolve", &resolve])
                .get(&format!("https://localhost:{port}/small.txt"));
            assert_eq!((&*reply.version, &*reply.text()), (version, "small\n"));
            assert_eq!(reply.field("alt-svc").contains("h3="), offers, "{reply:?}");
        }
    }
}
