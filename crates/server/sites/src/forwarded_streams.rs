//! Ending what banned clients have open behind trusted proxies: tunnels, and responses without an end.
//!
//! The connection is that of a proxy, which has other clients, so the engine does not close it.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use apus_access::Bans;
use apus_http::{Body, BodyError, BodyStream, Duplex, Frame, Response};

/// The length from which a response may take so long that a ban ends it.
const LONG: u64 = 1024 * 1024;

/// Ends with the ban of a client.
type UntilBanned = Pin<Box<dyn Future<Output = ()>>>;

/// A response that ends when its client is banned, if it is a tunnel or a long stream.
pub(crate) fn until_banned(mut response: Response, bans: Arc<Bans>, client: IpAddr) -> Response {
    if let Some(tunnel) = response.take_tunnel() {
        response.set_tunnel(Box::new(move |duplex| {
            tunnel(Box::new(ForwardedTunnel {
                duplex,
                banned: Some(Box::pin(bans.until_banned(client))),
            }))
        }));
        return response;
    }
    // Files leave by `sendfile`, and end by themselves.
    let is_long =
        |body: &Body| matches!(body, Body::Stream(_)) && body.len().is_none_or(|len| len > LONG);
    if is_long(response.body()) {
        let body = response.take_body();
        *response.body_mut() = Body::stream(ForwardedStream {
            body,
            banned: Box::pin(bans.until_banned(client)),
        });
    }
    response
}

/// The body of a long response.
struct ForwardedStream {
    body: Body,
    banned: UntilBanned,
}

impl BodyStream for ForwardedStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.banned.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(BodyError::Source("its client is banned".into()))));
        }
        self.body.poll_frame(cx)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.len()
    }

    fn waits_for_window(&self) -> bool {
        match &self.body {
            Body::Stream(stream) => stream.waits_for_window(),
            _ => false,
        }
    }
}

/// The connection of a tunnel.
struct ForwardedTunnel {
    duplex: Box<dyn Duplex>,
    /// `None` once the client is banned.
    banned: Option<UntilBanned>,
}

impl ForwardedTunnel {
    fn open(&mut self) -> io::Result<&mut dyn Duplex> {
        match self.banned {
            Some(_) => Ok(&mut *self.duplex),
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Duplex for ForwardedTunnel {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(banned) = &mut self.banned
            && banned.as_mut().poll(cx).is_ready()
        {
            self.banned = None;
        }
        self.open()?.poll_read(cx, buffer)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.duplex.poll_shutdown(cx)
    }

    fn undelivered(&self) -> u64 {
        self.duplex.undelivered()
    }
}
