//! Groups with nodes of a real PHP-FPM.

mod application;
mod concurrency;
mod fpm;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use apus_client::{ClientRequest, FailureCause, Protocol, RequestPhase};
use apus_codec::fastcgi::Params;
use apus_http::{Body, BodyError, BodyStream, Frame, Method, StatusCode};
use apus_upstream::plan::{CheckKind, CheckPlan, GroupPlan, NodePlan, Strategy};
use apus_upstream::{
    RequestContext, UpstreamError, UpstreamErrorKind, UpstreamResponse, Upstreams, WorkerGroup,
    is_idempotent,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use self::fpm::{Fpm, Pool};
use crate::harness::{
    eventually, group, node, node_status, plain, read, refusing, request, run, status,
};

fn plan(node: NodePlan) -> GroupPlan {
    let mut plan = plain(vec![node]);
    plan.protocol = Protocol::FastCgi;
    plan
}

async fn send(
    group: &Rc<WorkerGroup>,
    request: ClientRequest,
) -> Result<UpstreamResponse, UpstreamError> {
    let context = RequestContext {
        idempotent: is_idempotent(&request.template.head.method),
        ..RequestContext::default()
    };
    group.send(request, context).await
}

/// Runs a script, asserts that the status is 200, and returns what it prints.
async fn run_script(fpm: &Fpm, group: &Rc<WorkerGroup>, method: Method, script: &str) -> String {
    let mut response = send(group, fpm.request(group, method, script))
        .await
        .unwrap();
    assert_eq!(response.response.status, StatusCode::OK);
    read(&mut response).await
}

/// A body of this many bytes, in frames of different sizes.
struct Letters {
    left: usize,
    frame: usize,
}

impl BodyStream for Letters {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        self.frame = (self.frame * 7 + 1) % 300_000 + 1;
        let len = self.left.min(self.frame);
        self.left -= len;
        let frame = Frame::Data(Bytes::from(vec![b'a'; len]));
        std::task::Poll::Ready((len > 0).then_some(Ok(frame)))
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.left as u64)
    }
}

const UPLOAD: usize = 50_000_000;

#[test]
fn serves_over_unix_and_tcp_and_keeps_connections() {
    for (name, tcp) in [("keep-unix", false), ("keep-tcp", true)] {
        let fpm = Fpm::start(
            name,
            &Pool {
                tcp,
                ..Pool::default()
            },
        );
        run(async {
            let (_upstreams, group) = group(plan(fpm.node()));
            let script = "header('X-Test: yes'); echo 'hello ', $_SERVER['REQUEST_METHOD'];";
            for _ in 0..10 {
                let request = fpm.request(&group, Method::GET, script);
                let mut upstream = send(&group, request).await.unwrap();
                let response = &upstream.response;
                assert_eq!(response.headers.get_str("x-test"), Some("yes"));
                assert!(matches!(response.body, Body::Bytes(_)), "{response:?}");
                assert_eq!(read(&mut upstream).await, "hello GET");
            }
        });
    }
}

