//! The buffers of a worker, which connections borrow while they have bytes in flight.
//!
//! An idle connection holds none, so it needs little memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::{self, ThreadId};

use bytes::Bytes;

/// The size of a new buffer: four TLS records.
pub const BUFFER: usize = 64 * 1024;

/// The size of a page, which is the most of a file that is read at once.
pub const PAGE: usize = 64 * 1024;

/// The most free pages of a worker.
// Half a megabyte for each worker. A batch of HTTP/2 takes two or three.
const PAGES_KEPT: usize = 8;

/// The most free buffers of a worker.
// 4 MiB in buffers of the usual size, which a worker keeps after a burst; 16 MiB if all of them have grown.
const KEPT: usize = 64;

thread_local! {
    static BUFFERS: Rc<BufferPool> = Rc::default();
}

/// Bytes whose buffer returns to the pool of this thread if the last of them are dropped here.
pub fn freeze(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(PooledBuffer {
        buffer,
        owner: thread::current().id(),
    })
}

struct PooledBuffer {
    buffer: Vec<u8>,
    owner: ThreadId,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // The last of the bytes may be dropped on another thread, whose pool would grow by what this one allocates.
        if thread::current().id() == self.owner {
            let buffer = std::mem::take(&mut self.buffer);
            // At the end of the thread the pool may be gone.
            let _ = BUFFERS.try_with(|buffers| buffers.put(buffer));
        }
    }
}

/// The free buffers of one worker. They stay on its thread.
#[derive(Default)]
pub struct BufferPool {
    free: RefCell<Vec<Vec<u8>>>,
    pages: RefCell<Vec<Box<[u8]>>>,
}

impl BufferPool {
    /// The pool of this thread.
    pub fn of_thread() -> Rc<Self> {
        BUFFERS.with(Rc::clone)
    }

    /// An empty buffer of [`BUFFER`] bytes or more.
    pub fn take(&self) -> Vec<u8> {
        self.free
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(BUFFER))
    }

    /// Returns a buffer to the pool.
    pub fn put(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        // A smaller one is a copy of a few bytes that waited, and a larger one has grown for a rare message.
        if (BUFFER..=4 * BUFFER).contains(&capacity) {
            let mut free = self.free.borrow_mut();
            if free.len() < KEPT {
                buffer.clear();
                free.push(buffer);
            }
        }
    }

    /// Bytes to read a part of a file into. Their contents are undefined.
    pub fn take_page(&self) -> Box<[u8]> {
        let page = self.pages.borrow_mut().pop();
        page.unwrap_or_else(|| vec![0; PAGE].into_boxed_slice())
    }

    /// Returns a page to the pool.
    pub fn put_page(&self, page: Box<[u8]>) {
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
    fn a_buffer_returns_with_the_last_part_of_its_bytes() {
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
