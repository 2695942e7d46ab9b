//! Compressed variants of files, made once per version for all workers.
//!
//! Threads of low priority make them: one in the background, and a few for clients that accept
//! nothing else and wait.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use apus_http::fields::Coding;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::content::Content;
use crate::tree::Identity;
use apus_compress::{Encoder, Encoding};

/// The longest file that is compressed as a whole and kept.
pub(crate) const MAX_SOURCE: u64 = 4 << 20;

/// How many files wait for compression at once, in the background and for clients that wait; the
/// rest is asked for again by later requests.
const MAX_QUEUE: usize = 32;

/// How many threads compress for clients that wait.
const MAX_URGENT_THREADS: usize = 2;

/// After so many bytes a thread looks whether somebody still waits.
const PIECE: usize = 64 * 1024;

/// One version of a file in one coding. Metadata do not tell versions apart that come in quick
/// succession, so the hash of the content is part of it where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) identity: Identity,
    pub(crate) hash: u64,
    pub(crate) coding: Coding,
}

/// What is to be compressed.
#[derive(Clone)]
pub(crate) enum Source {
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// A variant that is there or being made.
#[derive(Default)]
pub(crate) struct Variant {
    done: OnceLock<Option<Content>>,
    ready: Notify,
    /// Nobody waits for it any more.
    is_cancelled: AtomicBool,
}

impl Variant {
    /// The variant once it is made; `Some(None)` if compression does not pay.
    pub(crate) fn done(&self) -> Option<Option<Content>> {
        self.done.get().cloned()
    }

    async fn made(&self) -> Option<Content> {
        loop {
            let ready = self.ready.notified();
            if let Some(done) = self.done() {
                return done;
            }
            ready.await;
        }
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
    known: HashMap<(Key, Effort), Known>,
    /// What was made, in that order, with its size.
    made: VecDeque<((Key, Effort), u64)>,
    bytes: u64,
    background: Queue,
    urgent: Queue,
}

struct Known {
    variant: Arc<Variant>,
    /// How many requests wait for it.
    waiting: usize,
}

/// What is to be made, and by how many threads it is.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

struct Job {
    key: Key,
    variant: Arc<Variant>,
    source: Source,
}

impl State {
    fn queue(&mut self, effort: Effort) -> &mut Queue {
        match effort {
            Effort::Least => &mut self.urgent,
            Effort::Most => &mut self.background,
        }
    }
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

    /// Whether the variants of a file of this length are kept: what takes most of the room would be
    /// made again and again.
    pub(crate) fn keeps(&self, length: u64) -> bool {
        length <= MAX_SOURCE && length <= self.capacity / 2
    }

    /// The variant, to be made if it is not known; `None` if too many are waiting already, or there
    /// is no room to keep any.
    pub(crate) fn request(self: &Arc<Self>, key: Key, source: Source) -> Option<Arc<Variant>> {
        self.enter(key, Effort::Most, source, &mut self.lock())
    }

    /// The variant for a request that waits for it: made quickly, once for all that wait, and not to
    /// its end if they all leave. `None` if too many are waiting already.
    pub(crate) fn wait(self: &Arc<Self>, key: Key, source: Source) -> Option<Waiting> {
        let mut state = self.lock();
        let variant = self.enter(key, Effort::Least, source, &mut state)?;
        if let Some(known) = state.known.get_mut(&(key, Effort::Least)) {
            known.waiting = known.waiting.saturating_add(1);
        }
        Some(Waiting {
            store: Arc::clone(self),
            key,
            variant,
        })
    }

    fn enter(
        self: &Arc<Self>,
        key: Key,
        effort: Effort,
        source: Source,
        state: &mut State,
    ) -> Option<Arc<Variant>> {
        if self.capacity == 0 {
            return None;
        }
        if let Some(known) = state.known.get(&(key, effort)) {
            return Some(Arc::clone(&known.variant));
        }
        let queue = state.queue(effort);
        if queue.jobs.len() >= MAX_QUEUE {
            return None;
        }
        if queue.threads < effort.most_threads() {
            let store = Arc::downgrade(self);
            std::thread::Builder::new()
                .name("apus-compress".into())
                .spawn(move || run(&store, effort))
                .ok()?;
            queue.threads = queue.threads.saturating_add(1);
        }
        let variant = Arc::new(Variant::default());
        queue.jobs.push_back(Job {
            key,
            variant: Arc::clone(&variant),
            source,
        });
        let known = Known {
            variant: Arc::clone(&variant),
            waiting: 0,
        };
        state.known.insert((key, effort), known);
        Some(variant)
    }

