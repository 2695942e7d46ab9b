//! `apus status --top`: what is counted while somebody watches, and that nothing is counted otherwise.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::harness::{Apus, Home, address_of, free_port, wait_until};
use crate::wire::Wire;

/// Two sites on two workers, of which one has no access log, and is the origin of the other.
fn serve(home: &Home) -> Apus {
    let [front, back] = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            "[global]\nworker_threads = 2\ncontrol_socket = \"control.sock\"\ntrusted_proxies = \"127.0.0.1\"\n\
             [[sites]]\nname = \"front\"\nlisten = \"127.0.0.1:{front}\"\nroot = \"site\"\n\
             access_log = {{ path = \"log\", format = \"$request_uri\" }}\n\
             [[sites.rules]]\nwhen = {{ path = \"/quiet\" }}\nlog = false\nreturn = {{ status = 200, text = \"x\" }}\n\
             [[sites.locations]]\npath = \"/app/\"\nupstream = \"http://127.0.0.1:{back}\"\n\
             [[sites]]\nname = \"back\"\nlisten = \"127.0.0.1:{back}\"\nreturn = {{ status = 200, text = \"back\" }}\n"
        ),
    );
    home.serve(&["apus.toml"])
}

/// What was counted, by the control socket. Requests are counted for so many seconds more.
fn traffic(home: &Home, seconds: u64, anew: bool) -> Value {
    let mut socket = UnixStream::connect(home.path("control.sock")).unwrap();
    let request = json!({ "command": "traffic", "seconds": seconds, "anew": anew });
    socket.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    let mut response: Value = serde_json::from_str(&line).unwrap();
    response["done"].take()
}

/// Requests over a connection of its own, from a client behind a proxy.
fn send(address: SocketAddr, client: &str, paths: &[&str]) {
    let mut wire = Wire::connect(address);
    for path in paths {
        wire.send(format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {client}\r\n\r\n"
        ));
        wire.read();
    }
}

/// What was counted once it is about so many requests: a worker counts a request after it has sent the response.
fn counted(home: &Home, requests: u64) -> Value {
    let mut reading = Value::Null;
    wait_until(&format!("{requests} requests are counted"), || {
        reading = traffic(home, 60, false);
        reading["total"]["requests"].as_u64().unwrap() >= requests
    });
    assert_eq!(reading["total"]["requests"], requests, "{reading:#}");
    reading
}

fn named<'a>(reading: &'a Value, table: &str, key: &str, name: &str) -> &'a Value {
    let items = reading[table].as_array().unwrap();
    let found = items.iter().find(|item| item[key] == name);
    found.unwrap_or_else(|| panic!("{table} has no {name}: {reading:#}"))
}

fn requests(reading: &Value, table: &str, name: &str) -> u64 {
    let found = named(reading, table, "name", name);
    assert_eq!(found["requests"], found["requests_at_most"]);
    found["requests"].as_u64().unwrap()
}

/// How many requests each worker has had.
fn requests_of_workers(home: &Home) -> Vec<u64> {
    let (status, _) = home.expect(&["status", "apus.toml", "--json"], 0);
    let status: Value = serde_json::from_str(&status).unwrap();
    let workers = status["workers"].as_array().unwrap();
    let requests = workers.iter().map(|one| one["requests"].as_u64().unwrap());
    requests.collect()
}

fn counts_traffic(home: &Home) -> bool {
    let (status, _) = home.expect(&["status", "apus.toml", "--json"], 0);
    let status: Value = serde_json::from_str(&status).unwrap();
    status["counts_traffic"].as_bool().unwrap()
}

#[test]
fn sites_nodes_clients_and_paths_are_counted_exactly_over_two_workers_and_a_reload() {
    let home = Home::new();
    let apus = serve(&home);
    let back = address_of(&apus.urls()[1]);
    assert_eq!(traffic(&home, 60, true)["counting"], true);
    // Connections go to either worker.
    let mut rounds = 0;
    wait_until("both workers have had requests", || {
        for _ in 0..5 {
            send(apus.address(), "192.0.2.1", &["/app/x?query", "/none"]);
            send(apus.address(), "2001:db8::5", &["/quiet", "/"]);
            rounds += 1;
        }
        requests_of_workers(&home).iter().all(|one| *one > 0)
    });
    // Each request to the application is two: one of the origin, from the same client.
    let reading = counted(&home, 5 * rounds);
    assert_eq!(requests(&reading, "sites", "front"), 4 * rounds);
    assert_eq!(requests(&reading, "sites", "back"), rounds);
    let node = back.to_string();
    assert_eq!(requests(&reading, "upstream_nodes", &node), rounds);
    assert_eq!(requests(&reading, "clients", "192.0.2.1"), 3 * rounds);
    assert_eq!(requests(&reading, "clients", "2001:db8::/64"), 2 * rounds);
    assert_eq!(named(&reading, "paths", "path", "/quiet")["site"], "front");
    let none = named(&reading, "paths", "path", "/none");
    assert_eq!(none["requests"], rounds);
    assert_eq!(
        none["statuses"],
        json!({"1xx": 0, "2xx": 0, "3xx": 0, "4xx": rounds, "5xx": 0})
    );
    assert!(none["bytes_sent"].as_u64().unwrap() > 100 * rounds);
    assert!(none["time_seconds"].as_f64().unwrap() >= 0.0);
    // The path without its query, of both sites.
    let paths = reading["paths"].as_array().unwrap();
    assert!(paths.len() == 5, "{reading:#}");
    wait_until("the access log is written", || {
        let lines = home.read("log").lines().count() as u64;
        lines >= 3 * rounds
    });
    assert!(!home.read("log").contains("/quiet"), "{}", home.read("log"));

    home.expect(&["reload", "apus.toml"], 0);
    send(apus.address(), "192.0.2.1", &["/none"]);
    counted(&home, 5 * rounds + 1);
    // Who begins anew begins at 0.
    assert_eq!(traffic(&home, 60, true)["total"]["requests"], 0);
    send(apus.address(), "192.0.2.1", &["/"]);
    assert_eq!(requests(&counted(&home, 1), "clients", "192.0.2.1"), 1);
}

