//! The endpoint of a worker at one UDP socket, by which an application opens and accepts connections.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_quic_protocol::{ConnectError, EndpointConfig, ProtocolEndpoint, ServerConfig};
use bytes::Bytes;

use crate::connection::QuicConnection;
use crate::connection_id::EndpointConnectionIds;
use crate::core::ConnectionCore;
use crate::counters::QuicCounters;
use crate::endpoint_state::{Configuration, EndpointState};
use crate::settings::QuicSettings;
use crate::task::EndpointTask;
use crate::tls::{QuicClientTls, QuicTlsError, SelectServerTls, ServerTlsSelection, initial_suite};
use crate::udp::UdpIo;
use crate::workers::QuicSocket;

/// The endpoint of a worker at one UDP socket, for server and client connections.
#[derive(Clone)]
pub struct QuicEndpoint {
    state: Rc<EndpointState>,
    address: SocketAddr,
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
        let state = Rc::new(EndpointState::new(
            protocol,
            workers,
            number,
            settings.clone(),
        ));
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
        let folder = settings.qlog.as_deref();
        let qlog = folder.and_then(|folder| self.state.workers.qlog(folder));
        let configuration = Configuration::new(settings, qlog);
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

    /// Ignores packets with which these clients begin a connection: they get no response, and cost nothing else.
    pub fn ignore_clients(&self, is_ignored: impl Fn(IpAddr) -> bool + 'static) {
        self.state
            .ignored_clients
            .replace(Some(Box::new(is_ignored)));
    }

    /// The next connection whose handshake is complete, or that has early data; `None` when the endpoint stops
    /// and no handshake is going on.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<QuicConnection>> {
        self.state.poll_accept(cx)
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
    /// [`QuicCloseReason::Local`](crate::QuicCloseReason::Local).
    pub fn close_all(&self, code: u64, text: &Bytes) {
        self.state.close_all(code, text);
    }

    /// The connections that exist, with those that are half-open or waiting for their last packets.
    pub fn connections(&self) -> usize {
        self.state.connection_count()
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
