//! The access log: its lines, formats, rotation and lost lines.

use std::fs;
use std::io::Write;

use rustix::process::Signal;

use crate::harness::{Home, Reply, wait_until};

fn config(log: &str) -> String {
    format!(
        "[[sites]]\nname = \"blog\"\nroot = \"site\"\nlisten = [\"127.0.0.1:0\"]\naccess_log = {log}\n"
    )
}

#[test]
fn a_line_is_written_soon_after_its_request() {
    let home = Home::new();
    home.write("apus.toml", config("\"access.log\""));
    let apus = home.serve(&[]);
    apus.get("/?a=b");
    wait_until("the line is in the log", || {
        !home.read("access.log").is_empty()
    });
    let line = home.read("access.log");
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.ends_with("\n"),
        "{line}"
    );
    assert!(
        line.contains("\"GET /?a=b HTTP/1.1\" 200 14 \"-\" \"-\""),
        "{line}"
    );
}

#[test]
fn lines_are_written_before_the_server_ends() {
    let home = Home::new();
    home.write(
        "apus.toml",
        config("{ path = \"access.log\", format = \"$server_name $uri $status\" }"),
    );
    let mut apus = home.serve(&[]);
    for _ in 0..20 {
        apus.get("/");
    }
    apus.signal(Signal::TERM);
    assert!(apus.wait().success());
    assert_eq!(home.read("access.log"), "blog / 200\n".repeat(20));
}

#[test]
fn a_rotated_log_is_reopened_by_sigusr1() {
    let home = Home::new();
    home.write(
        "apus.toml",
        config("{ path = \"access.log\", format = \"$uri\" }"),
    );
    let apus = home.serve(&[]);
    apus.get("/1");
    wait_until("the first line is in the log", || {
        home.read("access.log") == "/1\n"
    });
    fs::rename(home.path("access.log"), home.path("access.log.1")).unwrap();
    apus.get("/2");
    wait_until("the old file is still written", || {
        home.read("access.log.1") == "/1\n/2\n"
    });
    apus.signal(Signal::USR1);
    wait_until("the new file exists", || home.path("access.log").exists());
    apus.get("/3");
    wait_until("the new file is written", || {
        home.read("access.log") == "/3\n"
    });
}

#[test]
fn logs_whose_folder_is_gone_are_reported_in_one_line() {
    let home = Home::new();
    home.make_folder("logs");
    let site = |name: &str| {
        format!(
            "[[sites]]\nserver_name = \"{name}\"\nlisten = [\"127.0.0.1:0\"]\nreturn = {{ status = 204 }}\n\
             access_log = \"logs/{name}.log\"\n"
        )
    };
    home.write("apus.toml", site("a") + &site("b"));
    let apus = home.serve(&[]);
    let about_logs = || -> Vec<String> {
        let log = apus.log();
        let lines = log.lines().filter(|line| line.contains("access log"));
        lines.map(str::to_owned).collect()
    };
    fs::rename(home.path("logs"), home.path("moved")).unwrap();
    apus.signal(Signal::USR1);
    wait_until("it is reported", || !about_logs().is_empty());
    home.make_folder("logs");
    apus.signal(Signal::USR1);
    wait_until("they are reopened", || home.path("logs/b.log").exists());
    wait_until("that is logged", || about_logs().len() > 1);
    let lines = about_logs();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for text in [
        "access logs cannot be reopened, and their lines still go to the old files: ",
        "logs/a.log: ",
        "logs/b.log: ",
    ] {
        assert!(lines[0].contains(text), "{text} is missing: {}", lines[0]);
    }
    assert!(lines[1].contains("access logs reopened"), "{}", lines[1]);
}

#[test]
fn a_client_cannot_forge_json_lines() {
    let home = Home::new();
    home.write(
        "apus.toml",
        config("{ path = \"access.log\", format = \"json\" }"),
    );
    let apus = home.serve(&[]);
    let mut stream = apus.connect();
    stream
        .write_all(
            b"GET /\" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
              User-Agent: a\",\"status\":200\xc2\x9b\\\r\n\r\n",
        )
        .unwrap();
    Reply::read(stream);
    wait_until("the line is in the log", || {
        !home.read("access.log").is_empty()
    });
    let line = home.read("access.log");
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["status"], 404, "{line}");
    assert_eq!(object["user_agent"], "a\",\"status\":200\u{9b}\\");
    assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
}

#[test]
fn a_full_disk_loses_lines_but_no_response() {
    let home = Home::new();
    home.write("apus.toml", config("\"/dev/full\""));
    let apus = home.serve(&[]);
    for _ in 0..5 {
        assert_eq!(apus.get("/").status, 200);
    }
    wait_until("the loss is counted", || {
        let (json, _) = home.expect(&["status", "--json"], 0);
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        status["access_logs"][0]["lines_lost"] == 5
    });
    apus.wait_for_log("lines are lost");
}

#[test]
fn a_log_that_cannot_be_opened_prevents_the_start() {
    let home = Home::new();
    home.write("apus.toml", config("\"none/access.log\""));
    let (_, errors) = home.expect(&["serve"], 1);
    assert!(errors.contains("none/access.log"), "{errors}");
}

#[test]
fn a_log_that_is_not_read_delays_neither_responses_nor_the_stop() {
    let home = Home::new();
    let line = "x".repeat(4000);
    let format = format!("{{ path = \"/dev/stdout\", format = \"$uri {line}\" }}");
    home.write("apus.toml", config(&format));
    let mut apus = home.serve_unread(&[]);
    for _ in 0..200 {
        assert_eq!(apus.get("/").status, 200);
    }
    apus.signal(Signal::USR1);
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
}

