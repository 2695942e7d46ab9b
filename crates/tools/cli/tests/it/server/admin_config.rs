//! Changes of the configuration by the API and by commands: tried, kept, rolled back, and brought back.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::admin_api::ApiTest;
use crate::harness::{Reply, connect, free_port, get, is_root, unprivileged, wait_until};

const OWNER: &[&str] = &["owner", "--role", "configure", "--token"];

/// A server with one site, and its operator.
struct ConfigTest {
    api: ApiTest,
    token: String,
    site: SocketAddr,
}

impl ConfigTest {
    fn new(keys: &str) -> Self {
        let port = free_port();
        let sites = format!(
            "\n# The shop.\n[[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{port}\" # here\n{keys}\n"
        );
        let (api, mut tokens) = ApiTest::with_sites(&[OWNER], &sites);
        Self {
            api,
            token: tokens.remove(0),
            site: ([127, 0, 0, 1], port).into(),
        }
    }

    fn ask(&self, line: &str, body: Value) -> (u16, Value) {
        let body = (!body.is_null()).then_some(body);
        self.api.ask(line, &self.token, body)
    }

    fn done(&self, line: &str, body: Value) -> Value {
        let (status, answer) = self.ask(line, body);
        assert_eq!(status, 200, "{line}: {answer}");
        answer
    }

    fn config(&self) -> (u64, String) {
        let config = self.done("GET /api/v1/config", Value::Null);
        let text = config["text"].as_str().unwrap().to_owned();
        (config["version"].as_u64().unwrap(), text)
    }

    /// Tries the configuration with one part replaced.
    fn replace(&self, old: &str, new: &str, fields: Value) -> (u16, Value) {
        let (version, text) = self.config();
        assert!(text.contains(old), "{text}");
        let mut body = fields;
        body["version"] = version.into();
        body["text"] = text.replace(old, new).into();
        self.ask("PUT /api/v1/config", body)
    }

    fn trial(&self) -> Value {
        self.done("GET /api/v1/config/trial", Value::Null)["trial"].take()
    }

    fn wait_for(&self, outcome: &str) -> Value {
        wait_until("the end of the trial", || {
            self.trial()["outcome"] == outcome
        });
        self.trial()
    }

    fn body(&self) -> String {
        get(self.site, "/").body
    }

    fn toml(&self) -> String {
        self.api.home.read("apus.toml")
    }
}

/// Sends requests on connections of their own until it is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(site: SocketAddr) -> Self {
        let (ends, answered, failed) =
            <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let threads = (0..2).map(|_| {
            let (ends, answered, failed) = (
                Arc::clone(&ends),
                Arc::clone(&answered),
                Arc::clone(&failed),
            );
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let mut stream = connect(site);
                    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                    stream.write_all(request.as_bytes()).unwrap();
                    let status = Reply::read(stream).status;
                    let counter = if status == 200 { &answered } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let threads = threads.collect();
        let load = Self {
            ends,
            answered,
            failed,
            threads,
        };
        load.wait_for_more();
        load
    }

    /// Waits until more requests were answered.
    fn wait_for_more(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        wait_until("more answers", || {
            self.answered.load(Ordering::Relaxed) > before + 20
        });
    }

    /// The requests that failed.
    fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.failed.load(Ordering::Relaxed)
    }
}

