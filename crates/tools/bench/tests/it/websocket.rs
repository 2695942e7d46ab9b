//! Loads over WebSocket: echoes, and messages to all connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use apus_bench::{LoadFailure, LoadPlan, WebSocketMode};
use apus_testkit::scripted::{Action, ScriptedServer, response};
use apus_websocket::codec::{
    CodecSettings, Message, WebSocketConnection, WebSocketEvent, accept_key,
};
use bytes::BytesMut;

use crate::harness::{failures, plan, run};

/// What the server does with a message.
#[derive(Clone, Copy, PartialEq)]
enum Reaction {
    Echo,
    /// Sends it to all connections.
    ToAll,
    /// Sends it to all connections but the last one.
    ToMost,
    /// Sends another one.
    Other,
    Close,
    Nothing,
}

type Script = dyn Fn(u64) -> Reaction + Send + Sync;

struct MessageServer {
    port: u16,
}

struct Shared {
    script: Box<Script>,
    messages: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

fn encoded(message: Message) -> Vec<u8> {
    let mut codec = WebSocketConnection::server(&CodecSettings::default());
    codec.send(message).unwrap();
    codec.output().to_vec()
}

impl MessageServer {
    /// A server that does this with each message, by its number from 0 on. The first is the one before the load.
    fn start(script: impl Fn(u64) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            messages: AtomicU64::new(0),
            open: Mutex::default(),
        });
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { port }
    }

    fn plan(&self, mode: WebSocketMode, connections: usize, messages: u64) -> LoadPlan {
        let url = format!("ws://127.0.0.1:{}/room", self.port);
        let mut plan = plan(&url, connections, messages);
        plan.websocket = Some(mode);
        plan.requests[0].body = "hello".into();
        plan
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("GET /room HTTP/1.1\r\n"), "{head}");
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-key: "))
            .unwrap();
        let accept = accept_key(key.as_bytes());
        let greeting = encoded(Message::text("welcome"));
        let mut response = format!(
            "HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
        )
        .into_bytes();
        if (self.script)(0) == Reaction::ToAll {
            response.extend_from_slice(&greeting);
        }
        stream.write_all(&response).unwrap();
        self.open.lock().unwrap().push(stream.try_clone().unwrap());
        let mut codec = WebSocketConnection::server(&CodecSettings::default());
        let mut input = BytesMut::new();
        let mut buffer = [0; 4096];
        loop {
            let read = stream.read(&mut buffer).unwrap_or(0);
            if read == 0 {
                break;
            }
            input.extend_from_slice(&buffer[..read]);
            while let Some(event) = codec.handle_input(&mut input) {
                match event {
                    WebSocketEvent::Message(message) => self.react(message, &mut stream),
                    WebSocketEvent::Close(_) => {
                        let own = stream.peer_addr().ok();
                        let mut open = self.open.lock().unwrap();
                        open.retain(|other| other.peer_addr().ok() != own);
                        return;
                    }
                    _ => {}
                }
            }
        }
    }

    fn react(&self, message: Message, stream: &mut TcpStream) {
        let reaction = (self.script)(self.messages.fetch_add(1, Ordering::SeqCst));
        let open = self.open.lock().unwrap();
        let receivers = match reaction {
            Reaction::ToAll => open.len(),
            Reaction::ToMost => open.len() - 1,
            _ => 0,
        };
        let bytes = encoded(match reaction {
            Reaction::Other => Message::text("other"),
            _ => message,
        });
        for mut other in open.iter().take(receivers) {
            let _ = other.write_all(&bytes);
        }
        // The end of the connection is seen where it is read.
        let _ = match reaction {
            Reaction::Echo | Reaction::Other => stream.write_all(&bytes),
            Reaction::Close => stream.shutdown(std::net::Shutdown::Both),
            _ => Ok(()),
        };
    }
}

#[test]
fn messages_come_back() {
    let server = MessageServer::start(|_| Reaction::Echo);
    let mut plan = server.plan(WebSocketMode::Echo, 3, 300);
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (300, 0), "{report:?}");
    assert_eq!(report.connections_opened, 3);
    assert_eq!(report.protocol, "WebSocket (echo)");
    assert_eq!(report.statuses.get(&101), Some(&300));
    assert!(report.urls[0].url.starts_with("ws://"), "{report:?}");

    plan.in_flight = NonZeroUsize::new(8).unwrap();
    plan.requests[0].body = vec![0xff; 10_000].into();
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (300, 0), "{report:?}");
}

#[test]
fn an_open_loop_sends_messages_at_its_rate() {
    let server = MessageServer::start(|_| Reaction::Echo);
    let mut plan = server.plan(WebSocketMode::Echo, 4, 100);
    plan.rate = Some("400".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (100, 0));
    assert!((0.2..0.6).contains(&report.seconds), "{}", report.seconds);
}

#[test]
fn echoes_that_are_wrong_or_missing_are_counted() {
    for (reaction, kind) in [
        (Reaction::Other, LoadFailure::WrongBody),
        (Reaction::Close, LoadFailure::ClosedBeforeResponse),
        (Reaction::Nothing, LoadFailure::Timeout),
    ] {
        let server = MessageServer::start(move |number| match number {
            5 => reaction,
            _ => Reaction::Echo,
        });
        let mut plan = server.plan(WebSocketMode::Echo, 1, 10);
        plan.timeout = Duration::from_millis(600);
        let report = run(plan);
        assert_eq!(report.responses, 9, "{report:?}");
        assert_eq!(failures(&report), [(kind, 1)]);
    }
}

#[test]
fn a_message_to_all_connections_is_a_response_of_each() {
    let server = MessageServer::start(|_| Reaction::ToAll);
    let report = run(server.plan(WebSocketMode::Broadcast, 20, 10));
    assert_eq!((report.responses, report.failed), (200, 0), "{report:?}");
    assert_eq!(report.connections_opened, 20);
    assert_eq!(report.protocol, "WebSocket (broadcast)");
    assert!(report.latency.p50_ms > 0.0);
}

#[test]
fn messages_that_do_not_reach_a_connection_are_counted() {
    let server = MessageServer::start(|number| match number {
        3 => Reaction::ToMost,
        _ => Reaction::ToAll,
    });
    let mut plan = server.plan(WebSocketMode::Broadcast, 5, 10);
    plan.threads = NonZeroUsize::MIN;
    plan.rate = Some("100".parse().unwrap());
    plan.timeout = Duration::from_millis(500);
    let report = run(plan);
    assert_eq!(report.responses, 49, "{report:?}");
    assert_eq!(failures(&report), [(LoadFailure::NotDelivered, 1)]);
}

#[test]
fn a_server_that_does_not_switch_is_a_failure() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/").replace("http:", "ws:"), 1, 3);
    let error = apus_bench::run(plan.clone(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("load of messages"), "{error}");
    plan.websocket = Some(WebSocketMode::Echo);
    let report = run(plan);
    assert_eq!(failures(&report), [(LoadFailure::WrongStatus, 3)]);
}
