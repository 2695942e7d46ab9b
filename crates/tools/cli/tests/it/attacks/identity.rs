//! Identity: server names, client certificates, TLS sessions, the control socket and private keys.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;

use super::{SECRET, Victim, fill};
use crate::clients::{Curl, certificate, program};
use crate::harness::{Home, address_of, wait_until};
use crate::wire::Wire;

/// Two sites on one address: `open` serves every client, `private` requires client certificates.
fn two_sites() -> Victim {
    two_sites_with("handshake_timeout = 1")
}

fn two_sites_with(global: &str) -> Victim {
    let home = Home::new();
    fill(&home);
    fs::create_dir(home.path("private")).unwrap();
    home.write("private/index.html", SECRET);
    for name in ["open.test", "private.test", "client"] {
        certificate(&home, name, name);
    }
    home.write(
        "apus.toml",
        format!(
            r#"
        [global]
        {global}
        access_log = "access.log"
        [[sites]]
        server_name = ["open.test", "_"]
        listen = ["127.0.0.1:0"]
        listen_tls = ["127.0.0.1:0"]
        root = "site"
        tls = {{ cert = "open.test.pem", key = "open.test.key" }}
        "#
        ),
    );
    // Both sites need the same port.
    let port = crate::harness::free_port();
    let text = home.read("apus.toml").replace(
        "listen_tls = [\"127.0.0.1:0\"]",
        &format!("listen_tls = [\"127.0.0.1:{port}\"]"),
    );
    home.write(
        "apus.toml",
        format!(
            r#"{text}
            [[sites]]
            server_name = "private.test"
            listen_tls = ["127.0.0.1:{port}"]
            root = "private"
            tls = {{ cert = "private.test.pem", key = "private.test.key", client_auth = "required", client_ca = "client.pem" }}
            "#
        ),
    );
    let apus = home.serve(&[]);
    Victim::new(home, apus, "apus.toml")
}

fn tls_port(victim: &Victim) -> u16 {
    let url = victim
        .apus
        .urls()
        .iter()
        .find(|url| url.starts_with("https"));
    let (_, port) = url.unwrap().trim_end_matches('/').rsplit_once(':').unwrap();
    port.parse().unwrap()
}

/// Sends a request for `host` on a connection with the server name `sni`.
fn request(victim: &Victim, sni: &str, host: &str, more: &[&str]) -> Option<(u16, String)> {
    let port = tls_port(victim);
    let curl = Curl::new()
        .args(&["--insecure", "--connect-to", &format!("::127.0.0.1:{port}")])
        .args(&["--header", &format!("Host: {host}")])
        .args(more)
        .run(&format!("https://{sni}:{port}/"));
    match curl {
        Ok(reply) => Some((reply.status, reply.text())),
        Err(error) => {
            eprintln!("{sni}: {error}");
            None
        }
    }
}

#[test]
fn a_host_that_differs_from_the_server_name_of_the_handshake_gets_421() {
    let victim = two_sites();
    let page = || Some((200, "<h1>hello</h1>".to_owned()));
    assert_eq!(request(&victim, "open.test", "open.test", &[]), page());
    for (sni, host) in [
        ("open.test", "private.test"),
        ("open.test", "PRIVATE.test"),
        ("open.test", "private.test."),
        ("other.test", "private.test"),
    ] {
        let (status, text) = request(&victim, sni, host, &[]).unwrap();
        assert_eq!(status, 421, "{sni} {host}");
        assert!(!text.contains(SECRET));
    }
    // The private site has no listener in clear text.
    let received = victim.request("GET / HTTP/1.1\r\nHost: private.test\r\n\r\n");
    assert!(!received.text().contains(SECRET));
    victim.assert_healthy();
}

#[test]
fn a_site_that_requires_client_certificates_serves_nothing_without_one() {
    let victim = two_sites();
    assert_eq!(request(&victim, "private.test", "private.test", &[]), None);
    let path = |name: &str| victim.home.path(name).to_str().unwrap().to_owned();
    let identity = ["--cert", &path("client.pem"), "--key", &path("client.key")];
    assert_eq!(
        request(&victim, "private.test", "private.test", &identity),
        Some((200, SECRET.to_owned()))
    );
    // The site does not trust this certificate.
    let untrusted = [
        "--cert",
        &path("open.test.pem"),
        "--key",
        &path("open.test.key"),
    ];
    assert_eq!(
        request(&victim, "private.test", "private.test", &untrusted),
        None
    );
    wait_until("the refusals are counted", || {
        victim.total("handshake_failures") >= 2
    });
    victim.assert_healthy();
}

