//! The task of one certificate: orders it, and renews it in time.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_transport::tls::Certificate;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Shared;
use crate::issue::{CertificateOrder, OrderProgress, identifier};
use crate::issue_error::IssueError;
use crate::provider::AcmeProvider;
use crate::reachability::check_names;
use crate::schedule::{pause_after, renewal_time, time_in_window};
use crate::settings::ManagedCertificate;
use crate::shared::SharedLock;
use crate::state::CertificateState;
use crate::store::{CertificateStore, CertificateStoreError};

/// The longest sleep, so that a changed clock is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// How long to wait after a failure of this machine, as a full disk or a wrong clock, which may be repaired at any time.
const FAULT_PAUSE: Duration = Duration::from_secs(60);
/// How long another process may have a certificate before it is looked at again.
const LOCKED_PAUSE: Duration = Duration::from_secs(5);
/// The interval in which the files of a certificate are looked at.
const STORE_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// The same for names that were first seen in a handshake, of which there may be many thousands.
const ON_DEMAND_STORE_CHECK_INTERVAL: Duration = Duration::from_secs(120);
/// How long the certificate of a name that was first seen in a handshake is tried to be ordered. So no more names without a
/// certificate are kept than may be ordered in this time.
const ON_DEMAND_PATIENCE: Duration = Duration::from_secs(3600);
/// How long one order may take.
const ORDER_PATIENCE: Duration = Duration::from_secs(1800);
/// Attempts of an order whose authority forgets its nonces.
const NONCE_ATTEMPTS: u32 = 5;
/// The least time from a certificate to the next order that nobody has requested.
const MIN_BETWEEN_ORDERS: Duration = Duration::from_secs(3600);
/// How long an authority may take to suggest the time of a renewal.
const RENEWAL_CHECK_PATIENCE: Duration = Duration::from_secs(60);
/// The interval in which an authority is asked for the time of a renewal, at least.
const SHORTEST_RENEWAL_CHECK: Duration = Duration::from_secs(60);
/// After this number of failures, an authority that has a staging directory is tried there first, so that its limits are not
/// used up.
const FAILURES_BEFORE_STAGING: u32 = 3;
/// A clock before this time is wrong: 2026-01-01.
const EARLIEST: i64 = 1_767_225_600;

/// The task of one certificate, as others see it.
pub(super) struct CertificateTask {
    pub(super) managed: Rc<ManagedCertificate>,
    pub(super) renewal: Rc<Notify>,
    pub(super) progress: Rc<OrderProgress>,
    pub(super) handle: JoinHandle<()>,
}

impl CertificateTask {
    pub(super) fn start(
        shared: &Rc<Shared>,
        managed: ManagedCertificate,
        is_on_demand: bool,
    ) -> Self {
        let managed = Rc::new(managed);
        let renewal = Rc::new(Notify::new());
        let progress = Rc::new(OrderProgress::default());
        let worker = CertificateWorker {
            shared: Rc::clone(shared),
            managed: Rc::clone(&managed),
            renewal: Rc::clone(&renewal),
            progress: Rc::clone(&progress),
            found: RefCell::default(),
            is_on_demand,
            start: Instant::now(),
            is_given_up: Cell::new(false),
        };
        Self {
            managed,
            renewal,
            progress,
            handle: tokio::task::spawn_local(worker.run()),
        }
    }
}

/// The task of one certificate.
struct CertificateWorker {
    shared: Rc<Shared>,
    managed: Rc<ManagedCertificate>,
    renewal: Rc<Notify>,
    progress: Rc<OrderProgress>,
    /// The leaf that was found in the store last. Another process may put one there, too.
    found: RefCell<Option<Vec<u8>>>,
    /// Whether its name was first seen in a handshake.
    is_on_demand: bool,
    start: Instant,
    /// Whether the name was forgotten, because no certificate could be ordered for long.
    is_given_up: Cell<bool>,
}

impl CertificateWorker {
    async fn run(self) {
        let names = self.managed.names.join(" ");
        let mut is_requested = false;
        loop {
            let wait = match self.advance(std::mem::take(&mut is_requested)).await {
                Ok(wait) => {
                    self.progress.set_fault(None);
                    wait
                }
                Err(error) => {
                    tracing::error!(names, %error, "a certificate cannot be maintained");
                    self.progress.set_fault(Some(error.to_string()));
                    FAULT_PAUSE
                }
            };
            if let (true, Some(name)) = (self.is_given_up.get(), self.on_demand_name()) {
                return self.shared.give_up_on_demand(name);
            }
            tokio::select! {
                () = tokio::time::sleep(wait.min(LONGEST_SLEEP)) => {}
                // By another process, or a command of the operator.
                () = self.store_changed() => {}
                () = self.renewal.notified() => is_requested = true,
            }
        }
    }

