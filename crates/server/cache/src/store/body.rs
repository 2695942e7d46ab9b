//! The body of one object, while it is filled and afterwards.
//!
//! Several fillers append, each at its own position, and several readers follow, on any threads.
//! The lock protects only a few comparisons and clones of `Bytes`; a complete body in memory is
//! read without it.
//!
//! [`BodyStorage`] says where appended pieces go. In memory they stay as they arrive until the fill
//! ends, and are then copied into a buffer of their exact size, because a piece may hold on to a
//! larger read buffer. In a window they stay only until all readers have got them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use apus_http::{Reservation, ResponseMemory};
use bytes::{Bytes, BytesMut};

use super::intervals::Intervals;
use super::locked;
use super::object_file::ObjectFile;
use super::piece::{ObjectPiece, ReadError};
use super::waker_list::WakerList;
use super::whole_body::WholeBody;

/// Smaller pieces are copied immediately, so that they do not hold on to a read buffer.
const SMALL_PIECE: usize = 4 * 1024;

/// Where appended pieces are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyStorage {
    /// In memory, until the object is dropped.
    Memory,
    /// In a file. At most this many bytes that are not written yet are in memory.
    Disk(u64),
    /// In memory until the readers have got them, at most this many bytes: an object that cannot be
    /// stored. Clients determine the number of windows, so a window has more than one piece only as
    /// far as [`ResponseMemory`] allows.
    Window(u64),
}

/// The body of one object.
#[derive(Debug)]
pub(crate) struct ObjectBody {
    whole: OnceLock<WholeBody>,
    file: OnceLock<Arc<ObjectFile>>,
    state: Mutex<ObjectBodyState>,
}

#[derive(Debug)]
struct ObjectBodyState {
    storage: BodyStorage,
    length: Option<u64>,
    /// The ranges that can be read.
    ready: Intervals,
    /// The pieces in memory, by their position.
    pieces: BTreeMap<u64, Bytes>,
    /// The bytes of all pieces.
    buffered: u64,
    /// The memory that is reserved for the pieces of a window.
    reserved: Reservation,
    /// The ranges that can be read from the file.
    on_file: Intervals,
    /// Whether pieces are dropped even if no reader ever came, since the object cannot be stored.
    expects_no_reader: bool,
    /// The running fills.
    claims: Vec<FillClaim>,
    /// Whether the fill of an object without a strong validator broke off: the rest never arrives.
    broken_off: bool,
    readers: Vec<ReaderState>,
    had_reader: bool,
    /// Fillers that wait for room, or until no reader is left.
    fillers: Vec<Waker>,
    next_id: u64,
}

#[derive(Debug)]
struct FillClaim {
    id: u64,
    position: u64,
    /// The end; unknown for a fill whose length was not declared.
    end: Option<u64>,
    /// Whether a reader has read or awaited bytes of this fill.
    had_reader: bool,
}

#[derive(Debug)]
struct ReaderState {
    id: u64,
    position: u64,
    end: u64,
    waker: Option<Waker>,
    /// Whether it was cut off, so that the other readers could continue.
    cut_off: bool,
}

/// The result of appending.
#[derive(Debug, Default)]
pub(crate) struct AppendResult {
    /// How many of the bytes were accepted.
    pub(crate) accepted: usize,
    /// The bytes to write to the file, and their position.
    pub(crate) to_write: Option<(u64, Bytes)>,
}

/// The state of an object after a fill has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// The body is complete.
    Complete,
    /// The body is incomplete, and the rest can be fetched.
    Partial,
    /// Other fills are still running.
    Ongoing,
    /// There is nothing to store.
    Nothing,
}

/// Why a read does not return a piece.
#[derive(Debug)]
pub(crate) enum PollReadError {
    /// The read failed.
    Failed(ReadError),
    /// This range is in the file, but its checksums were not verified yet.
    Unchecked(Range<u64>),
}

