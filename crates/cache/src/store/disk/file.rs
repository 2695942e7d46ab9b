//! One object's file while it is written: what waits to be written, and what is known to be.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use apus_http::FileRange;
use bytes::Bytes;

use super::super::collapse::Asked;
use super::super::locked;
use super::directory::Name;
use super::format::{Extent, Layout, add_extent};

/// What has to be met before it is written that an object is kept.
#[derive(Debug)]
pub(crate) struct Seal(pub(crate) Option<Asked>);

/// An object's file. Only threads of the pool touch the file system for it.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    pub(crate) name: Name,
    pub(crate) layout: Layout,
    /// What it is called until it has its name.
    pub(crate) temporary: String,
    file: OnceLock<Arc<File>>,
    state: Mutex<State>,
}

/// What was written of a file, and what is to be.
#[derive(Debug, Default)]
pub(crate) struct State {
    queue: VecDeque<(u64, Bytes)>,
    /// A thread is at it.
    running: bool,
    pub(crate) extents: Vec<Extent>,
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
    /// A file that is to be made.
    pub(crate) fn new(name: Name, layout: Layout, temporary: String) -> Self {
        Self {
            name,
            layout,
            temporary,
            file: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// A file that was found.
    pub(crate) fn found(
        name: Name,
        layout: Layout,
        file: File,
        extents: Vec<Extent>,
        sequence: u64,
    ) -> Self {
        let state = State {
            extents,
            sequence,
            named: true,
            ..State::default()
        };
        Self {
            name,
            layout,
            temporary: String::new(),
            file: OnceLock::from(Arc::new(file)),
            state: Mutex::new(state),
        }
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
        let mut hasher = crc32fast::Hasher::new();
        for piece in run {
            file.write_all_at(piece, self.layout.content_at.saturating_add(end))?;
            hasher.update(piece);
            end = end.saturating_add(piece.len() as u64);
        }
        let crc = hasher.finalize();
        add_extent(&mut self.lock().extents, Extent { start, end, crc });
        Ok(end)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    /// The bytes of content in the file.
    pub(crate) fn stored(&self) -> u64 {
        self.extents
            .iter()
            .map(|extent| extent.end.saturating_sub(extent.start))
            .sum()
    }
}
