//! One order, from the account to the certificate (RFC 8555 section 7).

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apus_transport::tls::Certificate;
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeStatus,
    ChallengeType, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::alternate_chains::{SigningAccount, preferred_chain};
use crate::authority_client::{AuthorityClient, AuthorityObservations};
use crate::challenges::{OpenChallenge, PendingChallenges};
use crate::dns::{DnsPublication, TxtRecord};
use crate::issue_error::{IssueError, problem_words};
use crate::peers::ChallengePeers;
use crate::provider::AcmeProvider;
use crate::settings::{CertificateKeyType, ChallengeKind, ManagedCertificate};
use crate::shared::{SharedChallenge, SharedLock, StorageReplica};
use crate::state::{CertificateState, OpenOrder};
use crate::store::{CertificateStore, CertificateStoreError};

/// How long an authority may take to check challenges, and to issue a certificate.
const PATIENCE: Duration = Duration::from_secs(300);
/// The first label of a TXT record (RFC 8555 section 8.4).
const DNS_LABEL: &str = "_acme-challenge";
/// The interval in which a machine looks whether another one has created the account.
const ACCOUNT_LOCK_INTERVAL: Duration = Duration::from_secs(1);
/// After this number of failed attempts, an order that cannot be looked at is replaced by a new one.
const MAX_FAILURES_OF_ONE_ORDER: u32 = 3;
/// How long other machines may take to read a challenge.
const SPREADING_TIME: Duration = Duration::from_secs(3);

/// The order of one certificate at one authority.
pub(crate) struct CertificateOrder<'a> {
    pub(crate) store: &'a CertificateStore,
    pub(crate) challenges: &'a Arc<PendingChallenges>,
    pub(crate) managed: &'a ManagedCertificate,
    pub(crate) provider: &'a AcmeProvider,
    pub(crate) progress: &'a OrderProgress,
    /// Those that respond to the same challenges.
    pub(crate) peers: &'a ChallengePeers,
    /// The storage that machines share.
    pub(crate) replica: Option<&'a Arc<StorageReplica>>,
    /// Held while an account is created.
    pub(crate) account_creation: &'a tokio::sync::Mutex<()>,
    /// What the authority says beside its responses.
    pub(crate) observations: Arc<AuthorityObservations>,
}

/// What the order of a certificate does just now, for the status.
#[derive(Debug, Default)]
pub(crate) struct OrderProgress {
    step: Cell<Option<&'static str>>,
    attempts: Cell<u64>,
    /// Why the certificate cannot be maintained at all, as by a full disk.
    fault: RefCell<Option<String>>,
}

impl OrderProgress {
    pub(crate) fn step(&self) -> Option<&'static str> {
        self.step.get()
    }

    /// Attempts that have ended since the start of the process.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.get()
    }

    pub(crate) fn begin(&self, step: &'static str) {
        self.step.set(Some(step));
    }

    pub(crate) fn end_attempt(&self) {
        self.step.set(None);
        self.attempts.set(self.attempts.get() + 1);
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }

    pub(crate) fn set_fault(&self, fault: Option<String>) {
        if fault.is_some() {
            self.end_attempt();
        }
        self.fault.replace(fault);
    }
}

