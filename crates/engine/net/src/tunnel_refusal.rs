//! The responses of services that would begin a tunnel and have none.

use apus_codec::messages::RequestKind;
use apus_http::{Response, StatusCode};

/// Replaces a response without a tunnel to a request of this kind, if to the client its status would begin one. What the client
/// sends next would be meant for the tunnel, and read as requests.
#[inline]
pub(crate) fn refuse_without_tunnel(response: &mut Response, kind: RequestKind) {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        tracing::error!("a service responded 101 without a tunnel; sent a 500");
        *response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
    } else if kind.begins_tunnel(status) {
        tracing::error!("a service accepted CONNECT without a tunnel; sent a 500");
        *response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
    } else if kind.begins_tunnel_over_stream(status) {
        // The service does not know the protocol, and responded as to a GET.
        *response = Response::new(StatusCode::NOT_IMPLEMENTED);
    }
}
