//! A stored response: its metadata, its body and its state.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::body::ObjectBody;
use super::encoded_forms::EncodedForms;
use super::eviction::{EvictionCandidate, Usage};
use super::intervals::Intervals;
use super::key::{KeyHash, ObjectName, StoreKey};
use super::metadata::{NewObject, ObjectMetadata};
use super::object_file::{CheckedRange, FileVerification, ObjectRecord, PieceChecksums};
use super::purge::PurgeSubject;
use super::whole_body::WholeBody;

/// A stored response, or one that is being stored. Shared by all that send it.
#[derive(Debug)]
pub struct Object {
    key: StoreKey,
    hash: KeyHash,
    generation: u64,
    vary: Arc<[u8]>,
    secondary: Box<[u8]>,
    tags: Box<[Box<[u8]>]>,
    resumable: bool,
    fill_without_readers: bool,
    metadata: Mutex<Arc<ObjectMetadata>>,
    /// Counts the changes that make copies of it out of date: validation, purge, replacement,
    /// eviction.
    epoch: AtomicU64,
    stale: AtomicBool,
    /// Whether it was removed from memory.
    evicted: AtomicBool,
    /// Whether it must not be found again at all: purged or replaced.
    removed: AtomicBool,
    /// The number of the last purge when it was requested or last validated.
    filled_at: AtomicU64,
    /// The number of the last purge that it was checked against.
    checked: AtomicU64,
    hits: AtomicU64,
    usage: Arc<Usage>,
    body: ObjectBody,
    forms: OnceLock<Box<EncodedForms>>,
}

/// The properties of an object besides the response.
pub(crate) struct ObjectContext {
    pub(crate) key: StoreKey,
    pub(crate) generation: u64,
    pub(crate) filled_at: u64,
    pub(crate) body: ObjectBody,
}

/// The memory that an object takes besides its bytes: itself, its entry in the map, its entry in
/// the queue.
const OVERHEAD: u64 = 600;

impl Object {
    pub(crate) fn new(new: NewObject, origin: ObjectContext) -> Self {
        Self {
            hash: origin.key.variant(&new.secondary),
            key: origin.key,
            generation: origin.generation,
            vary: new.vary.into(),
            secondary: new.secondary.into(),
            tags: new.tags.into(),
            resumable: new.resumable,
            fill_without_readers: new.fill_without_readers,
            metadata: Mutex::new(Arc::new(new.metadata)),
            epoch: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            filled_at: AtomicU64::new(origin.filled_at),
            checked: AtomicU64::new(origin.filled_at),
            hits: AtomicU64::new(0),
            usage: Arc::default(),
            body: origin.body,
            forms: OnceLock::new(),
        }
    }

    /// The primary key.
    pub fn key(&self) -> &StoreKey {
        &self.key
    }

    /// The fields in `Vary`, as in [`NewObject::vary`].
    pub fn vary(&self) -> &[u8] {
        &self.vary
    }

    /// The secondary key, as in [`NewObject::secondary`].
    pub fn secondary(&self) -> &[u8] {
        &self.secondary
    }

    /// Its tags.
    pub fn tags(&self) -> &[Box<[u8]>] {
        &self.tags
    }

