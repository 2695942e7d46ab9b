//! The opening of streams for the requests in the queue.

use std::time::Duration;

use apus_codec::messages::OutgoingRequest;
use apus_http::{Body, Method};
use apus_transport::coarse_now;

use super::table::{ClientStream, RequestBodyState, ResponseState};
use super::{ClientProtocol, OriginStreams, QueuedRequest, STREAMS, unsent};
use crate::deadline::after;
use crate::{ClientRequestHead, FailureCause};

/// How long a body is held back for `100 Continue`: many origins never send it (RFC 9110 section 10.1.1).
const CONTINUE_WITHIN: Duration = Duration::from_secs(1);

impl<P: ClientProtocol> OriginStreams<P> {
    /// Opens streams for the queued requests; returns whether there were any.
    pub(crate) fn open_queued(&mut self) -> bool {
        let mut any = false;
        while self.protocol.has_room() {
            // The origin's settings decide whether there can be a tunnel.
            let waits = |next: &QueuedRequest| {
                // Requests behind this one wait, too, but not for long: SETTINGS is the first frame of an origin (RFC
                // 9113 section 3.4, RFC 9114 section 6.2.1).
                next.template.head.upgrade.is_some()
                    && !self.protocol.has_peer_settings()
                    && !next.response_slot.is_abandoned()
            };
            let mut queue = self.shared.queue.borrow_mut();
            if queue.front().is_none_or(waits) {
                break;
            }
            let next = queue.pop_front();
            drop(queue);
            any = true;
            if let Some(next) = next.filter(|next| !next.response_slot.is_abandoned()) {
                self.open_stream(next);
            }
        }
        any
    }

    fn open_stream(&mut self, submitted: QueuedRequest) {
        let QueuedRequest {
            template,
            body,
            response_slot,
        } = submitted;
        let head = &*template.head;
        let is_tunnel = head.upgrade.is_some();
        if is_tunnel && !self.protocol.allows_extended_connect() {
            return response_slot.settle(Err(unsent(body, FailureCause::NoTunnel)));
        }
        let is_whole = matches!(body, Body::Empty) && !is_tunnel;
        let expects_continue = head.expects_continue && !is_whole && !is_tunnel;
        let outgoing = OutgoingRequest {
            method: &head.method,
            scheme: head.scheme,
            authority: Some(&head.authority),
            path: &head.target,
            protocol: head.upgrade.as_deref(),
            headers: &head.headers,
            content_length: content_length(head, &body),
            te_trailers: head.te_trailers,
            expects_continue,
        };
        // Before the head is added, so that this is the position of its first byte.
        let begins_at = self.protocol.output_position();
        let key = match self.protocol.send_request(outgoing, is_whole) {
            Ok(key) => key,
            Err(cause) => return response_slot.settle(Err(unsent(body, cause))),
        };
        self.shared.requests.set(self.shared.requests.get() + 1);
        response_slot.watch(self.wakers.waker(key.slot(), STREAMS));
        let mut request_body = RequestBodyState::new(body, coarse_now());
        if is_tunnel {
            // Nothing is sent before the origin accepts the tunnel.
            request_body.left = None;
        }
        if expects_continue {
            request_body.held_until = Some(after(CONTINUE_WITHIN));
        }
        let by = request_body.held_until;
        self.examine_by(by.unwrap_or_else(|| {
            // Then the deadlines of its body and of its response are checked.
            after(template.timeouts.write.min(template.timeouts.first_byte))
        }));
        self.table.enter(Box::new(ClientStream {
            key,
            response_slot: Some(response_slot),
            interim: template.interim,
            timeouts: template.timeouts,
            begins_at,
            tunnel: head.upgrade.clone(),
            is_head: head.method == Method::HEAD && !is_tunnel,
            request_body,
            response: ResponseState::Head,
            receive_by: None,
        }));
        if is_whole {
            self.request_ended(key);
        } else if is_tunnel {
            self.await_response(key);
        } else if !expects_continue {
            self.begin_sending(key);
        }
    }
}

/// The value of `Content-Length`: none for a request without a body where none is expected (RFC 9110 section
/// 8.6).
fn content_length(head: &ClientRequestHead, body: &Body) -> Option<u64> {
    let is_expected = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    match body {
        // The data of an extended CONNECT is a tunnel, which has no length.
        _ if head.upgrade.is_some() => None,
        Body::Empty => is_expected.then_some(0),
        body => body.len(),
    }
}
