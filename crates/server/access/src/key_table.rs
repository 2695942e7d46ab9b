//! `KeyTable`: a time for each key, in bounded memory that all workers share without locks.
//!
//! A bucket has seven keys and their values, in two cache lines. A key is looked for in one bucket only, so its cost does not
//! depend on how many keys there are. When a bucket is full, the value that is the earliest gives way: of limits on rates that
//! is the client that has been quiet for the longest, and clients that exceed their limit stay.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Keys of a bucket. With the lock they fill two cache lines of 64 bytes.
const SLOTS: usize = 7;
/// The bits of a value that tell its key. An update that meets the value of another key, which came into the slot meanwhile,
/// fails by them.
const TAG_BITS: u32 = 16;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// The largest value.
const MAX_VALUE: u64 = u64::MAX >> TAG_BITS;

/// A key, as a table knows it: 64 bits that nobody outside can predict.
// Of a million keys, two are the same once in forty million tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// A value for each key.
#[derive(Debug)]
pub struct KeyTable {
    buckets: Box<[Bucket]>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    keys: [AtomicU64; SLOTS],
    values: [AtomicU64; SLOTS],
    /// Held while a key enters: two workers that meet the same new key must not enter it twice.
    entering: AtomicU32,
}

impl KeyTable {
    /// A table of about this many keys, each of which takes 18 bytes.
    pub fn new(keys: usize) -> Self {
        // Buckets fill unevenly: with an eighth more, few keys give way before the table is full.
        let buckets = keys
            .div_ceil(SLOTS)
            .saturating_mul(9)
            .div_ceil(8)
            .max(1)
            .next_power_of_two();
        Self {
            buckets: std::iter::repeat_with(Bucket::default)
                .take(buckets)
                .collect(),
            hasher: RandomState::new(),
        }
    }

    /// The key of these parts, such as a limit and an address.
    pub fn key(&self, parts: impl Hash) -> Key {
        // 0 is an empty slot.
        Key(self.hasher.hash_one(parts).max(1))
    }

    /// Changes the value of a key, which is `None` at first and after it gave way. `change` returns the new value, or an error
    /// that leaves the value as it is. It is called again if another worker changes the value meanwhile.
    ///
    /// # Errors
    /// What `change` returns.
    pub fn update<E>(
        &self,
        key: Key,
        mut change: impl FnMut(Option<u64>) -> Result<u64, E>,
    ) -> Result<(), E> {
        let Some(bucket) = self.bucket(key) else {
            return Ok(());
        };
        loop {
            let Some(slot) = bucket.find(key) else {
                if bucket.enter(key, &mut change)? {
                    return Ok(());
                }
                continue;
            };
            let Some(value) = bucket.values.get(slot) else {
                return Ok(());
            };
            let held = value.load(Ordering::Acquire);
            if held & TAG_MASK != tag(key) {
                continue;
            }
            let new = change(Some(held >> TAG_BITS))?;
            let new = packed(key, new);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if value.compare_exchange(held, new, order.0, order.1).is_ok() {
                return Ok(());
            }
        }
    }

    /// The value of a key.
    pub fn value(&self, key: Key) -> Option<u64> {
        let bucket = self.bucket(key)?;
        let held = bucket
            .values
            .get(bucket.find(key)?)?
            .load(Ordering::Acquire);
        (held & TAG_MASK == tag(key)).then_some(held >> TAG_BITS)
    }

    /// The bytes that it takes.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    fn bucket(&self, key: Key) -> Option<&Bucket> {
        // The upper bits: the lower ones are the tag.
        let index = usize::try_from(key.0 >> TAG_BITS).unwrap_or(usize::MAX)
            & self.buckets.len().wrapping_sub(1);
        self.buckets.get(index)
    }
}

impl Bucket {
    fn find(&self, key: Key) -> Option<usize> {
        self.keys
            .iter()
            .position(|held| held.load(Ordering::Acquire) == key.0)
    }

    /// Enters a key. Returns `false` if another worker did, or is doing so: the caller looks again.
    fn enter<E>(
        &self,
        key: Key,
        change: &mut impl FnMut(Option<u64>) -> Result<u64, E>,
    ) -> Result<bool, E> {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if self
            .entering
            .compare_exchange(0, 1, order.0, order.1)
            .is_err()
        {
            std::hint::spin_loop();
            return Ok(false);
        }
        // Nothing below waits or panics, so others spin for some tens of nanoseconds at most.
        let entered = if self.find(key).is_some() {
            Ok(false)
        } else {
            change(None).map(|value| {
                self.replace(key, value);
                true
            })
        };
        self.entering.store(0, Ordering::Release);
        entered
    }

    /// Puts a key into the place of the earliest value.
    fn replace(&self, key: Key, value: u64) {
        let slots = self.keys.iter().zip(&self.values);
        let earliest = slots.min_by_key(|(held, value)| match held.load(Ordering::Relaxed) {
            0 => 0,
            _ => (value.load(Ordering::Relaxed) >> TAG_BITS).saturating_add(1),
        });
        if let Some((held, slot)) = earliest {
            // The value first: whoever finds the new key must not take the old value for it. Whoever has found the old key sees the
            // tag of the new one.
            slot.store(packed(key, value), Ordering::Release);
            held.store(key.0, Ordering::Release);
        }
    }
}

fn tag(key: Key) -> u64 {
    key.0 & TAG_MASK
}

fn packed(key: Key, value: u64) -> u64 {
    value.min(MAX_VALUE) << TAG_BITS | tag(key)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread;

    use super::*;

    fn add(table: &KeyTable, key: Key) {
        let _ = table.update(key, |held| {
            Ok::<_, Infallible>(held.unwrap_or_default() + 1)
        });
    }

    #[test]
    fn no_change_of_several_workers_is_lost() {
        let table = KeyTable::new(1000);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000_u32 {
                        add(&table, table.key(round % 50));
                    }
                });
            }
        });
        for number in 0..50_u32 {
            assert_eq!(table.value(table.key(number)), Some(4 * 400), "{number}");
        }
    }

    #[test]
    fn a_full_table_keeps_the_latest_values_and_its_size() {
        let table = KeyTable::new(1000);
        let memory = table.memory();
        let set = |number: u32, value| {
            let _ = table.update(table.key(number), |_| Ok::<_, Infallible>(value));
        };
        (0..500).for_each(|number| set(number, 1_000_000));
        (1000..200_000).for_each(|number| set(number, u64::from(number)));
        let kept = (0..500_u32)
            .filter(|number| table.value(table.key(number)).is_some())
            .count();
        // A bucket of which all keys are of the later ones has to give one of them up.
        assert!(kept >= 495, "{kept}");
        assert_eq!(table.memory(), memory);
        assert!(KeyTable::new(1_000_000).memory() <= 120 << 20);
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let table = KeyTable::new(10);
        let key = table.key("a");
        assert_eq!(table.update(key, |held| Err(held)), Err(None));
        assert_eq!(table.value(key), None);
        add(&table, key);
        assert_eq!(table.update(key, |held| Err(held)), Err(Some(1)));
        assert_eq!(table.value(key), Some(1));
    }
}
