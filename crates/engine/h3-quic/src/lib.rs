//! The streams of HTTP/3 over those of QUIC, for the drivers of servers and clients.
//!
//! A driver owns an [`Http3Transport`], which has the codec, QUIC, and the output of all streams, and an [`Http3Input`],
//! which reads streams as far as their bodies are read. In each poll of its connection it
//!
//! 1. passes the events of QUIC on: [`Http3Input::note_readable`], [`Http3Transport::note_writable`], and then
//!    [`Http3Transport::continue_outputs`];
//! 2. takes the events of the codec from [`Http3Input::next_event`];
//! 3. sends the data of the streams that the codec schedules, and calls [`Http3Transport::flush`].

#![forbid(unsafe_code)]

mod input;
mod output;
mod stream_id;

pub use self::input::{Http3Input, UNREAD_MOST};
pub use self::output::{CHUNK, Http3Transport};
pub use self::stream_id::{number_of, stream_id};
