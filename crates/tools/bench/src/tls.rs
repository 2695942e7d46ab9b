//! TLS of a load: what is trusted, what is presented, and whether sessions are resumed.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use apus_transport::tls::{AnyCertificate, Certificate, KeyLogFile};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore, SupportedCipherSuite};

use crate::{BenchError, BenchUrl};

/// TLS of a load.
#[derive(Clone, Debug)]
pub struct TlsPlan {
    /// Whether certificates of servers are verified.
    pub verify: bool,
    /// The authorities that are trusted, in PEM form, instead of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The certificate that is presented to servers.
    pub certificate: Option<Arc<Certificate>>,
    /// Whether new connections resume a session of the same thread.
    pub resumes: bool,
    /// The only cipher suite that is offered, by its registered name, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: Option<String>,
    /// The only group for the key exchange that is offered, such as `X25519`.
    pub group: Option<String>,
}

impl Default for TlsPlan {
    fn default() -> Self {
        Self {
            verify: true,
            authorities: None,
            certificate: None,
            resumes: true,
            cipher: None,
            group: None,
        }
    }
}

/// The configuration of the connections of one thread, which resume one another's sessions.
#[derive(Clone)]
pub(crate) struct ConnectionTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    resumes: bool,
    key_log: Option<KeyLogFile>,
}

impl ConnectionTls {
    /// Waits until the secrets of connections are in the file of `SSLKEYLOGFILE`.
    pub(crate) fn flush_key_log(&self) {
        if let Some(key_log) = &self.key_log {
            key_log.flush();
        }
    }

    /// The same for one connection and those that replace it, which resume only one another's sessions. Where many
    /// connections share the few tickets that are stored for a server, some find none.
    pub(crate) fn with_own_sessions(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        if self.resumes {
            config.resumption = Resumption::in_memory_sessions(1);
        }
        Arc::new(config)
    }
}

/// The file that the environment variable `SSLKEYLOGFILE` names, as clients such as curl and browsers have it. It is opened
/// once, for all threads.
fn key_log() -> Result<Option<KeyLogFile>, BenchError> {
    static OPENED: OnceLock<KeyLogFile> = OnceLock::new();
    let Some(path) = std::env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    if let Some(opened) = OPENED.get() {
        return Ok(Some(opened.clone()));
    }
    let path = Path::new(&path);
    let opened = KeyLogFile::open(path)
        .map_err(|error| BenchError::plan(format!("SSLKEYLOGFILE: {}: {error}", path.display())))?;
    // Of threads that come here at once, the file of one is used by all.
    Ok(Some(OPENED.get_or_init(|| opened).clone()))
}

impl TlsPlan {
    /// Prepares connections to a URL with a protocol by ALPN. This may read the files of the system.
    pub(crate) fn prepare(&self, url: &BenchUrl, alpn: &[u8]) -> Result<ConnectionTls, BenchError> {
        let provider = Arc::new(self.provider()?);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(BenchError::plan)?;
        let builder = if self.verify {
            builder.with_root_certificates(self.roots()?)
        } else {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
        };
        let mut config = match &self.certificate {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
                rustls::sign::CertifiedKey::clone(own.key()),
            ))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let key_log = key_log()?;
        if let Some(key_log) = &key_log {
            config.key_log = Arc::new(key_log.clone());
        }
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| BenchError::plan(format!("`{}` is no name of a server", url.host())))?;
        Ok(ConnectionTls {
            config: Arc::new(config),
            name,
            resumes: self.resumes,
            key_log,
        })
    }

    /// The ciphers and groups that are offered.
    fn provider(&self) -> Result<CryptoProvider, BenchError> {
        let mut provider = default_provider();
        if let Some(cipher) = &self.cipher {
            let name = |suite: &SupportedCipherSuite| registered_name(*suite);
            let known: Vec<_> = provider.cipher_suites.iter().map(name).collect();
            provider
                .cipher_suites
                .retain(|suite| name(suite) == *cipher);
            if provider.cipher_suites.is_empty() {
                return Err(unknown("cipher suite", cipher, &known));
            }
        }
        if let Some(group) = &self.group {
            let name = |group: &&dyn SupportedKxGroup| format!("{:?}", group.name());
            let known: Vec<_> = provider.kx_groups.iter().map(name).collect();
            provider.kx_groups.retain(|known| name(known) == *group);
            if provider.kx_groups.is_empty() {
                return Err(unknown("group", group, &known));
            }
        }
        Ok(provider)
    }

    fn roots(&self) -> Result<RootCertStore, BenchError> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                for authority in CertificateDer::pem_slice_iter(pem) {
                    authority
                        .map_err(|error| error.to_string())
                        .and_then(|der| roots.add(der).map_err(|error| error.to_string()))
                        .map_err(|error| {
                            BenchError::plan(format!("an authority cannot be used: {error}"))
                        })?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            Err(BenchError::plan(
                "there is no authority to trust; name one with --cacert, or accept any certificate with --insecure",
            ))
        } else {
            Ok(roots)
        }
    }
}

/// The name in the registry of IANA, which rustls has with the version for TLS 1.3.
fn registered_name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

fn unknown(kind: &str, name: &str, known: &[String]) -> BenchError {
    BenchError::plan(format!(
        "`{name}` is no {kind} that can be offered; there are {}",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cipher_and_one_group_are_offered_or_an_error_names_them() {
        let mut plan = TlsPlan {
            cipher: Some("TLS_AES_128_GCM_SHA256".to_owned()),
            group: Some("X25519".to_owned()),
            ..TlsPlan::default()
        };
        let provider = plan.provider().unwrap();
        assert_eq!(
            (provider.cipher_suites.len(), provider.kx_groups.len()),
            (1, 1)
        );
        plan.group = Some("none".to_owned());
        let error = plan.provider().unwrap_err().to_string();
        assert!(error.contains("X25519"), "{error}");
        plan.cipher = Some("none".to_owned());
        let error = plan.provider().unwrap_err().to_string();
        assert!(error.contains("TLS_AES_256_GCM_SHA384"), "{error}");
    }
}
