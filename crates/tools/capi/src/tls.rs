//! The TLS settings of a listener: certificates, server names, certificates of clients.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use apus::Certificate;
use apus_net::tls::{
    ClientAuth, HandshakeClient, OnDemandCertificates, OnDemandLookup, PreparedSite, TlsPolicy,
    TlsSettings, TlsSite, UnknownName,
};
use apus_net::{Http3Settings, RetryMode};
use apus_private_files::{PrivateFiles, register};
use apus_transport::tls::MinVersion;

use crate::error::{ApusStatus, CallError, FirstFailure, SetUp};
use crate::ffi::{object, protect, setup};
use crate::text::{ApusStr, bytes, name, optional_name};
use crate::user::UserPointer;

/// The certificates of clients.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusClientAuth {
    /// None is asked for.
    None = 0,
    /// One is asked for; if it comes, it must be valid.
    Optional = 1,
    /// A valid one is required.
    Required = 2,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct ApusCertificate(Certificate);

/// Returns the certificate for a server name in lower case, or NULL if there is none. The library takes it over. It is
/// called for names that have no certificate yet; a certificate is kept for its name. It must not block.
pub type ApusCertificateFn =
    Option<extern "C" fn(server_name: ApusStr, user: *mut c_void) -> Option<Box<ApusCertificate>>>;

/// The TLS settings of a listener.
pub struct ApusTls {
    certificates: Vec<(Vec<String>, Certificate)>,
    find: Option<FindCertificate>,
    client_auth: ClientAuth,
    /// `None`: the oldest one of the policy.
    min_version: Option<MinVersion>,
    policy: TlsPolicy,
    http2: bool,
    http3: bool,
    pub(crate) failure: FirstFailure,
}

impl SetUp for ApusTls {
    const NAME: &'static str = "tls";

    fn first_failure(&mut self) -> Option<&mut FirstFailure> {
        Some(&mut self.failure)
    }
}

#[derive(Clone, Copy)]
struct FindCertificate {
    function: extern "C" fn(ApusStr, *mut c_void) -> Option<Box<ApusCertificate>>,
    user: UserPointer,
}

impl ApusTls {
    fn site(&self, names: Vec<String>, certificates: Vec<Certificate>) -> TlsSite {
        let mut alpn = Vec::new();
        if self.http2 {
            alpn.push(b"h2".to_vec());
        }
        alpn.push(b"http/1.1".to_vec());
        TlsSite {
            client_auth: self.client_auth.clone(),
            min_version: self.min_version.unwrap_or_default(),
            policy: self.policy,
            alpn,
            http3: self.http3,
            early_data: matches!(self.client_auth, ClientAuth::None),
            ..TlsSite::new(names, certificates)
        }
    }

    /// The settings of the engine.
    pub(crate) fn settings(&self) -> Result<TlsSettings, CallError> {
        if self.certificates.is_empty() && self.find.is_none() {
            return Err(CallError::invalid(
                "TLS settings with a certificate",
                "none",
                "add one by apus_tls_certificate()",
            ));
        }
        if self.policy == TlsPolicy::Modern && self.min_version == Some(MinVersion::Tls12) {
            return Err(CallError::invalid(
                "TLS 1.3 as the oldest version of the policy \"modern\", which has no other",
                "TLS 1.2",
                "leave apus_tls_min_version() out, or choose \"intermediate\"",
            ));
        }
        let certificates = self.certificates.iter();
        let mut sites: Vec<TlsSite> = certificates
            .map(|(names, certificate)| self.site(names.clone(), vec![certificate.clone()]))
            .collect();
        if sites.is_empty() {
            sites.push(self.site(Vec::new(), Vec::new()));
        }
        let failed = |error: apus_transport::tls::TlsError| {
            CallError::invalid(
                "TLS settings that can be used",
                error.to_string(),
                "see the certificates and authorities",
            )
        };
        let settings = TlsSettings::new(&sites, UnknownName::FirstSite).map_err(failed)?;
        let Some(find) = self.find else {
            return Ok(settings);
        };
        Ok(settings.with_on_demand(Arc::new(FoundCertificates {
            find,
            template: self.site(Vec::new(), Vec::new()),
            found: Mutex::default(),
        })))
    }

