//! Filling an object from its origin.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;

use super::Store;
use super::body::{AppendResult, BodyStorage, FillOutcome};
use super::disk::Disk;
use super::object::Object;
use super::object_file::SealRequest;
use super::purge_guard::PurgeGuard;

/// The remaining bytes are not wanted: no reader is left, or the object has no place for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwantedBytesError;

impl std::fmt::Display for UnwantedBytesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no reader waits for the rest of the response")
    }
}

impl std::error::Error for UnwantedBytesError {}

/// Writes a body into an object: all of it, or one gap.
///
/// Call [`ObjectFiller::append`] for each piece, and [`ObjectFiller::finish`] at the end of the
/// body. A filler that is dropped before has broken off: the received part stays if the object is
/// resumable; otherwise the readers get an error and the object is not stored.
#[derive(Debug)]
pub struct ObjectFiller {
    store: Store,
    object: Arc<Object>,
    claim: u64,
    range: Range<u64>,
    /// The bytes that it has put in memory.
    memory_bytes: u64,
    /// Only for the fill that creates the object.
    purge_guard: Option<PurgeGuard>,
    ended: bool,
}

impl Object {
    /// Claims the missing parts of `range` that are not being filled: returns a filler for each, to
    /// be fed from range requests with If-Range. Empty if there are none, or the object is not
    /// resumable.
    pub fn fill(self: &Arc<Self>, store: &Store, range: Range<u64>) -> Vec<ObjectFiller> {
        if !self.is_resumable() {
            return Vec::new();
        }
        let claims = self.stored_body().claim_missing(range);
        let filler = |(claim, gap)| ObjectFiller::of_gap(store.clone(), self.clone(), claim, gap);
        claims.into_iter().map(filler).collect()
    }

    /// Claims the first missing part of `range`, if it is not being filled.
    ///
    /// If it is being filled from more than `ahead` bytes before, that fill ends where this one
    /// begins. `None` if the part is present, will arrive soon, or cannot be fetched.
    pub fn fill_first(
        self: &Arc<Self>,
        store: &Store,
        range: Range<u64>,
        ahead: u64,
    ) -> Option<ObjectFiller> {
        if !self.is_resumable() {
            return None;
        }
        let (claim, gap) = self.stored_body().claim_first(range, ahead)?;
        Some(ObjectFiller::of_gap(
            store.clone(),
            self.clone(),
            claim,
            gap,
        ))
    }
}

impl ObjectFiller {
    pub(crate) fn of_all(store: Store, object: Arc<Object>, purge_guard: PurgeGuard) -> Self {
        let claim = object.stored_body().claim_all();
        let range = 0..object.length().unwrap_or(u64::MAX);
        let mut filler = Self::of_gap(store, object, claim, range);
        filler.purge_guard = Some(purge_guard);
        // An object that is too large for memory goes to disk from the start.
        filler.choose_storage(filler.object.length().unwrap_or_default());
        filler
    }

    /// A filler of an object that begins with `range` of its body.
    pub(crate) fn of_part(
        store: Store,
        object: Arc<Object>,
        purge_guard: PurgeGuard,
        range: Range<u64>,
    ) -> Self {
        // No claim has this id: no bytes of an object without this range are wanted.
        let nothing = (0, range.start..range.start);
        let (claim, gap) = object
            .stored_body()
            .claim_first(range, 0)
            .unwrap_or(nothing);
        let mut filler = Self::of_gap(store, object, claim, gap);
        filler.purge_guard = Some(purge_guard);
        filler.choose_storage(filler.object.length().unwrap_or_default());
        filler
    }

    pub(crate) fn of_gap(store: Store, object: Arc<Object>, claim: u64, range: Range<u64>) -> Self {
        Self {
            store,
            object,
            claim,
            range,
            memory_bytes: 0,
            purge_guard: None,
            ended: false,
        }
    }

    /// The object that is filled.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The range that is still to be filled, unless another filler takes over its end. It ends at
    /// `u64::MAX` if the length is unknown.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Appends the next piece. Readers get it immediately; the call waits only while too much is
    /// buffered in memory.
    ///
    /// # Errors
    /// [`UnwantedBytesError`]: drop the filler, or call [`ObjectFiller::finish`] if this was all.
    pub async fn append(&mut self, bytes: Bytes) -> Result<(), UnwantedBytesError> {
        self.choose_storage(self.range.start.saturating_add(bytes.len() as u64));
        self.count_memory(bytes.len() as u64);
        self.wait_for_room().await?;
        let len = bytes.len();
        let AppendResult { accepted, to_write } =
            self.object.stored_body().append(self.claim, bytes);
        if let Some((piece, file)) = to_write.zip(self.object.stored_body().file()) {
            self.store.write(&self.object, file, [piece]);
        }
        self.range.start = self.range.start.saturating_add(accepted as u64);
        if accepted < len {
            Err(UnwantedBytesError)
        } else {
            Ok(())
        }
    }

    /// Waits until there is room for the next [`ObjectFiller::append`], so that its piece need not
    /// be read before.
    ///
    /// # Errors
    /// [`UnwantedBytesError`]: no reader is left.
    pub async fn room(&self) -> Result<(), UnwantedBytesError> {
        self.wait_for_room().await
    }

