//! `TestTransport`: sends the requests of a test by a call or over a socket.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_client::{
    Address, ClientRequest, ClientRequestHead, Origin, Protocol, ProxyHead, RequestFailure,
    RequestTemplate, ResponseRules, Timeouts, connect,
};
use apus_http::{
    Body, BodyError, BodyStream, Completion, ConnectionInfo, Duplex, Extensions, Frame, Headers,
    Method, Peer, Request, RequestParts, Response, ResponseObservers, ResponseOutcome, Service,
    StatusCode, Target, Version,
};
use bytes::Bytes;

use super::pipe;

/// The transport of requests to the application.
pub(super) enum TestTransport {
    InProcess {
        service: Rc<dyn Service>,
        requests: Cell<u64>,
    },
    Socket(SocketAddr),
}

/// A request to be sent.
pub(super) struct OutgoingTestRequest {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: Headers,
    pub(super) body: Body,
}

/// The head of a response, and its body.
pub(super) struct IncomingTestResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Headers,
    pub(super) body: Body,
    /// The connection, if the response switched protocols.
    #[cfg_attr(
        not(feature = "websocket"),
        expect(dead_code, reason = "only a WebSocket goes on with it")
    )]
    pub(super) tunnel: Option<Box<dyn Duplex>>,
}

impl TestTransport {
    pub(super) fn in_process(service: Rc<dyn Service>) -> Self {
        Self::InProcess {
            service,
            requests: Cell::new(0),
        }
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// The request is not valid, or there is no response.
    pub(super) async fn exchange(
        &self,
        request: OutgoingTestRequest,
    ) -> Result<IncomingTestResponse, TestExchangeError> {
        match self {
            Self::InProcess { service, requests } => {
                requests.set(requests.get().saturating_add(1));
                call(&**service, request, requests.get()).await
            }
            Self::Socket(address) => send(*address, request).await,
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum TestExchangeError {
    /// The test wrote no request target (RFC 9112 section 3.2).
    Target,
    /// The connection to the socket, or the request over it, failed.
    Request(RequestFailure),
}

impl fmt::Display for TestExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target => f.write_str("this is no request target"),
            Self::Request(failure) => failure.fmt(f),
        }
    }
}

async fn call(
    service: &dyn Service,
    mut outgoing: OutgoingTestRequest,
    number: u64,
) -> Result<IncomingTestResponse, TestExchangeError> {
    let target =
        Target::parse(&outgoing.method, &outgoing.target).map_err(|_| TestExchangeError::Target)?;
    let is_head = outgoing.method == Method::HEAD;
    if !outgoing.headers.contains("host") {
        // This value is always valid.
        let _ = outgoing.headers.try_insert("host", "localhost");
    }
    match outgoing.body.len() {
        Some(0) => {}
        Some(len) => {
            let _ = outgoing
                .headers
                .try_insert("content-length", len.to_string());
        }
        None => {
            let _ = outgoing.headers.try_insert("transfer-encoding", "chunked");
        }
    }
    let local = SocketAddr::from(([127, 0, 0, 1], 80));
    let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
    let started = Instant::now();
    let future = service.call(Request::new(RequestParts {
        method: outgoing.method,
        target,
        version: Version::HTTP_11,
        headers: outgoing.headers,
        body: outgoing.body,
        connection: Rc::new(ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id: number,
            peer: Peer::Ip(peer),
            local: Peer::Ip(local),
            tls: None,
        }),
        extensions: Extensions::new(),
    }));
    let mut response = future.wait().await;
    response.remove_internal_of_origin();
    let tunnel = response.take_tunnel().map(|tunnel| {
        let (ours, theirs) = pipe::pair();
        tokio::task::spawn_local(tunnel(Box::new(theirs)));
        Box::new(ours) as Box<dyn Duplex>
    });
    let body = if is_head {
        Body::Empty
    } else {
        response.take_body()
    };
    let headers = response.headers().clone();
    Ok(IncomingTestResponse {
        status: response.status(),
        headers,
        body: observed_body(body, &mut response, started),
        tunnel,
    })
}

/// A body that calls the observers of the response at its end.
fn observed_body(body: Body, response: &mut Response, started: Instant) -> Body {
    if !response.is_observed() {
        return body;
    }
    Body::stream(ObservedBody {
        body,
        observers: response.take_observers(),
        completion: Completion {
            status: response.status(),
            body_bytes: 0,
            bytes: 0,
            duration: Duration::ZERO,
            first_byte: None,
            outcome: ResponseOutcome::ClientGone,
            origin: response.origin().cloned(),
            cache: None,
            fields: None,
        },
        started,
    })
}

struct ObservedBody {
    body: Body,
    observers: ResponseObservers,
    completion: Completion,
    started: Instant,
}

impl BodyStream for ObservedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.body.poll_frame(cx);
        let completion = &mut self.completion;
        match &polled {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => {
                completion.body_bytes = completion.body_bytes.saturating_add(bytes.len() as u64);
            }
            Poll::Ready(Some(Ok(Frame::File(range)))) => {
                completion.body_bytes = completion.body_bytes.saturating_add(range.len);
            }
            Poll::Ready(Some(Err(_))) => completion.outcome = ResponseOutcome::SourceFailed,
            Poll::Ready(None) => completion.outcome = ResponseOutcome::Complete,
            _ => {}
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.body.len()
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        self.completion.bytes = self.completion.body_bytes;
        self.completion.duration = self.started.elapsed();
        std::mem::take(&mut self.observers).notify(&self.completion);
    }
}

async fn send(
    address: SocketAddr,
    mut outgoing: OutgoingTestRequest,
) -> Result<IncomingTestResponse, TestExchangeError> {
    let origin = Origin {
        address: Address::Ip(address),
        tls: None,
        protocol: Protocol::Http1,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    };
    let timeouts = Rc::new(Timeouts::default());
    let connection = connect(&origin, None, &timeouts)
        .await
        .map_err(TestExchangeError::Request)?;
    let authority = match outgoing.headers.get_str("host") {
        Some(host) => host.into(),
        None => address.to_string().into_boxed_str(),
    };
    let upgrade = outgoing.headers.get_str("upgrade").map(Box::from);
    for name in ["host", "upgrade", "connection"] {
        outgoing.headers.remove(name);
    }
    let response = connection
        .send(ClientRequest {
            template: RequestTemplate {
                head: Rc::new(ClientRequestHead {
                    method: outgoing.method,
                    scheme: "http",
                    authority,
                    target: outgoing.target.into(),
                    headers: outgoing.headers,
                    upgrade,
                    te_trailers: false,
                    expects_continue: false,
                    params: None,
                }),
                interim: None,
                timeouts,
                stderr: None,
            },
            body: outgoing.body,
        })
        .await
        .map_err(TestExchangeError::Request)?;
    Ok(IncomingTestResponse {
        status: response.status,
        headers: response.headers,
        body: response.body,
        tunnel: response.tunnel,
    })
}

/// The bytes of a frame, read if they are in a file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn bytes_of(frame: Frame) -> Result<Bytes, BodyError> {
    match frame {
        Frame::Data(bytes) => Ok(bytes),
        Frame::Trailers(_) => Ok(Bytes::new()),
        Frame::File(range) => {
            let len = usize::try_from(range.len).map_err(io::Error::other)?;
            let mut bytes = vec![0; len];
            range.file.read_exact_at(&mut bytes, range.offset)?;
            Ok(bytes.into())
        }
    }
}

impl fmt::Debug for TestTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProcess { .. } => f.write_str("InProcess"),
            Self::Socket(address) => address.fmt(f),
        }
    }
}
