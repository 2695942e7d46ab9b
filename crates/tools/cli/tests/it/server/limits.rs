//! Limits on rates and on requests at once, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::clients::certificate;
use crate::harness::{self, Apus, Home, Reply, free_port, wait_until};

/// A server with two workers and these lines of a site.
fn serve(home: &Home, lines: &str) -> Apus {
    write(home, free_port(), lines);
    home.serve(&["apus.toml"])
}

fn write(home: &Home, port: u16, lines: &str) {
    let text = format!(
        "[global]\nworker_threads = 2\ncontrol_socket = \"control.sock\"\n\
         [[sites]]\nname = \"site\"\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n{lines}"
    );
    home.write("apus.toml", text);
}

/// The status of a request over a connection that stays open.
fn status(stream: &mut TcpStream) -> u16 {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = text.split("content-length: ").nth(1).unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

fn limits(home: &Home) -> Vec<Value> {
    let (status, _) = home.expect(&["status", "--json", "--socket", "control.sock"], 0);
    let status: Value = serde_json::from_str(&status).unwrap();
    status["limits"].as_array().unwrap().clone()
}

#[test]
fn of_fifty_clients_over_two_workers_as_many_requests_pass_as_the_limit_says() {
    const BURST: u32 = 300;
    let home = Home::new();
    let apus = serve(
        &home,
        "[[sites.limits]]\nname = \"all\"\nkey = \"all\"\nrate = \"25/s\"\nburst = 300\n",
    );
    let (allowed, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut streams: Vec<_> = (0..50).map(|_| apus.connect()).collect();
    let mut last = apus.connect();
    let began = Instant::now();
    // The first request begins the time of the limit.
    assert_eq!(status(&mut last), 200);
    let first_ended = Instant::now();
    // What comes due while the burst is full is lost. A third of it is used up before the clients begin: four seconds for a busy machine to
    // start them, which also serves more than 25 requests in a second. At 100 in a second, it once did not.
    for _ in 1..BURST / 3 {
        assert_eq!(status(&mut last), 200);
    }
    allowed.fetch_add(BURST / 3, Ordering::Relaxed);
    thread::scope(|scope| {
        for stream in &mut streams {
            let (allowed, is_over) = (&allowed, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match status(stream) {
                        200 => allowed.fetch_add(1, Ordering::Relaxed),
                        other => {
                            assert_eq!(other, 429);
                            0
                        }
                    };
                }
            });
        }
        wait_until("four seconds have passed", || {
            began.elapsed() >= Duration::from_secs(4)
        });
        is_over.store(true, Ordering::Relaxed);
    });
    // A request that is refused says that all others were taken, up to the moment of its decision.
    let (sent, received) = loop {
        let sent = Instant::now();
        match status(&mut last) {
            200 => allowed.fetch_add(1, Ordering::Relaxed),
            _ => break (sent, Instant::now()),
        };
    };
    let allowed = f64::from(allowed.into_inner());
    let due = |time: Duration| f64::from(BURST) + 25.0 * time.as_secs_f64();
    let least = due(sent - first_ended) - 2.0;
    let most = due(received - began) + 2.0;
    assert!(
        (least..=most).contains(&allowed),
        "{least} <= {allowed} <= {most}"
    );
    let counts = &limits(&home)[0];
    assert_eq!(counts["allowed"].as_f64(), Some(allowed), "{counts}");
    assert!(counts["refused"].as_u64().unwrap() > 0);
    apus.wait_for_log("a limit refused requests");
}

#[test]
fn a_reload_keeps_what_limits_have_counted() {
    let home = Home::new();
    let limit = |name: &str, rate: &str| {
        format!("[[sites.limits]]\nname = \"{name}\"\nrate = \"{rate}\"\n")
    };
    let apus = serve(&home, &limit("pages", "3/h"));
    let statuses =
        |count: usize| -> Vec<u16> { (0..count).map(|_| apus.get("/").status).collect() };
    let reload = |lines: &str| {
        write(&home, apus.address().port(), lines);
        home.expect(&["reload", "--socket", "control.sock"], 0);
    };
    assert_eq!(statuses(2), [200, 200]);
    for _ in 0..10 {
        reload(&limit("pages", "3/h"));
    }
    assert_eq!(statuses(2), [200, 429]);
    let counts = &limits(&home)[0];
    assert_eq!(
        (&counts["allowed"], &counts["refused"]),
        (&3.into(), &1.into())
    );
    // Under another rate, half of the hour is used: three of six requests.
    reload(&limit("pages", "6/h"));
    assert_eq!(statuses(1), [429]);
    reload(&limit("pages", "1000/s"));
    wait_until("the client is not refused for an hour", || {
        apus.get("/").status == 200
    });
    reload(&limit("others", "1/h"));
    assert_eq!(statuses(2), [200, 429]);
}

