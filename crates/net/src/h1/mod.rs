//! The HTTP/1.1 driver of a connection: one request after another.
//!
//! The responses to pipelined requests leave in one write.

mod exchange;
mod incoming;
mod interim;
mod send;
mod tunnel;
mod write;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_codec::h1::{Event, HeadLimits, ProtocolError, RequestHead, ServerConnection};
use apus_http::{ConnectionInfo, Duplex, Headers, InterimQueue, StatusCode, Tunnel};

pub(crate) use self::tunnel::Raw;
use self::write::Written;
use crate::input::Input;
use crate::limits::Limits;
use crate::linger::{LINGER_AT_END, LINGER_IDLE, Patience, linger};
use crate::table::Place;
use crate::transport::Transport;
use crate::worker::{LiveListener, Worker};

/// How long the first request of a connection may take to come when nothing more is accepted: who
/// connected before may have sent it.
const LAST_FIRST_REQUEST: Duration = Duration::from_secs(1);

/// A connection that speaks HTTP/1.1.
pub(crate) struct Connection<'a> {
    worker: &'a Worker,
    listener: &'a LiveListener,
    place: &'a Place,
    limits: Rc<Limits>,
    transport: Transport,
    info: Rc<ConnectionInfo>,
    codec: ServerConnection,
    input: Input,
    /// Bytes that were encoded and not written.
    out: Vec<u8>,
    /// Whose answers are in `out`, waiting to be told how it went.
    written: Vec<Written>,
    /// When the first byte of the current head came.
    arrived: Instant,
    requests: u64,
    /// What services want said before their answers.
    interims: InterimQueue,
    /// Bytes around the content of the current answer, as of chunks.
    framing_bytes: u64,
    /// Whether the end is our choice and not the client's.
    closes_first: bool,
}

/// How a connection ends.
enum End {
    /// All that was to be said was said and read.
    Close,
    /// The client may still be sending.
    Linger,
    /// The connection goes on as another protocol.
    HandOver(HandOver),
}

/// What a connection goes on with.
pub(crate) enum HandOver {
    /// Without HTTP.
    Tunnel(Tunnel),
    /// With HTTP/2, whose preface was found and is still to be read.
    Http2,
}