    /// Waits until the rest is not wanted, so that a fill from a slow origin can end then.
    pub async fn unwanted(&self) {
        let stops = !self.object.continues_without_readers();
        poll_fn(|cx| {
            self.object
                .stored_body()
                .poll_unwanted(cx, self.claim, stops)
        })
        .await;
    }

    /// Ends the fill at the regular end of its source.
    pub fn finish(mut self) -> FillOutcome {
        self.end(true, self.object.is_resumable())
    }

    /// Breaks the fill off and drops the received bytes, because the response is not what it should
    /// be. Ranges of the object that no other filler fills never arrive.
    pub fn discard(mut self) -> FillOutcome {
        self.end(false, false)
    }

    /// Prevents that the object is stored: its body is kept only for its current readers.
    pub fn do_not_store(&self) {
        if self.object.stored_body().is_joinable() {
            self.stop_storing();
        }
    }

    /// Chooses the storage of an object of at least `size` bytes: memory, else disk, else a window
    /// for its readers.
    fn choose_storage(&mut self, size: u64) {
        let shared = self.store.shared();
        let for_disk = |disk: &&Disk| size <= disk.settings.object_bytes;
        let on_disk = shared.disk.as_ref().filter(for_disk).is_some();
        match self.object.stored_body().storage() {
            BodyStorage::Memory if size <= shared.settings.memory_object_bytes => {}
            BodyStorage::Memory if on_disk => self.spill(),
            BodyStorage::Disk(_) if on_disk => {}
            BodyStorage::Memory | BodyStorage::Disk(_) => self.stop_storing(),
            BodyStorage::Window(_) => {}
        }
    }

    /// Counts `more` bytes in memory. If all fills together have too many, this one leaves the
    /// memory.
    fn count_memory(&mut self, more: u64) {
        let shared = self.store.shared();
        if self.object.stored_body().storage() != BodyStorage::Memory {
            return;
        }
        let before = shared.filling.fetch_add(more, Ordering::Relaxed);
        self.memory_bytes = self.memory_bytes.saturating_add(more);
        // A body that is being filled is in no queue of eviction, so that nothing else limits the memory of all of
        // them.
        if before.saturating_add(more) > shared.settings.memory_bytes / 2 {
            if shared.disk.is_some() {
                self.spill();
            } else {
                self.stop_storing();
            }
        }
    }

    fn spill(&mut self) {
        let shared = self.store.shared();
        let Some(disk) = &shared.disk else {
            return;
        };
        let file = Arc::new(disk.file_for(&self.store, &self.object));
        let unwritten = shared.settings.unwritten_bytes;
        if let Some(pieces) = self.object.stored_body().spill(file.clone(), unwritten)
            && !pieces.is_empty()
        {
            self.store.write(&self.object, &file, pieces);
        }
        shared
            .filling
            .fetch_sub(std::mem::take(&mut self.memory_bytes), Ordering::Relaxed);
    }

    fn stop_storing(&self) {
        let shared = self.store.shared();
        let body = self.object.stored_body();
        let file = body.filled_file();
        body.stop_storing(shared.settings.window_bytes);
        shared.drop_object(&self.object);
        if let Some(file) = file {
            self.store.end_file(&self.object, file, None);
        }
    }

    async fn wait_for_room(&self) -> Result<(), UnwantedBytesError> {
        let body = self.object.stored_body();
        let stops = !self.object.continues_without_readers();
        loop {
            let room = poll_fn(|cx| Poll::Ready(body.poll_room(cx, self.claim, stops))).await;
            if let Poll::Ready(wanted) = room {
                return if wanted {
                    Ok(())
                } else {
                    Err(UnwantedBytesError)
                };
            }
            let room = poll_fn(|cx| body.poll_room(cx, self.claim, stops));
            let max_lag = self.store.shared().settings.lag;
            // A client that does not read would otherwise stop the response of all others.
            if tokio::time::timeout(max_lag, room).await.is_err() {
                body.cut_off_slow_readers();
            }
        }
    }

    fn end(&mut self, is_regular_end: bool, resumable: bool) -> FillOutcome {
        if std::mem::replace(&mut self.ended, true) {
            return FillOutcome::Nothing;
        }
        let body = self.object.stored_body();
        let filled = body.end(self.claim, is_regular_end, resumable);
        self.store
            .shared()
            .filling
            .fetch_sub(self.memory_bytes, Ordering::Relaxed);
        let is_stored = self.store.shared().end_fill(&self.object, filled);
        let purge_guard = self.purge_guard.take();
        match body.filled_file() {
            Some(_) if filled == FillOutcome::Ongoing => {}
            Some(file) => {
                let seal = is_stored.then_some(SealRequest(purge_guard));
                self.store.end_file(&self.object, file, seal);
            }
            None if is_stored => self.store.persist(&self.object, purge_guard),
            None => {}
        }
        filled
    }
}

impl Drop for ObjectFiller {
    fn drop(&mut self) {
        self.end(false, self.object.is_resumable());
    }
}
