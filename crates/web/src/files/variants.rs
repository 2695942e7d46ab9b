//! Compressed variants of files: made once per version for all workers, by one thread of low
//! priority in the background.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use apus_http::fields::Coding;
use bytes::Bytes;

use super::tree::Identity;

/// The longest file that is compressed in the background.
pub(super) const MAX_SOURCE: u64 = 4 << 20;

/// How many files wait for compression at once; the rest is asked for again by later requests.
const MAX_QUEUE: usize = 32;

/// One version of a file in one coding. Metadata do not tell versions apart that come in quick
/// succession, so the hash of the content is part of it where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) identity: Identity,
    pub(super) hash: u64,
    pub(super) coding: Coding,
}

/// What is to be compressed.
#[derive(Clone)]
pub(super) enum Source {
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// A variant that is there or being made.
#[derive(Default)]
pub(super) struct Variant {
    done: OnceLock<Option<Bytes>>,
}

impl Variant {
    /// The variant once it is made; `Some(None)` if compression does not pay.
    pub(super) fn done(&self) -> Option<Option<Bytes>> {
        self.done.get().cloned()
    }
}

/// Compressed forms of files, oldest dropped first. They are known by the version of the file, so any
/// [`Files`](super::Files) may share one store: all of a server, and those of its next configuration.
pub struct Variants {
    state: Mutex<State>,
    capacity: u64,
}

#[derive(Default)]
struct State {
    known: HashMap<Key, Arc<Variant>>,
    /// What was made, in that order, with its size.
    made: VecDeque<(Key, u64)>,
    bytes: u64,
    queue: VecDeque<(Key, Arc<Variant>, Source)>,
    is_running: bool,
}

impl Variants {
    /// A store of this many bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            state: Mutex::default(),
            capacity,
        }
    }

    /// The bytes that it may hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The variant, to be made if it is not known; `None` if too many are waiting already, or there
    /// is no room to keep any.
    pub(super) fn request(self: &Arc<Self>, key: Key, source: Source) -> Option<Arc<Variant>> {
        if self.capacity == 0 {
            return None;
        }
        let mut state = self.lock();
        if let Some(variant) = state.known.get(&key) {
            return Some(Arc::clone(variant));
        }
        if state.queue.len() >= MAX_QUEUE {
            return None;
        }
        if !state.is_running {
            let store = Arc::downgrade(self);
            std::thread::Builder::new()
                .name("apus-compress".into())
                .spawn(move || run(&store))
                .ok()?;
            state.is_running = true;
        }
        let variant = Arc::new(Variant::default());
        state.known.insert(key, Arc::clone(&variant));
        state.queue.push_back((key, Arc::clone(&variant), source));
        Some(variant)
    }

    /// The next thing to make; after `None` the thread ends.
    fn next(&self) -> Option<(Key, Arc<Variant>, Source)> {
        let mut state = self.lock();
        let next = state.queue.pop_front();
        state.is_running = next.is_some();
        next
    }

    fn finish(&self, key: Key, variant: &Variant, made: Option<Bytes>) {
        // What takes most of the room would be made again and again.
        let made = made.filter(|bytes| bytes.len() as u64 <= self.capacity / 2);
        // What does not pay is remembered too, at a nominal size.
        let size = made.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let size = size.saturating_add(256);
        let _ = variant.done.set(made);
        let mut state = self.lock();
        state.made.push_back((key, size));
        state.bytes = state.bytes.saturating_add(size);
        while state.bytes > self.capacity
            && let Some((oldest, size)) = state.made.pop_front()
        {
            state.known.remove(&oldest);
            state.bytes = state.bytes.saturating_sub(size);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variants")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Makes variants until none is waiting or nobody wants them any more.
fn run(store: &Weak<Variants>) {
    yield_to_workers();
    loop {
        let Some((key, variant, source)) = store.upgrade().and_then(|store| store.next()) else {
            return;
        };
        let made = source
            .read()
            .and_then(|content| compress(&content, key.coding, Effort::Most))
            .ok();
        let Some(store) = store.upgrade() else {
            return;
        };
        store.finish(key, &variant, made.flatten());
    }
}

/// Leaves the core of the worker that started this thread, and lets workers go first.
fn yield_to_workers() {
    let mut everywhere = rustix::thread::CpuSet::new();
    for cpu in 0..rustix::thread::CpuSet::MAX_CPU {
        everywhere.set(cpu);
    }
    // Both only make the work less of a burden; it is done all the same without them.
    let _ = rustix::thread::sched_setaffinity(None, &everywhere);
    let _ = rustix::process::nice(10);
}

impl Source {
    pub(super) fn read(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(file, len) => {
                let mut content = vec![0; usize::try_from(*len).map_err(io::Error::other)?];
                file.read_exact_at(&mut content, 0)?;
                Ok(content.into())
            }
        }
    }
}

/// How long compression may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Somebody waits for it.
    Least,
    /// It is made once and sent many times.
    Most,
}

