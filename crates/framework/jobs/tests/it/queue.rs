//! Jobs of a queue: order, retries, delays, keys, and transactions that they belong to.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use apus_clock::TestClock;
use apus_database::sqlx::{self, Connection};
use apus_database::{Db, Driver, MySql, Postgres, Sqlite, System, Transactions, Tx};
use apus_handler::{Error, HandlerService, Layered, Query, Result, State};
use apus_http::StatusCode;
use apus_jobs::{Job, JobId, JobRunner, Jobs, PushOptions};
use apus_testkit::{EmptyDatabase, LocalClient, ask, block_on};
use serde::{Deserialize, Serialize};

use crate::harness::{Task, Tried, counts, of_each, open, runner, task};

#[test]
fn jobs_are_done_in_order_and_then_gone() {
    for (jobs, _fresh) in of_each("order") {
        let tried = Tried::default();
        let runner = runner(&jobs, &tried);
        block_on(async {
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
            let mut ids = Vec::new();
            for name in ["a", "b", "ü '\"\\ \n"] {
                ids.push(jobs.push(&task(name, 0)).await.unwrap());
                // Identities and times are in milliseconds.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(ids.is_sorted());
            assert_eq!(jobs.counts().await.unwrap(), counts(3, 0, 0, 0));
            assert_eq!(runner.run_due().await.unwrap(), 3);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
        });
        assert_eq!(*tried.lock().unwrap(), ["a", "b", "ü '\"\\ \n"]);
    }
}

#[test]
fn a_job_that_fails_is_tried_again_later_and_dead_in_the_end() {
    for (jobs, _fresh) in of_each("retries") {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze();
        let tried = Tried::default();
        let runner = runner(&jobs, &tried);
        block_on(async {
            jobs.push(&task("twice", 1)).await.unwrap();
            jobs.push(&task("always", 9)).await.unwrap();
            assert_eq!(runner.run_due().await.unwrap(), 2);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 2, 0, 0));
            clock.advance(Duration::from_millis(4999));
            assert_eq!(runner.run_due().await.unwrap(), 0, "half of ten seconds");
            clock.advance(Duration::from_secs(6));
            assert_eq!(runner.run_due().await.unwrap(), 2);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 1, 0, 0));
            clock.advance(Duration::from_secs(20));
            assert_eq!(runner.run_due().await.unwrap(), 1);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 1));

            let dead = jobs.dead(10).await.unwrap();
            assert_eq!(dead.len(), 1);
            assert_eq!(
                (&*dead[0].name, dead[0].attempts, &*dead[0].error),
                ("task", 3, "always fails")
            );
            assert!(dead[0].payload.contains("always"));
            let ago = apus_clock::now().duration_since(dead[0].failed).unwrap();
            assert!(ago < Duration::from_secs(1), "{ago:?}");
            assert!(jobs.dead(0).await.unwrap().is_empty());

            assert!(jobs.requeue(&dead[0].id).await.unwrap());
            assert!(!jobs.requeue(&dead[0].id).await.unwrap(), "it is not dead");
            assert_eq!(runner.run_due().await.unwrap(), 1);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 1, 0, 0));
            for _ in 0..2 {
                clock.advance(Duration::from_secs(60));
                assert_eq!(runner.run_due().await.unwrap(), 1);
            }
            assert!(jobs.discard(&dead[0].id).await.unwrap());
            assert!(!jobs.discard(&dead[0].id).await.unwrap());
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
            let other = JobId::parse(&"0".repeat(32)).unwrap();
            assert!(!jobs.requeue(&other).await.unwrap());
        });
    }
}

#[test]
fn a_panic_and_a_job_without_end_are_failures() {
    let (jobs, tried) = (Jobs::in_memory(), Tried::default());
    let runner = runner(&jobs, &tried);
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    block_on(async {
        jobs.push(&task("panics", 0)).await.unwrap();
        jobs.push(&task("hangs", 0)).await.unwrap();
        for _ in 0..3 {
            assert_eq!(runner.run_due().await.unwrap(), 2);
            clock.advance(Duration::from_secs(60));
        }
        let mut errors: Vec<_> = jobs.dead(9).await.unwrap();
        errors.sort_by(|one, other| one.error.cmp(&other.error));
        let errors: Vec<_> = errors.iter().map(|dead| &*dead.error).collect();
        assert_eq!(errors, ["it panicked: no", "it took longer than 200ms"]);
    });
}