impl ObjectBody {
    /// An empty body.
    pub(crate) fn new(length: Option<u64>, storage: BodyStorage) -> Self {
        Self {
            whole: OnceLock::new(),
            file: OnceLock::new(),
            state: Mutex::new(ObjectBodyState {
                storage,
                length,
                ready: Intervals::new(),
                pieces: BTreeMap::new(),
                buffered: 0,
                reserved: ResponseMemory::of_process().reserve_nothing(),
                on_file: Intervals::new(),
                expects_no_reader: false,
                claims: Vec::new(),
                broken_off: false,
                readers: Vec::new(),
                had_reader: false,
                fillers: Vec::new(),
                next_id: 0,
            }),
        }
    }

    /// A complete body in memory.
    pub(crate) fn of_bytes(bytes: Bytes) -> Self {
        let body = Self::new(Some(bytes.len() as u64), BodyStorage::Memory);
        let _ = body.whole.set(WholeBody::new(bytes));
        body
    }

    /// A body of which the ranges `stored` are in `file`. At most `unwritten` bytes of what is
    /// added wait to be written.
    pub(crate) fn of_file(
        length: Option<u64>,
        stored: Intervals,
        file: Arc<ObjectFile>,
        unwritten: u64,
    ) -> Self {
        let body = Self::new(length, BodyStorage::Disk(unwritten));
        let _ = body.file.set(file);
        let mut state = body.lock();
        state.on_file = stored.clone();
        state.ready = stored;
        drop(state);
        body
    }

    /// The body, if it is complete and in memory.
    pub(crate) fn whole(&self) -> Option<&WholeBody> {
        self.whole.get()
    }