    /// Waits until other files of the certificate are in the store.
    async fn store_changed(&self) {
        let before = self.shared.store.stamp(&self.managed);
        loop {
            tokio::time::sleep(if self.is_on_demand {
                ON_DEMAND_STORE_CHECK_INTERVAL
            } else {
                STORE_CHECK_INTERVAL
            })
            .await;
            if let Some(replica) = &self.shared.replica {
                // A failure is reported when there is something to do.
                let store = &self.shared.store;
                let _ = store.sync_certificate(replica, &self.managed, false).await;
            }
            if self.shared.store.stamp(&self.managed) != before {
                return;
            }
        }
    }

    /// Orders the certificate if it is time, or if it has to be `now`. Returns how long to wait.
    async fn advance(&self, now: bool) -> Result<Duration, IssueError> {
        let store = &self.shared.store;
        // Another process may have ordered it, or do so.
        let Some(_lock) = store.lock(&self.managed)? else {
            return Ok(LOCKED_PAUSE);
        };
        let Some(replica) = &self.shared.replica else {
            return self.advance_locked(now, None).await;
        };
        let name = format!("certificates/{}", self.managed.id());
        let Some(lock) = replica
            .lock(&name)
            .await
            .map_err(CertificateStoreError::from)?
        else {
            return Ok(LOCKED_PAUSE);
        };
        let result = match store.sync_certificate(replica, &self.managed, true).await {
            Ok(()) => self.advance_locked(now, Some(&lock)).await,
            Err(error) => Err(error.into()),
        };
        let stored = store.sync_certificate(replica, &self.managed, true).await;
        lock.release().await;
        stored?;
        result
    }

