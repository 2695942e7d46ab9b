//! A worker: one pinned thread with a runtime, sockets, connections and services of its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_http::Service;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::accept::{self, AcceptSocket};
use crate::buffers::Buffers;
use crate::clock::{Clock, TICK};
use crate::counters::Counters;
use crate::limits::Limits;
use crate::listen::BoundSocket;
use crate::plan::{ListenAddress, Listener, Network, Plan};
use crate::table::Table;
use crate::tls::TlsSettings;

/// What a worker is told.
pub(crate) enum Command {
    /// Take this plan over. The sockets are those of its listeners, in order.
    Run {
        plan: Arc<Plan>,
        sockets: Vec<BoundSocket>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Accept nothing more, let open requests end within the time, then end.
    Stop { within: Duration },
    /// Panic, to see that the worker is replaced.
    #[cfg(test)]
    Die,
}

/// What the connections of a worker share.
pub(crate) struct Worker {
    pub(crate) clock: Clock,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Arc<Counters>,
    pub(crate) table: Rc<Table>,
    pub(crate) all: Arc<crate::engine::OpenConnections>,
    limits: RefCell<Rc<Limits>>,
    server_field: RefCell<Option<Arc<str>>>,
    stopping: Cell<bool>,
    index: u64,
    entered: Cell<u64>,
}

impl Worker {
    /// The limits in force.
    pub(crate) fn limits(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }

    /// The value of `Server`.
    pub(crate) fn server_field(&self) -> std::cell::Ref<'_, Option<Arc<str>>> {
        self.server_field.borrow()
    }

    /// Whether connections have to end once no request is open.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// A number that no other connection of this process has.
    pub(crate) fn next_id(&self) -> u64 {
        self.entered.set(self.entered.get() + 1);
        (self.index << 48) | self.entered.get()
    }
}

/// A listener as the connections that came over it see it. A reload changes what is inside.
pub(crate) struct LiveListener {
    parts: RefCell<Parts>,
    removed: Cell<bool>,
}

struct Parts {
    service: Rc<dyn Service>,
    tls: Option<Arc<TlsSettings>>,
    proxy_protocol_from: Rc<[Network]>,
}

impl LiveListener {
    fn new(parts: Parts) -> Self {
        Self {
            parts: RefCell::new(parts),
            removed: Cell::new(false),
        }
    }

    /// What answers the next request.
    pub(crate) fn service(&self) -> Rc<dyn Service> {
        Rc::clone(&self.parts.borrow().service)
    }

    /// TLS for the next connection.
    pub(crate) fn tls(&self) -> Option<Arc<TlsSettings>> {
        self.parts.borrow().tls.clone()
    }

    /// Who opens connections with a PROXY protocol head.
    pub(crate) fn proxy_protocol_from(&self) -> Rc<[Network]> {
        Rc::clone(&self.parts.borrow().proxy_protocol_from)
    }

    /// Whether the plan in force has this listener no more.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.get()
    }
}

impl Parts {
    fn of(listener: &Listener) -> Self {
        Self {
            service: listener.service.service(),
            tls: listener.tls.clone(),
            proxy_protocol_from: listener.proxy_protocol_from.as_slice().into(),
        }
    }
}

/// A listener that this worker accepts from.
struct Accepting {
    live: Rc<LiveListener>,
    task: JoinHandle<()>,
    finish: Rc<tokio::sync::Notify>,
}

/// What a worker is made of.
pub(crate) struct Setup {
    pub(crate) index: usize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) all: Arc<crate::engine::OpenConnections>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
}

/// Why a worker ended.
pub(crate) enum Ended {
    /// It was told to.
    Stopped,
    /// It cannot go on, and another has to take its place.
    Broken,
}

