//! Rooms of WebSockets, which get the same messages.

use std::ffi::{c_char, c_int, c_void};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use apus::{Rooms, tokio};

use crate::error::{ApusStatus, CallError};
use crate::executor;
use crate::ffi::{object, protect, status};
use crate::text::name;
use crate::websocket::{ApusWebSocket, message_of};

/// A set of rooms: WebSockets that get the same messages, on all workers.
pub struct ApusRooms(Rooms);

/// A set of rooms. Free it by apus_rooms_free().
#[unsafe(no_mangle)]
pub extern "C" fn apus_rooms_new() -> Option<Box<ApusRooms>> {
    object("apus_rooms_new", || Ok(ApusRooms(Rooms::default())))
}

/// Frees a set of rooms. It does not close its sockets. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_rooms_free(rooms: Option<Box<ApusRooms>>) {
    protect("apus_rooms_free", || drop(rooms));
}

fn known(rooms: Option<&ApusRooms>) -> Result<&Rooms, CallError> {
    Ok(&rooms.ok_or_else(|| CallError::null("rooms"))?.0)
}

/// Adds a socket to a room, which it leaves when it closes. On the worker. Errors: APUS_INVALID, APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_rooms_join(
    rooms: Option<&ApusRooms>,
    room: *const c_char,
    socket: Option<&ApusWebSocket>,
) -> ApusStatus {
    status("apus_rooms_join", || {
        let (rooms, room) = (known(rooms)?, name(room, "room")?);
        let socket = socket.ok_or_else(|| CallError::null("socket"))?;
        rooms.join(room, socket.sender()?);
        Ok(())
    })
}

/// Removes a socket from a room. On the worker. Errors: APUS_INVALID, APUS_NOT_FOUND, APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_rooms_leave(
    rooms: Option<&ApusRooms>,
    room: *const c_char,
    socket: Option<&ApusWebSocket>,
) -> ApusStatus {
    status("apus_rooms_leave", || {
        let (rooms, room) = (known(rooms)?, name(room, "room")?);
        let socket = socket.ok_or_else(|| CallError::null("socket"))?;
        if rooms.leave(room, socket.sender()?) {
            Ok(())
        } else {
            Err(CallError::new(
                ApusStatus::NotFound,
                format!("a socket in the room {room:?}"),
                "one that is not in it",
                "",
            ))
        }
    })
}

/// Sends a message to all sockets in a room, on all workers, except `except` (may be NULL). `kind` is an apus_message_kind.
/// From any thread, but with `except` only on the worker; on a thread that is not a worker it waits for workers that are
/// busy. A socket that reads too slowly is closed. Errors: APUS_INVALID, APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_rooms_publish(
    rooms: Option<&ApusRooms>,
    room: *const c_char,
    kind: c_int,
    data: *const c_void,
    len: usize,
    except: Option<&ApusWebSocket>,
) -> ApusStatus {
    status("apus_rooms_publish", || {
        let (rooms, room) = (known(rooms)?.clone(), name(room, "room")?.to_owned());
        let message = message_of(kind, data, len)?;
        let except = except.map(ApusWebSocket::sender).transpose()?.cloned();
        let mut publish = Box::pin(async move {
            match except {
                Some(socket) => rooms.publish_from(&socket, &room, message).await,
                None => rooms.publish(&room, message).await,
            }
        });
        if executor::current().is_none() {
            block_on(publish);
            return Ok(());
        }
        // It waits only for a worker whose queue is full.
        let polled = publish
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_pending() {
            tokio::task::spawn_local(publish);
        }
        Ok(())
    })
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on a thread without a runtime.
fn block_on(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    while future.as_mut().poll(&mut cx) == Poll::Pending {
        std::thread::park();
    }
}