/// What publishes the response to a challenge; it is withdrawn when this is dropped, or the hook is called again.
enum PublishedResponse {
    Local(#[expect(dead_code, reason = "it is open until it is dropped")] OpenChallenge),
    /// By all machines that share a storage or a folder.
    Shared(
        #[expect(dead_code, reason = "it is open until it is dropped")] OpenChallenge,
        SharedChallenge,
    ),
    Dns(TxtRecord),
}

impl CertificateOrder<'_> {
    /// Orders the certificate, or continues the open order, and stores it.
    pub(crate) async fn obtain(&self, state: &mut CertificateState) -> Result<(), IssueError> {
        // What the authority sends has to be stored.
        self.store.check_space(self.managed)?;
        self.progress.begin("finding the account");
        let account = self.account().await?;
        self.progress.begin("creating the order");
        let mut order = self.order(&account, state).await?;
        if order.state().status == OrderStatus::Pending {
            self.authorize(&mut order, state.failures).await?;
        }
        let key = match self.store.pending_key(self.managed)? {
            Some(key) => key,
            None => {
                let key = self.key_for_order(state)?;
                self.store.put_pending_key(self.managed, &key)?;
                self.share().await?;
                key
            }
        };
        if order.state().status == OrderStatus::Ready {
            let key = KeyPair::from_pem(&key)?;
            self.progress.begin("requesting the certificate");
            order
                .finalize_csr(&signing_request(&self.managed.names, &key)?)
                .await?;
        }
        self.progress.begin("waiting for the certificate");
        let chain = order.poll_certificate(&retries()).await?;
        let chain = self.preferred_chain(chain).await;
        let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())
            .map_err(|error| IssueError::new(format!("the certificate is not usable: {error}")))?;
        self.check_names(&certificate)?;
        self.store.put_certificate(self.managed, &chain, &key)?;
        *state = CertificateState {
            issued_by: Some(self.provider.directory.clone()),
            on_demand: state.on_demand,
            ..CertificateState::default()
        };
        self.store.put_state(self.managed, state)?;
        self.store.remove_pending_key(self.managed)?;
        self.share().await
    }

    /// The chain that the settings prefer, of those that the authority offers with the certificate; else the one that it offers
    /// first.
    async fn preferred_chain(&self, offered: String) -> String {
        let settings = &self.managed.settings;
        let Some(name) = &settings.preferred_chain else {
            return offered;
        };
        self.progress.begin("looking at alternative chains");
        let found = async {
            let json = self.store.account(self.provider)?.unwrap_or_default();
            let account: SigningAccount = serde_json::from_slice(&json)
                .map_err(|error| IssueError::new(format!("the account: {error}")))?;
            let observations = Arc::clone(&self.observations);
            let client = AuthorityClient::new(settings.provider_root.as_deref(), observations)?;
            preferred_chain(name, &offered, &account, &client).await
        };
        match found.await {
            Ok(Some(chain)) => return chain,
            Ok(None) => tracing::warn!(
                names = self.managed.names.join(" "),
                preferred = name,
                "the authority offers no chain of this issuer: its usual chain is used"
            ),
            Err(error) => tracing::warn!(
                names = self.managed.names.join(" "),
                %error,
                "alternative chains are not known: the usual chain of the authority is used"
            ),
        }
        offered
    }

    /// The private key of a new certificate: the old certificate's key if it is to be used again, and has the right kind.
    fn key_for_order(&self, state: &CertificateState) -> Result<String, IssueError> {
        let kind = self.managed.settings.key_type;
        let old = if self.managed.settings.reuse_key && !state.revoked {
            self.store.certificate_key(self.managed)?
        } else {
            None
        };
        let old = old.filter(|pem| KeyPair::from_pem(pem).is_ok_and(|key| is_of_kind(&key, kind)));
        match old {
            Some(key) => Ok(key),
            None => Ok(new_key(kind)?.serialize_pem()),
        }
    }

    /// Makes what has been stored the same on all machines, before the authority is asked for more.
    async fn share(&self) -> Result<(), IssueError> {
        if let Some(replica) = self.replica {
            self.store
                .sync_certificate(replica, self.managed, true)
                .await?;
            self.store.sync_account(replica, self.provider).await?;
        }
        Ok(())
    }

    /// The account at the authority, which is created with the first order.
    pub(crate) async fn account(&self) -> Result<Account, IssueError> {
        if let Some(account) = self.known_account().await? {
            return Ok(account);
        }
        // Several certificates may be ordered at once, on several machines.
        let _guard = self.account_creation.lock().await;
        let lock = match self.replica {
            Some(replica) => Some(self.lock_account(replica).await?),
            None => None,
        };
        let account = match self.known_account().await {
            Ok(Some(account)) => Ok(account),
            Ok(None) => self.create_account().await,
            Err(error) => Err(error),
        };
        if let Some(lock) = lock {
            lock.release().await;
        }
        account
    }

    async fn known_account(&self) -> Result<Option<Account>, IssueError> {
        if let Some(replica) = self.replica {
            self.store.sync_account(replica, self.provider).await?;
        }
        let root = self.managed.settings.provider_root.as_deref();
        stored_account(self.store, self.provider, (root, &self.observations)).await
    }

    /// Waits until no other machine creates an account.
    async fn lock_account(&self, replica: &Arc<StorageReplica>) -> Result<SharedLock, IssueError> {
        let name = format!("accounts/{}", self.provider.directory);
        loop {
            let lock = replica.lock(&name).await;
            if let Some(lock) = lock.map_err(CertificateStoreError::from)? {
                return Ok(lock);
            }
            tokio::time::sleep(ACCOUNT_LOCK_INTERVAL).await;
        }
    }

    async fn create_account(&self) -> Result<Account, IssueError> {
        let settings = &self.managed.settings;
        let root = settings.provider_root.as_deref();
        let client = AuthorityClient::new(root, Arc::clone(&self.observations))?;
        let builder = Account::builder_with_http(Box::new(client));
        let contact = settings
            .email
            .as_ref()
            .map(|email| format!("mailto:{email}"));
        let contacts: Vec<&str> = contact.iter().map(String::as_str).collect();
        let external = settings
            .external_account
            .as_ref()
            .map(|account| ExternalAccountKey::new(account.id.clone(), &account.key));
        let new = NewAccount {
            contact: &contacts,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.provider.directory.clone();
        let (account, credentials) = builder.create(&new, directory, external.as_ref()).await?;
        let json = serde_json::to_vec(&credentials)
            .map_err(|error| IssueError::new(format!("the new account: {error}")))?;
        self.store.put_account(self.provider, &json)?;
        self.share().await?;
        Ok(account)
    }

    /// The open order if it can still lead to a certificate, or a new one, which is stored.
    async fn order(
        &self,
        account: &Account,
        state: &mut CertificateState,
    ) -> Result<Order, IssueError> {
        if let Some(order) = self.open_order(account, state).await? {
            return Ok(order);
        }
        self.store.remove_pending_key(self.managed)?;
        let identifiers: Vec<Identifier> = self
            .managed
            .names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => Identifier::Ip(address),
                Err(_) => Identifier::Dns(name.clone()),
            })
            .collect();
        let new = || match &self.managed.settings.profile {
            None => NewOrder::new(&identifiers),
            Some(profile) => NewOrder::new(&identifiers).profile(profile),
        };
        let order = match self.replaced(state)? {
            None => account.new_order(&new()).await?,
            Some(replaced) => match account.new_order(&new().replaces(replaced)).await {
                Ok(order) => order,
                // An authority may have forgotten that certificate, accept no such facts, or fail at looking it up: Pebble 2.10.1
                // responds `serverInternal` for one in 256, whose serial number has a leading zero byte in DER. That must not
                // keep a site from its next certificate.
                Err(error) => {
                    let error = IssueError::from(error);
                    let is_failure = self.observations.is_failure_of_the_request();
                    if !(is_failure && error.is_of_the_request()) {
                        return Err(error);
                    }
                    account.new_order(&new()).await?
                }
            },
        };
        state.order = Some(OpenOrder {
            directory: self.provider.directory.clone(),
            url: order.url().to_owned(),
            names: self.managed.names.clone(),
            failures_before: state.failures,
        });
        self.store.put_state(self.managed, state)?;
        self.share().await?;
        Ok(order)
    }

    /// The open order, if it can still lead to a certificate.
    async fn open_order(
        &self,
        account: &Account,
        state: &CertificateState,
    ) -> Result<Option<Order>, IssueError> {
        let is_of_this = |open: &&OpenOrder| {
            open.directory == self.provider.directory && open.names == self.managed.names
        };
        let Some(open) = state.order.as_ref().filter(is_of_this) else {
            return Ok(None);
        };
        let mut order = match account.order(open.url.clone()).await {
            Ok(order) => order,
            Err(error) => {
                let error = IssueError::from(error);
                // An authority that has forgotten the order says so. It is not given up for other failures, unless there were many with
                // it: those of the order before led to a third one, when this attempt began again after a refused nonce.
                let failures = state.failures.saturating_sub(open.failures_before);
                let is_given_up =
                    self.observations.is_refusal() || failures >= MAX_FAILURES_OF_ONE_ORDER;
                return if is_given_up && error.is_of_the_request() {
                    Ok(None)
                } else {
                    Err(error)
                };
            }
        };
        let is_useful = match order.state().status {
            OrderStatus::Pending | OrderStatus::Ready => true,
            OrderStatus::Processing | OrderStatus::Valid => {
                self.store.pending_key(self.managed)?.is_some()
            }
            OrderStatus::Invalid => false,
        };
        Ok(is_useful.then_some(order))
    }

    /// The certificate of this authority that a new one replaces (RFC 9773 section 5).
    fn replaced(
        &self,
        state: &CertificateState,
    ) -> Result<Option<CertificateIdentifier<'static>>, CertificateStoreError> {
        if state.issued_by.as_ref() != Some(&self.provider.directory) {
            return Ok(None);
        }
        let certificate = self.store.certificate(self.managed).ok().flatten();
        Ok(certificate.as_ref().and_then(identifier))
    }

    /// Responds to the challenges of all names, and waits until the authority has checked them.
    async fn authorize(&self, order: &mut Order, failures: u32) -> Result<(), IssueError> {
        self.progress.begin("publishing responses to challenges");
        let mut published = Vec::new();
        let result = self
            .respond_to_challenges(order, failures, &mut published)
            .await;
        for response in published {
            match response {
                PublishedResponse::Local(_) => {}
                PublishedResponse::Shared(_, challenge) => {
                    // Others forget it after an hour otherwise.
                    let _ = self.peers.remove(&challenge).await;
                }
                PublishedResponse::Dns(record) => self.publication()?.withdraw(&record).await,
            }
        }
        result
    }

    async fn respond_to_challenges(
        &self,
        order: &mut Order,
        failures: u32,
        published: &mut Vec<PublishedResponse>,
    ) -> Result<(), IssueError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                status => {
                    let why = format!("an authorization of the order is {status:?}");
                    return Err(IssueError::new(why));
                }
            }
            self.respond(authorization, failures, published).await?;
        }
        self.progress
            .begin("waiting until the authority has verified the names");
        match order.poll_ready(&retries()).await {
            Ok(OrderStatus::Ready) => Ok(()),
            result => {
                let faults = challenge_faults(order).await;
                match (faults.is_empty(), result) {
                    (false, _) => Err(IssueError::new(faults)),
                    (true, Err(error)) => Err(error.into()),
                    (true, Ok(_)) => Err(IssueError::new("the order has become invalid")),
                }
            }
        }
    }

    /// Publishes the response to a challenge of one name, and tells the authority. What is published is in the list before anything
    /// else can fail, so that it is withdrawn.
    async fn respond(
        &self,
        mut authorization: AuthorizationHandle<'_>,
        failures: u32,
        published: &mut Vec<PublishedResponse>,
    ) -> Result<(), IssueError> {
        let name = authorization.identifier().to_string();
        let kind = self.choose(&name, &authorization, failures)?;
        let Some(mut challenge) = authorization.challenge(acme_type(kind)) else {
            return Err(IssueError::new(format!(
                "the authority offers no {} for {name}",
                kind.name()
            )));
        };
        let authorization = challenge.key_authorization();
        match kind {
            ChallengeKind::Http => {
                let open = self
                    .challenges
                    .add_http(&challenge.token, authorization.as_str());
                let shared = SharedChallenge::Http {
                    token: challenge.token.clone(),
                    key_authorization: authorization.as_str().to_owned(),
                };
                published.push(self.spread(open, shared).await?);
            }
            ChallengeKind::TlsAlpn => {
                let digest = authorization.digest();
                let digest = digest.as_ref();
                let open = self.challenges.add_tls(&name, digest)?;
                let digest = digest
                    .try_into()
                    .map_err(|_| IssueError::new("the digest of a challenge has a wrong length"))?;
                let shared = SharedChallenge::Tls { name, digest };
                published.push(self.spread(open, shared).await?);
            }
            ChallengeKind::Dns => {
                let domain = name.strip_prefix("*.").unwrap_or(&name);
                let name = format!("{DNS_LABEL}.{domain}");
                let value = authorization.dns_value();
                let publication = self.publication()?;
                let record = publication.publish(&name, &value).await?;
                published.push(PublishedResponse::Dns(record.clone()));
                self.progress
                    .begin("waiting until name servers have the TXT record");
                publication.wait_until_visible(&record).await?;
            }
        }
        // An attempt that is repeated for its nonce finds a challenge that the authority checks already.
        if challenge.status == ChallengeStatus::Pending {
            challenge.set_ready().await?;
        }
        Ok(())
    }

    /// Has all machines respond to a challenge.
    async fn spread(
        &self,
        open: OpenChallenge,
        challenge: SharedChallenge,
    ) -> Result<PublishedResponse, IssueError> {
        if !self.peers.add(&challenge).await? {
            return Ok(PublishedResponse::Local(open));
        }
        tokio::time::sleep(SPREADING_TIME).await;
        Ok(PublishedResponse::Shared(open, challenge))
    }

    /// A challenge that is allowed, offered and possible for the name: another one after each failure.
    fn choose(
        &self,
        name: &str,
        authorization: &AuthorizationHandle<'_>,
        failures: u32,
    ) -> Result<ChallengeKind, IssueError> {
        let is_wildcard = name.starts_with("*.");
        let is_possible = |kind: &ChallengeKind| {
            let is_offered = authorization
                .challenges
                .iter()
                .any(|offered| offered.r#type == acme_type(*kind));
            is_offered && (*kind == ChallengeKind::Dns || !is_wildcard)
        };
        let allowed = self.managed.settings.allowed_challenges();
        let possible: Vec<ChallengeKind> = allowed.filter(is_possible).collect();
        possible
            .get(failures as usize % possible.len().max(1))
            .copied()
            .ok_or_else(|| {
                let why = if is_wildcard {
                    "a wildcard needs dns-01, and so something that publishes TXT records"
                } else {
                    "the authority offers none of the allowed challenges"
                };
                IssueError::new(format!("{name}: {why}"))
            })
    }

    /// What publishes TXT records.
    fn publication(&self) -> Result<DnsPublication<'_>, IssueError> {
        let settings = &self.managed.settings;
        match &settings.dns {
            Some(publisher) => Ok(DnsPublication::new(publisher, settings.resolver)),
            None => Err(IssueError::new("nothing publishes TXT records")),
        }
    }

    fn check_names(&self, certificate: &Certificate) -> Result<(), IssueError> {
        let missing = self
            .managed
            .names
            .iter()
            .find(|name| !certificate.names().iter().any(|has| **has == ***name));
        match missing {
            None => Ok(()),
            Some(name) => Err(IssueError::new(format!(
                "the certificate is not for {name}"
            ))),
        }
    }
}

