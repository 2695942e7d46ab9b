//! Programs that `try_files`, a rewrite, an error page or `X-Accel-Redirect` chooses: they get the same
//! parameters as behind nginx, and their responses are cached by the URL of the client.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{ClientProtocol, PageResponse, Visitor};
use crate::harness::wait_until;
use crate::wire::Wire;

/// Prints its parameters.
const ECHO_PARAMS: &str = "<?php header('Cache-Control: max-age=' . ($_GET['age'] ?? 600));
    header('Content-Type: text/plain');
    foreach (['REQUEST_URI', 'SCRIPT_NAME', 'QUERY_STRING', 'DOCUMENT_URI', 'REQUEST_METHOD',
        'PATH_INFO', 'HTTP_COOKIE', 'HTTP_AUTHORIZATION', 'HTTP_X_A', 'HTTP_HOST'] as $name) {
        echo \"$name=\", $_SERVER[$name] ?? '-', \"\\n\"; }";
/// Prints its request and how often it ran, so that each response differs.
const COUNT_RUNS: &str = "<?php header('Cache-Control: max-age=' . ($_GET['age'] ?? 600) .
        ', stale-while-revalidate=600');
    file_put_contents(__DIR__ . '/runs', \"{$_SERVER['REQUEST_URI']} {$_SERVER['QUERY_STRING']}\\n\",
        FILE_APPEND | LOCK_EX);
    echo $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], ' ',
        count(file(__DIR__ . '/runs'));";

fn site<'a>(root: &'a Path, socket: &'a Path, apus: &'a str) -> Site<'a> {
    Site {
        host: "app.test",
        root,
        socket,
        apus,
        nginx: "",
    }
}

/// A folder with the program that counts its runs.
fn counting(name: &str) -> PathBuf {
    let stack = Stack::scripts();
    stack.write(&format!("{name}/app.php"), COUNT_RUNS);
    let runs = stack.write(&format!("{name}/runs"), "");
    fs::set_permissions(runs, Permissions::from_mode(0o666)).unwrap();
    stack.path(name)
}

fn get(server: &Server, path: &str) -> PageResponse {
    Visitor::new(ClientProtocol::Http1).get(server, path)
}

fn cache_result(reply: &PageResponse) -> &str {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.field("x-fastcgi-cache")
}

#[test]
fn responses_behind_try_files_and_rewrites_are_cached_by_the_url_of_the_client() {
    let stack = Stack::scripts();
    let (root, socket) = (counting("cached-lists"), stack.socket());
    let server = Server::apus(&site(
        &root,
        &socket,
        "try_files = [\"$uri\", \"/app.php?way=list&$args\"]\n\
         fastcgi = { cache = { ttl = 600, purge_token = \"0123456789abcdef\" }, cache_field = true }\n\
         [[sites.locations]]\npath = \"/old/\"\n\
         rewrite = [{ from = \"^/old/(.*)\", to = \"/app.php?page=$1\", then = \"last\" }]\n",
    ));
    for path in ["/one", "/two", "/one?a=b", "/old/one", "/old/two"] {
        let first = get(&server, path);
        assert_eq!(cache_result(&first), "MISS", "{path}");
        assert!(first.text().starts_with(&format!("{path} ")), "{path}");
        for protocol in [ClientProtocol::Http1, ClientProtocol::Http2] {
            let again = Visitor::new(protocol).get(&server, path);
            assert_eq!(
                (cache_result(&again), &again.body),
                ("HIT", &first.body),
                "{path}"
            );
            assert!(again.field("cache-status").contains("hit"), "{path}");
        }
    }
    // A purge names the URL that the client requested, and removes nothing else.
    server
        .home
        .expect(&["cache", "purge", "--url", "http://app.test/one"], 0);
    assert_eq!(cache_result(&get(&server, "/one")), "MISS");
    for path in ["/two", "/one?a=b", "/old/one"] {
        assert_eq!(cache_result(&get(&server, path)), "HIT", "{path}");
    }
    for path in ["/two", "/old/two"] {
        let mut wire = Wire::connect(server.clear());
        wire.send(format!(
            "PURGE {path} HTTP/1.1\r\nHost: app.test\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n"
        ));
        assert_eq!(wire.read().status, 204, "{path}");
        assert_eq!(cache_result(&get(&server, path)), "MISS", "{path}");
    }
    assert_eq!(cache_result(&get(&server, "/one?a=b")), "HIT");
    // A successful unsafe request invalidates the page, too (RFC 9111 section 4.4).
    let posted = Visitor::new(ClientProtocol::Http1).request(&server, "/one", &["--data", "x"]);
    assert_eq!(posted.status, 200);
    assert_eq!(cache_result(&get(&server, "/one")), "MISS");
}

#[test]
fn a_background_refresh_behind_try_files_sends_the_same_request_uri_and_query() {
    let stack = Stack::scripts();
    let (root, socket) = (counting("cached-stale"), stack.socket());
    let server = Server::apus(&site(
        &root,
        &socket,
        "try_files = [\"$uri\", \"/app.php?way=list&$args\"]\n\
         fastcgi = { cache = true, cache_field = true }\n",
    ));
    let first = get(&server, "/page?age=0").text();
    assert_eq!(first, "/page?age=0 way=list&age=0 1");
    wait_until("the page was refreshed in the background", || {
        let text = get(&server, "/page?age=0").text();
        assert!(text.starts_with("/page?age=0 way=list&age=0 "), "{text}");
        text != first
    });
}

