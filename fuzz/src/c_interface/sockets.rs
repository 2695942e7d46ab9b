//! What the events of a WebSocket do with it, while its client sends frames and leaves.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use apus_capi::*;

use super::handlers::{exchange, use_messages};
use super::input::{below, text};
use super::{made, noted};

thread_local! {
    static OPEN: Cell<i32> = const { Cell::new(0) };
    static ROOMS: RefCell<Option<Box<ApusRooms>>> = RefCell::new(made(apus_rooms_new()));
}

const HANDSHAKE: &[u8] = b"GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\
    Sec-WebSocket-Protocol: chat\r\n\r\n";

/// Masked frames, whose mask is zero.
const FRAMES: [&[u8]; 6] = [
    b"\x81\x85\0\0\0\0hello",
    b"\x82\x83\0\0\0\0\xff\xfe\xfd",
    b"\x88\x82\0\0\0\0\x03\xe8",
    b"\x89\x80\0\0\0\0",
    b"\x81\x82\0\0\0\0\xff\xff",
    b"\x01\x81\0\0\0\0a",
];

pub(super) fn call() {
    let mut sent = HANDSHAKE.to_vec();
    for _ in 0..below::<u8>(6) {
        sent.extend_from_slice(FRAMES[below::<usize>(6)]);
    }
    exchange(&sent, Some(20));
}

/// Whether a socket has not had its last event.
pub(super) fn are_open() -> bool {
    OPEN.get() > 0
}

pub(super) fn events(are_valid: bool) -> ApusWebSocketEvents {
    ApusWebSocketEvents {
        size: if are_valid {
            size_of::<ApusWebSocketEvents>()
        } else {
            1
        },
        request: Some(ask),
        open: Some(open),
        message: Some(message),
        drained: Some(drained),
        close: Some(close),
        max_message: 100,
        send_buffer: 50,
        ping_interval_ms: 0,
        idle_timeout_ms: 0,
        message_timeout_ms: 0,
        no_compression: false,
        any_origin: true,
        protocols: c"chat, superchat".as_ptr(),
    }
}

extern "C" fn ask(request: *mut ApusRequest, response: *mut ApusResponse, _: *mut c_void) -> c_int {
    // SAFETY: both are valid, and used by this call alone, until it returns.
    let (request, response) = unsafe { (request.as_mut(), response.as_mut()) };
    if below::<u8>(4) == 0 {
        use_messages(request, response);
    }
    [0, 0, 0, 0, 1, 403, 99, -1][below::<usize>(8)]
}

extern "C" fn open(socket: *mut ApusWebSocket, request: *mut ApusRequest, _: *mut c_void) {
    OPEN.set(OPEN.get() + 1);
    // SAFETY: both are valid during the call.
    let (socket, request) = unsafe { (socket.as_ref(), request.as_mut()) };
    use_messages(request, None);
    use_socket(socket);
}

extern "C" fn message(
    socket: *mut ApusWebSocket,
    _: ApusMessageKind,
    _: *const c_char,
    _: usize,
    _: *mut c_void,
) {
    // SAFETY: it is valid until its close event.
    use_socket(unsafe { socket.as_ref() });
}

extern "C" fn drained(socket: *mut ApusWebSocket, _: *mut c_void) {
    // SAFETY: as in `message`.
    use_socket(unsafe { socket.as_ref() });
}

extern "C" fn close(socket: *mut ApusWebSocket, _: c_int, _: ApusStr, _: *mut c_void) {
    // SAFETY: as in `message`.
    use_socket(unsafe { socket.as_ref() });
    OPEN.set(OPEN.get() - 1);
}

fn use_socket(socket: Option<&ApusWebSocket>) {
    for _ in 0..below::<u8>(5) {
        let data = text();
        let (pointer, len) = (data.pointer(), data.len());
        ROOMS.with_borrow(|rooms| match below::<u8>(7) {
            0 | 1 => _ = noted(apus_websocket_send(socket, below(4), pointer.cast(), len)),
            2 => {
                let code = [1000, 1001, 3000, 5000, 0, 1005][below::<usize>(6)];
                noted(apus_websocket_close(socket, code, pointer));
            }
            3 => {
                noted(apus_websocket_set_data(socket, null_mut(), None));
                apus_websocket_data(socket);
                apus_websocket_id(socket);
                apus_websocket_protocol(socket);
            }
            4 => _ = noted(apus_rooms_join(rooms.as_deref(), pointer, socket)),
            5 => _ = noted(apus_rooms_leave(rooms.as_deref(), pointer, socket)),
            _ => {
                let except = socket.filter(|_| below::<u8>(2) == 0);
                let room = if below::<u8>(8) == 0 { null() } else { pointer };
                noted(apus_rooms_publish(
                    rooms.as_deref(),
                    room,
                    below(4),
                    pointer.cast(),
                    len,
                    except,
                ));
            }
        });
    }
}
