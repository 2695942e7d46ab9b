//! One object's file while it is written: what waits to be written, and what is known to be.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use apus_http::FileRange;
use bytes::Bytes;

use super::super::collapse::Asked;
use super::super::object::Object;
use super::super::{Shared, Store, locked};
use super::directory::Name;
use super::format::{Layout, Opened};
use super::sums::{Checked, PieceSum, Run, Sums};

/// About how many bytes are read at once to be checked before they are sent.
const CHECKED_AT_ONCE: u64 = 1 << 20;

/// What has to be met before it is written that an object is kept.
#[derive(Debug)]
pub(crate) struct Seal(pub(crate) Option<Asked>);

/// An object's file. Only threads that may block touch the file system for it.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    pub(crate) name: Name,
    pub(crate) layout: Layout,
    /// What it is called until it has its name.
    pub(crate) temporary: String,
    file: OnceLock<Arc<File>>,
    store: Weak<Shared>,
    state: Mutex<State>,
}

/// What was written of a file, and what is to be.
#[derive(Debug)]
pub(crate) struct State {
    queue: VecDeque<(u64, Bytes)>,
    /// A thread is at it.
    running: bool,
    pub(crate) sums: Sums,
    /// The number of the slot that counts.
    pub(crate) sequence: u64,
    /// It has its final name; before, a temporary one.
    pub(crate) named: bool,
    /// Once all is written, metadata is to say so.
    pub(crate) seal: Option<Seal>,
    /// It is not to be kept.
    pub(crate) dropped: bool,
    /// It was removed for that.
    pub(crate) removed: bool,
    /// What was written since metadata told of it last.
    pub(crate) unmarked: u64,
    /// The bytes that count as being filled.
    pub(crate) counted: u64,
}

impl ObjectFile {
    /// A file of `store` that is to be made.
    pub(crate) fn new(store: &Store, object: &Object, layout: Layout, temporary: String) -> Self {
        Self {
            name: object.name(),
            layout,
            temporary,
            file: OnceLock::new(),
            store: Arc::downgrade(&store.0),
            state: Mutex::new(State::new(Sums::new(object.length()))),
        }
    }

    /// A file of `store` that was found.
    pub(crate) fn found(store: &Store, name: Name, file: File, opened: Opened) -> Self {
        let state = State {
            sequence: opened.sequence,
            named: true,
            ..State::new(opened.record.sums)
        };
        Self {
            name,
            layout: opened.layout,
            temporary: String::new(),
            file: OnceLock::from(Arc::new(file)),
            store: Arc::downgrade(&store.0),
            state: Mutex::new(state),
        }
    }

    /// The store that it is of, unless that is no longer used.
    pub(crate) fn store(&self) -> Option<Store> {
        self.store.upgrade().map(Store)
    }

    /// What reads the next pieces of `range`, which was written, and compares them; it blocks. What it
    /// returns is `None` if they are damaged.
    pub(crate) fn check(
        &self,
        range: Range<u64>,
        checked: Checked,
    ) -> impl FnOnce() -> Option<Checked> + Send + use<> {
        let end = range.end.min(range.start.saturating_add(CHECKED_AT_ONCE));
        let pieces = self.pieces(range.start..end);
        let (file, content_at) = (self.file.get().cloned(), self.layout.content_at);
        move || {
            let pieces = Some(pieces).filter(|pieces| !pieces.is_empty())?;
            checked.next(&*file?, content_at, &pieces)
        }
    }

    /// All of `range`, which was written, if it is what was written. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Option<Vec<u8>>> {
        match self.file.get() {
            Some(file) => Checked::read(file, self.layout.content_at, &self.pieces(range)),
            None => Ok(None),
        }
    }

    fn pieces(&self, range: Range<u64>) -> Vec<PieceSum> {
        self.lock().sums.pieces(range).collect()
    }

    /// The open file, once it was made.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.file.get()
    }

    pub(crate) fn set_file(&self, file: File) {
        let _ = self.file.set(Arc::new(file));
    }

    /// `len` bytes of content from `start` on, which were written.
    pub(crate) fn range(&self, start: u64, len: u64) -> Option<FileRange> {
        Some(FileRange {
            file: self.file.get()?.clone(),
            offset: self.layout.content_at.saturating_add(start),
            len,
        })
    }

    /// Adds bytes to be written. `true` when nobody is writing: the caller sees to it then.
    pub(crate) fn push(&self, pieces: impl IntoIterator<Item = (u64, Bytes)>) -> bool {
        let mut state = self.lock();
        state.queue.extend(pieces);
        !std::mem::replace(&mut state.running, true)
    }

    /// Asks for metadata to be written when all else is, or for the file to be removed. `true` as
    /// in [`ObjectFile::push`].
    pub(crate) fn end(&self, seal: Option<Seal>) -> bool {
        let mut state = self.lock();
        state.dropped |= seal.is_none();
        state.seal = seal;
        !std::mem::replace(&mut state.running, true)
    }

    /// What is to be written next: pieces that follow each other. `None` when there are none.
    pub(crate) fn next(&self) -> Option<(u64, Vec<Bytes>)> {
        let mut state = self.lock();
        if state.dropped {
            state.queue.clear();
        }
        let (start, first) = state.queue.pop_front()?;
        let mut end = start.saturating_add(first.len() as u64);
        let mut run = vec![first];
        while run.len() < 64
            && let Some((_, next)) = state.queue.pop_front_if(|(at, _)| *at == end)
        {
            end = end.saturating_add(next.len() as u64);
            run.push(next);
        }
        Some((start, run))
    }

    /// Notes that a thread has left it. `false` when there is more to do after all.
    pub(crate) fn rest(&self) -> bool {
        let mut state = self.lock();
        let rests =
            state.queue.is_empty() && state.seal.is_none() && (!state.dropped || state.removed);
        state.running &= !rests;
        rests
    }

    /// Writes a run of pieces.
    pub(crate) fn write(&self, start: u64, run: &[Bytes]) -> io::Result<u64> {
        let Some(file) = self.file.get() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut end = start;
        for piece in run {
            file.write_all_at(piece, self.layout.content_at.saturating_add(end))?;
            end = end.saturating_add(piece.len() as u64);
        }
        // Nobody else adds to them meanwhile.
        let piece_bytes = self.lock().sums.piece_bytes();
        let run = Run::of(piece_bytes, start, run.iter().map(|piece| &piece[..]));
        self.lock().sums.add(run);
        Ok(end)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    fn new(sums: Sums) -> Self {
        Self {
            queue: VecDeque::new(),
            running: false,
            sums,
            sequence: 0,
            named: false,
            seal: None,
            dropped: false,
            removed: false,
            unmarked: 0,
            counted: 0,
        }
    }
}
