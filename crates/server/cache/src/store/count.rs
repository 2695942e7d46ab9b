//! The number of stored objects that a purge is going to remove, or to make stale.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::disk::DiskCounting;
use super::object::Object;
use super::purge::{PurgeCount, PurgeRequest, PurgeSelector, PurgeSubject, PurgeVerdict, Purges};
use super::{Store, locked};

impl Store {
    /// Counts the objects that the purges will apply to. Reads the disk to find URLs with a prefix, until
    /// `deadline`. Blocks.
    pub fn count(&self, purges: &[PurgeRequest], deadline: Instant) -> PurgeCount {
        let meant = Purges::new(0);
        for purge in purges {
            meant.add(purge);
        }
        let mut in_memory = HashSet::new();
        let mut objects: u64 = 0;
        for shard in &self.shared().shards {
            let held: Vec<Arc<Object>> = locked(shard).objects().cloned().collect();
            for object in held {
                in_memory.insert(object.generation());
                let subject = PurgeSubject {
                    filled_at: 0,
                    ..object.subject()
                };
                let is_meant = meant.verdict(subject).0 != PurgeVerdict::Untouched;
                // A sweep removes the object before the rule of its purge, so the rule is asked first.
                if is_meant && self.shared().keep_unless_purged(&object) && !object.is_removed() {
                    objects = objects.saturating_add(1);
                }
            }
        }
        let has_prefix = |purge: &PurgeRequest| matches!(purge.selector, PurgeSelector::Prefix(_));
        let counting = DiskCounting {
            purges: &self.shared().purges,
            meant: &meant,
            in_memory: &in_memory,
            reads_files: purges.iter().any(has_prefix),
            deadline,
        };
        let on_disk = self.shared().on_disk(|disk| counting.run(disk));
        let on_disk = on_disk.unwrap_or(PurgeCount {
            objects: 0,
            is_complete: true,
        });
        PurgeCount {
            objects: objects.saturating_add(on_disk.objects),
            ..on_disk
        }
    }
}
