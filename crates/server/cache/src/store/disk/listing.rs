//! The largest objects on disk that a purge would apply to.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Instant;

use super::super::object_file::ObjectRecord;
use super::super::purge::{PurgeSubject, PurgeVerdict, Purges};
use super::Disk;

/// The most objects whose files may have to be looked at: the index has no keys to compare.
const MAX_CANDIDATES: usize = 100_000;

/// The search for objects on disk.
pub(crate) struct DiskListing<'a> {
    /// The purges so far.
    pub(crate) purges: &'a Purges,
    /// Those whose objects are meant.
    pub(crate) meant: &'a Purges,
    /// The generations of objects that were found in memory.
    pub(crate) in_memory: &'a HashSet<u64>,
    pub(crate) deadline: Instant,
}

/// An object on disk.
pub(crate) struct DiskCandidate {
    pub(crate) record: ObjectRecord,
    pub(crate) bytes: u64,
}

impl DiskListing<'_> {
    /// The largest objects, at most this many, and whether no larger one is missing.
    pub(crate) fn run(&self, disk: &Disk, most: usize) -> (Vec<DiskCandidate>, bool) {
        let filter = self.meant.filter();
        let mut is_complete = disk.index.is_complete();
        let mut candidates = Vec::new();
        for part in 0..disk.index.parts() {
            let entries = disk.index.older_than(part, u64::MAX).into_iter();
            let entries = entries.filter(|entry| {
                !self.in_memory.contains(&entry.generation)
                    && filter.may_apply_to(&entry.fingerprints)
            });
            candidates.extend(entries.map(|entry| (entry.bytes, entry.name, entry.generation)));
            if candidates.len() > 2 * MAX_CANDIDATES {
                candidates.sort_by_key(|(bytes, ..)| Reverse(*bytes));
                candidates.truncate(MAX_CANDIDATES);
            }
        }
        candidates.sort_by_key(|(bytes, ..)| Reverse(*bytes));
        let mut found = Vec::new();
        for (bytes, name, generation) in candidates {
            if found.len() >= most {
                break;
            }
            if Instant::now() > self.deadline {
                is_complete = false;
                break;
            }
            let Ok(Some((_, opened))) = disk.open_object(name) else {
                continue;
            };
            let record = opened.record;
            let subject = |filled_at| PurgeSubject {
                key: &record.key,
                tags: &record.new.tags,
                filled_at,
            };
            let is_meant = self.meant.verdict(subject(0)).0 != PurgeVerdict::Untouched;
            let is_gone = self.purges.verdict(subject(record.filled_at)).0 == PurgeVerdict::Gone;
            // Since the file was opened, a sweep may have removed it and the rule of its purge, in this order.
            if is_meant && !is_gone && disk.index.generation(name) == Some(generation) {
                found.push(DiskCandidate { record, bytes });
            }
        }
        (found, is_complete)
    }
}
