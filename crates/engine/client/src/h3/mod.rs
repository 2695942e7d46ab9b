//! HTTP/3 to an origin (RFC 9114): the driver of a connection, on a separate task, and the handshake before it.
//!
//! The connections of a worker share a UDP socket, which exists as long as one of them does. Nothing is sent as early
//! data (RFC 8470): an attacker could repeat it.
//!
//! # Memory
//!
//! An origin can make a connection hold [`RECEIVE_WINDOW`] bytes of bodies that were not read, and of one stream
//! [`STREAM_RECEIVE_WINDOW`] and [`MAX_UNREAD`], so that a slow reader holds up no other; and a field section for each
//! stream. Of a request's body that the origin does not take, it holds at most a chunk beside what QUIC has sent.
//!
//! [`MAX_UNREAD`]: apus_h3_quic::MAX_UNREAD

mod driver;
mod endpoint;
mod fault;
mod handshake;
mod protocol;

use std::time::Duration;

use apus_quic::QuicSettings;

use self::driver::Http3ClientDriver;
use self::protocol::Http3ClientProtocol;
use crate::streams::{MultiplexedClient, RECEIVE_WINDOW};
use crate::{Origin, RequestFailure, Timeouts};

/// The most bytes of one response that an origin may have sent and that were not read yet: all streams at once have
/// less than the connection.
const STREAM_RECEIVE_WINDOW: u32 = RECEIVE_WINDOW / 128;

/// The most bytes of requests that an origin has not acknowledged.
const SEND_WINDOW: u32 = 16 * 1024 * 1024;

/// An origin that is silent for this time is taken for dead. Until then it is asked for signs of life, also while no
/// request is open, because it may end idle connections earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The limit of a handshake, above all limits of those who wait for one.
const MAX_HANDSHAKE: Duration = Duration::from_secs(86_400);

/// The unidirectional streams of an origin: three are used, and one may be for tests of extensibility at a time (RFC 9114
/// section 6.2.3).
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// Opens a connection, whose task runs on this thread.
///
/// # Errors
/// The origin did not complete the handshake in time, or it cannot be trusted.
pub(crate) async fn connect(
    origin: &Origin,
    timeouts: &Timeouts,
) -> Result<MultiplexedClient, RequestFailure> {
    let connected = handshake::connect(origin, timeouts).await?;
    let protocol = Http3ClientProtocol::new(connected.quic, origin.responses);
    let (client, streams) = MultiplexedClient::new(protocol);
    let mut driver = Http3ClientDriver::new(streams, timeouts, connected.endpoint);
    driver.note_readable(connected.readable);
    tokio::task::spawn_local(driver.run());
    Ok(client)
}

/// The settings of QUIC.
fn settings() -> QuicSettings {
    QuicSettings {
        receive_window: RECEIVE_WINDOW,
        stream_receive_window: STREAM_RECEIVE_WINDOW,
        send_window: SEND_WINDOW,
        max_idle_timeout: IDLE_TIMEOUT,
        keep_alive: Some(KEEP_ALIVE),
        handshake_timeout: MAX_HANDSHAKE,
        // A server opens no bidirectional streams (section 6.1).
        max_bidirectional_streams: 0,
        max_unidirectional_streams: UNIDIRECTIONAL_STREAMS,
        ..QuicSettings::default()
    }
}
