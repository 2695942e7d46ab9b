//! Storage that several machines share: its interface, and how the folder of a machine is kept the same as it.

#[cfg(test)]
pub(crate) mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apus_tokens::sha256;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::store::{CertificateStore, CertificateStoreError};

/// How long a machine has a lock after it was heard of last.
const LOCK_LIFETIME: Duration = Duration::from_secs(60);
/// The interval in which it is heard of.
const LOCK_INTERVAL: Duration = Duration::from_secs(15);
/// The files of a certificate that machines share.
const CERTIFICATE_FILES: [&str; 3] = ["certificate.pem", "state.json", "pending.key"];

/// What a storage does, later.
pub type StorageFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SharedStorageError>> + 'a>>;

/// Storage that several machines share: files by name, locks that expire, and open challenges.
pub trait SharedStorage: fmt::Debug + Send + Sync {
    /// The bytes of a file, if there is one.
    fn read<'a>(&'a self, name: &'a str) -> StorageFuture<'a, Option<Vec<u8>>>;

    /// Replaces a file as a whole; `None` removes it.
    fn write<'a>(&'a self, name: &'a str, bytes: Option<&'a [u8]>) -> StorageFuture<'a, ()>;

    /// The names of the files whose names begin with this.
    fn list<'a>(&'a self, prefix: &'a str) -> StorageFuture<'a, Vec<String>>;

    /// Takes a lock, or keeps it for this time from now on; whether `owner` has it then.
    fn lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        lifetime: Duration,
    ) -> StorageFuture<'a, bool>;

    /// Releases a lock of `owner`.
    fn unlock<'a>(&'a self, name: &'a str, owner: &'a str) -> StorageFuture<'a, ()>;

    /// Adds an open challenge.
    fn add_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()>;

    /// Removes a challenge.
    fn remove_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()>;

    /// The challenges that were added within an hour and not removed.
    fn challenges(&self) -> StorageFuture<'_, Vec<SharedChallenge>>;
}

/// A challenge to which every machine responds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedChallenge {
    /// `http-01` (RFC 8555 section 8.3).
    Http {
        /// Its token.
        token: String,
        /// The response to it.
        key_authorization: String,
    },
    /// `tls-alpn-01` (RFC 8737).
    Tls {
        /// The name that is verified.
        name: String,
        /// The SHA-256 digest of the key authorization.
        digest: [u8; 32],
    },
}

impl SharedChallenge {
    /// What distinguishes it from other open challenges.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Http { token, .. } => token,
            Self::Tls { name, .. } => name,
        }
    }
}

/// Why a shared storage cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedStorageError(String);

impl SharedStorageError {
    /// With this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for SharedStorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the storage that machines share: {}", self.0)
    }
}

impl std::error::Error for SharedStorageError {}

/// The address of a storage, with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedStorageAddress {
    text: String,
    kind: StorageKind,
}

/// The kinds of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageKind {
    Redis,
    Postgres,
}

impl SharedStorageAddress {
    /// An address, which begins with `redis://`, `rediss://`, `redis+unix://` or `postgres://`.
    ///
    /// # Errors
    /// It begins with something else.
    pub fn parse(text: &str) -> Result<Self, SharedStorageError> {
        let kind = match text.split_once("://") {
            Some(("redis" | "rediss" | "redis+unix", rest)) if !rest.is_empty() => {
                StorageKind::Redis
            }
            Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => StorageKind::Postgres,
            _ => {
                return Err(SharedStorageError::new(
                    "its address begins with redis://, rediss://, redis+unix:// or postgres://",
                ));
            }
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    /// Opens the storage, which is connected to when it is needed.
    ///
    /// # Errors
    /// The address is not valid, or this program was built without such a storage.
    pub fn open(&self) -> Result<Arc<dyn SharedStorage>, SharedStorageError> {
        match self.kind {
            #[cfg(feature = "redis")]
            StorageKind::Redis => redis::open(&self.text),
            #[cfg(feature = "postgres")]
            StorageKind::Postgres => postgres::open(&self.text),
            #[cfg(not(all(feature = "redis", feature = "postgres")))]
            kind => Err(SharedStorageError::new(format!(
                "this program was built without {kind:?}"
            ))),
        }
    }
}

impl fmt::Debug for SharedStorageAddress {
    /// Without the user and the password, which may be parameters, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.text.split('?').next().unwrap_or_default();
        let shown = shown.rsplit('@').next().unwrap_or_default();
        f.debug_tuple("SharedStorageAddress").field(&shown).finish()
    }
}

/// The files of a folder that are the same in a shared storage.
#[derive(Debug)]
pub(crate) struct StorageReplica {
    storage: Arc<dyn SharedStorage>,
    /// The digest of each file when it was the same on both sides last, if there was one.
    known: Mutex<HashMap<String, [u8; 32]>>,
    /// By which this process has locks.
    owner: String,
    /// How many locks were taken.
    locks: AtomicU64,
}

/// What has to be done to make a file the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncStep {
    Nothing,
    /// The file of the folder is older.
    Fetch,
    /// The file of the folder is newer.
    Send,
}

