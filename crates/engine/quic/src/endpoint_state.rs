//! The state of an endpoint, which its handles and its task share: its connections, and who may open another one (RFC
//! 9000 section 8.1).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use apus_quic_protocol::{ConnectionHandle, ProtocolEndpoint, StartObserver, TransportConfig};
use bytes::Bytes;

use crate::connection::QuicConnection;
use crate::connection_id::EndpointNumber;
use crate::core::{ConnectionCore, Progress};
use crate::counters::QuicCounters;
use crate::events::QuicCloseReason;
use crate::half_open::{HalfOpenConnections, client_network};
use crate::memory::EndpointMemory;
use crate::settings::QuicSettings;
use crate::work::WorkQueue;
use crate::workers::QuicWorkers;

/// How long a half-open connection does not give way to others: its client is about to respond.
const ABOUT_TO_RESPOND: Duration = Duration::from_secs(1);

/// What the endpoint shares with its task.
pub(crate) struct EndpointState {
    pub(crate) protocol: RefCell<ProtocolEndpoint>,
    pub(crate) work: Rc<WorkQueue>,
    pub(crate) workers: Arc<QuicWorkers>,
    pub(crate) number: EndpointNumber,
    pub(crate) configuration: RefCell<Configuration>,
    pub(crate) is_stopping: Cell<bool>,
    /// The clients that may not begin a connection.
    pub(crate) ignored_clients: RefCell<Option<IsIgnored>>,
    pub(crate) half_open: HalfOpenConnections,
    memory: EndpointMemory,
    pub(crate) counters: Cell<QuicCounters>,
    /// By their handles, which are small numbers.
    connections: RefCell<Vec<Option<Rc<ConnectionCore>>>>,
    open: Cell<usize>,
    accepting: RefCell<AcceptQueue>,
}

/// Whether packets with which a client begins a connection are ignored.
type IsIgnored = Box<dyn Fn(IpAddr) -> bool>;

/// The settings of new connections.
pub(crate) struct Configuration {
    pub(crate) settings: QuicSettings,
    pub(crate) transport: Arc<TransportConfig>,
}

#[derive(Default)]
struct AcceptQueue {
    connections: VecDeque<Rc<ConnectionCore>>,
    task: Option<Waker>,
}

impl Configuration {
    pub(crate) fn new(settings: QuicSettings, observer: Option<Arc<dyn StartObserver>>) -> Self {
        Self {
            transport: settings.transport(observer),
            settings,
        }
    }
}

impl EndpointState {
    /// The state of an endpoint without connections.
    pub(crate) fn new(
        protocol: ProtocolEndpoint,
        workers: Arc<QuicWorkers>,
        number: EndpointNumber,
        settings: QuicSettings,
    ) -> Self {
        Self {
            protocol: RefCell::new(protocol),
            work: Rc::default(),
            memory: EndpointMemory::new(Arc::clone(workers.receive_memory())),
            workers,
            number,
            configuration: RefCell::new(Configuration::new(settings, None)),
            is_stopping: Cell::new(false),
            ignored_clients: RefCell::default(),
            half_open: HalfOpenConnections::default(),
            counters: Cell::default(),
            connections: RefCell::default(),
            open: Cell::new(0),
            accepting: RefCell::default(),
        }
    }

    /// Adds a connection.
    pub(crate) fn insert(&self, connection: &Rc<ConnectionCore>) {
        let ConnectionHandle(index) = connection.handle;
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= index {
            connections.resize(index + 1, None);
        }
        if let Some(slot) = connections.get_mut(index) {
            *slot = Some(Rc::clone(connection));
        }
        self.open.set(self.open.get() + 1);
    }

    /// The connection with this handle.
    pub(crate) fn connection(&self, index: usize) -> Option<Rc<ConnectionCore>> {
        self.connections.borrow().get(index)?.clone()
    }

    fn remove(&self, handle: ConnectionHandle) {
        let slot = self
            .connections
            .borrow_mut()
            .get_mut(handle.0)
            .and_then(Option::take);
        let Some(connection) = slot else {
            return;
        };
        self.open.set(self.open.get() - 1);
        self.memory.change(connection.memory.take(), 0);
        if connection.progress.get() == Progress::Failed {
            self.leave_half_open(&connection);
            if self.has_stopped_accepting() {
                self.wake_acceptor();
            }
        }
    }

    fn leave_half_open(&self, connection: &ConnectionCore) {
        if let Some(place) = connection.half_open.take() {
            self.half_open.leave(place);
        }
    }

    /// Makes room for a half-open connection in place of the oldest one of this network. Returns whether there was one
    /// that has failed, or that has waited so long that its client will hardly respond.
    pub(crate) fn replace_half_open(&self, now: Instant, network: IpAddr) -> bool {
        let connections = self.half_open.of_network(network);
        let mut connections = connections
            .into_iter()
            .filter_map(|handle| self.connection(handle.0));
        let replaced = connections.find(|connection| match connection.progress.get() {
            Progress::Failed => true,
            Progress::HalfOpen => {
                now.saturating_duration_since(connection.began) >= ABOUT_TO_RESPOND
            }
            Progress::Waiting | Progress::Accepted => false,
        });
        let Some(connection) = replaced else {
            return false;
        };
        connection.abandon(QuicCloseReason::Evicted);
        self.settle(&connection);
        self.count(|counters| counters.evicted += 1);
        true
    }

