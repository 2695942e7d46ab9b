//! Loading objects from disk: one for a lookup, and a scan of all after a start.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustix::io::Errno;

use super::super::body::ObjectBody;
use super::super::key::{KeyHash, ObjectName, StoreKey};
use super::super::locked;
use super::super::object::Object;
use super::super::object_file::{CheckedRange, FileLayout, ObjectFile, ObjectFileHeader};
use super::super::pending::{FillWait, PendingRequest};
use super::super::purge::{PurgeSubject, PurgeVerdict, fingerprints};
use super::super::{Store, StoreState};
use super::Disk;
use super::directory::bucket;
use super::index::IndexEntry;
use super::rescan::schedule_rescan;

/// Wakes the requests that wait for a key, however the search ends.
struct DiskSearch {
    store: Store,
    hash: KeyHash,
    pending: Arc<PendingRequest>,
}

impl Drop for DiskSearch {
    fn drop(&mut self) {
        self.store.shared().on_disk(|disk| {
            locked(&disk.loading).remove(&self.hash);
        });
        self.pending.look_again();
    }
}

impl Store {
    /// Searches `key` on disk. After the wait, the caller looks it up in memory again. `None` if
    /// there is no object.
    pub(crate) fn search_disk(
        &self,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<FillWait> {
        let disk = self.shared().disk.as_ref()?;
        if disk.closed.load(Ordering::Acquire) {
            return None;
        }
        let name = if disk.index.knows(key.hash()) {
            Some(disk.index.select(key, secondary)?)
        } else {
            None
        };
        let hash = name.map_or(key.hash(), |name| name.hash);
        // All requests for the key wait for one search, which would else read the same file for each.
        let pending = Arc::new(PendingRequest::new(b""));
        {
            let mut loading = locked(&disk.loading);
            if let Some(pending) = loading.get(&hash) {
                return Some(FillWait(pending.clone()));
            }
            loading.insert(hash, pending.clone());
        }
        let search = DiskSearch {
            store: self.clone(),
            hash,
            pending: pending.clone(),
        };
        let bucket = bucket(key.hash());
        disk.pool.run_first(move || {
            let store = &search.store;
            store.shared().on_disk(|disk| match name {
                Some(name) => disk.load(store, name),
                None => {
                    disk.scan(store.shared(), bucket);
                    schedule_rescan(&store.0);
                }
            });
        });
        Some(FillWait(pending))
    }

    /// Scans the whole disk in small steps.
    pub(crate) fn scan_disk(&self) {
        scan_from(Arc::downgrade(&self.0), 0);
    }
}

/// Whether a file could not be read because of other files and processes, so that it may be readable later.
fn is_of_resources(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else {
        return false;
    };
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno)
}

fn buckets_of(outer: u8) -> impl Iterator<Item = u16> {
    (0..=u8::MAX).map(move |inner| u16::from_be_bytes([outer, inner]))
}

fn seconds_since_epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Scans the directories from `outer` on, one in each step, and holds on to the store only during a
/// step.
fn scan_from(store: Weak<StoreState>, outer: u8) {
    let Some(shared) = store.upgrade() else {
        return;
    };
    shared.on_disk(|disk| {
        // One directory in each job, so that a search that a request waits for comes before the next one.
        disk.pool.run(move || {
            let Some(shared) = store.upgrade() else {
                return;
            };
            let closed = shared.on_disk(|disk| {
                disk.scan_outer(&shared, outer);
                schedule_rescan(&shared);
                disk.closed.load(Ordering::Acquire)
            });
            drop(shared);
            if let (Some(next), Some(false)) = (outer.checked_add(1), closed) {
                scan_from(store, next);
            }
        });
    });
}

impl Disk {
    /// Adds the objects in all subdirectories of `outer` to the index.
    fn scan_outer(&self, shared: &StoreState, outer: u8) {
        match self.directory.buckets(outer) {
            Ok(buckets) => {
                for bucket in buckets {
                    self.scan(shared, bucket);
                }
            }
            Err(_) => {
                self.counters.errors.add(1);
                for bucket in buckets_of(outer).filter(|bucket| !self.index.is_scanned(*bucket)) {
                    self.index.mark_unread(bucket);
                }
            }
        }
        for bucket in buckets_of(outer) {
            self.index.mark_scanned(bucket);
        }
    }

    /// Adds the objects in a subdirectory to the index, unless that was done before.
    fn scan(&self, shared: &StoreState, bucket: u16) {
        if self.index.is_scanned(bucket) {
            return;
        }
        if !self.scan_files(shared, bucket) {
            self.index.mark_unread(bucket);
        }
        self.index.mark_scanned(bucket);
        self.evict_scanned(shared);
    }

    /// Adds the objects in a subdirectory to the index that could not be read before.
    pub(super) fn scan_again(&self, shared: &StoreState, bucket: u16) {
        if self.scan_files(shared, bucket) {
            self.index.mark_read(bucket);
        }
        self.evict_scanned(shared);
    }

