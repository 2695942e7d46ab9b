//! WebSocket handlers.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apus::websocket::{
    CloseCode, Compression, DisconnectReason, Message, SendError, WebSocket, WebSocketSettings,
    WebSocketUpgrade,
};
use apus::{App, Limits, ServiceFactory};
use apus_http::Duplex;
use apus_websocket::codec::WebSocketEvent;

use super::client::Client;
use super::{app, echo, echoing};
use crate::harness::{Server, wait_until};
use apus_testkit::{block_on, get};

#[test]
fn messages_are_echoed_plain_and_compressed() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let contexts = Compression {
        keep_sent_context: true,
        keep_received_context: true,
        ..Compression::default()
    };
    for compression in [None, Some(Compression::default()), Some(contexts)] {
        let mut client = Client::open_with(server.address(), compression);
        let messages: [Message; 6] = [
            "".into(),
            "Hello, ß".into(),
            vec![0xff; 70_000].into(),
            "x".repeat(1 << 20).into(),
            "and again ".repeat(100).into(),
            "and again ".repeat(100).into(),
        ];
        for message in messages {
            client.send(message.clone());
            assert!(client.message() == message);
        }
        client.close(CloseCode::NORMAL);
        assert_eq!(client.closed().unwrap().code(), CloseCode::NORMAL);
    }
}

#[test]
fn many_messages_are_echoed_in_order() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let mut client = Client::open(server.address());
    for n in 0..1000 {
        client
            .connection
            .send(format!("message {n}").into())
            .unwrap();
    }
    client.flush();
    for n in 0..1000 {
        assert_eq!(client.message().as_text(), Some(&*format!("message {n}")));
    }
}

#[test]
fn a_message_with_the_handshake_is_not_lost() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let mut stream = super::client::connect(server.address());
    let request = super::client::handshake(&[]).join("\r\n");
    let request = format!("GET / HTTP/1.1\r\n{request}\r\n\r\n");
    let early = b"\x81\x85\0\0\0\0early";
    stream
        .write_all(&[request.as_bytes(), early].concat())
        .unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\x81\x05early") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
}

#[test]
fn python_websockets_interoperates() {
    let settings = WebSocketSettings {
        max_message: 4 << 20,
        ..WebSocketSettings::default()
    };
    let server = Server::start(echoing(settings));
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tools/cli/tests/origins/websocket.py"
    );
    let output = Command::new("/usr/bin/python3")
        .args([script, "ask", &format!("ws://{}/", server.address())])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn the_end_of_a_handler_closes_its_socket() {
    let server = Server::start(app(WebSocketSettings::default(), async |_, sender| {
        sender.send("goodbye").await.unwrap();
    }));
    let mut client = Client::open(server.address());
    assert_eq!(client.message(), "goodbye".into());
    assert_eq!(client.closed().unwrap().code(), CloseCode::NORMAL);
}

#[test]
fn sockets_are_closed_when_the_server_stops() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let mut client = Client::open(server.address());
    client.send("before");
    assert_eq!(client.message(), "before".into());
    let stopping = std::thread::spawn(move || {
        block_on(server.engine.stop(Duration::from_secs(600)));
    });
    assert_eq!(client.closed().unwrap().code(), CloseCode::GOING_AWAY);
    stopping.join().unwrap();
}

#[test]
fn a_handler_gets_the_reason_of_the_end() {
    let (reasons, ends) = mpsc::channel();
    let server = Server::start(app(
        WebSocketSettings {
            max_message: 1000,
            ..WebSocketSettings::default()
        },
        async move |mut receiver, sender| {
            while receiver.recv().await.is_some() {}
            assert!(sender.is_closed());
            assert_eq!(sender.try_send("too late"), Err(SendError::Closed));
            assert!(sender.send("too late").await.is_err());
            reasons.send(receiver.disconnect_reason().unwrap()).unwrap();
        },
    ));
    let mut client = Client::open(server.address());
    client.close(CloseCode::GOING_AWAY);
    client.closed();
    let DisconnectReason::Closed(Some(close)) = ends.recv().unwrap() else {
        panic!("not closed");
    };
    assert_eq!(close.code(), CloseCode::GOING_AWAY);
    let mut client = Client::open(server.address());
    client.send(vec![0; 1001]);
    assert_eq!(client.closed().unwrap().code(), CloseCode::TOO_BIG);
    assert!(matches!(ends.recv().unwrap(), DisconnectReason::Failed(_)));
    drop(Client::open(server.address()));
    assert!(matches!(ends.recv().unwrap(), DisconnectReason::Lost(_)));
}

