//! The state that the connections of a worker share.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_codec::flood::Flood;
use apus_http::{ConnectionInfo, Glitch, Network, Peer, Response, Service, StatusCode};
use apus_transport::buffers::BufferPool;
use apus_transport::{WorkerClock, deadline_from};
use tokio::sync::{Notify, watch};

use crate::client_filter::{ClientFilter, ClientRefusal};
use crate::connection_table::{ConnectionCount, ConnectionTable};
use crate::counters::WorkerCounters;
use crate::limits::Limits;
use crate::plan::{EnginePlan, ListenerPlan};
use crate::tls::TlsSettings;
use crate::tunnel_limits::TunnelLimits;

/// The state that the connections of a worker share.
pub(crate) struct Worker {
    pub(crate) clock: Rc<WorkerClock>,
    pub(crate) buffers: Rc<BufferPool>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) table: Rc<ConnectionTable>,
    pub(crate) all: Arc<ConnectionCount>,
    limits: RefCell<Rc<Limits>>,
    server_field: RefCell<Option<Arc<str>>>,
    client_filter: RefCell<Option<Arc<dyn ClientFilter>>>,
    filter_replaced: Notify,
    stopping: Cell<bool>,
    index: u64,
    entered: Cell<u64>,
}

impl Worker {
    /// A worker without a plan.
    pub(crate) fn new(
        index: usize,
        counters: Arc<WorkerCounters>,
        all: Arc<ConnectionCount>,
    ) -> Self {
        // The workers that this one replaces have used as many.
        let entered = counters.read().accepted;
        Self {
            clock: Rc::new(WorkerClock::start()),
            buffers: BufferPool::of_thread(),
            counters,
            table: Rc::default(),
            all,
            limits: RefCell::default(),
            server_field: RefCell::default(),
            client_filter: RefCell::default(),
            filter_replaced: Notify::new(),
            stopping: Cell::new(false),
            index: index as u64,
            entered: Cell::new(entered),
        }
    }

    /// Puts the settings of a plan for all listeners in force.
    pub(crate) fn take_over(&self, plan: &EnginePlan) {
        self.limits.replace(Rc::new(plan.limits.clone()));
        TunnelLimits::set(&plan.limits, plan.workers);
        self.server_field.replace(plan.server_field.clone());
        self.client_filter.replace(plan.client_filter.clone());
        self.filter_replaced.notify_one();
    }

    /// Makes connections end when no request is open.
    pub(crate) fn stop(&self) {
        self.stopping.set(true);
        crate::stop::announce_stop();
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }

    /// Whether a client may not connect now.
    pub(crate) fn would_refuse(&self, client: IpAddr) -> bool {
        self.refusal(client).is_some()
    }

    /// Whether a client may not connect. Counts it, if so.
    pub(crate) fn is_refused(&self, client: Option<IpAddr>) -> bool {
        let refusal = client.and_then(|client| self.refusal(client));
        match refusal {
            None => {}
            Some(ClientRefusal::Banned) => self.counters.banned.add(1),
            Some(ClientRefusal::Glitches) => self.counters.refused_for_glitches.add(1),
        }
        refusal.is_some()
    }

    fn refusal(&self, client: IpAddr) -> Option<ClientRefusal> {
        self.client_filter.borrow().as_ref()?.refuses(client)
    }

    /// Notes what a client did wrong. One of a Unix socket has no address.
    #[cold]
    pub(crate) fn note_glitch(&self, client: &Peer, glitch: Glitch) {
        if let (Some(filter), Some(client)) = (&*self.client_filter.borrow(), client.ip()) {
            filter.note(client, glitch);
        }
    }

    /// Waits until a plan with another filter of clients may be in force.
    pub(crate) async fn filter_replaced(&self) {
        self.filter_replaced.notified().await;
    }

    /// The changes of the filter in force.
    pub(crate) fn filter_changes(&self) -> Option<watch::Receiver<()>> {
        let filter = self.client_filter.borrow();
        filter.as_ref().and_then(|filter| filter.changes())
    }

    /// Closes the connections of banned clients.
    pub(crate) fn close_refused(&self) {
        // A client with many glitches may only begin no more connections.
        let is_banned = |client| self.refusal(client) == Some(ClientRefusal::Banned);
        let closed = self.table.close_refused(is_banned);
        self.counters.banned.add(closed);
    }

