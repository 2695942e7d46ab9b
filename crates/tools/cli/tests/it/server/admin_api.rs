//! The API at the address of the operator: accounts, roles, log-ins, and what was changed by whom.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Apus, Home, address_of, connect, free_port, wait_until};

const PASSWORD: &str = "correct horse battery";

/// A server with two sites and an address of the operator.
pub(super) struct ApiTest {
    pub(super) home: Home,
    pub(super) apus: Apus,
    pub(super) admin: SocketAddr,
}

impl ApiTest {
    /// With these accounts: name, role and what else `apus admin account` gets. Returns their secrets, too.
    pub(super) fn new(accounts: &[&[&str]]) -> (Self, Vec<String>) {
        let [shop, blog] = [free_port(), free_port()];
        let sites = format!(
            "[[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{shop}\"\nroot = \"site\"\nrequest_id = true\n\
             [[sites]]\nname = \"blog\"\nlisten = \"127.0.0.1:{blog}\"\nroot = \"site\"\nrequest_id = true\n"
        );
        Self::with_sites(accounts, &sites)
    }

    /// As [`Self::new`], with these sites.
    pub(super) fn with_sites(accounts: &[&[&str]], sites: &str) -> (Self, Vec<String>) {
        let home = Home::new();
        let (file, secrets) = accounts
            .iter()
            .map(|arguments| account(&home, arguments))
            .fold(
                (String::new(), Vec::new()),
                |(mut file, mut secrets), (lines, secret)| {
                    file.push_str(&lines);
                    secrets.push(secret);
                    (file, secrets)
                },
            );
        home.write("accounts.toml", file);
        let path = home.path("accounts.toml");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        home.make_folder("state");
        let admin = free_port();
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\nstate_folder = \"state\"\nadmin_listen = \"127.0.0.1:{admin}\"\nadmin_accounts = \"accounts.toml\"\n{sites}"
            ),
        );
        let test = Self {
            apus: home.serve(&["apus.toml"]),
            home,
            admin: ([127, 0, 0, 1], admin).into(),
        };
        (test, secrets)
    }

    /// The status and the JSON of a response.
    pub(super) fn ask(&self, line: &str, token: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string());
        let fields = match &body {
            Some(body) => format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            ),
            None => String::new(),
        };
        let token = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let text = self.send(&format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{token}{fields}Connection: close\r\n\r\n{}",
            body.unwrap_or_default()
        ));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let lower = head.to_ascii_lowercase();
        assert!(lower.contains("cache-control: no-store"), "{head}");
        assert!(
            !lower.contains("set-cookie") && !lower.contains("access-control"),
            "{head}"
        );
        (
            status,
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}")),
        )
    }

    fn send(&self, request: &str) -> String {
        let mut stream = connect(self.admin);
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn log_in(&self, body: Value) -> (u16, Value) {
        self.ask("POST /api/v1/session", "", Some(body))
    }

    fn session(&self, name: &str, password: &str) -> String {
        let (status, session) = self.log_in(json!({ "name": name, "password": password }));
        assert_eq!(status, 200, "{session}");
        session["token"].as_str().unwrap().to_owned()
    }
}

