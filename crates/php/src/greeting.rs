//! The first message of a worker that connects: who it is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::BytesMut;
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::connection::Connection;
use crate::record::Record;
use crate::wire::{Decoder, Event, Hello, Limits};

/// Something that connected and said who it is.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) pending: Pending,
    pub(crate) hello: Hello,
}

/// A connection whose worker is not known yet.
#[derive(Debug)]
pub(crate) struct Pending {
    stream: UnixStream,
    decoder: Decoder,
    input: BytesMut,
}

impl Pending {
    /// The connection of the worker that `record` makes, from a handle on its socket and the process at
    /// its other end.
    pub(crate) fn into_connection(
        self,
        record: impl FnOnce(OwnedFd, Option<Pid>) -> Record,
    ) -> io::Result<Connection> {
        let socket = self.stream.as_fd().try_clone_to_owned()?;
        let pid = self.stream.peer_cred()?.pid().and_then(Pid::from_raw);
        let record = Arc::new(record(socket, pid));
        Connection::new(self.stream.into_std()?, self.decoder, self.input, record)
    }
}

/// Reads the first message.
pub(crate) async fn greeting(mut stream: UnixStream) -> io::Result<Greeting> {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::with_capacity(1024);
    loop {
        match decoder.handle_input(&mut input) {
            Ok(Some(Event::Hello(hello))) => {
                let pending = Pending {
                    stream,
                    decoder,
                    input,
                };
                return Ok(Greeting { pending, hello });
            }
            Ok(None) => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
