//! `Encoding`: a content coding with its settings, and the memory that its encoder takes.

use apus_http::fields::Coding;
use apus_http::{ConnectionReservation, ResponseMemory};

use crate::compression::Compression;

/// The number of bytes that are compressed before other connections have their turn.
pub(crate) const PIECE: usize = 32 * 1024;

/// A content coding, and the settings of its encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The content coding.
    pub coding: Coding,
    /// The level, in the range of the coding.
    pub level: u8,
    /// The base-2 logarithm of the window in bytes, for Brotli and Zstandard. Without one, Zstandard
    /// takes the best for its level and the length.
    pub window: Option<u8>,
    /// The length of the whole body, if it is known.
    pub length: Option<u64>,
}

impl Encoding {
    /// For a body that is compressed each time that it is sent. A small window makes text larger by a
    /// hundredth, and saves a megabyte of memory.
    pub fn of_dynamic(coding: Coding, compression: Compression) -> Self {
        Self {
            coding,
            level: compression.level(coding),
            window: Some(17),
            length: None,
        }
    }

    /// The most bytes of memory that a body takes which is compressed like this as it is sent. The
    /// figures are measured and rounded up; `tests/encoder_memory` compares them with a new measurement.
    pub fn memory(self) -> u64 {
        let kilobytes: u64 = match (self.coding, self.level) {
            (Coding::Brotli, 0..=1) => 512,
            (Coding::Brotli, 2..=3) => 1280,
            (Coding::Brotli, 4) => 2048,
            (Coding::Brotli, 5) => 2560,
            (Coding::Brotli, 6) => 3584,
            (Coding::Brotli, 7) => 10 << 10,
            (Coding::Brotli, 8) => 18 << 10,
            (Coding::Brotli, 9) => 35 << 10,
            (Coding::Brotli, _) => 12 << 10,
            (Coding::Zstd, ..=2) => 1280,
            (Coding::Zstd, 3) => 1792,
            (Coding::Zstd, 4) => 3 << 10,
            (Coding::Zstd, 5..=6) => 3584,
            (Coding::Zstd, 7..=8) => 6 << 10,
            (Coding::Zstd, 9) => 11 << 10,
            (Coding::Zstd, 10..=11) => 21 << 10,
            (Coding::Zstd, 12) => 42 << 10,
            (Coding::Zstd, 13) => 34 << 10,
            (Coding::Zstd, 14) => 50 << 10,
            (Coding::Zstd, 15) => 66 << 10,
            (Coding::Zstd, 16..=18) => 51 << 10,
            (Coding::Zstd, _) => 83 << 10,
            (Coding::Gzip | Coding::Identity, _) => 512,
        };
        // With a piece before and behind it.
        (kilobytes << 10).saturating_add(2 * PIECE as u64)
    }

    /// Reserves the memory for a body that is sent over a connection.
    pub fn reserve(self, connection: u64) -> Option<ConnectionReservation> {
        ResponseMemory::of_process().reserve_for(connection, self.memory())
    }
}
