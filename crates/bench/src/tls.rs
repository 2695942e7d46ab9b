//! TLS of a load: what is trusted, what is presented, and whether sessions are resumed.

use std::sync::Arc;

use apus_transport::tls::{AnyCertificate, Certificate};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

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
}

impl Default for TlsPlan {
    fn default() -> Self {
        Self {
            verify: true,
            authorities: None,
            certificate: None,
            resumes: true,
        }
    }
}

/// The configuration of the connections of one thread, which resume one another's sessions.
#[derive(Clone)]
pub(crate) struct ConnectionTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    resumes: bool,
}

impl ConnectionTls {
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

impl TlsPlan {
    /// Prepares connections to a URL with a protocol by ALPN. This may read the files of the system.
    pub(crate) fn prepare(&self, url: &BenchUrl, alpn: &[u8]) -> Result<ConnectionTls, BenchError> {
        let wrong = |error: String| BenchError::Plan(error);
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let builder = match self.verify {
            true => builder.with_root_certificates(self.roots()?),
            false => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
        };
        let mut config = match &self.certificate {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
                rustls::sign::CertifiedKey::clone(own.key()),
            ))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| wrong(format!("`{}` is no name of a server", url.host())))?;
        Ok(ConnectionTls {
            config: Arc::new(config),
            name,
            resumes: self.resumes,
        })
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
                            BenchError::Plan(format!("an authority cannot be used: {error}"))
                        })?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        match roots.is_empty() {
            true => Err(BenchError::Plan(
                "there is no authority to trust; name one with --cacert, or accept any certificate with --insecure"
                    .to_owned(),
            )),
            false => Ok(roots),
        }
    }
}
