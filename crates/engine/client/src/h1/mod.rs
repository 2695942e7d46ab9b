//! HTTP/1.1 to an origin: one request at a time, over a connection that is reused.

mod exchange;
mod response_body;
mod response_part;

pub(crate) use self::exchange::Http1Exchange;

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use apus_codec::h1::ClientConnection;
use apus_http::{Body, Interim};
use apus_transport::{Transport, coarse_now};
use tokio::io::ReadBuf;

use crate::exchange::SerialConnection;
use crate::{ConnectionReturn, RequestFailure, RequestTemplate, ResponseRules};

/// How long before an origin's idle timeout a connection is no longer used.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection that speaks HTTP/1.1.
///
/// [`send`](Self::send) takes it, and gives it to its [`ConnectionReturn`] when the response was read whole:
/// before `send` ends if the body came with the head, else at the end of the response's body. If the response
/// breaks off, or its body is dropped earlier, the connection is closed.
pub struct Http1Client(Box<Http1ClientConnection>);

struct Http1ClientConnection {
    serial: SerialConnection<ClientConnection>,
    interim: Option<Interim>,
    connection_return: Option<Rc<dyn ConnectionReturn<Http1Client>>>,
    idle_since: Instant,
    /// Whether the socket is looked at once more before the request is sent.
    checks_again: bool,
}

impl Http1Client {
    /// A new connection.
    pub(crate) fn new(transport: Transport, rules: ResponseRules) -> Self {
        let codec = ClientConnection::new(rules.head_limits()).lenient(rules.is_lenient);
        Self(Box::new(Http1ClientConnection {
            serial: SerialConnection::new(transport, codec),
            interim: None,
            connection_return: None,
            idle_since: coarse_now(),
            checks_again: false,
        }))
    }

    /// Sets where the connection goes when the next response was read whole, if it can be used again. Without
    /// it the connection is closed then, and the request says so.
    pub fn set_connection_return(&mut self, connection_return: Rc<dyn ConnectionReturn<Self>>) {
        self.0.connection_return = Some(connection_return);
    }

    /// Checks the socket without waiting whether the connection can carry a request: not if the origin closed
    /// it or sent something unexpected.
    pub fn is_usable(&mut self) -> bool {
        self.0.is_usable()
    }

    /// Requests that were sent over it.
    pub fn requests(&self) -> u64 {
        self.0.serial.requests
    }

    /// When it was opened, to about a quarter of a second.
    pub fn opened_at(&self) -> Instant {
        self.0.serial.opened_at
    }

    /// When it became idle, to about a quarter of a second.
    pub fn idle_since(&self) -> Instant {
        self.0.idle_since
    }

    /// How long the connection may be idle, from the origin's `Keep-Alive: timeout`. It is shorter by a
    /// second, or by half, because the request takes time to arrive and times are coarse.
    pub fn idle_limit(&self) -> Option<Duration> {
        let timeout = self.0.serial.codec.idle_timeout()?;
        Some(timeout.saturating_sub(KEEP_ALIVE_MARGIN.min(timeout / 2)))
    }

    /// Begins to send a request.
    pub(crate) fn begin(
        self,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<Http1Exchange, RequestFailure> {
        let mut inner = self.0;
        inner.begin(template, body)?;
        Ok(Http1Exchange::new(inner))
    }
}

impl Http1ClientConnection {
    fn is_usable(&mut self) -> bool {
        // No task waits for input; the sender of the next request does.
        let cx = &mut Context::from_waker(Waker::noop());
        match &mut self.serial.transport {
            Transport::Clear(socket) => {
                // A read may consume the byte, since a connection that has input before its request is not used any
                // more.
                let mut byte = [0];
                let mut byte = ReadBuf::new(&mut byte);
                socket.poll_read_buf(cx, &mut byte).is_pending()
            }
            // The bytes may belong to TLS alone, such as a session ticket.
            transport @ Transport::Tls(_) => {
                let mut buffer = self.serial.buffers.take();
                let polled = transport.poll_read(cx, &mut buffer);
                self.serial.buffers.put(buffer);
                polled.is_pending()
            }
        }
    }

