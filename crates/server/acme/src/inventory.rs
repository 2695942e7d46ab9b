//! Changes of stored certificates by operators: revocation, removal and import, in the folder of a machine and in the storage
//! that it shares with others.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use instant_acme::{Account, RevocationRequest};

use crate::import::{ForeignCertificates, ImportedCertificate};
use crate::issue::stored_account;
use crate::issue_error::IssueError;
use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::shared::{SharedLock, SharedStorage, StorageReplica};
use crate::store::{CertificateLock, CertificateStore, CertificateStoreError};
use crate::stored::{RevocationReason, StoredCertificate};

/// How long a server may use a certificate before a command fails.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_INTERVAL: Duration = Duration::from_millis(200);
/// The folder of certificates.
const CERTIFICATES: &str = "certificates";

/// The certificates in a store, and in the storage that machines share. Its futures run where tasks of this thread do.
#[derive(Debug)]
pub struct CertificateInventory {
    store: CertificateStore,
    replica: Option<Arc<StorageReplica>>,
}

/// A certificate that no server orders meanwhile.
struct InventoryLock {
    _local: CertificateLock,
    shared: Option<SharedLock>,
}

impl CertificateInventory {
    /// The certificates in this store, whose files are copies of those in a storage, if there is one.
    pub fn new(store: CertificateStore, shared: Option<Arc<dyn SharedStorage>>) -> Self {
        Self {
            store,
            replica: shared.map(|storage| Arc::new(StorageReplica::new(storage))),
        }
    }

    /// The folder.
    pub fn store(&self) -> &CertificateStore {
        &self.store
    }

    /// Makes the files in the folder equal to the storage, except for certificates that a server of this machine orders.
    ///
    /// # Errors
    /// The storage cannot be reached, or the folder cannot be written to.
    pub async fn fetch(&self) -> Result<(), CertificateStoreError> {
        let Some(replica) = &self.replica else {
            return Ok(());
        };
        let names = replica.storage().list(&format!("{CERTIFICATES}/")).await?;
        let folders: BTreeSet<PathBuf> = names.iter().filter_map(|name| folder_of(name)).collect();
        for folder in folders {
            let folder = self.store.folder().join(folder);
            if let Some(_lock) = self.store.lock_folder(&folder)? {
                self.store.sync_folder(replica, &folder, false).await?;
            }
        }
        Ok(())
    }

    /// Revokes a certificate at its authority (RFC 8555 section 7.6) by the account that ordered it. A server that
    /// maintains it orders another one, with another key. `root` is the root certificate of the HTTPS server of an
    /// authority that is not public.
    ///
    /// # Errors
    /// The authority is not known, the account is not in the store, or the authority refuses.
    pub async fn revoke(
        &self,
        one: &StoredCertificate,
        reason: RevocationReason,
        root: Option<&Path>,
    ) -> Result<(), IssueError> {
        let Some(provider) = one.state.issued_by.as_deref().and_then(AcmeProvider::find) else {
            return Err(IssueError::new(
                "it is not known which authority issued the certificate",
            ));
        };
        if let Some(replica) = &self.replica {
            self.store.sync_account(replica, &provider).await?;
        }
        let account: Account = stored_account(&self.store, &provider, (root, &Arc::default()))
            .await?
            .ok_or_else(|| {
                IssueError::new(format!(
                    "the account at {} that ordered the certificate is not in the folder {}",
                    provider.name,
                    self.store.folder().display()
                ))
            })?;
        let Some(leaf) = one.certificate.key().cert.first() else {
            return Err(IssueError::new("the certificate is empty"));
        };
        self.change(&one.folder, async || {
            let mut attempts = 0;
            loop {
                let request = RevocationRequest {
                    certificate: leaf,
                    reason: Some(reason.code()),
                };
                match account.revoke(&request).await.map_err(IssueError::from) {
                    Ok(()) => break,
                    Err(error) if error.is_already_revoked() => break,
                    Err(error) if error.is_bad_nonce() && attempts < 10 => attempts += 1,
                    Err(error) => return Err(error),
                }
            }
            let now = self.store.certificate_in(&one.folder)?;
            let is_same = now.is_some_and(|now| now.key().cert.first() == Some(leaf));
            if !is_same {
                // It has been renewed meanwhile.
                return Ok(());
            }
            let mut state = self.store.state_in(&one.folder)?;
            state.revoked = true;
            state.next_attempt = None;
            state.order = None;
            Ok(self.store.put_state_in(&one.folder, &state)?)
        })
        .await
    }

    /// Removes a certificate, its private key and what is known of it. It is not revoked.
    ///
    /// # Errors
    /// Another process orders it, or its files cannot be removed.
    pub async fn forget(&self, one: StoredCertificate) -> Result<(), IssueError> {
        let lock = self.lock(&one.folder).await?;
        if let Some(replica) = &self.replica {
            self.store.remove_shared(replica, &one.folder).await?;
        }
        let removed = self.store.remove_folder(&one.folder);
        lock.release().await;
        Ok(removed?)
    }

