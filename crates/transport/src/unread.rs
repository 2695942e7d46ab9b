//! What the other end of a Unix socket has not read yet.

use std::ffi::c_int;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// The request for the memory of what was sent and not read (`unix(7)`).
const SIOCOUTQ: Opcode = 0x5411;

/// The memory of what the other end has not read, in bytes. It is released for each write as a whole, when the
/// last of its bytes was read.
///
/// # Errors
/// The system cannot tell.
pub fn unread_memory(socket: impl AsFd) -> Result<c_int, Errno> {
    // SAFETY: `SIOCOUTQ` stores an `int`, and the getter has the size of one.
    unsafe { ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) }
}
