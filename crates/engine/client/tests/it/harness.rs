//! Scripted origins over HTTP/1.1, and connections to them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientResponse, ConnectionReturn, Http1Client,
    Origin, OriginConnection, Protocol, ProxyHead, RequestFailure, RequestTemplate, ResponseRules,
    Timeouts, connect,
};
use apus_http::{Body, BodyError, BodyStream, Frame, Headers, Method};

/// How long a test waits for what must come. Long, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An origin. It serves each connection on a separate thread.
pub(crate) struct RawOrigin {
    pub(crate) address: SocketAddr,
    failures: Receiver<String>,
}

/// The origin's end of a connection.
pub(crate) struct OriginStream {
    pub(crate) socket: TcpStream,
    unread: Vec<u8>,
}

impl RawOrigin {
    /// `serve` gets each connection, and its number from 0.
    pub(crate) fn start(serve: impl Fn(usize, OriginStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (failed, failures) = channel();
        thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let (serve, failed) = (serve.clone(), failed.clone());
                let accepted = OriginStream::new(socket.unwrap());
                thread::spawn(move || {
                    let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        serve(number, accepted);
                    }));
                    if served.is_err() {
                        let _ = failed.send(format!("connection {number}"));
                    }
                });
            }
        });
        Self { address, failures }
    }

    /// An origin that responds to each request of a connection with the next of these, and closes then.
    pub(crate) fn responding(responses: &[&[u8]]) -> Self {
        let responses: Vec<Vec<u8>> = responses.iter().map(|response| response.to_vec()).collect();
        Self::start(move |_, mut connection| {
            for response in &responses {
                if connection.read_request().is_none() {
                    return;
                }
                connection.send(response);
            }
        })
    }

    /// Panics if the origin did.
    pub(crate) fn check(&self) {
        if let Ok(failed) = self.failures.try_recv() {
            panic!("the origin panicked: {failed}");
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        origin(Address::Ip(self.address))
    }
}

impl OriginStream {
    fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            unread: Vec::new(),
        }
    }

    /// The next request with its body, if that has a length; `None` at the end.
    pub(crate) fn read_request(&mut self) -> Option<String> {
        let head = self.read_head()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let body = self.read_exact(length);
        Some(head + &String::from_utf8(body).unwrap())
    }

    /// The next head, with its empty line; `None` at the end.
    pub(crate) fn read_head(&mut self) -> Option<String> {
        self.read_until(b"\r\n\r\n")
    }

    /// All up to these bytes, and they; `None` at the end.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            let found = self.unread.windows(end.len()).position(|part| part == end);
            if let Some(at) = found {
                let rest = self.unread.split_off(at + end.len());
                let part = std::mem::replace(&mut self.unread, rest);
                return Some(String::from_utf8(part).unwrap());
            }
            if !self.read_some() {
                return None;
            }
        }
    }

    pub(crate) fn read_exact(&mut self, len: usize) -> Vec<u8> {
        while self.unread.len() < len {
            assert!(self.read_some(), "the client closed");
        }
        let rest = self.unread.split_off(len);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Whether the client closes or resets the connection and sends nothing before.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && !self.read_some()
    }

    fn read_some(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        let read = match self.socket.read(&mut bytes) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error}"),
        };
        self.unread.extend_from_slice(&bytes[..read]);
        read > 0
    }

    /// Sends bytes; a client that has closed does not get them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(bytes.as_ref());
    }

    /// Sends bytes one at a time.
    pub(crate) fn send_slowly(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send([*byte]);
            thread::yield_now();
        }
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(&self.socket);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Ends this side.
    pub(crate) fn end(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// HTTP/1.1 in clear text.
pub(crate) fn origin(address: Address) -> Origin {
    Origin {
        address,
        tls: None,
        protocol: Protocol::Http1,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    }
}

/// Runs a future as on the thread of a worker.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(PATIENCE * 2, future).await };
    local.block_on(&runtime, limited).expect("took too long")
}

/// A pool of idle connections.
#[derive(Default)]
pub(crate) struct IdleConnections {
    connections: RefCell<Vec<Http1Client>>,
    pub(crate) opened: Cell<usize>,
}

impl ConnectionReturn<Http1Client> for IdleConnections {
    fn return_connection(&self, connection: Http1Client) {
        self.connections.borrow_mut().push(connection);
    }
}

impl IdleConnections {
    /// Sends a request over the connection that was returned last, or a new one.
    pub(crate) async fn send(
        self: &Rc<Self>,
        origin: &Origin,
        request: ClientRequest,
    ) -> Result<ClientResponse, RequestFailure> {
        let mut connection = match self.take() {
            Some(connection) => connection,
            None => self.open(origin).await?,
        };
        connection.set_connection_return(self.clone());
        connection.send(request).await
    }

    pub(crate) async fn open(&self, origin: &Origin) -> Result<Http1Client, RequestFailure> {
        self.opened.set(self.opened.get() + 1);
        match connect(origin, None, &Timeouts::default()).await? {
            OriginConnection::Http1(connection) => Ok(connection),
            other => panic!("another protocol than requested: {other:?}"),
        }
    }

    /// An idle connection.
    pub(crate) fn take(&self) -> Option<Http1Client> {
        self.connections.borrow_mut().pop()
    }

    /// How many connections are idle.
    pub(crate) fn len(&self) -> usize {
        self.connections.borrow().len()
    }
}

/// Sends one GET to this origin over a new connection.
pub(crate) async fn get_once(origin: &Origin) -> Result<ClientResponse, RequestFailure> {
    Rc::new(IdleConnections::default())
        .send(origin, get("/"))
        .await
}

pub(crate) fn head(method: Method, target: &str) -> ClientRequestHead {
    ClientRequestHead {
        method,
        scheme: "http",
        authority: "origin.test".into(),
        target: target.into(),
        headers: Headers::new(),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
        params: None,
    }
}

pub(crate) fn get(target: &str) -> ClientRequest {
    request(head(Method::GET, target), Body::Empty)
}

pub(crate) fn post(body: impl Into<Body>) -> ClientRequest {
    request(head(Method::POST, "/"), body.into())
}

pub(crate) fn request(head: ClientRequestHead, body: Body) -> ClientRequest {
    ClientRequest {
        template: RequestTemplate {
            head: Rc::new(head),
            interim: None,
            timeouts: Rc::new(Timeouts::default()),
            stderr: None,
        },
        body,
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All of a body: its data, and its trailer section.
pub(crate) async fn collect(mut body: Body) -> Result<(Vec<u8>, Option<Headers>), BodyError> {
    let (mut data, mut trailers) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame? {
            Frame::Data(bytes) => data.extend_from_slice(&bytes),
            Frame::Trailers(section) => trailers = Some(section),
            Frame::File(_) => panic!("a file came out of a connection"),
        }
    }
    Ok((data, trailers))
}

/// A body whose frames a test sends through a channel.
pub(crate) struct ChannelBody {
    frames: tokio::sync::mpsc::UnboundedReceiver<Result<Frame, BodyError>>,
}

impl ChannelBody {
    pub(crate) fn pair() -> (
        tokio::sync::mpsc::UnboundedSender<Result<Frame, BodyError>>,
        Body,
    ) {
        let (sender, frames) = tokio::sync::mpsc::unbounded_channel();
        (sender, Body::stream(Self { frames }))
    }
}

impl BodyStream for ChannelBody {
    fn poll_frame(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        self.frames.poll_recv(cx)
    }
}
