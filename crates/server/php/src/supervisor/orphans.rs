//! What servers that were killed left behind: PHP processes, and sockets and pipes in the folder of a pool.
//!
//! A `php-cgi` master ends with its server, and its children end with it. If both were killed at the same time, the
//! children serve on.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills the PHP processes of servers that do not run any more, which listen on a socket in the folder of a pool.
pub fn end_orphans(folder: &Path) {
    // As the server has it.
    let Ok(folder) = fs::canonicalize(folder) else {
        return;
    };
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let descriptors: HashSet<PathBuf> = sockets
        .split(|byte| *byte == b'\n')
        .filter_map(listener)
        .filter(|(path, _)| path.parent() == Some(&*folder) && is_of_dead_server(path))
        .map(|(_, inode)| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    if descriptors.is_empty() {
        return;
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        // From here on no other process can get the number.
        let Some(process) = pid
            .and_then(Pid::from_raw)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        // php-cgi listens on its standard input.
        let input = fs::read_link(entry.path().join("fd/0"));
        if input.is_ok_and(|input| descriptors.contains(&input)) {
            tracing::warn!(
                pid,
                "PHP of a server that was killed still runs and is ended"
            );
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

/// Removes the sockets and pipes of servers that were killed.
pub(super) fn remove_stale_sockets(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let endings = ["sock", "fcgi", "log"];
        let is_temporary = path
            .extension()
            .is_some_and(|extension| endings.iter().any(|ending| extension == *ending));
        if is_temporary && is_of_dead_server(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a file in the folder of a pool belongs to a server that does not run any more.
fn is_of_dead_server(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_dead = |pid: &str| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
    name.split('.').nth(1).is_some_and(is_dead)
}

/// The path and the inode of a socket, from a line of `/proc/net/unix`: `Num RefCount Protocol Flags Type St Inode Path`.
fn listener(line: &[u8]) -> Option<(PathBuf, u64)> {
    let end = line
        .splitn(7, |byte| *byte == b' ')
        .nth(6)?
        .trim_ascii_start();
    let (inode, path) = end.split_at_checked(end.iter().position(|byte| *byte == b' ')?)?;
    let path = PathBuf::from(OsString::from_vec(path.get(1..)?.to_vec()));
    Some((path, std::str::from_utf8(inode).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_their_paths() {
        let line = b"0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.fcgi";
        assert_eq!(listener(line), Some(("/run/a b.fcgi".into(), 12345)));
        let short = b"0000000000000000: 00000002 00000000 00010000 0001 01    17 /run/a.fcgi";
        assert_eq!(listener(short), Some(("/run/a.fcgi".into(), 17)));
        let unnamed = b"0000000000000000: 00000003 00000000 00000000 0001 03 12345";
        assert_eq!(listener(unnamed), None);
        let head = b"Num       RefCount Protocol Flags    Type St Inode Path";
        assert_eq!(listener(head), None);
    }
}