    /// The next thing to make; after `None` the thread ends.
    fn next(&self, effort: Effort) -> Option<Job> {
        let mut state = self.lock();
        let queue = state.queue(effort);
        let next = queue.jobs.pop_front();
        if next.is_none() {
            queue.threads = queue.threads.saturating_sub(1);
        }
        next
    }

    fn finish(&self, job: &Job, effort: Effort, made: Option<Bytes>) {
        // What does not pay is remembered too, at a nominal size.
        let size = made.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let size = size.saturating_add(256);
        let made = made.map(Content::from);
        let mut state = self.lock();
        if job.variant.is_cancelled.load(Ordering::Relaxed) {
            return;
        }
        let _ = job.variant.done.set(made);
        state.made.push_back(((job.key, effort), size));
        state.bytes = state.bytes.saturating_add(size);
        while state.bytes > self.capacity
            && let Some((oldest, size)) = state.made.pop_front()
        {
            state.known.remove(&oldest);
            state.bytes = state.bytes.saturating_sub(size);
        }
        drop(state);
        job.variant.ready.notify_waiters();
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

/// A request that waits for a variant.
pub(crate) struct Waiting {
    store: Arc<Variants>,
    key: Key,
    variant: Arc<Variant>,
}

impl Waiting {
    /// The variant, when it is made; `None` if compression does not pay.
    pub(crate) async fn made(&self) -> Option<Content> {
        self.variant.made().await
    }

    /// The variant, if it is made.
    pub(crate) fn done(&self) -> Option<Option<Content>> {
        self.variant.done()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        let key = (self.key, Effort::Least);
        let Some(known) = state.known.get_mut(&key) else {
            return;
        };
        if !Arc::ptr_eq(&known.variant, &self.variant) {
            return;
        }
        known.waiting = known.waiting.saturating_sub(1);
        if known.waiting == 0 && self.variant.done.get().is_none() {
            self.variant.is_cancelled.store(true, Ordering::Relaxed);
            state.known.remove(&key);
            let is_other = |job: &Job| !Arc::ptr_eq(&job.variant, &self.variant);
            state.urgent.jobs.retain(is_other);
        }
    }
}

/// Makes variants until none is waiting or nobody wants them any more.
fn run(store: &Weak<Variants>, effort: Effort) {
    yield_to_workers();
    while let Some(job) = store.upgrade().and_then(|store| store.next(effort)) {
        let is_cancelled = || job.variant.is_cancelled.load(Ordering::Relaxed);
        let made = compress(&job.source, job.key.coding, effort, is_cancelled).ok();
        let Some(store) = store.upgrade() else {
            return;
        };
        store.finish(&job, effort, made.flatten());
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
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Has all of it, piece by piece.
    fn read(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => bytes.chunks(PIECE).try_for_each(take),
            Self::File(file, len) => {
                let mut piece = vec![0; PIECE];
                let mut offset = 0;
                while offset < *len {
                    let left = usize::try_from(*len - offset).unwrap_or(PIECE);
                    piece.truncate(left);
                    file.read_exact_at(&mut piece, offset)?;
                    offset = offset.saturating_add(piece.len() as u64);
                    take(&piece)?;
                }
                Ok(())
            }
        }
    }
}

/// How long compression may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effort {
    /// Somebody waits for it.
    Least,
    /// It is made once and sent many times.
    Most,
}

impl Effort {
    fn most_threads(self) -> usize {
        match self {
            Self::Least => MAX_URGENT_THREADS,
            Self::Most => 1,
        }
    }

