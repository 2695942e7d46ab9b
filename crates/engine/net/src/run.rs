//! The loop of a worker, which takes plans over, advances the clock, and stops.
//!
//! A worker is one pinned thread with its own runtime, sockets, connections and services.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_transport::descriptors;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::accept::{self, AcceptSocket};
use crate::connection_table::{ConnectionCount, NEVER};
use crate::counters::WorkerCounters;
use crate::h3::{Http3Endpoint, QuicSocket};
use crate::listen::BoundSocket;
use crate::plan::{EnginePlan, ListenAddress, ListenerPlan};
use crate::refused_clients;
use crate::scheduler::TickScheduler;
use crate::worker::{ListenerParts, Worker, WorkerListener};

/// A command to a worker.
pub(crate) enum WorkerCommand {
    /// Take this plan over, with one socket for each of its listeners, in order.
    Run {
        plan: Arc<EnginePlan>,
        sockets: Vec<ListenerSockets>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Accept nothing more, let open requests end within the time, and end.
    Stop { within: Duration },
    /// Panic, to test that the worker is replaced.
    #[cfg(test)]
    Die,
}

/// The sockets of a listener for one worker.
pub(crate) struct ListenerSockets {
    pub(crate) socket: BoundSocket,
    /// The UDP socket, if HTTP/3 begins with this plan.
    pub(crate) quic: Option<QuicSocket>,
}

/// A listener that this worker accepts from.
struct AcceptTask {
    live: Rc<WorkerListener>,
    task: JoinHandle<()>,
    finish: Rc<tokio::sync::Notify>,
    http3: Option<Http3Endpoint>,
}

impl AcceptTask {
    /// Whether a task of it has ended, so that this worker misses connections.
    fn has_failed(&self) -> bool {
        self.task.is_finished() || self.http3.as_ref().is_some_and(Http3Endpoint::has_failed)
    }

    /// Starts, changes or ends HTTP/3. Without it, the other protocols are served.
    fn set_http3(&mut self, worker: &Rc<Worker>, plan: &ListenerPlan, socket: Option<QuicSocket>) {
        let wanted = plan.http3.as_ref().zip(plan.tls.as_ref());
        let result = match (self.http3.take(), wanted, socket) {
            (Some(endpoint), Some((settings, tls)), _) => endpoint
                .configure(worker, settings, Arc::clone(tls))
                .map(|()| Some(endpoint)),
            (None, Some((settings, tls)), Some(socket)) => {
                let settings = (settings, Arc::clone(tls));
                Http3Endpoint::start(worker, &self.live, socket, settings).map(Some)
            }
            (endpoint, ..) => {
                if let Some(endpoint) = endpoint {
                    endpoint.stop();
                }
                Ok(None)
            }
        };
        self.http3 = result.unwrap_or_else(|error| {
            tracing::warn!(address = %plan.address, %error, "there is no HTTP/3");
            None
        });
        self.live.set_http3(self.http3.is_some());
    }
}

/// The parts of a worker.
pub(crate) struct WorkerSetup {
    pub(crate) index: usize,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) all: Arc<ConnectionCount>,
    pub(crate) commands: mpsc::UnboundedReceiver<WorkerCommand>,
}

/// Why a worker ended.
pub(crate) enum WorkerEnd {
    /// It was stopped.
    Stopped,
    /// It failed, and another has to take its place.
    Failed,
}

/// Runs a worker on this thread until it is stopped.
pub(crate) async fn run(setup: WorkerSetup) -> WorkerEnd {
    let WorkerSetup {
        index,
        counters,
        all,
        mut commands,
    } = setup;
    let worker = Rc::new(Worker::new(index, counters, all));
    descriptors::set_idle_closer({
        let worker = Rc::downgrade(&worker);
        move |wanted, idle| {
            worker
                .upgrade()
                .map_or(0, |worker| worker.close_idle(wanted, idle))
        }
    });
    tokio::task::spawn_local(refused_clients::close_refused(Rc::clone(&worker)));
    let mut accepting: HashMap<ListenAddress, AcceptTask> = HashMap::new();
    let mut scheduler = TickScheduler::new(&worker.clock, &worker.table);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(WorkerCommand::Run { plan, sockets, done }) => {
                    let result = take_over(&worker, &mut accepting, &plan, sockets);
                    // On a task: a listener that is removed waits for clients in the middle of their TCP handshake,
                    // and this loop has to tick meanwhile.
                    tokio::task::spawn_local(async move {
                        let _ = done.send(finish(result).await);
                    });
                }
                Some(WorkerCommand::Stop { within }) => {
                    stop(&worker, accepting, within, &mut scheduler).await;
                    return WorkerEnd::Stopped;
                }
                #[cfg(test)]
                Some(WorkerCommand::Die) => panic!("killed by a test"),
                None => return WorkerEnd::Stopped,
            },
            () = scheduler.next() => {
                tick(&worker);
                scheduler.schedule_next(NEVER);
                if accepting.values().any(AcceptTask::has_failed) {
                    // The runtime caught its panic; without the task this worker accepts nothing.
                    return WorkerEnd::Failed;
                }
            }
        }
    }
}

