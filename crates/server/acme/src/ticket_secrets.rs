//! The secrets of session tickets in the folder of certificates, so that sessions can be resumed after a restart, and on all
//! machines that share the folder.
//!
//! ```text
//! tickets/secrets.json                     the secrets, with the time of each
//! tickets/lock                             held while they are changed
//! ```

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_net::tls::{TicketSecret, TicketSecrets};
use apus_tokens::{Hexadecimal, from_hexadecimal, random_bytes};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::task::JoinHandle;

use crate::shared::{SharedStorage, StorageReplica};
use crate::store::{CertificateStore, CertificateStoreError};

/// The file of the secrets, in the folder and in the storage.
const FILE: &str = "tickets/secrets.json";
/// How long tickets are encrypted with one secret.
const ROTATION_INTERVAL: time::Duration = time::Duration::hours(12);
/// How long other machines may take to read a new secret before tickets are encrypted with it.
const SPREADING_TIME: time::Duration = time::Duration::minutes(3);
/// The interval in which the folder is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The same while there is no secret, as when another process makes the first one.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Secrets, as they are stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredSecrets {
    secrets: Vec<StoredSecret>,
}

#[derive(Serialize, Deserialize)]
struct StoredSecret {
    #[serde(with = "time::serde::rfc3339")]
    created: OffsetDateTime,
    /// In hexadecimal digits.
    secret: String,
}

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSecret")
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

/// Keeps a process's secrets of session tickets equal to the secrets in a folder, and rotates them, until it is dropped.
#[derive(Debug)]
pub struct TicketRotation {
    task: JoinHandle<()>,
}

impl TicketRotation {
    /// Reads the secrets of a folder now, and from time to time. With a storage that machines share, they are the same there. It
    /// has to be called where tasks of this thread run.
    pub fn start(
        store: CertificateStore,
        shared: Option<Arc<dyn SharedStorage>>,
        secrets: Arc<TicketSecrets>,
    ) -> Self {
        let replica = shared.map(|storage| Arc::new(StorageReplica::new(storage)));
        let mut count = match &replica {
            None => refresh(&store, &secrets),
            Some(_) => 0,
        };
        let task = tokio::task::spawn_local(async move {
            loop {
                if let Some(replica) = &replica {
                    let now = OffsetDateTime::now_utc();
                    count = match refresh_shared(&store, replica, now).await {
                        Ok(found) => {
                            let count = found.len();
                            secrets.set(found);
                            count
                        }
                        Err(error) => {
                            tracing::error!(%error, "this machine does not share the secrets of session tickets with the others");
                            refresh(&store, &secrets)
                        }
                    };
                }
                tokio::time::sleep(match count {
                    0 => FIRST_CHECK_INTERVAL,
                    _ => CHECK_INTERVAL,
                })
                .await;
                if replica.is_none() {
                    count = refresh(&store, &secrets);
                }
            }
        });
        Self { task }
    }
}

/// The secrets of a storage that machines share. One machine at a time rotates them.
async fn refresh_shared(
    store: &CertificateStore,
    replica: &Arc<StorageReplica>,
    now: OffsetDateTime,
) -> Result<Vec<TicketSecret>, CertificateStoreError> {
    let path = store.folder().join(FILE);
    let Some(lock) = replica.lock(FILE).await? else {
        store.sync_file(replica, &path, false).await?;
        return Ok(active(&store.read_ticket_secrets(now)?));
    };
    let rotated = async {
        store.sync_file(replica, &path, true).await?;
        let found = store.rotate_ticket_secrets(now)?;
        store.sync_file(replica, &path, true).await?;
        Ok(found)
    }
    .await;
    lock.release().await;
    rotated
}

impl Drop for TicketRotation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Uses the secrets of a folder. The ones in use stay if those cannot be read. Returns how many there are,
/// or one after an error, which is reported again at the next check.
fn refresh(store: &CertificateStore, secrets: &TicketSecrets) -> usize {
    match store.rotate_ticket_secrets(OffsetDateTime::now_utc()) {
        Ok(found) => {
            let count = found.len();
            secrets.set(found);
            count
        }
        Err(error) => {
            tracing::error!(%error, "the secrets of session tickets cannot be rotated");
            1
        }
    }
}

