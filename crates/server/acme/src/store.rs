//! The folder in which accounts, certificates and open orders are kept.
//!
//! ```text
//! accounts/<authority>.json                the account and its private key
//! certificates/<name>/certificate.pem      the chain, leaf first, and its private key
//! certificates/<name>/pending.key          the private key of the open order
//! certificates/<name>/state.json           the open order, failures, and when it is renewed
//! certificates/<name>/lock                 held by the process that orders it
//! tickets/                                 the secrets of session tickets
//! machines/, challenges/                   the processes that use the folder, and the challenges that they share
//! ```
//!
//! Only its user can read the files. Each is replaced as a whole, so that a process that is killed leaves the old one or
//! the new one.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use apus_private_files::{PrivateFiles, register};
use apus_transport::tls::Certificate;
use rustix::fs::FlockOperation;

use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::state::CertificateState;

/// The bytes that the files of an order may need: an account, keys, a chain and the state, each beside its old version.
const SPACE_OF_ORDER: usize = 64 * 1024;

/// The folder in which accounts, certificates and open orders are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStore {
    folder: PathBuf,
}

/// A lock on a certificate, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct CertificateLock(#[expect(dead_code, reason = "it holds the lock")] File);

impl CertificateStore {
    /// The store in this folder, which is created with the first file. No service of this process
    /// sends what is in it.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        register(PrivateFiles::default().folder(&folder));
        Self { folder }
    }

    /// The folder by default, by the user of this process.
    pub fn default_folder() -> PathBuf {
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/lib/apus/acme");
        }
        let absolute = |name| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        absolute("XDG_DATA_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/share")))
            .unwrap_or_else(|| PathBuf::from("/var/lib"))
            .join("apus/acme")
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The certificate with its private key, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn certificate(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<Option<Certificate>, CertificateStoreError> {
        self.certificate_in(&self.of(managed))
    }

    pub(crate) fn certificate_in(
        &self,
        folder: &Path,
    ) -> Result<Option<Certificate>, CertificateStoreError> {
        let path = folder.join("certificate.pem");
        let Some(pem) = self.read(&path)? else {
            return Ok(None);
        };
        Certificate::from_pem(&pem, &pem)
            .map(Some)
            .map_err(|error| CertificateStoreError::Damaged(path, error.to_string()))
    }

    pub(crate) fn put_certificate(
        &self,
        managed: &ManagedCertificate,
        chain: &str,
        key: &str,
    ) -> Result<(), CertificateStoreError> {
        let pem = format!("{}\n{}\n", chain.trim_end(), key.trim_end());
        self.write(&self.of(managed).join("certificate.pem"), pem.as_bytes())
    }

    pub(crate) fn state(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<CertificateState, CertificateStoreError> {
        self.state_in(&self.of(managed))
    }

    pub(crate) fn state_in(
        &self,
        folder: &Path,
    ) -> Result<CertificateState, CertificateStoreError> {
        let path = folder.join("state.json");
        match self.read(&path)? {
            None => Ok(CertificateState::default()),
            Some(json) => serde_json::from_slice(&json)
                .map_err(|error| CertificateStoreError::Damaged(path, error.to_string())),
        }
    }

    pub(crate) fn put_state(
        &self,
        managed: &ManagedCertificate,
        state: &CertificateState,
    ) -> Result<(), CertificateStoreError> {
        self.put_state_in(&self.of(managed), state)
    }

    pub(crate) fn put_state_in(
        &self,
        folder: &Path,
        state: &CertificateState,
    ) -> Result<(), CertificateStoreError> {
        let json = serde_json::to_vec_pretty(state).map_err(|error| {
            CertificateStoreError::Damaged(folder.to_owned(), error.to_string())
        })?;
        self.write(&folder.join("state.json"), &json)
    }

    /// The private key of the certificate, PEM.
    pub(crate) fn certificate_key(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<Option<String>, CertificateStoreError> {
        let Some(pem) = self.read(&self.of(managed).join("certificate.pem"))? else {
            return Ok(None);
        };
        // It is behind the chain.
        let text = String::from_utf8(pem).unwrap_or_default();
        let key = text
            .rfind("-----BEGIN ")
            .and_then(|at| text.get(at..))
            .filter(|key| key.contains("PRIVATE KEY"));
        Ok(key.map(str::to_owned))
    }

    /// The private key of the open order, PEM.
    pub(crate) fn pending_key(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<Option<String>, CertificateStoreError> {
        let key = self.read(&self.of(managed).join("pending.key"))?;
        Ok(key.and_then(|key| String::from_utf8(key).ok()))
    }

    pub(crate) fn put_pending_key(
        &self,
        managed: &ManagedCertificate,
        key: &str,
    ) -> Result<(), CertificateStoreError> {
        self.write(&self.of(managed).join("pending.key"), key.as_bytes())
    }

    pub(crate) fn remove_pending_key(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<(), CertificateStoreError> {
        self.remove(&self.of(managed).join("pending.key"))
    }

    /// The account at an authority, as JSON.
    pub(crate) fn account(
        &self,
        provider: &AcmeProvider,
    ) -> Result<Option<Vec<u8>>, CertificateStoreError> {
        self.read(&self.account_path(provider))
    }

    pub(crate) fn put_account(
        &self,
        provider: &AcmeProvider,
        json: &[u8],
    ) -> Result<(), CertificateStoreError> {
        self.write(&self.account_path(provider), json)
    }

    /// Forgets the account at an authority, which does not know it any more.
    pub(crate) fn remove_account(
        &self,
        provider: &AcmeProvider,
    ) -> Result<(), CertificateStoreError> {
        self.remove(&self.account_path(provider))
    }

    /// Checks that the files of an order can be written.
    pub(crate) fn check_space(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<(), CertificateStoreError> {
        let folder = self.of(managed);
        let failed = |error| CertificateStoreError::Io(folder.clone(), error);
        create_folder(&folder).map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
        file.write_all(&[0; SPACE_OF_ORDER]).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)
    }

    /// Locks a certificate; `None` while another process orders it.
    pub(crate) fn lock(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<Option<CertificateLock>, CertificateStoreError> {
        self.lock_folder(&self.of(managed))
    }

    pub(crate) fn lock_folder(
        &self,
        folder: &Path,
    ) -> Result<Option<CertificateLock>, CertificateStoreError> {
        create_folder(folder)
            .map_err(|error| CertificateStoreError::Io(folder.to_owned(), error))?;
        let path = folder.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| CertificateStoreError::Io(path.clone(), error))?;
        self.try_lock(file, &path)
    }

    /// Locks an open file; `None` while another process has the lock.
    pub(crate) fn try_lock(
        &self,
        file: File,
        path: &Path,
    ) -> Result<Option<CertificateLock>, CertificateStoreError> {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(CertificateLock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(CertificateStoreError::Io(path.to_owned(), error.into())),
        }
    }

    /// Creates an empty file that is locked from the beginning.
    pub(crate) fn lock_new_file(
        &self,
        path: &Path,
    ) -> Result<CertificateLock, CertificateStoreError> {
        let failed = |error| CertificateStoreError::Io(path.to_owned(), error);
        let folder = path.parent().unwrap_or(&self.folder);
        create_folder(folder).map_err(failed)?;
        // Its mode is 0600, and its name begins with a dot.
        let file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed(error.into()))?;
        let file = file.persist(path).map_err(|error| failed(error.error))?;
        Ok(CertificateLock(file))
    }

    /// Files of the store that others than its user can read, and folders that others can change.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn exposed(&self) -> Result<Vec<PathBuf>, CertificateStoreError> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => {
                    entries.map_err(|error| CertificateStoreError::Io(folder.clone(), error))?
                }
            };
            let mode = fs::metadata(&folder).map(|metadata| metadata.permissions().mode());
            if mode.is_ok_and(|mode| mode & 0o022 != 0) {
                found.push(folder.clone());
            }
            for entry in entries {
                let entry =
                    entry.map_err(|error| CertificateStoreError::Io(folder.clone(), error))?;
                let path = entry.path();
                let metadata = fs::symlink_metadata(&path)
                    .map_err(|error| CertificateStoreError::Io(path.clone(), error))?;
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }

    /// When the files of a certificate that exist were changed last.
    pub(crate) fn stamp(&self, managed: &ManagedCertificate) -> [Option<SystemTime>; 2] {
        let folder = self.of(managed);
        ["certificate.pem", "state.json"].map(|name| {
            let metadata = fs::metadata(folder.join(name)).ok()?;
            metadata.modified().ok()
        })
    }

    /// The folders of all certificates, in the order of their names.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, CertificateStoreError> {
        let parent = self.folder.join("certificates");
        let failed = |error| CertificateStoreError::Io(parent.clone(), error);
        let entries = match fs::read_dir(&parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut folders = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        folders.retain(|folder| folder.is_dir());
        folders.sort();
        Ok(folders)
    }

    pub(crate) fn remove_folder(&self, folder: &Path) -> Result<(), CertificateStoreError> {
        fs::remove_dir_all(folder)
            .map_err(|error| CertificateStoreError::Io(folder.to_owned(), error))
    }

    pub(crate) fn of(&self, managed: &ManagedCertificate) -> PathBuf {
        self.folder.join("certificates").join(managed.id())
    }

    pub(crate) fn account_path(&self, provider: &AcmeProvider) -> PathBuf {
        let name: String = provider
            .directory
            .trim_start_matches("https://")
            .chars()
            .map(|char| match char {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => char,
                _ => '_',
            })
            .collect();
        self.folder.join("accounts").join(format!("{name}.json"))
    }

    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, CertificateStoreError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CertificateStoreError::Io(path.to_owned(), error)),
        }
    }

    /// Removes a file, if there is one.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), CertificateStoreError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CertificateStoreError::Io(path.to_owned(), error))
            }
            _ => Ok(()),
        }
    }

    /// Replaces a file as a whole.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), CertificateStoreError> {
        let failed = |error| CertificateStoreError::Io(path.to_owned(), error);
        let folder = path.parent().unwrap_or(&self.folder);
        create_folder(folder).map_err(failed)?;
        // Its mode is 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }
}

pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The store cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum CertificateStoreError {
    /// A file cannot be read or written.
    Io(PathBuf, io::Error),
    /// The contents of a file are wrong.
    Damaged(PathBuf, String),
    /// The storage that machines share cannot be used.
    Shared(String),
}

impl fmt::Display for CertificateStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Damaged(path, why) => write!(f, "{} is damaged: {why}", path.display()),
            Self::Shared(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CertificateStoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Damaged(..) | Self::Shared(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AcmeSettings;

    fn managed() -> ManagedCertificate {
        ManagedCertificate {
            names: vec!["example.com".to_owned()],
            settings: AcmeSettings::default(),
            is_additional: false,
        }
    }

    #[test]
    fn files_are_for_their_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertificateStore::in_folder(folder.path().join("acme"));
        assert!(store.certificate(&managed()).unwrap().is_none());
        store.put_pending_key(&managed(), "key").unwrap();
        store.put_account(&AcmeProvider::default(), b"{}").unwrap();
        drop(store.lock(&managed()).unwrap().unwrap());
        assert_eq!(store.exposed().unwrap(), Vec::<PathBuf>::new());
        let key = store.of(&managed()).join("pending.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(store.exposed().unwrap(), [key]);
        let folder = folder.path().join("acme/accounts");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(store.exposed().unwrap().contains(&folder));
        assert_eq!(store.pending_key(&managed()).unwrap().unwrap(), "key");
        store.remove_pending_key(&managed()).unwrap();
        store.remove_pending_key(&managed()).unwrap();
        assert_eq!(store.pending_key(&managed()).unwrap(), None);
    }

    #[test]
    fn one_process_at_a_time_orders_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertificateStore::in_folder(folder.path());
        let lock = store.lock(&managed()).unwrap();
        assert!(lock.is_some());
        // Another open file, as in another process.
        assert!(store.lock(&managed()).unwrap().is_none());
        drop(lock);
        assert!(store.lock(&managed()).unwrap().is_some());
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertificateStore::in_folder(folder.path());
        store
            .put_state(&managed(), &CertificateState::default())
            .unwrap();
        assert_eq!(
            store.state(&managed()).unwrap(),
            CertificateState::default()
        );
        let path = store.of(&managed()).join("state.json");
        fs::write(&path, "{").unwrap();
        let error = store.state(&managed()).unwrap_err().to_string();
        assert!(error.contains("state.json is damaged"), "{error}");
        store
            .put_certificate(&managed(), "no", "certificate")
            .unwrap();
        let error = store.certificate(&managed()).unwrap_err().to_string();
        assert!(error.contains("certificate.pem is damaged"), "{error}");
    }
}