impl<'a> Connection<'a> {
    /// A connection before its first request. `early` are bytes that were read already.
    pub(crate) fn new(
        worker: &'a Worker,
        listener: &'a LiveListener,
        place: &'a Place,
        transport: Transport,
        info: ConnectionInfo,
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
            place,
            transport,
            info: Rc::new(info),
            input: Input::new(early),
            out: Vec::new(),
            written: Vec::new(),
            arrived: Instant::now(),
            requests: 0,
            interims: InterimQueue::default(),
            framing_bytes: 0,
            closes_first: false,
        }
    }

    /// Serves the connection to its end; tells what takes it over then, if anything does.
    pub(crate) async fn serve(&mut self) -> Option<HandOver> {
        let end = self.serve_requests().await;
        // What is left in `out` could not be written.
        self.settle_written(false);
        match end {
            Ok(End::Close) => {
                self.place.busy(&self.worker.clock, LINGER_IDLE);
                let ended = self.place.wait(|cx| self.transport.poll_close_notify(cx));
                let _ = ended.await;
            }
            // What is rare is boxed, so that an idle connection keeps no room for it.
            Ok(End::Linger) => Box::pin(self.linger()).await,
            Ok(End::HandOver(next)) => return Some(next),
            Err(error) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    self.worker.counters.timeouts.add(1);
                    tracing::debug!(peer = %self.info.peer, "closed on a client that was too slow");
                }
            }
        }
        self.out.clear();
        self.rest();
        None
    }

    /// The connection as a tunnel has it.
    pub(crate) fn into_duplex(self) -> Box<dyn Duplex> {
        self.place.untimed();
        Box::new(Raw::new(self.transport, self.input))
    }

    /// What HTTP/2 takes over.
    pub(crate) fn into_parts(self) -> (Transport, Rc<ConnectionInfo>, Input) {
        (self.transport, self.info, self.input)
    }

    async fn serve_requests(&mut self) -> io::Result<End> {
        loop {
            let head = match self.read_head().await {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(End::Close),
                // A client with prior knowledge (RFC 9113 section 3.3).
                Err(Unread::Protocol(ProtocolError::Http2Preface)) if self.listener.http2() => {
                    return Ok(End::HandOver(HandOver::Http2));
                }
                Err(Unread::Protocol(ProtocolError::OtherProtocol)) => {
                    self.worker.counters.bad_requests.add(1);
                    tracing::debug!(peer = %self.info.peer, "closed on another protocol");
                    return Ok(End::Linger);
                }
                Err(Unread::Protocol(error)) => {
                    self.worker.counters.bad_requests.add(1);
                    tracing::debug!(peer = %self.info.peer, %error, "refused a request");
                    return self.refuse(error.status(), &error.to_string()).await;
                }
                Err(Unread::Slow) => {
                    self.worker.counters.timeouts.add(1);
                    self.place.reprieve();
                    let why = "the request's head did not come in time";
                    tracing::debug!(peer = %self.info.peer, error = why, "refused a request");
                    return self.refuse(StatusCode::REQUEST_TIMEOUT, why).await;
                }
                Err(Unread::Io(error)) => return Err(error),
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

    /// Reads up to the next request; `None` when there is none to come.
    async fn read_head(&mut self) -> Result<Option<RequestHead>, Unread> {
        let mut timed = false;
        loop {
            let (consumed, event) = self.codec.handle_input(self.input.unread())?;
            self.input.consume(consumed);
            if let Event::Request(head) = event {
                return Ok(Some(head));
            }
            if !self.out.is_empty() {
                self.flush().await?;
            }
            self.rest();
            let idle = self.codec.is_idle() && self.input.is_empty();
            if !idle {
                if !timed {
                    self.place
                        .begun(&self.worker.clock, self.limits.head_timeout);
                    timed = true;
                }
            } else if self.requests == 0 {
                self.place
                    .idle(&self.worker.clock, self.limits.head_timeout);
            } else {
                self.place
                    .idle(&self.worker.clock, self.limits.idle_timeout);
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
                        io::ErrorKind::TimedOut | io::ErrorKind::ConnectionAborted if idle => {
                            Ok(None)
                        }
                        io::ErrorKind::TimedOut => Err(Unread::Slow),
                        _ => Err(error.into()),
                    };
                }
            }
        }
    }

    /// Waits for input; 0 at its end, and when an idle connection is told to end.
    async fn read_more(&mut self, idle: bool) -> io::Result<usize> {
        let place = self.place;
        place
            .wait(|cx| match self.poll_fill(cx) {
                Poll::Pending if idle && self.is_ending() => {
                    if self.requests > 0 || self.arrived.elapsed() >= LAST_FIRST_REQUEST {
                        return Poll::Ready(Ok(0));
                    }
                    place.idle(&self.worker.clock, LAST_FIRST_REQUEST);
                    Poll::Pending
                }
                polled => polled,
            })
            .await
    }

    /// Reads what is there; 0 at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffers = &self.worker.buffers;
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

    /// Gives back the buffers for the time of a wait.
    fn rest(&mut self) {
        self.input.rest(&self.worker.buffers);
        if self.out.is_empty() && self.out.capacity() > 0 {
            self.worker.buffers.put(std::mem::take(&mut self.out));
        }
    }

    /// Whether no further request is wanted on this connection.
    fn is_ending(&self) -> bool {
        self.worker.is_stopping() || self.listener.is_removed()
    }

    /// Answers what could not be understood, or not in time, and ends.
    async fn refuse(&mut self, status: StatusCode, why: &str) -> io::Result<End> {
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
        Ok(End::Linger)
    }

    /// Ends our side and reads on for a while.
    async fn linger(&mut self) {
        self.rest();
        let idle = match self.is_ending() {
            true => LINGER_AT_END,
            false => LINGER_IDLE,
        };
        // A client may get its answer while it still uploads a file.
        let patience = Patience {
            idle,
            bytes: usize::MAX,
        };
        linger(self.worker, self.place, &mut self.transport, patience).await;
    }
}

/// Why there is no request.
enum Unread {
    Protocol(ProtocolError),
    Slow,
    Io(io::Error),
}

impl From<ProtocolError> for Unread {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