    /// Gives the connection back, if it can carry another request.
    fn give_back(mut self: Box<Self>) {
        // What is left over, in either direction, would be read as a part of the next request or response, which
        // belong to another client.
        if !self.serial.codec.keeps_alive()
            || !self.serial.upload.is_whole()
            || !self.serial.input.is_empty()
        {
            return;
        }
        let Some(connection_return) = self.connection_return.take() else {
            return;
        };
        self.serial.end();
        self.interim = None;
        self.idle_since = coarse_now();
        connection_return.return_connection(Http1Client(self));
    }
}

impl fmt::Debug for Http1Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Client")
            .field("requests", &self.0.serial.requests)
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
    use crate::{ClientRequest, ClientRequestHead};
    use apus_transport::ReadInterestSocket;
    use apus_transport::StreamSocket;

    #[derive(Default)]
    struct IdleSlot(RefCell<Option<Http1Client>>);

    impl ConnectionReturn<Http1Client> for IdleSlot {
        fn return_connection(&self, connection: Http1Client) {
            *self.0.borrow_mut() = Some(connection);
        }
    }

    fn post(body: Body) -> ClientRequest {
        ClientRequest {
            template: RequestTemplate {
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
                interim: None,
                timeouts: Rc::default(),
                stderr: None,
            },
            body,
        }
    }

    #[tokio::test]
    async fn an_idle_connection_holds_no_buffer_nor_its_pool() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = ReadInterestSocket::new(ours.into_std().unwrap()).unwrap();
        let kept = Rc::new(IdleSlot::default());
        let transport = Transport::Clear(StreamSocket::Unix(
            ours,
            apus_transport::descriptors::DescriptorPermit::of_client(),
        ));
        let mut connection = Http1Client::new(transport, ResponseRules::default());
        for _ in 0..2 {
            connection.set_connection_return(kept.clone());
            let responses = async {
                let mut request = [0; 1024];
                assert!(theirs.read(&mut request).await.unwrap() > 0);
                theirs
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await
                    .unwrap();
            };
            let (response, ()) = tokio::join!(connection.send(post("content".into())), responses);
            assert!(matches!(response.unwrap().body, Body::Bytes(_)));
            connection = kept.0.take().unwrap();
            let inner = &connection.0;
            assert!(inner.serial.input.holds_nothing() && inner.serial.upload.holds_nothing());
            assert_eq!(Rc::strong_count(&kept), 1);
        }
    }

    #[tokio::test]
    async fn a_request_that_must_not_be_repeated_is_not_sent_when_the_origin_closes_before() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = ReadInterestSocket::new(ours.into_std().unwrap()).unwrap();
        let kept = Rc::new(IdleSlot::default());
        let transport = Transport::Clear(StreamSocket::Unix(
            ours,
            apus_transport::descriptors::DescriptorPermit::of_client(),
        ));
        let mut connection = Http1Client::new(transport, ResponseRules::default());
        connection.set_connection_return(kept.clone());
        let responses = async {
            let mut request = [0; 1024];
            assert!(theirs.read(&mut request).await.unwrap() > 0);
            theirs
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
        };
        let (response, ()) = tokio::join!(connection.send(post("content".into())), responses);
        response.unwrap();
        let mut connection = kept.0.take().unwrap();
        assert!(connection.is_usable());
        // It was usable when it was chosen, and is closed while other tasks run.
        let closing = async { drop(theirs) };
        let (failure, ()) = tokio::join!(connection.send(post("again".into())), closing);
        let failure = failure.unwrap_err();
        assert!(!failure.request_sent, "{failure:?}");
        assert!(matches!(failure.body, Some(Body::Bytes(_))), "{failure:?}");
    }
}
