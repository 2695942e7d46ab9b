//! Maintenance of sites: by the configuration and by command.

use std::io::{Read, Write};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Apus, Home, Reply, free_port};

/// A configuration of the sites `shop` and `blog`, with the keys of `shop`. Their state is in the folder of the test.
fn config(home: &Home, ports: [u16; 2], shop: &str) {
    let [clear, tls] = ports;
    home.write(
        "apus.toml",
        format!(
            "[global]\nstate_folder = \"state\"\n\
             [[sites]]\nname = \"shop\"\nserver_name = \"localhost\"\nlisten = [\"127.0.0.1:{clear}\"]\n\
             listen_tls = [\"127.0.0.1:{tls}\"]\nroot = \"site\"\n{shop}\n\
             [[sites]]\nname = \"blog\"\nserver_name = \"blog.localhost\"\nlisten = [\"127.0.0.1:{clear}\"]\nroot = \"site\"\n"
        ),
    );
}

fn status(apus: &Apus) -> u16 {
    apus.get("/").status
}

/// The wait that a response asks for.
fn retry_after(reply: &Reply) -> u64 {
    let head = reply.head.to_ascii_lowercase();
    let (_, value) = head.split_once("retry-after: ").unwrap();
    value.lines().next().unwrap().parse().unwrap()
}

#[test]
fn a_command_turns_maintenance_on_and_off_over_every_protocol_a_reload_a_crash_and_a_restart() {
    let home = Home::new();
    home.make_folder("state");
    let ports = [free_port(), free_port()];
    config(&home, ports, "");
    let mut apus = home.serve(&["--tls", "apus.toml"]);
    assert_eq!(status(&apus), 200);
    // A connection from before stays open, and its next request gets the response of the site as it is then.
    let mut kept = apus.connect();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut head = [0; 15];
    kept.write_all(request).unwrap();
    kept.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    let (out, _) = home.expect(&["site", "maintenance", "shop", "on"], 0);
    assert_eq!(out, "shop: maintenance by command\n");
    apus.wait_for_log("\"command\":\"maintenance\"");
    let reply = apus.get("/");
    assert_eq!((reply.status, retry_after(&reply)), (503, 300));
    let url = format!("https://localhost:{}/", ports[1]);
    for protocol in [&["--http3"][..], &["--http2"], &[]] {
        let arguments = [
            "bench",
            &url,
            "--insecure",
            "-n",
            "4",
            "-c",
            "1",
            "--status",
            "503",
        ];
        home.expect(&[&arguments, protocol].concat(), 0);
    }
    kept.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut rest = String::new();
    kept.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 503 "), "{rest}");

    // The other site is served, and the lists and `explain` say which is not.
    let mut other = apus.connect();
    other
        .write_all(b"GET / HTTP/1.1\r\nHost: blog.localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    other.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let (out, _) = home.expect(&["site", "list"], 0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("shop  maintenance by command"),
        "{out}"
    );
    assert!(lines[1].starts_with("blog  serving"), "{out}");
    let (out, _) = home.expect(&["status"], 0);
    assert!(out.contains("shop: maintenance by command"), "{out}");
    let explained = format!("http://localhost:{}/", ports[0]);
    let (out, _) = home.expect(&["explain", "GET", &explained], 0);
    assert!(out.contains("maintenance") && out.contains("503"), "{out}");

    home.expect(&["reload"], 0);
    assert_eq!(status(&apus), 503);
    apus.signal(Signal::KILL);
    apus.wait();
    let mut apus = home.serve(&["--tls", "apus.toml"]);
    assert_eq!(status(&apus), 503);

    // A moment at which it ends, and what the configuration says.
    let until = [
        "site",
        "maintenance",
        "shop",
        "on",
        "--until",
        "2h",
        "--json",
    ];
    let (json, _) = home.expect(&until, 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sites"][0]["maintenance"], true);
    assert!(json["sites"][0]["maintenance_until"].is_string(), "{json}");
    let wait = retry_after(&apus.get("/"));
    assert!((7100..=7200).contains(&wait), "{wait}");
    home.expect(&["site", "maintenance", "shop", "off"], 0);
    assert_eq!(status(&apus), 200);
    config(&home, ports, "maintenance = true");
    home.expect(&["reload"], 0);
    // The command takes precedence until it is taken back.
    assert_eq!(status(&apus), 200);
    home.expect(&["site", "maintenance", "shop", "config"], 0);
    assert_eq!(status(&apus), 503);
    config(&home, ports, "maintenance = { allow = \"127.0.0.0/8\" }");
    home.expect(&["reload"], 0);
    assert_eq!(status(&apus), 200);

    // Mistakes name what there is.
    let (_, error) = home.expect(&["site", "maintenance", "sho", "on"], 1);
    assert!(
        error.contains("no site is named `sho`; expected one of shop, blog"),
        "{error}"
    );
    let past = [
        "site",
        "maintenance",
        "shop",
        "on",
        "--until",
        "2001-01-01T00:00:00Z",
    ];
    home.expect(&past, 2);
    home.expect(&["site", "maintenance", "shop", "off", "--until", "2h"], 2);
    home.expect(&["stop"], 0);
    apus.wait();
    home.expect(&["site", "maintenance", "shop", "off"], 1);

    // A damaged file is said, and the sites are as the configuration says.
    home.write("state/maintenance.json", "{");
    let apus = home.serve(&["--tls", "apus.toml"]);
    apus.wait_for_log("maintenance.json.damaged");
    assert_eq!(status(&apus), 200);
}
