//! Workers that die, hang, or never come to life, and what their requests get.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use apus_http::{Body, Method, StatusCode};
use apus_php::plan::{Launch, Own, PoolPlan};
use apus_php::{Failure, Pool};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_local;

use crate::harness::{Application, PATIENCE, get, is_alive, read, request, run, until};

fn kill(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// Waits until a process is gone.
async fn gone(pid: i32) {
    while is_alive(pid) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn workers_that_are_killed_lose_nothing_that_may_be_sent_again() {
    let application = Application::new("usleep(2000); echo $_SERVER['REQUEST_URI'];");
    let plan = PoolPlan {
        min: 3,
        max: 3,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let answered: Rc<[Cell<usize>; 8]> = Rc::default();
        let is_over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (pool, answered, is_over) = (pool.clone(), answered.clone(), is_over.clone());
                spawn_local(async move {
                    while !is_over.get() {
                        let number = answered[client].get();
                        let target = format!("/{client}/{number}");
                        let answer = get(&pool, &target).await.unwrap();
                        assert_eq!(answer.text, target);
                        answered[client].set(number + 1);
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            // With all workers there, and each request newer than the last death, none meets more than one.
            let old: Vec<usize> = answered.iter().map(Cell::get).collect();
            let before = until(&pool, |status| {
                status.workers.len() == 3
                    && status.workers.iter().any(|one| one.busy)
                    && old
                        .iter()
                        .zip(answered.iter())
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
fn what_may_not_be_sent_again_is_not() {
    let application = Application::new(
        "file_put_contents(__DIR__ . '/count', 'x', FILE_APPEND); posix_kill(getmypid(), 9);",
    );
    let pool = Pool::start(application.plan()).unwrap();
    run(async {
        let asked = request(Method::POST, "/", "once");
        let failure = pool.send(asked).await.unwrap_err();
        assert!(matches!(failure, Failure::Crashed), "{failure}");
        let count = || std::fs::read(application.path("count")).unwrap().len();
        assert_eq!(count(), 1);
        // A request that may is tried again, but not for ever.
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::Crashed), "{failure}");
        assert_eq!(count(), 4);
        assert_eq!(pool.status().totals.retries, 2);
        pool.stop().await;
    });
}

#[test]
fn a_worker_that_died_while_idle_gets_no_request() {
    let application = Application::new("echo getmypid();");
    let pool = Pool::start(application.plan()).unwrap();
    run(async {
        for _ in 0..5 {
            let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
            kill(pid);
            until(&pool, |status| {
                status.workers.iter().any(|one| one.pid != pid)
            })
            .await;
            let asked = request(Method::POST, "/", Body::Empty);
            let other: i32 = read(pool.send(asked).await.unwrap())
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
fn a_worker_that_hangs_is_killed_and_another_takes_its_place() {
    let application = Application::new(
        "if (isset($_GET['hang'])) { while (true) { hrtime(); } } echo getmypid();",
    );
    let plan = PoolPlan {
        max: 1,
        execution_limit: Duration::from_millis(300),
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        let failure = get(&pool, "/?hang=1").await.unwrap_err();
        assert!(matches!(failure, Failure::TimedOut), "{failure}");
        let other: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        assert_ne!(other, pid);
        gone(pid).await;
        assert_eq!(pool.status().totals.timeouts, 1);
        pool.stop().await;
    });
}

#[test]
fn an_application_that_does_not_boot_says_why_and_is_tried_again_later() {
    let application = Application::new("this is no PHP;");
    let plan = PoolPlan {
        mode: apus_php::plan::Mode::Worker,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let failure = get(&pool, "/").await.unwrap_err();
        let Failure::Boot { message, .. } = &failure else {
            panic!("{failure}");
        };
        assert!(message.contains("syntax error"), "{message}");
        assert!(message.contains("index.php"), "{message}");
        let status = until(&pool, |status| status.totals.boot_failures >= 3).await;
        // Each attempt waits twice as long: no storm.
        assert!(status.totals.boots <= 4, "{status:?}");
        assert_eq!(status.last_error.as_ref(), Some(message));
        application.write(
            "index.php",
            "while (frankenphp_handle_request(function () { echo 'well'; })) {}",
        );
        loop {
            match get(&pool, "/").await {
                Ok(answer) => {
                    assert_eq!(answer.text, "well");
                    break;
                }
                Err(Failure::Boot { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{other}"),
            }
        }
        pool.stop().await;
    });
}

#[test]
fn a_program_that_is_no_php_is_not_started_in_a_storm() {
    let application = Application::new("");
    let plan = PoolPlan {
        launch: Launch::Own(Own {
            program: "/bin/false".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            account: None,
        }),
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::Boot { .. }), "{failure}");
        let status = until(&pool, |status| status.totals.boot_failures >= 3).await;
        assert!(status.totals.boots <= 6, "{status:?}");
        pool.stop().await;
    });
}

#[test]
fn what_is_not_there_is_told_at_the_start() {
    let application = Application::new("");
    let no_script = PoolPlan {
        script: application.path("none.php"),
        ..application.plan()
    };
    let error = Pool::start(no_script).unwrap_err().to_string();
    assert!(error.contains("none.php"), "{error}");
    let no_program = PoolPlan {
        launch: Launch::Own(Own {
            program: "/no/php".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            account: None,
        }),
        ..application.plan()
    };
    let error = Pool::start(no_program).unwrap_err().to_string();
    assert!(error.contains("/no/php"), "{error}");
}

#[test]
fn requests_wait_in_a_line_that_has_an_end() {
    let application = Application::new("usleep(200000); echo 'done';");
    let plan = PoolPlan {
        max: 1,
        queue: 2,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        let ask = || {
            let pool = pool.clone();
            spawn_local(async move { get(&pool, "/").await })
        };
        let busy = ask();
        until(&pool, |status| status.workers[0].busy).await;
        let waiting = [ask(), ask()];
        until(&pool, |status| status.waiting == 2).await;
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::QueueFull), "{failure}");
        // Who goes away leaves the line.
        let [first, second] = waiting;
        second.abort();
        until(&pool, |status| status.waiting == 1).await;
        for served in [busy, first] {
            assert_eq!(served.await.unwrap().unwrap().text, "done");
        }
        pool.stop().await;
    });
}

#[test]
fn a_request_waits_only_so_long() {
    let application = Application::new("sleep(2);");
    let plan = PoolPlan {
        max: 1,
        queue_limit: Duration::from_millis(50),
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        until(&pool, |status| !status.workers.is_empty()).await;
        let busy = {
            let pool = pool.clone();
            spawn_local(async move { get(&pool, "/").await })
        };
        until(&pool, |status| status.workers[0].busy).await;
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::QueueTimedOut), "{failure}");
        assert_eq!(pool.status().waiting, 0);
        assert_eq!(busy.await.unwrap().unwrap().response.status, StatusCode::OK);
        pool.stop().await;
    });
}

#[test]
fn a_client_that_goes_away_costs_no_worker() {
    let application = Application::new("usleep(20000); echo getmypid();");
    let plan = PoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let pid = get(&pool, "/").await.unwrap().text;
        for _ in 0..5 {
            let gone = {
                let pool = pool.clone();
                spawn_local(async move { get(&pool, "/").await })
            };
            until(&pool, |status| status.workers[0].busy).await;
            gone.abort();
            assert_eq!(get(&pool, "/").await.unwrap().text, pid);
        }
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
    });
}

#[test]
fn stopping_leaves_no_process_and_no_socket() {
    let application = Application::new("echo getmypid();");
    let pool = Pool::start(application.plan()).unwrap();
    run(async {
        let pid: i32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
        assert!(is_alive(pid));
        tokio::time::timeout(PATIENCE, pool.stop()).await.unwrap();
        gone(pid).await;
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::Stopping), "{failure}");
        let left = std::fs::read_dir(application.path("run")).unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".php"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_worker_that_ends_before_anybody_asks_it_is_not_started_in_a_storm() {
    let application = Application::new("");
    let pool = Pool::start(application.plan()).unwrap();
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
fn a_folder_whose_name_is_too_long_for_a_socket_is_told_at_the_start() {
    let application = Application::new("");
    let plan = PoolPlan {
        folder: application.path(&"x".repeat(120)),
        ..application.plan()
    };
    let error = Pool::start(plan).unwrap_err().to_string();
    assert!(error.contains("xxx"), "{error}");
}
