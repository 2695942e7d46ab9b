//! Certificates for names that are first seen in a handshake: which names may have one, and what there is for each.
//!
//! Handshakes of all workers look here. A name that is new waits in a bounded queue for the control thread, which looks for
//! its certificate in the store, asks for permission, and orders it. Handshakes for the name wait for that together, for a
//! bounded time. What is known of names without a certificate is bounded, too.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use apus_net::tls::{OnDemandCertificates, OnDemandLookup, PreparedSite, TicketSecrets, TlsSite};
use apus_transport::tls::{Certificate, TlsError};
use tokio::sync::{Notify, watch};

use crate::names::is_public;
use crate::settings::{AcmeSettings, ManagedCertificate};

/// How long handshakes wait for a certificate, from the first one on.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(8);
/// How long a name that may not have a certificate is refused without a question.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(300);
/// How long a name is refused after the permission could not be asked for, or an order failed.
const FAILURE_LIFETIME: Duration = Duration::from_secs(30);
/// The most names that wait for the control thread.
const LONGEST_QUEUE: usize = 256;
/// The most names without a certificate that are remembered.
const MOST_UNCERTIFIED: usize = 10_000;

/// Which names a site orders certificates for on demand, and how.
#[derive(Clone, Debug)]
pub struct OnDemandSite {
    /// TLS of the site. Its names limit those that may be ordered: exact, or `*.example.com`; without any, all public ones
    /// may.
    pub tls: TlsSite,
    /// How certificates are ordered.
    pub settings: AcmeSettings,
    /// Names that may have a certificate: exact, or `*.example.com` for all one level below.
    pub allowed: Vec<String>,
    /// The URL that is asked about other names, with `?domain=`; a response with status 200 permits.
    pub ask: Option<String>,
    /// The most orders in an hour.
    pub orders_per_hour: u32,
    /// The secrets of session tickets, if they outlive the process.
    pub ticket_secrets: Option<Arc<TicketSecrets>>,
}

impl OnDemandSite {
    /// Whether the site is that of a name.
    fn covers(&self, name: &str) -> bool {
        match self.tls.names.is_empty() {
            true => is_public(name),
            false => matches_any(&self.tls.names, name),
        }
    }

    /// Whether a name may have a certificate without a question.
    pub(crate) fn allows(&self, name: &str) -> bool {
        matches_any(&self.allowed, name)
    }

    pub(crate) fn managed(&self, name: &str) -> ManagedCertificate {
        ManagedCertificate {
            names: vec![name.to_owned()],
            settings: self.settings.clone(),
            is_additional: false,
        }
    }
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    let parent = name.split_once('.').map(|(_, parent)| parent);
    patterns
        .iter()
        .any(|pattern| match pattern.strip_prefix("*.") {
            Some(of) => parent == Some(of),
            None => pattern == name,
        })
}

/// What is known of names that handshakes have asked for.
#[derive(Default)]
pub struct OnDemandNames {
    known: RwLock<KnownNames>,
    /// A name was added to the queue.
    queued: Notify,
}

#[derive(Default)]
struct KnownNames {
    sites: Vec<Arc<OnDemandSite>>,
    certified: HashMap<Box<str>, CertifiedName>,
    uncertified: HashMap<Box<str>, UncertifiedName>,
    queue: VecDeque<Box<str>>,
}

#[derive(Clone)]
struct CertifiedName {
    certificate: Certificate,
    prepared: PreparedSite,
}

enum UncertifiedName {
    /// The control thread looks for its certificate.
    Pending {
        since: Instant,
        sender: watch::Sender<Option<OnDemandResult>>,
    },
    Refused {
        until: Instant,
        result: OnDemandResult,
    },
}

/// What came of a name.
#[derive(Clone)]
enum OnDemandResult {
    Ready(PreparedSite),
    NotPermitted,
    NotYet,
}

impl From<OnDemandResult> for OnDemandLookup {
    fn from(result: OnDemandResult) -> Self {
        match result {
            OnDemandResult::Ready(site) => Self::Ready(site),
            OnDemandResult::NotPermitted => Self::NotPermitted,
            OnDemandResult::NotYet => Self::NotYet,
        }
    }
}

impl OnDemandNames {
    /// Serves these sites from now on. Certificates stay as far as a site covers them.
    pub fn apply(&self, sites: Vec<OnDemandSite>) {
        let sites: Vec<_> = sites.into_iter().map(Arc::new).collect();
        let certified = self.read(|known| known.certified.clone());
        let certified = certified.into_iter().filter_map(|(name, known)| {
            let site = sites.iter().find(|site| site.covers(&name))?;
            let prepared = prepare(site, &name, &known.certificate).ok()?;
            Some((name, CertifiedName { prepared, ..known }))
        });
        let certified = certified.collect();
        self.write(|known| {
            known.sites = sites;
            known.certified = certified;
            known
                .uncertified
                .retain(|_, name| matches!(name, UncertifiedName::Pending { .. }));
        });
    }

