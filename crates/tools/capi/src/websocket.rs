//! WebSockets: the events of a socket, and what is sent to it.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use apus::websocket::{
    Close, CloseCode, DisconnectReason, Message, Receiver, SendError, Sender, WebSocket,
    WebSocketOrigins, WebSocketSettings, WebSocketUpgrade,
};
use apus::{Handler, Matched, Method, Request, Response, ResponseFuture};
use bytes::Bytes;

use crate::app::{ApusApp, CallbackMarker, path_of};
use crate::callback_name::CallbackName;
use crate::error::{ApusStatus, CallError};
use crate::ffi::{attempt, setup, status};
use crate::handles::{ApusRequest, ApusResponse, HandlerFunction, Handles};
use crate::text::{ApusStr, bytes, optional_name, text};
use crate::user::{ApusDestroyFn, UserData, UserPointer};

/// The kind of a message of a WebSocket.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusMessageKind {
    /// Text in UTF-8.
    Text = 1,
    /// Bytes.
    Binary = 2,
}

/// The functions that are called for a WebSocket, on its worker, one after another. Any may be NULL.
/// Set `size` to sizeof(apus_websocket_events).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ApusWebSocketEvents {
    /// sizeof(apus_websocket_events).
    pub size: usize,
    /// Before the handshake: 0 accepts the request, APUS_RESPOND sends `response` instead, 400 to 599 is an error.
    pub request: Option<
        extern "C" fn(
            request: *mut ApusRequest,
            response: *mut ApusResponse,
            user: *mut c_void,
        ) -> c_int,
    >,
    /// The socket is open. `request` is valid during the call.
    pub open: Option<
        extern "C" fn(socket: *mut ApusWebSocket, request: *mut ApusRequest, user: *mut c_void),
    >,
    /// A message came. `data` is valid during the call.
    pub message: Option<
        extern "C" fn(
            socket: *mut ApusWebSocket,
            kind: ApusMessageKind,
            data: *const c_char,
            len: usize,
            user: *mut c_void,
        ),
    >,
    /// There is room again after apus_websocket_send() returned APUS_FULL.
    pub drained: Option<extern "C" fn(socket: *mut ApusWebSocket, user: *mut c_void)>,
    /// The socket is closed, with the code of the close frame, or 1006 if none came. The last call; the socket is freed
    /// after it.
    pub close: Option<
        extern "C" fn(socket: *mut ApusWebSocket, code: c_int, reason: ApusStr, user: *mut c_void),
    >,
    /// The most bytes of a message (0: 1 MiB).
    pub max_message: usize,
    /// The most bytes that wait for a slow client (0: 256 KiB).
    pub send_buffer: usize,
    /// Milliseconds without a message after which a ping is sent (0: 30,000).
    pub ping_interval_ms: u32,
    /// Milliseconds without a byte after which the socket is closed (0: 75,000).
    pub idle_timeout_ms: u32,
    /// Offers no compression (permessage-deflate).
    pub no_compression: bool,
    /// Accepts pages of all origins. By default, only pages of the same host may open a socket.
    pub any_origin: bool,
    /// Milliseconds in which a message of the client has to be complete, unless it comes at the least rate of the body of a
    /// request (0: 60,000).
    pub message_timeout_ms: u32,
    /// The subprotocols that are offered, separated by commas, in any order; NULL for none.
    pub protocols: *const c_char,
}

/// A WebSocket.
pub struct ApusWebSocket {
    sender: Sender,
    protocol: Option<Box<str>>,
    data: RefCell<Option<UserData>>,
    /// Whether a message was refused, so that the program waits for room.
    wants_room: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    thread: ThreadId,
}

impl ApusWebSocket {
    /// The sender, on the worker of the socket.
    pub(crate) fn sender(&self) -> Result<&Sender, CallError> {
        if self.thread == std::thread::current().id() {
            Ok(&self.sender)
        } else {
            Err(CallError::thread("the worker of the socket"))
        }
    }
}

/// A route for WebSockets.
#[derive(Clone)]
struct WebSocketRoute {
    events: EventFunctions,
    user: UserPointer,
    settings: WebSocketSettings,
    any_origin: bool,
    protocols: Arc<[String]>,
    name: Arc<CallbackName>,
}

#[derive(Clone, Copy)]
struct EventFunctions {
    request: Option<HandlerFunction>,
    open: Option<extern "C" fn(*mut ApusWebSocket, *mut ApusRequest, *mut c_void)>,
    message: Option<
        extern "C" fn(*mut ApusWebSocket, ApusMessageKind, *const c_char, usize, *mut c_void),
    >,
    drained: Option<extern "C" fn(*mut ApusWebSocket, *mut c_void)>,
    close: Option<extern "C" fn(*mut ApusWebSocket, c_int, ApusStr, *mut c_void)>,
}

/// The handler that accepts every request.
extern "C" fn accept(_: *mut ApusRequest, _: *mut ApusResponse, _: *mut c_void) -> c_int {
    0
}

