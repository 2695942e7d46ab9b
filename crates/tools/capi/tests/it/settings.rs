//! Settings of servers: policies of TLS, limits, IPv6, and the `[global]` of an `apus.toml`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use apus_testkit::CertificateAuthority;

use crate::program::{Program, command, compile, connect, get, get_with};

/// The limits of `apus_limit` that have no test elsewhere.
const H2_FRAME_BYTES: &str = "16";
const H2_REQUESTS_PER_CONNECTION: &str = "17";

struct Started {
    program: Program,
    ports: Vec<u16>,
    status: serde_json::Value,
    _folder: tempfile::TempDir,
}

fn start(arguments: &[&str]) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&compile("settings.c", folder.path()));
    command.args(arguments);
    let mut program = Program::start(command);
    let line = program.line();
    let ports = line.split_whitespace().map(|port| port.parse());
    Started {
        ports: ports
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{line}: {error}")),
        status: serde_json::from_str(&program.line()).unwrap(),
        program,
        _folder: folder,
    }
}

/// What openssl says of a connection with these options: the version and the cipher suite, or `None` if there is none.
fn negotiated(port: u16, host: &str, options: &[&str]) -> Option<String> {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}")])
        .args(["-servername", host])
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("New, "));
    let line = line.unwrap_or_else(|| panic!("{options:?}: {text}"));
    // `New, (NONE), Cipher is (NONE)` without a connection.
    (!line.contains("(NONE)")).then(|| line.to_owned())
}

#[test]
fn policies_of_tls_have_their_versions_and_their_order_of_cipher_suites() {
    let certificate = CertificateAuthority::generate().ecdsa(&["localhost", "found.example"]);
    let folder = tempfile::tempdir().unwrap();
    let [chain, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    fs::write(&chain, &certificate.pem).unwrap();
    fs::write(&key, &certificate.key).unwrap();
    let [chain, key] = [&chain, &key].map(|path| path.to_str().unwrap());
    let policies = ["modern", "intermediate", "legacy"];
    let arguments = policies.map(|policy| ["tls", policy, chain, key]);
    let started = start(&arguments.concat());
    // The second one is of the function that finds certificates.
    for host in ["localhost", "found.example"] {
        let suites = [
            "-tls1_2",
            "-cipher",
            "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256",
        ];
        let tls12 = |port| negotiated(port, host, &suites);
        let [modern, intermediate, legacy] = started.ports[..] else {
            panic!("{:?}", started.ports)
        };
        assert_eq!(tls12(modern), None, "{host}");
        let found = [tls12(intermediate), tls12(legacy)];
        assert_eq!(
            found.each_ref().map(Option::as_deref),
            [
                Some("New, TLSv1.2, Cipher is ECDHE-ECDSA-CHACHA20-POLY1305"),
                Some("New, TLSv1.2, Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"),
            ],
            "{host}"
        );
        for port in &started.ports {
            let found = negotiated(*port, host, &["-tls1_3"]);
            let found = found.unwrap_or_else(|| panic!("{host}: no TLS 1.3"));
            assert!(found.starts_with("New, TLSv1.3, "), "{host}: {found}");
        }
    }
    started.program.end();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the thread of a test may block")]
fn servers_listen_over_ipv6() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("this machine has no IPv6");
        return;
    }
    let started = start(&["listen", "[::1]:0", "listen", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect((Ipv6Addr::LOCALHOST, started.ports[0])).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("\r\n\r\n::1"), "{response}");
    assert_eq!(get(started.ports[1], "/").body, "127.0.0.1");
    started.program.end();
}

/// The types of frames (RFC 9113 section 6).
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The type and the payload of the next frame.
fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).unwrap();
    (head[3], payload)
}

