//! The disk tier: a file for each object, found again after a restart.
//!
//! A file gets its name when what it says about itself is true, so whatever moment a process ends
//! at, what is found is whole or says which parts of it are. Everything that may block is done on
//! [threads of the store's own](pool::Pool); the exception are reads of content: its [pieces](Sums)
//! are compared with their checksums on the blocking threads of the runtime that reads, which gets
//! them as a [`FileRange`](apus_http::FileRange) then. An object with a damaged piece is removed.
//!
//! An object that cannot be written is passed on to its readers as if there were no disk.

mod directory;
mod file;
mod format;
mod index;
mod journal;
mod load;
mod pool;
mod room;
mod save;
mod sums;
mod sweep;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use directory::Directory;
pub(crate) use directory::Name;
pub(crate) use file::{ObjectFile, Seal};
pub(crate) use format::Record;
use index::Index;
use journal::Journal;
use pool::Pool;
pub(crate) use sums::{Checked, Sums};
pub use sweep::Recorded;

use super::collapse::Pending;
use super::counters::Counter;
use super::key::Hash;
use super::locked;
use super::object::Object;
use super::purge::Purges;

/// What the disk tier may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// The directory. It is made if need be, and belongs to one server at a time.
    pub path: PathBuf,
    /// The bytes of disk for objects.
    pub bytes: u64,
    /// The largest object to be kept on disk, in bytes; at most half of all is used.
    pub object_bytes: u64,
    /// The bytes of the file system to be left free: objects are dropped before it has fewer.
    pub min_free_bytes: u64,
    /// The threads that read and write.
    pub threads: usize,
}

impl DiskSettings {
    /// `bytes` of disk below `path`.
    pub fn new(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self {
            path: path.into(),
            bytes,
            object_bytes: u64::MAX,
            min_free_bytes: 0,
            threads: 4,
        }
    }
}

/// Objects smaller than the memory tier's limit wait in memory to be written; more bytes of them
/// than this are not kept waiting: the disk is too slow for them.
const MOST_WAITING_BYTES: u64 = 64 << 20;

/// The numbers of purges jump by this at each start, so that a purge of the last run that could
/// not be written down is known by the number of what was filled after it.
const NUMBERS_PER_RUN: u64 = 1 << 20;

const STATE: &str = "state";

/// The disk tier of a store.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) settings: DiskSettings,
    pub(crate) counters: DiskCounters,
    directory: Directory,
    index: Index,
    pool: Pool,
    journal: Mutex<Journal>,
    /// The store's identity, which every file repeats.
    identity: u128,
    /// The last purge that was written down before this run, and the first number of this one.
    numbers: (u64, u64),
    /// The machine ended before the last run did: what was written may not all be there.
    verify: bool,
    /// Keys that are being looked for on disk, with those who wait.
    loading: Mutex<HashMap<Hash, Arc<Pending>>>,
    /// The bytes of files that are being filled and are not in the index.
    filling: AtomicU64,
    /// The bytes that wait to be written for objects in memory.
    waiting: AtomicU64,
    /// For each set of names: held while a file gets or loses its name, with the index.
    names: Box<[Mutex<()>]>,
    /// Files that are out of the queues and not removed yet.
    leaving: AtomicUsize,
    /// When it was last told that the disk takes nothing.
    told: Mutex<Option<Instant>>,
    closed: AtomicBool,
}

/// What the disk tier has done.
#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    pub(crate) hits: Counter,
    pub(crate) evictions: Counter,
    pub(crate) errors: Counter,
    pub(crate) damaged: Counter,
    pub(crate) skipped: Counter,
}

