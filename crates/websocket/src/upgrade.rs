//! From a request to a socket.

use std::future::Future;

use crate::codec::{Connection, Handshake, InvalidHandshake, Settings};
use apus_http::{Request, Response, StatusCode};

use super::origin::{Origins, Page};
use super::state::Shared;
use super::{WebSocket, WebSocketSettings, driver};

/// A request for a WebSocket connection: an argument of a handler, which it turns into a socket by
/// [`WebSocketUpgrade::run`].
///
/// Other requests are answered 426, and those that break RFC 6455 are refused. Scripts of other
/// sites get 403 unless [`WebSocketUpgrade::origins`] says otherwise.
#[derive(Clone, Debug)]
pub struct WebSocketUpgrade {
    handshake: Handshake,
    page: Page,
    /// The values of `Sec-WebSocket-Extensions`.
    extensions: Vec<Box<[u8]>>,
    origins: Origins,
    protocols: Vec<String>,
    settings: WebSocketSettings,
}

impl WebSocketUpgrade {
    /// Reads a request, for code that has no extractors.
    ///
    /// # Errors
    /// It does not ask for a WebSocket connection as RFC 6455 or RFC 8441 have it.
    pub fn of(request: &Request) -> Result<Self, InvalidHandshake> {
        let extensions = request.headers().get_all("sec-websocket-extensions");
        Ok(Self {
            handshake: Handshake::of(request)?,
            page: Page::of(request),
            extensions: extensions.map(Box::from).collect(),
            origins: Origins::default(),
            protocols: Vec::new(),
            settings: WebSocketSettings::default(),
        })
    }

    /// Which pages may open a socket; those of the same origin, unless this is called.
    #[must_use]
    pub fn origins(mut self, origins: Origins) -> Self {
        self.origins = origins;
        self
    }

    /// The subprotocols that the handler speaks. Of these the client gets the one it likes best, or
    /// none (see [`WebSocket::protocol`]).
    #[must_use]
    pub fn protocols(mut self, protocols: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.protocols = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// What the socket is bound by.
    #[must_use]
    pub fn settings(mut self, settings: WebSocketSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The response to a page that may not open a socket. Whoever does something with the cookies of
    /// the request before [`WebSocketUpgrade::run`] asks this first.
    pub fn refusal(&self) -> Option<Response> {
        if self.page.is_among(&self.origins) {
            return None;
        }
        tracing::debug!(page = ?self.page, "refused a WebSocket of another site");
        Some(Response::text(
            StatusCode::FORBIDDEN,
            "pages of other sites may not open WebSocket connections here\n",
        ))
    }

    /// The answer that opens the connection and then runs `handler` with its socket.
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
            .find(|name| self.protocols.iter().any(|known| known == name))
            .map(Box::<str>::from);
        let (compression, extensions) = self
            .settings
            .compression
            .as_ref()
            .and_then(|offered| offered.accept(self.extensions.iter().map(|line| &**line)))
            .unzip();
        let mut response = self
            .handshake
            .response(protocol.as_deref(), extensions.as_deref());
        let settings = self.settings;
        response.set_tunnel(Box::new(move |duplex| {
            let connection = Connection::server(&Settings {
                max_frame: settings.max_message,
                max_message: settings.max_message,
                compression,
            });
            let shared = Shared::new(connection, settings);
            let task = Box::pin(handler(WebSocket::new(&shared, protocol)));
            Box::pin(driver::run(duplex, shared, task))
        }));
        response
    }
}
