//! FastCGI to an application: one request at a time, over a connection that goes connection_return in between.

mod exchange;
mod parked;
mod response_body;

use std::fmt;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use apus_codec::fastcgi::FastCgiConnection;
use apus_codec::h1::HeadLimits;

pub use self::parked::ParkedFastCgi;
use self::response_body::FastCgiResponseBody;
use super::exchange::SerialConnection;
use super::{
    ClientRequest, ClientRequestHead, ClientResponse, ConnectionReturn, RequestFailure, Stderr,
};
use crate::transport::Transport;

/// What the head of an answer may have. Applications are trusted to answer, but not to fill the memory
/// of this process.
const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 64 * 1024,
    fields: 256,
};

/// The most content of a request, in bytes, after which its connection is used again. PHP reads that
/// much at once, or throws it away with the request; of more, what a script left unread stays in the
/// connection, and PHP closes it when it comes upon that instead of the next request.
const REUSED_MOST: u64 = 8 * 1024;

/// A connection that speaks FastCGI.
///
/// [`send`](Self::send) takes it, and once the answer was read whole it is given to its [`ConnectionReturn`]:
/// before `send` is done if the content came with the head, else when the response's body gives its
/// end. If the answer breaks off, or the future or the body is dropped before, the application is
/// asked to give up and the connection is closed, which is how it learns that the client is gone.
///
/// A connection that waits keeps a process of most applications waiting with it, which serves nobody
/// else: whoever keeps connections should let all threads have them; see [`park`](Self::park).
pub struct FastCgiClient(Box<FastCgiClientConnection>);

struct FastCgiClientConnection {
    wire: SerialConnection<FastCgiConnection>,
    /// The current request, for whom its standard error is told.
    head: Option<Rc<ClientRequestHead>>,
    stderr: Option<Stderr>,
    connection_return: Option<Rc<dyn ConnectionReturn<FastCgiClient>>>,
}

impl FastCgiClient {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        Self(Box::new(FastCgiClientConnection {
            wire: SerialConnection::new(transport, FastCgiConnection::new(LIMITS)),
            head: None,
            stderr: None,
            connection_return: None,
        }))
    }

    /// Sets where the connection goes once the next answer was read whole, if it can be used again.
    /// Without a connection_return the application is told to close it (no `FCGI_KEEP_CONN`).
    pub fn set_connection_return(&mut self, connection_return: Rc<dyn ConnectionReturn<Self>>) {
        self.0.connection_return = Some(connection_return);
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.wire.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.wire.opened_at
    }

    /// Makes of it what any thread can take over; `None` if that cannot be done, as under TLS.
    pub fn park(self) -> Option<ParkedFastCgi> {
        ParkedFastCgi::new(*self.0)
    }

    /// Sends a request: its [`params`](ClientRequestHead::params), and its content.
    ///
    /// The content is sent as fast as the application takes it, while the answer is awaited and read,
    /// and until the answer ends. An answer that has no content is there once the application has
    /// ended it.
    ///
    /// # Errors
    /// There is no response; see [`RequestFailure`]. The connection is closed.
    pub async fn send(self, request: ClientRequest) -> Result<ClientResponse, RequestFailure> {
        let mut inner = self.0;
        inner.begin(request)?;
        FastCgiResponseBody::new(inner).respond().await
    }
}

impl FastCgiClientConnection {
    /// Gives the connection to its connection_return, if it can carry another request.
    fn give_back(mut self: Box<Self>) {
        if !self.wire.codec.keeps_alive()
            || !self.wire.upload.is_whole()
            || self.wire.upload.content() > REUSED_MOST
            || !self.wire.input.is_empty()
        {
            return;
        }
        let Some(connection_return) = self.connection_return.take() else {
            return;
        };
        self.wire.end();
        self.head = None;
        self.stderr = None;
        connection_return.return_connection(FastCgiClient(self));
    }

    /// Asks the application to give up, as far as that can be said at once: the end of the connection
    /// says it again.
    fn abort(&mut self) {
        if self.wire.codec.is_done()
            || self.wire.lost.is_some()
            || !self.wire.upload.is_between_frames()
        {
            return;
        }
        let mut out = Vec::new();
        self.wire.codec.send_abort(&mut out);
        // Nobody waits for it.
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = self.wire.transport.poll_write(cx, &[IoSlice::new(&out)]);
    }
}

impl fmt::Debug for FastCgiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgiClient")
            .field("requests", &self.0.wire.requests)
            .finish_non_exhaustive()
    }
}
