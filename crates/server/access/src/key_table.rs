//! `KeyTable`: a number for each key, in bounded memory that all workers share without locks.
//!
//! A bucket has seven keys and their values, in two cache lines. A key is looked for in one bucket only, so its cost does not
//! depend on how many keys there are. When a bucket is full, the key gives way that was used least since others came, and of several
//! the one with the lowest value: clients that send much, refused or not, stay, and a flood of keys that come once takes the place of
//! others that came once.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Keys of a bucket. With their uses and the lock they fill two cache lines of 64 bytes.
const SLOTS: usize = 7;
/// What a use adds to the uses of a key. The uses of the other keys of a bucket are halved when a key enters: a key that is used once in
/// that time is above zero afterwards, and one that came once is not.
const USE: u8 = 2;
/// The tries after which a worker gives its core to the one that it waits for.
const SPINS: u32 = 64;

/// A key, as a table knows it: 64 bits that nobody outside can predict.
// Of a million keys, two are the same once in forty million tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of a hash that nobody outside can predict.
    pub(crate) fn of_hash(hash: u64) -> Self {
        // 0 is an empty slot.
        Self(hash.max(1))
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}

/// A value for each key.
#[derive(Debug)]
pub struct KeyTable {
    buckets: Box<[Bucket]>,
    hasher: RandomState,
    /// Whether the key with the lowest value gives way, however often it was used.
    keeps_by_value: bool,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    keys: [AtomicU64; SLOTS],
    values: [AtomicU64; SLOTS],
    /// How much each key was used, in units of [`USE`], halved whenever a key enters. Several workers may count one use only, as that
    /// decides about nothing but which key gives way.
    uses: [AtomicU8; SLOTS],
    /// 1 while a key enters: two workers that meet the same new key must not enter it twice.
    entering: AtomicU8,
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
            keeps_by_value: false,
        }
    }

    /// As [`KeyTable::new`], but in a full bucket the key with the lowest value gives way, however often others were used.
    pub fn kept_by_value(keys: usize) -> Self {
        Self {
            keeps_by_value: true,
            ..Self::new(keys)
        }
    }

    /// Whether a key can enter without taking the place of one whose value is at least this.
    pub fn has_room(&self, key: Key, least: u64) -> bool {
        self.bucket(key).is_some_and(|bucket| {
            let mut slots = bucket.keys.iter().zip(&bucket.values);
            slots.any(|(held, value)| {
                held.load(Ordering::Acquire) == 0 || value.load(Ordering::Acquire) < least
            })
        })
    }

    /// The key of these parts, such as a limit and an address.
    pub fn key(&self, parts: impl Hash) -> Key {
        Key::of_hash(self.hasher.hash_one(parts))
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
        let mut tries = 0_u32;
        loop {
            tries = tries.saturating_add(1);
            if tries > SPINS {
                // The worker that enters a key may have lost its core meanwhile.
                std::thread::yield_now();
            }
            let Some(slot) = bucket.find(key) else {
                if bucket.enter(key, &mut change)? {
                    return Ok(());
                }
                continue;
            };
            let Some((value, held)) = bucket.held(slot, key) else {
                std::hint::spin_loop();
                continue;
            };
            if !self.keeps_by_value {
                bucket.count_use(slot);
            }
            let new = change(Some(held))?;
            // If the key gave way meanwhile to one with the very same value, this is counted for that one.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if value.compare_exchange(held, new, order.0, order.1).is_ok() {
                return Ok(());
            }
        }
    }

    /// The value of a key.
    pub fn value(&self, key: Key) -> Option<u64> {
        let bucket = self.bucket(key)?;
        let (_, held) = bucket.held(bucket.find(key)?, key)?;
        Some(held)
    }

    /// A table of about this many keys that begins with what this one has, for a limit that is to remember more keys, or fewer.
    #[must_use]
    pub fn resized(&self, keys: usize) -> Self {
        let resized = Self {
            hasher: self.hasher.clone(),
            keeps_by_value: self.keeps_by_value,
            ..Self::new(keys)
        };
        for (key, value) in self.entries() {
            let _ = resized.update(key, |_| Ok::<_, Infallible>(value));
        }
        resized
    }

    /// The keys with their values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        self.buckets.iter().flat_map(|bucket| {
            bucket.keys.iter().enumerate().filter_map(|(slot, key)| {
                let key = Key(key.load(Ordering::Acquire));
                let (_, value) = bucket.held(slot, key).filter(|_| key.0 != 0)?;
                Some((key, value))
            })
        })
    }

    /// The keys that it has.
    pub fn len(&self) -> usize {
        let keys = self.buckets.iter().flat_map(|bucket| &bucket.keys);
        keys.filter(|key| key.load(Ordering::Relaxed) != 0).count()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that it has room for.
    pub fn capacity(&self) -> usize {
        self.buckets.len().saturating_mul(SLOTS)
    }

    /// The bytes that it takes.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    fn bucket(&self, key: Key) -> Option<&Bucket> {
        let index = usize::try_from(key.0).unwrap_or(usize::MAX);
        self.buckets.get(index & self.buckets.len().wrapping_sub(1))
    }
}

