//! Runners: several at once, stops, crashes, and what is seen of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use apus_clock::TestClock;
use apus_database::Db;
use apus_jobs::{JobRunner, Jobs};
use apus_testkit::{EmptyDatabase, block_on, eventually_async, logged};
use tokio::sync::Notify;

use crate::harness::{Slow, Task, Tried, counts, of_each, open, runner, task};

#[test]
fn runners_share_the_jobs() {
    for (jobs, _fresh) in of_each("shared") {
        let tried = Tried::default();
        block_on(async {
            for number in 0..60 {
                jobs.push(&task(&number.to_string(), 0)).await.unwrap();
            }
            let all_done = eventually_async("all jobs are done", async || {
                jobs.counts().await.unwrap() == counts(0, 0, 0, 0)
            });
            let done = Arc::new(Notify::new());
            let run = |runner: JobRunner| {
                let done = done.clone();
                async move { runner.run(async move { done.notified().await }).await }
            };
            let [one, other] = [(); 2].map(|()| runner(&jobs, &tried));
            let (one, other, ()) = tokio::join!(
                run(one.threads(2).concurrency(3)),
                run(other.concurrency(5)),
                async {
                    tokio::time::timeout(Duration::from_secs(30), all_done)
                        .await
                        .unwrap();
                    done.notify_waiters();
                }
            );
            one.unwrap();
            other.unwrap();
        });
        let mut names = tried.lock().unwrap().clone();
        names.sort_by_key(|name| name.parse::<u32>().unwrap());
        let expected: Vec<String> = (0..60).map(|number| number.to_string()).collect();
        assert_eq!(names, expected, "each of them once");
    }
}

#[test]
fn a_stop_waits_for_jobs_and_gives_back_those_that_take_longer() {
    for (timeout, expected) in [(10_000, counts(0, 0, 0, 0)), (0, counts(1, 0, 0, 0))] {
        let jobs = Jobs::in_memory();
        let (is_started, is_released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (started, released) = (is_started.clone(), is_released.clone());
        let slow = JobRunner::new(&jobs)
            .stop_timeout(Duration::from_millis(timeout))
            .on(async move |_: Task| {
                started.notify_one();
                released.notified().await;
                Ok::<_, apus_handler::Error>(())
            });
        block_on(async {
            jobs.push(&task("a", 0)).await.unwrap();
            let stop = async {
                is_started.notified().await;
                if timeout > 0 {
                    is_released.notify_one();
                }
            };
            slow.run(stop).await.unwrap();
            assert_eq!(jobs.counts().await.unwrap(), expected);
            // The attempt does not count.
            let tried = Tried::default();
            runner(&jobs, &tried).run_due().await.unwrap();
            assert!(jobs.dead(1).await.unwrap().is_empty());
        });
    }
}

/// The environment variable with the database of the process that is killed.
const KILLED: &str = "APUS_TEST_KILLED_RUNNER";

/// Not a separate test: the process of the next test.
#[test]
fn killed_runner_process() {
    let Ok(address) = std::env::var(KILLED) else {
        return;
    };
    let jobs = Jobs::in_database(&Db::open(&address).unwrap());
    let runner = JobRunner::new(&jobs)
        .visibility(Duration::from_secs(3))
        .on(async |_: Slow| {
            println!("\nthe job runs");
            std::future::pending::<apus_handler::Result<()>>().await
        });
    block_on(runner.run(std::future::pending())).unwrap();
}

#[test]
fn a_job_of_a_process_that_is_killed_runs_elsewhere() {
    for fresh in EmptyDatabase::of_each() {
        let jobs = Jobs::in_database(&open(&fresh));
        block_on(jobs.push(&Slow)).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["runner::killed_runner_process", "--exact", "--nocapture"])
            .env(KILLED, &fresh.address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = std::io::BufReader::new(process.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(output);
        assert!(lines.any(|line| line.unwrap().contains("the job runs")));
        let runs = Arc::<AtomicU32>::default();
        let counted = runs.clone();
        let runner = JobRunner::new(&jobs).on(async move |_: Slow| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, apus_handler::Error>(())
        });
        block_on(async {
            assert_eq!(runner.run_due().await.unwrap(), 0, "it runs there");
            process.kill().unwrap();
            process.wait().unwrap();
            eventually_async("the job is due again", async || {
                runner.run_due().await.unwrap() > 0
            })
            .await;
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_job_that_runs_long_is_not_given_to_another_runner() {
    const VISIBILITY: Duration = Duration::from_millis(100);
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    let jobs = Jobs::in_memory();
    let tries = Arc::<AtomicU32>::default();
    let is_released = Arc::new(Notify::new());
    let long = || {
        let (tries, is_released) = (tries.clone(), is_released.clone());
        JobRunner::new(&jobs)
            .visibility(VISIBILITY)
            .on(async move |_: Slow| {
                tries.fetch_add(1, Ordering::Relaxed);
                is_released.notified().await;
                Ok::<_, apus_handler::Error>(())
            })
    };
    block_on(async {
        jobs.push(&Slow).await.unwrap();
        let (first, second) = (long(), long());
        let others = async {
            for _ in 0..5 {
                clock.advance(VISIBILITY * 3 / 5);
                // The first runner renews the job in a third of that time: its timer is due before this one.
                tokio::time::sleep(VISIBILITY / 2).await;
                assert_eq!(second.run_due().await.unwrap(), 0);
            }
            is_released.notify_one();
        };
        let (first, ()) = tokio::join!(first.run_due(), others);
        assert_eq!(first.unwrap(), 1);
    });
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[test]
fn a_file_of_a_queue_that_is_gone_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none").join("a.db");
    assert!(!Path::new(&path).exists());
    let db: Db = Db::open(&format!("sqlite:{}", path.display())).unwrap();
    let jobs = Jobs::in_database(&db);
    let log = logged(|| {
        block_on(async {
            let stop = tokio::time::sleep(Duration::from_millis(1500));
            runner(&jobs, &Tried::default()).run(stop).await.unwrap();
            assert!(jobs.counts().await.is_err());
        });
    });
    assert_eq!(
        log.matches("their queue cannot be read").count(),
        1,
        "{log}"
    );
}
