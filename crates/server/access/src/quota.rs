//! Quotas: how much each key may use in an hour, a day or a month of the calendar.

use std::collections::HashMap;
use std::convert::Infallible;
#[expect(
    deprecated,
    reason = "SipHash-2-4 with keys that are stored: a hash of the standard library may differ in its next version"
)]
use std::hash::SipHasher;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::key_table::{Key, KeyTable};

/// The window of a quota, by the calendar of a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWindow {
    /// From minute 0 to minute 59.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next one.
    Month,
}

/// The windows of a calendar, of which it knows the current one.
///
/// When the clock is set back, the window stays, so that nobody gets a quota twice.
#[derive(Debug)]
pub struct QuotaCalendar {
    window: QuotaWindow,
    zone: TimeZone,
    /// The current window: its number above [`END_BITS`] bits of its end.
    current: AtomicU64,
}

/// A window of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPeriod {
    /// The hour of its beginning since 1970, which is larger for each later window.
    number: u64,
    /// When it ends, in seconds since 1970.
    end: u64,
}

/// What each key has used in the current window, for all workers.
///
/// A value of the table is the number of a window above `USED_BITS` bits of what was used in it. So in a full part of the table the keys
/// of earlier windows give way first, and then those that used least.
#[derive(Debug)]
pub struct QuotaTable {
    table: KeyTable,
    /// The keys of the hash, which are stored, so that the numbers of keys are the same after a restart.
    seeds: OnceLock<[u64; 2]>,
    /// What people call a key, for those that are no secrets.
    names: Mutex<HashMap<u64, Box<str>>>,
    /// About how many keys it has.
    keys: usize,
    has_changed: AtomicBool,
}

/// What a key has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The key, as the table knows it.
    pub key: u64,
    /// What people call it, if that is no secret.
    pub name: Option<Box<str>>,
    /// The window and what was used in it, as [`QuotaTable::restore`] takes it.
    pub value: u64,
}

const END_BITS: u32 = 40;
const USED_BITS: u32 = 44;
/// The most that a quota can be: 16 TB.
pub const MAX_QUOTA: u64 = (1 << USED_BITS) - 1;
/// The last window that there is a number for; it begins in the year 2089.
const MAX_NUMBER: u64 = (1 << (64 - USED_BITS)) - 1;
/// No window is longer.
const LONGEST_WINDOW: u64 = 32 * 86_400;
/// The characters of a name that are kept.
const MAX_NAME: usize = 64;

impl QuotaWindow {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The lengths that it can have, in days if it has several.
    pub fn lengths(self) -> &'static [Duration] {
        const DAY: u64 = 86_400;
        const HOURS: [Duration; 1] = [Duration::from_secs(3600)];
        const DAYS: [Duration; 1] = [Duration::from_secs(DAY)];
        const MONTHS: [Duration; 4] = [
            Duration::from_secs(28 * DAY),
            Duration::from_secs(29 * DAY),
            Duration::from_secs(30 * DAY),
            Duration::from_secs(31 * DAY),
        ];
        match self {
            Self::Hour => &HOURS,
            Self::Day => &DAYS,
            Self::Month => &MONTHS,
        }
    }
}

impl QuotaCalendar {
    /// The windows in a time zone.
    pub fn new(window: QuotaWindow, zone: TimeZone) -> Self {
        Self {
            window,
            zone,
            current: AtomicU64::new(0),
        }
    }

    /// What kind of windows they are.
    pub fn window(&self) -> QuotaWindow {
        self.window
    }

    /// The window of a moment, which is a time since 1970.
    pub fn period(&self, now: Duration) -> QuotaPeriod {
        let now = now.as_secs();
        let current = QuotaPeriod::unpacked(self.current.load(Ordering::Relaxed));
        if now < current.end && current.end - now <= LONGEST_WINDOW {
            return current;
        }
        let period = self
            .calculate(now)
            .unwrap_or_else(|| QuotaPeriod::of_utc_hour(now));
        self.current.store(period.packed(), Ordering::Relaxed);
        period
    }

