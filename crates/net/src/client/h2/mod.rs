//! HTTP/2 to an origin.

use std::convert::Infallible;

use super::{ClientRequest, ClientResponse, Failure};
use crate::transport::Transport;

/// A connection that speaks HTTP/2: a handle, cheap to clone.
#[derive(Clone, Debug)]
pub struct Http2 {
    never: Infallible,
}

impl Http2 {
    /// Speaks HTTP/2 over a fresh connection.
    pub(super) fn start(transport: Transport) -> Self {
        drop(transport);
        unreachable!("HTTP/2 to origins is not spoken yet")
    }

    /// Whether another request can be sent now.
    pub fn has_room(&self) -> bool {
        match self.never {}
    }

    /// Whether no further request can be sent.
    pub fn is_closed(&self) -> bool {
        match self.never {}
    }

    /// Requests that are being answered.
    pub fn open_streams(&self) -> usize {
        match self.never {}
    }

    /// Sends a request.
    ///
    /// # Errors
    /// There is no response; see [`Failure`].
    pub async fn send(&self, request: ClientRequest) -> Result<ClientResponse, Failure> {
        drop(request);
        match self.never {}
    }
}
