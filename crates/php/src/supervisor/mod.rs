//! The supervisor of a pool: a thread that starts, replaces and kills its workers.

mod boot;
mod clocks;
mod folder;
mod greet;
mod interruption;
mod own;
mod rolling;
mod tasks;
mod unidentified;
mod watch;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_net::client::Address;
use bytes::Bytes;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use self::boot::{BootEnding, Said};
use self::clocks::PATIENCE;
use self::folder::Folder;
use self::interruption::Interruption;
use self::own::Master;
pub use self::own::spawn;
use self::rolling::Rolling;
use self::tasks::Tasks;
use crate::after;
use crate::connection::Connection;
use crate::error::{Failure, StartError};
use crate::greeting::Greeting;
use crate::plan::Launch;
use crate::record::{Identity, Life, Record, WorkerId};
use crate::shared::{Closed, Shared, count};
use crate::signal::Signal;
use crate::sockets::SocketOrder;
use crate::wire::{Command, Ready};

/// Between two boots that fail: twice as long each time, up to this.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(30);

/// Looks after the workers of one pool.
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    signals: mpsc::UnboundedReceiver<Signal>,
    folder: Folder,
    /// Where workers connect, until it runs.
    listener: Option<UnixListener>,
    /// The application's script with no symbolic link in its path.
    script: PathBuf,
    generation: u64,
    boots: HashMap<WorkerId, Boot>,
    last_id: WorkerId,
    masters: Vec<Master>,
    failures: u32,
    /// The server that runs PHP cuts off boots: since when, and how often.
    interruption: Option<Interruption>,
    /// Whether a worker of this pool ever booted.
    has_booted: bool,
    /// Workers that ended before their first request, since one was of use.
    unused: u32,
    next_boot: Instant,
    /// When the clocks were looked at last.
    looked: Instant,
    /// The failure that was logged last.
    logged: Option<Arc<str>>,
    /// Whether each request of a classic application gets a process that nobody used.
    not_twice: bool,
    rolling: Option<Rolling>,
    tasks: Tasks,
    stopping: Option<Stopping>,
    watch: Option<watch::Watch>,
}

struct Stopping {
    replies: Vec<oneshot::Sender<()>>,
    until: Instant,
}

/// A worker from when it is wanted until its FastCGI request ended.
struct Boot {
    generation: u64,
    token: String,
    phase: Phase,
    since: Instant,
    said: Rc<RefCell<Said>>,
    record: Option<Arc<Record>>,
    request: JoinHandle<()>,
    /// Whether its FastCGI request ended before its connection did.
    is_request_over: bool,
    /// Whether its connection ended before it was ready.
    is_connection_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It did not say who it is.
    Called,
    /// The application boots.
    Booting,
    /// It takes requests.
    Ready,
    /// It is to end.
    Ending,
}

impl Phase {
    fn is_starting(self) -> bool {
        matches!(self, Self::Called | Self::Booting)
    }
}

