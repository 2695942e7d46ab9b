//! The supervisor: builds the application, restarts it, and follows the changes of its sources.

use std::future::{Future, pending};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_client::{Address, Timeouts};
use apus_http::DevelopmentHosts;
use apus_net::StopSignals;
use apus_proxy::{Proxy, ProxySettings};
use apus_upstream::Upstreams;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::cargo_build::{BuiltProgram, build};
use crate::diagnostics::BuildFailure;
use crate::options::DevOptions;
use crate::process::{ApplicationProcess, ProgramFile, wait_for_listener};
use crate::project::CargoProject;
use crate::sources::{SourceChange, SourceTree};
use crate::state::{ApplicationFailure, DevPhase, DevStateSender, ReadyApplication};
use crate::terminal::DevTerminal;

/// The time without changes before the project is built: editors and Git change many files at once.
const DEBOUNCE: Duration = Duration::from_millis(80);

/// The longest time from the first change, if there is always another one.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);

/// How long an application may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the application may take for a response: a developer may stop it in a debugger.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3600);

/// A step that takes time, while changes and signals are handled.
type Step<T> = Pin<Box<dyn Future<Output = T>>>;

/// The supervisor of one application.
pub(crate) struct DevSupervisor {
    project: CargoProject,
    options: DevOptions,
    hosts: DevelopmentHosts,
    terminal: DevTerminal,
    state: DevStateSender,
    sources: SourceTree,
    changes: mpsc::UnboundedReceiver<PathBuf>,
    /// The folder of the sockets, which only this user may enter.
    folder: TempDir,
    build: Option<Step<Result<BuiltProgram, BuildFailure>>>,
    built_since: Instant,
    /// What the last build took, until it is shown.
    built_in: Option<Duration>,
    started: Instant,
    /// Whether the sources have mistakes: the application is older then, and does not respond.
    is_build_failed: bool,
    program: Option<BuiltProgram>,
    process: Option<ApplicationProcess>,
    /// Ready when the process listens: `true`, or takes too long.
    listening: Option<Step<bool>>,
    processes: u64,
    stop: StopSignals,
}

enum SupervisorEvent {
    Changed(PathBuf),
    Built(Result<BuiltProgram, BuildFailure>),
    Listening(bool),
    Ended(std::io::Result<ExitStatus>),
    Stop,
}

impl DevSupervisor {
    pub(crate) fn new(
        project: CargoProject,
        options: DevOptions,
        hosts: DevelopmentHosts,
        state: DevStateSender,
    ) -> Result<Self, SupervisorError> {
        let (sender, changes) = mpsc::unbounded_channel();
        let sources = SourceTree::watch(&project, sender).map_err(SupervisorError::Watch)?;
        Ok(Self {
            project,
            options,
            hosts,
            terminal: DevTerminal::of_process(),
            state,
            sources,
            changes,
            folder: tempfile::Builder::new()
                .prefix("apus-dev-")
                .tempdir()
                .map_err(SupervisorError::Io)?,
            build: None,
            built_since: Instant::now(),
            built_in: None,
            started: Instant::now(),
            is_build_failed: false,
            program: None,
            process: None,
            listening: None,
            processes: 0,
            stop: StopSignals::new().map_err(SupervisorError::Io)?,
        })
    }

    /// Runs until a signal stops it.
    pub(crate) async fn run(&mut self) {
        self.start_build();
        loop {
            match self.next_event().await {
                SupervisorEvent::Changed(path) => self.follow(path).await,
                SupervisorEvent::Built(result) => {
                    self.build = None;
                    self.finish_build(result).await;
                }
                SupervisorEvent::Listening(is_listening) => {
                    self.listening = None;
                    self.finish_start(is_listening).await;
                }
                SupervisorEvent::Ended(status) => self.report_end(status),
                SupervisorEvent::Stop => break,
            }
        }
        // A build that runs is killed.
        self.build = None;
        self.state.wait(DevPhase::Starting);
        if let Some(process) = self.process.take() {
            process.stop().await;
        }
    }

