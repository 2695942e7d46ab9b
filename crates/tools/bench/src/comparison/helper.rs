//! What servers of a comparison need: commands that are run before, and programs that run beside them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::usage::ServerProcesses;
use crate::{BenchError, CpuList};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::comparison::clock::ComparisonClock;
use crate::comparison::process::{GroupGuard, last_output, spawn_pinned};

/// The time between two looks at a program that starts, works or stops.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time over which the CPU of a helper is looked at, to know whether it is idle.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// An idle helper uses at most so much of a core.
const IDLE_CORES: f64 = 0.05;

/// How long a program may take to stop before it is killed.
const STOPPING: Duration = Duration::from_secs(20);

/// A program that runs beside the servers.
#[derive(Clone, Debug)]
pub(crate) struct ComparisonHelper {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) cores: Option<CpuList>,
    pub(crate) ready: Option<ReadySign>,
    pub(crate) ready_within: Duration,
    /// What is run once it is ready.
    pub(crate) then: Vec<Vec<String>>,
    /// The servers for which it works, if its consumption is counted.
    pub(crate) of: Vec<String>,
    /// Whether that is counted apart from the server's.
    pub(crate) is_apart: bool,
    /// Before each load, it has to become idle within this time.
    pub(crate) idle_within: Option<Duration>,
}

/// By what it is known that a program is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadySign {
    /// Somebody listens there.
    Address(SocketAddr),
    /// There is such a file, as a Unix socket.
    File(PathBuf),
}

impl ReadySign {
    /// An address, or a path.
    pub(crate) fn parse(text: &str, folder: &Path) -> Self {
        match text.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::File(folder.join(text)),
        }
    }

    fn is_given(&self) -> bool {
        match self {
            Self::Address(address) => {
                TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok()
            }
            Self::File(path) => fs::exists(path).unwrap_or(false),
        }
    }
}

/// A helper that runs.
pub(crate) struct StartedHelper {
    name: String,
    child: Child,
    _guard: GroupGuard,
    pub(crate) of: Vec<String>,
    pub(crate) is_apart: bool,
    idle_within: Option<Duration>,
}

impl ComparisonHelper {
    /// Starts it, waits until it is ready, and runs what is to be run then.
    pub(crate) fn start(
        &self,
        folder: &Path,
        clock: &mut ComparisonClock,
    ) -> Result<StartedHelper, BenchError> {
        let name = &self.name;
        let failed = |cause: &dyn fmt::Display| {
            BenchError::Server(format!("the helper `{name}` fails: {cause}"))
        };
        let mut output = tempfile::tempfile()?;
        let child = spawn(&self.command, folder, &output, self.cores.clone())
            .map_err(|error| failed(&error))?;
        let guard = guarded(&child).map_err(|error| failed(&error))?;
        let mut started = StartedHelper {
            name: name.clone(),
            child,
            _guard: guard,
            of: self.of.clone(),
            is_apart: self.is_apart,
            idle_within: self.idle_within,
        };
        let begin = Instant::now();
        while !self.ready.as_ref().is_none_or(ReadySign::is_given) {
            if let Some(status) = started.child.try_wait()? {
                let text = last_output(&mut output);
                return Err(failed(&format_args!(
                    "it ended before it was ready ({status}){text}"
                )));
            }
            if begin.elapsed() > self.ready_within {
                let text = last_output(&mut output);
                return Err(failed(&format_args!(
                    "it is not ready within {:?}{text}",
                    self.ready_within
                )));
            }
            if clock.wait(LOOK_EVERY) {
                return Err(failed(&"interrupted"));
            }
        }
        for command in &self.then {
            carry_out(command, folder, clock)?;
        }
        Ok(started)
    }
}

impl StartedHelper {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The seconds of CPU that it has used, if it has to become idle.
    fn cpu(&self) -> Option<f64> {
        self.idle_within?;
        let reading = ServerProcesses::of_pid(self.pid())?.read()?;
        Some(reading.cpu)
    }

    /// Stops it, politely at first.
    pub(crate) fn stop(mut self, clock: &ComparisonClock) {
        self.signal(Signal::TERM);
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < STOPPING {
            clock.pause(LOOK_EVERY);
        }
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // It may be gone already.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Waits until those helpers are idle that have to become so: they may still work on requests of the load before, whose
/// clients have gone.
pub(crate) fn wait_until_idle(
    helpers: &[StartedHelper],
    clock: &mut ComparisonClock,
) -> Result<(), BenchError> {
    let begin = Instant::now();
    let mut working: Vec<&StartedHelper> = helpers
        .iter()
        .filter(|helper| helper.idle_within.is_some())
        .collect();
    while !working.is_empty() {
        let before: Vec<Option<f64>> = working.iter().map(|helper| helper.cpu()).collect();
        if clock.wait(IDLE_INTERVAL) {
            return Ok(());
        }
        let most = IDLE_CORES * IDLE_INTERVAL.as_secs_f64();
        let mut before = before.into_iter();
        working.retain(|helper| {
            let used = before.next().flatten().zip(helper.cpu());
            used.is_some_and(|(before, after)| after - before > most)
        });
        for helper in &working {
            if let Some(within) = helper.idle_within
                && begin.elapsed() > within
            {
                return Err(BenchError::Server(format!(
                    "the helper `{}` still works, {within:?} after the load before",
                    helper.name
                )));
            }
        }
    }
    Ok(())
}

impl Drop for StartedHelper {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Runs a command to its end, which has to be a success.
pub(crate) fn carry_out(
    command: &[String],
    folder: &Path,
    clock: &mut ComparisonClock,
) -> Result<(), BenchError> {
    let words = command.join(" ");
    let failed = |cause: &dyn fmt::Display| BenchError::Server(format!("`{words}` fails: {cause}"));
    let mut output = tempfile::tempfile()?;
    let mut child = spawn(command, folder, &output, None).map_err(|error| failed(&error))?;
    let _guard = guarded(&child).map_err(|error| failed(&error))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() {
                Ok(())
            } else {
                Err(failed(&format_args!(
                    "{status}{}",
                    last_output(&mut output)
                )))
            };
        }
        if clock.wait(LOOK_EVERY) {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::TERM);
            }
            let _ = child.wait();
            return Err(failed(&"interrupted"));
        }
    }
}

/// The guard of a process that was just started; without one, the process does not go on.
fn guarded(child: &Child) -> Result<GroupGuard, CommandStartError> {
    GroupGuard::of(child).map_err(|error| {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        CommandStartError::Program {
            program: "sh".to_owned(),
            error,
        }
    })
}

fn spawn(
    command: &[String],
    folder: &Path,
    output: &File,
    cores: Option<CpuList>,
) -> Result<Child, CommandStartError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(CommandStartError::Empty);
    };
    let cannot = |error| CommandStartError::Program {
        program: program.clone(),
        error,
    };
    let mut started = Command::new(program);
    started
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(cannot)?)
        .stderr(output.try_clone().map_err(cannot)?)
        .process_group(0);
    spawn_pinned(started, cores).map_err(cannot)
}

/// Why a command of a file cannot be started.
#[derive(Debug)]
enum CommandStartError {
    /// It has no words.
    Empty,
    Program {
        program: String,
        error: io::Error,
    },
}

impl fmt::Display for CommandStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the command is empty"),
            Self::Program { program, error } => {
                write!(f, "`{program}` cannot be started: {error}")
            }
        }
    }
}
