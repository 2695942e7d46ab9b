//! Workers that crash, hang or do not boot, and the responses to their requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use apus_http::{Body, Method, StatusCode};
use apus_php::plan::{ApplicationMode, Launch, PhpCgiPlan, WorkerPoolPlan};
use apus_php::{WorkerError, WorkerPool};
use apus_testkit::{eventually, eventually_async};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_local;

use crate::harness::{Application, TIMEOUT, WAIT_FOR_GO, get, is_alive, read, request, run, until};

fn kill(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// Waits until a process has ended.
async fn process_end(pid: i32) {
    eventually("the process has ended", || !is_alive(pid)).await;
}

#[test]
fn killed_workers_lose_no_request_that_can_be_retried() {
    let application = Application::new("usleep(2000); echo $_SERVER['REQUEST_URI'];");
    let plan = WorkerPoolPlan {
        min: 3,
        max: 3,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let response_counts: Rc<[Cell<usize>; 8]> = Rc::default();
        let is_over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (pool, response_counts, is_over) =
                    (pool.clone(), response_counts.clone(), is_over.clone());
                spawn_local(async move {
                    while !is_over.get() {
                        let number = response_counts[client].get();
                        let target = format!("/{client}/{number}");
                        let response = get(&pool, &target).await.unwrap();
                        assert_eq!(response.text, target);
                        response_counts[client].set(number + 1);
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            // All workers are ready, and each request began after the last kill: none can be hit twice.
            let old: Vec<usize> = response_counts.iter().map(Cell::get).collect();
            let before = until(&pool, |status| {
                status.workers.len() == 3
                    && status.workers.iter().any(|one| one.busy)
                    && old
                        .iter()
                        .zip(response_counts.iter())
                        .all(|(old, new)| *old < new.get())
            })
            .await;
            let busy = before.workers.iter().find(|one| one.busy).unwrap();
            kill(busy.pid);
            let pid = busy.pid;
            until(&pool, |status| {
                status.workers.iter().all(|one| one.pid != pid)
            })
            .await;
        }
        is_over.set(true);
        for client in clients {
            client.await.unwrap();
        }
        until(&pool, |status| status.workers.len() == 3).await;
        pool.stop().await;
    });
}

#[test]
fn requests_that_cannot_be_retried_are_sent_once() {
    let application = Application::new(
        "file_put_contents(__DIR__ . '/count', 'x', FILE_APPEND); posix_kill(getmypid(), 9);",
    );
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let post = request(Method::POST, "/", "once");
        let error = pool.send(post).await.unwrap_err();
        assert!(matches!(error, WorkerError::Crashed), "{error}");
        let count = || std::fs::read(application.path("count")).unwrap().len();
        assert_eq!(count(), 1);
        // An idempotent request is retried, up to a limit.
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::Crashed), "{error}");
        assert_eq!(count(), 4);
        assert_eq!(pool.status().totals.retries, 2);
        pool.stop().await;
    });
}

#[test]
fn a_worker_that_crashed_while_idle_gets_no_request() {
    let application = Application::new("echo getmypid();");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        for _ in 0..5 {
            let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
            kill(pid);
            until(&pool, |status| {
                status.workers.iter().any(|one| one.pid != pid)
            })
            .await;
            let post = request(Method::POST, "/", Body::Empty);
            let other: i32 = read(pool.send(post).await.unwrap())
                .await
                .text
                .parse()
                .unwrap();
            assert_ne!(other, pid);
        }
        assert_eq!(pool.status().totals.crashes, 0);
        pool.stop().await;
    });
}

#[test]
fn a_worker_that_hangs_is_killed_and_replaced() {
    let application = Application::new(
        "if (isset($_GET['hang'])) { while (true) { hrtime(); } } echo getmypid();",
    );
    let plan = WorkerPoolPlan {
        max: 1,
        execution_limit: Duration::from_millis(300),
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        let error = get(&pool, "/?hang=1").await.unwrap_err();
        assert!(matches!(error, WorkerError::TimedOut), "{error}");
        let other: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        assert_ne!(other, pid);
        process_end(pid).await;
        assert_eq!(pool.status().totals.timeouts, 1);
        pool.stop().await;
    });
}

