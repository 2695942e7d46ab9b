//! Whether an application has read its request, which a Unix socket can tell.

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use apus_transport::unread_memory;

/// The length of an empty record.
const EMPTY_RECORD: usize = 8;

/// Whether the other end has read everything, except perhaps an empty record that was written apart, last.
pub(super) fn is_read_to_last_record(socket: impl AsFd) -> Option<bool> {
    // The kernel counts the memory of its buffers and not their bytes, so what such a record costs is measured once,
    // with a pair of sockets.
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
