//! Decompression of messages, up to a limit (RFC 7692 section 7.2.2).

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress, Status};

use super::WebSocketProtocolError;
use super::deflate::TAIL;
use super::extension::{DeflateConfig, Window};

/// Decompresses the messages of a connection, each when it is complete.
#[derive(Debug)]
pub(super) struct Inflater {
    window: Window,
    /// The decompressor of this connection, if its context is kept from one message to the next.
    state: Option<Box<Decompress>>,
}

thread_local! {
    /// A decompressor of this thread that no message uses.
    static IDLE: RefCell<Option<Box<Decompress>>> = const { RefCell::new(None) };
}

/// The minimum number of bytes by which the output grows.
const MIN_GROWTH: usize = 256;

impl Inflater {
    pub(super) fn new(config: &DeflateConfig) -> Self {
        Self {
            window: config.receives,
            state: None,
        }
    }

    /// Decompresses a whole message of at most `max` bytes.
    pub(super) fn inflate_message(
        &mut self,
        message: &[u8],
        max: usize,
    ) -> Result<Vec<u8>, WebSocketProtocolError> {
        let mut state = self.state.take().unwrap_or_else(|| {
            let idle = IDLE.take();
            // The largest window decompresses data of any window.
            idle.unwrap_or_else(|| Box::new(Decompress::new(false)))
        });
        let mut out = Vec::new();
        let result = run(&mut state, message, &mut out, max)
            .and_then(|()| run(&mut state, TAIL, &mut out, max));
        if self.window.keeps_context {
            self.state = Some(state);
        } else {
            state.reset(false);
            IDLE.set(Some(state));
        }
        result.map(|()| out)
    }
}

fn run(
    state: &mut Decompress,
    piece: &[u8],
    out: &mut Vec<u8>,
    max: usize,
) -> Result<(), WebSocketProtocolError> {
    let mut rest = piece;
    loop {
        if out.len() == out.capacity() {
            // Room for one byte more than the limit shows that a message is too long.
            let left = max.saturating_add(1).saturating_sub(out.len());
            out.reserve_exact(out.len().max(rest.len()).max(MIN_GROWTH).min(left));
        }
        let (before, len) = (state.total_in(), out.len());
        let status = state.decompress_vec(rest, out, FlushDecompress::Sync);
        let consumed = state.total_in().saturating_sub(before);
        rest = usize::try_from(consumed)
            .ok()
            .and_then(|consumed| rest.get(consumed..))
            .ok_or(WebSocketProtocolError::Compression)?;
        if out.len() > max {
            return Err(WebSocketProtocolError::MessageTooLong);
        }
        match status {
            // After the end of a stream, the next one has no context (RFC 7692 section 7.2.3.5).
            Ok(Status::StreamEnd) => {
                state.reset(false);
                if rest.is_empty() {
                    return Ok(());
                }
            }
            Ok(Status::Ok | Status::BufError) if out.len() == out.capacity() => {}
            Ok(Status::Ok | Status::BufError) if rest.is_empty() => return Ok(()),
            Ok(Status::Ok | Status::BufError) if consumed > 0 || out.len() > len => {}
            Ok(Status::Ok | Status::BufError) | Err(_) => {
                return Err(WebSocketProtocolError::Compression);
            }
        }
    }
}
