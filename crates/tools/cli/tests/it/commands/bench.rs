//! `apus bench` against a server of this machine.

use std::process::Stdio;

use crate::clients::program;
use crate::harness::{Home, free_port};
use crate::proxy::{Configuration, Origin};

#[test]
fn bench_measures_the_server_and_its_process() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    let arguments = [
        "bench",
        &url,
        "-c",
        "4",
        "-d",
        "1s",
        "--warm-up",
        "200ms",
        "--json",
    ];
    let (json, _) = home.expect(&arguments, 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let responses = report["responses"].as_u64().unwrap();
    assert!(responses > 10 && report["failed"] == 0, "{json}");
    assert_eq!(report["statuses"]["200"], responses, "{json}");
    assert_eq!(report["latency"]["count"], responses);
    let consumed = &report["server"];
    assert_eq!(consumed["name"], "apus", "{json}");
    assert!(
        consumed["memory_bytes"].as_u64().unwrap() > 1_000_000,
        "{json}"
    );
    assert!(consumed["descriptors"].as_u64().unwrap() > 4, "{json}");
    assert!(!consumed["course"].as_array().unwrap().is_empty(), "{json}");

    let (text, _) = home.expect(&["bench", &url, "-n", "100", "--length", "14"], 0);
    for part in [
        "100, ",
        "latency",
        "failed       0",
        "generator",
        "server       apus",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let (csv, _) = home.expect(&["bench", &url, "-n", "10", "--csv"], 0);
    assert_eq!(csv.lines().count(), 2, "{csv}");
    drop(server);
}

#[test]
fn failures_make_bench_fail_unless_they_are_allowed() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let good = format!("http://127.0.0.1:{port}/");
    let missing = format!("http://127.0.0.1:{port}/none");
    let arguments = ["bench", &good, &missing, "-n", "100", "-c", "2"];
    let (text, errors) = home.expect(&arguments, 1);
    assert!(text.contains("wrong status (first: status 404)"), "{text}");
    assert!(errors.contains("--allow-errors"), "{errors}");
    home.expect(&[&arguments[..], &["--allow-errors"]].concat(), 0);
    home.expect(&["bench", &missing, "-n", "10", "--status", "404"], 0);
    drop(server);
    let (_, errors) = home.expect(&["bench", &good, "-n", "10"], 1);
    assert!(errors.contains("connection refused"), "{errors}");
}

