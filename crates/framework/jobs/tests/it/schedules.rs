//! Schedules: times, several processes, missed times, overlaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use apus_clock::TestClock;
use apus_jobs::{Jobs, Schedules};
use apus_testkit::{block_on, eventually, logged};
use tokio::sync::Notify;

use crate::harness::{of_each, open};

/// Midnight.
fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_057_600)
}

const HOUR: Duration = Duration::from_secs(3600);

/// Lets tasks run until a number has the expected value, and a little longer.
async fn settles(count: &AtomicU32, expected: u32) {
    eventually("the runs", || count.load(Ordering::Relaxed) >= expected).await;
    // A run too many would come now.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(count.load(Ordering::Relaxed), expected);
}

fn counting(
    count: &Arc<AtomicU32>,
) -> impl AsyncFn() -> apus_handler::Result<()> + Send + Sync + use<> {
    let count = count.clone();
    async move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_task_runs_at_its_times() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze_at(start());
    let count = Arc::<AtomicU32>::default();
    let schedules = Schedules::new()
        .add("count", "0 3 * * *", counting(&count))
        .unwrap();
    assert!(
        Schedules::new()
            .add("a", "0 25 * * *", counting(&count))
            .is_err()
    );
    block_on(async {
        let times = async {
            settles(&count, 0).await;
            clock.advance(HOUR * 3 - Duration::from_secs(1));
            settles(&count, 0).await;
            clock.advance(Duration::from_secs(1));
            settles(&count, 1).await;
            clock.advance(HOUR * 24);
            settles(&count, 2).await;
            // The clock jumped over three times, which is one run.
            clock.advance(HOUR * 24 * 3);
            settles(&count, 3).await;
        };
        schedules.run(times).await;
    });
}

#[test]
fn an_error_and_a_panic_are_told_and_the_next_run_follows() {
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze_at(start());
    let count = Arc::<AtomicU32>::default();
    let counted = count.clone();
    let fails = async move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Err(std::io::Error::other("the disk is full")),
        _ => panic!("no"),
    };
    let schedules = Schedules::new().add("clean", "0 * * * *", fails).unwrap();
    let log = logged(|| {
        block_on(schedules.run(async {
            for expected in 1..=2 {
                // The schedule waits for the clock.
                tokio::time::sleep(Duration::from_millis(5)).await;
                clock.advance(HOUR);
                settles(&count, expected).await;
            }
        }));
    });
    for text in ["the disk is full", "it panicked: no", "schedule=\"clean\""] {
        assert!(log.contains(text), "{log}");
    }
}

#[test]
fn of_several_processes_one_runs_a_task() {
    for (jobs, fresh) in of_each("schedules") {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze_at(start());
        let count = Arc::<AtomicU32>::default();
        let schedules = |missed: bool| {
            // Each process has its own connections.
            let jobs = match &fresh {
                Some(fresh) => Jobs::in_database(&open(fresh)),
                None => jobs.clone(),
            };
            let schedules = Schedules::new().shared(&jobs);
            let schedules = schedules
                .add("shared", "0 * * * *", counting(&count))
                .unwrap();
            if missed {
                schedules.run_missed()
            } else {
                schedules
            }
        };
        block_on(async {
            let is_over = Notify::new();
            let times = async {
                settles(&count, 0).await;
                for expected in 1..=3 {
                    clock.advance(HOUR);
                    settles(&count, expected).await;
                }
                is_over.notify_waiters();
            };
            tokio::join!(
                schedules(false).run(is_over.notified()),
                schedules(false).run(is_over.notified()),
                schedules(false).run(is_over.notified()),
                times,
            );
            // No process runs for a while.
            clock.advance(HOUR * 5);
            schedules(false).run(settles(&count, 3)).await;
            schedules(true).run(settles(&count, 4)).await;
            schedules(true).run(settles(&count, 4)).await;
        });
    }
}

#[test]
fn a_task_that_still_runs_skips_its_next_time_unless_it_may_overlap() {
    for (may_overlap, expected) in [(false, 1), (true, 3)] {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze_at(start());
        let (count, released) = (Arc::<AtomicU32>::default(), Arc::new(Notify::new()));
        let (counted, wait) = (count.clone(), released.clone());
        let slow = async move || {
            counted.fetch_add(1, Ordering::Relaxed);
            wait.notified().await;
            Ok::<_, apus_handler::Error>(())
        };
        let schedules = Schedules::new().add("slow", "0 * * * *", slow).unwrap();
        let schedules = if may_overlap {
            schedules.may_overlap()
        } else {
            schedules
        };
        block_on(async {
            let times = async {
                settles(&count, 0).await;
                for hour in 1..=3 {
                    clock.advance(HOUR);
                    settles(&count, if may_overlap { hour } else { 1 }).await;
                }
                released.notify_waiters();
                settles(&count, expected).await;
                clock.advance(HOUR);
                settles(&count, expected + 1).await;
                released.notify_waiters();
            };
            schedules.run(times).await;
        });
    }
}
