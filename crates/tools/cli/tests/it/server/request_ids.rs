//! The id of a request: the same in its response, in the request to origins and PHP, in fields, and in the access log.

use std::collections::HashSet;

use crate::harness::{Apus, Home, wait_until};
use crate::php::stack::Stack;
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::wire::{Received, Wire};

const STORED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\nX-Request-Id: of-origin\r\n\r\nok";

struct Site {
    home: Home,
    apus: Apus,
    origin: ScriptedOrigin,
}

impl Site {
    fn start(global: &str, field: &str) -> Self {
        let origin = ScriptedOrigin::responding(STORED);
        let stack = Stack::scripts();
        stack.write(
            "request-ids/id.php",
            "<?php echo $_SERVER['HTTP_X_REQUEST_ID'] ?? $_SERVER['HTTP_X_TRACE'] ?? '-', ' ', $_SERVER['ID'];",
        );
        let home = Home::new();
        home.write(
            "apus.toml",
            format!(
                "[global]\n{global}\n\
                 [[sites]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n\
                 php_fastcgi = \"{php}\"\nfastcgi = {{ params = {{ ID = \"$request_id\" }} }}\n\
                 access_log = {{ path = \"log\", format = \"$request_uri $request_id\" }}\n\
                 request_id = {{ header = \"{field}\" }}\nheaders = {{ set = {{ X-Id = \"$request_id\" }} }}\n\
                 rewrite = [{{ from = \"^/moved$\", to = \"/return\", then = \"redirect\" }}]\n\
                 [[sites.locations]]\npath = \"= /return\"\nreturn = {{ status = 200, text = \"$request_id\" }}\n\
                 [[sites.locations]]\npath = \"/origin\"\nupstream = \"http://{origin}\"\n\
                 [[sites.locations]]\npath = \"/stored\"\nupstream = \"http://{origin}\"\ncache = true\n\
                 [[sites.locations]]\npath = \"/inside\"\ninternal = true\nreturn = {{ status = 200 }}\n",
                root = stack.path("request-ids").display(),
                php = stack.socket().display(),
                origin = origin.address(),
            ),
        );
        let apus = home.serve(&[]);
        Self { home, apus, origin }
    }

    fn get(&self, path: &str, lines: &str) -> Received {
        let mut wire = Wire::connect(self.apus.address());
        wire.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n"
        ));
        wire.read()
    }

    /// The ids in the access log of requests for a path, in order.
    fn logged(&self, path: &str, count: usize) -> Vec<String> {
        let ids = || -> Vec<String> {
            let log = std::fs::read_to_string(self.home.path("log")).unwrap_or_default();
            let lines = log.lines().filter_map(|line| line.split_once(' '));
            lines
                .filter(|(logged, _)| *logged == path)
                .map(|(_, id)| id.to_owned())
                .collect()
        };
        wait_until("the request is in the access log", || ids().len() == count);
        ids()
    }
}

const PATHS: [&str; 8] = [
    "/return", "/origin", "/stored", "/id.php", "/moved", "/none", "/inside", "/%00",
];

#[test]
fn the_id_of_a_request_is_the_same_for_the_client_origins_php_and_the_log() {
    let site = Site::start("", "X-Request-Id");
    let mut seen = HashSet::new();
    for path in PATHS {
        for round in 1..=2 {
            let response = site.get(path, "X-Request-Id: of-client\r\n");
            let id = response.field("x-request-id").unwrap().to_owned();
            assert_eq!(response.field("x-id"), Some(&*id), "{path}");
            assert_eq!(site.logged(path, round).last(), Some(&id), "{path}");
            match path {
                "/return" => assert_eq!(response.text(), id),
                "/id.php" => assert_eq!(response.text(), format!("{id} {id}")),
                "/origin" => {
                    let received = site.origin.received().to_lowercase();
                    assert!(
                        received.contains(&format!("x-request-id: {id}\r\n")),
                        "{received}"
                    );
                }
                _ => {}
            }
            assert!(seen.insert(id), "{path}: an id is used twice");
        }
    }
    assert!(!site.origin.received().contains("of-client"));
}

#[test]
fn the_id_of_a_trusted_proxy_is_the_same_for_the_client_origins_php_and_the_log() {
    let site = Site::start("trusted_proxies = \"127.0.0.0/8\"", "X-Trace");
    for path in PATHS {
        let response = site.get(path, "X-Trace: of-proxy\r\nX-Request-Id: of-client\r\n");
        assert_eq!(response.field("x-trace"), Some("of-proxy"), "{path}");
        assert_eq!(response.field("x-id"), Some("of-proxy"), "{path}");
        assert_eq!(site.logged(path, 1), ["of-proxy"], "{path}");
    }
    assert_eq!(site.get("/id.php", "X-Trace: t\r\n").text(), "t t");
    let received = site.origin.received().to_lowercase();
    assert!(received.contains("x-trace: of-proxy\r\n"), "{received}");
    // An id that could be mistaken in a log is replaced.
    let response = site.get("/return", "X-Trace: a b\r\n");
    assert_eq!(response.field("x-trace").map(str::len), Some(32));
}
