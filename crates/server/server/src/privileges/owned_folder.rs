//! Folders and files that root creates for the user of the server.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use apus_net::SystemAccount;

/// Only its user may enter the folder of certificates.
pub(crate) const CERTIFICATE_FOLDER_MODE: u32 = 0o700;

/// Creates a folder for this user, unless it exists.
pub(crate) fn prepare_folder(folder: &Path, mode: u32, account: &SystemAccount) -> io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let folder = create_parents(folder)?;
    fs::DirBuilder::new().mode(mode).create(&folder)?;
    give(&folder, account)
}

/// Creates the folders above a path, in a folder that only root can change. Returns the path without links.
fn create_parents(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut first = path;
    while let Some(parent) = first.parent().filter(|parent| !parent.exists()) {
        missing.push(first);
        first = parent;
    }
    missing.push(first);
    let (mut folder, _) = closed_parent(first)?;
    while let Some(next) = missing.pop() {
        let name = next.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        folder.push(name);
        if !missing.is_empty() {
            fs::DirBuilder::new().mode(0o755).create(&folder)?;
        }
    }
    Ok(folder)
}

/// Makes this user the owner of a file, in a folder that no other user can change.
pub(super) fn give(path: &Path, account: &SystemAccount) -> io::Result<()> {
    chown(path, Some(account.uid), Some(account.gid))
}

/// The folder of a path and its last name, if only root can change the folder: otherwise another
/// user could redirect writes of root by a link.
pub(super) fn closed_parent(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = fs::canonicalize(folder)?;
    for ancestor in folder.ancestors() {
        let found = fs::metadata(ancestor)?;
        let is_shared = found.mode() & 0o022 != 0;
        // In a sticky folder, files of root cannot be moved.
        let is_sticky = found.mode() & 0o1000 != 0 && ancestor != folder;
        if found.uid() != 0 || is_shared && !is_sticky {
            let message = format!(
                "others than root can change {}, and the server's user cannot",
                ancestor.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    Ok((folder, name.into()))
}
