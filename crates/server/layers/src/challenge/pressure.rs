//! Whether a site is under pressure: its rate of requests, its share of errors and the load, measured each second over all workers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often it is measured, in milliseconds.
const INTERVAL: u64 = 1000;

/// For how long a threshold counts as passed after it was passed last, in milliseconds.
pub(super) const HOLD: u64 = 60_000;

/// The responses in an interval below which a share of errors says nothing.
const MIN_RESPONSES: u64 = 20;

/// The stripes of counters, so that workers seldom write to the same memory.
const STRIPES: usize = 16;

/// The thresholds of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PressureThresholds {
    /// More requests than these in this time.
    pub(super) rate: Option<(u32, Duration)>,
    /// From this share of errors on, in percent.
    pub(super) errors: Option<u8>,
    /// From this load of the machine on, in percent of its cores.
    pub(super) load: Option<u32>,
}

impl PressureThresholds {
    pub(super) fn are_none(&self) -> bool {
        self.rate.is_none() && self.errors.is_none() && self.load.is_none()
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    /// Whether there were more requests than the threshold, within the last minute.
    pub(super) by_rate: bool,
    /// Whether there were more errors, within the last minute.
    pub(super) by_errors: bool,
    /// Whether there was more load, within the last minute.
    pub(super) by_load: bool,
    /// How often the rate or the load is twice the threshold: 0 up to twice of it, 1 up to four times of it.
    pub(super) doublings: u8,
}

impl Pressure {
    /// How many thresholds are passed.
    pub(super) fn count(self) -> u32 {
        u32::from(self.by_rate) + u32::from(self.by_errors) + u32::from(self.by_load)
    }
}

/// The counters of a site, which all workers share.
#[derive(Debug, Default)]
pub(super) struct SitePressure {
    stripes: [Stripe; STRIPES],
    /// When to measure next, in milliseconds; 0 before the first request.
    next: AtomicU64,
    /// When it was measured, and the sums then. Only who has moved `next` forward writes them.
    measured: AtomicU64,
    requests: AtomicU64,
    responses: AtomicU64,
    errors: AtomicU64,
    /// Until when the thresholds count as passed.
    rate_until: AtomicU64,
    errors_until: AtomicU64,
    load_until: AtomicU64,
    doublings: AtomicU64,
}

/// The counters of some of the workers.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    requests: AtomicU64,
    responses: AtomicU64,
    errors: AtomicU64,
}

