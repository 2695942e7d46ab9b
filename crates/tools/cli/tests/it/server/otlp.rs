//! Metrics and traces that are pushed to a collector of OpenTelemetry.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Apus, Home, free_port, get, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;

/// How long a collector waits for what is due.
const PATIENCE: Duration = Duration::from_secs(60);

/// A collector that accepts everything, and tells heads and bodies.
fn collector() -> (SocketAddr, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(received) = receive(&mut stream.unwrap()) else {
                continue;
            };
            if sender.send(received).is_err() {
                return;
            }
        }
    });
    (address, received)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<(String, Value)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
    stream.read_exact(&mut body)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")?;
    Ok((head, serde_json::from_slice(&body).unwrap()))
}

/// The points of a metric in a message.
fn points<'a>(message: &'a Value, name: &str) -> Vec<&'a Value> {
    let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let metric = metrics
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == name);
    let data = metric.into_iter().flat_map(|metric| {
        ["sum", "gauge", "exponentialHistogram"].map(|kind| &metric[kind]["dataPoints"])
    });
    data.filter_map(Value::as_array).flatten().collect()
}

#[test]
fn metrics_are_pushed_to_a_collector_over_reloads_and_at_the_end() {
    let (first, received) = collector();
    let (second, later) = collector();
    let home = Home::new();
    let port = free_port();
    let write = |collector: SocketAddr, interval: u32| {
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"control.sock\"\n\
                 otlp = {{ endpoint = \"http://{collector}/base/\", protocol = \"http/json\", interval = {interval}, headers = {{ Authorization = \"Bearer abc\" }}, service_name = \"edge\" }}\n\
                 [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n"
            ),
        );
    };
    write(first, 1);
    let mut apus = home.serve(&["apus.toml"]);
    for _ in 0..3 {
        assert_eq!(get(apus.address(), "/").status, 200);
    }
    let requests = |message: &Value| {
        let points = points(message, "apus_http_requests");
        let values = points
            .iter()
            .map(|point| point["asInt"].as_str().unwrap().parse::<u64>().unwrap());
        values.sum::<u64>()
    };
    let (head, message) = wait_until("the requests are pushed", || {
        received
            .try_iter()
            .find(|(_, message)| requests(message) == 3)
    });
    assert!(
        head.starts_with("post /base/v1/metrics ") && head.contains("authorization: bearer abc"),
        "{head}"
    );
    let resource = message["resourceMetrics"][0]["resource"].to_string();
    assert!(
        resource.contains("service.name") && resource.contains("edge"),
        "{resource}"
    );
    let times = points(&message, "apus_http_request_duration");
    assert_eq!(times[0]["count"], "3", "{times:?}");
    // Another collector gets the rest, at the end too: nothing is due for an hour.
    write(second, 3600);
    home.expect(&["reload"], 0);
    assert_eq!(get(apus.address(), "/").status, 200);
    let (metrics, _) = home.expect(&["status", "--metrics"], 0);
    assert!(
        metrics.contains("apus_otlp_messages_total{result=\"lost\"} 0"),
        "{metrics}"
    );
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    let (_, last) = later.recv_timeout(PATIENCE).unwrap();
    assert_eq!(requests(&last), 4);
}

/// A server whose requests are traced, with these lines of `[global]`, a site of an origin, and one whose origin is dead.
fn traced(traces: &str, global: &str) -> (Home, Apus, ScriptedOrigin, Receiver<(String, Value)>) {
    let (collector, received) = collector();
    let origin = ScriptedOrigin::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let home = Home::new();
    let (port, dead) = (free_port(), free_port());
    home.write(
        "apus.toml",
        format!(
            "[global]\ncontrol_socket = \"control.sock\"\n{global}\n\
             otlp = {{ endpoint = \"http://{collector}\", protocol = \"http/json\", metrics = false, traces = {traces} }}\n\
             [[sites]]\nname = \"shop\"\nlisten = \"127.0.0.1:{port}\"\nupstream = \"http://{}\"\n\
             [[sites.locations]]\npath = \"/dead/\"\nupstream = \"http://127.0.0.1:{dead}\"\n",
            origin.address()
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    (home, apus, origin, received)
}

/// The next spans that a collector received.
fn spans(received: &Receiver<(String, Value)>) -> Vec<Value> {
    let (head, message) = received.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("post /v1/traces "), "{head}");
    let spans = &message["resourceSpans"][0]["scopeSpans"][0]["spans"];
    spans.as_array().unwrap().clone()
}

fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|one| one["key"] == name);
    found.map_or(&Value::Null, |one| &one["value"])
}

