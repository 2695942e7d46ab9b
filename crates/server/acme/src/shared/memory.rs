//! Shared storage in memory, for tests of what several machines do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{SharedChallenge, SharedStorage, StorageFuture};

/// Shared storage in memory, whose locks do not expire.
#[derive(Debug, Default)]
pub(crate) struct MemoryStorage {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    locks: Mutex<BTreeMap<String, String>>,
    refusals: AtomicUsize,
    reads: AtomicUsize,
}

impl MemoryStorage {
    /// How often a lock was not taken because another process had it.
    pub(crate) fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }

    /// How often a file was looked for.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

fn with<T, R>(of: &Mutex<T>, look: impl FnOnce(&mut T) -> R) -> R {
    look(&mut of.lock().unwrap_or_else(PoisonError::into_inner))
}

impl SharedStorage for MemoryStorage {
    fn read<'a>(&'a self, name: &'a str) -> StorageFuture<'a, Option<Vec<u8>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(with(&self.files, |files| files.get(name).cloned())) })
    }

    fn write<'a>(&'a self, name: &'a str, bytes: Option<&'a [u8]>) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            with(&self.files, |files| match bytes {
                Some(bytes) => files.insert(name.to_owned(), bytes.to_vec()),
                None => files.remove(name),
            });
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> StorageFuture<'a, Vec<String>> {
        Box::pin(async move {
            Ok(with(&self.files, |files| {
                let names = files.keys().filter(|name| name.starts_with(prefix));
                names.cloned().collect()
            }))
        })
    }

    fn lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        _lifetime: Duration,
    ) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            let is_taken = with(&self.locks, |locks| {
                locks.entry(name.to_owned()).or_insert(owner.to_owned()) == owner
            });
            let refused = usize::from(!is_taken);
            self.refusals.fetch_add(refused, Ordering::Relaxed);
            Ok(is_taken)
        })
    }

    fn unlock<'a>(&'a self, name: &'a str, owner: &'a str) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            with(&self.locks, |locks| {
                if locks.get(name).is_some_and(|own| own == owner) {
                    locks.remove(name);
                }
            });
            Ok(())
        })
    }

    fn add_challenge<'a>(&'a self, _: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn remove_challenge<'a>(&'a self, _: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn challenges(&self) -> StorageFuture<'_, Vec<SharedChallenge>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
