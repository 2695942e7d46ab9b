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
