//! TLS to an origin (RFC 8446, RFC 5246): trusted authorities, and the certificate that is presented.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::io;
#[cfg(feature = "http3")]
use std::sync::OnceLock;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

#[cfg(feature = "http3")]
use apus_quic::{QuicClientTls, QuicTlsError};
use apus_transport::tls::{
    AnyCertificate, Certificate, MinVersion, TlsError, TlsStream, server_verifier,
};
use apus_transport::{StreamSocket, Transport};
use aws_lc_rs::digest::{Context, SHA256};
#[cfg(feature = "http3")]
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The settings of TLS to an origin.
#[derive(Clone, Debug)]
pub struct ClientTlsSettings {
    /// The server name (RFC 6066 section 3), which the certificate has to be valid for: a DNS name or an IP
    /// address.
    pub server_name: String,
    /// Whether the certificate is verified. Without that, an attacker in the network can read and change all
    /// that is sent.
    pub verify: bool,
    /// The authorities that may sign the certificate; `None` means those that the system trusts. A certificate
    /// that is itself in this list is trusted, too: with the same bytes, for its names, while it is valid.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate that is presented to an origin that requests one.
    pub certificate: Option<Certificate>,
    /// The oldest version that is accepted.
    pub min_version: MinVersion,
}

impl ClientTlsSettings {
    /// Verified TLS to an origin of this name, with the authorities that the system trusts.
    pub fn new(server_name: impl Into<String>) -> Self {
        Self {
            server_name: server_name.into(),
            verify: true,
            authorities: None,
            certificate: None,
            min_version: MinVersion::default(),
        }
    }
}

/// TLS to an origin, ready for handshakes. Two are equal if they were made from equivalent settings, and then
/// they resume each other's sessions.
#[derive(Clone)]
pub struct Tls {
    name: ServerName<'static>,
    configs: Arc<TlsConfigs>,
}

/// The configurations that follow from the same settings.
struct TlsConfigs {
    tcp: Arc<ClientConfig>,
    /// Made when it is needed first.
    #[cfg(feature = "http3")]
    quic: OnceLock<QuicClientTls>,
}

/// The configurations in use, by their settings. A new plan finds the configurations of the last plan
/// here, and so keeps its connections and sessions.
// It is locked when a plan is made, and never for a request.
static LIVE: LazyLock<Mutex<HashMap<[u8; 32], Weak<TlsConfigs>>>> = LazyLock::new(Mutex::default);

impl Tls {
    /// Prepares the settings. This may wait for a disk, because it reads the certificates that the system
    /// trusts if they are used.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an IP address, an authority cannot be used, or the system trusts no
    /// authority.
    pub fn new(settings: &ClientTlsSettings) -> Result<Self, TlsError> {
        let name = ServerName::try_from(settings.server_name.clone())
            .map_err(|_| TlsError::new(format!("`{}` is no server name", settings.server_name)))?;
        let authorities = match (&settings.authorities, settings.verify) {
            (_, false) => Vec::new(),
            (Some(authorities), true) => authorities.clone(),
            (None, true) => system_authorities()?,
        };
        let identity = identity(settings, &authorities);
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, configs| configs.strong_count() > 0);
        if let Some(configs) = live.get(&identity).and_then(Weak::upgrade) {
            return Ok(Self { name, configs });
        }
        let configs = Arc::new(TlsConfigs {
            tcp: Arc::new(config(settings, authorities)?),
            #[cfg(feature = "http3")]
            quic: OnceLock::new(),
        });
        live.insert(identity, Arc::downgrade(&configs));
        Ok(Self { name, configs })
    }

    /// The name that the certificate has to be valid for.
    pub fn server_name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// Performs the handshake with an origin, and offers these protocols by ALPN (RFC 7301).
    pub(crate) async fn handshake(
        &self,
        socket: StreamSocket,
        protocols: &[&[u8]],
    ) -> io::Result<Transport> {
        let protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let (config, name) = (Arc::clone(&self.configs.tcp), self.name.clone());
        let session = ClientConnection::new_with_alpn(config, name, protocols)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut stream = Box::new(TlsStream::new(socket, session));
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(Transport::Tls(stream))
    }

    /// The same settings for QUIC, with this protocol by ALPN. Early data is never sent: an attacker could repeat it.
    #[cfg(feature = "http3")]
    pub(crate) fn quic(&self, protocol: &[u8]) -> Result<QuicClientTls, QuicTlsError> {
        if let Some(quic) = self.configs.quic.get() {
            return Ok(quic.clone());
        }
        let mut config = ClientConfig::clone(&self.configs.tcp);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.enable_early_data = false;
        config.resumption = Resumption::default();
        let quic = QuicClientTls::new(Arc::new(config))?;
        Ok(self.configs.quic.get_or_init(|| quic).clone())
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.configs, &other.configs) && self.name == other.name
    }
}

impl Eq for Tls {}

impl Hash for Tls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.configs).hash(state);
        self.name.hash(state);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The authorities that the system trusts.
fn system_authorities() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found
            .errors
            .first()
            .map_or("no certificate was found".to_owned(), ToString::to_string);
        return Err(TlsError::new(format!(
            "the authorities that the system trusts cannot be read: {why}"
        )));
    }
    Ok(found.certs)
}

/// The identity of these settings, without the name.
fn identity(settings: &ClientTlsSettings, authorities: &[CertificateDer<'_>]) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    let mut field = |bytes: &[u8]| {
        // With its length, so that two fields never have the same bytes as one other field.
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    field(&[settings.verify.into(), settings.min_version as u8]);
    field(&(authorities.len() as u64).to_le_bytes());
    authorities.iter().for_each(|der| field(der));
    // The private key is left out: it was checked to belong to this certificate.
    for der in settings.certificate.iter().flat_map(|own| &own.key().cert) {
        field(der);
    }
    let mut identity = [0; 32];
    identity.copy_from_slice(hash.finish().as_ref());
    identity
}

fn config(
    settings: &ClientTlsSettings,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, TlsError> {
    let why = |error: rustls::Error| TlsError::new(error.to_string());
    let provider = Arc::new(default_provider());
    let versions: &[_] = match settings.min_version {
        MinVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        MinVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(why)?;
    let builder = match (&settings.authorities, settings.verify) {
        (_, false) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
        // A self-signed certificate of the origin may be among them.
        (Some(_), true) => builder
            .dangerous()
            .with_custom_certificate_verifier(server_verifier(authorities, &provider)?),
        (None, true) => builder.with_root_certificates(system_roots(authorities)?),
    };
    Ok(match &settings.certificate {
        Some(own) => {
            let own = CertifiedKey::clone(own.key());
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        }
        None => builder.with_no_client_auth(),
    })
}

fn system_roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // A system has many; one that cannot be parsed does not matter.
    roots.add_parsable_certificates(authorities);
    if roots.is_empty() {
        return Err(TlsError::new("there is no authority to trust"));
    }
    Ok(roots)
}
