//! Compression of messages (RFC 7692 section 7.2.1).

use std::cell::RefCell;

use flate2::{Compress, FlushCompress, Status};

use super::extension::{DeflateConfig, Window};

/// The bytes at the end of a flush, which a compressed message omits (RFC 7692 section 7.2.1).
pub(super) const TAIL: &[u8] = &[0, 0, 0xff, 0xff];

/// Compresses the messages of a connection.
#[derive(Debug)]
pub(super) struct Deflater {
    window: Window,
    level: u32,
    min_length: usize,
    /// The compressor of this connection, if its context is kept from one message to the next.
    context: Option<Box<Compress>>,
}

impl Deflater {
    pub(super) fn new(config: &DeflateConfig) -> Self {
        Self {
            window: config.sends,
            level: config.level,
            min_length: config.min_length,
            context: None,
        }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// The compressed message; `None` if it is to be sent uncompressed.
    pub(super) fn deflate(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        if message.len() < self.min_length.max(1) {
            return None;
        }
        if !self.window.keeps_context {
            return deflate_standalone(message, self.window.bits, self.level);
        }
        let (bits, level) = (self.window.bits, self.level);
        let context = self
            .context
            .get_or_insert_with(|| Box::new(make(bits, level)));
        let compressed = run(context, message);
        if compressed.is_none() {
            // The next message must not refer to data that the peer did not receive.
            context.reset();
        }
        compressed
    }
}

thread_local! {
    /// The compressors of this thread by window and level, for messages without a context: one takes 256 KiB,
    /// which no idle connection should hold.
    static IDLE: RefCell<Vec<(u8, u32, Compress)>> = const { RefCell::new(Vec::new()) };
}

/// The message compressed without a context; `None` if that is not shorter.
pub(super) fn deflate_standalone(message: &[u8], bits: u8, level: u32) -> Option<Vec<u8>> {
    let idle = IDLE.with_borrow_mut(|idle| {
        let index = idle
            .iter()
            .position(|(idle_bits, idle_level, _)| (*idle_bits, *idle_level) == (bits, level))?;
        Some(idle.swap_remove(index))
    });
    let mut compress = match idle {
        Some((_, _, compress)) => compress,
        None => make(bits, level),
    };
    let compressed = run(&mut compress, message);
    compress.reset();
    IDLE.with_borrow_mut(|idle| {
        // Peers choose the window; without this bound there could be a compressor for each size.
        if idle.len() >= 2 {
            idle.remove(0);
        }
        idle.push((bits, level, compress));
    });
    compressed.filter(|compressed| compressed.len() < message.len())
}

fn make(bits: u8, level: u32) -> Compress {
    // The library accepts this range, and negotiated values are within it.
    Compress::new_with_window_bits(
        flate2::Compression::new(level.min(9)),
        false,
        bits.clamp(9, 15),
    )
}

/// Compresses a message and flushes it, without the tail of the flush.
fn run(compress: &mut Compress, message: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity((message.len() / 2).saturating_add(64));
    let mut rest = message;
    loop {
        let before = compress.total_in();
        let status = compress.compress_vec(rest, &mut out, FlushCompress::Sync);
        let consumed = compress.total_in().saturating_sub(before);
        rest = rest.get(usize::try_from(consumed).ok()?..)?;
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