impl Bucket {
    fn find(&self, key: Key) -> Option<usize> {
        self.keys
            .iter()
            .position(|held| held.load(Ordering::Acquire) == key.0)
    }

    /// The value of a slot, if it is the value of this key.
    fn held(&self, slot: usize, key: Key) -> Option<(&AtomicU64, u64)> {
        let value = self.values.get(slot)?;
        let held = value.load(Ordering::Acquire);
        // The key is taken away before the value changes, so a value of the next key is seen after this.
        let is_of_key = self.keys.get(slot)?.load(Ordering::Acquire) == key.0;
        is_of_key.then_some((value, held))
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
        // Nothing below waits or panics.
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

    fn count_use(&self, slot: usize) {
        if let Some(uses) = self.uses.get(slot) {
            let counted = uses.load(Ordering::Relaxed);
            // Without a write where nothing changes: workers that share a busy key share its cache lines.
            if counted < u8::MAX {
                uses.store(counted.saturating_add(USE), Ordering::Relaxed);
            }
        }
    }

    /// Puts a key into a free slot, or into the place of another key.
    fn replace(&self, key: Key, value: u64) {
        let mut lowest: Option<(Option<(u8, u64)>, usize)> = None;
        let slots = self.keys.iter().zip(&self.values).zip(&self.uses);
        for (at, ((held, slot), uses)) in slots.enumerate() {
            let halved = uses.load(Ordering::Relaxed) >> 1;
            uses.store(halved, Ordering::Relaxed);
            // A free one before all others.
            let rank = match held.load(Ordering::Relaxed) {
                0 => None,
                _ => Some((halved, slot.load(Ordering::Relaxed))),
            };
            if lowest.is_none_or(|(lowest, _)| rank < lowest) {
                lowest = Some((rank, at));
            }
        }
        let at = lowest.map_or(0, |(_, at)| at);
        let places = (self.keys.get(at), self.values.get(at), self.uses.get(at));
        if let (Some(held), Some(slot), Some(uses)) = places {
            // Whoever reads the old key before and after the value has the old value.
            held.store(0, Ordering::Release);
            slot.store(value, Ordering::Release);
            held.store(key.0, Ordering::Release);
            uses.store(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
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
        // A bucket of which all keys are of the first ones has to give one of them up: one or two of 256 buckets, and 20 never.
        assert!(kept >= 480, "{kept}");
        assert_eq!(table.memory(), memory);
        assert!(KeyTable::new(1_000_000).memory() <= 120 << 20);
    }

    #[test]
    fn a_key_that_is_used_all_the_time_stays_though_its_value_is_the_lowest() {
        let table = KeyTable::new(64);
        let busy = table.key("busy");
        for number in 0..20_000_u32 {
            let refused = table.update(busy, |held| match held {
                None => Ok(1),
                Some(_) => Err(()),
            });
            assert!(
                number == 0 || refused.is_err(),
                "it was forgotten at {number}"
            );
            let other = table.key(number);
            let _ = table.update(other, |_| Ok::<_, Infallible>(u64::from(number) + 2));
            // No value gives way to the next one at once.
            assert_eq!(table.value(other), Some(u64::from(number) + 2));
        }
        assert!(table.len() <= table.capacity());
    }

    #[test]
    fn a_table_of_another_size_has_the_same_values() {
        let table = KeyTable::new(1000);
        for number in 0..500_u32 {
            let _ = table.update(table.key(number), |_| Ok::<_, Infallible>(number.into()));
        }
        // Where eight keys fell into one bucket, the first of them has given way.
        assert!(table.len() > 450);
        for keys in [2000, 1000] {
            let resized = table.resized(keys);
            for number in 0..500_u32 {
                let held = table.value(table.key(number));
                assert_eq!(resized.value(resized.key(number)), held, "{number}");
            }
        }
        let small = table.resized(20);
        assert!(small.memory() < table.memory() && !small.is_empty());
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let table = KeyTable::new(10);
        let key = table.key("a");
        assert_eq!(table.update(key, Err), Err(None));
        assert_eq!(table.value(key), None);
        add(&table, key);
        assert_eq!(table.update(key, Err), Err(Some(1)));
        assert_eq!(table.value(key), Some(1));
    }
}
