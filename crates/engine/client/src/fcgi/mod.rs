//! FastCGI to an application: one request at a time, over a connection that is reused.

mod exchange;
mod parked;
mod response_body;
mod unread;

use std::fmt;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use apus_codec::fastcgi::FastCgiConnection;
use apus_http::Body;
use apus_transport::{StreamSocket, Transport};

pub use self::parked::ParkedFastCgi;
use self::response_body::FastCgiResponseBody;
use crate::exchange::SerialConnection;
use crate::{
    ClientRequest, ClientRequestHead, ClientResponse, ConnectionReturn, RequestFailure,
    RequestTemplate, ResponseRules, Stderr,
};

/// The largest body of a request, in bytes, after which its connection is used again. PHP reads that much at
/// once, or discards it with the request. Of a larger one, the rest that a script did not read stays in the
/// connection, and PHP closes it when it finds that rest instead of the next request.
const MAX_REUSED: u64 = 8 * 1024;

/// A connection that speaks FastCGI.
///
/// [`send`](Self::send) takes it, and gives it to its [`ConnectionReturn`] when the response was read whole:
/// before `send` ends if the body came with the head, else at the end of the response's body. If the response
/// breaks off, or the future or the body is dropped earlier, the application is asked to abort and the
/// connection is closed, which tells it that the client is gone.
///
/// With most applications, an idle connection occupies a process that serves no other. A pool should
/// therefore let all threads use it; see [`park`](Self::park).
pub struct FastCgiClient(Box<FastCgiClientConnection>);

struct FastCgiClientConnection {
    serial: SerialConnection<FastCgiConnection>,
    rules: ResponseRules,
    /// The head of the current request, for messages on its standard error.
    head: Option<Rc<ClientRequestHead>>,
    stderr: Option<Stderr>,
    connection_return: Option<Rc<dyn ConnectionReturn<FastCgiClient>>>,
    /// Whether the head of the current request was written apart from its end.
    is_head_apart: bool,
}

/// A request that was sent and has no response yet.
pub struct SentRequest<'a>(&'a FastCgiClientConnection);

impl SentRequest<'_> {
    /// Whether the application has read the head of the request; `None` if that is not known, as over TCP and
    /// for requests with a body.
    ///
    /// The kernel accepts connections, and what is sent over them, before the application does.
    pub fn is_read(&self) -> Option<bool> {
        match &self.0.serial.transport {
            Transport::Clear(StreamSocket::Unix(socket, _)) if self.0.is_head_apart => {
                unread::is_read_to_last_record(socket)
            }
            _ => None,
        }
    }
}

impl FastCgiClient {
    /// A new connection.
    pub(crate) fn new(transport: Transport, rules: ResponseRules) -> Self {
        Self(Box::new(FastCgiClientConnection {
            serial: SerialConnection::new(transport, FastCgiConnection::new(rules.head_limits())),
            rules,
            head: None,
            stderr: None,
            connection_return: None,
            is_head_apart: false,
        }))
    }

    /// Sets where the connection goes when the next response was read whole, if it can be used again. Without
    /// it the application closes the connection then (no `FCGI_KEEP_CONN`).
    pub fn set_connection_return(&mut self, connection_return: Rc<dyn ConnectionReturn<Self>>) {
        self.0.connection_return = Some(connection_return);
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.serial.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.serial.opened_at
    }

    /// Makes a connection that any thread can take over; `None` if that is impossible, as under TLS.
    pub fn park(self) -> Option<ParkedFastCgi> {
        ParkedFastCgi::new(*self.0)
    }

    /// Begins to send a request; returns the future of its response.
    pub(crate) fn begin(
        self,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<impl Future<Output = Result<ClientResponse, RequestFailure>> + use<>, RequestFailure>
    {
        let mut inner = self.0;
        inner.begin(template, body, false)?;
        Ok(FastCgiResponseBody::new(inner).respond(|_, _| ()))
    }

    /// Does the same as [`Self::send`], and calls `observe` each time the task is polled before there is a
    /// response.
    ///
    /// # Errors
    /// The same as of [`Self::send`].
    pub async fn send_observed(
        self,
        request: ClientRequest,
        observe: impl FnMut(&mut Context<'_>, &SentRequest<'_>),
    ) -> Result<ClientResponse, RequestFailure> {
        let mut inner = self.0;
        inner.begin(&request.template, request.body, true)?;
        FastCgiResponseBody::new(inner).respond(observe).await
    }
}

impl FastCgiClientConnection {
    /// Writes what was encoded of a request without a body now, so that its end is written apart and
    /// [`SentRequest::is_read`] is known. Returns how many bytes were written.
    fn write_head(&mut self, out: &mut Vec<u8>) -> usize {
        let is_unix = matches!(
            &self.serial.transport,
            Transport::Clear(StreamSocket::Unix(..))
        );
        if !is_unix {
            // Over TCP the kernel counts what the other kernel has not acknowledged, which says nothing about the
            // application.
            return 0;
        }
        // What is not written now is written later, and an error comes again then.
        let cx = &mut Context::from_waker(Waker::noop());
        let write = self.serial.transport.poll_write(cx, &[IoSlice::new(out)]);
        let Poll::Ready(Ok(written)) = write else {
            return 0;
        };
        out.drain(..written);
        self.is_head_apart = out.is_empty();
        written
    }

    /// Gives the connection back, if it can carry another request.
    fn give_back(mut self: Box<Self>) {
        // What is left over, in either direction, would be read as a part of the next request or response, which
        // belong to another client.
        if !self.serial.codec.keeps_alive()
            || !self.serial.upload.is_whole()
            || self.serial.upload.body_bytes() > MAX_REUSED
            || !self.serial.input.is_empty()
        {
            return;
        }
        let Some(connection_return) = self.connection_return.take() else {
            return;
        };
        self.serial.end();
        self.head = None;
        self.stderr = None;
        self.is_head_apart = false;
        connection_return.return_connection(FastCgiClient(self));
    }

    /// Asks the application to abort, if that can be sent at once. The end of the connection has the same
    /// effect.
    fn abort(&mut self) {
        // In the middle of a record, the abort would be taken for its data.
        if self.serial.codec.is_done()
            || self.serial.send_error.is_some()
            || !self.serial.upload.is_between_frames()
        {
            return;
        }
        let mut out = Vec::new();
        self.serial.codec.send_abort(&mut out);
        // The write is not waited for.
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = self.serial.transport.poll_write(cx, &[IoSlice::new(&out)]);
    }
}

impl fmt::Debug for FastCgiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastCgiClient")
            .field("requests", &self.0.serial.requests)
            .finish_non_exhaustive()
    }
}
