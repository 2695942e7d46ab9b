//! Finding objects on disk again: one that is asked for, and all of them after a start.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

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
use super::format::{Extent, Opened};
use super::index::Entry;

/// The bytes that are read at once to be verified.
const VERIFIED_AT_ONCE: u64 = 1 << 20;

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
            let shared = search.store.shared();
            shared.on_disk(|disk| match name {
                Some(name) => disk.load(shared, name),
                None => disk.scan(shared, bucket),
            });
        });
        Some(Wait(pending))
    }

    /// Looks through the whole disk, a little at a time.
    pub(crate) fn scan_disk(&self) {
        scan_from(Arc::downgrade(&self.0), 0);
    }
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
            // Not a file of this store, damaged, or purged.
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
        let sound = !self.verify || self.verify_content(&file, &opened)?;
        if unknown || purged || !sound {
            return Ok(None);
        }
        let bytes = opened
            .layout
            .content_at
            .saturating_add(record.stored().len());
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
        if opened.is_none() {
            self.counters.damaged.add(1);
        }
        Ok(opened.map(|opened| (file, opened)))
    }

    /// Puts an object into memory, small ones with their content.
    fn load(&self, shared: &Shared, name: Name) {
        let Some(generation) = self.index.generation(name) else {
            return;
        };
        match self.read_object(shared, name, generation) {
            Ok(Some(object)) => {
                self.counters.hits.add(1);
                shared.adopt(Arc::new(object));
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
        shared: &Shared,
        name: Name,
        generation: u64,
    ) -> io::Result<Option<Object>> {
        let Some((file, opened)) = self.open_object(name)? else {
            return Ok(None);
        };
        let Opened {
            record,
            layout,
            sequence,
        } = opened;
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
        let content = match small.filter(|_| record.is_complete()) {
            Some(length) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
                file.read_exact_at(&mut bytes, layout.content_at)?;
                let crc = record.extents.first().map_or(0, |extent| extent.crc);
                if crc32fast::hash(&bytes) != crc {
                    self.counters.damaged.add(1);
                    return Ok(None);
                }
                Content::of_bytes(Bytes::from(bytes))
            }
            None => {
                let (stored, extents) = (record.stored(), record.extents.clone());
                let file = ObjectFile::found(name, layout, file, extents, sequence);
                Content::of_file(
                    length,
                    stored,
                    Arc::new(file),
                    shared.settings.unwritten_bytes,
                )
            }
        };
        Ok(Some(Object::restored(record, content)))
    }

    /// Whether the content is what was written.
    fn verify_content(&self, file: &File, opened: &Opened) -> io::Result<bool> {
        for extent in &opened.record.extents {
            let Extent { start, end, crc } = *extent;
            let at = opened.layout.content_at;
            if checksum(file, at.saturating_add(start)..at.saturating_add(end))? != crc {
                self.counters.damaged.add(1);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn checksum(file: &File, mut range: Range<u64>) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = Vec::new();
    while !range.is_empty() {
        let len = range.end.saturating_sub(range.start).min(VERIFIED_AT_ONCE);
        buffer.resize(usize::try_from(len).unwrap_or_default(), 0);
        file.read_exact_at(&mut buffer, range.start)?;
        hasher.update(&buffer);
        range.start = range.start.saturating_add(len);
    }
    Ok(hasher.finalize())
}