impl Handler<CallbackMarker> for WebSocketRoute {
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        let upgrade = match WebSocketUpgrade::of(&request) {
            Ok(upgrade) => upgrade,
            Err(error) => return matched.rendering(&request).apply(error.response()).into(),
        };
        let handles = Handles::of_route(request, matched, &self.name);
        let asked = self.events.request.unwrap_or(accept);
        let (result, handles) = match handles.ask(asked, self.user, &self.name) {
            Some(asked) => asked,
            None => return Response::new(apus::StatusCode::INTERNAL_SERVER_ERROR).into(),
        };
        let mut handles = handles;
        if result != 0 {
            return handles.finish(result, &self.name).into();
        }
        let mut upgrade = upgrade
            .settings(self.settings.clone())
            .protocols(self.protocols.iter().cloned());
        if self.any_origin {
            upgrade = upgrade.origins(WebSocketOrigins::Any);
        }
        let route = self.clone();
        let response = upgrade.run(move |socket| route.run(socket, handles));
        response.into()
    }
}

impl WebSocketRoute {
    /// Runs the events of a socket.
    async fn run(self, socket: WebSocket, handles: Handles) {
        let protocol = socket.protocol().map(Box::from);
        let (mut receiver, sender) = socket.split();
        let session = SocketSession {
            socket: Rc::new(ApusWebSocket {
                sender,
                protocol,
                data: RefCell::default(),
                wants_room: Cell::new(false),
                waker: RefCell::default(),
                thread: std::thread::current().id(),
            }),
            events: self.events,
            user: self.user,
            last: RefCell::default(),
        };
        let pointer = session.pointer();
        if let Some(open) = self.events.open {
            handles.lend(|request| open(pointer, request, self.user.0));
        } else {
            drop(handles);
        }
        while let Some(event) = session.next(&mut receiver).await {
            match (event, self.events.message, self.events.drained) {
                (SocketEvent::Message(message), Some(function), _) => {
                    let (kind, data): (_, &[u8]) = match &message {
                        Message::Text(text) => (ApusMessageKind::Text, text.as_bytes()),
                        Message::Binary(data) => (ApusMessageKind::Binary, data),
                    };
                    function(pointer, kind, data.as_ptr().cast(), data.len(), self.user.0);
                }
                (SocketEvent::Room, _, Some(function)) => function(pointer, self.user.0),
                _ => {}
            }
        }
        let reason = receiver.disconnect_reason();
        session.last.replace(match reason {
            Some(DisconnectReason::Closed(close)) => close,
            _ => None,
        });
    }
}

enum SocketEvent {
    Message(Message),
    Room,
}

/// A socket with its events; the last event is the end, however that comes.
struct SocketSession {
    socket: Rc<ApusWebSocket>,
    events: EventFunctions,
    user: UserPointer,
    /// The close frame of the client.
    last: RefCell<Option<Close>>,
}

impl SocketSession {
    /// The socket for C, which only reads through the pointer.
    fn pointer(&self) -> *mut ApusWebSocket {
        Rc::as_ptr(&self.socket).cast_mut()
    }

