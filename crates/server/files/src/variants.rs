//! Compressed variants of files, made once per version for all workers by threads of low priority.
//!
//! One thread compresses in the background, and a few compress for clients that accept nothing else
//! and wait.

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

use crate::body::FileBytes;
use crate::tree::FileIdentity;
use apus_compress::{ContentEncoder, Encoding};

/// The longest file whose compressed variants are stored.
pub(crate) const MAX_SOURCE: u64 = 4 << 20;

/// The length of each queue, in the background and for waiting clients; later requests queue
/// the rest again.
const MAX_QUEUE: usize = 32;

/// The number of threads that compress for waiting clients.
const MAX_URGENT_THREADS: usize = 2;

/// The number of bytes after which a thread checks whether a client still waits.
const PIECE_BYTES: usize = 64 * 1024;

/// A version of a file in one content coding. Metadata do not tell versions apart that follow each
/// other quickly, so the key includes the hash of the bytes where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VariantKey {
    pub(crate) identity: FileIdentity,
    pub(crate) hash: u64,
    pub(crate) coding: Coding,
}

/// The bytes to compress.
#[derive(Clone)]
pub(crate) enum VariantSource {
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// A variant that is made or being made.
#[derive(Default)]
pub(crate) struct Variant {
    result: OnceLock<Option<FileBytes>>,
    ready: Notify,
    /// Whether no request waits for it any more.
    is_cancelled: AtomicBool,
}

impl Variant {
    /// The result once it is there; `Some(None)` if compression does not pay.
    pub(crate) fn result(&self) -> Option<Option<FileBytes>> {
        self.result.get().cloned()
    }

