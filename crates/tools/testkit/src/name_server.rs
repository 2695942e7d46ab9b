//! A name server (RFC 1035) with the records of a test.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;

/// A name server over UDP on a port of its own. It knows no other names than those of its records.
pub struct TestNameServer {
    address: SocketAddr,
    state: Arc<NameServerState>,
}

/// The name and the type of records.
type RecordKey = (String, u16);

#[derive(Default)]
struct NameServerState {
    records: Mutex<HashMap<RecordKey, Vec<Vec<u8>>>>,
    is_silent: AtomicBool,
    has_failed: AtomicBool,
    ends: AtomicBool,
    queries: AtomicUsize,
}

impl TestNameServer {
    /// Starts a name server without records.
    ///
    /// # Panics
    /// There is no port.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a time-out");
        let address = socket.local_addr().expect("an address");
        let state = Arc::new(NameServerState::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let mut query = [0; 1500];
            while !shared.ends.load(Ordering::SeqCst) {
                let Ok((length, client)) = socket.recv_from(&mut query) else {
                    continue;
                };
                shared.queries.fetch_add(1, Ordering::SeqCst);
                if let Some(reply) = shared.response(&query[..length])
                    && !shared.is_silent.load(Ordering::SeqCst)
                {
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { address, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The queries that it got.
    pub fn queries(&self) -> usize {
        self.state.queries.load(Ordering::SeqCst)
    }

    /// Gives an address a name.
    pub fn name(&self, address: IpAddr, name: &str) {
        self.state.add(reverse_name(address), PTR, encoded(name));
    }

    /// Gives a name an address.
    pub fn host(&self, name: &str, address: IpAddr) {
        match address {
            IpAddr::V4(ip) => self.state.add(name.to_owned(), A, ip.octets().to_vec()),
            IpAddr::V6(ip) => self.state.add(name.to_owned(), AAAA, ip.octets().to_vec()),
        }
    }

    /// Whether it responds to queries.
    pub fn set_silent(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Whether it responds with SERVFAIL.
    pub fn set_failed(&self, has_failed: bool) {
        self.state.has_failed.store(has_failed, Ordering::SeqCst);
    }
}

impl NameServerState {
    fn add(&self, name: String, kind: u16, data: Vec<u8>) {
        let mut records = self.records.lock().expect("no thread has panicked");
        records.entry((name, kind)).or_default().push(data);
    }

    /// The response to a query with one question (RFC 1035 section 4.1).
    fn response(&self, query: &[u8]) -> Option<Vec<u8>> {
        let mut name = String::new();
        let mut at = 12;
        loop {
            let length = usize::from(*query.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = query.get(at..at + length)?;
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&String::from_utf8_lossy(label).to_ascii_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
        let records = self.records.lock().expect("no thread has panicked");
        let found = records.get(&(name.clone(), kind));
        let found: &[Vec<u8>] = found.map_or(&[], |found| found);
        let is_known = records.keys().any(|(known, _)| *known == name);
        let code = match (self.has_failed.load(Ordering::SeqCst), is_known) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 3,
        };
        let found = if code == 0 { found } else { &[] };
        let mut reply = query.get(..2)?.to_vec();
        reply.extend_from_slice(&[0x85, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
        reply.extend_from_slice(query.get(12..at + 4)?);
        for data in found {
            // The name of the question, the class IN, and an hour.
            reply.extend_from_slice(&[0xc0, 12]);
            reply.extend_from_slice(&kind.to_be_bytes());
            reply.extend_from_slice(&[0, 1, 0, 0, 0x0e, 0x10]);
            reply.extend_from_slice(&(data.len() as u16).to_be_bytes());
            reply.extend_from_slice(data);
        }
        Some(reply)
    }
}

/// The name of an address in reverse DNS (RFC 1035 section 3.5, RFC 3596 section 2.5).
fn reverse_name(address: IpAddr) -> String {
    let labels: Vec<String> = match address {
        IpAddr::V4(ip) => ip.octets().iter().rev().map(u8::to_string).collect(),
        IpAddr::V6(ip) => {
            let octets = ip.octets().into_iter().rev();
            octets
                .flat_map(|octet| [octet & 15, octet >> 4])
                .map(|nibble| format!("{nibble:x}"))
                .collect()
        }
    };
    let zone = if address.is_ipv4() { "in-addr" } else { "ip6" };
    format!("{}.{zone}.arpa", labels.join("."))
}

fn encoded(name: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for label in name.split('.') {
        encoded.push(label.len() as u8);
        encoded.extend_from_slice(label.as_bytes());
    }
    encoded.push(0);
    encoded
}

impl Drop for TestNameServer {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
    }
}
