//! Jobs of the tests, and a queue in each store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus_database::Db;
use apus_jobs::{Job, JobCounts, JobRunner, JobSettings, Jobs};
use apus_redis::Redis;
use apus_testkit::{DatabaseKind, DatabaseServer, EmptyDatabase, may_start_servers};
use serde::{Deserialize, Serialize};

/// A job that says what becomes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) name: String,
    failures: u32,
}

impl Job for Task {
    const NAME: &'static str = "task";

    fn settings() -> JobSettings {
        JobSettings::default()
            .attempts(3)
            .backoff(Duration::from_secs(10), Duration::from_secs(60))
            .time_limit(Duration::from_millis(200))
    }
}

pub(crate) fn task(name: &str, failures: u32) -> Task {
    Task {
        name: name.to_owned(),
        failures,
    }
}

/// A job that may take its time.
#[derive(Serialize, Deserialize)]
pub(crate) struct Slow;

impl Job for Slow {
    const NAME: &'static str = "slow";
}

/// The names of tasks, in the order in which they were tried.
pub(crate) type Tried = Arc<Mutex<Vec<String>>>;

pub(crate) fn runner(jobs: &Jobs, tried: &Tried) -> JobRunner {
    let tried = tried.clone();
    JobRunner::new(jobs).on(async move |task: Task| {
        let before = {
            let mut tried = tried.lock().unwrap();
            tried.push(task.name.clone());
            tried.iter().filter(|name| **name == task.name).count()
        };
        match task.name.as_str() {
            "panics" => panic!("no"),
            "hangs" => std::future::pending().await,
            name if before <= task.failures as usize => {
                Err(std::io::Error::other(format!("{name} fails")))
            }
            _ => Ok(()),
        }
    })
}

/// A queue in each store, that no other test uses, with what it needs.
pub(crate) fn of_each(name: &str) -> Vec<(Jobs, Option<EmptyDatabase>)> {
    let mut all = vec![(Jobs::in_memory(), None)];
    for fresh in EmptyDatabase::of_each() {
        all.push((Jobs::in_database(&open(&fresh)), Some(fresh)));
    }
    if may_start_servers() {
        let redis = DatabaseServer::shared(DatabaseKind::Redis).address();
        let redis = Redis::open(&redis).unwrap();
        all.push((Jobs::in_redis(&redis).named(name), None));
    }
    all
}

/// The database by the driver of any system.
pub(crate) fn open(database: &EmptyDatabase) -> Db {
    Db::open(&database.address).unwrap()
}

pub(crate) fn counts(ready: u64, delayed: u64, running: u64, dead: u64) -> JobCounts {
    JobCounts {
        ready,
        delayed,
        running,
        dead,
    }
}
