//! The content of one object, while it is filled and afterwards.
//!
//! Any number of fillers append, each at a place of its own, and any number of readers follow, on
//! whatever threads. Under the lock there are only a few comparisons and clones of `Bytes`; content
//! that is whole and in memory is read without it.
//!
//! Where appended pieces go is the [`Mode`]. In memory they stay as they come, and are copied once,
//! into exactly as many bytes as they are, when the fill ends: a piece may hold on to a larger read
//! buffer. In a window they stay only until the readers have had them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use apus_http::{Reservation, ResponseMemory};
use bytes::{Bytes, BytesMut};

use super::disk::ObjectFile;
use super::intervals::Intervals;
use super::locked;
use super::read::{Piece, ReadError};
use super::whole::Whole;

/// Pieces smaller than this are copied at once, so that they do not hold a whole read buffer each.
const SMALL_PIECE: usize = 4 * 1024;

/// Where appended pieces are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In memory, until the object is dropped.
    Memory,
    /// In a file. What is not written yet is in memory, and no more than this many bytes of it.
    Disk(u64),
    /// In memory until the readers have had them, and at most this many bytes of them: an object
    /// that cannot be stored. It is clients that decide how many windows there are, so one holds more
    /// than a single piece only as far as [`ResponseMemory`] has it.
    Window(u64),
}

/// The content of one object.
#[derive(Debug)]
pub(crate) struct Content {
    whole: OnceLock<Whole>,
    file: OnceLock<Arc<ObjectFile>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    length: Option<u64>,
    /// What can be read.
    ready: Intervals,
    /// What of it is in memory, by where it starts.
    pieces: BTreeMap<u64, Bytes>,
    /// The bytes of all pieces.
    buffered: u64,
    /// What is reserved for those of a window.
    reserved: Reservation,
    /// What can be read from the file.
    on_file: Intervals,
    /// It turned out while it was filled that it cannot be stored.
    lost: bool,
    /// Who fills what.
    claims: Vec<Claim>,
    /// The fill of an object without a strong validator broke off: the rest never comes.
    broken: bool,
    readers: Vec<Follower>,
    had_reader: bool,
    /// Fillers that wait for room, or for the last reader to leave.
    fillers: Vec<Waker>,
    next_id: u64,
}

#[derive(Debug)]
struct Claim {
    id: u64,
    position: u64,
    /// Where it ends; not known for a fill whose length was not declared.
    end: Option<u64>,
    /// Whether somebody has read what it fills, or waited for it.
    met_reader: bool,
}

#[derive(Debug)]
struct Follower {
    id: u64,
    position: u64,
    end: u64,
    waker: Option<Waker>,
    /// It was left behind, so that the others could go on.
    cut: bool,
}

/// Wakers to be woken when the lock is no longer held.
#[must_use]
#[derive(Default)]
pub(crate) struct Wake(Vec<Waker>);

impl Wake {
    pub(crate) fn now(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

/// What was appended.
#[derive(Debug, Default)]
pub(crate) struct Appended {
    /// How many bytes of it were wanted.
    pub(crate) wanted: usize,
    /// What of it is to be written, and where.
    pub(crate) to_write: Option<(u64, Bytes)>,
}

/// How a fill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// All the content is there.
    Whole,
    /// Some of it is, and the rest may be asked for.
    Partly,
    /// Others are still filling.
    Ongoing,
    /// There is nothing worth keeping.
    Nothing,
}

/// Why a reader does not get a piece.
#[derive(Debug)]
pub(crate) enum Unread {
    /// There is none for it.
    Failed(ReadError),
    /// It is in the file, as far as this, and was not compared with its checksum.
    Unchecked(Range<u64>),
}

impl Content {
    /// Content of which nothing is there yet.
    pub(crate) fn new(length: Option<u64>, mode: Mode) -> Self {
        Self {
            whole: OnceLock::new(),
            file: OnceLock::new(),
            state: Mutex::new(State {
                mode,
                length,
                ready: Intervals::new(),
                pieces: BTreeMap::new(),
                buffered: 0,
                reserved: ResponseMemory::of_process().reserve_nothing(),
                on_file: Intervals::new(),
                lost: false,
                claims: Vec::new(),
                broken: false,
                readers: Vec::new(),
                had_reader: false,
                fillers: Vec::new(),
                next_id: 0,
            }),
        }
    }

