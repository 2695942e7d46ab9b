//! The sites behind one TLS listener, and the selection of one by the server name (RFC 6066 section 3).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use apus_patterns::canonical_host_name;
use apus_transport::tls::{
    Certificate, KeyLogFile, MinVersion, PemFault, TlsError, authority_roots,
    certificates_from_pem, client_verifier, revocation_lists_from_pem,
};
use aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{ClientHello, NoClientAuth, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ServerConfig, SignatureAlgorithm};

use super::policy::TlsPolicy;
use super::sessions::{ON_DEMAND_SESSIONS, SITE_SESSIONS, TlsSessions};
use super::site_quic::SiteQuic;
use super::tickets::TicketSecrets;

/// The TLS settings of one site.
#[derive(Clone, Debug)]
pub struct TlsSite {
    /// Names in lower case: exact, or `*.example.com`.
    pub names: Vec<String>,
    /// If a client supports several, ECDSA goes before RSA. While there is none, as before the first one is issued, clients
    /// get an alert.
    pub certificates: Vec<Certificate>,
    /// Whether clients present certificates.
    pub client_auth: ClientAuth,
    /// The oldest version that is accepted, if the policy has it.
    pub min_version: MinVersion,
    /// The cipher suites and groups.
    pub policy: TlsPolicy,
    /// Protocols offered by ALPN (RFC 7301) over TCP, in the order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Where the secrets of its connections are logged, over TCP and over QUIC. Whoever reads that file can decrypt them.
    pub key_log: Option<KeyLogFile>,
    /// Whether the site is served over HTTP/3, where the listener has it.
    #[cfg(feature = "http3")]
    pub http3: bool,
    /// Whether HTTP/3 clients that return may send requests without effects in early data (RFC 8446 section 2.3), which
    /// saves a round trip. Sites with client certificates have none.
    #[cfg(feature = "http3")]
    pub early_data: bool,
}

impl TlsSite {
    /// A site with everything that [`TlsPolicy`] and [`MinVersion`] accept by default: HTTP/1.1, HTTP/2 and HTTP/3 with early
    /// data, for clients without certificates.
    pub fn new(names: Vec<String>, certificates: Vec<Certificate>) -> Self {
        Self {
            names,
            certificates,
            client_auth: ClientAuth::None,
            min_version: MinVersion::default(),
            policy: TlsPolicy::default(),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            key_log: None,
            #[cfg(feature = "http3")]
            http3: true,
            #[cfg(feature = "http3")]
            early_data: true,
        }
    }

    #[cfg(feature = "http3")]
    fn has_http3(&self) -> bool {
        self.http3
    }

    #[cfg(not(feature = "http3"))]
    fn has_http3(&self) -> bool {
        false
    }

    #[cfg(feature = "http3")]
    fn accepts_early_data(&self) -> bool {
        self.early_data && matches!(self.client_auth, ClientAuth::None)
    }

    #[cfg(not(feature = "http3"))]
    fn accepts_early_data(&self) -> bool {
        false
    }

    /// The identity of this site: its names, its certificates and its client authentication.
    fn identity(&self, has_stored_tickets: bool) -> [u8; 32] {
        let mut hash = Context::new(&SHA256);
        let mut field = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        // With lengths before all parts: two sites must not have the same hash because the end of one name is the
        // beginning of the next.
        for name in &self.names {
            field(name.as_bytes());
        }
        for certificate in &self.certificates {
            certificate.key().cert.iter().for_each(|der| field(der));
        }
        match &self.client_auth {
            ClientAuth::None => field(b"none"),
            ClientAuth::Optional {
                authorities,
                revoked,
            }
            | ClientAuth::Required {
                authorities,
                revoked,
            } => {
                field(if matches!(self.client_auth, ClientAuth::Optional { .. }) {
                    b"optional"
                } else {
                    b"required"
                });
                authorities.iter().for_each(|der| field(der));
                revoked.iter().for_each(|der| field(der.as_ref()));
            }
        }
        field(&[
            self.min_version as u8,
            self.policy as u8,
            u8::from(has_stored_tickets),
        ]);
        let mut identity = [0; 32];
        identity.copy_from_slice(hash.finish().as_ref());
        identity
    }
}

