//! The supervisor of a pool, which starts, replaces and kills its workers on a separate thread.

mod boot;
mod folder;
mod handshake;
mod interruption;
mod orphans;
mod php_cgi;
mod process;
mod reload;
mod schedule;
mod tasks;
mod unidentified;
mod watch;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_client::Address;
use apus_tokens::{Hexadecimal, random_bytes};
use bytes::Bytes;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use self::boot::{BootEnd, PhpOutput};
use self::folder::Folder;
use self::handshake::BootingWorker;
use self::interruption::Interruption;
pub use self::orphans::end_orphans;
use self::php_cgi::PhpCgiMaster;
pub use self::php_cgi::{children_of, spawn};
pub use self::process::PhpCgiProcess;
use self::reload::RollingReload;
use self::schedule::MIN_INTERVAL;
use self::tasks::Tasks;
use crate::background;
use crate::connection::WorkerConnection;
use crate::error::{PoolStartError, WorkerError};
use crate::error_log::{ErrorLogPipe, ErrorLogReader};
use crate::hello::ReceivedHello;
use crate::plan::Launch;
use crate::record::{RecycleLimits, WorkerId, WorkerIdentity, WorkerRecord};
use crate::shared::{PoolAdmission, SharedPool, increment};
use crate::sockets::SocketCommand;
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{PhpCommand, ReadyFrame};

/// The delay after a failed boot, which doubles each time up to a maximum.
const MIN_BOOT_DELAY: Duration = Duration::from_millis(200);
const MAX_BOOT_DELAY: Duration = Duration::from_secs(30);

/// Supervises the workers of one pool.
pub(crate) struct Supervisor {
    shared: Arc<SharedPool>,
    messages: mpsc::UnboundedReceiver<SupervisorMessage>,
    folder: Folder,
    /// The socket that workers connect to, until the supervisor runs.
    listener: Option<UnixListener>,
    /// The application's script, with all symbolic links resolved.
    script: PathBuf,
    /// The number of reloads plus one; each worker belongs to a generation.
    generation: u64,
    workers: HashMap<WorkerId, SupervisedWorker>,
    last_id: WorkerId,
    masters: Vec<PhpCgiMaster>,
    /// The number of failed boots in a row.
    failures: u32,
    /// Set while the FastCGI server interrupts boots.
    interruption: Option<Interruption>,
    /// Whether a worker of this pool ever booted.
    has_booted: bool,
    /// The number of workers that ended before their first request, since one proved to work.
    unused_workers: u32,
    /// The earliest time of the next boot.
    next_boot: Instant,
    /// When the schedule was checked last.
    last_check: Instant,
    /// The boot failure that was logged last.
    logged_failure: Option<Arc<str>>,
    /// Whether each request of a classic application gets a fresh process.
    is_single_use: bool,
    reload: Option<RollingReload>,
    tasks: Tasks,
    shutdown: Option<PoolShutdown>,
    watch: Option<watch::SourceWatcher>,
}

struct PoolShutdown {
    replies: Vec<oneshot::Sender<()>>,
    until: Instant,
}

/// A worker from the start of its FastCGI request to its end.
struct SupervisedWorker {
    generation: u64,
    /// The secret by which it proves that it is a worker.
    token: String,
    phase: WorkerPhase,
    since: Instant,
    output: Rc<RefCell<PhpOutput>>,
    /// Where PHP writes its error log; `None` if the system has no named pipes in this folder.
    error_log: Option<ErrorLogPipe>,
    record: Option<Arc<WorkerRecord>>,
    /// The task of its FastCGI request.
    request: JoinHandle<()>,
    /// Whether its FastCGI request ended before its connection did.
    is_request_over: bool,
    /// Whether its connection ended before it was ready.
    is_connection_over: bool,
}

impl SupervisedWorker {
    /// Takes the pipe of its error log; `None` if there is none.
    fn open_error_log(&mut self) -> io::Result<Option<ErrorLogReader>> {
        let reader = self.error_log.as_mut().and_then(ErrorLogPipe::take_reader);
        reader.map(ErrorLogReader::new).transpose()
    }

