//! The secret of HTTP/3 in the folder of certificates, so that a server resets the connections of the one before it (RFC 9000
//! section 10.3).
//!
//! ```text
//! tickets/http3                            32 bytes in hexadecimal digits
//! ```

use std::io::{self, Write};

use apus_net::Http3Secret;
use apus_tokens::from_hexadecimal;

use crate::store::{CertificateStore, CertificateStoreError, create_folder};
use crate::ticket_secrets::random_secret;

/// The file, in the folder.
const FILE: &str = "tickets/http3";

impl CertificateStore {
    /// The secret of all servers that share the folder, which is made if there is none.
    ///
    /// It does not change: whoever has it can end connections, and cannot read them.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn http3_secret(&self) -> Result<Http3Secret, CertificateStoreError> {
        let path = self.folder().join(FILE);
        let found = self.read(&path)?;
        if let Some(secret) = found.as_deref().and_then(secret_of) {
            return Ok(secret);
        }
        let text = random_secret()?;
        match found {
            Some(_) => {
                tracing::error!(path = %path.display(), "the secret of HTTP/3 is damaged, and made again");
                self.write(&path, text.as_bytes())?;
            }
            None => self.create_http3_secret(text.as_bytes())?,
        }
        // The secret of another process, if that was faster.
        let found = self.read(&path)?;
        found.as_deref().and_then(secret_of).ok_or_else(|| {
            CertificateStoreError::Damaged(path, "it has no 64 hexadecimal digits".to_owned())
        })
    }

    /// Writes the file as a whole, unless there is one.
    fn create_http3_secret(&self, text: &[u8]) -> Result<(), CertificateStoreError> {
        let path = self.folder().join(FILE);
        let failed = |error| CertificateStoreError::Io(path.clone(), error);
        let folder = path.parent().unwrap_or(self.folder());
        create_folder(folder).map_err(failed)?;
        // Its mode is 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(text).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        match file.persist_noclobber(&path) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(error.error))
            }
            _ => Ok(()),
        }
    }
}

fn secret_of(text: &[u8]) -> Option<Http3Secret> {
    let text = std::str::from_utf8(text).ok()?;
    from_hexadecimal(text.trim_end()).map(Http3Secret::new)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn all_servers_with_a_folder_have_the_same_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let secret = || {
            let store = CertificateStore::in_folder(folder.path());
            store.http3_secret().unwrap();
            fs::read_to_string(&path).unwrap()
        };
        let threads: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(secret)).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(
            threads
                .iter()
                .all(|one| *one == threads[0] && one.len() == 64)
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(secret(), threads[0]);
        for damaged in ["", "00", &"x".repeat(64)] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(secret().len(), 64);
        }
        assert_ne!(secret(), threads[0]);
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tickets"), "a file").unwrap();
        let store = CertificateStore::in_folder(folder.path());
        assert!(store.http3_secret().is_err());
    }
}
