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

/// A connection whose client speaks HTTP/2, before its first frame.
pub(crate) struct Http2Handoff {
    slot: ConnectionSlot,
    parts: (Transport, Rc<ConnectionInfo>, InputBuffer),
}

impl Http2Handoff {
    /// Serves the connection to its end.
    pub(crate) async fn serve(self, worker: &Worker, listener: &WorkerListener) {
        let Self { slot, parts } = self;
        let mut connection = Box::new(h2::Http2Connection::new(worker, listener, &slot, parts));
        connection.serve().await;
    }
}

/// A connection that was accepted.
pub(crate) struct AcceptedSocket {
    pub(crate) socket: StreamSocket,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
}

/// Serves a connection to its end, or until HTTP/2 starts. HTTP/2 runs on a task of its own, so that its
/// future does not contain those of the handshake and of HTTP/1.1.
pub(crate) async fn serve(
    worker: &Worker,
    listener: &WorkerListener,
    mut slot: ConnectionSlot,
    accepted: AcceptedSocket,
) -> Option<Http2Handoff> {
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
        match proxy::read_head(&mut socket, &slot, &mut info).await {
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
            let handshake = Box::pin(tls::accept(
                &settings,
                socket,
                &slot,
                &worker.buffers,
                early,
            ));
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
    let http2 = matches!(&transport, Transport::Tls(stream) if stream.is_http2());
    let parts = if http2 {
        (transport, Rc::new(info), InputBuffer::new(early))
    } else {
        let mut connection =
            h1::Http1Connection::new(worker, listener, &slot, transport, info, early);
        match connection.serve().await {
            Some(ProtocolSwitch::Tunnel(tunnel)) => {
                tunnel(connection.into_duplex()).await;
                return None;
            }
            Some(ProtocolSwitch::Http2) => connection.into_parts(),
            None => return None,
        }
    };
    Some(Http2Handoff { slot, parts })
}

fn count_failure(worker: &Worker, error: &io::Error) {
    if error.kind() == io::ErrorKind::TimedOut {
        worker.counters.timeouts.add(1);
    }
}
