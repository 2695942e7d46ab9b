//! Layers and the extractors that go with them, over real connections.

mod bodies;
mod certificates;
mod client;
mod cookies;
mod cors;
mod etags;
mod limits;
mod logs;
mod metrics;
mod panics;
mod proxies;
mod security;
mod statics;
mod uploads;

use apus::App;

use self::client::{Client, Reply};
use crate::websocket::Server;

/// The answer to one request over a connection of its own.
pub(crate) fn ask(app: App, request: &str) -> Reply {
    let server = Server::start(app);
    Client::connect(server.address()).ask(request)
}

/// The answer to a GET with these lines over a connection of its own.
pub(crate) fn get(app: App, path: &str, lines: &[&str]) -> Reply {
    ask(app, &head("GET", path, lines))
}

/// A request without content.
pub(crate) fn head(method: &str, path: &str, lines: &[&str]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: example.com\r\n");
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text
}
