//! The disk tier: a file for each object, which is found again after a restart.
//!
//! A file gets its name when its metadata is true, so that at any moment of a crash the files are
//! complete or say which ranges they have. All blocking operations run on the [threads of the
//! store](pool::DiskPool), except the reads of bodies: their pieces are verified
//! on the blocking threads of the runtime that reads, which then gets them as a
//! [`FileRange`](apus_http::FileRange). All readers of a file [share](super::object_file) what
//! was verified. An object with a damaged piece is removed.
//!
//! An object that cannot be written is sent to its readers as if there were no disk.

mod count;
mod directory;
mod index;
mod journal;
mod listing;
mod load;
mod pool;
mod rescan;
mod save;
mod space;
mod sweep;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) use count::DiskCounting;
use directory::Directory;
use index::Index;
use journal::Journal;
pub(crate) use listing::{DiskCandidate, DiskListing};
use pool::DiskPool;
use rescan::RescanSchedule;
pub use sweep::PurgeReceipt;

use super::counters::StoreCounter;
use super::key::{KeyHash, ObjectName};
use super::locked;
use super::object::Object;
use super::pending::PendingRequest;
use super::purge::Purges;

/// The limits of the disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// The directory. It is created if it is missing, and belongs to one process at a time.
    pub path: PathBuf,
    /// The bytes of disk for objects.
    pub bytes: u64,
    /// The largest object on disk, in bytes, but at most half of `bytes`.
    pub object_bytes: u64,
    /// The bytes of the file system to leave free: objects are evicted before it has fewer.
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

/// The most bytes of small objects that wait in memory to be written. If there are more, the disk
/// is too slow for them, and they are not written.
const MAX_WAITING_BYTES: u64 = 64 << 20;

/// The numbers of purges advance by this at each start, so that numbers of unrecorded purges of the
/// last run are recognised in objects that were filled after them.
const NUMBERS_PER_RUN: u64 = 1 << 20;

const STATE: &str = "state";

/// The disk tier of a store.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) settings: DiskSettings,
    pub(crate) counters: DiskCounters,
    directory: Directory,
    index: Index,
    pool: DiskPool,
    journal: Mutex<Journal>,
    rescan: Mutex<RescanSchedule>,
    /// The identity of the store, which every file repeats.
    identity: u128,
    run: RunNumbers,
    /// Whether the machine crashed during the last run, so that written bytes may be missing.
    verify: bool,
    /// Keys that are being looked up on disk, with the waiting requests.
    loading: Mutex<HashMap<KeyHash, Arc<PendingRequest>>>,
    /// The bytes of files that are being filled and are not in the index.
    filling: AtomicU64,
    /// The bytes of objects in memory that wait to be written.
    waiting: AtomicU64,
    /// Locks for sets of names, each held while a file and its index entry are published or
    /// removed.
    names: Box<[Mutex<()>]>,
    /// The number of files that left the eviction queues and are not removed yet.
    removing: AtomicUsize,
    /// The time of the last warning about a failing disk.
    last_warning: Mutex<Option<Instant>>,
    closed: AtomicBool,
}

/// The numbers of purges at the start of a run.
#[derive(Clone, Copy, Debug)]
struct RunNumbers {
    /// The last recorded purge before the run.
    last_before: u64,
    /// The first number of the run.
    first: u64,
}

impl RunNumbers {
    /// Whether an object was filled after a purge of the last run that was not recorded: nobody knows what was purged.
    fn is_after_unrecorded_purge(self, filled_at: u64) -> bool {
        filled_at > self.last_before && filled_at < self.first
    }
}

/// What the disk tier holds, as statistics show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSize {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// How much of the disk was scanned since the start, in thousandths.
    pub(crate) scanned_permille: u64,
}

/// Counters of the disk tier.
#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    pub(crate) hits: StoreCounter,
    pub(crate) evictions: StoreCounter,
    pub(crate) errors: StoreCounter,
    pub(crate) damaged: StoreCounter,
    pub(crate) verified_bytes: StoreCounter,
    pub(crate) skipped: StoreCounter,
}

