//! TLS: certificates of both ends, and sessions that are resumed or not.

use std::process::Command;
use std::sync::Arc;

use apus_bench::{BenchError, ClientCertificate};
use apus_testkit::scripted::{Action, ScriptedServer, response};
use apus_testkit::{CertificateAuthority, IssuedCertificate};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::harness::{plan, run};

fn config(issued: &IssuedCertificate, clients: Option<&CertificateAuthority>) -> ServerConfig {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let mut config = builder
        .with_single_cert(vec![issued.der.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn url(server: &ScriptedServer) -> String {
    format!("https://localhost:{}/", server.port)
}

fn respond() -> Action {
    Action::Respond(response(200, "x"))
}

#[test]
fn sessions_are_resumed_unless_that_is_switched_off() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["localhost"]);
    let server = ScriptedServer::start_with(Some(config(&issued, None)), |_| {
        let mut bytes = response(200, "x");
        bytes.splice(16..16, b"connection: close\r\n".iter().copied());
        Action::Close(bytes)
    });
    for resumes in [true, false] {
        let mut plan = plan(&url(&server), 1, 20);
        plan.threads = std::num::NonZeroUsize::MIN;
        plan.keeps_alive = false;
        plan.tls.authorities = Some(authority.pem.clone().into_bytes());
        plan.tls.resumes = resumes;
        let report = run(plan);
        assert_eq!((report.responses, report.failed), (20, 0), "{report:?}");
        assert_eq!(report.connections_opened, 20);
        let expected = if resumes { 19 } else { 0 };
        assert_eq!(report.handshakes_resumed, expected);
    }
}

#[test]
fn an_unknown_authority_is_an_error_that_says_what_to_do() {
    let issued = CertificateAuthority::generate().ecdsa(&["localhost"]);
    let server = ScriptedServer::start_with(Some(config(&issued, None)), |_| respond());
    let mut wrong = plan(&url(&server), 1, 1);
    wrong.tls.authorities = Some(CertificateAuthority::generate().pem.into_bytes());
    let error = apus_bench::run(wrong, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }));
    let text = error.to_string();
    assert!(
        text.contains("--cacert") && text.contains("--insecure"),
        "{text}"
    );

    let mut any = plan(&url(&server), 2, 10);
    any.tls.verify = false;
    let report = run(any);
    assert_eq!((report.responses, report.connections_opened), (10, 2));
}

/// A certificate of X.509 version 1, and its key, as `openssl x509 -req` makes it.
fn of_version_1(kind: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &[&str]| {
        let done = Command::new("openssl")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {errors}");
    };
    let request = [
        "req",
        "-new",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "key.pem",
        "-out",
        "csr.pem",
    ];
    openssl(&[&request[..], kind].concat());
    openssl(&[
        "x509", "-req", "-in", "csr.pem", "-signkey", "key.pem", "-out", "cert.pem",
    ]);
    let certificate = CertificateDer::from_pem_file(folder.path().join("cert.pem")).unwrap();
    // A later version is named: [0] INTEGER 2 (RFC 5280 section 4.1.2.1).
    let names_version = certificate
        .windows(5)
        .any(|bytes| bytes == [0xa0, 3, 2, 1, 2]);
    assert!(!names_version, "a certificate of version 1");
    let key = PrivateKeyDer::from_pem_file(folder.path().join("key.pem")).unwrap();
    (certificate, key)
}

fn answers_with_version_1(kind: &[&str], version: &'static SupportedProtocolVersion) {
    let (certificate, key) = of_version_1(kind);
    let provider = Arc::new(default_provider());
    let key = provider.key_provider.load_private_key(key).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(
            vec![certificate],
            key,
        ))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = ScriptedServer::start_with(Some(config), |_| respond());
    let mut plan = plan(&url(&server), 2, 10);
    plan.tls.verify = false;
    let report = run(plan.clone());
    assert_eq!(
        (report.responses, report.failed),
        (10, 0),
        "{kind:?} {version:?}"
    );
    plan.tls.verify = true;
    plan.tls.authorities = Some(CertificateAuthority::generate().pem.into_bytes());
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");
}

#[test]
fn a_certificate_of_version_1_is_accepted_if_any_is() {
    let ecdsa = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let rsa = ["-newkey", "rsa:2048"];
    for version in [&TLS12, &TLS13] {
        answers_with_version_1(&ecdsa, version);
        answers_with_version_1(&rsa, version);
    }
}

#[test]
fn a_client_certificate_is_presented() {
    let authority = CertificateAuthority::generate();
    let issued = authority.ecdsa(&["localhost"]);
    let server = ScriptedServer::start_with(Some(config(&issued, Some(&authority))), |_| respond());
    let mut without = plan(&url(&server), 1, 1);
    without.tls.verify = false;
    let error = apus_bench::run(without.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");

    let own = authority.ecdsa(&["client"]);
    let own = ClientCertificate::from_pem(own.pem.as_bytes(), own.key.as_bytes()).unwrap();
    without.tls.certificate = Some(Arc::new(own));
    assert!(run(without).is_clean());
}

#[test]
fn a_server_without_tls_is_an_error() {
    let server = ScriptedServer::start(|_| respond());
    let mut plan = plan(&url(&server), 1, 1);
    plan.tls.verify = false;
    plan.timeout = std::time::Duration::from_millis(500);
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("TLS handshake"), "{error}");
}