/// Whether clients present certificates.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is requested; if the client presents one, it must be valid.
    Optional {
        /// The authorities that may sign it, DER; it may itself be one of these certificates.
        authorities: Vec<CertificateDer<'static>>,
        /// Lists of the certificates that they have revoked, DER.
        revoked: Vec<CertificateRevocationListDer<'static>>,
    },
    /// A valid certificate is required.
    Required {
        /// The authorities that may sign it, DER; it may itself be one of these certificates.
        authorities: Vec<CertificateDer<'static>>,
        /// Lists of the certificates that they have revoked, DER.
        revoked: Vec<CertificateRevocationListDer<'static>>,
    },
}

impl ClientAuth {
    /// Reads certificates of authorities in PEM form.
    ///
    /// # Errors
    /// There is none, or the text is not PEM.
    pub fn authorities_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemFault> {
        certificates_from_pem(pem)
    }

    /// Reads lists of revoked certificates (RFC 5280 section 5) in PEM form.
    ///
    /// # Errors
    /// There is none, or the text is not PEM.
    pub fn revoked_from_pem(
        pem: &[u8],
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, PemFault> {
        revocation_lists_from_pem(pem)
    }
}

/// The reply to a client that asks for an unknown name, or for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// The first site.
    #[default]
    FirstSite,
    /// The alert `unrecognized_name`.
    Reject,
}

/// The sites behind one TLS listener, ready for handshakes.
pub struct TlsSettings {
    exact: HashMap<Box<str>, Arc<TlsSiteConfig>>,
    /// By the part behind the `*`, with its dot.
    wildcard: HashMap<Box<str>, Arc<TlsSiteConfig>>,
    unknown: Option<Arc<TlsSiteConfig>>,
    challenges: Option<Arc<dyn ChallengeCertificates>>,
    on_demand: Option<Arc<dyn OnDemandCertificates>>,
    /// Whether a site is served over HTTP/3, once it has its certificate.
    has_http3: bool,
}

/// Certificates for names that are first seen in a handshake.
pub trait OnDemandCertificates: Send + Sync {
    /// What there is for a server name in lower case. For a new name, it begins to look, unless the address of the client
    /// is not proven: the sources of UDP packets are forged at no cost.
    fn look_up(&self, server_name: &str, client: HandshakeClient) -> OnDemandLookup;
}

/// What is known of a client before its handshake is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeClient {
    /// It receives at this address.
    Proven(IpAddr),
    /// It is connected over a Unix socket.
    Local,
    /// The source of its packets may be forged.
    Unproven,
}

/// What there is for a server name.
pub enum OnDemandLookup {
    /// The name is none of those that may get a certificate: the other sites of the listener decide.
    NotCovered,
    /// There is a certificate.
    Ready(PreparedSite),
    /// The certificate is being looked for: what comes of it.
    Pending(Pin<Box<dyn Future<Output = OnDemandLookup>>>),
    /// The name may not have a certificate.
    NotPermitted,
    /// There is no certificate for now.
    NotYet,
}

impl fmt::Debug for OnDemandLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCovered => "NotCovered",
            Self::Ready(_) => "Ready",
            Self::Pending(_) => "Pending",
            Self::NotPermitted => "NotPermitted",
            Self::NotYet => "NotYet",
        })
    }
}

/// A site that is ready for handshakes, for one name that was first seen in one.
#[derive(Clone)]
pub struct PreparedSite(pub(super) Arc<TlsSiteConfig>);

impl PreparedSite {
    /// Prepares a site.
    ///
    /// # Errors
    /// An authority for clients cannot be used.
    pub fn new(site: &TlsSite, secrets: Option<&Arc<TicketSecrets>>) -> Result<Self, TlsError> {
        TlsSiteConfig::new(site, ON_DEMAND_SESSIONS, secrets).map(|config| Self(Arc::new(config)))
    }
}

/// Certificates for the handshakes by which a certificate authority verifies a server (`tls-alpn-01`, RFC 8737).
pub trait ChallengeCertificates: Send + Sync {
    /// The certificate for this server name, if a challenge is open for it.
    fn challenge_certificate(&self, server_name: &str) -> Option<Arc<CertifiedKey>>;
}

/// The protocol of such a handshake (RFC 8737 section 6.2).
pub(super) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

pub(super) struct TlsSiteConfig {
    /// `None` while there is no certificate.
    pub(super) config: Option<Arc<ServerConfig>>,
    /// For HTTP/3; `None` if the site is not served over it.
    pub(super) quic: Option<SiteQuic>,
    pub(super) certificate_names: Arc<[Box<str>]>,
    /// The configuration keeps only parts of it; a reload looks for the whole.
    _sessions: Option<Arc<TlsSessions>>,
}

