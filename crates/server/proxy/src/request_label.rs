//! The request in log lines about origins: site, host, path, client and id.

use std::fmt;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_http::{
    Body, BodyError, BodyStream, Frame, Request, RequestEvent, RequestId, RequestRecord,
};

/// What log lines say of a request. Values that a client sent consist of visible characters, and are written in quotes.
#[derive(Clone, Debug)]
pub(super) struct RequestLabel {
    pub(super) host: Box<str>,
    /// The path that the client sent.
    pub(super) path: Box<str>,
    pub(super) client: ClientLabel,
    /// The id of the request, as in the access log.
    pub(super) id: RequestId,
}

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLabel(Option<IpAddr>);

impl RequestLabel {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            host: request.host().unwrap_or_default().into(),
            path: request.original_target().path().into(),
            client: ClientLabel(request.client().ip),
            id: request.id(),
        }
    }
}

impl fmt::Display for ClientLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("unix"),
        }
    }
}

/// Calls `report` if a body breaks off. Its end is noted in the record of its request.
pub(super) fn reported(
    body: Body,
    record: Option<RequestRecord>,
    report: impl FnOnce(&BodyError) + 'static,
) -> Body {
    match body {
        Body::Stream(inner) => Body::stream(ReportedBody {
            inner,
            record,
            report: Some(report),
        }),
        // The body is complete.
        whole => whole,
    }
}

struct ReportedBody<R> {
    inner: Box<dyn BodyStream>,
    /// `None` once the body has ended.
    record: Option<RequestRecord>,
    report: Option<R>,
}

impl<R: FnOnce(&BodyError)> BodyStream for ReportedBody<R> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.inner.poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = &polled
            && let Some(report) = self.report.take()
        {
            report(error);
        }
        if let Poll::Ready(None | Some(Err(_))) = &polled
            && let Some(record) = self.record.take()
        {
            record.note(RequestEvent::OriginBody {
                at: Instant::now(),
                is_complete: matches!(polled, Poll::Ready(None)),
            });
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }
}
