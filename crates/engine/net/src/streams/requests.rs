//! The requests: the service is called for each, and streams that the client ends are dropped.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use apus_codec::flood::Flood;
use apus_codec::messages::IncomingRequest;
use apus_http::{Body, Glitch, Request, Response, ResponseFuture, ResponseOutcome, StatusCode};

use super::request_body::StreamRequestBody;
use super::table::StreamWork;
use super::{RequestStreams, SlotKey, StreamProtocol};

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// Calls the service for a request.
    pub(crate) fn call(&mut self, request: IncomingRequest<P::Key>) {
        let key = request.stream;
        self.worker.counters.requests.add(1);
        self.requests += 1;
        self.budget.requests += 1;
        let kind = request.kind;
        // A tunnel lives for hours, and each has two sides: without its own limit, one connection would hold as many
        // as it may have streams.
        if kind.is_connect() && self.streams.tunnels() >= self.limits.h2_max_tunnels {
            return self.refuse(
                key,
                StatusCode::SERVICE_UNAVAILABLE,
                &"the connection has too many tunnels",
            );
        }
        let (request_body, body) = if kind.is_connect() {
            (
                Some(StreamRequestBody::for_tunnel(request.end, &self.unread)),
                Body::Empty,
            )
        } else if request.end {
            (None, Body::Empty)
        } else {
            let (request_body, body) = StreamRequestBody::new(
                request.content_length,
                request.expects_continue,
                &self.unread,
            );
            (Some(request_body), body)
        };
        self.alt_svc.prepare(&request.head.headers, self.listener);
        let stream = self.streams.enter(key);
        stream.arrived = Some(self.arrived);
        stream.kind = kind;
        stream.request_body = request_body;
        stream.moved_at = self.worker.clock.ticks();
        let mut request = Request::from_head(request.head, body, Rc::clone(&self.info));
        request.set_arrived(self.arrived);
        request.set_interim(self.interim(key));
        let service = self.listener.service();
        match catch_unwind(AssertUnwindSafe(|| service.call(request))) {
            Ok(ResponseFuture::Now(response)) => self.respond(key, response),
            Ok(ResponseFuture::Later(future)) => {
                if let Some(stream) = self.streams.get(key) {
                    stream.work = StreamWork::Response(future);
                    self.wakers.mark(key.slot(), self.stream_slots);
                }
            }
            Err(_) => {
                let response = self.panicked();
                self.respond(key, response);
            }
        }
    }

    /// Responds to a request that does not reach the service.
    pub(crate) fn refuse(&mut self, key: P::Key, status: StatusCode, why: &dyn fmt::Display) {
        self.worker.counters.bad_requests.add(1);
        // The server asks for a request again that came too early, and for one with a tunnel too many later.
        if status.is_client_error() && status != StatusCode::TOO_EARLY {
            self.note_glitch(Glitch::Protocol);
        }
        tracing::debug!(peer = %self.info.peer, error = %why, "refused a request");
        let stream = self.streams.enter(key);
        stream.arrived = Some(self.arrived);
        stream.moved_at = self.worker.clock.ticks();
        let reason = status.canonical_reason().unwrap_or_default();
        let text = format!("{} {reason}: {why}\n", status.as_u16());
        self.respond(key, Response::text(status, text));
    }

    pub(super) fn panicked(&self) -> Response {
        self.worker.panicked(&self.info)
    }

    /// Notes what the client did wrong.
    #[cold]
    pub(crate) fn note_glitch(&self, glitch: Glitch) {
        if self.is_client_proven {
            self.worker.note_glitch(&self.info.peer, glitch);
        }
    }

    /// Counts a connection that is closed by a fault of the client, by the flood that it stops, if any.
    pub(crate) fn count_fault(&self, flood: Option<Flood>) {
        self.worker.count_fault(flood);
        self.note_glitch(match flood {
            Some(_) => Glitch::Flood,
            None => Glitch::Protocol,
        });
    }

    /// Counts a request that broke the protocol, without which the connection goes on.
    pub(crate) fn count_malformed(&self) {
        self.worker.counters.bad_requests.add(1);
        self.note_glitch(Glitch::Protocol);
    }

    /// Drops a stream that the client reset.
    pub(crate) fn drop_reset_stream(&mut self, key: P::Key) {
        if self
            .streams
            .get(key)
            .is_some_and(|stream| stream.is_waiting())
        {
            self.note_glitch(Glitch::Abandoned);
        }
        self.drop_stream(key);
    }

    /// Notes that the client left, and with it the requests whose responses have not begun.
    pub(crate) fn note_client_left(&self) {
        for _ in 0..self.streams.waiting() {
            self.note_glitch(Glitch::Abandoned);
        }
    }

    /// Drops a stream that the client ended.
    pub(crate) fn drop_stream(&mut self, key: P::Key) {
        let Some(stream) = self.streams.remove(key) else {
            return;
        };
        if let Some(observed) = stream.observed {
            observed.notify(ResponseOutcome::ClientGone);
        }
        // Their other ends fail now.
        drop((stream.request_body, stream.source));
        if let StreamWork::Tunnel(tunnel) = stream.work {
            tokio::task::spawn_local(tunnel);
        }
    }

    /// Drops all streams.
    pub(crate) fn drop_all_streams(&mut self) {
        let keys: Vec<P::Key> = self.streams.keys().collect();
        for key in keys {
            self.drop_stream(key);
        }
    }
}
