//! hyper as the oracle: what both read has to be equal, and what it refuses has to be refused.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use apus_codec::h1::{BodyFraming, Event, ServerConnection};
use apus_http::{Headers, HopByHop, ResponseHead, StatusCode, Version};
use apus_testkit::cases;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::rt::ReadBufCursor;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::properties::{Generated, nearly_valid, request};
use crate::transcript::{DATE, LIMITS, Transcript};

/// A tokio stream as hyper wants it.
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

/// No content.
pub(crate) struct Nothing;

impl Body for Nothing {
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

/// A request that was read whole, in a form that both can be brought into.
#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    /// Authority, then path and query.
    target: (String, String),
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
}

impl Seen {
    fn new<'a>(
        method: &str,
        target: (&str, &str),
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        content: Vec<u8>,
    ) -> Self {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.try_append(name, value).unwrap();
        }
        // An absolute form may have an empty path, which is `/` (RFC 9110 section 4.2.3), and with OPTIONS
        // and no query `*` (RFC 9112 section 3.2.4): hyper leaves that to its user.
        let path = match target.1 {
            "" | "/" if method == "OPTIONS" => "*".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        // Those about the connection are not among the fields of a message here.
        HopByHop::take(&mut headers, Version::HTTP_11);
        let mut fields: Vec<_> = headers
            .iter()
            // Of an absolute target we write the authority into `Host`.
            .filter(|(name, _)| *name != "host")
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        // hyper keeps no order between names.
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            method: method.to_owned(),
            target: (target.0.to_owned(), path),
            fields,
            content,
        }
    }
}

/// Bytes that hyper refuses in a path or a query, for RFC 3986 does not have them there. Browsers send
/// them unencoded, and nobody takes them for the end of a target.
const EXPLAINED: [char; 4] = ['"', '<', '>', '`'];

impl Seen {
    fn is_explained(&self) -> bool {
        self.target.1.contains(EXPLAINED)
    }
}

pub(crate) async fn collect(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut content = Vec::new();
    let mut body = pin!(&mut body);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Some(data) = frame?.data_ref() {
            content.extend_from_slice(data);
        }
    }
    Ok(content)
}

/// The requests that hyper reads from a connection of these bytes.
fn by_hyper(input: &[u8]) -> Vec<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = hyper::service::service_fn({
        let seen = seen.clone();
        move |request: hyper::Request<Incoming>| {
            let seen = seen.clone();
            async move {
                let (parts, body) = request.into_parts();
                if let Ok(content) = collect(body).await {
                    seen.lock().unwrap().push(Seen::new(
                        parts.method.as_str(),
                        (
                            parts.uri.authority().map_or("", |it| it.as_str()),
                            parts.uri.path_and_query().map_or("", |it| it.as_str()),
                        ),
                        parts
                            .headers
                            .iter()
                            .map(|(name, value)| (name.as_str(), value.as_bytes())),
                        content,
                    ));
                }
                Ok::<_, Infallible>(hyper::Response::new(Nothing))
            }
        }
    });
    runtime().block_on(async {
        let (mut client, server) = tokio::io::duplex(input.len().max(1) + 64 * 1024);
        client.write_all(input).await.unwrap();
        client.shutdown().await.unwrap();
        // An error is what the oracle was asked for, too.
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

/// The requests that we read from a connection of these bytes.
fn by_us(input: &[u8]) -> Vec<Seen> {
    Transcript::of([input])
        .requests
        .into_iter()
        .filter(|request| request.complete)
        .map(|request| {
            Seen::new(
                request.head.head.method.as_str(),
                (
                    request.head.head.target.authority().unwrap_or_default(),
                    request.head.head.target.path_and_query(),
                ),
                request.head.head.headers.iter(),
                request.content,
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn reads_valid_requests_as_hyper_does(
        requests in prop::collection::vec(request(), 1..4),
    ) {
        let input: Vec<u8> = requests.iter().flat_map(Generated::bytes).collect();
        let ours = by_us(&input);
        prop_assert_eq!(ours.len(), requests.len());
        prop_assert_eq!(ours, by_hyper(&input));
    }

    /// What we read, hyper reads too, in the same way: of input that is nearly valid, and of valid
    /// input in which some bytes were changed.
    #[test]
    fn reads_nothing_that_hyper_refuses(
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
        let ours = by_us(&input);
        if ours.iter().any(Seen::is_explained) {
            return Ok(());
        }
        let theirs = by_hyper(&input);
        prop_assert!(
            ours.len() <= theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| a == b),
            "{}\nours: {:?}\nhyper: {:?}",
            input.escape_ascii(), ours, theirs
        );
    }

    /// hyper as a client reads what the server writes.
    #[test]
    fn writes_answers_that_hyper_reads(
        method in "GET|HEAD|POST",
        status in prop::sample::select(vec![200_u16, 204, 205, 206, 304, 404, 418, 500, 599]),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        is_length_known in any::<bool>(),
        closes in any::<bool>(),
    ) {
        let answer = Answer { status, pieces, is_length_known, closes };
        let (found, fields, content) = runtime().block_on(answer.read_by_hyper(&method));
        prop_assert_eq!(found, status);
        prop_assert_eq!(fields.get("x"), Some(&b"y"[..]));
        prop_assert_eq!(fields.get("date"), Some(&DATE[..]));
        prop_assert_eq!(fields.get("connection").is_some(), closes);
        let has_content = method != "HEAD" && ![204, 205, 304].contains(&status);
        let expected = if has_content { answer.pieces.concat() } else { Vec::new() };
        prop_assert_eq!(content, expected);
    }
}

struct Answer {
    status: u16,
    pieces: Vec<Vec<u8>>,
    is_length_known: bool,
    closes: bool,
}

impl Answer {
    async fn read_by_hyper(&self, method: &str) -> (u16, Headers, Vec<u8>) {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Io(client))
            .await
            .unwrap();
        let request = hyper::Request::builder()
            .method(method)
            .uri("/")
            .header("host", "a")
            .body(Nothing)
            .unwrap();
        let exchange = async {
            let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
            let content = collect(body).await.unwrap();
            (
                parts.status.as_u16(),
                Headers::from(&parts.headers),
                content,
            )
        };
        tokio::select! {
            biased;
            read = exchange => read,
            _ = async { tokio::join!(connection, self.send(server)) } => unreachable!(),
        }
    }

    /// Answers one request, then waits without end.
    async fn send(&self, mut stream: DuplexStream) {
        let mut connection = ServerConnection::new(LIMITS);
        let mut input = Vec::new();
        loop {
            let (consumed, event) = connection.handle_input(&input).unwrap();
            input.drain(..consumed);
            if matches!(event, Event::Request(_)) {
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
