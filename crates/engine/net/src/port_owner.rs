//! Whether a port that cannot be bound is one of this process, for messages about it.

use std::fs;
use std::path::Path;

/// Who listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortOwner {
    ThisProcess,
    AnotherProcess,
}

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Who listens on a TCP port; `None` if the system does not tell.
pub(crate) fn owner_of(port: u16) -> Option<PortOwner> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(fs::read_to_string);
    let inodes: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| inodes_at(table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let sockets: Vec<_> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let descriptors = fs::read_dir("/proc/self/fd").ok()?;
    let is_own = descriptors
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|file| sockets.iter().any(|socket| file == Path::new(socket)));
    Some(if is_own {
        PortOwner::ThisProcess
    } else {
        PortOwner::AnotherProcess
    })
}

/// The inodes of the sockets that listen on a port, in a table such as `/proc/net/tcp`.
fn inodes_at(table: &str, port: u16) -> impl Iterator<Item = String> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (_, local) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        let is_meant = u16::from_str_radix(local, 16) == Ok(port) && state == LISTENING;
        is_meant.then(|| inode.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn finds_the_sockets_of_this_process() {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(owner_of(port), Some(PortOwner::ThisProcess));
        let socket = TcpListener::bind(("::1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(owner_of(port), Some(PortOwner::ThisProcess));
    }

    #[test]
    fn reads_the_inodes_of_listening_sockets() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0 0 10 0\n   \
             1: 0100007F:1F90 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 12346 1 0 100 0 0 10 0\n   \
             2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12347 1 0 100 0 0 10 0\n";
        let found: Vec<_> = inodes_at(table, 8080).collect();
        assert_eq!(found, ["12345"]);
        assert_eq!(inodes_at(table, 8082).count(), 0);
    }
}
