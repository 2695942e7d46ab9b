//! The parameters that a program gets: those that it gets behind nginx, and none that a client can
//! forge.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::server::{Server, Site};
use super::stack::Stack;
use crate::harness::{Apus, Home};
use crate::wire::Wire;

/// Prints its parameters, one per line, and a hash of the request body.
const ECHO_PARAMS: &str = "<?php header('Content-Type: text/plain');
    foreach ($_SERVER as $name => $value) { if (is_string($value)) echo \"$name=$value\\n\"; }
    echo 'CONTENT=', md5(file_get_contents('php://input')), \"\\n\";";

type ParamMap = BTreeMap<String, String>;

fn send_request(address: SocketAddr, request: impl AsRef<[u8]>) -> ParamMap {
    let mut wire = Wire::connect(address);
    wire.send(request);
    let reply = wire.read();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A server with one site whose root is a folder with the program.
fn serve(name: &str, global: &str, site: &str) -> (Home, Apus) {
    let stack = Stack::scripts();
    stack.write(&format!("{name}/tell.php"), ECHO_PARAMS);
    let home = Home::new();
    home.write(
        "apus.toml",
        format!(
            "{global}\n[[sites]]\nserver_name = \"told.test\"\nlisten = \"127.0.0.1:0\"\n\
             root = \"{}\"\nphp_fastcgi = \"{}\"\n{site}\n",
            stack.path(name).display(),
            stack.socket().display()
        ),
    );
    let apus = home.serve(&[]);
    (home, apus)
}

#[test]
fn a_program_gets_the_same_parameters_as_behind_nginx() {
    let stack = Stack::scripts();
    stack.write("as-nginx/tell.php", ECHO_PARAMS);
    let root = stack.path("as-nginx");
    let site = Site {
        host: "told.test",
        root: &root,
        socket: &stack.socket(),
        apus: "",
        nginx: "",
    };
    let (apus, nginx) = (Server::apus(&site), Server::nginx(&site));
    let request = "POST /tell.php/more/%41?a=b&c HTTP/1.1\r\nHost: told.test\r\n\
                   User-Agent: one\r\nAccept: */*\r\nAccept-Language: de, en\r\nX-A: 1\r\n\
                   Authorization: Basic eDp5\r\nCookie: a=1; b=2\r\nReferer: http://a/\r\n\
                   Proxy: evil\r\nX_Under: evil\r\nContent-Type: text/plain\r\n\
                   Content-Length: 5\r\n\r\nhello";
    let mut params = send_request(apus.clear(), request);
    let mut expected = send_request(nginx.clear(), request);
    for one in [&mut params, &mut expected] {
        // These differ between the two servers.
        for name in [
            "REMOTE_PORT",
            "SERVER_PORT",
            "SERVER_SOFTWARE",
            "REQUEST_TIME",
            "REQUEST_TIME_FLOAT",
        ] {
            assert!(
                name.starts_with("REQUEST_TIME") || one.contains_key(name),
                "{name}"
            );
            one.remove(name);
        }
    }
    // RFC 3875 section 4.1.18 forbids these, and nginx sends them.
    for name in ["HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH", "HTTP_PROXY"] {
        assert!(
            expected.remove(name).is_none_or(|value| value != "evil"),
            "{name}"
        );
    }
    // nginx sets the last file of `try_files`, and a user name that it has not verified.
    for name in ["DOCUMENT_URI", "REMOTE_USER"] {
        expected.remove(name);
    }
    assert_eq!(
        params.remove("DOCUMENT_URI").as_deref(),
        Some("/tell.php/more/A")
    );
    let translated = format!("{}/more/A", root.canonicalize().unwrap().display());
    assert_eq!(params.remove("PATH_TRANSLATED"), Some(translated));
    assert_eq!(params, expected);
}

#[test]
fn only_a_trusted_proxy_sets_the_address_and_the_scheme_of_the_client() {
    let request = "GET /tell.php HTTP/1.1\r\nHost: told.test\r\n\
                   X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\
                   X_Forwarded_Proto: https\r\nX-Real-IP: 203.0.113.9\r\n\
                   X-Original-URL: /admin\r\n\r\n";
    let (_home, apus) = serve("strange", "", "");
    let params = send_request(apus.address(), request);
    assert_eq!(params["REMOTE_ADDR"], "127.0.0.1");
    assert_eq!(params["REQUEST_SCHEME"], "http");
    for name in [
        "HTTPS",
        "HTTP_X_FORWARDED_FOR",
        "HTTP_X_FORWARDED_PROTO",
        "HTTP_X_REAL_IP",
        "HTTP_X_ORIGINAL_URL",
    ] {
        assert!(!params.contains_key(name), "{name}");
    }
    let trusting = "[global]\ntrusted_proxies = \"127.0.0.0/8\"\n";
    let (_home, apus) = serve("trusted", trusting, "");
    let params = send_request(apus.address(), request);
    assert_eq!(params["REMOTE_ADDR"], "203.0.113.9");
    assert_eq!(params["HTTPS"], "on");
    assert_eq!(params["SERVER_PORT"], "443");
    assert!(!params.contains_key("HTTP_X_FORWARDED_PROTO"));
}

#[test]
fn a_chunked_request_body_reaches_php_with_its_content_length() {
    for (name, keys) in [
        ("held", ""),
        ("streamed", "fastcgi.hold_request = false"),
        ("spooled", "fastcgi.hold_request = { memory = 0 }"),
    ] {
        let (_home, apus) = serve(name, "", keys);
        let request = "POST /tell.php HTTP/1.1\r\nHost: told.test\r\n\
                       Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
                       6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n";
        let params = send_request(apus.address(), request);
        assert_eq!(params["CONTENT_LENGTH"], "11", "{name}");
        // The hash of "hello world".
        assert_eq!(
            params["CONTENT"], "5eb63bbbe01eeed093cb22bb8f5acdc3",
            "{name}"
        );
        assert!(!params.contains_key("HTTP_TRANSFER_ENCODING"), "{name}");
    }
}

#[test]
fn parameters_of_the_site_take_precedence_over_all_others() {
    let (_home, apus) = serve(
        "own",
        "",
        "[sites.fastcgi.params]\nAPP_ENV = \"production\"\nSERVER_NAME = \"of $host\"\n\
         SERVER_SOFTWARE = \"\"\nHTTP_X_USER = \"nobody\"\n",
    );
    let request = "GET /tell.php HTTP/1.1\r\nHost: told.test\r\nX-User: root\r\n\r\n";
    let params = send_request(apus.address(), request);
    assert_eq!(params["APP_ENV"], "production");
    assert_eq!(params["SERVER_NAME"], "of told.test");
    assert_eq!(params["HTTP_X_USER"], "nobody");
    assert!(!params.contains_key("SERVER_SOFTWARE"));
}

#[test]
fn a_path_with_an_encoded_slash_reaches_a_program_by_choice() {
    let status = |apus: &Apus, path: &str| {
        let mut wire = Wire::connect(apus.address());
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: told.test\r\n\r\n"));
        wire.read().status
    };
    let uri = |apus: &Apus, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: told.test\r\n\r\n");
        send_request(apus.address(), request)["REQUEST_URI"].clone()
    };
    Stack::scripts().write("encoded/uploads/evil.php", ECHO_PARAMS);
    let keys = "[sites.fastcgi]\nfront_controller = \"/tell.php\"\nno_php = \"/uploads/**\"\n";
    let (_home, normalized) = serve("encoded", "", keys);
    let (_raw_home, raw) = serve("encoded", "", &format!("{keys}path = \"raw\"\n"));
    for path in [
        "/wiki/AC%2FDC?a=%2F",
        "/wiki/AC%2fDC%2F",
        "/a%2F%2Fb",
        "/tell.php/a%2Fb",
    ] {
        assert_eq!(status(&normalized, path), 400, "{path}");
        assert_eq!(uri(&raw, path), path, "{path}");
    }
    for path in ["/wiki//a%20b", "/a;b=c", "/a+b"] {
        assert_eq!(uri(&normalized, path), path, "{path}");
        assert_eq!(uri(&raw, path), path, "{path}");
    }
    // Scripts route by `REQUEST_URI`, and may take dot segments literally.
    for path in ["/closed/../open", "/closed/%2e%2e/open?a", "/x/./../open"] {
        let resolved = path
            .replace("/closed/../", "/")
            .replace("/closed/%2e%2e/", "/");
        let resolved = resolved.replace("/x/./../", "/");
        assert_eq!(uri(&normalized, path), resolved, "{path}");
        assert_eq!(status(&raw, path), 400, "{path}");
    }
    for path in ["/closed%2F..%2Fopen", "/closed/..%2Fopen", "//open%2Fa"] {
        assert_eq!(status(&raw, path), 400, "{path}");
    }
    for path in [
        "/uploads/evil.php",
        "/uploads%2Fevil.php",
        "/uploads%2fevil.php/x",
    ] {
        assert!([400, 404].contains(&status(&normalized, path)), "{path}");
        assert_eq!(status(&raw, path), 404, "{path}");
    }
}
