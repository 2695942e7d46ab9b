//! The PROXY protocol head with which a trusted balancer opens a connection.

use std::io;

use apus_codec::proxy_protocol;
use apus_http::{ConnectionInfo, Peer};

use crate::connection_table::ConnectionSlot;
use crate::socket::{StreamSocket, canonical};

/// Reads the head, puts the addresses in it into `info`, and gives what was read behind it.
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
        // The parser says no before its longest head is passed.
        input.reserve(1024);
        if slot.wait(|cx| socket.poll_read(cx, &mut input)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
