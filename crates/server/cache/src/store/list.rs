//! Which objects are stored: the largest, or those that a purge would apply to.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::disk::{DiskCandidate, DiskListing};
use super::key::StoreKey;
use super::metadata::ObjectMetadata;
use super::object::Object;
use super::purge::{PurgeRequest, PurgeSubject, PurgeVerdict, Purges};
use super::{Store, locked};

/// An object of a list.
#[derive(Clone, Debug)]
pub struct StoreEntry {
    /// Its primary key.
    pub key: StoreKey,
    /// Its metadata.
    pub metadata: ObjectMetadata,
    /// Its tags.
    pub tags: Vec<Box<[u8]>>,
    /// The bytes of memory, or of the disk if it is only there, that it takes.
    pub bytes: u64,
    /// The length of its body, once it is known.
    pub length: Option<u64>,
    /// Whether it is one of several that requests with other fields select.
    pub is_variant: bool,
    /// Whether it is in memory; it may be on disk, too.
    pub in_memory: bool,
    /// How often it was a hit since it came into memory.
    pub hits: u64,
    /// Whether a soft purge applied to it.
    pub is_purged_softly: bool,
}

/// A list of objects.
#[derive(Clone, Debug, Default)]
pub struct StoreListing {
    /// The largest first.
    pub objects: Vec<StoreEntry>,
    /// Whether no larger one is missing.
    pub is_complete: bool,
}

impl Store {
    /// The largest objects that one of the purges would apply to, at most this many. Reads their files on disk, until `deadline`. Blocks.
    pub fn list(&self, purges: &[PurgeRequest], most: usize, deadline: Instant) -> StoreListing {
        let meant = Purges::new(0);
        for purge in purges {
            meant.add(purge);
        }
        let mut in_memory = HashSet::new();
        let mut largest: Vec<(u64, Arc<Object>)> = Vec::new();
        for shard in &self.shared().shards {
            let held: Vec<Arc<Object>> = locked(shard).objects().cloned().collect();
            for object in held {
                in_memory.insert(object.generation());
                let subject = PurgeSubject {
                    filled_at: 0,
                    ..object.subject()
                };
                let is_meant = meant.verdict(subject).0 != PurgeVerdict::Untouched;
                if is_meant && self.shared().keep_unless_purged(&object) && !object.is_removed() {
                    largest.push((object.memory(), object));
                }
            }
            largest.sort_by_key(|(bytes, _)| Reverse(*bytes));
            largest.truncate(most);
        }
        let mut objects: Vec<_> = largest.into_iter().map(of_memory).collect();
        let listing = DiskListing {
            purges: &self.shared().purges,
            meant: &meant,
            in_memory: &in_memory,
            deadline,
        };
        let on_disk = self.shared().on_disk(|disk| listing.run(disk, most));
        let (on_disk, is_complete) = on_disk.unwrap_or((Vec::new(), true));
        objects.extend(on_disk.into_iter().map(of_disk));
        objects.sort_by_key(|object| Reverse(object.bytes));
        objects.truncate(most);
        StoreListing {
            objects,
            is_complete,
        }
    }
}

fn of_memory((bytes, object): (u64, Arc<Object>)) -> StoreEntry {
    StoreEntry {
        key: object.key().clone(),
        metadata: ObjectMetadata::clone(&object.metadata()),
        tags: object.tags().to_vec(),
        bytes,
        length: object.length(),
        is_variant: !object.vary().is_empty(),
        in_memory: true,
        hits: object.hits(),
        is_purged_softly: object.is_purged_softly(),
    }
}

fn of_disk(candidate: DiskCandidate) -> StoreEntry {
    let DiskCandidate { record, bytes } = candidate;
    StoreEntry {
        key: record.key,
        metadata: record.new.metadata,
        tags: record.new.tags,
        bytes,
        length: record.new.length,
        is_variant: !record.new.vary.is_empty(),
        in_memory: false,
        hits: 0,
        is_purged_softly: record.stale,
    }
}