    /// Notes the memory of data that nobody has read.
    fn update_memory(&self, connection: &ConnectionCore) {
        let memory = connection.protocol.borrow().received_memory() + connection.unread.get();
        let before = connection.memory.replace(memory);
        self.memory.change(before, memory);
    }

    /// Closes connections that hold data which nobody has read, while all endpoints hold too much. Connections of the
    /// client that holds most are the first, and of one client the one that holds most.
    pub(crate) fn free_memory(&self, now: Instant) {
        let mut excess = self.memory.excess();
        if excess == 0 {
            return;
        }
        let mut networks: HashMap<IpAddr, usize> = HashMap::new();
        let mut holders = Vec::new();
        for connection in self.connections.borrow().iter().flatten() {
            let memory = connection.memory.get();
            if memory > 0 {
                let address = connection.protocol.borrow().remote_address().ip();
                let network = client_network(address);
                *networks.entry(network).or_default() += memory;
                holders.push((network, Rc::clone(connection)));
            }
        }
        holders.sort_unstable_by_key(|(network, connection)| {
            let of_network = networks.get(network).copied();
            Reverse((of_network, *network, connection.memory.get()))
        });
        let code = self.configuration.borrow().settings.overload_code;
        for (_, connection) in holders {
            let memory = connection.memory.get();
            connection.close(now, code, Bytes::new(), QuicCloseReason::Evicted);
            connection.protocol.borrow_mut().discard_received();
            // The application gives it back when it learns of the end.
            connection.unread.set(0);
            connection.wake();
            self.settle(&connection);
            self.work.push(&connection);
            self.count(|counters| counters.evicted += 1);
            excess = excess.saturating_sub(memory as u64);
            if excess == 0 {
                break;
            }
        }
    }

    /// The connections that exist, with those that are half-open or waiting for their last packets.
    pub(crate) fn connection_count(&self) -> usize {
        self.open.get()
    }

    /// Passes what a connection reports to the endpoint and to the application. Returns whether a task was woken.
    pub(crate) fn settle(&self, connection: &Rc<ConnectionCore>) -> bool {
        self.update_send_window(connection);
        self.update_memory(connection);
        let is_woken = self.pass_on_events(connection);
        // This may remove the connection, so its progress has to be known before.
        self.exchange_events(connection);
        is_woken
    }

    /// Lets the application write little more than can be in flight: what it writes later can then overtake what it wrote
    /// before, and a peer that acknowledges nothing makes it hold little.
    fn update_send_window(&self, connection: &ConnectionCore) {
        let mut protocol = connection.protocol.borrow_mut();
        let in_flight = protocol.congestion_window();
        let configuration = self.configuration.borrow();
        protocol.set_send_window(configuration.settings.send_window_for(in_flight));
    }

    /// Passes the events of a connection to the application, or the connection itself.
    fn pass_on_events(&self, connection: &Rc<ConnectionCore>) -> bool {
        let has_events = connection.collect_events();
        match connection.progress.get() {
            Progress::Accepted => {
                if has_events {
                    connection.wake();
                }
                has_events
            }
            Progress::HalfOpen if connection.is_closed() => {
                connection.progress.set(Progress::Failed);
                self.count(|counters| counters.failed_handshakes += 1);
                false
            }
            Progress::HalfOpen if connection.is_usable() => {
                connection.progress.set(Progress::Waiting);
                let connection = Rc::clone(connection);
                self.accepting
                    .borrow_mut()
                    .connections
                    .push_back(connection);
                self.wake_acceptor()
            }
            Progress::HalfOpen | Progress::Waiting | Progress::Failed => false,
        }
    }

    /// Exchanges events between a connection and the endpoint: connection IDs, and the end.
    fn exchange_events(&self, connection: &ConnectionCore) {
        let mut protocol = connection.protocol.borrow_mut();
        while let Some(event) = protocol.poll_endpoint_event() {
            let is_drained = event.is_drained();
            let mut endpoint = self.protocol.borrow_mut();
            if let Some(ids) = endpoint.handle_event(connection.handle, event) {
                protocol.add_ids(ids);
            }
            drop(endpoint);
            if is_drained {
                self.remove(connection.handle);
            }
        }
    }

    /// The next connection that the application gets; `None` when the endpoint stops and no handshake is going on.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<QuicConnection>> {
        let mut accepting = self.accepting.borrow_mut();
        if let Some(connection) = accepting.connections.pop_front() {
            connection.progress.set(Progress::Accepted);
            self.leave_half_open(&connection);
            self.count(|counters| counters.accepted += 1);
            return Poll::Ready(Some(self.hand_out(connection)));
        }
        if self.has_stopped_accepting() {
            return Poll::Ready(None);
        }
        accepting.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Closes all connections with this code of the application.
    pub(crate) fn close_all(&self, code: u64, text: &Bytes) {
        let now = Instant::now();
        for connection in self.connections.borrow().iter().flatten() {
            connection.close(now, code, text.clone(), QuicCloseReason::Local);
            connection.wake();
            self.work.push(connection);
        }
        self.work.wake();
    }

    fn has_stopped_accepting(&self) -> bool {
        self.is_stopping.get() && self.half_open.count() == 0
    }

    pub(crate) fn wake_acceptor(&self) -> bool {
        let task = self.accepting.borrow_mut().task.take();
        let is_waiting = task.is_some();
        if let Some(task) = task {
            task.wake();
        }
        is_waiting
    }

    pub(crate) fn hand_out(&self, connection: Rc<ConnectionCore>) -> QuicConnection {
        QuicConnection::new(connection, Rc::clone(&self.work))
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut QuicCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}
