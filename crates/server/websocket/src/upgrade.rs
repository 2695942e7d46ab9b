//! The upgrade of a request to a WebSocket.

use std::future::Future;

use crate::codec::{
    CodecSettings, Compression, DeflateConfig, InvalidHandshake, ServerHandshake,
    WebSocketConnection,
};
use apus_http::{Request, Response, StatusCode};

use super::memory::ContextMemory;
use super::origin::{RequestOrigin, WebSocketOrigins};
use super::state::SharedSocket;
use super::{WebSocket, WebSocketSettings, driver};

/// A request for a WebSocket connection: an argument of a handler, which makes it a socket with
/// [`WebSocketUpgrade::run`].
///
/// The response to other requests is 426, and that to requests that violate RFC 6455 is 400 or 405. Pages of
/// other sites get 403, unless [`WebSocketUpgrade::origins`] allows them.
#[derive(Clone, Debug)]
pub struct WebSocketUpgrade {
    handshake: ServerHandshake,
    request_origin: RequestOrigin,
    /// The values of `Sec-WebSocket-Extensions`.
    extensions: Vec<Box<[u8]>>,
    origins: WebSocketOrigins,
    protocols: Vec<String>,
    settings: WebSocketSettings,
}

impl WebSocketUpgrade {
    /// Reads a request, for code without extractors.
    ///
    /// # Errors
    /// It is not a valid handshake of RFC 6455 or RFC 8441.
    pub fn of(request: &Request) -> Result<Self, InvalidHandshake> {
        let extensions = request.headers().get_all("sec-websocket-extensions");
        Ok(Self {
            handshake: ServerHandshake::of(request)?,
            request_origin: RequestOrigin::of(request),
            extensions: extensions.map(Box::from).collect(),
            origins: WebSocketOrigins::default(),
            protocols: Vec::new(),
            settings: WebSocketSettings::default(),
        })
    }

    /// Sets whose pages may open a socket; by default pages of the same origin.
    #[must_use]
    pub fn origins(mut self, origins: WebSocketOrigins) -> Self {
        self.origins = origins;
        self
    }

    /// Sets the subprotocols of the handler. The connection uses the first one in the client's order that is
    /// among them, or none (see [`WebSocket::protocol`]).
    #[must_use]
    pub fn protocols(mut self, protocols: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.protocols = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the limits, timeouts and compression of the socket.
    #[must_use]
    pub fn settings(mut self, settings: WebSocketSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The response to a page that may not open a socket. Code that uses the cookies of the request before
    /// [`WebSocketUpgrade::run`] must check this first.
    pub fn refusal(&self) -> Option<Response> {
        if self.request_origin.is_allowed_by(&self.origins) {
            return None;
        }
        tracing::debug!(page = ?self.request_origin, "refused a WebSocket of another site");
        Some(Response::text(
            StatusCode::FORBIDDEN,
            "pages of other sites may not open WebSocket connections here\n",
        ))
    }

    /// The compression, its value of `Sec-WebSocket-Extensions`, and the memory for its contexts. Without memory they
    /// are not kept.
    fn accept_compression(&self) -> (Option<DeflateConfig>, Option<String>, Option<ContextMemory>) {
        let Some(ours) = self.settings.compression else {
            return (None, None, None);
        };
        let accept = |ours: Compression| ours.accept(self.extensions.iter().map(|line| &**line));
        let Some((config, response)) = accept(ours) else {
            return (None, None, None);
        };
        match config.context_memory() {
            0 => (Some(config), Some(response), None),
            bytes => match ContextMemory::take(bytes) {
                Some(contexts) => (Some(config), Some(response), Some(contexts)),
                None => {
                    let (config, response) = accept(ours.without_contexts()).unzip();
                    (config, response, None)
                }
            },
        }
    }

    /// The response that opens the connection and then runs `handler` with its socket.
    pub fn run<F, R>(self, handler: F) -> Response
    where
        F: FnOnce(WebSocket) -> R + 'static,
        R: Future<Output = ()> + 'static,
    {
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        let protocol = self
            .handshake
            .protocols()
            .find(|name| self.protocols.iter().any(|protocol| protocol == name))
            .map(Box::<str>::from);
        let (compression, extensions, contexts) = self.accept_compression();
        let mut response = self
            .handshake
            .response(protocol.as_deref(), extensions.as_deref());
        let settings = self.settings;
        response.set_tunnel(Box::new(move |duplex| {
            let connection = WebSocketConnection::server(&CodecSettings {
                max_frame: settings.max_message,
                max_message: settings.max_message,
                compression,
            });
            let shared = SharedSocket::new(connection, settings, contexts);
            let task = Box::pin(handler(WebSocket::new(&shared, protocol)));
            Box::pin(driver::run(duplex, shared, task))
        }));
        response
    }
}
