//! Certificates for names that are first seen in a handshake: which names may have one, and what there is for each.
//!
//! Handshakes of all workers look here. A name that is new waits in a bounded queue of its site for the control thread, which
//! asks for permission, looks for its certificate in the storage that machines share, and orders it. Handshakes for the name
//! wait for that together, for a bounded time. What is known of names without a certificate is bounded, too, and so is the
//! number of names that one client can make the server look for.

mod clients;
mod uncertified;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use apus_net::tls::{
    HandshakeClient, OnDemandCertificates, OnDemandLookup, PreparedSite, TicketSecrets, TlsSite,
};
use apus_patterns::uncertifiable;
use apus_transport::tls::{Certificate, TlsError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use self::clients::{ClientNetwork, LookupAllowances};
use self::uncertified::{HANDSHAKE_PATIENCE, OnDemandResult, UncertifiedNames};
use crate::issue_error::IssueError;
use crate::names::is_public;
use crate::permission::may_have_certificate;
use crate::settings::{AcmeSettings, ManagedCertificate};

/// How long a name that may not have a certificate is refused without a question.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(300);
/// How long a name is refused after the permission could not be asked for, or an order failed.
const FAILURE_LIFETIME: Duration = Duration::from_secs(30);
/// How long a name is refused after its orders failed for so long that it was given up.
const GIVEN_UP_LIFETIME: Duration = Duration::from_secs(3600);
/// Names of a site that the control thread looks for at a time.
pub(crate) const CONCURRENT_LOOKUPS: usize = 16;

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
    /// What distinguishes it from the other sites, also after a reload.
    pub(crate) fn id(&self) -> String {
        self.tls.names.join(" ")
    }

    /// Whether the site has a name.
    fn covers(&self, name: &str) -> bool {
        if self.tls.names.is_empty() {
            is_public(name)
        } else {
            matches_any(&self.tls.names, name)
        }
    }

    /// Whether a name may have a certificate without a question.
    fn allows(&self, name: &str) -> bool {
        matches_any(&self.allowed, name)
    }

    /// Whether a name may have a certificate, by the list of the site, or by a request to its URL.
    pub(crate) async fn permits(&self, name: &str) -> Result<bool, IssueError> {
        match &self.ask {
            _ if self.allows(name) => Ok(true),
            None => Ok(false),
            Some(url) => may_have_certificate(url, name).await,
        }
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
    /// A name was added to a queue, or the look-up of one has ended.
    queued: Notify,
}

#[derive(Default)]
struct KnownNames {
    sites: Vec<SiteNames>,
    /// The site whose queue is looked at next, so that no site waits for the names of another one.
    next_site: usize,
    certified: HashMap<Box<str>, CertifiedName>,
    allowances: LookupAllowances,
}

/// A site, and its names without a certificate.
struct SiteNames {
    site: Arc<OnDemandSite>,
    uncertified: UncertifiedNames,
    lookups: Arc<Semaphore>,
}

#[derive(Clone)]
struct CertifiedName {
    certificate: Certificate,
    prepared: PreparedSite,
}

/// A name that the control thread looks for.
pub(crate) struct QueuedName {
    pub(crate) name: Box<str>,
    /// Its place among the look-ups of its site.
    permit: OwnedSemaphorePermit,
}

impl OnDemandNames {
    /// Serves these sites from now on. Certificates stay if a site covers them.
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
            let mut old = std::mem::take(&mut known.sites);
            let sites = sites.into_iter().map(|site| {
                let same = old.iter().position(|old| old.site.id() == site.id());
                match same.map(|at| old.swap_remove(at)) {
                    Some(mut same) => {
                        same.uncertified.forget_refused();
                        SiteNames { site, ..same }
                    }
                    None => SiteNames::new(site),
                }
            });
            known.sites = sites.collect();
            known.certified = certified;
        });
    }

    /// Whether there is a site that orders certificates on demand.
    pub(crate) fn has_sites(&self) -> bool {
        self.read(|known| !known.sites.is_empty())
    }

    /// How many names without a certificate are remembered.
    pub fn uncertified_count(&self) -> usize {
        self.read(|known| known.sites.iter().map(|site| site.uncertified.len()).sum())
    }

    /// The site that covers a name.
    pub(crate) fn site(&self, name: &str) -> Option<Arc<OnDemandSite>> {
        self.read(|known| known.site(name).map(|known| Arc::clone(&known.site)))
    }

    /// The next name of the queues, in turn from each site that does not look for too many already.
    pub(crate) async fn next(&self) -> QueuedName {
        loop {
            if let Some(queued) = self.write(KnownNames::next) {
                return queued;
            }
            self.queued.notified().await;
        }
    }

    /// Ends the look-up of a name, so that the look-up of another one can begin.
    pub(crate) fn end_look_up(&self, queued: QueuedName) {
        drop(queued.permit);
        self.queued.notify_one();
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
                let Some(site) = known.site_mut(name) else {
                    return;
                };
                site.uncertified
                    .resolve(name, OnDemandResult::Ready(prepared));
                if let Some(client) = site.uncertified.remove(name) {
                    known.allowances.give_back(client);
                }
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

    /// Refuses a name whose certificate could not be had for long.
    pub(crate) fn give_up(&self, name: &str) {
        self.settle(name, OnDemandResult::NotYet, GIVEN_UP_LIFETIME);
    }

    fn settle(&self, name: &str, result: OnDemandResult, lifetime: Duration) {
        self.write(|known| {
            if known.certified.contains_key(name) {
                return;
            }
            if let Some(site) = known.site_mut(name) {
                site.uncertified.refuse(name, result, lifetime);
            }
        });
    }

    /// Ends the wait of the handshakes for a name, whose order goes on.
    pub(crate) fn end_wait(&self, name: &str) {
        self.read(|known| {
            if let Some(site) = known.site(name) {
                site.uncertified.resolve(name, OnDemandResult::NotYet);
            }
        });
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

    /// Begins to look for the certificate of a name, unless that is under way or there is too much to look for.
    fn begin(&self, name: &str, client: Option<ClientNetwork>) -> OnDemandLookup {
        let lookup = self.write(|known| known.begin(name, client));
        if matches!(lookup, OnDemandLookup::Pending(_)) {
            self.queued.notify_one();
        }
        lookup
    }
}

impl OnDemandCertificates for OnDemandNames {
    fn look_up(&self, server_name: &str, client: HandshakeClient) -> OnDemandLookup {
        let found = self.read(|known| {
            if let Some(certified) = known.certified.get(server_name) {
                return Some(OnDemandLookup::Ready(certified.prepared.clone()));
            }
            let Some(SiteNames {
                site, uncertified, ..
            }) = known.site(server_name)
            else {
                return Some(OnDemandLookup::NotCovered);
            };
            // A list alone decides at once, and nothing is remembered. No authority would issue a certificate for other forms.
            if uncertifiable(server_name).is_some()
                || site.ask.is_none() && !site.allows(server_name)
            {
                return Some(OnDemandLookup::NotPermitted);
            }
            uncertified.known(server_name, Instant::now())
        });
        let client = match (found, client) {
            (Some(found), _) => return found,
            // Nothing is looked for, and nothing is remembered.
            (None, HandshakeClient::Unproven) => return OnDemandLookup::NotYet,
            (None, HandshakeClient::Proven(address)) => Some(ClientNetwork::of(address)),
            // All clients of a proxy on this machine seem to be one.
            (None, HandshakeClient::Local) => None,
        };
        self.begin(server_name, client)
    }
}

impl KnownNames {
    fn site(&self, name: &str) -> Option<&SiteNames> {
        self.sites.iter().find(|known| known.site.covers(name))
    }

    fn site_mut(&mut self, name: &str) -> Option<&mut SiteNames> {
        self.sites.iter_mut().find(|known| known.site.covers(name))
    }

    fn begin(&mut self, name: &str, client: Option<ClientNetwork>) -> OnDemandLookup {
        let now = Instant::now();
        let Some(site) = self.sites.iter_mut().find(|known| known.site.covers(name)) else {
            return OnDemandLookup::NotCovered;
        };
        // Another worker may have begun in between.
        if let Some(known) = site.uncertified.known(name, now) {
            return known;
        }
        if !site.uncertified.has_room()
            || client.is_some_and(|client| !self.allowances.take(client, now))
        {
            return OnDemandLookup::NotYet;
        }
        site.uncertified.begin(name, client, now)
    }

    fn next(&mut self) -> Option<QueuedName> {
        let count = self.sites.len();
        for step in 0..count {
            let at = (self.next_site + step) % count;
            let Some(site) = self.sites.get_mut(at) else {
                continue;
            };
            let Ok(permit) = Arc::clone(&site.lookups).try_acquire_owned() else {
                continue;
            };
            if let Some(name) = site.uncertified.next() {
                self.next_site = at + 1;
                return Some(QueuedName { name, permit });
            }
        }
        None
    }
}

impl SiteNames {
    fn new(site: Arc<OnDemandSite>) -> Self {
        Self {
            site,
            uncertified: UncertifiedNames::default(),
            lookups: Arc::new(Semaphore::new(CONCURRENT_LOOKUPS)),
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

impl fmt::Debug for OnDemandNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemandNames").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    use super::clients::{LOOKUPS_PER_CLIENT, MAX_CLIENTS};
    use super::uncertified::{LONGEST_QUEUE, MAX_UNCERTIFIED};

    fn site(domain: &str, ask: Option<&str>) -> OnDemandSite {
        OnDemandSite {
            tls: TlsSite::new(vec![format!("*.{domain}")], Vec::new()),
            settings: AcmeSettings::default(),
            allowed: vec![format!("one.{domain}")],
            ask: ask.map(str::to_owned),
            orders_per_hour: 10,
            ticket_secrets: None,
        }
    }

    /// One of many clients.
    fn client(number: usize) -> HandshakeClient {
        let address = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        HandshakeClient::Proven(address)
    }

    fn look_up(names: &OnDemandNames, name: &str, client: HandshakeClient) -> String {
        format!("{:?}", names.look_up(name, client))
    }

    fn next(names: &OnDemandNames) -> Option<QueuedName> {
        names.write(KnownNames::next)
    }

    #[test]
    fn a_list_decides_at_once_and_remembers_nothing() {
        let names = OnDemandNames::default();
        names.apply(vec![site("shops.example.com", None)]);
        let one = client(1);
        for number in 0..10_000 {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name, one), "NotPermitted");
        }
        assert_eq!(names.uncertified_count(), 0);
        assert_eq!(look_up(&names, "other.example.com", one), "NotCovered");
        assert_eq!(look_up(&names, "a.b.shops.example.com", one), "NotCovered");
        assert_eq!(look_up(&names, "one.shops.example.com", one), "Pending");
    }

    #[test]
    fn a_flood_of_invented_names_is_bounded_and_each_costs_one_question() {
        let names = OnDemandNames::default();
        let flooded = site("shops.example.com", Some("http://127.0.0.1:1/"));
        names.apply(vec![flooded]);
        for number in 0..MAX_UNCERTIFIED * 3 {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name, client(number)), "Pending");
            // Others wait for the same.
            assert_eq!(look_up(&names, &name, client(number + 1)), "Pending");
            let asked = next(&names).unwrap();
            assert_eq!(*asked.name, *name);
            assert!(next(&names).is_none());
            names.refuse(&name);
            names.end_look_up(asked);
            assert_eq!(look_up(&names, &name, client(number)), "NotPermitted");
            assert!(names.uncertified_count() <= MAX_UNCERTIFIED);
            names.read(|known| assert!(known.allowances.len() <= MAX_CLIENTS));
        }
        // The newest are remembered.
        assert_eq!(names.uncertified_count(), MAX_UNCERTIFIED);
    }

    #[test]
    fn a_queue_that_is_full_refuses_and_remembers_nothing() {
        let names = OnDemandNames::default();
        let flooded = site("shops.example.com", Some("http://127.0.0.1:1/"));
        names.apply(vec![flooded]);
        for number in 0..LONGEST_QUEUE {
            let name = format!("invented-{number}.shops.example.com");
            assert_eq!(look_up(&names, &name, client(number)), "Pending");
        }
        let more = client(LONGEST_QUEUE);
        assert_eq!(look_up(&names, "more.shops.example.com", more), "NotYet");
        assert_eq!(names.uncertified_count(), LONGEST_QUEUE);
        // The wait of handshakes ends, while the name stays in the queue.
        names.end_wait("invented-0.shops.example.com");
        let lookup = names.look_up("invented-0.shops.example.com", more);
        let OnDemandLookup::Pending(wait) = lookup else {
            panic!("{lookup:?}");
        };
        let result = apus_testkit::block_on(wait);
        assert!(matches!(result, OnDemandLookup::NotYet), "{result:?}");
    }

    #[test]
    fn packets_with_forged_sources_cause_no_look_up_and_are_not_remembered() {
        let names = OnDemandNames::default();
        let ask = Some("http://127.0.0.1:1/");
        names.apply(vec![site("shops.example.com", ask)]);
        for number in 0..10_000 {
            let name = format!("invented-{number}.shops.example.com");
            let found = look_up(&names, &name, HandshakeClient::Unproven);
            assert_eq!(found, "NotYet");
        }
        assert_eq!(names.uncertified_count(), 0);
        assert!(next(&names).is_none());
    }

    #[test]
    fn one_client_has_few_names_looked_for_and_others_go_on() {
        let names = OnDemandNames::default();
        let ask = Some("http://127.0.0.1:1/");
        names.apply(vec![site("shops.example.com", ask)]);
        let name = |number| format!("invented-{number}.shops.example.com");
        for number in 0..LOOKUPS_PER_CLIENT {
            assert_eq!(look_up(&names, &name(number), client(1)), "Pending");
        }
        let more = name(LOOKUPS_PER_CLIENT);
        assert_eq!(look_up(&names, &more, client(1)), "NotYet");
        let known = usize::try_from(LOOKUPS_PER_CLIENT).unwrap();
        assert_eq!(names.uncertified_count(), known);
        assert_eq!(look_up(&names, &more, client(2)), "Pending");
    }

    #[test]
    fn the_names_of_a_flooded_site_do_not_delay_those_of_another_one() {
        let names = OnDemandNames::default();
        let ask = Some("http://127.0.0.1:1/");
        let apply = || {
            names.apply(vec![
                site("flooded.example.com", ask),
                site("quiet.example.com", ask),
            ]);
        };
        apply();
        for number in 0..=LONGEST_QUEUE {
            let name = format!("invented-{number}.flooded.example.com");
            look_up(&names, &name, client(number));
        }
        // The flooded site has all its look-ups under way, none of which ends.
        let mut under_way = Vec::new();
        while let Some(queued) = next(&names) {
            under_way.push(queued);
        }
        assert_eq!(under_way.len(), CONCURRENT_LOOKUPS);
        let quiet = "new.quiet.example.com";
        assert_eq!(look_up(&names, quiet, client(1)), "Pending");
        assert_eq!(*next(&names).unwrap().name, *quiet);
        assert!(next(&names).is_none());
        // A reload changes nothing of that.
        apply();
        assert!(next(&names).is_none());
        names.end_look_up(under_way.pop().unwrap());
        let next_one = next(&names).unwrap();
        assert!(next_one.name.ends_with(".flooded.example.com"));
        assert!(next(&names).is_none());
    }
}