#[test]
fn the_limit_is_at_the_same_request_over_each_protocol() {
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let port = free_port();
    let mut lines = format!(
        "listen_tls = \"127.0.0.1:{port}\"\ntls = {{ cert = \"site.pem\", key = \"site.key\" }}\n"
    );
    for path in ["h1", "h2", "h3"] {
        home.write(&format!("site/{path}"), path);
        lines += &format!(
            "[[sites.locations]]\npath = \"/{path}\"\n[[sites.locations.limits]]\nname = \"{path}\"\nrate = \"3/h\"\n"
        );
    }
    let _apus = serve(&home, &lines);
    for (protocol, path) in [(&[][..], "h1"), (&["--http2"], "h2"), (&["--http3"], "h3")] {
        let url = format!("https://localhost:{port}/{path}");
        for (requests, allowed, refused) in [("2", 2, 0), ("1", 3, 0), ("1", 3, 1), ("3", 3, 4)] {
            let arguments = [
                &[
                    "bench",
                    "-n",
                    requests,
                    "-c",
                    "1",
                    "-t",
                    "1",
                    "-k",
                    "--no-probe",
                    "--allow-errors",
                ],
                protocol,
                &[&url],
            ]
            .concat();
            let output = home.run(&arguments);
            let limits = limits(&home);
            let counts = limits.iter().find(|limit| limit["name"] == path).unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                (counts["allowed"].as_u64(), counts["refused"].as_u64()),
                (Some(allowed), Some(refused)),
                "{path} {counts} {text}"
            );
        }
    }
}

#[test]
fn locations_have_the_limits_of_their_site_and_explain_names_each() {
    let home = Home::new();
    let apus = serve(
        &home,
        "[[sites.limits]]\nname = \"pages\"\nrate = \"2/h\"\n\
         [[sites.limits]]\nname = \"at-once\"\nkey = \"host\"\nconcurrent = 5\nqueue = 2\n\
         [[sites.locations]]\npath = \"/api/\"\nreturn = { status = 200, text = \"api\" }\n\
         [[sites.locations.limits]]\nname = \"api\"\nkey = \"header.x-api-key\"\nrate = \"1/h\"\nstatus = 420\n\
         tiers = { gold = \"1000/s\" }\n\
         [[sites.locations]]\npath = \"/free/\"\nreturn = { status = 200, text = \"free\" }\n\
         [[sites.locations.limits]]\nname = \"pages\"\nenabled = false\n\
         [[sites.locations]]\npath = \"/tried/\"\nreturn = { status = 200, text = \"tried\" }\n\
         [[sites.locations.limits]]\nname = \"pages\"\nrate = \"1/h\"\ndry_run = true\n",
    );
    let url = format!("http://{}/api/", apus.address());
    let (steps, _) = home.expect(&["explain", "GET", &url, "--config", "apus.toml"], 0);
    for step in [
        "1 of 2 requests are left",
        "limit pages by client",
        "1 of 5 requests at once",
        "limit at-once by host",
        "0 of 1 requests are left",
        "limit api by header.x-api-key",
    ] {
        assert!(steps.contains(step), "{step}\n{steps}");
    }
    let get = |path: &str, line: &str| {
        let mut stream = apus.connect();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{line}Accept: application/json\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Reply::read(stream)
    };
    assert_eq!(get("/api/", "").status, 200);
    let refused = get("/api/", "");
    assert_eq!(refused.status, 420);
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"][0], "api");
    // The site's limit holds in the location, too.
    let refused = get("/api/", "X-Api-Key: gold\r\n");
    assert_eq!(refused.status, 429);
    for policy in ["\"pages\";q=2;w=3600", "retry-after: "] {
        assert!(refused.head.contains(policy), "{}", refused.head);
    }
    let policies = |reply: &Reply| reply.head.matches("ratelimit-policy:").count();
    for _ in 0..4 {
        let free = get("/free/", "");
        assert_eq!((free.status, policies(&free)), (200, 1));
        let tried = get("/tried/", "");
        assert_eq!((tried.status, policies(&tried)), (200, 1));
    }
    let limits = limits(&home);
    let counts = limits.iter().find(|limit| limit["location"] == "/tried/");
    let counts = counts.unwrap();
    assert_eq!(
        (&counts["allowed"], &counts["would_refuse"]),
        (&1.into(), &3.into())
    );
    let (shown, _) = home.expect(&["status", "--socket", "control.sock"], 0);
    let line = "limit site /tried/ pages by client: 1 allowed, 0 would delay, 3 would refuse";
    assert!(shown.contains(line), "{shown}");
    let (metrics, _) = home.expect(&["status", "--metrics", "--socket", "control.sock"], 0);
    let sample = "apus_limit_decisions_total{site=\"site\",location=\"/tried/\",limit=\"pages\",decision=\"would_refuse\"} 3";
    assert!(metrics.contains(sample), "{metrics}");
}

