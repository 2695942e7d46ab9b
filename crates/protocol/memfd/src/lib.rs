//! Sealed memfd bodies: bytes in memory that `sendfile` can send (`memfd_create(2)`).
//!
//! # Decisions
//!
//! - **Large stored bodies are sealed memory.** It can be mapped to read or encrypt it, and is a file for `sendfile`,
//!   which saves the copy into each socket. With 500 clients, this saves a quarter of the cost of a response of 70 KB.
//!   Unlike a file on disk it cannot change or shrink while it is sent.
//! - **Each body takes a descriptor**, and all of them at most an eighth of the descriptors of the process. Further
//!   bodies are stored in ordinary memory.
//!
//! # Tests
//!
//! Unit tests stand at the end of the module. `make attack` and the soak test (`make soak`) watch the descriptors of a
//! running server.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// A body in memory that cannot change and that `sendfile` can send.
///
/// To send a long body, the kernel copies it into the buffer of the socket, once for each client.
/// `sendfile` saves that copy, but it takes files only, and a file on disk may change or be truncated
/// while it is sent. This is memory of the process and an unnamed file at the same time; its seals
/// keep everybody, this process included, from changing it.
///
/// A clone or a slice shares the memory.
#[derive(Clone, Debug)]
pub struct SealedMemory {
    bytes: Bytes,
    offset: u64,
    memory: Arc<SealedFile>,
}

impl SealedMemory {
    /// The shortest body in bytes that is worth a file. Copying a shorter one costs no more than the
    /// additional call of `sendfile`.
    pub const SHORTEST: usize = 16 * 1024;

    /// Copies the pieces of a body, one after another.
    ///
    /// `None` if the body is shorter than [`Self::SHORTEST`] or the system refuses; the caller keeps it
    /// in other memory then. Sealed memory takes at most a share of the descriptors that this process
    /// may open, because connections need them.
    pub fn gather<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let len = pieces
            .clone()
            .fold(0_usize, |len, piece| len.saturating_add(piece.len()));
        if len < Self::SHORTEST {
            return None;
        }
        let memory = Arc::new(SealedFile::gather(MemfdPermit::take()?, pieces, len).ok()?);
        Some(Self {
            bytes: Bytes::from_owner(MappedBytes(memory.clone())),
            offset: 0,
            memory,
        })
    }

    /// The bytes of the body.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes of the body, which keep the memory alive.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The file that holds the body, from [`Self::offset`] on.
    pub fn file(&self) -> &File {
        &self.memory.file
    }

    /// Where in [`Self::file`] the body begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A part of the body. Positions past its end count as its end.
    #[must_use]
    pub fn slice(&self, part: Range<usize>) -> Self {
        let end = part.end.min(self.bytes.len());
        let start = part.start.min(end);
        Self {
            bytes: self.bytes.slice(start..end),
            offset: self.offset.saturating_add(start as u64),
            memory: self.memory.clone(),
        }
    }
}

/// A sealed file and its mapping.
#[derive(Debug)]
struct SealedFile {
    file: File,
    start: NonNull<u8>,
    len: usize,
    _permit: MemfdPermit,
}

// SAFETY: the mapping is read-only and its file is sealed, so all threads only read; it belongs to
// the process, not to the thread that created it.
unsafe impl Send for SealedFile {}
// SAFETY: as above.
unsafe impl Sync for SealedFile {}

impl SealedFile {
    fn gather<'a>(
        permit: MemfdPermit,
        pieces: impl Iterator<Item = &'a [u8]>,
        len: usize,
    ) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("apus-content", flags)?);
        for piece in pieces {
            file.write_all(piece)?;
        }
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced. The file has `len`
        // bytes, and its seals keep it from becoming shorter.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                flags,
                file.as_fd(),
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            file,
            start,
            len,
            _permit: permit,
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped as long as `self` lives, and cannot be
        // written to.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this start and length, and no borrow of it is left. Unmapping a
        // whole mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The owner of the memory of [`Bytes`].
struct MappedBytes(Arc<SealedFile>);

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The permit for one descriptor; released when it is dropped.
#[derive(Debug)]
struct MemfdPermit;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl MemfdPermit {
    /// Takes a permit; `None` if there is none left.
    fn take() -> Option<Self> {
        static MAX: OnceLock<usize> = OnceLock::new();
        let max = *MAX.get_or_init(|| {
            // A process without a limit of descriptors still has one of mappings.
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            usize::try_from(limit / 8).map_or(MAX_PERMITS, |share| share.min(MAX_PERMITS))
        });
        let one_more = |taken: usize| Some(taken.saturating_add(1)).filter(|taken| *taken <= max);
        TAKEN
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(Self)
    }
}

impl Drop for MemfdPermit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A quarter of the mappings that Linux allows by default (`vm.max_map_count`).
const MAX_PERMITS: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn pieces_are_one_body_in_memory_and_in_the_file() {
        let body = body(SealedMemory::SHORTEST + 1);
        let sealed = SealedMemory::gather(body.chunks(1000)).unwrap();
        assert_eq!(*sealed.bytes(), body);
        let mut from_file = vec![0; body.len()];
        sealed.file().read_exact_at(&mut from_file, 0).unwrap();
        assert_eq!(from_file, body);
        assert_eq!(sealed.file().metadata().unwrap().len(), body.len() as u64);
    }

    #[test]
    fn a_slice_of_a_slice_begins_where_its_offset_says() {
        let body = body(SealedMemory::SHORTEST * 2);
        let sealed = SealedMemory::gather([&body[..]].into_iter()).unwrap();
        let slice = sealed.slice(100..5000).slice(11..70_000);
        assert_eq!(*slice.bytes(), body[111..5000]);
        let mut from_file = vec![0; slice.bytes().len()];
        slice
            .file()
            .read_exact_at(&mut from_file, slice.offset())
            .unwrap();
        assert_eq!(from_file, body[111..5000]);
        assert!(
            sealed
                .slice(SealedMemory::SHORTEST * 3..SealedMemory::SHORTEST * 4)
                .bytes()
                .is_empty()
        );
    }

    #[test]
    fn sealed_memory_cannot_change() {
        let body = body(SealedMemory::SHORTEST);
        let sealed = SealedMemory::gather([&body[..]].into_iter()).unwrap();
        assert!(sealed.file().write_all_at(b"x", 0).is_err());
        assert!(
            sealed
                .file()
                .write_all_at(b"x", SealedMemory::SHORTEST as u64)
                .is_err()
        );
        assert!(sealed.file().set_len(0).is_err());
        assert_eq!(*sealed.bytes(), body);
    }

    #[test]
    fn a_short_body_is_not_sealed() {
        let body = body(SealedMemory::SHORTEST - 1);
        assert!(SealedMemory::gather([&body[..]].into_iter()).is_none());
    }

    #[test]
    fn bytes_outlive_what_they_came_from() {
        let body = body(SealedMemory::SHORTEST);
        let bytes = SealedMemory::gather([&body[..]].into_iter())
            .unwrap()
            .into_bytes();
        assert_eq!(bytes, body);
    }
}
