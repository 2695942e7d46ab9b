//! Ports for servers that cannot be asked for the port that they listen on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that is not in use and that no other test of this process gets. It is below the ports that the system assigns to connections
/// and for port 0, so that none of these takes it before the server listens.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let start = std::process::id().wrapping_mul(997) % 20_000;
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % 20_000;
        let port = 12_000 + (start as u16 + next) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
