//! Requests and responses that rules hold for a time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use apus_http::{Request, Response, StatusCode};

/// The most requests that a worker holds at once.
const MAX_HELD: usize = 1_000;

/// The most of them for one client: an IPv4 address, or an IPv6 network of 64 bits.
const MAX_HELD_OF_CLIENT: usize = 100;

/// The longest time for which a request is held, also by several rules together.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60);

thread_local! {
    static HELD: RefCell<HeldRequests> = RefCell::default();
}

/// The requests that this worker holds.
#[derive(Default)]
struct HeldRequests {
    total: usize,
    /// Those of each client that has any.
    by_client: HashMap<u128, usize>,
}

/// A place among the held requests. It is free again when this is dropped: after the time, or when the client has gone.
pub(crate) struct Hold {
    client: u128,
}

impl Hold {
    /// A place for a request, or the response to one for which there is none: holding requests must not cost the server more
    /// than refusing them.
    pub(crate) fn begin(request: &Request) -> Result<Self, Box<Response>> {
        let client = request.client().ip.map_or(0, network_of_client);
        HELD.with_borrow_mut(|held| {
            let of_client = held.by_client.get(&client).copied().unwrap_or_default();
            if of_client >= MAX_HELD_OF_CLIENT {
                return Err(Box::new(Response::new(StatusCode::TOO_MANY_REQUESTS)));
            }
            if held.total >= MAX_HELD {
                return Err(Box::new(Response::new(StatusCode::SERVICE_UNAVAILABLE)));
            }
            held.total = held.total.saturating_add(1);
            held.by_client.insert(client, of_client.saturating_add(1));
            Ok(Self { client })
        })
    }

    /// Waits for this time.
    pub(crate) async fn wait(self, time: Duration) {
        let time = time.min(MAX_DELAY);
        match apus_clock::current() {
            Some(_) => apus_clock::sleep(time).await,
            None => tokio::time::sleep(time).await,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            held.total = held.total.saturating_sub(1);
            if let Some(of_client) = held.by_client.get_mut(&self.client) {
                *of_client = of_client.saturating_sub(1);
                if *of_client == 0 {
                    held.by_client.remove(&self.client);
                }
            }
        });
    }
}

/// The number of the network that counts as one client.
fn network_of_client(ip: IpAddr) -> u128 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits() & !u128::from(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: &str) -> Request {
        apus_testkit::get("/")
            .peer(client.parse::<std::net::SocketAddr>().unwrap())
            .request()
    }

    #[test]
    fn a_client_holds_a_hundred_requests_and_all_together_a_thousand_until_they_are_dropped() {
        let first = request("192.0.2.1:1");
        let mut held: Vec<_> = (0..MAX_HELD_OF_CLIENT)
            .map(|_| {
                Hold::begin(&first)
                    .map_err(|response| response.status())
                    .unwrap()
            })
            .collect();
        let status = |client: &str| {
            Hold::begin(&request(client))
                .err()
                .map(|response| response.status().as_u16())
        };
        assert_eq!(status("192.0.2.1:2"), Some(429));
        assert_eq!(status("[::ffff:192.0.2.1]:2"), Some(429));
        for network in 1..10 {
            let client = request(&format!("[2001:db8:0:{network}::1]:1"));
            held.extend((0..MAX_HELD_OF_CLIENT).map(|_| Hold::begin(&client).ok().unwrap()));
        }
        assert_eq!(held.len(), MAX_HELD);
        assert_eq!(status("192.0.2.2:1"), Some(503));
        assert_eq!(status("[2001:db8:0:1::2]:1"), Some(429));
        held.pop();
        assert_eq!(status("192.0.2.2:1"), None);
        held.clear();
        assert_eq!(status("192.0.2.1:1"), None);
        HELD.with_borrow(|held| assert!(held.total == 0 && held.by_client.is_empty()));
    }
}
