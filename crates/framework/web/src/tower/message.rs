//! Conversion of requests and responses between Apus and the `http` crate.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use apus_http::{
    Body, ConnectionInfo, Frame, Headers, Peer, Request, RequestParts, Response, StatusCode, Target,
};
use http::{HeaderValue, Uri, header};

use super::BoxError;
use super::body::HttpBodyStream;

/// The longest body, in bytes, that is polled once before the response is sent. If it is complete, head and
/// body are sent in one write.
const SMALL: u64 = 64 * 1024;

/// The `http` request of a request. Its extensions include the peer and the extensions of layers.
///
/// # Errors
/// The `http` crate does not accept the target.
pub(super) fn request_to<B>(
    request: Request,
    convert_body: impl FnOnce(Body) -> B,
) -> Result<http::Request<B>, http::Error> {
    let authority = request.authority().map(str::to_owned);
    let client = request.client().peer();
    let accepts_trailers = request.accepts_trailers();
    let RequestParts {
        method,
        target,
        version,
        headers,
        body,
        extensions,
        ..
    } = request.into_parts();
    let mut made = http::Request::builder()
        .method(method)
        .uri(target.path_and_query().parse::<Uri>()?)
        .version(version)
        .body(convert_body(body))?;
    *made.headers_mut() = headers.to_header_map();
    if let (false, Some(authority)) = (made.headers().contains_key(header::HOST), authority)
        && let Ok(authority) = authority.parse()
    {
        made.headers_mut().insert(header::HOST, authority);
    }
    if accepts_trailers {
        // gRPC services reject requests without it.
        made.headers_mut()
            .insert(header::TE, HeaderValue::from_static("trailers"));
    }
    *made.extensions_mut() = extensions.into();
    made.extensions_mut().insert(client);
    Ok(made)
}

/// The request of an `http` request.
///
/// # Errors
/// The target is not valid.
pub(super) fn request_from<B>(request: http::Request<B>) -> Result<Request, StatusCode>
where
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    let (parts, body) = request.into_parts();
    let target = Target::parse(&parts.method, &parts.uri.to_string())
        .map_err(|_| StatusCode::BAD_REQUEST)?;
    let peer = parts.extensions.get::<Peer>().copied();
    let peer = peer.or_else(|| parts.extensions.get::<SocketAddr>().copied().map(Peer::Ip));
    let body = if body.is_end_stream() {
        Body::Empty
    } else {
        Body::stream(HttpBodyStream(Box::pin(body)))
    };
    Ok(Request::new(RequestParts {
        method: parts.method,
        target,
        version: parts.version,
        headers: Headers::from(&parts.headers),
        body,
        connection: Rc::new(ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id: 0,
            peer: peer.unwrap_or(Peer::Unix),
            local: Peer::Unix,
            tls: None,
        }),
        extensions: parts.extensions.into(),
    }))
}

/// The `http` response of a response.
pub(super) fn response_to<B>(
    mut response: Response,
    convert_body: impl FnOnce(Body) -> B,
) -> http::Response<B> {
    // What gets it does not know of the origin.
    response.remove_internal_of_origin();
    let body = convert_body(response.take_body());
    let mut made = http::Response::new(body);
    *made.status_mut() = response.status();
    *made.headers_mut() = response.headers().to_header_map();
    made
}

/// The response of an `http` response.
pub(super) async fn response_from<B>(response: http::Response<B>) -> Response
where
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    let (parts, body) = response.into_parts();
    let mut made = Response::new(parts.status);
    *made.headers_mut() = Headers::from(&parts.headers);
    for name in CONNECTION {
        made.headers_mut().remove(name);
    }
    made.with_body(body_in_memory(HttpBodyStream(Box::pin(body))).await)
}

/// Fields of the connection, which Apus writes itself.
const CONNECTION: [&str; 3] = ["connection", "keep-alive", "transfer-encoding"];

/// The body in memory if it is short and complete, else the stream.
async fn body_in_memory<B>(mut stream: HttpBodyStream<B>) -> Body
where
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    use apus_http::BodyStream as _;
    match stream.remaining() {
        Some(0) => return Body::Empty,
        Some(len) if len <= SMALL => {}
        _ => return Body::stream(stream),
    }
    let first = poll_fn(|cx| match stream.poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(frame),
        Poll::Pending => Poll::Ready(None),
    });
    match first.await {
        Some(Ok(Frame::Data(bytes))) if stream.remaining() == Some(0) => bytes.into(),
        Some(first) => Body::stream(PeekedBody {
            first: Some(first),
            stream,
        }),
        None => Body::stream(stream),
    }
}

/// A stream whose first frame was taken.
struct PeekedBody<B> {
    first: Option<Result<Frame, apus_http::BodyError>>,
    stream: HttpBodyStream<B>,
}

impl<B> apus_http::BodyStream for PeekedBody<B>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    fn poll_frame(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame, apus_http::BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.stream.poll_frame(cx),
        }
    }

    fn remaining(&self) -> Option<u64> {
        let first = match &self.first {
            Some(Ok(Frame::Data(bytes))) => bytes.len() as u64,
            _ => 0,
        };
        Some(self.stream.remaining()?.saturating_add(first))
    }
}
