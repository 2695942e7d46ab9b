//! The endpoints of all workers: which socket of a port belongs to which of them, and the hand-over of packets that
//! reached another one.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apus_quic_protocol::{DatagramSource, StartObserver};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::mpsc;

use crate::connection_id::EndpointNumber;
use crate::keys::QuicKeys;
use crate::memory::ReceiveMemory;
use crate::qlog::QlogFolders;
use crate::steering::{self, GroupMember};

/// Packets that wait for an endpoint they were handed to. Further ones are dropped, as in the buffer of a socket.
const WAITING_PACKETS: usize = 1_024;

/// The endpoints of all workers of a process. It outlives workers and configurations, so that connections of a worker
/// that is being replaced still get their packets.
///
/// Only opening and closing a socket and packets that reach the wrong socket take its lock.
pub struct QuicWorkers {
    keys: QuicKeys,
    steering: Steering,
    receive_memory: Arc<ReceiveMemory>,
    endpoints: Mutex<Endpoints>,
    qlog: QlogFolders,
}

/// How packets reach the endpoint of their connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// The kernel selects the socket by the connection ID. Packets of which it cannot do that are handed over.
    #[default]
    ByKernel,
    /// The kernel selects the socket by the addresses. Packets that reach the wrong one are handed over.
    ByHandOver,
}

#[derive(Default)]
struct Endpoints {
    next: EndpointNumber,
    open: HashMap<EndpointNumber, OpenEndpoint>,
    /// The sockets of each port, in the order in which the kernel has them.
    groups: HashMap<SocketAddr, Vec<GroupMember>>,
}

struct OpenEndpoint {
    packets: mpsc::Sender<HandedPacket>,
    address: SocketAddr,
    /// The socket of the endpoint, duplicated, to steer its group.
    socket: UdpSocket,
}

/// A packet that reached the socket of another endpoint.
#[derive(Debug)]
pub(crate) struct HandedPacket {
    pub(crate) source: DatagramSource,
    pub(crate) contents: Vec<u8>,
}

/// A bound UDP socket for one endpoint. It can be made on any thread, before the worker that uses it starts.
pub struct QuicSocket {
    pub(crate) socket: UdpSocket,
    pub(crate) packets: mpsc::Receiver<HandedPacket>,
    pub(crate) membership: Membership,
    pub(crate) address: SocketAddr,
}

/// The membership of an endpoint, which ends when this is dropped. The socket must be dropped before.
pub(crate) struct Membership {
    pub(crate) workers: Arc<QuicWorkers>,
    pub(crate) number: EndpointNumber,
}

impl QuicWorkers {
    /// No endpoints yet.
    pub fn new(keys: QuicKeys, steering: Steering) -> Arc<Self> {
        Arc::new(Self {
            keys,
            steering,
            receive_memory: Arc::default(),
            endpoints: Mutex::default(),
            qlog: QlogFolders::default(),
        })
    }

    /// Binds a socket for an endpoint that accepts connections. The sockets of several endpoints share an address
    /// (`SO_REUSEPORT`); port 0 selects a port.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(self: &Arc<Self>, address: SocketAddr) -> io::Result<QuicSocket> {
        // The order in which sockets are bound is that in which the kernel numbers them.
        let mut endpoints = self.lock();
        let socket = open(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        self.join(&mut endpoints, socket.into())
    }

    /// Uses a socket that another process has bound, with `SO_REUSEPORT` if the address has several. They have to be
    /// adopted in the order in which they were bound; otherwise packets are handed over.
    ///
    /// # Errors
    /// The socket has no address.
    pub fn adopt(self: &Arc<Self>, socket: UdpSocket) -> io::Result<QuicSocket> {
        self.join(&mut self.lock(), socket)
    }