    async fn made(&self) -> Option<FileBytes> {
        loop {
            let ready = self.ready.notified();
            if let Some(done) = self.result() {
                return done;
            }
            ready.await;
        }
    }
}

/// A store of compressed variants of files, which drops the oldest first. Its keys identify
/// versions of files, so that any [`Files`](super::Files) may share one store: all of a server,
/// also after a reload.
pub struct VariantStore {
    state: Mutex<VariantStoreState>,
    capacity: u64,
}

#[derive(Default)]
struct VariantStoreState {
    entries: HashMap<(VariantKey, CompressionEffort), VariantEntry>,
    /// The variants in the order in which they were made, with their sizes.
    order: VecDeque<((VariantKey, CompressionEffort), u64)>,
    bytes: u64,
    background: CompressionQueue,
    urgent: CompressionQueue,
}

struct VariantEntry {
    variant: Arc<Variant>,
    /// The number of requests that wait for it.
    waiters: usize,
}

/// Queued compressions, and the number of threads for them.
#[derive(Default)]
struct CompressionQueue {
    jobs: VecDeque<CompressionJob>,
    threads: usize,
}

struct CompressionJob {
    key: VariantKey,
    variant: Arc<Variant>,
    source: VariantSource,
}

impl VariantStoreState {
    fn queue(&mut self, effort: CompressionEffort) -> &mut CompressionQueue {
        match effort {
            CompressionEffort::Least => &mut self.urgent,
            CompressionEffort::Most => &mut self.background,
        }
    }
}

impl VariantStore {
    /// A store with this capacity in bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            state: Mutex::default(),
            capacity,
        }
    }

    /// The capacity in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether variants of a file of this length are stored. Those that need most of the capacity
    /// would be made again and again.
    pub(crate) fn can_keep(&self, length: u64) -> bool {
        length <= MAX_SOURCE && length <= self.capacity / 2
    }

    /// The variant, which is queued if it is missing. `None` if the queue is full, or nothing can
    /// be stored.
    pub(crate) fn request(
        self: &Arc<Self>,
        key: VariantKey,
        source: VariantSource,
    ) -> Option<Arc<Variant>> {
        self.get_or_enqueue(key, CompressionEffort::Most, source, &mut self.lock())
    }

    /// The variant for a request that waits for it: it is compressed quickly, once for all that
    /// wait, and cancelled if they all leave. `None` if the queue is full.
    pub(crate) fn wait(
        self: &Arc<Self>,
        key: VariantKey,
        source: VariantSource,
    ) -> Option<VariantWait> {
        let mut state = self.lock();
        let variant = self.get_or_enqueue(key, CompressionEffort::Least, source, &mut state)?;
        if let Some(entry) = state.entries.get_mut(&(key, CompressionEffort::Least)) {
            entry.waiters = entry.waiters.saturating_add(1);
        }
        Some(VariantWait {
            store: Arc::clone(self),
            key,
            variant,
        })
    }

    fn get_or_enqueue(
        self: &Arc<Self>,
        key: VariantKey,
        effort: CompressionEffort,
        source: VariantSource,
        state: &mut VariantStoreState,
    ) -> Option<Arc<Variant>> {
        if self.capacity == 0 {
            return None;
        }
        if let Some(entry) = state.entries.get(&(key, effort)) {
            return Some(Arc::clone(&entry.variant));
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
        queue.jobs.push_back(CompressionJob {
            key,
            variant: Arc::clone(&variant),
            source,
        });
        let entry = VariantEntry {
            variant: Arc::clone(&variant),
            waiters: 0,
        };
        state.entries.insert((key, effort), entry);
        Some(variant)
    }

    /// The next job; after `None` the thread ends.
    fn next(&self, effort: CompressionEffort) -> Option<CompressionJob> {
        let mut state = self.lock();
        let queue = state.queue(effort);
        let next = queue.jobs.pop_front();
        if next.is_none() {
            queue.threads = queue.threads.saturating_sub(1);
        }
        next
    }

    fn finish(&self, job: &CompressionJob, effort: CompressionEffort, made: Option<Bytes>) {
        // A variant that does not pay is remembered too, with a nominal size.
        let size = made.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let size = size.saturating_add(256);
        let made = made.map(FileBytes::from);
        let mut state = self.lock();
        if job.variant.is_cancelled.load(Ordering::Relaxed) {
            return;
        }
        let _ = job.variant.result.set(made);
        state.order.push_back(((job.key, effort), size));
        state.bytes = state.bytes.saturating_add(size);
        while state.bytes > self.capacity
            && let Some((oldest, size)) = state.order.pop_front()
        {
            state.entries.remove(&oldest);
            state.bytes = state.bytes.saturating_sub(size);
        }
        drop(state);
        job.variant.ready.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, VariantStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for VariantStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variants")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// A request that waits for a variant.
pub(crate) struct VariantWait {
    store: Arc<VariantStore>,
    key: VariantKey,
    variant: Arc<Variant>,
}

impl VariantWait {
    /// Waits for the variant; `None` if compression does not pay.
    pub(crate) async fn variant(&self) -> Option<FileBytes> {
        self.variant.made().await
    }

    /// The variant, if it is made.
    pub(crate) fn variant_if_made(&self) -> Option<Option<FileBytes>> {
        self.variant.result()
    }
}

impl Drop for VariantWait {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        let key = (self.key, CompressionEffort::Least);
        let Some(entry) = state.entries.get_mut(&key) else {
            return;
        };
        if !Arc::ptr_eq(&entry.variant, &self.variant) {
            return;
        }
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.waiters == 0 && self.variant.result.get().is_none() {
            self.variant.is_cancelled.store(true, Ordering::Relaxed);
            state.entries.remove(&key);
            let is_other = |job: &CompressionJob| !Arc::ptr_eq(&job.variant, &self.variant);
            state.urgent.jobs.retain(is_other);
        }
    }
}

/// Makes variants until the queue is empty or the store is dropped.
fn run(store: &Weak<VariantStore>, effort: CompressionEffort) {
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

/// Lowers the priority of the thread, and lets it leave the core of the worker that started it.
fn yield_to_workers() {
    let mut everywhere = rustix::thread::CpuSet::new();
    for cpu in 0..rustix::thread::CpuSet::MAX_CPU {
        everywhere.set(cpu);
    }
    // Both only reduce the load on the workers; failures are harmless.
    let _ = rustix::thread::sched_setaffinity(None, &everywhere);
    let _ = rustix::process::nice(10);
}

impl VariantSource {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }

    /// Calls `take` for each piece of the bytes.
    fn read(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => bytes.chunks(PIECE_BYTES).try_for_each(take),
            Self::File(file, len) => {
                let mut piece = vec![0; PIECE_BYTES];
                let mut offset = 0;
                while offset < *len {
                    let left = usize::try_from(*len - offset).unwrap_or(PIECE_BYTES);
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
pub(crate) enum CompressionEffort {
    /// A client waits for it.
    Least,
    /// It is made once and sent many times.
    Most,
}

impl CompressionEffort {
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
        // A window of the length suffices and takes less memory than a larger one. With one of 64
        // KiB or less, Brotli would use a table of 32 MiB.
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

/// The bytes in another coding; `None` if they are not notably smaller.
///
/// # Errors
/// The source cannot be read, or `is_cancelled` returned `true` ([`io::ErrorKind::Interrupted`]).
fn compress(
    source: &VariantSource,
    coding: Coding,
    effort: CompressionEffort,
    is_cancelled: impl Fn() -> bool,
) -> io::Result<Option<Bytes>> {
    if coding == Coding::Identity {
        return Ok(None);
    }
    let length = source.len();
    let mut encoder = ContentEncoder::new(effort.encoding(coding, length))?;
    source.read(|piece| {
        if is_cancelled() {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            encoder.write(piece)
        }
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
    fn compresses_only_if_the_result_is_smaller() {
        let text = "all work and no play ".repeat(1000);
        for effort in [CompressionEffort::Least, CompressionEffort::Most] {
            let source = VariantSource::Memory(text.clone().into());
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
        let short = VariantSource::Memory(Bytes::from_static(b"x"));
        let made = compress(&short, Coding::Gzip, CompressionEffort::Most, || false).unwrap();
        assert_eq!(made, None);
    }

    #[test]
    fn makes_each_variant_once_and_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let identity = FileIdentity::of(&std::fs::metadata(&path).unwrap());
        let store = Arc::new(VariantStore::new(1000));
        let text = Bytes::from("na ".repeat(1000));
        let request = |hash| {
            let key = VariantKey {
                identity,
                hash,
                coding: Coding::Gzip,
            };
            store
                .request(key, VariantSource::Memory(text.clone()))
                .unwrap()
        };
        let first = request(1);
        assert!(Arc::ptr_eq(&first, &request(1)));
        for hash in 2..9 {
            request(hash);
        }
        while store.lock().background.threads > 0 {
            std::thread::yield_now();
        }
        assert!(first.result().unwrap().is_some());
        assert!(store.lock().bytes <= 1000);
        assert!(!Arc::ptr_eq(&first, &request(1)));
    }

    /// A key with a slow coding.
    fn key(hash: u64) -> VariantKey {
        let file = tempfile::tempfile().unwrap();
        VariantKey {
            identity: FileIdentity::of(&file.metadata().unwrap()),
            hash,
            coding: Coding::Brotli,
        }
    }

    #[tokio::test]
    async fn compresses_once_for_all_waiting_requests() {
        let store = Arc::new(VariantStore::new(1 << 20));
        let text = Bytes::from("na ".repeat(100_000));
        let key = key(1);
        let wait = || {
            store
                .wait(key, VariantSource::Memory(text.clone()))
                .unwrap()
        };
        let (first, second) = (wait(), wait());
        assert!(Arc::ptr_eq(&first.variant, &second.variant));
        drop(first);
        let made = second.variant().await.unwrap();
        assert!(made.len() < text.len() as u64 / 10);
        drop(second);
        assert!(matches!(wait().variant_if_made(), Some(Some(_))));
    }

    #[test]
    fn cancels_variants_that_no_request_waits_for() {
        let store = Arc::new(VariantStore::new(1 << 20));
        let text = Bytes::from("na ".repeat(300_000));
        let keys: Vec<_> = (0..8).map(key).collect();
        let waiting: Vec<_> = keys
            .iter()
            .map(|key| {
                store
                    .wait(*key, VariantSource::Memory(text.clone()))
                    .unwrap()
            })
            .collect();
        let variants: Vec<_> = waiting.iter().map(|one| one.variant.clone()).collect();
        drop(waiting);
        assert!(store.lock().urgent.jobs.is_empty());
        while store.lock().urgent.threads > 0 {
            std::thread::yield_now();
        }
        let made = variants.iter().filter(|variant| variant.result().is_some());
        let made = made.count();
        assert!(made < keys.len(), "all were made");
        assert_eq!(store.lock().entries.len(), made);
    }

    #[test]
    fn rejects_requests_when_the_queue_is_full() {
        let store = Arc::new(VariantStore::new(1 << 20));
        let text = Bytes::from("na ".repeat(300_000));
        let waiting: Vec<_> = (0..100)
            .filter_map(|hash| store.wait(key(hash), VariantSource::Memory(text.clone())))
            .collect();
        assert!(waiting.len() >= MAX_QUEUE && waiting.len() < 100);
    }
}