#[test]
fn counting_ends_when_nobody_watches() {
    let home = Home::new();
    let apus = serve(&home);
    send(apus.address(), "192.0.2.1", &["/"]);
    assert_eq!(traffic(&home, 0, false), json!({ "counting": false }));
    assert!(!counts_traffic(&home));
    assert_eq!(traffic(&home, 1, false)["total"]["requests"], 0);
    wait_until("nobody watches", || !counts_traffic(&home));
    send(apus.address(), "192.0.2.1", &["/"]);
    assert_eq!(traffic(&home, 0, true), json!({ "counting": false }));
    // Nothing of before is left.
    assert_eq!(traffic(&home, 60, false)["total"]["requests"], 0);
    assert!(counts_traffic(&home));
    send(apus.address(), "192.0.2.1", &["/"]);
    counted(&home, 1);
}

#[test]
fn hostile_paths_control_no_terminal_and_a_flood_of_them_is_bounded() {
    let home = Home::new();
    let apus = serve(&home);
    traffic(&home, 60, true);
    const FREQUENT: u64 = 300;
    let mut sent = 0;
    let mut wire = Wire::connect(apus.address());
    let mut get = |path: &str| {
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        wire.read();
        sent += 1;
    };
    for number in 0..FREQUENT {
        get(&format!("/flood/{number}/1"));
        get("/frequent");
        get(&format!("/flood/{number}/2"));
    }
    let reading = counted(&home, sent);
    let listed = reading["paths"].as_array().unwrap();
    assert!(listed.len() <= 100, "{}", listed.len());
    let frequent = &listed[0];
    assert_eq!(frequent["path"], "/frequent");
    let at_most = frequent["requests_at_most"].as_u64().unwrap();
    let at_least = frequent["requests"].as_u64().unwrap();
    // One worker has had most of them, and each error is a hundredth of them at most.
    assert!(at_least <= FREQUENT && FREQUENT <= at_most);
    assert!(at_most - at_least <= sent / 100, "{frequent}");

    // The text, which is not for a terminal here, is shown once, of what was counted.
    let (text, _) = home.expect(&["status", "apus.toml", "--top"], 0);
    assert!(
        text.contains("/frequent") && text.contains("there were more than could be counted"),
        "{text}"
    );

    traffic(&home, 60, true);
    let long = format!("/{}", "long".repeat(500));
    let escapes = "/%1b[2J%1b]0;x%07";
    for path in [
        "/\u{1b}[2J",
        "/\u{9b}2J\u{202e}",
        "/\"'<script>",
        escapes,
        &long,
    ] {
        // A path with bytes that none may have gets 400.
        send(apus.address(), "192.0.2.7", &[path]);
    }
    send(apus.address(), "\u{1b}[31m", &["/"]);
    let cut = format!("{}…", &long[..128]);
    wait_until("the paths that are valid are counted", || {
        let reading = traffic(&home, 60, false);
        let paths = reading["paths"].as_array().unwrap();
        let has = |path: &str| paths.iter().any(|item| item["path"] == path);
        has(escapes) && has(&cut)
    });
    let (text, _) = home.expect(&["status", "apus.toml", "--top"], 0);
    assert!(text.contains(escapes) && text.contains(&cut), "{text}");
    let is_harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
    assert!(text.chars().all(is_harmless), "{text:?}");
    let is_short = |line: &str| line.chars().count() <= 240;
    assert!(text.lines().all(is_short), "{text}");
}

#[test]
fn the_command_counts_for_a_time_or_shows_what_was_counted() {
    let home = Home::new();
    let apus = serve(&home);
    let top = ["status", "apus.toml", "--top", "--json"];
    // The first one counts for three seconds; the next one has the same, and waits for nothing.
    let (first, _) = home.expect(&top, 0);
    let first: Value = serde_json::from_str(&first).unwrap();
    assert!(first["seconds"].as_f64().unwrap() >= 2.9, "{first}");
    assert_eq!(first["total"]["requests"], 0);
    send(apus.address(), "192.0.2.1", &["/", "/"]);
    counted(&home, 2);
    let (next, _) = home.expect(&top, 0);
    let next: Value = serde_json::from_str(&next).unwrap();
    assert_eq!(next["total"]["requests"], 2);
    assert!(next["seconds"].as_f64() > first["seconds"].as_f64());

    // It begins anew, and ends by itself.
    let mut child = home
        .command(&[&top[..], &["--for", "1s"]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = 0;
    while child.try_wait().unwrap().is_none() {
        send(apus.address(), "192.0.2.9", &["/"]);
        sent += 1;
    }
    let output = child.wait_with_output().unwrap();
    let reading: Value = serde_json::from_slice(&output.stdout).unwrap();
    let requests = reading["total"]["requests"].as_u64().unwrap();
    assert!((1..=sent).contains(&requests), "{requests} of {sent}");
    assert!(reading["seconds"].as_f64().unwrap() >= 1.0, "{reading}");
    assert_eq!(reading["clients"].as_array().unwrap().len(), 1);

    home.expect(&["status", "apus.toml", "--for", "1s"], 2);
    home.expect(&["status", "apus.toml", "--top", "--metrics"], 2);
    let (_, error) = home.expect(&["status", "--socket", "none.sock", "--top"], 1);
    assert!(error.contains("no server is running"), "{error}");
}