#[test]
fn serves_many_requests_in_order_within_the_limit_of_the_node() {
    let fpm = Fpm::start("order", &Pool::default());
    run(async {
        let (mut node, counts) = fpm.counted();
        node.max_requests = 2;
        let (_upstreams, group) = group(plan(node));
        let fpm = Rc::new(fpm);
        let mut tasks = Vec::new();
        for number in 0..50 {
            let (fpm, group) = (Rc::clone(&fpm), Rc::clone(&group));
            tasks.push(spawn_local(async move {
                let script = "file_put_contents(__DIR__.'/order', getmypid().' '.$_SERVER['NUMBER'].\"\\n\", \
                              FILE_APPEND | LOCK_EX); usleep(2000); echo $_SERVER['NUMBER'];";
                let number = number.to_string();
                let more = [("NUMBER", number.as_str())];
                let request = fpm.request_with(&group, Method::GET, script, &more);
                let mut response = send(&group, request).await.unwrap();
                assert_eq!(read(&mut response).await, number);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(counts.get().1 <= 2, "{:?}", counts.get());
        // A process may be slow at times, but what it gets is in order.
        let order = fpm.lines("order");
        let mut last: HashMap<&str, usize> = HashMap::new();
        for line in &order {
            let (process, number) = line.split_once(' ').unwrap();
            let number = number.parse().unwrap();
            let before = last.insert(process, number);
            assert!(before.is_none_or(|before| before < number), "{order:?}");
        }
        assert_eq!(order.len(), 50);
        assert!(last.len() <= 2, "{order:?}");
    });
}

#[test]
fn serves_more_requests_than_there_are_processes_without_a_limit() {
    let fpm = Fpm::start("starving", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        let fpm = Rc::new(fpm);
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (fpm, group) = (Rc::clone(&fpm), Rc::clone(&group));
                spawn_local(async move {
                    run_script(&fpm, &group, Method::GET, "usleep(1000); echo 'x';").await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), "x");
        }
    });
}

#[test]
fn shares_an_idle_connection_between_workers() {
    let one_child = Pool {
        children: 1,
        ..Pool::default()
    };
    let fpm = Fpm::start("workers", &one_child);
    let upstreams = Upstreams::new();
    upstreams.apply(vec![plan(fpm.node())]);
    let request = |number: usize| {
        run(async {
            let group = upstreams.group("app").unwrap();
            let script = "echo getmypid();";
            assert!(
                !run_script(&fpm, &group, Method::GET, script)
                    .await
                    .is_empty()
            );
            number
        })
    };
    std::thread::scope(|scope| {
        let (done, order) = mpsc::channel();
        for number in 0..4 {
            let (done, request) = (done.clone(), &request);
            scope.spawn(move || done.send(request(number)).unwrap());
        }
        drop(done);
        assert_eq!(order.iter().count(), 4);
    });
}

#[test]
fn does_not_wait_for_a_process_that_works_after_its_response() {
    let fpm = Fpm::start("background", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        let script = "echo 'answer'; fastcgi_finish_request(); file_put_contents(__DIR__.'/began', \
                      'x'); while (!file_exists(__DIR__.'/end')) usleep(1000); \
                      file_put_contents(__DIR__.'/ended', 'x');";
        assert_eq!(
            run_script(&fpm, &group, Method::GET, script).await,
            "answer"
        );
        eventually("it works on", || fpm.file("began").exists()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        for _ in 0..5 {
            assert_eq!(
                run_script(&fpm, &group, Method::GET, "echo 'x';").await,
                "x"
            );
        }
        assert!(!fpm.file("ended").exists());
        std::fs::write(fpm.file("end"), "x").unwrap();
        eventually("it ends", || fpm.file("ended").exists()).await;
    });
}

#[test]
fn streams_an_upload() {
    let fpm = Fpm::start("upload", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        let script = "$in = fopen('php://input', 'r'); $all = 0; $other = 0; \
                      while (($part = fread($in, 65536)) != '') { $all += strlen($part); \
                      $other += strlen(str_replace('a', '', $part)); } echo \"$all $other\";";
        let length = UPLOAD.to_string();
        let more = [
            ("CONTENT_LENGTH", length.as_str()),
            ("CONTENT_TYPE", "application/octet-stream"),
        ];
        let mut request = fpm.request_with(&group, Method::POST, script, &more);
        request.body = Body::stream(Letters {
            left: UPLOAD,
            frame: 1,
        });
        let mut response = send(&group, request).await.unwrap();
        assert_eq!(read(&mut response).await, format!("{UPLOAD} 0"));
    });
}

#[test]
fn returns_a_response_to_an_upload_that_was_not_read() {
    let fpm = Fpm::start("unread", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        let script = "http_response_code(413); echo 'too much'; flush();";
        let length = UPLOAD.to_string();
        let more = [
            ("CONTENT_LENGTH", length.as_str()),
            ("CONTENT_TYPE", "application/octet-stream"),
        ];
        for _ in 0..2 {
            let mut request = fpm.request_with(&group, Method::POST, script, &more);
            request.body = vec![b'a'; UPLOAD].into();
            let mut response = send(&group, request).await.unwrap();
            assert_eq!(response.response.status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(read(&mut response).await, "too much");
        }
    });
}

#[test]
fn streams_a_download_with_and_without_its_length() {
    let fpm = Fpm::start("download", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        for length in ["", "header('Content-Length: 30000000');"] {
            let script = format!(
                "{length} for ($i = 0; $i < 300; $i++) echo str_repeat(chr(97 + $i % 26), 100000);"
            );
            let request = fpm.request(&group, Method::GET, &script);
            let mut response = send(&group, request).await.unwrap();
            let known = (!length.is_empty()).then_some(30_000_000);
            assert_eq!(response.response.body.len(), known);
            let body = read(&mut response).await.into_bytes();
            assert_eq!(body.len(), 30_000_000);
            for (number, part) in body.chunks(100_000).enumerate() {
                let letter = b'a' + u8::try_from(number % 26).unwrap();
                assert!(part.iter().all(|byte| *byte == letter), "{number}");
            }
        }
    });
}

