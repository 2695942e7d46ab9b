//! The streams of HTTP/3 over QUIC streams, for the drivers of servers and clients.
//!
//! A driver owns an [`Http3Transport`], which has the codec, QUIC, and the output of all streams, and an
//! [`Http3Input`], which reads no more of a stream than the reader of its body asks for. In each poll of its connection
//! it
//!
//! 1. passes the events of QUIC on: [`Http3Input::note_readable`], [`Http3Transport::note_writable`], and then
//!    [`Http3Transport::continue_outputs`];
//! 2. takes the events of the codec from [`Http3Input::next_event`];
//! 3. sends the data of the streams that the codec schedules, and calls [`Http3Transport::flush`].
//!
//! # Decisions
//!
//! - **No more of a stream is read than its service reads of the body**, so that the windows of QUIC limit the client,
//!   not a buffer of ours.
//! - **Frames are passed to QUIC in the order of the priorities, little more than can be in flight**, so that an urgent
//!   response overtakes others. What has been given to QUIC cannot be overtaken any more.
//! - **Servers and clients share this crate.** They differ in the requests only, which `crates/engine/net` and
//!   `crates/engine/client` have.
//!
//! # Tests
//!
//! `crates/engine/net/tests/it/h3` and `crates/engine/client/tests/it/h3`.

#![forbid(unsafe_code)]

mod input;
mod output;
mod stream_id;

pub use self::input::{Http3Input, MAX_UNREAD};
pub use self::output::{CHUNK, Http3Transport};
pub use self::stream_id::{number_of, stream_id};
