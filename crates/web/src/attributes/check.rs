//! Functions that attributes call so that the compiler checks each argument of a handler.

use crate::websocket::WebSocket;
use apus_handler::extract::{FromRequest, FromRequestHead};
use apus_handler::function::BodyMarker;
use apus_handler::respond::{IntoResponse, IntoResponseFuture};

/// An argument that is not the last one.
pub fn head<T: FromRequestHead>() {}

/// An argument that reads the body.
pub fn body<T: FromRequest>() {}

/// The last argument, of either kind.
pub fn last<T: HandlerArgument<Marker>, Marker>() {}

/// The return type of an `async` handler.
pub fn response<T: IntoResponse>() {}

/// The return type of a handler that is not `async`.
pub fn returned<T: IntoResponseFuture<Marker>, Marker>() {}

/// The first argument of a `#[ws]` function.
pub fn socket<T: SocketArgument>() {}

/// A type that a handler can take as its last argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "a handler cannot take this",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`; a type of your own can implement `FromRequestHead` or `FromRequest`"
)]
pub trait HandlerArgument<Marker> {}

/// Marks an argument that is read from the head of a request.
#[derive(Debug)]
pub enum HeadMarker {}

impl<T: FromRequestHead> HandlerArgument<HeadMarker> for T {}

impl<T: FromRequest> HandlerArgument<BodyMarker> for T {}

/// The first argument of a `#[ws]` function.
#[diagnostic::on_unimplemented(
    message = "the first argument of what runs a WebSocket is the `WebSocket`, not `{Self}`",
    label = "write `socket: WebSocket` before this"
)]
pub trait SocketArgument {}

impl SocketArgument for WebSocket {}
