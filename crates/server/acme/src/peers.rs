//! The other processes that maintain certificates of the same names, as on several machines, and the open challenges to which
//! all of them respond: through a storage that they share, or through the same folder.
//!
//! ```text
//! machines/<id>                            locked by each process that uses the folder, as long as it runs
//! challenges/open.json                     the open challenges, each with the time when it expires
//! challenges/lock                          held while they are changed
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use crate::shared::{SharedChallenge, SharedStorage};
use crate::store::{CertificateLock, CertificateStore, CertificateStoreError};

/// How long a challenge is responded to.
const CHALLENGE_LIFETIME: time::Duration = time::Duration::hours(1);
/// How often, and in which interval, the lock of the challenges is tried, which is held for a moment.
const LOCK_ATTEMPTS: u32 = 200;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The processes that respond to the same challenges.
#[derive(Debug)]
pub(crate) enum ChallengePeers {
    /// All that use a storage.
    Storage(Arc<dyn SharedStorage>),
    /// All that use a folder.
    Folder(FolderPeers),
}

/// The processes with the same folder.
#[derive(Debug)]
pub(crate) struct FolderPeers {
    store: CertificateStore,
    /// The name of the file by which others know that this process runs.
    id: String,
    presence: RefCell<Option<CertificateLock>>,
}

/// Challenges by their keys, each with the seconds since 1970 when it expires.
type OpenChallenges = BTreeMap<String, (i64, SharedChallenge)>;

impl ChallengePeers {
    /// Has others know of this process.
    pub(crate) fn join(&self) -> Result<(), CertificateStoreError> {
        match self {
            Self::Storage(_) => Ok(()),
            Self::Folder(folder) => folder.join(),
        }
    }

    /// Has all respond to a challenge. Returns whether there are others.
    pub(crate) async fn add(
        &self,
        challenge: &SharedChallenge,
    ) -> Result<bool, CertificateStoreError> {
        match self {
            Self::Storage(storage) => {
                storage.add_challenge(challenge).await?;
                Ok(true)
            }
            Self::Folder(folder) => folder.add(challenge).await,
        }
    }

    /// Has others forget a challenge, which they do after an hour otherwise.
    pub(crate) async fn remove(
        &self,
        challenge: &SharedChallenge,
    ) -> Result<(), CertificateStoreError> {
        match self {
            Self::Storage(storage) => Ok(storage.remove_challenge(challenge).await?),
            Self::Folder(folder) => {
                let remove = |open: &mut OpenChallenges| open.remove(challenge.key());
                folder.change(remove).await.map(|_| ())
            }
        }
    }

    /// The open challenges.
    pub(crate) async fn open(&self) -> Result<Vec<SharedChallenge>, CertificateStoreError> {
        match self {
            Self::Storage(storage) => Ok(storage.challenges().await?),
            Self::Folder(folder) => {
                let open = folder.read()?.into_values();
                Ok(open.map(|(_, challenge)| challenge).collect())
            }
        }
    }
}

impl FolderPeers {
    pub(crate) fn new(store: CertificateStore) -> Self {
        // No secret, but different for each process.
        let random = [0_u8; 2].map(|zero| RandomState::new().hash_one(zero));
        Self {
            store,
            id: random.map(|part| format!("{part:016x}")).concat(),
            presence: RefCell::default(),
        }
    }

    fn join(&self) -> Result<(), CertificateStoreError> {
        if self.presence.borrow().is_some() {
            return Ok(());
        }
        let path = self.store.folder().join("machines").join(&self.id);
        // Nobody sees it before it is locked.
        let lock = self.store.lock_new_file(&path)?;
        self.presence.replace(Some(lock));
        Ok(())
    }