#[test]
fn requests_at_once_wait_for_a_place_and_are_refused_where_the_queue_is_full() {
    let home = Home::new();
    // A response that is not taken counts as long as its connection is open.
    home.write("site/large", vec![b'x'; 32 << 20]);
    let apus = serve(
        &home,
        "[[sites.limits]]\nname = \"downloads\"\nconcurrent = 1\nqueue = 1\nqueue_timeout = 600\n",
    );
    let begin = |path: &str| {
        let mut stream = apus.connect();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let mut running = begin("/large");
    running.read_exact(&mut [0; 1000]).unwrap();
    // One of two waits, whichever comes first, and the other one is refused.
    let (replies, received) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let (stream, replies) = (begin("/"), replies.clone());
        thread::spawn(move || replies.send(Reply::read(stream).status));
    }
    assert_eq!(received.recv().unwrap(), 503);
    drop(running);
    assert_eq!(received.recv().unwrap(), 200);
    wait_until("all are counted", || {
        let counts = &limits(&home)[0];
        (&counts["allowed"], &counts["delayed"], &counts["refused"])
            == (&2.into(), &1.into(), &1.into())
    });
}

/// Receives a request whose body is `end` at its end, and responds.
fn receive_upload(mut from: TcpStream) {
    let mut received = Vec::new();
    let mut part = [0; 65_536];
    while !received.ends_with(b"end") {
        let read = from.read(&mut part).unwrap();
        assert!(read > 0);
        received.extend_from_slice(part.get(..read).unwrap());
    }
    from.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .unwrap();
}

#[test]
fn a_response_has_its_bandwidth_over_each_protocol_and_a_request_its_own() {
    const RATE: u64 = 400_000;
    let home = Home::new();
    certificate(&home, "site", "localhost");
    let port = free_port();
    let limits = format!("key = \"connection\", bandwidth = \"{RATE}b/s\"");
    let lines = format!(
        "listen_tls = \"127.0.0.1:{port}\"\ntls = {{ cert = \"site.pem\", key = \"site.key\" }}\n\
         limits = [{{ name = \"sent\", {limits}, after = 100000 }}, {{ name = \"received\", {limits}, direction = \"request\" }}]\n\
         request_timeout = 2\n\
         [[sites.locations]]\npath = \"/cgi/\"\nupstream = \"http://127.0.0.1:{{UPSTREAM}}\"\n\
         [[sites.locations.limits]]\nname = \"sent\"\nenabled = false\n"
    );
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = origin.local_addr().unwrap().port().to_string();
    home.write("site/large", vec![b'x'; 300_000]);
    home.write("upload", [&[b'x'; 300_000][..], b"end"].concat());
    let apus = serve(&home, &lines.replace("{UPSTREAM}", &upstream));
    let least = Duration::from_millis(1000 * 200_000 / RATE - 100);
    let bench = |url: &str, protocol: &[&str]| {
        let arguments = ["bench", "-n", "1", "-c", "1", "-t", "1", "-k", "--no-probe"];
        let began = Instant::now();
        home.expect(&[&arguments, protocol, &[url]].concat(), 0);
        let took = began.elapsed();
        assert!(took >= least, "{url} {protocol:?}: {took:?}");
    };
    let (clear, tls) = (
        format!("http://{}/large", apus.address()),
        format!("https://localhost:{port}/large"),
    );
    let body = home.path("upload").display().to_string();
    let cgi = format!("https://localhost:{port}/cgi/");
    thread::scope(|scope| {
        let protocols: [(&String, &[&str]); 4] = [
            (&clear, &[]),
            (&tls, &[]),
            (&tls, &["--http2"]),
            (&tls, &["--http3"]),
        ];
        for (url, protocol) in protocols {
            scope.spawn(|| bench(url, protocol));
        }
        scope.spawn(|| {
            thread::scope(|uploads| {
                for _ in 0..3 {
                    let (to, _) = origin.accept().unwrap();
                    uploads.spawn(|| receive_upload(to));
                }
            });
        });
        for protocol in ["--http2", "--http3"] {
            let (bench, cgi, body) = (&bench, &cgi, &body);
            scope.spawn(move || bench(cgi, &[protocol, "--body-file", body]));
        }
        // An upload takes longer than the time-out of requests, in which the waiting of the client does not count.
        let mut client = apus.connect();
        let began = Instant::now();
        let mut request = b"POST /cgi/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000003\r\nConnection: close\r\n\r\n".to_vec();
        request.resize(request.len() + 1_000_000, b'x');
        request.extend_from_slice(b"end");
        client.write_all(&request).unwrap();
        assert_eq!(Reply::read(client).status, 200);
        assert!(began.elapsed() >= Duration::from_millis(2300));
    });
}

