//! What the other end of a socket has not taken yet.

use std::ffi::c_int;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// The request for what was sent and not acknowledged (`tcp(7)`), or the memory of what was sent and not read (`unix(7)`).
const SIOCOUTQ: Opcode = 0x5411;

/// What the other end has not taken, in bytes. Of a Unix socket it is memory, which is released for each write as a
/// whole, when the last of its bytes was read.
///
/// # Errors
/// The system cannot tell.
pub fn unread_memory(socket: impl AsFd) -> Result<c_int, Errno> {
    // SAFETY: `SIOCOUTQ` stores an `int`, and the getter has the size of one.
    unsafe { ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) }
}