#[test]
fn a_change_that_fails_is_rolled_back_under_load() {
    let test = ConfigTest::new("root = \"site\"");
    let load = Load::on(test.site);
    let dead = format!("upstream = \"http://127.0.0.1:{}\"", free_port());
    let (status, tried) = test.replace(
        "root = \"site\"",
        &dead,
        json!({ "try_seconds": 600, "keep": true }),
    );
    assert_eq!(status, 200, "{tried}");
    let trial = test.wait_for("rolled_back");
    let reason = trial["reason"].as_str().unwrap();
    assert!(
        reason.contains("requests of the site shop failed")
            || reason.contains("no node of the upstream group"),
        "{reason}"
    );
    // What is in force again fails no more.
    load.wait_for_more();
    let failed = load.failed.load(Ordering::Relaxed);
    load.wait_for_more();
    let more = load.end() - failed;
    assert!(more <= 2, "{more} of two clients can have begun before");
    assert!(test.config().1.contains("root = \"site\""));
    let versions = test.done("GET /api/v1/config/versions", Value::Null);
    let [second, first] = versions["versions"].as_array().unwrap().as_slice() else {
        panic!("{versions}");
    };
    assert_eq!(
        (&second["in_force"], &first["in_force"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(second["rolled_back"], trial["reason"]);
    assert!(
        second["by"]
            .as_str()
            .unwrap()
            .starts_with("owner from 127.0.0.1")
    );
}

#[test]
fn a_valid_change_loses_no_request_and_is_kept_when_it_is_confirmed() {
    let test = ConfigTest::new("root = \"site\"");
    test.api.home.make_folder("site2");
    test.api.home.write("site2/index.html", "second");
    let load = Load::on(test.site);
    let (status, tried) = test.replace("\"site\"", "\"site2\"", json!({ "note": "for the sale" }));
    assert_eq!((status, &tried["version"]), (200, &json!(2)), "{tried}");
    assert_eq!(
        tried["changes"],
        json!(["site shop changed: handler, settings"])
    );
    assert_eq!(test.body(), "second");
    // Somebody else waits for the end.
    let (status, refused) = test.replace("\"site2\"", "\"site\"", json!({}));
    assert_eq!(
        (status, &refused["details"]["conflict"]["version"]),
        (409, &json!(2)),
        "{refused}"
    );
    let kept = test.done("POST /api/v1/config/confirm", Value::Null);
    assert_eq!(kept["trial"]["outcome"], "kept");
    load.wait_for_more();
    assert_eq!(load.end(), 0);
    // Two writers with the same version: the second one is told.
    let (version, text) = test.config();
    let body = |new: &str| json!({ "version": version, "text": text.replace("\"site2\"", new), "try_seconds": 0 });
    test.done("PUT /api/v1/config", body("\"site\""));
    let (status, late) = test.ask("PUT /api/v1/config", body("\"site3\""));
    assert_eq!(
        (status, &late["details"]["conflict"]["version"]),
        (409, &json!(3)),
        "{late}"
    );
    // The file was not written.
    assert!(test.toml().contains("\"site\""));
    let second = test.done("GET /api/v1/config/version?id=2", Value::Null);
    assert_eq!(second["note"], "for the sale");
    let diff = second["diff"].as_str().unwrap();
    assert!(
        diff.contains("-root = \"site\"\n+root = \"site2\"\n"),
        "{diff}"
    );
    let restored = test.done(
        "POST /api/v1/config/restore",
        json!({ "id": 2, "version": 3, "try_seconds": 0 }),
    );
    assert_eq!(restored["version"], 4);
    assert_eq!(test.body(), "second");
    // The versions outlast a crash; the file is what a start uses.
    let versions = || test.done("GET /api/v1/config/versions", Value::Null);
    let before = versions();
    assert_eq!(before["versions"].as_array().unwrap().len(), 4);
    let reload = test.done("POST /api/v1/reload", Value::Null);
    let warnings = reload["warnings"].as_str().unwrap();
    assert!(
        warnings.contains("version 4") && warnings.contains("apus config restore 4"),
        "{warnings}"
    );
    assert_eq!(test.body(), "<h1>hello</h1>");
    assert_eq!(versions()["versions"][0]["id"], 5);
    let audit = test.done("GET /api/v1/audit", Value::Null);
    let text = audit.to_string();
    assert!(
        text.contains("config_change") && text.contains("for the sale"),
        "{text}"
    );
    assert!(!text.contains("root ="), "{text}");
}

#[test]
fn nobody_who_confirms_is_locked_out_for_longer_than_the_trial() {
    let test = ConfigTest::new("root = \"site\"");
    let (status, answer) = test.replace(
        "root = \"site\"",
        r#"return = { status = 200, text = "x" }"#,
        json!({ "try_seconds": 1 }),
    );
    assert_eq!(status, 200, "{answer}");
    let trial = test.wait_for("rolled_back");
    assert_eq!(trial["reason"], "nobody confirmed it in time");
    assert_eq!(test.body(), "<h1>hello</h1>");
    let (status, answer) = test.replace(
        "root = \"site\"",
        r#"return = { status = 200, text = "y" }"#,
        json!({ "try_seconds": 1, "keep": true }),
    );
    assert_eq!(status, 200, "{answer}");
    test.wait_for("kept");
    assert_eq!(test.body(), "y");
    // A reload of the file ends a trial.
    test.replace(
        r#"return = { status = 200, text = "y" }"#,
        r#"return = { status = 200, text = "z" }"#,
        json!({}),
    );
    assert_eq!(test.body(), "z");
    test.done("POST /api/v1/reload", Value::Null);
    assert_eq!(test.trial()["outcome"], "replaced");
    assert_eq!(test.body(), "<h1>hello</h1>");
    // So does a command.
    test.replace(
        "root = \"site\"",
        r#"return = { status = 200, text = "z" }"#,
        json!({}),
    );
    let ended = test.done("POST /api/v1/config/rollback", Value::Null);
    assert_eq!(ended["trial"]["outcome"], "rolled_back");
    assert_eq!(test.body(), "<h1>hello</h1>");
}

#[test]
fn secrets_stay_hidden_and_can_be_sent_back() {
    let test = ConfigTest::new(
        "upstream = \"http://127.0.0.1:1\"\nrequest_headers = { set = { Authorization = \"Basic c2VjcmV0\", X-Seen = \"seen\" } }",
    );
    let (_, text) = test.config();
    assert!(
        !text.contains("c2VjcmV0") && text.contains("\"seen\""),
        "{text}"
    );
    let (status, kept) = test.replace("\"seen\"", "\"other\"", json!({ "try_seconds": 0 }));
    assert_eq!(status, 200, "{kept}");
    let (_, text) = test.config();
    assert!(
        !text.contains("c2VjcmV0") && text.contains("\"other\""),
        "{text}"
    );
    let version = test.done("GET /api/v1/config/version?id=2", Value::Null);
    let diff = version["diff"].as_str().unwrap();
    assert!(
        !diff.contains("c2VjcmV0") && diff.contains("hidden-"),
        "{diff}"
    );
    // A hidden secret cannot be had shown by a response.
    let hidden = text
        .split('"')
        .find(|part| part.starts_with("hidden-"))
        .unwrap();
    let (status, refused) = test.replace("\"other\"", &format!("\"{hidden}\""), json!({}));
    assert_eq!(status, 422, "{refused}");
    // Nor by a mistake.
    let line = "X-Seen = \"other\"";
    for (status, answer) in [
        test.replace(line, "unknown key", json!({})),
        test.replace("request_headers", "request_heders", json!({})),
        test.ask(
            "POST /api/v1/config/check",
            json!({ "text": text.replace(line, "\"a\" \"b\"") }),
        ),
        test.ask(
            "POST /api/v1/config/check",
            json!({ "text": text.replace("request_headers", "request_heders") }),
        ),
    ] {
        let answer = answer.to_string();
        assert!(
            status == 422 || answer.contains("\"valid\":false"),
            "{status} {answer}"
        );
        assert!(!answer.contains("c2VjcmV0"), "{answer}");
    }
    let checked = test.done(
        "POST /api/v1/config/check",
        json!({ "text": text.replace("request_headers", "request_heders") }),
    );
    assert_eq!(checked["mistakes"][0]["line"], 12, "{checked}");
}

#[test]
fn keys_are_changed_and_the_file_keeps_its_comments() {
    let test = ConfigTest::new("root = \"site\" # the pages");
    // A file of root cannot be replaced by the user of the server.
    let before = test.toml();
    if is_root() {
        let (uid, gid) = unprivileged();
        let keys = json!([{ "key": ["sites", "shop", "return"], "value": { "status": 200, "text": "x" } }]);
        let body = json!({ "version": 1, "keys": keys, "write": true, "try_seconds": 0 });
        let (status, refused) = test.ask("PATCH /api/v1/config", body);
        assert_eq!(status, 422, "{refused}");
        assert_eq!(test.toml(), before);
        chown(test.api.home.path("apus.toml"), Some(uid), Some(gid)).unwrap();
    }
    let (version, _) = test.config();
    let keys = json!([
        { "key": ["sites", "shop", "root"], "value": null },
        { "key": ["sites", "shop", "return"], "value": { "status": 200, "text": "closed" } },
    ]);
    let body = json!({ "version": version, "keys": keys, "write": true, "try_seconds": 0 });
    let kept = test.done("PATCH /api/v1/config", body);
    assert_eq!(test.body(), "closed");
    let expected = before.replace(
        "root = \"site\" # the pages\n",
        "return = { status = 200, text = \"closed\" }\n",
    );
    assert_eq!(test.toml(), expected, "{kept}");
    // What is in the file stays with a reload.
    let reload = test.done("POST /api/v1/reload", Value::Null);
    assert_eq!(
        (&reload["changes"], &reload["warnings"]),
        (&json!([]), &json!(""))
    );
    // A file that somebody edits is not overwritten.
    test.api
        .home
        .write("apus.toml", expected.replace("closed", "by hand"));
    let (status, refused) = test.replace("closed", "other", json!({ "write": true }));
    assert_eq!(status, 422, "{refused}");
    assert!(test.toml().contains("by hand"));
    let (version, _) = test.config();
    let unknown = json!([{ "key": ["sites", "blog", "root"], "value": "x" }]);
    let (status, refused) = test.ask(
        "PATCH /api/v1/config",
        json!({ "version": version, "keys": unknown }),
    );
    assert_eq!(status, 422);
    assert!(
        refused["detail"]
            .as_str()
            .unwrap()
            .contains("the name `blog`"),
        "{refused}"
    );
}

#[test]
fn commands_show_try_and_bring_back() {
    let test =
        ConfigTest::new("root = \"site\"\nrequest_headers = { set = { X-Token = \"abc123\" } }");
    let home = &test.api.home;
    let (shown, _) = home.expect(&["config", "show"], 0);
    assert!(
        shown.contains("hidden-") && !shown.contains("abc123"),
        "{shown}"
    );
    home.write(
        "new.toml",
        shown.replace(
            "root = \"site\"",
            r#"return = { status = 200, text = "new" }"#,
        ),
    );
    let (out, err) = home.expect(
        &["config", "try", "new.toml", "--seconds", "1", "--keep"],
        0,
    );
    assert!(
        err.contains("version 2 is tried for 1 s") && out.contains("Version 2 is kept."),
        "{out}{err}"
    );
    assert_eq!(test.body(), "new");
    let (out, _) = home.expect(
        &[
            "config",
            "set",
            "sites.shop.return.text=other",
            "--seconds",
            "1",
        ],
        1,
    );
    assert!(
        out.contains(
            "Version 3 is rolled back: nobody confirmed it in time. Version 2 is in force."
        ),
        "{out}"
    );
    let (out, _) = home.expect(&["config", "versions"], 0);
    let lines: Vec<_> = out.lines().collect();
    assert!(
        lines[0].contains("rolled back: nobody") && lines[1].contains("in force"),
        "{out}"
    );
    assert!(lines[2].contains("the start of the server"), "{out}");
    let (out, _) = home.expect(&["config", "restore", "1", "--seconds", "0"], 0);
    assert!(out.contains("Version 4 is kept."), "{out}");
    assert_eq!(test.body(), "<h1>hello</h1>");
    let (out, _) = home.expect(&["config", "show", "2"], 0);
    assert!(
        out.contains("+return = { status = 200, text = \"new\" }") && !out.contains("abc123"),
        "{out}"
    );
    let (_, err) = home.expect(&["config", "set", "sites.shop.rooot=x"], 1);
    assert!(
        err.contains("unknown key") && err.contains("rooot"),
        "{err}"
    );
    let (_, err) = home.expect(&["config", "confirm"], 1);
    assert!(err.contains("no change is being tried"), "{err}");
    let (out, _) = home.expect(&["config", "status"], 0);
    assert!(out.contains("Version 4 is kept."), "{out}");
}

#[test]
fn versions_outlast_a_crash_and_a_start_uses_the_file() {
    let mut test = ConfigTest::new("root = \"site\"");
    test.replace(
        "root = \"site\"",
        r#"return = { status = 200, text = "new" }"#,
        json!({ "try_seconds": 0 }),
    );
    assert_eq!(test.body(), "new");
    // Another change is sent when the first one is stored.
    let stored = || test.done("GET /api/v1/config/versions", Value::Null);
    assert_eq!(stored()["versions"].as_array().unwrap().len(), 2);
    test.api.apus.signal(rustix::process::Signal::TERM);
    test.api.apus.wait();
    test.api.apus = test.api.home.serve(&["apus.toml"]);
    assert_eq!(test.body(), "<h1>hello</h1>");
    let versions = test.done("GET /api/v1/config/versions", Value::Null);
    let ids: Vec<_> = versions["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, [3, 2, 1]);
    test.done(
        "POST /api/v1/config/restore",
        json!({ "id": 2, "version": 3, "try_seconds": 0 }),
    );
    assert_eq!(test.body(), "new");
}
