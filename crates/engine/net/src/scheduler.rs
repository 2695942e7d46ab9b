//! The scheduler of a worker's ticks, at which it reads its clock and expires deadlines.
//!
//! A worker ticks every [`TICK`] while it is busy, and at the next deadline while it is idle. An idle thread
//! sleeps as long as possible, so that the cores of an idle machine can save power.
//!
//! The hooks of the runtime before and after a wait of the thread show whether it is idle. After a tick with
//! few waits the worker is ready to sleep. When its thread is about to wait, no work is left: it ticks once
//! more, and sets a timer for the earliest deadline. If no earlier one is set meanwhile, the next wait is
//! without the timer of the tick. Whatever ends that wait, the clock advances first, so that its readers
//! never see the old time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use apus_transport::{TICK, WorkerClock};
use tokio::time::{Sleep, sleep, sleep_until};

use crate::connection_table::ConnectionTable;

/// A thread that waited more often than this within a tick does not sleep. The timer of the tick itself ends
/// a few of the waits.
const QUIET_WAITS: u32 = 8;

thread_local! {
    static IDLE_TIMER: IdleTimer = const {
        IdleTimer {
            stage: Cell::new(SleepStage::Awake),
            waits: Cell::new(0),
            worker: RefCell::new(None),
        }
    };
}

/// The state that the hooks of the thread's waits share with the task that ticks.
struct IdleTimer {
    stage: Cell<SleepStage>,
    /// How often the thread waited, modulo 2^32.
    waits: Cell<u32>,
    worker: RefCell<Option<WorkerTimers>>,
}

/// The worker of a thread.
struct WorkerTimers {
    clock: Rc<WorkerClock>,
    table: Rc<ConnectionTable>,
    /// Fires a tick after the last one.
    tick: Option<Pin<Box<Sleep>>>,
    /// Fires at the first deadline, if the thread is about to sleep.
    alarm: Option<Pin<Box<Sleep>>>,
    /// The waker of the task that ticks.
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SleepStage {
    /// The worker ticks at every interval.
    Awake,
    /// The worker would sleep if the thread had no other work.
    Willing,
    /// The thread has no other work.
    Free,
    /// The alarm is set for a deadline at this tick.
    Ready(u32),
    /// The thread waits for the alarm, or for any event.
    Asleep,
    /// That wait has ended.
    Slept,
}

/// The hook of the runtime before a thread of a worker waits.
pub(crate) fn before_wait() {
    IDLE_TIMER.with(|timer| {
        let stage = timer.stage.get();
        // This runs before each wait of a busy worker, so it is one comparison there.
        if !matches!(stage, SleepStage::Willing | SleepStage::Ready(_)) {
            return;
        }
        let Some(worker) = &mut *timer.worker.borrow_mut() else {
            return;
        };
        match stage {
            SleepStage::Ready(due) if worker.table.due() >= due => {
                // A wait of the runtime includes only the timers that are set when it begins: a timer that is
                // set here would end the wait at once, and one that is dropped here does not.
                worker.tick = None;
                timer.stage.set(SleepStage::Asleep);
            }
            _ => {
                timer.stage.set(SleepStage::Free);
                worker.waker.wake_by_ref();
            }
        }
    });
}

/// The hook of the runtime after a thread of a worker has waited, before anything else.
pub(crate) fn after_wait() {
    IDLE_TIMER.with(|timer| {
        timer.waits.set(timer.waits.get().wrapping_add(1));
        if timer.stage.get() == SleepStage::Asleep {
            timer.stage.set(SleepStage::Slept);
            if let Some(worker) = &*timer.worker.borrow() {
                worker.clock.advance();
                worker.waker.wake_by_ref();
            }
        }
    });
}

/// Schedules the ticks of the worker of this thread.
pub(crate) struct TickScheduler {
    /// How often the thread had waited at the last tick.
    waits: u32,
}

impl TickScheduler {
    /// The scheduler of a new worker on this thread.
    pub(crate) fn new(clock: &Rc<WorkerClock>, table: &Rc<ConnectionTable>) -> Self {
        IDLE_TIMER.with(|timer| {
            timer.stage.set(SleepStage::Awake);
            timer.worker.replace(Some(WorkerTimers {
                clock: Rc::clone(clock),
                table: Rc::clone(table),
                tick: Some(Box::pin(sleep(TICK))),
                alarm: None,
                waker: Waker::noop().clone(),
            }));
            Self {
                waits: timer.waits.get(),
            }
        })
    }

    /// Waits until the next tick.
    pub(crate) async fn next(&mut self) {
        poll_fn(|cx| IDLE_TIMER.with(|timer| timer.poll_next(cx))).await;
    }

