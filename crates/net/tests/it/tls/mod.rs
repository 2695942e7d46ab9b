//! TLS over real sockets: an authority, sites, and clients of every kind.

mod client_auth;
mod names;
mod sessions;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::tls::{Certificate, ClientAuth, MinVersion, TlsSettings, TlsSite, UnknownName};
use apus_net::{EnginePlan, Limits, ListenerPlan};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, SignatureAlgorithm,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};

use crate::harness::{Client, Server, connect, listener, local, ok, plan, service};

const BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// An authority that signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate and its key, in PEM form.
pub(crate) struct IssuedCertificate {
    certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Test Authority");
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> IssuedCertificate {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        let common = names.first().cloned().unwrap_or_default();
        params.distinguished_name.push(DnType::CommonName, common);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn ecdsa(&self, names: &[&str]) -> IssuedCertificate {
        self.issue(names, &PKCS_ECDSA_P256_SHA256)
    }

    fn rsa(&self, names: &[&str]) -> IssuedCertificate {
        self.issue(names, &PKCS_RSA_SHA256)
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.der.clone()
    }

    /// The configuration of a client that trusts this authority.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client_with(&BOTH, None)
    }

    fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&IssuedCertificate>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(issued) => builder
                .with_client_auth_cert(
                    vec![issued.der()],
                    PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap(),
                )
                .unwrap(),
        }
    }
}

impl IssuedCertificate {
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    pub(crate) fn certificate(&self) -> Certificate {
        Certificate::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(crate) fn site(names: &[&str], certificates: &[&IssuedCertificate]) -> TlsSite {
    TlsSite {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        certificates: certificates
            .iter()
            .map(|issued| issued.certificate())
            .collect(),
        client_auth: ClientAuth::None,
        min_version: MinVersion::Tls12,
        alpn: vec![b"http/1.1".to_vec()],
    }
}

pub(crate) fn tls_listener(
    sites: &[TlsSite],
    unknown: UnknownName,
    service: Arc<dyn ServiceFactory>,
) -> ListenerPlan {
    let settings = TlsSettings::new(sites, unknown).unwrap();
    ListenerPlan {
        tls: Some(Arc::new(settings)),
        ..listener(local(), service)
    }
}

fn serve(sites: &[TlsSite], unknown: UnknownName) -> Server {
    Server::run(plan(vec![tls_listener(sites, unknown, described())]))
}

fn serve_one(limits: Limits, service: Arc<dyn ServiceFactory>) -> (Authority, Server) {
    let authority = Authority::new();
    let sites = [site(
        &["example.com"],
        &[&authority.ecdsa(&["example.com"])],
    )];
    let listener = tls_listener(&sites, UnknownName::FirstSite, service);
    (
        authority,
        Server::run(EnginePlan {
            limits,
            ..plan(vec![listener])
        }),
    )
}

/// Responds with what TLS negotiated: version, server name, and the client's subject.
fn described() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let tls = request
            .connection()
            .tls
            .as_ref()
            .expect("a connection with TLS");
        let name = tls.server_name.as_deref().unwrap_or("-");
        let client = tls
            .client_certificate
            .as_ref()
            .map_or("-", |client| &client.subject);
        ok(format!("{} {name} {client}", tls.version.as_str())).into()
    })
}

pub(crate) type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

pub(crate) fn connect_tls(
    address: SocketAddr,
    config: &ClientConfig,
    name: &str,
) -> io::Result<TlsClient> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
    let mut stream = StreamOwned::new(session, connect(address)?);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Client::new(stream))
}

/// The alert of the server, at the latest after a request.
fn refusal(address: SocketAddr, config: &ClientConfig, name: &str) -> rustls::Error {
    let result = connect_tls(address, config, name).and_then(|mut client| {
        use std::io::Write;
        client
            .stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        client.try_response(false)
    });
    let error = result.expect_err("it was not refused");
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        Some(error) => error.clone(),
        None => panic!("refused without an alert: {error:?}"),
    }
}

/// The certificate that the client was shown.
fn shown(client: &TlsClient) -> CertificateDer<'static> {
    client.stream.conn.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

/// A client that trusts every certificate that is signed with a known scheme.
#[derive(Debug)]
struct SchemeVerifier(Vec<SignatureScheme>);

impl ServerCertVerifier for SchemeVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
