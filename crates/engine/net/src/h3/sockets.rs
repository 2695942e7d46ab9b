//! The UDP sockets of HTTP/3, one for each worker at the port of a listener.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use apus_quic::{QuicKeys, QuicSocket, QuicWorkers, Steering};
use socket2::{Domain, Protocol, Socket, Type};

use crate::listen::{Binder, BoundAddress, bind_with};
use crate::plan::{EnginePlan, ListenAddress, ListenerPlan};

/// The addresses with UDP sockets, and what their endpoints share.
pub(crate) struct Http3Sockets {
    quic: Arc<QuicWorkers>,
    /// The actual addresses of the listeners that have sockets, by their addresses in the plan.
    open: Vec<(ListenAddress, ListenAddress)>,
    /// The ports that this process has had. The endpoints of earlier plans may still use them.
    ports: Vec<u16>,
}

/// The sockets of a plan: for each listener and worker one, if HTTP/3 begins there.
pub(crate) struct NewSockets {
    open: Vec<(ListenAddress, ListenAddress)>,
    sockets: Vec<Vec<QuicSocket>>,
}

impl NewSockets {
    /// The sockets of the listeners for one worker, which has to ask before the next one.
    pub(crate) fn of_next_worker(&mut self) -> Vec<Option<QuicSocket>> {
        let sockets = self.sockets.iter_mut();
        sockets
            .map(|sockets| (!sockets.is_empty()).then(|| sockets.remove(0)))
            .collect()
    }
}

impl Http3Sockets {
    /// No sockets, and the keys of a plan.
    ///
    /// # Errors
    /// The system has no random bytes for keys.
    pub(crate) fn new(plan: &EnginePlan) -> io::Result<Self> {
        let keys = match &plan.http3_secret {
            Some(secret) => QuicKeys::from_secret(secret.bytes()),
            // Keys of the process alone: after a restart, clients of the old one cannot be reset and wait for their
            // timeouts.
            None => QuicKeys::generate(),
        };
        let keys = keys.map_err(io::Error::other)?;
        Ok(Self {
            quic: QuicWorkers::new(keys, Steering::ByKernel),
            open: Vec::new(),
            ports: Vec::new(),
        })
    }

    /// Binds sockets for the listeners of a plan that have HTTP/3 and no sockets yet. Where it fails, the listener is
    /// without HTTP/3.
    pub(crate) fn bind(
        &self,
        plan: &EnginePlan,
        bound: &[Arc<BoundAddress>],
        binder: Option<&dyn Binder>,
    ) -> NewSockets {
        let mut new = NewSockets {
            open: Vec::new(),
            sockets: Vec::new(),
        };
        for (listener, bound) in plan.listeners.iter().zip(bound) {
            let mut sockets = Vec::new();
            if is_wanted(listener) {
                let known = self.open.iter().find(|open| open.0 == listener.address);
                match known {
                    Some(open) => new.open.push(open.clone()),
                    None => {
                        let workers = plan.workers.get();
                        // Another listener of this plan may have the port at another address.
                        let port = bound.local().port();
                        let is_own = new.open.iter().any(|open| open.1.port() == port)
                            || self.has_port(port);
                        let local = bound.local();
                        if let Some(fresh) = self.open_sockets(local, workers, is_own, binder) {
                            sockets = fresh;
                            new.open
                                .push((listener.address.clone(), bound.local().clone()));
                        }
                    }
                }
            }
            new.sockets.push(sockets);
        }
        new
    }

    /// Notes that the workers have the sockets.
    pub(crate) fn commit(&mut self, new: NewSockets) {
        let ports = new.open.iter().filter_map(|open| open.1.port());
        self.ports.extend(ports);
        self.ports.sort_unstable();
        self.ports.dedup();
        self.open = new.open;
    }

    /// The sockets of one worker that replaces another, whose sockets are closed.
    pub(crate) fn of_replaced_worker(
        &self,
        plan: &EnginePlan,
        binder: Option<&dyn Binder>,
    ) -> Vec<Option<QuicSocket>> {
        let socket = |listener: &ListenerPlan| {
            let open = self.open.iter().find(|open| open.0 == listener.address)?;
            let is_own = self.has_port(open.1.port());
            self.open_sockets(&open.1, 1, is_own, binder)?.pop()
        };
        plan.listeners.iter().map(socket).collect()
    }

