//! HTTP/1.1 to an origin: one request at a time, over a connection that goes home in between.

mod content;
mod exchange;

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use apus_codec::h1::{ClientConnection, HeadLimits};
use apus_http::Interim;
use tokio::io::ReadBuf;

use super::exchange::Wire;
use super::{ClientRequest, ClientResponse, Failure, Home};
use crate::clock::coarse_now;
use crate::transport::Transport;
use crate::turn::after_others;

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
/// [`Home`]: before `send` is done if the content came with the head, else when the response's body
/// gives its end. If the response breaks off, or its body is dropped before, the connection is
/// closed.
pub struct Http1(Box<Inner>);

struct Inner {
    wire: Wire<ClientConnection>,
    interim: Option<Interim>,
    home: Option<Rc<dyn Home>>,
    idle_since: Instant,
}

impl Http1 {
    /// A fresh connection.
    pub(super) fn new(transport: Transport) -> Self {
        Self(Box::new(Inner {
            wire: Wire::new(transport, ClientConnection::new(LIMITS)),
            interim: None,
            home: None,
            idle_since: coarse_now(),
        }))
    }

    /// Sets where the connection goes once the next response was read whole, if it can be used
    /// again. Without a home it is closed then, and the origin is told so with the request.
    pub fn set_home(&mut self, home: Rc<dyn Home>) {
        self.0.home = Some(home);
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
    /// There is no response; see [`Failure`]. The connection is closed.
    pub async fn send(self, request: ClientRequest) -> Result<ClientResponse, Failure> {
        let mut inner = self.0;
        inner.begin(request)?;
        after_others().await;
        match poll_fn(|cx| inner.poll_head(cx)).await {
            Ok(head) => Ok(content::respond(inner, head)),
            Err((phase, cause)) => Err(Failure {
                phase,
                cause,
                request_sent: inner.wire.upload.sent() > 0,
                body: inner.wire.upload.give_back(),
            }),
        }
    }
}

impl Inner {
    /// Gives the connection to its home, if it can carry another request.
    fn go_home(mut self: Box<Self>) {
        if !self.wire.codec.keeps_alive()
            || !self.wire.upload.is_whole()
            || !self.wire.input.is_empty()
        {
            return;
        }
        let Some(home) = self.home.take() else {
            return;
        };
        self.wire.end();
        self.interim = None;
        self.idle_since = coarse_now();
        home.take_back(Http1(self));
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1")
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
    use crate::client::RequestHead;
    use crate::quiet::QuietSocket;
    use crate::socket::Socket;

    #[derive(Default)]
    struct Kept(RefCell<Option<Http1>>);

    impl Home for Kept {
        fn take_back(&self, connection: Http1) {
            *self.0.borrow_mut() = Some(connection);
        }
    }

    fn post(body: Body) -> ClientRequest {
        ClientRequest {
            head: Rc::new(RequestHead {
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
        let ours = QuietSocket::new(ours.into_std().unwrap()).unwrap();
        let kept = Rc::new(Kept::default());
        let mut connection = Http1::new(Transport::Clear(Socket::Unix(
            ours,
            crate::descriptors::Descriptor::of_client(),
        )));
        for _ in 0..2 {
            connection.set_home(kept.clone());
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
