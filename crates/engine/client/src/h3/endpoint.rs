//! The QUIC endpoints of a worker for connections to origins, one for each address family.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};

use apus_quic::{QuicEndpoint, QuicKeys, QuicWorkers, Steering};
use apus_transport::descriptors::DescriptorPermit;
use tokio::task::JoinHandle;

use super::settings;

/// An endpoint, which exists as long as one of its connections.
pub(super) struct ClientEndpoint {
    pub(super) quic: QuicEndpoint,
    task: JoinHandle<()>,
}

/// The endpoints of a thread, if they exist.
#[derive(Default)]
struct ClientEndpoints {
    ipv4: Weak<ClientEndpoint>,
    ipv6: Weak<ClientEndpoint>,
}

thread_local! {
    static ENDPOINTS: RefCell<ClientEndpoints> = RefCell::default();
}

impl ClientEndpoints {
    fn of_family(&mut self, remote: SocketAddr) -> &mut Weak<ClientEndpoint> {
        match remote {
            SocketAddr::V4(_) => &mut self.ipv4,
            SocketAddr::V6(_) => &mut self.ipv6,
        }
    }
}

impl ClientEndpoint {
    /// The endpoint of this thread for connections to such addresses, which is opened if there is none.
    ///
    /// # Errors
    /// No socket can be opened.
    pub(super) async fn for_address(remote: SocketAddr) -> io::Result<Rc<Self>> {
        let known = || ENDPOINTS.with_borrow_mut(|endpoints| endpoints.of_family(remote).upgrade());
        let is_alive = |endpoint: &Rc<Self>| !endpoint.task.is_finished();
        if let Some(endpoint) = known().filter(is_alive) {
            return Ok(endpoint);
        }
        let descriptor = DescriptorPermit::of_origin().await?;
        // Another request may have opened it meanwhile.
        if let Some(endpoint) = known().filter(is_alive) {
            return Ok(endpoint);
        }
        let endpoint = Rc::new(Self::open(remote, descriptor)?);
        ENDPOINTS.with_borrow_mut(|endpoints| {
            *endpoints.of_family(remote) = Rc::downgrade(&endpoint);
        });
        Ok(endpoint)
    }

    fn open(remote: SocketAddr, descriptor: DescriptorPermit) -> io::Result<Self> {
        let any = match remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let keys = QuicKeys::generate().map_err(io::Error::other)?;
        // No other endpoint shares its port.
        let workers = QuicWorkers::new(keys, Steering::ByHandOver);
        let socket = workers.bind_client((any, 0).into())?;
        let (quic, task) = QuicEndpoint::new(socket, settings(), None)?;
        let task = tokio::task::spawn_local(async move {
            task.await;
            // Not before the task has ended: until then the socket is open.
            drop(descriptor);
        });
        Ok(Self { quic, task })
    }
}

impl Drop for ClientEndpoint {
    /// The task ends when the origins were told of the end of the last connections.
    fn drop(&mut self) {
        self.quic.stop();
    }
}
