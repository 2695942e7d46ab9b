//! A relay between a client and a server, which can change its address as a NAT does, and see or drop packets.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::UdpSocket;

/// A relay for one client.
pub struct UdpRelay {
    /// Where the client sends its packets.
    pub address: SocketAddr,
    inside: Rc<UdpSocket>,
    shared: Rc<UdpRelayState>,
    server: SocketAddr,
}

#[derive(Default)]
struct UdpRelayState {
    /// The socket that the server sees.
    outside: RefCell<Option<Rc<UdpSocket>>>,
    client: Cell<Option<SocketAddr>>,
    /// The packets that may still pass to the server, and to the client.
    to_server: Cell<Option<usize>>,
    to_client: Cell<Option<usize>>,
    /// One packet out of this number is lost, in both directions; 0 loses none.
    lost_of: Cell<usize>,
    count: Cell<usize>,
    bytes_to_server: Cell<usize>,
    bytes_from_server: Cell<usize>,
    recorded: RefCell<Vec<Vec<u8>>>,
}

impl UdpRelay {
    /// A relay to this server.
    pub async fn to(server: SocketAddr) -> Self {
        let any_port = SocketAddr::new(server.ip(), 0);
        let inside = Rc::new(UdpSocket::bind(any_port).await.unwrap());
        let relay = Self {
            address: inside.local_addr().unwrap(),
            inside,
            shared: Rc::default(),
            server,
        };
        relay.change_address().await;
        let (shared, socket) = (Rc::clone(&relay.shared), Rc::clone(&relay.inside));
        tokio::task::spawn_local(async move {
            let mut packet = vec![0; 65_535];
            while let Ok((length, client)) = socket.recv_from(&mut packet).await {
                shared.client.set(Some(client));
                if shared.loses() || !passes(&shared.to_server) {
                    continue;
                }
                shared.bytes_to_server.update(|bytes| bytes + length);
                shared.recorded.borrow_mut().push(packet[..length].to_vec());
                let outside = shared.outside.borrow().clone().unwrap();
                let _ = outside.send_to(&packet[..length], server).await;
            }
        });
        relay
    }

    /// Changes the address that the server sees.
    pub async fn change_address(&self) {
        let any_port = SocketAddr::new(self.server.ip(), 0);
        let outside = Rc::new(UdpSocket::bind(any_port).await.unwrap());
        self.shared.outside.replace(Some(Rc::clone(&outside)));
        let (shared, inside) = (Rc::clone(&self.shared), Rc::clone(&self.inside));
        tokio::task::spawn_local(async move {
            let mut packet = vec![0; 65_535];
            while let Ok((length, _)) = outside.recv_from(&mut packet).await {
                shared.bytes_from_server.update(|bytes| bytes + length);
                if shared.loses() || !passes(&shared.to_client) {
                    continue;
                }
                if let Some(client) = shared.client.get() {
                    let _ = inside.send_to(&packet[..length], client).await;
                }
            }
        });
    }

    /// The address that the server sees.
    pub fn outside_address(&self) -> SocketAddr {
        let outside = self.shared.outside.borrow();
        outside.as_ref().unwrap().local_addr().unwrap()
    }

    /// Limits the number of further packets that pass to the server, and to the client.
    pub fn limit(&self, to_server: Option<usize>, to_client: Option<usize>) {
        self.shared.to_server.set(to_server);
        self.shared.to_client.set(to_client);
    }

    /// Loses one packet out of `packets`.
    pub fn lose_one_of(&self, packets: usize) {
        self.shared.lost_of.set(packets);
    }

    /// The packets that reached the server.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.shared.recorded.borrow().clone()
    }

    /// The bytes that reached the server, and those that it sent.
    pub fn bytes(&self) -> (usize, usize) {
        let shared = &self.shared;
        (shared.bytes_to_server.get(), shared.bytes_from_server.get())
    }
}

impl UdpRelayState {
    fn loses(&self) -> bool {
        self.count.update(|count| count + 1);
        self.count.get().checked_rem(self.lost_of.get()) == Some(0)
    }
}

fn passes(limit: &Cell<Option<usize>>) -> bool {
    match limit.get() {
        None => true,
        Some(0) => false,
        Some(left) => {
            limit.set(Some(left - 1));
            true
        }
    }
}
