//! Conditions of access logs, limits, caches and compression in a running server.

use std::fs;

use crate::harness::{Home, wait_until};
use crate::wire::{Received, Wire};

fn ask(address: std::net::SocketAddr, request: &str) -> (u16, String) {
    let mut wire = Wire::connect(address);
    wire.send(format!(
        "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    ));
    let received = wire.read();
    let text = format!("{}\r\n{}", received.head.join("\r\n"), received.text());
    (received.status, text)
}

#[test]
fn a_log_has_the_requests_or_responses_of_its_condition() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("public/a.css", "a");
    let site = |name: &str, when: &str| {
        format!(
            "[[sites]]\nname = \"{name}\"\nserver_name = \"{name}\"\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\n{when}\n"
        )
    };
    let config = site(
        "a",
        "access_log = { path = \"early\", format = \"$request_uri $status\", when = 'not path ends_with \".css\"' }",
    );
    home.write("apus.toml", &config);
    let apus = home.serve(&[]);
    let get = |path: &str| ask(apus.address(), &format!("GET {path}")).0;
    // Each worker writes its own lines.
    let lines = |file: &str| {
        let text = home.read(file);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        (get("/a.css"), get("/none"), get("/?last")),
        (200, 404, 200)
    );
    wait_until("the requests are logged", || lines("early").len() == 2);
    assert_eq!(lines("early"), ["/?last 200", "/none 404"]);

    let config = site(
        "a",
        "access_log = { path = \"late\", format = \"$request_uri $status\", when = 'status >= 400 or tag.seen' }\n\
         rules = [{ when = 'query.seen exists', tag = \"seen\" }, { when = 'query.ok exists', allow = true }]",
    );
    home.write("apus.toml", &config);
    home.expect(&["reload"], 0);
    assert_eq!(
        (
            get("/a.css"),
            get("/?ok=1"),
            get("/none?ok=1"),
            get("/x"),
            get("/?seen=1")
        ),
        (200, 200, 404, 404, 200)
    );
    wait_until("the requests are logged", || lines("late").len() == 3);
    assert_eq!(lines("late"), ["/?seen=1 200", "/none?ok=1 404", "/x 404"]);
}

#[test]
fn a_limit_counts_only_the_requests_of_its_condition() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write(
        "apus.toml",
        r#"
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
[[sites.limits]]
name = "queries"
rate = "2/h"
when = 'query.q exists'
[[sites.limits]]
name = "by-rule"
rate = "1/h"
by_rules = true
when = 'query.heavy == "1"'
[[sites.rules]]
limit = "by-rule"
"#,
    );
    let apus = home.serve(&[]);
    let get = |path: &str| ask(apus.address(), &format!("GET {path}")).0;
    for _ in 0..5 {
        assert_eq!(get("/"), 200);
    }
    assert_eq!(
        ["/?q=1", "/?q=2", "/?q=3", "/"].map(get),
        [200, 200, 429, 200]
    );
    assert_eq!(
        ["/?heavy=1", "/?heavy=1", "/?heavy=2"].map(get),
        [200, 429, 200]
    );
}

#[test]
fn a_request_for_which_the_condition_holds_bypasses_the_cache() {
    let origin = Home::new();
    origin.make_folder("public");
    origin.write("public/page", "first");
    origin.write(
        "apus.toml",
        "[[sites]]\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\naccess_log = { path = \"log\", format = \"$request_uri\" }\nheaders.set = { Cache-Control = \"max-age=600\" }\n",
    );
    let behind = origin.serve(&[]);
    let home = Home::new();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\ncache = {{ bypass_when = 'query.fresh exists' }}\n",
            behind.address()
        ),
    );
    let apus = home.serve(&[]);
    let get = |path: &str| ask(apus.address(), &format!("GET {path}")).1;
    get("/page");
    assert!(
        get("/page").contains("hit"),
        "the second one is from the cache"
    );
    for _ in 0..2 {
        let fresh = get("/page?fresh=1");
        assert!(!fresh.contains("; hit"), "{fresh}");
    }
    wait_until("all are logged", || origin.read("log").lines().count() == 3);
    assert_eq!(origin.read("log").matches("/page?fresh=1\n").count(), 2);
}

#[test]
fn rules_ask_what_is_left_of_a_limit_and_count_nothing() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write(
        "apus.toml",
        r#"
[global]
worker_threads = 2
[[global.limits]]
name = "all"
key = "all"
quota = "1000/month"
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
[[sites.limits]]
name = "pages"
rate = "3/h"
[[sites.rules]]
when = "limit.pages == 0"
return = { status = 200, text = "used up" }
[[sites.rules]]
when = "limit.pages < 2 and limit.all > 900"
headers.set = { x-low = "yes" }
[[sites.rules]]
when = "limit.all <= 998"
headers.set = { x-all = "yes" }
"#,
    );
    let apus = home.serve(&[]);
    // Each connection may come to the other worker.
    let get = || {
        let (status, text) = ask(apus.address(), "GET /");
        let has = |field: &str| text.contains(&format!("{field}: yes"));
        (
            status,
            has("x-low"),
            has("x-all"),
            text.ends_with("used up"),
        )
    };
    assert_eq!(get(), (200, false, false, false));
    assert_eq!(get(), (200, false, false, false));
    assert_eq!(get(), (200, true, true, false));
    for _ in 0..3 {
        assert_eq!(get(), (200, false, false, true));
    }
    home.expect(&["reload"], 0);
    assert_eq!(get(), (200, false, false, true));
}

