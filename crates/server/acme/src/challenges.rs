//! The responses to challenges of open orders.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use apus_net::tls::ChallengeCertificates;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use crate::shared::SharedChallenge;

/// The responses to challenges of open orders, for all listeners of the process.
#[derive(Debug, Default)]
pub struct PendingChallenges {
    /// How many there are, so that requests look for none while there is none.
    count: AtomicUsize,
    responses: RwLock<ChallengeResponses>,
}

#[derive(Debug, Default)]
struct ChallengeResponses {
    /// Key authorizations by token (RFC 8555 section 8.3).
    http: HashMap<String, String>,
    /// Certificates by name (RFC 8737 section 3).
    tls: HashMap<String, Arc<CertifiedKey>>,
    /// Challenges of other machines: key authorizations by token.
    shared_http: HashMap<String, String>,
    /// Challenges of other machines: digests and certificates by name.
    shared_tls: HashMap<String, ([u8; 32], Arc<CertifiedKey>)>,
}

impl PendingChallenges {
    /// The key authorization for a token of `http-01`.
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        self.read(|responses| {
            let own = responses.http.get(token);
            own.or_else(|| responses.shared_http.get(token)).cloned()
        })
    }

    /// Whether no challenge is open.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Responds to a challenge of `http-01`, until the result is dropped.
    pub(crate) fn add_http(
        self: &Arc<Self>,
        token: &str,
        key_authorization: &str,
    ) -> OpenChallenge {
        self.write(|responses| {
            responses
                .http
                .insert(token.to_owned(), key_authorization.to_owned());
        });
        OpenChallenge {
            challenges: Arc::clone(self),
            kind: ChallengeEntry::Http(token.to_owned()),
        }
    }

    /// Responds to these challenges of other machines, and to no others of them.
    pub(crate) fn set_shared(&self, challenges: Vec<SharedChallenge>) {
        let is_unchanged = self.read(|responses| {
            challenges.is_empty()
                && responses.shared_http.is_empty()
                && responses.shared_tls.is_empty()
        });
        if is_unchanged {
            return;
        }
        self.write(|responses| {
            let mut known = std::mem::take(&mut responses.shared_tls);
            responses.shared_http.clear();
            for challenge in challenges {
                match challenge {
                    SharedChallenge::Http {
                        token,
                        key_authorization,
                    } => {
                        responses.shared_http.insert(token, key_authorization);
                    }
                    SharedChallenge::Tls { name, digest } => {
                        let server_name = challenge_server_name(&name);
                        let made = match known.remove(&server_name) {
                            Some(made) if made.0 == digest => Some(made),
                            _ => challenge_certificate(&name, &digest)
                                .ok()
                                .map(|certificate| (digest, Arc::new(certificate))),
                        };
                        responses
                            .shared_tls
                            .extend(made.map(|made| (server_name, made)));
                    }
                }
            }
        });
    }

    /// Responds to a challenge of `tls-alpn-01` with the SHA-256 digest of a key authorization, until the result is
    /// dropped.
    pub(crate) fn add_tls(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8],
    ) -> Result<OpenChallenge, rcgen::Error> {
        let certificate = Arc::new(challenge_certificate(name, digest)?);
        let server_name = challenge_server_name(name);
        self.write(|responses| {
            responses.tls.insert(server_name.clone(), certificate);
        });
        Ok(OpenChallenge {
            challenges: Arc::clone(self),
            kind: ChallengeEntry::Tls(server_name),
        })
    }

    fn read<T>(&self, look: impl FnOnce(&ChallengeResponses) -> T) -> T {
        look(
            &self
                .responses
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn write(&self, change: impl FnOnce(&mut ChallengeResponses)) {
        let mut responses = self
            .responses
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        change(&mut responses);
        let count = responses.http.len()
            + responses.tls.len()
            + responses.shared_http.len()
            + responses.shared_tls.len();
        self.count.store(count, Ordering::Release);
    }
}

impl ChallengeCertificates for PendingChallenges {
    fn challenge_certificate(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        if self.is_empty() {
            return None;
        }
        self.read(|responses| {
            let own = responses.tls.get(server_name);
            let shared = || responses.shared_tls.get(server_name);
            own.or_else(|| shared().map(|(_, certificate)| certificate))
                .cloned()
        })
    }
}

/// A challenge that is responded to until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenChallenge {
    challenges: Arc<PendingChallenges>,
    kind: ChallengeEntry,
}

