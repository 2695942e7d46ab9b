//! Certificates for names that are first seen in a handshake: whether one is ordered, and when.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::sync::Semaphore;

use super::task::CertificateTask;
use super::{CONCURRENT_ORDERS, Shared};
use crate::on_demand::{OnDemandNames, OnDemandSite};
use crate::settings::ManagedCertificate;
use crate::state::CertificateState;

/// The interval in which warnings about new names are logged.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The period in which orders on demand are counted.
const ORDER_COUNT_PERIOD: Duration = Duration::from_secs(3600);

impl Shared {
    /// Maintains the stored certificates that were ordered on demand, and ends the tasks of names that no site covers.
    pub(super) fn apply_on_demand(self: &Rc<Self>) {
        self.on_demand_tasks.borrow_mut().retain(|name, task| {
            let is_same = self
                .on_demand
                .site(name)
                .is_some_and(|site| site.managed(name) == *task.managed);
            if !is_same {
                task.handle.abort();
            }
            is_same
        });
        if !self.on_demand.has_sites() {
            return;
        }
        let stored = match self.store.stored() {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(%error, "certificates that were ordered on demand cannot be read");
                return;
            }
        };
        for one in stored.iter().filter(|one| one.is_on_demand()) {
            if let [name] = one.names()
                && let Some(site) = self.on_demand.site(name)
            {
                self.start_on_demand(name, site.managed(name));
            }
        }
    }

    fn start_on_demand(self: &Rc<Self>, name: &str, managed: ManagedCertificate) {
        let mut tasks = self.on_demand_tasks.borrow_mut();
        if !tasks.contains_key(name) {
            let task = CertificateTask::start(self, managed, true);
            tasks.insert(name.into(), task);
        }
    }

    /// Looks for the certificates of new names.
    pub(super) async fn run_on_demand(self: Rc<Self>) {
        loop {
            let queued = self.on_demand.next().await;
            let shared = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                shared.begin_on_demand(&queued.name).await;
                shared.on_demand.end_look_up(queued);
            });
        }
    }

    /// Serves the certificate of a name, or orders one if the name may have it. Until it is permitted, nothing is looked for in
    /// the storage that machines share, and nothing is remembered of it.
    async fn begin_on_demand(self: &Rc<Self>, name: &str) {
        let Some(site) = self.on_demand.site(name) else {
            return self.on_demand.refuse(name);
        };
        let managed = site.managed(name);
        let has_task = self.on_demand_tasks.borrow().contains_key(name);
        // At the start, handshakes come before the task of a stored certificate has served it.
        if has_task && self.publish_stored(name, &managed) {
            return;
        }
        match site.permits(name).await {
            Ok(true) => {}
            Ok(false) => return self.on_demand.refuse(name),
            Err(error) => {
                if self.may_warn(&site) {
                    tracing::warn!(name, %error, "whether a name may have a certificate is not known");
                }
                return self.on_demand.fail(name);
            }
        }
        if has_task {
            // Its order failed before, and is tried again in time.
            return self.on_demand.fail(name);
        }
        // Another machine may have its certificate.
        if let Some(replica) = &self.replica
            && let Err(error) = self.store.sync_certificate(replica, &managed, false).await
            && self.may_warn(&site)
        {
            tracing::warn!(name, %error, "certificates of other machines are not known");
        }
        if self.publish_stored(name, &managed) {
            return self.start_on_demand(name, managed);
        }
        if !self.may_order_on_demand(&site) {
            if self.may_warn(&site) {
                tracing::warn!(
                    name,
                    limit = site.orders_per_hour,
                    "no certificate is ordered: there were too many orders on demand in the last hour"
                );
            }
            return self.on_demand.fail(name);
        }
        let result = self.store.state(&managed).and_then(|state| {
            let state = CertificateState {
                on_demand: true,
                ..state
            };
            self.store.put_state(&managed, &state)
        });
        match result {
            Ok(()) => self.start_on_demand(name, managed),
            Err(error) => {
                tracing::error!(name, %error, "a certificate cannot be ordered");
                return self.on_demand.fail(name);
            }
        }
        // The order goes on, but no handshake waits longer.
        let shared = Rc::clone(self);
        let name = name.to_owned();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(OnDemandNames::patience()).await;
            shared.on_demand.end_wait(&name);
        });
    }

    /// Serves the stored certificate of a name, if there is one that has not expired.
    fn publish_stored(&self, name: &str, managed: &ManagedCertificate) -> bool {
        match self.store.certificate(managed) {
            Ok(Some(certificate))
                if certificate.not_after() > OffsetDateTime::now_utc().unix_timestamp() =>
            {
                self.on_demand.publish(name, &certificate);
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::error!(%error, "a stored certificate is ordered again");
                false
            }
        }
    }

    /// Whether one more order on demand is within the limit of its site; it counts then.
    fn may_order_on_demand(&self, site: &OnDemandSite) -> bool {
        self.of_site(site, |orders| {
            let now = Instant::now();
            while orders
                .times
                .front()
                .is_some_and(|then| now.duration_since(*then) > ORDER_COUNT_PERIOD)
            {
                orders.times.pop_front();
            }
            let is_within = orders.times.len() < site.orders_per_hour as usize;
            if is_within {
                orders.times.push_back(now);
            }
            is_within
        })
    }

    /// Whether one more warning about new names of a site is logged: clients can cause any number of them.
    fn may_warn(&self, site: &OnDemandSite) -> bool {
        self.of_site(site, |orders| {
            let now = Instant::now();
            let is_due = orders
                .last_warning
                .is_none_or(|then| now.duration_since(then) > WARNING_INTERVAL);
            if is_due {
                orders.last_warning = Some(now);
            }
            is_due
        })
    }

    /// The slots in which the orders of a name wait for one another. Orders of one site do not delay the orders of
    /// another one.
    pub(super) fn order_slots(&self, on_demand: Option<&str>) -> Rc<Semaphore> {
        match on_demand.and_then(|name| self.on_demand.site(name)) {
            Some(site) => self.of_site(&site, |orders| Rc::clone(&orders.slots)),
            None => Rc::clone(&self.orders),
        }
    }

    fn of_site<T>(&self, site: &OnDemandSite, look: impl FnOnce(&mut SiteOrders) -> T) -> T {
        let mut orders = self.on_demand_orders.borrow_mut();
        look(orders.entry(site.id()).or_default())
    }

    /// Forgets a name without a certificate, whose files were removed and whose task ends.
    pub(super) fn give_up_on_demand(&self, name: &str) {
        tracing::warn!(
            name,
            "no certificate could be ordered for an hour: the name is forgotten"
        );
        self.on_demand.give_up(name);
        self.on_demand_tasks.borrow_mut().remove(name);
    }
}