    /// The settings of HTTP/3, if it is offered. Forged packets must not call a function of the program: where it looks
    /// for certificates, clients without a token prove their addresses first, which costs them a round trip.
    pub(crate) fn http3_settings(&self) -> Option<Http3Settings> {
        self.http3.then(|| Http3Settings {
            retry: match self.find {
                Some(_) => RetryMode::Always,
                None => RetryMode::default(),
            },
            ..Http3Settings::default()
        })
    }
}

/// The certificates that a function of the program has found.
struct FoundCertificates {
    find: FindCertificate,
    template: TlsSite,
    found: Mutex<HashMap<Box<str>, PreparedSite>>,
}

/// The most names for which a certificate is kept; with more, the function is called again.
const MAX_FOUND: usize = 16_384;

impl OnDemandCertificates for FoundCertificates {
    fn look_up(&self, server_name: &str, client: HandshakeClient) -> OnDemandLookup {
        let lock = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = lock().get(server_name) {
            return OnDemandLookup::Ready(site.clone());
        }
        // Clients over QUIC prove their addresses before the handshake (`Http3Settings::retry`).
        if client == HandshakeClient::Unproven {
            return OnDemandLookup::NotYet;
        }
        let found = (self.find.function)(ApusStr::of(server_name.as_bytes()), self.find.user.0);
        let Some(certificate) = found else {
            return OnDemandLookup::NotCovered;
        };
        let site = TlsSite {
            names: vec![server_name.to_owned()],
            certificates: vec![certificate.0],
            ..self.template.clone()
        };
        match PreparedSite::new(&site, None) {
            Ok(site) => {
                let mut found = lock();
                if found.len() >= MAX_FOUND {
                    found.clear();
                }
                found.insert(server_name.into(), site.clone());
                OnDemandLookup::Ready(site)
            }
            Err(error) => {
                tracing::error!(server_name, %error, "the certificate of a name cannot be used");
                OnDemandLookup::NotCovered
            }
        }
    }
}

/// A certificate chain and its key, of files in PEM form. No service of this process sends the file of the key. NULL is an
/// error (APUS_IO, APUS_INVALID). Free it by apus_certificate_free(), unless it is taken over.
#[unsafe(no_mangle)]
pub extern "C" fn apus_certificate_files(
    certificate: *const c_char,
    key: *const c_char,
) -> Option<Box<ApusCertificate>> {
    object("apus_certificate_files", || {
        let read = |path: &str| {
            std::fs::read(Path::new(path)).map_err(|error| {
                CallError::io(format!("a file that can be read at {path:?}"), &error)
            })
        };
        let chain = read(name(certificate, "certificate")?)?;
        let key = name(key, "key")?;
        register(PrivateFiles::default().file(key));
        parse(&chain, &read(key)?)
    })
}

fn parse(chain: &[u8], key: &[u8]) -> Result<ApusCertificate, CallError> {
    let parsed = Certificate::from_pem(chain, key);
    parsed.map(ApusCertificate).map_err(|error| {
        CallError::invalid(
            "a certificate chain and its key in PEM form",
            error.to_string(),
            "pass the chain, the certificate of the server first, and the key that belongs to that",
        )
    })
}

/// A certificate chain and its key, of texts in PEM form. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_certificate_pem(
    certificate: *const c_char,
    certificate_len: usize,
    key: *const c_char,
    key_len: usize,
) -> Option<Box<ApusCertificate>> {
    object("apus_certificate_pem", || {
        parse(
            bytes(certificate.cast(), certificate_len)?,
            bytes(key.cast(), key_len)?,
        )
    })
}

/// Frees a certificate that was not taken over. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_certificate_free(certificate: Option<Box<ApusCertificate>>) {
    protect("apus_certificate_free", || drop(certificate));
}

/// TLS settings without a certificate: TLS 1.2 and 1.3, HTTP/1.1, HTTP/2 and HTTP/3. Free them by apus_tls_free(), unless
/// apus_server_listen_tls() takes them over.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_new() -> Option<Box<ApusTls>> {
    object("apus_tls_new", || {
        Ok(ApusTls {
            certificates: Vec::new(),
            find: None,
            client_auth: ClientAuth::None,
            min_version: None,
            policy: TlsPolicy::default(),
            http2: true,
            http3: true,
            failure: FirstFailure::default(),
        })
    })
}