#[test]
fn a_delayed_job_waits() {
    for (jobs, _fresh) in of_each("delayed") {
        let clock = TestClock::new();
        let _entered = clock.enter();
        clock.freeze_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let tried = Tried::default();
        let runner = runner(&jobs, &tried);
        block_on(async {
            let later = PushOptions::new().delay(Duration::from_secs(60));
            jobs.push_with(&task("a", 0), later).await.unwrap().unwrap();
            let at = apus_clock::now() + Duration::from_secs(30);
            let at = PushOptions::new().at(at);
            jobs.push_with(&task("b", 0), at).await.unwrap().unwrap();
            assert_eq!(runner.run_due().await.unwrap(), 0);
            assert_eq!(jobs.counts().await.unwrap(), counts(0, 2, 0, 0));
            clock.advance(Duration::from_secs(59));
            assert_eq!(runner.run_due().await.unwrap(), 1);
            clock.advance(Duration::from_secs(1));
            assert_eq!(runner.run_due().await.unwrap(), 1);
        });
        assert_eq!(*tried.lock().unwrap(), ["b", "a"]);
    }
}

#[test]
fn a_queue_has_one_job_with_a_key() {
    for (jobs, _fresh) in of_each("unique") {
        let tried = Tried::default();
        let runner = runner(&jobs, &tried);
        let other = jobs.named("unique-other");
        block_on(async {
            let unique = |key: &str| PushOptions::new().unique(key);
            let push = async |jobs: &Jobs, key: &str| {
                let pushed = jobs.push_with(&task("a", 0), unique(key)).await;
                pushed.unwrap().is_some()
            };
            assert!(push(&jobs, "user 7").await);
            assert!(!push(&jobs, "user 7").await);
            assert!(push(&jobs, "User 7").await);
            assert!(push(&other, "user 7").await, "another queue");
            assert_eq!(runner.run_due().await.unwrap(), 2);
            assert!(push(&jobs, "user 7").await, "it was done");
            assert_eq!(runner.run_due().await.unwrap(), 1);
            assert_eq!(other.counts().await.unwrap(), counts(1, 0, 0, 0));
        });
    }
}

#[test]
fn a_job_of_a_transaction_is_there_if_it_is_committed() {
    let [a, b] = ["a", "b"].map(|name| task(name, 0));
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        let jobs = Jobs::in_database(&db);
        block_on(async {
            jobs.prepare().await.unwrap();
            let mut connection = db.acquire().await.unwrap();
            sqlx::query("CREATE TABLE orders (id INTEGER)")
                .execute(&mut *connection)
                .await
                .unwrap();
            for (is_committed, expected) in [(false, 0), (true, 1)] {
                let mut transaction = connection.begin().await.unwrap();
                sqlx::query("INSERT INTO orders (id) VALUES (7)")
                    .execute(&mut *transaction)
                    .await
                    .unwrap();
                let unique = PushOptions::new().unique("order 7");
                let id = jobs.push_in(&mut *transaction, &a, unique.clone());
                assert!(id.await.unwrap().is_some());
                let id = jobs.push_in(&mut *transaction, &a, unique);
                assert!(id.await.unwrap().is_none());
                if is_committed {
                    transaction.commit().await.unwrap()
                } else {
                    transaction.rollback().await.unwrap()
                }
                let found = jobs.counts().await.unwrap();
                assert_eq!(found, counts(expected, 0, 0, 0));
            }
            // A job that is not committed does not block runners.
            let mut transaction = connection.begin().await.unwrap();
            if db.system() != System::Sqlite {
                let pushed = jobs.push_in(&mut *transaction, &b, PushOptions::new());
                pushed.await.unwrap();
            }
            let runner = runner(&jobs, &Tried::default());
            assert_eq!(runner.run_due().await.unwrap(), 1);
            transaction.rollback().await.unwrap();
        });
    }
    block_on(async {
        let fresh = EmptyDatabase::sqlite();
        let db = open(&fresh);
        let mut connection = db.acquire().await.unwrap();
        let jobs = Jobs::in_memory();
        let pushed = jobs.push_in(&mut *connection, &a, PushOptions::new());
        let error = pushed.await.unwrap_err().to_string();
        assert_eq!(error, "the queue is not in a database");
    });
}

