//! How many names each client may make the server look for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Names that one client may have looked for at once. Those that get a certificate do not count.
pub(super) const LOOKUPS_PER_CLIENT: u32 = 16;
/// After this time, a client may have one more name looked for.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(4);
/// The most clients that are remembered.
pub(super) const MAX_CLIENTS: usize = 8_192;

/// How many names each client may make the server look for.
#[derive(Debug, Default)]
pub(super) struct LookupAllowances(HashMap<ClientNetwork, Instant>);

/// An IPv4 address, or the network of an IPv6 address: one client has all addresses of a /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientNetwork(IpAddr);

impl ClientNetwork {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            address => address,
        })
    }
}

impl LookupAllowances {
    /// Takes one look-up of a client, if it has one left.
    pub(super) fn take(&mut self, client: ClientNetwork, now: Instant) -> bool {
        if self.0.len() >= MAX_CLIENTS && !self.0.contains_key(&client) {
            self.make_room(now);
        }
        // When the client has all its look-ups again. A client that is not known has them now.
        let full_at = self.0.entry(client).or_insert(now);
        let after = (*full_at).max(now) + LOOKUP_INTERVAL;
        let is_allowed = after <= now + LOOKUP_INTERVAL * LOOKUPS_PER_CLIENT;
        if is_allowed {
            *full_at = after;
        }
        is_allowed
    }

    /// Gives a look-up back, because there is a certificate.
    pub(super) fn give_back(&mut self, client: ClientNetwork) {
        if let Some(full_at) = self.0.get_mut(&client) {
            *full_at = full_at.checked_sub(LOOKUP_INTERVAL).unwrap_or(*full_at);
        }
    }

    /// Forgets clients that have all their look-ups again. If that leaves less than half of the room, it forgets all, so that
    /// the cost of this is spread over many clients: the queues of the sites bound what all of them together can cause.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, full_at| *full_at > now);
        if self.0.len() > MAX_CLIENTS / 2 {
            self.0.clear();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientNetwork {
        ClientNetwork::of(address.parse().unwrap())
    }

    #[test]
    fn a_client_has_sixteen_look_ups_and_gets_one_back_each_interval() {
        let mut allowances = LookupAllowances::default();
        let start = Instant::now();
        let one = client("192.0.2.1");
        for _ in 0..LOOKUPS_PER_CLIENT {
            assert!(allowances.take(one, start));
        }
        assert!(!allowances.take(one, start));
        assert!(allowances.take(client("192.0.2.2"), start));
        let almost = start + LOOKUP_INTERVAL - Duration::from_millis(1);
        assert!(!allowances.take(one, almost));
        let later = start + LOOKUP_INTERVAL;
        assert!(allowances.take(one, later));
        assert!(!allowances.take(one, later));
        // A name that got its certificate does not count.
        allowances.give_back(one);
        assert!(allowances.take(one, later));
        assert!(!allowances.take(one, later));
    }

    #[test]
    fn all_addresses_of_a_network_are_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1:2:3"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }

    #[test]
    fn clients_that_are_remembered_are_bounded() {
        let mut allowances = LookupAllowances::default();
        let start = Instant::now();
        for number in 0..u32::try_from(MAX_CLIENTS).unwrap() * 3 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(allowances.take(ClientNetwork::of(address), start));
            assert!(allowances.len() <= MAX_CLIENTS);
        }
    }
}
