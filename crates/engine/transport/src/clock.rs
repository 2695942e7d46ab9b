//! The clock of a worker, which is read once per tick or poll of the worker instead of once per request.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use apus_http::fields::http_date_text;

/// The unit of deadlines, and the interval at which the clock of a busy worker advances.
pub const TICK: Duration = Duration::from_millis(250);

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The current time: on a worker's thread the time of its last tick, at most about 250 ms ago, for the
/// price of reading a variable; on other threads the time of the system.
pub fn coarse_now() -> Instant {
    NOW.get().unwrap_or_else(Instant::now)
}

/// The first tick at which `after` has certainly passed from the tick `since`.
pub fn deadline_from(since: u32, after: Duration) -> u32 {
    // The tick `since` may have begun almost a tick ago, so one more tick is added.
    let ticks = after.as_millis().div_ceil(TICK.as_millis());
    let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
    since.saturating_add(ticks).saturating_add(1)
}

/// The time of a worker: ticks for deadlines, and the `Date` field (RFC 9110 section 6.6.1).
pub struct WorkerClock {
    start: Instant,
    ticks: Cell<u32>,
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
}

impl WorkerClock {
    /// A clock that starts now, at tick 0.
    pub fn start() -> Self {
        let clock = Self {
            start: Instant::now(),
            ticks: Cell::new(0),
            second: Cell::new(u64::MAX),
            date: RefCell::new([b' '; 29]),
        };
        clock.advance();
        clock
    }

    /// Reads the time of the system.
    pub fn advance(&self) {
        let instant = Instant::now();
        NOW.set(Some(instant));
        let ticks = instant.duration_since(self.start).as_millis() / TICK.as_millis();
        // `u32::MAX` stands for a tick that is never reached.
        self.ticks.set(u32::try_from(ticks).unwrap_or(u32::MAX - 1));
        let now = SystemTime::now();
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_secs());
        // The text is made once a second, and not for each response.
        if self.second.replace(second) != second {
            let text = http_date_text(now);
            if let Ok(date) = <[u8; 29]>::try_from(text.as_bytes()) {
                self.date.replace(date);
            }
        }
    }

    /// Ticks since this worker started.
    pub fn ticks(&self) -> u32 {
        self.ticks.get()
    }

    /// The first tick at which `after` has certainly passed from now.
    pub fn deadline(&self, after: Duration) -> u32 {
        deadline_from(self.ticks.get(), after)
    }

    /// The time of a tick.
    pub fn time_of(&self, tick: u32) -> Instant {
        self.start + TICK.saturating_mul(tick)
    }

    /// The value of `Date`.
    pub fn date(&self) -> [u8; 29] {
        *self.date.borrow()
    }
}