    fn calculate(&self, now: u64) -> Option<QuotaPeriod> {
        let moment = Timestamp::from_second(i64::try_from(now).ok()?).ok()?;
        let local = moment.to_zoned(self.zone.clone());
        let seconds = |moment: Timestamp| u64::try_from(moment.as_second()).ok();
        let (start, end) = match self.window {
            QuotaWindow::Hour => {
                let offset = i64::from(local.offset().seconds());
                let of_hour = moment.as_second().checked_add(offset)?.rem_euclid(3600);
                let start = now.checked_sub(u64::try_from(of_hour).ok()?)?;
                (start, start.checked_add(3600)?)
            }
            QuotaWindow::Day => {
                let start = local.start_of_day().ok()?;
                let end = local.tomorrow().ok()?.start_of_day().ok()?;
                (seconds(start.timestamp())?, seconds(end.timestamp())?)
            }
            QuotaWindow::Month => {
                let first = local.first_of_month().ok()?;
                let next = first.checked_add(1.month()).ok()?;
                let (start, end) = (first.start_of_day().ok()?, next.start_of_day().ok()?);
                (seconds(start.timestamp())?, seconds(end.timestamp())?)
            }
        };
        Some(QuotaPeriod {
            number: start / 3600,
            end,
        })
    }
}

impl QuotaPeriod {
    /// The time until it ends.
    pub fn left(&self, now: Duration) -> Duration {
        Duration::from_secs(self.end).saturating_sub(now)
    }

    /// Its end, since 1970.
    pub fn end(&self) -> Duration {
        Duration::from_secs(self.end)
    }

    /// Which of the lengths of its kind it has.
    pub fn length_index(&self, window: QuotaWindow) -> usize {
        let hours = (self.end / 3600).saturating_sub(self.number);
        // An hour that clocks skip or repeat does not matter.
        let days = hours.saturating_add(12) / 24;
        match window {
            QuotaWindow::Hour | QuotaWindow::Day => 0,
            QuotaWindow::Month => usize::try_from(days.clamp(28, 31) - 28).unwrap_or(0),
        }
    }

    fn of_utc_hour(now: u64) -> Self {
        let number = now / 3600;
        Self {
            number,
            end: number.saturating_add(1).saturating_mul(3600),
        }
    }

    fn packed(self) -> u64 {
        let end = self.end.min((1 << END_BITS) - 1);
        self.number.min(MAX_NUMBER) << END_BITS | end
    }

    fn unpacked(packed: u64) -> Self {
        Self {
            number: packed >> END_BITS,
            end: packed & ((1 << END_BITS) - 1),
        }
    }

    /// What was used of a value, and the number of the window that it counts for: a worker whose clock is behind counts for the window
    /// that another one has begun.
    fn used(self, value: Option<u64>) -> (u64, u64) {
        let own = self.number.min(MAX_NUMBER);
        let value = value.unwrap_or_default();
        let number = value >> USED_BITS;
        if number >= own {
            (number, value & MAX_QUOTA)
        } else {
            (own, 0)
        }
    }
}

fn value(number: u64, used: u64) -> u64 {
    number << USED_BITS | used.min(MAX_QUOTA)
}

impl QuotaTable {
    /// A table of about this many keys, each of which takes 18 bytes, and more if it has a name.
    pub fn new(keys: usize) -> Self {
        Self {
            table: KeyTable::kept_by_value(keys),
            seeds: OnceLock::new(),
            names: Mutex::default(),
            keys,
            has_changed: AtomicBool::new(false),
        }
    }

    /// The key of these bytes.
    pub fn key(&self, bytes: &[u8]) -> Key {
        let [one, two] = self.seeds();
        #[expect(deprecated, reason = "as above")]
        let mut hasher = SipHasher::new_with_keys(one, two);
        hasher.write(bytes);
        Key::of_hash(hasher.finish())
    }

