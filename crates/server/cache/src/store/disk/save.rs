//! Writing objects to disk.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::object::Object;
use super::super::object_file::{
    FileLayout, FileWork, NewFile, ObjectFile, ObjectFileHeader, PieceChecksums, SealRequest,
};
use super::super::purge::fingerprints;
use super::super::purge_guard::PurgeGuard;
use super::super::{Store, StoreState};
use super::index::{Index, IndexEntry};
use super::{Disk, MAX_WAITING_BYTES};

/// The metadata of a resumable object is updated each time this many bytes were written.
const RECORD_INTERVAL_BYTES: u64 = 4 << 20;

/// The bytes of metadata for a run: its range, and partial pieces at both ends.
const RUN_BYTES: u64 = 24;

/// The room in the metadata of a resumable object for more runs: some tens of them.
const PARTS_BYTES: u64 = 64 * RUN_BYTES;

impl Store {
    /// Queues `pieces` of `object` for its file.
    pub(crate) fn write(
        &self,
        object: &Arc<Object>,
        file: &Arc<ObjectFile>,
        pieces: impl IntoIterator<Item = (u64, Bytes)>,
    ) {
        if file.push(pieces) {
            self.run_file(object, file);
        }
    }

    /// Queues the metadata of `object` after its pieces, or the removal of its file.
    pub(crate) fn end_file(
        &self,
        object: &Arc<Object>,
        file: &Arc<ObjectFile>,
        seal: Option<SealRequest>,
    ) {
        if file.end(seal) {
            self.run_file(object, file);
        }
    }

    fn run_file(&self, object: &Arc<Object>, file: &Arc<ObjectFile>) {
        let (store, object, file) = (self.clone(), object.clone(), file.clone());
        if let Some(disk) = &self.shared().disk {
            disk.pool.run(move || {
                if let Some(disk) = &store.shared().disk {
                    disk.write_file(store.shared(), &object, &file);
                }
            });
        }
    }

    /// Queues the write of an object that is in memory.
    pub(crate) fn persist(&self, object: &Arc<Object>, purge_guard: Option<PurgeGuard>) {
        let Some(disk) = &self.shared().disk else {
            return;
        };
        let bytes = object.memory();
        // With a disk that is slower than the origins, the bodies that wait would fill the memory.
        if disk.waiting.fetch_add(bytes, Ordering::Relaxed) > MAX_WAITING_BYTES {
            disk.waiting.fetch_sub(bytes, Ordering::Relaxed);
            disk.counters.skipped.add(1);
            // An older version on disk must not be found instead.
            self.remove_file(object);
            return;
        }
        let (store, object) = (self.clone(), object.clone());
        disk.pool.run(move || {
            store.shared().on_disk(|disk| {
                if let Err(error) = disk.write_whole(store.shared(), &object) {
                    disk.count_error(store.shared(), &error);
                    disk.remove(object.name(), object.generation());
                }
                disk.waiting.fetch_sub(bytes, Ordering::Relaxed);
            });
            drop(purge_guard);
        });
    }

    /// Queues the removal of the file of `object`.
    pub(crate) fn remove_file(&self, object: &Object) {
        let Some(disk) = &self.shared().disk else {
            return;
        };
        let (store, name, generation) = (self.clone(), object.name(), object.generation());
        disk.index.remove(name, generation);
        disk.pool.run(move || {
            store.shared().on_disk(|disk| disk.remove(name, generation));
        });
    }

    /// Queues an update of the metadata of `object` on disk.
    pub(crate) fn update_record(&self, object: &Arc<Object>) {
        let Some(disk) = &self.shared().disk else {
            return;
        };
        let (store, object) = (self.clone(), object.clone());
        disk.pool.run(move || {
            store.shared().on_disk(|disk| {
                if let Err(error) = disk.rewrite_record(&object) {
                    disk.count_error(store.shared(), &error);
                    disk.remove(object.name(), object.generation());
                }
            });
        });
    }
}

impl Disk {
    /// A file for `object`, which is about to be filled.
    pub(crate) fn file_for(&self, store: &Store, object: &Object) -> ObjectFile {
        let length = object.length();
        let record = object.record(PieceChecksums::new(length)).encode().len() as u64;
        // Even a body of unknown length has at least one run.
        let mut more = PieceChecksums::max_bytes(length).saturating_add(RUN_BYTES);
        if object.is_resumable() {
            more = more.saturating_add(PARTS_BYTES);
        }
        let layout = FileLayout::for_record(record, more, length);
        let new = NewFile {
            temporary: self.directory.new_name(),
            length,
        };
        ObjectFile::new(store, object.name(), layout, new)
    }