thread_local! {
    static STRIPE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl SitePressure {
    /// Counts a request; a time in milliseconds since any moment, and what reads the load in percent. The result is true where a
    /// threshold is passed that was not before.
    pub(super) fn count_request(
        &self,
        thresholds: &PressureThresholds,
        now: u64,
        load: impl FnOnce() -> u32,
    ) -> bool {
        self.own(|stripe| &stripe.requests);
        let now = now.max(1);
        let next = self.next.load(Ordering::Relaxed);
        if now < next {
            return false;
        }
        let moved = self.next.compare_exchange(
            next,
            now.saturating_add(INTERVAL),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        moved.is_ok() && self.measure(thresholds, now, load)
    }

    /// Counts the response of a handler.
    pub(super) fn count_response(&self, is_error: bool) {
        self.own(|stripe| &stripe.responses);
        if is_error {
            self.own(|stripe| &stripe.errors);
        }
    }

    fn own(&self, counter: impl Fn(&Stripe) -> &AtomicU64) {
        if let Some(stripe) = self.stripes.get(STRIPE.with(|stripe| *stripe)) {
            counter(stripe).fetch_add(1, Ordering::Relaxed);
        }
    }

    fn measure(
        &self,
        thresholds: &PressureThresholds,
        now: u64,
        load: impl FnOnce() -> u32,
    ) -> bool {
        let sum = |counter: fn(&Stripe) -> &AtomicU64| -> u64 {
            let stripes = self.stripes.iter();
            stripes
                .map(|stripe| counter(stripe).load(Ordering::Relaxed))
                .fold(0, u64::wrapping_add)
        };
        let since =
            |last: &AtomicU64, sum: u64| sum.wrapping_sub(last.swap(sum, Ordering::Relaxed));
        let requests = since(&self.requests, sum(|stripe| &stripe.requests));
        let responses = since(&self.responses, sum(|stripe| &stripe.responses));
        let errors = since(&self.errors, sum(|stripe| &stripe.errors));
        let last = self.measured.swap(now, Ordering::Relaxed);
        if last == 0 {
            return false;
        }
        let before = self.at(now);
        let time = u128::from(now.saturating_sub(last).max(1));
        let until = now.saturating_add(HOLD);
        let mut times = 0;
        if let Some((limit, period)) = thresholds.rate {
            // Requests in the time of the threshold, were they always as many.
            let requests = u128::from(requests).saturating_mul(period.as_millis());
            let limit = u128::from(limit).saturating_mul(time).max(1);
            if requests > limit {
                times = requests.checked_div(limit).unwrap_or(0);
                self.rate_until.store(until, Ordering::Relaxed);
            }
        }
        if let Some(percent) = thresholds.errors
            && responses >= MIN_RESPONSES
            && errors.saturating_mul(100) >= responses.saturating_mul(u64::from(percent))
        {
            self.errors_until.store(until, Ordering::Relaxed);
        }
        if let Some(percent) = thresholds.load {
            let load = load();
            if load >= percent {
                times = times.max(u128::from(load.checked_div(percent).unwrap_or(0)));
                self.load_until.store(until, Ordering::Relaxed);
            }
        }
        if times > 0 {
            let doublings = u64::from(times.checked_ilog2().unwrap_or(0));
            self.doublings.store(doublings, Ordering::Relaxed);
        }
        let after = self.at(now);
        after.count() > before.count()
    }

    /// The pressure at a time.
    pub(super) fn at(&self, now: u64) -> Pressure {
        let is_passed = |until: &AtomicU64| now < until.load(Ordering::Relaxed);
        let (by_rate, by_load) = (is_passed(&self.rate_until), is_passed(&self.load_until));
        let doublings = if by_rate || by_load {
            self.doublings.load(Ordering::Relaxed)
        } else {
            0
        };
        Pressure {
            by_rate,
            by_errors: is_passed(&self.errors_until),
            by_load,
            doublings: u8::try_from(doublings).unwrap_or(u8::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5_000;

    /// The pressure after so many requests in a second, at 10 a second.
    fn after(requests: u64) -> (SitePressure, Pressure) {
        let thresholds = PressureThresholds {
            rate: Some((10, Duration::from_secs(1))),
            errors: None,
            load: None,
        };
        let site = SitePressure::default();
        assert!(!site.count_request(&thresholds, NOW, || 0));
        for _ in 1..requests {
            assert!(!site.count_request(&thresholds, NOW + INTERVAL - 1, || 0));
        }
        let is_new = site.count_request(&thresholds, NOW + INTERVAL, || 0);
        let pressure = site.at(NOW + INTERVAL);
        assert_eq!(is_new, pressure.by_rate);
        (site, pressure)
    }

    #[test]
    fn more_requests_than_the_threshold_are_pressure_and_as_many_are_none() {
        for (requests, by_rate, doublings) in [
            (9, false, 0),
            (10, false, 0),
            (11, true, 0),
            (19, true, 0),
            (20, true, 1),
            (80, true, 3),
        ] {
            let (_, pressure) = after(requests);
            let found = (pressure.by_rate, pressure.doublings);
            assert_eq!(found, (by_rate, doublings), "{requests}");
        }
    }

    #[test]
    fn pressure_ends_a_minute_after_it_was_measured_last() {
        let (site, _) = after(11);
        let measured = NOW + INTERVAL;
        assert!(site.at(measured + HOLD - 1).by_rate);
        assert_eq!(site.at(measured + HOLD), Pressure::default());
    }

    #[test]
    fn a_quiet_time_before_many_requests_hides_them_for_a_second_at_most() {
        let thresholds = PressureThresholds {
            rate: Some((600, Duration::from_secs(60))),
            errors: None,
            load: None,
        };
        let site = SitePressure::default();
        site.count_request(&thresholds, NOW, || 0);
        let later = NOW + 1_000_000;
        for _ in 0..50 {
            site.count_request(&thresholds, later, || 0);
        }
        assert!(!site.at(later).by_rate);
        site.count_request(&thresholds, later + INTERVAL, || 0);
        assert!(site.at(later + INTERVAL).by_rate);
    }

    #[test]
    fn a_share_of_errors_counts_from_twenty_responses_on() {
        for (responses, errors, expected) in [
            (19, 19, false),
            (20, 9, false),
            (20, 10, true),
            (21, 10, false),
            (1000, 1000, true),
        ] {
            let thresholds = PressureThresholds {
                rate: None,
                errors: Some(50),
                load: None,
            };
            let site = SitePressure::default();
            site.count_request(&thresholds, NOW, || 0);
            for number in 0..responses {
                site.count_response(number < errors);
            }
            site.count_request(&thresholds, NOW + INTERVAL, || 0);
            let found = site.at(NOW + INTERVAL).by_errors;
            assert_eq!(found, expected, "{errors} of {responses}");
        }
    }

    #[test]
    fn the_load_counts_from_the_threshold_on() {
        let thresholds = PressureThresholds {
            load: Some(80),
            ..PressureThresholds::default()
        };
        for (load, expected, doublings) in [(79, false, 0), (80, true, 0), (160, true, 1)] {
            let site = SitePressure::default();
            site.count_request(&thresholds, NOW, || load);
            site.count_request(&thresholds, NOW + INTERVAL, || load);
            let found = site.at(NOW + INTERVAL);
            assert_eq!((found.by_load, found.doublings), (expected, doublings));
        }
    }
}
