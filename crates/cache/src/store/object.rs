//! A stored response: its metadata, its content, and what became of it since.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use apus_http::Body;
use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::Store;
use super::content::Content;
use super::disk::{Checked, Name, Record, Sums};
use super::eviction::{Candidate, Usage};
use super::fill::Filler;
use super::forms::Forms;
use super::intervals::Intervals;
use super::key::{Hash, Key};
use super::purge::Subject;
use super::read::Reader;
use super::whole::Whole;

/// What the policy says about a stored response; replaced as a whole when a validation freshens it
/// (RFC 9111 section 4.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What the policy keeps, in its own form.
    pub policy: Bytes,
    /// The field lines, as they are sent.
    pub fields: Bytes,
    /// When it is no longer of any use, in seconds since the epoch: a hint for what to drop first.
    pub expires: u64,
    /// When it came or was last validated, in seconds since the epoch. What is found on disk and came
    /// later than now is dropped: how old it is is not known.
    pub received: u64,
}

/// A response about to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewObject {
    /// Its metadata.
    pub head: Head,
    /// Which request fields select it, in the policy's form; empty for a response without Vary.
    pub vary: Vec<u8>,
    /// What those fields held: told apart from other variants by it. Empty for a response without
    /// Vary.
    pub secondary: Vec<u8>,
    /// Its tags (surrogate keys).
    pub tags: Vec<Box<[u8]>>,
    /// The length of its content in bytes, where it was declared.
    pub length: Option<u64>,
    /// Whether a part of it may be completed later: it has a strong validator and its origin
    /// answers range requests.
    pub resumable: bool,
    /// Whether the fill goes on when nobody reads it any more.
    pub fill_unread: bool,
}

/// A stored response, or one that is being stored. Shared by all who serve it.
#[derive(Debug)]
pub struct Object {
    key: Key,
    hash: Hash,
    generation: u64,
    vary: Arc<[u8]>,
    secondary: Box<[u8]>,
    tags: Box<[Box<[u8]>]>,
    resumable: bool,
    fill_unread: bool,
    head: Mutex<Arc<Head>>,
    /// Counts whatever makes copies of it out of date: freshened, purged, replaced, evicted.
    epoch: AtomicU64,
    stale: AtomicBool,
    /// It is no longer found in memory.
    gone: AtomicBool,
    /// It is not to be found again at all: purged, or replaced.
    out: AtomicBool,
    /// The number of the last purge when it was asked for, or last validated.
    filled_at: AtomicU64,
    /// The number of the last purge that it was checked against.
    checked: AtomicU64,
    hits: AtomicU64,
    usage: Arc<Usage>,
    content: Content,
    forms: OnceLock<Box<Forms>>,
}

/// What makes an object besides the response itself.
pub(crate) struct Origin {
    pub(crate) key: Key,
    pub(crate) generation: u64,
    pub(crate) filled_at: u64,
    pub(crate) content: Content,
}

/// What an object takes in memory besides its bytes: itself, its place in the map, its queue.
const OVERHEAD: u64 = 600;

impl Object {
    pub(crate) fn new(new: NewObject, origin: Origin) -> Self {
        Self {
            hash: origin.key.variant(&new.secondary),
            key: origin.key,
            generation: origin.generation,
            vary: new.vary.into(),
            secondary: new.secondary.into(),
            tags: new.tags.into(),
            resumable: new.resumable,
            fill_unread: new.fill_unread,
            head: Mutex::new(Arc::new(new.head)),
            epoch: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            out: AtomicBool::new(false),
            filled_at: AtomicU64::new(origin.filled_at),
            checked: AtomicU64::new(origin.filled_at),
            hits: AtomicU64::new(0),
            usage: Arc::default(),
            content: origin.content,
            forms: OnceLock::new(),
        }
    }

    /// The primary key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Which request fields select it, as [`NewObject::vary`] said.
    pub fn vary(&self) -> &[u8] {
        &self.vary
    }

    /// What those fields held, as [`NewObject::secondary`] said.
    pub fn secondary(&self) -> &[u8] {
        &self.secondary
    }

    /// Its tags.
    pub fn tags(&self) -> &[Box<[u8]>] {
        &self.tags
    }