impl Supervisor {
    /// Prepares everything. Nothing runs before [`Supervisor::run`].
    pub(crate) fn new(
        shared: Arc<Shared>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Result<Self, StartError> {
        let folder = Folder::open(&shared.plan)?;
        let listener = folder
            .listen()
            .map_err(|error| StartError::Folder(folder.socket().to_owned(), error))?;
        let script = resolve(&shared.plan.script)?;
        let watch = match shared.plan.development {
            true => Some(watch::Watch::start(&script, shared.signals.clone())),
            false => None,
        };
        let mut this = Self {
            tasks: Tasks::new(&shared),
            shared,
            signals,
            folder,
            listener: Some(listener),
            script,
            generation: 1,
            boots: HashMap::new(),
            last_id: 0,
            masters: Vec::new(),
            failures: 0,
            interruption: None,
            has_booted: false,
            unused: 0,
            next_boot: Instant::now(),
            looked: Instant::now(),
            logged: None,
            not_twice: false,
            rolling: None,
            stopping: None,
            watch,
        };
        this.start_master().map_err(StartError::Program)?;
        Ok(this)
    }

    /// Looks after the pool until it is stopped.
    pub(crate) async fn run(mut self) {
        if let Some(listener) = self.listener.take() {
            tokio::task::spawn_local(greet::accept(listener, self.shared.signals.clone()));
        }
        let shared = Arc::clone(&self.shared);
        // Tells of the end of a process of ours. It cannot be had only where no runtime is.
        let mut children = signal(SignalKind::child()).ok();
        self.reconcile();
        loop {
            let next = self.next_look();
            tokio::select! {
                signal = self.signals.recv() => match signal {
                    Some(signal) => self.handle(signal),
                    None => break,
                },
                () = shared.wanted.notified() => self.look(),
                () = child_ended(&mut children), if !self.masters.is_empty() => self.look(),
                () = until(next) => self.look(),
            }
            if self.is_stopped() {
                break;
            }
        }
        for mut master in self.masters.drain(..) {
            master.kill();
        }
        self.folder.remove();
        if let Some(stopping) = self.stopping.take() {
            for reply in stopping.replies {
                let _ = reply.send(());
            }
        }
    }

    fn handle(&mut self, signal: Signal) {
        match signal {
            Signal::Spent(connection) => {
                count(&self.shared.totals.recycled);
                self.end(connection, true);
                self.reconcile();
            }
            Signal::Leaving(connection) => {
                self.end(connection, false);
                self.reconcile();
            }
            Signal::Abandoned { connection, pulled } => {
                let drained = after::drain(Arc::clone(&self.shared), connection, pulled);
                tokio::task::spawn_local(drained);
            }
            Signal::NotTwice => {
                if !std::mem::replace(&mut self.not_twice, true) {
                    tracing::info!(
                        pool = &*self.shared.plan.name,
                        "the application cannot be included twice in one process: each request gets \
                         a process of its own"
                    );
                }
            }
            Signal::Task {
                name,
                payload,
                delay,
            } => self.tasks.push(name, payload, delay),
            Signal::TaskDone(done) => self.tasks.done(done),
            Signal::Greeted(greeting) => self.greeted(*greeting),
            Signal::Booted(connection, ready) => self.booted(*connection, ready),
            Signal::NotBooted(id, message) => self.not_booted(id, message),
            Signal::Ended(id) => self.ended(id),
            Signal::Changed(path) => self.changed(&path),
            Signal::Reload(reply) => self.reload(Some(reply)),
            Signal::Stop(reply) => self.stop(reply),
        }
    }

    /// Has as many workers started as there should be.
    fn reconcile(&mut self) {
        if self.stopping.is_some() || Instant::now() < self.next_boot {
            self.shared.state().may_grow = false;
            return;
        }
        let plan = &self.shared.plan;
        let current = |boot: &&Boot| boot.generation == self.generation;
        let starting = self
            .boots
            .values()
            .filter(current)
            .filter(|boot| boot.phase.is_starting())
            .count();
        let ready = self
            .boots
            .values()
            .filter(current)
            .filter(|boot| boot.phase == Phase::Ready)
            .count();
        let active = starting + ready;
        let wanted = match &self.rolling {
            Some(rolling) => rolling.target.saturating_sub(active),
            None => plan.min.saturating_sub(active),
        };
        // After a failure one has to succeed first.
        let at_once = match self.failures == 0 && self.interruption.is_none() {
            true => AT_ONCE,
            false => 1,
        };
        let most = at_once.saturating_sub(starting);
        // Each that boots may serve many of those who wait.
        let may_grow = |begun: usize| {
            starting + begun < 1 + ready / 4 && active + begun < plan.max && begun < most
        };
        let mut state = self.shared.state();
        let growth = usize::from(may_grow(0) && state.line.len() > 0);
        let begun = wanted.max(growth).min(most);
        state.may_grow = may_grow(begun);
        drop(state);
        for _ in 0..begun {
            self.call();
        }
    }

    /// Asks for one more worker.
    fn call(&mut self) {
        let address = match &self.shared.plan.launch {
            Launch::Server(address) => address.clone(),
            Launch::Own(_) => match self.masters.last() {
                Some(master) => master.address(),
                None => return,
            },
        };
        self.last_id += 1;
        let id = self.last_id;
        let token = token();
        let said = Rc::<RefCell<Said>>::default();
        count(&self.shared.totals.boots);
        let wanted = boot::Wanted {
            id,
            address,
            params: self.params(&token),
            limit: self.shared.plan.boot_limit,
            said: Rc::clone(&said),
            pool: Arc::clone(&self.shared.plan.name),
            signals: self.shared.signals.clone(),
        };
        let boot = Boot {
            generation: self.generation,
            token,
            phase: Phase::Called,
            since: Instant::now(),
            said,
            record: None,
            request: tokio::task::spawn_local(boot::run(wanted)),
            is_request_over: false,
            is_connection_over: false,
        };
        self.boots.insert(id, boot);
    }

    fn params(&self, token: &str) -> apus_codec::fastcgi::Params {
        boot::params(&boot::Facts {
            plan: &self.shared.plan,
            runtime: self.folder.runtime(),
            socket: self.folder.socket(),
            script: &self.script,
            token,
            is_fresh: self.generation > 1,
            not_twice: self.not_twice,
        })
    }

    fn greeted(&mut self, greeting: Greeting) {
        let Greeting { pending, hello } = greeting;
        let known = self
            .boots
            .iter_mut()
            .find(|(_, boot)| boot.phase == Phase::Called && boot.token == hello.token);
        let Some((id, boot)) = known else {
            tracing::warn!(
                pool = &*self.shared.plan.name,
                "something with a wrong token connected as a worker and was refused"
            );
            return;
        };
        let (id, generation) = (*id, boot.generation);
        let life = Life::new(&self.shared.plan.recycle, random());
        let launcher = self.shared.launcher.clone();
        let connection = pending.into_connection(|socket, pid| {
            Record::new(Identity {
                id,
                generation,
                hello,
                pid,
                life,
                socket,
                launcher,
            })
        });
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                self.not_booted(id, error.to_string());
                return;
            }
        };
        boot.phase = Phase::Booting;
        boot.record = Some(Arc::clone(&connection.record));
        tokio::task::spawn_local(greet::wait_until_ready(
            connection,
            self.shared.signals.clone(),
            Arc::clone(&self.shared),
        ));
    }

    fn booted(&mut self, connection: Connection, ready: Ready) {
        let record = &connection.record;
        let Some(boot) = self.boots.get_mut(&record.id) else {
            record.hang_up();
            return;
        };
        if boot.phase != Phase::Booting || self.stopping.is_some() {
            self.end(connection, true);
            return;
        }
        boot.phase = Phase::Ready;
        boot.said.borrow_mut().is_booted = true;
        self.has_booted = true;
        self.interruption = None;
        tracing::info!(
            pool = &*self.shared.plan.name,
            pid = record.pid_number(),
            php = &*record.hello.php,
            sapi = &*record.hello.sapi,
            milliseconds = boot.since.elapsed().as_millis(),
            "a worker is booted"
        );
        let generation = boot.generation;
        self.shared.state().takes_sockets = ready.sockets;
        if generation == self.generation {
            self.tasks.set_timers(&ready.timers);
        }
        self.shared.admit(connection);
        if generation == self.generation {
            self.replace_one();
        }
        self.reconcile();
    }

    /// Remembers why a worker does not boot. The rest is done when its request ended, with all that PHP
    /// said.
    fn not_booted(&mut self, id: WorkerId, message: String) {
        let Some(boot) = self.boots.get_mut(&id) else {
            return;
        };
        if !boot.phase.is_starting() {
            return;
        }
        if !message.is_empty() {
            boot.said.borrow_mut().reason = message;
        }
        boot.is_connection_over = true;
        match &boot.record {
            Some(_) if boot.is_request_over => self.ended(id),
            // It ends when its connection does, or is killed.
            Some(record) if boot.since.elapsed() > self.shared.plan.boot_limit => record.kill(),
            Some(record) => record.hang_up(),
            None => {
                boot.request.abort();
                boot.is_request_over = true;
                self.ended(id);
            }
        }
    }

    /// A worker's process is free for something else, or dead.
    fn ended(&mut self, id: WorkerId) {
        if let Some(boot) = self.boots.get_mut(&id) {
            let was_over = std::mem::replace(&mut boot.is_request_over, true);
            match boot.phase {
                // It may have connected, and said more than its request did.
                Phase::Called if !was_over => {
                    let signals = self.shared.signals.clone();
                    tokio::task::spawn_local(async move {
                        sleep(PATIENCE).await;
                        let _ = signals.send(Signal::Ended(id));
                    });
                    return;
                }
                // What it says is still being read.
                Phase::Booting if !boot.is_connection_over => return,
                _ => {}
            }
        }
        let connection = self.shared.forget(id);
        let Some(boot) = self.boots.remove(&id) else {
            return;
        };
        if let Some(record) = &boot.record {
            record.hang_up();
        }
        drop(connection);
        if self.stopping.is_none() {
            // One that ends before anybody asked it would be started again at once, for ever.
            let is_unused = boot.phase == Phase::Ready
                && boot.since.elapsed() < PROBATION
                && boot
                    .record
                    .as_ref()
                    .is_some_and(|record| record.requests() == 0 && !record.is_killed());
            let message = match boot.phase.is_starting() {
                true => Some(boot.said.borrow().message()),
                false => is_unused
                    .then(|| "the worker's process ended before its first request".to_owned()),
            };
            if let Some(message) = message {
                let ending = match is_unused {
                    true => BootEnding::Unused,
                    false => boot.said.borrow().ending,
                };
                self.not_there(ending, message.into());
            }
        }
        self.reconcile();
    }

    /// A worker did not come into being: the application does not boot, or the server that runs it was
    /// interrupted.
    fn not_there(&mut self, ending: BootEnding, message: Arc<str>) {
        if ending == BootEnding::Unused {
            self.unused = self.unused.saturating_add(1);
        }
        match self.is_interrupted(ending) {
            true => self.boot_interrupted(&message),
            false => self.boot_failed(message),
        }
    }

    fn boot_failed(&mut self, message: Arc<str>) {
        count(&self.shared.totals.boot_failures);
        self.failures = self.failures.saturating_add(1);
        let delay = FIRST_DELAY
            .saturating_mul(1 << (self.failures - 1).min(10))
            .min(LAST_DELAY);
        self.next_boot = Instant::now() + delay;
        // Once, and not with each attempt.
        if self.logged.as_ref() != Some(&message) {
            tracing::error!(
                pool = &*self.shared.plan.name,
                script = %self.script.display(),
                "the application does not boot: {message}"
            );
            self.logged = Some(Arc::clone(&message));
        }
        self.abandon_rolling(&message);
        let has_starting = self.boots.values().any(|boot| boot.phase.is_starting());
        let mut state = self.shared.state();
        state.last_error = Some(Arc::clone(&message));
        if state.workers.is_empty() && !has_starting {
            state.closed = Closed::Boot {
                message: Arc::clone(&message),
                until: self.next_boot,
            };
            state.line.dismiss(|| {
                Err(Failure::Boot {
                    message: Arc::clone(&message),
                    retry_after: delay,
                })
            });
        }
    }

    /// Ends a worker that is free. Others may boot in its place from now on.
    fn end(&mut self, connection: Connection, tell: bool) {
        let id = connection.record.id;
        self.shared.forget(id);
        if let Some(boot) = self.boots.get_mut(&id) {
            boot.phase = Phase::Ending;
        }
        let limit = self.shared.plan.stop_limit;
        tokio::task::spawn_local(after::end(
            Arc::clone(&self.shared),
            connection,
            tell,
            limit,
        ));
    }

    fn stop(&mut self, reply: oneshot::Sender<()>) {
        match &mut self.stopping {
            Some(stopping) => stopping.replies.push(reply),
            None => {
                self.stopping = Some(Stopping {
                    replies: vec![reply],
                    until: Instant::now() + self.shared.plan.stop_limit,
                });
            }
        }
        self.watch = None;
        self.abandon_rolling("the server stops");
        self.shared.state().closed = Closed::Stopping;
        self.shared.hub.close();
        self.shared.sockets.close();
        self.end_all();
    }

    /// Ends the workers of a pool that stops, once nobody waits for them.
    fn end_all(&mut self) {
        let mut state = self.shared.state();
        if state.line.len() > 0 && !state.workers.is_empty() {
            return;
        }
        state.line.dismiss(|| Err(Failure::Stopping));
        for record in state.workers.values() {
            record.retire();
        }
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for idle in idle {
            self.end(idle.connection, true);
        }
        self.boots.retain(|_, boot| {
            if boot.phase == Phase::Called {
                boot.request.abort();
            } else if boot.phase == Phase::Booting
                && let Some(record) = &boot.record
            {
                record.hang_up();
            }
            boot.phase != Phase::Called
        });
    }

    fn is_stopped(&self) -> bool {
        self.stopping.is_some() && self.boots.is_empty()
    }
}

