//! The verifier of a client that does not verify who the server is.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Accepts any certificate whose key the server has: signatures are verified, names and issuers are not. An attacker in the
/// network can read and change all that is sent. Certificates of version 1, which no authority of the web issues and some
/// tools make, are accepted too.
#[derive(Debug)]
pub struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Verifies signatures with the algorithms of this provider.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        let verified = verify_tls12_signature(message, certificate, signed, algorithms);
        verified.or_else(|error| {
            let certificate = unusual(&error, certificate).ok_or(error)?;
            let key = &certificate.public_key().subject_public_key.data;
            let known = algorithms.mapping.iter();
            let mut of_scheme = known
                .filter(|(scheme, _)| *scheme == signed.scheme)
                .flat_map(|(_, algorithms)| *algorithms);
            // A key of another kind verifies nothing.
            let is_right = of_scheme.any(|algorithm| {
                let verified = algorithm.verify_signature(key, message, signed.signature());
                verified.is_ok()
            });
            if is_right {
                Ok(HandshakeSignatureValid::assertion())
            } else {
                Err(CertificateError::BadSignature.into())
            }
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        let verified = verify_tls13_signature(message, certificate, signed, algorithms);
        verified.or_else(|error| {
            let certificate = unusual(&error, certificate).ok_or(error)?;
            let key = SubjectPublicKeyInfoDer::from(certificate.public_key().raw);
            verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate, if it is its form that was rejected, and not the signature that was made with its key.
fn unusual<'a>(error: &Error, certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => None,
        Error::InvalidCertificate(_) => {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            Some(certificate)
        }
        _ => None,
    }
}
