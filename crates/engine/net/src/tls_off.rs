//! TLS without the feature `tls`: there are no settings of it, so that no listener has it.

use std::convert::Infallible;
use std::io;

use apus_http::{Peer, TlsInfo};
use apus_transport::buffers::BufferPool;
use apus_transport::{StreamSocket, Transport};

use crate::connection_table::ConnectionSlot;

/// The settings of TLS at one address.
pub struct TlsSettings(Infallible);

impl TlsSettings {
    pub(crate) fn has_http3(&self) -> bool {
        match self.0 {}
    }
}

pub(crate) struct AcceptedTls {
    pub(crate) transport: Transport,
    pub(crate) info: TlsInfo,
    pub(crate) has_http3: bool,
}

#[expect(dead_code, reason = "nothing accepts it")]
pub(crate) struct TlsClient {
    pub(crate) socket: StreamSocket,
    pub(crate) peer: Peer,
    pub(crate) early: Vec<u8>,
}

pub(crate) async fn accept(
    settings: &TlsSettings,
    _: TlsClient,
    _: &ConnectionSlot,
    _: &BufferPool,
) -> io::Result<AcceptedTls> {
    match settings.0 {}
}
