//! The file of an object while it is written: the queue of pieces, and the checksums of those that
//! are written.
//!
//! The file does not know the object. [`encoding`] is below the [`checksums`] of pieces, and these are below the [`format`] of
//! the file; [`verified`] is what its readers share.

mod checksums;
mod encoding;
mod format;
mod verified;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use apus_http::FileRange;
use bytes::Bytes;

use super::key::ObjectName;
use super::purge_guard::PurgeGuard;
use super::{Store, StoreState, locked};
pub(crate) use checksums::{CheckedRange, PieceChecksums};
use checksums::{ChecksumRun, PieceChecksum};
pub(crate) use encoding::{RecordReader, put_bytes};
pub(crate) use format::{FileLayout, ObjectFileHeader, ObjectRecord};
use verified::{FileVersion, VerifiedRanges};

/// The number of bytes that are verified at once, approximately.
const CHECK_BYTES: u64 = 1 << 20;

/// A request to write the metadata of a complete object, with the purges that have to be applied
/// first.
#[derive(Debug)]
pub(crate) struct SealRequest(pub(crate) Option<PurgeGuard>);

/// What the thread that writes a file does next.
pub(crate) enum FileWork {
    /// Writes contiguous pieces from this position on.
    Write(u64, Vec<Bytes>),
    /// Writes the metadata: all pieces are written.
    Seal(SealRequest),
    /// Removes the file.
    Discard,
    Nothing,
}

/// The file of an object. Only threads that may block access the file system through it.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    pub(crate) name: ObjectName,
    pub(crate) layout: FileLayout,
    /// The temporary name.
    pub(crate) temporary: String,
    file: OnceLock<Arc<File>>,
    store: Weak<StoreState>,
    state: Mutex<ObjectFileState>,
    /// Locked before `state`.
    verified: Mutex<VerifiedRanges>,
}

/// A file that is not created yet.
pub(crate) struct NewFile {
    /// Its temporary name.
    pub(crate) temporary: String,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
}

/// Whether the start of a range was verified.
#[derive(Debug)]
pub(crate) enum FileVerification {
    /// It was verified lately.
    Done(CheckedRange),
    /// It is to be verified by this job, which blocks.
    Needed(VerificationJob),
}

/// Verifies the next pieces of a range.
#[derive(Debug)]
pub(crate) struct VerificationJob {
    file: Arc<ObjectFile>,
    pieces: Vec<PieceChecksum>,
    checked: CheckedRange,
    /// The registration of the verification, unless the file was written just now.
    shared: Option<SharedVerification>,
}

/// A registered verification. The readers that wait for it continue when it is dropped.
#[derive(Debug)]
struct SharedVerification {
    file: Arc<ObjectFile>,
    range: Range<u64>,
    version: FileVersion,
    began: Instant,
    /// What was found undamaged.
    verified: Option<Range<u64>>,
}

/// What is written to a file, and what is queued.
#[derive(Debug)]
pub(crate) struct ObjectFileState {
    queue: VecDeque<(u64, Bytes)>,
    /// Whether a thread writes it.
    running: bool,
    pub(crate) checksums: PieceChecksums,
    /// The sequence number of the current slot.
    pub(crate) sequence: u64,
    /// Whether it has its final name.
    pub(crate) named: bool,
    /// The request to write the metadata when the queue is empty.
    pub(crate) seal: Option<SealRequest>,
    /// Whether it is to be removed.
    pub(crate) dropped: bool,
    /// Whether it was removed.
    pub(crate) removed: bool,
    /// The bytes that were written since the last metadata.
    pub(crate) unrecorded: u64,
    /// The bytes of it in the count of files that are being filled.
    pub(crate) counted: u64,
}

impl ObjectFile {
    /// A file of `store` that is not created yet.
    pub(crate) fn new(store: &Store, name: ObjectName, layout: FileLayout, new: NewFile) -> Self {
        Self {
            name,
            layout,
            temporary: new.temporary,
            file: OnceLock::new(),
            store: Arc::downgrade(&store.0),
            state: Mutex::new(ObjectFileState::new(PieceChecksums::new(new.length))),
            verified: Mutex::default(),
        }
    }

    /// A file of `store` that was found on disk.
    pub(crate) fn open(
        store: &Store,
        name: ObjectName,
        file: File,
        opened: ObjectFileHeader,
    ) -> Self {
        let state = ObjectFileState {
            sequence: opened.sequence,
            named: true,
            ..ObjectFileState::new(opened.record.checksums)
        };
        Self {
            name,
            layout: opened.layout,
            temporary: String::new(),
            file: OnceLock::from(Arc::new(file)),
            store: Arc::downgrade(&store.0),
            state: Mutex::new(state),
            verified: Mutex::default(),
        }
    }

    /// Its store, unless that was dropped.
    pub(crate) fn store(&self) -> Option<Store> {
        self.store.upgrade().map(Store)
    }

    /// Whether the start of the written `range`, which `checked` precedes, was verified lately, and the
    /// file is unchanged since then. Waits while another reader verifies it.
    pub(crate) fn poll_verification(
        self: &Arc<Self>,
        cx: &Context<'_>,
        range: &Range<u64>,
        checked: CheckedRange,
    ) -> Poll<FileVerification> {
        let most = range.start.saturating_add(CHECK_BYTES);
        let (now, wall_clock) = (Instant::now(), SystemTime::now());
        let version = self.file.get().and_then(|file| FileVersion::of(file));
        let mut ranges = locked(&self.verified);
        if let Some(version) = version
            && let Some(until) = ranges.until(range.start, version, now)
        {
            let checked = CheckedRange::up_to(until.min(most));
            return Poll::Ready(FileVerification::Done(checked));
        }
        let settled = version.filter(|version| version.is_settled(wall_clock));
        if settled.is_some() && ranges.wait(cx, range.start) {
            return Poll::Pending;
        }
        let pieces = self.pieces(range.start..range.end.min(most));
        self.count_verified(checked, &pieces);
        let shared = match (settled, pieces.first(), pieces.last()) {
            (Some(version), Some(first), Some(last)) => {
                let range = first.range.start..last.range.end;
                ranges.begin(range.clone());
                Some(SharedVerification {
                    file: self.clone(),
                    range,
                    version,
                    began: now,
                    verified: None,
                })
            }
            _ => None,
        };
        Poll::Ready(FileVerification::Needed(VerificationJob {
            file: self.clone(),
            pieces,
            checked,
            shared,
        }))
    }

