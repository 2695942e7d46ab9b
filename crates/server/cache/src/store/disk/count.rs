//! The number of objects on disk that a purge applies to.

use std::collections::HashSet;
use std::time::Instant;

use super::super::purge::{PurgeCount, PurgeSubject, PurgeVerdict, Purges};
use super::Disk;

/// The counting of the objects on disk.
pub(crate) struct DiskCounting<'a> {
    /// The purges so far.
    pub(crate) purges: &'a Purges,
    /// Those whose objects are counted.
    pub(crate) meant: &'a Purges,
    /// The generations of objects that are counted already.
    pub(crate) in_memory: &'a HashSet<u64>,
    /// Whether the fingerprints in the index do not suffice.
    pub(crate) reads_files: bool,
    pub(crate) deadline: Instant,
}

impl DiskCounting<'_> {
    pub(crate) fn run(&self, disk: &Disk) -> PurgeCount {
        let filter = self.meant.filter();
        let purges = self.purges;
        // Objects that were purged before are removed in the background.
        let (earlier, current) = (purges.filter(), purges.current());
        let mut count = PurgeCount {
            objects: 0,
            is_complete: disk.index.is_complete(),
        };
        for part in 0..disk.index.parts() {
            for entry in disk.index.older_than(part, u64::MAX) {
                if self.in_memory.contains(&entry.generation)
                    || !filter.may_apply_to(&entry.fingerprints)
                {
                    continue;
                }
                let may_be_gone =
                    entry.filled_at < current && earlier.may_apply_to(&entry.fingerprints);
                if self.reads_files || may_be_gone {
                    if Instant::now() > self.deadline {
                        count.is_complete = false;
                        return count;
                    }
                    let Ok(Some((_, opened))) = disk.open_object(entry.name) else {
                        continue;
                    };
                    let record = &opened.record;
                    let subject = |filled_at| PurgeSubject {
                        key: &record.key,
                        tags: &record.new.tags,
                        filled_at,
                    };
                    if self.meant.verdict(subject(0)).0 == PurgeVerdict::Untouched
                        || purges.verdict(subject(record.filled_at)).0 == PurgeVerdict::Gone
                    {
                        continue;
                    }
                    // Since the file was opened, a sweep may have removed it and the rule of its purge, in this order.
                    if disk.index.generation(entry.name) != Some(entry.generation) {
                        continue;
                    }
                }
                count.objects = count.objects.saturating_add(1);
            }
        }
        count
    }
}
