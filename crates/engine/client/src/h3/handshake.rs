//! The handshake of a connection to an origin over QUIC (RFC 9001), with the protocol `h3` (RFC 9114 section 3.2).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use apus_quic::{QuicCloseReason, QuicConnection, QuicEvent, StreamEvent, StreamId};
use apus_transport::descriptors;

use super::endpoint::ClientEndpoint;
use crate::streams::CloseReason;
use crate::{
    Address, FailureCause, Origin, ProxyHead, RequestFailure, RequestPhase, Timeouts, Tls,
};

/// The protocol as ALPN names it.
const HTTP3: &[u8] = b"h3";

/// The errors of QUIC that are alerts of TLS (RFC 9001 section 4.8).
const ALERTS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;

/// A connection whose handshake is complete.
pub(super) struct ConnectedQuic {
    pub(super) quic: QuicConnection,
    pub(super) endpoint: Rc<ClientEndpoint>,
    /// The streams that the origin has opened already.
    pub(super) readable: Vec<StreamId>,
}

/// Opens a connection of QUIC.
///
/// # Errors
/// The phase is [`RequestPhase::Connect`], or [`RequestPhase::Tls`] if the origin cannot be trusted.
pub(super) async fn connect(
    origin: &Origin,
    timeouts: &Timeouts,
) -> Result<ConnectedQuic, RequestFailure> {
    let (Address::Ip(address), Some(tls), ProxyHead::None) =
        (&origin.address, &origin.tls, origin.proxy_head)
    else {
        let why = "HTTP/3 needs an IP address and TLS, and has no PROXY protocol";
        return Err(RequestFailure::unsent(
            RequestPhase::Connect,
            FailureCause::Request(why.into()),
        ));
    };
    let connecting = tokio::time::timeout(timeouts.connect, handshake(*address, tls));
    // Boxed, so that connections of other protocols have a smaller future.
    let connected = match Box::pin(connecting).await {
        Ok(connected) => connected,
        Err(_) => Err((RequestPhase::Connect, FailureCause::TimedOut)),
    };
    connected.map_err(|(phase, cause)| RequestFailure::unsent(phase, cause))
}

async fn handshake(
    address: SocketAddr,
    tls: &Tls,
) -> Result<ConnectedQuic, (RequestPhase, FailureCause)> {
    let config = tls
        .quic(HTTP3)
        .map_err(|error| (RequestPhase::Tls, FailureCause::Request(error.into())))?;
    let endpoint = ClientEndpoint::for_address(address)
        .await
        .map_err(|error| {
            let cause = if descriptors::is_exhausted(&error) {
                FailureCause::NoDescriptors
            } else {
                FailureCause::Io(error)
            };
            (RequestPhase::Connect, cause)
        })?;
    let quic = endpoint
        .quic
        .connect(address, &tls.server_name(), &config)
        .map_err(|error| {
            let cause = FailureCause::Io(io::Error::other(error));
            (RequestPhase::Connect, cause)
        })?;
    let mut readable = Vec::new();
    loop {
        match poll_fn(|cx| quic.poll_event(cx)).await {
            QuicEvent::Connected { .. } => break,
            // An event comes once. The origin may open its control stream before the handshake is complete here, and
            // the driver would never learn of it.
            QuicEvent::Stream(StreamEvent::Opened(stream) | StreamEvent::Readable(stream)) => {
                readable.push(stream)
            }
            QuicEvent::Closed(reason) => return Err(failure(reason)),
            _ => {}
        }
    }
    // Both ends have to agree on a protocol (RFC 9001 section 8.1).
    let chosen = quic.handshake().and_then(|facts| facts.protocol);
    if chosen.as_deref() != Some(HTTP3) {
        let cause = FailureCause::Protocol("the origin does not speak HTTP/3".into());
        return Err((RequestPhase::Tls, cause));
    }
    Ok(ConnectedQuic {
        quic,
        endpoint,
        readable,
    })
}

/// Why a handshake failed.
fn failure(reason: QuicCloseReason) -> (RequestPhase, FailureCause) {
    let phase = match &reason {
        QuicCloseReason::Transport { code, .. } | QuicCloseReason::Peer { code, .. }
            if ALERTS.contains(code) =>
        {
            RequestPhase::Tls
        }
        _ => RequestPhase::Connect,
    };
    let cause = match reason {
        QuicCloseReason::IdleTimeout => FailureCause::TimedOut,
        reason => CloseReason::from(reason).cause(),
    };
    (phase, cause)
}
