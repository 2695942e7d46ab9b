//! A connection from accept to its end: PROXY protocol head, TLS handshake, then HTTP.

use std::io;
use std::rc::Rc;

use apus_http::{ConnectionInfo, Glitch, Peer};
use apus_transport::{InputBuffer, StreamSocket, Transport};

use crate::alt_svc::AltSvc;
use crate::connection_table::ConnectionSlot;
use crate::h1::{self, ProtocolSwitch};
use crate::h2::Http2Handoff;
use crate::proxy;
use crate::tls;
use crate::worker::{Worker, WorkerListener};

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
    /// Serves the connection to its end, or until HTTP/2 starts. HTTP/2 runs on a separate task, so that its
    /// future does not contain the future of HTTP/1.1.
    pub(crate) async fn serve_http1(self, worker: &Worker) -> Option<Box<Http2Handoff>> {
        let mut connection = match self {
            Self::Http1(connection) => connection,
            Self::Http2(handoff) => return Some(handoff),
        };
        let _open = worker.counters.h1_open.count_one();
        match connection.serve().await {
            Some(ProtocolSwitch::Tunnel(tunnel)) => {
                tunnel(connection.into_duplex()).await;
                None
            }
            Some(ProtocolSwitch::Http2) => {
                let (transport, info, input, alt_svc) = connection.into_parts();
                Some(Box::new(Http2Handoff {
                    transport,
                    info,
                    input,
                    alt_svc,
                }))
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
        if worker.is_refused(info.peer.ip()) {
            return None;
        }
        slot.set_client(info.peer.ip());
        if let Some(client) = info.peer.ip()
            && info.peer != peer
            && !slot.count_client(client, worker.limits().connections_per_address)
        {
            worker.counters.refused.add(1);
            tracing::debug!(%client, %peer, "refused a connection: too many of its client");
            return None;
        }
    }
    let mut alt_svc = AltSvc::default();
    let transport = match listener.tls() {
        None => Transport::Clear(socket),
        Some(settings) => {
            slot.set_reading_head(&worker.clock, worker.limits().handshake_timeout);
            // Boxed: the future of a connection in clear text does not contain the future of a handshake.
            let client = tls::TlsClient {
                socket,
                peer: info.peer,
                early: std::mem::take(&mut early),
            };
            let handshake = Box::pin(tls::accept(&settings, client, slot, &worker.buffers));
            match handshake.await {
                Ok(tls::AcceptedTls {
                    transport,
                    info: tls,
                    has_http3,
                }) => {
                    worker.counters.handshakes.add(1);
                    info.tls = Some(tls);
                    alt_svc = AltSvc::new(has_http3);
                    transport
                }
                Err(error) => {
                    worker.counters.handshake_failures.add(1);
                    count_failure(worker, &error);
                    // A client that goes without a word, as a port scan or a browser that prepares a connection, or is slow, breaks
                    // nothing.
                    if error.kind() == io::ErrorKind::InvalidData {
                        worker.note_glitch(&info.peer, Glitch::Handshake);
                    }
                    tracing::debug!(%peer, %error, "TLS handshake failed");
                    return None;
                }
            }
        }
    };
    Some(if transport.is_http2() {
        EstablishedConnection::Http2(Box::new(Http2Handoff {
            transport,
            info: Rc::new(info),
            input: InputBuffer::new(early),
            alt_svc,
        }))
    } else {
        let parts = (transport, info, alt_svc);
        let connection = h1::Http1Connection::new(worker, listener, slot, parts, early);
        EstablishedConnection::Http1(Box::new(connection))
    })
}

fn count_failure(worker: &Worker, error: &io::Error) {
    if error.kind() == io::ErrorKind::TimedOut {
        worker.counters.timeouts.add(1);
    }
}