/// The lines of a new account, and its secret.
fn account(home: &Home, arguments: &[&str]) -> (String, String) {
    let has_token = arguments.contains(&"--token");
    let mut command = home.command(&["admin", "account"]);
    command.args(arguments);
    if !has_token {
        command.arg("--password-stdin");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who asks for a token does not read it, and may have ended.
    let mut stdin = child.stdin.take().unwrap();
    if !has_token {
        writeln!(stdin, "{PASSWORD}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    let secret = if has_token {
        let token = error.split_whitespace().last().unwrap().to_owned();
        assert!(token.starts_with("apus_"), "{error}");
        token
    } else {
        PASSWORD.to_owned()
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(!lines.contains(&secret), "{lines}");
    (lines, secret)
}

#[test]
fn roles_say_who_may_do_what() {
    let (test, tokens) = ApiTest::new(&[
        &["reader", "--token"],
        &["worker", "--role", "operate", "--token"],
        &["owner", "--role", "configure", "--token"],
        &[
            "shopkeeper",
            "--role",
            "operate",
            "--site",
            "shop",
            "--token",
        ],
    ]);
    let maintenance = |site: &str| Some(json!({ "site": site, "state": "on" }));
    let ban = Some(json!({ "network": "203.0.113.9", "seconds": 60, "reason": "test" }));
    let purge = |site: Option<&str>| Some(json!({ "what": "all", "site": site }));
    // Of a reader, a worker, an owner and an account for one site. Purges find no cache here: 422.
    for (line, body, expected) in [
        ("GET /api/v1/status", None, [200, 200, 200, 403]),
        ("HEAD /api/v1/session", None, [200, 200, 200, 200]),
        ("GET /api/v1/sites", None, [200, 200, 200, 200]),
        ("GET /api/v1/upstreams", None, [200, 200, 200, 403]),
        ("GET /api/v1/cache", None, [200, 200, 200, 403]),
        ("GET /api/v1/certificates", None, [200, 200, 200, 403]),
        ("GET /api/v1/rules", None, [200, 200, 200, 403]),
        ("GET /api/v1/traffic?seconds=1", None, [200, 200, 200, 403]),
        ("GET /api/v1/limits", None, [200, 200, 200, 403]),
        ("POST /api/v1/bans", ban, [403, 200, 200, 403]),
        ("GET /api/v1/bans", None, [200, 200, 200, 403]),
        (
            "DELETE /api/v1/bans?network=203.0.113.9",
            None,
            [403, 200, 422, 403],
        ),
        (
            "PUT /api/v1/maintenance",
            maintenance("shop"),
            [403, 200, 200, 200],
        ),
        (
            "PUT /api/v1/maintenance",
            maintenance("blog"),
            [403, 200, 200, 403],
        ),
        (
            "POST /api/v1/cache/purge",
            purge(None),
            [403, 422, 422, 403],
        ),
        (
            "POST /api/v1/cache/purge",
            purge(Some("blog")),
            [403, 422, 422, 403],
        ),
        (
            "POST /api/v1/cache/purge",
            purge(Some("shop")),
            [403, 422, 422, 422],
        ),
        ("POST /api/v1/reload", None, [403, 200, 200, 403]),
        ("GET /api/v1/audit", None, [403, 403, 200, 403]),
        ("GET /api/v1/errors", None, [200, 200, 200, 200]),
        (
            "GET /api/v1/requests/explain?id=a",
            None,
            [404, 404, 404, 404],
        ),
        ("GET /api/v1/cache/responses", None, [403, 422, 422, 403]),
        (
            "GET /api/v1/cache/responses?url=http://a/&tag=x",
            None,
            [403, 422, 422, 403],
        ),
        (
            "PUT /api/v1/log-level",
            Some(json!({ "level": "debug" })),
            [403, 200, 200, 403],
        ),
        (
            "PUT /api/v1/log-level",
            Some(json!({ "level": "loud" })),
            [403, 422, 422, 422],
        ),
        ("GET /api/v1/config", None, [403, 403, 200, 403]),
        (
            "POST /api/v1/config/check",
            Some(json!({ "text": "" })),
            [403, 403, 200, 403],
        ),
        (
            "PUT /api/v1/config",
            Some(json!({ "text": "", "version": 7 })),
            [403, 403, 409, 403],
        ),
        (
            "PATCH /api/v1/config",
            Some(json!({ "keys": [], "version": 7 })),
            [403, 403, 409, 403],
        ),
        ("GET /api/v1/config/trial", None, [403, 403, 200, 403]),
        ("POST /api/v1/config/confirm", None, [403, 403, 422, 403]),
        ("POST /api/v1/config/rollback", None, [403, 403, 422, 403]),
        ("GET /api/v1/config/versions", None, [403, 403, 200, 403]),
        (
            "GET /api/v1/config/version?id=1",
            None,
            [403, 403, 200, 403],
        ),
        (
            "POST /api/v1/config/restore",
            Some(json!({ "id": 1, "version": 7 })),
            [403, 403, 409, 403],
        ),
        (
            "GET /api/v1/requests?filter=cookie%20==%20a",
            None,
            [422, 422, 422, 422],
        ),
        ("GET /api/v1/nothing", None, [404, 404, 404, 404]),
        ("PATCH /api/v1/bans", None, [405, 405, 405, 405]),
    ] {
        for (token, expected) in tokens.iter().zip(expected) {
            let (status, answer) = if line.starts_with("HEAD") {
                let text = test.send(&format!(
                    "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: bearer {token}\r\nConnection: close\r\n\r\n"
                ));
                (
                    text.split(' ').nth(1).unwrap().parse().unwrap(),
                    Value::Null,
                )
            } else {
                test.ask(line, token, body.clone())
            };
            assert_eq!(status, expected, "{line} {answer}");
        }
        // Without an account there is nothing to be seen.
        if !line.starts_with("HEAD") {
            let (status, _) = test.ask(line, "", body.clone());
            assert_eq!(status, 401, "{line}");
        }
    }
    let (_, sites) = test.ask("GET /api/v1/sites", &tokens[3], None);
    let names: Vec<_> = sites["sites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| &site["name"])
        .collect();
    assert_eq!(names, ["shop"]);
    let (_, changed) = test.ask("PUT /api/v1/maintenance", &tokens[3], maintenance("shop"));
    let names: Vec<_> = changed["sites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| &site["name"])
        .collect();
    assert_eq!(names, ["shop"], "{changed}");
}

/// The id of a request to a site, which its file says.
fn id_of(test: &ApiTest, address: SocketAddr) -> String {
    let mut stream = connect(address);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, id) = text
        .split_once("x-request-id: ")
        .unwrap_or_else(|| panic!("{text} {}", test.home.read("apus.toml")));
    id.split("\r\n").next().unwrap().to_owned()
}

#[test]
fn requests_are_explained_to_accounts_of_their_sites() {
    let (test, tokens) = ApiTest::new(&[
        &["reader", "--token"],
        &["shopkeeper", "--site", "shop", "--token"],
    ]);
    let addresses = test.apus.urls().iter().map(|url| address_of(url));
    let ids: Vec<_> = addresses.map(|address| id_of(&test, address)).collect();
    let ask = |id: &str, token: &str| {
        test.ask(
            &format!("GET /api/v1/requests/explain?id={id}"),
            token,
            None,
        )
    };
    for (id, site, for_shop) in [(&ids[0], "shop", 200), (&ids[1], "blog", 404)] {
        let (status, found) = ask(id, &tokens[0]);
        assert_eq!((status, &found["site"]), (200, &json!(site)), "{found}");
        assert_eq!(&found["id"], id);
        assert_eq!(ask(id, &tokens[1]).0, for_shop, "{site}");
        assert_eq!(ask(id, "").0, 401);
    }
    // Nobody learns whether it is of another site, or is not known.
    let (status, unknown) = ask("nothing", &tokens[1]);
    assert_eq!((status, unknown), ask(&ids[1], &tokens[1]));
    assert_eq!(
        test.ask("GET /api/v1/requests/explain", &tokens[0], None).0,
        422
    );
}

#[test]
fn what_is_changed_is_in_the_audit_log_with_who_did_it() {
    let (test, tokens) = ApiTest::new(&[&["owner", "--role", "configure", "--token"]]);
    let ban = json!({ "network": "203.0.113.9", "reason": "a\u{1b}[2J\u{9b}2Jb" });
    assert_eq!(test.ask("POST /api/v1/bans", &tokens[0], Some(ban)).0, 200);
    let own = json!({ "network": "127.0.0.1" });
    let (status, problem) = test.ask("POST /api/v1/bans", &tokens[0], Some(own));
    assert_eq!(status, 422, "{problem}");
    test.home.expect(&["ban", "remove", "203.0.113.9"], 0);
    let (_, audit) = test.ask("GET /api/v1/audit", &tokens[0], None);
    let entries = audit["entries"].as_array().unwrap();
    let said: Vec<_> = (entries.iter())
        .map(|entry| {
            (
                entry["by"].as_str().unwrap(),
                entry["command"].as_str().unwrap(),
                entry["error"].is_null(),
            )
        })
        .collect();
    let user = format!(
        "user {} of this machine",
        rustix::process::geteuid().as_raw()
    );
    assert_eq!(
        said,
        [
            (&*user, "ban_remove", true),
            ("owner from 127.0.0.1", "ban_add", false),
            ("owner from 127.0.0.1", "ban_add", true),
        ]
    );
    let (listed, _) = test.home.expect(&["admin", "audit"], 0);
    assert!(listed.contains("owner from 127.0.0.1  ban_add"), "{listed}");
    assert!(!listed.contains(['\u{1b}', '\u{9b}']), "{listed:?}");
    assert!(listed.contains(&user), "{listed}");
}

#[test]
fn a_link_of_the_command_lets_somebody_in_once() {
    let (test, _) = ApiTest::new(&[]);
    let (printed, _) = test.home.expect(&["admin", "login"], 0);
    let link = printed.lines().last().unwrap();
    let (url, code) = link.split_once("#code=").unwrap();
    assert_eq!(url, format!("http://{}/", test.admin));
    let (status, session) = test.log_in(json!({ "code": code }));
    assert_eq!((status, &session["role"]), (200, &json!("configure")));
    let token = session["token"].as_str().unwrap();
    assert_eq!(test.ask("GET /api/v1/audit", token, None).0, 200);
    assert_eq!(test.log_in(json!({ "code": code })).0, 401);
    test.home.expect(&["reload"], 0);
    assert_eq!(test.ask("GET /api/v1/status", token, None).0, 200);
    assert_eq!(test.ask("DELETE /api/v1/session", token, None).0, 200);
    assert_eq!(test.ask("GET /api/v1/status", token, None).0, 401);
}

#[test]
fn passwords_let_people_in_until_the_file_says_otherwise() {
    let (test, _) = ApiTest::new(&[&["ana", "--role", "operate"]]);
    assert_eq!(
        test.log_in(json!({ "name": "ana", "password": "wrong" })).0,
        401
    );
    assert_eq!(
        test.log_in(json!({ "name": "bo", "password": PASSWORD })).0,
        401
    );
    assert_eq!(test.log_in(json!({})).0, 422);
    let token = test.session("ana", PASSWORD);
    let (_, who) = test.ask("GET /api/v1/session", &token, None);
    assert_eq!(
        (&who["name"], &who["role"], &who["sites"]),
        (&json!("ana"), &json!("operate"), &Value::Null)
    );
    // A file with mistakes is not used; a new password ends the sessions of the old one, without a reload.
    let text = test.home.read("accounts.toml");
    test.home
        .write("accounts.toml", format!("{text}role = 1\n"));
    test.apus.wait_for_log("are not used");
    assert_eq!(test.ask("GET /api/v1/session", &token, None).0, 200);
    let (other, _) = account(&test.home, &["ana", "--role", "operate"]);
    test.home.write("accounts.toml", other);
    wait_until("the session has ended", || {
        test.ask("GET /api/v1/session", &token, None).0 == 401
    });
    let token = test.session("ana", PASSWORD);
    test.home.write("accounts.toml", "");
    wait_until("the account is gone", || {
        test.ask("GET /api/v1/session", &token, None).0 == 401
    });
}

#[test]
fn log_ins_that_fail_too_often_have_to_wait() {
    let (test, tokens) = ApiTest::new(&[&["owner", "--role", "configure", "--token"]]);
    for _ in 0..10 {
        assert_eq!(test.log_in(json!({ "code": "00" })).0, 401);
    }
    let text = test.send(
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"code\":\"00\"}",
    );
    assert!(text.starts_with("HTTP/1.1 429 "), "{text}");
    assert!(
        text.to_ascii_lowercase().contains("retry-after: "),
        "{text}"
    );
    // Others, and who has a token, are not kept out.
    assert_eq!(test.ask("GET /api/v1/status", &tokens[0], None).0, 200);
}

#[test]
fn what_pages_of_other_sites_send_and_bad_bodies_are_refused() {
    let (test, tokens) = ApiTest::new(&[&["owner", "--role", "configure", "--token"]]);
    let token = format!("Authorization: Bearer {}\r\n", tokens[0]);
    let json_type = "Content-Type: application/json\r\n";
    let long = "x".repeat(70_000);
    for (fields, body, expected) in [
        (
            "Origin: http://evil.example\r\nContent-Type: application/json\r\n",
            "{}",
            403,
        ),
        ("Content-Type: text/plain\r\n", "{}", 415),
        (
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "network=203.0.113.9",
            415,
        ),
        (json_type, "{", 400),
        (json_type, "[]", 422),
        (json_type, "{\"network\":\"203.0.113.9\",\"other\":1}", 422),
        (json_type, "{\"network\":\"no network\"}", 422),
        (json_type, long.as_str(), 413),
    ] {
        let text = test.send(&format!(
            "POST /api/v1/bans HTTP/1.1\r\nHost: localhost\r\n{token}{fields}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        assert!(
            text.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{fields} {text}"
        );
    }
    for forged in [
        "",
        "Authorization: Basic b3duZXI6eA==\r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer apus_00\r\n",
        "Cookie: apus_session=1\r\n",
    ] {
        let text = test.send(&format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n{forged}Connection: close\r\n\r\n"
        ));
        assert!(
            text.starts_with("HTTP/1.1 401 ") && text.contains("Bearer"),
            "{text}"
        );
    }
    let (status, described) = test.ask("GET /api/v1/openapi.json", "", None);
    assert_eq!((status, &described["openapi"]), (200, &json!("3.1.0")));
}

#[test]
fn a_file_of_accounts_with_mistakes_stops_the_start_with_all_of_them() {
    let home = Home::new();
    home.write("accounts.toml", "[[accounts]]\nname = \"ana\"\nrole = \"read\"\npassword = \"plain\"\n[[accounts]]\nname = \"bo\"\nrole = \"read\"\npassword = \"plain\"\n");
    home.write("apus.toml", "[global]\nadmin_listen = \"127.0.0.1:9180\"\nadmin_accounts = \"accounts.toml\"\n[[sites]]\nlisten = 8080\nroot = \"site\"\n");
    let (_, error) = home.expect(&["check", "apus.toml"], 1);
    for name in ["ana", "bo"] {
        assert!(
            error.contains(&format!("the password of `{name}` is no hash")),
            "{error}"
        );
    }
    home.write(
        "apus.toml",
        "[global]\nadmin_accounts = \"accounts.toml\"\n[[sites]]\nlisten = 8080\nroot = \"site\"\n",
    );
    let (_, error) = home.expect(&["check", "apus.toml"], 1);
    assert!(error.contains("`admin_accounts` has no effect"), "{error}");
}

#[test]
fn the_level_of_the_log_is_changed_for_a_time() {
    let (test, tokens) = ApiTest::new(&[&["ops", "--role", "operate", "--token"]]);
    let set = |body: Value| test.ask("PUT /api/v1/log-level", &tokens[0], Some(body));
    let level = || test.ask("GET /api/v1/status", &tokens[0], None).1["log_level"].take();
    assert_eq!(level(), "info");
    let (_, answer) = set(json!({ "level": "debug" }));
    assert_eq!(answer, json!({ "level": "debug", "seconds_left": 600 }));
    // A reload does not end it.
    let (status, _) = test.ask("POST /api/v1/reload", &tokens[0], None);
    assert_eq!((status, level()), (200, json!("debug")));
    let (_, answer) = set(json!({}));
    assert_eq!(answer, json!({ "level": "info", "seconds_left": null }));
    assert_eq!(set(json!({ "level": "trace", "seconds": 90_000 })).0, 422);
    // The time is over at once, and looked at every few seconds.
    set(json!({ "level": "error", "seconds": 0 }));
    wait_until("the level of the configuration", || level() == "info");
}