    /// Why it did not boot, when its FastCGI request is over.
    fn boot_failure(&mut self) -> String {
        // A process that did not connect may have logged why.
        let unread = self.open_error_log().ok().flatten();
        let mut output = self.output.borrow_mut();
        output.error_log_reader = output.error_log_reader.take().or(unread);
        output.message()
    }

    /// Whether it has proved that the application works: it got a request, or it is ready for long enough. Only workers
    /// of the current `generation` count: after a failed reload, old workers still run.
    fn is_proven(&self, generation: u64, now: Instant) -> bool {
        let has_request = self.record.as_ref().is_some_and(|one| one.requests() > 0);
        let is_ready_for_long =
            self.phase == WorkerPhase::Ready && now.duration_since(self.since) >= PROBATION;
        self.generation == generation && (has_request || is_ready_for_long)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPhase {
    /// Its FastCGI request was sent; it did not connect yet.
    Requested,
    /// It connected, and the application boots.
    Booting,
    /// It handles requests.
    Ready,
    /// It gets no more requests.
    Stopping,
}

impl WorkerPhase {
    fn is_starting(self) -> bool {
        matches!(self, Self::Requested | Self::Booting)
    }
}

impl Supervisor {
    /// Prepares the folder, the socket and PHP. No worker starts before [`Supervisor::run`].
    pub(crate) fn new(
        shared: Arc<SharedPool>,
        messages: mpsc::UnboundedReceiver<SupervisorMessage>,
    ) -> Result<Self, PoolStartError> {
        let folder = Folder::open(&shared.plan)?;
        let listener = folder
            .listen()
            .map_err(|error| PoolStartError::Folder(folder.socket().to_owned(), error))?;
        let script = resolve(&shared.plan.script)?;
        let watch = if shared.plan.development {
            Some(watch::SourceWatcher::start(
                &script,
                shared.supervisor.clone(),
            ))
        } else {
            None
        };
        let mut this = Self {
            tasks: Tasks::new(&shared),
            shared,
            messages,
            folder,
            listener: Some(listener),
            script,
            generation: 1,
            workers: HashMap::new(),
            last_id: 0,
            masters: Vec::new(),
            failures: 0,
            interruption: None,
            has_booted: false,
            unused_workers: 0,
            next_boot: Instant::now(),
            last_check: Instant::now(),
            logged_failure: None,
            is_single_use: false,
            reload: None,
            shutdown: None,
            watch,
        };
        this.start_master().map_err(PoolStartError::Program)?;
        Ok(this)
    }

    /// Supervises the pool until it is stopped.
    pub(crate) async fn run(mut self) {
        if let Some(listener) = self.listener.take() {
            tokio::task::spawn_local(handshake::accept(listener, self.shared.supervisor.clone()));
        }
        let shared = Arc::clone(&self.shared);
        // Reports that a child process ended. It fails only without a runtime.
        let mut children = signal(SignalKind::child()).ok();
        self.reconcile();
        loop {
            let next = self.next_check();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => break,
                },
                () = shared.supervisor_wakeup.notified() => self.check(),
                () = child_ended(&mut children), if !self.masters.is_empty() => self.check(),
                () = until(next) => self.check(),
            }
            if self.is_stopped() {
                break;
            }
        }
        for mut master in self.masters.drain(..) {
            master.kill();
        }
        self.folder.remove();
        if let Some(shutdown) = self.shutdown.take() {
            for reply in shutdown.replies {
                let _ = reply.send(());
            }
        }
    }

