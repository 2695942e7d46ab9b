//! The `php-cgi` processes of a pool: a master, and children that share its opcache.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_client::Address;
use apus_net::SystemAccount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use super::process::PhpCgiProcess;
use super::{SupervisedWorker, Supervisor, WorkerPhase, unix};
use crate::launcher::{Launcher, PhpProcess};
use crate::log_line::WorkerLogLine;
use crate::plan::{Launch, PhpCgiPlan, WorkerPoolPlan};
use crate::wire::LogLevel;

/// A `php-cgi` master with its children.
pub(super) struct PhpCgiMaster {
    process: MasterProcess,
    socket: PathBuf,
    generation: u64,
    started: Instant,
}

/// The process of a [`PhpCgiMaster`].
enum MasterProcess {
    /// A child of this process.
    Child(PhpCgiProcess),
    /// A child of the launcher.
    Launched {
        pid: Pid,
        /// Readable when it has ended.
        end: OwnedFd,
        launcher: Arc<dyn Launcher>,
    },
}

impl MasterProcess {
    /// The exit status, if it has ended.
    fn ended(&mut self) -> Option<String> {
        match self {
            Self::Child(child) => child
                .ended()
                .ok()
                .flatten()
                .map(|status| status.to_string()),
            Self::Launched { pid, end, launcher } => {
                let mut polled = [PollFd::new(end, PollFlags::IN)];
                match poll(&mut polled, Some(&Timespec::default())) {
                    Ok(1..) => match launcher.ended(*pid) {
                        Ok(ended) => ended,
                        // The launcher is gone, and PHP with it.
                        Err(error) => Some(error.to_string()),
                    },
                    Ok(0) | Err(_) => None,
                }
            }
        }
    }

    /// Kills it with its children.
    fn kill(&mut self) {
        match self {
            Self::Child(child) => child.kill(),
            Self::Launched { pid, launcher, .. } => {
                if let Err(error) = launcher.kill(*pid) {
                    let pid = pid.as_raw_nonzero().get();
                    tracing::warn!(pid, %error, "PHP could not be killed");
                }
            }
        }
    }
}

/// The number of children beyond the maximum of workers, so that new workers boot while old ones end.
const SPARE_CHILDREN: usize = 2;

/// The lifetime below which the end of the program counts as a failed boot.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

impl PhpCgiMaster {
    pub(super) fn address(&self) -> Address {
        unix(&self.socket)
    }

