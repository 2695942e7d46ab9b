//! Filling an object from its origin.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;

use super::Store;
use super::collapse::Asked;
use super::content::{Appended, Filled, Mode};
use super::disk::{Disk, Seal};
use super::object::Object;

/// Nobody wants the rest: the readers have left, or there is no place for it in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwanted;

impl std::fmt::Display for Unwanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody waits for the rest of the response any more")
    }
}

impl std::error::Error for Unwanted {}

/// Writes content into an object: all of it, or one gap.
///
/// Feed it with [`Filler::append`], then call [`Filler::finish`] where the content ends. One that
/// is dropped before has broken off: what was received stays if the object is resumable, else its
/// readers get an error and it is not stored.
#[derive(Debug)]
pub struct Filler {
    store: Store,
    object: Arc<Object>,
    claim: u64,
    range: Range<u64>,
    /// The bytes it has put in memory.
    held: u64,
    /// For the fill that makes an object.
    asked: Option<Asked>,
    ended: bool,
}

impl Filler {
    pub(crate) fn of_all(store: Store, object: Arc<Object>, asked: Asked) -> Self {
        let claim = object.content().claim_all();
        let range = 0..object.length().unwrap_or(u64::MAX);
        let mut filler = Self::of_gap(store, object, claim, range);
        filler.asked = Some(asked);
        // One that is too large for memory goes to disk from the start.
        filler.find_room(filler.object.length().unwrap_or_default());
        filler
    }

    /// For an object that begins with the part `range` of its content.
    pub(crate) fn of_part(
        store: Store,
        object: Arc<Object>,
        asked: Asked,
        range: Range<u64>,
    ) -> Self {
        // No claim has this number: of an object without these bytes nothing is wanted.
        let nothing = (0, range.start..range.start);
        let (claim, gap) = object.content().claim_first(range, 0).unwrap_or(nothing);
        let mut filler = Self::of_gap(store, object, claim, gap);
        filler.asked = Some(asked);
        filler.find_room(filler.object.length().unwrap_or_default());
        filler
    }

    pub(crate) fn of_gap(store: Store, object: Arc<Object>, claim: u64, range: Range<u64>) -> Self {
        Self {
            store,
            object,
            claim,
            range,
            held: 0,
            asked: None,
            ended: false,
        }
    }

    /// The object that is filled.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// What is still to be filled, unless others take over the end of it. It ends at `u64::MAX` when
    /// the length is not known.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Appends what came next. Readers have it at once; the call waits only while too much is held
    /// in memory for them.
    ///
    /// # Errors
    /// [`Unwanted`]: end it, by dropping it or by [`Filler::finish`] if this was all.
    pub async fn append(&mut self, bytes: Bytes) -> Result<(), Unwanted> {
        self.find_room(self.range.start.saturating_add(bytes.len() as u64));
        self.hold(bytes.len() as u64);
        self.wait_for_room().await?;
        let len = bytes.len();
        let Appended { wanted, to_write } = self.object.content().append(self.claim, bytes);
        if let Some((piece, file)) = to_write.zip(self.object.content().file()) {
            self.store.write(&self.object, file, [piece]);
        }
        self.range.start = self.range.start.saturating_add(wanted as u64);
        if wanted < len { Err(Unwanted) } else { Ok(()) }
    }

    /// Waits until there is room for what [`Filler::append`] is given next, so that it need not be
    /// read before.
    ///
    /// # Errors
    /// [`Unwanted`]: nobody waits for it.
    pub async fn room(&self) -> Result<(), Unwanted> {
        self.wait_for_room().await
    }

    /// Waits until nobody wants the rest, so that a fill from a slow origin can end then.
    pub async fn unwanted(&self) {
        let stops = !self.object.goes_on_unread();
        poll_fn(|cx| self.object.content().poll_unread(cx, self.claim, stops)).await;
    }

    /// Ends the fill where its source ended in an orderly way.
    pub fn finish(mut self) -> Filled {
        self.end(true, self.object.is_resumable())
    }

    /// Breaks the fill off and drops what was received: it turned out not to be what it should. What
    /// nobody else is filling of the object does not come any more.
    pub fn discard(mut self) -> Filled {
        self.end(false, false)
    }

    /// Sees to it that the object is not stored: its content is held no longer than its readers
    /// need.
    pub fn do_not_store(&self) {
        if self.object.content().is_joinable() {
            self.lose();
        }
    }

    /// Finds a place for an object of at least `size` bytes: in memory, else on disk, else only
    /// with its readers.
    fn find_room(&mut self, size: u64) {
        let shared = self.store.shared();
        let for_disk = |disk: &&Disk| size <= disk.settings.object_bytes;
        let on_disk = shared.disk.as_ref().filter(for_disk).is_some();
        match self.object.content().mode() {
            Mode::Memory if size <= shared.settings.memory_object_bytes => {}
            Mode::Memory if on_disk => self.spill(),
            Mode::Disk(_) if on_disk => {}
            Mode::Memory | Mode::Disk(_) => self.lose(),
            Mode::Window(_) => {}
        }
    }

    /// Counts `more` bytes in memory; when there are too many in all fills, they leave it.
    fn hold(&mut self, more: u64) {
        let shared = self.store.shared();
        if self.object.content().mode() != Mode::Memory {
            return;
        }
        let before = shared.filling.fetch_add(more, Ordering::Relaxed);
        self.held = self.held.saturating_add(more);
        if before.saturating_add(more) > shared.settings.memory_bytes / 2 {
            if shared.disk.is_some() {
                self.spill();
            } else {
                self.lose();
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
        if let Some(pieces) = self.object.content().spill(file.clone(), unwritten)
            && !pieces.is_empty()
        {
            self.store.write(&self.object, &file, pieces);
        }
        shared
            .filling
            .fetch_sub(std::mem::take(&mut self.held), Ordering::Relaxed);
    }

    fn lose(&self) {
        let shared = self.store.shared();
        let content = self.object.content();
        let file = content.filled_file();
        content.lose(shared.settings.window_bytes);
        shared.drop_object(&self.object);
        if let Some(file) = file {
            self.store.end_file(&self.object, file, None);
        }
    }

    async fn wait_for_room(&self) -> Result<(), Unwanted> {
        let content = self.object.content();
        let stops = !self.object.goes_on_unread();
        loop {
            let room = poll_fn(|cx| Poll::Ready(content.poll_room(cx, self.claim, stops))).await;
            if let Poll::Ready(wanted) = room {
                return if wanted { Ok(()) } else { Err(Unwanted) };
            }
            let room = poll_fn(|cx| content.poll_room(cx, self.claim, stops));
            let patience = self.store.shared().settings.lag;
            if tokio::time::timeout(patience, room).await.is_err() {
                content.cut_laggards();
            }
        }
    }

    fn end(&mut self, orderly: bool, resumable: bool) -> Filled {
        if std::mem::replace(&mut self.ended, true) {
            return Filled::Nothing;
        }
        let content = self.object.content();
        let filled = content.end(self.claim, orderly, resumable);
        self.store
            .shared()
            .filling
            .fetch_sub(self.held, Ordering::Relaxed);
        let kept = self.store.shared().filled(&self.object, filled);
        let asked = self.asked.take();
        match content.filled_file() {
            Some(_) if filled == Filled::Ongoing => {}
            Some(file) => {
                let seal = kept.then_some(Seal(asked));
                self.store.end_file(&self.object, file, seal);
            }
            None if kept => self.store.persist(&self.object, asked),
            None => {}
        }
        filled
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.end(false, self.object.is_resumable());
    }
}