    /// Binds a socket for an endpoint that only opens connections.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind_client(self: &Arc<Self>, address: SocketAddr) -> io::Result<QuicSocket> {
        let socket = open(address)?;
        socket.bind(&address.into())?;
        self.join(&mut self.lock(), socket.into())
    }

    pub(crate) fn keys(&self) -> &QuicKeys {
        &self.keys
    }

    /// What logs connections in this folder, for the endpoints of all workers.
    pub(crate) fn qlog(&self, folder: &Path) -> Option<Arc<dyn StartObserver>> {
        self.qlog.open(folder)
    }

    pub(crate) fn receive_memory(&self) -> &Arc<ReceiveMemory> {
        &self.receive_memory
    }

    fn join(
        self: &Arc<Self>,
        endpoints: &mut Endpoints,
        socket: UdpSocket,
    ) -> io::Result<QuicSocket> {
        let address = socket.local_addr()?;
        let number = endpoints
            .unused_number()
            .ok_or_else(|| io::Error::other("65,536 QUIC endpoints are open"))?;
        let shared = socket.try_clone()?;
        let (sender, packets) = mpsc::channel(WAITING_PACKETS);
        endpoints.open.insert(
            number,
            OpenEndpoint {
                packets: sender,
                address,
                socket: shared,
            },
        );
        let group = endpoints.groups.entry(address).or_default();
        group.push(GroupMember {
            endpoint: number,
            accepts: true,
        });
        self.steer(endpoints, address);
        Ok(QuicSocket {
            socket,
            packets,
            membership: Membership {
                workers: Arc::clone(self),
                number,
            },
            address,
        })
    }

    /// Gives a packet to the endpoint that its connection ID names. Returns it if there is none.
    pub(crate) fn hand_over(
        &self,
        packet: HandedPacket,
        to: EndpointNumber,
    ) -> Result<(), HandedPacket> {
        match self.lock().open.get(&to) {
            Some(endpoint) => {
                if endpoint.packets.try_send(packet).is_err() {
                    tracing::debug!("dropped a QUIC packet: its endpoint has too many waiting");
                }
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// The endpoint that takes a new connection instead of one that does not accept any more.
    pub(crate) fn successor(&self, of: EndpointNumber, id: &[u8]) -> Option<EndpointNumber> {
        let endpoints = self.lock();
        let address = endpoints.open.get(&of)?.address;
        let group = endpoints.groups.get(&address)?;
        steering::for_new_connection(&self.keys.connection_id, group, id)
    }

    /// New connections no longer go to this endpoint.
    pub(crate) fn stop_accepting(&self, number: EndpointNumber) {
        let mut endpoints = self.lock();
        let Some(address) = endpoints.open.get(&number).map(|open| open.address) else {
            return;
        };
        for member in endpoints.groups.entry(address).or_default() {
            member.accepts &= member.endpoint != number;
        }
        self.steer(&endpoints, address);
    }

    fn leave(&self, number: EndpointNumber) {
        let mut endpoints = self.lock();
        // Closes the socket: its endpoint has dropped it.
        let Some(OpenEndpoint { address, .. }) = endpoints.open.remove(&number) else {
            return;
        };
        let Some(group) = endpoints.groups.get_mut(&address) else {
            return;
        };
        if let Some(index) = group.iter().position(|member| member.endpoint == number) {
            // As the kernel does it: the last socket takes the index of the one that is closed.
            group.swap_remove(index);
        }
        if group.is_empty() {
            endpoints.groups.remove(&address);
        }
        self.steer(&endpoints, address);
    }

    /// Attaches the program for the sockets of this address.
    fn steer(&self, endpoints: &Endpoints, address: SocketAddr) {
        let Some(group) = endpoints.groups.get(&address) else {
            return;
        };
        if self.steering == Steering::ByHandOver {
            return;
        }
        let Some(open) = group
            .first()
            .and_then(|member| endpoints.open.get(&member.endpoint))
        else {
            return;
        };
        // The sockets of clients share no port.
        if !SockRef::from(&open.socket).reuse_port().unwrap_or(false) {
            return;
        }
        if let Err(error) = steering::attach(&open.socket, &self.keys.connection_id, group) {
            tracing::warn!(%address, %error, "the kernel cannot steer QUIC packets; workers hand them over");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints {
    /// The number after the last one that is not in use.
    fn unused_number(&mut self) -> Option<EndpointNumber> {
        let number = (0..=EndpointNumber::MAX)
            .map(|step| self.next.wrapping_add(step))
            .find(|number| !self.open.contains_key(number))?;
        self.next = number.wrapping_add(1);
        Some(number)
    }
}

impl QuicSocket {
    /// The address that the socket is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.workers.leave(self.number);
    }
}

impl fmt::Debug for QuicWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicWorkers")
            .field("steering", &self.steering)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSocket")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.nonblocking(),
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}
