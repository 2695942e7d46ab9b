//! The process of the application, from its start until it listens, and to its end.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use apus_http::DevelopmentHosts;
use apus_net::DEVELOPMENT_SOCKET;
use tokio::time::{sleep, timeout};

use crate::cargo_build::BuiltProgram;
use crate::child::DependentChild;
use crate::output::ProcessOutput;
use crate::project::CargoProject;
use crate::state::UnansweredRequests;

/// How long a process that is to end may take for the responses to requests that cannot be sent to the next one. It has read them
/// by then, and completes them before its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// The time between two attempts to connect to an application that starts.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// The running application.
pub(crate) struct ApplicationProcess {
    child: DependentChild,
    pub(crate) socket: PathBuf,
    pub(crate) output: Arc<ProcessOutput>,
    pub(crate) file: ProgramFile,
    pub(crate) requests: UnansweredRequests,
}

/// The file of a program: another one after a build that changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramFile {
    inode: u64,
    modified: (i64, i64),
    len: u64,
}

impl ProgramFile {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            len: metadata.len(),
        })
    }
}

impl ApplicationProcess {
    /// Starts a program, which is to listen on this socket.
    pub(crate) fn start(
        program: &BuiltProgram,
        project: &CargoProject,
        (arguments, hosts): (&[OsString], &DevelopmentHosts),
        socket: PathBuf,
    ) -> io::Result<Self> {
        let file = ProgramFile::of(&program.path)?;
        let mut command = Command::new(&program.path);
        command
            .args(arguments)
            .env(DEVELOPMENT_SOCKET, &socket)
            .env(DevelopmentHosts::VARIABLE, hosts.to_variable())
            // As `cargo run` sets it.
            .env("CARGO_MANIFEST_DIR", project.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            command.env("RUST_BACKTRACE", "1");
        }
        let mut child = DependentChild::start(&mut command)?;
        let pipe = child.take_stderr().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            output: ProcessOutput::read(pipe.into())?,
            child,
            socket,
            file,
            requests: UnansweredRequests::new(),
        })
    }

    /// Waits for the end of the process.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Stops the process, which may complete its requests. No more are sent to it.
    ///
    /// A process that ends closes the connections that wait for a request. One that is on its way then is lost: whether the process
    /// has read it cannot be known, so that a POST must not be sent again (RFC 9110 section 9.2.2). So the process learns of its
    /// end when there is none on its way.
    pub(crate) async fn stop(self) {
        // After that time the process works on them.
        let _ = timeout(DRAIN_TIMEOUT, self.requests.ended()).await;
        self.child.stop().await;
    }
}

/// Waits until a process listens on a socket.
pub(crate) async fn wait_for_listener(socket: PathBuf) {
    while UnixStream::connect(&socket).is_err() {
        sleep(CONNECT_INTERVAL).await;
    }
}