    /// Content that is whole and in memory.
    pub(crate) fn of_bytes(bytes: Bytes) -> Self {
        let content = Self::new(Some(bytes.len() as u64), Mode::Memory);
        let _ = content.whole.set(Whole::new(bytes));
        content
    }

    /// Content of which `stored` is in `file`. What is added waits in at most `unwritten` bytes.
    pub(crate) fn of_file(
        length: Option<u64>,
        stored: Intervals,
        file: Arc<ObjectFile>,
        unwritten: u64,
    ) -> Self {
        let content = Self::new(length, Mode::Disk(unwritten));
        let _ = content.file.set(file);
        let mut state = content.lock();
        state.on_file = stored.clone();
        state.ready = stored;
        drop(state);
        content
    }

    /// The content, when it is whole and in memory.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.get()
    }

    /// The length of the content, once it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.whole.get() {
            Some(whole) => Some(whole.bytes().len() as u64),
            None => self.lock().length,
        }
    }

    /// What can be read now.
    pub(crate) fn ready(&self) -> Intervals {
        self.lock().ready.clone()
    }

    /// Whether all of it is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.whole.get().is_some() || self.lock().is_complete()
    }

    /// How many bytes of memory it takes.
    pub(crate) fn memory(&self) -> u64 {
        if let Some(whole) = self.whole.get() {
            return whole.bytes().len() as u64;
        }
        self.lock().buffered
    }

    /// Whether somebody fills it.
    pub(crate) fn is_filling(&self) -> bool {
        self.whole.get().is_none() && !self.lock().claims.is_empty()
    }

    /// Whether somebody who comes now can read it from its start.
    pub(crate) fn is_joinable(&self) -> bool {
        self.whole.get().is_some() || !self.lock().is_window()
    }

    /// Where what is appended goes.
    pub(crate) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// Its file, if it has one.
    pub(crate) fn file(&self) -> Option<&Arc<ObjectFile>> {
        self.file.get()
    }

    /// Its file, if what is appended goes there.
    pub(crate) fn filled_file(&self) -> Option<&Arc<ObjectFile>> {
        let file = self.file.get()?;
        matches!(self.lock().mode, Mode::Disk(_)).then_some(file)
    }

    /// What of `range`, from its start on, is in the file and not in memory.
    pub(crate) fn in_file(&self, range: &Range<u64>) -> Option<(&Arc<ObjectFile>, Range<u64>)> {
        let file = self.file.get()?;
        let state = self.lock();
        if self.whole.get().is_some() || state.piece(range).is_some() {
            return None;
        }
        let there = state.on_file.at(range.start)?;
        Some((file, range.start..there.end.min(range.end)))
    }

    /// What of it is in memory, by where it starts.
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

    // What fillers do.

    /// Claims everything from the start, for the fill that makes the object.
    pub(crate) fn claim_all(&self) -> u64 {
        let mut state = self.lock();
        let end = state.length;
        state.claim(0, end)
    }

    /// Claims those parts of `range` that are neither there nor claimed: each with its number.
    pub(crate) fn claim_missing(&self, range: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let mut state = self.lock();
        if self.whole.get().is_some() || state.broken {
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

    /// Claims the first part of `range` that is not there, and returns its number and place.
    ///
    /// One that another claims is left to that, unless it is more than `ahead` bytes before: then
    /// that ends where this one begins. `None` when there is nothing to claim.
    pub(crate) fn claim_first(&self, range: Range<u64>, ahead: u64) -> Option<(u64, Range<u64>)> {
        if self.whole.get().is_some() {
            return None;
        }
        let mut state = self.lock();
        if state.broken || state.is_window() {
            return None;
        }
        let end = state.length?.min(range.end);
        let gaps = state.ready.missing(range.start..end.max(range.start));
        let mut gap = gaps.into_iter().next()?;
        for claim in &state.claims {
            if claim.position > gap.start {
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

    /// Ready when the filler may append; `false` when nobody wants it to.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        claim: u64,
        unread_stops: bool,
    ) -> Poll<bool> {
        let mut state = self.lock();
        if state.is_unread(claim, unread_stops) {
            return Poll::Ready(false);
        }
        if !state.has_room() {
            state.wait_as_filler(cx);
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Ready when nobody wants the fill to go on.
    pub(crate) fn poll_unread(
        &self,
        cx: &mut Context<'_>,
        claim: u64,
        unread_stops: bool,
    ) -> Poll<()> {
        let mut state = self.lock();
        if state.is_unread(claim, unread_stops) {
            return Poll::Ready(());
        }
        state.wait_as_filler(cx);
        Poll::Pending
    }

    /// Leaves behind the readers that hold up the others, if there are others: those have had
    /// everything.
    pub(crate) fn cut_laggards(&self) {
        let mut state = self.lock();
        // Nobody came to read it, and it is not stored either.
        state.lost |= state.readers.is_empty();
        let furthest = state.readers.iter().map(|reader| reader.position).max();
        let Some(furthest) = furthest.filter(|at| !state.ready.contains(&(*at..*at + 1))) else {
            return;
        };
        let mut wake = Wake::default();
        for reader in &mut state.readers {
            if reader.position < furthest {
                reader.cut = true;
                wake.0.extend(reader.waker.take());
            }
        }
        state.trim();
        drop(state);
        wake.now();
    }

    /// Adds what comes next at the claim's place.
    pub(crate) fn append(&self, claim: u64, bytes: Bytes) -> Appended {
        let mut state = self.lock();
        let appended = state.append(claim, bytes);
        let wake = state.wake_readers();
        drop(state);
        wake.now();
        appended
    }

    /// Has what is appended from now on go into `file`, and returns what is there already. `None`
    /// when it is not in memory that it goes now.
    pub(crate) fn spill(&self, file: Arc<ObjectFile>, unwritten: u64) -> Option<Vec<(u64, Bytes)>> {
        let mut state = self.lock();
        if state.mode != Mode::Memory || self.file.set(file).is_err() {
            return None;
        }
        state.mode = Mode::Disk(unwritten);
        Some(
            state
                .pieces
                .iter()
                .map(|(start, piece)| (*start, piece.clone()))
                .collect(),
        )
    }

    /// Notes that `range` was written.
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
        let wake = Wake(std::mem::take(&mut state.fillers));
        drop(state);
        wake.now();
    }

    /// Has it kept no longer than its readers need: it cannot be stored.
    pub(crate) fn lose(&self, window: u64) {
        let mut state = self.lock();
        state.mode = Mode::Window(window);
        state.lost = !state.ready.is_empty();
        state.trim();
        let mut wake = Wake(std::mem::take(&mut state.fillers));
        wake.0.extend(state.wake_readers().0);
        drop(state);
        wake.now();
    }

    /// Ends a claim. `orderly`: its source ended where a source ends. `resumable`: what is missing
    /// may be asked for.
    pub(crate) fn end(&self, claim: u64, orderly: bool, resumable: bool) -> Filled {
        let mut state = self.lock();
        let Some(at) = state.claims.iter().position(|held| held.id == claim) else {
            return Filled::Nothing;
        };
        let ended = state.claims.swap_remove(at);
        if orderly && ended.end.is_none() {
            state.length.get_or_insert(ended.position);
        }
        let filled = state.outcome(ended.position, resumable);
        state.broken |= filled == Filled::Nothing || !(orderly || resumable);
        if state.mode == Mode::Memory {
            match filled {
                Filled::Whole => {
                    let pieces = std::mem::take(&mut state.pieces);
                    let pieces = pieces.values().map(|piece| &piece[..]);
                    let _ = self.whole.set(Whole::gather(pieces));
                }
                Filled::Partly => state.compact(),
                Filled::Ongoing | Filled::Nothing => {}
            }
        }
        let wake = state.wake_readers();
        drop(state);
        wake.now();
        filled
    }

    // What readers do.

    /// Registers a reader of `range`, and returns its number.
    pub(crate) fn follow(&self, range: &Range<u64>) -> u64 {
        let mut state = self.lock();
        let id = state.next_id();
        state.had_reader = true;
        let follower = Follower {
            id,
            position: range.start,
            end: range.end,
            waker: None,
            cut: false,
        };
        for claim in &mut state.claims {
            claim.met_reader |= follower.wants(claim);
        }
        state.readers.push(follower);
        id
    }

    /// Takes a reader out.
    pub(crate) fn leave(&self, reader: u64) {
        let mut state = self.lock();
        state.readers.retain(|held| held.id != reader);
        state.trim();
        let wake = Wake(std::mem::take(&mut state.fillers));
        drop(state);
        wake.now();
    }

    /// The piece at the start of `range`, which is not empty; `None` where the content ends. What is in
    /// the file is only read as far as it was `checked`.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        reader: u64,
        range: &Range<u64>,
        checked: u64,
    ) -> Poll<Option<Result<Piece, Unread>>> {
        if let Some(whole) = self.whole.get() {
            return Poll::Ready(
                slice(whole.bytes(), 0, range).map(|bytes| Ok(Piece::Bytes(bytes))),
            );
        }
        let mut state = self.lock();
        let end = state
            .length
            .map_or(range.end, |length| length.min(range.end));
        if range.start >= end {
            return Poll::Ready(None);
        }
        let Some(held) = state.readers.iter().position(|held| held.id == reader) else {
            return failed(ReadError::BrokenOff);
        };
        if state.readers.get(held).is_some_and(|follower| follower.cut) {
            return failed(ReadError::LeftBehind);
        }
        let piece = match state.piece(&(range.start..end)) {
            Some(bytes) => Some(Piece::Bytes(bytes)),
            None => match state.on_file.at(range.start) {
                Some(there) if checked <= range.start => {
                    let unchecked = range.start..there.end.min(end);
                    return Poll::Ready(Some(Err(Unread::Unchecked(unchecked))));
                }
                Some(there) => {
                    let len = there.end.min(end).min(checked).saturating_sub(range.start);
                    let file = self.file.get();
                    file.and_then(|file| file.range(range.start, len))
                        .map(Piece::File)
                }
                None => None,
            },
        };
        if let Some(piece) = piece {
            let position = range.start.saturating_add(piece.len());
            if let Some(follower) = state.readers.get_mut(held) {
                follower.position = position;
            }
            let wake = state.make_room();
            drop(state);
            wake.now();
            return Poll::Ready(Some(Ok(piece)));
        }
        // It became whole between the look without the lock and this one.
        if let Some(whole) = self.whole.get() {
            return Poll::Ready(
                slice(whole.bytes(), 0, range).map(|bytes| Ok(Piece::Bytes(bytes))),
            );
        }
        if state.claim_at(range.start).is_some() {
            if let Some(follower) = state.readers.get_mut(held) {
                follower.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        if state.broken {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl Follower {
    fn wants(&self, claim: &Claim) -> bool {
        self.end > claim.position && claim.end.is_none_or(|end| self.position < end)
    }
}

impl State {
    fn is_window(&self) -> bool {
        matches!(self.mode, Mode::Window(_))
    }

    fn next_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn claim(&mut self, position: u64, end: Option<u64>) -> u64 {
        let mut claim = Claim {
            id: self.next_id(),
            position,
            end,
            met_reader: false,
        };
        claim.met_reader = self.readers.iter().any(|reader| reader.wants(&claim));
        self.claims.push(claim);
        self.next_id
    }

    /// The claim that `position` is in.
    fn claim_at(&mut self, position: u64) -> Option<&mut Claim> {
        let covers = |claim: &&mut Claim| {
            claim.position <= position && claim.end.is_none_or(|end| position < end)
        };
        self.claims.iter_mut().find(covers)
    }

    fn is_complete(&self) -> bool {
        self.length
            .is_some_and(|length| self.ready.contains(&(0..length)))
    }

    /// Whether those who wanted what the claim fills have left, and it is not filled for its own
    /// sake.
    fn is_unread(&self, claim: u64, unread_stops: bool) -> bool {
        let pointless = unread_stops || self.is_window();
        pointless
            && self.claims.iter().any(|held| {
                held.id == claim
                    && (held.met_reader || self.lost)
                    && !self.readers.iter().any(|reader| reader.wants(held))
            })
    }

    /// Whether more may be held in memory.
    fn has_room(&mut self) -> bool {
        match self.mode {
            Mode::Memory => true,
            Mode::Disk(most) => self.buffered < most,
            Mode::Window(most) => {
                // An empty one needs nothing, and always has room.
                self.buffered < most && self.reserved.resize(self.buffered)
            }
        }
    }

    fn wait_as_filler(&mut self, cx: &Context<'_>) {
        if !self.fillers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.fillers.push(cx.waker().clone());
        }
    }

    fn append(&mut self, claim: u64, mut bytes: Bytes) -> Appended {
        let to_file = matches!(self.mode, Mode::Disk(_));
        let Some(claim) = self.claims.iter_mut().find(|held| held.id == claim) else {
            return Appended::default();
        };
        let room = claim
            .end
            .map_or(u64::MAX, |end| end.saturating_sub(claim.position));
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let wanted = bytes.len();
        if wanted == 0 {
            return Appended::default();
        }
        if wanted < SMALL_PIECE {
            bytes = Bytes::copy_from_slice(&bytes);
        }
        let position = claim.position;
        claim.position = position.saturating_add(wanted as u64);
        self.ready.insert(position..claim.position);
        let to_write = to_file.then(|| (position, bytes.clone()));
        self.pieces.insert(position, bytes);
        self.buffered = self.buffered.saturating_add(wanted as u64);
        self.trim();
        Appended { wanted, to_write }
    }

    /// The bytes in memory at the start of `range`, as far as one piece holds them.
    fn piece(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, piece) = self.pieces.range(..=range.start).next_back()?;
        slice(piece, *start, range)
    }

    /// In a window, drops what all readers have had, and lets fillers go on.
    fn make_room(&mut self) -> Wake {
        if !self.is_window() {
            return Wake::default();
        }
        self.trim();
        Wake(std::mem::take(&mut self.fillers))
    }

    fn trim(&mut self) {
        if !self.is_window() || !(self.had_reader || self.lost) {
            return;
        }
        let following = self.readers.iter().filter(|reader| !reader.cut);
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

    /// What there is after a fill has ended at `position`.
    fn outcome(&self, position: u64, resumable: bool) -> Filled {
        if !self.claims.is_empty() {
            Filled::Ongoing
        } else if self.is_window() {
            // Its readers take what is in the window; nobody else will.
            if self.length == Some(position) {
                Filled::Whole
            } else {
                Filled::Nothing
            }
        } else if self.is_complete() {
            Filled::Whole
        } else if resumable && !self.ready.is_empty() && self.length.is_some() {
            Filled::Partly
        } else {
            Filled::Nothing
        }
    }

    /// Copies the pieces of each interval into one of exactly its size.
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

    fn wake_readers(&mut self) -> Wake {
        Wake(
            self.readers
                .iter_mut()
                .filter_map(|reader| reader.waker.take())
                .collect(),
        )
    }
}

fn failed(error: ReadError) -> Poll<Option<Result<Piece, Unread>>> {
    Poll::Ready(Some(Err(Unread::Failed(error))))
}

/// What `piece`, which begins at `start`, holds of `range`, from the start of `range` on.
fn slice(piece: &Bytes, start: u64, range: &Range<u64>) -> Option<Bytes> {
    let end = start.saturating_add(piece.len() as u64).min(range.end);
    if range.start < start || range.start >= end {
        return None;
    }
    let from = usize::try_from(range.start.saturating_sub(start)).ok()?;
    let to = usize::try_from(end.saturating_sub(start)).ok()?;
    Some(piece.slice(from..to))
}