impl Disk {
    /// Opens the tier, and returns the recorded purges.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open(mut settings: DiskSettings) -> io::Result<(Self, Purges)> {
        // A larger object would evict most of the others.
        settings.object_bytes = settings.object_bytes.min(settings.bytes / 2);
        let directory = Directory::open(&settings.path)?;
        directory.clear_temporary()?;
        let (mut journal, purges) = Journal::open(&directory)?;
        let last_before = purges.current();
        let first = last_before.saturating_add(NUMBERS_PER_RUN);
        journal.begin_at(&directory, first)?;
        purges.begin_at(first);
        let verify = begin_run(&directory)?;
        let disk = Self {
            identity: journal.store(),
            index: Index::new(settings.bytes),
            pool: DiskPool::start(settings.threads.max(1))?,
            journal: Mutex::new(journal),
            rescan: Mutex::default(),
            run: RunNumbers { last_before, first },
            counters: DiskCounters::default(),
            loading: Mutex::default(),
            filling: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            names: (0..64).map(|_| Mutex::default()).collect(),
            removing: AtomicUsize::new(0),
            last_warning: Mutex::default(),
            closed: AtomicBool::new(false),
            directory,
            verify,
            settings,
        };
        Ok((disk, purges))
    }

    /// The objects that were found so far.
    pub(crate) fn size(&self) -> DiskSize {
        DiskSize {
            objects: self.index.len(),
            bytes: self.index.bytes(),
            scanned_permille: self.index.scanned_permille(),
        }
    }

    /// Whether there may be an object with the primary key `key`.
    pub(crate) fn may_have(&self, key: KeyHash) -> bool {
        !self.index.knows(key) || self.index.has(key)
    }

    /// Runs `job` on a thread that may block, after `delay` or when the disk is flushed.
    pub(crate) fn run_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        if delay.is_zero() {
            self.pool.run(job);
        } else {
            self.pool.run_after(delay, job);
        }
    }

    /// Hides older objects of the same variant from lookups.
    pub(crate) fn supersede(&self, object: &Object) {
        self.index.supersede(object.name(), object.generation());
    }

    /// Whether `object` is the one in the index.
    pub(crate) fn knows(&self, object: &Object) -> bool {
        self.index.generation(object.name()) == Some(object.generation())
    }

    /// Counts a damaged object.
    pub(crate) fn count_damage(&self) {
        self.counters.damaged.add(1);
    }

    /// Waits until everything is written. Blocks.
    pub(crate) fn flush(&self) {
        self.pool.drain();
    }

    /// Writes everything, and records that nothing is missing. Blocks.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.pool.drain();
        if self.closed.swap(true, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        // Before the state: "clean" must not be on disk while the objects that it vouches for are not.
        self.directory.sync()?;
        write_state(&self.directory, "clean")
    }

    /// Locks a name while its file is published or removed.
    fn name_lock(&self, name: ObjectName) -> MutexGuard<'_, ()> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.names[name.hash.spread() % self.names.len()])
    }

    /// Removes the file of an object, unless the name belongs to a later object.
    fn remove(&self, name: ObjectName, generation: u64) {
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

/// Records the start of a run. Returns `true` if the machine crashed during the last one.
fn begin_run(directory: &Directory) -> io::Result<bool> {
    let mut before = String::new();
    if let Some(mut file) = directory.open_in_root(STATE)? {
        // Invalid text was not written by a store.
        let _ = file.read_to_string(&mut before);
    }
    // After a crash of the process alone, the kernel still writes what the process wrote. Only a crash of the machine
    // loses it, and each boot has another id.
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
    // A rename that reaches the disk before the contents would leave an empty file after a crash.
    file.sync_all()?;
    directory.publish_in_root(TEMPORARY, STATE)
}

/// The boot id of the machine and a word.
fn state(word: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {word}\n", boot.trim())
}
