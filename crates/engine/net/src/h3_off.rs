//! HTTP/3 without the feature `http3`: no listener has it, and there are no sockets.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use crate::http3_settings::Http3Settings;
use crate::listen::{Binder, BoundAddress};
use crate::plan::{EnginePlan, ListenerPlan};
use crate::tls::TlsSettings;
use crate::worker::{Worker, WorkerListener};

pub(crate) struct QuicSocket(Infallible);

pub(crate) struct Http3Sockets;

/// The number of listeners.
pub(crate) struct NewSockets(usize);

impl NewSockets {
    pub(crate) fn of_next_worker(&mut self) -> Vec<Option<QuicSocket>> {
        none_for_each(self.0)
    }
}

impl Http3Sockets {
    pub(crate) fn new(_: &EnginePlan) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn bind(
        &self,
        plan: &EnginePlan,
        _: &[Arc<BoundAddress>],
        _: Option<&dyn Binder>,
    ) -> NewSockets {
        NewSockets(plan.listeners.len())
    }

    pub(crate) fn commit(&mut self, _: NewSockets) {}

    pub(crate) fn of_replaced_worker(
        &self,
        plan: &EnginePlan,
        _: Option<&dyn Binder>,
    ) -> Vec<Option<QuicSocket>> {
        none_for_each(plan.listeners.len())
    }
}

fn none_for_each(listeners: usize) -> Vec<Option<QuicSocket>> {
    (0..listeners).map(|_| None).collect()
}

pub(crate) fn needs_free_udp_port(listener: &ListenerPlan) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.has_http3())
}

pub(crate) fn bind_until_udp_is_free(
    bind: impl Fn() -> io::Result<BoundAddress>,
) -> io::Result<BoundAddress> {
    bind()
}

pub(crate) struct Http3Endpoint(Infallible);

impl Http3Endpoint {
    pub(crate) fn start(
        _: &Rc<Worker>,
        _: &Rc<WorkerListener>,
        socket: QuicSocket,
        _: (&Http3Settings, Arc<TlsSettings>),
    ) -> io::Result<Self> {
        match socket.0 {}
    }

    pub(crate) fn configure(
        &self,
        _: &Worker,
        _: &Http3Settings,
        _: Arc<TlsSettings>,
    ) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }

    pub(crate) async fn close(self) {
        match self.0 {}
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self.0 {}
    }
}
