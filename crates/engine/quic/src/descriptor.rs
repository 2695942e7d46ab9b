//! Descriptors: in the event loop of tokio, and socket options that no crate has.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor for reading and writing in the event loop of this thread.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is an open descriptor, always the same, and is closed when the `AsyncFd` drops it.
    unsafe { AsyncFd::register(descriptor) }.map_err(io::Error::from)
}

/// Sets an option of a socket (setsockopt(2)) at the level `SOL_SOCKET`.
///
/// # Safety
/// The kernel must accept the bytes of `value` for this option, and if there are pointers in it, what they point to.
pub(crate) unsafe fn set_option<T>(socket: &UdpSocket, name: c_int, value: &T) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor belongs to an open socket, and the kernel reads `size` bytes at `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_ref(value).cast(),
            size,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
