//! FastCGI applications: their requests, and the handling of their responses.

use std::cell::RefCell;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientResponse, ConnectionReturn, FailureCause, FastCgiClient, Origin,
    OriginConnection, ParkedFastCgi, Protocol, RequestFailure, RequestPhase, ResponseRules,
    Timeouts, connect,
};
use apus_codec::fastcgi::{FastCgiConnection, Params};
use apus_codec::h1::HeadLimits;
use apus_http::{Body, BodyError, Frame, Method};
use apus_testkit::eventually;
use bytes::Bytes;

use crate::harness::{ChannelBody, OriginStream, RawOrigin, collect, head, origin, request, run};

const SHORT: Duration = Duration::from_millis(50);

const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn record(kind: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// A response with this output, and its end.
fn response_with(output: impl AsRef<[u8]>) -> Vec<u8> {
    [record(STDOUT, output), end(0)].concat()
}

fn end(protocol_status: u8) -> Vec<u8> {
    record(3, [0, 0, 0, 0, protocol_status, 0, 0, 0])
}

/// A request as an application receives it.
struct FastCgiRequest {
    keep: bool,
    body: Vec<u8>,
}

fn read_record(connection: &mut OriginStream) -> (u8, Vec<u8>) {
    let header = connection.read_exact(8);
    assert_eq!((header[0], header[2], header[3]), (1, 0, 1));
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let content = connection.read_exact(len);
    connection.read_exact(header[6].into());
    (header[1], content)
}

fn read_head(connection: &mut OriginStream) -> FastCgiRequest {
    let (kind, begin) = read_record(connection);
    assert_eq!((kind, &begin[..2]), (BEGIN, &[0, 1][..]));
    loop {
        let (kind, content) = read_record(connection);
        assert_eq!(kind, PARAMS);
        if content.is_empty() {
            let keep = begin[2] == 1;
            return FastCgiRequest {
                keep,
                body: Vec::new(),
            };
        }
    }
}

fn read_request(connection: &mut OriginStream) -> FastCgiRequest {
    let mut request = read_head(connection);
    loop {
        let (kind, content) = read_record(connection);
        assert_eq!(kind, STDIN);
        if content.is_empty() {
            return request;
        }
        request.body.extend_from_slice(&content);
    }
}

/// A pool of idle connections.
#[derive(Default)]
struct IdleConnections(RefCell<Vec<FastCgiClient>>);

impl ConnectionReturn<FastCgiClient> for IdleConnections {
    fn return_connection(&self, connection: FastCgiClient) {
        self.0.borrow_mut().push(connection);
    }
}

impl IdleConnections {
    async fn send(
        self: &Rc<Self>,
        origin: &RawOrigin,
        request: ClientRequest,
    ) -> Result<ClientResponse, RequestFailure> {
        let known = self.0.borrow_mut().pop();
        let mut connection = match known {
            Some(connection) => connection,
            None => open(origin).await,
        };
        connection.set_connection_return(self.clone());
        connection.send(request).await
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

async fn open(to: &RawOrigin) -> FastCgiClient {
    open_at(Address::Ip(to.address)).await
}

async fn open_at(address: Address) -> FastCgiClient {
    let origin = Origin {
        protocol: Protocol::FastCgi,
        ..origin(address)
    };
    match connect(&origin, None, &Timeouts::default()).await.unwrap() {
        OriginConnection::FastCgi(connection) => connection,
        other => panic!("{other:?}"),
    }
}

fn fastcgi_request(method: Method, body: impl Into<Body>) -> ClientRequest {
    let mut head = head(method, "/");
    let mut params = Params::new();
    params.push("A", "b");
    head.params = Some(params);
    request(head, body.into())
}

fn get() -> ClientRequest {
    fastcgi_request(Method::GET, Body::Empty)
}

#[test]
fn a_small_request_is_one_write_and_a_small_response_one_body() {
    let origin = RawOrigin::start(|_, mut connection| {
        for body in ["", "content"] {
            let begin = record(BEGIN, [0, 1, 1, 0, 0, 0, 0, 0]);
            let params = [record(PARAMS, b"\x01\x01Ab"), record(PARAMS, "")].concat();
            let stdin = match body {
                "" => Vec::new(),
                body => record(STDIN, body),
            };
            let expected = [begin, params, stdin, record(STDIN, "")].concat();
            let mut all = [0; 1024];
            let read = connection.socket.read(&mut all).unwrap();
            assert_eq!(all[..read], expected);
            // The response comes in several records, which are joined.
            let head = record(STDOUT, "X: y\r\n\r\n");
            let parts = [head, record(STDOUT, "hel"), record(STDOUT, "lo"), end(0)];
            connection.send(parts.concat());
        }
        assert!(connection.is_closed());
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        for request in [get(), fastcgi_request(Method::POST, "content")] {
            let response = idle.send(&origin, request).await.unwrap();
            assert_eq!(response.headers.get_str("x"), Some("y"));
            assert!(matches!(&response.body, Body::Bytes(bytes) if bytes == "hello"));
            assert_eq!(idle.len(), 1);
        }
        assert_eq!(idle.0.borrow()[0].requests(), 2);
    });
    origin.check();
}

#[test]
fn without_a_connection_return_the_application_closes_the_connection() {
    let origin = RawOrigin::start(|_, mut connection| {
        assert!(!read_request(&mut connection).keep);
        connection.send(response_with("\nx"));
    });
    run(async {
        let response = open(&origin).await.send(get()).await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"x");
    });
    origin.check();
}

#[test]
fn a_body_is_split_into_records_and_joined_from_them() {
    let letters = |len: usize| -> Vec<u8> { (0..len).map(|at| b'a' + (at % 23) as u8).collect() };
    let (sent, received) = (letters(300_000), letters(500_000));
    let (expected, output) = (sent.clone(), received.clone());
    let origin = RawOrigin::start(move |_, mut connection| {
        assert!(read_request(&mut connection).body == expected);
        connection.send(record(STDOUT, "Content-Type: a/b\n\n"));
        for (number, part) in output.chunks(8_191).enumerate() {
            connection.send(record(STDOUT, part));
            if number % 5 == 0 {
                connection.send(record(STDERR, "note"));
            }
        }
        connection.send(end(0));
        // A connection with a larger body than an application certainly reads is used once.
        assert!(connection.is_closed());
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (sender, streamed) = ChannelBody::pair();
        for part in sent.chunks(70_000) {
            sender
                .send(Ok(Frame::Data(Bytes::copy_from_slice(part))))
                .unwrap();
        }
        drop(sender);
        for body in [sent.clone().into(), streamed] {
            let response = idle
                .send(&origin, fastcgi_request(Method::POST, body))
                .await
                .unwrap();
            assert!(collect(response.body).await.unwrap().0 == received);
            assert_eq!(idle.len(), 0);
        }
    });
    origin.check();
}

#[test]
fn standard_error_is_passed_on_piece_by_piece() {
    let origin = RawOrigin::start(|_, mut connection| {
        read_request(&mut connection);
        let before = record(STDERR, "one");
        let after = record(STDERR, "two");
        connection.send([before, record(STDOUT, "\nx"), after, end(0)].concat());
    });
    run(async {
        let lines: Rc<RefCell<Vec<String>>> = Rc::default();
        let recorder = Rc::clone(&lines);
        let mut request = get();
        request.template.stderr = Some(Rc::new(move |head, bytes| {
            let text = String::from_utf8_lossy(bytes);
            recorder
                .borrow_mut()
                .push(format!("{} {text}", head.target));
        }));
        let response = open(&origin).await.send(request).await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"x");
        assert_eq!(*lines.borrow(), ["/ one", "/ two"]);
    });
}

#[test]
fn a_failure_shows_whether_the_application_processed_the_request() {
    for (output, phase, is_protocol, sent) in [
        (end(2), RequestPhase::Head, true, false),
        (end(1), RequestPhase::Head, true, false),
        (end(0), RequestPhase::Head, true, true),
        (
            b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            RequestPhase::Head,
            true,
            true,
        ),
        (
            record(STDOUT, "no head\n\n"),
            RequestPhase::Head,
            true,
            true,
        ),
        (record(STDOUT, "A: b\n"), RequestPhase::Head, false, true),
        (Vec::new(), RequestPhase::Head, false, true),
    ] {
        let bytes = output.clone();
        let origin = RawOrigin::start(move |_, mut connection| {
            read_request(&mut connection);
            connection.send(&bytes);
        });
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let failure = idle.send(&origin, get()).await.unwrap_err();
            assert_eq!(failure.phase, phase, "{output:?}");
            assert_eq!(failure.request_sent, sent, "{output:?}");
            match failure.cause {
                FailureCause::Protocol(_) => assert!(is_protocol, "{output:?}"),
                FailureCause::Closed | FailureCause::Io(_) => assert!(!is_protocol, "{output:?}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(idle.len(), 0);
        });
        origin.check();
    }
    let origin = RawOrigin::start(|_, _| {});
    run(async {
        let mut request = get();
        Rc::get_mut(&mut request.template.head).unwrap().params = None;
        let failure = open(&origin).await.send(request).await.unwrap_err();
        assert!(matches!(failure.cause, FailureCause::Request(_)));
        assert!(!failure.request_sent && failure.body.is_some());
    });
}

#[test]
fn a_response_without_its_end_is_broken_off() {
    for output in [
        record(STDOUT, "A: b\n\nx"),
        [record(STDOUT, "Content-Length: 1\n\nx"), record(STDOUT, "")].concat(),
        response_with("Content-Length: 2\n\nx"),
    ] {
        let origin = RawOrigin::start(move |_, mut connection| {
            read_request(&mut connection);
            connection.send(&output);
        });
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let mut body = idle.send(&origin, get()).await.unwrap().body;
            let frame = body.frame().await;
            assert!(matches!(frame, Some(Ok(Frame::Data(data))) if data == "x"));
            let frame = body.frame().await;
            assert!(
                matches!(
                    frame,
                    // The second one is a mistake of the script.
                    Some(Err(BodyError::Disconnected | BodyError::Source(_)))
                ),
                "{frame:?}"
            );
            assert_eq!(idle.len(), 0);
        });
        origin.check();
    }
}

