//! Access logs that go to syslog servers and to journald: real sockets receive them, also slow ones and ones that are gone.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Apus, Home, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A site whose log is this table, with a location that fails.
fn config(log: &str) -> String {
    format!(
        "[[sites]]\nname = \"blog\"\nroot = \"site\"\nlisten = [\"127.0.0.1:0\"]\naccess_log = {{ {log} }}\n\
         locations = [{{ path = \"/fails\", return = {{ status = 503 }} }}]\n"
    )
}

fn udp() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = format!("udp://{}", socket.local_addr().unwrap());
    (socket, address)
}

fn tcp() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    (listener, address)
}

/// A socket to which every user may write.
fn unix(home: &Home, name: &str) -> UnixDatagram {
    let path = home.path(name);
    let socket = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn received(recv: impl Fn(&mut [u8]) -> std::io::Result<usize>) -> String {
    let mut buffer = vec![0; 256 * 1024];
    let len = recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..len].to_vec()).unwrap()
}

/// A connection of syslog with octet counting.
struct Messages(BufReader<TcpStream>);

impl Messages {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next message; `None` at the end of the connection.
    fn next(&mut self) -> Option<String> {
        let mut length = Vec::new();
        self.0.read_until(b' ', &mut length).unwrap();
        if length.is_empty() {
            return None;
        }
        let length = String::from_utf8(length).unwrap();
        let mut message = vec![0; length.trim_end().parse().unwrap()];
        self.0.read_exact(&mut message).unwrap();
        Some(String::from_utf8(message).unwrap())
    }
}

/// The counts of the log with this address: written and lost.
fn counts(home: &Home, address: &str) -> (u64, u64) {
    let (json, _) = home.expect(&["status", "--json"], 0);
    let status: Value = serde_json::from_str(&json).unwrap();
    let logs = status["access_logs"].as_array().unwrap();
    let log = logs.iter().find(|log| log["path"] == address);
    let log = log.unwrap_or_else(|| panic!("{address} is not in {logs:#?}"));
    let count = |name: &str| log[name].as_u64().unwrap();
    (count("lines_written"), count("lines_lost"))
}

fn lines_about(apus: &Apus, text: &str) -> usize {
    apus.log()
        .lines()
        .filter(|line| line.contains(text))
        .count()
}

#[test]
fn a_syslog_server_gets_a_datagram_for_each_line() {
    let home = Home::new();
    let (socket, address) = udp();
    home.write(
        "apus.toml",
        config(&format!(
            "syslog = \"{address}\", format = \"$uri $status\", facility = \"daemon\", app_name = \"shop\""
        )),
    );
    let apus = home.serve(&[]);
    for (path, priority, line) in [("/1", 30, "/1 404"), ("/fails", 27, "/fails 503")] {
        apus.get(path);
        let message = received(|buffer| socket.recv(buffer));
        let pid = apus.pid();
        let parts: Vec<_> = message.splitn(3, ' ').collect();
        assert_eq!(parts[0], format!("<{priority}>1"), "{message}");
        assert!(
            parts[1].starts_with("20") && parts[1].ends_with('Z'),
            "{message}"
        );
        let rest = parts[2].split_once(' ').unwrap().1;
        assert_eq!(rest, format!("shop {pid} access - {line}"));
    }
    wait_until("both are counted", || counts(&home, &address) == (2, 0));
}

#[test]
fn a_datagram_that_is_too_long_is_cut() {
    let home = Home::new();
    let (socket, address) = udp();
    let log = format!("syslog = \"{address}\", format = \"$request_uri\"");
    home.write("apus.toml", config(&log));
    let apus = home.serve(&[]);
    apus.get(&format!("/?{}", "q".repeat(5000)));
    let message = received(|buffer| socket.recv(buffer));
    assert_eq!(message.len(), 2048);
    assert!(message.ends_with("qqq[cut]"), "{message}");
}

#[test]
fn lines_over_tcp_arrive_before_the_server_ends() {
    let home = Home::new();
    let (listener, address) = tcp();
    let log = format!("path = \"access.log\", syslog = \"{address}\", format = \"$uri\"");
    home.write("apus.toml", config(&log));
    let mut apus = home.serve(&[]);
    for number in 0..50 {
        apus.get(&format!("/{number}"));
    }
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    let mut messages = Messages::accept(&listener);
    let mut expected: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    let mut found = Vec::new();
    while let Some(message) = messages.next() {
        assert!(message.starts_with("<190>1 "), "{message}");
        found.push(message.rsplit_once(" access - ").unwrap().1.to_owned());
    }
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(home.read("access.log").lines().count(), 50);
}

