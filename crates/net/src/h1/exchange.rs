//! One request and its response: calls the service and sends its response.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use apus_codec::h1::{BodyFraming, Http1RequestHead, RequestFraming};
use apus_http::{Answer, Body, Completion, Method, Outcome, Request, Response, StatusCode};

use super::request_body::Http1RequestBody;
use super::send::{BodySendError, GATHER};
use super::{Http1Connection, Http1End, ProtocolSwitch};

/// Pipelined bytes that are read ahead while a handler works, to notice a client that goes away.
const READ_AHEAD: usize = 16 * 1024;

impl Http1Connection<'_> {
    /// Answers one request; tells when it was the last one.
    pub(super) async fn exchange(
        &mut self,
        request: Http1RequestHead,
    ) -> io::Result<Option<Http1End>> {
        // The time for the head is over, and nobody may take the connection for idle.
        self.slot.clear_deadline();
        let (mut incoming, body) = match request.body {
            RequestFraming::None => (None, Body::Empty),
            RequestFraming::Length(length) => {
                let (incoming, body) =
                    Http1RequestBody::new(Some(length), request.expects_continue);
                (Some(incoming), body)
            }
            RequestFraming::Chunked => {
                let (incoming, body) = Http1RequestBody::new(None, request.expects_continue);
                (Some(incoming), body)
            }
        };
        let connect = request.head.method == Method::CONNECT;
        let mut request = Request::from_head(request.head, body, Rc::clone(&self.info));
        request.set_interim(self.interims.sender(self.requests));
        let service = self.listener.service();
        let answer = catch_unwind(AssertUnwindSafe(|| service.call(request)));
        let response = match answer {
            Ok(Answer::Now(response)) => response,
            Ok(Answer::Later(future)) => self.wait_for(future, &mut incoming).await?,
            Err(_) => self.panicked(),
        };
        drop(service);
        self.respond(response, &mut incoming, connect).await
    }

    pub(super) fn panicked(&self) -> Response {
        self.worker.panicked(&self.info)
    }

    /// Waits for a handler while it reads the content, or while nothing else is to do.
    async fn wait_for(
        &mut self,
        mut future: Pin<Box<dyn Future<Output = Response>>>,
        incoming: &mut Option<Http1RequestBody>,
    ) -> io::Result<Response> {
        if !self.out.is_empty() {
            // Earlier answers must not wait for this one.
            self.flush().await?;
        }
        self.slot.clear_deadline();
        let mut timed = false;
        let response = poll_fn(|cx| {
            self.slot.register(cx);
            self.interims.watch(cx);
            loop {
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                    Ok(Poll::Ready(response)) => return Poll::Ready(Ok(response)),
                    Ok(Poll::Pending) => {}
                    Err(_) => return Poll::Ready(Ok(self.panicked())),
                }
                if self.poll_interims(cx, incoming, &mut timed)?.is_pending() {
                    return Poll::Pending;
                }
                if self.poll_meanwhile(cx, incoming)?.is_pending() {
                    if incoming.is_none() {
                        self.rest();
                    }
                    return Poll::Pending;
                }
            }
        })
        .await;
        if timed {
            // What was not taken yet leaves with the answer.
            self.slot.clear_deadline();
        }
        response
    }

    /// What the connection does while somebody else works: feeds content to who waits for it, or
    /// else watches whether the client is still there. Ready when there was progress that the
    /// other may have waited for.
    pub(super) fn poll_meanwhile(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut Option<Http1RequestBody>,
    ) -> io::Result<Poll<()>> {
        match incoming {
            Some(incoming) if !incoming.failed && !self.codec.request_body_done() => {
                if incoming.content.poll_wanted(cx) {
                    return self.poll_content(cx, incoming);
                }
                // Content that nobody reads yet stays where it is; the client waits.
                self.stop_waiting(incoming);
                Ok(Poll::Pending)
            }
            _ => {
                while self.input.unread().len() < READ_AHEAD {
                    match self.poll_fill(cx) {
                        Poll::Ready(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Err(error),
                        Poll::Pending => break,
                    }
                }
                Ok(Poll::Pending)
            }
        }
    }

    /// Sends an answer; tells when it was the last one.
    async fn respond(
        &mut self,
        mut response: Response,
        incoming: &mut Option<Http1RequestBody>,
        connect: bool,
    ) -> io::Result<Option<Http1End>> {
        self.encode_interims();
        let limit = self.limits.requests_per_connection;
        if self.codec.keeps_alive() && (self.is_ending() || (limit > 0 && self.requests >= limit)) {
            // The client does not know yet, and may be sending its next request.
            self.closes_first = true;
            self.codec.close();
        }
        let tunnel = response.take_tunnel();
        if let Some(content) = incoming
            && !self.codec.request_body_done()
        {
            if tunnel.is_some() {
                // What the tunnel reads starts behind the content (RFC 9110 section 7.8).
                Box::pin(self.drain(incoming)).await?;
                if !self.codec.request_body_done() {
                    self.codec.close();
                    return Ok(Some(Http1End::Linger));
                }
            } else if !content.content.is_abandoned() {
                // The answer still reads it, as when it sends it back.
                if std::mem::take(&mut content.expects_continue) {
                    self.codec.send_continue(&mut self.out);
                }
            } else if content
                .left
                .is_some_and(|left| left > self.limits.drain_bytes)
            {
                self.codec.close();
            }
        }
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS && tunnel.is_none() {
            tracing::error!("a service answered 101 and took no connection over; sent a 500");
            response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        } else if connect && status.is_success() && tunnel.is_none() {
            tracing::error!("a service accepted CONNECT and took no connection over; sent a 500");
            response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let body = response.take_body();
        let (framing, head_bytes) =
            self.encode_head(response.status(), response.headers(), body.len());
        self.framing_bytes = 0;
        let body_bytes = match framing {
            BodyFraming::None => {
                self.codec.send_end(None, &mut self.out);
                Ok(0)
            }
            framing => self.send_body(body, framing, incoming).await,
        };
        let outcome = match &body_bytes {
            Ok(_) => Outcome::Complete,
            Err(BodySendError::Source { .. }) => Outcome::SourceFailed,
            Err(BodySendError::Client { .. }) => Outcome::ClientGone,
        };
        if response.is_observed() {
            let sent = match &body_bytes {
                Ok(sent)
                | Err(BodySendError::Source { sent } | BodySendError::Client { sent, .. }) => *sent,
            };
            let completion = Completion {
                status: response.status(),
                body_bytes: sent,
                bytes: head_bytes + self.framing_bytes + sent,
                duration: Duration::ZERO,
                outcome,
                source: None,
                cache: None,
            };
            self.note_written(response.take_observers(), completion);
        }
        match body_bytes {
            Ok(_) => {}
            Err(BodySendError::Source { .. }) => {
                self.worker.counters.broken_responses.add(1);
                // Cut off without an end, so that the client can tell; what was sent may arrive.
                let _ = self.flush().await;
                if framing == BodyFraming::UntilClose {
                    // An end in order would be the end of the content.
                    self.transport.reset_when_dropped();
                }
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Err(BodySendError::Client { error, .. }) => return Err(error),
        }
        if self.codec.is_tunnel() {
            self.flush().await?;
            return Ok(
                tunnel.map(|tunnel| Http1End::ProtocolSwitch(ProtocolSwitch::Tunnel(tunnel)))
            );
        }
        if !self.codec.request_body_done() && self.codec.keeps_alive() {
            Box::pin(self.drain(incoming)).await?;
        }
        if !self.codec.keeps_alive() {
            self.flush().await?;
            let whole =
                self.codec.request_body_done() && self.input.is_empty() && !self.closes_first;
            return Ok(Some(if whole {
                Http1End::Close
            } else {
                Http1End::Linger
            }));
        }
        if self.out.len() >= GATHER {
            self.flush().await?;
        }
        Ok(None)
    }
}
