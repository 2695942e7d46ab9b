//! HTTP/2 to an origin (RFC 9113): the driver of a connection, on a separate task.
//!
//! # Memory
//!
//! An idle connection holds its codec and TLS. An origin can make it hold [`RECEIVE_WINDOW`] bytes of bodies
//! that were not read, a share of that for each stream, so that a slow reader holds up no other; and a field
//! section for each stream. A response that has ended belongs to its reader, together with the bytes that
//! were not read. Of the bytes that the origin does not take, it holds at most [`BATCH`] beside the current
//! frame of each stream, and [`MAX_OUT`] of replies to frames, past which it reads no more.
//!
//! [`RECEIVE_WINDOW`]: crate::streams::RECEIVE_WINDOW

mod driver;
mod input;
mod output;
mod protocol;
mod timers;

use apus_transport::Transport;
use apus_transport::write_batch::BATCH;

use self::driver::Http2ClientDriver;
use self::protocol::Http2ClientProtocol;
use crate::streams::MultiplexedClient;
use crate::{ResponseRules, Timeouts};

/// The most bytes of output; past it nothing more is read.
const MAX_OUT: usize = 2 * BATCH;

/// Starts HTTP/2 over a new connection, on a task of this thread. `timeouts` apply to the connection as
/// a whole: how long the origin may take none of what is written; and, because a PING travels no further
/// than the first packets of a connection, how long its acknowledgement may take.
pub(crate) fn start(
    transport: Transport,
    timeouts: &Timeouts,
    rules: ResponseRules,
) -> MultiplexedClient {
    let (client, streams) = MultiplexedClient::new(Http2ClientProtocol::new(rules));
    let driver = Http2ClientDriver::new(transport, timeouts, streams);
    tokio::task::spawn_local(driver.run());
    client
}