#[test]
fn a_response_that_ends_before_the_request_ends_it() {
    let origin = RawOrigin::start(|_, mut connection| {
        read_head(&mut connection);
        connection.send(response_with("Status: 413\n\nno"));
        // The client sends nothing more before it closes.
        while connection.read_until(b"\0").is_some() {}
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (sender, body) = ChannelBody::pair();
        let response = idle
            .send(&origin, fastcgi_request(Method::POST, body))
            .await
            .unwrap();
        assert_eq!(response.status.as_u16(), 413);
        assert!(matches!(&response.body, Body::Bytes(bytes) if bytes == "no"));
        assert_eq!(idle.len(), 0);
        eventually("the end of the body", || sender.is_closed()).await;
    });
    origin.check();
}

#[test]
fn a_client_that_disconnects_aborts_the_request() {
    let (sender, closed) = channel();
    let origin = RawOrigin::start(move |number, mut connection| {
        read_request(&mut connection);
        if number == 1 {
            connection.send(record(STDOUT, "\nx"));
        }
        let (kind, content) = read_record(&mut connection);
        assert_eq!((kind, content.len()), (ABORT, 0));
        sender.send(connection.is_closed()).unwrap();
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let sending = idle.send(&origin, get());
        assert!(tokio::time::timeout(SHORT, sending).await.is_err());
        assert!(closed.recv().unwrap());
        let response = idle.send(&origin, get()).await.unwrap();
        drop(response);
        assert!(closed.recv().unwrap());
        assert_eq!(idle.len(), 0);
    });
    origin.check();
}

