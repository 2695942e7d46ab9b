//! An authority that signs certificates for tests of TLS.

use std::hash::{BuildHasher, Hasher, RandomState};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RevokedCertParams, SerialNumber,
    SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

/// An authority that signs certificates.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM form.
    pub pem: String,
    /// Its own certificate, DER.
    pub der: CertificateDer<'static>,
}

/// A certificate and its key.
pub struct IssuedCertificate {
    /// The certificate, in PEM form.
    pub pem: String,
    /// The certificate, DER.
    pub der: CertificateDer<'static>,
    /// The key, in PEM form.
    pub key: String,
    /// The serial number.
    pub serial: u64,
}

impl IssuedCertificate {
    /// A certificate that signs itself and may sign others, as most tools make them, valid from one year to another.
    pub fn self_signed(names: &[&str], from: i32, to: i32) -> Self {
        let mut params = Self::params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let serial = new_serial();
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key: key.serialize_pem(),
            serial,
        }
    }

    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let common = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params
    }
}

fn new_serial() -> u64 {
    RandomState::new().build_hasher().finish() >> 1
}

impl CertificateAuthority {
    /// An authority with a new key.
    pub fn generate() -> Self {
        Self::named("Test Authority")
    }

    /// The same, with this name.
    pub fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate with an ECDSA key for these names.
    pub fn ecdsa(&self, names: &[&str]) -> IssuedCertificate {
        self.issue(names, &PKCS_ECDSA_P256_SHA256)
    }

    /// A certificate with an RSA key for these names.
    pub fn rsa(&self, names: &[&str]) -> IssuedCertificate {
        self.issue(names, &PKCS_RSA_SHA256)
    }

    fn issue(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> IssuedCertificate {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = IssuedCertificate::params(names);
        let serial = new_serial();
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        IssuedCertificate {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// A list of these certificates as revoked (RFC 5280 section 5), in PEM form.
    pub fn revocation_list(&self, certificates: &[&IssuedCertificate]) -> String {
        let revoked = certificates.iter().map(|issued| RevokedCertParams {
            serial_number: SerialNumber::from(issued.serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(4096, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}