    /// Schedules the next tick after one: at the tick `by` at the latest, or when a deadline passes.
    pub(crate) fn schedule_next(&mut self, by: u32) {
        IDLE_TIMER.with(|timer| {
            let waits = timer.waits.get();
            let is_quiet = waits.wrapping_sub(self.waits) <= QUIET_WAITS;
            self.waits = waits;
            if let Some(worker) = &mut *timer.worker.borrow_mut() {
                let stage = worker.stage_from(timer.stage.get(), is_quiet, by);
                timer.stage.set(stage);
            }
        });
    }
}

impl WorkerTimers {
    /// Sets the timers after a tick, and returns the next stage.
    fn stage_from(&mut self, stage: SleepStage, is_quiet: bool, by: u32) -> SleepStage {
        self.tick = Some(Box::pin(sleep(TICK)));
        self.alarm = None;
        let due = self.table.due().min(by);
        let is_far = due > self.clock.ticks().saturating_add(1);
        if is_far && stage == SleepStage::Free {
            let at = self.clock.time_of(due);
            self.alarm = Some(Box::pin(sleep_until(at.into())));
            SleepStage::Ready(due)
        } else if is_far && is_quiet {
            SleepStage::Willing
        } else {
            SleepStage::Awake
        }
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timers = [&mut self.tick, &mut self.alarm];
        let polled = timers.map(|timer| {
            timer
                .as_mut()
                .is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
        });
        match polled {
            [false, false] => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl IdleTimer {
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(worker) = &mut *self.worker.borrow_mut() else {
            return Poll::Pending;
        };
        worker.waker.clone_from(cx.waker());
        if self.stage.get() == SleepStage::Free {
            return Poll::Ready(());
        }
        let polled = worker.poll_timers(cx);
        if polled.is_pending() && self.stage.get() == SleepStage::Slept {
            self.stage.set(SleepStage::Awake);
            worker.alarm = None;
            worker.tick = Some(Box::pin(sleep(TICK)));
            return worker.poll_timers(cx);
        }
        polled
    }
}

impl Drop for TickScheduler {
    fn drop(&mut self) {
        IDLE_TIMER.with(|timer| {
            timer.stage.set(SleepStage::Awake);
            timer.worker.take();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::time::Instant;

    use tokio::runtime::{Builder, LocalRuntime};

    use super::*;
    use crate::connection_table::NEVER;
    use apus_transport::coarse_now;

    /// A runtime as a worker has it.
    fn runtime() -> LocalRuntime {
        Builder::new_current_thread()
            .enable_all()
            .on_thread_park(before_wait)
            .on_thread_unpark(after_wait)
            .build_local(Default::default())
            .unwrap()
    }

    fn waits() -> u32 {
        IDLE_TIMER.with(|timer| timer.waits.get())
    }

    /// Ticks as the loop of a worker does with this table, and runs `test` beside that.
    fn beside_a_worker<T>(
        table: &Rc<ConnectionTable>,
        clock: &Rc<WorkerClock>,
        test: impl Future<Output = T>,
    ) -> T {
        runtime().block_on(async {
            let mut scheduler = TickScheduler::new(clock, table);
            let mut test = std::pin::pin!(test);
            loop {
                tokio::select! {
                    biased;
                    result = &mut test => return result,
                    () = scheduler.next() => {
                        clock.advance();
                        table.sweep(clock);
                        scheduler.schedule_next(NEVER);
                    }
                }
            }
        })
    }

    /// Waits until another thread has slept for these ticks; returns how often this one woke up.
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
        let (table, clock) = (Rc::default(), Rc::new(WorkerClock::start()));
        beside_a_worker(&table, &clock, async {
            // The first ticks are those before it sleeps.
            while sleep_beside(8).await >= 8 {}
            let then = Instant::now() + TICK * 4;
            sleep_beside(4).await;
            assert!(clock.time_of(clock.ticks() + 1) >= then);
            assert!(coarse_now() >= then);
        });
    }

    #[test]
    fn a_deadline_ends_the_sleep() {
        let (table, clock) = (
            Rc::<ConnectionTable>::default(),
            Rc::new(WorkerClock::start()),
        );
        beside_a_worker(&table, &clock, async {
            let slot = table.enter(None, 0).unwrap();
            for _ in 0..2 {
                slot.set_kept(&clock, TICK * 10);
                let before = Instant::now();
                let expired = slot.wait(|_| Poll::<std::io::Result<()>>::Pending).await;
                assert_eq!(expired.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
                let waited = before.elapsed();
                assert!(waited >= TICK * 10, "{waited:?}");
                slot.renew();
                slot.clear_deadline();
                while sleep_beside(4).await >= 4 {}
            }
        });
    }

    /// The scheduler of a worker that sleeps at the next wait of its thread.
    async fn about_to_sleep(clock: &Rc<WorkerClock>, table: &Rc<ConnectionTable>) -> TickScheduler {
        let mut scheduler = TickScheduler::new(clock, table);
        scheduler.schedule_next(NEVER);
        before_wait();
        scheduler.next().await;
        scheduler.schedule_next(NEVER);
        assert!(IDLE_TIMER.with(|timer| matches!(timer.stage.get(), SleepStage::Ready(_))));
        scheduler
    }

    #[test]
    fn a_deadline_that_is_set_as_the_worker_goes_to_sleep_counts() {
        let (table, clock) = (
            Rc::<ConnectionTable>::default(),
            Rc::new(WorkerClock::start()),
        );
        runtime().block_on(async {
            let slot = table.enter(None, 0).unwrap();
            slot.set_kept(&clock, TICK * 100);
            let mut scheduler = about_to_sleep(&clock, &table).await;
            // Before the thread waits, another deadline is set.
            slot.set_kept(&clock, TICK * 2);
            let before = Instant::now();
            while !slot.is_expired() {
                scheduler.next().await;
                clock.advance();
                table.sweep(&clock);
                scheduler.schedule_next(NEVER);
            }
            assert!(before.elapsed() < TICK * 50);
        });
    }

    #[test]
    fn a_worker_that_becomes_busy_as_it_goes_to_sleep_ticks_at_the_next_interval() {
        let (table, clock) = (Rc::default(), Rc::new(WorkerClock::start()));
        runtime().block_on(async {
            let mut scheduler = about_to_sleep(&clock, &table).await;
            let before = Instant::now();
            // The thread does not wait from here on.
            let busy = async {
                loop {
                    assert!(before.elapsed() < TICK * 100, "it does not turn");
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = scheduler.next() => {}
                () = busy => {}
            }
        });
    }
}
