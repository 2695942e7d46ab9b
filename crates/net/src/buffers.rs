//! Buffers of a worker, lent to connections while they have bytes in flight.
//!
//! A connection that waits holds none, which is why an idle one is small.

use std::cell::RefCell;

/// The size of a fresh buffer: four TLS records.
pub(crate) const BUFFER: usize = 64 * 1024;

/// How many free buffers a worker keeps.
const KEPT: usize = 64;

/// The free buffers of one worker.
#[derive(Default)]
pub(crate) struct Buffers {
    free: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// An empty buffer of [`BUFFER`] bytes or more.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.free
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(BUFFER))
    }

    /// Takes a buffer back.
    pub(crate) fn put(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if (BUFFER..=4 * BUFFER).contains(&capacity) {
            let mut free = self.free.borrow_mut();
            if free.len() < KEPT {
                buffer.clear();
                free.push(buffer);
            }
        }
    }
}
