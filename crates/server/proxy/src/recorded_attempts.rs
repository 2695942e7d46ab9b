//! What the record of a request has of its attempts at origins.

use std::rc::Rc;
use std::sync::Arc;

use apus_http::{OriginAttempt, OriginResult, RequestEvent, RequestRecord};
use apus_upstream::{
    AttemptFailure, AttemptTimes, NodeLabel, UpstreamError, UpstreamErrorKind, UpstreamResponse,
};

/// Adds the attempts of a request to its record.
pub(super) fn note(record: &RequestRecord, result: &Result<UpstreamResponse, UpstreamError>) {
    let failed = match result {
        Ok(response) => &response.attempts,
        Err(error) => &error.attempts,
    };
    for attempt in failed {
        let result = match &attempt.failure {
            AttemptFailure::Status(status) => OriginResult::Status(*status),
            AttemptFailure::NoResponse(failure) => {
                OriginResult::failed(failure.phase.as_str(), failure.cause.to_string())
            }
        };
        record.note(event(&attempt.node, attempt.times, result));
    }
    match result {
        Ok(response) => {
            let result = OriginResult::Status(response.response.status);
            record.note(event(&response.node, response.times, result));
        }
        Err(error) => match &error.kind {
            UpstreamErrorKind::Node {
                node,
                failure,
                times,
            } => {
                let cause = failure.cause.to_string();
                let result = OriginResult::failed(failure.phase.as_str(), cause);
                record.note(event(node, *times, result));
            }
            kind => record.note(RequestEvent::decided(
                "upstream",
                super::error_response::cause(kind),
            )),
        },
    }
}

fn event(node: &Rc<NodeLabel>, times: AttemptTimes, result: OriginResult) -> RequestEvent {
    RequestEvent::Attempt(Box::new(OriginAttempt {
        node: Arc::clone(&node.name),
        address: Arc::clone(&node.address),
        began: times.began,
        connect: times.connect,
        took: times.took,
        result,
    }))
}
