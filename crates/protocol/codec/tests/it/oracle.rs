//! Compares the server's end with hyper: both have to parse the same requests, and reject the same ones.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use apus_codec::h1::{BodyFraming, Http1ServerEvent, ServerConnection};
use apus_http::{Headers, HopByHopFields, ResponseHead, StatusCode, Version};
use apus_testkit::cases;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::rt::ReadBufCursor;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::properties::{GeneratedRequest, nearly_valid, request};
use crate::transcript::{DATE, LIMITS, Transcript};

/// A tokio stream with hyper's I/O traits.
pub(crate) struct Io(pub(crate) DuplexStream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = [0; 4096];
        let room = cursor.remaining().min(bytes.len());
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// An empty body.
pub(crate) struct EmptyBody;

impl Body for EmptyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

/// A complete request in a form that both can be converted to.
#[derive(Debug, PartialEq)]
struct ParsedRequest {
    method: String,
    /// Authority, then path and query.
    target: (String, String),
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl ParsedRequest {
    fn new<'a>(
        method: &str,
        target: (&str, &str),
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        body: Vec<u8>,
    ) -> Self {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.try_append(name, value).unwrap();
        }
        // An absolute form may have an empty path, which is `/` (RFC 9110 section 4.2.3), and with OPTIONS
        // and no query `*` (RFC 9112 section 3.2.4): hyper leaves this conversion to its user.
        let path = match target.1 {
            "" | "/" if method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        // The codec removes connection-specific fields.
        HopByHopFields::take(&mut headers, Version::HTTP_11);
        let mut fields: Vec<_> = headers
            .iter()
            // The codec replaces `Host` by the authority of an absolute target.
            .filter(|(name, _)| *name != "host")
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        // hyper keeps no order between names.
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            method: method.to_owned(),
            target: (target.0.to_owned(), path),
            fields,
            body,
        }
    }
}

/// Bytes that hyper rejects in a path or a query, because RFC 3986 does not allow them. Browsers send them
/// unencoded, and no parser takes them for the end of a target.
const DIFFERENT_IN_HYPER: [char; 4] = ['"', '<', '>', '`'];

/// Whether a line ends with a later minor version, which hyper rejects. RFC 9110 section 2.5 has a server serve it as the
/// highest version that it knows.
fn has_later_version(input: &[u8]) -> bool {
    let mut ends = input.windows(9);
    ends.any(|end| {
        matches!(
            end,
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', _]
        )
    })
}

impl ParsedRequest {
    fn is_known_difference(&self) -> bool {
        self.target.1.contains(DIFFERENT_IN_HYPER)
    }
}

pub(crate) async fn collect(mut incoming: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut body = Vec::new();
    let mut incoming = pin!(&mut incoming);
    while let Some(frame) = poll_fn(|cx| incoming.as_mut().poll_frame(cx)).await {
        if let Some(data) = frame?.data_ref() {
            body.extend_from_slice(data);
        }
    }
    Ok(body)
}

