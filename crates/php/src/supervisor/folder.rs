//! The folder of a pool: the runtime file that PHP runs, and the sockets.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::UnixListener;

use crate::error::StartError;
use crate::plan::PoolPlan;

/// The PHP side of workers, as it came with this server.
const RUNTIME: &str = include_str!("../../../../php/apus.php");

/// Where the runtime file and the sockets of one pool are. Others may reach into the folder, whose PHP
/// runs under another user, but not list or change it.
pub(super) struct Folder {
    runtime: PathBuf,
    socket: PathBuf,
    own_socket: PathBuf,
}

impl Folder {
    /// Makes what is not there.
    pub(super) fn open(plan: &PoolPlan) -> Result<Self, StartError> {
        let folder = &plan.folder;
        let failed = |error| StartError::Folder(folder.clone(), error);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(folder)
            .map_err(failed)?;
        let folder = fs::canonicalize(folder).map_err(failed)?;
        // Where anybody may make folders, somebody else may have been first.
        let found = fs::metadata(&folder).map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let unsafe_folder = "it must belong to the user of the server and be closed to others";
            return Err(failed(io::Error::other(unsafe_folder)));
        }
        forget_the_dead(&folder);
        // Another version has another name: opcache may know the old one under the same name for long.
        let name = format!("apus-{:016x}.php", hash(RUNTIME.as_bytes()));
        let runtime = folder.join(name);
        if fs::read(&runtime).ok().as_deref() != Some(RUNTIME.as_bytes()) {
            write(&runtime, RUNTIME.as_bytes()).map_err(failed)?;
        }
        // A pool of the same name may end while this one begins.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let base = format!(
            "{}.{}.{}",
            file_name(&plan.name),
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        Ok(Self {
            runtime,
            socket: folder.join(format!("{base}.sock")),
            own_socket: folder.join(base),
        })
    }

    /// The file that PHP runs.
    pub(super) fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The socket that workers connect to.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The socket of a FastCGI server of our own.
    pub(super) fn own_socket(&self, generation: u64) -> PathBuf {
        let mut name = self.own_socket.clone().into_os_string();
        name.push(format!("-{generation}.fcgi"));
        name.into()
    }

    /// Listens for workers. Who connects has to know a token: PHP may run under any user.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        let _ = fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket)?;
        fs::set_permissions(&self.socket, fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    }

    /// Removes the socket. The runtime file may be another pool's, too.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// Removes sockets of servers that were killed.
fn forget_the_dead(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_socket = path
            .extension()
            .is_some_and(|extension| extension == "sock" || extension == "fcgi");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let pid = name.split('.').nth(1);
        let is_dead =
            |pid: &str| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        if is_socket && pid.is_some_and(is_dead) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(format!(".{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&beside)?;
    // Whatever the umask says: PHP's user has to read it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(content)?;
    drop(file);
    fs::rename(&beside, path)
}

/// The name of a pool as that of a file.
fn file_name(name: &str) -> String {
    let safe = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
        true => c,
        false => '_',
    };
    let mut file: String = name.chars().take(24).map(safe).collect();
    if file != name {
        file.push_str(&format!("-{:08x}", hash(name.as_bytes()) as u32));
    }
    file
}

/// FNV-1a: tells versions and names apart, and has no secret to keep.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_differ() {
        assert_eq!(file_name("blog-1"), "blog-1");
        let odd = [file_name("a/b"), file_name("a.b"), file_name("a_b.")];
        assert!(odd.iter().all(|name| !name.contains(['/', '.'])));
        assert_ne!(odd[0], odd[1]);
        assert!(file_name(&"x".repeat(200)).len() < 40);
    }
}