/// Runs `openssl s_client` with `GET /` and returns what it printed, with the response.
fn s_client(victim: &Victim, sni: &str, arguments: &[&str], session: (&str, &Path)) -> String {
    let mut child = program("openssl")
        .args(["s_client", "-ign_eof", "-servername", sni])
        .args(["-connect", &format!("127.0.0.1:{}", tls_port(victim))])
        .args(arguments)
        .arg(session.0)
        .arg(session.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {sni}\r\nConnection: close\r\n\r\n");
    let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
    let mut text = String::new();
    let _ = child.stdout.take().unwrap().read_to_string(&mut text);
    child.wait().unwrap();
    text
}

#[test]
fn a_tls_session_of_one_site_is_not_resumed_on_another() {
    let victim = two_sites();
    let session = victim.home.path("session");
    for version in ["-tls1_2", "-tls1_3"] {
        let text = s_client(&victim, "open.test", &[version], ("-sess_out", &session));
        assert!(text.contains("<h1>hello</h1>"), "{text}");
        let text = s_client(&victim, "open.test", &[version], ("-sess_in", &session));
        assert!(text.contains("Reused, TLS"), "{version}: {text}");
        let text = s_client(&victim, "private.test", &[version], ("-sess_in", &session));
        assert!(!text.contains("Reused, TLS"), "{version}: {text}");
        assert!(!text.contains(SECRET), "{version}: {text}");
    }
    victim.assert_healthy();
}

#[test]
fn incomplete_and_malformed_handshakes_are_closed_and_counted() {
    let victim = two_sites();
    let url = victim
        .apus
        .urls()
        .iter()
        .find(|url| url.starts_with("https"));
    let address = address_of(url.unwrap());
    let mut clients: Vec<_> = (0..100).map(|_| Wire::connect(address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // Nothing, the start of a record, the start of a ClientHello.
        client.send(
            [
                &b""[..],
                b"\x16\x03\x01",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            ][number % 3],
        );
    }
    victim.assert_serves();
    wait_until("all are closed", || {
        clients.iter().all(|client| {
            client.is_readable() // an alert, or the close
        })
    });
    for garbage in [
        &b"\x16\x03\x01\xff\xff"[..],
        b"\0\0\0\0\0\0\0\0",
        b"SSH-2.0-x\r\n",
    ] {
        let mut client = Wire::connect(address);
        client.send(garbage.repeat(100));
        client.rest();
    }
    let mut client = Wire::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: open.test\r\n\r\n");
    let text = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    wait_until("they are counted", || {
        victim.total("handshake_failures") + victim.total("timeouts") >= 100
    });
    assert!(request(&victim, "open.test", "open.test", &[]).is_some());
    victim.assert_healthy();
}

#[test]
fn unfinished_handshakes_keep_no_client_out() {
    let victim = two_sites_with("worker_threads = 1\nworker_connections = 20");
    let urls = victim.apus.urls();
    let address = address_of(urls.iter().find(|url| url.starts_with("https")).unwrap());
    let mut clients = Vec::new();
    for number in 0..100 {
        let mut client = Wire::connect(address);
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
        clients.push(client);
        if number % 20 == 0 {
            assert!(request(&victim, "open.test", "open.test", &[]).is_some());
            victim.assert_serves();
        }
    }
    // The last connections may still wait to be accepted.
    wait_until("evictions", || victim.total("evicted") >= 80);
    assert_eq!(victim.total("refused"), 0);
    victim.assert_healthy();
}

#[test]
fn only_its_user_can_use_the_control_socket_and_it_accepts_no_http() {
    use std::os::unix::fs::PermissionsExt;
    let victim = Victim::configured("control_socket = \"apus.sock\"", "");
    let mode = |name: &str| {
        let path = victim.home.path(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("apus.sock"), 0o600);
    // A page in a browser can send HTTP only, so it cannot make the server reload or stop.
    let mut socket =
        std::os::unix::net::UnixStream::connect(victim.home.path("apus.sock")).unwrap();
    let _ = socket.write_all(b"POST /stop HTTP/1.1\r\nHost: localhost\r\n\r\nstop\n");
    let mut reply = String::new();
    let _ = socket.read_to_string(&mut reply);
    assert!(!reply.contains("stopp"), "{reply}");
    victim.assert_healthy();
}

#[test]
fn check_warns_of_a_private_key_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let victim = two_sites();
    let key = victim.home.path("open.test.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = victim.home.run(&["check"]);
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("open.test.key") && text.contains("warning"),
        "{text}"
    );
}
