//! What a pool of workers is to be.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_net::Account;
use apus_net::client::Address;

/// A pool of workers: how they are started, how many, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Its name, in logs and in the status. Two pools of one process have two names.
    pub name: Arc<str>,
    /// What runs PHP.
    pub launch: Launch,
    /// How the application takes requests.
    pub mode: Mode,
    /// The application's script. Symbolic links in its path are followed anew with each reload, so that
    /// a release that was switched is found.
    pub script: PathBuf,
    /// The site's root, as the application is told it.
    pub root: PathBuf,
    /// Workers that are there even if nobody asks.
    pub min: usize,
    /// Workers at most, but for those that end.
    pub max: usize,
    /// When a worker makes room for a new one.
    pub recycle: Recycle,
    /// How long PHP may work for one request before its process is killed; zero is for ever.
    pub execution_limit: Duration,
    /// How long the application may take to boot.
    pub boot_limit: Duration,
    /// How long a worker more than [`PoolPlan::min`] may be without work.
    pub idle_limit: Duration,
    /// How long a worker may take to end when it is told to.
    pub stop_limit: Duration,
    /// Requests that may wait for a worker.
    pub queue: usize,
    /// How long one may wait.
    pub queue_limit: Duration,
    /// Tasks that may wait for an idle worker.
    pub tasks: usize,
    /// Whether people are at work on the application: a change of its files restarts it, and its errors
    /// are shown.
    pub development: bool,
    /// What is done about what a request leaves behind.
    pub leaks: Leaks,
    /// A folder of this process alone, for sockets and the runtime file. It is made if it is not there.
    pub folder: PathBuf,
}

/// What runs PHP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Processes of a FastCGI server that somebody else runs, such as PHP-FPM.
    Server(Address),
    /// Processes that are started here.
    Own(Own),
}

/// PHP processes of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The program: a `php-cgi`.
    pub program: PathBuf,
    /// Arguments before those that are needed, such as `-d` with a setting.
    pub arguments: Vec<String>,
    /// Their whole environment but for `PATH`.
    pub environment: Vec<(String, String)>,
    /// The user that they run as, if not as that of this process.
    pub account: Option<Account>,
}

/// How an application takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its script calls `frankenphp_handle_request()` in a loop.
    Worker,
    /// Its script is included for each request.
    Classic,
    /// Its script registers routes with the native API.
    Native,
}

impl Mode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Classic => "classic",
            Self::Native => "native",
        }
    }
}

/// When a worker makes room for a new one, between two requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After about so many requests: a tenth more or less, so that not all go at once. 0 is never.
    pub requests: u64,
    /// When PHP holds so many bytes. 0 is never.
    pub memory: u64,
    /// When it is about that old. Zero is never.
    pub age: Duration,
}

/// What is done about what a request leaves behind, such as a transaction that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaks {
    /// It is undone and logged.
    #[default]
    Warn,
    /// The worker is ended, too.
    Refuse,
    /// Nothing.
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