/// Runs a worker on this thread until it is told to stop.
pub(crate) async fn run(setup: Setup) -> Ended {
    let Setup {
        index,
        counters,
        all,
        mut commands,
    } = setup;
    // Those it replaces have used as many.
    let entered = counters.read().accepted;
    let worker = Rc::new(Worker {
        clock: Clock::new(),
        buffers: Buffers::default(),
        counters,
        table: Rc::default(),
        all,
        limits: RefCell::default(),
        server_field: RefCell::default(),
        stopping: Cell::new(false),
        index: index as u64,
        entered: Cell::new(entered),
    });
    let mut accepting: HashMap<ListenAddress, Accepting> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Run { plan, sockets, done }) => {
                    let result = take_over(&worker, &mut accepting, &plan, sockets);
                    let _ = done.send(result);
                }
                Some(Command::Stop { within }) => {
                    stop(&worker, accepting, within, &mut tick).await;
                    return Ended::Stopped;
                }
                #[cfg(test)]
                Some(Command::Die) => panic!("told to die"),
                None => return Ended::Stopped,
            },
            _ = tick.tick() => {
                worker.clock.advance();
                worker.table.sweep(&worker.clock);
                worker.counters.connections.set(worker.table.open() as u64);
                if accepting.values().any(|accepting| accepting.task.is_finished()) {
                    // Its panic was caught by the runtime; without it this worker is deaf.
                    return Ended::Broken;
                }
            }
        }
    }
}

/// Puts a plan in force: all that can fail comes first.
fn take_over(
    worker: &Rc<Worker>,
    accepting: &mut HashMap<ListenAddress, Accepting>,
    plan: &Plan,
    sockets: Vec<BoundSocket>,
) -> io::Result<()> {
    let mut fresh = Vec::new();
    for (listener, socket) in plan.listeners.iter().zip(sockets) {
        let socket = match accepting.contains_key(&listener.address) {
            true => None,
            false => Some(AcceptSocket::new(socket)?),
        };
        fresh.push((listener.address.clone(), Parts::of(listener), socket));
    }
    worker.limits.replace(Rc::new(plan.limits.clone()));
    worker.server_field.replace(plan.server_field.clone());
    let mut gone = std::mem::take(accepting);
    for (address, parts, socket) in fresh {
        let entry = match (gone.remove(&address), socket) {
            (Some(entry), _) => {
                entry.live.parts.replace(parts);
                entry
            }
            (None, Some(socket)) => {
                let live = Rc::new(LiveListener::new(parts));
                let finish = Rc::new(tokio::sync::Notify::new());
                let task = tokio::task::spawn_local(accept::accept(
                    Rc::clone(worker),
                    Rc::clone(&live),
                    socket,
                    Rc::clone(&finish),
                ));
                Accepting { live, task, finish }
            }
            (None, None) => continue,
        };
        accepting.insert(address, entry);
    }
    for entry in gone.into_values() {
        entry.live.removed.set(true);
        entry.finish.notify_one();
    }
    worker.table.wake_all();
    Ok(())
}

/// Ends: takes what clients have already connected, lets it be answered, and waits for that.
async fn stop(
    worker: &Rc<Worker>,
    accepting: HashMap<ListenAddress, Accepting>,
    within: Duration,
    tick: &mut tokio::time::Interval,
) {
    for entry in accepting.values() {
        entry.finish.notify_one();
    }
    for entry in accepting.into_values() {
        let _ = entry.task.await;
    }
    worker.stopping.set(true);
    worker.table.wake_all();
    let deadline = worker.clock.deadline(within);
    while worker.table.open() > 0 && worker.clock.ticks() < deadline {
        tokio::select! {
            () = worker.table.emptied() => {}
            _ = tick.tick() => {
                worker.clock.advance();
                worker.table.sweep(&worker.clock);
                worker.counters.connections.set(worker.table.open() as u64);
            }
        }
    }
    let cut = worker.table.open();
    if cut > 0 {
        tracing::warn!(connections = cut, "cut off what did not end in time");
    }
    worker.counters.connections.set(0);
}