fn send(apus: &Apus, target: &str, fields: &str) {
    let mut stream = apus.connect();
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The line of `traceparent` that an origin received.
fn sent_on(origin: &ScriptedOrigin) -> String {
    let received = origin.received().to_ascii_lowercase();
    let line = received
        .lines()
        .rfind(|line| line.starts_with("traceparent: "));
    line.unwrap().trim_start_matches("traceparent: ").to_owned()
}

#[test]
fn a_request_is_a_span_above_those_of_its_attempts_and_its_origin_gets_the_trace() {
    let (home, apus, origin, received) = traced("{ percent = 100 }", "");
    send(
        &apus,
        "/a?token=secret",
        &format!("traceparent: {PARENT}\r\ntracestate: a=1\r\n"),
    );
    let all = spans(&received);
    let [request, attempt] = all.as_slice() else {
        panic!("{all:?}");
    };
    let context = sent_on(&origin);
    let trace = request["traceId"].as_str().unwrap();
    let span = request["spanId"].as_str().unwrap();
    assert_eq!(context, format!("00-{trace}-{span}-01"));
    assert!(
        !context.contains("0af7651916cd43dd8448eb211c80319c"),
        "a client begins no trace here"
    );
    assert!(!origin.received().contains("tracestate"));
    assert_eq!(request["parentSpanId"], "");
    assert_eq!(request["name"], "GET /");
    assert_eq!(attribute(request, "apus.site")["stringValue"], "shop");
    assert_eq!(
        attribute(request, "http.response.status_code")["intValue"],
        "200"
    );
    assert!(!request.to_string().contains("secret"), "{request}");
    assert_eq!(attempt["traceId"], trace);
    assert_eq!(attempt["parentSpanId"], span);
    assert_eq!(
        attribute(attempt, "http.response.status_code")["intValue"],
        "200"
    );
    let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(request, "startTimeUnixNano") <= time(attempt, "startTimeUnixNano"));
    assert!(time(attempt, "endTimeUnixNano") <= time(request, "endTimeUnixNano") + 1_000_000);
    // One id finds the trace and the request.
    let (explained, _) = home.expect(&["explain", "--id", trace], 0);
    assert!(explained.contains("/a"), "{explained}");
}

#[test]
fn a_trusted_proxy_continues_its_trace_and_says_whether_it_is_sampled() {
    let (_home, apus, origin, received) =
        traced("{ percent = 100 }", "trusted_proxies = \"127.0.0.1\"");
    let unsampled = PARENT.replace("-01", "-00");
    send(
        &apus,
        "/no",
        &format!("traceparent: {unsampled}\r\nX-Forwarded-For: 192.0.2.1\r\n"),
    );
    assert!(sent_on(&origin).ends_with("-00"));
    send(
        &apus,
        "/a",
        &format!("traceparent: {PARENT}\r\ntracestate: a=1\r\nX-Forwarded-For: 192.0.2.1\r\n"),
    );
    let all = spans(&received);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(all[0]["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(all[0]["traceState"], "a=1");
    assert_eq!(attribute(&all[0], "url.path")["stringValue"], "/a");
    let sent = sent_on(&origin);
    assert!(
        sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"),
        "{sent}"
    );
    assert!(
        origin
            .received()
            .to_ascii_lowercase()
            .contains("tracestate: a=1")
    );
}

#[test]
fn what_fails_is_traced_in_any_case() {
    let (home, mut apus, _origin, received) = traced("{ percent = 0, slow = 0 }", "");
    for _ in 0..5 {
        send(&apus, "/fine", "");
    }
    send(&apus, "/dead/x", "");
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    let all = spans(&received);
    assert_eq!(
        attribute(&all[0], "url.path")["stringValue"],
        "/dead/x",
        "{all:?}"
    );
    assert_eq!(all[0]["status"]["code"], 2);
    assert_eq!(attribute(&all[1], "error.type")["stringValue"], "connect");
    assert!(received.try_recv().is_err(), "the others are not traced");
}
