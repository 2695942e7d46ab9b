//! Tasks and timers, and connections that are not from workers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use apus_php::plan::{ApplicationMode, WorkerPoolPlan};
use apus_php::{WorkerError, WorkerPool};
use apus_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::spawn_local;

use crate::harness::{Application, WAIT_FOR_GO, get, run, until};

/// An application that writes its tasks and timers to a file.
const NOTES: &str = r#"
use Apus\{App, Request, Response, Task};
$note = fn (string $line) => file_put_contents(__DIR__ . '/notes', "$line\n", FILE_APPEND);
$app = new App();
$app->get('/later', function (Request $request) { Task::queue('note', ['n' => (int) $request->query('n')]); return Response::text('yes'); });
$app->get('/', fn () => Response::text('home'));
$app->task('note', function (array $payload) use ($note) { $note("task {$payload['n']}"); });
$app->every(0.1, 'tick', function () use ($note) { $note('tick'); });
$app->run();
"#;

#[test]
fn workers_run_tasks_and_timers_between_requests() {
    let application = Application::new(NOTES);
    let plan = WorkerPoolPlan {
        mode: ApplicationMode::Native,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        for number in 0..5 {
            let response = get(&pool, &format!("/later?n={number}")).await.unwrap();
            assert_eq!(response.text, "yes");
        }
        let notes = || std::fs::read_to_string(application.path("notes")).unwrap_or_default();
        let is_done = || {
            let notes = notes();
            let has = |line: &str| notes.lines().any(|other| other == line);
            (0..5).all(|number| has(&format!("task {number}")))
                && notes.lines().filter(|line| *line == "tick").count() >= 2
        };
        eventually("the tasks and ticks", is_done).await;
        assert_eq!(get(&pool, "/").await.unwrap().text, "home");
        pool.stop().await;
    });
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&[kind, 0, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// The socket that workers of the pool connect to.
fn socket(application: &Application) -> PathBuf {
    std::fs::read_dir(application.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .unwrap()
}

#[test]
fn silent_connections_do_not_keep_workers_from_connecting() {
    let application = Application::new("echo getmypid();");
    let plan = WorkerPoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        let status = until(&pool, |status| status.workers.len() == 1).await;
        let socket = socket(&application);
        let connect = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            // The first byte of a frame that never comes.
            stream.write_all(&[0]).unwrap();
            stream
        };
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        // The oldest are closed for new ones.
        until(&pool, |_| {
            let oldest = &silent[0];
            oldest.set_nonblocking(true).unwrap();
            matches!((&*oldest).read(&mut [0]), Ok(0))
        })
        .await;
        let killed = Pid::from_raw(status.workers[0].pid).unwrap();
        kill_process(killed, Signal::KILL).unwrap();
        silent.extend((0..300).map(|_| connect()));
        let began = Instant::now();
        let text = get(&pool, "/").await.unwrap().text;
        assert_ne!(text, killed.as_raw_nonzero().to_string());
        // The worker did not have to wait for the timeout of silent connections.
        assert!(began.elapsed() < Duration::from_secs(8));
        pool.stop().await;
        drop(silent);
    });
}

#[test]
fn a_connection_without_a_valid_token_is_rejected() {
    let application = Application::new("echo 'mine';");
    let pool = WorkerPool::start(application.plan()).unwrap();
    run(async {
        until(&pool, |status| status.workers.len() == 1).await;
        let socket = socket(&application);
        let rejected = tokio::task::spawn_blocking(move || {
            for message in [
                frame(
                    65,
                    format!("wire: 1\ntoken: {}\n", "0".repeat(32)).as_bytes(),
                ),
                frame(65, b"token: \n"),
                frame(66, b""),
                b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            ] {
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.write_all(&message).unwrap();
                // The pool closes the connection.
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
                assert!(rest.is_empty());
            }
        });
        rejected.await.unwrap();
        assert_eq!(pool.status().workers.len(), 1);
        assert_eq!(get(&pool, "/").await.unwrap().text, "mine");
        pool.stop().await;
    });
}

#[test]
fn work_after_a_response_keeps_the_worker_busy() {
    let application = Application::new(&format!(
        "echo 'early'; fastcgi_finish_request(); {WAIT_FOR_GO} file_put_contents(__DIR__ . '/late', 'x');",
    ));
    let plan = WorkerPoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = WorkerPool::start(plan).unwrap();
    run(async {
        match get(&pool, "/").await {
            Ok(response) => assert_eq!(response.text, "early"),
            Err(error) => panic!("{error}"),
        }
        assert!(!application.path("late").exists());
        // The next request waits for the worker.
        let next = {
            let pool = pool.clone();
            spawn_local(async move { get(&pool, "/").await })
        };
        until(&pool, |status| status.waiting == 1).await;
        application.write("go", "");
        assert_eq!(next.await.unwrap().unwrap().text, "early");
        assert!(application.path("late").exists());
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
        let error = get(&pool, "/").await.unwrap_err();
        assert!(matches!(error, WorkerError::Stopping));
    });
}