#[test]
fn failed_log_ins_and_bytes_are_counted_on_responses_and_the_next_request_is_refused() {
    let home = Home::new();
    home.write("site/kilobyte", vec![b'x'; 1000]);
    let apus = serve(
        &home,
        "[[sites.locations]]\npath = \"/log-in/wrong\"\nreturn = { status = 401 }\n\
         [[sites.locations.limits]]\nname = \"failures\"\nrate = \"2/h\"\ncount = 'status in [401, 403] and path starts_with \"/log-in/\"'\n\
         [[sites.locations]]\npath = \"/log-in/right\"\nreturn = { status = 200, text = \"ok\" }\n\
         [[sites.locations.limits]]\nname = \"failures\"\nrate = \"1/h\"\ncount = \"status in [401, 403]\"\n\
         [[sites.locations]]\npath = \"/kilobyte\"\n\
         [[sites.locations.limits]]\nname = \"bytes\"\nrate = \"2500b/h\"\n",
    );
    let statuses = |path: &str| [(); 5].map(|()| apus.get(path).status);
    assert_eq!(statuses("/log-in/wrong"), [401, 401, 429, 429, 429]);
    assert_eq!(statuses("/log-in/right"), [200; 5]);
    // The bytes of a response count when it was sent, which a client may see a moment before.
    let mut sent = 0;
    wait_until("the bytes are used up", || {
        let reply = apus.get("/kilobyte");
        sent += u32::from(reply.status == 200);
        if reply.status == 429 {
            let policy = "\"bytes\";q=2500;qu=\"content-bytes\";w=3600";
            assert!(reply.head.contains(policy), "{}", reply.head);
        }
        reply.status == 429
    });
    assert!(sent >= 3, "{sent}");
    assert_eq!(apus.get("/kilobyte").status, 429);
}