    /// Stores those certificates of another program that a configuration would order. Returns what was done for each of these.
    ///
    /// # Errors
    /// A file cannot be written, or another process orders a certificate.
    pub async fn import(
        &self,
        foreign: &ForeignCertificates,
        managed: &[ManagedCertificate],
    ) -> Result<Vec<ImportedCertificate>, IssueError> {
        let mut done = Vec::new();
        for managed in managed {
            let folder = self.store.of(managed);
            let import = async || foreign.import_one(&self.store, managed);
            done.push(self.change(&folder, import).await?);
        }
        Ok(done)
    }

    /// Changes the files of a certificate, on all machines, while no server orders it.
    async fn change<T>(
        &self,
        folder: &Path,
        change: impl AsyncFnOnce() -> Result<T, IssueError>,
    ) -> Result<T, IssueError> {
        let lock = self.lock(folder).await?;
        let changed = async {
            if let Some(replica) = &self.replica {
                self.store.sync_folder(replica, folder, true).await?;
            }
            let changed = change().await?;
            if let Some(replica) = &self.replica {
                self.store.sync_folder(replica, folder, true).await?;
            }
            Ok(changed)
        }
        .await;
        lock.release().await;
        changed
    }

    /// Waits until no server orders a certificate, or asks its authority for the time of a renewal.
    async fn lock(&self, folder: &Path) -> Result<InventoryLock, IssueError> {
        let begun = Instant::now();
        loop {
            if let Some(local) = self.store.lock_folder(folder)? {
                let Some(replica) = &self.replica else {
                    return Ok(InventoryLock {
                        _local: local,
                        shared: None,
                    });
                };
                let lock = replica.lock(&self.store.shared_name(folder)).await;
                if let Some(shared) = lock.map_err(CertificateStoreError::from)? {
                    return Ok(InventoryLock {
                        _local: local,
                        shared: Some(shared),
                    });
                }
            }
            if begun.elapsed() > LOCK_PATIENCE {
                return Err(IssueError::new(
                    "a server orders this certificate just now; try again later",
                ));
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    }
}

impl InventoryLock {
    async fn release(self) {
        if let Some(shared) = self.shared {
            shared.release().await;
        }
    }
}

/// The folder of a certificate, below the folder of the store, by the name of one of its files in the storage.
fn folder_of(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_right = path.components().count() == 3 && path.components().all(is_plain);
    path.parent().filter(|_| is_right).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use apus_testkit::{CertificateAuthority, block_on};

    use super::*;
    use crate::ImportResult;
    use crate::settings::AcmeSettings;
    use crate::shared::memory::MemoryStorage;

    #[test]
    fn names_of_files_in_a_storage_do_not_leave_the_folder() {
        let folder = folder_of("certificates/example.com/state.json");
        assert_eq!(folder, Some(PathBuf::from("certificates/example.com")));
        for wrong in [
            "certificates/../state.json",
            "certificates/state.json",
            "certificates/a/b/state.json",
            "/certificates/state.json",
        ] {
            assert_eq!(folder_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_one_machine_imports_and_forgets_is_imported_and_forgotten_by_all() {
        let place = tempfile::tempdir().unwrap();
        let certbot = place.path().join("certbot/live/example.com");
        std::fs::create_dir_all(&certbot).unwrap();
        let made = CertificateAuthority::generate().ecdsa(&["example.com"]);
        std::fs::write(certbot.join("fullchain.pem"), made.pem).unwrap();
        std::fs::write(certbot.join("privkey.pem"), made.key).unwrap();
        let foreign = ForeignCertificates::read(&place.path().join("certbot")).unwrap();
        let managed = ManagedCertificate {
            names: vec!["example.com".to_owned()],
            settings: AcmeSettings::default(),
            is_additional: false,
        };
        let shared: Arc<dyn SharedStorage> = Arc::new(MemoryStorage::default());
        let machine = |name: &str| {
            let store = CertificateStore::in_folder(place.path().join(name));
            CertificateInventory::new(store, Some(Arc::clone(&shared)))
        };
        let (one, other) = (machine("one"), machine("other"));
        block_on(async {
            let import = one.import(&foreign, std::slice::from_ref(&managed));
            assert_eq!(import.await.unwrap()[0].result, ImportResult::Imported);
            // The other one has it already, and shows it.
            assert!(other.store().stored().unwrap().is_empty());
            other.fetch().await.unwrap();
            assert_eq!(other.store().stored().unwrap().len(), 1);
            let import = other.import(&foreign, std::slice::from_ref(&managed));
            assert_eq!(import.await.unwrap()[0].result, ImportResult::Kept);
            let stored = other.store().stored().unwrap().remove(0);
            other.forget(stored).await.unwrap();
            assert!(other.store().stored().unwrap().is_empty());
            assert!(shared.list("").await.unwrap().is_empty());
            // A third one does not get it any more.
            let third = machine("third");
            third.fetch().await.unwrap();
            assert!(third.store().stored().unwrap().is_empty());
        });
    }
}