/// Advances the clock, and expires the deadlines that have passed.
fn tick(worker: &Worker) {
    worker.clock.advance();
    worker.table.sweep(&worker.clock);
    worker.counters.connections.set(worker.table.open() as u64);
}

/// Waits until the listeners that a plan has removed accept nothing more.
async fn finish(removed: io::Result<Vec<JoinHandle<()>>>) -> io::Result<()> {
    for task in removed? {
        let _ = task.await;
    }
    Ok(())
}

/// Puts a plan in force. All that can fail comes first. Returns the tasks of the listeners that it removes.
fn take_over(
    worker: &Rc<Worker>,
    accepting: &mut HashMap<ListenAddress, AcceptTask>,
    plan: &EnginePlan,
    sockets: Vec<ListenerSockets>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut fresh = Vec::new();
    for (listener, ListenerSockets { socket, quic }) in plan.listeners.iter().zip(sockets) {
        let socket = if accepting.contains_key(&listener.address) {
            None
        } else {
            let is_inherited = matches!(listener.address, ListenAddress::Inherited { .. });
            Some(AcceptSocket::new(socket, is_inherited)?)
        };
        fresh.push((listener, ListenerParts::of(listener), socket, quic));
    }
    // From here on nothing fails: a worker that has half of a plan would serve a site by the rules of another one.
    worker.take_over(plan);
    let mut gone = std::mem::take(accepting);
    for (listener, parts, socket, quic) in fresh {
        let mut entry = match (gone.remove(&listener.address), socket) {
            (Some(entry), _) => {
                entry.live.take_over(parts);
                entry
            }
            (None, Some(socket)) => {
                let live = Rc::new(WorkerListener::new(parts));
                let finish = Rc::new(tokio::sync::Notify::new());
                let task = tokio::task::spawn_local(accept::accept(
                    Rc::clone(worker),
                    Rc::clone(&live),
                    socket,
                    Rc::clone(&finish),
                ));
                AcceptTask {
                    live,
                    task,
                    finish,
                    http3: None,
                }
            }
            (None, None) => continue,
        };
        entry.set_http3(worker, listener, quic);
        accepting.insert(listener.address.clone(), entry);
    }
    let removed = gone.into_values().map(|entry| {
        entry.live.remove();
        if let Some(endpoint) = &entry.http3 {
            endpoint.stop();
        }
        // `notify_one` keeps the notice for a task that is not waiting yet, which `notify_waiters` does not.
        entry.finish.notify_one();
        entry.task
    });
    let removed = removed.collect();
    worker.table.wake_all();
    Ok(removed)
}

/// Stops: accepts the connections that wait in the queues, and waits until all are served.
async fn stop(
    worker: &Rc<Worker>,
    accepting: HashMap<ListenAddress, AcceptTask>,
    within: Duration,
    scheduler: &mut TickScheduler,
) {
    for entry in accepting.values() {
        entry.finish.notify_one();
    }
    let mut endpoints = Vec::new();
    for entry in accepting.into_values() {
        // The queues are emptied before the worker counts as stopping: their clients have connected, and get one
        // response.
        let _ = entry.task.await;
        endpoints.extend(entry.http3);
    }
    endpoints.iter().for_each(Http3Endpoint::stop);
    worker.stop();
    worker.table.wake_all();
    let deadline = worker.clock.deadline(within);
    while worker.table.open() > 0 && worker.clock.ticks() < deadline {
        tokio::select! {
            () = worker.table.emptied() => {}
            () = scheduler.next() => {
                tick(worker);
                scheduler.schedule_next(deadline);
            }
        }
    }
    let cut = worker.table.open();
    if cut > 0 {
        tracing::warn!(
            connections = cut,
            "closed connections that did not end in time"
        );
    }
    for endpoint in endpoints {
        endpoint.close().await;
    }
    worker.counters.connections.set(0);
}
