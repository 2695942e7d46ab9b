//! An engine in this process, and clients that send exactly the bytes of a test.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use apus_http::{Body, Frame, Glitch, Request, Response, ResponseFuture, StatusCode};
use apus_http::{ServiceFactory, service_fn};
use apus_net::{
    ClientFilter, ClientRefusal, Engine, EnginePlan, Limits, ListenAddress, ListenerPlan,
    WorkerTotals,
};
use apus_testkit::{collect, eventually, frames, wait_until};
use bytes::Bytes;

/// How long a test waits for what must come. Long, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running engine.
pub(crate) struct Server {
    pub(crate) engine: Engine,
}

impl Server {
    /// One worker with the default limits.
    pub(crate) fn start(service: Arc<dyn ServiceFactory>) -> Self {
        Self::with_limits(Limits::default(), service)
    }

    pub(crate) fn with_limits(limits: Limits, service: Arc<dyn ServiceFactory>) -> Self {
        Self::run(EnginePlan {
            limits,
            ..plan(vec![ListenerPlan::new(local(), service)])
        })
    }

    pub(crate) fn run(plan: EnginePlan) -> Self {
        Self {
            engine: Engine::start(plan).unwrap(),
        }
    }

    /// The address of the first TCP listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    /// The addresses of the TCP listeners.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let tcp = |address: &ListenAddress| match address {
            ListenAddress::Tcp { address, .. } => Some(*address),
            _ => None,
        };
        self.engine
            .status()
            .listening
            .iter()
            .filter_map(tcp)
            .collect()
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        Client::new(connect(self.address()).unwrap())
    }

    pub(crate) fn totals(&self) -> WorkerTotals {
        self.engine.status().totals()
    }

    /// Waits until the counters satisfy a condition.
    pub(crate) fn wait_for(&self, what: &str, reached: impl Fn(&WorkerTotals) -> bool) {
        wait_until(what, || reached(&self.totals()));
    }

    /// Sends a request over a new connection and checks that it gets status 200.
    pub(crate) fn assert_serves(&self) {
        let mut client = self.connect();
        client.send("GET /well HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_response().status, 200);
    }

    pub(crate) fn stop(&self, within: Duration) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(self.engine.stop(within));
    }
}

/// Runs the test of this name alone in a separate process. Returns whether this is that process, in
/// which the test continues.
pub(crate) fn in_own_process(test: &str) -> bool {
    in_own_process_with(test, &mut Command::new(std::env::current_exe().unwrap()))
}

/// As [`in_own_process`], with a command to which the test's name is added.
pub(crate) fn in_own_process_with(test: &str, command: &mut Command) -> bool {
    const CHILD: &str = "APUS_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let command = command
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1");
    let output = command.output().unwrap();
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
    false
}

/// A plan of one worker.
pub(crate) fn plan(listeners: Vec<ListenerPlan>) -> EnginePlan {
    EnginePlan::new(NonZeroUsize::MIN, listeners)
}

/// A free port of 127.0.0.1.
pub(crate) fn local() -> ListenAddress {
    tcp("127.0.0.1:0")
}

pub(crate) fn tcp(address: &str) -> ListenAddress {
    ListenAddress::tcp(address.parse::<SocketAddr>().unwrap())
}

pub(crate) fn service<F>(call: F) -> Arc<dyn ServiceFactory>
where
    F: Fn(Request) -> ResponseFuture + Clone + Send + Sync + 'static,
{
    Arc::new(move || service_fn(call.clone()))
}

/// Responds with the path.
pub(crate) fn paths() -> Arc<dyn ServiceFactory> {
    service(|request| ok(request.path().to_owned()).into())
}

