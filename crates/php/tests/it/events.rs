//! Tasks and timers, and what happens to those who are no workers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use apus_php::plan::{Mode, PoolPlan};
use apus_php::{Failure, Pool};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Application, get, run, until};

/// An application that notes what it was told to do.
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
fn tasks_and_timers_are_done_by_workers_that_have_nothing_else_to_do() {
    let application = Application::new(NOTES);
    let plan = PoolPlan {
        mode: Mode::Native,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        for number in 0..5 {
            let answer = get(&pool, &format!("/later?n={number}")).await.unwrap();
            assert_eq!(answer.text, "yes");
        }
        let notes = || std::fs::read_to_string(application.path("notes")).unwrap_or_default();
        let is_done = || {
            let notes = notes();
            let has = |line: &str| notes.lines().any(|known| known == line);
            (0..5).all(|number| has(&format!("task {number}")))
                && notes.lines().filter(|line| *line == "tick").count() >= 2
        };
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
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

/// Where workers of the pool connect.
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
fn connections_that_say_nothing_keep_no_worker_out() {
    let application = Application::new("echo getmypid();");
    let plan = PoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        let status = until(&pool, |status| status.workers.len() == 1).await;
        let socket = socket(&application);
        let connect = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            // The beginning of a frame that never comes.
            stream.write_all(&[0]).unwrap();
            stream
        };
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        // One after another is closed for those that come later.
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
        // Nobody waited until those that say nothing ran out of time.
        assert!(began.elapsed() < Duration::from_secs(8));
        pool.stop().await;
        drop(silent);
    });
}

#[test]
fn who_does_not_know_a_token_is_no_worker() {
    let application = Application::new("echo 'mine';");
    let pool = Pool::start(application.plan()).unwrap();
    run(async {
        until(&pool, |status| status.workers.len() == 1).await;
        let socket = socket(&application);
        let refused = tokio::task::spawn_blocking(move || {
            for said in [
                frame(
                    65,
                    format!("wire: 1\ntoken: {}\n", "0".repeat(32)).as_bytes(),
                ),
                frame(65, b"token: \n"),
                frame(66, b""),
                b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            ] {
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.write_all(&said).unwrap();
                // It is closed, whatever else would be said.
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
                assert!(rest.is_empty());
            }
        });
        refused.await.unwrap();
        assert_eq!(pool.status().workers.len(), 1);
        assert_eq!(get(&pool, "/").await.unwrap().text, "mine");
        pool.stop().await;
    });
}

#[test]
fn what_an_application_leaves_open_behind_its_answer_keeps_its_worker() {
    let application = Application::new(
        "echo 'early'; fastcgi_finish_request(); usleep(200000); file_put_contents(__DIR__ . '/late', 'x');",
    );
    let plan = PoolPlan {
        max: 1,
        ..application.plan()
    };
    let pool = Pool::start(plan).unwrap();
    run(async {
        match get(&pool, "/").await {
            Ok(answer) => assert_eq!(answer.text, "early"),
            Err(failure) => panic!("{failure}"),
        }
        assert!(!application.path("late").exists());
        // The next request waits for the worker.
        assert_eq!(get(&pool, "/").await.unwrap().text, "early");
        assert!(application.path("late").exists());
        assert_eq!(pool.status().totals.boots, 1);
        pool.stop().await;
        let failure = get(&pool, "/").await.unwrap_err();
        assert!(matches!(failure, Failure::Stopping));
    });
}