    /// As [`Self::advance`], while no other process has the certificate.
    async fn advance_locked(
        &self,
        now: bool,
        lock: Option<&SharedLock>,
    ) -> Result<Duration, IssueError> {
        let store = &self.shared.store;
        let clock = OffsetDateTime::now_utc();
        if clock.unix_timestamp() < EARLIEST {
            return Err(IssueError::not_ready(format!(
                "the clock is wrong: it is not {clock}, so that no certificate can be ordered"
            )));
        }
        let mut state = store.state(&self.managed)?;
        let certificate = match store.certificate(&self.managed) {
            Ok(certificate) => certificate,
            Err(error) => {
                tracing::error!(%error, "a stored certificate is ordered again");
                None
            }
        };
        self.note_found(certificate.as_ref());
        if self.is_on_demand && certificate.is_none() && self.start.elapsed() > ON_DEMAND_PATIENCE {
            // Names can be invented: nothing is kept of one that gets no certificate, on no machine.
            store.remove_folder(&store.of(&self.managed))?;
            self.is_given_up.set(true);
            return Ok(LONGEST_SLEEP);
        }
        let mut next_check = LONGEST_SLEEP;
        if let Some(certificate) = &certificate
            && !now
            && !state.revoked
        {
            let due = self
                .renewal_of(certificate, &mut state, &mut next_check)
                .await?;
            if due > clock {
                return Ok(until(due, clock).min(next_check));
            }
        }
        let settings = Some(self.managed.settings.number());
        let has_changed = state.settings != settings;
        if let Some(next) = state
            .next_attempt
            .filter(|next| *next > clock && !now && !has_changed)
        {
            return Ok(until(next, clock));
        }
        let lost = async {
            match lock {
                Some(lock) => lock.lost().await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            result = self.order(&mut state) => result,
            () = lost => Err(IssueError::not_ready(
                "the storage that machines share was not reached for so long that another machine may order the certificate",
            )),
        };
        match &result {
            Ok(()) => {
                tracing::info!(names = self.managed.names.join(" "), "a new certificate");
                // An authority whose suggested time has passed already is not asked again and again.
                state.settings = settings;
                state.next_attempt = Some(OffsetDateTime::now_utc() + MIN_BETWEEN_ORDERS);
                store.put_state(&self.managed, &state)?;
                self.progress.end_attempt();
                Ok(Duration::ZERO)
            }
            Err(error) => {
                // The order may be lost with its state, which is stored then.
                let mut state = store.state(&self.managed).unwrap_or(state);
                let pause = self.note_failure(error, has_changed, &mut state);
                state.settings = settings;
                let stored = store.put_state(&self.managed, &state);
                self.fail_on_demand();
                self.progress.end_attempt();
                stored?;
                Ok(pause)
            }
        }
    }

    /// Notes why there is no certificate. Returns the pause to the next attempt.
    fn note_failure(
        &self,
        error: &IssueError,
        has_changed: bool,
        state: &mut CertificateState,
    ) -> Duration {
        let names = self.managed.names.join(" ");
        let text = error.to_string();
        let pause = if error.is_not_ready() {
            // The authority was not asked: it may be asked as soon as this is mended.
            FAULT_PAUSE
        } else {
            state.failures = if has_changed {
                1
            } else {
                state.failures.saturating_add(1)
            };
            pause_after(state.failures, error.is_rate_limited(), random()).max(error.retry_after())
        };
        if !error.is_not_ready() {
            tracing::error!(
                names,
                error = text,
                failures = state.failures,
                next_attempt_in_seconds = pause.as_secs(),
                "a certificate cannot be ordered"
            );
        } else if state.last_error.as_ref() != Some(&text) {
            tracing::warn!(names, why = text, "a certificate is not ordered yet");
        }
        // A process that starts looks at once whether it is mended; the clock may have been wrong.
        state.next_attempt = if error.is_not_ready() {
            None
        } else {
            Some(whole_seconds(OffsetDateTime::now_utc() + pause))
        };
        state.last_error = Some(text);
        pause
    }

    /// Its name, if that was first seen in a handshake.
    fn on_demand_name(&self) -> Option<&str> {
        let name = self.managed.names.first().filter(|_| self.is_on_demand);
        name.map(String::as_str)
    }

    /// Reports a certificate that is another than the one before.
    fn note_found(&self, certificate: Option<&Certificate>) {
        let Some(leaf) = certificate.and_then(|certificate| certificate.key().cert.first()) else {
            return;
        };
        let mut found = self.found.borrow_mut();
        if found.as_deref() != Some(leaf.as_ref()) {
            *found = Some(leaf.as_ref().to_vec());
            if self.is_on_demand {
                return self.publish_on_demand(certificate);
            }
            // A message that waits already stands for this one.
            let _ = self.shared.issued.try_send(());
        }
    }

    fn publish_on_demand(&self, certificate: Option<&Certificate>) {
        if let (Some(name), Some(certificate)) = (self.managed.names.first(), certificate) {
            self.shared.on_demand.publish(name, certificate);
        }
    }

    /// Refuses a name whose certificate cannot be ordered; one that has a certificate keeps it.
    fn fail_on_demand(&self) {
        if let (true, Some(name)) = (self.is_on_demand, self.managed.names.first()) {
            self.shared.on_demand.fail(name);
        }
    }

    /// When the certificate is renewed: when its authority says (RFC 9773), or with a third of its lifetime left.
    async fn renewal_of(
        &self,
        certificate: &Certificate,
        state: &mut CertificateState,
        next_check: &mut Duration,
    ) -> Result<OffsetDateTime, IssueError> {
        let before = state.renew_at;
        let renew_at = match self.suggested_renewal(certificate, state, next_check).await {
            Some(suggested) => suggested,
            None => match before {
                Some(renew_at) => renew_at,
                None => lifetime(certificate)
                    .map_or_else(OffsetDateTime::now_utc, |(not_before, not_after)| {
                        renewal_time(not_before, not_after, random())
                    }),
            },
        };
        let renew_at = whole_seconds(renew_at);
        if before != Some(renew_at) {
            state.renew_at = Some(renew_at);
            self.shared.store.put_state(&self.managed, state)?;
        }
        Ok(renew_at)
    }

    /// What the authority suggests; the time that was chosen before if that is in its window.
    async fn suggested_renewal(
        &self,
        certificate: &Certificate,
        state: &CertificateState,
        next_check: &mut Duration,
    ) -> Option<OffsetDateTime> {
        let directory = state.issued_by.as_deref()?;
        let provider = AcmeProvider::find(directory)?;
        let identifier = identifier(certificate)?;
        let order = self.order_at(&provider);
        let asked = async {
            let account = order.account().await.ok()?;
            account.renewal_info(&identifier).await.ok()
        };
        let (info, again) = tokio::time::timeout(RENEWAL_CHECK_PATIENCE, asked)
            .await
            .ok()??;
        *next_check = again.clamp(SHORTEST_RENEWAL_CHECK, LONGEST_SLEEP);
        let window = info.suggested_window;
        match state.renew_at {
            Some(chosen) if chosen >= window.start && chosen <= window.end => Some(chosen),
            _ => Some(time_in_window(window.start, window.end, random())),
        }
    }

    /// Orders the certificate at the first authority that issues it.
    async fn order(&self, state: &mut CertificateState) -> Result<(), IssueError> {
        let slots = self.shared.order_slots(self.on_demand_name());
        let Ok(_permit) = slots.acquire().await else {
            return Err(IssueError::new("the server stops"));
        };
        self.check_permission().await?;
        check_names(&self.managed, &self.shared.challenges).await?;
        let default = [AcmeProvider::default()];
        let providers: &[AcmeProvider] = match self.managed.settings.providers.as_slice() {
            [] => &default,
            providers => providers,
        };
        let mut failures = Vec::new();
        let mut is_rate_limited = true;
        let mut retry_after = Duration::MAX;
        for provider in providers {
            match self.order_from(provider, state).await {
                Ok(()) => return Ok(()),
                // Another authority would not be asked either.
                Err(error) if error.is_not_ready() => return Err(error),
                Err(error) => {
                    is_rate_limited &= error.is_rate_limited();
                    retry_after = retry_after.min(error.retry_after());
                    failures.push((provider, error));
                }
            }
        }
        match failures.as_slice() {
            [(_, error)] => Err(error.clone()),
            _ => {
                let texts: Vec<String> = failures
                    .iter()
                    .map(|(provider, error)| format!("{}: {error}", provider.name))
                    .collect();
                let error = IssueError::of_several(texts.join("; "), is_rate_limited);
                Err(error.with_retry_after(retry_after))
            }
        }
    }

    /// Asks again before a certificate that was ordered on demand is renewed.
    async fn check_permission(&self) -> Result<(), IssueError> {
        let is_renewal = self.is_on_demand && self.found.borrow().is_some();
        let (true, Some(name)) = (is_renewal, self.managed.names.first()) else {
            return Ok(());
        };
        match self.shared.on_demand.site(name) {
            Some(site) if site.permits(name).await? => Ok(()),
            _ => Err(IssueError::new(
                "the name may not have a certificate any more",
            )),
        }
    }

    async fn order_from(
        &self,
        provider: &AcmeProvider,
        state: &mut CertificateState,
    ) -> Result<(), IssueError> {
        let named = self.managed.settings.staging.as_ref();
        if state.failures >= FAILURES_BEFORE_STAGING
            && let Some(staging) = named.cloned().or_else(|| provider.staging())
        {
            self.try_staging(&staging, state.failures).await?;
        }
        obtain(&self.order_at(provider), state).await
    }

    /// Orders a certificate for trial, in a separate folder.
    async fn try_staging(&self, staging: &AcmeProvider, failures: u32) -> Result<(), IssueError> {
        let store = CertificateStore::in_folder(self.shared.store.folder().join("staging"));
        let mut state = CertificateState {
            failures,
            ..store.state(&self.managed)?
        };
        let order = CertificateOrder {
            store: &store,
            provider: staging,
            // Trials are made by each machine for itself, but verified as others.
            replica: None,
            ..self.order_at(staging)
        };
        obtain(&order, &mut state).await
    }

    fn order_at<'a>(&'a self, provider: &'a AcmeProvider) -> CertificateOrder<'a> {
        CertificateOrder {
            store: &self.shared.store,
            challenges: &self.shared.challenges,
            managed: &self.managed,
            provider,
            progress: &self.progress,
            peers: &self.shared.peers,
            replica: self.shared.replica.as_ref(),
            account_creation: &self.shared.account_creation,
            observations: Arc::default(),
        }
    }
}

/// Orders a certificate, again from where it was when the authority has forgotten its nonce.
async fn obtain(
    order: &CertificateOrder<'_>,
    state: &mut CertificateState,
) -> Result<(), IssueError> {
    let attempts = async {
        let mut attempt = 1;
        loop {
            match order.obtain(state).await {
                Err(error) if error.is_bad_nonce() && attempt < NONCE_ATTEMPTS => attempt += 1,
                Err(error) if error.is_without_account() && attempt < NONCE_ATTEMPTS => {
                    tracing::warn!(%error, "an authority does not know the account: a new one is created");
                    order.store.remove_account(order.provider)?;
                    attempt += 1;
                }
                Err(error) => {
                    return Err(error.with_retry_after(order.observations.retry_after()));
                }
                Ok(()) => return Ok(()),
            }
        }
    };
    tokio::time::timeout(ORDER_PATIENCE, attempts)
        .await
        .unwrap_or_else(|_| Err(IssueError::new("the order took too long")))
}

fn until(then: OffsetDateTime, now: OffsetDateTime) -> Duration {
    Duration::try_from(then - now).unwrap_or(Duration::ZERO)
}

/// A time as it is shown to operators.
fn whole_seconds(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time)
}

fn lifetime(certificate: &Certificate) -> Option<(OffsetDateTime, OffsetDateTime)> {
    let leaf = certificate.key().cert.first()?;
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).ok();
    let validity = leaf.validity();
    Some((
        time(validity.not_before.timestamp())?,
        time(validity.not_after.timestamp())?,
    ))
}

/// A random number from 0 to 1, to spread work, not for secrets.
fn random() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    random as f64 / u64::MAX as f64
}
