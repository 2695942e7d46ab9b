//! Finding objects on disk again: one that is asked for, and all of them after a start.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::super::collapse::{Pending, Wait};
use super::super::content::Content;
use super::super::key::{Hash, Key};
use super::super::locked;
use super::super::object::Object;
use super::super::purge::{Subject, Verdict, marks};
use super::super::{Shared, Store};
use super::Disk;
use super::directory::{Name, bucket};
use super::file::ObjectFile;
use super::format::{Layout, Opened};
use super::index::Entry;
use super::sums::Checked;

/// Ends the wait of those who wait for a key, however the search ends.
struct Search {
    store: Store,
    hash: Hash,
    pending: Arc<Pending>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.store.shared().on_disk(|disk| {
            locked(&disk.loading).remove(&self.hash);
        });
        self.pending.look_again();
    }
}

impl Store {
    /// Looks for `key` on disk. Who waits looks again in memory afterwards. `None` when there is
    /// nothing.
    pub(crate) fn search_disk(
        &self,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Wait> {
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
        let pending = Arc::new(Pending::new(b""));
        {
            let mut loading = locked(&disk.loading);
            if let Some(pending) = loading.get(&hash) {
                return Some(Wait(pending.clone()));
            }
            loading.insert(hash, pending.clone());
        }
        let search = Search {
            store: self.clone(),
            hash,
            pending: pending.clone(),
        };
        let bucket = bucket(key.hash());
        disk.pool.run_first(move || {
            let store = &search.store;
            store.shared().on_disk(|disk| match name {
                Some(name) => disk.load(store, name),
                None => disk.scan(store.shared(), bucket),
            });
        });
        Some(Wait(pending))
    }

    /// Looks through the whole disk, a little at a time.
    pub(crate) fn scan_disk(&self) {
        scan_from(Arc::downgrade(&self.0), 0);
    }
}

fn seconds_since_epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Looks through the directories from `outer` on, one in each turn, and holds on to the store only
/// meanwhile.
fn scan_from(store: Weak<Shared>, outer: u8) {
    let Some(shared) = store.upgrade() else {
        return;
    };
    shared.on_disk(|disk| {
        disk.pool.run(move || {
            let Some(shared) = store.upgrade() else {
                return;
            };
            let closed = shared.on_disk(|disk| {
                disk.scan_outer(&shared, outer);
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
    /// Puts the objects in all directories below `outer` into the index.
    fn scan_outer(&self, shared: &Shared, outer: u8) {
        match self.directory.buckets(outer) {
            Ok(buckets) => {
                for bucket in buckets {
                    self.scan(shared, bucket);
                }
            }
            Err(_) => self.counters.errors.add(1),
        }
        for inner in 0..=u8::MAX {
            self.index.mark_scanned(u16::from_be_bytes([outer, inner]));
        }
    }

    /// Puts the objects in a directory into the index, unless that was done.
    fn scan(&self, shared: &Shared, bucket: u16) {
        if self.index.is_scanned(bucket) {
            return;
        }
        match self.directory.objects(bucket) {
            Ok(names) => {
                for name in names {
                    self.scan_file(shared, name);
                }
            }
            Err(_) => self.counters.errors.add(1),
        }
        self.index.mark_scanned(bucket);
        if self.evict(shared).is_err() {
            self.counters.errors.add(1);
        }
    }

    fn scan_file(&self, shared: &Shared, name: Name) {
        let _held = self.name_lock(name);
        if self.index.generation(name).is_some() {
            return;
        }
        match self.read_entry(shared, name) {
            Ok(Some(entry)) => self.index.insert(entry),
            // Not a file of this store and version, damaged, purged, or of the future.
            Ok(None) => {
                if self.directory.remove_object(name).is_err() {
                    self.counters.errors.add(1);
                }
            }
            Err(_) => self.counters.errors.add(1),
        }
    }

    fn read_entry(&self, shared: &Shared, name: Name) -> io::Result<Option<Entry>> {
        let Some((file, opened)) = self.open_object(name)? else {
            return Ok(None);
        };
        let record = &opened.record;
        let (before, first) = self.numbers;
        let unknown = record.filled_at > before && record.filled_at < first;
        let subject = Subject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        let purged = shared.purges.verdict(subject).0 == Verdict::Gone;
        let sound = !self.verify || self.verify_content(&file, &opened);
        // How old it is is not known: the clock was ahead when it came, or is behind now.
        let is_of_the_future = record.new.head.received > seconds_since_epoch();
        if unknown || purged || is_of_the_future || !sound {
            return Ok(None);
        }
        let bytes = opened
            .layout
            .content_at
            .saturating_add(record.sums.stored().len());
        Ok(Some(Entry {
            name,
            generation: record.generation,
            vary: self.index.intern(&record.new.vary),
            filled_at: record.filled_at,
            marks: marks(&record.key, &record.new.tags),
            bytes: bytes.next_multiple_of(4096),
        }))
    }

    /// Opens an object's file. `None` when there is none, or none that is whole.
    pub(super) fn open_object(&self, name: Name) -> io::Result<Option<(File, Opened)>> {
        let Some(file) = self.directory.open_object(name)? else {
            return Ok(None);
        };
        let opened = Opened::read(&file, self.identity, name.hash)?;
        if opened.is_none() && !Layout::is_of_other_version(&file) {
            self.counters.damaged.add(1);
        }
        Ok(opened.map(|opened| (file, opened)))
    }

    /// Puts an object into memory, small ones with their content.
    fn load(&self, store: &Store, name: Name) {
        let Some(generation) = self.index.generation(name) else {
            return;
        };
        match self.read_object(store, name, generation) {
            Ok(Some(object)) => {
                self.counters.hits.add(1);
                store.shared().adopt(Arc::new(object));
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
        name: Name,
        generation: u64,
    ) -> io::Result<Option<Object>> {
        let shared = store.shared();
        let Some((file, opened)) = self.open_object(name)? else {
            return Ok(None);
        };
        let record = &opened.record;
        let subject = Subject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        let purged = shared.purges.verdict(subject).0 == Verdict::Gone;
        if purged || record.generation != generation {
            return Ok(None);
        }
        let length = record.new.length;
        let small = length.filter(|length| *length <= shared.settings.memory_object_bytes);
        if small.is_some() && record.is_complete() {
            let pieces: Vec<_> = record.sums.all().collect();
            let Some(bytes) = Checked::read(&file, opened.layout.content_at, &pieces)? else {
                self.counters.damaged.add(1);
                return Ok(None);
            };
            let content = Content::of_bytes(Bytes::from(bytes));
            return Ok(Some(Object::restored(opened.record, content)));
        }
        let stored = record.sums.stored();
        let record = record.clone();
        let file = Arc::new(ObjectFile::found(store, name, file, opened));
        let content = Content::of_file(length, stored, file, shared.settings.unwritten_bytes);
        Ok(Some(Object::restored(record, content)))
    }

    /// Whether the content is what was written.
    fn verify_content(&self, file: &File, opened: &Opened) -> bool {
        let pieces: Vec<_> = opened.record.sums.all().collect();
        let content_at = opened.layout.content_at;
        let is_sound = Checked::default().next(file, content_at, &pieces).is_some();
        if !is_sound {
            self.counters.damaged.add(1);
        }
        is_sound
    }
}
