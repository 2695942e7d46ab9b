//! The address of the operator: metrics, status and an API of a server over HTTP.
//!
//! # A request
//!
//! 1. The server closes the connections of clients of other networks when it accepts them, so that they take no place of the operator's.
//!    The layer `NetworkAccess` refuses those that have none, behind a Unix socket, and connections from before a reload.
//! 2. `guard` refuses what a page of another site can have a browser send.
//! 3. `pages` responds, or `dashboard` with the files of the page that a person looks at, or `api` for what begins with `/api/v1/`, which needs an account: `authentication` finds who asks, among
//!    the accounts of the configuration and the log-ins in `sessions`, and `operations` says which role may do what. Both
//!    send a [`ControlRequest`](apus_control::ControlRequest) to the control thread of the server, as the commands
//!    do over the control socket, and waits for the response; `history` reads what it has counted, also as it
//!    happens (`streams`).
//!
//! # Decisions
//!
//! - **A server of its own, on a thread of its own**: it has none of the connections, limits and rules of the sites, so that it responds
//!   when these are at their limits or their workers are busy, and a site cannot make it public.
//! - **No ambient authority**: a browser that can reach the address is not yet allowed to read it for a page. The name in `Host` has to be
//!   an address, `localhost`, or one that the configuration names, because a page of a name that resolves to this machine (DNS rebinding)
//!   has that name there. `Origin` has to be the same. There is no CORS.
//!
//! - **A token in `Authorization`, and no cookie**: a browser sends cookies by itself, also to other ports of this host. The page of
//!   the operator keeps the token of its session, which pages of other origins cannot read, so there is nothing that they could have
//!   a browser send.
//! - **The dashboard has no dependencies**: it is plain TypeScript, of which only texts and attributes become part of the page, under a
//!   policy that runs nothing else. What is built is checked in, with a checksum of its sources that a test compares.
//! - **One table of operations**: routes, roles, the checks of bodies and the OpenAPI description are read from it.
//! - **Log-ins outlive reloads**, and end when the account is gone from the file or has another password. Failed ones are counted for
//!   each address, which has to wait then; tokens have 256 random bits, so that nobody finds one by trying.
//!
//! # Tests
//!
//! Unit tests of `guard`. The address of a real server, over sockets and read by a real Prometheus:
//! `crates/tools/cli/tests/it/server/admin.rs`.

#![forbid(unsafe_code)]

mod api;
mod authentication;
mod dashboard;
mod guard;
mod history;
mod operations;
mod pages;
mod reply;
mod request_filter;
mod request_tail;
mod sessions;
mod streams;

use std::rc::Rc;
use std::sync::Arc;

use apus_compress::Compression;
use apus_control::{ControlQueue, OperatorAccounts, ServerHistory};
use apus_handler::Layered;
use apus_http::{Network, RequestRecords, Service, ServiceFactory};
use apus_layers::NetworkAccess;

use self::api::Api;
use self::authentication::Authentication;
use self::guard::Guard;
use self::pages::Pages;
pub use self::sessions::AdminSessions;

/// Who may use the address.
#[derive(Debug)]
pub struct AdminSettings {
    /// The networks whose clients may.
    pub allowed: Vec<Network>,
    /// The names by which they may, beside addresses and `localhost`.
    pub names: Vec<String>,
    /// Who may use the API.
    pub accounts: OperatorAccounts,
    /// Who has logged in. It outlives the service.
    pub sessions: Arc<AdminSessions>,
    /// What the server did.
    pub history: ServerHistory,
    /// What happened to the last requests.
    pub records: RequestRecords,
}

/// The service of the address. Clones are the same.
#[derive(Clone)]
pub struct Admin {
    service: Arc<Layered>,
}

impl Admin {
    /// Serves those that the settings name. `queue` is that of the control thread.
    pub fn new(queue: ControlQueue, settings: AdminSettings) -> Self {
        let authentication = Authentication::new(settings.accounts, settings.sessions);
        let api = Api::new(
            queue.clone(),
            authentication,
            (settings.history, settings.records),
        );
        let service = Layered::new(Pages::new(queue, api))
            .layer(NetworkAccess::allow(settings.allowed))
            .layer(Guard::new(settings.names))
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