#[test]
fn limits_of_http2_are_those_that_were_set() {
    let limits = [
        ["limit", H2_FRAME_BYTES, "65536"],
        ["limit", H2_REQUESTS_PER_CONNECTION, "1"],
    ];
    let started = start(&[&["listen", "127.0.0.1:0"][..], &limits.concat()].concat());
    let mut stream = connect(started.ports[0]);
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let (kind, settings) = read_frame(&mut stream);
    assert_eq!(kind, SETTINGS);
    let mut settings = settings.chunks_exact(6);
    assert!(
        settings.any(|setting| setting == [0, 5, 0, 1, 0, 0]),
        "SETTINGS_MAX_FRAME_SIZE"
    );
    // GET / of the authority `a`, on stream 1, after which the connection ends.
    stream
        .write_all(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a")
        .unwrap();
    let end = loop {
        let (kind, payload) = read_frame(&mut stream);
        if kind == GOAWAY {
            break payload;
        }
    };
    assert_eq!(end[4..8], [0; 4], "no error: {end:?}");
    started.program.end();
}

#[test]
fn the_global_part_of_a_configuration_is_that_of_the_server() {
    let fields = "A: 1\r\nB: 1\r\nC: 1\r\n";
    let own = ["listen", "127.0.0.1:0"];
    let toml = "[global]\nworker_threads = 1\nclient_header_fields = 4\n\
                [[sites]]\nlisten = [\"127.0.0.1:0\"]\n\
                [[sites.locations]]\npath = \"/\"\nreturn = { status = 200, text = \"configured\" }\n";
    let started = start(&[&own[..], &["config", toml]].concat());
    assert_eq!(started.status["workers"].as_array().unwrap().len(), 1);
    for (port, body) in [
        (started.ports[0], "127.0.0.1"),
        (started.ports[1], "configured"),
    ] {
        let reply = get(port, "/");
        assert_eq!((reply.status(), reply.body.as_str()), (200, body));
        assert_eq!(reply.field("server"), Some("Apus"), "{reply:?}");
        assert_eq!(get_with(port, "/", fields).status(), 431);
    }
    started.program.end();

    // A setter that is called later changes it.
    let fields_limit = ["limit", "5", "100"];
    let started = start(&[&own[..], &["config", toml], &fields_limit].concat());
    assert_eq!(get_with(started.ports[0], "/", fields).status(), 200);
    started.program.end();
}

#[test]
fn rules_limits_access_bans_and_maintenance_of_a_configuration_hold_in_a_library() {
    let toml = r#"
[global]
trusted_proxies = "127.0.0.1"
[[sites]]
name = "a"
listen = ["127.0.0.1:0"]
return = { status = 200, text = "served" }
rules = [
    { when = 'path == "/trap"', ban = "10m" },
    { when = 'path matches "/admin/**"', deny = 410 },
    { when = 'path == "/closed"', close = true },
    { when = 'path == "/counted"', limit = "counted" },
    { when = 'path == "/once"', limit = "once" },
]
limits = [
    { name = "counted", rate = "1/h", by_rules = true },
    { name = "once", rate = "1/h", ban = "10m", ban_after = 1, by_rules = true },
]
[[sites.locations]]
path = "/"
return = { status = 200, text = "served" }
[[sites.locations]]
path = "/staff/"
allow = "203.0.113.9"
return = { status = 200, text = "staff" }
"#;
    let mut started = start(&["config", toml]);
    let port = started.ports[0];
    let of = |client: &str, path: &str| {
        let reply = get_with(port, path, &format!("X-Forwarded-For: {client}\r\n"));
        reply.status()
    };
    for (client, path, status) in [
        ("203.0.113.1", "/", 200),
        ("203.0.113.1", "/admin/x", 410),
        ("203.0.113.1", "/counted", 200),
        ("203.0.113.1", "/counted", 429),
        ("203.0.113.1", "/staff/", 403),
        ("203.0.113.9", "/staff/", 200),
        ("203.0.113.2", "/trap", 403),
        ("203.0.113.2", "/", 403),
        ("203.0.113.6", "/once", 200),
        ("203.0.113.6", "/once", 429),
        ("203.0.113.6", "/", 403),
    ] {
        assert_eq!(of(client, path), status, "{client} {path}");
    }
    let mut stream = connect(port);
    stream
        .write_all(b"GET /closed HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut response = Vec::new();
    // In order, or by a reset.
    let _ = stream.read_to_end(&mut response);
    assert_eq!(response, b"");
    for (line, result, client, status) in [
        ("unban 203.0.113.2", "done", "203.0.113.2", 200),
        ("ban 203.0.113.3", "done", "203.0.113.3", 403),
        ("ban ::ffff:203.0.113.4", "done", "203.0.113.4", 403),
        ("ban 127.0.0.1", "never", "203.0.113.1", 200),
        ("ban nobody", "an IP address", "203.0.113.1", 200),
        ("on a", "done", "203.0.113.1", 503),
        ("on b", "the name of a site", "203.0.113.1", 503),
        ("off a", "done", "203.0.113.1", 200),
    ] {
        started.program.send(line);
        let said = started.program.line();
        assert!(said.contains(result), "{line}: {said}");
        assert_eq!(of(client, "/"), status, "{line}");
    }
    started.program.end();
}