    /// Whether another process uses the folder. What a process has left that was killed is removed.
    fn has_others(&self) -> Result<bool, CertificateStoreError> {
        let folder = self.store.folder().join("machines");
        let failed = |error| CertificateStoreError::Io(folder.clone(), error);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let is_own = entry.file_name().to_str() == Some(&self.id);
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_own || is_hidden {
                continue;
            }
            let path = entry.path();
            let file = match OpenOptions::new().write(true).open(&path) {
                Ok(file) => file,
                // It has ended just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(CertificateStoreError::Io(path, error)),
            };
            match self.store.try_lock(file, &path)? {
                None => return Ok(true),
                Some(_lock) => self.store.remove(&path)?,
            }
        }
        Ok(false)
    }

    async fn add(&self, challenge: &SharedChallenge) -> Result<bool, CertificateStoreError> {
        if !self.has_others()? {
            return Ok(false);
        }
        let expires = (OffsetDateTime::now_utc() + CHALLENGE_LIFETIME).unix_timestamp();
        let key = challenge.key().to_owned();
        let value = (expires, challenge.clone());
        self.change(|open| open.insert(key, value)).await?;
        Ok(true)
    }

    /// Changes the open challenges, while no other process does.
    async fn change<T>(
        &self,
        change: impl FnOnce(&mut OpenChallenges) -> T,
    ) -> Result<T, CertificateStoreError> {
        let folder = self.store.folder().join("challenges");
        let mut attempts = 0;
        let _lock = loop {
            if let Some(lock) = self.store.lock_folder(&folder)? {
                break lock;
            }
            attempts += 1;
            if attempts == LOCK_ATTEMPTS {
                let error = io::Error::from(io::ErrorKind::WouldBlock);
                return Err(CertificateStoreError::Io(folder.join("lock"), error));
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        };
        let mut open = self.read()?;
        let changed = change(&mut open);
        let json = serde_json::to_vec(&open)
            .map_err(|error| CertificateStoreError::Damaged(folder.clone(), error.to_string()))?;
        self.store.write(&folder.join("open.json"), &json)?;
        Ok(changed)
    }

    /// The challenges that have not expired. A damaged file has none.
    fn read(&self) -> Result<OpenChallenges, CertificateStoreError> {
        let path = self.store.folder().join("challenges/open.json");
        let Some(json) = self.store.read(&path)? else {
            return Ok(OpenChallenges::new());
        };
        let mut open: OpenChallenges = serde_json::from_slice(&json).unwrap_or_default();
        let now = OffsetDateTime::now_utc().unix_timestamp();
        open.retain(|_, (expires, _)| *expires > now);
        Ok(open)
    }
}

impl Drop for FolderPeers {
    fn drop(&mut self) {
        if self.presence.take().is_some() {
            let path = self.store.folder().join("machines").join(&self.id);
            // Who looks next removes it otherwise.
            let _ = self.store.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use apus_testkit::block_on;

    use super::*;

    fn peers(folder: &std::path::Path) -> ChallengePeers {
        ChallengePeers::Folder(FolderPeers::new(CertificateStore::in_folder(folder)))
    }

    fn challenge(token: &str) -> SharedChallenge {
        SharedChallenge::Http {
            token: token.to_owned(),
            key_authorization: format!("{token}.key"),
        }
    }

    #[test]
    fn challenges_are_in_a_folder_while_others_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| peers(folder.path()));
        let [first, second] = ["first", "second"].map(challenge);
        block_on(async {
            one.join().unwrap();
            one.join().unwrap();
            // Nobody else has to know.
            assert!(!one.add(&first).await.unwrap());
            assert!(one.open().await.unwrap().is_empty());
            other.join().unwrap();
            assert!(one.add(&first).await.unwrap());
            assert!(other.add(&second).await.unwrap());
            assert_eq!(other.open().await.unwrap(), [first.clone(), second.clone()]);
            one.remove(&first).await.unwrap();
            assert_eq!(one.open().await.unwrap(), [second]);
            drop(other);
            assert!(!one.add(&first).await.unwrap());
        });
        let store = CertificateStore::in_folder(folder.path());
        assert!(store.exposed().unwrap().is_empty());
    }

    #[test]
    fn a_process_that_was_killed_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let one = peers(folder.path());
        one.join().unwrap();
        let left = folder.path().join("machines/0123");
        fs::write(&left, "").unwrap();
        assert!(!block_on(one.add(&challenge("token"))).unwrap());
        assert!(!left.exists());
        fs::create_dir(folder.path().join("challenges")).unwrap();
        fs::write(folder.path().join("challenges/open.json"), "{").unwrap();
        assert!(block_on(one.open()).unwrap().is_empty());
    }
}
