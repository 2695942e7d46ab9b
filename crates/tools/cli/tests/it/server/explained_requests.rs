//! `apus explain --id`: what happened to a request that the server has served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::clients::certificate;
use crate::harness::{Apus, Home, free_port, get, wait_until};
use crate::php::stack::Stack;
use crate::proxy::scripted_origin::ScriptedOrigin;

const STORED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok";

/// A server whose site has all that a request can meet. The first request to its origins gets no response.
struct Site {
    home: Home,
    apus: Apus,
    tls: u16,
    _origins: [ScriptedOrigin; 2],
}

impl Site {
    fn start() -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let origin = || {
            let requests = Arc::clone(&requests);
            ScriptedOrigin::start(move |connection| {
                while connection.read_request().is_some() {
                    if requests.fetch_add(1, Ordering::SeqCst) == 0 {
                        return;
                    }
                    connection.send(STORED.as_bytes());
                }
            })
        };
        let origins = [origin(), origin()];
        let [one, two] = origins.each_ref().map(ScriptedOrigin::address);
        let stack = Stack::scripts();
        stack.write("explained/php/a.php", "<?php echo 'made by PHP';");
        let home = Home::new();
        certificate(&home, "site", "localhost");
        home.write("site/a.txt", "a");
        let tls = free_port();
        home.write(
            "apus.toml",
            format!(
                "[global]\nworker_threads = 1\ncontrol_socket = \"control.sock\"\nexplain_requests = 40\n\
                 [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:0\"\nlisten_tls = \"127.0.0.1:{tls}\"\n\
                 tls = {{ cert = \"site.pem\", key = \"site.key\" }}\nroot = \"site\"\n\
                 access_log = {{ path = \"log\", format = \"$uri $request_id\" }}\n\
                 upstreams = [{{ name = \"app\", nodes = [\"{one}\", \"{two}\"] }}]\n\
                 [[sites.rules]]\nname = \"from here\"\nwhen = 'client in [127.0.0.0/8]'\ntag = \"here\"\n\
                 [[sites.rules]]\nname = \"no admin\"\nwhen = 'path == \"/admin\"'\ndeny = 403\n\
                 [[sites.locations]]\npath = \"/origin\"\nupstream = \"app\"\n\
                 [[sites.locations]]\npath = \"/stored\"\nupstream = \"app\"\ncache = true\n\
                 [[sites.locations]]\npath = \"/limited\"\nreturn = {{ status = 200 }}\n\
                 limits = [{{ name = \"pages\", rate = \"1/h\" }}]\n\
                 [[sites.locations]]\npath = \"/inside\"\nreturn = {{ status = 200 }}\nallow = \"192.0.2.0/24\"\n\
                 [[sites.locations]]\npath = \"/php/\"\nroot = \"{root}\"\nphp_fastcgi = \"{php}\"\n",
                root = stack.path("explained").display(),
                php = stack.socket().display(),
            ),
        );
        Self {
            apus: home.serve(&["apus.toml"]),
            home,
            tls,
            _origins: origins,
        }
    }

    /// Requests a path over a protocol, as an option of `apus bench`; the explanation of that request.
    fn request(&self, protocol: &str, target: &str) -> Value {
        let logged = self.ids(target);
        let url = format!("https://localhost:{}{target}", self.tls);
        let arguments = [
            "bench",
            &url,
            "-n",
            "1",
            "-c",
            "1",
            "-t",
            "1",
            "-k",
            "--no-probe",
            "--allow-errors",
            protocol,
        ];
        self.home
            .run(&arguments[..arguments.len() - usize::from(protocol.is_empty())]);
        wait_until("the request is in the access log", || {
            self.ids(target).len() > logged.len()
        });
        self.explain(self.ids(target).last().unwrap())
    }

    /// The ids of requests for a target, whose query is left out.
    fn ids(&self, target: &str) -> Vec<String> {
        let log = self.home.read("log");
        let lines = log.lines().filter_map(|line| line.split_once(' '));
        let path = target.split('?').next().unwrap();
        let lines = lines.filter(|(logged, _)| *logged == path);
        lines.map(|(_, id)| id.to_owned()).collect()
    }

    fn explain(&self, id: &str) -> Value {
        let arguments = ["explain", "--id", id, "--socket", "control.sock"];
        let (text, _) = self.home.expect(&arguments, 0);
        assert!(text.contains(&format!("id        {id}\n")), "{text}");
        let (json, _) = self.home.expect(&[&arguments[..], &["--json"]].concat(), 0);
        serde_json::from_str(&json).unwrap()
    }
}