/// The fields of a response to a GET of a client that accepts gzip.
fn accept_gzip(address: std::net::SocketAddr, path: &str, lines: &str) -> Received {
    let mut wire = Wire::connect(address);
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{lines}Connection: close\r\n\r\n"
    ));
    wire.read()
}

/// Whether a response is compressed. Caches are told in either case that it depends on the client.
#[track_caller]
fn is_compressed(received: &Received) -> bool {
    assert_eq!(received.status, 200, "{received:?}");
    let varies = received.field("vary") == Some("accept-encoding");
    assert!(varies, "{:?}", received.head);
    let coding = received.field("content-encoding");
    assert_eq!(coding.is_none(), received.text().starts_with("text "));
    coding.is_some()
}

/// An origin that compresses what it is asked to, and logs what it is asked.
fn origin_of_texts(home: &Home) -> crate::harness::Apus {
    home.make_folder("public");
    home.write("public/page.html", "text ".repeat(2000));
    home.write("public/short.html", "text ".repeat(300));
    home.write("public/page.css", "text ".repeat(2000));
    home.write(
        "apus.toml",
        "[[sites]]\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\ncompress = { gzip = false, brotli = false, zstd = false }\n\
         access_log = { path = \"log\", format = \"$request_uri <$http_accept_encoding>\" }\nheaders.set = { Cache-Control = \"max-age=600\" }\n",
    );
    home.serve(&[])
}

/// A server with files, a proxy and a cache in front of an origin.
fn front(home: &Home, origin: std::net::SocketAddr, when: &str) {
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\ncompress.when = '{when}'\n\
             locations = [{{ path = \"/app/\", upstream = \"http://{origin}/\" }},\n\
             {{ path = \"/cached/\", upstream = \"http://{origin}/\", cache = {{ cookies = \"always\" }} }}]\n"
        ),
    );
}

#[test]
fn only_responses_of_the_condition_are_compressed() {
    let origin = Home::new();
    let behind = origin_of_texts(&origin);
    let home = Home::new();
    home.make_folder("public");
    home.write("public/page.html", "text ".repeat(2000));
    home.write("public/ready.html", "text ".repeat(2000));
    // What is in it does not matter.
    home.write("public/ready.html.gz", [0x1f, 0x8b, 8, 0]);
    front(&home, behind.address(), "not cookie.session exists");
    let apus = home.serve(&[]);
    let get = |path: &str, lines: &str| accept_gzip(apus.address(), path, lines);
    let (stranger, member) = ("", "Cookie: session=1\r\n");
    for path in [
        "/page.html",
        "/ready.html",
        "/app/page.html",
        "/cached/page.html",
    ] {
        // The one is not what the other gets, whoever comes first.
        assert!(!is_compressed(&get(path, member)), "{path}");
        wait_until("the file is compressed", || {
            is_compressed(&get(path, stranger))
        });
        for _ in 0..3 {
            assert!(!is_compressed(&get(path, member)), "{path}");
            assert!(is_compressed(&get(path, stranger)), "{path}");
        }
    }
    // A client that has the begin of a compressed response does not get the end of another one.
    for path in ["/page.html", "/app/page.html", "/cached/page.html"] {
        let first = get(path, stranger);
        let date = first.field("last-modified").unwrap();
        let resumed = format!("{member}Range: bytes=5-9\r\nIf-Range: {date}\r\n");
        assert!(!is_compressed(&get(path, &resumed)), "{path}");
    }
    // The origin compresses nothing for it either.
    wait_until("all are logged", || origin.read("log").lines().count() >= 9);
    let log = origin.read("log");
    assert!(log.contains("<->") && log.contains("<gzip>"), "{log}");
    let cookie = ["--header", "Cookie: session=1"];
    let explain = ["explain", "GET", "http://a/page.html"];
    let (explained, _) = home.expect(&[&explain[..], &cookie].concat(), 0);
    assert!(explained.contains("no compression"), "{explained}");
}

#[test]
fn a_condition_for_compression_knows_the_response() {
    let origin = Home::new();
    let behind = origin_of_texts(&origin);
    let home = Home::new();
    home.make_folder("public");
    for file in ["page.html", "page.css", "short.html"] {
        home.write(
            &format!("public/{file}"),
            fs::read(origin.path(&format!("public/{file}"))).unwrap(),
        );
    }
    front(
        &home,
        behind.address(),
        "status == 200 and response_length > 4kb and (response_type == \"text/html\" or query.all exists)",
    );
    let apus = home.serve(&[]);
    let get = |path: &str| is_compressed(&accept_gzip(apus.address(), path, ""));
    for folder in ["", "/app", "/cached"] {
        wait_until("the file is compressed", || {
            get(&format!("{folder}/page.html"))
        });
        for _ in 0..3 {
            assert!(!get(&format!("{folder}/short.html")), "{folder}");
            assert!(!get(&format!("{folder}/page.css")), "{folder}");
            assert!(get(&format!("{folder}/page.html")), "{folder}");
        }
    }
    wait_until("the file is compressed", || get("/page.css?all"));
    assert!(!get("/page.css"));
}
