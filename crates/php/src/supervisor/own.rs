//! PHP of our own: a `php-cgi` that listens on its standard input as a FastCGI server, with children that
//! share its opcache.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use apus_net::client::Address;
use rustix::process::{Pid, Signal as Kill};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use super::{Supervisor, unix};
use crate::exchange::Line;
use crate::plan::{Launch, Own};
use crate::wire::Level;

/// A `php-cgi` and its children.
pub(super) struct Master {
    child: Child,
    socket: PathBuf,
    generation: u64,
    started: Instant,
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
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(pid, Kill::KILL);
        }
        let _ = self.child.wait();
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
        let mut command = command(own, self.shared.plan.max + SPARE);
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        let mut child = apus_net::spawn_tied(&mut command).map_err(|error| {
            let program = own.program.display();
            io::Error::new(error.kind(), format!("{program}: {error}"))
        })?;
        if let Some(errors) = child.stderr.take() {
            let errors = pipe::Receiver::from_owned_fd(errors.into())?;
            tokio::task::spawn_local(log(errors, self.shared.plan.name.to_string()));
        }
        tracing::info!(
            pool = &*self.shared.plan.name,
            program = %own.program.display(),
            pid = child.id(),
            "PHP is started"
        );
        self.masters.push(Master {
            child,
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
        if let Ok(Some(status)) = newest.child.try_wait() {
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
