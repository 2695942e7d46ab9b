//! Forward authentication in front of files and origins, over each protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_testkit::scripted::{Action, Received as Question, ScriptedServer, response};

use crate::clients::certificate;
use crate::harness::{Apus, Home, free_port};
use crate::wire::{Received, Wire};

const SECRET: &str = "only for members";

/// An authority that admits the holder of the token, and redirects others to a page of its own; and how often it was asked.
fn authority() -> (ScriptedServer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = ScriptedServer::start(move |question: &Question<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        let head = question.head.to_ascii_lowercase();
        assert!(head.starts_with("get /verify http/1.1\r\n"), "{head}");
        assert!(
            head.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"),
            "{head}"
        );
        assert!(question.body.is_empty());
        Action::Respond(if head.contains("\r\ncookie: token=right\r\n") {
            let fields = "HTTP/1.1 200 OK\r\nRemote-User: ada\r\nX-Groups: staff\r\nContent-Length: 2\r\n\r\nok";
            fields.into()
        } else if head.contains("\r\ncookie: token=broken\r\n") {
            response(418, "")
        } else if head.contains("\r\ncookie: token=close\r\n") {
            return Action::Close(Vec::new());
        } else {
            // To the authority itself, as a page for log-in is.
            let host = head
                .split("\r\nhost: ")
                .nth(1)
                .unwrap()
                .split("\r\n")
                .next()
                .unwrap();
            format!("HTTP/1.1 302 Found\r\nLocation: http://{host}/login\r\nSet-Cookie: csrf=1\r\nContent-Length: 0\r\n\r\n").into()
        })
    });
    (server, asked)
}

fn send(apus: &Apus, method: &str, target: &str, lines: &str) -> Received {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a.example\r\n{lines}Connection: close\r\n\r\n"
    ));
    wire.read()
}

#[test]
fn another_service_admits_clients_to_files_and_origins_over_every_protocol_and_nobody_is_admitted_without_it()
 {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    home.make_folder("site/files");
    home.write("site/files/secret.txt", SECRET);
    let (authority, asked) = authority();
    let origin = ScriptedServer::start(|request| {
        Action::Respond(response(200, &request.head.to_ascii_lowercase()))
    });
    let ports = [free_port(), free_port()];
    let absent = free_port();
    home.write(
        "apus.toml",
        format!(
            r#"
[[sites]]
listen = "127.0.0.1:{}"
listen_tls = "127.0.0.1:{}"
tls = {{ cert = "site.pem", key = "site.key" }}
root = "site"
access_log = {{ path = "log", format = "$uri $status user=$remote_user" }}
forward_auth = {{ to = "{}", copy_headers = "X-Groups", user_header = "Remote-User" }}
[[sites.upstreams]]
name = "authority"
nodes = "127.0.0.1:{}"
[[sites.locations]]
path = "/app/"
upstream = "http://127.0.0.1:{}"
[[sites.locations]]
path = "/open/"
forward_auth = false
return = {{ status = 200, text = "open" }}
[[sites.locations]]
path = "/any/"
allow = "192.0.2.1"
satisfy = "any"
return = {{ status = 200, text = "any" }}
[[sites.locations]]
path = "/cached/"
forward_auth = {{ to = "authority", uri = "/verify", cache = true }}
return = {{ status = 200, text = "cached" }}
[[sites.locations]]
path = "/absent/"
forward_auth.to = "http://127.0.0.1:{absent}/verify"
return = {{ status = 200, text = "absent" }}
"#,
            ports[0],
            ports[1],
            authority.url("/verify"),
            authority.port,
            origin.port,
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let login = format!("http://127.0.0.1:{}/login", authority.port);
    let right = "Cookie: token=right\r\n";
    for (method, target, lines, status) in [
        ("GET", "/files/secret.txt", right, 200),
        ("GET", "/files/secret.txt", "", 302),
        ("GET", "//files/./secret.txt", "", 302),
        ("GET", "/nowhere", "", 302),
        ("POST", "/app/x", "Content-Length: 0\r\n", 302),
        (
            "POST",
            "/app/x",
            "Cookie: token=right\r\nContent-Length: 0\r\nX-Groups: evil\r\nX_Groups: evil\r\nRemote-User: evil\r\n",
            200,
        ),
        ("GET", "/files/secret.txt", "Cookie: token=broken\r\n", 500),
        ("GET", "/files/secret.txt", "Cookie: token=close\r\n", 502),
        ("GET", "/open/", "", 200),
        ("GET", "/any/", "", 302),
        ("GET", "/any/", right, 200),
        ("GET", "/cached/", right, 200),
        ("GET", "/cached/", "", 302),
        ("GET", "/absent/", right, 502),
    ] {
        let reply = send(&apus, method, target, lines);
        let text = reply.text();
        assert_eq!(reply.status, status, "{target} {lines} {text}");
        assert_eq!(
            text.contains(SECRET),
            target.ends_with("secret.txt") && status == 200
        );
        let location = reply.field("location");
        let login = match target {
            // A group gets the host that the client requests.
            "/cached/" => "http://a.example/login",
            _ => &login,
        };
        assert_eq!(location, (status == 302).then_some(login), "{target}");
        assert_eq!(
            reply.field("set-cookie").is_some(),
            status == 302,
            "{target}"
        );
        if target == "/app/x" && status == 200 {
            assert!(
                text.contains("\r\nx-groups: staff\r\n") && !text.contains("evil"),
                "{text}"
            );
        }
    }
    let before = asked.load(Ordering::SeqCst);
    let cached = |lines| send(&apus, "GET", "/cached/", lines).status;
    // The server has several workers, each of which asks once.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    assert!((0..workers * 20).all(|_| cached(right) == 200));
    assert!(asked.load(Ordering::SeqCst) <= before + workers);
    assert_eq!(cached("Cookie: token=wrong\r\n"), 302);
    for protocol in [&[][..], &["--http2"], &["--http3"]] {
        for (cookie, status) in [("token=right", "200"), ("token=wrong", "302")] {
            let url = format!("https://localhost:{}/files/secret.txt", ports[1]);
            let header = format!("Cookie: {cookie}");
            let arguments = [
                "bench", &url, "-k", "-c", "1", "-t", "1", "-n", "1", "--status", status, "-H",
                &header,
            ];
            home.expect(&[&arguments, protocol].concat(), 0);
        }
    }
    // Nobody is asked about a request that is only explained.
    let before = asked.load(Ordering::SeqCst);
    let (explained, _) = home.expect(
        &[
            "explain",
            "GET",
            &format!("http://localhost:{}/files/secret.txt", ports[0]),
        ],
        0,
    );
    assert!(explained.contains("asks /verify"), "{explained}");
    assert_eq!(asked.load(Ordering::SeqCst), before);
    drop(apus);
    let log = home.read("log");
    for line in [
        "/files/secret.txt 200 user=ada",
        "/app/x 200 user=ada",
        "/files/secret.txt 302 user=-",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
    assert!(!log.contains("evil"), "{log}");
}