#[test]
fn an_application_that_does_not_boot_reports_why_and_is_retried() {
    let application = Application::new("this is no PHP;");
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let error = get(&pool, "/").await.unwrap_err();
        let WorkerError::Boot { message, .. } = &error else {
            panic!("{error}");
        };
        assert!(message.contains("syntax error"), "{message}");
        assert!(message.contains("index.php"), "{message}");
        let status = until(&pool, |status| status.totals.boot_failures >= 3).await;
        // The delay doubles with each attempt.
        assert!(status.totals.boots <= 4, "{status:?}");
        assert_eq!(status.last_error.as_ref(), Some(message));
        application.write(
            "index.php",
            "while (frankenphp_handle_request(function () { echo 'well'; })) {}",
        );
        let response = eventually_async("it boots", async || match get(&pool, "/").await {
            Ok(response) => Some(response),
            Err(WorkerError::Boot { .. }) => None,
            Err(other) => panic!("{other}"),
        });
        assert_eq!(response.await.text, "well");
        pool.stop().await;
    });
}

/// Messages that a boot logs after its worker has reported the failure.
const LATE_WORD: &str = "register_shutdown_function(function () { register_shutdown_function(function () { \
                         usleep(50000); error_log('a late word'); }); });";

/// A boot that fails.
struct FailedBoot {
    code: String,
    /// The beginning of the reason.
    report: &'static str,
    /// Its end: what else was logged.
    logged: &'static str,
}

impl FailedBoot {
    fn of(code: &str, report: &'static str, logged: &'static str) -> Self {
        Self {
            code: code.to_owned(),
            report,
            logged,
        }
    }

    /// Checks that each of three attempts has the same reason.
    async fn check(&self, mode: ApplicationMode) {
        let application = Application::new(&self.code);
        let pool = WorkerPool::start(WorkerPoolPlan {
            mode,
            ..application.plan()
        });
        let pool = pool.unwrap();
        let first = until(&pool, |status| status.totals.boot_failures >= 1).await;
        let first = first.last_error.unwrap();
        let is_complete = first.starts_with(self.report) && first.ends_with(self.logged);
        assert!(is_complete, "{first}");
        let is_repeated = first.contains("PHP Fatal error") || first.contains("PHP Parse error");
        assert!(!is_repeated, "{first}");
        for count in 2..=3 {
            let status = until(&pool, |status| status.totals.boot_failures >= count).await;
            assert_eq!(status.last_error.as_ref(), Some(&first));
        }
        pool.stop().await;
    }
}

#[test]
fn the_reason_of_a_failed_boot_does_not_depend_on_whether_the_log_or_the_report_comes_first() {
    let late = format!("error_log('an early word'); {LATE_WORD} throw new Exception('no');");
    let boots = [
        FailedBoot::of("this is no PHP;", "syntax error", "index.php:2"),
        FailedBoot::of(
            "throw new Exception('not today');",
            "Uncaught Exception: not today",
            "index.php:2",
        ),
        FailedBoot::of(
            &late,
            "Uncaught Exception: no",
            "\nan early word\na late word",
        ),
        FailedBoot::of(
            "error_log('first'); error_log('second'); exit;",
            "the script ended before it was ready",
            "\nfirst\nsecond",
        ),
        FailedBoot::of(
            "error_log('to be killed'); posix_kill(getmypid(), 9);",
            "the FastCGI server at unix:",
            "it closed the connection before the boot ended\nto be killed",
        ),
    ];
    run(async {
        let attempts = boots.into_iter().map(|boot| {
            spawn_local(async move {
                boot.check(ApplicationMode::Worker).await;
                boot.check(ApplicationMode::Native).await;
            })
        });
        for attempt in attempts.collect::<Vec<_>>() {
            attempt.await.unwrap();
        }
    });
}

#[test]
fn the_reason_of_a_boot_that_takes_too_long_has_what_it_logged() {
    let application = Application::new("error_log('connecting'); while (true) { hrtime(); }");
    let pool = WorkerPool::start(WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        boot_limit: Duration::from_secs(1),
        ..application.plan()
    });
    let pool = pool.unwrap();
    run(async {
        // On a busy machine, the time of an attempt can be over before PHP has come to the script.
        until(&pool, |status| {
            let reason = status.last_error.as_deref();
            reason == Some("the application did not boot in time\nconnecting")
        })
        .await;
        pool.stop().await;
    });
}

#[test]
fn a_program_that_is_not_php_is_restarted_with_delays() {
    let application = Application::new("");
    let plan = WorkerPoolPlan {
        launch: Launch::PhpCgi(PhpCgiPlan {
            program: "/bin/false".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            account: None,
        }),
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let error = get(&pool, "/").await.unwrap_err();
        let WorkerError::Boot { message, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(&**message, "PHP ended by itself: exit status: 1");
        let status = until(&pool, |status| status.totals.boot_failures >= 3).await;
        assert!(status.totals.boots <= 6, "{status:?}");
        assert_eq!(status.last_error.as_ref(), Some(message));
        pool.stop().await;
    });
}