#[test]
fn a_program_that_x_accel_redirect_names_gets_the_same_parameters_as_behind_nginx() {
    let stack = Stack::scripts();
    stack.write(
        "accel-as-nginx/from.php",
        "<?php header('X-Accel-Redirect: /inner/to.php/more%20x?q=1'); echo 'not this';",
    );
    stack.write("accel-as-nginx/inner/to.php", ECHO_PARAMS);
    let (root, socket) = (stack.path("accel-as-nginx"), stack.socket());
    let as_nginx = Server::nginx(&Site {
        nginx: "location ^~ /inner/ { internal; \
                fastcgi_split_path_info ^(.+?\\.php)(/.*)$; include /etc/nginx/fastcgi.conf; \
                fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_pass unix:SOCKET; }"
            .replace("SOCKET", socket.to_str().unwrap())
            .as_str(),
        ..site(&root, &socket, "")
    });
    let inner = "[[sites.locations]]\npath = \"/inner/\"\ninternal = true\n";
    let plain = format!("fastcgi.accel = true\n{inner}");
    let cached = format!("fastcgi = {{ accel = true, cache = {{ ttl = 600 }} }}\n{inner}");
    for apus in [&plain, &cached] {
        let apus = Server::apus(&site(&root, &socket, apus));
        for request in [
            "GET /from.php?o=2 HTTP/1.1\r\nHost: app.test\r\nCookie: a=1; b=2\r\nX-A: 1\r\n\
             Authorization: Basic eDp5\r\nAccept: */*\r\n\r\n",
            "GET /from.php?o=3 HTTP/1.1\r\nHost: app.test\r\n\r\n",
            "GET /from.php?o=3 HTTP/1.1\r\nHost: app.test\r\n\r\n",
            "POST /from.php?o=2 HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbody",
        ] {
            let [params, expected] = [&apus, &as_nginx].map(|server| {
                let mut wire = Wire::connect(server.clear());
                wire.send(request);
                let reply = wire.read();
                assert_eq!(reply.status, 200, "{}", reply.text());
                reply.text()
            });
            assert!(expected.contains("REQUEST_URI=/from.php?o="), "{expected}");
            assert_eq!(params, expected, "{request}");
        }
        assert_eq!(get(&apus, "/inner/to.php").status, 404);
    }
}

#[test]
fn a_program_that_is_an_error_page_gets_the_same_parameters_as_behind_nginx() {
    let stack = Stack::scripts();
    stack.write("error-as-nginx/error.php", ECHO_PARAMS);
    stack.write(
        "error-as-nginx/own.php",
        ECHO_PARAMS.replace("<?php", "<?php http_response_code(410);"),
    );
    let (root, socket) = (stack.path("error-as-nginx"), stack.socket());
    let as_nginx = Server::nginx(&Site {
        nginx: "error_page 404 /error.php?q=1; error_page 410 /own.php; \
                location = /gone { return 410; } \
                location /deep/ { error_page 404 /error.php?deep=1; }",
        ..site(&root, &socket, "")
    });
    let locations = "[[sites.locations]]\npath = \"= /gone\"\nreturn = { status = 410 }\n\
        [[sites.locations]]\npath = \"/deep/\"\nerror_pages = { 404 = \"/error.php?deep=1\" }\n";
    let pages = "error_pages = { 404 = \"/error.php?q=1\", 410 = \"/own.php\" }\n";
    let cache = "fastcgi = { cache = { ttl = 600 } }\n";
    for apus in [
        format!("{pages}{locations}"),
        format!("{pages}{cache}{locations}"),
    ] {
        let apus = Server::apus(&site(&root, &socket, &apus));
        for (request, status) in [
            (
                "GET /none?o=2 HTTP/1.1\r\nHost: app.test\r\nCookie: a=1; b=2\r\nX-A: 1\r\n\
                 Authorization: Basic eDp5\r\nAccept: */*\r\n\r\n",
                404,
            ),
            ("GET /none?o=3 HTTP/1.1\r\nHost: app.test\r\n\r\n", 404),
            ("GET /none?o=4 HTTP/1.1\r\nHost: app.test\r\n\r\n", 404),
            ("GET /no%20ne.php HTTP/1.1\r\nHost: app.test\r\n\r\n", 404),
            ("GET /deep/none HTTP/1.1\r\nHost: app.test\r\n\r\n", 404),
            (
                "POST /none HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbody",
                404,
            ),
            ("GET /gone HTTP/1.1\r\nHost: app.test\r\n\r\n", 410),
            (
                "GET http://app.test/none?o=5 HTTP/1.1\r\nHost: app.test\r\n\r\n",
                404,
            ),
        ] {
            let [params, expected] = [&apus, &as_nginx].map(|server| {
                let mut wire = Wire::connect(server.clear());
                wire.send(request);
                let reply = wire.read();
                assert_eq!(reply.status, status, "{request}{}", reply.text());
                reply.text()
            });
            assert!(expected.contains("REQUEST_METHOD=GET"), "{expected}");
            assert_eq!(params, expected, "{request}");
        }
    }
}
