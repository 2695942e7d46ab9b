//! Orders certificates and renews them: a task for each.

mod on_demand;
mod task;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_patterns::canonical_host_name;
use serde::Serialize;
use time::OffsetDateTime;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use self::on_demand::SiteOrders;
use self::task::CertificateTask;
use crate::challenges::PendingChallenges;
use crate::issue::OrderProgress;
use crate::on_demand::OnDemandNames;
use crate::peers::{ChallengePeers, FolderPeers};
use crate::provider::AcmeProvider;
use crate::settings::ManagedCertificate;
use crate::shared::{SharedStorage, StorageReplica};
use crate::store::CertificateStore;

/// Orders at a time: of the certificates that a configuration names, and of each site with certificates on demand.
const CONCURRENT_ORDERS: usize = 4;
/// The interval in which challenges of other machines are looked for.
const SHARED_CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);

/// Orders certificates and renews them. It belongs to one thread, which runs its tasks.
pub struct CertificateMaintenance {
    shared: Rc<Shared>,
    tasks: RefCell<HashMap<String, CertificateTask>>,
    on_demand: Option<JoinHandle<()>>,
    /// Responds to the challenges of others, while there are certificates.
    shared_challenges: RefCell<Option<JoinHandle<()>>>,
}

struct Shared {
    store: CertificateStore,
    challenges: Arc<PendingChallenges>,
    peers: ChallengePeers,
    /// The storage that machines share, and what is the same there.
    replica: Option<Arc<StorageReplica>>,
    orders: Rc<Semaphore>,
    account_creation: tokio::sync::Mutex<()>,
    issued: mpsc::Sender<()>,
    on_demand: Arc<OnDemandNames>,
    /// The certificates for names that were first seen in a handshake, by their names.
    on_demand_tasks: RefCell<HashMap<Box<str>, CertificateTask>>,
    /// The orders on demand of each site, by its names.
    on_demand_orders: RefCell<HashMap<String, SiteOrders>>,
}

/// What is known of a certificate.
#[derive(Clone, Debug, Serialize)]
pub struct CertificateStatus {
    /// The names that it is for.
    pub names: Vec<String>,
    /// When it expires; `None` if there is none yet.
    #[serde(with = "time::serde::rfc3339::option")]
    pub not_after: Option<OffsetDateTime>,
    /// How long it is still valid; negative if it has expired.
    pub expires_in_seconds: Option<i64>,
    /// When it is renewed.
    #[serde(with = "time::serde::rfc3339::option")]
    pub renew_at: Option<OffsetDateTime>,
    /// The name or the directory of the authority that issued it.
    pub issued_by: Option<String>,
    /// Failed attempts since then.
    pub failures: u32,
    /// When the next attempt is made, after a failure.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt: Option<OffsetDateTime>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Whether the certificate was revoked.
    pub revoked: bool,
    /// What an order does just now.
    pub step: Option<&'static str>,
    /// Attempts that have ended since the start of the process.
    pub attempts: u64,
}

impl CertificateMaintenance {
    /// Maintains the certificates in a store. The receiver gets a message when there is a new certificate.
    pub fn new(
        store: CertificateStore,
        challenges: Arc<PendingChallenges>,
    ) -> (Self, mpsc::Receiver<()>) {
        let (issued, receiver) = mpsc::channel(1);
        warn_of_exposed_files(&store);
        let maintenance = Self {
            shared: Rc::new(Shared {
                peers: ChallengePeers::Folder(FolderPeers::new(store.clone())),
                store,
                challenges,
                replica: None,
                orders: Rc::new(Semaphore::new(CONCURRENT_ORDERS)),
                account_creation: tokio::sync::Mutex::default(),
                issued,
                on_demand: Arc::default(),
                on_demand_tasks: RefCell::default(),
                on_demand_orders: RefCell::default(),
            }),
            tasks: RefCell::default(),
            on_demand: None,
            shared_challenges: RefCell::default(),
        };
        (maintenance, receiver)
    }

    /// Shares certificates, orders and challenges with other machines by this storage, in place of the folder. It has to be
    /// called before [`Self::with_on_demand`] and [`Self::apply`].
    #[must_use]
    pub fn with_shared_storage(mut self, storage: Arc<dyn SharedStorage>) -> Self {
        if let Some(shared) = Rc::get_mut(&mut self.shared) {
            shared.peers = ChallengePeers::Storage(Arc::clone(&storage));
            shared.replica = Some(Arc::new(StorageReplica::new(storage)));
        }
        self
    }

    /// Maintains the certificates for names that are first seen in a handshake, too. It has to be called where tasks of this
    /// thread run, and before [`Self::apply`].
    #[must_use]
    pub fn with_on_demand(mut self, names: Arc<OnDemandNames>) -> Self {
        if let Some(shared) = Rc::get_mut(&mut self.shared) {
            shared.on_demand = names;
        }
        let shared = Rc::clone(&self.shared);
        self.on_demand = Some(tokio::task::spawn_local(shared.run_on_demand()));
        self
    }