#[test]
fn the_connection_responds_to_pings_and_closes_without_the_handler() {
    let server = Server::start(app(
        WebSocketSettings::default(),
        async |_receiver, sender| {
            // `_receiver` is not dropped, and never read.
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            while sender.send("tick").await.is_ok() {
                ticks.tick().await;
            }
        },
    ));
    let mut client = Client::open(server.address());
    client.connection.ping(b"alive?").unwrap();
    client.flush();
    while client.event() != Some(WebSocketEvent::Pong("alive?".into())) {}
    client.close(CloseCode::NORMAL);
    assert_eq!(client.closed().unwrap().code(), CloseCode::NORMAL);
}

#[test]
fn a_quiet_client_is_pinged() {
    let settings = WebSocketSettings {
        ping_interval: Some(Duration::from_millis(20)),
        ..WebSocketSettings::default()
    };
    let server = Server::start(echoing(settings));
    let mut client = Client::open(server.address());
    // Each ping is sent only after the pong to the one before it.
    for _ in 0..5 {
        assert_eq!(client.event(), Some(WebSocketEvent::Ping("".into())));
    }
    client.send("still open");
    while client.event() != Some(WebSocketEvent::Message("still open".into())) {}
}

#[test]
fn a_client_that_sends_no_pongs_times_out() {
    let (reasons, ends) = mpsc::channel();
    let settings = WebSocketSettings {
        ping_interval: Some(Duration::from_millis(20)),
        idle_timeout: Duration::from_millis(100),
        ..WebSocketSettings::default()
    };
    let server = Server::start(app(settings, async move |mut receiver, _| {
        while receiver.recv().await.is_some() {}
        reasons.send(receiver.disconnect_reason().unwrap()).unwrap();
    }));
    let _silent = Client::open(server.address());
    assert_eq!(ends.recv().unwrap(), DisconnectReason::TimedOut);
}

#[test]
fn a_close_without_a_response_times_out() {
    let settings = WebSocketSettings {
        close_timeout: Duration::from_millis(20),
        ..WebSocketSettings::default()
    };
    let server = Server::start(app(settings, async |_, _| {}));
    let mut client = Client::open(server.address());
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"\x88\x02\x03\xe8");
}

