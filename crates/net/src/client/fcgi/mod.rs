//! FastCGI to an application: one request at a time, over a connection that goes home in between.

mod content;
mod exchange;
mod parked;

use std::fmt;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use apus_codec::fastcgi::ClientConnection;
use apus_codec::h1::HeadLimits;

use self::content::Incoming;
pub use self::parked::ParkedFastCgi;
use super::exchange::Wire;
use super::{ClientRequest, ClientResponse, Failure, Home, RequestHead, Stderr};
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
/// [`send`](Self::send) takes it, and once the answer was read whole it is given to its [`Home`]:
/// before `send` is done if the content came with the head, else when the response's body gives its
/// end. If the answer breaks off, or the future or the body is dropped before, the application is
/// asked to give up and the connection is closed, which is how it learns that the client is gone.
///
/// A connection that waits keeps a process of most applications waiting with it, which serves nobody
/// else: whoever keeps connections should let all threads have them; see [`park`](Self::park).
pub struct FastCgi(Box<Inner>);

struct Inner {
    wire: Wire<ClientConnection>,
    /// The current request, for whom its standard error is told.
    head: Option<Rc<RequestHead>>,
    stderr: Option<Stderr>,
    home: Option<Rc<dyn Home<FastCgi>>>,
}

impl FastCgi {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        Self(Box::new(Inner {
            wire: Wire::new(transport, ClientConnection::new(LIMITS)),
            head: None,
            stderr: None,
            home: None,
        }))
    }

    /// Sets where the connection goes once the next answer was read whole, if it can be used again.
    /// Without a home the application is told to close it (no `FCGI_KEEP_CONN`).
    pub fn set_home(&mut self, home: Rc<dyn Home<Self>>) {
        self.0.home = Some(home);
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

    /// Sends a request: its [`params`](RequestHead::params), and its content.
    ///
    /// The content is sent as fast as the application takes it, while the answer is awaited and read,
    /// and until the answer ends. An answer that has no content is there once the application has
    /// ended it.
    ///
    /// # Errors
    /// There is no response; see [`Failure`]. The connection is closed.
    pub async fn send(self, request: ClientRequest) -> Result<ClientResponse, Failure> {
        let mut inner = self.0;
        inner.begin(request)?;
        Incoming::new(inner).respond().await
    }
}

impl Inner {
    /// Gives the connection to its home, if it can carry another request.
    fn go_home(mut self: Box<Self>) {
        if !self.wire.codec.keeps_alive()
            || !self.wire.upload.is_whole()
            || self.wire.upload.content() > REUSED_MOST
            || !self.wire.input.is_empty()
        {
            return;
        }
        let Some(home) = self.home.take() else {
            return;
        };
        self.wire.end();
        self.head = None;
        self.stderr = None;
        home.take_back(FastCgi(self));
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

impl fmt::Debug for FastCgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgi")
            .field("requests", &self.0.wire.requests)
            .finish_non_exhaustive()
    }
}
