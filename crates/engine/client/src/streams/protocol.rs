//! What a protocol with many streams offers to the requests over them: HTTP/2 (RFC 9113) and HTTP/3 (RFC 9114).

use std::error::Error;

use apus_codec::messages::OutgoingRequest;
use apus_codec::stream_table::{StreamId, StreamKey};
use apus_http::{Headers, Version};
use bytes::Bytes;

use crate::FailureCause;

/// The codec of a connection in the role of a client, together with its output.
///
/// Output is buffered: nothing is written to a socket by these methods. On a stream that was closed meanwhile
/// they do nothing.
pub(crate) trait ClientProtocol {
    /// The identifier of a stream.
    type Id: StreamId;
    /// Why the connection has to end, or the origin ended it.
    type Fault: Error + Clone + Send + Sync + 'static;

    /// The version of HTTP.
    const VERSION: Version;

    /// How many streams are open.
    fn open_streams(&self) -> usize;

    /// How many streams can be opened beside those.
    fn available_streams(&self) -> usize;

    /// Whether this end or the origin started a shutdown.
    fn is_shutting_down(&self) -> bool;

    /// Whether the output has room for the head of a request.
    fn has_room(&self) -> bool;

    /// Whether the settings of the origin have arrived.
    fn has_peer_settings(&self) -> bool;

    /// Whether the origin allows extended CONNECT.
    fn allows_extended_connect(&self) -> bool;

    /// Opens a stream with the head of a request, which has no body if `is_whole`.
    ///
    /// # Errors
    /// The stream cannot be opened.
    fn send_request(
        &mut self,
        request: OutgoingRequest<'_>,
        is_whole: bool,
    ) -> Result<StreamKey<Self::Id>, FailureCause>;

    /// The place behind what was added to the output, for [`Self::has_written_behind`].
    fn output_position(&self) -> u64;

    /// Whether bytes behind this place may have left.
    fn has_written_behind(&self, position: u64) -> bool;

    /// Whether a stream is open: not ended by both ends, and not reset.
    fn is_open(&self, stream: StreamKey<Self::Id>) -> bool;

    /// Whether a stream that has data waits for the origin to open a window.
    fn is_stalled(&self, stream: StreamKey<Self::Id>) -> bool;

    /// Schedules a stream that has data to send.
    fn want_send(&mut self, stream: StreamKey<Self::Id>);

    /// Sends a chunk of a body, at most what the schedule gave, and with `end` the end of the stream. Returns whether
    /// the connection goes on.
    fn send_bytes(&mut self, stream: StreamKey<Self::Id>, chunk: Bytes, end: bool) -> bool;

    /// A buffer of at most `most` bytes to read a file into, for [`Self::send_read`].
    fn room(&mut self, most: usize) -> &mut [u8];

    /// Sends the first `len` bytes of [`Self::room`], as [`Self::send_bytes`] does.
    fn send_read(&mut self, stream: StreamKey<Self::Id>, len: usize, end: bool) -> bool;

    /// Sends the trailer section, if there is one, and ends the stream. Returns whether the connection goes on.
    fn send_end(&mut self, stream: StreamKey<Self::Id>, trailers: Option<&Headers>) -> bool;

    /// Resets a stream whose response is not needed.
    fn cancel(&mut self, stream: StreamKey<Self::Id>);

    /// Opens windows for data that was read or discarded.
    fn consumed(&mut self, stream: StreamKey<Self::Id>, bytes: usize);
}