impl TlsSettings {
    /// Prepares the sites.
    ///
    /// # Errors
    /// There is no site, or an authority cannot be used.
    pub fn new(sites: &[TlsSite], unknown: UnknownName) -> Result<Self, TlsError> {
        Self::with_tickets(sites, unknown, None)
    }

    /// As [`Self::new`], with secrets of session tickets that outlive the process. Without them, tickets do not.
    ///
    /// # Errors
    /// There is no site, or an authority cannot be used.
    pub fn with_tickets(
        sites: &[TlsSite],
        unknown: UnknownName,
        secrets: Option<&Arc<TicketSecrets>>,
    ) -> Result<Self, TlsError> {
        let mut settings = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            unknown: None,
            challenges: None,
            on_demand: None,
            has_http3: sites.iter().any(TlsSite::has_http3),
        };
        for site in sites {
            let ready = Arc::new(TlsSiteConfig::new(site, SITE_SESSIONS, secrets)?);
            let has_certificate = ready.config.is_some();
            // Not a site that waits for its first certificate: it could only refuse the clients of all unknown names.
            if settings.unknown.is_none() && unknown == UnknownName::FirstSite && has_certificate {
                settings.unknown = Some(Arc::clone(&ready));
            }
            for name in &site.names {
                let name = canonical_host_name(name)
                    .ok_or_else(|| TlsError::new(format!("`{name}` is no name of a host")))?;
                match name.strip_prefix('*') {
                    Some(suffix) => settings
                        .wildcard
                        .entry(suffix.into())
                        .or_insert(Arc::clone(&ready)),
                    None => settings
                        .exact
                        .entry(name.into())
                        .or_insert(Arc::clone(&ready)),
                };
            }
        }
        if sites.is_empty() {
            return Err(TlsError::new(
                "a TLS listener needs a site with a certificate",
            ));
        }
        Ok(settings)
    }

    /// Responds to the challenges of certificate authorities, too.
    #[must_use]
    pub fn with_challenges(mut self, challenges: Arc<dyn ChallengeCertificates>) -> Self {
        self.challenges = Some(challenges);
        self
    }

    /// Gets certificates for names that no other site has, too.
    #[must_use]
    pub fn with_on_demand(mut self, certificates: Arc<dyn OnDemandCertificates>) -> Self {
        self.on_demand = Some(certificates);
        self
    }

    /// What there is for a name that none of the sites has a certificate for.
    pub(super) fn on_demand(
        &self,
        server_name: Option<&str>,
        client: HandshakeClient,
    ) -> OnDemandLookup {
        let (Some(on_demand), Some(name)) = (&self.on_demand, server_name) else {
            return OnDemandLookup::NotCovered;
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if self
            .named_site(&name)
            .is_some_and(|site| site.config.is_some())
        {
            return OnDemandLookup::NotCovered;
        }
        on_demand.look_up(&name, client)
    }

    /// The configuration of a handshake by which an authority verifies this name.
    pub(super) fn challenge(&self, server_name: &str) -> Option<Arc<ServerConfig>> {
        let name = server_name.trim_end_matches('.').to_ascii_lowercase();
        let key = self.challenges.as_ref()?.challenge_certificate(&name)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .ok()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::unwrap_or_clone(key))));
        // This protocol alone (RFC 8737 section 3): a client that offers others as well never gets a request served
        // with the certificate.
        config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
        Some(Arc::new(config))
    }

    /// The names of the certificate for a client that asks for `name`; `None` if it is refused.
    pub fn certificate_names(&self, name: Option<&str>) -> Option<Arc<[Box<str>]>> {
        self.site(name)
            .map(|site| Arc::clone(&site.certificate_names))
    }

    /// Whether any site is served over HTTP/3, now or when it has a certificate: later, a server that gave up its
    /// privileges could not bind the port, and a client that comes first over QUIC would get no response at all.
    pub(crate) fn has_http3(&self) -> bool {
        self.has_http3
    }

    /// The site for the name that a client asks for; `None` refuses it.
    pub(super) fn site(&self, name: Option<&str>) -> Option<&Arc<TlsSiteConfig>> {
        let found = name.and_then(|name| self.named_site(name.trim_end_matches('.')));
        found.or(self.unknown.as_ref())
    }

    /// The site that has this name.
    fn named_site(&self, name: &str) -> Option<&Arc<TlsSiteConfig>> {
        self.exact.get(name).or_else(|| {
            // The longest suffix wins: *.a.example.com before *.example.com.
            name.match_indices('.')
                .find_map(|(at, _)| name.get(at..).and_then(|rest| self.wildcard.get(rest)))
        })
    }
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("exact", &self.exact.keys())
            .field("wildcard", &self.wildcard.keys())
            .finish_non_exhaustive()
    }
}