    /// Whether this process has had the port.
    fn has_port(&self, port: Option<u16>) -> bool {
        port.is_some_and(|port| self.ports.contains(&port))
    }

    /// Opens the sockets of an address. `is_own` says whether this process has the port already.
    fn open_sockets(
        &self,
        local: &ListenAddress,
        workers: usize,
        is_own: bool,
        binder: Option<&dyn Binder>,
    ) -> Option<Vec<QuicSocket>> {
        let ListenAddress::Tcp { address, ipv6_only } = local else {
            return None;
        };
        let open = || -> io::Result<Vec<QuicSocket>> {
            if !is_own {
                check_udp_is_free(local, binder)?;
            }
            // In the order in which the kernel numbers them.
            // A socket for each worker, to which the kernel steers the packets of its connections: passed from one
            // worker to another, each packet would cost a wake-up and a copy.
            let socket = |_| {
                let socket = udp_socket(*address, *ipv6_only)?;
                socket.set_reuse_port(true)?;
                bind_with(binder, &socket, local)?;
                self.quic.adopt(UdpSocket::from(socket))
            };
            (0..workers).map(socket).collect()
        };
        match open() {
            Ok(sockets) => Some(sockets),
            Err(error) => {
                // No error of the start: without HTTP/3 clients come over TCP, and the site is served.
                tracing::warn!(%address, %error, "cannot listen on the UDP port: there is no HTTP/3");
                None
            }
        }
    }
}

/// The most ports that are tried for an address whose port the system selects.
const PORTS_TRIED: usize = 16;

/// Whether the system selects the port of a listener, which is to be free for UDP as well.
pub(crate) fn needs_free_udp_port(listener: &ListenerPlan) -> bool {
    listener.address.port() == Some(0) && is_wanted(listener)
}

/// Binds an address, by a function that selects another port each time, until its port is free for UDP. If none is, the last one is
/// used.
pub(crate) fn bind_until_udp_is_free(
    bind: impl Fn() -> io::Result<BoundAddress>,
) -> io::Result<BoundAddress> {
    let mut bound = bind()?;
    // These stay bound meanwhile, so that none is selected again.
    let mut taken = Vec::new();
    while taken.len() < PORTS_TRIED && check_udp_is_free(bound.local(), None).is_err() {
        taken.push(std::mem::replace(&mut bound, bind()?));
    }
    Ok(bound)
}

/// Checks whether the UDP port is free: with `SO_REUSEPORT`, several processes of a user can share a port unnoticed.
fn check_udp_is_free(local: &ListenAddress, binder: Option<&dyn Binder>) -> io::Result<()> {
    let ListenAddress::Tcp { address, ipv6_only } = local else {
        return Ok(());
    };
    bind_with(binder, &udp_socket(*address, *ipv6_only)?, local)
}

/// Whether a listener can have HTTP/3. Behind a proxy that sends PROXY protocol heads, clients do not reach the UDP port.
fn is_wanted(listener: &ListenerPlan) -> bool {
    let has_site = listener.tls.as_ref().is_some_and(|tls| tls.has_http3());
    listener.http3.is_some() && has_site && listener.proxy_protocol_from.is_empty()
}

fn udp_socket(address: SocketAddr, ipv6_only: bool) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(ipv6_only)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::PortSharing;

    #[test]
    fn a_port_that_the_system_selects_is_free_for_udp() {
        let any = ListenAddress::tcp(([127, 0, 0, 1], 0));
        let held = std::cell::RefCell::new(Vec::new());
        // Other programs have the UDP ports of the first three.
        let bound = bind_until_udp_is_free(|| {
            let bound = BoundAddress::new(&any, 1, &[], None, PortSharing::Workers)?;
            let mut held = held.borrow_mut();
            if held.len() < 3
                && let Ok(socket) = UdpSocket::bind(("127.0.0.1", bound.local().port().unwrap()))
            {
                held.push(socket);
            }
            Ok(bound)
        });
        let bound = bound.unwrap();
        let held = held.into_inner();
        assert_eq!(held.len(), 3);
        let port = bound.local().port().unwrap();
        for other in &held {
            assert_ne!(other.local_addr().unwrap().port(), port);
        }
    }
}