impl StorageReplica {
    pub(crate) fn new(storage: Arc<dyn SharedStorage>) -> Self {
        // No secret, but different for each process.
        let random = [0_u8; 2].map(|zero| RandomState::new().hash_one(zero));
        Self {
            storage,
            known: Mutex::default(),
            owner: random.map(|part| format!("{part:016x}")).concat(),
            locks: AtomicU64::new(0),
        }
    }

    pub(crate) fn storage(&self) -> &Arc<dyn SharedStorage> {
        &self.storage
    }

    /// Makes a file the same on both sides. Who has no lock only fetches it. `local` are the bytes of the file in the
    /// folder. Returns what the folder has to have instead, if it is to be changed.
    pub(crate) async fn sync(
        &self,
        name: &str,
        local: Option<&[u8]>,
        may_send: bool,
    ) -> Result<Option<Option<Vec<u8>>>, SharedStorageError> {
        let remote = self.storage.read(name).await?;
        let of = |bytes: Option<&[u8]>| bytes.map(sha256);
        let (here, there) = (of(local), of(remote.as_deref()));
        let known = self.known(|known| known.get(name).copied());
        match sync_step(known, here, there) {
            SyncStep::Nothing => {
                self.set_known(name, here);
                Ok(None)
            }
            SyncStep::Fetch => {
                self.set_known(name, there);
                Ok(Some(remote))
            }
            SyncStep::Send if may_send => {
                self.storage.write(name, local).await?;
                self.set_known(name, here);
                Ok(None)
            }
            SyncStep::Send => Ok(None),
        }
    }

    fn known<T>(&self, look: impl FnOnce(&mut HashMap<String, [u8; 32]>) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_known(&self, name: &str, digest: Option<[u8; 32]>) {
        // A file that neither side has needs no memory: names of files can be invented.
        self.known(|known| match digest {
            Some(digest) => known.insert(name.to_owned(), digest),
            None => known.remove(name),
        });
    }

    /// Takes a lock, which is kept until it is dropped; `None` while another process has it.
    pub(crate) async fn lock(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<SharedLock>, SharedStorageError> {
        // A lock that is about to be released is not taken again by accident.
        let number = self.locks.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}-{number}", self.owner);
        let is_taken = self.storage.lock(name, &owner, LOCK_LIFETIME).await?;
        Ok(is_taken.then(|| SharedLock::keep(Arc::clone(self), name, owner)))
    }
}

/// Which side is newer: who has changed the file since both were the same. A file that was never the same comes from the
/// storage, if that has one.
fn sync_step(known: Option<[u8; 32]>, here: Option<[u8; 32]>, there: Option<[u8; 32]>) -> SyncStep {
    match known {
        _ if here == there => SyncStep::Nothing,
        Some(_) if known == there => SyncStep::Send,
        Some(_) => SyncStep::Fetch,
        None if there.is_none() => SyncStep::Send,
        None => SyncStep::Fetch,
    }
}

/// A lock in a shared storage. Its lifetime is extended until this is dropped.
#[derive(Debug)]
pub(crate) struct SharedLock {
    replica: Arc<StorageReplica>,
    name: String,
    owner: String,
    is_released: bool,
    lost: Rc<Notify>,
    task: JoinHandle<()>,
}

impl SharedLock {
    fn keep(replica: Arc<StorageReplica>, name: &str, owner: String) -> Self {
        let lost = Rc::new(Notify::new());
        let (kept, notify) = (Arc::clone(&replica), Rc::clone(&lost));
        let name = name.to_owned();
        let (lock, of) = (name.clone(), owner.clone());
        let task = tokio::task::spawn_local(async move {
            let mut failures = 0;
            loop {
                tokio::time::sleep(LOCK_INTERVAL).await;
                let result = kept.storage.lock(&lock, &of, LOCK_LIFETIME).await;
                failures = match result {
                    Ok(true) => 0,
                    Ok(false) => u32::MAX,
                    Err(_) => failures + 1,
                };
                // Another machine may take it soon.
                if failures >= 3 {
                    notify.notify_one();
                    return;
                }
            }
        });
        Self {
            replica,
            name,
            owner,
            is_released: false,
            lost,
            task,
        }
    }

