//! Mistakes of scripts in the heads of their responses, and large requests of clients: they are read as behind nginx,
//! and no script takes PHP out of service for the others.

use super::doors::doors;
use super::server::{Server, Site};
use super::stack::Stack;
use crate::wire::{Received, Wire};

fn get(server: &Server, path: &str) -> Received {
    let mut wire = Wire::connect(server.clear());
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n"));
    wire.read()
}

/// What a script does, the status and the body of its response, and whether nginx sends the same.
const MISTAKES: [(&str, u16, &str, bool); 33] = [
    ("header('Content-Length: abc')", 200, "hello", true),
    ("header('Content-Length: -5')", 200, "hello", true),
    ("header('Content-Length: +5')", 200, "hello", true),
    ("header('Content-Length: 5, 5')", 200, "hello", true),
    ("header('Content-Length:')", 200, "hello", true),
    ("header('Content-Length: 0x5')", 200, "hello", true),
    (
        "header('Content-Length: 99999999999999999999')",
        200,
        "hello",
        true,
    ),
    (
        "header('Content-Length: 5'); header('Content-Length: 5', false)",
        200,
        "hello",
        true,
    ),
    (
        "header('Content-Length: 3'); header('Content-Length: 5', false)",
        200,
        "hello",
        true,
    ),
    (
        "header('Content-Length: 5'); header('Content-Length: 3', false)",
        200,
        "hel",
        true,
    ),
    ("header('Foo')", 200, "hello", true),
    ("header('X-V: F\u{f6}\u{f6}')", 200, "hello", true),
    ("header(\"X-V: a\\x01b\")", 200, "hello", true),
    ("header(\"X-V: a\\0b\")", 200, "hello", true),
    ("header(\"X-V: a\\nX-W: b\")", 200, "hello", true),
    ("header(\"X-V: a\\rX-W: b\")", 200, "hello", true),
    ("header('Status: 404 Not Found')", 404, "hello", true),
    ("header('Status: 600 Six')", 600, "hello", true),
    ("header('HTTP/1.1 999 Last')", 999, "hello", true),
    ("http_response_code(600)", 600, "hello", true),
    ("header('Transfer-Encoding: chunked')", 200, "hello", true),
    ("header('Location:')", 302, "hello", true),
    // nginx responds 502.
    ("header('Foo bar baz')", 200, "hello", false),
    ("header('Foo Bar: x')", 200, "hello", false),
    ("header('Foo : x')", 200, "hello", false),
    ("header(' Folded: x')", 200, "hello", false),
    ("header(\"\\tFolded: x\")", 200, "hello", false),
    ("header(': x')", 200, "hello", false),
    ("header('Status: abc')", 500, "hello", false),
    ("header('Status:')", 500, "hello", false),
    ("http_response_code(99)", 500, "hello", false),
    ("header('HTTP/1.1 abc')", 500, "hello", false),
    // It passes these, which HTTP/2 and HTTP/3 do not have.
    ("header('F\u{f6}(\u{f6}: x')", 200, "hello", false),
];

#[test]
fn mistakes_of_a_script_in_its_header_lines_are_read_as_behind_nginx_and_are_no_502() {
    let mut script = String::from("<?php switch ((int) $_GET['n']) {");
    for (number, (code, ..)) in MISTAKES.iter().enumerate() {
        script += &format!("case {number}: {code}; break;\n");
    }
    script += "} echo 'hello';";
    let files = [("index.php", &*script)];
    let doors = doors("mistakes", &files, "");
    let stack = Stack::scripts();
    let nginx = Server::nginx(&Site {
        host: "app.test",
        root: &stack.path("mistakes"),
        socket: &stack.socket(),
        apus: "",
        nginx: "",
    });
    for (number, (code, status, body, is_same)) in MISTAKES.iter().enumerate() {
        let path = format!("/index.php?n={number}");
        let mut expected = vec![(*status, (*body).to_owned())];
        if *is_same {
            let peer = get(&nginx, &path);
            expected.push((peer.status, peer.text()));
        }
        for (door, server) in &doors {
            let reply = get(server, &path);
            for expected in &expected {
                assert_eq!((reply.status, reply.text()), *expected, "{door} {code}");
            }
            assert_eq!(reply.field("x-w"), None, "{door} {code}");
        }
    }
    for (door, server) in &doors {
        server.wait_for_log("a line of the response head is not valid and is left out");
        assert_eq!(get(server, "/index.php?n=999").text(), "hello", "{door}");
    }
}

#[test]
fn no_mistake_of_a_script_takes_php_out_of_service_for_other_scripts() {
    let files = [
        ("index.php", "<?php echo 'well';"),
        (
            "big.php",
            "<?php header('X-Big: ' . str_repeat('b', 70000)); echo 'x';",
        ),
        (
            "many.php",
            "<?php for ($n = 0; $n < 600; $n++) header(\"X-$n: y\"); echo 'x';",
        ),
        (
            "short.php",
            "<?php header('Content-Length: 30'); echo 'hello';",
        ),
        (
            "killed.php",
            "<?php exec('kill -9 ' . getmypid()); sleep(10);",
        ),
    ];
    for (door, server) in doors("out-of-service", &files, "") {
        for name in ["/big.php", "/many.php", "/short.php", "/killed.php"] {
            for _ in 0..4 {
                let mut wire = Wire::connect(server.clear());
                wire.send(format!("GET {name} HTTP/1.1\r\nHost: app.test\r\n\r\n"));
                let status = wire.read_head().status;
                assert_eq!(
                    status,
                    if name == "/short.php" { 200 } else { 502 },
                    "{door} {name}"
                );
                if name == "/short.php" {
                    wire.rest();
                }
            }
            let reply = get(&server, "/index.php");
            assert_eq!(
                (reply.status, &*reply.text()),
                (200, "well"),
                "{door} {name}"
            );
        }
    }
}

#[test]
fn parameters_of_more_than_64_kb_reach_php_and_are_no_failure_of_it() {
    const ECHO: &str =
        "<?php echo strlen($_SERVER['REQUEST_URI']), ' ', strlen($_SERVER['QUERY_STRING']), ' ',
        strlen($_SERVER['HTTP_X_ONE'] ?? ''), ' ', $_SERVER['HTTP_X_LAST'] ?? '-';";
    let global =
        "[global]\nclient_header_size = 63\nclient_target_size = 63\nclient_header_fields = 1000";
    for (door, server) in doors("large", &[("index.php", ECHO)], global) {
        // Below, at and above 64 KiB, by the query and by fields: the query is in two parameters.
        for (query, field) in [
            (20_000, 20_000),
            (30_000, 3_000),
            (32_000, 1_200),
            (32_300, 1_200),
            (32_700, 1_200),
            (33_000, 20_000),
            (60_000, 1_000),
            (100, 60_000),
        ] {
            for _ in 0..4 {
                let mut wire = Wire::connect(server.clear());
                wire.send(format!(
                    "GET /index.php?{} HTTP/1.1\r\nHost: app.test\r\nX-One: {}\r\nX-Last: l\r\n\r\n",
                    "q".repeat(query),
                    "f".repeat(field)
                ));
                let reply = wire.read();
                let expected = format!("{} {query} {field} l", query + "/index.php?".len());
                assert_eq!(
                    (reply.status, reply.text()),
                    (200, expected),
                    "{door} {query} {field}"
                );
            }
        }
    }
}
