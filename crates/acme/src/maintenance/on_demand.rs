//! Certificates for names that are first seen in a handshake: whether one is ordered, and when.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::sync::Semaphore;

use super::Shared;
use super::task::CertificateTask;
use crate::issue_error::IssueError;
use crate::on_demand::{OnDemandNames, OnDemandSite};
use crate::permission::may_have_certificate;
use crate::settings::ManagedCertificate;
use crate::state::CertificateState;

/// Questions for permission at a time.
const CONCURRENT_QUESTIONS: usize = 16;
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
        let questions = Arc::new(Semaphore::new(CONCURRENT_QUESTIONS));
        loop {
            let name = self.on_demand.next().await;
            let Ok(permit) = Arc::clone(&questions).acquire_owned().await else {
                return;
            };
            let shared = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                shared.begin_on_demand(&name).await;
                drop(permit);
            });
        }
    }

    /// Serves the stored certificate of a name, or orders one if the name may have it.
    async fn begin_on_demand(self: &Rc<Self>, name: &str) {
        let Some(site) = self.on_demand.site(name) else {
            return self.on_demand.refuse(name);
        };
        let managed = site.managed(name);
        // Another machine may have its certificate.
        if let Some(replica) = &self.replica
            && let Err(error) = self.store.sync_certificate(replica, &managed, false).await
        {
            tracing::warn!(name, %error, "certificates of other machines are not known");
        }
        match self.store.certificate(&managed) {
            Ok(Some(certificate))
                if certificate.not_after() > OffsetDateTime::now_utc().unix_timestamp() =>
            {
                self.on_demand.publish(name, &certificate);
                return self.start_on_demand(name, managed);
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a stored certificate is ordered again"),
        }
        match permits(&site, name).await {
            Ok(true) => {}
            Ok(false) => return self.on_demand.refuse(name),
            Err(error) => {
                tracing::warn!(name, %error, "whether a name may have a certificate is not known");
                return self.on_demand.fail(name);
            }
        }
        if self.on_demand_tasks.borrow().contains_key(name) {
            // Its order failed before, and is tried again in time.
            return self.on_demand.fail(name);
        }
        if !self.may_order_on_demand(site.orders_per_hour) {
            tracing::warn!(
                name,
                limit = site.orders_per_hour,
                "no certificate is ordered: there were too many orders on demand in the last hour"
            );
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

    /// Whether one more order on demand is within the limit; it counts then.
    fn may_order_on_demand(&self, per_hour: u32) -> bool {
        let mut orders = self.on_demand_orders.borrow_mut();
        let now = Instant::now();
        while orders
            .front()
            .is_some_and(|then| now.duration_since(*then) > ORDER_COUNT_PERIOD)
        {
            orders.pop_front();
        }
        let is_within = orders.len() < per_hour as usize;
        if is_within {
            orders.push_back(now);
        }
        is_within
    }
}

/// Whether a name may have a certificate, by the list of its site, or by a request to its URL.
pub(super) async fn permits(site: &OnDemandSite, name: &str) -> Result<bool, IssueError> {
    match &site.ask {
        _ if site.allows(name) => Ok(true),
        None => Ok(false),
        Some(url) => may_have_certificate(url, name).await,
    }
}