#[test]
fn an_application_that_is_too_slow_is_given_up() {
    for (output, phase) in [("", RequestPhase::Head), ("\nx", RequestPhase::Body)] {
        let origin = RawOrigin::start(move |_, mut connection| {
            read_request(&mut connection);
            connection.send(record(STDOUT, output));
            read_record(&mut connection);
            assert!(connection.is_closed());
        });
        run(async {
            let mut request = get();
            request.template.timeouts = Rc::new(Timeouts {
                first_byte: SHORT,
                read: SHORT,
                ..Timeouts::default()
            });
            match (open(&origin).await.send(request).await, phase) {
                (Err(failure), RequestPhase::Head) => {
                    assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
                    assert_eq!(failure.phase, phase);
                }
                (Ok(response), _) => {
                    let error = collect(response.body).await.unwrap_err();
                    assert!(matches!(error, BodyError::TimedOut), "{error}");
                }
                (other, _) => panic!("{other:?}"),
            }
        });
        origin.check();
    }
}

#[test]
fn a_parked_connection_continues_on_another_runtime_and_detects_its_close() {
    let (close, closes) = channel::<()>();
    let closes = std::sync::Arc::new(std::sync::Mutex::new(closes));
    let origin = RawOrigin::start(move |_, mut connection| {
        for _ in 0..2 {
            read_request(&mut connection);
            connection.send(response_with("\nx"));
        }
        closes.lock().unwrap().recv().unwrap();
    });
    let parked = run(async {
        let idle = Rc::new(IdleConnections::default());
        idle.send(&origin, get()).await.unwrap();
        idle.0.take().remove(0).park().unwrap()
    });
    assert!(parked.is_usable() && parked.is_awaited());
    let parked = run(async {
        let idle = Rc::new(IdleConnections::default());
        let mut connection = parked.resume().unwrap();
        connection.set_connection_return(idle.clone());
        let response = connection.send(get()).await.unwrap();
        assert!(matches!(&response.body, Body::Bytes(bytes) if bytes == "x"));
        idle.0.take().remove(0).park().unwrap()
    });
    assert_eq!(parked.requests(), 2);
    close.send(()).unwrap();
    run(eventually("the end of the connection", || {
        !parked.is_usable()
    }));
    origin.check();
}