#[test]
fn a_missing_script_or_program_fails_the_start() {
    let application = Application::new("");
    let no_script = WorkerPoolPlan {
        script: application.path("none.php"),
        ..application.plan()
    };
    let error = WorkerPool::start(no_script).unwrap_err().to_string();
    assert!(error.contains("none.php"), "{error}");
    let no_program = WorkerPoolPlan {
        launch: Launch::PhpCgi(PhpCgiPlan {
            program: "/no/php".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            account: None,
        }),
        ..application.plan()
    };
    let error = WorkerPool::start(no_program).unwrap_err().to_string();
    assert!(error.contains("/no/php"), "{error}");
}

#[test]
fn requests_wait_in_a_bounded_queue() {
    let application = Application::new(&format!("{WAIT_FOR_GO} echo 'done';"));
    let plan = WorkerPoolPlan {
        max: 1,
        queue: 2,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        let spawn_request = || {
            let pool = pool.clone();
            spawn_local(async move { get(&pool, "/").await })
        };
        let busy = spawn_request();
        until(&pool, |status| status.workers[0].busy).await;
        let waiting = [spawn_request(), spawn_request()];
        until(&pool, |status| status.waiting == 2).await;
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::QueueFull), "{error}");
        // An aborted request leaves the queue.
        let [first, second] = waiting;
        second.abort();
        until(&pool, |status| status.waiting == 1).await;
        application.write("go", "");
        for served in [busy, first] {
            assert_eq!(served.await.unwrap().unwrap().text, "done");
        }
        pool.stop().await;
    });
}

#[test]
fn a_request_in_the_queue_times_out() {
    let application = Application::new(WAIT_FOR_GO);
    let plan = WorkerPoolPlan {
        max: 1,
        queue_limit: Duration::from_millis(50),
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        let busy = {
            let pool = pool.clone();
            spawn_local(async move { get(&pool, "/").await })
        };
        until(&pool, |status| status.workers[0].busy).await;
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::QueueTimedOut), "{error}");
        assert_eq!(pool.status().waiting, 0);
        application.write("go", "");
        assert_eq!(busy.await.unwrap().unwrap().response.status, StatusCode::OK);
        pool.stop().await;
    });
}

#[test]
fn an_aborted_request_does_not_end_its_worker() {
    let application = Application::new(&format!(
        "if (isset($_GET['wait'])) {{ {WAIT_FOR_GO} }} echo getmypid();"
    ));
    let plan = WorkerPoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let pid = get(&pool, "/").await.unwrap().text;
        for _ in 0..5 {
            let aborted = {
                let pool = pool.clone();
                spawn_local(async move { get(&pool, "/?wait=1").await })
            };
            until(&pool, |status| status.workers[0].busy).await;
            aborted.abort();
            application.write("go", "");
            assert_eq!(get(&pool, "/").await.unwrap().text, pid);
            std::fs::remove_file(application.path("go")).unwrap();
        }
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
    });
}

#[test]
fn stopping_leaves_no_process_and_no_socket() {
    let application = Application::new("echo getmypid();");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        assert!(is_alive(pid));
        tokio::time::timeout(TIMEOUT, pool.stop()).await.unwrap();
        process_end(pid).await;
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::Stopping), "{error}");
        let left = std::fs::read_dir(application.path("run")).unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".php"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_worker_that_ends_before_its_first_request_is_restarted_with_delays() {
    let application = Application::new("");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        let mut before = 0;
        for _ in 0..4 {
            let status = until(&pool, |status| {
                status.workers.first().is_some_and(|one| one.pid != before)
            })
            .await;
            before = status.workers[0].pid;
            kill(before);
        }
        let status = until(&pool, |status| status.totals.boot_failures == 4).await;
        let error = status.last_error.unwrap();
        assert!(error.contains("before its first request"), "{error}");
        // After the fourth there is a pause of more than a second.
        assert_eq!(pool.status().totals.boots, 4);
        pool.stop().await;
    });
}

#[test]
fn a_folder_with_a_name_too_long_for_a_socket_fails_the_start() {
    let application = Application::new("");
    let plan = WorkerPoolPlan {
        folder: application.path(&"x".repeat(120)),
        ..application.plan()
    };
    let error = WorkerPool::start(plan).unwrap_err().to_string();
    assert!(error.contains("xxx"), "{error}");
}