    fn handle(&mut self, message: SupervisorMessage) {
        match message {
            SupervisorMessage::RecycleDue(connection) => {
                increment(&self.shared.counters.recycled);
                self.stop_worker(connection, true);
                self.reconcile();
            }
            SupervisorMessage::Leaving(connection) => {
                self.stop_worker(connection, false);
                self.reconcile();
            }
            SupervisorMessage::ClientGone {
                connection,
                is_pulling,
                request,
            } => {
                let shared = Arc::clone(&self.shared);
                let drained = background::drain(shared, connection, is_pulling, *request);
                tokio::task::spawn_local(drained);
            }
            SupervisorMessage::CannotIncludeTwice => {
                if !std::mem::replace(&mut self.is_single_use, true) {
                    tracing::info!(
                        pool = &*self.shared.plan.name,
                        "the application cannot be included twice in one process: each request gets \
                         a process of its own"
                    );
                }
            }
            SupervisorMessage::Task {
                name,
                payload,
                delay,
            } => self.tasks.push(name, payload, delay),
            SupervisorMessage::TaskDone(result) => self.tasks.done(result),
            SupervisorMessage::HelloReceived(received) => self.hello_received(*received),
            SupervisorMessage::Booted(connection, ready) => self.worker_booted(*connection, ready),
            SupervisorMessage::BootFailed(id, message) => self.fail_boot(id, message),
            SupervisorMessage::BootRequestEnded(id) => self.boot_request_ended(id),
            SupervisorMessage::FilesChanged(path) => self.files_changed(&path),
            SupervisorMessage::Reload(reply) => self.begin_reload(Some(reply)),
            SupervisorMessage::Stop(reply) => self.stop(reply),
        }
    }

    /// Starts as many workers as the plan, the queue or a reload demand.
    fn reconcile(&mut self) {
        if self.shutdown.is_some() || Instant::now() < self.next_boot {
            self.shared.state().may_grow = false;
            return;
        }
        let plan = &self.shared.plan;
        let current = |worker: &&SupervisedWorker| worker.generation == self.generation;
        let starting = self
            .workers
            .values()
            .filter(current)
            .filter(|worker| worker.phase.is_starting())
            .count();
        let ready = self
            .workers
            .values()
            .filter(current)
            .filter(|worker| worker.phase == WorkerPhase::Ready)
            .count();
        let active = starting + ready;
        let wanted = match &self.reload {
            Some(reload) => reload.target.saturating_sub(active),
            None => plan.min.saturating_sub(active),
        };
        // After a failure, workers boot one by one until a boot succeeds.
        let max_concurrent = if self.failures == 0 && self.interruption.is_none() {
            MAX_CONCURRENT_BOOTS
        } else {
            1
        };
        let max_new = max_concurrent.saturating_sub(starting);
        // One more worker may serve many queued requests, so the pool grows slowly.
        let may_grow =
            |new: usize| starting + new < 1 + ready / 4 && active + new < plan.max && new < max_new;
        let mut state = self.shared.state();
        let growth = usize::from(may_grow(0) && !state.queue.is_empty());
        let new = wanted.max(growth).min(max_new);
        state.may_grow = may_grow(new);
        drop(state);
        for _ in 0..new {
            self.request_worker();
        }
    }

    /// Sends the FastCGI request for one more worker.
    fn request_worker(&mut self) {
        let address = match &self.shared.plan.launch {
            Launch::FastCgiServer(address) => address.clone(),
            Launch::PhpCgi(_) => match self.masters.last() {
                Some(master) => master.address(),
                None => return,
            },
        };
        self.last_id += 1;
        let id = self.last_id;
        let token = secret();
        let output = Rc::<RefCell<PhpOutput>>::default();
        let error_log = ErrorLogPipe::create(self.folder.error_log(&secret())).ok();
        increment(&self.shared.counters.boots);
        let request = boot::BootRequest {
            id,
            address,
            params: self.params(&token, error_log.as_ref()),
            limit: self.shared.plan.boot_limit,
            output: Rc::clone(&output),
            pool: Arc::clone(&self.shared.plan.name),
            supervisor: self.shared.supervisor.clone(),
        };
        let worker = SupervisedWorker {
            generation: self.generation,
            token,
            phase: WorkerPhase::Requested,
            since: Instant::now(),
            output,
            error_log,
            record: None,
            request: tokio::task::spawn_local(boot::run(request)),
            is_request_over: false,
            is_connection_over: false,
        };
        self.workers.insert(id, worker);
    }