impl TlsSiteConfig {
    fn new(
        site: &TlsSite,
        session_capacity: usize,
        secrets: Option<&Arc<TicketSecrets>>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(site.policy.provider());
        let versions: &[_] = match site.min_version {
            MinVersion::Tls12 if site.policy.has_tls12() => {
                &[&rustls::version::TLS13, &rustls::version::TLS12]
            }
            _ => &[&rustls::version::TLS13],
        };
        let verifier = |authorities: &[CertificateDer<'static>],
                        revoked: &[CertificateRevocationListDer<'static>]| {
            let roots = authority_roots(authorities)?;
            let builder =
                WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
            // Authorities without a list have revoked nothing.
            Ok(match revoked {
                [] => builder,
                lists => builder
                    .with_crls(lists.iter().cloned())
                    .allow_unknown_revocation_status(),
            })
        };
        let verifier = match &site.client_auth {
            ClientAuth::None => Arc::new(NoClientAuth),
            ClientAuth::Optional {
                authorities,
                revoked,
            }
            | ClientAuth::Required {
                authorities,
                revoked,
            } => {
                let builder = verifier(authorities, revoked)?;
                let builder = match &site.client_auth {
                    ClientAuth::Optional { .. } => builder.allow_unauthenticated(),
                    _ => builder,
                };
                let inner = builder
                    .build()
                    .map_err(|error| TlsError::new(error.to_string()))?;
                // A self-signed certificate of a client may be among the authorities.
                client_verifier(inner, authorities.clone(), revoked.clone())
            }
        };
        if site.certificates.is_empty() {
            return Ok(Self {
                config: None,
                quic: None,
                certificate_names: Arc::default(),
                _sessions: None,
            });
        }
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| TlsError::new(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(CertificateResolver::new(&site.certificates)));
        if let Some(key_log) = &site.key_log {
            config.key_log = Arc::new(key_log.clone());
        }
        config.ignore_client_order = site.policy.has_order_of_server();
        let sessions = TlsSessions::of(site.identity(secrets.is_some()), session_capacity, secrets)
            .map_err(|error| TlsError::new(error.to_string()))?;
        let certificate_names: Arc<[Box<str>]> = site
            .certificates
            .iter()
            .flat_map(|certificate| certificate.names().iter().cloned())
            .collect();
        let quic = if site.has_http3() {
            let early_data = site.accepts_early_data();
            Some(SiteQuic::new(
                &config,
                early_data,
                &sessions,
                &certificate_names,
            )?)
        } else {
            None
        };
        config.alpn_protocols = site.alpn.clone();
        config.ticketer = Arc::clone(&sessions.ticketer);
        config.session_storage = Arc::clone(&sessions.storage);
        Ok(Self {
            config: Some(Arc::new(config)),
            quic,
            certificate_names,
            _sessions: Some(sessions),
        })
    }
}

/// The certificates of a site, in the order in which they are tried.
#[derive(Debug)]
struct CertificateResolver(Vec<Arc<CertifiedKey>>);

impl CertificateResolver {
    fn new(certificates: &[Certificate]) -> Self {
        let mut keys: Vec<_> = certificates
            .iter()
            .map(|certificate| Arc::clone(certificate.key()))
            .collect();
        // An ECDSA signature takes a fraction of the time of an RSA one at the server, and its chain fewer bytes.
        keys.sort_by_key(|key| key.key.algorithm() == SignatureAlgorithm::RSA);
        Self(keys)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable = |key: &&Arc<CertifiedKey>| {
            key.key.choose_scheme(hello.signature_schemes()).is_some()
                && hello
                    .cipher_suites()
                    .iter()
                    .any(|suite| suits(*suite, key.key.algorithm()))
        };
        // Without a certificate that fits, the first is sent, and the client reports the mismatch.
        self.0.iter().find(usable).or(self.0.first()).cloned()
    }
}

/// Whether a cipher suite can be used with a key: a suite of TLS 1.3 can be used with any.
fn suits(suite: CipherSuite, algorithm: SignatureAlgorithm) -> bool {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => true,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            algorithm == SignatureAlgorithm::RSA
        }
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            algorithm != SignatureAlgorithm::RSA
        }
        _ => false,
    }
}
