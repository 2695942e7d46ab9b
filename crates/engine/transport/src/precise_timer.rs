//! A timer of microseconds, for load at a rate. The timers of the runtime count milliseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel, with its own descriptor.
#[derive(Debug)]
pub struct PreciseTimer(AsyncFd<OwnedFd>);

impl PreciseTimer {
    /// A timer on the runtime of this thread.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` is open until it is dropped, which `AsyncFd` does, and refers to the same timer all the time.
        let timer = unsafe { AsyncFd::register(timer) }?;
        Ok(Self(timer))
    }

    /// Sleeps for this time.
    ///
    /// # Errors
    /// The kernel refuses the timer, or the runtime ends.
    pub async fn sleep(&self, time: Duration) -> io::Result<()> {
        let value = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            // A timer of 0 would be switched off.
            tv_nsec: i64::from(time.subsec_nanos().max(1)),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut guard = self.0.readable().await?;
            let mut count = [0; 8];
            if let Ok(read) =
                guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?))
            {
                return read.map(drop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn sleeps_for_less_than_a_millisecond() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let timer = PreciseTimer::new().unwrap();
            let mut shortest = Duration::MAX;
            for _ in 0..50 {
                let begin = Instant::now();
                timer.sleep(Duration::from_micros(200)).await.unwrap();
                let slept = begin.elapsed();
                assert!(slept >= Duration::from_micros(200), "{slept:?}");
                shortest = shortest.min(slept);
            }
            assert!(shortest < Duration::from_millis(1), "{shortest:?}");
        });
    }
}
