//! The default path of a server's control socket, in the runtime folder of its user.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustix::process::geteuid;

use crate::ControlError;

/// The control socket of the server that was started with `source`, the absolute path of a configuration or
/// of a folder to serve. Symbolic links are not resolved, so each of them has its own socket.
pub fn socket_path(source: &Path) -> PathBuf {
    path_for(source, source.as_os_str().as_encoded_bytes())
}

/// The control socket of the server that was started with a folder and an address to listen on. The same folder can be served at several
/// addresses.
pub fn socket_path_at(folder: &Path, address: &str) -> PathBuf {
    let folder_bytes = folder.as_os_str().as_encoded_bytes();
    path_for(folder, &[folder_bytes, &[0], address.as_bytes()].concat())
}

/// A socket whose name contains the name of the source, and differs for sources of the same name.
fn path_for(source: &Path, distinct: &[u8]) -> PathBuf {
    let name: String = source
        .file_stem()
        .map(|stem| stem.to_string_lossy())
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(32)
        .collect();
    let hash = fnv1a(distinct);
    runtime_folder().join(format!("{name}-{hash:016x}.sock"))
}

fn runtime_folder() -> PathBuf {
    if geteuid().is_root() {
        return "/run/apus".into();
    }
    match env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("apus"),
        _ => env::temp_dir().join(format!("apus-{}", geteuid().as_raw())),
    }
}

/// Creates the folder of `socket` if that is the runtime folder, and checks that no other user controls it.
pub(super) fn prepare_folder(socket: &Path) -> Result<(), ControlError> {
    let Some(folder) = socket
        .parent()
        .filter(|folder| **folder == runtime_folder())
    else {
        return Ok(());
    };
    let failed = |error| ControlError::Io(folder.to_owned(), error);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed)?;
    // In a folder for temporary files, another user may have created it.
    let found = fs::symlink_metadata(folder).map_err(failed)?;
    let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
    if is_ours && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(ControlError::Unsafe(folder.to_owned()))
    }
}

/// The hash FNV-1a, which is the same in every version of this program. It is not used for security.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_socket_with_its_name() {
        let name = socket_path(Path::new("/srv/a.toml"));
        assert_eq!(name, socket_path(Path::new("/srv/a.toml")));
        assert_ne!(name, socket_path(Path::new("/srv/b/a.toml")));
        let at = |address: &str| socket_path_at(Path::new("/srv/a.toml"), address);
        assert_eq!(at("127.0.0.1:80"), at("127.0.0.1:80"));
        assert_ne!(at("127.0.0.1:80"), at("127.0.0.1:81"));
        assert_ne!(at("127.0.0.1:80"), name);
        let name = name.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("a-") && name.ends_with(".sock"), "{name}");
    }

    #[test]
    fn hashes_like_the_published_algorithm() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