    /// Kills it with its children.
    pub(super) fn kill(&mut self) {
        self.process.kill();
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for PhpCgiMaster {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Supervisor {
    /// Starts PHP for this generation, unless a FastCGI server runs it.
    pub(super) fn start_master(&mut self) -> io::Result<()> {
        let Launch::PhpCgi(plan) = &self.shared.plan.launch else {
            return Ok(());
        };
        let socket = self.folder.php_cgi_socket(self.generation);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let children = children_of(&self.shared.plan);
        let (process, pid, stderr) = match &self.shared.launcher {
            Some(launcher) if has_other_user(plan) => {
                let PhpProcess { pid, stderr } = launcher.start(plan, children, listener.into())?;
                let launcher = Arc::clone(launcher);
                let end = pidfd_open(pid, PidfdFlags::empty())?;
                (
                    MasterProcess::Launched { pid, end, launcher },
                    Some(pid),
                    Some(stderr),
                )
            }
            _ => {
                let mut child = spawn(plan, children, listener.into())?;
                let (pid, stderr) = (child.pid(), child.take_stderr());
                (MasterProcess::Child(child), Some(pid), stderr)
            }
        };
        if let Some(stderr) = stderr {
            let stderr = pipe::Receiver::from_owned_fd(stderr)?;
            tokio::task::spawn_local(log(stderr, self.shared.plan.name.to_string()));
        }
        tracing::info!(
            pool = &*self.shared.plan.name,
            program = %plan.program.display(),
            pid = pid.map(|pid| pid.as_raw_nonzero().get()),
            "PHP is started"
        );
        self.masters.push(PhpCgiMaster {
            process,
            socket,
            generation: self.generation,
            started: Instant::now(),
        });
        Ok(())
    }

    /// Restarts a master that ended, and stops old masters without workers.
    pub(super) fn watch_masters(&mut self) {
        let Some(newest) = self.masters.last_mut() else {
            if matches!(self.shared.plan.launch, Launch::PhpCgi(_))
                && self.shutdown.is_none()
                && Instant::now() >= self.next_boot
                && let Err(error) = self.start_master()
            {
                self.record_boot_failure(format!("PHP cannot be started: {error}").into());
            }
            return;
        };
        if let Some(status) = newest.process.ended() {
            let (lifetime, generation) = (newest.started.elapsed(), newest.generation);
            self.masters.pop();
            let message = format!("PHP ended by itself: {status}");
            // The connections of boots that it cut off know less.
            let is_cut_off = |worker: &&SupervisedWorker| {
                worker.generation == generation && worker.phase == WorkerPhase::Requested
            };
            for worker in self.workers.values().filter(is_cut_off) {
                worker.output.borrow_mut().reason.clone_from(&message);
            }
            if lifetime < MIN_LIFETIME {
                self.record_boot_failure(message.into())
            } else {
                tracing::error!(pool = &*self.shared.plan.name, "{message}")
            }
            return;
        }
        let current = newest.generation;
        let workers = &self.workers;
        self.masters.retain_mut(|master| {
            master.generation == current
                || master.process.ended().is_none()
                    && workers
                        .values()
                        .any(|worker| worker.generation == master.generation)
        });
    }
}

/// Disables functions of PHP that only know the FastCGI request that started the worker, so that the runtime file
/// can declare its own under the same names. Functions that php.ini disables stay disabled.
const DISABLED_FUNCTIONS: &str = "disable_functions=${disable_functions},is_uploaded_file,move_uploaded_file,\
    getallheaders,apache_request_headers,ob_get_level,flush,connection_aborted";

/// Whether PHP runs as another user than this process.
fn has_other_user(plan: &PhpCgiPlan) -> bool {
    let is_other = |account: &SystemAccount| account.uid != geteuid().as_raw();
    plan.account.as_ref().is_some_and(is_other)
}

/// The children of a master of this pool.
pub fn children_of(plan: &WorkerPoolPlan) -> usize {
    plan.max.saturating_add(SPARE_CHILDREN)
}

/// Starts PHP that listens on `socket`, with this number of children, in a separate process group. It ends
/// with the thread that started it. Its standard error is a pipe.
///
/// # Errors
/// It cannot be started.
pub fn spawn(plan: &PhpCgiPlan, children: usize, socket: OwnedFd) -> io::Result<PhpCgiProcess> {
    let mut command = command(plan, children);
    command.stdin(Stdio::from(socket));
    let account = plan.account.as_ref().filter(|_| has_other_user(plan));
    let master = apus_net::spawn_dependent(&mut command, account).map_err(|error| {
        let program = plan.program.display();
        let message = match account {
            Some(account) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "{program} as `{}`: {error} (Apus has to be started as root for this)",
                account.name
            ),
            _ => format!("{program}: {error}"),
        };
        io::Error::new(error.kind(), message)
    })?;
    PhpCgiProcess::new(master, account)
}

fn command(plan: &PhpCgiPlan, children: usize) -> Command {
    let mut command = Command::new(&plan.program);
    command
        .args(["-d", DISABLED_FUNCTIONS])
        .args(&plan.arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .envs(plan.environment.iter().map(|(name, value)| (name, value)))
        .env("PHP_FCGI_CHILDREN", children.to_string())
        // The pool recycles workers.
        .env("PHP_FCGI_MAX_REQUESTS", "0")
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Logs the standard error of PHP.
async fn log(stderr: pipe::Receiver, pool: String) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let source = WorkerLogLine {
            pool: &pool,
            pid: 0,
            request: None,
        };
        source.write(LogLevel::Warning, &line);
    }
}
