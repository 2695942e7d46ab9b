//! The servers of a comparison: started, waited for, and stopped.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{BenchError, BenchUrl, CpuList, LoadLimit, LoadPlan, ResponseSample, fetch};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::comparison::clock::ComparisonClock;
use crate::comparison::process::{GroupGuard, last_output, spawn_pinned};

/// The time between two looks at a server that starts or stops.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a server may take to stop before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// How long a request to a server that starts may take, if that is not more than the server may take in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct ComparedServer {
    pub(crate) name: String,
    /// What is requested.
    pub(crate) url: BenchUrl,
    /// How it is started; empty if it runs already.
    pub(crate) command: Vec<String>,
    /// How it is stopped, instead of SIGTERM.
    pub(crate) stop: Vec<String>,
    /// What prints its version.
    pub(crate) version: Vec<String>,
    pub(crate) directory: PathBuf,
    pub(crate) environment: Vec<(String, String)>,
    /// The processors that it may use.
    pub(crate) cores: Option<CpuList>,
    /// How long it may take until it responds.
    pub(crate) ready_within: Duration,
    /// What is run once before it is started first.
    pub(crate) prepare: Vec<Vec<String>>,
    /// Whether it is left out if it cannot be prepared or started.
    pub(crate) is_optional: bool,
    /// Whether its response may be another one.
    pub(crate) has_other_response: bool,
}

/// A server that runs.
pub(crate) struct StartedServer {
    plan: ComparedServer,
    child: Option<Child>,
    guard: Option<GroupGuard>,
    output: File,
}

impl ComparedServer {
    /// Starts the server, and waits until it responds to the requests of a load.
    pub(crate) fn start(
        &self,
        load: &LoadPlan,
        clock: &mut ComparisonClock,
    ) -> Result<(StartedServer, ResponseSample), BenchError> {
        let failed = |cause: String| {
            BenchError::Server(format!(
                "the server `{}` cannot be measured: {cause}",
                self.name
            ))
        };
        let output = tempfile::tempfile()?;
        let mut running = StartedServer {
            plan: self.clone(),
            child: None,
            guard: None,
            output,
        };
        if let Some((program, arguments)) = self.command.split_first() {
            let (out, errors) = (running.output.try_clone()?, running.output.try_clone()?);
            let mut command = self.command(program, arguments);
            command.stdout(out).stderr(errors).process_group(0);
            let child = spawn_pinned(command, self.cores.clone());
            let child = running.child.insert(
                child.map_err(|error| failed(format!("`{program}` cannot be started: {error}")))?,
            );
            running.guard = Some(GroupGuard::of(child)?);
        }
        let mut asking = load.clone();
        asking.limit = LoadLimit::Requests(1);
        asking.warm_up = Duration::ZERO;
        asking.timeout = asking.timeout.min(self.ready_within.max(PATIENCE));
        let begin = Instant::now();
        loop {
            let cause = match fetch(&asking) {
                Ok(sample) => return Ok((running, sample)),
                Err(error @ (BenchError::Plan(_) | BenchError::NotLocal { .. })) => {
                    return Err(error);
                }
                Err(error) => error.to_string(),
            };
            if let Some(status) = running.ended()? {
                return Err(failed(format!(
                    "it ended before it responded ({status}){}",
                    last_output(&mut running.output)
                )));
            }
            if begin.elapsed() >= self.ready_within || self.command.is_empty() {
                return Err(failed(format!(
                    "{cause}{}",
                    last_output(&mut running.output)
                )));
            }
            if clock.wait(LOOK_EVERY) {
                return Err(failed("interrupted".to_owned()));
            }
        }
    }

    fn command(&self, program: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.directory)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// The first line that its version command prints.
    pub(crate) fn version(&self) -> Option<String> {
        let (program, arguments) = self.version.split_first()?;
        let output = self.command(program, arguments).output().ok()?;
        let all = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&all);
        text.lines().next().map(|line| line.trim().to_owned())
    }
}

impl StartedServer {
    /// The process whose consumption is measured; `None` if it went to the background.
    pub(crate) fn pid(&mut self) -> Option<u32> {
        let child = self.child.as_mut()?;
        match child.try_wait() {
            Ok(None) => Some(child.id()),
            _ => None,
        }
    }

    /// The status with which it ended, unless it runs or went to the background.
    fn ended(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let ended = child.try_wait()?;
        let is_in_background = !self.plan.stop.is_empty();
        Ok(ended.filter(|status| !(status.success() && is_in_background)))
    }

    /// Fails if the server ended during the load.
    pub(crate) fn expect_alive(&mut self) -> Result<(), BenchError> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(BenchError::Server(format!(
                "the server `{}` ended during the load ({status}){}",
                self.plan.name,
                last_output(&mut self.output)
            ))),
        }
    }

    /// Stops the server and waits until it is gone.
    pub(crate) fn stop(mut self, clock: &ComparisonClock) -> Result<(), BenchError> {
        if let Some((program, arguments)) = self.plan.stop.split_first() {
            let status = self
                .plan
                .command(program, arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let name = &self.plan.name;
            let wrong =
                |cause: String| BenchError::Server(format!("`{name}` cannot be stopped: {cause}"));
            let status = status.map_err(|error| wrong(format!("`{program}`: {error}")))?;
            if !status.success() {
                return Err(wrong(format!("`{program}` failed ({status})")));
            }
        } else {
            self.signal(Signal::TERM);
        }
        let begin = Instant::now();
        while self.is_running() && begin.elapsed() < STOPPING {
            clock.pause(LOOK_EVERY);
        }
        Ok(())
    }

    /// Whether a process of it is left: a shell that started it ends before what it started.
    fn is_running(&mut self) -> bool {
        self.pid().is_some()
            || self
                .group()
                .is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.as_ref()?.id()).ok()?)
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            // It may be gone already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::KILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}