#[test]
fn a_unix_socket_gets_the_form_that_its_readers_know() {
    let home = Home::new();
    let socket = unix(&home, "log.socket");
    let log = "syslog = \"unix:log.socket\", format = \"$uri\"";
    home.write("apus.toml", config(log));
    let apus = home.serve(&[]);
    apus.get("/1");
    let message = received(|buffer| socket.recv(buffer));
    let (head, line) = message.split_once(": ").unwrap();
    assert_eq!(line, "/1");
    assert!(head.starts_with("<190>"), "{message}");
    // `Nov 29 09:35:54` and the name, without a host.
    assert_eq!(
        head[5..].len(),
        format!("Nov 29 09:35:54 apus[{}]", apus.pid()).len()
    );
    assert!(
        head.ends_with(&format!(" apus[{}]", apus.pid())),
        "{message}"
    );
    home.write(
        "apus.toml",
        config(&format!("{log}, syslog_format = \"rfc5424\"")),
    );
    home.expect(&["reload"], 0);
    apus.get("/2");
    let message = received(|buffer| socket.recv(buffer));
    assert!(message.starts_with("<190>1 20"), "{message}");
}

#[test]
fn the_journal_gets_fields_that_no_client_can_forge() {
    let home = Home::new();
    let socket = unix(&home, "journal");
    home.write(
        "apus.toml",
        config("journald = \"journal\", format = \"$request_uri\""),
    );
    let apus = home.serve(&[]);
    let entry = || -> BTreeMap<String, String> {
        let text = received(|buffer| socket.recv(buffer));
        let fields = text.strip_suffix('\n').unwrap().split('\n');
        fields
            .map(|field| field.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    let status = apus.get("/a%0AMESSAGE=forged%0APRIORITY=0?b=%0Ac").status;
    let fields = entry();
    let names: Vec<_> = fields.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "APUS_BYTES_SENT",
            "APUS_CLIENT",
            "APUS_HOST",
            "APUS_METHOD",
            "APUS_PATH",
            "APUS_PROTOCOL",
            "APUS_REQUEST_ID",
            "APUS_REQUEST_TIME",
            "APUS_SITE",
            "APUS_STATUS",
            "MESSAGE",
            "PRIORITY",
            "SYSLOG_FACILITY",
            "SYSLOG_IDENTIFIER",
        ]
    );
    assert_eq!(fields["MESSAGE"], "/a%0AMESSAGE=forged%0APRIORITY=0?b=%0Ac");
    assert_eq!(fields["APUS_PATH"], "/a%0AMESSAGE=forged%0APRIORITY=0");
    for (name, value) in [
        ("APUS_SITE", "blog"),
        ("APUS_CLIENT", "127.0.0.1"),
        ("APUS_STATUS", &*status.to_string()),
        ("PRIORITY", "6"),
        ("SYSLOG_FACILITY", "23"),
        ("SYSLOG_IDENTIFIER", "apus"),
    ] {
        assert_eq!(fields[name], value);
    }
    apus.get("/fails");
    let fields = entry();
    assert_eq!(
        (&*fields["PRIORITY"], &*fields["APUS_STATUS"]),
        ("3", "503")
    );
}

#[test]
fn lines_wait_for_a_receiver_that_comes_back() {
    let home = Home::new();
    let (listener, address) = tcp();
    let place = listener.local_addr().unwrap();
    drop(listener);
    home.write(
        "apus.toml",
        config(&format!("syslog = \"{address}\", format = \"$uri\"")),
    );
    let apus = home.serve(&[]);
    for number in 0..5 {
        apus.get(&format!("/{number}"));
    }
    apus.wait_for_log("cannot be reached");
    let listener = TcpListener::bind(place).unwrap();
    let mut messages = Messages::accept(&listener);
    let mut next = || {
        let message = messages.next().unwrap();
        message.rsplit_once(' ').unwrap().1.to_owned()
    };
    let mut found: Vec<_> = (0..5).map(|_| next()).collect();
    found.sort();
    assert_eq!(found, ["/0", "/1", "/2", "/3", "/4"]);
    apus.wait_for_log("is reached again");
    assert_eq!(counts(&home, &address), (5, 0));
    // A receiver that is restarted is noticed before a line is sent to nobody.
    drop(messages);
    apus.get("/5");
    let mut messages = Messages::accept(&listener);
    assert!(messages.next().unwrap().ends_with(" /5"));
    assert_eq!(lines_about(&apus, "cannot be reached"), 2);
}