    /// Writes the queue of a file.
    fn write_file(&self, shared: &StoreState, object: &Arc<Object>, file: &ObjectFile) {
        loop {
            let done = self.write_next(shared, object, file);
            match done {
                Ok(true) => {}
                Ok(false) if file.release_writer() => return,
                Ok(false) => {}
                Err(error) => {
                    self.count_error(shared, &error);
                    self.abandon(shared, object, file);
                }
            }
        }
    }

    /// Writes the next pieces. Returns `false` if nothing is left to do.
    fn write_next(
        &self,
        shared: &StoreState,
        object: &Arc<Object>,
        file: &ObjectFile,
    ) -> io::Result<bool> {
        let (start, run) = match file.next() {
            FileWork::Write(start, run) => (start, run),
            FileWork::Seal(SealRequest(_purge_guard)) => {
                return self.end_writing(shared, object, file);
            }
            FileWork::Discard => {
                self.discard(object, file);
                return Ok(false);
            }
            FileWork::Nothing => return Ok(false),
        };
        if file.file().is_none() {
            self.create(shared, object, file)?;
        }
        let end = file.write(start, &run)?;
        let bytes = end.saturating_sub(start);
        let records = {
            let mut state = file.lock();
            if !state.named {
                state.counted = state.counted.saturating_add(bytes);
                self.filling.fetch_add(bytes, Ordering::Relaxed);
            }
            state.unrecorded = state.unrecorded.saturating_add(bytes);
            state.unrecorded >= RECORD_INTERVAL_BYTES
        };
        object.stored_body().written(start..end);
        if records {
            self.ensure_free_space(shared)?;
            file.lock().unrecorded = 0;
            if object.is_resumable()
                && object.length().is_some()
                && shared.survives_purges(object)
                && !object.is_removed()
            {
                self.seal(object, file)?;
            }
        }
        self.evict(shared)?;
        Ok(true)
    }

    fn end_writing(
        &self,
        shared: &StoreState,
        object: &Arc<Object>,
        file: &ObjectFile,
    ) -> io::Result<bool> {
        if object.is_removed() || !shared.survives_purges(object) {
            self.discard(object, file);
            return Ok(false);
        }
        if file.file().is_none() {
            // An empty body is complete.
            self.create(shared, object, file)?;
        }
        self.seal(object, file)?;
        shared.update_size(object);
        self.evict(shared)?;
        Ok(true)
    }

    fn create(&self, shared: &StoreState, object: &Object, file: &ObjectFile) -> io::Result<()> {
        self.ensure_free_space(shared)?;
        let created = self.directory.create_temporary(&file.temporary)?;
        let record = object.record(PieceChecksums::new(object.length())).encode();
        let preamble = file.layout.preamble(self.identity, file.name.hash);
        created.write_all_at(&file.layout.start(&preamble, &record), 0)?;
        file.set_file(created);
        Ok(())
    }