impl CertificateStore {
    /// The secrets of session tickets. A new one is stored if the youngest is old, and those that are too old are removed.
    fn rotate_ticket_secrets(
        &self,
        now: OffsetDateTime,
    ) -> Result<Vec<TicketSecret>, CertificateStoreError> {
        let folder = self.folder().join("tickets");
        let mut stored = self.read_ticket_secrets(now)?;
        let is_due = |stored: &StoredSecrets| {
            let mut secrets = stored.secrets.iter();
            !secrets.any(|secret| now - secret.created < ROTATION_INTERVAL)
        };
        // Another process may rotate them just now; they are read again then.
        if is_due(&stored)
            && let Some(_lock) = self.lock_folder(&folder)?
        {
            stored = self.read_ticket_secrets(now)?;
            if is_due(&stored) {
                stored.secrets.push(StoredSecret {
                    created: now,
                    secret: random_secret()?,
                });
                let json = serde_json::to_vec_pretty(&stored).map_err(|error| {
                    CertificateStoreError::Damaged(folder.clone(), error.to_string())
                })?;
                self.write(&self.folder().join(FILE), &json)?;
            }
        }
        Ok(active(&stored))
    }

    /// The stored secrets without those that are too old, or of a time to come because a clock was wrong. A damaged file has
    /// none.
    fn read_ticket_secrets(
        &self,
        now: OffsetDateTime,
    ) -> Result<StoredSecrets, CertificateStoreError> {
        let path = self.folder().join(FILE);
        let Some(json) = self.read(&path)? else {
            return Ok(StoredSecrets::default());
        };
        let mut stored: StoredSecrets = serde_json::from_slice(&json).unwrap_or_else(|error| {
            tracing::error!(%error, "the secrets of session tickets are damaged, and made again");
            StoredSecrets::default()
        });
        let lifetime = ROTATION_INTERVAL + SPREADING_TIME + TicketSecrets::LIFETIME;
        stored.secrets.retain(|secret| {
            let age = now - secret.created;
            age < lifetime
                && age > -SPREADING_TIME
                && from_hexadecimal::<32>(&secret.secret).is_some()
        });
        Ok(stored)
    }
}

/// The secrets, each with the time from which on tickets are encrypted with it.
fn active(stored: &StoredSecrets) -> Vec<TicketSecret> {
    let is_alone = stored.secrets.len() == 1;
    let secrets = stored.secrets.iter().filter_map(|one| {
        let active_from = if is_alone {
            one.created
        } else {
            one.created + SPREADING_TIME
        };
        let secret = from_hexadecimal(&one.secret)?;
        Some(TicketSecret::new(secret, SystemTime::from(active_from)))
    });
    secrets.collect()
}

/// A random secret in hexadecimal digits.
pub(crate) fn random_secret() -> Result<String, CertificateStoreError> {
    let secret = random_bytes::<32>()
        .map_err(|error| CertificateStoreError::Io("tickets".into(), error.into()))?;
    Ok(Hexadecimal(&secret).to_string())
}

#[cfg(test)]
mod tests {
    use apus_testkit::block_on;
    use time::macros::datetime;

    use super::*;
    use crate::shared::memory::MemoryStorage;

    const START: OffsetDateTime = datetime!(2026-11-25 8:00 UTC);

