//! FastCGI to an application: one request at a time, over a connection that goes home in between.

mod content;
mod exchange;
mod parked;

use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use apus_http::fastcgi::ClientConnection;
use apus_http::h1::HeadLimits;

use self::content::Incoming;
pub use self::parked::ParkedFastCgi;
use super::deadline::Limits;
use super::upload::Upload;
use super::{ClientRequest, ClientResponse, Failure, Home, RequestHead, Stderr};
use crate::buffers::Buffers;
use crate::clock::coarse_now;
use crate::input::Input;
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
    transport: Transport,
    codec: ClientConnection,
    buffers: Rc<Buffers>,
    input: Input,
    upload: Upload,
    /// Why no more can be sent, until the application has said what it has to say.
    lost: Option<io::Error>,
    /// The current request, for whom its standard error is told.
    head: Option<Rc<RequestHead>>,
    stderr: Option<Stderr>,
    limits: Limits,
    home: Option<Rc<dyn Home<FastCgi>>>,
    requests: u64,
    opened_at: Instant,
}

impl FastCgi {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        Self::with(transport, 0, coarse_now())
    }

    fn with(transport: Transport, requests: u64, opened_at: Instant) -> Self {
        Self(Box::new(Inner {
            transport,
            codec: ClientConnection::new(LIMITS),
            buffers: Buffers::of_thread(),
            input: Input::default(),
            upload: Upload::default(),
            lost: None,
            head: None,
            stderr: None,
            limits: Limits::default(),
            home: None,
            requests,
            opened_at,
        }))
    }

    /// Sets where the connection goes once the next answer was read whole, if it can be used again.
    /// Without a home the application is told to close it (no `FCGI_KEEP_CONN`).
    pub fn set_home(&mut self, home: Rc<dyn Home<Self>>) {
        self.0.home = Some(home);
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.opened_at
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
        if !self.codec.keeps_alive()
            || !self.upload.is_whole()
            || self.upload.content() > REUSED_MOST
            || !self.input.is_empty()
        {
            return;
        }
        let Some(home) = self.home.take() else {
            return;
        };
        self.input.rest(&self.buffers);
        self.upload = Upload::default();
        self.head = None;
        self.stderr = None;
        self.limits.end();
        home.take_back(FastCgi(self));
    }

    /// Asks the application to give up, as far as that can be said at once: the end of the connection
    /// says it again.
    fn abort(&mut self) {
        if self.codec.is_done() || self.lost.is_some() || !self.upload.is_between_frames() {
            return;
        }
        let mut out = Vec::new();
        self.codec.send_abort(&mut out);
        // Nobody waits for it.
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = self.transport.poll_write(cx, &[IoSlice::new(&out)]);
    }
}

impl fmt::Debug for FastCgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgi")
            .field("requests", &self.0.requests)
            .finish_non_exhaustive()
    }
}