#[derive(Deserialize)]
struct OrderStatus {
    status: u16,
}

/// A handler that pushes a job in the transaction of its request, over a database of one driver.
fn orders<D: Driver>(address: &str, jobs: &Jobs) -> Layered
where
    for<'t> &'t Tx<D>: sqlx::Executor<'t, Database = D>,
{
    let order = async |tx: Tx<D>,
                       State(jobs): State<Jobs>,
                       Query(OrderStatus { status }): Query<OrderStatus>|
           -> Result<StatusCode> {
        let options = PushOptions::new();
        jobs.push_in(&tx, &task("a", 0), options).await?;
        Ok(StatusCode::from_u16(status).unwrap())
    };
    let db: Db<D> = Db::open(address).unwrap();
    Layered::new(HandlerService::new(order).state(jobs.clone())).layer(Transactions::new(db))
}

#[test]
fn a_job_of_the_transaction_of_a_request_is_there_if_the_response_is_no_error() {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        let jobs = Jobs::in_database(&db);
        block_on(jobs.prepare()).unwrap();
        let typed = match db.system() {
            System::Sqlite => orders::<Sqlite>(&fresh.address, &jobs),
            System::Postgres => orders::<Postgres>(&fresh.address, &jobs),
            System::MySql => orders::<MySql>(&fresh.address, &jobs),
        };
        for (count, app) in [(1, typed), (2, orders::<sqlx::Any>(&fresh.address, &jobs))] {
            let worker = LocalClient::of(&app);
            let order = |status: u16| {
                let reply = worker.send(ask("POST", &format!("/orders?status={status}")));
                assert_eq!(reply.status, status);
            };
            order(500);
            let before = block_on(jobs.counts()).unwrap();
            assert_eq!(before, counts(count - 1, 0, 0, 0));
            order(204);
            assert_eq!(block_on(jobs.counts()).unwrap(), counts(count, 0, 0, 0));
        }
    }
}

#[test]
fn a_database_of_one_driver_has_queues() {
    let fresh = EmptyDatabase::sqlite();
    let db: Db<Sqlite> = Db::open(&fresh.address).unwrap();
    let jobs = Jobs::in_database(&db.any().unwrap());
    block_on(jobs.push(&task("a", 0))).unwrap();
    let seen = Jobs::in_database(&open(&fresh));
    assert_eq!(block_on(seen.counts()).unwrap(), counts(1, 0, 0, 0));
}

#[test]
fn a_job_that_nobody_here_knows_is_given_back() {
    let jobs = Jobs::in_memory();
    let clock = TestClock::new();
    let _entered = clock.enter();
    clock.freeze();
    block_on(async {
        jobs.push(&task("a", 0)).await.unwrap();
        assert_eq!(JobRunner::new(&jobs).run_due().await.unwrap(), 1);
        assert_eq!(jobs.counts().await.unwrap(), counts(0, 1, 0, 0));
        clock.advance(Duration::from_secs(30));
        let tried = Tried::default();
        assert_eq!(runner(&jobs, &tried).run_due().await.unwrap(), 1);
        assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
    });
}

/// A type with the name of another one, whose form is different.
#[derive(Serialize, Deserialize)]
struct Changed {
    number: u32,
}

impl Job for Changed {
    const NAME: &'static str = Task::NAME;
}

#[test]
fn a_job_of_another_form_is_dead_at_once() {
    let jobs = Jobs::in_memory();
    block_on(async {
        jobs.push(&Changed { number: 7 }).await.unwrap();
        let runner = runner(&jobs, &Tried::default());
        assert_eq!(runner.run_due().await.unwrap(), 1);
        let dead = jobs.dead(1).await.unwrap();
        assert!(dead[0].error.contains("missing field"), "{}", dead[0].error);
    });
}

#[test]
fn futures_of_jobs_stay_on_their_thread() {
    let jobs = Jobs::in_memory();
    let runner = JobRunner::new(&jobs).on(async |task: Task| {
        let shared = Rc::new(RefCell::new(task.name));
        tokio::task::yield_now().await;
        shared.borrow_mut().push('!');
        Ok::<_, Error>(())
    });
    block_on(async {
        jobs.push(&task("a", 0)).await.unwrap();
        assert_eq!(runner.run_due().await.unwrap(), 1);
        assert_eq!(jobs.counts().await.unwrap(), counts(0, 0, 0, 0));
    });
}
