//! The ranges of a file that were verified lately or are being verified, which its readers share.

use std::fs::File;
use std::ops::Range;
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::fstat;

use super::super::intervals::Intervals;
use super::super::waker_list::WakerList;

/// How long a range counts as verified while its file is unchanged. Most likely the page cache still
/// has its bytes; what the medium damages later is noticed soon.
const LIFETIME: Duration = Duration::from_secs(60);

/// How old the last change of a file must be, so that another change alters its times: they have the
/// resolution of the kernel's clock, and of a second in some file systems.
const TIME_RESOLUTION: Duration = Duration::from_secs(1);

/// The ranges of one file that were verified lately, and those that are being verified.
#[derive(Debug, Default)]
pub(crate) struct VerifiedRanges {
    ranges: Intervals,
    /// The file in which `ranges` were verified, and the time of the first verification.
    since: Option<(FileVersion, Instant)>,
    running: Vec<RunningCheck>,
}

/// What a write to a file changes: its size and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A range that is being verified, and the readers that wait for it.
#[derive(Debug)]
struct RunningCheck {
    range: Range<u64>,
    readers: Vec<Waker>,
}

impl FileVersion {
    /// The present version of `file`.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let stat = fstat(file).ok()?;
        Some(Self {
            size: stat.st_size,
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).ok()?),
            changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).ok()?),
        })
    }

    /// Whether a write after `now` makes another version.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u64::try_from(nanoseconds))
        else {
            return false;
        };
        let changed = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds));
        let (Some(changed), Ok(now)) = (changed, now.duration_since(UNIX_EPOCH)) else {
            return false;
        };
        // Without this a file that was altered right after its verification had the same times, and was sent.
        now.checked_sub(changed)
            .is_some_and(|age| age > TIME_RESOLUTION)
    }
}

impl VerifiedRanges {
    /// Up to where the bytes of `version` from `position` on count as verified; `None` if the first one
    /// does not.
    pub(crate) fn until(&self, position: u64, version: FileVersion, now: Instant) -> Option<u64> {
        if !self.hold(version, now) {
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

    /// Adds a range of `version` that is undamaged, and was read after `began`.
    pub(crate) fn add(&mut self, verified: Range<u64>, version: FileVersion, began: Instant) {
        let since = match self.since {
            Some((_, since)) if self.hold(version, began) => since.min(began),
            _ => {
                self.ranges = Intervals::new();
                began
            }
        };
        self.since = Some((version, since));
        self.ranges.insert(verified);
    }

    /// Ends the verification of `range`, and returns the readers to wake.
    pub(crate) fn end(&mut self, range: &Range<u64>) -> WakerList {
        let ended = self.running.iter().position(|check| check.range == *range);
        WakerList::from(ended.map_or_else(Vec::new, |at| self.running.swap_remove(at).readers))
    }

    /// Whether the ranges belong to `version`, and still count as verified.
    fn hold(&self, version: FileVersion, now: Instant) -> bool {
        self.since.is_some_and(|(verified, since)| {
            // The first attempt compared the time only, and sent an altered file.
            verified == version && now.saturating_duration_since(since) < LIFETIME
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const MOMENT: Duration = Duration::from_nanos(1);
    const VERSION: FileVersion = FileVersion {
        size: 1000,
        modified: (100, 1),
        changed: (100, 2),
    };

    struct ReaderWakeCounter(AtomicUsize);

    impl Wake for ReaderWakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn verified(range: Range<u64>, at: Instant) -> VerifiedRanges {
        let mut ranges = VerifiedRanges::default();
        ranges.add(range, VERSION, at);
        ranges
    }

    #[test]
    fn a_range_counts_as_verified_for_its_lifetime() {
        let start = Instant::now();
        let ranges = verified(100..200, start);
        for (position, until) in [(99, None), (100, Some(200)), (199, Some(200)), (200, None)] {
            assert_eq!(ranges.until(position, VERSION, start), until, "{position}");
        }
        for (age, until) in [
            (LIFETIME - MOMENT, Some(200)),
            (LIFETIME, None),
            (LIFETIME + MOMENT, None),
        ] {
            assert_eq!(ranges.until(100, VERSION, start + age), until, "{age:?}");
        }
    }

    #[test]
    fn a_later_verification_does_not_prolong_an_earlier_one() {
        let start = Instant::now();
        let mut ranges = verified(0..100, start);
        let later = start + LIFETIME - MOMENT;
        ranges.add(100..200, VERSION, later);
        assert_eq!(ranges.until(0, VERSION, later), Some(200));
        assert_eq!(ranges.until(0, VERSION, start + LIFETIME), None);
        // After the end of the first, the next one begins anew.
        let anew = start + LIFETIME;
        ranges.add(300..400, VERSION, anew);
        assert_eq!(ranges.until(0, VERSION, anew), None);
        let last = anew + LIFETIME - MOMENT;
        assert_eq!(ranges.until(300, VERSION, last), Some(400));
        // One that took long was read earlier.
        ranges.add(400..500, VERSION, later);
        assert_eq!(ranges.until(300, VERSION, last), None);
    }

    #[test]
    fn nothing_of_another_version_counts_as_verified() {
        let now = Instant::now();
        for other in [
            FileVersion {
                size: 999,
                ..VERSION
            },
            FileVersion {
                modified: (100, 0),
                ..VERSION
            },
            FileVersion {
                modified: (101, 1),
                ..VERSION
            },
            FileVersion {
                changed: (100, 3),
                ..VERSION
            },
            FileVersion {
                changed: (99, 2),
                ..VERSION
            },
        ] {
            let mut ranges = verified(0..100, now);
            assert_eq!(ranges.until(0, other, now), None, "{other:?}");
            ranges.add(100..200, other, now);
            assert_eq!(ranges.until(0, other, now), None, "{other:?}");
            assert_eq!(ranges.until(100, other, now), Some(200), "{other:?}");
            assert_eq!(ranges.until(100, VERSION, now), None, "{other:?}");
        }
    }

    #[test]
    fn a_version_is_settled_when_its_last_change_is_older_than_the_resolution_of_times() {
        let changed = UNIX_EPOCH + Duration::new(100, 2);
        for (now, is_settled) in [
            (UNIX_EPOCH - TIME_RESOLUTION, false),
            (UNIX_EPOCH, false),
            (changed, false),
            (changed + TIME_RESOLUTION - MOMENT, false),
            (changed + TIME_RESOLUTION, false),
            (changed + TIME_RESOLUTION + MOMENT, true),
        ] {
            assert_eq!(VERSION.is_settled(now), is_settled, "{now:?}");
        }
        let before_the_epoch = FileVersion {
            changed: (-1, 0),
            ..VERSION
        };
        assert!(!before_the_epoch.is_settled(changed));
    }

    #[test]
    fn readers_wait_for_a_running_verification() {
        let counter = Arc::new(ReaderWakeCounter(AtomicUsize::new(0)));
        let waker = counter.clone().into();
        let cx = Context::from_waker(&waker);
        let mut ranges = VerifiedRanges::default();
        assert!(!ranges.wait(&cx, 0));
        ranges.begin(0..100);
        ranges.begin(100..200);
        assert!(ranges.wait(&cx, 0));
        assert!(ranges.wait(&cx, 99));
        assert!(!ranges.wait(&cx, 200));
        ranges.end(&(0..100)).wake_all();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert!(!ranges.wait(&cx, 0));
        assert!(ranges.wait(&cx, 100));
    }
}