#[test]
fn a_request_is_explained_over_every_protocol() {
    for (protocol, version) in [
        ("", "HTTP/1.1"),
        ("--http2", "HTTP/2.0"),
        ("--http3", "HTTP/3.0"),
    ] {
        let site = Site::start();
        // The first node fails, and the other one responds.
        let found = site.request(protocol, "/origin/a?page=hidden-one&token=hidden-two");
        for (name, expected) in [
            ("site", "shop"),
            ("location", "/origin"),
            ("client", "127.0.0.1"),
            ("method", "GET"),
            ("scheme", "https"),
            ("protocol", version),
            ("host", "localhost"),
            ("path", "/origin/a"),
            ("query", "page=…&token=…"),
            ("outcome", "complete"),
        ] {
            assert_eq!(found[name], expected, "{name} in {found}");
        }
        assert_eq!(found["status"], 200);
        assert!(!found.to_string().contains("hidden"), "{found}");
        let attempts = found["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 2, "{found}");
        assert!(
            attempts[0]["status"].is_null() && attempts[0]["cause"].is_string(),
            "{found}"
        );
        assert_eq!(attempts[1]["status"], 200, "{found}");
        assert!(attempts[0]["node"] != attempts[1]["node"], "{found}");
        let number = |value: &Value| value.as_f64().unwrap();
        let error = &found["errors"][0];
        assert_eq!(
            error["message"], "tried another origin after one failed",
            "{found}"
        );
        assert_eq!(
            (&error["request_id"], &error["level"]),
            (&found["id"], &"WARN".into())
        );
        for attempt in attempts {
            assert!(
                number(&attempt["connect_seconds"]) <= number(&attempt["seconds"]),
                "{found}"
            );
            let ended = number(&attempt["after_seconds"]) + number(&attempt["seconds"]);
            assert!(ended <= number(&found["seconds"]) + 0.001, "{found}");
        }
        assert!(
            number(&found["first_byte_seconds"]) <= number(&found["seconds"]),
            "{found}"
        );
        assert!(number(&found["bytes_sent"]) >= 2.0, "{found}");
        let rule = serde_json::json!([{ "place": "shop", "rule": "from here", "dry_run": false }]);
        assert_eq!(found["rules"], rule);
        assert!(
            found["decided"].is_null() && found["cache"].is_null(),
            "{found}"
        );

        let miss = site.request(protocol, "/stored");
        let hit = site.request(protocol, "/stored");
        assert_eq!(
            (&miss["cache"], &hit["cache"]),
            (&"MISS".into(), &"HIT".into())
        );
        assert_eq!(miss["cache_key"], hit["cache_key"]);
        assert!(miss["cache_key"].is_string());
        assert_eq!(miss["attempts"].as_array().unwrap().len(), 1, "{miss}");
        assert_eq!(hit["attempts"].as_array().unwrap().len(), 0, "{hit}");

        let allowed = site.request(protocol, "/limited");
        let refused = site.request(protocol, "/limited");
        assert_eq!(
            (&allowed["status"], &refused["status"]),
            (&200.into(), &429.into())
        );
        assert_eq!(allowed["limits"][0]["outcome"], "allowed", "{allowed}");
        assert_eq!(refused["limits"][0]["limit"], "pages", "{refused}");
        assert_eq!(refused["decided"]["by"], "limit pages", "{refused}");

        let denied = site.request(protocol, "/admin");
        assert_eq!(denied["status"], 403);
        assert_eq!(denied["decided"]["by"], "rule no admin", "{denied}");
        assert_eq!(denied["rules"].as_array().unwrap().len(), 2, "{denied}");
        let outside = site.request(protocol, "/inside");
        assert_eq!(outside["status"], 403, "{outside}");
        assert_eq!(outside["decided"]["by"], "allow", "{outside}");

        let php = site.request(protocol, "/php/a.php");
        assert_eq!(php["status"], 200, "{php}");
        assert_eq!(php["attempts"][0]["status"], 200, "{php}");
        let file = site.request(protocol, "/a.txt");
        assert_eq!(
            (&file["handler"], &file["status"]),
            (&"files".into(), &200.into())
        );
    }
}

#[test]
fn the_last_errors_of_the_log_are_listed() {
    let site = Site::start();
    let arguments = ["status", "--errors", "--socket", "control.sock"];
    let (none, _) = site.home.expect(&[&arguments[..], &["--json"]].concat(), 0);
    let before = serde_json::from_str::<Value>(&none).unwrap();
    let before = before["errors"].as_array().unwrap().len();
    let found = site.request("", "/origin/a");
    let (text, _) = site.home.expect(&arguments, 0);
    let id = found["id"].as_str().unwrap();
    let line = text.lines().next().unwrap();
    assert!(
        line.contains("  WARN  tried another origin after one failed site=shop "),
        "{text}"
    );
    assert!(
        line.contains(&format!(" request_id={id} ")) && line.contains(" host=localhost "),
        "{text}"
    );
    let (json, _) = site.home.expect(&[&arguments[..], &["--json"]].concat(), 0);
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        list["errors"].as_array().unwrap().len(),
        before + 1,
        "{list}"
    );
    assert_eq!(list["errors"][0]["fields"]["path"], "/origin/a", "{list}");
}

#[test]
fn the_oldest_requests_are_forgotten_and_none_are_kept_without_the_key() {
    let site = Site::start();
    let first = site.request("", "/a.txt");
    let first = first["id"].as_str().unwrap();
    for _ in 0..39 {
        assert_eq!(get(site.apus.address(), "/a.txt").status, 200);
    }
    site.explain(first);
    assert_eq!(get(site.apus.address(), "/a.txt").status, 200);
    let arguments = ["explain", "--id", first, "--socket", "control.sock"];
    let (_, error) = site.home.expect(&arguments, 1);
    assert!(error.contains("does not know this request"), "{error}");

    // What is kept survives a reload; without the key nothing is.
    let last = site.request("", "/a.txt");
    let last = last["id"].as_str().unwrap();
    let text = site.home.read("apus.toml");
    site.home.expect(&["reload", "--socket", "control.sock"], 0);
    site.explain(last);
    let none = text.replace("explain_requests = 40", "explain_requests = 0");
    site.home.write("apus.toml", none);
    site.home.expect(&["reload", "--socket", "control.sock"], 0);
    let (_, error) = site
        .home
        .expect(&["explain", "--id", last, "--socket", "control.sock"], 1);
    assert!(
        error.contains("`explain_requests` of `[global]` says"),
        "{error}"
    );
}

#[test]
fn explain_needs_a_request_or_an_id() {
    let home = Home::new();
    for arguments in [
        &["explain"][..],
        &["explain", "GET"],
        &["explain", "GET", "http://a/", "--id", "a"],
        &["explain", "GET", "http://a/", "--socket", "a.sock"],
    ] {
        home.expect(arguments, 2);
    }
}