    async fn next_event(&mut self) -> SupervisorEvent {
        let Self {
            build,
            listening,
            process,
            changes,
            stop,
            ..
        } = self;
        let build = async {
            match build {
                Some(build) => build.await,
                None => pending().await,
            }
        };
        let listening = async {
            match listening {
                Some(listening) => listening.await,
                None => pending().await,
            }
        };
        let end = async {
            match process {
                Some(process) => process.wait().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.next() => SupervisorEvent::Stop,
            status = end => SupervisorEvent::Ended(status),
            result = build => SupervisorEvent::Built(result),
            is_listening = listening => SupervisorEvent::Listening(is_listening),
            Some(path) = changes.recv() => SupervisorEvent::Changed(path),
        }
    }

    /// Does what a change requires, and those that follow it at once.
    async fn follow(&mut self, path: PathBuf) {
        let mut required = None;
        let mut next = Some(path);
        let first = Instant::now();
        while let Some(path) = next {
            // Cargo writes it.
            let is_own = self.build.is_some() && path.ends_with("Cargo.lock");
            let change = self.sources.change(&path).filter(|_| !is_own);
            // A release contains its migrations.
            let is_contained =
                self.options.selection.is_release && path.extension().is_some_and(|it| it == "sql");
            let change = match change {
                Some(SourceChange::Restart) if is_contained => Some(SourceChange::Build),
                change => change,
            };
            if change > required {
                let shown = path.strip_prefix(self.project.folder()).unwrap_or(&path);
                self.terminal
                    .progress(&format!("{} changed", shown.display()));
                required = change;
            }
            next = if first.elapsed() < MAX_DEBOUNCE {
                timeout(DEBOUNCE, self.changes.recv()).await.unwrap_or(None)
            } else {
                None
            };
        }
        match required {
            None => {}
            Some(SourceChange::Build) => self.start_build(),
            // The application is started after the build.
            Some(SourceChange::Restart) if self.build.is_some() => {}
            Some(SourceChange::Restart) if self.is_build_failed => {}
            Some(SourceChange::Restart) => self.restart().await,
            Some(SourceChange::Reload) => self.state.reload(),
        }
    }

    /// Builds the application. A build that runs is killed: its sources are older.
    fn start_build(&mut self) {
        self.build = None;
        self.built_since = Instant::now();
        // Requests wait, unless the application of the last sources without a mistake is there.
        if !self.state.is_ready() {
            self.state.wait(DevPhase::Building);
        }
        let project = self.project.clone();
        let selection = self.options.selection.clone();
        let terminal = self.terminal;
        terminal.progress(&format!("building {}", project.binary));
        self.build = Some(Box::pin(async move {
            build(&project, &selection, terminal).await
        }));
    }

    async fn finish_build(&mut self, result: Result<BuiltProgram, BuildFailure>) {
        self.is_build_failed = result.is_err();
        self.built_in = Some(self.built_since.elapsed());
        match result {
            Err(failure) => self.state.finish(DevPhase::BuildFailed(Arc::new(failure))),
            Ok(program) => {
                self.sources.add_sources(&program.sources);
                let file = ProgramFile::of(&program.path).ok();
                self.program = Some(program);
                match &self.process {
                    // The build has changed nothing, or a mistake was taken back.
                    Some(process) if Some(process.file) == file => {
                        if self.listening.is_some() {
                            self.state.wait(DevPhase::Starting);
                        } else if !self.state.is_ready() {
                            self.started = Instant::now();
                            self.publish_ready();
                        } else {
                            self.built_in = None;
                        }
                    }
                    _ => self.restart().await,
                }
            }
        }
    }

    /// Stops the application, and starts the program that was built last.
    async fn restart(&mut self) {
        let Some(program) = self.program.clone() else {
            return;
        };
        // From here on requests wait. Those that the application has are completed.
        self.state.wait(DevPhase::Starting);
        self.listening = None;
        if let Some(process) = self.process.take() {
            process.stop().await;
        }
        self.processes += 1;
        self.started = Instant::now();
        let socket = self.folder.path().join(format!("{}.sock", self.processes));
        let started = ApplicationProcess::start(
            &program,
            &self.project,
            (&self.options.arguments, &self.hosts),
            socket.clone(),
        );
        match started {
            Ok(process) => {
                self.process = Some(process);
                self.listening = Some(Box::pin(async move {
                    tokio::select! {
                        () = wait_for_listener(socket) => true,
                        () = sleep(START_TIMEOUT) => false,
                    }
                }));
            }
            Err(error) => self.fail(
                format!("{} cannot be started: {error}", program.path.display()),
                String::new(),
            ),
        }
    }

    async fn finish_start(&mut self, is_listening: bool) {
        if is_listening {
            // The mistakes in the sources are shown until they are corrected.
            if !self.is_build_failed {
                self.publish_ready();
            }
        } else if let Some(process) = self.process.take() {
            let output = process.output.last_lines();
            process.stop().await;
            let title = format!(
                "{} runs, but listens on no address of the framework: does it start a Server?",
                self.project.binary
            );
            self.fail(title, output);
        }
    }

    fn publish_ready(&mut self) {
        let built_in = self.built_in.take();
        let Some(process) = &self.process else {
            return;
        };
        let built = built_in.map_or_else(String::new, |time| {
            format!("built in {:.1} s, ", time.as_secs_f32())
        });
        let started = self.started.elapsed().as_secs_f32();
        self.terminal.progress(&format!(
            "{} is ready: {built}started in {started:.1} s",
            self.project.binary
        ));
        self.state
            .finish(DevPhase::Ready(Arc::new(ReadyApplication {
                number: self.processes,
                proxy: proxy(&process.socket),
                output: Arc::clone(&process.output),
                requests: process.requests.clone(),
            })));
    }

    fn report_end(&mut self, status: std::io::Result<ExitStatus>) {
        self.listening = None;
        let Some(process) = self.process.take() else {
            return;
        };
        let status = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let title = format!("{} has ended: {status}", self.project.binary);
        // The mistakes in the sources, or the result of a build that runs, are shown instead.
        if self.is_build_failed || self.build.is_some() && !self.state.is_ready() {
            self.terminal.write(&title);
            return;
        }
        self.fail(title, process.output.last_lines());
    }

    fn fail(&self, title: String, output: String) {
        self.terminal.write(&title);
        let failure = ApplicationFailure { title, output };
        self.state.finish(DevPhase::Failed(Arc::new(failure)));
    }
}

/// The proxy to an application.
fn proxy(socket: &std::path::Path) -> Proxy {
    let address = NodeTarget::Address(Address::Unix(socket.into()));
    let mut group = GroupPlan::new("application", vec![NodePlan::new("application", address)]);
    // There is no other node.
    group.passive = None;
    group.timeouts = Timeouts {
        first_byte: RESPONSE_TIMEOUT,
        read: RESPONSE_TIMEOUT,
        ..Timeouts::default()
    };
    let upstreams = Upstreams::new();
    upstreams.apply(vec![group]);
    let mut settings = ProxySettings::default();
    // The application responds as it does without a proxy.
    settings.forwarding.via = false;
    settings.forwarding.underscores = true;
    Proxy::new(&upstreams, "application", settings)
}

/// Why the supervisor cannot start.
#[derive(Debug)]
pub(crate) enum SupervisorError {
    Watch(notify::Error),
    Io(std::io::Error),
}