/// The end of a child process, if that can be known.
async fn child_ended(children: &mut Option<tokio::signal::unix::Signal>) {
    let ended = match children {
        Some(children) => children.recv().await,
        None => None,
    };
    if ended.is_none() {
        std::future::pending().await
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}

/// A worker that lived so long, or answered, is one that works.
const PROBATION: Duration = Duration::from_secs(5);

/// Boots at a time.
const AT_ONCE: usize = 8;

impl Shared {
    /// Does what a worker wants to be done.
    ///
    /// `socket` is the one that it is asked about; what names none means that one.
    pub(crate) fn command(&self, command: Command, socket: Option<&Bytes>) {
        let meant = |named: Bytes| match named.is_empty() {
            true => socket.cloned().unwrap_or(named),
            false => named,
        };

        match command {
            Command::Publish {
                channel,
                form,
                message,
            } => {
                self.hub.publish(&channel, form, &message);
                self.sockets.publish(&channel, form, &message);
            }
            Command::Task {
                name,
                delay,
                payload,
            } => self.signal(Signal::Task {
                name,
                payload,
                delay,
            }),
            Command::Join { room, socket } => self.sockets.join(room, meant(socket)),
            Command::Leave { room, socket } => self.sockets.leave(&room, &meant(socket)),
            Command::Close {
                socket,
                code,
                reason,
            } => self
                .sockets
                .order(&meant(socket), SocketOrder::Close(code, reason)),
            Command::Send {
                socket,
                form,
                message,
            } => self
                .sockets
                .order(&meant(socket), SocketOrder::Send(form, message)),
            Command::Keep { socket, data } => self.sockets.keep(&meant(socket), data),
        }
    }
}

/// The script with no symbolic link in its path: a release that was switched has another.
fn resolve(script: &Path) -> Result<PathBuf, StartError> {
    std::fs::canonicalize(script).map_err(|error| StartError::Script(script.to_owned(), error))
}

/// Random bytes that nobody guesses, in hexadecimal.
fn token() -> String {
    let mut bytes = [0; 16];
    // Of aws-lc-rs: it fails only where the system has no randomness at all.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Where a FastCGI server of ours listens.
fn unix(path: &Path) -> Address {
    Address::Unix(path.into())
}