    /// Maintains these certificates from now on, and no others. It has to be called where tasks of this thread run.
    pub fn apply(&self, certificates: Vec<ManagedCertificate>) {
        let mut old = self.tasks.take();
        let mut tasks = HashMap::new();
        for managed in certificates {
            let id = managed.id();
            let task = match old.remove(&id) {
                Some(task) if *task.managed == managed => task,
                other => {
                    if let Some(task) = other {
                        task.handle.abort();
                    }
                    self.start(managed)
                }
            };
            tasks.insert(id, task);
        }
        for task in old.into_values() {
            task.handle.abort();
        }
        let has_certificates = !tasks.is_empty() || self.shared.on_demand.has_sites();
        self.share_challenges(has_certificates);
        self.tasks.replace(tasks);
        self.shared.apply_on_demand();
    }

    /// Responds to the challenges of other machines, if this one has certificates, too.
    fn share_challenges(&self, has_certificates: bool) {
        let mut task = self.shared_challenges.borrow_mut();
        match (&*task, has_certificates) {
            (None, true) => {
                let shared = Rc::clone(&self.shared);
                *task = Some(tokio::task::spawn_local(shared.respond_for_others()));
            }
            (Some(running), false) => {
                running.abort();
                *task = None;
            }
            _ => {}
        }
    }

    fn start(&self, managed: ManagedCertificate) -> CertificateTask {
        CertificateTask::start(&self.shared, managed, false)
    }

    /// Renews the certificates that have this name now; returns how many there are.
    pub fn renew(&self, name: &str) -> usize {
        let name = canonical_host_name(name).unwrap_or(name.into());
        let tasks = self.tasks.borrow();
        let on_demand = self.shared.on_demand_tasks.borrow();
        let found = tasks
            .values()
            .chain(on_demand.values())
            .filter(|task| task.managed.names.iter().any(|has| **has == *name));
        found.map(|task| task.renewal.notify_one()).count()
    }

    /// What is known of the certificates, in the order of their names.
    pub fn status(&self) -> Vec<CertificateStatus> {
        let tasks = self.tasks.borrow();
        let on_demand = self.shared.on_demand_tasks.borrow();
        let mut status: Vec<_> = tasks
            .values()
            .chain(on_demand.values())
            .map(|task| self.shared.status(&task.managed, &task.progress))
            .collect();
        status.sort_by(|a, b| a.names.cmp(&b.names));
        status
    }
}

impl Drop for CertificateMaintenance {
    fn drop(&mut self) {
        let on_demand = self.shared.on_demand_tasks.take().into_values();
        for task in self.tasks.take().into_values().chain(on_demand) {
            task.handle.abort();
        }
        let shared_challenges = self.shared_challenges.take();
        for task in self.on_demand.iter().chain(&shared_challenges) {
            task.abort();
        }
    }
}

impl std::fmt::Debug for CertificateMaintenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateMaintenance")
            .field("certificates", &self.tasks.borrow().len())
            .finish_non_exhaustive()
    }
}

impl Shared {
    async fn respond_for_others(self: Rc<Self>) {
        let mut is_told = false;
        loop {
            let joined = self.peers.join();
            // Those that are known stay while the others cannot be asked.
            let open = self.peers.open().await;
            match joined.and(open) {
                Ok(open) => {
                    self.challenges.set_shared(open);
                    is_told = false;
                }
                Err(error) if !is_told => {
                    tracing::warn!(%error, "the challenges of other machines are not known");
                    is_told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(SHARED_CHALLENGE_INTERVAL).await;
        }
    }

    fn status(&self, managed: &ManagedCertificate, progress: &OrderProgress) -> CertificateStatus {
        let certificate = self.store.certificate(managed);
        let state = self.store.state(managed);
        let damaged = certificate
            .as_ref()
            .err()
            .or(state.as_ref().err())
            .map(ToString::to_string);
        let not_after = certificate
            .ok()
            .flatten()
            .map(|certificate| certificate.not_after());
        let state = state.unwrap_or_default();
        CertificateStatus {
            names: managed.names.clone(),
            expires_in_seconds: not_after
                .map(|then| then - OffsetDateTime::now_utc().unix_timestamp()),
            not_after: not_after.and_then(|then| OffsetDateTime::from_unix_timestamp(then).ok()),
            renew_at: state.renew_at,
            issued_by: state.issued_by.map(|directory| {
                AcmeProvider::find(&directory).map_or(directory, |provider| provider.name)
            }),
            failures: state.failures,
            next_attempt: state.next_attempt,
            last_error: damaged.or(progress.fault()).or(state.last_error),
            revoked: state.revoked,
            step: progress.step(),
            attempts: progress.attempts(),
        }
    }
}

/// Warns about private keys that others can read, or exchange.
fn warn_of_exposed_files(store: &CertificateStore) {
    match store.exposed() {
        Ok(found) => {
            for path in found {
                tracing::warn!(
                    path = %path.display(),
                    "others than the user of this server can read private keys here, or change files: \
                     expected mode 0600 for files and 0700 for folders"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "the permissions of certificates cannot be checked"),
    }
}