    /// The keys of the hash.
    pub fn seeds(&self) -> [u64; 2] {
        *self.seeds.get_or_init(|| {
            let random = RandomState::new();
            [random.hash_one(0_u8), random.hash_one(1_u8)]
        })
    }

    /// Takes units for a key, and returns how many are left.
    ///
    /// # Errors
    /// So many are not left, and nothing was taken.
    pub fn take(
        &self,
        (key, units): (Key, u64),
        quota: u64,
        period: QuotaPeriod,
        name: impl FnOnce() -> Option<String>,
    ) -> Result<u64, QuotaExceeded> {
        let (mut left, mut is_new) = (0, false);
        self.table.update(key, |held| {
            let (number, used) = period.used(held);
            let used = used.saturating_add(units);
            left = quota.checked_sub(used).ok_or(QuotaExceeded)?;
            is_new = held.is_none();
            Ok(value(number, used))
        })?;
        self.note_change((key, is_new), name);
        Ok(left)
    }

    /// How many units are left for what is charged later, and takes nothing.
    ///
    /// # Errors
    /// None is left.
    pub fn check(&self, key: Key, quota: u64, period: QuotaPeriod) -> Result<u64, QuotaExceeded> {
        match quota.saturating_sub(self.used(key, period)) {
            0 => Err(QuotaExceeded),
            left => Ok(left),
        }
    }

    /// Takes units of which it was known only afterwards how many they are, also if they exceed what is left.
    pub fn charge(
        &self,
        key: Key,
        units: u64,
        period: QuotaPeriod,
        name: impl FnOnce() -> Option<String>,
    ) {
        let mut is_new = false;
        let _ = self.table.update(key, |held| {
            let (number, used) = period.used(held);
            is_new = held.is_none();
            Ok::<_, Infallible>(value(number, used.saturating_add(units)))
        });
        self.note_change((key, is_new), name);
    }

    /// What a key has used in a window.
    pub fn used(&self, key: Key, period: QuotaPeriod) -> u64 {
        period.used(self.table.value(key)).1
    }

    /// Gives a key its whole quota again. Returns whether it had used any of it.
    pub fn reset(&self, key: Key) -> bool {
        let mut had = false;
        let _ = self.table.update(key, |held| {
            let Some(held) = held else {
                return Err(());
            };
            had = held & MAX_QUOTA > 0;
            Ok(value(held >> USED_BITS, 0))
        });
        self.has_changed.store(true, Ordering::Relaxed);
        had
    }

    /// What each key has used, in a window or also before.
    pub fn usage(&self) -> Vec<QuotaUsage> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage: Vec<QuotaUsage> = self
            .table
            .entries()
            .map(|(key, value)| QuotaUsage {
                key: key.hash(),
                name: names.get(&key.hash()).cloned(),
                value,
            })
            .collect();
        usage.sort_unstable_by_key(|usage| usage.key);
        // The names of keys that gave way.
        if names.len() > usage.len() {
            names.retain(|key, _| usage.binary_search_by_key(key, |usage| usage.key).is_ok());
        }
        usage
    }

    /// Continues with what was stored: the keys of the hash, and what was used. Without effect on the hash once a key was made.
    pub fn restore(&self, seeds: [u64; 2], usage: impl IntoIterator<Item = QuotaUsage>) {
        if *self.seeds.get_or_init(|| seeds) != seeds {
            return;
        }
        for entry in usage {
            let key = Key::of_hash(entry.key);
            let _ = self.table.update(key, |held| {
                Ok::<_, Infallible>(held.unwrap_or_default().max(entry.value))
            });
            if let Some(name) = entry.name {
                self.set_name(key, &name);
            }
        }
    }

    /// Whether something was used since this was called last.
    pub fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// How many keys it has, those of earlier windows included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// As this one, with room for another number of keys.
    #[must_use]
    pub fn resized(&self, keys: usize) -> Self {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            table: self.table.resized(keys),
            seeds: OnceLock::from(self.seeds()),
            names: Mutex::new(names.clone()),
            keys,
            has_changed: AtomicBool::new(true),
        }
    }

    fn note_change(&self, (key, is_new): (Key, bool), name: impl FnOnce() -> Option<String>) {
        // Without a write where nothing changes: workers share the cache line.
        if !self.has_changed.load(Ordering::Relaxed) {
            self.has_changed.store(true, Ordering::Relaxed);
        }
        if is_new && let Some(name) = name() {
            self.set_name(key, &name);
        }
    }

    fn set_name(&self, key: Key, name: &str) {
        let name: String = name.chars().take(MAX_NAME).collect();
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        // Names of keys that gave way are dropped when the usage is read. Until then, others go without one.
        if names.len() < self.keys.saturating_mul(2) {
            names.insert(key.hash(), name.into());
        }
    }
}