/// The account at an authority that the store has; `root` is the root certificate of its HTTPS server.
pub(crate) async fn stored_account(
    store: &CertificateStore,
    provider: &AcmeProvider,
    (root, observations): (Option<&Path>, &Arc<AuthorityObservations>),
) -> Result<Option<Account>, IssueError> {
    let Some(json) = store.account(provider)? else {
        return Ok(None);
    };
    let client = AuthorityClient::new(root, Arc::clone(observations))?;
    let builder = Account::builder_with_http(Box::new(client));
    let credentials = serde_json::from_slice(&json)
        .map_err(|error| IssueError::new(format!("the stored account: {error}")))?;
    Ok(Some(builder.from_credentials(credentials).await?))
}

/// The identifier of a certificate for its authority (RFC 9773 section 4.1).
pub(crate) fn identifier(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let leaf = certificate.key().cert.first()?;
    let identifier = CertificateIdentifier::try_from(leaf).ok()?;
    Some(identifier.into_owned())
}

fn retries() -> RetryPolicy {
    RetryPolicy::new().backoff(1.5).timeout(PATIENCE)
}

fn acme_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http => ChallengeType::Http01,
        ChallengeKind::TlsAlpn => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns => ChallengeType::Dns01,
    }
}

fn new_key(kind: CertificateKeyType) -> Result<KeyPair, rcgen::Error> {
    match kind {
        CertificateKeyType::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        CertificateKeyType::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        CertificateKeyType::Rsa2048 => KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256),
    }
}

fn is_of_kind(key: &KeyPair, kind: CertificateKeyType) -> bool {
    let algorithm = match kind {
        CertificateKeyType::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        CertificateKeyType::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        CertificateKeyType::Rsa2048 => &rcgen::PKCS_RSA_SHA256,
    };
    key.is_compatible(algorithm)
}

/// A certificate signing request (RFC 2986), DER.
fn signing_request(names: &[String], key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

/// What the authority found wrong with the challenges of an order, each with its name.
async fn challenge_faults(order: &mut Order) -> String {
    let mut faults = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let name = authorization.identifier().to_string();
        for challenge in &authorization.challenges {
            if let Some(problem) = &challenge.error {
                faults.push(format!("{name}: {}", problem_words(problem)));
            }
        }
    }
    faults.join("; ")
}
