//! `Acme`: the certificates of an application of the framework, and the plan of its listeners with them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use apus_net::EnginePlan;
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_patterns::{canonical_host_name, uncertifiable};
use tokio::sync::mpsc;

use crate::challenges::PendingChallenges;
use crate::dns_publisher::DnsPublisher;
use crate::maintenance::{CertificateMaintenance, CertificateStatus};
use crate::provider::AcmeProvider;
use crate::service::HttpChallengeService;
use crate::settings::{
    AcmeSettings, CertificateKeyType, ChallengeKind, ExternalAccount, ManagedCertificate,
};
use crate::store::CertificateStore;

/// A certificate that is ordered and renewed by ACME, for `App::serve_tls` and `Server::listen_acme` of the framework.
///
/// ```
/// use apus_acme::Acme;
///
/// let certificate = Acme::for_names(["example.com", "www.example.com"]).email("you@example.com");
/// ```
///
/// The names have to point to this machine, whose ports 80 and 443 the authority, by default Let's Encrypt, has to reach.
/// Accounts, certificates and private keys are in [`Acme::folder`].
#[derive(Clone, Debug)]
pub struct Acme {
    names: Vec<String>,
    settings: AcmeSettings,
    agreed: bool,
    providers: Vec<String>,
    folder: Option<PathBuf>,
}

impl Acme {
    /// One certificate for these names: domains, wildcards (which need [`Acme::dns_hook`]), or addresses.
    pub fn for_names<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            settings: AcmeSettings::default(),
            agreed: false,
            providers: Vec::new(),
            folder: None,
        }
    }

    /// The address to which the authority writes. By it, you agree to the terms of the authority.
    #[must_use]
    pub fn email(mut self, address: &str) -> Self {
        self.settings.email = Some(address.to_owned());
        self
    }

    /// Agrees to the terms of the authority without an address.
    #[must_use]
    pub fn agree_to_terms(mut self) -> Self {
        self.agreed = true;
        self
    }

    /// An authority by its name (`letsencrypt`, `letsencrypt-staging`, `zerossl`, `google`, `actalis`, `sslcom`) or the URL of
    /// its directory; of several, the next is asked when one fails.
    #[must_use]
    pub fn provider(mut self, name: &str) -> Self {
        self.providers.push(name.to_owned());
        self
    }

    /// The root certificate of the HTTPS server of an authority that is not public, a PEM file.
    #[must_use]
    pub fn provider_root(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.provider_root = Some(file.into());
        self
    }

    /// The account at the authority that it requires (RFC 8555 section 7.3.4): its identifier and its key.
    #[must_use]
    pub fn external_account(mut self, id: &str, key: Vec<u8>) -> Self {
        self.settings.external_account = Some(ExternalAccount {
            id: id.to_owned(),
            key,
        });
        self
    }

    /// Proves control over the names only by TLS handshakes (`tls-alpn-01`), so that port 80 is not needed.
    #[must_use]
    pub fn by_tls(mut self) -> Self {
        self.settings.challenges = vec![ChallengeKind::TlsAlpn];
        self
    }

    /// Proves control over the names by TXT records (`dns-01`) that this program publishes. It is called with `present` or
    /// `cleanup`, the name of the record and its value.
    #[must_use]
    pub fn dns_hook(mut self, program: impl Into<PathBuf>) -> Self {
        self.settings.dns = Some(DnsPublisher::Hook(program.into()));
        self
    }

    /// The DNS server that is asked where the names point, by default the DNS server of the system.
    #[must_use]
    pub fn resolver(mut self, address: SocketAddr) -> Self {
        self.settings.resolver = Some(address);
        self
    }

    /// Orders the certificate without a check that the names point to this machine, as behind a load balancer.
    #[must_use]
    pub fn without_dns_check(mut self) -> Self {
        self.settings.skip_dns_check = true;
        self
    }

    /// The profile of the certificate, such as `shortlived`, if the authority has several.
    #[must_use]
    pub fn profile(mut self, name: &str) -> Self {
        self.settings.profile = Some(name.to_owned());
        self
    }

    /// Uses the chain whose topmost certificate was issued by an authority with this common name, such as `ISRG Root X1`, if the
    /// authority offers several chains; else the one that it offers first.
    #[must_use]
    pub fn preferred_chain(mut self, issuer: &str) -> Self {
        self.settings.preferred_chain = Some(issuer.to_owned());
        self
    }

    /// An RSA key, for clients older than about 2014, in place of an ECDSA key.
    #[must_use]
    pub fn rsa(mut self) -> Self {
        self.settings.key_type = CertificateKeyType::Rsa2048;
        self
    }

    /// The folder of accounts, certificates and private keys, by default `/var/lib/apus/acme` for root, and
    /// `~/.local/share/apus/acme` for others. Several processes may share it.
    #[must_use]
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = Some(path.into());
        self
    }

    fn store(&self) -> CertificateStore {
        CertificateStore::in_folder(
            self.folder
                .clone()
                .unwrap_or_else(CertificateStore::default_folder),
        )
    }

    fn into_managed(mut self) -> Result<ManagedCertificate, AcmeError> {
        let wrong = |why: String| Err(AcmeError(why));
        if self.names.is_empty() {
            return wrong("a certificate by ACME needs a name".to_owned());
        }
        if !self.agreed && self.settings.email.is_none() {
            return wrong(
                "you have not agreed to the terms of the certificate authority: call Acme::email or Acme::agree_to_terms"
                    .to_owned(),
            );
        }
        for name in &mut self.names {
            let is_address = name.parse::<IpAddr>().is_ok();
            let fault = match canonical_host_name(name) {
                None => Some("it is no name of a host".to_owned()),
                Some(canonical) => {
                    let fault = uncertifiable(&canonical).filter(|_| !is_address);
                    *name = canonical.into_owned();
                    fault
                }
            };
            if let Some(why) = fault {
                return wrong(format!(
                    "no certificate authority issues a certificate for `{name}`: {why}"
                ));
            }
        }
        let is_wildcard = |name: &String| name.starts_with("*.");
        if self.settings.dns.is_none()
            && let Some(name) = self.names.iter().find(|name| is_wildcard(name))
        {
            return wrong(format!("a certificate for `{name}` needs Acme::dns_hook"));
        }
        for name in &self.providers {
            let Some(provider) = AcmeProvider::find(name) else {
                let names: Vec<_> = AcmeProvider::names().collect();
                return wrong(format!(
                    "`{name}` is none of {}, and no https:// URL of a directory",
                    names.join(", ")
                ));
            };
            self.settings.providers.push(provider);
        }
        Ok(ManagedCertificate {
            names: self.names,
            settings: self.settings,
            is_additional: false,
        })
    }
}

