//! The control socket without the feature `control`: there is none.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;

use super::controlled_server::ControlledServer;

/// No socket.
pub(super) struct ApplicationSocket;

/// A request, of which there is none.
pub(super) struct SocketRequest(Infallible);

impl ApplicationSocket {
    pub(super) fn bind(path: Option<&Path>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        match path {
            None => Ok(Self),
            Some(_) => Err("the package apus was built without its feature `control`".into()),
        }
    }

    pub(super) async fn next(&mut self) -> SocketRequest {
        std::future::pending().await
    }

    pub(super) async fn respond(&self, request: SocketRequest, _: ControlledServer<'_>) {
        match request.0 {}
    }
}

impl SocketRequest {
    pub(super) fn is_stop(&self) -> bool {
        match self.0 {}
    }

    pub(super) async fn respond_stopped(self) {
        match self.0 {}
    }

    pub(super) async fn refuse(self) {
        match self.0 {}
    }
}
