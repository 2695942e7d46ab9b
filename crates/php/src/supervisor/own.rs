//! A `php-cgi` that the supervisor starts, with children that share its opcache.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_net::Account;
use apus_net::client::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal as Kill, geteuid, pidfd_open};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use super::{Supervisor, unix};
use crate::exchange::Line;
use crate::launcher::{Launched, Launcher};
use crate::plan::{Launch, Own};
use crate::wire::Level;

/// A `php-cgi` and its children.
pub(super) struct Master {
    process: Process,
    socket: PathBuf,
    generation: u64,
    started: Instant,
}

/// The process of a [`Master`].
enum Process {
    /// A child of this process.
    Child(Child),
    /// A child of the launcher.
    Launched {
        pid: Pid,
        /// Readable when it has ended.
        end: OwnedFd,
        launcher: Arc<dyn Launcher>,
    },
}

impl Process {
    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match self {
            Self::Child(child) => child
                .try_wait()
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
            Self::Child(child) => {
                if let Some(pid) = pid_of(child) {
                    let _ = rustix::process::kill_process_group(pid, Kill::KILL);
                }
                let _ = child.wait();
            }
            Self::Launched { pid, launcher, .. } => {
                if let Err(error) = launcher.kill(*pid) {
                    let pid = pid.as_raw_nonzero().get();
                    tracing::warn!(pid, %error, "PHP could not be killed");
                }
            }
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Children more than there may be workers: for those that boot while others end.
const SPARE: usize = 2;

/// A program that ends earlier did not run.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

impl Master {
    pub(super) fn address(&self) -> Address {
        unix(&self.socket)
    }

    /// Kills it with its children.
    pub(super) fn kill(&mut self) {
        self.process.kill();
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Supervisor {
    /// Starts PHP for this generation, if it is ours to start.
    pub(super) fn start_master(&mut self) -> io::Result<()> {
        let Launch::Own(own) = &self.shared.plan.launch else {
            return Ok(());
        };
        let socket = self.folder.own_socket(self.generation);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let children = self.shared.plan.max + SPARE;
        let (process, pid, errors) = match &self.shared.launcher {
            Some(launcher) if is_of_another(own) => {
                let Launched { pid, errors } = launcher.start(own, children, listener.into())?;
                let launcher = Arc::clone(launcher);
                let end = pidfd_open(pid, PidfdFlags::empty())?;
                (
                    Process::Launched { pid, end, launcher },
                    Some(pid),
                    Some(errors),
                )
            }
            _ => {
                let mut child = spawn(own, children, listener.into())?;
                let errors = child.stderr.take().map(OwnedFd::from);
                let pid = pid_of(&child);
                (Process::Child(child), pid, errors)
            }
        };
        if let Some(errors) = errors {
            let errors = pipe::Receiver::from_owned_fd(errors)?;
            tokio::task::spawn_local(log(errors, self.shared.plan.name.to_string()));
        }
        tracing::info!(
            pool = &*self.shared.plan.name,
            program = %own.program.display(),
            pid = pid.map(|pid| pid.as_raw_nonzero().get()),
            "PHP is started"
        );
        self.masters.push(Master {
            process,
            socket,
            generation: self.generation,
            started: Instant::now(),
        });
        Ok(())
    }

    /// Starts PHP again that ended, and ends that whose workers are all gone.
    pub(super) fn watch_masters(&mut self) {
        let Some(newest) = self.masters.last_mut() else {
            if matches!(self.shared.plan.launch, Launch::Own(_))
                && self.stopping.is_none()
                && Instant::now() >= self.next_boot
                && let Err(error) = self.start_master()
            {
                self.boot_failed(format!("PHP cannot be started: {error}").into());
            }
            return;
        };
        if let Some(status) = newest.process.ended() {
            let lived = newest.started.elapsed();
            self.masters.pop();
            let message = format!("PHP ended by itself: {status}");
            match lived < SHORTEST_LIFE {
                true => self.boot_failed(message.into()),
                false => tracing::error!(pool = &*self.shared.plan.name, "{message}"),
            }
            return;
        }
        let current = newest.generation;
        let boots = &self.boots;
        self.masters.retain(|master| {
            master.generation == current
                || boots
                    .values()
                    .any(|boot| boot.generation == master.generation)
        });
    }
}

/// Functions of PHP that only know the FastCGI request a worker was started with. The runtime has its own, but
/// PHP lets them be declared only where its own are gone. What php.ini disables stays so.
const REPLACED: &str = "disable_functions=${disable_functions},is_uploaded_file,move_uploaded_file,\
    getallheaders,apache_request_headers,ob_get_level,flush,connection_aborted";

/// Whether PHP runs as another user than this process.
fn is_of_another(own: &Own) -> bool {
    let is_other = |account: &Account| account.uid != geteuid().as_raw();
    own.account.as_ref().is_some_and(is_other)
}

/// Starts PHP that listens on `socket`, with so many children, in a process group of its own. It ends with
/// the thread that started it. Its standard error is a pipe.
///
/// # Errors
/// It cannot be started.
pub fn spawn(own: &Own, children: usize, socket: OwnedFd) -> io::Result<Child> {
    let mut command = command(own, children);
    command.stdin(Stdio::from(socket));
    let account = own.account.as_ref().filter(|_| is_of_another(own));
    apus_net::spawn_tied(&mut command, account).map_err(|error| {
        let program = own.program.display();
        let message = match account {
            Some(account) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "{program} as `{}`: {error} (Apus has to be started as root for this)",
                account.name
            ),
            _ => format!("{program}: {error}"),
        };
        io::Error::new(error.kind(), message)
    })
}

fn command(own: &Own, children: usize) -> Command {
    let mut command = Command::new(&own.program);
    command
        .args(["-d", REPLACED])
        .args(&own.arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .envs(own.environment.iter().map(|(name, value)| (name, value)))
        .env("PHP_FCGI_CHILDREN", children.to_string())
        // Workers are recycled by us.
        .env("PHP_FCGI_MAX_REQUESTS", "0")
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Passes on what PHP says to nobody in particular.
async fn log(errors: pipe::Receiver, pool: String) {
    let mut lines = BufReader::new(errors).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let shown = Line {
            pool: &pool,
            pid: 0,
            request: None,
        };
        shown.write(Level::Warning, &line);
    }
}
