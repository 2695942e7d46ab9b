//! What a server and a client need of sockets: byte streams, TLS, buffers, time.
//!
//! [`Transport`] is the byte stream of a connection, in clear text or under TLS. An [`InputBuffer`] holds what
//! was read from it and a [`write_batch::WriteBatch`] what is written to it, in [`buffers`] that a connection
//! borrows while it needs them. [`BodySender`] passes a body that arrives to its reader, and [`tunnel`] turns
//! a connection or a stream into one. This crate knows no protocol but the frames that [`write_batch`] makes
//! room for; the roles are in `apus-net` and `apus-client`.

mod body;
mod body_chunk;
pub mod buffers;
mod clock;
pub mod descriptors;
pub mod file;
mod input;
pub mod per_worker;
mod poll_budget;
mod precise_timer;
mod read_interest;
mod send_rate;
mod socket;
mod stream_wakers;
pub mod tls;
mod transport;
pub mod tunnel;
mod unread;
pub mod write_batch;
mod yield_task;

pub use body::{BodyProgress, BodyReceiver, BodySender, UnreadBytes};
pub use body_chunk::{BodyChunk, ChunkPart};
pub use clock::{TICK, WorkerClock, coarse_now, deadline_from};
pub use input::InputBuffer;
pub use poll_budget::PollBudget;
pub use precise_timer::PreciseTimer;
pub use read_interest::ReadInterestSocket;
pub use send_rate::SendRate;
pub use socket::{StreamSocket, canonical};
pub use stream_wakers::StreamWakers;
pub use transport::Transport;
pub use unread::unread_memory;
pub use yield_task::{take_yield, yield_to_events, yield_to_ready_tasks};