/// The orders on demand of one site.
pub(super) struct SiteOrders {
    slots: Rc<Semaphore>,
    /// When they were made in the last hour.
    times: VecDeque<Instant>,
    last_warning: Option<Instant>,
}

impl Default for SiteOrders {
    fn default() -> Self {
        Self {
            slots: Rc::new(Semaphore::new(CONCURRENT_ORDERS)),
            times: VecDeque::new(),
            last_warning: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use apus_net::tls::{HandshakeClient, OnDemandCertificates, OnDemandLookup, TlsSite};

    use super::*;
    use crate::maintenance::CertificateMaintenance;
    use crate::settings::AcmeSettings;
    use crate::shared::SharedStorage;
    use crate::shared::memory::MemoryStorage;
    use crate::store::CertificateStore;

    /// A web server that permits nothing, and counts the questions.
    fn refusing_server() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/may", listener.local_addr().unwrap());
        let questions: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&questions);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 1024]);
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(
                    b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        (url, questions)
    }

    #[test]
    fn nothing_is_looked_for_in_the_shared_storage_before_a_name_is_permitted() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Arc::new(MemoryStorage::default());
        let names = Arc::new(OnDemandNames::default());
        let (ask, questions) = refusing_server();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let store = CertificateStore::in_folder(folder.path());
            let shared = Arc::clone(&storage) as Arc<dyn SharedStorage>;
            names.apply(vec![OnDemandSite {
                tls: TlsSite::new(vec!["*.shops.example.com".to_owned()], Vec::new()),
                settings: AcmeSettings::default(),
                allowed: Vec::new(),
                ask: Some(ask),
                orders_per_hour: 10,
                ticket_secrets: None,
            }]);
            let (maintenance, _issued) = CertificateMaintenance::new(store, Arc::default());
            let maintenance = maintenance
                .with_shared_storage(shared)
                .with_on_demand(Arc::clone(&names));
            for number in 0..40_u8 {
                let client = HandshakeClient::Proven([192, 0, 2, number].into());
                let name = format!("invented-{number}.shops.example.com");
                let OnDemandLookup::Pending(wait) = names.look_up(&name, client) else {
                    panic!("{name}");
                };
                assert!(matches!(wait.await, OnDemandLookup::NotPermitted));
            }
            assert_eq!(questions.load(Ordering::SeqCst), 40);
            assert_eq!(storage.reads(), 0);
            assert!(!folder.path().join("certificates").exists());
            drop(maintenance);
        });
    }

    #[test]
    fn the_orders_of_one_site_do_not_use_up_those_of_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let store = CertificateStore::in_folder(folder.path());
            let (maintenance, _issued) = CertificateMaintenance::new(store, Arc::default());
            let site = |name: &str| OnDemandSite {
                tls: TlsSite::new(vec![name.to_owned()], Vec::new()),
                settings: AcmeSettings::default(),
                allowed: vec![name.to_owned()],
                ask: None,
                orders_per_hour: 3,
                ticket_secrets: None,
            };
            let (flooded, quiet) = (site("*.a.example.com"), site("*.b.example.com"));
            for expected in [true, true, true, false, false] {
                assert_eq!(maintenance.shared.may_order_on_demand(&flooded), expected);
            }
            assert!(maintenance.shared.may_order_on_demand(&quiet));
            // Clients can cause one warning in a while.
            assert!(maintenance.shared.may_warn(&flooded));
            assert!(!maintenance.shared.may_warn(&flooded));
            assert!(maintenance.shared.may_warn(&quiet));
        });
    }
}