#[test]
fn bench_rejects_loads_that_mean_nothing_and_hosts_of_others() {
    let home = Home::new();
    let url = "http://127.0.0.1:1/";
    for misuse in [
        &["bench"][..],
        &["bench", "ftp://127.0.0.1/"],
        &["bench", url, "-c", "0"],
        &["bench", url, "-d", "soon"],
        &["bench", url, "-d", "1s", "-n", "5"],
        &["bench", url, "--rate", "fast"],
        &["bench", url, "--poisson"],
        &["bench", url, "--pipeline", "4", "--close"],
        &["bench", url, "--pipeline", "4", "--rate", "10"],
        &["bench", url, "-n", "5", "--warm-up", "1s"],
        &["bench", url, "--status", "ok"],
        &["bench", url, "--body-file", "none.txt"],
        &["bench", url, "-H", "no colon"],
        &["bench", url, "--cert", "a.pem"],
        &["bench", url, "--weight", "1", "--weight", "2"],
        &["bench", url, "http://127.0.0.1:2/"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
    // An address for documentation (RFC 5737).
    let (_, errors) = home.expect(&["bench", "http://192.0.2.1/"], 2);
    assert!(errors.contains("is not this machine"), "{errors}");
    assert!(errors.contains("--i-own-this-host"), "{errors}");
}

#[test]
fn bench_speaks_http2_and_http3() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    let arguments = [
        "bench", &url, "--http2", "-m", "10", "-c", "2", "-n", "500", "--json",
    ];
    let (json, _) = home.expect(&arguments, 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&report["responses"], &report["protocol"]),
        (&500.into(), &"HTTP/2".into())
    );
    drop(server);
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let server = home.serve(&["site", "--listen", &address, "--tls"]);
    let url = format!("https://{address}/");
    home.expect(&["bench", &url, "--insecure", "--http2", "-n", "100"], 0);
    home.expect(&["bench", &url, "--insecure", "-n", "100"], 0);
    let offered = [
        "--tls-cipher",
        "TLS_AES_128_GCM_SHA256",
        "--tls-group",
        "X25519",
    ];
    for more in [&["--http2"][..], &["--http3"]] {
        let arguments = ["bench", &url, "--insecure", "-n", "50"];
        home.expect(&[&arguments[..], &offered, more].concat(), 0);
    }
    let (_, errors) = home.expect(&["bench", &url, "-k", "--tls-cipher", "none"], 2);
    assert!(errors.contains("TLS_AES_256_GCM_SHA384"), "{errors}");
    let (_, errors) = home.expect(&["bench", &url, "-n", "100"], 1);
    assert!(errors.contains("--insecure"), "{errors}");

    let over_http3 = ["bench", &url, "-k", "--http3", "-c", "2", "-t", "1"];
    let with = |more: &[&str], status| home.expect(&[&over_http3[..], more].concat(), status).0;
    let text = with(&["-m", "8", "-n", "500"], 0);
    assert!(
        text.contains("8 streams each, 1 thread, HTTP/3") && text.contains("500, "),
        "{text}"
    );
    // The process is found by its UDP port, too.
    assert!(text.contains("server       apus"), "{text}");
    with(&["-n", "50", "--body", "x", "--status", "405"], 0);
    let text = with(&["-d", "500ms", "--rate", "100"], 0);
    assert!(text.contains("50, "), "{text}");
    let json = with(&["--close", "-n", "60", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["connections_opened"], 60, "{json}");
    let resumed = report["handshakes_resumed"].as_u64().unwrap();
    assert!((50..=58).contains(&resumed), "{json}");
    let json = with(&["--close", "--no-resumption", "-n", "60", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["handshakes_resumed"], 0, "{json}");
    let (_, errors) = home.expect(&["bench", &url, "--http3", "-n", "1"], 1);
    assert!(errors.contains("--insecure"), "{errors}");
    drop(server);
    let refused = [&over_http3[..], &["-n", "1", "--timeout", "300ms"]].concat();
    let (_, errors) = home.expect(&refused, 1);
    assert!(errors.contains("by QUIC: no handshake"), "{errors}");
    let (text, _) = home.expect(&[&refused[..], &["--no-probe"]].concat(), 1);
    assert!(text.contains("connection not opened in time"), "{text}");
}

/// The DOM of a page that shows the report in a frame, and says in words what the frame shows.
fn visit_report(home: &Home, scheme: &str) -> String {
    let page = home.write(
        "frame.html",
        "<!doctype html><p id=found></p><iframe id=report src=report.html></iframe><script>\
         onload = () => {\
         const page = document.getElementById('report').contentDocument;\
         const style = getComputedStyle(page.body);\
         const plots = [...page.querySelectorAll('svg[role=img]')].map(plot => plot.getBoundingClientRect().height > 50\
         && plot.getAttribute('aria-label').length > 20);\
         const elsewhere = document.getElementById('report').contentWindow.performance\
         .getEntriesByType('resource').length;\
         document.getElementById('found').textContent = [style.backgroundColor, style.color, plots.join(' '), elsewhere]\
         .join('; ');}</script>",
    );
    let output = program("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args(["--allow-file-access-from-files", "--window-size=1000,1000"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!(
            "--user-data-dir={}",
            home.path("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, found) = dom
        .split_once("<p id=\"found\">")
        .unwrap_or_else(|| panic!("{dom}"));
    found.split_once("</p>").unwrap().0.to_owned()
}

#[test]
fn the_page_of_bench_is_shown_by_a_browser_in_both_colour_schemes() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    home.expect(
        &[
            "bench",
            &url,
            "-c",
            "2",
            "-d",
            "500ms",
            "--html",
            "report.html",
        ],
        0,
    );
    let plots = "true true true true";
    let light = visit_report(&home, "1");
    assert_eq!(
        light,
        format!("rgb(255, 255, 255); rgb(27, 31, 36); {plots}; 0")
    );
    let dark = visit_report(&home, "0");
    assert_eq!(
        dark,
        format!("rgb(15, 20, 25); rgb(230, 237, 243); {plots}; 0")
    );
    let arguments = ["bench", &url, "-n", "10", "--html", "/proc/no/report.html"];
    let (text, errors) = home.expect(&arguments, 1);
    assert!(
        text.contains("responses    10") && errors.contains("cannot be written"),
        "{errors}"
    );
    drop(server);
}

#[test]
fn bench_finds_the_highest_rate_that_keeps_an_objective() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    let arguments = [
        "bench",
        &url,
        "--find-max",
        "--slo",
        "p50=10s,errors=0",
        "-c",
        "4",
        "-d",
        "100ms",
    ];
    let output = home.run(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("p50 of at most 10s"), "{text}");
    for misuse in [
        &["bench", &url, "--find-max"][..],
        &["bench", &url, "--slo", "p99=1s"],
        &["bench", &url, "--find-max", "--slo", "fast"],
        &["bench", &url, "--find-max", "--slo", "p99=1s", "-n", "5"],
        &["bench", &url, "-m", "5"],
        &["bench", &url, "--http2", "--close"],
        &["bench", &url, "--http2", "--http3"],
        &["bench", &url, "--http3"],
        &["bench", &url, "--receive-window", "100000"],
        &["bench", &url, "--http2", "--receive-window", "1"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
    drop(server);
}

#[test]
fn bench_takes_the_command_lines_of_other_generators() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    let (text, _) = home.expect(&["bench", "--as", "wrk", "-t1", "-c3", "-d200ms", &url], 0);
    assert!(
        text.contains("3 connections, 1 thread, HTTP/1.1, 0.20 s"),
        "{text}"
    );
    let (text, _) = home.expect(&["bench", "--as", "ab", "-n", "30", "-c", "2", &url], 0);
    assert!(
        text.contains("one request each") && text.contains("30, "),
        "{text}"
    );
    let (text, _) = home.expect(&["bench", "--as", "hey", "-n", "40", "-c", "2", &url], 0);
    assert!(text.contains("40, "), "{text}");
    for misuse in [
        &["bench", "--as", "k6", &url][..],
        &["bench", "--as", "wrk", "-s", "a.lua", &url],
        &["bench", "-c", "2", "--as", "wrk", &url],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
    drop(server);
}

#[test]
fn bench_runs_scenarios_of_a_file() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    home.write("names.csv", "file\nindex.html\n");
    home.write(
        "load.toml",
        "url = \"http://127.0.0.1:1\"\n[data.names]\nfile = \"names.csv\"\n[[scenario]]\nname = \"visit\"\n\
         [[scenario.step]]\nname = \"page\"\npath = \"/${names.file}?x=${counter}\"\n\
         expect = { headers = { content-type = true }, body_contains = \"hello\" }\n\
         capture = { word = { regex = \"<h1>(.*)</h1>\" } }\n\
         [[scenario.step]]\npath = \"/${word}\"\nexpect = { status = 404 }\n",
    );
    let url = format!("http://127.0.0.1:{port}/");
    let over_http1 = [
        "bench",
        "--scenario",
        "load.toml",
        &url,
        "-n",
        "40",
        "-c",
        "4",
    ];
    let (text, _) = home.expect(&over_http1, 0);
    assert!(
        text.contains("visit: page: ") && text.contains("visit: 2: "),
        "{text}"
    );
    home.expect(&[&over_http1[..], &["--http2"]].concat(), 0);
    // Without a URL, the URL of the file counts, where nobody listens.
    let (_, errors) = home.expect(&["bench", "--scenario", "load.toml"], 1);
    assert!(errors.contains("connection refused"), "{errors}");
    for misuse in [
        &["bench", "--scenario", "none.toml"][..],
        &["bench", "--scenario", "load.toml", &url, &url],
        &["bench", "--scenario", "load.toml", "--status", "200"],
        &["bench", &url, "--requests-per-connection", "0"],
        &["bench", &url, "--http2", "--http3"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
    let churn = [
        "bench",
        &url,
        "-n",
        "30",
        "-c",
        "1",
        "--requests-per-connection",
        "10",
        "--json",
    ];
    let (json, _) = home.expect(&churn, 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["connections_opened"], 3, "{json}");
    drop(server);
}

/// A comparison of two servers of the same folder, or of another one as the second.
fn comparison(home: &Home, second: &str) -> String {
    let apus = env!("CARGO_BIN_EXE_apus");
    let (one, other) = (free_port(), free_port());
    let text = format!(
        "title = \"one & the other\"\n[rounds]\nleast = 2\nmost = 2\n\
         [load]\nconnections = 2\nduration = \"1s\"\nwarm_up = \"100ms\"\n\
         [[server]]\nname = \"one\"\ncommand = [{apus:?}, \"serve\", \"site\", \"--listen\", \"127.0.0.1:{one}\"]\n\
         url = \"http://127.0.0.1:{one}/\"\nversion = [{apus:?}, \"--version\"]\n\
         [[server]]\nname = \"other\"\ncommand = \"{apus} serve {second} --listen 127.0.0.1:{other}\"\n\
         url = \"http://127.0.0.1:{other}/\"\ncores = \"0\"\n"
    );
    home.write("compare.toml", &text);
    text
}

#[test]
fn bench_compares_servers_that_it_starts_and_stops() {
    let home = Home::new();
    let configuration = comparison(&home, "site");
    let (text, _) = home.expect(
        &["bench", "compare", "compare.toml", "--html", "report.html"],
        0,
    );
    for part in [
        "one & the other",
        "2 rounds in ",
        "CPU per response",
        "reference",
        "not certain: fewer than 6 rounds",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let plots = "true true true true true true";
    let light = visit_report(&home, "1");
    assert!(
        light.starts_with("rgb(255, 255, 255); ") && light.ends_with("; 0"),
        "{light}"
    );
    assert!(light.contains(plots), "{light}");
    let dark = visit_report(&home, "0");
    assert!(
        dark.starts_with("rgb(15, 20, 25); ") && dark.contains(plots),
        "{dark}"
    );

    let (json, _) = home.expect(&["bench", "compare", "compare.toml", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["configuration"], configuration, "{json}");
    assert_eq!(report["servers"][1]["rounds"].as_array().unwrap().len(), 2);
    let cpu = &report["servers"][0]["median"]["cpu_per_response_us"];
    assert!(cpu.as_f64().unwrap() > 0.0, "{json}");
    assert!(
        report["servers"][0]["version"]
            .as_str()
            .unwrap()
            .starts_with("apus ")
    );
    home.write("report.json", &json);
    let (text, _) = home.expect(&["bench", "repeat", "report.json"], 0);
    assert!(text.contains("2 rounds in "), "{text}");
}

#[test]
fn bench_measures_the_memory_of_idle_connections_and_the_growth_under_load() {
    let home = Home::new();
    // A separate file: pages that processes of other tests share count less.
    let apus = home.path("measured-apus");
    std::fs::copy(env!("CARGO_BIN_EXE_apus"), &apus).unwrap();
    let server = |name: &str, keep_alive: u32| {
        format!(
            "[files]\n\"{name}.toml\" = \"\"\"\n[global]\nworker_threads = 1\nkeepalive_timeout = {keep_alive}\ncontrol_socket = \"{name}.sock\"\n\
             [[sites]]\nlisten = [\"127.0.0.1:${{port.{name}}}\"]\nroot = \"{}\"\n\"\"\"\n",
            home.path("site").display()
        )
    };
    let text = |keep_alive: u32| {
        format!(
            "{}[rounds]\nleast = 1\nmost = 1\n\
             [[server]]\nname = \"apus\"\ncommand = [{apus:?}, \"serve\", \"${{work}}/apus.toml\"]\nurl = \"http://127.0.0.1:${{port.apus}}/\"\n\
             [[server]]\nname = \"folder\"\ncommand = [{apus:?}, \"serve\", \"site\", \"--listen\", \"127.0.0.1:${{port.folder}}\"]\n\
             url = \"http://127.0.0.1:${{port.folder}}/\"\n\
             [[case]]\nname = \"idle\"\nservers = [\"apus\"]\nload = {{ idle = true, connections = 164, duration = \"2s\" }}\n\
             goal = [{{ figure = \"per-connection\", server = \"apus\", most = 100000 }}]\n\
             [[case]]\nname = \"rest\"\nservers = [\"folder\"]\nload = {{ idle = true, connections = 0, duration = \"100ms\" }}\n\
             goal = [{{ figure = \"pss\", server = \"folder\", most = 1000 }}]\n\
             [[case]]\nname = \"burst\"\nservers = [\"apus\"]\nload = {{ connections = 50, requests = 500 }}\n\
             goal = [{{ figure = \"growth\", server = \"apus\", most = 1000 }}]\n",
            server("apus", keep_alive)
        )
    };
    home.write("memory.toml", text(60));
    let (json, _) = home.expect(&["bench", "compare", "memory.toml", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let reports = report["files"][0]["reports"].as_array().unwrap();
    let names: Vec<_> = reports.iter().map(|report| &report["case"]).collect();
    assert_eq!(names, ["idle", "rest", "burst"], "{json}");
    let figure = |case: usize, name: &str| reports[case]["servers"][0]["figures"][name].as_f64();
    assert!(figure(0, "per-connection").unwrap() > 0.0, "{json}");
    assert_eq!(
        (figure(0, "rate"), figure(0, "p50")),
        (None, None),
        "{json}"
    );
    assert!(figure(1, "pss").unwrap() > 1.0, "{json}");
    assert!(figure(2, "growth").unwrap() > 0.0, "{json}");
    for report in reports {
        assert_eq!(report["goals"][0]["is_reached"], true, "{json}");
    }

    // Connections that the server has closed would not cost anything.
    home.write(
        "memory.toml",
        text(1).replace("duration = \"2s\"", "duration = \"4s\""),
    );
    let (_, errors) = home.expect(&["bench", "compare", "memory.toml", "--case", "idle"], 1);
    assert!(
        errors.contains("idle connections to `apus` cannot be measured: the server closed them"),
        "{errors}"
    );
}

#[test]
fn comparisons_that_cannot_be_made_say_why() {
    let home = Home::new();
    std::fs::create_dir(home.path("else")).unwrap();
    home.write("else/index.html", "<h1>other words</h1>");
    comparison(&home, "else");
    let (_, errors) = home.expect(&["bench", "compare", "compare.toml"], 1);
    assert!(errors.contains("send different responses"), "{errors}");

    let broken =
        comparison(&home, "site").replace("\"serve\", \"site\"", "\"serve\", \"none.toml\"");
    home.write("compare.toml", &broken);
    let (_, errors) = home.expect(&["bench", "compare", "compare.toml"], 1);
    assert!(
        errors.contains("the server `one` cannot be measured: it ended"),
        "{errors}"
    );
    assert!(errors.contains("none.toml"), "{errors}");

    home.write("compare.toml", "server = []");
    home.write("report.json", "{}");
    for misuse in [
        &["bench", "compare", "compare.toml"][..],
        &["bench", "compare", "none.toml"],
        &["bench", "compare"],
        &["bench", "repeat", "report.json"],
        &["bench", "repeat", "none.json"],
        &["bench", "http://127.0.0.1:1/", "--cores", "x"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
}

#[test]
fn a_terminal_shows_the_load_while_it_goes_on() {
    let home = Home::new();
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    // `script` runs a command on a separate terminal.
    let on_terminal = |term: &str, more: &str| {
        let apus = env!("CARGO_BIN_EXE_apus");
        let command = format!(
            "stty cols 100 rows 30; {apus} bench http://127.0.0.1:{port}/ -c 2 -d 600ms --warm-up 0 {more}"
        );
        let output = program("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", term)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    const ENTER: &str = "\x1b[?1049h";
    const LEAVE: &str = "\x1b[?1049l";
    let shown = on_terminal("xterm-256color", "");
    let (_, view) = shown.split_once(ENTER).unwrap_or_else(|| panic!("{shown}"));
    let (view, after) = view.split_once(LEAVE).unwrap_or_else(|| panic!("{shown}"));
    // Spaces are movements of the cursor.
    for part in ["GET", "responses", "second,", "latency", "p99", "\u{2588}"] {
        assert!(view.contains(part), "{part} is missing: {view}");
    }
    // The report is on the screen that was there before.
    assert!(after.contains("responses    "), "{after}");
    for shown in [on_terminal("dumb", ""), on_terminal("xterm", "--no-view")] {
        assert!(!shown.contains(ENTER) && shown.contains("p99 "), "{shown}");
    }
    drop(server);
}

#[test]
fn bench_sends_messages_over_websocket_and_calls_of_grpc() {
    let home = Home::new();
    let origin = Origin::websocket();
    let front = Configuration::of([origin.address()]).tls().serve();
    let direct = format!("ws://{}/chat", origin.address());
    let through = format!("ws://{}/chat", front.apus.address());
    let encrypted = format!("wss://{}/chat", front.tls_authority());
    for arguments in [
        &["bench", &direct][..],
        &["bench", &through],
        &["bench", &through, "--http2", "-m", "4"],
        &["bench", &encrypted, "--insecure"],
        &["bench", &encrypted, "--insecure", "--http2"],
    ] {
        let load = ["--body", "hello", "-c", "2", "-n", "100"];
        let (text, _) = home.expect(&[arguments, &load].concat(), 0);
        assert!(
            text.contains("100, ") && text.contains("WebSocket"),
            "{text}"
        );
        let is_over_http2 = arguments.contains(&"--http2");
        assert_eq!(text.contains("over HTTP/2"), is_over_http2, "{text}");
    }

    let origin = Origin::grpc();
    let front = Configuration::of([origin.address()])
        .group("protocol = \"h2\"")
        .serve();
    home.write("empty", "");
    for address in [origin.address(), front.apus.address()] {
        let call = |method: &str| format!("http://{address}/grpc.testing.TestService/{method}");
        let load = [
            "--grpc",
            "--body-file",
            "empty",
            "-c",
            "2",
            "-m",
            "5",
            "-n",
            "100",
        ];
        let good = call("EmptyCall");
        let (text, _) = home.expect(&[&["bench", &good][..], &load].concat(), 0);
        assert!(text.contains("100, ") && text.contains("gRPC"), "{text}");
        let missing = call("UnimplementedCall");
        let (text, _) = home.expect(&[&["bench", &missing][..], &load].concat(), 1);
        assert!(text.contains("the status of gRPC is not OK"), "{text}");
    }
    let misuse = ["bench", &encrypted, "--http3"];
    let (_, errors) = home.expect(&misuse, 2);
    assert!(errors.contains("HTTP/1.1 or HTTP/2"), "{errors}");
}

#[test]
fn bench_loads_nginx_over_each_protocol_that_it_has() {
    let home = Home::new();
    let origin = Origin::nginx();
    let url = format!("http://{}/small.txt", origin.address());
    let (json, _) = home.expect(&["bench", &url, "-c", "4", "-n", "200", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&report["responses"], &report["server"]["name"]),
        (&200.into(), &"nginx".into())
    );
    for more in [
        &["--close"][..],
        &["--requests-per-connection", "5"],
        &["--pipeline", "4"],
    ] {
        home.expect(
            &[&["bench", &url, "-c", "2", "-n", "100"][..], more].concat(),
            0,
        );
    }
}

#[test]
fn bench_reads_the_status_endpoint_of_a_server() {
    let home = Home::new();
    home.write(
        "site/status.txt",
        "process_cpu_seconds_total 5\nprocess_resident_memory_bytes 7000000\nprocess_open_fds 3\n",
    );
    let port = free_port();
    let server = home.serve(&["site", "--listen", &format!("127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/");
    let status = format!("{url}status.txt");
    let (text, _) = home.expect(&["bench", &url, "-n", "50", "--status-url", &status], 0);
    let expected = format!("server       {status}: 0.00 us of CPU for each response, 0.00 cores,");
    assert!(
        text.contains(&expected) && text.contains("7.0 MB, 3 descriptors"),
        "{text}"
    );
    let (_, errors) = home.expect(&["bench", &url, "-n", "50", "--status-url", &url], 1);
    assert!(
        errors.contains("cannot be used: it lacks process_cpu"),
        "{errors}"
    );
    drop(server);
}

#[test]
fn bench_compares_apus_with_nginx_in_several_cases() {
    let home = Home::new();
    let apus = env!("CARGO_BIN_EXE_apus");
    let text = format!(
        r#"
title = "Apus and nginx"
note = "Two cases."
[values]
size = "1000"
[files]
"nginx.conf" = """
daemon off; user root; pid ${{work}}/nginx.pid; error_log stderr; worker_processes 1;
events {{}}
http {{
    access_log off; client_body_temp_path ${{work}}/t; proxy_temp_path ${{work}}/t; fastcgi_temp_path ${{work}}/t;
    uwsgi_temp_path ${{work}}/t; scgi_temp_path ${{work}}/t;
    server {{ listen 127.0.0.1:${{port.nginx}}; root ${{work}}/files; }}
}}
"""
[rounds]
least = 1
most = 2
[load]
connections = 2
duration = "1s"
warm_up = "100ms"
[[server]]
name = "nginx"
prepare = ["sh -c 'mkdir -p ${{work}}/files && head -c ${{size}} /dev/zero > ${{work}}/files/a.txt && cp ${{work}}/files/a.txt ${{work}}/files/b.txt'"]
command = ["/usr/sbin/nginx", "-c", "${{work}}/nginx.conf", "-e", "stderr"]
url = "http://127.0.0.1:${{port.nginx}}/"
[[server]]
name = "apus"
command = [{apus:?}, "serve", "${{work}}/files", "--listen", "127.0.0.1:${{port.apus}}"]
url = "http://127.0.0.1:${{port.apus}}/"
cores = "first"
[[case]]
name = "a"
load = {{ path = "/a.txt", length = 500 }}
published = [{{ server = "apus", rate = 1 }}]
[[case]]
name = "b"
load = {{ path = "/b.txt" }}
goal = [{{ figure = "failed", server = "apus", most = 0 }}]
"#
    );
    home.write("compare.toml", text);
    let quick = ["--rounds", "1", "--duration", "300ms", "--set", "size=500"];
    let arguments = [
        "bench",
        "compare",
        "compare.toml",
        "--json",
        "--html",
        "report.html",
    ];
    let (json, _) = home.expect(&[&arguments[..], &quick].concat(), 0);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let reports = report["files"][0]["reports"].as_array().unwrap();
    assert_eq!(reports.len(), 2, "{json}");
    assert_eq!(reports[0]["servers"][0]["median"]["failed"], 0, "{json}");
    assert_eq!(reports[1]["goals"][0]["is_reached"], true, "{json}");
    let page = home.read("report.html");
    assert!(
        page.contains("apus, published") && page.contains("One round of 0.3 s"),
        "{page}"
    );
    home.write("report.json", &json);
    let (text, _) = home.expect(&["bench", "repeat", "report.json"], 0);
    assert!(text.contains("reached: apus: failed"), "{text}");

    let one = ["bench", "compare", "compare.toml", "--case", "b"];
    let (text, _) = home.expect(&[&one[..], &quick[..4]].concat(), 0);
    assert!(text.starts_with("b\n1 rounds in "), "{text}");
    // A file of which nothing can be measured is in the report, and the others go on.
    let broken =
        home.read("compare.toml")
            .replacen("[values]", "prepare = [\"false\"]\n[values]", 1);
    home.write("broken.toml", broken);
    let both = [
        "bench",
        "compare",
        "broken.toml",
        "compare.toml",
        "--html",
        "both.html",
    ];
    let (text, errors) = home.expect(&[&both[..], &one[3..], &quick[..4]].concat(), 1);
    assert!(text.contains("b\n1 rounds in "), "{text}");
    assert!(
        errors.contains("all cases: `sh -c exec false` fails"),
        "{errors}"
    );
    assert!(home.read("both.html").contains("Nothing was measured"));
    for misuse in [
        &["bench", "compare", "compare.toml", "--case", "none"][..],
        &["bench", "compare", "compare.toml", "--set", "none=1"],
        &["bench", "compare", "compare.toml", "--set", "size"],
        &["bench", "compare", "compare.toml", "--rounds", "0"],
    ] {
        let (_, errors) = home.expect(misuse, 2);
        assert!(!errors.is_empty(), "{misuse:?}");
    }
}
