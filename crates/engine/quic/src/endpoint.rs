//! The endpoint of a worker: its connections, and who may open another one (RFC 9000 section 8.1).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use apus_quic_protocol::{
    ConnectError, ConnectionHandle, EndpointConfig, ProtocolEndpoint, ServerConfig, TransportConfig,
};
use bytes::Bytes;

use crate::connection::QuicConnection;
use crate::connection_id::{EndpointConnectionIds, EndpointNumber};
use crate::core::{ConnectionCore, Progress};
use crate::counters::QuicCounters;
use crate::events::QuicCloseReason;
use crate::half_open::{HalfOpenConnections, client_network};
use crate::memory::EndpointMemory;
use crate::settings::QuicSettings;
use crate::task::EndpointTask;
use crate::tls::{QuicClientTls, QuicTlsError, SelectServerTls, ServerTlsSelection, initial_suite};
use crate::udp::UdpIo;
use crate::work::WorkQueue;
use crate::workers::{QuicSocket, QuicWorkers};

/// How long a half-open connection does not give way to others: its client is about to respond.
const ABOUT_TO_RESPOND: Duration = Duration::from_secs(1);

/// The endpoint of a worker at one UDP socket, for server and client connections.
#[derive(Clone)]
pub struct QuicEndpoint {
    state: Rc<EndpointState>,
    address: SocketAddr,
}

/// What the endpoint shares with its task.
pub(crate) struct EndpointState {
    pub(crate) protocol: RefCell<ProtocolEndpoint>,
    pub(crate) work: Rc<WorkQueue>,
    pub(crate) workers: Arc<QuicWorkers>,
    pub(crate) number: EndpointNumber,
    pub(crate) configuration: RefCell<Configuration>,
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) half_open: HalfOpenConnections,
    memory: EndpointMemory,
    pub(crate) counters: Cell<QuicCounters>,
    /// By their handles, which are small numbers.
    connections: RefCell<Vec<Option<Rc<ConnectionCore>>>>,
    open: Cell<usize>,
    accepting: RefCell<AcceptQueue>,
}

/// The settings of new connections.
pub(crate) struct Configuration {
    pub(crate) settings: QuicSettings,
    transport: Arc<TransportConfig>,
}

#[derive(Default)]
struct AcceptQueue {
    connections: VecDeque<Rc<ConnectionCore>>,
    task: Option<Waker>,
}

impl QuicEndpoint {
    /// The endpoint at this socket, and its task, which has to run on the thread of the worker as long as there are
    /// connections. Without `sites`, it accepts no connections.
    ///
    /// # Errors
    /// An option of the socket cannot be set, or it is not called in a runtime of tokio.
    pub fn new(
        socket: QuicSocket,
        settings: QuicSettings,
        sites: Option<Arc<dyn SelectServerTls>>,
    ) -> io::Result<(Self, EndpointTask)> {
        let QuicSocket {
            socket,
            packets,
            membership,
            address,
        } = socket;
        let udp = UdpIo::new(socket)?;
        let workers = Arc::clone(&membership.workers);
        let number = membership.number;
        let keys = workers.keys();
        let config = EndpointConfig {
            reset_key: Arc::clone(&keys.reset),
            initial_suite: initial_suite().map_err(io::Error::other)?,
            can_discover_mtu: udp.can_discover_mtu(),
            seed: None,
        };
        let generator = EndpointConnectionIds {
            key: Arc::clone(&keys.connection_id),
            endpoint: number,
        };
        let protocol = ProtocolEndpoint::new(config, None, Box::new(generator));
        let memory = EndpointMemory::new(Arc::clone(workers.receive_memory()));
        let state = Rc::new(EndpointState {
            protocol: RefCell::new(protocol),
            work: Rc::default(),
            workers,
            number,
            configuration: RefCell::new(Configuration::new(settings.clone())),
            is_stopping: Cell::new(false),
            half_open: HalfOpenConnections::default(),
            memory,
            counters: Cell::default(),
            connections: RefCell::default(),
            open: Cell::new(0),
            accepting: RefCell::default(),
        });
        let endpoint = Self {
            state: Rc::clone(&state),
            address,
        };
        endpoint
            .configure(settings, sites)
            .map_err(io::Error::other)?;
        Ok((
            endpoint,
            EndpointTask::new(state, udp, packets, membership)?,
        ))
    }

