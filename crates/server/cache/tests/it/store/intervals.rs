//! Intervals, against a model that has a bit for each byte.

use std::ops::Range;

use apus_cache::store::Intervals;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Range<u64>),
    Remove(Range<u64>),
}

const SIZE: u64 = 64;

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..SIZE, 0..SIZE).prop_map(|(one, other)| one.min(other)..one.max(other))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => range().prop_map(Step::Insert),
        1 => range().prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn intervals_behave_like_a_bit_set(steps in prop::collection::vec(step(), 0..40), requested in range()) {
        let mut intervals = Intervals::new();
        let mut model = [false; SIZE as usize];
        for step in steps {
            match step {
                Step::Insert(range) => {
                    range.clone().for_each(|at| model[at as usize] = true);
                    intervals.insert(range);
                }
                Step::Remove(range) => {
                    range.clone().for_each(|at| model[at as usize] = false);
                    intervals.remove(range);
                }
            }
        }
        let held = |at: u64| model[at as usize];
        prop_assert_eq!(intervals.len(), model.iter().filter(|bit| **bit).count() as u64);
        prop_assert_eq!(intervals.is_empty(), !model.contains(&true));
        prop_assert_eq!(intervals.contains(&requested), requested.clone().all(held));
        for at in 0..SIZE {
            prop_assert_eq!(intervals.at(at).is_some(), held(at));
            prop_assert_eq!(intervals.next_held(at), (at..SIZE).find(|at| held(*at)));
        }
        let missing: Vec<u64> = intervals.missing(requested.clone()).into_iter().flatten().collect();
        let expected: Vec<u64> = requested.filter(|at| !held(*at)).collect();
        prop_assert_eq!(missing, expected);
        // Sorted, and never touching.
        let ranges: Vec<_> = intervals.iter().collect();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        prop_assert!(ranges.iter().all(|range| !range.is_empty()));
    }
}
