//! The HTTP/1.1 driver of a connection, which serves one request after another.
//!
//! The responses to pipelined requests leave in one write.

mod exchange;
mod half_closed;
mod interim;
mod request_body;
mod send;
mod write;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h1::{
    HeadLimits, Http1Error, Http1RequestHead, Http1ServerEvent, ServerConnection,
};
use apus_http::{ConnectionInfo, Duplex, Glitch, Headers, InterimQueue, StatusCode, Tunnel};
use apus_transport::tunnel::Http1Tunnel;
use apus_transport::{InputBuffer, SendRate, Transport};

use self::half_closed::Http1HalfClose;
use self::write::PendingCompletion;
use crate::alt_svc::AltSvc;
use crate::connection_table::ConnectionSlot;
use crate::limits::Limits;
use crate::linger::{LINGER_AT_END, LINGER_IDLE, LingerLimits, linger};
use crate::worker::{Worker, WorkerListener};

/// How long the first request of a connection may take to arrive after a shutdown began: a client that
/// connected before may have sent it.
const LAST_FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How long after a response the next request may arrive once a shutdown began: a proxy that uses the connection all the time may
/// have sent it, and must not send it again if it is a POST (RFC 9110 section 9.2.2). The response to it says that the connection
/// ends (RFC 9112 section 9.6).
const LAST_KEPT_REQUEST: Duration = Duration::from_millis(250);

/// A connection that speaks HTTP/1.1.
pub(crate) struct Http1Connection<'a> {
    worker: &'a Worker,
    listener: &'a WorkerListener,
    slot: &'a ConnectionSlot,
    limits: Rc<Limits>,
    transport: Transport,
    info: Rc<ConnectionInfo>,
    /// The offer of HTTP/3.
    alt_svc: AltSvc,
    codec: ServerConnection,
    input: InputBuffer,
    /// Bytes that were encoded and not written.
    out: Vec<u8>,
    /// The bytes that were written.
    sent: u64,
    /// Whether the client takes them.
    send_rate: SendRate,
    /// The responses in `out` whose completion is to be reported when they have left.
    completions: Vec<PendingCompletion>,
    /// When the head of the current response was encoded, if its body is sent later.
    first_byte: Option<Duration>,
    /// When the first byte of the current head arrived.
    arrived: Instant,
    requests: u64,
    /// The interim responses of services.
    interims: InterimQueue,
    /// Bytes of framing around the body of the current response, as of chunks.
    framing_bytes: u64,
    /// Set once the client has ended its side.
    half_closed: Option<Http1HalfClose>,
    /// Whether the server chose to end the connection, and not the client.
    closes_first: bool,
}

/// How a connection ends.
enum Http1End {
    /// All was sent and read.
    Close,
    /// The client may still be sending.
    Linger,
    /// The connection switches to another protocol.
    ProtocolSwitch(ProtocolSwitch),
}

/// The protocol that a connection switches to.
pub(crate) enum ProtocolSwitch {
    /// A tunnel.
    Tunnel(Tunnel),
    /// HTTP/2, whose preface is still in the input.
    Http2,
}

impl<'a> Http1Connection<'a> {
    /// A connection before its first request. `early` are bytes that were read already.
    pub(crate) fn new(
        worker: &'a Worker,
        listener: &'a WorkerListener,
        slot: &'a ConnectionSlot,
        (transport, info, alt_svc): (Transport, ConnectionInfo, AltSvc),
        early: Vec<u8>,
    ) -> Self {
        let limits = worker.limits();
        Self {
            codec: ServerConnection::new(HeadLimits {
                target_bytes: limits.target_bytes,
                head_bytes: limits.head_bytes,
                fields: limits.head_fields,
            }),
            limits,
            worker,
            listener,
            slot,
            transport,
            info: Rc::new(info),
            alt_svc,
            input: InputBuffer::new(early),
            out: Vec::new(),
            sent: 0,
            send_rate: SendRate::default(),
            completions: Vec::new(),
            first_byte: None,
            arrived: Instant::now(),
            requests: 0,
            interims: InterimQueue::default(),
            framing_bytes: 0,
            half_closed: None,
            closes_first: false,
        }
    }

