//! Upgrades of a mounted service (RFC 9110 section 7.8).
//!
//! Services take a connection from a `hyper::upgrade::OnUpgrade`, which only hyper can make. So hyper
//! serves such a request over an in-memory connection. A hyper client sends it over the other end, and
//! the upgraded connection is joined with the client's connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::{Duplex, Request, Response, StatusCode, Version};
use hyper::rt::ReadBufCursor;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::body::SendBody;
use super::service::{TowerService, call_when_ready, failed};
use super::{BoxError, message};

/// The size of the buffer of the in-memory connection, in bytes.
const BUFFER: usize = 64 * 1024;

/// Whether a request is for another protocol.
pub(super) fn is_upgrade(request: &Request) -> bool {
    request.upgrade().is_some()
}

/// Responds to a request for another protocol.
pub(super) async fn respond<S: TowerService>(service: S, request: Request) -> Response {
    match exchange(service, request).await {
        Ok(response) => response,
        Err(error) => failed(error),
    }
}

async fn exchange<S: TowerService>(service: S, mut request: Request) -> Result<Response, BoxError> {
    // HTTP/2 has neither field, but extended CONNECT means the same (RFC 8441 section 5).
    let is_http1 = request.version() == Version::HTTP_11;
    let offered = request.upgrade().unwrap_or_default().to_owned();
    request.headers_mut().try_insert("connection", "upgrade")?;
    request.headers_mut().try_insert("upgrade", offered)?;
    if !is_http1 && !request.headers().contains("sec-websocket-key") {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        request.headers_mut().try_insert("sec-websocket-key", key)?;
    }
    let mut request = message::request_to(request, |_| SendBody::empty())?;
    *request.version_mut() = Version::HTTP_11;
    // Extensions are not sent over a connection.
    let extensions = std::mem::take(request.extensions_mut());

    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(|_| SendBody::empty());
        request.extensions_mut().extend(extensions.clone());
        let service = service.clone();
        async move {
            let response = call_when_ready(service, request).await?;
            Ok::<_, BoxError>(response.map(PinnedBody::new))
        }
    });
    tokio::task::spawn_local(async move {
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(HyperIo(theirs), serve)
            .with_upgrades();
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an upgrade of a mounted service failed");
        }
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(HyperIo(ours)).await?;
    tokio::task::spawn_local(async move {
        // The request gets the error of the connection.
        let _ = connection.with_upgrades().await;
    });
    let mut response = sender.send_request(request).await?;
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let upgraded = is_upgraded.then(|| hyper::upgrade::on(&mut response));
    let mut response = message::response_from(response).await;
    if let Some(upgraded) = upgraded {
        if !is_http1 {
            response.headers_mut().remove("sec-websocket-accept");
        }
        response.set_tunnel(Box::new(move |client| {
            Box::pin(async move {
                match upgraded.await {
                    Ok(upgraded) => join(client, upgraded).await,
                    Err(error) => tracing::debug!(%error, "an upgrade failed"),
                }
            })
        }));
    }
    Ok(response)
}

/// Copies bytes in both directions until both ends are closed or a connection is lost.
async fn join(mut client: Box<dyn Duplex>, mut service: hyper::upgrade::Upgraded) {
    let mut inward = CopyDirection::default();
    let mut outward = CopyDirection::default();
    // A lost connection ends both directions.
    let _: io::Result<()> = poll_fn(|cx| {
        let to_service = inward.poll(
            cx,
            |cx, buffer| client.poll_read(cx, buffer),
            &mut ServiceWriter(&mut service),
        );
        if let Poll::Ready(Err(error)) = to_service {
            return Poll::Ready(Err(error));
        }
        let to_client = outward.poll(
            cx,
            |cx, buffer| read(&mut service, cx, buffer),
            &mut ClientWriter(&mut *client),
        );
        match (to_service, to_client) {
            (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            // The service sent all its data.
            (_, Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    })
    .await;
}

fn read(
    service: &mut hyper::upgrade::Upgraded,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = hyper::rt::ReadBuf::new(buffer);
    ready!(hyper::rt::Read::poll_read(
        Pin::new(service),
        cx,
        buffer.unfilled()
    ))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// The writing side of a connection.
trait TunnelWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

struct ServiceWriter<'a>(&'a mut hyper::upgrade::Upgraded);

impl TunnelWriter for ServiceWriter<'_> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        hyper::rt::Write::poll_write(Pin::new(&mut *self.0), cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_flush(Pin::new(&mut *self.0), cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_shutdown(Pin::new(&mut *self.0), cx)
    }
}

struct ClientWriter<'a>(&'a mut dyn Duplex);

impl TunnelWriter for ClientWriter<'_> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(cx)
    }
}

/// One direction of a joined connection.
struct CopyDirection {
    buffer: Vec<u8>,
    /// The range of the buffer that was read and not written yet.
    waiting: std::ops::Range<usize>,
    is_unflushed: bool,
    has_ended: bool,
}

impl Default for CopyDirection {
    fn default() -> Self {
        Self {
            buffer: vec![0; 8 * 1024],
            waiting: 0..0,
            is_unflushed: false,
            has_ended: false,
        }
    }
}

impl CopyDirection {
    /// Copies bytes until nothing is ready. It is ready once the end was written.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Context<'_>, &mut [u8]) -> Poll<io::Result<usize>>,
        to: &mut dyn TunnelWriter,
    ) -> Poll<io::Result<()>> {
        loop {
            while let Some(bytes) = self
                .buffer
                .get(self.waiting.clone())
                .filter(|b| !b.is_empty())
            {
                let written = ready!(to.poll_write(cx, bytes))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.waiting.start = self.waiting.start.saturating_add(written);
                self.is_unflushed = true;
            }
            if self.has_ended {
                return to.poll_shutdown(cx);
            }
            match read(cx, &mut self.buffer) {
                Poll::Ready(read) => {
                    let read = read?;
                    self.waiting = 0..read;
                    self.has_ended = read == 0;
                }
                Poll::Pending => {
                    if self.is_unflushed && to.poll_flush(cx)?.is_ready() {
                        self.is_unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

/// A body that is `Unpin`.
struct PinnedBody<B>(Pin<Box<B>>);

impl<B> PinnedBody<B> {
    fn new(body: B) -> Self {
        Self(Box::pin(body))
    }
}

impl<B: http_body::Body> http_body::Body for PinnedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        self.0.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

/// An in-memory connection with the traits of hyper.
struct HyperIo(DuplexStream);

impl hyper::rt::Read for HyperIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Reads at most the free space of the cursor, then appends the bytes.
        let mut bytes = vec![0; cursor.remaining().min(8 * 1024)];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for HyperIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
