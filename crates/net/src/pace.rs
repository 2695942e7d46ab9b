//! How often a worker turns, which is to look at its clock and at what is past its time: every [`TICK`]
//! while something goes on, and while nothing does, when the next deadline is due, or after [`FARTHEST`].
//! A thread with nothing to do so sleeps as long as it may; that is what the cores of an idle machine need
//! to save power.
//!
//! It takes the runtime's word for that. A worker that has seen little in a tick is willing to sleep; when
//! its thread is then about to wait, nothing is left to be done. It sets its timer to the earliest
//! deadline, and if none was set meanwhile that is earlier, it sleeps at the next wait. Whatever ends
//! that wait, the clock moves on first, so that who reads it never sees the time before.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::clock::{Clock, TICK};
use crate::table::Table;

/// A worker turns after so long, though nothing is due: however busy it has become in the moment in which
/// it meant to sleep, its clock is not behind for longer.
const FARTHEST: Duration = Duration::from_secs(5);

/// A thread that waited so many times within a tick does not sleep. The timer of the tick itself ends a few
/// of them.
const QUIET_WAITS: u32 = 8;

thread_local! {
    static SLEEPER: Sleeper = const {
        Sleeper {
            stage: Cell::new(Stage::Awake),
            waits: Cell::new(0),
            worker: RefCell::new(None),
            waker: RefCell::new(None),
        }
    };
}

/// What the thread and the task that turns tell each other.
struct Sleeper {
    stage: Cell<Stage>,
    /// How often the thread waited, since some time.
    waits: Cell<u32>,
    /// What belongs to the worker of this thread.
    worker: RefCell<Option<(Rc<Clock>, Rc<Table>)>>,
    /// Of the task that turns.
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It turns at every tick.
    Awake,
    /// It would sleep, if the thread has nothing else to do.
    Willing,
    /// The thread has nothing else to do.
    Free,
    /// The timer is set for what is due at this tick.
    Ready(u32),
    /// The thread waits for that, or for something to happen.
    Asleep,
}

impl Sleeper {
    fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The tick at which the next connection is past its time.
    fn due(&self) -> u32 {
        let worker = self.worker.borrow();
        worker.as_ref().map_or(0, |(_, table)| table.due())
    }
}

/// To be called when a thread of a worker is about to wait.
pub(crate) fn before_wait() {
    SLEEPER.with(|sleeper| match sleeper.stage.get() {
        Stage::Ready(due) if sleeper.due() >= due => sleeper.stage.set(Stage::Asleep),
        Stage::Willing | Stage::Ready(_) => {
            sleeper.stage.set(Stage::Free);
            sleeper.wake();
        }
        Stage::Awake | Stage::Free | Stage::Asleep => {}
    });
}

/// To be called when a thread of a worker has waited, before anything else.
pub(crate) fn after_wait() {
    SLEEPER.with(|sleeper| {
        sleeper.waits.set(sleeper.waits.get().wrapping_add(1));
        if sleeper.stage.get() == Stage::Asleep {
            sleeper.stage.set(Stage::Awake);
            if let Some((clock, _)) = &*sleeper.worker.borrow() {
                clock.advance();
            }
            sleeper.wake();
        }
    });
}

/// When the worker of this thread turns.
pub(crate) struct Pace {
    clock: Rc<Clock>,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer may be further away than a tick.
    is_far: bool,
    /// How often the thread had waited at the last turn.
    waits: u32,
}

impl Pace {
    /// The pace of a worker that begins on this thread.
    pub(crate) fn new(clock: &Rc<Clock>, table: &Rc<Table>) -> Self {
        SLEEPER.with(|sleeper| {
            sleeper.stage.set(Stage::Awake);
            let worker = (Rc::clone(clock), Rc::clone(table));
            sleeper.worker.replace(Some(worker));
            Self {
                clock: Rc::clone(clock),
                timer: Box::pin(sleep(TICK)),
                is_far: false,
                waits: sleeper.waits.get(),
            }
        })
    }

    /// Waits until the worker has to turn.
    pub(crate) async fn next(&mut self) {
        poll_fn(|cx| SLEEPER.with(|sleeper| self.poll_next(sleeper, cx))).await;
    }

    fn poll_next(&mut self, sleeper: &Sleeper, cx: &mut Context<'_>) -> Poll<()> {
        sleeper.register(cx);
        let stage = sleeper.stage.get();
        if stage == Stage::Free || self.poll_timer(cx).is_ready() {
            return Poll::Ready(());
        }
        if stage == Stage::Awake && self.is_far {
            self.set_timer(Instant::now() + TICK);
            self.is_far = false;
        }
        self.poll_timer(cx)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }

