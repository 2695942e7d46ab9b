//! Opening a connection to an origin: socket, PROXY protocol head, TLS handshake; or QUIC.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::time::Duration;

use apus_codec::proxy_protocol;
use apus_http::Body;
use apus_transport::descriptors::DescriptorPermit;
use apus_transport::{ReadInterestSocket, StreamSocket, Transport, descriptors};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

#[cfg(feature = "http3")]
use crate::h3;
use crate::{
    Address, ClientRequest, FailureCause, FastCgiClient, Http1Client, MultiplexedClient, Origin,
    OriginExchange, Protocol, ProxyHead, RequestFailure, RequestPhase, RequestTemplate, Timeouts,
    h2,
};

/// A connection to an origin.
#[derive(Debug)]
pub enum OriginConnection {
    /// One request at a time.
    Http1(Http1Client),
    /// Many requests at once, over HTTP/2 or HTTP/3.
    Multiplexed(MultiplexedClient),
    /// One request at a time, to an application.
    FastCgi(FastCgiClient),
}

impl OriginConnection {
    /// Sends a request, for the response or a [`RequestFailure`].
    pub fn send(self, request: ClientRequest) -> OriginExchange {
        self.send_attempt(&request.template, request.body)
    }

    /// Does the same as [`Self::send`] for one of several attempts.
    pub fn send_attempt(self, template: &RequestTemplate, body: Body) -> OriginExchange {
        match self {
            Self::Http1(connection) => connection.send_attempt(template, body),
            Self::Multiplexed(connection) => connection.send_attempt(template, body),
            Self::FastCgi(connection) => connection.send_attempt(template, body),
        }
    }
}

/// Opens a connection. `client` is the client that it is for, if the origin expects a PROXY protocol head;
/// without one the head marks the connection as the proxy's own, as for a health check.
///
/// # Errors
/// The phase is [`RequestPhase::Connect`] or [`RequestPhase::Tls`].
pub async fn connect(
    origin: &Origin,
    client: Option<proxy_protocol::ProxyHeader>,
    timeouts: &Timeouts,
) -> Result<OriginConnection, RequestFailure> {
    // Before a socket is opened: over QUIC the connections of a worker share one.
    #[cfg(feature = "http3")]
    if origin.protocol == Protocol::Http3 {
        let opened = h3::connect(origin, timeouts).await;
        return opened.map(OriginConnection::Multiplexed);
    }
    let mut socket = within(
        timeouts.connect,
        RequestPhase::Connect,
        open(&origin.address),
    )
    .await?;
    // These are the first bytes of the connection, in clear text also under TLS: the receiver reads them before it
    // passes the connection to TLS.
    if let Some(version) = origin.proxy_head.version() {
        let mut head = Vec::with_capacity(128);
        proxy_protocol::write(version, &client.unwrap_or_default(), &mut head);
        within(
            timeouts.connect,
            RequestPhase::Connect,
            write_all(&mut socket, &head),
        )
        .await?;
    }
    let rules = origin.responses;
    let Some(tls) = &origin.tls else {
        let transport = Transport::Clear(socket);
        // Without ALPN there is nothing to negotiate: HTTP/2 begins with prior knowledge (RFC 9113 section 3.3).
        return Ok(match origin.protocol {
            Protocol::Http2 => OriginConnection::Multiplexed(h2::start(transport, timeouts, rules)),
            Protocol::FastCgi => OriginConnection::FastCgi(FastCgiClient::new(transport, rules)),
            // HTTP/3 was handled above.
            _ => OriginConnection::Http1(Http1Client::new(transport, rules)),
        });
    };
    let offered = match origin.protocol {
        Protocol::Http1 => &[HTTP1][..],
        Protocol::Http2 => &[HTTP2],
        // In descending order of preference (RFC 7301 section 3.1).
        Protocol::Auto => &[HTTP2, HTTP1],
        // FastCGI has no registered name, and HTTP/3 was handled above.
        _ => &[],
    };
    let handshake = tls.handshake(socket, offered);
    // Boxed, so that the future of a connection in clear text is smaller.
    let transport = within(timeouts.tls, RequestPhase::Tls, Box::pin(handshake)).await?;
    match (transport.is_http2(), origin.protocol) {
        (_, Protocol::FastCgi) => Ok(OriginConnection::FastCgi(FastCgiClient::new(
            transport, rules,
        ))),
        (true, _) => Ok(OriginConnection::Multiplexed(h2::start(
            transport, timeouts, rules,
        ))),
        // A server without ALPN completes the handshake, and would then read the preface of HTTP/2 as a request of
        // HTTP/1.1.
        (false, Protocol::Http2) => Err(RequestFailure::unsent(
            RequestPhase::Tls,
            FailureCause::Protocol("the origin does not speak HTTP/2".into()),
        )),
        (false, _) => Ok(OriginConnection::Http1(Http1Client::new(transport, rules))),
    }
}

/// Protocols as ALPN names them (RFC 7301, RFC 9113 section 3.1).
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// How long a connection is silent before the kernel probes the other end, and the time between two probes.
// Linux would probe after two hours (`tcp_keepalive_time`). Until then a machine that is down looks like an idle
// connection to a pool, and like a stream that is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);

/// The time between two attempts to connect to a Unix socket whose queue is full.
const BUSY_AGAIN: Duration = Duration::from_millis(10);

impl ProxyHead {
    fn version(self) -> Option<proxy_protocol::Version> {
        match self {
            Self::None => None,
            Self::V1 => Some(proxy_protocol::Version::V1),
            Self::V2 => Some(proxy_protocol::Version::V2),
        }
    }
}

/// The result of a step, with a time limit.
async fn within<T>(
    time: Duration,
    phase: RequestPhase,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, RequestFailure> {
    let cause = match tokio::time::timeout(time, step).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => match (error.kind(), phase) {
            (io::ErrorKind::UnexpectedEof, _) => FailureCause::Closed,
            // An error of rustls about the origin.
            (io::ErrorKind::InvalidData, RequestPhase::Tls) => FailureCause::Protocol(error.into()),
            _ if descriptors::is_exhausted(&error) => FailureCause::NoDescriptors,
            _ => FailureCause::Io(error),
        },
        Err(_) => FailureCause::TimedOut,
    };
    Err(RequestFailure::unsent(phase, cause))
}

async fn open(address: &Address) -> io::Result<StreamSocket> {
    // Before the socket, which may have to wait until idle clients are closed for its descriptor.
    let descriptor = DescriptorPermit::of_origin().await?;
    match address {
        Address::Ip(address) => {
            let socket = TcpStream::connect(address).await?;
            // The connection works without these options, too.
            // With Nagle's algorithm, the end of a request that takes two writes waits for the acknowledgement of its
            // beginning, which the other end may delay by 40 ms.
            let _ = socket.set_nodelay(true);
            let keep_alive = TcpKeepalive::new()
                .with_time(KEEP_ALIVE)
                .with_interval(KEEP_ALIVE_AGAIN);
            let _ = SockRef::from(&socket).set_tcp_keepalive(&keep_alive);
            Ok(StreamSocket::Tcp(socket, descriptor))
        }
        Address::Unix(path) => loop {
            match ReadInterestSocket::connect(path) {
                Ok(socket) => return Ok(StreamSocket::Unix(socket, descriptor)),
                // The queue of the listener is full. Over TCP the kernel would try again, too.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BUSY_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        },
    }
}

async fn write_all(socket: &mut StreamSocket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(bytes)])).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
