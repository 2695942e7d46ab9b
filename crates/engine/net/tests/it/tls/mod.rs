//! TLS over real sockets: an authority, sites, and clients of every kind.

mod client_auth;
mod names;
pub(crate) mod policies;
mod records;
mod sessions;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_net::{EnginePlan, Limits, ListenerPlan};
use apus_testkit::{CertificateAuthority, IssuedCertificate};
use apus_transport::tls::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};

use crate::harness::{Client, Server, connect, local, ok, plan, service};

const BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// The configuration of a client that trusts this authority.
pub(crate) fn client_of(authority: &CertificateAuthority) -> ClientConfig {
    client_with(authority, &BOTH, None)
}

fn client_with(
    authority: &CertificateAuthority,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&IssuedCertificate>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match identity {
        None => builder.with_no_client_auth(),
        Some(issued) => builder
            .with_client_auth_cert(
                vec![issued.der.clone()],
                PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap(),
            )
            .unwrap(),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(crate) fn site(names: &[&str], certificates: &[&IssuedCertificate]) -> TlsSite {
    let names = names.iter().map(|name| (*name).to_owned());
    let certificates = certificates
        .iter()
        .map(|issued| Certificate::from_pem(issued.pem.as_bytes(), issued.key.as_bytes()).unwrap());
    TlsSite::new(names.collect(), certificates.collect())
}

pub(crate) fn tls_listener(
    sites: &[TlsSite],
    unknown: UnknownName,
    service: Arc<dyn ServiceFactory>,
) -> ListenerPlan {
    let settings = TlsSettings::new(sites, unknown).unwrap();
    ListenerPlan {
        tls: Some(Arc::new(settings)),
        ..ListenerPlan::new(local(), service)
    }
}

fn serve(sites: &[TlsSite], unknown: UnknownName) -> Server {
    Server::run(plan(vec![tls_listener(sites, unknown, described())]))
}

pub(crate) fn serve_one(
    limits: Limits,
    service: Arc<dyn ServiceFactory>,
) -> (CertificateAuthority, Server) {
    let authority = CertificateAuthority::generate();
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
