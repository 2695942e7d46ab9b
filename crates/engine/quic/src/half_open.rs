//! The server connections whose handshake is not complete: a share of them for each client, and which of them gives way to
//! the next one.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use apus_quic_protocol::ConnectionHandle;

// Without shares, 1,010 handshakes that one socket began and left closed HTTP/3 to everybody for ten seconds.
/// The part of all half-open connections that one client may have.
const SHARE: usize = 4;

/// The half-open connections of an endpoint.
#[derive(Default)]
pub(crate) struct HalfOpenConnections {
    count: Cell<usize>,
    networks: RefCell<HashMap<IpAddr, usize>>,
    /// In the order in which they began, with some that are not half-open any more.
    order: RefCell<VecDeque<HalfOpenEntry>>,
    begun: Cell<u64>,
}

/// A connection, by the number of its beginning: handles are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HalfOpenEntry {
    handle: ConnectionHandle,
    number: u64,
    network: IpAddr,
}

/// The place of a half-open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HalfOpenPlace {
    number: u64,
    network: IpAddr,
}

/// What becomes of a further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfOpenRoom {
    /// There is room.
    Free,
    /// The oldest half-open connection of this network gives way to it.
    InPlaceOf(IpAddr),
}

impl HalfOpenConnections {
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// How many are of the network of this address.
    pub(crate) fn of_client(&self, address: IpAddr) -> usize {
        let networks = self.networks.borrow();
        networks.get(&client_network(address)).copied().unwrap_or(0)
    }

    /// How many of `most` connections one client may have.
    pub(crate) fn share(most: usize) -> usize {
        most.div_ceil(SHARE)
    }

    /// Whether one more of the client at this address makes `most` of all.
    pub(crate) fn room(&self, address: IpAddr, most: usize) -> HalfOpenRoom {
        let network = client_network(address);
        if self.of_client(address) >= Self::share(most) {
            return HalfOpenRoom::InPlaceOf(network);
        }
        if self.count() < most {
            return HalfOpenRoom::Free;
        }
        // The network with most of them; of several, the network of the oldest connection.
        let networks = self.networks.borrow();
        let largest = networks.values().max().copied().unwrap_or(0);
        let order = self.order.borrow();
        let mut oldest = order.iter().map(|entry| entry.network);
        let found = oldest.find(|network| networks.get(network) == Some(&largest));
        HalfOpenRoom::InPlaceOf(found.unwrap_or(network))
    }

    /// Adds a connection of the client at this address.
    pub(crate) fn enter(&self, handle: ConnectionHandle, address: IpAddr) -> HalfOpenPlace {
        let network = client_network(address);
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.count.set(self.count.get() + 1);
        *self.networks.borrow_mut().entry(network).or_default() += 1;
        self.order.borrow_mut().push_back(HalfOpenEntry {
            handle,
            number,
            network,
        });
        HalfOpenPlace { number, network }
    }

    /// A connection is not half-open any more.
    pub(crate) fn leave(&self, place: HalfOpenPlace) {
        self.count.set(self.count.get().saturating_sub(1));
        let mut networks = self.networks.borrow_mut();
        if let Some(count) = networks.get_mut(&place.network) {
            *count -= 1;
            if *count == 0 {
                networks.remove(&place.network);
            }
        }
        let mut order = self.order.borrow_mut();
        if let Ok(index) = order.binary_search_by_key(&place.number, |entry| entry.number) {
            order.remove(index);
        }
        if order.is_empty() {
            order.shrink_to(16);
        }
    }

    /// The connections of a network, the oldest first.
    pub(crate) fn of_network(&self, network: IpAddr) -> Vec<ConnectionHandle> {
        let order = self.order.borrow();
        let entries = order.iter().filter(|entry| entry.network == network);
        entries.map(|entry| entry.handle).collect()
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 host.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_client_has_a_quarter_of_the_places() {
        let connections = HalfOpenConnections::default();
        let [first, second] = ["192.0.2.1", "192.0.2.2"].map(address);
        let share = HalfOpenConnections::share(1_000);
        assert_eq!(share, 250);
        let mut places = Vec::new();
        for number in 0..share {
            assert_eq!(connections.room(first, 1_000), HalfOpenRoom::Free);
            places.push(connections.enter(ConnectionHandle(number), first));
        }
        let full = HalfOpenRoom::InPlaceOf(first);
        assert_eq!(connections.room(first, 1_000), full);
        let mapped = address("::ffff:192.0.2.1");
        assert_eq!(connections.room(mapped, 1_000), full);
        assert_eq!(connections.room(second, 1_000), HalfOpenRoom::Free);
        assert_eq!(
            connections.of_network(first)[..2],
            [0, 1].map(ConnectionHandle)
        );
        connections.leave(places[0]);
        assert_eq!(connections.room(first, 1_000), HalfOpenRoom::Free);
        assert_eq!(connections.of_network(first)[0], ConnectionHandle(1));
        for place in &places[1..] {
            connections.leave(*place);
        }
        assert_eq!(connections.count(), 0);
        assert!(connections.networks.borrow().is_empty());
        assert!(connections.order.borrow().is_empty());
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let connections = HalfOpenConnections::default();
        let enter = |text, handle| connections.enter(ConnectionHandle(handle), address(text));
        enter("2001:db8:0:1::1", 0);
        enter("2001:db8:0:1:ffff::2", 1);
        enter("2001:db8:0:2::1", 2);
        assert_eq!(connections.of_client(address("2001:db8:0:1::3")), 2);
        assert_eq!(connections.of_client(address("2001:db8:0:2::3")), 1);
        assert_eq!(connections.of_client(address("2001:db8::")), 0);
    }

    #[test]
    fn where_all_places_are_taken_the_client_with_most_gives_one_back() {
        let connections = HalfOpenConnections::default();
        let clients = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(address);
        for (number, client) in [0, 1, 2, 1, 2].into_iter().enumerate() {
            connections.enter(ConnectionHandle(number), clients[client]);
        }
        let new = address("192.0.2.9");
        assert_eq!(connections.room(new, 6), HalfOpenRoom::Free);
        // Of those with two, it is the one whose connection is the oldest.
        let expected = HalfOpenRoom::InPlaceOf(clients[1]);
        assert_eq!(connections.room(new, 5), expected);
        assert_eq!(connections.room(new, 4), expected);
    }
}