    /// Reads the written `range`; `None` if it is damaged. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Option<Vec<u8>>> {
        match self.file.get() {
            Some(file) => CheckedRange::read(file, self.layout.body_at, &self.pieces(range)),
            None => Ok(None),
        }
    }

    fn count_verified(&self, checked: CheckedRange, pieces: &[PieceChecksum]) {
        if let (Some(first), Some(last)) = (pieces.first(), pieces.last())
            && let Some(store) = self.store()
            && let Some(disk) = &store.shared().disk
        {
            let bytes = last.range.end.saturating_sub(checked.next_byte(first));
            disk.counters.verified_bytes.add(bytes);
        }
    }

    fn pieces(&self, range: Range<u64>) -> Vec<PieceChecksum> {
        self.lock().checksums.pieces(range).collect()
    }

    /// The open file, once it is created.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.file.get()
    }

    pub(crate) fn set_file(&self, file: File) {
        let _ = self.file.set(Arc::new(file));
    }

    /// `len` written bytes of the body from `start` on.
    pub(crate) fn range(&self, start: u64, len: u64) -> Option<FileRange> {
        Some(FileRange {
            file: self.file.get()?.clone(),
            offset: self.layout.body_at.saturating_add(start),
            len,
        })
    }

    /// Queues pieces. Returns `true` if no thread writes the file, so that the caller has to start
    /// one.
    pub(crate) fn push(&self, pieces: impl IntoIterator<Item = (u64, Bytes)>) -> bool {
        let mut state = self.lock();
        state.queue.extend(pieces);
        !std::mem::replace(&mut state.running, true)
    }

    /// Requests that the metadata is written when the queue is empty, or that the file is removed.
    /// Returns `true` as [`ObjectFile::push`] does.
    pub(crate) fn end(&self, seal: Option<SealRequest>) -> bool {
        let mut state = self.lock();
        state.dropped |= seal.is_none();
        state.seal = seal;
        !std::mem::replace(&mut state.running, true)
    }

    /// What the writing thread does next.
    // Under one lock: the last pieces and the request to seal could come between two of them, and the metadata would be
    // written without these pieces.
    pub(crate) fn next(&self) -> FileWork {
        let mut state = self.lock();
        if state.dropped {
            state.queue.clear();
            state.seal = None;
            return FileWork::Discard;
        }
        let Some((start, first)) = state.queue.pop_front() else {
            return state.seal.take().map_or(FileWork::Nothing, FileWork::Seal);
        };
        let mut end = start.saturating_add(first.len() as u64);
        let mut run = vec![first];
        while run.len() < 64
            && let Some((_, next)) = state.queue.pop_front_if(|(at, _)| *at == end)
        {
            end = end.saturating_add(next.len() as u64);
            run.push(next);
        }
        FileWork::Write(start, run)
    }

    /// Ends the work of the writing thread. Returns `false` if there is more to do.
    pub(crate) fn release_writer(&self) -> bool {
        let mut state = self.lock();
        let is_idle =
            state.queue.is_empty() && state.seal.is_none() && (!state.dropped || state.removed);
        state.running &= !is_idle;
        is_idle
    }

    /// Writes contiguous pieces.
    pub(crate) fn write(&self, start: u64, run: &[Bytes]) -> io::Result<u64> {
        let Some(file) = self.file.get() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut end = start;
        for piece in run {
            file.write_all_at(piece, self.layout.body_at.saturating_add(end))?;
            end = end.saturating_add(piece.len() as u64);
        }
        // No other thread changes the checksums at the same time.
        let piece_bytes = self.lock().checksums.piece_bytes();
        let run = ChecksumRun::of(piece_bytes, start, run.iter().map(|piece| &piece[..]));
        self.lock().checksums.add(run);
        Ok(end)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ObjectFileState> {
        locked(&self.state)
    }
}

impl VerificationJob {
    /// Reads the pieces; `None` if they are damaged. Blocks.
    pub(crate) fn run(mut self) -> Option<CheckedRange> {
        let start = self.checked.next_byte(self.pieces.first()?);
        let file = self.file.file.get()?;
        let body_at = self.file.layout.body_at;
        let checked = self.checked.next(file, body_at, &self.pieces)?;
        if let Some(shared) = &mut self.shared
            && FileVersion::of(file) == Some(shared.version)
        {
            shared.verified = Some(start..checked.until);
        }
        Some(checked)
    }
}

impl Drop for SharedVerification {
    fn drop(&mut self) {
        let mut ranges = locked(&self.file.verified);
        if let Some(verified) = self.verified.take() {
            ranges.add(verified, self.version, self.began);
        }
        let readers = ranges.end(&self.range);
        drop(ranges);
        readers.wake_all();
    }
}

impl ObjectFileState {
    fn new(checksums: PieceChecksums) -> Self {
        Self {
            queue: VecDeque::new(),
            running: false,
            checksums,
            sequence: 0,
            named: false,
            seal: None,
            dropped: false,
            removed: false,
            unrecorded: 0,
            counted: 0,
        }
    }
}