#[test]
fn a_receiver_of_datagrams_that_is_gone_is_noticed() {
    let home = Home::new();
    let (socket, address) = udp();
    let place = socket.local_addr().unwrap();
    drop(socket);
    home.write(
        "apus.toml",
        config(&format!("syslog = \"{address}\", format = \"$uri\"")),
    );
    let apus = home.serve(&[]);
    // The first datagram reaches nobody, which the second one finds out, and waits.
    apus.get("/1");
    apus.get("/2");
    wait_until("the loss is counted", || {
        apus.get("/3");
        counts(&home, &address).1 > 0
    });
    assert_eq!(lines_about(&apus, "cannot be reached"), 1);
    let socket = UdpSocket::bind(place).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(received(|buffer| socket.recv(buffer)).contains(" access - /"));
}

#[test]
fn a_receiver_that_does_not_read_holds_up_nothing() {
    const REQUESTS: u64 = 500;
    let home = Home::new();
    let (listener, slow) = tcp();
    let fast = unix(&home, "fast");
    let line = "x".repeat(60_000);
    home.write(
        "apus.toml",
        config(&format!(
            "path = \"access.log\", syslog = [\"{slow}\", \"unix:fast\"], format = \"$uri {line}\""
        )),
    );
    let mut apus = home.serve(&[]);
    let reader = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            received(|buffer| fast.recv(buffer));
        }
    });
    for _ in 0..REQUESTS {
        assert_eq!(apus.get("/").status, 200);
    }
    // The other receiver and the file have all lines.
    reader.join().unwrap();
    wait_until("the file has all lines", || {
        counts(&home, &home.path("access.log").to_string_lossy()) == (REQUESTS, 0)
    });
    let (written, lost) = wait_until("lost lines are counted", || {
        let (written, lost) = counts(&home, &slow);
        (lost > 0).then_some((written, lost))
    });
    assert!(written + lost <= REQUESTS, "{written} + {lost}");
    apus.wait_for_log("the receiver does not keep up");
    // The stop does not wait for it for long.
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    apus.wait_for_log("the time for it is over");
    drop(listener);
}

#[test]
fn a_receiver_that_is_gone_does_not_delay_the_stop() {
    let home = Home::new();
    let (listener, address) = tcp();
    drop(listener);
    home.write("apus.toml", config(&format!("syslog = \"{address}\"")));
    let mut apus = home.serve(&[]);
    apus.get("/");
    apus.wait_for_log("cannot be reached");
    apus.get("/");
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    apus.wait_for_log("\"lines\":2");
}

#[test]
fn a_reload_keeps_adds_and_removes_receivers() {
    let home = Home::new();
    let (first, kept) = tcp();
    let (second, removed) = tcp();
    let (third, added) = tcp();
    let log = |one: &str, other: &str| {
        config(&format!(
            "syslog = [\"{one}\", \"{other}\"], format = \"$uri\""
        ))
    };
    home.write("apus.toml", log(&kept, &removed));
    let apus = home.serve(&[]);
    apus.get("/1");
    let mut first_messages = Messages::accept(&first);
    let mut second_messages = Messages::accept(&second);
    assert!(first_messages.next().unwrap().ends_with(" /1"));
    // A line that is still in the buffer of its worker reaches the receiver that is removed.
    apus.get("/2");
    home.write("apus.toml", log(&kept, &added));
    home.expect(&["reload"], 0);
    apus.get("/3");
    for line in [" /1", " /2"] {
        assert!(second_messages.next().unwrap().ends_with(line));
    }
    assert_eq!(second_messages.next(), None);
    let mut third_messages = Messages::accept(&third);
    assert!(third_messages.next().unwrap().ends_with(" /3"));
    // The one that stays has all lines on one connection.
    let mut rest: Vec<_> = (0..2).map(|_| first_messages.next().unwrap()).collect();
    rest.sort_by_key(|message| message.ends_with(" /3"));
    assert!(
        rest[0].ends_with(" /2") && rest[1].ends_with(" /3"),
        "{rest:?}"
    );
    first.set_nonblocking(true).unwrap();
    assert!(first.accept().is_err());
    assert_eq!(counts(&home, &kept), (3, 0));
}