impl Disk {
    /// Opens the tier, and returns what was purged.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open(mut settings: DiskSettings) -> io::Result<(Self, Purges)> {
        settings.object_bytes = settings.object_bytes.min(settings.bytes / 2);
        let directory = Directory::open(&settings.path)?;
        directory.clear_temporary()?;
        let (mut journal, purges) = Journal::open(&directory)?;
        let before = purges.current();
        let first = before.saturating_add(NUMBERS_PER_RUN);
        journal.begin_at(&directory, first)?;
        purges.begin_at(first);
        let verify = begin_run(&directory)?;
        let disk = Self {
            identity: journal.store(),
            index: Index::new(settings.bytes),
            pool: Pool::start(settings.threads.max(1))?,
            journal: Mutex::new(journal),
            numbers: (before, first),
            counters: DiskCounters::default(),
            loading: Mutex::default(),
            filling: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            names: (0..64).map(|_| Mutex::default()).collect(),
            leaving: AtomicUsize::new(0),
            told: Mutex::default(),
            closed: AtomicBool::new(false),
            directory,
            verify,
            settings,
        };
        Ok((disk, purges))
    }

    /// The objects on disk that are known, their bytes, and how much of the disk was looked
    /// through since the start, in thousandths.
    pub(crate) fn size(&self) -> (u64, u64, u64) {
        (
            self.index.len(),
            self.index.bytes(),
            self.index.scanned_permille(),
        )
    }

    /// Whether there may be something below `key`.
    pub(crate) fn may_have(&self, key: Hash) -> bool {
        !self.index.knows(key) || self.index.has(key)
    }

    /// Has `job` done by a thread that may block, after `rest` or when the disk is flushed.
    pub(crate) fn run_after(&self, rest: Duration, job: impl FnOnce() + Send + 'static) {
        if rest.is_zero() {
            self.pool.run(job);
        } else {
            self.pool.run_after(rest, job);
        }
    }

    /// Lets nobody find an older object of the same variant.
    pub(crate) fn supersede(&self, object: &Object) {
        self.index.supersede(object.name(), object.generation());
    }

    /// Whether `object` is what is found below its name.
    pub(crate) fn knows(&self, object: &Object) -> bool {
        self.index.generation(object.name()) == Some(object.generation())
    }

    /// Counts an object that was not what had been written.
    pub(crate) fn count_damage(&self) {
        self.counters.damaged.add(1);
    }

    /// Waits until everything is written. Blocks.
    pub(crate) fn flush(&self) {
        self.pool.drain();
    }

    /// Writes everything down, and that nothing is missing. Blocks.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.pool.drain();
        if self.closed.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        self.directory.sync()?;
        write_state(&self.directory, "clean")
    }

    /// Held while the file of this name gets or loses it.
    fn name_lock(&self, name: Name) -> MutexGuard<'_, ()> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.names[name.hash.spread() % self.names.len()])
    }

    /// Removes an object's file, unless the name belongs to a later one by now.
    fn remove(&self, name: Name, generation: u64) {
        let _held = self.name_lock(name);
        if self
            .index
            .generation(name)
            .is_some_and(|held| held != generation)
        {
            return;
        }
        if self.directory.remove_object(name).is_err() {
            self.counters.errors.add(1);
        }
        self.index.remove(name, generation);
    }
}

/// Notes that a run begins. `true` when the last one was ended by the machine's end.
fn begin_run(directory: &Directory) -> io::Result<bool> {
    let mut before = String::new();
    if let Some(mut file) = directory.open_in_root(STATE)? {
        // What is not text is not what was written there.
        let _ = file.read_to_string(&mut before);
    }
    let trusted = before == state("clean") || before == state("running");
    let clean = before.ends_with(" clean\n");
    write_state(directory, "running")?;
    Ok(!trusted && !clean)
}

fn write_state(directory: &Directory, word: &str) -> io::Result<()> {
    const TEMPORARY: &str = "state.new";
    directory.remove_temporary(TEMPORARY)?;
    let file = directory.create_temporary(TEMPORARY)?;
    file.write_all_at(state(word).as_bytes(), 0)?;
    file.sync_all()?;
    directory.publish_in_root(TEMPORARY, STATE)
}

/// Names the time since the machine was started.
fn state(word: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {word}\n", boot.trim())
}
