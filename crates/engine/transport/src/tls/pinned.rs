//! Verifiers that trust a certificate which is itself in the list of authorities (RFC 5280 section 6).

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{
    ASN1Time, CertificateRevocationList, ExtendedKeyUsage, FromDer, X509Certificate,
};

use super::TlsError;

/// Verifies a server by these authorities, one of which may be its own certificate.
///
/// # Errors
/// An authority cannot be used, or there is none.
pub fn server_verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let roots = authority_roots(&authorities)?;
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| TlsError::new(error.to_string()))?;
    Ok(Arc::new(PinnedServerVerifier {
        inner,
        pinned: PinnedCertificates {
            authorities,
            revoked: Vec::new(),
        },
    }))
}

/// Verifies clients by `inner`, which has these authorities and lists; the certificate of a client may be one of
/// the authorities.
pub fn client_verifier(
    inner: Arc<dyn ClientCertVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
) -> Arc<dyn ClientCertVerifier> {
    Arc::new(PinnedClientVerifier {
        inner,
        pinned: PinnedCertificates {
            authorities,
            revoked,
        },
    })
}

/// The store of these authorities.
///
/// # Errors
/// One of them cannot be used.
pub fn authority_roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| TlsError::new(error.to_string()))?;
    }
    Ok(roots)
}

/// Authorities, each of which may be the certificate of the peer itself.
struct PinnedCertificates {
    authorities: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl PinnedCertificates {
    /// Verifies a certificate that no authority issued: it has the bytes of one of them, is valid now, is for
    /// this usage, and is not revoked. Otherwise the error of webpki stands.
    ///
    /// webpki takes no authority for a peer (RFC 5280 section 4.2.1.9), but most tools make self-signed
    /// certificates with `CA:TRUE`.
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
        is_for: fn(&ExtendedKeyUsage<'_>) -> bool,
        error: Error,
    ) -> Result<(), Error> {
        // What is verified below may have been the error, too. rustls has no name for the error of a certificate
        // which may issue others.
        let is_verified_here = match &error {
            Error::InvalidCertificate(error) => !matches!(
                error,
                // That this very certificate is revoked, or may be, is not undone by its place in the list.
                CertificateError::Revoked
                    | CertificateError::UnknownRevocationStatus
                    | CertificateError::ExpiredRevocationList
                    | CertificateError::ExpiredRevocationListContext { .. }
            ),
            _ => false,
        };
        if !is_verified_here || !self.authorities.contains(certificate) {
            return Err(error);
        }
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return Err(CertificateError::BadEncoding.into());
        };
        let now = i64::try_from(now.as_secs())
            .ok()
            .and_then(|seconds| ASN1Time::from_timestamp(seconds).ok())
            .ok_or(Error::FailedToGetCurrentTime)?;
        if now < parsed.validity().not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > parsed.validity().not_after {
            return Err(CertificateError::Expired.into());
        }
        match parsed.extended_key_usage() {
            Ok(None) => {}
            Ok(Some(usage)) if usage.value.any || is_for(usage.value) => {}
            Ok(Some(_)) => return Err(CertificateError::InvalidPurpose.into()),
            Err(_) => return Err(CertificateError::BadEncoding.into()),
        }
        if self.is_revoked(&parsed) {
            Err(CertificateError::Revoked.into())
        } else {
            Ok(())
        }
    }

    fn is_revoked(&self, certificate: &X509Certificate<'_>) -> bool {
        let mut lists = self.revoked.iter();
        lists.any(|list| {
            CertificateRevocationList::from_der(list).is_ok_and(|(_, list)| {
                list.issuer() == certificate.issuer()
                    && list
                        .iter_revoked_certificates()
                        .any(|revoked| revoked.raw_serial() == certificate.raw_serial())
            })
        })
    }
}

struct PinnedServerVerifier {
    inner: Arc<WebPkiServerVerifier>,
    pinned: PinnedCertificates,
}

impl fmt::Debug for PinnedServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedServerVerifier")
            .finish_non_exhaustive()
    }
}

impl ServerCertVerifier for PinnedServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // webpki decides first. What follows is only for a certificate that it rejects.
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        verified.or_else(|error| {
            self.pinned
                .verify(end_entity, now, |usage| usage.server_auth, error)?;
            // The list does not say which host a certificate is for: a certificate of another host must not be accepted.
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            Ok(ServerCertVerified::assertion())
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

struct PinnedClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    pinned: PinnedCertificates,
}

impl fmt::Debug for PinnedClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedClientVerifier")
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for PinnedClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now);
        verified.or_else(|error| {
            self.pinned
                .verify(end_entity, now, |usage| usage.client_auth, error)?;
            Ok(ClientCertVerified::assertion())
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