    /// Releases the lock. If the storage cannot be reached, it expires.
    pub(crate) async fn release(mut self) {
        self.task.abort();
        self.is_released = true;
        let _ = self.replica.storage.unlock(&self.name, &self.owner).await;
    }

    /// Waits until this process may not have the lock any more.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for SharedLock {
    fn drop(&mut self) {
        self.task.abort();
        if self.is_released {
            return;
        }
        let replica = Arc::clone(&self.replica);
        let (name, owner) = (
            std::mem::take(&mut self.name),
            std::mem::take(&mut self.owner),
        );
        // Without it, the lock expires.
        tokio::task::spawn_local(async move {
            let _ = replica.storage.unlock(&name, &owner).await;
        });
    }
}

impl CertificateStore {
    /// Makes the files of a certificate the same on both sides; without the lock, they are only fetched.
    pub(crate) async fn sync_certificate(
        &self,
        replica: &StorageReplica,
        managed: &ManagedCertificate,
        may_send: bool,
    ) -> Result<(), CertificateStoreError> {
        self.sync_folder(replica, &self.of(managed), may_send).await
    }

    /// As [`Self::sync_certificate`], by the folder of the certificate.
    pub(crate) async fn sync_folder(
        &self,
        replica: &StorageReplica,
        folder: &Path,
        may_send: bool,
    ) -> Result<(), CertificateStoreError> {
        for name in CERTIFICATE_FILES {
            self.sync_file(replica, &folder.join(name), may_send)
                .await?;
        }
        Ok(())
    }

    /// Removes a certificate from the storage.
    pub(crate) async fn remove_shared(
        &self,
        replica: &StorageReplica,
        folder: &Path,
    ) -> Result<(), CertificateStoreError> {
        for name in CERTIFICATE_FILES {
            let name = self.shared_name(&folder.join(name));
            replica.storage.write(&name, None).await?;
        }
        Ok(())
    }

    /// The name of a file or a lock in the storage: its path in the folder.
    pub(crate) fn shared_name(&self, path: &Path) -> String {
        let name = path.strip_prefix(self.folder()).unwrap_or(path);
        name.display().to_string()
    }

    /// Makes the account at an authority the same on both sides.
    pub(crate) async fn sync_account(
        &self,
        replica: &StorageReplica,
        provider: &AcmeProvider,
    ) -> Result<(), CertificateStoreError> {
        self.sync_file(replica, &self.account_path(provider), true)
            .await
    }

    /// Makes a file the same on both sides.
    pub(crate) async fn sync_file(
        &self,
        replica: &StorageReplica,
        path: &Path,
        may_send: bool,
    ) -> Result<(), CertificateStoreError> {
        let local = self.read(path)?;
        let change = replica
            .sync(&self.shared_name(path), local.as_deref(), may_send)
            .await?;
        match change {
            None => Ok(()),
            Some(None) => self.remove(path),
            Some(Some(bytes)) => self.write(path, &bytes),
        }
    }
}

impl From<SharedStorageError> for CertificateStoreError {
    fn from(error: SharedStorageError) -> Self {
        Self::Shared(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_was_changed_is_newer() {
        let [a, b, c] = [1, 2, 3].map(|byte| Some([byte; 32]));
        for (known, here, there, expected) in [
            (a, a, a, SyncStep::Nothing),
            (None, a, a, SyncStep::Nothing),
            (a, b, a, SyncStep::Send),
            (a, None, a, SyncStep::Send),
            (a, a, b, SyncStep::Fetch),
            (a, a, None, SyncStep::Fetch),
            (a, b, c, SyncStep::Fetch),
            // A folder that was used alone is taken over, unless the storage has something already.
            (None, a, None, SyncStep::Send),
            (None, a, b, SyncStep::Fetch),
            (None, None, b, SyncStep::Fetch),
        ] {
            let found = sync_step(known, here, there);
            assert_eq!(found, expected, "{known:?} {here:?} {there:?}");
        }
    }

    #[test]
    fn addresses_of_other_kinds_are_refused_and_passwords_are_not_shown() {
        for wrong in [
            "",
            "redis",
            "redis://",
            "http://127.0.0.1/",
            "/var/lib",
            "mysql://a/b",
        ] {
            let error = SharedStorageAddress::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("or postgres://"), "{error}");
        }
        for (address, place) in [
            ("rediss://user:p@ss@host:6380/1", "host:6380/1"),
            ("postgres://user:p@ss@host/apus", "host/apus"),
            ("postgresql://host/apus?user=me&password=p@ss", "host/apus"),
        ] {
            let address = SharedStorageAddress::parse(address).unwrap();
            let shown = format!("{address:?}");
            assert!(shown.contains(place) && !shown.contains("ss@"), "{shown}");
            assert!(!shown.contains("p@ss"), "{shown}");
        }
    }
}