    /// The metadata as it is now.
    pub fn head(&self) -> Arc<Head> {
        self.head
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether what is missing of it may be asked for.
    pub fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// A number that changes when copies made of it are out of date.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a soft purge has met it since it was last validated.
    pub fn is_purged_softly(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether a purge, another response or the lack of room has taken it out. It can still be
    /// read.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// How often it was found.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The length of its content in bytes, once it is known.
    pub fn length(&self) -> Option<u64> {
        self.content.length()
    }

    /// Whether all of its content is there.
    pub fn is_complete(&self) -> bool {
        self.content.is_complete()
    }

    /// Whether somebody is filling it.
    pub fn is_filling(&self) -> bool {
        self.content.is_filling()
    }

    /// Whether who comes now can read it from its start: not so if it cannot be stored, and is let go as its
    /// readers have had it.
    pub fn is_joinable(&self) -> bool {
        self.content.is_joinable()
    }

    /// All of its content, when it is there and in memory.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.content.whole().map(Whole::bytes)
    }

    /// Which parts of `range` are not there, whether or not somebody is filling them.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        if self.content.whole().is_some() {
            return Vec::new();
        }
        let end = self
            .length()
            .map_or(range.end, |length| length.min(range.end));
        self.content
            .ready()
            .missing(range.start..end.max(range.start))
    }

    /// Which parts of the content are there.
    pub fn stored(&self) -> Intervals {
        match self.content.whole() {
            Some(whole) => std::iter::once(0..whole.bytes().len() as u64).collect(),
            None => self.content.ready(),
        }
    }

    /// Reads `range` of it; the whole of it without one.
    pub fn read(self: &Arc<Self>, range: Option<Range<u64>>) -> Reader {
        Reader::new(self.clone(), range.unwrap_or(0..u64::MAX))
    }

    /// Whether the piece at `position` is what was stored, as far as it is there. If it is not, the object is
    /// removed: what nobody was sent yet of it can be fetched anew.
    pub async fn is_sound_at(self: &Arc<Self>, position: u64) -> bool {
        let one = position..position.saturating_add(1);
        let Some((file, range)) = self.content.in_file(&one) else {
            return true;
        };
        let is_damaged = matches!(
            spawn_blocking(file.check(range, Checked::default())).await,
            Ok(None)
        );
        if is_damaged {
            self.remove_damaged();
        }
        !is_damaged
    }

    /// All of its content in memory, if all of it is there and is what was stored; else, if it is damaged, it
    /// is removed. Blocks.
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
        let Some((file, range)) = self.content.in_file(&(0..length)) else {
            return Ok(None);
        };
        if range.end < length {
            // The rest is still to be written.
            return Ok(None);
        }
        let read = file.read(range)?;
        if read.is_none() {
            self.remove_damaged();
        }
        Ok(read.map(Bytes::from))
    }

    /// Removes it, as what is on disk is not what was written there.
    pub(crate) fn remove_damaged(self: &Arc<Self>) {
        let store = self.content.file().and_then(|file| file.store());
        if let Some(store) = store {
            store.remove_damaged(self);
        }
    }

    /// `range` of it as the content of a response, in the simplest form there is: memory, or a
    /// [`Reader`].
    pub fn body(self: &Arc<Self>, range: Option<Range<u64>>) -> Body {
        if let Some(whole) = self.content.whole() {
            return whole.body(range);
        }
        Body::stream(self.read(range))
    }

    /// Takes over the filling of what is missing of `range` and nobody fills yet: a filler for each
    /// gap, to be fed from range requests with If-Range. Empty when there is nothing to do, or the
    /// object is not resumable.
    pub fn fill(self: &Arc<Self>, store: &Store, range: Range<u64>) -> Vec<Filler> {
        if !self.resumable {
            return Vec::new();
        }
        let claims = self.content.claim_missing(range);
        let filler = |(claim, gap)| Filler::of_gap(store.clone(), self.clone(), claim, gap);
        claims.into_iter().map(filler).collect()
    }

    /// Takes over the filling of the first part of `range` that is not there, if nobody fills it.
    ///
    /// If somebody does, and is more than `ahead` bytes before it, that fill ends where this one
    /// begins. `None` when the part comes anyway, is there, or cannot be asked for.
    pub fn fill_first(
        self: &Arc<Self>,
        store: &Store,
        range: Range<u64>,
        ahead: u64,
    ) -> Option<Filler> {
        if !self.resumable {
            return None;
        }
        let (claim, gap) = self.content.claim_first(range, ahead)?;
        Some(Filler::of_gap(store.clone(), self.clone(), claim, gap))
    }

    pub(crate) fn forms(&self) -> Option<&Forms> {
        self.forms.get().map(Box::as_ref)
    }

    pub(crate) fn forms_or_new(&self) -> &Forms {
        self.forms.get_or_init(Box::default)
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn goes_on_unread(&self) -> bool {
        self.fill_unread
    }

    pub(crate) fn shared_vary(&self) -> &Arc<[u8]> {
        &self.vary
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn candidate(&self) -> Candidate {
        Candidate {
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

    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
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

    /// Notes that it had to make room in memory. `true` the first time.
    pub(crate) fn mark_evicted(&self) -> bool {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        !self.gone.swap(true, Ordering::AcqRel)
    }

    /// Notes that it is not to be found again.
    pub(crate) fn mark_out(&self) {
        self.out.store(true, Ordering::Release);
        self.mark_evicted();
    }

    /// Whether it is not to be found again, on disk either.
    pub(crate) fn is_out(&self) -> bool {
        self.out.load(Ordering::Acquire)
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> Name {
        Name {
            primary: self.key.hash(),
            hash: self.hash,
        }
    }

    /// What is written about it, with the `sums` of its content.
    pub(crate) fn record(&self, sums: Sums) -> Record {
        Record {
            key: self.key.clone(),
            new: NewObject {
                head: Head::clone(&self.head()),
                vary: self.vary.to_vec(),
                secondary: self.secondary.to_vec(),
                tags: self.tags.to_vec(),
                length: self.length(),
                resumable: self.resumable,
                fill_unread: self.fill_unread,
            },
            generation: self.generation,
            filled_at: self.filled_at.load(Ordering::Acquire),
            stale: self.is_purged_softly(),
            sums,
        }
    }

    /// An object that was found on disk, with its content.
    pub(crate) fn restored(record: Record, content: Content) -> Self {
        let origin = Origin {
            key: record.key,
            generation: record.generation,
            filled_at: record.filled_at,
            content,
        };
        let object = Self::new(record.new, origin);
        object.stale.store(record.stale, Ordering::Release);
        object
    }

    pub(crate) fn freshen(&self, head: Head, filled_at: u64) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(head);
        self.filled_at.store(filled_at, Ordering::Release);
        self.set_checked(filled_at);
        self.stale.store(false, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count_hits(&self, hits: u64) {
        self.usage.touch();
        self.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// The bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        let head = self.head();
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
            head.policy.len(),
            head.fields.len(),
        ];
        let named: usize = parts.iter().sum();
        OVERHEAD
            .saturating_add(named as u64)
            .saturating_add(self.content.memory())
            .saturating_add(self.forms().map_or(0, Forms::bytes))
    }
}
