//! Pools with real PHP processes, and requests to them.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use apus_http::{Body, Interim, Method, RequestId};
use apus_php::plan::{ApplicationMode, Launch, Leaks, PhpCgiPlan, Recycle, WorkerPoolPlan};
use apus_php::wire::{FixedVariables, RequestFrame};
use apus_php::{PoolStatus, WorkerError, WorkerPool, WorkerRequest, WorkerResponse};
use apus_testkit::eventually;

/// The time limit of all waits.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// PHP code that waits until the test writes the file `go`.
pub(crate) const WAIT_FOR_GO: &str = "while (!file_exists(__DIR__ . '/go')) { usleep(1000); }";

/// A folder with an application.
pub(crate) struct Application {
    folder: tempfile::TempDir,
}

impl Application {
    /// An application whose `index.php` has this code.
    pub(crate) fn new(code: &str) -> Self {
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        // PHP-FPM runs as another user.
        open(this.folder.path());
        this.write("index.php", code);
        this
    }

    pub(crate) fn write(&self, name: &str, code: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        open(path.parent().unwrap());
        // Atomically, as a worker may be reading it.
        let temporary = path.with_extension("new");
        fs::write(&temporary, format!("<?php\n{code}")).unwrap();
        fs::rename(temporary, path).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plan for `php-cgi` that includes `index.php` for each request.
    pub(crate) fn plan(&self) -> WorkerPoolPlan {
        WorkerPoolPlan {
            name: "test".into(),
            launch: Launch::PhpCgi(PhpCgiPlan {
                program: "/usr/bin/php-cgi8.2".into(),
                arguments: Vec::new(),
                environment: Vec::new(),
                account: None,
            }),
            mode: ApplicationMode::Classic,
            script: self.path("index.php"),
            root: self.folder.path().to_owned(),
            min: 1,
            max: 2,
            recycle: Recycle::default(),
            execution_limit: TIMEOUT,
            boot_limit: TIMEOUT,
            idle_limit: TIMEOUT,
            stop_limit: Duration::from_secs(5),
            queue: 1000,
            queue_limit: TIMEOUT,
            tasks: 100,
            development: false,
            leaks: Leaks::Warn,
            folder: self.path("run"),
        }
    }
}

fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a test on a thread as a worker has it.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(4 * TIMEOUT, test)
            .await
            .expect("the test hangs");
    });
}

/// A request for `target`.
pub(crate) fn request(method: Method, target: &str, body: impl Into<Body>) -> WorkerRequest {
    let body = body.into();
    let fixed = FixedVariables::new()
        .with("SERVER_NAME", b"localhost")
        .with("SERVER_PROTOCOL", b"HTTP/1.1")
        .with("REMOTE_ADDR", b"127.0.0.1")
        .with("SCRIPT_NAME", b"/index.php");
    let mut message = RequestFrame::request(&fixed, 512);
    message.push(b"REQUEST_METHOD", method.as_str().as_bytes());
    message.push_target(b"REQUEST_URI", target.as_bytes());
    let query = target.split_once('?').map_or("", |(_, query)| query);
    message.push(b"QUERY_STRING", query.as_bytes());
    if let Some(len) = body.len() {
        message.push(b"CONTENT_LENGTH", len.to_string().as_bytes());
    }
    message.push(b"CONTENT_TYPE", b"application/octet-stream");
    WorkerRequest {
        id: RequestId::parse(b"7").unwrap(),
        message,
        method,
        interim: Interim::default(),
        body,
    }
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) response: WorkerResponse,
    pub(crate) text: String,
}

pub(crate) async fn get(pool: &WorkerPool, target: &str) -> Result<TestResponse, WorkerError> {
    let response = pool.send(request(Method::GET, target, Body::Empty)).await?;
    Ok(read(response).await)
}

pub(crate) async fn read(mut response: WorkerResponse) -> TestResponse {
    let bytes = whole(&mut response.body).await.unwrap();
    TestResponse {
        response,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// The whole body, if it is complete.
pub(crate) async fn whole(body: &mut Body) -> Result<Vec<u8>, apus_http::BodyError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let apus_http::Frame::Data(data) = frame? {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// Waits until the status of a pool meets a condition.
pub(crate) async fn until(
    pool: &WorkerPool,
    condition: impl Fn(&PoolStatus) -> bool,
) -> PoolStatus {
    let status = || Some(pool.status()).filter(|status| condition(status));
    eventually("the status of the pool", status).await
}

/// Whether a process runs.
pub(crate) fn is_alive(pid: i32) -> bool {
    // A zombie has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}
