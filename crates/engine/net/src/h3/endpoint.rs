//! The QUIC endpoint of a worker, whose connections are entered in the tables of the worker and served.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_h3::H3ErrorCode;
use apus_http::{ConnectionInfo, KeptValue, Peer};
use apus_quic::{QuicConnection, QuicEndpoint, QuicSocket};
use apus_transport::canonical;
use bytes::Bytes;
use tokio::task::JoinHandle;

use super::Http3Connection;
use crate::accept::admit;
use crate::http3_settings::Http3Settings;
use crate::tls::{TlsSettings, quic_tls_info};
use crate::worker::{Worker, WorkerListener};

/// How long a worker that stops waits until the ends of its connections are sent.
const LAST_PACKETS: Duration = Duration::from_millis(250);

/// HTTP/3 of a listener on one worker.
pub(crate) struct Http3Endpoint {
    quic: QuicEndpoint,
    listener: Rc<EndpointListener>,
    task: JoinHandle<()>,
}

/// A listener, as the connections of its endpoint see it.
pub(super) struct EndpointListener {
    pub(super) listener: Rc<WorkerListener>,
    /// Whether the plan in force has no HTTP/3 at this listener.
    is_without_http3: Cell<bool>,
    max_idle_timeout: Cell<Duration>,
}

impl EndpointListener {
    /// Whether connections have to end after their open requests.
    pub(super) fn is_removed(&self) -> bool {
        self.is_without_http3.get() || self.listener.is_removed()
    }

    /// How long QUIC keeps a new connection without packets.
    pub(super) fn max_idle_timeout(&self) -> Duration {
        self.max_idle_timeout.get()
    }
}

impl Http3Endpoint {
    /// Accepts connections from a socket.
    ///
    /// # Errors
    /// The socket or TLS cannot be used.
    pub(crate) fn start(
        worker: &Rc<Worker>,
        listener: &Rc<WorkerListener>,
        socket: QuicSocket,
        (settings, tls): (&Http3Settings, Arc<TlsSettings>),
    ) -> io::Result<Self> {
        let (quic, task) = QuicEndpoint::new(socket, settings.quic(&worker.limits()), Some(tls))?;
        let filter = Rc::clone(worker);
        quic.ignore_clients(move |client| filter.is_refused(Some(client)));
        let listener = Rc::new(EndpointListener {
            listener: Rc::clone(listener),
            is_without_http3: Cell::new(false),
            max_idle_timeout: Cell::new(settings.max_idle_timeout),
        });
        tokio::task::spawn_local(accept(
            Rc::clone(worker),
            Rc::clone(&listener),
            quic.clone(),
        ));
        Ok(Self {
            quic,
            listener,
            task: tokio::task::spawn_local(task),
        })
    }

    /// Puts settings in force for new connections.
    ///
    /// # Errors
    /// TLS cannot be used.
    pub(crate) fn configure(
        &self,
        worker: &Worker,
        settings: &Http3Settings,
        tls: Arc<TlsSettings>,
    ) -> io::Result<()> {
        self.listener
            .max_idle_timeout
            .set(settings.max_idle_timeout);
        self.quic
            .configure(settings.quic(&worker.limits()), Some(tls))
            .map_err(io::Error::other)
    }

    /// Accepts no more connections. Those that exist end after their open requests, once they are woken.
    pub(crate) fn stop(&self) {
        self.listener.is_without_http3.set(true);
        self.quic.stop();
    }

    /// Closes the connections that are left, and waits a moment until their clients are told.
    pub(crate) async fn close(self) {
        self.quic.close_all(H3ErrorCode::NO_ERROR.0, &Bytes::new());
        let _ = tokio::time::timeout(LAST_PACKETS, self.task).await;
    }

    /// Whether its task has ended, without which connections make no progress.
    pub(crate) fn has_failed(&self) -> bool {
        self.task.is_finished()
    }
}

/// Accepts connections until the endpoint stops.
async fn accept(worker: Rc<Worker>, listener: Rc<EndpointListener>, quic: QuicEndpoint) {
    let port = quic.local_address().port();
    while let Some(connection) = quic.accept().await {
        start(&worker, &listener, connection, port);
    }
}

/// Starts to serve a connection, unless a limit refuses it.
fn start(
    worker: &Rc<Worker>,
    listener: &Rc<EndpointListener>,
    connection: QuicConnection,
    port: u16,
) {
    let peer = Peer::Ip(canonical(connection.remote_address()));
    let Some((slot, permit)) = admit(worker, peer.ip()) else {
        return connection.close(H3ErrorCode::EXCESSIVE_LOAD.0, Bytes::new());
    };
    let Some(tls) = quic_tls_info(&connection) else {
        return;
    };
    let local = connection
        .local_ip()
        .map_or(Peer::Unix, |ip| Peer::Ip(canonical((ip, port).into())));
    let info = ConnectionInfo {
        kept: KeptValue::default(),
        id: worker.next_id(),
        peer,
        local,
        tls: Some(tls),
    };
    let (worker, listener) = (Rc::clone(worker), Rc::clone(listener));
    tokio::task::spawn_local(async move {
        let _permit = permit;
        let _open = worker.counters.h3_open.count_one();
        let parts = (connection, info);
        let mut connection = Box::new(Http3Connection::new(&worker, &listener, &slot, parts));
        connection.serve().await;
    });
}
