//! `Metrics`: request counters and durations.

use apus_handler::Path;
use apus_http::{Request, StatusCode};
use apus_layers::{MetricFormat, Metrics};
use apus_testkit::{LocalClient, SocketClient, request_text, wait_until};

use crate::harness::{Routes, Server, head};

fn app(metrics: &Metrics) -> Routes {
    Routes::new()
        .layer(metrics.clone())
        .get("/metrics", metrics.handler())
        .get("/users/{id}", async |Path(id): Path<u32>| format!("{id}\n"))
        .post("/users/{id}", async |_: Request| StatusCode::CONFLICT)
        .get("/never", async || std::future::pending::<()>().await)
        .get("/panic", async || -> &'static str { panic!("on purpose") })
}

fn text(metrics: &Metrics) -> String {
    metrics.render(MetricFormat::Prometheus)
}

/// Waits for a line, since requests are counted when they end.
fn wait_for(metrics: &Metrics, line: &str) {
    wait_until(line, || text(metrics).lines().any(|found| found == line));
}

#[test]
fn requests_are_counted_by_route_and_not_by_path() {
    let metrics = Metrics::new();
    let server = Server::with_workers(2, app(&metrics));
    for id in 0..30 {
        let mut client = SocketClient::connect(server.address());
        assert_eq!(
            client
                .request(&request_text("GET", &format!("/users/{id}"), &[]))
                .status,
            200
        );
        assert_eq!(
            client
                .request(&request_text("GET", &format!("/no/{id}"), &[]))
                .status,
            404
        );
    }
    let mut client = SocketClient::connect(server.address());
    assert_eq!(
        client
            .request(&request_text("POST", "/users/1", &[]))
            .status,
        409
    );
    assert_eq!(
        client.request(&request_text("GET", "/users/x", &[])).status,
        404
    );
    assert_eq!(
        client
            .request(&request_text("BREW", "/users/1", &[]))
            .status,
        501
    );
    assert_eq!(
        client
            .request(&request_text("BREW-MORE", "/users/1", &[]))
            .status,
        501
    );
    for line in [
        "http_requests_total{method=\"GET\",route=\"/users/{id}\",status=\"2xx\"} 30",
        "http_requests_total{method=\"GET\",route=\"\",status=\"4xx\"} 30",
        "http_requests_total{method=\"POST\",route=\"/users/{id}\",status=\"4xx\"} 1",
        "http_requests_total{method=\"GET\",route=\"/users/{id}\",status=\"4xx\"} 1",
        "http_requests_total{method=\"OTHER\",route=\"/users/{id}\",status=\"5xx\"} 2",
        "http_response_bytes_total{method=\"GET\",route=\"/users/{id}\",status=\"2xx\"} 80",
        "http_request_duration_seconds_count{method=\"GET\",route=\"/users/{id}\",status=\"2xx\"} 30",
        "http_request_duration_seconds_bucket{method=\"GET\",route=\"/users/{id}\",status=\"2xx\",le=\"+Inf\"} 30",
        "http_requests_in_flight 0",
    ] {
        wait_for(&metrics, line);
    }
    let text = text(&metrics);
    assert_eq!(text.matches("\nhttp_requests_total{").count(), 5, "{text}");
}

#[test]
fn the_handler_returns_the_text_format() {
    let metrics = Metrics::new();
    let client = LocalClient::of(&app(&metrics));
    let reply = client.send(head("GET", "/metrics", &[]));
    let content_type = reply.field("content-type");
    assert_eq!(
        content_type,
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(
        reply.text().contains("\nhttp_requests_in_flight 1\n"),
        "the request for the metrics itself"
    );
    let reply = client.send(head("GET", "/metrics", &[]));
    let mut buckets = 0;
    for line in reply.text().lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let (_, name) = comment.split_once(' ').unwrap();
            assert!(
                name.starts_with("http_") || name.starts_with("process_"),
                "{line}"
            );
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let is_known = series.starts_with("http_") || series.starts_with("process_");
        assert!(value >= 0.0 && is_known, "{line}");
        if series.contains("_bucket{") {
            buckets += 1;
            assert!(value <= 1.0, "{line}");
        }
    }
    assert_eq!(buckets, 20);
    let openmetrics = ["accept: application/openmetrics-text;version=1.0.0"];
    let reply = client.send(head("GET", "/metrics", &openmetrics));
    assert!(
        reply
            .field("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(reply.text().ends_with("# EOF\n"));
}

#[test]
fn aborted_requests_are_counted() {
    let metrics = Metrics::new();
    let server = Server::start(app(&metrics));
    let mut client = SocketClient::connect(server.address());
    client.send(request_text("GET", "/never", &[]));
    wait_until("a request in flight", || {
        text(&metrics).contains("http_requests_in_flight 1\n")
    });
    drop(client);
    wait_for(
        &metrics,
        "http_requests_total{method=\"GET\",route=\"/never\",status=\"none\"} 1",
    );
    let mut client = SocketClient::connect(server.address());
    assert_eq!(
        client.request(&request_text("GET", "/panic", &[])).status,
        500
    );
    wait_for(
        &metrics,
        "http_requests_total{method=\"GET\",route=\"/panic\",status=\"5xx\"} 1",
    );
    wait_for(&metrics, "http_requests_in_flight 0");
}
