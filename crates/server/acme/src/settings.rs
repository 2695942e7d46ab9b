//! What a configuration says of certificates.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::dns_publisher::DnsPublisher;
use crate::provider::AcmeProvider;

/// How certificates are ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The address to which the authority writes.
    pub email: Option<String>,
    /// The authorities, the preferred one first. The others are asked when it fails.
    pub providers: Vec<AcmeProvider>,
    /// The directory for trials, which is asked first after several failures; `None`: the staging directory of the same
    /// operator, if it has one.
    pub staging: Option<AcmeProvider>,
    /// The root certificate of the HTTPS server of an authority that is not public, PEM.
    pub provider_root: Option<PathBuf>,
    /// An account at the authority that the ACME account belongs to (RFC 8555 section 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// How control over a name is proved; empty: in every way that is possible without a DNS hook.
    pub challenges: Vec<ChallengeKind>,
    /// What publishes TXT records, for [`ChallengeKind::Dns`].
    pub dns: Option<DnsPublisher>,
    /// The DNS server that is asked where names point and where TXT records belong; `None`: the DNS server of the system.
    pub resolver: Option<SocketAddr>,
    /// Whether certificates are ordered for names without a check that DNS points to this machine, as behind a load
    /// balancer.
    pub skip_dns_check: bool,
    /// The profile of the certificate, such as `shortlived`, if the authority has several.
    pub profile: Option<String>,
    /// The common name of the authority that issued the topmost certificate of the chain to use, if the authority offers several
    /// chains (RFC 8555 section 7.4.2).
    pub preferred_chain: Option<String>,
    /// The kind of the private key.
    pub key_type: CertificateKeyType,
    /// Whether a renewed certificate has the private key of the old one, unless that was revoked.
    pub reuse_key: bool,
}

/// An account at an authority outside of ACME.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its key identifier.
    pub id: String,
    /// Its key, decoded.
    pub key: Vec<u8>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A way to prove control over a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChallengeKind {
    /// A response at port 80 (RFC 8555 section 8.3).
    Http,
    /// A TLS handshake at port 443 (RFC 8737).
    TlsAlpn,
    /// A TXT record (RFC 8555 section 8.4), which wildcards need.
    Dns,
}

impl ChallengeKind {
    /// Its name in ACME.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
            Self::Dns => "dns-01",
        }
    }
}

/// The kind of a private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CertificateKeyType {
    /// ECDSA on P-256.
    #[default]
    P256,
    /// ECDSA on P-384.
    P384,
    /// RSA with 2,048 bits, for clients older than about 2014.
    Rsa2048,
}

impl CertificateKeyType {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Rsa2048 => "rsa2048",
        }
    }
}

/// A certificate that is ordered and renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCertificate {
    /// The names that it is for: domains in lower case, wildcards, addresses. At least one.
    pub names: Vec<String>,
    /// How it is ordered.
    pub settings: AcmeSettings,
    /// Whether there is another one for the same names, with another kind of key.
    pub is_additional: bool,
}

impl fmt::Display for ManagedCertificate {
    /// In words: which certificate is ordered where, and how control over its names is proved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        let providers: Vec<&str> = match settings.providers.as_slice() {
            [] => vec!["letsencrypt"],
            providers => providers.iter().map(|one| one.name.as_str()).collect(),
        };
        let challenges: Vec<&str> = settings
            .allowed_challenges()
            .map(ChallengeKind::name)
            .collect();
        let kind = if self.is_additional {
            format!("{} ", self.settings.key_type.name())
        } else {
            String::new()
        };
        write!(
            f,
            "a {kind}certificate for {} is ordered from {}, by {}",
            self.names.join(" "),
            providers.join(" or "),
            challenges.join(" or "),
        )
    }
}

impl ManagedCertificate {
    /// The name of its folder: readable, and unique for its names.
    pub fn id(&self) -> String {
        let hash = fnv_1a(
            self.names
                .iter()
                .flat_map(|name| name.bytes().chain([b' '])),
        );
        let first = self.names.first().map_or("", String::as_str);
        let first: String = first
            .chars()
            .map(|char| match char {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => char,
                _ => '_',
            })
            .take(64)
            .collect();
        let first = first.trim_start_matches('.');
        let id = match self.names.len() {
            1 => first.to_owned(),
            _ => format!("{first}-{hash:016x}"),
        };
        if self.is_additional {
            format!("{id}+{}", self.settings.key_type.name())
        } else {
            id
        }
    }
}

impl AcmeSettings {
    /// The ways in which control over a name may be proved.
    pub fn allowed_challenges(&self) -> impl Iterator<Item = ChallengeKind> {
        let allowed: &[ChallengeKind] = match (self.challenges.is_empty(), &self.dns) {
            (false, _) => &self.challenges,
            (true, Some(_)) => &[ChallengeKind::Dns],
            (true, None) => &[ChallengeKind::Http, ChallengeKind::TlsAlpn],
        };
        allowed.iter().copied()
    }

    /// A number that other settings do not have.
    pub(crate) fn number(&self) -> u64 {
        let key = self
            .external_account
            .iter()
            .flat_map(|account| &account.key);
        let dns = self.dns.iter().flat_map(DnsPublisher::identity);
        fnv_1a(format!("{self:?}").bytes().chain(key.copied()).chain(dns))
    }
}

/// A hash that is stable across releases.
fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(names: &[&str]) -> String {
        ManagedCertificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            settings: AcmeSettings::default(),
            is_additional: false,
        }
        .id()
    }

    #[test]
    fn certificates_for_other_names_have_other_folders() {
        assert_eq!(id(&["example.com"]), "example.com");
        assert_eq!(id(&["*.example.com"]), "_.example.com");
        assert_eq!(id(&["../a"]), "_a");
        let both = id(&["example.com", "www.example.com"]);
        assert!(both.starts_with("example.com-"), "{both}");
        assert_ne!(both, id(&["example.com", "blog.example.com"]));
        let additional = ManagedCertificate {
            names: vec!["example.com".to_owned()],
            settings: AcmeSettings {
                key_type: CertificateKeyType::Rsa2048,
                ..AcmeSettings::default()
            },
            is_additional: true,
        };
        assert_eq!(additional.id(), "example.com+rsa2048");
    }

    #[test]
    fn other_settings_have_another_number_but_show_no_key() {
        let account = |key: &[u8]| AcmeSettings {
            external_account: Some(ExternalAccount {
                id: "kid".to_owned(),
                key: key.to_vec(),
            }),
            ..AcmeSettings::default()
        };
        let numbers = [
            AcmeSettings::default().number(),
            account(b"one").number(),
            account(b"two").number(),
        ];
        assert_ne!(numbers[0], numbers[1]);
        assert_ne!(numbers[1], numbers[2]);
        assert_eq!(numbers[1], account(b"one").number());
        assert!(!format!("{:?}", account(b"one")).contains("111"));
    }
}
