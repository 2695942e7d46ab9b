//! Functions that attributes call so that the compiler checks each argument of a handler.

use crate::websocket::WebSocket;
use apus_handler::extract::{FromRequest, FromRequestHead};
use apus_handler::function::BodyMarker;
use apus_handler::respond::{IntoAnswer, IntoResponse};

/// An argument that is not the last one.
pub fn head<T: FromRequestHead>() {}

/// An argument that reads the content.
pub fn content<T: FromRequest>() {}

/// The last argument, of either kind.
pub fn last<T: HandlerArgument<Marker>, Marker>() {}

/// What an `async` handler returns.
pub fn response<T: IntoResponse>() {}

/// What a handler that is not `async` returns.
pub fn answer<T: IntoAnswer<Marker>, Marker>() {}

/// The first argument of what runs a WebSocket.
pub fn socket<T: SocketArgument>() {}

/// What a handler can take as its last argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "a handler cannot take this",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the content: `Json`, `Form`, `String`, \
            `Bytes` or `Request`; a type of your own can implement `FromRequestHead` or `FromRequest`"
)]
pub trait HandlerArgument<Marker> {}

/// Marks what is taken from the head.
#[derive(Debug)]
pub enum HeadMarker {}

impl<T: FromRequestHead> HandlerArgument<HeadMarker> for T {}

impl<T: FromRequest> HandlerArgument<BodyMarker> for T {}

/// The socket that a `#[ws]` function runs.
#[diagnostic::on_unimplemented(
    message = "the first argument of what runs a WebSocket is the `WebSocket`, not `{Self}`",
    label = "write `socket: WebSocket` before this"
)]
pub trait SocketArgument {}

impl SocketArgument for WebSocket {}