    fn params(&self, token: &str, error_log: Option<&ErrorLogPipe>) -> apus_codec::fastcgi::Params {
        boot::params(&boot::BootParameters {
            plan: &self.shared.plan,
            runtime: self.folder.runtime(),
            socket: self.folder.socket(),
            script: &self.script,
            error_log: error_log.map(ErrorLogPipe::path),
            token,
            is_fresh: self.generation > 1,
            is_single_use: self.is_single_use,
        })
    }

    /// Assigns a connection to the worker with the token of its HELLO.
    fn hello_received(&mut self, received: ReceivedHello) {
        let ReceivedHello { connection, hello } = received;
        let expected = self.workers.iter_mut().find(|(_, worker)| {
            worker.phase == WorkerPhase::Requested && worker.token == hello.token
        });
        let Some((id, worker)) = expected else {
            tracing::warn!(
                pool = &*self.shared.plan.name,
                "a process with a wrong token connected as a worker and was rejected"
            );
            return;
        };
        let (id, generation) = (*id, worker.generation);
        let limits = RecycleLimits::new(&self.shared.plan.recycle, random());
        let launcher = self.shared.launcher.clone();
        let connection = connection.into_worker_connection(|socket, pid| {
            WorkerRecord::new(WorkerIdentity {
                id,
                generation,
                hello,
                pid,
                limits,
                socket,
                launcher,
            })
        });
        let opened = connection.and_then(|connection| Ok((connection, worker.open_error_log()?)));
        let (connection, error_log) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.fail_boot(id, error.to_string());
                return;
            }
        };
        worker.phase = WorkerPhase::Booting;
        worker.record = Some(Arc::clone(&connection.record));
        let booting = BootingWorker {
            connection,
            error_log,
            output: Rc::clone(&worker.output),
        };
        let (supervisor, shared) = (self.shared.supervisor.clone(), Arc::clone(&self.shared));
        tokio::task::spawn_local(booting.wait_until_ready(supervisor, shared));
    }

    fn worker_booted(&mut self, connection: WorkerConnection, ready: ReadyFrame) {
        let record = &connection.record;
        let Some(worker) = self.workers.get_mut(&record.id) else {
            record.disconnect();
            return;
        };
        if worker.phase != WorkerPhase::Booting || self.shutdown.is_some() {
            self.stop_worker(connection, true);
            return;
        }
        worker.phase = WorkerPhase::Ready;
        worker.output.borrow_mut().is_booted = true;
        self.has_booted = true;
        self.interruption = None;
        tracing::info!(
            pool = &*self.shared.plan.name,
            pid = record.pid_number(),
            php = &*record.hello.php,
            sapi = &*record.hello.sapi,
            milliseconds = worker.since.elapsed().as_millis(),
            "a worker is booted"
        );
        let generation = worker.generation;
        self.shared.state().takes_sockets = ready.sockets;
        if generation == self.generation {
            self.tasks.set_timers(&ready.timers);
        }
        self.shared.admit(connection);
        if generation == self.generation {
            self.replace_old_worker();
        }
        self.reconcile();
    }

    /// Records why a worker does not boot. The failure is handled when its FastCGI request ends, with the whole
    /// output of PHP.
    fn fail_boot(&mut self, id: WorkerId, message: String) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if !worker.phase.is_starting() {
            return;
        }
        if !message.is_empty() {
            worker.output.borrow_mut().reason = message;
        }
        worker.is_connection_over = true;
        match &worker.record {
            Some(_) if worker.is_request_over => self.boot_request_ended(id),
            // The process ends when its connection is closed; after the limit it is killed.
            Some(record) => record.disconnect(),
            None => self.abort_boot(id),
        }
    }

    /// Ends a boot that takes too long.
    fn fail_late_boot(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let mut output = worker.output.borrow_mut();
        if output.reason.is_empty() {
            output.reason = match worker.phase {
                WorkerPhase::Requested => {
                    "no process took the boot in time: all are busy, or too few"
                }
                _ => "the application did not boot in time",
            }
            .to_owned();
        }
        drop(output);
        match &worker.record {
            // Both its connection and its FastCGI request end with it.
            Some(record) if !record.is_killed() => record.kill(),
            Some(_) => {}
            None => self.abort_boot(id),
        }
    }

    /// Ends the boot of a worker that did not connect.
    fn abort_boot(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.request.abort();
            worker.is_request_over = true;
        }
        self.boot_request_ended(id);
    }

    /// The FastCGI request of a worker ended: its process is free for other requests, or dead.
    fn boot_request_ended(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            let was_over = std::mem::replace(&mut worker.is_request_over, true);
            match worker.phase {
                // It may have connected, and its messages may say more than the request did.
                WorkerPhase::Requested if !was_over => {
                    let supervisor = self.shared.supervisor.clone();
                    tokio::task::spawn_local(async move {
                        sleep(MIN_INTERVAL).await;
                        let _ = supervisor.send(SupervisorMessage::BootRequestEnded(id));
                    });
                    return;
                }
                // Its messages are still being read.
                WorkerPhase::Booting if !worker.is_connection_over => return,
                _ => {}
            }
        }
        let connection = self.shared.remove(id);
        let Some(mut worker) = self.workers.remove(&id) else {
            return;
        };
        if let Some(record) = &worker.record {
            record.disconnect();
        }
        drop(connection);
        // The next check cannot see that it worked.
        if worker.is_proven(self.generation, Instant::now()) {
            self.reset_failures();
        }
        if self.shutdown.is_none() {
            // A worker that ends before its first request counts as a failure: otherwise it would be restarted
            // at once, forever.
            let is_unused = worker.phase == WorkerPhase::Ready
                && worker.since.elapsed() < PROBATION
                && worker
                    .record
                    .as_ref()
                    .is_some_and(|record| record.requests() == 0 && !record.is_killed());
            let message = if worker.phase.is_starting() {
                Some(worker.boot_failure())
            } else {
                is_unused.then(|| "the worker's process ended before its first request".to_owned())
            };
            if let Some(message) = message {
                let end = if is_unused {
                    BootEnd::Unused
                } else {
                    worker.output.borrow().end
                };
                self.handle_lost_worker(end, message.into());
            }
        }
        self.reconcile();
    }

    /// Handles a worker that ended before its first request: the application does not boot, or the FastCGI
    /// server was interrupted.
    fn handle_lost_worker(&mut self, end: BootEnd, message: Arc<str>) {
        if end == BootEnd::Unused {
            self.unused_workers = self.unused_workers.saturating_add(1);
        }
        if self.is_interrupted(end) {
            self.retry_interrupted_boot(&message)
        } else {
            self.record_boot_failure(message)
        }
    }

    fn record_boot_failure(&mut self, message: Arc<str>) {
        increment(&self.shared.counters.boot_failures);
        self.failures = self.failures.saturating_add(1);
        let delay = MIN_BOOT_DELAY
            .saturating_mul(1 << (self.failures - 1).min(10))
            .min(MAX_BOOT_DELAY);
        self.next_boot = Instant::now() + delay;
        // Log a failure once, and not with each attempt.
        if self.logged_failure.as_ref() != Some(&message) {
            tracing::error!(
                pool = &*self.shared.plan.name,
                script = %self.script.display(),
                "the application does not boot: {message}"
            );
            self.logged_failure = Some(Arc::clone(&message));
        }
        self.abort_reload(&message);
        let has_starting = self
            .workers
            .values()
            .any(|worker| worker.phase.is_starting());
        let mut state = self.shared.state();
        state.last_error = Some(Arc::clone(&message));
        if state.workers.is_empty() && !has_starting {
            state.admission = PoolAdmission::BootFailed {
                message: Arc::clone(&message),
                until: self.next_boot,
            };
            state.fail_queued(|| WorkerError::Boot {
                message: Arc::clone(&message),
                retry_after: delay,
            });
        }
    }

    /// Stops an idle worker, with a STOP frame if `send_stop`. Others may boot in its place from now on.
    fn stop_worker(&mut self, connection: WorkerConnection, send_stop: bool) {
        let id = connection.record.id;
        self.shared.remove(id);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.phase = WorkerPhase::Stopping;
        }
        let limit = self.shared.plan.stop_limit;
        tokio::task::spawn_local(background::shutdown(
            Arc::clone(&self.shared),
            connection,
            send_stop,
            limit,
        ));
    }

    fn stop(&mut self, reply: oneshot::Sender<()>) {
        match &mut self.shutdown {
            Some(shutdown) => shutdown.replies.push(reply),
            None => {
                self.shutdown = Some(PoolShutdown {
                    replies: vec![reply],
                    until: Instant::now() + self.shared.plan.stop_limit,
                });
            }
        }
        self.watch = None;
        self.abort_reload("the server stops");
        self.shared.state().admission = PoolAdmission::Stopping;
        self.shared.hub.close();
        self.shared.sockets.close();
        self.stop_workers();
    }

    /// Stops the workers of a pool that shuts down, once no request waits for them.
    fn stop_workers(&mut self) {
        let mut state = self.shared.state();
        if !state.queue.is_empty() && !state.workers.is_empty() {
            return;
        }
        state.fail_queued(|| WorkerError::Stopping);
        for record in state.workers.values() {
            record.retire();
        }
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for idle in idle {
            self.stop_worker(idle.connection, true);
        }
        self.workers.retain(|_, worker| {
            if worker.phase == WorkerPhase::Requested {
                worker.request.abort();
            } else if worker.phase == WorkerPhase::Booting
                && let Some(record) = &worker.record
            {
                record.disconnect();
            }
            worker.phase != WorkerPhase::Requested
        });
    }

    fn is_stopped(&self) -> bool {
        self.shutdown.is_some() && self.workers.is_empty()
    }
}

