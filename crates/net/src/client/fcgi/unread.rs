//! What the other end of a Unix socket has not read yet.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// The request for the memory of what was sent and not read (`unix(7)`).
const SIOCOUTQ: Opcode = 0x5411;

/// The length of an empty record.
const EMPTY_RECORD: usize = 8;

/// Returns the memory of what the other end has not read. It is released for each write as a whole, when the
/// last of its bytes was read.
pub(super) fn unread_memory(socket: impl AsFd) -> Result<c_int, Errno> {
    // SAFETY: `SIOCOUTQ` stores an `int`, and the getter has the size of one.
    unsafe { ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) }
}

/// Whether the other end has read everything, except perhaps an empty record that was written apart, last.
pub(super) fn is_read_to_last_record(socket: impl AsFd) -> Option<bool> {
    static LAST_RECORD: LazyLock<Option<c_int>> = LazyLock::new(|| {
        let (sender, _receiver) = UnixStream::pair().ok()?;
        rustix::io::write(&sender, &[0; EMPTY_RECORD]).ok()?;
        unread_memory(&sender).ok()
    });
    Some(unread_memory(socket).ok()? <= (*LAST_RECORD)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn knows_when_all_but_the_last_record_was_read() {
        let (mut sender, mut receiver) = UnixStream::pair().unwrap();
        sender.write_all(&[1; 40]).unwrap();
        sender.write_all(&[1; EMPTY_RECORD]).unwrap();
        for (len, is_read) in [(16, false), (23, false), (1, true), (EMPTY_RECORD, true)] {
            assert_eq!(is_read_to_last_record(&sender), Some(false), "before {len}");
            receiver.read_exact(&mut vec![0; len]).unwrap();
            assert_eq!(
                is_read_to_last_record(&sender),
                Some(is_read),
                "after {len}"
            );
            if is_read {
                return;
            }
        }
    }
}
