//! Where the certificate of each TLS site comes from, and why, for `apus check` and `apus explain`.

use std::fmt;

use apus_acme::{CertificateStore, ChallengeKind, ManagedCertificate};
use apus_config::{CertificateOrigin, OnDemandPlan, ServerPlan, SitePlan};
use apus_net::ListenAddress;
use apus_transport::tls::Certificate;
use time::OffsetDateTime;

/// The ports at which certificate authorities verify names.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
const DAY: i64 = 86_400;

/// Where the certificate of a TLS site comes from, and why.
#[derive(Clone, Debug)]
pub struct CertificateReport {
    /// The name of the site.
    pub site: String,
    /// Where it comes from, in words.
    pub what: String,
    /// Reasons and remarks, in words.
    pub why: Vec<String>,
}

impl fmt::Display for CertificateReport {
    /// The report in lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.site, self.what)?;
        self.why.iter().try_for_each(|why| write!(f, "\n  {why}"))
    }
}

/// The folder of certificates of a configuration.
pub(crate) fn store_of(config: &ServerPlan) -> CertificateStore {
    let named = config.global.acme_folder.clone();
    CertificateStore::in_folder(named.unwrap_or_else(CertificateStore::default_folder))
}

/// The reports of all sites with TLS.
pub(crate) fn reports(config: &ServerPlan) -> Vec<CertificateReport> {
    let sites = config.sites.iter();
    sites.filter_map(|site| report(config, site)).collect()
}

/// The report of a site; `None` if it has no TLS.
pub(crate) fn report(config: &ServerPlan, site: &SitePlan) -> Option<CertificateReport> {
    let tls = site.tls.as_ref()?;
    let (what, why) = match (site.acme.as_slice(), &site.certificate_origin) {
        ([first, others @ ..], _) => {
            let what: Vec<_> = site.acme.iter().map(ToString::to_string).collect();
            let mut why = of_order(config, first);
            why.extend(others.iter().map(|managed| state_of(config, managed)));
            (what.join("; "), why)
        }
        ([], Some(CertificateOrigin::LocalAuthority)) => (
            "a certificate of the local authority".to_owned(),
            vec![
                "because of --tls; only clients that trust the local authority accept it"
                    .to_owned(),
            ],
        ),
        ([], Some(CertificateOrigin::Files(paths))) => {
            let paths: Vec<_> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let mut why = vec!["because [sites.tls] names it, so that none is ordered".to_owned()];
            why.extend(tls.certificates.iter().map(lifetime));
            (format!("the certificate of {}", paths.join(", ")), why)
        }
        ([], None) => {
            let plan = site.on_demand.as_ref()?;
            (
                "a certificate for each name on demand".to_owned(),
                of_demand(plan),
            )
        }
    };
    Some(CertificateReport {
        site: site.name.clone(),
        what,
        why,
    })
}

fn of_demand(plan: &OnDemandPlan) -> Vec<String> {
    let mut why = Vec::new();
    if !plan.allowed.is_empty() {
        why.push(format!("for {}", plan.allowed.join(" ")));
    }
    if let Some(url) = &plan.ask {
        why.push(format!("for names that {url}?domain=NAME permits"));
    }
    why.push(format!(
        "at most {} orders in an hour; other names get the TLS alert unrecognized_name",
        plan.orders_per_hour
    ));
    why
}

fn of_order(config: &ServerPlan, managed: &ManagedCertificate) -> Vec<String> {
    let mut why = vec![
        match &managed.settings.email {
            Some(email) => format!("because acme_email = \"{email}\" agrees to the terms"),
            None => "because acme_agree = true agrees to the terms".to_owned(),
        } + ", and the site names no certificate",
    ];
    why.push(state_of(config, managed));
    let allowed: Vec<ChallengeKind> = managed.settings.allowed_challenges().collect();
    let has_port = |port: u16, is_tls: bool| {
        config
            .sites
            .iter()
            .flat_map(|site| &site.listeners)
            .any(|listener| {
                listener.tls == is_tls
                    && matches!(&listener.address, ListenAddress::Tcp { address, .. } if address.port() == port)
            })
    };
    for kind in [
        ChallengeKind::Http,
        ChallengeKind::TlsAlpn,
        ChallengeKind::Dns,
    ] {
        let is_allowed = allowed.contains(&kind);
        let remark = match kind {
            ChallengeKind::Dns if !is_allowed && managed.settings.dns.is_none() => {
                "not by dns-01: there is neither `acme_dns` nor `acme_dns_hook`"
            }
            _ if !is_allowed => continue,
            ChallengeKind::Http if !has_port(HTTP_PORT, false) => {
                "http-01 needs a listener at port 80, and no site has it: something else has to forward requests from there"
            }
            ChallengeKind::TlsAlpn if !has_port(HTTPS_PORT, true) => {
                "tls-alpn-01 needs a TLS listener at port 443, and no site has it: something else has to forward connections from there"
            }
            _ => continue,
        };
        why.push(remark.to_owned());
    }
    why
}

fn state_of(config: &ServerPlan, managed: &ManagedCertificate) -> String {
    match store_of(config).certificate(managed) {
        Ok(Some(certificate)) => format!("there is one already: {}", lifetime(&certificate)),
        Ok(None) => "there is none yet: until it is there, clients get a TLS alert".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn lifetime(certificate: &Certificate) -> String {
    let left = certificate.not_after() - OffsetDateTime::now_utc().unix_timestamp();
    match left {
        ..0 => format!("it expired {} days ago", -left / DAY),
        _ => format!("it expires in {} days", left / DAY),
    }
}

/// The site whose certificate a client gets that connects to this address and asks for this name.
pub(crate) fn site_of<'a>(
    config: &'a ServerPlan,
    address: &ListenAddress,
    name: &str,
) -> Option<&'a SitePlan> {
    let listens = |site: &&SitePlan| {
        site.tls.is_some() && site.listeners.iter().any(|one| one.address == *address)
    };
    let sites: Vec<&SitePlan> = config.sites.iter().filter(listens).collect();
    // How well a site fits: an exact name before the longest wildcard before none.
    let fit = |site: &SitePlan| {
        let names = site.tls.iter().flat_map(|tls| &tls.names);
        let fits = names.filter_map(|own| match own.strip_prefix('*') {
            None => (own == name).then_some(usize::MAX),
            Some(suffix) => name.ends_with(suffix).then_some(suffix.len()),
        });
        fits.max().unwrap_or(0)
    };
    // The first of several that fit equally.
    sites.into_iter().rev().max_by_key(|site| fit(site))
}