    /// The next event.
    async fn next(&self, receiver: &mut Receiver) -> Option<SocketEvent> {
        poll_fn(|cx| {
            if let Poll::Ready(message) = receiver.poll_recv(cx) {
                return Poll::Ready(message.map(SocketEvent::Message));
            }
            if self.socket.wants_room.get() && self.socket.sender.poll_room(cx).is_ready() {
                self.socket.wants_room.set(false);
                return Poll::Ready(Some(SocketEvent::Room));
            }
            self.socket.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Drop for SocketSession {
    fn drop(&mut self) {
        let last = self.last.take();
        let (code, reason) = match &last {
            Some(close) => (
                close.code().get().into(),
                ApusStr::of(close.reason().as_bytes()),
            ),
            None => (NO_CLOSE_FRAME, ApusStr::ABSENT),
        };
        if let Some(close) = self.events.close {
            close(self.pointer(), code, reason, self.user.0);
        }
    }
}

/// The code of a connection that ended without a close frame (RFC 6455 section 7.4.1).
const NO_CLOSE_FRAME: c_int = 1006;

/// Adds a route for WebSockets. `events` is copied. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_websocket(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    events: Option<&ApusWebSocketEvents>,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_websocket", app, |app| {
        let path = path_of(path)?;
        let events = events.ok_or_else(|| CallError::null("events"))?;
        crate::service::check_size::<ApusWebSocketEvents>(events.size)?;
        let protocols = optional_name(events.protocols, "protocols")?.unwrap_or("");
        let protocols = protocols
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let default = WebSocketSettings::default();
        let milliseconds = |given: u32, default: Duration| match given {
            0 => default,
            given => Duration::from_millis(given.into()),
        };
        let bytes = |given: usize, default: usize| if given == 0 { default } else { given };
        let ping = default.ping_interval.unwrap_or(Duration::from_secs(30));
        let route = WebSocketRoute {
            events: EventFunctions {
                request: events.request,
                open: events.open,
                message: events.message,
                drained: events.drained,
                close: events.close,
            },
            user: UserPointer(user),
            settings: WebSocketSettings {
                max_message: bytes(events.max_message, default.max_message),
                send_buffer: bytes(events.send_buffer, default.send_buffer),
                ping_interval: Some(milliseconds(events.ping_interval_ms, ping)),
                idle_timeout: milliseconds(events.idle_timeout_ms, default.idle_timeout),
                message_timeout: milliseconds(events.message_timeout_ms, default.message_timeout),
                compression: if events.no_compression {
                    None
                } else {
                    default.compression
                },
                ..default
            },
            any_origin: events.any_origin,
            protocols: protocols.map(str::to_owned).collect(),
            name: CallbackName::of(
                events.message.map_or(0, |function| function as usize),
                app.role("the WebSocket", path),
            ),
        };
        app.change(|app| app.route(Method::GET, path, route));
        Ok(())
    })
}

/// A message of C.
pub(crate) fn message_of(
    kind: c_int,
    data: *const c_void,
    len: usize,
) -> Result<Message, CallError> {
    match kind {
        1 => Ok(Message::text(text(data.cast(), len, "data")?.to_owned())),
        2 => Ok(Message::binary(Bytes::copy_from_slice(bytes(data, len)?))),
        other => Err(CallError::invalid(
            "APUS_MESSAGE_TEXT or APUS_MESSAGE_BINARY",
            other.to_string(),
            "pass one of the two as `kind`",
        )),
    }
}

fn known(socket: Option<&ApusWebSocket>) -> Result<&ApusWebSocket, CallError> {
    socket.ok_or_else(|| CallError::null("socket"))
}

/// Sends a message, which is copied. `kind` is an apus_message_kind. On the worker. Errors: APUS_FULL, APUS_CLOSED,
/// APUS_INVALID (a text that is not UTF-8, another kind), APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_send(
    socket: Option<&ApusWebSocket>,
    kind: c_int,
    data: *const c_void,
    len: usize,
) -> ApusStatus {
    status("apus_websocket_send", || {
        let socket = known(socket)?;
        let sender = socket.sender()?;
        match sender.try_send(message_of(kind, data, len)?) {
            Ok(()) => Ok(()),
            Err(SendError::Closed) => Err(CallError::closed("the socket")),
            Err(SendError::Full) => {
                socket.wants_room.set(true);
                if let Some(waker) = socket.waker.take() {
                    waker.wake();
                }
                Err(CallError::new(
                    ApusStatus::Full,
                    "a client that reads what it gets",
                    "one whose send buffer is full",
                    "send again in the event `drained`, or close the socket",
                ))
            }
        }
    })
}

/// Begins to close the socket with a code (1000) and a reason (NULL: none). On the worker.
/// Errors: APUS_CLOSED, APUS_INVALID, APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_close(
    socket: Option<&ApusWebSocket>,
    code: c_int,
    reason: *const c_char,
) -> ApusStatus {
    status("apus_websocket_close", || {
        let socket = known(socket)?;
        let sender = socket.sender()?;
        let valid = u16::try_from(code).ok().and_then(CloseCode::new);
        let valid = valid.ok_or_else(|| {
            CallError::invalid(
                "a code of RFC 6455 section 7.4, or 3000 to 4999",
                code.to_string(),
                "1000 is the normal one",
            )
        })?;
        let reason = optional_name(reason, "reason")?.unwrap_or("");
        let closed = sender.close(valid, reason);
        closed.map_err(|_| CallError::closed("the socket"))
    })
}

/// A number that no other socket of the process has. On the worker.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_id(socket: Option<&ApusWebSocket>) -> u64 {
    attempt("apus_websocket_id", || Ok(known(socket)?.sender.id()))
}

/// The subprotocol that was agreed on. On the worker. Absent if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_protocol(socket: Option<&ApusWebSocket>) -> ApusStr {
    attempt("apus_websocket_protocol", || {
        let protocol = known(socket)?.protocol.as_deref();
        Ok(ApusStr::of_option(protocol.map(str::as_bytes)))
    })
}

/// Attaches a pointer to the socket, which `destroy` (may be NULL) frees after its close event. It replaces, and frees, an
/// earlier one. On the worker. Errors: APUS_INVALID, APUS_THREAD; the data stays with the caller then.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_set_data(
    socket: Option<&ApusWebSocket>,
    data: *mut c_void,
    destroy: ApusDestroyFn,
) -> ApusStatus {
    status("apus_websocket_set_data", || {
        let socket = known(socket)?;
        socket.sender()?;
        let replaced = socket.data.replace(Some(UserData::new(data, destroy)));
        drop(replaced);
        Ok(())
    })
}

/// The pointer that was attached. On the worker. NULL if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn apus_websocket_data(socket: Option<&ApusWebSocket>) -> *mut c_void {
    attempt("apus_websocket_data", || {
        let socket = known(socket)?;
        socket.sender()?;
        let data = socket.data.borrow();
        Ok(data
            .as_ref()
            .map_or(std::ptr::null_mut(), UserData::pointer))
    })
}
