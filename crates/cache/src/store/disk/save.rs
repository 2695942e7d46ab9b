//! Writing objects to disk.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::collapse::Asked;
use super::super::object::Object;
use super::super::purge::marks;
use super::super::{Shared, Store};
use super::file::{ObjectFile, Seal};
use super::format::{Layout, Opened};
use super::index::{Entry, Index};
use super::sums::Sums;
use super::{Disk, MOST_WAITING_BYTES};

/// Metadata of a resumable object tells of what was written each time it is this much.
const MARK_BYTES: u64 = 4 << 20;

/// What metadata takes about a run of content: where it is, and that a piece begins and ends with it.
const RUN_BYTES: u64 = 24;

/// Metadata of a resumable object has room for this much more about its parts: some tens of them.
const PARTS_BYTES: u64 = 64 * RUN_BYTES;

impl Store {
    /// Has `pieces` of `object` written to its file.
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

    /// Has the metadata of `object` written when all its pieces are, or its file removed.
    pub(crate) fn end_file(
        &self,
        object: &Arc<Object>,
        file: &Arc<ObjectFile>,
        seal: Option<Seal>,
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
                    disk.work_on(store.shared(), &object, &file);
                }
            });
        }
    }

    /// Has an object that is in memory written to disk, content and all.
    pub(crate) fn persist(&self, object: &Arc<Object>, asked: Option<Asked>) {
        let Some(disk) = &self.shared().disk else {
            return;
        };
        let bytes = object.memory();
        if disk.waiting.fetch_add(bytes, Ordering::Relaxed) > MOST_WAITING_BYTES {
            disk.waiting.fetch_sub(bytes, Ordering::Relaxed);
            disk.counters.skipped.add(1);
            // What is there of an older one must not be found instead.
            self.remove_file(object);
            return;
        }
        let (store, object) = (self.clone(), object.clone());
        disk.pool.run(move || {
            store.shared().on_disk(|disk| {
                if let Err(error) = disk.write_whole(store.shared(), &object) {
                    disk.note(store.shared(), &error);
                    disk.remove(object.name(), object.generation());
                }
                disk.waiting.fetch_sub(bytes, Ordering::Relaxed);
            });
            drop(asked);
        });
    }

    /// Has the file of `object` removed.
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

    /// Has the metadata of `object` on disk follow what it is now.
    pub(crate) fn update_record(&self, object: &Arc<Object>) {
        let Some(disk) = &self.shared().disk else {
            return;
        };
        let (store, object) = (self.clone(), object.clone());
        disk.pool.run(move || {
            store.shared().on_disk(|disk| {
                if let Err(error) = disk.rewrite_record(&object) {
                    disk.note(store.shared(), &error);
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
        let record = object.record(Sums::new(length)).encode().len() as u64;
        // Also of content whose length is not known does the first part make a run.
        let mut more = Sums::most_bytes(length).saturating_add(RUN_BYTES);
        if object.is_resumable() {
            more = more.saturating_add(PARTS_BYTES);
        }
        let layout = Layout::for_record(record, more, length);
        ObjectFile::new(store, object, layout, self.directory.new_name())
    }

    /// Writes what waits to be written.
    fn work_on(&self, shared: &Shared, object: &Arc<Object>, file: &ObjectFile) {
        loop {
            let done = self.write_next(shared, object, file);
            match done {
                Ok(true) => {}
                Ok(false) if file.rest() => return,
                Ok(false) => {}
                Err(error) => {
                    self.note(shared, &error);
                    self.give_up(shared, object, file);
                }
            }
        }
    }

    /// `false` when nothing is left to do.
    fn write_next(
        &self,
        shared: &Shared,
        object: &Arc<Object>,
        file: &ObjectFile,
    ) -> io::Result<bool> {
        let Some((start, run)) = file.next() else {
            return self.end_writing(shared, object, file);
        };
        if file.file().is_none() {
            self.create(shared, object, file)?;
        }
        let end = file.write(start, &run)?;
        let bytes = end.saturating_sub(start);
        let mark = {
            let mut state = file.lock();
            if !state.named {
                state.counted = state.counted.saturating_add(bytes);
                self.filling.fetch_add(bytes, Ordering::Relaxed);
            }
            state.unmarked = state.unmarked.saturating_add(bytes);
            state.unmarked >= MARK_BYTES
        };
        object.content().written(start..end);
        if mark {
            self.check_room(shared)?;
            file.lock().unmarked = 0;
            if object.is_resumable()
                && object.length().is_some()
                && shared.judge(object)
                && !object.is_out()
            {
                self.seal(object, file)?;
            }
        }
        self.evict(shared)?;
        Ok(true)
    }

    fn end_writing(
        &self,
        shared: &Shared,
        object: &Arc<Object>,
        file: &ObjectFile,
    ) -> io::Result<bool> {
        let (seal, dropped) = {
            let mut state = file.lock();
            (state.seal.take(), state.dropped)
        };
        if dropped {
            self.discard(object, file);
            return Ok(false);
        }
        let Some(Seal(_asked)) = seal else {
            return Ok(false);
        };
        if object.is_out() || !shared.judge(object) {
            self.discard(object, file);
            return Ok(false);
        }
        if file.file().is_none() {
            // No content at all: it is whole without any.
            self.create(shared, object, file)?;
        }
        self.seal(object, file)?;
        shared.resized(object);
        self.evict(shared)?;
        Ok(true)
    }

    fn create(&self, shared: &Shared, object: &Object, file: &ObjectFile) -> io::Result<()> {
        self.check_room(shared)?;
        let created = self.directory.create_temporary(&file.temporary)?;
        let record = object.record(Sums::new(object.length())).encode();
        let preamble = file.layout.preamble(self.identity, file.name.hash);
        created.write_all_at(&file.layout.start(&preamble, &record), 0)?;
        file.set_file(created);
        Ok(())
    }

    /// Writes down what there is of `object`, and gives the file its name.
    fn seal(&self, object: &Object, file: &ObjectFile) -> io::Result<()> {
        let Some(opened) = file.file() else {
            return Ok(());
        };
        let _held = self.name_lock(file.name);
        let mut state = file.lock();
        let newest = self.index.generation(file.name);
        let ours = newest.is_some_and(|held| held == object.generation());
        if state.named && !ours || newest.is_some_and(|held| held > object.generation()) {
            // The name belongs to another by now, or was taken away.
            return Ok(());
        }
        let record = object.record(state.sums.clone()).encode();
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
        let stored = state.sums.stored().len();
        let bytes = file.layout.content_at.saturating_add(stored);
        drop(state);
        self.index.insert(entry(&self.index, object, bytes));
        Ok(())
    }

    /// Removes the file of what is not to be kept.
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
        // Also what an older one left there, which nobody knows of any more.
        self.remove(file.name, object.generation());
    }

    /// The disk does not take it: what comes is passed on to those who read it, and not kept.
    fn give_up(&self, shared: &Shared, object: &Arc<Object>, file: &ObjectFile) {
        self.discard(object, file);
        file.lock().seal = None;
        object.content().lose(shared.settings.window_bytes);
        shared.drop_object(object);
    }

    /// Writes an object that is in memory.
    fn write_whole(&self, shared: &Shared, object: &Arc<Object>) -> io::Result<()> {
        if object.is_out() || !shared.judge(object) {
            // What an older one left there must not outlive it.
            self.remove(object.name(), object.generation());
            return Ok(());
        }
        self.check_room(shared)?;
        let temporary = self.directory.new_name();
        if let Err(error) = self.write_pieces(object, &temporary) {
            self.directory.remove_temporary(&temporary)?;
            return Err(error);
        }
        self.evict(shared)
    }

    fn write_pieces(&self, object: &Object, temporary: &str) -> io::Result<()> {
        let name = object.name();
        // Held from the look at the object on: the last one to look is the last one to publish.
        let _held = self.name_lock(name);
        let newest = self.index.generation(name);
        let outdated = newest.is_some_and(|held| held > object.generation());
        if outdated || object.content().file().is_some() {
            return Ok(());
        }
        let pieces = object.content().pieces();
        let mut sums = Sums::new(object.length());
        for (start, piece) in &pieces {
            let run = sums.run(*start, [&piece[..]]);
            sums.add(run);
        }
        let stored = sums.stored().len();
        let record = object.record(sums).encode();
        let layout = Layout::for_record(record.len() as u64, 0, object.length());
        let preamble = layout.preamble(self.identity, name.hash);
        let file = self.directory.create_temporary(temporary)?;
        file.write_all_at(&layout.start(&preamble, &record), 0)?;
        for (start, piece) in &pieces {
            file.write_all_at(piece, layout.content_at.saturating_add(*start))?;
        }
        self.directory.publish(temporary, name)?;
        let bytes = layout.content_at.saturating_add(stored);
        self.index.insert(entry(&self.index, object, bytes));
        Ok(())
    }

    /// Writes new metadata into the file of an object, if it is still there.
    fn rewrite_record(&self, object: &Object) -> io::Result<()> {
        let name = object.name();
        let _held = self.name_lock(name);
        if self.index.generation(name) != Some(object.generation()) {
            return Ok(());
        }
        let fits = match object.content().file() {
            Some(file) => {
                let mut state = file.lock();
                let Some(opened) = file.file().filter(|_| state.named) else {
                    return Ok(());
                };
                let record = object.record(state.sums.clone()).encode();
                state.sequence = state.sequence.saturating_add(1);
                file.layout.write_slot(opened, &record, state.sequence)?
            }
            None => {
                let Some(file) = self.directory.open_object(name)? else {
                    return Ok(());
                };
                let Some(opened) = Opened::read(&file, self.identity, name.hash)? else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                let record = object.record(opened.record.sums).encode();
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

fn entry(index: &Index, object: &Object, bytes: u64) -> Entry {
    Entry {
        name: object.name(),
        generation: object.generation(),
        vary: index.intern(object.vary()),
        filled_at: object.subject().filled_at,
        marks: marks(object.key(), object.tags()),
        bytes: bytes.next_multiple_of(4096),
    }
}