    /// Notes that the worker turned, and has to do so again at the tick `by`, or when a connection is past
    /// its time.
    pub(crate) fn turned(&mut self, by: u32) {
        SLEEPER.with(|sleeper| {
            let waits = sleeper.waits.get();
            let is_quiet = waits.wrapping_sub(self.waits) <= QUIET_WAITS;
            self.waits = waits;
            let due = sleeper.due().min(by);
            let is_far = due > self.clock.ticks().saturating_add(1);
            self.is_far = is_far && sleeper.stage.get() == Stage::Free;
            sleeper.stage.set(match is_far {
                true if self.is_far => Stage::Ready(due),
                true if is_quiet => Stage::Willing,
                _ => Stage::Awake,
            });
            let now = Instant::now();
            match self.is_far {
                true => self.set_timer((now + FARTHEST).min(self.clock.time_of(due).into())),
                false => self.set_timer(now + TICK),
            }
        });
    }

    fn set_timer(&mut self, at: Instant) {
        // Put off, a timer would still wake the thread at the time that it was set for.
        if at > self.timer.deadline() {
            self.timer.set(sleep_until(at));
        } else {
            self.timer.as_mut().reset(at);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        SLEEPER.with(|sleeper| {
            sleeper.stage.set(Stage::Awake);
            sleeper.worker.take();
            sleeper.waker.take();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::runtime::{Builder, LocalRuntime};

    use super::*;
    use crate::clock::coarse_now;
    use crate::table::NEVER;

    /// A runtime like that of a worker.
    fn runtime() -> LocalRuntime {
        Builder::new_current_thread()
            .enable_all()
            .on_thread_park(before_wait)
            .on_thread_unpark(after_wait)
            .build_local(Default::default())
            .unwrap()
    }

    fn waits() -> u32 {
        SLEEPER.with(|sleeper| sleeper.waits.get())
    }

    /// Turns a worker with this table, as its loop does, and runs `test` beside that.
    fn beside_a_worker<T>(
        table: &Rc<Table>,
        clock: &Rc<Clock>,
        test: impl Future<Output = T>,
    ) -> T {
        runtime().block_on(async {
            let mut pace = Pace::new(clock, table);
            let mut test = std::pin::pin!(test);
            loop {
                tokio::select! {
                    biased;
                    result = &mut test => return result,
                    () = pace.next() => {
                        clock.advance();
                        table.sweep(clock);
                        pace.turned(NEVER);
                    }
                }
            }
        })
    }

    /// Waits until another thread has slept for so many ticks; tells how often this one woke up.
    async fn sleep_beside(ticks: u32) -> u32 {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let before = waits();
        std::thread::spawn(move || {
            let (_never, nothing) = std::sync::mpsc::channel::<()>();
            let _ = nothing.recv_timeout(TICK * ticks);
            sender.send(()).unwrap();
        });
        receiver.await.unwrap();
        waits() - before
    }

    #[test]
    fn a_worker_with_nothing_to_do_sleeps_and_wakes_up_to_the_right_time() {
        let (table, clock) = (Rc::default(), Rc::new(Clock::new()));
        beside_a_worker(&table, &clock, async {
            // The first ticks are those until it sleeps.
            while sleep_beside(8).await >= 8 {}
            let then = std::time::Instant::now() + TICK * 4;
            sleep_beside(4).await;
            assert!(clock.time_of(clock.ticks() + 1) >= then);
            assert!(coarse_now() >= then);
        });
    }

    #[test]
    fn a_deadline_ends_the_sleep() {
        let (table, clock) = (Rc::<Table>::default(), Rc::new(Clock::new()));
        beside_a_worker(&table, &clock, async {
            let place = table.enter(None, 0).unwrap();
            for _ in 0..2 {
                place.idle(&clock, TICK * 10);
                let before = Instant::now();
                let expired = place.wait(|_| Poll::<std::io::Result<()>>::Pending).await;
                assert_eq!(expired.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
                let waited = before.elapsed();
                assert!(waited >= TICK * 10, "{waited:?}");
                place.reprieve();
                place.untimed();
                while sleep_beside(4).await >= 4 {}
            }
        });
    }

    #[test]
    fn a_deadline_that_is_set_as_the_worker_goes_to_sleep_counts() {
        let (table, clock) = (Rc::<Table>::default(), Rc::new(Clock::new()));
        runtime().block_on(async {
            let mut pace = Pace::new(&clock, &table);
            let place = table.enter(None, 0).unwrap();
            place.idle(&clock, TICK * 100);
            pace.turned(NEVER);
            before_wait();
            pace.next().await;
            pace.turned(NEVER);
            // It is ready to sleep for long; but before the thread waits, another deadline is set.
            place.idle(&clock, TICK * 2);
            let before = Instant::now();
            while !place.expired() {
                pace.next().await;
                clock.advance();
                table.sweep(&clock);
                pace.turned(NEVER);
            }
            assert!(before.elapsed() < TICK * 50);
        });
    }
}