    /// Returns `false` if there may be objects that could not be read for now.
    fn scan_files(&self, shared: &StoreState, bucket: u16) -> bool {
        match self.directory.objects(bucket) {
            Ok(names) => {
                let mut is_read = true;
                for name in names {
                    is_read &= self.scan_file(shared, name);
                }
                is_read
            }
            Err(_) => {
                self.counters.errors.add(1);
                false
            }
        }
    }

    fn evict_scanned(&self, shared: &StoreState) {
        if self.evict(shared).is_err() {
            self.counters.errors.add(1);
        }
    }

    /// Returns `false` if the object could not be read because descriptors or memory are short.
    fn scan_file(&self, shared: &StoreState, name: ObjectName) -> bool {
        let _held = self.name_lock(name);
        if self.index.generation(name).is_some() {
            return true;
        }
        match self.read_entry(shared, name) {
            Ok(Some(entry)) => self.index.insert(entry),
            // It is not of this store and version, damaged, purged, or from the future.
            Ok(None) => {
                if self.directory.remove_object(name).is_err() {
                    self.counters.errors.add(1);
                }
            }
            Err(error) => {
                self.counters.errors.add(1);
                return !is_of_resources(&error);
            }
        }
        true
    }

    fn read_entry(&self, shared: &StoreState, name: ObjectName) -> io::Result<Option<IndexEntry>> {
        let Some((file, opened)) = self.open_object(name)? else {
            return Ok(None);
        };
        let record = &opened.record;
        let unknown = self.run.is_after_unrecorded_purge(record.filled_at);
        let subject = PurgeSubject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        let purged = shared.purges.verdict(subject).0 == PurgeVerdict::Gone;
        let sound = !self.verify || self.verify_body(&file, &opened);
        // Its age is unknown: the clock was ahead when it was received, or is behind now.
        let is_from_the_future = record.new.metadata.received > seconds_since_epoch();
        if unknown || purged || is_from_the_future || !sound {
            return Ok(None);
        }
        let bytes = opened
            .layout
            .body_at
            .saturating_add(record.checksums.stored().len());
        Ok(Some(IndexEntry {
            name,
            generation: record.generation,
            vary: self.index.intern(&record.new.vary),
            filled_at: record.filled_at,
            fingerprints: fingerprints(&record.key, &record.new.tags),
            bytes: bytes.next_multiple_of(4096),
        }))
    }

    /// Opens the file of an object; `None` if it is missing or incomplete.
    pub(super) fn open_object(
        &self,
        name: ObjectName,
    ) -> io::Result<Option<(File, ObjectFileHeader)>> {
        let Some(file) = self.directory.open_object(name)? else {
            return Ok(None);
        };
        let opened = ObjectFileHeader::read(&file, self.identity, name.hash)?;
        if opened.is_none() && !FileLayout::is_of_other_version(&file) {
            self.counters.damaged.add(1);
        }
        Ok(opened.map(|opened| (file, opened)))
    }

    /// Loads an object into memory, a small one with its body.
    fn load(&self, store: &Store, name: ObjectName) {
        let Some(generation) = self.index.generation(name) else {
            return;
        };
        match self.read_object(store, name, generation) {
            Ok(Some(object)) => {
                self.counters.hits.add(1);
                store.shared().insert_restored(Arc::new(object));
            }
            Ok(None) => self.remove(name, generation),
            Err(_) => {
                self.counters.errors.add(1);
                self.remove(name, generation);
            }
        }
    }

    fn read_object(
        &self,
        store: &Store,
        name: ObjectName,
        generation: u64,
    ) -> io::Result<Option<Object>> {
        let shared = store.shared();
        let Some((file, opened)) = self.open_object(name)? else {
            return Ok(None);
        };
        let record = &opened.record;
        let subject = PurgeSubject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        let purged = shared.purges.verdict(subject).0 == PurgeVerdict::Gone;
        if purged || record.generation != generation {
            return Ok(None);
        }
        let length = record.new.length;
        let small = length.filter(|length| *length <= shared.settings.memory_object_bytes);
        if small.is_some() && record.is_complete() {
            let pieces: Vec<_> = record.checksums.all().collect();
            let Some(bytes) = CheckedRange::read(&file, opened.layout.body_at, &pieces)? else {
                self.counters.damaged.add(1);
                return Ok(None);
            };
            let body = ObjectBody::of_bytes(Bytes::from(bytes));
            return Ok(Some(Object::restored(opened.record, body)));
        }
        let stored = record.checksums.stored();
        let record = record.clone();
        let file = Arc::new(ObjectFile::open(store, name, file, opened));
        let body = ObjectBody::of_file(length, stored, file, shared.settings.unwritten_bytes);
        Ok(Some(Object::restored(record, body)))
    }

    /// Whether the body is undamaged.
    fn verify_body(&self, file: &File, opened: &ObjectFileHeader) -> bool {
        let pieces: Vec<_> = opened.record.checksums.all().collect();
        let body_at = opened.layout.body_at;
        let is_sound = CheckedRange::default()
            .next(file, body_at, &pieces)
            .is_some();
        if !is_sound {
            self.counters.damaged.add(1);
        }
        is_sound
    }
}