#[test]
fn a_limit_of_the_whole_server_counts_the_sites_together_and_a_site_can_replace_it_or_turn_it_off()
{
    let home = Home::new();
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let site = |name: &str, port: u16, lines: &str| {
        format!(
            "[[sites]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n{lines}"
        )
    };
    let text = format!(
        "[global]\nworker_threads = 2\ncontrol_socket = \"control.sock\"\n\
         limits = [{{ name = \"pages\", rate = \"3/h\" }}, {{ name = \"some\", rate = \"1/h\", by_rules = true }}]\n\
         rules = [{{ when = \"path == '/counted'\", limit = \"some\" }}]\n{}{}{}{}",
        site("one", ports[0], ""),
        site(
            "two",
            ports[1],
            "locations = [{ path = \"= /free\", limits = [{ name = \"pages\", enabled = false }] }]\n"
        ),
        site(
            "other",
            ports[2],
            "limits = [{ name = \"pages\", rate = \"1/h\" }]\n"
        ),
        site(
            "free",
            ports[3],
            "limits = [{ name = \"pages\", enabled = false }]\n"
        ),
    );
    home.write("apus.toml", text.replace('\'', "\\\""));
    let _apus = home.serve(&["apus.toml"]);
    let get = |site: usize, path: &str| {
        let address = SocketAddr::from(([127, 0, 0, 1], ports[site]));
        harness::get(address, path).status
    };
    assert_eq!([get(0, "/"), get(1, "/"), get(0, "/")], [200, 200, 200]);
    assert_eq!([get(0, "/"), get(1, "/")], [429, 429]);
    // Others are not concerned.
    assert_eq!(get(1, "/free"), 404);
    assert_eq!([get(2, "/"), get(2, "/")], [200, 429]);
    assert_eq!([get(3, "/"); 5], [200; 5]);
    // A rule of the whole server names a limit of the whole server.
    assert_eq!([get(3, "/counted"), get(3, "/counted")], [404, 429]);
    let counts = limits(&home);
    let of_all: Vec<_> = counts
        .iter()
        .filter(|limit| limit["site"].is_null())
        .map(|limit| (limit["name"].as_str(), limit["refused"].as_u64()))
        .collect();
    assert_eq!(of_all, [(Some("pages"), Some(2)), (Some("some"), Some(1))]);
    let (status, _) = home.expect(&["status", "--socket", "control.sock"], 0);
    assert!(
        status.contains("limit of all sites pages by client: 3 allowed"),
        "{status}"
    );
}

/// A field of a response; its name in small letters.
fn field<'a>(reply: &'a Reply, name: &str) -> &'a str {
    let mut lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(field, _)| *field == name).unwrap().1
}

/// What is left of the limit `plan` for the client, and the status.
fn left(apus: &Apus) -> (u16, String) {
    let reply = apus.get("/");
    let left = field(&reply, "ratelimit").split("r=").nth(1).unwrap();
    (reply.status, left.split(';').next().unwrap().to_owned())
}

/// What the state folder says that quotas have used, one number for each key.
fn stored_usage(home: &Home) -> Vec<u64> {
    let stored = std::fs::read_to_string(home.path("state/quotas")).unwrap_or_default();
    let keys = stored.lines().filter(|line| line.starts_with('['));
    keys.map(|line| {
        let key: Value = serde_json::from_str(line).unwrap();
        key[1].as_u64().unwrap() & ((1 << 44) - 1)
    })
    .collect()
}

