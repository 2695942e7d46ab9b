//! What a protocol with many streams offers to the requests over them: HTTP/2 (RFC 9113) and HTTP/3 (RFC 9114).

use apus_codec::h2::ExpectedBody;
use apus_http::{Headers, ResponseHead, StatusCode};
use bytes::Bytes;

use super::completion::CompletionObservers;

/// Identifies a stream while it is open.
pub(crate) trait SlotKey: Copy + PartialEq {
    /// A small number that is unique among the open streams of the connection.
    fn slot(self) -> usize;

    /// A number that no other stream has which used the slot not long ago.
    fn number(self) -> u32;
}

/// Why this end resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetReason {
    /// The response is complete, and the rest of the request is not wanted.
    Complete,
    /// The source of the response failed.
    Failed,
    /// The client takes nothing of the response.
    Stalled,
    /// The client gets no response.
    Unsent,
}

/// What a stream with data waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// That the client opens the window of the stream.
    Stream,
    /// That the client opens the window of the connection, for which all its streams compete.
    Connection,
    /// One of these, or the network.
    #[cfg_attr(
        not(feature = "http3"),
        expect(dead_code, reason = "QUIC does not say which")
    )]
    Unknown,
}

/// The codec of a connection together with its output.
///
/// Output is buffered: nothing is written to a socket by these methods. On a stream that was closed meanwhile
/// they do nothing.
pub(crate) trait StreamProtocol {
    /// The key of a stream.
    type Key: SlotKey;

    /// Whether a stream is open: not ended by both ends, and not reset.
    fn is_open(&self, stream: Self::Key) -> bool;

    /// What a stream that has data waits for, if it does.
    fn stall(&self, stream: Self::Key) -> Option<Stall>;

    /// The bytes of a stream that were sent to this protocol, and that it could not pass on yet.
    fn unsent(&self, stream: Self::Key) -> u64;

    /// Whether the output has room for an interim response.
    fn has_room(&self) -> bool;

    /// Sends the head of a response; returns what body it has, and how many bytes it took.
    fn send_head(&mut self, stream: Self::Key, head: ResponseHead<'_>) -> (ExpectedBody, u64);

    /// Sends an interim response.
    fn send_informational(&mut self, stream: Self::Key, status: StatusCode, headers: &Headers);

    /// Schedules a stream that has data to send.
    fn want_send(&mut self, stream: Self::Key);

    /// Sends a chunk of a body, at most what the schedule gave, and with `end` the end of the stream. Returns the
    /// bytes of its framing; `None` if the connection failed.
    fn send_bytes(&mut self, stream: Self::Key, chunk: Bytes, end: bool) -> Option<u64>;

    /// A buffer of at most `most` bytes to read a file into, for [`Self::send_read`].
    fn room(&mut self, most: usize) -> &mut [u8];

    /// Sends the first `len` bytes of [`Self::room`], as [`Self::send_bytes`] does.
    fn send_read(&mut self, stream: Self::Key, len: usize, end: bool) -> Option<u64>;

    /// Sends the trailer section, and ends the stream. Returns the bytes that it took.
    fn send_trailers(&mut self, stream: Self::Key, trailers: &Headers) -> u64;

    /// Reports to the observers when what was sent on a stream has left.
    fn complete(&mut self, stream: Self::Key, observed: Box<CompletionObservers>);

    /// Discards further data of the client on a stream.
    fn abandon(&mut self, stream: Self::Key);

    /// Resets a stream and closes it.
    fn reset(&mut self, stream: Self::Key, why: ResetReason);

    /// Opens windows for data that was used or discarded.
    fn consumed(&mut self, stream: Self::Key, bytes: usize);
}