    /// Serves the connection to its end; returns the protocol that it switches to, if any.
    pub(crate) async fn serve(&mut self) -> Option<ProtocolSwitch> {
        let end = self.serve_requests().await;
        // The rest of `out` could not be written.
        self.notify_completions(false);
        match end {
            Ok(Http1End::Close) => {
                self.slot.set_busy(&self.worker.clock, LINGER_IDLE);
                // Without `close_notify`, a client cannot tell the end of a response without a length from a
                // connection that was cut off.
                let ended = self.slot.wait(|cx| self.transport.poll_close_notify(cx));
                let _ = ended.await;
            }
            // Rare futures are boxed, so that an idle connection does not contain them.
            Ok(Http1End::Linger) => Box::pin(self.linger()).await,
            Ok(Http1End::ProtocolSwitch(next)) => return Some(next),
            Err(error) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    self.worker.counters.timeouts.add(1);
                    tracing::debug!(peer = %self.info.peer, "closed on a client that was too slow");
                }
            }
        }
        self.out.clear();
        self.release_buffers();
        None
    }

    /// The connection for a tunnel.
    pub(crate) fn into_duplex(self) -> Box<dyn Duplex> {
        let tunnel = Http1Tunnel::new(self.transport, self.input);
        self.slot.set_tunnel(tunnel.closer());
        Box::new(tunnel)
    }

    /// The parts that HTTP/2 takes over.
    pub(crate) fn into_parts(self) -> (Transport, Rc<ConnectionInfo>, InputBuffer, AltSvc) {
        (self.transport, self.info, self.input, self.alt_svc)
    }

    async fn serve_requests(&mut self) -> io::Result<Http1End> {
        loop {
            let head = match self.read_head().await {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(Http1End::Close),
                // A client with prior knowledge (RFC 9113 section 3.3).
                Err(HeadError::Protocol(Http1Error::Http2Preface)) if self.listener.http2() => {
                    return Ok(Http1End::ProtocolSwitch(ProtocolSwitch::Http2));
                }
                Err(HeadError::Protocol(Http1Error::OtherProtocol)) => {
                    self.worker.count_bad_request(&self.info.peer);
                    tracing::debug!(peer = %self.info.peer, "closed on another protocol");
                    return Ok(Http1End::Linger);
                }
                Err(HeadError::Protocol(error)) => {
                    self.worker.count_bad_request(&self.info.peer);
                    tracing::debug!(peer = %self.info.peer, %error, "refused a request");
                    return self.refuse(error.status(), &error.to_string()).await;
                }
                Err(HeadError::Slow) => {
                    self.worker.counters.timeouts.add(1);
                    self.worker.note_glitch(&self.info.peer, Glitch::Abandoned);
                    self.slot.renew();
                    let why = "the request's head did not come in time";
                    tracing::debug!(peer = %self.info.peer, error = why, "refused a request");
                    return self.refuse(StatusCode::REQUEST_TIMEOUT, why).await;
                }
                Err(HeadError::Io(error)) => return Err(error),
            };
            self.worker.counters.requests.add(1);
            self.requests += 1;
            // A reload may have changed them since the last request.
            self.limits = self.worker.limits();
            if let Some(end) = self.exchange(head).await? {
                return Ok(end);
            }
        }
    }

    /// Reads the next request; `None` if there is none.
    async fn read_head(&mut self) -> Result<Option<Http1RequestHead>, HeadError> {
        let mut timed = false;
        loop {
            let (consumed, event) = self.codec.handle_input(self.input.unread())?;
            self.input.consume(consumed);
            if let Http1ServerEvent::Request(head) = event {
                return Ok(Some(head));
            }
            // Written when nothing more can be read at once, and not after each response: pipelined requests get their
            // responses in one write.
            if !self.out.is_empty() {
                self.flush().await?;
            }
            self.release_buffers();
            let idle = self.codec.is_idle() && self.input.is_empty();
            if !idle {
                // Once for a head: a client that sends a byte from time to time would otherwise renew its time with
                // each (Slowloris).
                if !timed {
                    self.slot
                        .set_reading_head(&self.worker.clock, self.limits.head_timeout);
                    timed = true;
                }
            } else if self.requests == 0 {
                self.slot
                    .set_awaiting_first(&self.worker.clock, self.limits.head_timeout);
            } else {
                self.slot
                    .set_kept(&self.worker.clock, self.limits.idle_timeout);
            }
            match self.read_more(idle).await {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    if idle {
                        self.arrived = Instant::now();
                    }
                }
                Err(error) => {
                    return match error.kind() {
                        // An idle connection ends without a 408: the client may send a request in this moment, and
                        // take it for the response.
                        io::ErrorKind::TimedOut | io::ErrorKind::ConnectionAborted if idle => {
                            Ok(None)
                        }
                        io::ErrorKind::TimedOut => Err(HeadError::Slow),
                        _ => Err(error.into()),
                    };
                }
            }
        }
    }

    /// Waits for input; 0 at its end, and when an idle connection has to end.
    async fn read_more(&mut self, idle: bool) -> io::Result<usize> {
        let slot = self.slot;
        slot.wait(|cx| match self.poll_fill(cx) {
            Poll::Pending if idle && self.is_shutdown_requested() => {
                if self.requests > 0 {
                    return if slot.end_kept_after(&self.worker.clock, LAST_KEPT_REQUEST) {
                        Poll::Pending
                    } else {
                        Poll::Ready(Ok(0))
                    };
                }
                if self.arrived.elapsed() >= LAST_FIRST_REQUEST {
                    return Poll::Ready(Ok(0));
                }
                slot.set_awaiting_first(&self.worker.clock, LAST_FIRST_REQUEST);
                Poll::Pending
            }
            polled => polled,
        })
        .await
    }

    /// Reads the available input; 0 at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffers = &self.worker.buffers;
        // A buffer of the worker, not of the connection: ten thousand idle connections hold none.
        let mut buffer = buffers.take();
        match self.transport.poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(read)) if read > 0 => {
                self.worker.counters.bytes_in.add(read as u64);
                self.input.add(buffer, buffers);
                Poll::Ready(Ok(read))
            }
            polled => {
                buffers.put(buffer);
                polled
            }
        }
    }

    /// Returns the buffers to the pool for the time of a wait.
    fn release_buffers(&mut self) {
        self.input.release(&self.worker.buffers);
        if self.out.is_empty() && self.out.capacity() > 0 {
            self.worker.buffers.put(std::mem::take(&mut self.out));
        }
    }

    /// Whether the connection has to end after the current request.
    fn is_shutdown_requested(&self) -> bool {
        self.worker.is_stopping() || self.listener.is_removed()
    }

    /// Responds to a request that is malformed or too slow, and ends.
    async fn refuse(&mut self, status: StatusCode, why: &str) -> io::Result<Http1End> {
        self.codec.close();
        let mut headers = Headers::new();
        let _ = headers.try_append("content-type", "text/plain; charset=utf-8");
        let text = format!(
            "{} {}: {why}\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or_default()
        );
        self.encode_head(status, &headers, Some(text.len() as u64));
        self.out.extend_from_slice(text.as_bytes());
        self.flush().await?;
        Ok(Http1End::Linger)
    }

    /// Ends our side and reads for a while.
    async fn linger(&mut self) {
        self.release_buffers();
        let idle = if self.is_shutdown_requested() {
            LINGER_AT_END
        } else {
            LINGER_IDLE
        };
        // A client may get its response while it still uploads a file.
        let patience = LingerLimits {
            idle,
            bytes: usize::MAX,
        };
        linger(self.worker, self.slot, &mut self.transport, patience).await;
    }
}

/// Why a head was not read.
enum HeadError {
    Protocol(Http1Error),
    Slow,
    Io(io::Error),
}

impl From<Http1Error> for HeadError {
    fn from(error: Http1Error) -> Self {
        Self::Protocol(error)
    }
}

impl From<io::Error> for HeadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
