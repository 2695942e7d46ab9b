//! The endpoint of a worker: its connections, and who may open another one (RFC 9000 section 8.1).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use apus_quic_protocol::{
    ConnectError, ConnectionHandle, EndpointConfig, ProtocolEndpoint, ServerConfig, TransportConfig,
};
use bytes::Bytes;

use crate::connection::QuicConnection;
use crate::connection_id::{EndpointConnectionIds, EndpointNumber};
use crate::core::{ConnectionCore, Progress};
use crate::counters::QuicCounters;
use crate::events::QuicCloseReason;
use crate::settings::QuicSettings;
use crate::task::EndpointTask;
use crate::tls::{QuicClientTls, QuicTlsError, SelectServerTls, ServerTlsSelection, initial_suite};
use crate::udp::UdpIo;
use crate::work::WorkQueue;
use crate::workers::{QuicSocket, QuicWorkers};

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
    pub(crate) half_open: Cell<usize>,
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
        let state = Rc::new(EndpointState {
            protocol: RefCell::new(protocol),
            work: Rc::default(),
            workers,
            number,
            configuration: RefCell::new(Configuration::new(settings.clone())),
            is_stopping: Cell::new(false),
            half_open: Cell::new(0),
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
            self.state.half_open.set(self.state.half_open.get() - 1);
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
        if connection.progress.get() == Progress::Failed {
            self.half_open.set(self.half_open.get() - 1);
            if self.has_stopped_accepting() {
                self.wake_acceptor();
            }
        }
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.open.get() > 0
    }

    /// Passes what a connection reports to the endpoint and to the application. Returns whether a task was woken.
    pub(crate) fn settle(&self, connection: &Rc<ConnectionCore>) -> bool {
        self.update_send_window(connection);
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
        self.is_stopping.get() && self.half_open.get() == 0
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
