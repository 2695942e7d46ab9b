//! The HELLO of a worker, which is its first message.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::BytesMut;
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::connection::WorkerConnection;
use crate::record::WorkerRecord;
use crate::wire::{Hello, WireDecoder, WireLimits, WorkerEvent};

/// A connection and the HELLO that was read from it.
#[derive(Debug)]
pub(crate) struct ReceivedHello {
    pub(crate) connection: UnassignedConnection,
    pub(crate) hello: Hello,
}

/// A connection that is not assigned to a worker yet.
#[derive(Debug)]
pub(crate) struct UnassignedConnection {
    stream: UnixStream,
    decoder: WireDecoder,
    input: BytesMut,
}

impl UnassignedConnection {
    /// The connection of the worker that `record` creates, from a handle on the socket and the peer's process.
    pub(crate) fn into_worker_connection(
        self,
        record: impl FnOnce(OwnedFd, Option<Pid>) -> WorkerRecord,
    ) -> io::Result<WorkerConnection> {
        let socket = self.stream.as_fd().try_clone_to_owned()?;
        let pid = self.stream.peer_cred()?.pid().and_then(Pid::from_raw);
        let record = Arc::new(record(socket, pid));
        WorkerConnection::new(self.stream.into_std()?, self.decoder, self.input, record)
    }
}

/// Reads the HELLO.
pub(crate) async fn read_hello(mut stream: UnixStream) -> io::Result<ReceivedHello> {
    let mut decoder = WireDecoder::new(WireLimits::default());
    let mut input = BytesMut::with_capacity(1024);
    loop {
        match decoder.handle_input(&mut input) {
            Ok(Some(WorkerEvent::Hello(hello))) => {
                let connection = UnassignedConnection {
                    stream,
                    decoder,
                    input,
                };
                return Ok(ReceivedHello { connection, hello });
            }
            Ok(None) => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
