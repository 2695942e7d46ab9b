//! When certificates are ordered and renewed.

use std::time::Duration;

use time::OffsetDateTime;

/// The first pause after a failure. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// The shortest pause after an authority refused an order because there were too many: their limits are by the hour.
const LIMITED_PAUSE: Duration = Duration::from_secs(3600);

/// When a certificate is renewed if its authority suggests no time: when a third of its lifetime is left, up to a
/// fiftieth of the lifetime earlier, so that certificates of one day do not all come on one day again. `fraction` is a
/// random number from 0 to 1.
pub(crate) fn renewal_time(
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    fraction: f64,
) -> OffsetDateTime {
    let lifetime = (not_after - not_before).max(time::Duration::ZERO);
    not_after - lifetime / 3 - lifetime * (fraction.clamp(0.0, 1.0) / 50.0)
}

/// A random time of the window that an authority suggests (RFC 9773 section 4.2).
pub(crate) fn time_in_window(
    start: OffsetDateTime,
    end: OffsetDateTime,
    fraction: f64,
) -> OffsetDateTime {
    start + (end - start).max(time::Duration::ZERO) * fraction.clamp(0.0, 1.0)
}

/// The pause after this many failures in a row: from a minute to a day, and up to a quarter longer by a random number
/// from 0 to 1.
pub(crate) fn pause_after(failures: u32, is_rate_limited: bool, fraction: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let pause = FIRST_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE);
    let pause = if is_rate_limited {
        pause.max(LIMITED_PAUSE)
    } else {
        pause
    };
    pause.mul_f64(1.0 + fraction.clamp(0.0, 1.0) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_certificate_is_renewed_with_a_third_of_its_lifetime_left() {
        let (from, to) = (
            datetime!(2026-01-01 0:00 UTC),
            datetime!(2026-04-01 0:00 UTC),
        );
        assert_eq!(renewal_time(from, to, 0.0), datetime!(2026-03-02 0:00 UTC));
        assert_eq!(renewal_time(from, to, 1.0), datetime!(2026-02-28 4:48 UTC));
        // One whose times are wrong is renewed now.
        assert_eq!(renewal_time(to, from, 0.5), from);
    }

    #[test]
    fn a_suggested_window_is_used_evenly() {
        let (from, to) = (
            datetime!(2026-01-01 0:00 UTC),
            datetime!(2026-01-03 0:00 UTC),
        );
        assert_eq!(time_in_window(from, to, 0.0), from);
        assert_eq!(
            time_in_window(from, to, 0.5),
            datetime!(2026-01-02 0:00 UTC)
        );
        assert_eq!(time_in_window(from, to, 1.0), to);
        assert_eq!(time_in_window(to, from, 0.5), to);
    }

    #[test]
    fn pauses_double_up_to_a_day() {
        let seconds = |failures| pause_after(failures, false, 0.0).as_secs();
        assert_eq!([0, 1, 2, 3].map(seconds), [60, 60, 120, 240]);
        assert_eq!(
            [11, 12, 13, u32::MAX].map(seconds),
            [61_440, 86_400, 86_400, 86_400]
        );
        assert_eq!(pause_after(1, false, 1.0).as_secs(), 75);
        assert_eq!(pause_after(1, true, 0.0).as_secs(), 3600);
        assert_eq!(pause_after(8, true, 0.0).as_secs(), 7680);
    }
}