/// The requests that hyper parses from these bytes.
fn by_hyper(input: &[u8]) -> Vec<ParsedRequest> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = hyper::service::service_fn({
        let seen = seen.clone();
        move |request: hyper::Request<Incoming>| {
            let seen = seen.clone();
            async move {
                let (parts, body) = request.into_parts();
                if let Ok(body) = collect(body).await {
                    seen.lock().unwrap().push(ParsedRequest::new(
                        parts.method.as_str(),
                        (
                            parts.uri.authority().map_or("", |it| it.as_str()),
                            parts.uri.path_and_query().map_or("", |it| it.as_str()),
                        ),
                        parts
                            .headers
                            .iter()
                            .map(|(name, value)| (name.as_str(), value.as_bytes())),
                        body,
                    ));
                }
                Ok::<_, Infallible>(hyper::Response::new(EmptyBody))
            }
        }
    });
    runtime().block_on(async {
        let (mut client, server) = tokio::io::duplex(input.len().max(1) + 64 * 1024);
        client.write_all(input).await.unwrap();
        client.shutdown().await.unwrap();
        // An error is a valid result of the comparison.
        let _ = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(Io(server), service)
            .await;
    });
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// The requests that the codec parses from these bytes.
fn by_codec(input: &[u8]) -> Vec<ParsedRequest> {
    Transcript::of([input])
        .requests
        .into_iter()
        .filter(|request| request.complete)
        .map(|request| {
            ParsedRequest::new(
                request.head.head.method.as_str(),
                (
                    request.head.head.target.authority().unwrap_or_default(),
                    request.head.head.target.path_and_query(),
                ),
                request.head.head.headers.iter(),
                request.body,
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn parses_valid_requests_like_hyper(
        requests in prop::collection::vec(request(), 1..4),
    ) {
        let input: Vec<u8> = requests.iter().flat_map(GeneratedRequest::bytes).collect();
        let ours = by_codec(&input);
        prop_assert_eq!(ours.len(), requests.len());
        prop_assert_eq!(ours, by_hyper(&input));
    }

    /// hyper parses every request that the codec parses, with the same result, from nearly valid input
    /// and from valid input with some changed bytes.
    #[test]
    fn accepts_no_request_that_hyper_rejects(
        input in prop_oneof![
            nearly_valid(),
            (request(), prop::collection::vec((any::<usize>(), any::<u8>()), 1..4)).prop_map(
                |(request, changes)| {
                    let mut input = request.bytes();
                    for (at, byte) in changes {
                        let at = at % input.len();
                        input[at] = byte;
                    }
                    input
                }
            ),
        ],
    ) {
        let ours = by_codec(&input);
        if ours.iter().any(ParsedRequest::is_known_difference) || has_later_version(&input) {
            return Ok(());
        }
        let theirs = by_hyper(&input);
        prop_assert!(
            ours.len() <= theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| a == b),
            "{}\nours: {:?}\nhyper: {:?}",
            input.escape_ascii(), ours, theirs
        );
    }

    /// hyper as a client parses the responses of the codec.
    #[test]
    fn writes_responses_that_hyper_reads(
        method in "GET|HEAD|POST",
        status in prop::sample::select(vec![200_u16, 204, 205, 206, 304, 404, 418, 500, 599]),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        is_length_known in any::<bool>(),
        closes in any::<bool>(),
    ) {
        let response = GeneratedResponse { status, pieces, is_length_known, closes };
        let (found, fields, body) = runtime().block_on(response.read_by_hyper(&method));
        prop_assert_eq!(found, status);
        prop_assert_eq!(fields.get("x"), Some(&b"y"[..]));
        prop_assert_eq!(fields.get("date"), Some(&DATE[..]));
        prop_assert_eq!(fields.get("connection").is_some(), closes);
        let has_body = method != "HEAD" && ![204, 205, 304].contains(&status);
        let expected = if has_body { response.pieces.concat() } else { Vec::new() };
        prop_assert_eq!(body, expected);
    }
}

struct GeneratedResponse {
    status: u16,
    pieces: Vec<Vec<u8>>,
    is_length_known: bool,
    closes: bool,
}

impl GeneratedResponse {
    async fn read_by_hyper(&self, method: &str) -> (u16, Headers, Vec<u8>) {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Io(client))
            .await
            .unwrap();
        let request = hyper::Request::builder()
            .method(method)
            .uri("/")
            .header("host", "a")
            .body(EmptyBody)
            .unwrap();
        let exchange = async {
            let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
            let body = collect(body).await.unwrap();
            (parts.status.as_u16(), Headers::from(&parts.headers), body)
        };
        tokio::select! {
            biased;
            read = exchange => read,
            _ = async { tokio::join!(connection, self.send(server)) } => unreachable!(),
        }
    }

    /// Responds to one request, then waits forever.
    async fn send(&self, mut stream: DuplexStream) {
        let mut connection = ServerConnection::new(LIMITS);
        let mut input = Vec::new();
        loop {
            let (consumed, event) = connection.handle_input(&input).unwrap();
            input.drain(..consumed);
            if matches!(event, Http1ServerEvent::Request(_)) {
                break;
            }
            stream.read_buf(&mut input).await.unwrap();
        }
        if self.closes {
            connection.close();
        }
        let mut headers = Headers::new();
        headers.try_append("x", "y").unwrap();
        let length = self.pieces.concat().len() as u64;
        let head = ResponseHead {
            status: StatusCode::from_u16(self.status).unwrap(),
            headers: &headers,
            content_length: self.is_length_known.then_some(length),
            date: DATE,
            server: None,
            alt_svc: None,
        };
        let mut out = Vec::new();
        if connection.send_head(head, &mut out) != BodyFraming::None {
            for piece in &self.pieces {
                connection.send_chunk_start(piece.len(), &mut out);
                out.extend(piece);
                connection.send_chunk_end(&mut out);
            }
        }
        connection.send_end(None, &mut out);
        assert_eq!(connection.keeps_alive(), !self.closes);
        stream.write_all(&out).await.unwrap();
        std::future::pending().await
    }
}
