//! `Tls` without the feature `tls`: there is no value of it.

use std::convert::Infallible;
use std::io;

use apus_transport::{StreamSocket, Transport};

/// TLS to an origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tls(Infallible);

impl Tls {
    pub(crate) async fn handshake(&self, _: StreamSocket, _: &[&[u8]]) -> io::Result<Transport> {
        match self.0 {}
    }
}