    #[test]
    fn secrets_rotate_and_are_kept_while_tickets_of_them_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let store = CertificateStore::in_folder(folder.path());
        let at = |hours: i64, minutes: i64| {
            let now = START + time::Duration::hours(hours) + time::Duration::minutes(minutes);
            store.rotate_ticket_secrets(now).unwrap()
        };
        let first = at(0, 0);
        assert_eq!(first.len(), 1);
        assert_eq!(at(11, 59), first);
        let second = at(12, 0);
        assert_eq!(second.len(), 2);
        // The old one stays until its last ticket has expired.
        assert_eq!(at(23, 59), second);
        let third = at(24, 0);
        assert_eq!(third.len(), 3);
        let later = at(24, 4);
        assert_eq!(later.len(), 2);
        assert!(third.ends_with(&later));
        // After a long pause, there is one that is used at once.
        assert_eq!(at(240, 0).len(), 1);
        assert_eq!(store.exposed().unwrap(), Vec::<std::path::PathBuf>::new());
    }

    #[test]
    fn another_process_gets_the_same_secrets_and_a_damaged_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| CertificateStore::in_folder(folder.path()));
        let secrets = one.rotate_ticket_secrets(START).unwrap();
        assert_eq!(other.rotate_ticket_secrets(START).unwrap(), secrets);
        let path = folder.path().join("tickets/secrets.json");
        std::fs::write(&path, "{").unwrap();
        let new = other.rotate_ticket_secrets(START).unwrap();
        assert_eq!(new.len(), 1);
        assert_ne!(new, secrets);
        // A secret of a time to come is not used: a clock was wrong.
        let early = START - time::Duration::days(1);
        let again = other.rotate_ticket_secrets(early).unwrap();
        assert_eq!(again.len(), 1);
        assert_ne!(again, new);
    }

    /// Two machines that start together: one makes the first secret while the other one looks.
    #[test]
    fn a_machine_that_finds_no_secret_yet_looks_again_soon() {
        let memory = Arc::new(MemoryStorage::default());
        let storage: Arc<dyn SharedStorage> = Arc::clone(&memory) as _;
        let replica = Arc::new(StorageReplica::new(Arc::clone(&storage)));
        let folder = tempfile::tempdir().unwrap();
        let secrets: Arc<TicketSecrets> = Arc::default();
        block_on(async {
            let other = replica.lock(FILE).await.unwrap().unwrap();
            let store = CertificateStore::in_folder(folder.path());
            let rotation = TicketRotation::start(store, Some(storage), Arc::clone(&secrets));
            while memory.refusals() == 0 {
                tokio::task::yield_now().await;
            }
            assert!(!format!("{secrets:?}").contains("active_from"));
            other.release().await;
            let known = async {
                while !format!("{secrets:?}").contains("active_from") {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(CHECK_INTERVAL / 2, known)
                .await
                .unwrap();
            drop(rotation);
        });
    }

    #[test]
    fn machines_with_one_storage_have_the_same_secrets_and_rotate_them_once() {
        let storage: Arc<dyn SharedStorage> = Arc::new(MemoryStorage::default());
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = [0, 1].map(|at| {
            let store = CertificateStore::in_folder(folders[at].path());
            (store, Arc::new(StorageReplica::new(Arc::clone(&storage))))
        });
        let secrets_of = |machine: &(CertificateStore, Arc<StorageReplica>), hours: i64| {
            let now = START + time::Duration::hours(hours);
            block_on(refresh_shared(&machine.0, &machine.1, now)).unwrap()
        };
        let first = secrets_of(&one, 0);
        assert_eq!(first.len(), 1);
        assert_eq!(secrets_of(&other, 0), first);
        // Whoever comes first rotates.
        let second = secrets_of(&other, 12);
        assert_eq!(second.len(), 2);
        assert_eq!(second[0], secrets_of(&one, 12)[0]);
        assert_eq!(secrets_of(&one, 12), second);
        // While another machine has the lock, its secrets are only read.
        block_on(async {
            let lock = one.1.lock(FILE).await.unwrap();
            let late = START + time::Duration::hours(24);
            let found = refresh_shared(&other.0, &other.1, late).await.unwrap();
            assert_eq!(found.len(), 2);
            lock.unwrap().release().await;
        });
        // The secrets of a machine that was alone before give way.
        let third = tempfile::tempdir().unwrap();
        let third = CertificateStore::in_folder(third.path());
        let own = third.rotate_ticket_secrets(START).unwrap();
        let third = (third, Arc::new(StorageReplica::new(Arc::clone(&storage))));
        let found = secrets_of(&third, 13);
        assert_eq!(found, second);
        assert!(!found.contains(&own[0]));
    }
}
