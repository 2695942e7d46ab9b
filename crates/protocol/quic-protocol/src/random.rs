//! Random numbers.

use aws_lc_rs::rand;

/// Random numbers for decisions that no observer sees one by one, such as which packet numbers are skipped (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    /// With this seed, or one that nobody knows.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(seed.unwrap_or_else(|| u64::from_ne_bytes(secret())))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below this one, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Bytes that nobody can guess.
pub(crate) fn secret<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    if rand::fill(&mut bytes).is_err() {
        // The library aborts the process rather than return an error.
        tracing::error!("no random bytes for QUIC");
    }
    bytes
}
