//! Rules of `apus.toml` in a running server: what clients get, what is logged and counted, and lists in files.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::clients::certificate;
use crate::harness::{Home, free_port, wait_until};
use crate::wire::Wire;

const CONFIG: &str = r#"
[global]
time_zone = "UTC"
[global.conditions]
writes = { method = ["POST", "PUT", "DELETE"] }
closed = "writes and not header.key == \"secret\""
[global.lists]
blocked = { networks = "blocked.txt" }
robots = ["GPTBot", "CCBot"]
[[global.rules]]
name = "robots"
when = "user_agent contains @robots"
deny = 403
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
access_log = { path = "log", format = "$request_uri $status" }
[[sites.rules]]
name = "blocked"
when = "client in @blocked"
return = { status = 403, text = "blocked\n" }
[[sites.rules]]
name = "quiet"
when = { path = "/health" }
log = false
return = { status = 200, text = "well\n" }
[[sites.rules]]
name = "closed"
when = "closed"
deny = 405
[[sites.rules]]
name = "trial"
dry_run = true
when = "query.trial exists"
deny = 429
[[sites.rules]]
name = "protocol"
when = { protocol = "h2" }
headers.set = { x-rule = "$server_protocol" }
[[sites.rules]]
name = "missing"
on = "response"
when = "status == 404"
headers.set = { x-missing = "$uri" }
[[sites.locations]]
path = "/inner/"
[[sites.locations.rules]]
name = "inner"
when = "not tls"
return = { status = 200, text = "inner" }
"#;

fn ask(address: std::net::SocketAddr, request: &str) -> (u16, String) {
    let mut wire = Wire::connect(address);
    wire.send(format!("{request}Connection: close\r\n\r\n"));
    let received = wire.read();
    let text = format!("{}\r\n{}", received.head.join("\r\n"), received.text());
    (received.status, text)
}