#[test]
fn a_quota_outlasts_a_reload_a_kill_and_a_restart_and_is_reset_by_command() {
    let home = Home::new();
    home.make_folder("state");
    let port = free_port();
    let write = |quota: &str| {
        let text = format!(
            "[global]\nworker_threads = 2\nstate_folder = \"state\"\ntime_zone = \"UTC\"\n\
             [[sites]]\nname = \"site\"\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
             limits = [{{ name = \"plan\", quota = \"{quota}\" }}]\n"
        );
        home.write("apus.toml", text);
    };
    write("10/month");
    let mut apus = home.serve(&["apus.toml"]);
    for expected in ["9", "8", "7"] {
        assert_eq!(left(&apus), (200, expected.to_owned()));
    }
    home.expect(&["reload"], 0);
    assert_eq!(left(&apus), (200, "6".to_owned()));
    // Once it was stored, it outlasts a crash.
    wait_until("what was used is stored", || stored_usage(&home) == [4]);
    apus.signal(Signal::KILL);
    apus.wait();
    let mut apus = home.serve(&["apus.toml"]);
    apus.wait_for_log("quotas continue with what was used before the restart");
    assert_eq!(left(&apus), (200, "5".to_owned()));
    // At an orderly end it is stored in any case.
    home.expect(&["stop"], 0);
    apus.wait();
    assert_eq!(stored_usage(&home), [5]);
    let mut apus = home.serve(&["apus.toml"]);
    for _ in 0..5 {
        assert_eq!(left(&apus).0, 200);
    }
    let refused = apus.get("/");
    assert_eq!(refused.status, 429);
    let wait: u64 = field(&refused, "retry-after").parse().unwrap();
    assert!((1..=31 * 86_400).contains(&wait), "{wait}");
    // A larger quota counts what was used.
    write("12/month");
    home.expect(&["reload"], 0);
    assert_eq!(left(&apus), (200, "1".to_owned()));

    let (list, _) = home.expect(&["limit", "list"], 0);
    let head = "limit site plan by client: 12 requests in this month: used by 1 keys, used up by 0";
    assert!(list.starts_with(head), "{list}");
    assert!(list.contains("  11  127.0.0.1\n"), "{list}");
    let (status, _) = home.expect(&["status"], 0);
    assert!(status.contains("12 requests in this month"), "{status}");
    home.expect(&["limit", "list", "unknown"], 1);
    home.expect(&["limit", "reset", "plan", "192.0.2.1"], 1);
    let (out, _) = home.expect(&["limit", "reset", "plan", "127.0.0.1"], 0);
    assert_eq!(out, "plan: 1 keys have their whole quota again\n");
    assert_eq!(stored_usage(&home), [0]);
    assert_eq!(left(&apus), (200, "11".to_owned()));
    home.expect(&["limit", "reset", "plan", "--all"], 0);
    assert_eq!(left(&apus), (200, "11".to_owned()));

    // A damaged file is put aside, and all is whole.
    wait_until("what was used is stored", || stored_usage(&home) == [1]);
    apus.signal(Signal::KILL);
    apus.wait();
    let stored = home.read("state/quotas");
    home.write("state/quotas", &stored[..stored.len() - 3]);
    let apus = home.serve(&["apus.toml"]);
    apus.wait_for_log("quotas.damaged");
    assert_eq!(left(&apus), (200, "11".to_owned()));
}

#[test]
fn of_many_clients_over_two_workers_as_many_requests_pass_as_the_quota_says() {
    let home = Home::new();
    // The state cannot be stored below a file, as on a disk that is full.
    let port = free_port();
    let text = format!(
        "[global]\nworker_threads = 2\nstate_folder = \"site/index.html/state\"\n\
         [[sites]]\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
         limits = [{{ name = \"plan\", key = \"all\", quota = \"500/month\" }}]\n"
    );
    home.write("apus.toml", text);
    let apus = home.serve(&["apus.toml"]);
    let allowed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut stream = apus.connect();
                for _ in 0..50 {
                    let is_allowed = status(&mut stream) == 200;
                    allowed.fetch_add(is_allowed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(allowed.into_inner(), 500);
    apus.wait_for_log("cannot store what quotas have counted");
    assert_eq!(apus.get("/").status, 429);
    let (status, _) = home.expect(&["status"], 0);
    assert!(status.contains("not stored: "), "{status}");
}

#[test]
fn plans_in_a_file_are_read_again_and_a_mistake_keeps_the_old_ones() {
    let home = Home::new();
    home.write(
        "plans.txt",
        "# plans\nada-secret 3/h\ngrace-secret 100/h # more\n",
    );
    let apus = serve(
        &home,
        "[[sites.limits]]\nname = \"plan\"\nrate = \"1/h\"\nkey = \"header.x-api-key\"\n\
         tiers = { file = \"plans.txt\", linus = \"2/h\" }\n",
    );
    let policy = |key: &str| {
        let mut stream = apus.connect();
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let reply = Reply::read(stream);
        let policy = field(&reply, "ratelimit-policy");
        let quota = policy.split("q=").nth(1).unwrap();
        quota.split(';').next().unwrap().to_owned()
    };
    assert_eq!(
        ["ada-secret", "linus", "unknown"].map(policy),
        ["3", "2", "1"]
    );
    assert_eq!(policy("grace-secret"), "100");
    home.write("plans.txt", "ada-secret 5/h\ngrace-secret 7/fortnight\n");
    let line = apus.wait_for_log("line 2 does not end with requests");
    assert!(!line.contains("grace-secret"), "{line}");
    let (_, error) = home.expect(&["check", "apus.toml"], 1);
    assert!(
        error.contains("plans.txt: line 2 does not end with"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    assert_eq!(policy("ada-secret"), "3");
    home.write("plans.txt", "ada-secret 5/h\n");
    // One worker may have the new plans before the other.
    wait_until("the file is read again", || {
        policy("ada-secret") == "5" && policy("grace-secret") == "1"
    });
    assert!(!apus.log().contains("secret"), "{}", apus.log());
}
