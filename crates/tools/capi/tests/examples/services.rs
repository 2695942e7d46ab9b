//! Examples of services of the engine: TLS with HTTP/2 and HTTP/3, a proxy with a cache, and PHP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_testkit::{CertificateAuthority, wait_until};

use crate::harness::{C, Server, connect, curl, free_port, repository};

/// The text of a page over HTTP/3, by libcurl on ngtcp2.
const HTTP3_CLIENT: &str = "
import sys
from curl_cffi import CurlHttpVersion, CurlOpt
from curl_cffi.requests import Session
port, authority = sys.argv[1:]
with Session(http_version=CurlHttpVersion.V3ONLY, verify=authority, timeout=90,
             curl_options={CurlOpt.RESOLVE: [f'localhost:{port}:127.0.0.1']}) as session:
    print(session.get(f'https://localhost:{port}/').text, end='')
";

#[test]
fn tls_has_http_1_2_and_3() {
    let authority = CertificateAuthority::generate();
    let certificate = authority.ecdsa(&["localhost"]);
    let fill = |folder: &std::path::Path, _| {
        fs::write(folder.join("authority.pem"), &authority.pem).unwrap();
        fs::write(folder.join("cert.pem"), &certificate.pem).unwrap();
        fs::write(folder.join("key.pem"), &certificate.key).unwrap();
    };
    let server = Server::prepare("tls.c", C, fill, &["cert.pem", "key.pem"]);
    let port = server.port.to_string();
    let url = format!("https://localhost:{port}/");
    let resolve = format!("localhost:{port}:127.0.0.1");
    let authority = server.folder.path().join("authority.pem");
    let authority = authority.to_str().unwrap();
    let get = |version| curl(&["--resolve", &resolve, "--cacert", authority, version, &url]);
    assert_eq!(get("--http1.1").text(), "Hello over HTTP/1\n");
    let reply = get("--http2");
    assert_eq!(
        (reply.version.as_str(), reply.text()),
        ("2", "Hello over HTTP/2\n")
    );
    let alternative = reply.field("alt-svc");
    assert!(
        alternative.contains(&format!(r#"h3=":{port}""#)),
        "{alternative}"
    );

    let output = Command::new(repository().join(".tools/python/bin/python"))
        .args(["-c", HTTP3_CLIENT, &port, authority])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Hello over HTTP/3\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    server.stop();
}

#[test]
fn proxy_takes_what_it_may_from_its_cache() {
    let requests = Arc::new(AtomicUsize::new(0));
    let origin = serve_origin(Arc::clone(&requests));
    let server = Server::start("proxy.c", C, &[&origin]);
    for _ in 0..3 {
        let reply = server.get("/page");
        assert_eq!((reply.status, reply.text()), (200, "GET /page"));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        assert_eq!(server.get("/private").text(), "GET /private");
    }
    assert_eq!(requests.load(Ordering::SeqCst), 4);
    server.stop();
}

#[test]
fn proxy_without_its_origin_is_a_bad_gateway() {
    let server = Server::start("proxy.c", C, &[&format!("127.0.0.1:{}", free_port())]);
    assert!([502, 503].contains(&server.get("/").status));
    server.stop();
}

/// An origin that responds with the first line of each request, and counts them.
pub(crate) fn serve_origin(requests: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let requests = Arc::clone(&requests);
            std::thread::spawn(move || respond(client.unwrap(), &requests));
        }
    });
    address
}

fn respond(client: TcpStream, requests: &AtomicUsize) {
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let body = head.split(" HTTP/").next().unwrap();
        let control = if body.contains("private") {
            "no-store"
        } else {
            "max-age=60"
        };
        write!(
            reader.get_mut(),
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: {control}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        head.clear();
    }
}

/// PHP over FastCGI, as a process that ends with the test.
pub(crate) struct PhpCgi(Child);

impl PhpCgi {
    pub(crate) fn start(port: u16) -> Self {
        let child = Command::new("php-cgi8.2")
            .args(["-b", &format!("127.0.0.1:{port}")])
            .env("PHP_FCGI_CHILDREN", "0")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("PHP to listen", || connect(port).is_ok());
        Self(child)
    }
}

impl Drop for PhpCgi {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn php_scripts_have_their_variables_beside_files() {
    let port = free_port();
    let _php = PhpCgi::start(port);
    let fill = |folder: &std::path::Path, _| {
        fs::create_dir(folder.join("site")).unwrap();
        let index = "<?php echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', $_POST['name'] ?? '';";
        fs::write(folder.join("site/index.php"), index).unwrap();
        fs::write(folder.join("site/style.css"), "p {}").unwrap();
    };
    let server = Server::prepare("php.c", C, fill, &[&format!("127.0.0.1:{port}"), "site"]);
    assert_eq!(server.get("/users/7?a=b").text(), "GET /users/7?a=b ");
    let reply = curl(&["--data", "name=Ada", &server.url("/index.php")]);
    assert_eq!(reply.text(), "POST /index.php Ada");
    let style = server.get("/style.css");
    assert_eq!(style.text(), "p {}");
    assert!(style.field("content-type").starts_with("text/css"));
    server.stop();
}

/// The examples and their arguments are refused clearly when they are wrong.
#[test]
fn a_missing_certificate_is_a_clear_error() {
    let program = crate::harness::compile("tls.c", C);
    let mut child = Command::new(program)
        .args(["127.0.0.1:1", "missing.pem", "missing.key"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(errors.contains("missing.pem"), "{errors}");
}
