//! BufferPool of a worker, lent to connections while they have bytes in flight.
//!
//! A connection that waits holds none, which is why an idle one is small.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::{self, ThreadId};

use bytes::Bytes;

/// The size of a fresh buffer: four TLS records.
pub(crate) const BUFFER: usize = 64 * 1024;

/// The size of a page: how much of a file is read at once.
pub(crate) const PAGE: usize = 64 * 1024;

/// How many free pages a worker keeps.
const PAGES_KEPT: usize = 8;

/// How many free buffers a worker keeps.
const KEPT: usize = 64;

thread_local! {
    static BUFFERS: Rc<BufferPool> = Rc::default();
}

/// The bytes in a buffer of this thread, to which it comes back if the last of them are dropped here.
pub(crate) fn freeze(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(PooledBuffer {
        buffer,
        home: thread::current().id(),
    })
}

struct PooledBuffer {
    buffer: Vec<u8>,
    home: ThreadId,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if thread::current().id() == self.home {
            let buffer = std::mem::take(&mut self.buffer);
            // A thread at its end needs none.
            let _ = BUFFERS.try_with(|buffers| buffers.put(buffer));
        }
    }
}

/// The free buffers of one worker, whose thread they stay on.
#[derive(Default)]
pub(crate) struct BufferPool {
    free: RefCell<Vec<Vec<u8>>>,
    pages: RefCell<Vec<Box<[u8]>>>,
}

impl BufferPool {
    /// Those of this thread.
    pub(crate) fn of_thread() -> Rc<Self> {
        BUFFERS.with(Rc::clone)
    }

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

    /// Bytes to read a part of a file into. What is in them is of no meaning.
    pub(crate) fn take_page(&self) -> Box<[u8]> {
        let page = self.pages.borrow_mut().pop();
        page.unwrap_or_else(|| vec![0; PAGE].into_boxed_slice())
    }

    /// Takes a page back.
    pub(crate) fn put_page(&self, page: Box<[u8]>) {
        let mut pages = self.pages.borrow_mut();
        if pages.len() < PAGES_KEPT {
            pages.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> usize {
        BufferPool::of_thread().free.borrow().len()
    }

    #[test]
    fn what_was_lent_comes_back_with_the_last_part_of_it() {
        let buffers = BufferPool::of_thread();
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"some content");
        let whole = freeze(buffer);
        let part = whole.slice(5..);
        drop(whole);
        assert_eq!(free(), 0);
        assert_eq!(part, "content");
        drop(part);
        assert_eq!(free(), 1);
        assert!(buffers.take().is_empty());
    }

    #[test]
    fn a_thread_keeps_no_buffers_of_another() {
        let lent = freeze(BufferPool::of_thread().take());
        let kept = thread::spawn(move || {
            drop(lent);
            free()
        });
        assert_eq!(kept.join().unwrap(), 0);
        assert_eq!(free(), 0);
    }
}