#[test]
fn returns_statuses_of_head_redirects_and_errors() {
    let fpm = Fpm::start("statuses", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        for (method, script, status) in [
            (Method::HEAD, "header('X-A: b'); echo 'content';", 200),
            (Method::GET, "http_response_code(204);", 204),
            (Method::GET, "http_response_code(304);", 304),
            (Method::GET, "header('Location: /other');", 302),
            (
                Method::GET,
                "header('HTTP/1.1 418 I am a teapot'); echo 1;",
                418,
            ),
            (Method::GET, "header('Status: 404 Not Found');", 404),
            (Method::GET, "throw new Exception('no');", 500),
        ] {
            let request = fpm.request(&group, method, script);
            let mut upstream = send(&group, request).await.unwrap();
            let response = &upstream.response;
            assert_eq!(response.status.as_u16(), status, "{script}");
            assert!(!response.headers.contains("status"), "{response:?}");
            let body = read(&mut upstream).await;
            assert_eq!(body.is_empty(), status != 418, "{script}: {body}");
        }
    });
}

#[test]
fn passes_standard_error_with_its_request() {
    let fpm = Fpm::start("stderr", &Pool::default());
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        let messages: Rc<RefCell<String>> = Rc::default();
        for script in [
            "error_log('said'); echo 1;",
            "echo 1; flush(); error_log('later');",
        ] {
            let mut request = fpm.request(&group, Method::GET, script);
            let log = Rc::clone(&messages);
            request.template.stderr = Some(Rc::new(move |head, bytes| {
                let text = String::from_utf8_lossy(bytes);
                log.borrow_mut()
                    .push_str(&format!("{}: {text}\n", head.target));
            }));
            let mut response = send(&group, request).await.unwrap();
            assert_eq!(read(&mut response).await, "1");
        }
        let messages = messages.borrow();
        assert!(
            messages.contains("/: ") && messages.contains("said") && messages.contains("later"),
            "{messages}"
        );
    });
}

