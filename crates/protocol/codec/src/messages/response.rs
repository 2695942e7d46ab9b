//! Which body and which length follow from the head of a response (RFC 9110 sections 6.4 and 8.6).

use http::StatusCode;

use super::RequestKind;
use crate::request_kind::final_status;
use apus_http::ResponseHead;

/// The body that the caller has to send after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedBody {
    /// No body: the head ended the stream, as for HEAD, 204, 304 and an empty body, or the stream is
    /// closed.
    None,
    /// Data, of exactly this length if one was announced, and an end.
    Data(Option<u64>),
}

/// What is sent of the head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponsePlan {
    /// The status. A 101 in response to an extended CONNECT becomes 200, and the data in both directions is the
    /// tunnel. Any other 1xx status is not final, so 500 replaces it.
    pub status: StatusCode,
    /// The body that follows.
    pub body: ExpectedBody,
    /// The value of `Content-Length`, if it is sent.
    pub content_length: Option<u64>,
    /// Whether the `Content-Length` line of the fields is sent unchanged.
    pub keeps_length: bool,
    /// Whether the fields have `Server`.
    pub has_server: bool,
    /// Whether the fields have `Alt-Svc`.
    pub has_alt_svc: bool,
    /// Whether the fields have `Date`.
    pub has_date: bool,
}

impl ResponsePlan {
    /// What is sent of this head in response to a request of this kind.
    #[inline]
    pub fn of(head: &ResponseHead<'_>, request: RequestKind) -> Self {
        let is_tunnel = request.begins_tunnel(head.status);
        let status = match head.status {
            // HTTP/2 and HTTP/3 have no 101 (RFC 9113 section 8.6, RFC 9114 section 4.5).
            StatusCode::SWITCHING_PROTOCOLS if is_tunnel => StatusCode::OK,
            status => final_status(status, false),
        };
        let summary = head.headers.summary();
        let (body, content_length) = match status {
            _ if is_tunnel => (ExpectedBody::Data(None), None),
            StatusCode::NO_CONTENT => (ExpectedBody::None, None),
            StatusCode::RESET_CONTENT => (ExpectedBody::None, Some(0)),
            StatusCode::NOT_MODIFIED => (ExpectedBody::None, summary.content_length),
            // A service that responds to HEAD without producing the body leaves it empty. That length
            // is not the one that GET would have.
            _ if request == RequestKind::Head => {
                let produced = head.content_length.filter(|length| *length > 0);
                (ExpectedBody::None, summary.content_length.or(produced))
            }
            _ => match head.content_length {
                Some(0) => (ExpectedBody::None, Some(0)),
                length => (ExpectedBody::Data(length), length),
            },
        };
        let keeps_length = summary.is_length_line_kept && summary.content_length == content_length;
        Self {
            status,
            body,
            content_length,
            keeps_length,
            has_server: summary.has_server,
            has_alt_svc: summary.has_alt_svc,
            has_date: summary.has_date,
        }
    }

    /// The value of a `Content-Length` line that is added to the fields.
    pub fn added_length(&self) -> Option<u64> {
        self.content_length.filter(|_| !self.keeps_length)
    }
}
