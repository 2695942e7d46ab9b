//! The ranges of a file that were verified lately or are being verified, which its readers share.

use std::ops::Range;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::super::body::WakerList;
use super::super::intervals::Intervals;

/// The ranges of one file that were verified lately, and those that are being verified.
#[derive(Debug)]
pub(crate) struct VerifiedRanges {
    /// How long a range counts as verified.
    lifetime: Duration,
    ranges: Intervals,
    /// The time of the first verification in `ranges`.
    since: Option<Instant>,
    running: Vec<RunningCheck>,
}

/// A range that is being verified, and the readers that wait for it.
#[derive(Debug)]
struct RunningCheck {
    range: Range<u64>,
    readers: Vec<Waker>,
}

impl VerifiedRanges {
    /// No range. One that is added counts as verified for at most `lifetime`.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            ranges: Intervals::new(),
            since: None,
            running: Vec::new(),
        }
    }

    /// Up to where the bytes from `position` on count as verified; `None` if the first one does not.
    pub(crate) fn until(&self, position: u64, now: Instant) -> Option<u64> {
        if self.has_expired(now) {
            return None;
        }
        self.ranges.at(position).map(|range| range.end)
    }

    /// Whether the byte at `position` is being verified: then the reader is woken at the end.
    pub(crate) fn wait(&mut self, cx: &Context<'_>, position: u64) -> bool {
        let covers = |check: &&mut RunningCheck| check.range.contains(&position);
        let Some(check) = self.running.iter_mut().find(covers) else {
            return false;
        };
        if !check
            .readers
            .iter()
            .any(|waker| waker.will_wake(cx.waker()))
        {
            check.readers.push(cx.waker().clone());
        }
        true
    }

    /// Begins to verify `range`.
    pub(crate) fn begin(&mut self, range: Range<u64>) {
        self.running.push(RunningCheck {
            range,
            readers: Vec::new(),
        });
    }

    /// Ends the verification of `range`, and returns the readers to wake. `verified` was read after
    /// the given time, and is undamaged.
    pub(crate) fn end(
        &mut self,
        range: &Range<u64>,
        verified: Option<(Range<u64>, Instant)>,
    ) -> WakerList {
        if let Some((verified, began)) = verified {
            if self.has_expired(began) {
                self.ranges = Intervals::new();
                self.since = None;
            }
            self.ranges.insert(verified);
            self.since = Some(self.since.map_or(began, |since| since.min(began)));
        }
        let ended = self.running.iter().position(|check| check.range == *range);
        WakerList::from(ended.map_or_else(Vec::new, |at| self.running.swap_remove(at).readers))
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= self.lifetime)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_nanos(1);

    struct ReaderWakeCounter(AtomicUsize);

    impl Wake for ReaderWakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn verified(range: Range<u64>, at: Instant) -> VerifiedRanges {
        let mut ranges = VerifiedRanges::new(LIFETIME);
        ranges.begin(range.clone());
        ranges.end(&range, Some((range.clone(), at))).wake_all();
        ranges
    }

    #[test]
    fn a_range_counts_as_verified_for_its_lifetime() {
        let start = Instant::now();
        let ranges = verified(100..200, start);
        for (position, until) in [(99, None), (100, Some(200)), (199, Some(200)), (200, None)] {
            assert_eq!(ranges.until(position, start), until, "{position}");
        }
        for (age, until) in [
            (LIFETIME - MOMENT, Some(200)),
            (LIFETIME, None),
            (LIFETIME + MOMENT, None),
        ] {
            assert_eq!(ranges.until(100, start + age), until, "{age:?}");
        }
    }

    #[test]
    fn a_later_verification_does_not_prolong_an_earlier_one() {
        let start = Instant::now();
        let mut ranges = verified(0..100, start);
        let later = start + LIFETIME - MOMENT;
        ranges.begin(100..200);
        ranges.end(&(100..200), Some((100..200, later))).wake_all();
        assert_eq!(ranges.until(0, later), Some(200));
        assert_eq!(ranges.until(0, start + LIFETIME), None);
        // After the end of the first, the next one begins anew.
        let anew = start + LIFETIME;
        ranges.begin(300..400);
        ranges.end(&(300..400), Some((300..400, anew))).wake_all();
        assert_eq!(ranges.until(0, anew), None);
        assert_eq!(ranges.until(300, anew + LIFETIME - MOMENT), Some(400));
        // One that took long was read earlier.
        ranges.begin(400..500);
        ranges.end(&(400..500), Some((400..500, later))).wake_all();
        assert_eq!(ranges.until(300, anew + LIFETIME - MOMENT), None);
    }

    #[test]
    fn without_a_lifetime_nothing_counts_as_verified() {
        let start = Instant::now();
        let mut ranges = VerifiedRanges::new(Duration::ZERO);
        ranges.begin(0..100);
        ranges.end(&(0..100), Some((0..100, start))).wake_all();
        assert_eq!(ranges.until(0, start), None);
    }

    #[test]
    fn readers_wait_for_a_running_verification_however_it_ends() {
        let now = Instant::now();
        for result in [Some((0..100, now)), None] {
            let counter = Arc::new(ReaderWakeCounter(AtomicUsize::new(0)));
            let waker = counter.clone().into();
            let cx = Context::from_waker(&waker);
            let mut ranges = VerifiedRanges::new(LIFETIME);
            assert!(!ranges.wait(&cx, 0));
            ranges.begin(0..100);
            ranges.begin(100..200);
            assert!(ranges.wait(&cx, 0));
            assert!(ranges.wait(&cx, 99));
            assert!(!ranges.wait(&cx, 200));
            let is_verified = result.is_some();
            ranges.end(&(0..100), result).wake_all();
            assert_eq!(counter.0.load(Ordering::Relaxed), 1);
            assert!(!ranges.wait(&cx, 0));
            assert!(ranges.wait(&cx, 100));
            assert_eq!(ranges.until(0, now), is_verified.then_some(100));
        }
    }
}