    /// Writes the metadata of `object`, and gives the file its name.
    fn seal(&self, object: &Object, file: &ObjectFile) -> io::Result<()> {
        let Some(opened) = file.file() else {
            return Ok(());
        };
        let _held = self.name_lock(file.name);
        let mut state = file.lock();
        let newest = self.index.generation(file.name);
        let is_current = newest.is_some_and(|held| held == object.generation());
        if state.named && !is_current || newest.is_some_and(|held| held > object.generation()) {
            // The name belongs to another object by now, or was removed. If that happened after the caller found the object
            // stored, nothing else removes the temporary file, which never gets the name.
            if !state.named {
                self.filling
                    .fetch_sub(std::mem::take(&mut state.counted), Ordering::Relaxed);
                self.directory.remove_temporary(&file.temporary)?;
            }
            return Ok(());
        }
        let record = object.record(state.checksums.clone()).encode();
        let sequence = state.sequence.saturating_add(1);
        if !file.layout.write_slot(opened, &record, sequence)? {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        state.sequence = sequence;
        if !state.named {
            self.directory.publish(&file.temporary, file.name)?;
            state.named = true;
            self.filling
                .fetch_sub(std::mem::take(&mut state.counted), Ordering::Relaxed);
        }
        let stored = state.checksums.stored().len();
        let bytes = file.layout.body_at.saturating_add(stored);
        drop(state);
        self.index.insert(entry(&self.index, object, bytes));
        Ok(())
    }

    /// Removes the file of an object that is not stored.
    fn discard(&self, object: &Object, file: &ObjectFile) {
        let named = {
            let mut state = file.lock();
            self.filling
                .fetch_sub(std::mem::take(&mut state.counted), Ordering::Relaxed);
            state.dropped = true;
            state.removed = true;
            state.named
        };
        if !named && self.directory.remove_temporary(&file.temporary).is_err() {
            self.counters.errors.add(1);
        }
        // Also removes a file of an older object, which is no longer in the index.
        self.remove(file.name, object.generation());
    }

    /// The disk failed: the object is sent to its readers and not stored.
    fn abandon(&self, shared: &StoreState, object: &Arc<Object>, file: &ObjectFile) {
        self.discard(object, file);
        file.lock().seal = None;
        object
            .stored_body()
            .stop_storing(shared.settings.window_bytes);
        shared.drop_object(object);
    }

    /// Writes an object that is in memory.
    fn write_whole(&self, shared: &StoreState, object: &Arc<Object>) -> io::Result<()> {
        if object.is_removed() || !shared.survives_purges(object) {
            // A file of an older object must not outlive it.
            self.remove(object.name(), object.generation());
            return Ok(());
        }
        self.ensure_free_space(shared)?;
        let temporary = self.directory.new_name();
        if let Err(error) = self.write_pieces(object, &temporary) {
            self.directory.remove_temporary(&temporary)?;
            return Err(error);
        }
        self.evict(shared)
    }

    fn write_pieces(&self, object: &Object, temporary: &str) -> io::Result<()> {
        let name = object.name();
        // Held from the check of the object on, so that the last one to check is the last one to
        // publish.
        let _held = self.name_lock(name);
        let newest = self.index.generation(name);
        let outdated = newest.is_some_and(|held| held > object.generation());
        if outdated || object.stored_body().file().is_some() {
            return Ok(());
        }
        let pieces = object.stored_body().pieces();
        let mut checksums = PieceChecksums::new(object.length());
        for (start, piece) in &pieces {
            let run = checksums.run(*start, [&piece[..]]);
            checksums.add(run);
        }
        let stored = checksums.stored().len();
        let record = object.record(checksums).encode();
        let layout = FileLayout::for_record(record.len() as u64, 0, object.length());
        let preamble = layout.preamble(self.identity, name.hash);
        let file = self.directory.create_temporary(temporary)?;
        file.write_all_at(&layout.start(&preamble, &record), 0)?;
        for (start, piece) in &pieces {
            file.write_all_at(piece, layout.body_at.saturating_add(*start))?;
        }
        self.directory.publish(temporary, name)?;
        let bytes = layout.body_at.saturating_add(stored);
        self.index.insert(entry(&self.index, object, bytes));
        Ok(())
    }

    /// Writes new metadata into the file of an object, if the file still exists.
    fn rewrite_record(&self, object: &Object) -> io::Result<()> {
        let name = object.name();
        let _held = self.name_lock(name);
        if self.index.generation(name) != Some(object.generation()) {
            return Ok(());
        }
        let fits = match object.stored_body().file() {
            Some(file) => {
                let mut state = file.lock();
                let Some(opened) = file.file().filter(|_| state.named) else {
                    return Ok(());
                };
                let record = object.record(state.checksums.clone()).encode();
                state.sequence = state.sequence.saturating_add(1);
                file.layout.write_slot(opened, &record, state.sequence)?
            }
            None => {
                let Some(file) = self.directory.open_object(name)? else {
                    return Ok(());
                };
                let Some(opened) = ObjectFileHeader::read(&file, self.identity, name.hash)? else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                let record = object.record(opened.record.checksums).encode();
                let sequence = opened.sequence.saturating_add(1);
                opened.layout.write_slot(&file, &record, sequence)?
            }
        };
        if fits {
            Ok(())
        } else {
            Err(io::ErrorKind::FileTooLarge.into())
        }
    }
}

fn entry(index: &Index, object: &Object, bytes: u64) -> IndexEntry {
    IndexEntry {
        name: object.name(),
        generation: object.generation(),
        vary: index.intern(object.vary()),
        filled_at: object.subject().filled_at,
        fingerprints: fingerprints(object.key(), object.tags()),
        // File systems allocate whole blocks: small objects would take far more of the disk than their lengths add up
        // to.
        bytes: bytes.next_multiple_of(4096),
    }
}
