//! Reloads, recycled workers, and changes of the number of workers.

use std::cell::Cell;
use std::os::unix::fs::symlink;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_php::WorkerPool;
use apus_php::plan::{ApplicationMode, Recycle, WorkerPoolPlan};
use apus_testkit::eventually_async;
use tokio::task::spawn_local;

use crate::harness::{Application, get, run, until};

/// A worker script that responds with its version.
fn script(version: &str) -> String {
    format!("while (frankenphp_handle_request(function () {{ echo '{version}'; }})) {{}}")
}

#[test]
fn a_reload_under_load_loses_no_request_and_runs_the_new_release() {
    let application = Application::new("");
    application.write("1/index.php", &script("one"));
    application.write("2/index.php", &script("two"));
    symlink(application.path("1"), application.path("current")).unwrap();
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        script: application.path("current/index.php"),
        min: 2,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let is_over = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (pool, is_over) = (pool.clone(), Rc::clone(&is_over));
                spawn_local(async move {
                    let mut texts = Vec::new();
                    while !is_over.get() {
                        texts.push(get(&pool, "/").await.unwrap().text);
                    }
                    texts
                })
            })
            .collect();
        until(&pool, |status| status.totals.requests > 20).await;
        let next = application.path("next");
        symlink(application.path("2"), &next).unwrap();
        std::fs::rename(next, application.path("current")).unwrap();
        pool.reload().await.unwrap();
        until(&pool, |status| status.workers.len() == 2).await;
        assert_eq!(get(&pool, "/").await.unwrap().text, "two");
        is_over.set(true);
        for client in clients {
            let texts = client.await.unwrap();
            let switch = texts.iter().position(|text| text == "two").unwrap();
            assert!(switch > 0);
            assert!(texts.iter().all(|text| text == "one" || text == "two"));
        }
        pool.stop().await;
    });
}

#[test]
fn a_failed_reload_keeps_the_old_workers() {
    let application = Application::new(&script("old"));
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        min: 1,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        assert_eq!(get(&pool, "/").await.unwrap().text, "old");
        application.write("index.php", "throw new Exception('not today');");
        let message = pool.reload().await.unwrap_err();
        assert!(message.contains("not today"), "{message}");
        assert_eq!(get(&pool, "/").await.unwrap().text, "old");
        // Requests to old workers do not shorten the delays of 200, 400 and 800 ms.
        let since = Instant::now();
        let failures = pool.status().totals.boot_failures;
        until(&pool, |status| status.totals.boot_failures >= failures + 3).await;
        assert!(since.elapsed() > Duration::from_millis(1200));
        application.write("index.php", &script("new"));
        pool.reload().await.unwrap();
        assert_eq!(get(&pool, "/").await.unwrap().text, "new");
        pool.stop().await;
    });
}

#[test]
fn a_changed_file_reloads_the_application_in_development() {
    let application = Application::new("require __DIR__ . '/src/app.php';");
    application.write("src/app.php", &script("before"));
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        development: true,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        assert_eq!(get(&pool, "/").await.unwrap().text, "before");
        application.write("src/app.php", &script("after"));
        eventually_async("the changed file", async || {
            get(&pool, "/").await.unwrap().text == "after"
        })
        .await;
        pool.stop().await;
    });
}

#[test]
fn workers_are_recycled_after_their_maximum_of_requests() {
    let application = Application::new(&script("x"));
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        recycle: Recycle {
            requests: 10,
            ..Recycle::default()
        },
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        for _ in 0..60 {
            assert_eq!(get(&pool, "/").await.unwrap().text, "x");
        }
        let totals = pool.status().totals;
        assert!((5..=7).contains(&totals.recycled), "{totals:?}");
        assert_eq!((totals.crashes, totals.boot_failures), (0, 0));
        pool.stop().await;
    });
}

#[test]
fn a_worker_with_too_much_memory_is_recycled() {
    let application = Application::new(
        "$kept = ''; while (frankenphp_handle_request(function () use (&$kept) {
            $kept .= str_repeat('x', 1 << 20); echo strlen($kept) >> 20; })) {}",
    );
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Worker,
        recycle: Recycle {
            memory: 5 << 20,
            ..Recycle::default()
        },
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let mut most = 0;
        for _ in 0..20 {
            let held: u32 = get(&pool, "/").await.unwrap().text.parse().unwrap();
            most = most.max(held);
        }
        assert!((2..=5).contains(&most), "{most}");
        pool.stop().await;
    });
}

#[test]
fn the_pool_grows_while_requests_wait_and_shrinks_later() {
    let application = Application::new("usleep(20000); echo 'x';");
    let plan = WorkerPoolPlan {
        min: 1,
        max: 4,
        idle_limit: Duration::from_millis(200),
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let pool = pool.clone();
                spawn_local(async move {
                    for _ in 0..20 {
                        get(&pool, "/").await.unwrap();
                    }
                })
            })
            .collect();
        until(&pool, |status| status.workers.len() == 4).await;
        for client in clients {
            client.await.unwrap();
        }
        until(&pool, |status| status.workers.len() == 1).await;
        assert_eq!(get(&pool, "/").await.unwrap().text, "x");
        pool.stop().await;
    });
}
