//! TLS of both ends, whose transport parameters tests can change.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use apus_quic_protocol::{QuicVersion, ServerOffer, StartTlsSession, TlsSession, TransportError};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::quic::{Connection, DirectionalKeys, KeyChange, ServerConnection, Suite};
use rustls::server::StoresServerSessions;

use super::wire::Secrets;

/// Its size is always the same, as the size of its signatures, so that every run sends the same packets.
static CERTIFICATE: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| certificate(0));

/// One that needs several datagrams.
static LARGE_CERTIFICATE: LazyLock<CertifiedIssuer<'static, KeyPair>> =
    LazyLock::new(|| certificate(100));

fn certificate(further_names: usize) -> CertifiedIssuer<'static, KeyPair> {
    let further = (0..further_names).map(|number| format!("{number}.{}.localhost", "b".repeat(50)));
    let names: Vec<_> = [String::from("localhost")]
        .into_iter()
        .chain(further)
        .collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.serial_number = Some(SerialNumber::from_slice(&[1]));
    CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ED25519).unwrap()).unwrap()
}

/// Only with the cipher suite that [`Observer`](super::wire::Observer) knows, and with or without the key exchange that
/// makes a ClientHello of two datagrams.
fn provider(has_large_hello: bool) -> Arc<CryptoProvider> {
    let mut groups = default_provider().kx_groups;
    if !has_large_hello {
        groups = vec![kx_group::X25519];
    }
    Arc::new(CryptoProvider {
        kx_groups: groups,
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..default_provider()
    })
}

pub(crate) fn initial_suite() -> Suite {
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    suite.quic_suite().unwrap()
}

pub(crate) fn client_config(secrets: Arc<Secrets>, has_large_hello: bool) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CERTIFICATE.der().clone()).unwrap();
    roots.add(LARGE_CERTIFICATE.der().clone()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(provider(has_large_hello))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"test".to_vec()];
    config.enable_early_data = true;
    config.key_log = secrets;
    config
}

/// The client trusts an authority that the server knows nothing of.
pub(crate) fn trust_another_authority(config: &mut rustls::ClientConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "another authority");
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(params.self_signed(&key).unwrap().der().clone())
        .unwrap();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider(false)).build();
    config
        .dangerous()
        .set_certificate_verifier(verifier.unwrap());
}

pub(crate) fn server_config(is_large: bool) -> rustls::ServerConfig {
    let certificate = if is_large {
        &LARGE_CERTIFICATE
    } else {
        &CERTIFICATE
    };
    let key = PrivatePkcs8KeyDer::from(certificate.key().serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(provider(true))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::from(key))
        .unwrap();
    config.alpn_protocols = vec![b"test".to_vec()];
    config.max_early_data_size = u32::MAX;
    config
}

/// The sessions of a server.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl Sessions {
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.lock().unwrap().insert(key, value);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().remove(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// A change of transport parameters.
pub(crate) type EditParameters = Arc<dyn Fn(Vec<u8>) -> Vec<u8>>;

/// TLS of a server.
pub(crate) struct TestTls {
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// Changes what this end sends.
    pub(crate) edit_own: Option<EditParameters>,
    /// Changes what the client has sent.
    pub(crate) edit_peer: Option<EditParameters>,
}

impl StartTlsSession for TestTls {
    fn start(&self, offer: ServerOffer) -> Box<dyn TlsSession> {
        Box::new(TestSession {
            config: Arc::clone(&self.config),
            edit_own: self.edit_own.clone(),
            edit_peer: self.edit_peer.clone(),
            offer: Some(offer),
            hello: Vec::new(),
            connection: None,
            version: None,
            parameters: None,
        })
    }
}

struct TestSession {
    config: Arc<rustls::ServerConfig>,
    edit_own: Option<EditParameters>,
    edit_peer: Option<EditParameters>,
    offer: Option<ServerOffer>,
    hello: Vec<u8>,
    connection: Option<Connection>,
    version: Option<QuicVersion>,
    parameters: Option<Vec<u8>>,
}

impl TlsSession for TestSession {
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        if let Some(connection) = &mut self.connection {
            return TlsSession::read(connection, bytes);
        }
        self.hello.extend(bytes);
        let [_, high, middle, low, ..] = self.hello[..] else {
            return Ok(());
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if self.hello.len() < 4 + length {
            return Ok(());
        }
        let offer = self.offer.take().unwrap();
        let (version, mut parameters) = offer.respond(&self.hello)?;
        if let Some(edit) = &self.edit_own {
            parameters = edit(parameters);
        }
        let connection =
            ServerConnection::new(Arc::clone(&self.config), version.tls(), parameters).unwrap();
        let mut connection = Connection::Server(connection);
        TlsSession::read(&mut connection, &self.hello)?;
        let parameters = connection.quic_transport_parameters().map(<[u8]>::to_vec);
        self.parameters = match (&self.edit_peer, parameters) {
            (Some(edit), Some(parameters)) => Some(edit(parameters)),
            (_, parameters) => parameters,
        };
        self.version = Some(version);
        self.connection = Some(connection);
        Ok(())
    }

    fn write(&mut self, buffer: &mut Vec<u8>) -> Option<KeyChange> {
        self.connection.as_mut()?.write_hs(buffer)
    }

    fn transport_parameters(&self) -> Option<&[u8]> {
        self.parameters.as_deref()
    }

    fn early_keys(&self) -> Option<DirectionalKeys> {
        self.connection.as_ref()?.zero_rtt_keys()
    }

    fn is_early_data_accepted(&self) -> bool {
        false
    }

    fn is_handshaking(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_none_or(|connection| connection.is_handshaking())
    }

    fn selected_version(&self) -> Option<QuicVersion> {
        self.version
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
