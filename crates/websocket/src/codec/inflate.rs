//! Decompression of messages (RFC 7692 section 7.2.2), within a bound.

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress, Status};

use super::ProtocolError;
use super::deflate::TAIL;
use super::extension::{Agreement, Window};

/// Decompresses the messages of a connection, piece by piece.
#[derive(Debug)]
pub(super) struct Inflater {
    window: Window,
    /// The state, from the first piece of a message on.
    state: Option<Box<Decompress>>,
}

thread_local! {
    /// One state of this thread that no message needs just now.
    static IDLE: RefCell<Option<Box<Decompress>>> = const { RefCell::new(None) };
}

/// The least room that is made for what comes out.
const ROOM: usize = 256;

impl Inflater {
    pub(super) fn new(agreement: &Agreement) -> Self {
        Self {
            window: agreement.receives,
            state: None,
        }
    }

    /// Decompresses a piece of a message to the end of `out`, which gets at most `max` bytes long.
    pub(super) fn inflate(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), ProtocolError> {
        let state = self.state.get_or_insert_with(|| {
            let idle = IDLE.take();
            // The largest window reads what was made with any.
            idle.unwrap_or_else(|| Box::new(Decompress::new(false)))
        });
        run(state, piece, out, max)
    }

    /// Ends a message.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>, max: usize) -> Result<(), ProtocolError> {
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
) -> Result<(), ProtocolError> {
    let mut rest = piece;
    loop {
        if out.len() == out.capacity() {
            // One byte more than allowed tells that it is too long.
            let left = max.saturating_add(1).saturating_sub(out.len());
            out.reserve_exact(out.len().max(rest.len()).max(ROOM).min(left));
        }
        let (before, len) = (state.total_in(), out.len());
        let status = state.decompress_vec(rest, out, FlushDecompress::Sync);
        let taken = state.total_in().saturating_sub(before);
        rest = usize::try_from(taken)
            .ok()
            .and_then(|taken| rest.get(taken..))
            .ok_or(ProtocolError::Compression)?;
        if out.len() > max {
            return Err(ProtocolError::MessageTooLong);
        }
        match status {
            // Whoever ends a stream begins the next one without a context (RFC 7692 section 7.2.3.5).
            Ok(Status::StreamEnd) => {
                state.reset(false);
                if rest.is_empty() {
                    return Ok(());
                }
            }
            Ok(Status::Ok | Status::BufError) if out.len() == out.capacity() => {}
            Ok(Status::Ok | Status::BufError) if rest.is_empty() => return Ok(()),
            Ok(Status::Ok | Status::BufError) if taken > 0 || out.len() > len => {}
            Ok(Status::Ok | Status::BufError) | Err(_) => return Err(ProtocolError::Compression),
        }
    }
}
