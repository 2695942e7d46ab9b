//! Functions that attributes call so that the compiler checks each argument of a handler.

use crate::websocket::WebSocket;
use apus_handler::arguments::HandlerArgument;
use apus_handler::extract::{FromRequest, FromRequestHead};
use apus_handler::respond::{IntoResponse, IntoResponseFuture};

/// An argument that is not the last one.
pub fn head<T: FromRequestHead>() {}

/// An argument that reads the body.
pub fn body<T: FromRequest>() {}

/// The last argument, of either kind.
pub fn last<T: HandlerArgument<Marker>, Marker>() {}

/// An argument of a function that runs on another thread, or what it returns.
pub fn sent<T: SentValue>() {}

/// A value that goes to another thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent to another thread",
    label = "a handler that blocks runs on another thread"
)]
pub trait SentValue {}

impl<T: Send + 'static> SentValue for T {}

/// The return type of an `async` handler.
pub fn response<T: IntoResponse>() {}

/// The return type of a handler that is not `async`.
pub fn returned<T: IntoResponseFuture<Marker>, Marker>() {}

/// The first argument of a `#[ws]` function.
pub fn socket<T: SocketArgument>() {}

/// The first argument of a `#[ws]` function.
#[diagnostic::on_unimplemented(
    message = "the first argument of what runs a WebSocket is the `WebSocket`, not `{Self}`",
    label = "write `socket: WebSocket` before this"
)]
pub trait SocketArgument {}

impl SocketArgument for WebSocket {}