#[test]
fn a_sample_has_what_went_wrong_or_was_slow_in_any_case() {
    let home = Home::new();
    home.write(
        "apus.toml",
        config("{ path = \"access.log\", format = \"$uri $status $sample_rate\", sample = 0 }")
            + "locations = [{ path = \"/fails\", return = { status = 503 } }]\n",
    );
    let apus = home.serve(&[]);
    for _ in 0..10 {
        assert_eq!(apus.get("/").status, 200);
    }
    assert_eq!(apus.get("/fails").status, 503);
    wait_until("the failure is in the log", || {
        !home.read("access.log").is_empty()
    });
    home.write(
        "apus.toml",
        config("{ path = \"access.log\", format = \"$uri $status $sample_rate\", sample = 0.25, sample_slow = \"1ms\" }")
            + "locations = [{ path = \"/slow\", rules = [{ when = \"path == \\\"/slow\\\"\", delay = \"20ms\" }], return = { status = 404 } }]\n",
    );
    home.expect(&["reload"], 0);
    apus.get("/slow");
    wait_until(
        "a slow request and one of the sample are in the log",
        || {
            apus.get("/");
            let log = home.read("access.log");
            log.contains("\n/ 200 0.25\n") && log.contains("\n/slow 404 1\n")
        },
    );
    let log = home.read("access.log");
    assert!(log.starts_with("/fails 503 1\n"), "{log}");
    let known = ["/fails 503 1", "/slow 404 1", "/ 200 0.25", "/ 200 1"];
    assert!(log.lines().all(|line| known.contains(&line)), "{log}");
}

#[test]
fn secrets_of_queries_are_in_no_line() {
    let home = Home::new();
    let format =
        "$request|$request_uri|$args|$http_referer|$arg_token|$arg_sid|$arg_a|$sent_http_location";
    let site = |log: &str| {
        config(log)
            + "locations = [{ path = \"/go\", return = { status = 302, location = \"/to?$args\" } }]\n"
    };
    home.write(
        "apus.toml",
        site(&format!(
            "{{ path = \"access.log\", format = \"{format}\", hide = \"sid\" }}"
        )),
    );
    let apus = home.serve(&[]);
    let send = || {
        let mut stream = apus.connect();
        stream
            .write_all(
                b"GET /go?a=1&token=S3CRET&SID=S3CRET HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                  Referer: https://a.example/b?pass%77ord=S3CRET#c\r\n\r\n",
            )
            .unwrap();
        let reply = Reply::read(stream);
        // The client gets what it sent.
        assert!(reply.head.contains("s3cret"), "{}", reply.head);
    };
    send();
    let lines = |count: usize| {
        wait_until("the lines are in the log", || {
            let log = home.read("access.log");
            (log.lines().count() == count).then_some(log)
        })
    };
    assert_eq!(
        lines(1),
        "GET /go?a=1&token=hidden&SID=hidden HTTP/1.1|/go?a=1&token=hidden&SID=hidden|a=1&token=hidden&SID=hidden|\
         https://a.example/b?pass%77ord=hidden#c|hidden|-|1|/to?a=1&token=hidden&SID=hidden\n"
    );
    home.write(
        "apus.toml",
        site("{ path = \"access.log\", format = \"json\" }"),
    );
    home.expect(&["reload"], 0);
    send();
    let log = lines(2);
    let object: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(object["uri"], "/go?a=1&token=hidden&SID=S3CRET");
    assert_eq!(object["referer"], "https://a.example/b?pass%77ord=hidden#c");
    home.write(
        "apus.toml",
        site("{ path = \"access.log\", format = \"$args\", hide = false }"),
    );
    home.expect(&["reload"], 0);
    send();
    assert!(lines(3).ends_with("\na=1&token=S3CRET&SID=S3CRET\n"));
}

#[test]
fn json_says_who_responded_and_when() {
    let home = Home::new();
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = origin.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = origin.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\nbody") {
            let mut buffer = [0; 1024];
            let len = std::io::Read::read(&mut stream, &mut buffer).unwrap();
            head.extend_from_slice(&buffer[..len]);
        }
        let response = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        stream.write_all(response).unwrap();
    });
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nname = \"blog\"\nlisten = [\"127.0.0.1:0\"]\nupstream = \"http://{address}\"\n\
             access_log = {{ path = \"access.log\", format = \"json\" }}\n"
        ),
    );
    let apus = home.serve(&[]);
    let mut stream = apus.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody")
        .unwrap();
    assert_eq!(Reply::read(stream).status, 201);
    let line = wait_until("the line is in the log", || {
        let log = home.read("access.log");
        (!log.is_empty()).then_some(log)
    });
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["upstream_addr"], address.to_string());
    assert_eq!(object["upstream_status"], 201);
    assert_eq!(object["request_body_bytes"], 4);
    assert_eq!(object["body_bytes_sent"], 2);
    assert_eq!(object["sample_rate"], 1);
    let seconds = |name: &str| object[name].as_f64().unwrap();
    assert!(
        seconds("upstream_response_time") <= seconds("request_time"),
        "{line}"
    );
    assert!(
        seconds("first_byte_time") <= seconds("request_time"),
        "{line}"
    );
    for name in ["ssl_cipher", "ssl_ja4", "upstream_cache_status", "bot"] {
        assert!(object[name].is_null(), "{name}: {line}");
    }
}