    /// Whether there is a site that orders certificates on demand.
    pub(crate) fn has_sites(&self) -> bool {
        self.read(|known| !known.sites.is_empty())
    }

    /// How many names without a certificate are remembered.
    pub fn uncertified_count(&self) -> usize {
        self.read(|known| known.uncertified.len())
    }

    /// The site that covers a name.
    pub(crate) fn site(&self, name: &str) -> Option<Arc<OnDemandSite>> {
        self.read(|known| known.site(name).cloned())
    }

    /// The next name of the queue.
    pub(crate) async fn next(&self) -> Box<str> {
        loop {
            if let Some(name) = self.write(|known| known.queue.pop_front()) {
                return name;
            }
            self.queued.notified().await;
        }
    }

    /// Serves a name with a certificate.
    pub(crate) fn publish(&self, name: &str, certificate: &Certificate) {
        let Some(site) = self.site(name) else { return };
        match prepare(&site, name, certificate) {
            Ok(prepared) => self.write(|known| {
                let certified = CertifiedName {
                    certificate: certificate.clone(),
                    prepared: prepared.clone(),
                };
                known.certified.insert(name.into(), certified);
                known.resolve(name, OnDemandResult::Ready(prepared));
                known.uncertified.remove(name);
            }),
            Err(error) => {
                tracing::error!(name, %error, "a certificate cannot be used");
                self.fail(name);
            }
        }
    }

    /// Refuses a name that may not have a certificate.
    pub(crate) fn refuse(&self, name: &str) {
        self.settle(name, OnDemandResult::NotPermitted, REFUSAL_LIFETIME);
    }

    /// Refuses a name whose certificate cannot be had for now.
    pub(crate) fn fail(&self, name: &str) {
        self.settle(name, OnDemandResult::NotYet, FAILURE_LIFETIME);
    }

    fn settle(&self, name: &str, result: OnDemandResult, lifetime: Duration) {
        self.write(|known| {
            if known.certified.contains_key(name) {
                return;
            }
            known.resolve(name, result.clone());
            let until = Instant::now() + lifetime;
            let refused = UncertifiedName::Refused { until, result };
            known.uncertified.insert(name.into(), refused);
        });
    }

    /// Ends the wait of the handshakes for a name, whose order goes on.
    pub(crate) fn end_wait(&self, name: &str) {
        self.write(|known| known.resolve(name, OnDemandResult::NotYet));
    }

    /// How long handshakes wait.
    pub(crate) fn patience() -> Duration {
        HANDSHAKE_PATIENCE
    }

    fn read<T>(&self, look: impl FnOnce(&KnownNames) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut KnownNames) -> T) -> T {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// What there is for a name that is not certified.
    fn look_up_uncertified(&self, name: &str) -> OnDemandLookup {
        let lookup = self.write(|known| known.begin(name));
        if matches!(lookup, OnDemandLookup::Pending(_)) {
            self.queued.notify_one();
        }
        lookup
    }
}

impl OnDemandCertificates for OnDemandNames {
    fn look_up(&self, server_name: &str) -> OnDemandLookup {
        let found = self.read(|known| {
            if let Some(certified) = known.certified.get(server_name) {
                return Some(OnDemandLookup::Ready(certified.prepared.clone()));
            }
            match known.site(server_name) {
                None => Some(OnDemandLookup::NotCovered),
                // A list alone decides at once, and nothing is remembered.
                Some(site) if site.ask.is_none() && !site.allows(server_name) => {
                    Some(OnDemandLookup::NotPermitted)
                }
                Some(_) => None,
            }
        });
        found.unwrap_or_else(|| self.look_up_uncertified(server_name))
    }
}

impl KnownNames {
    fn site(&self, name: &str) -> Option<&Arc<OnDemandSite>> {
        self.sites.iter().find(|site| site.covers(name))
    }

    /// Begins to look for the certificate of a name, unless that is under way.
    fn begin(&mut self, name: &str) -> OnDemandLookup {
        let now = Instant::now();
        match self.uncertified.get(name) {
            Some(UncertifiedName::Refused { until, result }) if *until > now => {
                return result.clone().into();
            }
            Some(UncertifiedName::Pending { since, .. })
                if now.duration_since(*since) > HANDSHAKE_PATIENCE =>
            {
                return OnDemandLookup::NotYet;
            }
            Some(UncertifiedName::Pending { sender, .. }) => return pending(sender),
            _ => {}
        }
        if self.queue.len() >= LONGEST_QUEUE {
            return OnDemandLookup::NotYet;
        }
        self.make_room(now);
        let (sender, _) = watch::channel(None);
        let lookup = pending(&sender);
        self.queue.push_back(name.into());
        let entry = UncertifiedName::Pending { since: now, sender };
        self.uncertified.insert(name.into(), entry);
        lookup
    }