    /// The complete length, once it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.whole.get() {
            Some(whole) => Some(whole.bytes().len() as u64),
            None => self.lock().length,
        }
    }

    /// The ranges that can be read now.
    pub(crate) fn ready(&self) -> Intervals {
        self.lock().ready.clone()
    }

    /// Whether it is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.whole.get().is_some() || self.lock().is_complete()
    }

    /// The bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        if let Some(whole) = self.whole.get() {
            return whole.bytes().len() as u64;
        }
        self.lock().buffered
    }

    /// Whether it is being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.whole.get().is_none() && !self.lock().claims.is_empty()
    }

    /// Whether a new reader can read it from the start.
    pub(crate) fn is_joinable(&self) -> bool {
        self.whole.get().is_some() || !self.lock().is_window()
    }

    /// Where appended pieces are stored.
    pub(crate) fn storage(&self) -> BodyStorage {
        self.lock().storage
    }

    /// Its file, if it has one.
    pub(crate) fn file(&self) -> Option<&Arc<ObjectFile>> {
        self.file.get()
    }

    /// Its file, if appended pieces go there.
    pub(crate) fn filled_file(&self) -> Option<&Arc<ObjectFile>> {
        let file = self.file.get()?;
        matches!(self.lock().storage, BodyStorage::Disk(_)).then_some(file)
    }

    /// The first part of `range`, if it is in the file and not in memory.
    pub(crate) fn in_file(&self, range: &Range<u64>) -> Option<(&Arc<ObjectFile>, Range<u64>)> {
        let file = self.file.get()?;
        let state = self.lock();
        if self.whole.get().is_some() || state.piece(range).is_some() {
            return None;
        }
        let on_file = state.on_file.at(range.start)?;
        Some((file, range.start..on_file.end.min(range.end)))
    }

    /// The pieces in memory, by their position.
    pub(crate) fn pieces(&self) -> Vec<(u64, Bytes)> {
        match self.whole.get() {
            Some(whole) => vec![(0, whole.bytes().clone())],
            None => {
                let state = self.lock();
                state
                    .pieces
                    .iter()
                    .map(|(start, piece)| (*start, piece.clone()))
                    .collect()
            }
        }
    }

    // For fillers.

    /// Claims the whole body, for the fill that creates the object.
    pub(crate) fn claim_all(&self) -> u64 {
        let mut state = self.lock();
        let end = state.length;
        state.claim(0, end)
    }

    /// Claims the ranges in `range` that are neither present nor claimed; returns each with the id
    /// of its claim.
    pub(crate) fn claim_missing(&self, range: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let mut state = self.lock();
        if self.whole.get().is_some() || state.broken_off {
            return Vec::new();
        }
        let end = state
            .length
            .map_or(range.end, |length| length.min(range.end));
        let mut taken = state.ready.clone();
        for claim in &state.claims {
            taken.insert(claim.position..claim.end.unwrap_or(u64::MAX));
        }
        let gaps = taken.missing(range.start..end.max(range.start));
        gaps.into_iter()
            .map(|gap| (state.claim(gap.start, Some(gap.end)), gap))
            .collect()
    }

    /// Claims the first missing range in `range`, and returns the id of the claim and the range.
    ///
    /// A range that is claimed already stays so, unless the running fill is more than `ahead` bytes
    /// before it: then that fill ends where this one begins. `None` if there is nothing to claim.
    pub(crate) fn claim_first(&self, range: Range<u64>, ahead: u64) -> Option<(u64, Range<u64>)> {
        if self.whole.get().is_some() {
            return None;
        }
        let mut state = self.lock();
        if state.broken_off || state.is_window() {
            return None;
        }
        let end = state.length?.min(range.end);
        let gaps = state.ready.missing(range.start..end.max(range.start));
        let mut gap = gaps.into_iter().next()?;
        for claim in &state.claims {
            if claim.position > gap.start {
                // The fill that runs there brings the rest.
                gap.end = gap.end.min(claim.position);
            }
        }
        if let Some(claim) = state.claim_at(gap.start) {
            let until = claim.end?;
            if gap.start.saturating_sub(claim.position) <= ahead {
                return None;
            }
            claim.end = Some(gap.start);
            gap.end = gap.end.min(until);
        }
        Some((state.claim(gap.start, Some(gap.end)), gap))
    }

    /// Ready when the filler may append; `false` if no reader wants the bytes any more.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        claim: u64,
        stops_without_readers: bool,
    ) -> Poll<bool> {
        let mut state = self.lock();
        if state.is_unwanted(claim, stops_without_readers) {
            return Poll::Ready(false);
        }
        if !state.has_room() {
            state.wait_as_filler(cx);
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Ready when no reader wants the fill to continue.
    pub(crate) fn poll_unwanted(
        &self,
        cx: &mut Context<'_>,
        claim: u64,
        stops_without_readers: bool,
    ) -> Poll<()> {
        let mut state = self.lock();
        if state.is_unwanted(claim, stops_without_readers) {
            return Poll::Ready(());
        }
        state.wait_as_filler(cx);
        Poll::Pending
    }

    /// Cuts off the readers that delay the others, if there are others, which have read everything
    /// that is present.
    pub(crate) fn cut_off_slow_readers(&self) {
        let mut state = self.lock();
        // There is no reader, and it is not stored either.
        state.expects_no_reader |= state.readers.is_empty();
        let furthest = state.readers.iter().map(|reader| reader.position).max();
        let Some(furthest) = furthest.filter(|at| !state.ready.contains(&(*at..*at + 1))) else {
            return;
        };
        let mut wake = WakerList::default();
        for reader in &mut state.readers {
            if reader.position < furthest {
                reader.cut_off = true;
                wake.0.extend(reader.waker.take());
            }
        }
        state.trim();
        drop(state);
        wake.wake_all();
    }

    /// Appends at the position of the claim.
    pub(crate) fn append(&self, claim: u64, bytes: Bytes) -> AppendResult {
        let mut state = self.lock();
        let appended = state.append(claim, bytes);
        let wake = state.wake_readers();
        drop(state);
        wake.wake_all();
        appended
    }

    /// Stores what is appended from now on in `file`, and returns the pieces so far. `None` if it
    /// is not stored in memory now.
    pub(crate) fn spill(&self, file: Arc<ObjectFile>, unwritten: u64) -> Option<Vec<(u64, Bytes)>> {
        let mut state = self.lock();
        if state.storage != BodyStorage::Memory || self.file.set(file).is_err() {
            return None;
        }
        state.storage = BodyStorage::Disk(unwritten);
        Some(
            state
                .pieces
                .iter()
                .map(|(start, piece)| (*start, piece.clone()))
                .collect(),
        )
    }

    /// Marks `range` as written.
    pub(crate) fn written(&self, range: Range<u64>) {
        let mut state = self.lock();
        if state.is_window() {
            return;
        }
        state.on_file.insert(range.clone());
        while let Some((&start, piece)) = state.pieces.range(range.clone()).next() {
            let len = piece.len() as u64;
            state.pieces.remove(&start);
            state.buffered = state.buffered.saturating_sub(len);
        }
        let wake = WakerList(std::mem::take(&mut state.fillers));
        drop(state);
        wake.wake_all();
    }

    /// Keeps pieces only for the current readers from now on: the object cannot be stored.
    pub(crate) fn stop_storing(&self, window: u64) {
        let mut state = self.lock();
        state.storage = BodyStorage::Window(window);
        state.expects_no_reader = !state.ready.is_empty();
        state.trim();
        let mut wake = WakerList(std::mem::take(&mut state.fillers));
        wake.0.extend(state.wake_readers().0);
        drop(state);
        wake.wake_all();
    }

    /// Ends a claim. `is_regular_end`: the source ended regularly. `resumable`: missing ranges can be
    /// fetched.
    pub(crate) fn end(&self, claim: u64, is_regular_end: bool, resumable: bool) -> FillOutcome {
        let mut state = self.lock();
        let Some(at) = state.claims.iter().position(|other| other.id == claim) else {
            return FillOutcome::Nothing;
        };
        let ended = state.claims.swap_remove(at);
        if is_regular_end && ended.end.is_none() {
            state.length.get_or_insert(ended.position);
        }
        let filled = state.outcome(ended.position, resumable);
        state.broken_off |= filled == FillOutcome::Nothing || !(is_regular_end || resumable);
        if state.storage == BodyStorage::Memory {
            match filled {
                FillOutcome::Complete => {
                    let pieces = std::mem::take(&mut state.pieces);
                    let pieces = pieces.values().map(|piece| &piece[..]);
                    let _ = self.whole.set(WholeBody::gather(pieces));
                }
                FillOutcome::Partial => state.compact(),
                FillOutcome::Ongoing | FillOutcome::Nothing => {}
            }
        }
        let wake = state.wake_readers();
        drop(state);
        wake.wake_all();
        filled
    }

    // For readers.

    /// Registers a reader of `range`, and returns its id.
    pub(crate) fn add_reader(&self, range: &Range<u64>) -> u64 {
        let mut state = self.lock();
        let id = state.next_id();
        state.had_reader = true;
        let reader_state = ReaderState {
            id,
            position: range.start,
            end: range.end,
            waker: None,
            cut_off: false,
        };
        for claim in &mut state.claims {
            claim.had_reader |= reader_state.wants(claim);
        }
        state.readers.push(reader_state);
        id
    }

    /// Removes a reader.
    pub(crate) fn remove_reader(&self, reader: u64) {
        let mut state = self.lock();
        state.readers.retain(|held| held.id != reader);
        state.trim();
        let wake = WakerList(std::mem::take(&mut state.fillers));
        drop(state);
        wake.wake_all();
    }

    /// The piece at the start of the non-empty `range`; `None` at the end of the body. From the
    /// file, only what is `checked` is returned.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        reader: u64,
        range: &Range<u64>,
        checked: u64,
    ) -> Poll<Option<Result<ObjectPiece, PollReadError>>> {
        if let Some(whole) = self.whole.get() {
            return Poll::Ready(
                slice(whole.bytes(), 0, range).map(|bytes| Ok(ObjectPiece::Bytes(bytes))),
            );
        }
        let mut state = self.lock();
        let end = state
            .length
            .map_or(range.end, |length| length.min(range.end));
        if range.start >= end {
            return Poll::Ready(None);
        }
        let Some(index) = state.readers.iter().position(|other| other.id == reader) else {
            return failed(ReadError::BrokenOff);
        };
        if state
            .readers
            .get(index)
            .is_some_and(|reader_state| reader_state.cut_off)
        {
            return failed(ReadError::LeftBehind);
        }
        let piece = match state.piece(&(range.start..end)) {
            Some(bytes) => Some(ObjectPiece::Bytes(bytes)),
            None => match state.on_file.at(range.start) {
                Some(on_file) if checked <= range.start => {
                    let unchecked = range.start..on_file.end.min(end);
                    return Poll::Ready(Some(Err(PollReadError::Unchecked(unchecked))));
                }
                Some(on_file) => {
                    let len = on_file
                        .end
                        .min(end)
                        .min(checked)
                        .saturating_sub(range.start);
                    let file = self.file.get();
                    file.and_then(|file| file.range(range.start, len))
                        .map(ObjectPiece::File)
                }
                None => None,
            },
        };
        if let Some(piece) = piece {
            let position = range.start.saturating_add(piece.len());
            if let Some(reader_state) = state.readers.get_mut(index) {
                reader_state.position = position;
            }
            let wake = state.make_room();
            drop(state);
            wake.wake_all();
            return Poll::Ready(Some(Ok(piece)));
        }
        // It was completed after the check without the lock.
        if let Some(whole) = self.whole.get() {
            return Poll::Ready(
                slice(whole.bytes(), 0, range).map(|bytes| Ok(ObjectPiece::Bytes(bytes))),
            );
        }
        if state.claim_at(range.start).is_some() {
            if let Some(reader_state) = state.readers.get_mut(index) {
                reader_state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        if state.broken_off {
            return failed(ReadError::BrokenOff);
        }
        if state.is_window() {
            return failed(ReadError::LeftBehind);
        }
        let gap_end = state
            .ready
            .next_held(range.start)
            .map_or(end, |held| held.min(end));
        failed(ReadError::Gap(range.start..gap_end))
    }

    fn lock(&self) -> MutexGuard<'_, ObjectBodyState> {
        locked(&self.state)
    }
}

impl ReaderState {
    fn wants(&self, claim: &FillClaim) -> bool {
        self.end > claim.position && claim.end.is_none_or(|end| self.position < end)
    }
}

impl ObjectBodyState {
    fn is_window(&self) -> bool {
        matches!(self.storage, BodyStorage::Window(_))
    }

    fn next_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn claim(&mut self, position: u64, end: Option<u64>) -> u64 {
        let mut claim = FillClaim {
            id: self.next_id(),
            position,
            end,
            had_reader: false,
        };
        claim.had_reader = self.readers.iter().any(|reader| reader.wants(&claim));
        self.claims.push(claim);
        self.next_id
    }

    /// The claim that contains `position`.
    fn claim_at(&mut self, position: u64) -> Option<&mut FillClaim> {
        let covers = |claim: &&mut FillClaim| {
            claim.position <= position && claim.end.is_none_or(|end| position < end)
        };
        self.claims.iter_mut().find(covers)
    }

    fn is_complete(&self) -> bool {
        self.length
            .is_some_and(|length| self.ready.contains(&(0..length)))
    }

    /// Whether the readers of the claimed range have left, and the fill does not continue without
    /// them.
    fn is_unwanted(&self, claim: u64, stops_without_readers: bool) -> bool {
        let pointless = stops_without_readers || self.is_window();
        pointless
            && self.claims.iter().any(|held| {
                held.id == claim
                    && (held.had_reader || self.expects_no_reader)
                    && !self.readers.iter().any(|reader| reader.wants(held))
            })
    }

    /// Whether more bytes may be buffered in memory.
    fn has_room(&mut self) -> bool {
        match self.storage {
            BodyStorage::Memory => true,
            BodyStorage::Disk(most) => self.buffered < most,
            BodyStorage::Window(most) => {
                // Each response that cannot be stored once held up to 1 MB for a client that did not read: the window is
                // counted in the budget of responses. An empty one needs no memory, and always has room, so that without
                // budget the body goes on piece by piece.
                self.buffered < most && self.reserved.resize(self.buffered)
            }
        }
    }

    fn wait_as_filler(&mut self, cx: &Context<'_>) {
        if !self.fillers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.fillers.push(cx.waker().clone());
        }
    }

    fn append(&mut self, claim: u64, mut bytes: Bytes) -> AppendResult {
        let to_file = matches!(self.storage, BodyStorage::Disk(_));
        let Some(claim) = self.claims.iter_mut().find(|other| other.id == claim) else {
            return AppendResult::default();
        };
        let room = claim
            .end
            .map_or(u64::MAX, |end| end.saturating_sub(claim.position));
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let accepted = bytes.len();
        if accepted == 0 {
            return AppendResult::default();
        }
        if accepted < SMALL_PIECE {
            bytes = Bytes::copy_from_slice(&bytes);
        }
        let position = claim.position;
        claim.position = position.saturating_add(accepted as u64);
        self.ready.insert(position..claim.position);
        let to_write = to_file.then(|| (position, bytes.clone()));
        self.pieces.insert(position, bytes);
        self.buffered = self.buffered.saturating_add(accepted as u64);
        self.trim();
        AppendResult { accepted, to_write }
    }

    /// The bytes in memory at the start of `range`, from one piece.
    fn piece(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, piece) = self.pieces.range(..=range.start).next_back()?;
        slice(piece, *start, range)
    }

    /// In a window, drops what all readers have read, and wakes the fillers.
    fn make_room(&mut self) -> WakerList {
        if !self.is_window() {
            return WakerList::default();
        }
        self.trim();
        WakerList(std::mem::take(&mut self.fillers))
    }

    fn trim(&mut self) {
        if !self.is_window() || !(self.had_reader || self.expects_no_reader) {
            return;
        }
        let following = self.readers.iter().filter(|reader| !reader.cut_off);
        let slowest = following
            .map(|reader| reader.position)
            .min()
            .unwrap_or(u64::MAX);
        while let Some(first) = self.pieces.first_entry() {
            let end = first.key().saturating_add(first.get().len() as u64);
            if end > slowest {
                break;
            }
            let start = *first.key();
            first.remove();
            self.ready.remove(start..end);
            self.buffered = self.buffered.saturating_sub(end.saturating_sub(start));
        }
        if self.buffered < self.reserved.bytes() {
            self.reserved.resize(self.buffered);
        }
    }

    /// The outcome of a fill that has ended at `position`.
    fn outcome(&self, position: u64, resumable: bool) -> FillOutcome {
        if !self.claims.is_empty() {
            FillOutcome::Ongoing
        } else if self.is_window() {
            // Only its readers take what is in the window.
            if self.length == Some(position) {
                FillOutcome::Complete
            } else {
                FillOutcome::Nothing
            }
        } else if self.is_complete() {
            FillOutcome::Complete
        } else if resumable && !self.ready.is_empty() && self.length.is_some() {
            FillOutcome::Partial
        } else {
            FillOutcome::Nothing
        }
    }

    /// Copies the pieces of each range into one buffer of its exact size.
    fn compact(&mut self) {
        let mut compacted = BTreeMap::new();
        for range in self.ready.iter() {
            let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
            let mut joined = BytesMut::with_capacity(len);
            for piece in self.pieces.range(range.clone()).map(|(_, piece)| piece) {
                joined.extend_from_slice(piece);
            }
            compacted.insert(range.start, joined.freeze());
        }
        self.pieces = compacted;
    }

    fn wake_readers(&mut self) -> WakerList {
        WakerList(
            self.readers
                .iter_mut()
                .filter_map(|reader| reader.waker.take())
                .collect(),
        )
    }
}

fn failed(error: ReadError) -> Poll<Option<Result<ObjectPiece, PollReadError>>> {
    Poll::Ready(Some(Err(PollReadError::Failed(error))))
}

/// The part of `range` from its start on that `piece`, which begins at `start`, contains.
fn slice(piece: &Bytes, start: u64, range: &Range<u64>) -> Option<Bytes> {
    let end = start.saturating_add(piece.len() as u64).min(range.end);
    if range.start < start || range.start >= end {
        return None;
    }
    let from = usize::try_from(range.start.saturating_sub(start)).ok()?;
    let to = usize::try_from(end.saturating_sub(start)).ok()?;
    Some(piece.slice(from..to))
}
