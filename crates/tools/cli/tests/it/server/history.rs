//! The history of a server: what is known of each second, minute and hour, also after a crash, and each second as it ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use super::admin_api::ApiTest;
use crate::disk::PreparedDisk;
use crate::harness::{Home, address_of, connect, free_port, get, wait_until};

const READER: &[&str] = &["reader", "--token"];

/// The history, as the reader sees it.
fn history(test: &ApiTest, query: &str, token: &str) -> Value {
    let (status, history) = test.ask(&format!("GET /api/v1/history?{query}"), token, None);
    assert_eq!(status, 200, "{history}");
    history
}

/// The sum of a series; what is not known is left out.
fn sum(series: &Value) -> u64 {
    let values = series.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(Value::as_u64).sum()
}

/// Waits until a series of a step has this sum.
fn wait_for(test: &ApiTest, token: &str, step: &str, (name, expected): (&str, u64)) -> Value {
    let mut seen = Value::Null;
    wait_until(&format!("{expected} {name} by {step}"), || {
        // The first hour is also that of before, if one begins just now.
        seen = history(test, &format!("step={step}"), token);
        sum(&seen["series"][name]) >= expected
    });
    assert_eq!(sum(&seen["series"][name]), expected, "{seen}");
    seen
}

#[test]
fn a_server_that_is_killed_loses_the_last_second_at_most() {
    let (mut test, secrets) = ApiTest::new(&[
        READER,
        &["shopkeeper", "--site", "shop", "--token"],
        &["blogger", "--site", "blog", "--token"],
    ]);
    let [reader, shopkeeper, blogger] = [&secrets[0], &secrets[1], &secrets[2]];
    let ask = |test: &ApiTest| {
        let shop = test.apus.address();
        let blog = address_of(&test.apus.urls()[1]);
        for (address, path, status) in [
            (shop, "/", 200),
            (shop, "/", 200),
            (shop, "/nothing", 404),
            (blog, "/", 200),
        ] {
            assert_eq!(get(address, path).status, status);
        }
    };
    ask(&test);
    let seen = wait_for(&test, reader, "second", ("requests_2xx", 3));
    assert_eq!(seen["step_seconds"], 1);
    assert_eq!(seen["durable"], true);
    let series = &seen["series"];
    assert_eq!(sum(&series["requests_4xx"]), 1);
    assert_eq!(sum(&series["requests"]), 4);
    assert!(sum(&series["sent_bytes"]) > 300, "{seen}");
    assert!(sum(&series["memory_bytes"]) > 1_000_000, "{seen}");
    let names = series.as_object().unwrap();
    let lengths: Vec<_> = names
        .values()
        .map(|one| one.as_array().unwrap().len())
        .collect();
    assert!(lengths.iter().all(|length| *length == 300), "{lengths:?}");
    let first_bytes = series["first_byte_seconds_p99"].as_array().unwrap();
    let known = first_bytes.iter().filter_map(Value::as_f64);
    assert!(known.clone().count() > 0 && known.clone().all(|time| time > 0.0 && time < 20.0));
    assert_eq!(sum(&seen["sites"]["shop"]["requests"]), 3);
    assert_eq!(sum(&seen["sites"]["blog"]["requests"]), 1);
    // Nothing is known of the time before the start.
    assert_eq!(series["seconds"][0], Value::Null);

    test.apus.signal(Signal::KILL);
    test.apus.wait();
    test.apus = test.home.serve(&["apus.toml"]);
    wait_for(&test, reader, "second", ("requests_2xx", 3));
    for step in ["minute", "hour"] {
        wait_for(&test, reader, step, ("requests_2xx", 3));
    }
    ask(&test);
    for step in ["second", "minute", "hour"] {
        let seen = wait_for(&test, reader, step, ("requests_2xx", 6));
        assert_eq!(sum(&seen["sites"]["shop"]["requests"]), 6);
        // Who is for some sites sees these, and nothing else.
        for (token, own, requests) in [(shopkeeper, "shop", 6), (blogger, "blog", 2)] {
            let seen = history(&test, &format!("step={step}"), token);
            assert_eq!(seen["series"], serde_json::json!({}));
            let sites: Vec<_> = seen["sites"].as_object().unwrap().keys().collect();
            assert_eq!(sites, [own]);
            assert_eq!(sum(&seen["sites"][own]["requests"]), requests);
        }
    }
}