/// The content in another coding; `None` if that is not notably smaller.
pub(super) fn compress(
    content: &[u8],
    coding: Coding,
    effort: Effort,
) -> io::Result<Option<Bytes>> {
    let made = match coding {
        Coding::Identity => return Ok(None),
        Coding::Gzip => {
            let level = match effort {
                Effort::Least => flate2::Compression::fast(),
                Effort::Most => flate2::Compression::best(),
            };
            let mut made = Vec::new();
            flate2::read::GzEncoder::new(content, level).read_to_end(&mut made)?;
            made
        }
        Coding::Brotli => {
            let level = match effort {
                Effort::Least => 3,
                // The last two levels take ten times as long.
                Effort::Most if content.len() > 1 << 20 => 9,
                Effort::Most => 11,
            };
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 1 << 14, level, 22);
            writer.write_all(content)?;
            writer.into_inner()
        }
        Coding::Zstd => {
            let level = match effort {
                Effort::Least => 1,
                Effort::Most => 19,
            };
            zstd::bulk::compress(content, level)?
        }
    };
    let is_smaller = made.len() < content.len().saturating_sub(content.len() / 10);
    Ok(is_smaller.then(|| made.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compresses_what_gets_smaller() {
        let text = "all work and no play ".repeat(1000);
        for effort in [Effort::Least, Effort::Most] {
            let made = |coding| compress(text.as_bytes(), coding, effort).unwrap();
            let mut gzip = String::new();
            flate2::read::GzDecoder::new(&*made(Coding::Gzip).unwrap())
                .read_to_string(&mut gzip)
                .unwrap();
            assert_eq!(gzip, text);
            let mut brotli = String::new();
            brotli::Decompressor::new(&*made(Coding::Brotli).unwrap(), 4096)
                .read_to_string(&mut brotli)
                .unwrap();
            assert_eq!(brotli, text);
            let zstd = zstd::decode_all(&*made(Coding::Zstd).unwrap()).unwrap();
            assert_eq!(zstd, text.as_bytes());
            assert_eq!(made(Coding::Identity), None);
        }
        assert_eq!(compress(b"x", Coding::Gzip, Effort::Most).unwrap(), None);
    }

    #[test]
    fn makes_each_variant_once_and_forgets_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let identity = Identity::of(&std::fs::metadata(&path).unwrap());
        let store = Arc::new(Variants::new(1000));
        let text = Bytes::from("na ".repeat(1000));
        let request = |hash| {
            let key = Key {
                identity,
                hash,
                coding: Coding::Gzip,
            };
            store.request(key, Source::Memory(text.clone())).unwrap()
        };
        let first = request(1);
        assert!(Arc::ptr_eq(&first, &request(1)));
        for hash in 2..9 {
            request(hash);
        }
        while !store.lock().queue.is_empty() || store.lock().is_running {
            std::thread::yield_now();
        }
        assert!(first.done().unwrap().is_some());
        assert!(store.lock().bytes <= 1000);
        assert!(!Arc::ptr_eq(&first, &request(1)));
    }
}