    /// Puts settings and sites in force for new connections.
    ///
    /// # Errors
    /// The library lacks the suite of Initial packets.
    pub fn configure(
        &self,
        settings: QuicSettings,
        sites: Option<Arc<dyn SelectServerTls>>,
    ) -> Result<(), QuicTlsError> {
        self.state
            .workers
            .receive_memory()
            .set_limit(settings.receive_memory);
        let configuration = Configuration::new(settings);
        let server = sites.map(|sites| ServerConfig {
            tls: Arc::new(ServerTlsSelection { sites }),
            tokens: Arc::clone(&self.state.workers.keys().tokens),
            transport: Arc::clone(&configuration.transport),
        });
        self.state
            .protocol
            .borrow_mut()
            .set_server_config(server.map(Arc::new));
        self.state.configuration.replace(configuration);
        Ok(())
    }

    /// The next connection whose handshake is complete, or that has early data; `None` when the endpoint stops
    /// and no handshake is going on.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<QuicConnection>> {
        let mut accepting = self.state.accepting.borrow_mut();
        if let Some(connection) = accepting.connections.pop_front() {
            connection.progress.set(Progress::Accepted);
            self.state.leave_half_open(&connection);
            self.state.count(|counters| counters.accepted += 1);
            return Poll::Ready(Some(self.state.hand_out(connection)));
        }
        if self.state.has_stopped_accepting() {
            return Poll::Ready(None);
        }
        accepting.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// As [`QuicEndpoint::poll_accept`].
    pub async fn accept(&self) -> Option<QuicConnection> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Opens a connection. [`QuicEvent::Connected`](crate::QuicEvent::Connected) or
    /// [`QuicEvent::Closed`](crate::QuicEvent::Closed) follows.
    ///
    /// # Errors
    /// The address or the name is invalid, or the endpoint stops.
    pub fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: &QuicClientTls,
    ) -> Result<QuicConnection, ConnectError> {
        if self.state.is_stopping.get() {
            return Err(ConnectError::EndpointStopping);
        }
        if remote.is_ipv4() != self.address.is_ipv4() {
            return Err(ConnectError::InvalidRemoteAddress(remote));
        }
        let now = Instant::now();
        let configuration = self.state.configuration.borrow();
        let config = tls.config(Arc::clone(&configuration.transport));
        let (handle, protocol) =
            self.state
                .protocol
                .borrow_mut()
                .connect(now, &config, remote, server_name)?;
        let deadline = now + configuration.settings.handshake_timeout;
        let connection = Rc::new(ConnectionCore::new(handle, protocol, now, deadline));
        self.state.insert(&connection);
        self.state.work.schedule(&connection);
        Ok(self.state.hand_out(connection))
    }

    /// Accepts no more connections: other endpoints of the address get them, or the clients are refused. The task ends
    /// with the last connection.
    pub fn stop(&self) {
        if self.state.is_stopping.replace(true) {
            return;
        }
        self.state.workers.stop_accepting(self.state.number);
        self.state.wake_acceptor();
        self.state.work.wake();
    }

    /// Closes all connections with this code of the application. Their tasks get
    /// [`QuicCloseReason::Local`].
    pub fn close_all(&self, code: u64, text: &Bytes) {
        let now = Instant::now();
        for connection in self.state.connections.borrow().iter().flatten() {
            connection.close(now, code, text.clone(), QuicCloseReason::Local);
            connection.wake();
            self.state.work.push(connection);
        }
        self.state.work.wake();
    }

    /// The connections that exist, with those that are half-open or waiting for their last packets.
    pub fn connections(&self) -> usize {
        self.state.open.get()
    }

    /// What the endpoint has counted.
    pub fn counters(&self) -> QuicCounters {
        self.state.counters.get()
    }

    /// The address that the socket is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicEndpoint")
            .field("address", &self.address)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

impl Configuration {
    fn new(settings: QuicSettings) -> Self {
        Self {
            transport: settings.transport(),
            settings,
        }
    }
}

impl EndpointState {
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

    /// Closes connections that hold data which nobody has read, while all endpoints hold too much. Those of the client
    /// that holds most are the first, and of one client the one that holds most.
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

    pub(crate) fn has_connections(&self) -> bool {
        self.open.get() > 0
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

    fn has_stopped_accepting(&self) -> bool {
        self.is_stopping.get() && self.half_open.count() == 0
    }

    fn wake_acceptor(&self) -> bool {
        let task = self.accepting.borrow_mut().task.take();
        let is_waiting = task.is_some();
        if let Some(task) = task {
            task.wake();
        }
        is_waiting
    }

    fn hand_out(&self, connection: Rc<ConnectionCore>) -> QuicConnection {
        QuicConnection::new(connection, Rc::clone(&self.work))
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut QuicCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}
