//! One HTTP/1.1 request and its response, from the call of the service to the last byte.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use apus_codec::h1::{BodyFraming, Http1RequestHead, RequestFraming};
use apus_codec::messages::RequestKind;
use apus_http::{
    Body, Completion, Glitch, Request, Response, ResponseFuture, ResponseOutcome, Service,
};
use apus_transport::take_yield;

use super::request_body::Http1RequestBody;
use super::send::GATHER;
use super::write::BodySendError;
use super::{Http1Connection, Http1End, ProtocolSwitch};
use crate::tunnel_refusal::refuse_without_tunnel;

/// Pipelined bytes that are read while a handler works, to notice a client that closes.
// A client that is gone shows only behind what it has sent; more than this is not held for a client that floods
// requests.
const READ_AHEAD: usize = 16 * 1024;

impl Http1Connection<'_> {
    /// Serves one request; returns how the connection ends if it was the last one.
    pub(super) async fn exchange(
        &mut self,
        request: Http1RequestHead,
    ) -> io::Result<Option<Http1End>> {
        // The deadline of the head no longer applies, and the connection is not idle.
        self.slot.clear_deadline();
        let kind = RequestKind::of(&request.head.method);
        self.alt_svc.prepare(&request.head.headers, self.listener);
        let service = self.listener.service();
        let (response, mut request_body) = self.call(&*service, request);
        let mut response = match response {
            ResponseFuture::Now(response) => response,
            ResponseFuture::Later(future) => {
                let waited = self.wait_for_response(future, &mut request_body).await;
                waited.inspect_err(|error| self.note_abandoned(error))?
            }
        };
        drop(service);
        self.respond(&mut response, &mut request_body, kind).await
    }

    /// Calls the service. Not a part of the future of the exchange, which would contain the request.
    fn call(
        &self,
        service: &dyn Service,
        request: Http1RequestHead,
    ) -> (ResponseFuture, Option<Http1RequestBody>) {
        let (request_body, body) = match request.body {
            RequestFraming::None => (None, Body::Empty),
            RequestFraming::Length(length) => {
                let (request_body, body) =
                    Http1RequestBody::new(Some(length), request.expects_continue);
                (Some(request_body), body)
            }
            RequestFraming::Chunked => {
                let (request_body, body) = Http1RequestBody::new(None, request.expects_continue);
                (Some(request_body), body)
            }
        };
        // A handler that panics costs its client a 500, and the other connections of the worker nothing.
        let returned = catch_unwind(AssertUnwindSafe(|| {
            let mut request = Request::from_head(request.head, body, Rc::clone(&self.info));
            request.set_arrived(self.arrived);
            request.set_interim(self.interims.sender(self.requests));
            service.call(request)
        }));
        let response = returned.unwrap_or_else(|_| self.panicked().into());
        (response, request_body)
    }

    pub(super) fn panicked(&self) -> Response {
        self.worker.panicked(&self.info)
    }

    /// Waits for the response, and meanwhile passes the body of the request to the handler.
    async fn wait_for_response(
        &mut self,
        mut future: Pin<Box<dyn Future<Output = Response>>>,
        request_body: &mut Option<Http1RequestBody>,
    ) -> io::Result<Response> {
        if !self.out.is_empty() {
            // Earlier responses must not wait for this one.
            self.flush().await?;
        }
        self.slot.clear_deadline();
        let response = poll_fn(|cx| {
            self.slot.register(cx);
            self.interims.watch(cx);
            loop {
                take_yield();
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                    Ok(Poll::Ready(response)) => return Poll::Ready(Ok(response)),
                    // A future that gave way on purpose wants to be polled after other tasks, and not in this loop.
                    Ok(Poll::Pending) if take_yield() => return Poll::Pending,
                    Ok(Poll::Pending) => {}
                    Err(_) => return Poll::Ready(Ok(self.panicked())),
                }
                if self.poll_interims(cx, request_body)?.is_pending() {
                    return Poll::Pending;
                }
                if self.poll_while_waiting(cx, request_body)?.is_pending() {
                    if request_body.is_none() {
                        self.release_buffers();
                    }
                    return Poll::Pending;
                }
            }
        })
        .await;
        // The rest of the interim responses leaves with the response.
        self.stop_waiting_for_reader();
        response
    }

    /// Notes that the client left before its response began. A connection that is closed for others was not left.
    #[cold]
    fn note_abandoned(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::ConnectionAborted {
            self.worker.note_glitch(&self.info.peer, Glitch::Abandoned);
        }
    }

    /// Passes data to the reader of the request's body if it waits for some, or watches whether the client is
    /// still connected. Ready when there was progress that the caller may wait for.
    pub(super) fn poll_while_waiting(
        &mut self,
        cx: &mut Context<'_>,
        request_body: &mut Option<Http1RequestBody>,
    ) -> io::Result<Poll<()>> {
        if self.slot.is_refused() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match request_body {
            Some(request_body) if !request_body.failed && !self.codec.request_body_done() => {
                if request_body.sender.poll_wanted(cx) {
                    return self.poll_request_body(cx, request_body);
                }
                // A body that is not read yet stays in the socket, and slows the client down.
                self.stop_waiting(request_body);
                Ok(Poll::Pending)
            }
            _ => {
                while self.half_closed.is_none()
                    && self.input.unread().len() < READ_AHEAD
                    && self.transport.poll_readable(cx).is_ready()
                {
                    match self.poll_fill(cx) {
                        Poll::Ready(Ok(0)) => self.begin_half_close()?,
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Err(error),
                        Poll::Pending => break,
                    }
                }
                self.poll_half_closed(cx)
            }
        }
    }

    /// Sends a response; returns how the connection ends if it was the last one.
    async fn respond(
        &mut self,
        response: &mut Response,
        request_body: &mut Option<Http1RequestBody>,
        kind: RequestKind,
    ) -> io::Result<Option<Http1End>> {
        if response.is_unsent() {
            return Box::pin(self.close_unsent(response)).await;
        }
        self.encode_interims();
        let limit = self.limits.requests_per_connection;
        if self.codec.keeps_alive()
            && (self.is_shutdown_requested() || (limit > 0 && self.requests >= limit))
        {
            // The client does not know yet, and may be sending its next request.
            self.closes_first = true;
            self.codec.close();
        }
        if self.is_at_last_request() || response.ends_connection() {
            self.codec.close();
        }
        response.remove_internal_of_origin();
        if response.is_of_panic() {
            self.worker.counters.panics.add(1);
        }
        let tunnel = response.take_tunnel();
        if let Some(body) = request_body
            && !self.codec.request_body_done()
        {
            if tunnel.is_some() {
                // The tunnel starts behind the body (RFC 9110 section 7.8).
                Box::pin(self.drain(request_body)).await?;
                if !self.codec.request_body_done() {
                    self.codec.close();
                    return Ok(Some(Http1End::Linger));
                }
            } else if !body.sender.is_abandoned() {
                // The response still reads the body, as an echo does.
                if std::mem::take(&mut body.expects_continue) {
                    self.codec.send_continue(&mut self.out);
                }
            } else if body.left.is_some_and(|left| left > self.limits.drain_bytes) {
                self.codec.close();
            }
        }
        if tunnel.is_none() {
            refuse_without_tunnel(response, kind);
        }
        let body = response.take_body_to_send();
        let (framing, head_bytes) =
            self.encode_head(response.status(), response.headers(), body.len());
        self.framing_bytes = 0;
        let body_bytes = match framing {
            BodyFraming::None => {
                self.codec.send_end(None, &mut self.out);
                Ok(0)
            }
            framing => match self.append_small_body(&body) {
                Some(sent) => Ok(sent),
                None => {
                    if response.is_observed() {
                        self.first_byte = Some(self.arrived.elapsed());
                    }
                    // Boxed: the future of a connection does not contain the future of a large body.
                    Box::pin(self.send_body(body, framing, request_body)).await
                }
            },
        };
        let outcome = match &body_bytes {
            Ok(_) => ResponseOutcome::Complete,
            Err(BodySendError::Source { .. }) => ResponseOutcome::SourceFailed,
            Err(BodySendError::Client { .. }) => ResponseOutcome::ClientGone,
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
                first_byte: self.first_byte.take(),
                outcome,
                origin: None,
                cache: None,
                fields: None,
            };
            self.add_completion(response.take_observers(), completion);
        }
        match body_bytes {
            Ok(_) => {}
            Err(BodySendError::Source { .. }) => {
                self.worker.counters.broken_responses.add(1);
                // The response has no end, so that the client notices; the bytes before it may still arrive.
                let _ = self.flush().await;
                if framing == BodyFraming::UntilClose {
                    // An orderly close would be the end of the body.
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
            Box::pin(self.drain(request_body)).await?;
        }
        if !self.codec.keeps_alive() {
            self.flush().await?;
            // A client that cannot be sending anything gets an orderly close. To linger for each would keep a
            // descriptor for seconds.
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

    /// Closes the connection in place of a response. What was sent before, for pipelined requests, still leaves.
    async fn close_unsent(&mut self, response: &mut Response) -> io::Result<Option<Http1End>> {
        self.codec.close();
        self.flush().await?;
        if response.is_observed() {
            let completion = Completion {
                status: response.status(),
                body_bytes: 0,
                bytes: 0,
                duration: Duration::ZERO,
                first_byte: None,
                outcome: ResponseOutcome::Complete,
                origin: None,
                cache: None,
                fields: None,
            };
            self.add_completion(response.take_observers(), completion);
        }
        Ok(Some(Http1End::Close))
    }
}