/// Adds a certificate for server names, separated by commas: `example.com,*.example.com`. The first one also serves clients
/// that name none, or another. Takes over `certificate`. `names` may be NULL. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_certificate(
    tls: Option<&mut ApusTls>,
    names: *const c_char,
    certificate: Option<Box<ApusCertificate>>,
) -> ApusStatus {
    setup("apus_tls_certificate", tls, |tls| {
        let certificate = certificate.ok_or_else(|| CallError::null("certificate"))?;
        let names = optional_name(names, "names")?.unwrap_or("");
        let names = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let names = names.map(str::to_ascii_lowercase).collect();
        tls.certificates.push((names, certificate.0));
        Ok(())
    })
}

/// Sets the function that finds certificates of names that have none (SNI). Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_on_server_name(
    tls: Option<&mut ApusTls>,
    find: ApusCertificateFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_tls_on_server_name", tls, |tls| {
        tls.find = Some(FindCertificate {
            function: find.ok_or_else(|| CallError::null("find"))?,
            user: UserPointer(user),
        });
        Ok(())
    })
}

/// Asks clients for certificates that the authorities (PEM) signed. `mode` is an apus_client_auth. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_client_auth(
    tls: Option<&mut ApusTls>,
    mode: c_int,
    authorities: *const c_char,
    len: usize,
) -> ApusStatus {
    setup("apus_tls_client_auth", tls, |tls| {
        let read = || {
            let read = ClientAuth::authorities_from_pem(bytes(authorities.cast(), len)?);
            read.map_err(|error| {
                CallError::invalid(
                    "certificates of authorities in PEM form",
                    error.to_string(),
                    "",
                )
            })
        };
        tls.client_auth = match mode {
            0 => ClientAuth::None,
            1 => ClientAuth::Optional {
                authorities: read()?,
                revoked: Vec::new(),
            },
            2 => ClientAuth::Required {
                authorities: read()?,
                revoked: Vec::new(),
            },
            other => {
                return Err(CallError::invalid(
                    "an apus_client_auth",
                    other.to_string(),
                    "",
                ));
            }
        };
        Ok(())
    })
}

/// The oldest version that is accepted: 12 for TLS 1.2, 13 for TLS 1.3. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_min_version(tls: Option<&mut ApusTls>, version: c_int) -> ApusStatus {
    setup("apus_tls_min_version", tls, |tls| {
        tls.min_version = Some(match version {
            12 => MinVersion::Tls12,
            13 => MinVersion::Tls13,
            other => {
                return Err(CallError::invalid(
                    "12 or 13",
                    other.to_string(),
                    "13 is TLS 1.3",
                ));
            }
        });
        Ok(())
    })
}

/// Which versions and cipher suites are accepted, as `tls.policy` in apus.toml: `modern` is TLS 1.3 alone; `intermediate` (the
/// default) is TLS 1.2, too, with forward secrecy and AEAD; `legacy` is the same with the cipher suites in the order of the server.
/// Errors: APUS_INVALID. apus_server_listen_tls() refuses `modern` with apus_tls_min_version() of 12.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_policy(tls: Option<&mut ApusTls>, policy: *const c_char) -> ApusStatus {
    setup("apus_tls_policy", tls, |tls| {
        tls.policy = match name(policy, "policy")? {
            "modern" => TlsPolicy::Modern,
            "intermediate" => TlsPolicy::Intermediate,
            "legacy" => TlsPolicy::Legacy,
            other => {
                return Err(CallError::invalid(
                    "`modern`, `intermediate` or `legacy`",
                    format!("{other:?}"),
                    "see `tls.policy` in docs/reference.md",
                ));
            }
        };
        Ok(())
    })
}

/// Which protocols are offered beside HTTP/1.1 (both). Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_protocols(
    tls: Option<&mut ApusTls>,
    http2: bool,
    http3: bool,
) -> ApusStatus {
    setup("apus_tls_protocols", tls, |tls| {
        (tls.http2, tls.http3) = (http2, http3);
        Ok(())
    })
}

/// Frees settings that were not taken over. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_tls_free(tls: Option<Box<ApusTls>>) {
    protect("apus_tls_free", || drop(tls));
}