    /// Forgets refused names while there are too many: those that are refused no longer, or else all. Pending ones are few.
    fn make_room(&mut self, now: Instant) {
        if self.uncertified.len() < MOST_UNCERTIFIED {
            return;
        }
        let is_pending = |name: &UncertifiedName| matches!(name, UncertifiedName::Pending { .. });
        self.uncertified.retain(|_, name| match name {
            UncertifiedName::Refused { until, .. } => *until > now,
            UncertifiedName::Pending { .. } => true,
        });
        if self.uncertified.len() >= MOST_UNCERTIFIED {
            self.uncertified.retain(|_, name| is_pending(name));
        }
    }

    /// Tells the handshakes that wait for a name.
    fn resolve(&mut self, name: &str, result: OnDemandResult) {
        if let Some(UncertifiedName::Pending { sender, .. }) = self.uncertified.get(name) {
            sender.send_replace(Some(result));
        }
    }
}

fn prepare(
    site: &OnDemandSite,
    name: &str,
    certificate: &Certificate,
) -> Result<PreparedSite, TlsError> {
    let tls = TlsSite {
        names: vec![name.to_owned()],
        certificates: vec![certificate.clone()],
        ..site.tls.clone()
    };
    PreparedSite::new(&tls, site.ticket_secrets.as_ref())
}

fn pending(sender: &watch::Sender<Option<OnDemandResult>>) -> OnDemandLookup {
    let mut receiver = sender.subscribe();
    OnDemandLookup::Pending(Box::pin(async move {
        let result = receiver.wait_for(Option::is_some).await;
        let result = result.ok().and_then(|result| result.clone());
        result.unwrap_or(OnDemandResult::NotYet).into()
    }))
}

impl fmt::Debug for OnDemandNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemandNames").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(ask: Option<&str>) -> OnDemandSite {
        OnDemandSite {
            tls: TlsSite::new(vec!["*.shops.example.com".to_owned()], Vec::new()),
            settings: AcmeSettings::default(),
            allowed: vec!["one.shops.example.com".to_owned()],
            ask: ask.map(str::to_owned),
            orders_per_hour: 10,
            ticket_secrets: None,
        }
    }

    fn look_up(names: &OnDemandNames, name: &str) -> String {
        format!("{:?}", names.look_up(name))
    }

    #[test]
    fn a_list_decides_at_once_and_remembers_nothing() {
        let names = OnDemandNames::default();
        names.apply(vec![site(None)]);
        for number in 0..10_000 {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name), "NotPermitted");
        }
        assert_eq!(names.uncertified_count(), 0);
        assert_eq!(look_up(&names, "other.example.com"), "NotCovered");
        assert_eq!(look_up(&names, "a.b.shops.example.com"), "NotCovered");
        assert_eq!(look_up(&names, "one.shops.example.com"), "Pending");
    }

    #[test]
    fn a_flood_of_invented_names_is_bounded_and_each_costs_one_question() {
        let names = OnDemandNames::default();
        names.apply(vec![site(Some("http://127.0.0.1:1/"))]);
        let mut questions = 0;
        for number in 0..30_000 {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name), "Pending");
            // Others wait for the same.
            assert_eq!(look_up(&names, &name), "Pending");
            let asked = names.write(|known| known.queue.pop_front());
            assert_eq!(asked.as_deref(), Some(name.as_str()));
            questions += 1;
            names.refuse(&name);
            assert_eq!(look_up(&names, &name), "NotPermitted");
            assert!(names.uncertified_count() <= MOST_UNCERTIFIED);
        }
        assert_eq!(questions, 30_000);
    }

    #[test]
    fn a_queue_that_is_full_refuses_and_remembers_nothing() {
        let names = OnDemandNames::default();
        names.apply(vec![site(Some("http://127.0.0.1:1/"))]);
        for number in 0..LONGEST_QUEUE {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name), "Pending");
        }
        assert_eq!(look_up(&names, "more.shops.example.com"), "NotYet");
        assert_eq!(names.uncertified_count(), LONGEST_QUEUE);
        // The wait of handshakes ends, while the name stays in the queue.
        names.end_wait("invented-0.shops.example.com");
        let lookup = names.look_up("invented-0.shops.example.com");
        let OnDemandLookup::Pending(wait) = lookup else {
            panic!("{lookup:?}");
        };
        let result = apus_testkit::block_on(wait);
        assert!(matches!(result, OnDemandLookup::NotYet), "{result:?}");
    }
}