#[test]
fn a_connection_over_a_unix_socket_is_resumed_by_the_thread_that_parked_it_and_by_another() {
    async fn send_and_park(mut connection: FastCgiClient) -> ParkedFastCgi {
        let idle = Rc::new(IdleConnections::default());
        connection.set_connection_return(idle.clone());
        let response = connection.send(get()).await.unwrap();
        assert!(matches!(&response.body, Body::Bytes(bytes) if bytes == "x"));
        idle.0.take().remove(0).park().unwrap()
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("application.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serves = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        for _ in 0..4 {
            let mut request = [0; 1024];
            // The request is small and arrives in one piece.
            assert!(socket.read(&mut request).unwrap() > 0);
            socket.write_all(&response_with("\nx")).unwrap();
        }
    });
    let parked = run(async {
        let connection = open_at(Address::Unix(path.as_path().into())).await;
        let parked = send_and_park(connection).await;
        send_and_park(parked.resume().unwrap()).await
    });
    let there = std::thread::spawn(|| run(async { send_and_park(parked.resume().unwrap()).await }));
    let parked = there.join().unwrap();
    assert!(parked.is_usable() && parked.is_awaited());
    // This is another runtime on the first thread.
    let parked = run(async { send_and_park(parked.resume().unwrap()).await });
    assert_eq!(parked.requests(), 4);
    serves.join().unwrap();
    assert!(!parked.is_usable());
}

#[test]
fn it_is_known_over_a_unix_socket_when_the_application_reads_a_request_without_a_body() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("application.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for (has_body, states) in [(false, [Some(false), Some(true)]), (true, [None, None])] {
        let (ask, asked) = channel::<()>();
        let (say, said) = channel::<Option<bool>>();
        let listener = listener.try_clone().unwrap();
        let application = std::thread::spawn(move || {
            let is_read = || {
                ask.send(()).unwrap();
                said.recv().unwrap()
            };
            // The kernel has accepted the connection, the application has not.
            let before = is_read();
            let (mut socket, _) = listener.accept().unwrap();
            // All but the last record, as PHP does.
            let mut request = vec![0; request_len(has_body) - 8];
            socket.read_exact(&mut request).unwrap();
            let after = is_read();
            socket.write_all(&response_with("\nx")).unwrap();
            [before, after]
        });
        run(async {
            let connection = open_at(Address::Unix(path.as_path().into())).await;
            let mut request = get();
            if has_body {
                request.body = "body".into();
            }
            let tick = Duration::from_millis(1);
            let mut timer = Box::pin(tokio::time::sleep(tick));
            let sending = connection.send_observed(request, |cx, sent| {
                while timer.as_mut().poll(cx).is_ready() {
                    if asked.try_recv().is_ok() {
                        say.send(sent.is_read()).unwrap();
                    }
                    timer.as_mut().reset(tokio::time::Instant::now() + tick);
                }
            });
            let response = sending.await.unwrap();
            assert!(matches!(&response.body, Body::Bytes(bytes) if bytes == "x"));
        });
        assert_eq!(application.join().unwrap(), states);
    }
}

/// The length of a request that [`get`] makes.
fn request_len(has_body: bool) -> usize {
    let request = get();
    let params = request.template.head.params.as_ref().unwrap();
    let mut out = Vec::new();
    let mut codec = FastCgiConnection::new(HeadLimits {
        target_bytes: 0,
        head_bytes: 1024,
        fields: 16,
    });
    assert!(codec.send_request(params, false, false, &mut out));
    if has_body {
        codec.send_data_start(4, &mut out);
        out.extend_from_slice(b"body");
    }
    codec.send_end(&mut out);
    out.len()
}

#[test]
fn the_limits_of_a_head_are_those_of_the_group() {
    let head = "Status: 200\r\nA: b\r\n\r\n";
    let bytes = u32::try_from(head.len()).unwrap();
    for (head_bytes, fields, is_accepted) in [
        (bytes + 1, 256, true),
        (bytes, 256, true),
        (bytes - 1, 256, false),
        (1024, 3, true),
        (1024, 2, true),
        (1024, 1, false),
    ] {
        let application = RawOrigin::start(move |_, mut connection| {
            read_request(&mut connection);
            connection.send(response_with(head));
        });
        let to = Origin {
            protocol: Protocol::FastCgi,
            responses: ResponseRules {
                head_bytes,
                fields,
                is_lenient: false,
            },
            ..application.origin()
        };
        run(async {
            let opened = connect(&to, None, &Timeouts::default()).await.unwrap();
            let result = opened.send(get()).await;
            assert_eq!(result.is_ok(), is_accepted, "{head_bytes} {fields}");
        });
    }
}
