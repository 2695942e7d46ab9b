//! Metrics that are pushed to a collector of OpenTelemetry.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use crate::harness::{Home, free_port, get, wait_until};

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
    let (_, last) = later.recv().unwrap();
    assert_eq!(requests(&last), 4);
}
