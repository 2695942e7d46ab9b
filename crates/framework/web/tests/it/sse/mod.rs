//! Server-Sent Events over real connections.

mod broadcast;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus::files::Compression;
use apus::sse::{Event, LastEventId};
use apus::{App, CompressedFactory, Sse};
use tokio::sync::mpsc;

use crate::harness::{Server, wait_until};
use crate::websocket::client::connect;
use apus_testkit::{block_on, get};

/// A client of events, like the `EventSource` of a page.
pub(crate) struct Source {
    stream: TcpStream,
    pub(crate) head: String,
    read: String,
}

impl Source {
    /// Requests `/` over HTTP/1.0, so that the body has no framing.
    pub(crate) fn open(address: SocketAddr, last_event_id: Option<&str>) -> Self {
        let last = last_event_id.map(|id| format!("Last-Event-ID: {id}\r\n"));
        let mut source = Self {
            stream: connect(address),
            head: String::new(),
            read: String::new(),
        };
        let request = format!(
            "GET / HTTP/1.0\r\nHost: example.com\r\nAccept-Encoding: gzip, br\r\n{}\r\n",
            last.unwrap_or_default()
        );
        source.stream.write_all(request.as_bytes()).unwrap();
        source.head = source.until("\r\n\r\n").to_lowercase();
        source
    }

    /// Reads up to and including `end`.
    fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.read.find(end) {
                let rest = self.read.split_off(at + end.len());
                return std::mem::replace(&mut self.read, rest);
            }
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "the stream ends behind {:?}", self.read);
            self.read
                .push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
    }

    /// The next event, without comments.
    pub(crate) fn event(&mut self) -> String {
        loop {
            let event = self.until("\n\n");
            if !event.starts_with(':') {
                return event;
            }
        }
    }

    /// The id and the data of the next event.
    pub(crate) fn id_and_data(&mut self) -> (String, String) {
        let event = self.event();
        let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
        let found = (field("id: "), field("data: "));
        (
            found.0.unwrap_or_default().to_owned(),
            found.1.unwrap_or_default().to_owned(),
        )
    }

    /// Reads to the end of the stream.
    pub(crate) fn rest(mut self) -> String {
        self.stream.read_to_string(&mut self.read).unwrap();
        self.read
    }
}

/// An application that sends the events of the returned sender.
fn event_app() -> (App, mpsc::UnboundedSender<Event>) {
    let (sender, receiver) = mpsc::unbounded_channel::<Event>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let app = App::new().get("/", move || {
        let receiver = receiver.lock().unwrap().take();
        std::future::ready(Sse::run(async |mut events| {
            let mut receiver = receiver.unwrap();
            while let Some(event) = receiver.recv().await {
                events.send(event).await;
            }
        }))
    });
    (app, sender)
}

#[test]
fn each_event_is_sent_at_once() {
    let (app, sender) = event_app();
    let server = Server::start(app);
    let mut source = Source::open(server.address(), None);
    for line in [
        "content-type: text/event-stream\r\n",
        "cache-control: no-store\r\n",
        "x-accel-buffering: no\r\n",
    ] {
        assert!(source.head.contains(line), "{}", source.head);
    }
    for coding in ["content-encoding", "content-length", "transfer-encoding"] {
        assert!(!source.head.contains(coding), "{}", source.head);
    }
    for n in 0..3 {
        sender
            .send(Event::new().event("tick").data(format!("{n}\nth")))
            .unwrap();
        assert_eq!(
            source.event(),
            format!("event: tick\ndata: {n}\ndata: th\n\n")
        );
    }
    // Events that are sent together arrive in order.
    for n in 0..2000 {
        sender.send(format!("{n}").into()).unwrap();
    }
    drop(sender);
    let all: String = (0..2000).map(|n| format!("data: {n}\n\n")).collect();
    assert_eq!(source.rest(), all);
}

#[test]
fn a_quiet_stream_has_heartbeats() {
    let server = Server::start(App::new().get("/", async || {
        Sse::run(async |_events| std::future::pending().await)
            .heartbeat(Some(Duration::from_millis(5)))
    }));
    let mut source = Source::open(server.address(), None);
    for _ in 0..3 {
        assert_eq!(source.until("\n\n"), ":\n\n");
    }
}

#[test]
fn the_future_ends_when_the_client_disconnects() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_gone = Arc::new(AtomicBool::new(false));
    let shared = is_gone.clone();
    let server = Server::start(App::new().get("/", move || {
        let flag = Flag(shared.clone());
        std::future::ready(Sse::run(async move |mut events| {
            let _flag = flag;
            events.send("hello").await;
            std::future::pending().await
        }))
    }));
    let mut source = Source::open(server.address(), None);
    assert_eq!(source.event(), "data: hello\n\n");
    assert!(!is_gone.load(Ordering::Relaxed));
    drop(source);
    wait_until("the end of the future", || is_gone.load(Ordering::Relaxed));
}

#[test]
fn events_are_not_compressed() {
    let app = App::new().get("/", async |last: LastEventId| {
        assert_eq!(last.get(), Some("a b"));
        let long = "x".repeat(10_000);
        Sse::run(async move |mut events| events.send(long).await)
    });
    let reply = get("/")
        .with("accept-encoding", "gzip, br")
        .with("last-event-id", "a b")
        .to(&CompressedFactory::new(Compression::default(), app));
    assert_eq!(reply.field("content-encoding"), None);
    assert_eq!(reply.content.len(), "data: \n\n".len() + 10_000);
}

#[test]
fn a_stream_ends_between_events_when_the_server_stops() {
    let (app, sender) = event_app();
    let server = Server::start(app);
    let mut source = Source::open(server.address(), None);
    sender.send("last".into()).unwrap();
    assert_eq!(source.event(), "data: last\n\n");
    let stopping = std::thread::spawn(move || {
        block_on(server.engine.stop(Duration::from_secs(600)));
    });
    assert_eq!(source.rest(), "");
    stopping.join().unwrap();
    drop(sender);
}

#[test]
fn events_are_sent_over_http2() {
    let (app, sender) = event_app();
    let server = Server::start(app);
    let address = server.address();
    block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://example.com/").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        for n in 0..3 {
            sender.send(format!("{n}").into()).unwrap();
            let data = body.data().await.unwrap().unwrap();
            assert_eq!(data, format!("data: {n}\n\n"));
        }
        drop(sender);
        // The end may be a separate frame.
        while let Some(data) = body.data().await {
            assert_eq!(data.unwrap(), "");
        }
    });
    let _kept = Rc::new(server);
}
