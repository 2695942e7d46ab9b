//! HTTP/1.1 to an origin: one request at a time, over a connection that goes connection_return in between.

mod exchange;
mod response_body;

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use apus_codec::h1::{ClientConnection, HeadLimits};
use apus_http::Interim;
use tokio::io::ReadBuf;

use super::exchange::SerialConnection;
use super::{ClientRequest, ClientResponse, ConnectionReturn, RequestFailure};
use crate::clock::coarse_now;
use crate::transport::Transport;
use crate::yield_task::yield_to_ready_tasks;

/// What the head of a response may have. Origins are asked because they are trusted to answer, but
/// not to fill the memory of this process.
const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 64 * 1024,
    fields: 256,
};

/// How long before an origin closes an idle connection it is not used any more.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection that speaks HTTP/1.1.
///
/// [`send`](Self::send) takes it, and once the response was read whole it is given to its
/// [`ConnectionReturn`]: before `send` is done if the content came with the head, else when the response's body
/// gives its end. If the response breaks off, or its body is dropped before, the connection is
/// closed.
pub struct Http1Client(Box<Http1ClientConnection>);

struct Http1ClientConnection {
    wire: SerialConnection<ClientConnection>,
    interim: Option<Interim>,
    connection_return: Option<Rc<dyn ConnectionReturn>>,
    idle_since: Instant,
}

impl Http1Client {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        Self(Box::new(Http1ClientConnection {
            wire: SerialConnection::new(transport, ClientConnection::new(LIMITS)),
            interim: None,
            connection_return: None,
            idle_since: coarse_now(),
        }))
    }

    /// Sets where the connection goes once the next response was read whole, if it can be used
    /// again. Without a connection_return it is closed then, and the origin is told so with the request.
    pub fn set_connection_return(&mut self, connection_return: Rc<dyn ConnectionReturn>) {
        self.0.connection_return = Some(connection_return);
    }

    /// Asks the socket without waiting whether the connection can carry a request: not if the origin
    /// closed it, or said something unasked.
    pub fn is_usable(&mut self) -> bool {
        let inner = &mut *self.0;
        // Nobody waits; who sends the next request does.
        let cx = &mut Context::from_waker(Waker::noop());
        match &mut inner.wire.transport {
            Transport::Clear(socket) => {
                let mut byte = [0];
                let mut byte = ReadBuf::new(&mut byte);
                socket.poll_read_buf(cx, &mut byte).is_pending()
            }
            // What came may concern TLS alone, such as a ticket.
            transport @ Transport::Tls(_) => {
                let mut buffer = inner.wire.buffers.take();
                let polled = transport.poll_read(cx, &mut buffer);
                inner.wire.buffers.put(buffer);
                polled.is_pending()
            }
        }
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.wire.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.wire.opened_at
    }

    /// Since when it waits for a request, to about a quarter of a second.
    pub fn idle_since(&self) -> Instant {
        self.0.idle_since
    }

    /// How long it may wait for a request, by what the origin says of it with `Keep-Alive: timeout`: less
    /// than that by a second, or by half, as the request has a way to go and times are coarse.
    pub fn idle_limit(&self) -> Option<Duration> {
        let timeout = self.0.wire.codec.idle_timeout()?;
        Some(timeout.saturating_sub(KEEP_ALIVE_MARGIN.min(timeout / 2)))
    }

    /// Sends a request.
    ///
    /// The content is sent as fast as the origin takes it, while the response is awaited and read. A
    /// final status of 400 or more ends that, and so does the end of the response: a connection over
    /// which a request was not sent whole is closed. Content that is held back, since the client
    /// expects `100 Continue`, is sent when the origin asks for it, or says nothing for a second.
    ///
    /// # Errors
    /// There is no response; see [`RequestFailure`]. The connection is closed.
    pub async fn send(self, request: ClientRequest) -> Result<ClientResponse, RequestFailure> {
        let mut inner = self.0;
        inner.begin(request)?;
        yield_to_ready_tasks().await;
        match poll_fn(|cx| inner.poll_head(cx)).await {
            Ok(head) => Ok(response_body::respond(inner, head)),
            Err((phase, cause)) => Err(RequestFailure {
                phase,
                cause,
                request_sent: inner.wire.upload.sent() > 0,
                body: inner.wire.upload.give_back(),
            }),
        }
    }
}

impl Http1ClientConnection {
    /// Gives the connection to its connection_return, if it can carry another request.
    fn give_back(mut self: Box<Self>) {
        if !self.wire.codec.keeps_alive()
            || !self.wire.upload.is_whole()
            || !self.wire.input.is_empty()
        {
            return;
        }
        let Some(connection_return) = self.connection_return.take() else {
            return;
        };
        self.wire.end();
        self.interim = None;
        self.idle_since = coarse_now();
        connection_return.return_connection(Http1Client(self));
    }
}

impl fmt::Debug for Http1Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Client")
            .field("requests", &self.0.wire.requests)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use apus_http::{Body, Headers, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
    use crate::client::ClientRequestHead;
    use crate::read_interest::ReadInterestSocket;
    use crate::socket::StreamSocket;

    #[derive(Default)]
    struct IdleSlot(RefCell<Option<Http1Client>>);

    impl ConnectionReturn for IdleSlot {
        fn return_connection(&self, connection: Http1Client) {
            *self.0.borrow_mut() = Some(connection);
        }
    }

    fn post(body: Body) -> ClientRequest {
        ClientRequest {
            head: Rc::new(ClientRequestHead {
                method: Method::POST,
                scheme: "http",
                authority: "a".into(),
                target: "/".into(),
                headers: Headers::new(),
                upgrade: None,
                te_trailers: false,
                expects_continue: false,
                params: None,
            }),
            body,
            interim: None,
            timeouts: Rc::default(),
            stderr: None,
        }
    }

    #[tokio::test]
    async fn an_idle_connection_holds_no_buffer_nor_its_home() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = ReadInterestSocket::new(ours.into_std().unwrap()).unwrap();
        let kept = Rc::new(IdleSlot::default());
        let mut connection = Http1Client::new(Transport::Clear(StreamSocket::Unix(
            ours,
            crate::descriptors::DescriptorPermit::of_client(),
        )));
        for _ in 0..2 {
            connection.set_connection_return(kept.clone());
            let answers = async {
                let mut request = [0; 1024];
                assert!(theirs.read(&mut request).await.unwrap() > 0);
                theirs
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await
                    .unwrap();
            };
            let (response, ()) = tokio::join!(connection.send(post("content".into())), answers);
            assert!(matches!(response.unwrap().body, Body::Bytes(_)));
            connection = kept.0.take().unwrap();
            let inner = &connection.0;
            assert!(inner.wire.input.holds_nothing() && inner.wire.upload.holds_nothing());
            assert_eq!(Rc::strong_count(&kept), 1);
        }
    }
}