#[derive(Debug)]
enum ChallengeEntry {
    Http(String),
    Tls(String),
}

impl Drop for OpenChallenge {
    fn drop(&mut self) {
        self.challenges.write(|responses| match &self.kind {
            ChallengeEntry::Http(token) => {
                responses.http.remove(token);
            }
            ChallengeEntry::Tls(name) => {
                responses.tls.remove(name);
            }
        });
    }
}

/// The server name by which an authority verifies a name: for an address, the name of its reverse lookup (RFC 8738 section
/// 6).
fn challenge_server_name(name: &str) -> String {
    match name.parse() {
        Err(_) => name.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let digits = address.octets().into_iter().rev();
            let digits = digits.map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            digits.collect::<String>() + "ip6.arpa"
        }
    }
}

/// The self-signed certificate of a handshake (RFC 8737 section 3).
fn challenge_certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    // rustls would compare the key with the certificate, whose critical extension it does not know.
    let key = aws_lc_rs::sign::any_supported_type(&key)
        .map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_responded_to_while_they_are_open() {
        let challenges = Arc::new(PendingChallenges::default());
        assert!(challenges.is_empty());
        let http = challenges.add_http("token", "token.key");
        let tls = challenges.add_tls("example.com", &[7; 32]).unwrap();
        assert_eq!(challenges.key_authorization("token").unwrap(), "token.key");
        assert_eq!(challenges.key_authorization("other"), None);
        assert!(challenges.challenge_certificate("example.com").is_some());
        assert!(challenges.challenge_certificate("example.org").is_none());
        drop(http);
        assert_eq!(challenges.key_authorization("token"), None);
        assert!(!challenges.is_empty());
        drop(tls);
        assert!(challenges.challenge_certificate("example.com").is_none());
        assert!(challenges.is_empty());
    }

    #[test]
    fn an_address_is_verified_by_the_name_of_its_reverse_lookup() {
        assert_eq!(challenge_server_name("example.com"), "example.com");
        assert_eq!(
            challenge_server_name("192.0.2.33"),
            "33.2.0.192.in-addr.arpa"
        );
        assert_eq!(
            challenge_server_name("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }

    #[test]
    fn challenges_of_other_machines_are_responded_to_until_they_are_removed() {
        let challenges = PendingChallenges::default();
        let shared = [
            SharedChallenge::Http {
                token: "token".to_owned(),
                key_authorization: "token.key".to_owned(),
            },
            SharedChallenge::Tls {
                name: "example.com".to_owned(),
                digest: [7; 32],
            },
        ];
        challenges.set_shared(shared.to_vec());
        assert_eq!(challenges.key_authorization("token").unwrap(), "token.key");
        let made = challenges.challenge_certificate("example.com").unwrap();
        challenges.set_shared(shared[1..].to_vec());
        assert_eq!(challenges.key_authorization("token"), None);
        // It is not made again.
        let again = challenges.challenge_certificate("example.com").unwrap();
        assert!(Arc::ptr_eq(&made, &again));
        challenges.set_shared(Vec::new());
        assert!(challenges.is_empty());
    }

    #[test]
    fn the_certificate_of_a_challenge_has_the_digest_in_a_critical_extension() {
        let certificate = challenge_certificate("example.com", &[7; 32]).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate.cert[0]).unwrap();
        let extension = parsed
            .iter_extensions()
            .find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31")
            .unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
    }
}