impl QuotaUsage {
    /// The key.
    pub fn key(&self) -> Key {
        Key::of_hash(self.key)
    }

    /// What was used in a window.
    pub fn used(&self, period: QuotaPeriod) -> u64 {
        period.used(Some(self.value)).1
    }
}

/// A quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    fn at(text: &str) -> Duration {
        let moment: Timestamp = text.parse().unwrap();
        Duration::from_secs(moment.as_second().try_into().unwrap())
    }

    fn end(window: QuotaWindow, now: &str) -> String {
        let period = QuotaCalendar::new(window, berlin()).period(at(now));
        let end = i64::try_from(period.end().as_secs()).unwrap();
        Timestamp::from_second(end).unwrap().to_string()
    }

    #[test]
    fn windows_are_those_of_the_calendar_in_its_zone() {
        use QuotaWindow::{Day, Hour, Month};
        for (window, now, expected) in [
            (Hour, "2026-11-28T12:34:56Z", "2026-11-28T13:00:00Z"),
            (Day, "2026-11-28T22:59:59Z", "2026-11-28T23:00:00Z"),
            (Day, "2026-11-28T23:00:00Z", "2026-11-29T23:00:00Z"),
            // Clocks are set forward and back on these days.
            (Day, "2026-03-29T00:30:00Z", "2026-03-29T22:00:00Z"),
            (Day, "2026-10-25T12:00:00Z", "2026-10-25T23:00:00Z"),
            (Month, "2026-11-30T23:30:00Z", "2026-12-31T23:00:00Z"),
            (Month, "2026-02-10T00:00:00Z", "2026-02-28T23:00:00Z"),
        ] {
            assert_eq!(end(window, now), expected, "{window:?} {now}");
        }
        // A zone whose hours begin at another minute.
        let india = TimeZone::get("Asia/Kathmandu").unwrap();
        let period = QuotaCalendar::new(Hour, india).period(at("2026-11-28T12:10:00Z"));
        assert_eq!(period.end(), at("2026-11-28T12:15:00Z"));
    }

    #[test]
    fn the_length_of_a_month_is_one_of_four() {
        let calendar = QuotaCalendar::new(QuotaWindow::Month, berlin());
        for (now, days) in [
            ("2026-02-10T00:00:00Z", 28),
            ("2028-02-10T00:00:00Z", 29),
            ("2026-03-10T00:00:00Z", 31),
            ("2026-10-10T00:00:00Z", 31),
            ("2026-11-10T00:00:00Z", 30),
        ] {
            let period = calendar.calculate(at(now).as_secs()).unwrap();
            let index = period.length_index(QuotaWindow::Month);
            let length = QuotaWindow::Month.lengths()[index];
            assert_eq!(length.as_secs(), days * 86_400, "{now}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_begins_no_window_again() {
        let calendar = QuotaCalendar::new(QuotaWindow::Day, TimeZone::UTC);
        let first = calendar.period(at("2026-11-28T23:59:59Z"));
        let second = calendar.period(at("2026-11-29T00:00:01Z"));
        assert!(second.number > first.number);
        assert_eq!(calendar.period(at("2026-11-28T23:59:58Z")), second);
        // A clock that was wrong by years is another matter.
        let wrong = calendar.period(at("2036-01-01T00:00:00Z"));
        assert_ne!(calendar.period(at("2026-11-29T00:00:01Z")), wrong);
    }

    #[test]
    fn over_several_workers_a_quota_is_exact_in_each_window() {
        let table = QuotaTable::new(100);
        let calendar = QuotaCalendar::new(QuotaWindow::Hour, TimeZone::UTC);
        let key = table.key(b"a");
        for hour in 10..13_u64 {
            let allowed = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let period = calendar.period(Duration::from_secs(hour * 3600));
                        for _ in 0..1000 {
                            let taken = table.take((key, 1), 777, period, || None);
                            allowed.fetch_add(taken.is_ok().into(), Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(allowed.into_inner(), 777);
        }
    }

    #[test]
    fn bytes_are_charged_afterwards_and_never_wrap() {
        let table = QuotaTable::new(10);
        let period = QuotaPeriod::of_utc_hour(3600 * 500_000);
        let key = table.key(b"a");
        assert_eq!(table.check(key, 100, period), Ok(100));
        table.charge(key, 99, period, || None);
        assert_eq!(table.check(key, 100, period), Ok(1));
        table.charge(key, u64::MAX, period, || None);
        assert_eq!(table.check(key, MAX_QUOTA, period), Err(QuotaExceeded));
        let next = QuotaPeriod::of_utc_hour(3600 * 500_001);
        assert_eq!(table.check(key, 100, next), Ok(100));
        assert!(table.reset(key) && !table.reset(key));
        assert_eq!(table.check(key, 100, period), Ok(100));
    }

    #[test]
    fn what_was_stored_continues_in_another_process() {
        let before = QuotaTable::new(100);
        let period = QuotaPeriod::of_utc_hour(3600 * 500_000);
        for (text, units) in [("a", 3), ("b", 5)] {
            let key = before.key(text.as_bytes());
            let name = || (text == "a").then(|| "ada".repeat(100));
            assert!(before.take((key, units), 10, period, name).is_ok());
        }
        assert!(before.take_changed() && !before.take_changed());
        let after = QuotaTable::new(50);
        after.restore(before.seeds(), before.usage());
        assert_eq!(after.usage(), before.usage());
        assert_eq!(after.used(after.key(b"b"), period), 5);
        let named = after.usage().into_iter().find_map(|usage| usage.name);
        assert_eq!(named.unwrap().len(), MAX_NAME);
        // With another hash, stored numbers would be those of other keys.
        let other = QuotaTable::new(50);
        let _ = other.key(b"x");
        other.restore(before.seeds(), before.usage());
        assert!(other.is_empty());
    }

    #[test]
    fn in_a_flood_of_keys_those_that_used_much_stay() {
        let table = QuotaTable::new(1000);
        let period = QuotaPeriod::of_utc_hour(3600 * 500_000);
        // Few enough that no part of the table is full of them, whatever the hash is.
        let heavy: Vec<Key> = (0..6_u8).map(|key| table.key(&[key])).collect();
        for key in &heavy {
            assert!(table.take((*key, 100), 100, period, || None).is_ok());
        }
        for number in 0..100_000_u32 {
            let key = table.key(&number.to_be_bytes());
            let _ = table.take((key, 1), 100, period, || Some("flood".to_owned()));
        }
        assert!(heavy.iter().all(|key| table.used(*key, period) == 100));
        assert!(table.usage().len() <= table.table.capacity());
        let names = || table.names.lock().unwrap().len();
        assert!(names() <= table.usage().len());
        // In the next window they are the first to go.
        let next = QuotaPeriod::of_utc_hour(3600 * 500_001);
        for number in 0..100_000_u32 {
            let key = table.key(&number.to_be_bytes());
            let _ = table.take((key, 1), 100, next, || None);
        }
        assert!(table.usage().iter().all(|usage| usage.used(next) == 1));
    }
}
