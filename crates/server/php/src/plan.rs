//! The plan of a pool: how PHP is started, how many workers there are, and their limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_client::Address;
use apus_net::SystemAccount;

/// The plan of a pool of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPoolPlan {
    /// The name in logs and in the status, which is unique in the process.
    pub name: Arc<str>,
    /// How PHP is started.
    pub launch: Launch,
    /// How the application handles requests.
    pub mode: ApplicationMode,
    /// The application's script. Each reload resolves symbolic links in its path again, so that it finds the
    /// current release.
    pub script: PathBuf,
    /// The site's root, for the application.
    pub root: PathBuf,
    /// The minimum number of workers, also without requests.
    pub min: usize,
    /// The maximum number of workers, without those that are stopping.
    pub max: usize,
    /// When a worker is replaced by a new one.
    pub recycle: Recycle,
    /// The maximum time that PHP executes one request before its process is killed; zero means no limit.
    pub execution_limit: Duration,
    /// The maximum time that the application takes to boot.
    pub boot_limit: Duration,
    /// The maximum idle time of a worker beyond [`WorkerPoolPlan::min`].
    pub idle_limit: Duration,
    /// The maximum time that a worker takes to stop.
    pub stop_limit: Duration,
    /// The maximum number of requests that wait for a worker.
    pub queue: usize,
    /// The maximum time that a request waits for a worker.
    pub queue_limit: Duration,
    /// The maximum number of tasks that wait for a worker.
    pub tasks: usize,
    /// Development mode: a change of the application's files reloads it, and clients see its errors.
    pub development: bool,
    /// How leaks of a request are handled.
    pub leaks: Leaks,
    /// A folder for sockets and the runtime file, which no other process uses. It is created if necessary.
    pub folder: PathBuf,
}

#[cfg(test)]
impl WorkerPoolPlan {
    /// A plan for tests of a pool whose workers are not real: its FastCGI server is never used.
    pub(crate) fn without_php(folder: &std::path::Path) -> Self {
        let limit = Duration::from_secs(30);
        Self {
            name: "test".into(),
            launch: Launch::FastCgiServer(Address::Unix(folder.join("none.sock").into())),
            mode: ApplicationMode::Classic,
            script: folder.to_owned(),
            root: folder.to_owned(),
            min: 0,
            max: 2,
            recycle: Recycle::default(),
            execution_limit: limit,
            boot_limit: limit,
            idle_limit: limit,
            stop_limit: limit,
            queue: 10,
            queue_limit: limit,
            tasks: 10,
            development: false,
            leaks: Leaks::Warn,
            folder: folder.join("run"),
        }
    }
}

/// How PHP is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// By a FastCGI server that runs already, such as PHP-FPM.
    FastCgiServer(Address),
    /// By the pool, as `php-cgi`.
    PhpCgi(PhpCgiPlan),
}

/// The `php-cgi` that a pool starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpCgiPlan {
    /// The path of the program.
    pub program: PathBuf,
    /// Additional arguments, such as `-d` with a setting.
    pub arguments: Vec<String>,
    /// The environment, without `PATH`.
    pub environment: Vec<(String, String)>,
    /// The user of the processes, if it is not the user of this process.
    pub account: Option<SystemAccount>,
}

/// How an application handles requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationMode {
    /// Its script calls `frankenphp_handle_request()` in a loop.
    Worker,
    /// Its script is included for each request.
    Classic,
    /// Its script registers routes with the native API.
    Native,
}

impl ApplicationMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Classic => "classic",
            Self::Native => "native",
        }
    }
}

/// When a worker is replaced by a new one, between two requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// The number of requests, with a jitter of a tenth, so that workers are not replaced all at once. 0 means no
    /// limit.
    pub requests: u64,
    /// The memory of PHP in bytes. 0 means no limit.
    pub memory: u64,
    /// The age, with a jitter of a tenth. Zero means no limit.
    pub age: Duration,
}

/// How leaks of a request are handled, such as an open transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaks {
    /// A leak is undone and logged.
    #[default]
    Warn,
    /// A leak is undone and logged, and the worker is replaced.
    Refuse,
    /// Leaks are ignored.
    Ignore,
}

impl Leaks {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Refuse => "refuse",
            Self::Ignore => "ignore",
        }
    }
}