/// The certificates of an application, and the plan that they belong to.
pub struct ApplicationCertificates {
    plan: EnginePlan,
    certificates: Vec<(usize, ManagedCertificate)>,
    store: CertificateStore,
    challenges: Arc<PendingChallenges>,
}

impl ApplicationCertificates {
    /// Prepares the listeners of a plan, each with its number and its certificate; `None` if there are none.
    ///
    /// # Errors
    /// A certificate has mistakes.
    pub fn prepare(
        listeners: Vec<(usize, Acme)>,
        mut plan: EnginePlan,
    ) -> Result<(EnginePlan, Option<Self>), AcmeError> {
        let Some((_, first)) = listeners.first() else {
            return Ok((plan, None));
        };
        let store = first.store();
        if listeners.iter().any(|(_, acme)| acme.store() != store) {
            return Err(AcmeError(
                "all certificates of a server have one Acme::folder".to_owned(),
            ));
        }
        if plan.listeners.iter().any(|one| one.http3.is_some()) {
            plan.http3_secret = match store.http3_secret() {
                Ok(secret) => Some(secret),
                Err(error) => {
                    tracing::warn!(%error, "the secret of HTTP/3 cannot be stored; a restart does not reset connections");
                    None
                }
            };
        }
        let challenges: Arc<PendingChallenges> = Arc::default();
        let certificates = listeners
            .into_iter()
            .map(|(listener, acme)| Ok((listener, acme.into_managed()?)))
            .collect::<Result<Vec<_>, AcmeError>>()?;
        let is_ordered =
            |number: usize| certificates.iter().any(|(listener, _)| *listener == number);
        let clear = plan.listeners.iter_mut().enumerate();
        let clear = clear.filter(|(number, one)| one.tls.is_none() && !is_ordered(*number));
        for (_, listener) in clear {
            listener.service = Arc::new(HttpChallengeService::new(
                Arc::clone(&listener.service),
                Arc::clone(&challenges),
            ));
        }
        let mut prepared = Self {
            plan,
            certificates,
            store,
            challenges,
        };
        let plan = prepared.plan()?;
        Ok((plan, Some(prepared)))
    }

    /// The plan with the certificates that there are now.
    fn plan(&mut self) -> Result<EnginePlan, AcmeError> {
        for (listener, managed) in &self.certificates {
            // A damaged one is ordered again, which is logged.
            let certificate = self.store.certificate(managed).ok().flatten();
            let site = TlsSite::new(managed.names.clone(), certificate.into_iter().collect());
            let settings = TlsSettings::new(&[site], UnknownName::FirstSite)
                .map_err(|error| AcmeError(error.to_string()))?
                .with_challenges(Arc::clone(&self.challenges) as _);
            if let Some(plan) = self.plan.listeners.get_mut(*listener) {
                plan.tls = Some(Arc::new(settings));
            }
        }
        Ok(self.plan.clone())
    }

    /// Begins to order and renew. It has to be called where tasks of the control thread run.
    fn maintain(&self) -> (CertificateMaintenance, mpsc::Receiver<()>) {
        let (maintenance, issued) =
            CertificateMaintenance::new(self.store.clone(), Arc::clone(&self.challenges));
        let managed = self.certificates.iter().map(|(_, managed)| managed.clone());
        maintenance.apply(managed.collect());
        (maintenance, issued)
    }
}

/// The certificates of an application while it runs, and its plan with them.
pub struct MaintainedPlan {
    certificates: ApplicationCertificates,
    maintenance: CertificateMaintenance,
    issued: mpsc::Receiver<()>,
}

impl MaintainedPlan {
    /// Begins to order and renew. It has to be called where tasks of the thread run.
    pub fn start(certificates: ApplicationCertificates) -> Self {
        let (maintenance, issued) = certificates.maintain();
        Self {
            certificates,
            maintenance,
            issued,
        }
    }

    /// Waits for the next certificate, and returns the plan with it.
    ///
    /// # Errors
    /// The certificate cannot be used.
    pub async fn next_plan(&mut self) -> Result<EnginePlan, AcmeError> {
        match self.issued.recv().await {
            Some(()) => self.certificates.plan(),
            None => std::future::pending().await,
        }
    }

    /// What is known of the certificates.
    pub fn status(&self) -> Vec<CertificateStatus> {
        self.maintenance.status()
    }

    /// Renews the certificates that have this name; returns how many there are.
    pub fn renew(&self, name: &str) -> usize {
        self.maintenance.renew(name)
    }
}

/// Why a certificate of an application cannot be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeError(String);

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AcmeError {}

impl fmt::Debug for ApplicationCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplicationCertificates")
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MaintainedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintainedPlan").finish_non_exhaustive()
    }
}