    /// The current metadata.
    pub fn metadata(&self) -> Arc<ObjectMetadata> {
        self.metadata
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether its missing ranges may be fetched.
    pub fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// A number that changes when copies of it become out of date.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a soft purge applied to it since it was last validated.
    pub fn is_purged_softly(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether it was purged, replaced or evicted. It can still be read.
    pub fn is_gone(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }

    /// How often it was a hit.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The length of its body in bytes, once it is known.
    pub fn length(&self) -> Option<u64> {
        self.body.length()
    }

    /// Whether its body is complete.
    pub fn is_complete(&self) -> bool {
        self.body.is_complete()
    }

    /// Whether it is being filled.
    pub fn is_filling(&self) -> bool {
        self.body.is_filling()
    }

    /// Whether a new reader can read it from the start. This is false for an object that cannot be
    /// stored, because its bytes are dropped when its readers have got them.
    pub fn is_joinable(&self) -> bool {
        self.body.is_joinable()
    }

    /// Its body, if it is complete and in memory.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.body.whole().map(WholeBody::bytes)
    }

    /// The missing parts of `range`, whether or not they are being filled.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        if self.body.whole().is_some() {
            return Vec::new();
        }
        let end = self
            .length()
            .map_or(range.end, |length| length.min(range.end));
        self.body.ready().missing(range.start..end.max(range.start))
    }

    /// The ranges of the body that are present.
    pub fn stored(&self) -> Intervals {
        match self.body.whole() {
            Some(whole) => std::iter::once(0..whole.bytes().len() as u64).collect(),
            None => self.body.ready(),
        }
    }

    /// Whether the piece at `position`, if it is present, is undamaged. A damaged object is
    /// removed, so that the bytes that no client got yet can be fetched again.
    pub async fn is_sound_at(self: &Arc<Self>, position: u64) -> bool {
        let one = position..position.saturating_add(1);
        let Some((file, range)) = self.body.in_file(&one) else {
            return true;
        };
        let nothing = CheckedRange::default();
        let is_damaged = match poll_fn(|cx| file.poll_verification(cx, &range, nothing)).await {
            FileVerification::Done(_) => false,
            FileVerification::Needed(job) => {
                matches!(spawn_blocking(|| job.run()).await, Ok(None))
            }
        };
        if is_damaged {
            self.remove_damaged();
        }
        !is_damaged
    }

    /// Reads the complete body into memory. `None` if it is incomplete, not written to disk yet, or
    /// damaged; a damaged object is removed. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_whole(self: &Arc<Self>) -> io::Result<Option<Bytes>> {
        if let Some(bytes) = self.bytes() {
            return Ok(Some(bytes.clone()));
        }
        let Some(length) = self.length().filter(|_| self.is_complete()) else {
            return Ok(None);
        };
        let Some((file, range)) = self.body.in_file(&(0..length)) else {
            return Ok(None);
        };
        if range.end < length {
            // The rest is not written yet.
            return Ok(None);
        }
        let read = file.read(range)?;
        if read.is_none() {
            self.remove_damaged();
        }
        Ok(read.map(Bytes::from))
    }

    /// Removes it because it is damaged on disk.
    pub(crate) fn remove_damaged(self: &Arc<Self>) {
        let store = self.body.file().and_then(|file| file.store());
        if let Some(store) = store {
            store.remove_damaged(self);
        }
    }

    pub(crate) fn forms(&self) -> Option<&EncodedForms> {
        self.forms.get().map(Box::as_ref)
    }

    pub(crate) fn forms_or_new(&self) -> &EncodedForms {
        self.forms.get_or_init(Box::default)
    }

    pub(crate) fn stored_body(&self) -> &ObjectBody {
        &self.body
    }

    pub(crate) fn continues_without_readers(&self) -> bool {
        self.fill_without_readers
    }

    pub(crate) fn shared_vary(&self) -> &Arc<[u8]> {
        &self.vary
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn candidate(&self) -> EvictionCandidate {
        EvictionCandidate {
            hash: self.hash,
            primary: self.key.hash(),
            generation: self.generation,
            usage: self.usage.clone(),
        }
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(crate) fn is_variant(&self, vary: &[u8], secondary: &[u8]) -> bool {
        *self.vary == *vary && *self.secondary == *secondary
    }

    pub(crate) fn subject(&self) -> PurgeSubject<'_> {
        PurgeSubject {
            key: &self.key,
            tags: &self.tags,
            filled_at: self.filled_at.load(Ordering::Acquire),
        }
    }

    pub(crate) fn checked(&self) -> u64 {
        self.checked.load(Ordering::Acquire)
    }

    pub(crate) fn set_checked(&self, number: u64) {
        self.checked.store(number, Ordering::Release);
    }

    pub(crate) fn mark_stale(&self) {
        if !self.stale.swap(true, Ordering::AcqRel) {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Marks it as evicted from memory. Returns `true` the first time.
    pub(crate) fn mark_evicted(&self) -> bool {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        !self.evicted.swap(true, Ordering::AcqRel)
    }

    /// Marks it as removed.
    pub(crate) fn mark_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.mark_evicted();
    }

    /// Whether it was removed, also from disk.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> ObjectName {
        ObjectName {
            primary: self.key.hash(),
            hash: self.hash,
        }
    }

    /// Its record on disk, with the checksums of its body.
    pub(crate) fn record(&self, checksums: PieceChecksums) -> ObjectRecord {
        ObjectRecord {
            key: self.key.clone(),
            new: NewObject {
                metadata: ObjectMetadata::clone(&self.metadata()),
                vary: self.vary.to_vec(),
                secondary: self.secondary.to_vec(),
                tags: self.tags.to_vec(),
                length: self.length(),
                resumable: self.resumable,
                fill_without_readers: self.fill_without_readers,
            },
            generation: self.generation,
            filled_at: self.filled_at.load(Ordering::Acquire),
            stale: self.is_purged_softly(),
            checksums,
        }
    }

    /// An object from a record on disk, with its body.
    pub(crate) fn restored(record: ObjectRecord, body: ObjectBody) -> Self {
        let origin = ObjectContext {
            key: record.key,
            generation: record.generation,
            filled_at: record.filled_at,
            body,
        };
        let object = Self::new(record.new, origin);
        object.stale.store(record.stale, Ordering::Release);
        object
    }

    pub(crate) fn freshen(&self, metadata: ObjectMetadata, filled_at: u64) {
        *self.metadata.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(metadata);
        self.filled_at.store(filled_at, Ordering::Release);
        self.set_checked(filled_at);
        self.stale.store(false, Ordering::Release);
        // Last, since whoever reads the new epoch must find the new metadata, too.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count_hits(&self, hits: u64) {
        self.usage.touch();
        self.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// The bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        let metadata = self.metadata();
        let tags: usize = self
            .tags
            .iter()
            .map(|tag| tag.len().saturating_add(16))
            .sum();
        let parts = [
            self.key.bytes().len(),
            self.vary.len(),
            self.secondary.len(),
            tags,
            metadata.policy.len(),
            metadata.fields.len(),
        ];
        let metadata_bytes: usize = parts.iter().sum();
        OVERHEAD
            .saturating_add(metadata_bytes as u64)
            .saturating_add(self.body.memory())
            .saturating_add(self.forms().map_or(0, EncodedForms::bytes))
    }
}
