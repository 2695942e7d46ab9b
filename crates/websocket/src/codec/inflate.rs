//! Decompression of messages, up to a limit (RFC 7692 section 7.2.2).

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress, Status};

use super::WebSocketProtocolError;
use super::deflate::TAIL;
use super::extension::{DeflateConfig, Window};

/// Decompresses the messages of a connection incrementally.
#[derive(Debug)]
pub(super) struct Inflater {
    window: Window,
    /// The decompressor, from the first piece of a message on.
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

    /// Decompresses a piece of a message and appends it to `out`, up to a total length of `max` bytes.
    pub(super) fn inflate(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), WebSocketProtocolError> {
        let state = self.state.get_or_insert_with(|| {
            let idle = IDLE.take();
            // The largest window decompresses data of any window.
            idle.unwrap_or_else(|| Box::new(Decompress::new(false)))
        });
        run(state, piece, out, max)
    }

    /// Decompresses the end of a message.
    pub(super) fn finish(
        &mut self,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), WebSocketProtocolError> {
        self.inflate(TAIL, out, max)?;
        if !self.window.keeps_context
            && let Some(mut state) = self.state.take()
        {
            state.reset(false);
            IDLE.set(Some(state));
        }
        Ok(())
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