#[test]
fn what_is_asked_is_checked_and_bounded() {
    let (test, secrets) = ApiTest::new(&[READER]);
    for (query, expected) in [
        ("step=day", "`step` is not `second`, `minute` or `hour`"),
        ("from=yesterday", "`from` is not a whole number"),
        ("from=-1", "`from` is not a whole number"),
        ("steps=1", "`steps` is unknown"),
    ] {
        let (status, problem) =
            test.ask(&format!("GET /api/v1/history?{query}"), &secrets[0], None);
        assert_eq!(status, 422, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(expected),
            "{problem}"
        );
    }
    assert_eq!(test.ask("GET /api/v1/history", "", None).0, 401);
    for (query, steps) in [
        ("from=0", 7200),
        ("step=minute&from=0", 2880),
        ("step=hour&from=0&to=18446744073709551615", 8784),
        ("from=1000&to=1010", 10),
        ("from=1000&to=10", 0),
        ("step=hour&from=3599&to=3601", 2),
    ] {
        let seen = history(&test, query, &secrets[0]);
        let length = seen["series"]["requests"].as_array().unwrap().len();
        assert_eq!(length, steps, "{query}");
    }
}

#[test]
fn a_damaged_history_begins_anew_and_a_truncated_one_goes_on() {
    let (mut test, secrets) = ApiTest::new(&[READER]);
    assert_eq!(test.apus.get("/").status, 200);
    wait_for(&test, &secrets[0], "second", ("requests_2xx", 1));
    let path = test.home.path("state/history");
    let restart = |test: &mut ApiTest, damage: &dyn Fn()| {
        test.apus.signal(Signal::KILL);
        test.apus.wait();
        damage();
        test.apus = test.home.serve(&["apus.toml"]);
    };
    // The seconds are cut off, and so are the minutes and hours.
    restart(&mut test, &|| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(5000).unwrap();
    });
    assert_eq!(test.apus.get("/").status, 200);
    wait_for(&test, &secrets[0], "hour", ("requests_2xx", 1));
    assert!(!test.apus.log().contains("begins anew"));
    for damage in [&b"garbage"[..], &[0xff; 100_000]] {
        restart(&mut test, &|| fs::write(&path, damage).unwrap());
        test.apus
            .wait_for_log("is damaged or of another version, and begins anew");
        assert_eq!(test.apus.get("/").status, 200);
        let seen = wait_for(&test, &secrets[0], "second", ("requests_2xx", 1));
        assert_eq!(seen["durable"], true);
    }
    // Something else is in its place.
    restart(&mut test, &|| {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    });
    test.apus
        .wait_for_log("cannot store the history of the server: a restart forgets it");
    assert_eq!(test.apus.get("/").status, 200);
    let seen = wait_for(&test, &secrets[0], "second", ("requests_2xx", 1));
    assert_eq!(seen["durable"], false);
}

#[test]
fn a_full_disk_leaves_a_gap_and_stops_nothing() {
    let home = Home::new();
    let [site, admin] = [free_port(), free_port()];
    home.write(
        "apus.toml",
        format!(
            "[global]\nadmin_listen = \"127.0.0.1:{admin}\"\nstate_folder = \"disk/state\"\n\
             [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
        ),
    );
    let disk = PreparedDisk::new(&home, "1m", false);
    let apus = home.serve_through(&disk.program(), &["apus.toml"]);
    let disk = disk.of(&home, apus.pid());
    // The file is there once something is written.
    wait_until("the server responds", || apus.get("/").status == 200);
    disk.fill();
    let address: SocketAddr = ([127, 0, 0, 1], admin).into();
    let log = apus.wait_for_log("cannot store the history of the server");
    assert_eq!(log.matches("cannot store the history").count(), 1, "{log}");
    assert_eq!(get(address, "/metrics").status, 200);
    assert_eq!(apus.get("/").status, 200);
    disk.empty();
    if !log.contains("a restart forgets it") {
        apus.wait_for_log("the history of the server is stored again");
    }
}

#[test]
fn nothing_is_stored_without_an_address_of_the_operator() {
    let home = Home::new();
    home.make_folder("state");
    let [site, admin] = [free_port(), free_port()];
    let write = |global: &str| {
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\nstate_folder = \"state\"\n{global}\n\
                 [[sites]]\nlisten = \"127.0.0.1:{site}\"\nroot = \"site\"\n"
            ),
        );
    };
    let reload = || home.expect(&["reload", "--socket", "control.sock"], 0);
    let path = home.path("state/history");
    write("");
    let _apus = home.serve(&["apus.toml"]);
    reload();
    assert!(!path.exists());
    write(&format!("admin_listen = \"127.0.0.1:{admin}\""));
    reload();
    wait_until("the history begins", || path.exists());
    write("");
    reload();
    fs::remove_file(&path).unwrap();
    write("max_connections = 1000");
    reload();
    assert!(!path.exists());
}

/// An event stream of the API.
struct EventReader(BufReader<TcpStream>);

