//! A connection from accept to its end: PROXY protocol head, TLS handshake, then HTTP.

use std::io;
use std::rc::Rc;

use apus_http::{ConnectionInfo, Peer};

use crate::connection_table::ConnectionSlot;
use crate::h1::{self, ProtocolSwitch};
use crate::h2;
use crate::input::InputBuffer;
use crate::proxy;
use crate::socket::StreamSocket;
use crate::tls;
use crate::transport::Transport;
use crate::worker::{Worker, WorkerListener};

/// What HTTP/2 takes over of a connection before its first frame.
pub(crate) struct Http2Handoff(Transport, Rc<ConnectionInfo>, InputBuffer);

impl Http2Handoff {
    /// Serves the connection to its end.
    pub(crate) async fn serve(
        self: Box<Self>,
        worker: &Worker,
        listener: &WorkerListener,
        slot: &ConnectionSlot,
    ) {
        let Self(transport, info, input) = *self;
        let parts = (transport, info, input);
        let mut connection = Box::new(h2::Http2Connection::new(worker, listener, slot, parts));
        connection.serve().await;
    }
}

/// A connection that was accepted.
pub(crate) struct AcceptedSocket {
    pub(crate) socket: StreamSocket,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
}

/// A connection over which requests come. Its parts are boxed: a connection has many short-lived futures, and
/// allocators serve up to 1 KB the fastest way.
pub(crate) enum EstablishedConnection<'a> {
    Http1(Box<h1::Http1Connection<'a>>),
    Http2(Box<Http2Handoff>),
}

impl EstablishedConnection<'_> {
    /// Serves the connection to its end, or until HTTP/2 starts. HTTP/2 runs on a task of its own, so that its
    /// future does not contain that of HTTP/1.1.
    pub(crate) async fn serve_http1(self) -> Option<Box<Http2Handoff>> {
        let mut connection = match self {
            Self::Http1(connection) => connection,
            Self::Http2(handoff) => return Some(handoff),
        };
        match connection.serve().await {
            Some(ProtocolSwitch::Tunnel(tunnel)) => {
                tunnel(connection.into_duplex()).await;
                None
            }
            Some(ProtocolSwitch::Http2) => {
                let (transport, info, input) = connection.into_parts();
                Some(Box::new(Http2Handoff(transport, info, input)))
            }
            None => None,
        }
    }
}

/// Reads what precedes the first request: the PROXY protocol head, and the TLS handshake.
pub(crate) async fn establish<'a>(
    worker: &'a Worker,
    listener: &'a WorkerListener,
    slot: &'a mut ConnectionSlot,
    accepted: AcceptedSocket,
) -> Option<EstablishedConnection<'a>> {
    let AcceptedSocket {
        mut socket,
        peer,
        local,
    } = accepted;
    let mut info = ConnectionInfo {
        kept: apus_http::KeptValue::default(),
        id: worker.next_id(),
        peer,
        local,
        tls: None,
    };
    let mut early = Vec::new();
    let proxies = listener.proxy_protocol_from();
    if proxies.iter().any(|network| network.contains(&peer)) {
        slot.set_reading_head(&worker.clock, worker.limits().handshake_timeout);
        match proxy::read_head(&mut socket, slot, &mut info).await {
            Ok(rest) => early = rest,
            Err(error) => {
                count_failure(worker, &error);
                tracing::debug!(%peer, %error, "no valid PROXY protocol head");
                return None;
            }
        }
        if let Some(client) = info.peer.ip()
            && info.peer != peer
            && !slot.count_client(client, worker.limits().connections_per_address)
        {
            worker.counters.refused.add(1);
            tracing::debug!(%client, %peer, "refused a connection: too many of its client");
            return None;
        }
    }
    let transport = match listener.tls() {
        None => Transport::Clear(socket),
        Some(settings) => {
            slot.set_reading_head(&worker.clock, worker.limits().handshake_timeout);
            // Boxed: the future of a connection in clear text does not contain that of a handshake.
            let handshake = Box::pin(tls::accept(&settings, socket, slot, &worker.buffers, early));
            early = Vec::new();
            match handshake.await {
                Ok((stream, tls)) => {
                    worker.counters.handshakes.add(1);
                    info.tls = Some(tls);
                    Transport::Tls(stream)
                }
                Err(error) => {
                    worker.counters.handshake_failures.add(1);
                    count_failure(worker, &error);
                    tracing::debug!(%peer, %error, "TLS handshake failed");
                    return None;
                }
            }
        }
    };
    let is_http2 = matches!(&transport, Transport::Tls(stream) if stream.is_http2());
    Some(if is_http2 {
        let input = InputBuffer::new(early);
        EstablishedConnection::Http2(Box::new(Http2Handoff(transport, Rc::new(info), input)))
    } else {
        let connection = h1::Http1Connection::new(worker, listener, slot, transport, info, early);
        EstablishedConnection::Http1(Box::new(connection))
    })
}

fn count_failure(worker: &Worker, error: &io::Error) {
    if error.kind() == io::ErrorKind::TimedOut {
        worker.counters.timeouts.add(1);
    }
}
