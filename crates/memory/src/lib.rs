//! Content that is kept in memory and that the kernel can send by itself.
//!
//! Long content that many clients want costs most where it is copied: into the memory of the
//! socket, for each client anew. `sendfile` saves that copy, but takes files only, and a file may
//! change or be cut off while it is sent. [`Sealed`] is both: memory of this process, and a file
//! without a name (`memfd_create`) that nobody can change any more, not even this process.

mod allocator;

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

pub use allocator::give_back_free_memory;

/// Content in memory that never changes and that the kernel can send by itself.
///
/// A clone or a slice shares the memory.
#[derive(Clone, Debug)]
pub struct Sealed {
    bytes: Bytes,
    offset: u64,
    memory: Arc<Memory>,
}

impl Sealed {
    /// Content shorter than this, in bytes, is not worth a file: copying it costs no more than the
    /// second call that sends it.
    pub const SHORTEST: usize = 16 * 1024;

    /// Copies the pieces of some content, one after another.
    ///
    /// `None` where it is shorter than [`Self::SHORTEST`], and where the system refuses: what is there
    /// has to be kept otherwise then. No more than a share of the descriptors that this process may
    /// open is used for this, as connections need them more.
    pub fn gather<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let len = pieces
            .clone()
            .fold(0_usize, |len, piece| len.saturating_add(piece.len()));
        if len < Self::SHORTEST {
            return None;
        }
        let memory = Arc::new(Memory::gather(Place::take()?, pieces, len).ok()?);
        Some(Self {
            bytes: Bytes::from_owner(Mapped(memory.clone())),
            offset: 0,
            memory,
        })
    }

    /// The content.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The content, which keeps the memory.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The file that the content is in, from [`Self::offset`] on.
    pub fn file(&self) -> &File {
        &self.memory.file
    }

    /// Where in [`Self::file`] the content begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// A part of the content, as far as there is one: positions past its end mean its end.
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

/// A sealed file and where it is mapped.
#[derive(Debug)]
struct Memory {
    file: File,
    start: NonNull<u8>,
    len: usize,
    _place: Place,
}

// SAFETY: the mapping is read-only and its file sealed, so all threads only read; it belongs to
// the process, not to the thread that made it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn gather<'a>(
        place: Place,
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
        // SAFETY: the kernel chooses the place, so nothing is mapped over. The file has `len`
        // bytes, and its seals keep it from ever becoming shorter.
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
            _place: place,
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped as long as `self` lives, and nobody can
        // write to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this start and length, and whoever borrowed from it is gone.
        // That an unmapping of one's own mapping fails is not possible.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// What lends its memory to [`Bytes`].
struct Mapped(Arc<Memory>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The right to one more descriptor; given back when it is dropped.
#[derive(Debug)]
struct Place;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    /// `None` when all are taken.
    fn take() -> Option<Self> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| {
            // Without a limit there is still one on how many mappings a process has.
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            usize::try_from(limit / 8).map_or(MOST_PLACES, |share| share.min(MOST_PLACES))
        });
        let one_more = |taken: usize| Some(taken.saturating_add(1)).filter(|taken| *taken <= most);
        TAKEN
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A quarter of the mappings that Linux allows by default (`vm.max_map_count`).
const MOST_PLACES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn pieces_are_one_content_in_memory_and_in_the_file() {
        let content = content(Sealed::SHORTEST + 1);
        let sealed = Sealed::gather(content.chunks(1000)).unwrap();
        assert_eq!(*sealed.bytes(), content);
        let mut from_file = vec![0; content.len()];
        sealed.file().read_exact_at(&mut from_file, 0).unwrap();
        assert_eq!(from_file, content);
        assert_eq!(
            sealed.file().metadata().unwrap().len(),
            content.len() as u64
        );
    }

    #[test]
    fn a_slice_of_a_slice_begins_where_its_offset_says() {
        let content = content(Sealed::SHORTEST * 2);
        let sealed = Sealed::gather([&content[..]].into_iter()).unwrap();
        let slice = sealed.slice(100..5000).slice(11..70_000);
        assert_eq!(*slice.bytes(), content[111..5000]);
        let mut from_file = vec![0; slice.bytes().len()];
        slice
            .file()
            .read_exact_at(&mut from_file, slice.offset())
            .unwrap();
        assert_eq!(from_file, content[111..5000]);
        assert!(
            sealed
                .slice(Sealed::SHORTEST * 3..Sealed::SHORTEST * 4)
                .bytes()
                .is_empty()
        );
    }

    #[test]
    fn nobody_can_change_it() {
        let content = content(Sealed::SHORTEST);
        let sealed = Sealed::gather([&content[..]].into_iter()).unwrap();
        assert!(sealed.file().write_all_at(b"x", 0).is_err());
        assert!(
            sealed
                .file()
                .write_all_at(b"x", Sealed::SHORTEST as u64)
                .is_err()
        );
        assert!(sealed.file().set_len(0).is_err());
        assert_eq!(*sealed.bytes(), content);
    }

    #[test]
    fn short_content_is_not_sealed() {
        let content = content(Sealed::SHORTEST - 1);
        assert!(Sealed::gather([&content[..]].into_iter()).is_none());
    }

    #[test]
    fn bytes_outlive_what_they_came_from() {
        let content = content(Sealed::SHORTEST);
        let bytes = Sealed::gather([&content[..]].into_iter())
            .unwrap()
            .into_bytes();
        assert_eq!(bytes, content);
    }
}
