//! The address of the operator: metrics and status of a server over HTTP.
//!
//! # A request
//!
//! 1. The server closes the connections of clients of other networks when it accepts them, so that they take no place of the operator's.
//!    The layer `NetworkAccess` refuses those that have none, behind a Unix socket, and connections from before a reload.
//! 2. `guard` refuses what a page of another site can have a browser send.
//! 3. `pages` responds: it sends a [`ControlRequest`](apus_control::ControlRequest) to the control thread of the server, as the commands
//!    do over the control socket, and waits for the response.
//!
//! # Decisions
//!
//! - **A server of its own, on a thread of its own**: it has none of the connections, limits and rules of the sites, so that it responds
//!   when these are at their limits or their workers are busy, and a site cannot make it public.
//! - **No ambient authority**: a browser that can reach the address is not yet allowed to read it for a page. The name in `Host` has to be
//!   an address, `localhost`, or one that the configuration names, because a page of a name that resolves to this machine (DNS rebinding)
//!   has that name there. `Origin` has to be the same. There is no CORS.
//!
//! # Tests
//!
//! Unit tests of `guard`. The address of a real server, over sockets and read by a real Prometheus:
//! `crates/tools/cli/tests/it/server/admin.rs`.

#![forbid(unsafe_code)]

mod guard;
mod pages;

use std::rc::Rc;
use std::sync::Arc;

use apus_compress::Compression;
use apus_control::ControlQueue;
use apus_handler::Layered;
use apus_http::{Network, Service, ServiceFactory};
use apus_layers::NetworkAccess;

use self::guard::Guard;
use self::pages::Pages;

/// The service of the address. Clones are the same.
#[derive(Clone)]
pub struct Admin {
    service: Arc<Layered>,
}

impl Admin {
    /// Serves clients of these networks, for these names beside addresses and `localhost`. `queue` is that of the control thread.
    pub fn new(queue: ControlQueue, allowed: Vec<Network>, names: Vec<String>) -> Self {
        let service = Layered::new(Pages::new(queue))
            .layer(NetworkAccess::allow(allowed))
            .layer(Guard::new(names))
            .layer(Compression::default());
        Self {
            service: Arc::new(service),
        }
    }
}

impl ServiceFactory for Admin {
    fn service(&self) -> Rc<dyn Service> {
        self.service.service()
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
