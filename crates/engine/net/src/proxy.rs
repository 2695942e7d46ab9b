//! The PROXY protocol head at the start of a connection from a trusted proxy.

use std::io;

use apus_codec::proxy_protocol;
use apus_http::{ConnectionInfo, Peer};
use apus_transport::{StreamSocket, canonical};

use crate::connection_table::ConnectionSlot;

/// Reads the head, stores its addresses in `info`, and returns the bytes that were read behind it.
pub(crate) async fn read_head(
    socket: &mut StreamSocket,
    slot: &ConnectionSlot,
    info: &mut ConnectionInfo,
) -> io::Result<Vec<u8>> {
    let mut input = Vec::with_capacity(1024);
    loop {
        match proxy_protocol::parse(&input) {
            Ok(Some((len, head))) => {
                if let Some(source) = head.source {
                    info.peer = Peer::Ip(canonical(source));
                }
                if let Some(destination) = head.destination {
                    info.local = Peer::Ip(canonical(destination));
                }
                input.drain(..len);
                return Ok(input);
            }
            Ok(None) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        // The parser returns an error before the longest head is exceeded.
        input.reserve(1024);
        if slot.wait(|cx| socket.poll_read(cx, &mut input)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