/// Responds with the whole body of the request, or 400 with the error of reading it.
pub(crate) fn collector() -> Arc<dyn ServiceFactory> {
    service(|mut request| {
        ResponseFuture::later(async move {
            match collect(&mut request.take_body()).await {
                Ok(body) => ok(body),
                Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        })
    })
}

pub(crate) fn ok(body: impl Into<Body>) -> Response {
    Response::text(StatusCode::OK, body)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Connects, with a limit on every read and write.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.connect_timeout(&address.into(), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// A client over any stream.
pub(crate) struct Client<S> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

/// A response as the client got it.
#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    /// Status line and field lines.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The trailer section as it came.
    pub(crate) trailers: String,
}

impl ReceivedResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        text(&self.body)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self.stream.flush().unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> ReceivedResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.read_response()
    }

    /// Sends a request without a body that must not be repeated.
    pub(crate) fn try_post(&mut self) -> io::Result<ReceivedResponse> {
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        self.stream.write_all(request)?;
        self.try_response(false)
    }

    /// Reads a final response to a method other than HEAD.
    pub(crate) fn read_response(&mut self) -> ReceivedResponse {
        self.try_response(false).expect("a response")
    }

    /// Reads a response that has no body whatever its fields say.
    pub(crate) fn read_head_response(&mut self) -> ReceivedResponse {
        self.try_response(true).expect("a response")
    }

    /// Reads a response.
    pub(crate) fn try_response(&mut self, headless: bool) -> io::Result<ReceivedResponse> {
        let head = text(&self.until(b"\r\n\r\n")?);
        let status = head
            .get(9..12)
            .and_then(|code| code.parse().ok())
            .expect("a status line");
        let mut received = ReceivedResponse {
            status,
            head,
            body: Vec::new(),
            trailers: String::new(),
        };
        if headless || status < 200 || status == 204 || status == 304 {
            return Ok(received);
        }
        if received.field("transfer-encoding") == Some("chunked") {
            loop {
                let line = text(&self.until(b"\r\n")?);
                let size = usize::from_str_radix(line.trim(), 16).expect("a chunk size");
                if size == 0 {
                    break;
                }
                received.body.extend(self.exactly(size)?);
                assert_eq!(self.exactly(2)?, b"\r\n");
            }
            loop {
                let line = text(&self.until(b"\r\n")?);
                if line == "\r\n" {
                    break;
                }
                received.trailers.push_str(&line);
            }
        } else if let Some(length) = received.field("content-length") {
            received.body = self.exactly(length.parse().expect("a length"))?;
        } else {
            received.body = self.rest()?;
        }
        Ok(received)
    }

    pub(crate) fn exactly(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < len {
            self.fill()?;
        }
        Ok(self.unread.drain(..len).collect())
    }

    fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self
                .unread
                .windows(end.len())
                .position(|window| window == end)
            {
                return Ok(self.unread.drain(..at + end.len()).collect());
            }
            self.fill()?;
        }
    }

    /// All that comes until the stream ends in order.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = std::mem::take(&mut self.unread);
        self.stream.read_to_end(&mut rest)?;
        Ok(rest)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.unread.extend_from_slice(&buffer[..read]);
                Ok(())
            }
        }
    }

    /// The server ended the connection in order and sent nothing more.
    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(text(&self.rest().expect("an end in order")), "");
    }

    /// The server ended the connection, in order or by a reset, and sent nothing more.
    pub(crate) fn assert_cut(&mut self) {
        let mut rest = std::mem::take(&mut self.unread);
        if let Err(error) = self.stream.read_to_end(&mut rest) {
            assert_ne!(
                error.kind(),
                io::ErrorKind::WouldBlock,
                "the connection is still open"
            );
        }
        assert_eq!(text(&rest), "");
    }
}

/// Responds once the flag is set.
pub(crate) fn waiting_for(go: &Arc<AtomicBool>) -> Arc<dyn ServiceFactory> {
    let go = Arc::clone(go);
    service(move |_| {
        let go = Arc::clone(&go);
        ResponseFuture::later(async move {
            eventually("the test goes on", || go.load(Ordering::SeqCst)).await;
            ok("finished")
        })
    })
}

/// Panics at each stage of a response.
pub(crate) fn panicking() -> Arc<dyn ServiceFactory> {
    service(|request| match request.path() {
        "/call" => panic!("on purpose, in call"),
        "/future" => ResponseFuture::later(async { panic!("on purpose, in the future") }),
        "/late" => ResponseFuture::later(async {
            tokio::task::yield_now().await;
            panic!("on purpose, in the future, later")
        }),
        "/stream" => {
            let mut first = true;
            ok(frames(None, move |_| {
                assert!(std::mem::take(&mut first), "on purpose, in the stream");
                Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(b"half")))))
            }))
            .into()
        }
        path => ok(path.to_owned()).into(),
    })
}

/// Sets a flag when a step of the test ends, even by a panic, so that no thread waits for it in vain.
pub(crate) struct EndFlag<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndFlag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A filter of clients that refuses none, and remembers what they do wrong.
#[derive(Default)]
pub(crate) struct GlitchRecorder(Mutex<Vec<Glitch>>);

impl GlitchRecorder {
    /// Waits until just this was noted.
    pub(crate) fn wait_for(&self, expected: &[Glitch]) {
        let noted = || self.0.lock().unwrap().clone();
        wait_until("it is noted", || noted().len() >= expected.len());
        assert_eq!(noted(), expected);
    }
}

impl ClientFilter for GlitchRecorder {
    fn refuses(&self, _: IpAddr) -> Option<ClientRefusal> {
        None
    }

    fn note(&self, client: IpAddr, glitch: Glitch) {
        assert!(client.is_loopback());
        self.0.lock().unwrap().push(glitch);
    }
}
