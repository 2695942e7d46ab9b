//! The jobs of a server: a runner beside it, metrics and readiness.

use std::sync::{Arc, Mutex};

use apus::jobs::{Job, JobCounts, JobRunner, Jobs};
use apus::layers::Metrics;
use apus::sql::Db;
use apus::testing::TestClient;
use apus::{App, Readiness, Server};
use apus_testkit::{block_on, wait_until};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Task {
    name: String,
}

impl Job for Task {
    const NAME: &'static str = "task";
}

#[test]
fn a_server_does_jobs_and_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let db: Db = Db::open(&format!("sqlite:{}", folder.path().join("a.db").display())).unwrap();
    let jobs = Jobs::in_database(&db);
    let done = Arc::<Mutex<Vec<String>>>::default();
    let names = done.clone();
    let runner = JobRunner::new(&jobs).on(async move |task: Task| {
        names.lock().unwrap().push(task.name);
        Ok::<_, apus::Error>(())
    });
    let server = Server::new(App::new())
        .listen("127.0.0.1:0")
        .unwrap()
        .jobs(runner)
        .start()
        .unwrap();
    let task = Task {
        name: "a".to_owned(),
    };
    block_on(jobs.push(&task)).unwrap();
    wait_until("the job is done", || *done.lock().unwrap() == ["a"]);
    wait_until("the job is gone", || {
        block_on(jobs.counts()).unwrap() == JobCounts::default()
    });
    server.stop();
    let status = jobs.status();
    assert_eq!(status["queue"], "default");
    assert_eq!(status["attempts"]["done"], 1);
    assert_eq!(status["running_here"], 0);

    let metrics = Metrics::new();
    let source = jobs.clone();
    let metrics = metrics.with(move |samples| Jobs::add_metrics([&source], samples));
    let ready = Readiness::new().check("jobs", async move || jobs.counts().await);
    let app = App::new()
        .get("/metrics", metrics.handler())
        .get("/ready", ready);
    let client = TestClient::new(app);
    client
        .get("/metrics")
        .send()
        .assert_contains("job_attempts_total{queue=\"default\",job=\"task\",result=\"done\"} 1\n");
    client.get("/ready").send().assert_ok();
}