impl EventReader {
    /// Asks for the stream; the status if it is not 200.
    fn open(admin: SocketAddr, token: &str) -> Result<Self, u16> {
        let mut stream = connect(admin);
        write!(
            stream,
            "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status != 200 {
            return Err(status);
        }
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("content-type: text/event-stream\r\n"),
            "{head}"
        );
        assert!(!head.contains("content-encoding"), "{head}");
        Ok(Self(reader))
    }

    /// The next sample; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        let mut event = None;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            // Lines of chunks are none of events.
            if let Some(data) = line.strip_prefix("data: ") {
                assert_eq!(event.as_deref(), Some("event: sample"));
                return Some(serde_json::from_str(data).unwrap());
            }
            if line.starts_with("event:") {
                event = Some(line.trim_end().to_owned());
            }
            if line == "0\r\n" {
                return None;
            }
        }
    }
}

#[test]
fn each_second_is_sent_as_it_ends() {
    let (test, secrets) = ApiTest::new(&[READER, &["blogger", "--site", "blog", "--token"]]);
    let mut all = EventReader::open(test.admin, &secrets[0]).unwrap();
    let mut own = EventReader::open(test.admin, &secrets[1]).unwrap();
    let first = all.next().unwrap();
    let shop = test.apus.address();
    let blog = address_of(&test.apus.urls()[1]);
    assert_eq!(get(shop, "/").status, 200);
    assert_eq!(get(blog, "/nothing").status, 404);
    let (mut found, mut errors) = (0, 0);
    let mut before = first["time"].as_u64().unwrap();
    while (found, errors) != (1, 1) {
        let next = all.next().unwrap();
        let time = next["time"].as_u64().unwrap();
        assert!(time > before, "{time} after {before}");
        before = time;
        found += next["series"]["requests_2xx"].as_u64().unwrap();
        errors += next["series"]["requests_4xx"].as_u64().unwrap();
    }
    // The names are those of the history.
    let known = history(&test, "step=second", &secrets[0]);
    let names = |series: &Value| -> Vec<String> {
        let names = series.as_object().unwrap().keys();
        names.cloned().collect()
    };
    assert_eq!(names(&first["series"]), names(&known["series"]));
    loop {
        let next = own.next().unwrap();
        assert_eq!(next["series"], serde_json::json!({}));
        let sites = next["sites"].as_object().unwrap();
        assert!(sites.keys().all(|name| name == "blog"), "{next}");
        if next["sites"]["blog"]["requests"] == 1 {
            break;
        }
    }
    let (status, _) = test.ask("GET /api/v1/live?step=second", &secrets[0], None);
    assert_eq!(status, 422);
    assert_eq!(EventReader::open(test.admin, "").err(), Some(401));
}

#[test]
fn streams_are_bounded_and_one_that_is_not_read_takes_nothing_of_others() {
    let (test, secrets) = ApiTest::new(&[READER, &["second", "--token"], &["third", "--token"]]);
    let open = |account: usize| EventReader::open(test.admin, &secrets[account]);
    // Nobody reads these.
    let mut unread: Vec<_> = (0..32).map(|_| open(0).unwrap()).collect();
    assert_eq!(open(0).err(), Some(503), "the account has its own");
    let mut read = open(1).unwrap();
    for _ in 0..3 {
        read.next().unwrap();
    }
    assert_eq!(history(&test, "step=second", &secrets[0])["step"], "second");
    // Connections of one address are limited, too: one more would be closed.
    unread.truncate(1);
    wait_until("places are free again", || open(0).is_ok());
}

#[test]
fn a_stream_ends_with_its_account_its_session_and_the_server() {
    let (mut test, secrets) = ApiTest::new(&[READER, &["ana"]]);
    let (status, session) = test.ask(
        "POST /api/v1/session",
        "",
        Some(serde_json::json!({ "name": "ana", "password": secrets[1] })),
    );
    assert_eq!(status, 200, "{session}");
    let token = session["token"].as_str().unwrap();
    let mut of_session = EventReader::open(test.admin, token).unwrap();
    let mut of_account = EventReader::open(test.admin, &secrets[0]).unwrap();
    of_session.next().unwrap();
    assert_eq!(test.ask("DELETE /api/v1/session", token, None).0, 200);
    while of_session.next().is_some() {}
    // A reload without other accounts ends none.
    test.home.expect(&["reload", "--socket", "control.sock"], 0);
    for _ in 0..2 {
        of_account.next().unwrap();
    }
    let accounts = test.home.read("accounts.toml");
    let at = accounts.rfind("[[accounts]]").unwrap();
    fs::write(test.home.path("accounts.toml"), &accounts[at..]).unwrap();
    test.home.expect(&["reload", "--socket", "control.sock"], 0);
    while of_account.next().is_some() {}
    assert_eq!(EventReader::open(test.admin, &secrets[0]).err(), Some(401));
    let (_, session) = test.ask(
        "POST /api/v1/session",
        "",
        Some(serde_json::json!({ "name": "ana", "password": secrets[1] })),
    );
    let token = session["token"].as_str().unwrap();
    let mut last = EventReader::open(test.admin, token).unwrap();
    last.next().unwrap();
    test.apus.signal(Signal::TERM);
    while last.next().is_some() {}
    assert!(test.apus.wait().success());
}