#[test]
fn rules_of_the_server_the_site_and_the_location_decide_in_this_order() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("blocked.txt", "# nobody\n192.0.2.0/24\n");
    home.write("apus.toml", CONFIG);
    let apus = home.serve(&[]);
    let get = |path: &str, lines: &str| {
        ask(
            apus.address(),
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}"),
        )
    };
    assert_eq!(get("/", "").0, 200);
    assert_eq!(get("/", "User-Agent: x GPTBot/1\r\n").0, 403);
    assert!(get("/health", "").1.ends_with("well\n"));
    assert!(get("/inner/x", "").1.ends_with("inner"));
    let missing = get("/none", "").1;
    assert!(missing.contains("x-missing: /none\r\n"), "{missing}");
    assert_eq!(get("/?trial=1", "").0, 200);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n";
    assert_eq!(ask(apus.address(), post).0, 405);
    // The same path in another form, and what stands for it in HTTP/1.
    for path in ["/%68ealth", "/x/../health", "//health", "http://a/health"] {
        assert!(get(path, "").1.ends_with("well\n"), "{path}");
    }
    let curl = Command::new("curl")
        .args(["-si", "--http2-prior-knowledge"])
        .arg(format!("http://{}/", apus.address()))
        .output()
        .unwrap();
    let curl = String::from_utf8(curl.stdout).unwrap();
    assert!(curl.contains("x-rule: HTTP/2.0"), "{curl}");

    // Counters, and what is logged.
    let counts = || {
        let (text, _) = home.expect(&["status", "--rules", "--json"], 0);
        let rules: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rules = rules.as_array().unwrap().clone();
        rules
            .iter()
            .map(|rule| {
                let text = |name: &str| rule[name].as_str().unwrap().to_owned();
                (
                    format!("{}: {}", text("place"), text("rule")),
                    rule["applied"].as_u64().unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    let expected = [
        ("global: robots", 1),
        ("a: blocked", 0),
        ("a: quiet", 5),
        ("a: closed", 1),
        ("a: trial", 1),
        ("a: protocol", 1),
        ("a: missing", 1),
        ("a /inner/: inner", 1),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(counts(), expected);
    let (table, _) = home.expect(&["status", "--rules"], 0);
    assert!(table.contains("trial"), "{table}");
    assert!(table.contains("(dry run)"), "{table}");
    wait_until("the last request is logged", || {
        home.read("log").contains("/?trial=1 200")
    });
    assert!(!home.read("log").contains("health"), "{}", home.read("log"));

    // A reload keeps the counters; a list is read again when its file changes, and not when it has a mistake.
    home.expect(&["reload"], 0);
    assert_eq!(counts(), expected);
    home.write("blocked.txt", "127.0.0.1\n");
    wait_until("the list is read again", || get("/", "").0 == 403);
    home.write("blocked.txt", "127.0.0.1\nnothing\n");
    apus.wait_for_log("line 2 is no network: `nothing`");
    assert_eq!(get("/", "").0, 403);
}

#[test]
fn explain_shows_the_rules_that_apply_and_why_the_first_does_not() {
    let home = Home::new();
    home.make_folder("public");
    home.write("blocked.txt", "");
    home.write("apus.toml", CONFIG);
    let (text, _) = home.expect(&["explain", "GET", "http://a/none?trial=1"], 0);
    for part in [
        "global: robots does not apply\n          because there is no `user_agent`\n",
        "a: blocked does not apply\n          because `client` is 127.0.0.1\n",
        "a: trial: would return 429 (dry run)\n          because its condition holds\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_rule_bans_a_client_from_its_next_request_on() {
    let home = Home::new();
    home.make_folder("public");
    home.make_folder("state");
    home.write("public/index.html", "home");
    home.write(
        "apus.toml",
        "[global]\nstate_folder = \"state\"\ntrusted_proxies = \"127.0.0.1\"\n\
         [[sites]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\nroot = \"public\"\n\
         [[sites.rules]]\nname = \"trap\"\nwhen = 'path == \"/trap\"'\nban = \"10m\"\n\
         [[sites.rules]]\nname = \"tried\"\nwhen = 'path == \"/tried\"'\nban = \"10m\"\ndry_run = true\n\
         [[sites.rules]]\nname = \"probe\"\non = \"response\"\nwhen = 'status == 404 and path ends_with \".bak\"'\nban = \"10m\"\n\
         [[sites.rules]]\nname = \"hidden\"\nwhen = 'path == \"/hidden\"'\nban = \"10m\"\ndeny = 404\n",
    );
    let apus = home.serve(&[]);
    let get = |client: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n");
        ask(apus.address(), &request).0
    };
    for (client, path, status, after) in [
        ("203.0.113.1", "/", 200, 200),
        ("203.0.113.2", "/trap", 403, 403),
        ("203.0.113.3", "/tried", 404, 200),
        ("203.0.113.4", "/x.bak", 404, 403),
        ("203.0.113.5", "/hidden", 404, 403),
        ("2001:db8::1", "/trap", 403, 403),
        // The proxy itself is never banned.
        ("", "/trap", 403, 200),
    ] {
        assert_eq!(get(client, path), status, "{client} {path}");
        assert_eq!(get(client, "/"), after, "{client} after {path}");
    }
    // An IPv6 network of 64 bits is one client.
    assert_eq!(get("2001:db8::2", "/"), 403);
    assert_eq!(get("2001:db8:0:1::2", "/"), 200);
    wait_until("the bans are listed", || {
        let (list, _) = home.expect(&["ban", "list"], 0);
        [
            "203.0.113.2",
            "203.0.113.4",
            "203.0.113.5",
            "rule trap",
            "rule probe",
        ]
        .iter()
        .all(|part| list.contains(part))
    });
}

const ACTIONS: &str = r#"
[[sites]]
name = "a"
listen = "127.0.0.1:0"
root = "public"
access_log = { path = "log", format = "$request_uri $server_protocol $status" }
rules = [
    { name = "closed", when = 'path == "/closed"', close = true },
    { name = "late", on = "response", when = 'path == "/late"', close = true },
    { name = "trial", when = 'path == "/trial"', close = true, dry_run = true },
    { name = "held", when = 'path == "/held"', delay = "1m" },
    { name = "short", when = 'path == "/short"', delay = "1ms", deny = 410 },
    { name = "beta", when = 'cookie.beta == "1"', location = "= /beta" },
    { name = "posts", when = 'method == "POST"', jump = "posts" },
    { name = "origin", when = 'query.fresh exists', cache = false },
]
chains.posts = [{ name = "counted", when = 'path == "/posts"', limit = "posts" }]
limits = [{ name = "posts", rate = "1/h", by_rules = true }]
[[sites.locations]]
path = "= /beta"
internal = true
return = { status = 200, text = "beta $uri" }
[[sites.locations]]
path = "= /posts"
return = { status = 200, text = "posted" }
"#;

#[test]
fn rules_close_hold_choose_a_location_and_count_over_each_protocol() {
    let home = Home::new();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write("public/late", "late");
    home.write("apus.toml", ACTIONS);
    let apus = home.serve(&[]);
    let address = apus.address();
    // A request that is held occupies no worker, and is forgotten when its client goes.
    let mut held: Vec<_> = (0..20)
        .map(|_| {
            let mut wire = Wire::connect(address);
            wire.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
            wire
        })
        .collect();
    let curl = |protocol: &str, arguments: &[&str], path: &str| {
        let output = Command::new("curl")
            .args(["-sw", " %{http_code}", protocol])
            .args(arguments)
            .arg(format!("http://{address}{path}"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    };
    let mut posted = 0;
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        for path in ["/closed", "/%63losed", "/late"] {
            let (code, text) = curl(protocol, &[], path);
            assert_eq!(text, " 000", "{protocol} {path}");
            assert_ne!(code, 0, "{protocol} {path}");
        }
        assert_eq!(curl(protocol, &[], "/").1, "home 200", "{protocol}");
        assert!(
            curl(protocol, &[], "/trial").1.ends_with(" 404"),
            "{protocol}"
        );
        assert!(
            curl(protocol, &[], "/short").1.ends_with(" 410"),
            "{protocol}"
        );
        let beta = curl(protocol, &["-b", "beta=1"], "/x?y");
        assert_eq!(beta.1, "beta /x 200", "{protocol}");
        for _ in 0..2 {
            let text = curl(protocol, &["-d", "x"], "/posts").1;
            posted += u32::from(text == "posted 200");
            assert!(text == "posted 200" || text.ends_with(" 429"), "{text}");
        }
        assert_eq!(curl(protocol, &[], "/posts").1, "posted 200");
    }
    assert_eq!(posted, 1);
    wait_until("the requests are logged as without a response", || {
        let log = home.read("log");
        [
            "/closed HTTP/1.1 444",
            "/closed HTTP/2.0 444",
            "/late HTTP/1.1 444",
        ]
        .iter()
        .all(|line| log.contains(line))
    });
    held.clear();
    wait_until(
        "the requests that were held are logged as abandoned",
        || home.read("log").matches("/held HTTP/1.1 499").count() == 20,
    );
    for (path, part) in [
        ("/closed", "a: closed: close without a response\n"),
        ("/late", "a: late: close without a response\n"),
        (
            "/trial",
            "a: trial: would close without a response (dry run)\n",
        ),
        ("/x?fresh", "a: origin: do not cache\n"),
    ] {
        let (text, _) = home.expect(&["explain", "GET", &format!("http://a{path}")], 0);
        assert!(text.contains(part), "{path}: {text}");
    }
}

#[test]
fn rules_hold_and_refuse_requests_and_responses_over_each_protocol_with_tls() {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let port = free_port();
    home.make_folder("public");
    home.write("public/index.html", "home");
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nname = \"a\"\nlisten_tls = \"127.0.0.1:{port}\"\nroot = \"public\"\n\
             tls = {{ cert = \"site.pem\", key = \"site.key\" }}\n\
             access_log = {{ path = \"log\", format = \"$request_uri $server_protocol $status\" }}\n\
             rules = [{{ when = 'path == \"/held\"', delay = \"300ms\", deny = 410 }},\n\
             {{ when = 'path == \"/late\"', on = \"response\", delay = \"300ms\", deny = 410 }},\n\
             {{ when = 'path == \"/closed\"', close = true }}]\n"
        ),
    );
    let _apus = home.serve(&[]);
    for (option, protocol) in [("--http1", "1.1"), ("--http2", "2.0"), ("--http3", "3.0")] {
        let options: &[&str] = if option == "--http1" { &[] } else { &[option] };
        let bench = |path: &str, status: &str, code: i32| {
            let url = format!("https://localhost:{port}{path}");
            let arguments = [
                "bench",
                "-n",
                "1",
                "-c",
                "1",
                "-t",
                "1",
                "-k",
                "--no-probe",
                "--status",
                status,
            ];
            home.expect(&[&arguments, options, &[&url]].concat(), code);
        };
        for path in ["/held", "/late"] {
            let began = Instant::now();
            bench(path, "410", 0);
            assert!(
                began.elapsed() >= Duration::from_millis(300),
                "{option} {path}"
            );
        }
        bench("/", "200", 0);
        bench("/closed", "200", 1);
        for line in [
            format!("/held HTTP/{protocol} 410"),
            format!("/late HTTP/{protocol} 410"),
            format!("/closed HTTP/{protocol} 444"),
        ] {
            wait_until(&line, || home.read("log").contains(&line));
        }
    }
}