    fn encoding(self, coding: Coding, length: u64) -> Encoding {
        let level = match (coding, self) {
            (Coding::Gzip | Coding::Identity, Self::Least) => 1,
            (Coding::Gzip | Coding::Identity, Self::Most) => 9,
            (Coding::Brotli, Self::Least) => 3,
            // The last two levels take ten times as long.
            (Coding::Brotli, Self::Most) if length > 1 << 20 => 9,
            (Coding::Brotli, Self::Most) => 11,
            (Coding::Zstd, Self::Least) => 1,
            (Coding::Zstd, Self::Most) => 19,
        };
        // A window of the length is as good as one that is larger, and takes less memory. With one of 64
        // KiB or less Brotli would take a table of 32 MiB.
        let bits = u64::BITS.saturating_sub(length.leading_zeros());
        let window = u8::try_from(bits.clamp(17, 22)).ok();
        Encoding {
            coding,
            level,
            window: window.filter(|_| coding == Coding::Brotli),
            length: Some(length),
        }
    }
}

/// The content in another coding; `None` if that is not notably smaller.
///
/// # Errors
/// The source cannot be read, or `is_cancelled` said that nobody waits
/// ([`io::ErrorKind::Interrupted`]).
fn compress(
    source: &Source,
    coding: Coding,
    effort: Effort,
    is_cancelled: impl Fn() -> bool,
) -> io::Result<Option<Bytes>> {
    if coding == Coding::Identity {
        return Ok(None);
    }
    let length = source.len();
    let mut encoder = Encoder::new(effort.encoding(coding, length))?;
    source.read(|piece| match is_cancelled() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => encoder.write(piece),
    })?;
    let made = encoder.finish()?;
    let is_smaller = (made.len() as u64) < length.saturating_sub(length / 10);
    Ok(is_smaller.then(|| made.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn compresses_what_gets_smaller() {
        let text = "all work and no play ".repeat(1000);
        for effort in [Effort::Least, Effort::Most] {
            let source = Source::Memory(text.clone().into());
            let made = |coding| compress(&source, coding, effort, || false).unwrap();
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
        let short = Source::Memory(Bytes::from_static(b"x"));
        let made = compress(&short, Coding::Gzip, Effort::Most, || false).unwrap();
        assert_eq!(made, None);
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
        while store.lock().background.threads > 0 {
            std::thread::yield_now();
        }
        assert!(first.done().unwrap().is_some());
        assert!(store.lock().bytes <= 1000);
        assert!(!Arc::ptr_eq(&first, &request(1)));
    }

    /// Of a coding that takes its time.
    fn key(hash: u64) -> Key {
        let file = tempfile::tempfile().unwrap();
        Key {
            identity: Identity::of(&file.metadata().unwrap()),
            hash,
            coding: Coding::Brotli,
        }
    }

    #[tokio::test]
    async fn one_compression_is_for_all_that_wait() {
        let store = Arc::new(Variants::new(1 << 20));
        let text = Bytes::from("na ".repeat(100_000));
        let key = key(1);
        let wait = || store.wait(key, Source::Memory(text.clone())).unwrap();
        let (first, second) = (wait(), wait());
        assert!(Arc::ptr_eq(&first.variant, &second.variant));
        drop(first);
        let made = second.made().await.unwrap();
        assert!(made.len() < text.len() as u64 / 10);
        drop(second);
        assert!(matches!(wait().done(), Some(Some(_))));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_made() {
        let store = Arc::new(Variants::new(1 << 20));
        let text = Bytes::from("na ".repeat(300_000));
        let keys: Vec<_> = (0..8).map(key).collect();
        let waiting: Vec<_> = keys
            .iter()
            .map(|key| store.wait(*key, Source::Memory(text.clone())).unwrap())
            .collect();
        let variants: Vec<_> = waiting.iter().map(|one| one.variant.clone()).collect();
        drop(waiting);
        assert!(store.lock().urgent.jobs.is_empty());
        while store.lock().urgent.threads > 0 {
            std::thread::yield_now();
        }
        let made = variants.iter().filter(|variant| variant.done().is_some());
        let made = made.count();
        assert!(made < keys.len(), "all were made");
        assert_eq!(store.lock().known.len(), made);
    }

    #[test]
    fn more_than_can_wait_are_turned_away() {
        let store = Arc::new(Variants::new(1 << 20));
        let text = Bytes::from("na ".repeat(300_000));
        let waiting: Vec<_> = (0..100)
            .filter_map(|hash| store.wait(key(hash), Source::Memory(text.clone())))
            .collect();
        assert!(waiting.len() >= MAX_QUEUE && waiting.len() < 100);
    }
}