/// Waits for the end of a child process; forever, if that cannot be observed.
async fn child_ended(children: &mut Option<tokio::signal::unix::Signal>) {
    let ended = match children {
        Some(children) => children.recv().await,
        None => None,
    };
    if ended.is_none() {
        std::future::pending().await
    }
}

/// Waits until an instant; forever, if there is none.
async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}

/// The time after which a ready worker counts as working, even without a request.
const PROBATION: Duration = Duration::from_secs(5);

/// The maximum number of workers that boot at the same time.
const MAX_CONCURRENT_BOOTS: usize = 8;

impl SharedPool {
    /// Executes a command of a worker.
    ///
    /// `socket` is the WebSocket of the current event; a command with an empty name of a socket is for it.
    pub(crate) fn execute(&self, command: PhpCommand, socket: Option<&Bytes>) {
        let target = |named: Bytes| {
            if named.is_empty() {
                socket.cloned().unwrap_or(named)
            } else {
                named
            }
        };
        match command {
            PhpCommand::Publish {
                channel,
                format,
                message,
            } => {
                self.hub.publish(&channel, format, &message);
                self.sockets.publish(&channel, format, &message);
            }
            PhpCommand::Task {
                name,
                delay,
                payload,
            } => self.notify_supervisor(SupervisorMessage::Task {
                name,
                payload,
                delay,
            }),
            PhpCommand::Join { room, socket } => self.sockets.join(room, target(socket)),
            PhpCommand::Leave { room, socket } => self.sockets.leave(&room, &target(socket)),
            PhpCommand::Close {
                socket,
                code,
                reason,
            } => self
                .sockets
                .send(&target(socket), SocketCommand::Close(code, reason)),
            PhpCommand::Send {
                socket,
                format,
                message,
            } => self
                .sockets
                .send(&target(socket), SocketCommand::Send(format, message)),
            PhpCommand::Keep { socket, data } => self.sockets.set_data(&target(socket), data),
        }
    }
}

/// The script with all symbolic links resolved: a link may point to another release by now.
fn resolve(script: &Path) -> Result<PathBuf, PoolStartError> {
    std::fs::canonicalize(script).map_err(|error| PoolStartError::Script(script.to_owned(), error))
}

/// Unpredictable random bytes, in hexadecimal.
fn secret() -> String {
    // It fails only if the system has no source of randomness.
    Hexadecimal(&random_bytes::<16>().unwrap_or_default()).to_string()
}

fn random() -> u64 {
    u64::from_ne_bytes(random_bytes().unwrap_or_default())
}

/// The address of a FastCGI server that the supervisor started.
fn unix(path: &Path) -> Address {
    Address::Unix(path.into())
}
