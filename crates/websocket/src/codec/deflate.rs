//! Compression of messages (RFC 7692 section 7.2.1).

use std::cell::RefCell;

use flate2::{Compress, FlushCompress, Status};

use super::extension::{Agreement, Window};

/// What a flush ends with, and a compressed message therefore need not (RFC 7692 section 7.2.1).
pub(super) const TAIL: &[u8] = &[0, 0, 0xff, 0xff];

/// Compresses the messages of a connection.
#[derive(Debug)]
pub(super) struct Deflater {
    window: Window,
    level: u32,
    min_length: usize,
    /// Its own state, if the context of one message is kept for the next.
    own: Option<Box<Compress>>,
}

impl Deflater {
    pub(super) fn new(agreement: &Agreement) -> Self {
        Self {
            window: agreement.sends,
            level: agreement.level,
            min_length: agreement.min_length,
            own: None,
        }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// The message compressed; `None` if it is to be sent as it is.
    pub(super) fn deflate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        if message.len() < self.min_length.max(1) {
            return None;
        }
        if !self.window.keeps_context {
            return detached(message, self.window.bits, self.level);
        }
        let (bits, level) = (self.window.bits, self.level);
        let own = self.own.get_or_insert_with(|| Box::new(make(bits, level)));
        let compressed = run(own, message);
        if compressed.is_none() {
            // The next message must not refer to what the peer did not get.
            own.reset();
        }
        compressed
    }
}

thread_local! {
    /// Compressors of this thread by window and level, for messages that stand alone: one has a
    /// quarter of a megabyte, which no connection should hold while it waits.
    static IDLE: RefCell<Vec<(u8, u32, Compress)>> = const { RefCell::new(Vec::new()) };
}

/// The message compressed without reference to another; `None` if that makes it no shorter.
pub(super) fn detached(message: &[u8], bits: u8, level: u32) -> Option<Vec<u8>> {
    let known = IDLE.with_borrow_mut(|idle| {
        let at = idle
            .iter()
            .position(|(known, at, _)| (*known, *at) == (bits, level))?;
        Some(idle.swap_remove(at))
    });
    let mut compress = match known {
        Some((_, _, compress)) => compress,
        None => make(bits, level),
    };
    let compressed = run(&mut compress, message);
    compress.reset();
    IDLE.with_borrow_mut(|idle| {
        // Windows are the peer's choice; there are not many, but each has its memory.
        if idle.len() >= 2 {
            idle.remove(0);
        }
        idle.push((bits, level, compress));
    });
    compressed.filter(|compressed| compressed.len() < message.len())
}

fn make(bits: u8, level: u32) -> Compress {
    // The range that the library takes; what is agreed on is in it.
    Compress::new_with_window_bits(
        flate2::Compression::new(level.min(9)),
        false,
        bits.clamp(9, 15),
    )
}

/// Compresses up to a flush, whose tail is left out.
fn run(compress: &mut Compress, message: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity((message.len() / 2).saturating_add(64));
    let mut rest = message;
    loop {
        let before = compress.total_in();
        let status = compress.compress_vec(rest, &mut out, FlushCompress::Sync);
        let taken = compress.total_in().saturating_sub(before);
        rest = rest.get(usize::try_from(taken).ok()?..)?;
        match status {
            Ok(Status::Ok | Status::BufError) if out.len() < out.capacity() && rest.is_empty() => {
                break;
            }
            Ok(Status::Ok | Status::BufError) => out.reserve(out.len().max(64)),
            Ok(Status::StreamEnd) | Err(_) => return None,
        }
    }
    let len = out.strip_suffix(TAIL)?.len();
    out.truncate(len);
    Some(out)
}