#[test]
fn a_response_of_a_process_that_dies_is_truncated_and_a_post_without_one_is_not_retried() {
    let fpm = Fpm::start("killed", &Pool::default());
    run(async {
        let mut plan = plan(fpm.node());
        plan.retry.tries = 3;
        let (_upstreams, group) = group(plan);
        let die = "posix_kill(getmypid(), 9);";
        let script = format!("echo str_repeat('x', 1000); flush(); usleep(20000); {die}");
        let request = fpm.request(&group, Method::GET, &script);
        let mut body = send(&group, request).await.unwrap().response.body;
        let broken = loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        assert!(
            matches!(broken, Some(Err(BodyError::Disconnected))),
            "{broken:?}"
        );

        let script = format!("file_put_contents(__DIR__.'/runs', \"x\\n\", FILE_APPEND); {die}");
        let request = fpm.request(&group, Method::POST, &script);
        match send(&group, request).await.unwrap_err().kind {
            UpstreamErrorKind::Node { failure, .. } => {
                assert!(failure.request_sent);
                // PHP runs a script before it reads the end of the body.
                assert!(
                    matches!(failure.phase, RequestPhase::Send | RequestPhase::Head),
                    "{failure}"
                );
                assert!(
                    matches!(failure.cause, FailureCause::Closed | FailureCause::Io(_)),
                    "{failure}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fpm.lines("runs").len(), 1);
    });
}

#[test]
fn requests_that_are_not_idempotent_survive_processes_that_end_after_their_response() {
    let recycled = Pool {
        lines: "pm.max_requests = 2",
        ..Pool::default()
    };
    let fpm = Fpm::start("recycled", &recycled);
    run(async {
        let (_upstreams, group) = group(plan(fpm.node()));
        for _ in 0..40 {
            assert_eq!(
                run_script(&fpm, &group, Method::POST, "echo 'x';").await,
                "x"
            );
        }
    });
}

#[test]
fn a_script_notices_that_its_client_is_gone() {
    let fpm = Fpm::start("gone", &Pool::default());
    run(async {
        let (upstreams, group) = group(plan(fpm.node()));
        let script = "register_shutdown_function(function () { \
                      file_put_contents(__DIR__.'/gone', connection_aborted()); }); \
                      while (true) { echo str_repeat('x', 10000); flush(); usleep(1000); }";
        let mut response = send(&group, fpm.request(&group, Method::GET, script))
            .await
            .unwrap();
        assert!(response.response.body.frame().await.is_some());
        drop(response);
        eventually("it ends", || fpm.lines("gone") == ["1"]).await;
        assert_eq!(status(&upstreams).nodes[0].in_flight, 0);
    });
}

/// Starts an application that responds to the first request of each connection and closes the connection at
/// the second. Returns it with its number of requests.
async fn closing_at_second_request() -> (NodePlan, Rc<Cell<usize>>) {
    const END_OF_BODY: [u8; 8] = [1, 5, 0, 1, 0, 0, 0, 0];
    const RESPONSE: &[u8] = b"\x01\x06\0\x01\0\x02\0\0\nx\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = node("php", listener.local_addr().unwrap());
    let requests: Rc<Cell<usize>> = Rc::default();
    let came = Rc::clone(&requests);
    spawn_local(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let came = Rc::clone(&came);
            spawn_local(async move {
                for responds in [true, false] {
                    let mut input = Vec::new();
                    while !input.ends_with(&END_OF_BODY) {
                        if socket.read_buf(&mut input).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    came.set(came.get() + 1);
                    if responds {
                        socket.write_all(RESPONSE).await.unwrap();
                    }
                }
            });
        }
    });
    (node, requests)
}

fn php_request(group: &WorkerGroup, method: Method) -> ClientRequest {
    let mut request = request(group, method);
    Rc::get_mut(&mut request.template.head).unwrap().params = Some(Params::new());
    request
}

#[test]
fn replaces_a_closed_connection_for_requests_that_may_be_sent_twice() {
    run(async {
        let (node, requests) = closing_at_second_request().await;
        let (_upstreams, group) = group(plan(node));
        for count in [1, 3, 5] {
            let mut response = send(&group, php_request(&group, Method::GET))
                .await
                .unwrap();
            assert_eq!(read(&mut response).await, "x");
            assert_eq!(requests.get(), count);
        }
        // A connection that was just returned carries no request that must not be sent twice.
        send(&group, php_request(&group, Method::POST))
            .await
            .unwrap();
        assert_eq!(requests.get(), 6);
        // After a time it does, and the request is not sent again.
        tokio::time::sleep(Duration::from_millis(50)).await;
        send(&group, php_request(&group, Method::POST))
            .await
            .unwrap_err();
        assert_eq!(requests.get(), 7);
    });
}

#[test]
fn retries_at_another_node_with_every_strategy() {
    let fpm = Fpm::start("strategies", &Pool::default());
    run(async {
        for strategy in [
            Strategy::RoundRobin,
            Strategy::LeastConnections,
            Strategy::LeastTime,
            Strategy::BestOfTwo,
            Strategy::Random,
        ] {
            let gone = node("gone", refusing().await);
            let mut plan = plan(gone);
            plan.nodes.push(fpm.node());
            plan.strategy = strategy;
            plan.retry.tries = 2;
            let (_upstreams, group) = group(plan);
            for _ in 0..10 {
                // Nothing was sent to the node that refuses connections.
                assert_eq!(
                    run_script(&fpm, &group, Method::POST, "echo 'x';").await,
                    "x"
                );
            }
        }
    });
}

/// Returns a group whose only node is checked all the time.
fn checked(fpm: &Fpm, kind: CheckKind) -> (Rc<Upstreams>, Rc<WorkerGroup>) {
    let mut plan = plan(fpm.node());
    plan.active = Some(CheckPlan {
        interval: Duration::from_millis(10),
        ..CheckPlan::new(kind)
    });
    let (upstreams, group) = group(plan);
    let upstreams = Rc::new(upstreams);
    let checks = Rc::clone(&upstreams);
    spawn_local(async move { checks.run_checks().await });
    (upstreams, group)
}

#[test]
fn checks_by_connect_and_by_ping_path() {
    let pinged = Pool {
        lines: "ping.path = /ping",
        ..Pool::default()
    };
    let ping = |contains: &str| CheckKind::Http {
        target: "/ping".into(),
        host: None,
        statuses: Vec::new(),
        contains: Some(contains.into()),
    };
    for (name, kind, is_good) in [
        ("check-connect", CheckKind::Connect, true),
        ("check-ping", ping("pong"), true),
        ("check-other", ping("ping"), false),
    ] {
        let fpm = Fpm::start(name, &pinged);
        run(async {
            let (upstreams, group) = checked(&fpm, kind);
            let last = || node_status(&upstreams, "php").last_check;
            eventually("it was checked", || last().is_some()).await;
            assert_eq!(
                last().unwrap().fault.is_none(),
                is_good,
                "{name}: {:?}",
                last()
            );
            if is_good {
                let printed = run_script(&fpm, &group, Method::GET, "echo 'x';").await;
                assert_eq!(printed, "x");
            }
            drop(fpm);
            let is_faulty = || last().is_some_and(|check| check.fault.is_some());
            eventually("it is gone", is_faulty).await;
        });
    }
}
