//! Functions that attributes call so that the compiler checks each argument of a handler.

/// An argument of a function that runs on another thread, or what it returns.
pub fn sent<T: SentValue>() {}

/// A value that goes to another thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent to another thread",
    label = "a handler that blocks runs on another thread"
)]
pub trait SentValue {}

impl<T: Send + 'static> SentValue for T {}

/// The first argument of a `#[ws]` function.
pub fn socket<T: SocketArgument>() {}

/// The first argument of a `#[ws]` function.
#[diagnostic::on_unimplemented(
    message = "the first argument of what runs a WebSocket is the `WebSocket`, not `{Self}`",
    label = "write `socket: WebSocket` before this"
)]
pub trait SocketArgument {}

#[cfg(feature = "websocket")]
impl SocketArgument for crate::websocket::WebSocket {}