#[test]
fn reading_waits_for_the_handler() {
    let received = Arc::new(AtomicUsize::new(0));
    let go_on = Arc::new(tokio::sync::Notify::new());
    let (counting, waiting) = (received.clone(), go_on.clone());
    let settings = WebSocketSettings {
        max_message: 100_000,
        // The client is idle only because the server does not read.
        idle_timeout: Duration::from_millis(50),
        ..WebSocketSettings::default()
    };
    let server = Server::start(app(settings, async move |mut receiver, _| {
        waiting.notified().await;
        while receiver.recv().await.is_some() {
            counting.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let mut client = Client::open(server.address());
    client.stream.set_nonblocking(true).unwrap();
    // The client sends until all buffers are full.
    let (mut sent, mut full) = (0, 0);
    while full < 100 {
        if client.connection.output().is_empty() {
            client.connection.send(vec![0; 100_000].into()).unwrap();
            sent += 1;
            assert!(sent < 1000, "the server reads everything");
        }
        match client.stream.write(client.connection.output()) {
            Ok(written) => {
                client.connection.consume_output(written);
                full = 0;
            }
            Err(_) => {
                full += 1;
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    }
    assert_eq!(received.load(Ordering::Relaxed), 0);
    client.stream.set_nonblocking(false).unwrap();
    go_on.notify_one();
    client.flush();
    wait_until("everything received", || {
        received.load(Ordering::Relaxed) == sent
    });
}

#[test]
fn sending_waits_for_a_client_that_does_not_read() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counting = sent.clone();
    let server = Server::start(app(
        WebSocketSettings::default(),
        async move |_receiver, sender| {
            for _ in 0..1000 {
                sender.send(vec![0; 100_000]).await.unwrap();
                counting.fetch_add(1, Ordering::Relaxed);
            }
        },
    ));
    let mut client = Client::open(server.address());
    // The sender stops when all buffers are full.
    let (mut before, mut same) = (0, 0);
    while same < 50 {
        std::thread::park_timeout(Duration::from_millis(2));
        let now = sent.load(Ordering::Relaxed);
        same = if now == before && now > 0 {
            same + 1
        } else {
            0
        };
        before = now;
    }
    assert!(before < 1000);
    for _ in 0..1000 {
        assert_eq!(client.message().len(), 100_000);
    }
    assert_eq!(client.closed().unwrap().code(), CloseCode::NORMAL);
}

#[test]
fn a_sender_of_another_task_reaches_the_client() {
    let server = Server::start(app(
        WebSocketSettings::default(),
        async |mut receiver, sender| {
            let (messages, mut forwarded) = tokio::sync::mpsc::channel::<Message>(1);
            let sending = tokio::task::spawn_local(async move {
                while let Some(message) = forwarded.recv().await {
                    sender.send(message).await.unwrap();
                }
            });
            let reading = tokio::task::spawn_local(async move {
                while let Some(message) = receiver.recv().await {
                    messages.send(message).await.unwrap();
                }
            });
            reading.await.unwrap();
            sending.await.unwrap();
        },
    ));
    let mut client = Client::open(server.address());
    for n in 0..100 {
        client.send(format!("{n}"));
        assert_eq!(client.message(), format!("{n}").into());
    }
    client.close(CloseCode::NORMAL);
    client.closed();
}

#[test]
fn a_handler_that_panics_ends_its_connection_and_no_other() {
    let server = Server::start(App::new().get("/", async |upgrade: WebSocketUpgrade| {
        upgrade.run(async |mut socket| {
            if socket.recv().await == Some("panic".into()) {
                panic!("as requested");
            }
            echo(socket).await;
        })
    }));
    let mut other = Client::open(server.address());
    other.send("first");
    let mut client = Client::open(server.address());
    client.send("panic");
    assert_eq!(client.event(), None);
    other.send("still there");
    assert_eq!(other.message(), "still there".into());
}

/// A transport that buffers what is written, and sends it on a flush when it is writable, as TLS does.
#[derive(Clone, Default)]
struct BufferedTransport(Rc<RefCell<TransportState>>);

#[derive(Default)]
struct TransportState {
    bytes: Vec<u8>,
    sent: Vec<u8>,
    is_writable: bool,
    writer: Option<Waker>,
}

impl Duplex for BufferedTransport {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        if !state.is_writable && !state.bytes.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.sent.append(&mut state.bytes);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[test]
fn buffered_output_is_sent_when_the_transport_is_writable() {
    let app = App::new().get("/", async |upgrade: WebSocketUpgrade| {
        upgrade.run(async |mut socket: WebSocket| {
            socket.send("hello").await.unwrap();
            socket.recv().await;
        })
    });
    let request = get("/")
        .with("connection", "upgrade")
        .with("upgrade", "websocket")
        .with("sec-websocket-version", "13")
        .with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    block_on(async {
        let response = app.service().call(request.request());
        let tunnel = response.wait().await.take_tunnel().unwrap();
        let transport = BufferedTransport::default();
        let state = Rc::clone(&transport.0);
        tokio::task::spawn_local(tunnel(Box::new(transport)));
        while state.borrow().writer.is_none() {
            tokio::task::yield_now().await;
        }
        assert!(state.borrow().sent.is_empty());
        state.borrow_mut().is_writable = true;
        let writer = state.borrow_mut().writer.take();
        writer.unwrap().wake();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(state.borrow().sent, b"\x81\x05hello");
    });
}

fn limits(send_rate: u64) -> Limits {
    Limits {
        send_timeout: Duration::from_millis(300),
        send_rate,
        ..Limits::default()
    }
}

#[test]
fn a_message_that_is_never_complete_does_not_hold_its_socket() {
    let settings = WebSocketSettings {
        message_timeout: Duration::from_millis(200),
        ..WebSocketSettings::default()
    };
    // A message in fragments, one whose frame is not complete, and an incomplete head of a frame; each client sends a
    // byte, or a ping, now and then.
    for (begin, drip) in [
        (&b"\x01\x81\0\0\0\0a"[..], &b"\x00\x81\0\0\0\0a"[..]),
        (b"\x82\xfe\xff\xff\0\0\0\0abc", b"a"),
        (b"\x01\x81\0\0\0\0a", b"\x89\x80\0\0\0\0"),
        (b"\x41\x81\0\0\0\0a", b"\x00\x80\0\0\0\0"),
        (b"\x82", b""),
    ] {
        let (reasons, ends) = mpsc::channel();
        let server = Server::start(app(settings.clone(), async move |mut receiver, _| {
            while receiver.recv().await.is_some() {}
            reasons.send(receiver.disconnect_reason().unwrap()).unwrap();
        }));
        let mut client = Client::open_with(server.address(), Some(Compression::default()));
        client.stream.write_all(begin).unwrap();
        let reason = loop {
            if let Ok(reason) = ends.recv_timeout(Duration::from_millis(20)) {
                break reason;
            }
            // It may be closed already.
            let _ = client.stream.write_all(drip);
        };
        assert_eq!(reason, DisconnectReason::TimedOut);
    }
}

#[test]
fn messages_one_after_another_are_not_one_that_is_late() {
    let settings = WebSocketSettings {
        message_timeout: Duration::from_millis(200),
        ..WebSocketSettings::default()
    };
    let server = Server::start(echoing(settings));
    let mut client = Client::open(server.address());
    // The end of each message comes together with the beginning of the next one.
    client.stream.write_all(b"\x82\x82\0\0\0\0a").unwrap();
    for _ in 0..30 {
        std::thread::park_timeout(Duration::from_millis(20));
        client.stream.write_all(b"b\x82\x82\0\0\0\0a").unwrap();
        assert_eq!(client.message(), Message::binary(&b"ab"[..]));
    }
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_a_handler_waiting() {
    let (reasons, ends) = mpsc::channel();
    let app = app(
        WebSocketSettings::default(),
        async move |receiver, sender| {
            while sender.send(vec![0; 100_000]).await.is_ok() {}
            reasons.send(receiver.disconnect_reason().unwrap()).unwrap();
        },
    );
    let server = Server::with_limits(app, limits(128));
    let mut client = Client::open(server.address());
    let reason = loop {
        if let Ok(reason) = ends.recv_timeout(Duration::from_millis(20)) {
            break reason;
        }
        // It shows that it is there.
        let _ = client.stream.write_all(b"\x8a\x80\0\0\0\0");
    };
    assert_eq!(reason, DisconnectReason::TimedOut);
}

#[test]
fn the_socket_that_holds_most_is_closed_when_memory_is_short() {
    let (reasons, ends) = mpsc::channel();
    let app = app(
        WebSocketSettings {
            max_message: 6 << 20,
            ..WebSocketSettings::default()
        },
        async move |mut receiver, sender| {
            while let Some(message) = receiver.recv().await {
                let _ = sender.send(message).await;
            }
            let _ = reasons.send(receiver.disconnect_reason().unwrap());
        },
    );
    // One worker has 8 MB.
    let limits = Limits {
        websocket_memory: 1 << 20,
        ..Limits::default()
    };
    let server = Server::with_limits(app, limits);
    let begin = |len: usize| {
        let mut client = Client::open(server.address());
        // The first fragment of a message, which does not end.
        let mut bytes = vec![0x02, 0xff];
        bytes.extend((len as u64).to_be_bytes());
        bytes.extend([0; 4]);
        bytes.resize(bytes.len() + len, 0);
        // The pong shows that the server has read all of it.
        bytes.extend(b"\x89\x80\0\0\0\0");
        client.stream.write_all(&bytes).unwrap();
        assert_eq!(client.event(), Some(WebSocketEvent::Pong("".into())));
        client
    };
    let mut largest = begin(5_000_000);
    let _others: Vec<_> = (0..10).map(|_| begin(700_000)).collect();
    assert_eq!(ends.recv().unwrap(), DisconnectReason::Evicted);
    assert_eq!(largest.closed().unwrap().code(), CloseCode::TRY_AGAIN_LATER);
    // Others are served as ever.
    let mut honest = Client::open(server.address());
    honest.send("short");
    assert_eq!(honest.message(), "short".into());
    honest.send("x".repeat(20_000));
    assert_eq!(honest.message(), "x".repeat(20_000).into());
}