    /// The value of `Server`.
    pub(crate) fn server_field(&self) -> std::cell::Ref<'_, Option<Arc<str>>> {
        self.server_field.borrow()
    }

    /// Whether connections have to end when no request is open.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Evicts connections that have waited for their clients since tick `until`, or longer; returns how many.
    pub(crate) fn make_room(&self, least: u64, until: u32) -> u64 {
        let closed = self.table.make_room(least, until, self.clock.ticks());
        self.counters.evicted.add(closed);
        closed
    }

    /// Closes clients that have been idle for at least this time; returns how many.
    pub(crate) fn close_idle(&self, wanted: u64, idle: Duration) -> u64 {
        let idle_ticks = deadline_from(0, idle);
        self.clock
            .ticks()
            .checked_sub(idle_ticks)
            .map_or(0, |until| self.make_room(wanted, until))
    }

    /// Counts a request that broke HTTP/1.1, or was too large.
    pub(crate) fn count_bad_request(&self, client: &Peer) {
        self.counters.bad_requests.add(1);
        self.note_glitch(client, Glitch::Protocol);
    }

    /// Counts a connection that is closed by a fault of its client, by the flood that it stops, if any.
    pub(crate) fn count_fault(&self, flood: Option<Flood>) {
        let counters = &self.counters;
        let counter = match flood {
            Some(Flood::Resets) => &counters.stopped_reset_floods,
            Some(Flood::FieldBlock) => &counters.stopped_field_block_floods,
            Some(Flood::Acks) => &counters.stopped_reply_floods,
            Some(Flood::Overhead) => &counters.stopped_idle_floods,
            Some(Flood::TinyWindows) => &counters.stopped_tiny_window_floods,
            None => &counters.bad_requests,
        };
        counter.add(1);
    }

    /// The response to a client whose handler panicked.
    pub(crate) fn panicked(&self, client: &ConnectionInfo) -> Response {
        self.counters.panics.add(1);
        tracing::error!(peer = %client.peer, "a handler panicked; its client got a 500");
        Response::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "500 Internal Server Error\n",
        )
    }

    /// An identifier that no other connection of this process has.
    pub(crate) fn next_id(&self) -> u64 {
        self.entered.set(self.entered.get() + 1);
        // Without a shared counter: 2^48 connections of one worker take longer than any machine lives.
        (self.index << 48) | self.entered.get()
    }
}

/// A listener, as its connections see it. A reload changes its parts.
pub(crate) struct WorkerListener {
    parts: RefCell<ListenerParts>,
    /// Whether clients reach it over HTTP/3.
    http3: Cell<bool>,
    removed: Cell<bool>,
}

/// The parts of a listener, prepared for this worker.
pub(crate) struct ListenerParts {
    service: Rc<dyn Service>,
    tls: Option<Arc<TlsSettings>>,
    http2: bool,
    proxy_protocol_from: Rc<[Network]>,
}

impl WorkerListener {
    pub(crate) fn new(parts: ListenerParts) -> Self {
        Self {
            parts: RefCell::new(parts),
            http3: Cell::new(false),
            removed: Cell::new(false),
        }
    }

    /// Puts the listener's parts of the new plan in force.
    pub(crate) fn take_over(&self, parts: ListenerParts) {
        self.parts.replace(parts);
    }

    /// Marks that the plan in force does not have this listener any more.
    pub(crate) fn remove(&self) {
        self.removed.set(true);
    }

    /// The service for the next request.
    pub(crate) fn service(&self) -> Rc<dyn Service> {
        Rc::clone(&self.parts.borrow().service)
    }

    /// TLS for the next connection.
    pub(crate) fn tls(&self) -> Option<Arc<TlsSettings>> {
        self.parts.borrow().tls.clone()
    }

    /// Whether the next connection may use HTTP/2 with prior knowledge.
    pub(crate) fn http2(&self) -> bool {
        self.parts.borrow().http2
    }

    /// Notes whether clients reach it over HTTP/3.
    pub(crate) fn set_http3(&self, is_reached: bool) {
        self.http3.set(is_reached);
    }

    /// Whether clients reach it over HTTP/3.
    pub(crate) fn has_http3(&self) -> bool {
        self.http3.get()
    }

    /// The proxies that open connections with a PROXY protocol head.
    pub(crate) fn proxy_protocol_from(&self) -> Rc<[Network]> {
        Rc::clone(&self.parts.borrow().proxy_protocol_from)
    }

    /// Whether the plan in force does not have this listener any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.get()
    }
}

impl ListenerParts {
    pub(crate) fn of(listener: &ListenerPlan) -> Self {
        Self {
            service: listener.service.service(),
            tls: listener.tls.clone(),
            http2: listener.http2,
            proxy_protocol_from: listener.proxy_protocol_from.as_slice().into(),
        }
    }
}
