//! The most frequent keys of a stream in bounded memory, by the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The keys of a stream that are most frequent, at most [`SpaceSaving::capacity`] of them, each with a value of what it had.
///
/// A key without a place takes that of the least frequent one, and its count. With `n` additions and a capacity of `m`:
///
/// - [`FrequentKey::count`] is at least how often a key was added, and more by [`FrequentKey::error`] at most;
/// - no error is greater than `n / m`;
/// - each key that was added more than `n / m` times is there.
///
/// The value of a key begins with [`Default`] when the key gets its place: it is about `count - error` additions, exactly.
#[derive(Clone, Debug)]
pub struct SpaceSaving<K, V> {
    capacity: usize,
    /// By falling count.
    keys: Vec<FrequentKey<K, V>>,
    positions: HashMap<Arc<K>, usize>,
    /// How often a key that has no place can have been added.
    unplaced: u64,
    additions: u64,
}

/// A key of a [`SpaceSaving`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequentKey<K, V> {
    /// The key.
    pub key: Arc<K>,
    /// How often it was added, at most.
    pub count: u64,
    /// How much less often it can have been added.
    pub error: u64,
    /// What it had since it got its place.
    pub value: V,
}

impl<K: Eq + Hash, V: Default> SpaceSaving<K, V> {
    /// Has this many keys at most, and one at least.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            keys: Vec::new(),
            positions: HashMap::new(),
            unplaced: 0,
            additions: 0,
        }
    }

    /// Adds a key once. `change` changes its value.
    pub fn add(&mut self, key: K, change: impl FnOnce(&mut V)) {
        self.additions = self.additions.saturating_add(1);
        let position = self.positions.get(&key).copied();
        let position = position.unwrap_or_else(|| self.place(key));
        let position = self.count_at(position);
        if let Some(found) = self.keys.get_mut(position) {
            change(&mut found.value);
        }
    }

    /// Gives a key the last place, and returns that.
    fn place(&mut self, key: K) -> usize {
        if self.keys.len() >= self.capacity
            && let Some(least) = self.keys.pop()
        {
            self.positions.remove::<Arc<K>>(&least.key);
            self.unplaced = least.count;
        }
        let (key, position) = (Arc::new(key), self.keys.len());
        self.positions.insert(Arc::clone(&key), position);
        self.keys.push(FrequentKey {
            key,
            count: self.unplaced,
            error: self.unplaced,
            value: V::default(),
        });
        position
    }

    /// Counts the key at a position, which moves before all others of its count. Returns its new position.
    fn count_at(&mut self, position: usize) -> usize {
        let Some(count) = self.keys.get(position).map(|found| found.count) else {
            return position;
        };
        let first = self.keys.partition_point(|other| other.count > count);
        if first < position {
            self.keys.swap(first, position);
            for changed in [first, position] {
                if let Some(moved) = self.keys.get(changed) {
                    self.positions.insert(Arc::clone(&moved.key), changed);
                }
            }
        }
        if let Some(counted) = self.keys.get_mut(first) {
            counted.count = count.saturating_add(1);
        }
        first
    }

    /// How many keys it has at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How often any key was added.
    pub fn additions(&self) -> u64 {
        self.additions
    }

    /// How often each key that is not there can have been added, at most.
    pub fn max_unplaced(&self) -> u64 {
        self.unplaced
    }

    /// The keys, by falling count.
    pub fn keys(&self) -> &[FrequentKey<K, V>] {
        &self.keys
    }

    /// The key, if it has a place.
    pub fn find<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&FrequentKey<K, V>>
    where
        Arc<K>: Borrow<Q>,
    {
        let position = self.positions.get(key)?;
        self.keys.get(*position)
    }

    /// The keys of several streams, such as those of several workers, by falling count. `sum` adds the second value to the first.
    ///
    /// All that is said of one stream holds for the sum of all, if all have one capacity. There may be more keys than that, but no more
    /// than all streams have.
    pub fn merge<'a>(
        streams: impl IntoIterator<Item = &'a Self>,
        mut sum: impl FnMut(&mut V, &V),
    ) -> Vec<FrequentKey<K, V>>
    where
        K: 'a,
        V: 'a,
    {
        let mut merged: HashMap<Arc<K>, FrequentKey<K, V>> = HashMap::new();
        // A key that has no place in a stream can have been added there this often. Where it has one, that is taken away again.
        let mut all_unplaced = 0_u64;
        for stream in streams {
            all_unplaced = all_unplaced.saturating_add(stream.unplaced);
            for found in &stream.keys {
                let of_all = merged
                    .entry(Arc::clone(&found.key))
                    .or_insert_with(|| FrequentKey {
                        key: Arc::clone(&found.key),
                        count: 0,
                        error: 0,
                        value: V::default(),
                    });
                let exact = found.count.saturating_sub(found.error);
                of_all.count = of_all.count.saturating_add(exact);
                // Until the end, this is what is to be taken away from the error.
                let placed = stream.unplaced.saturating_sub(found.error);
                of_all.error = of_all.error.saturating_add(placed);
                sum(&mut of_all.value, &found.value);
            }
        }
        let mut keys: Vec<_> = merged.into_values().collect();
        for found in &mut keys {
            found.error = all_unplaced.saturating_sub(found.error);
            found.count = found.count.saturating_add(found.error);
        }
        keys.sort_by_key(|found| std::cmp::Reverse(found.count));
        keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// How often each key is in the streams.
    fn exact(streams: &[Vec<u8>]) -> BTreeMap<u8, u64> {
        let mut counts = BTreeMap::new();
        for key in streams.iter().flatten() {
            *counts.entry(*key).or_default() += 1;
        }
        counts
    }

    fn of_stream(capacity: usize, stream: &[u8]) -> SpaceSaving<u8, u64> {
        let mut counted = SpaceSaving::new(capacity);
        for key in stream {
            counted.add(*key, |value| *value += 1);
        }
        counted
    }

    /// Keys of which some are much more frequent than others.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let key = (any::<u8>(), any::<u8>()).prop_map(|(one, other)| one.min(other) / 8);
        prop::collection::vec(prop_oneof![key, 0..=3_u8, any::<u8>()], 0..600)
    }

    /// What the algorithm promises about keys with their counts, after these additions.
    fn check(
        (keys, max_unplaced): (&[FrequentKey<u8, u64>], u64),
        capacity: usize,
        exact: &BTreeMap<u8, u64>,
    ) {
        let additions: u64 = exact.values().sum();
        let bound = additions / capacity as u64;
        for found in keys {
            let times = exact[&*found.key];
            assert!(times <= found.count, "{found:?} was added {times} times");
            assert!(
                found.count - found.error <= times,
                "{found:?} was added {times} times"
            );
            assert!(found.error <= bound, "{found:?}: more than {bound}");
            assert_eq!(found.value, found.count - found.error, "{found:?}");
        }
        assert!(keys.is_sorted_by(|one, next| one.count >= next.count));
        assert!(max_unplaced <= bound);
        for (key, times) in exact {
            if !keys.iter().any(|found| *found.key == *key) {
                assert!(*times <= max_unplaced, "{key} was added {times} times");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn counts_are_within_the_bound_of_the_algorithm(stream in stream(), capacity in 1..40_usize) {
            let counted = of_stream(capacity, &stream);
            let exact = exact(&[stream]);
            check((counted.keys(), counted.max_unplaced()), capacity, &exact);
            prop_assert!(counted.keys().len() <= capacity);
            prop_assert_eq!(counted.additions(), exact.values().sum::<u64>());
            // The paper's lemma 1: the counts add up to the length of the stream.
            let sum: u64 = counted.keys().iter().map(|found| found.count).sum();
            prop_assert_eq!(sum, counted.additions());
            for found in counted.keys() {
                prop_assert_eq!(counted.find(&*found.key), Some(found));
            }
        }

        #[test]
        fn several_streams_are_within_the_bound_of_all(
            streams in prop::collection::vec(stream(), 0..5), capacity in 1..40_usize,
        ) {
            let counted: Vec<_> = streams.iter().map(|stream| of_stream(capacity, stream)).collect();
            let merged = SpaceSaving::merge(&counted, |sum, other| *sum += other);
            let max_unplaced = counted.iter().map(SpaceSaving::max_unplaced).sum();
            check((&merged, max_unplaced), capacity, &exact(&streams));
        }
    }

    #[test]
    fn counts_are_exact_while_every_key_has_a_place() {
        let counted = of_stream(3, b"abcabaa");
        let keys: Vec<_> = counted.keys().iter().collect();
        let of = |found: &FrequentKey<u8, u64>| (*found.key, found.count, found.error, found.value);
        assert_eq!(of(keys[0]), (b'a', 4, 0, 4));
        assert_eq!(of(keys[1]), (b'b', 2, 0, 2));
        assert_eq!(of(keys[2]), (b'c', 1, 0, 1));
        assert_eq!(counted.find(&b'x'), None);
    }

    #[test]
    fn a_flood_of_keys_that_come_once_does_not_displace_the_frequent_ones() {
        let mut counted: SpaceSaving<u32, ()> = SpaceSaving::new(10);
        for number in 0..10_000 {
            counted.add(1_000_000 + number, |()| {});
            if number % 5 == 0 {
                counted.add(7, |()| {});
            }
        }
        let first = &counted.keys()[0];
        assert_eq!(*first.key, 7);
        assert!((2000..=3200).contains(&first.count), "{first:?}");
        assert_eq!(counted.keys().len(), 10);
    }
}
