use std::fs;
use std::time::Duration;

use apus_http::fields::CacheResult;
use apus_http::{
    Body, Completion, ConnectionInfo, Headers, Method, Peer, RequestParts, ResponseOutcome,
    StatusCode, Target, Version,
};

use crate::*;

fn request(target: &str, agent: &str) -> Request {
    request_in(Version::HTTP_11, target, agent)
}

fn request_in(version: Version, target: &str, agent: &str) -> Request {
    let mut headers = Headers::new();
    headers.try_append("user-agent", agent).unwrap();
    Request::new(RequestParts {
        target: Target::parse(&Method::GET, target).unwrap(),
        method: Method::GET,
        version,
        headers,
        body: Body::Empty,
        connection: Rc::new(ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id: 7,
            peer: Peer::Ip("192.0.2.1:5000".parse().unwrap()),
            local: Peer::Unix,
            tls: None,
        }),
        extensions: Default::default(),
    })
}

fn completion() -> Completion {
    Completion {
        status: StatusCode::NOT_FOUND,
        body_bytes: 12,
        bytes: 200,
        duration: Duration::from_micros(12_345),
        first_byte: None,
        outcome: ResponseOutcome::Complete,
        origin: None,
        cache: None,
        fields: None,
    }
}

/// What the log has for one request.
async fn one_line(format: LogFormat, completion: &Completion) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    let path = folder.path().join("log");
    in_worker(async {
        let log = logs
            .open(&AccessLogSettings::file(&path, format), "")
            .unwrap()
            .worker();
        log.begin(&request("/", "")).unwrap()(completion);
    })
    .await;
    writer.finish().await;
    fs::read_to_string(path).unwrap()
}

async fn in_worker<T>(work: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(work).await
}

#[tokio::test]
async fn writes_a_combined_line_and_a_json_object() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    let (combined, json) = (folder.path().join("combined"), folder.path().join("json"));
    in_worker(async {
        for (path, format) in [
            (&combined, LogFormat::combined()),
            (&json, LogFormat::json()),
        ] {
            let log = logs
                .open(&AccessLogSettings::file(path, format), "blog")
                .unwrap()
                .worker();
            log.begin(&request("/a?b", "x\"y")).unwrap()(&completion());
        }
    })
    .await;
    writer.finish().await;
    let text = fs::read_to_string(combined).unwrap();
    assert!(text.starts_with("192.0.2.1 - - ["), "{text}");
    assert!(
        text.ends_with(" +0000] \"GET /a?b HTTP/1.1\" 404 12 \"-\" \"x\\x22y\"\n"),
        "{text}"
    );
    let object: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(object["uri"], "/a?b");
    assert_eq!(object["site"], "blog");
    assert_eq!(object["request_id"].as_str().unwrap().len(), 32);
    assert_eq!(object["status"], 404);
    assert_eq!(object["request_time"], 0.012);
    assert_eq!(object["user_agent"], "x\"y");
    assert_eq!(object["complete"], true);
    assert!(object["referer"].is_null() && object["ssl_protocol"].is_null());
}

#[tokio::test]
async fn a_line_names_the_protocol_that_brought_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    let path = folder.path().join("log");
    in_worker(async {
        let format = LogFormat::template("$request, $server_protocol").unwrap();
        let log = logs
            .open(&AccessLogSettings::file(&path, format), "")
            .unwrap();
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            log.worker().begin(&request_in(version, "/a", "")).unwrap()(&completion());
        }
        writer.finish().await;
    })
    .await;
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "GET /a HTTP/1.0, HTTP/1.0\nGET /a HTTP/1.1, HTTP/1.1\nGET /a HTTP/2.0, HTTP/2.0\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_line_does_not_wait_for_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    let path = folder.path().join("log");
    in_worker(async {
        let log = logs
            .open(
                &AccessLogSettings::file(&path, LogFormat::template("$uri").unwrap()),
                "",
            )
            .unwrap();
        let worker = log.worker();
        worker.begin(&request("/a", "")).unwrap()(&completion());
        tokio::time::sleep(Duration::from_secs(1)).await;
        writer.finish().await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "/a\n");
        drop(worker);
    })
    .await;
}

#[tokio::test]
async fn lines_after_a_reopening_go_to_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    let (path, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
    in_worker(async {
        let log = logs
            .open(
                &AccessLogSettings::file(&path, LogFormat::template("$uri").unwrap()),
                "",
            )
            .unwrap();
        let line = |target| log.worker().begin(&request(target, "")).unwrap()(&completion());
        line("/1");
        fs::rename(&path, &rotated).unwrap();
        line("/2");
        writer.reopen().await;
        line("/3");
        writer.finish().await;
    })
    .await;
    assert_eq!(fs::read_to_string(rotated).unwrap(), "/1\n/2\n");
    assert_eq!(fs::read_to_string(path).unwrap(), "/3\n");
}

#[tokio::test]
async fn a_full_disk_loses_lines_counted_and_nothing_else() {
    let (logs, writer) = AccessLogs::new();
    let writer = writer.spawn();
    in_worker(async {
        let log = logs
            .open(
                &AccessLogSettings::file("/dev/full", LogFormat::combined()),
                "",
            )
            .unwrap();
        let worker = log.worker();
        worker.begin(&request("/", "")).unwrap()(&completion());
        worker.begin(&request("/", "")).unwrap()(&completion());
        drop(worker);
        writer.finish().await;
        assert_eq!(
            writer.counts(),
            [LogCounts {
                destination: "/dev/full".into(),
                written: 0,
                lost: 2
            }]
        );
    })
    .await;
}

#[tokio::test]
async fn lines_that_find_no_room_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // A writer that has not started takes nothing.
    let (logs, writer) = AccessLogs::new();
    let path = folder.path().join("log");
    let log = logs
        .open(
            &AccessLogSettings::file(&path, LogFormat::template("x").unwrap()),
            "",
        )
        .unwrap();
    in_worker(async {
        for _ in 0..600 {
            log.worker().begin(&request("/", "")).unwrap()(&completion());
        }
    })
    .await;
    let writer = writer.spawn();
    writer.finish().await;
    let counts = writer.counts();
    assert_eq!(counts[0].written + counts[0].lost, 600);
    assert_eq!(counts[0].lost, 88);
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 512);
}

#[tokio::test]
async fn logs_the_origin_and_the_cache_result() {
    let format = "$upstream_addr $upstream_status $upstream_response_time $upstream_cache_status";
    let origin = Some(apus_http::ResponseOrigin {
        address: "127.0.0.1:9000".into(),
        status: StatusCode::OK,
        duration: Duration::from_millis(1234),
    });
    let completion = Completion {
        origin,
        cache: Some(CacheResult::Revalidated),
        ..completion()
    };
    let line = one_line(LogFormat::template(format).unwrap(), &completion).await;
    assert_eq!(line, "127.0.0.1:9000 200 1.234 REVALIDATED\n");
    let line = one_line(LogFormat::template(format).unwrap(), &self::completion()).await;
    assert_eq!(line, "- - - -\n");
}
