//! The folder of a pool: the runtime file that PHP runs, and the sockets.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::UnixListener;

use super::orphans::{end_orphans, remove_stale_sockets};
use crate::error::PoolStartError;
use crate::plan::WorkerPoolPlan;

/// The runtime file of workers, which is part of the binary.
const RUNTIME: &str = include_str!("apus.php");

/// The folder with the runtime file and the sockets of one pool. Other users can open files in it, as PHP may run
/// as another user, but not list or change it.
pub(super) struct Folder {
    runtime: PathBuf,
    socket: PathBuf,
    /// The path of the `php-cgi` sockets and the error logs, without their endings.
    base: PathBuf,
}

impl Folder {
    /// Creates the folder and the runtime file, unless they exist.
    pub(super) fn open(plan: &WorkerPoolPlan) -> Result<Self, PoolStartError> {
        let folder = &plan.folder;
        let failed = |error| PoolStartError::Folder(folder.clone(), error);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(folder)
            .map_err(failed)?;
        let folder = fs::canonicalize(folder).map_err(failed)?;
        // In a folder that all users can write to, another user may have created it first.
        let found = fs::metadata(&folder).map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let unsafe_folder = "it must belong to the user of the server and be closed to others";
            return Err(failed(io::Error::other(unsafe_folder)));
        }
        end_orphans(&folder);
        remove_stale_sockets(&folder);
        // The name depends on the version, as opcache may keep the old file of the same name.
        let name = format!("apus-{:016x}.php", hash(RUNTIME.as_bytes()));
        let runtime = folder.join(name);
        if fs::read(&runtime).ok().as_deref() != Some(RUNTIME.as_bytes()) {
            write(&runtime, RUNTIME.as_bytes()).map_err(failed)?;
        }
        // Another pool of the same name may stop while this one starts.
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
            base: folder.join(base),
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

    /// The socket of the `php-cgi` of a generation.
    pub(super) fn php_cgi_socket(&self, generation: u64) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(format!("-{generation}.fcgi"));
        name.into()
    }

    /// The path of a worker's error log.
    pub(super) fn error_log(&self, secret: &str) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(format!("-{secret}.log"));
        name.into()
    }

    /// Listens for workers. All users can connect, as PHP may run as any user; a worker proves itself by a token.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        let _ = fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket)?;
        fs::set_permissions(&self.socket, fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    }

    /// Removes the socket. Other pools may use the runtime file.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// Writes a file atomically.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(format!(".{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&temporary)?;
    // Independent of the umask: the user of PHP has to read it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&temporary, path)
}

/// A file name for a pool.
fn file_name(name: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    let mut file: String = name.chars().take(24).map(safe).collect();
    if file != name {
        file.push_str(&format!("-{:08x}", hash(name.as_bytes()) as u32));
    }
    file
}

/// FNV-1a, which distinguishes versions and names; it need not be secure.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(file_name("blog-1"), "blog-1");
        let odd = [file_name("a/b"), file_name("a.b"), file_name("a_b.")];
        assert!(odd.iter().all(|name| !name.contains(['/', '.'])));
        assert_ne!(odd[0], odd[1]);
        assert!(file_name(&"x".repeat(200)).len() < 40);
    }
}
