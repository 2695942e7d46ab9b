//! What publishes TXT records, as a configuration says.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What publishes TXT records.
#[derive(Clone, PartialEq, Eq)]
pub enum DnsPublisher {
    /// A program, which is called with `present` or `cleanup`, the name of the record and its value, and returns when the
    /// record is visible.
    Hook(PathBuf),
    /// The primary name server of the zone, by dynamic updates (RFC 2136).
    Update(DnsUpdateServer),
    /// A server of acme-dns, to which the names are delegated by CNAME records.
    AcmeDns(AcmeDnsAccount),
    /// A web server, which gets `{"action": "present", "name": ..., "value": ...}` by POST.
    Webhook {
        /// Its URL.
        url: String,
        /// The token in `Authorization: Bearer`, if it wants one.
        token: Option<String>,
    },
}

/// A name server that takes dynamic updates, signed by TSIG (RFC 8945).
#[derive(Clone, PartialEq, Eq)]
pub struct DnsUpdateServer {
    /// Its address.
    pub address: SocketAddr,
    /// The name of the key; `None`: updates are not signed.
    pub key: Option<DnsUpdateKey>,
}

/// A key of TSIG.
#[derive(Clone, PartialEq, Eq)]
pub struct DnsUpdateKey {
    /// Its name.
    pub name: String,
    /// The secret, decoded.
    pub secret: Vec<u8>,
    /// Its algorithm.
    pub algorithm: DnsKeyAlgorithm,
}

/// An algorithm of TSIG (RFC 8945 section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsKeyAlgorithm {
    /// `hmac-sha256`.
    #[default]
    HmacSha256,
    /// `hmac-sha384`.
    HmacSha384,
    /// `hmac-sha512`.
    HmacSha512,
}

/// An account at a server of acme-dns.
#[derive(Clone, PartialEq, Eq)]
pub struct AcmeDnsAccount {
    /// The URL of the server.
    pub url: String,
    /// The user.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The name whose TXT record the account changes.
    pub subdomain: String,
}

impl DnsPublisher {
    /// In a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hook(_) => "a program",
            Self::Update(_) => "dynamic updates",
            Self::AcmeDns(_) => "acme-dns",
            Self::Webhook { .. } => "a webhook",
        }
    }

    /// What distinguishes it from others, with its secrets.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let (text, secret): (String, &[u8]) = match self {
            Self::Hook(path) => (path.display().to_string(), b""),
            Self::Update(server) => (
                server.address.to_string(),
                server.key.as_ref().map_or(b"", |key| &key.secret),
            ),
            Self::AcmeDns(account) => (
                format!("{} {} {}", account.url, account.user, account.subdomain),
                account.password.as_bytes(),
            ),
            Self::Webhook { url, token } => (
                url.clone(),
                token.as_ref().map_or(b"", |token| token.as_bytes()),
            ),
        };
        [text.as_bytes(), b"\0", secret].concat()
    }
}

impl fmt::Debug for DnsPublisher {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hook(path) => f.debug_tuple("Hook").field(path).finish(),
            Self::Update(server) => {
                let key = server.key.as_ref();
                let key = key.map(|key| (&key.name, key.algorithm));
                let mut update = f.debug_struct("Update");
                update.field("address", &server.address).field("key", &key);
                update.finish()
            }
            Self::AcmeDns(account) => f
                .debug_struct("AcmeDns")
                .field("url", &account.url)
                .field("user", &account.user)
                .field("subdomain", &account.subdomain)
                .finish_non_exhaustive(),
            Self::Webhook { url, token } => f
                .debug_struct("Webhook")
                .field("url", url)
                .field("has_token", &token.is_some())
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_no_debug_output_but_distinguish_publishers() {
        let account = |password: &str| {
            DnsPublisher::AcmeDns(AcmeDnsAccount {
                url: "https://auth.example.com".to_owned(),
                user: "user".to_owned(),
                password: password.to_owned(),
                subdomain: "sub".to_owned(),
            })
        };
        assert!(!format!("{:?}", account("hidden")).contains("hidden"));
        assert_ne!(account("one").identity(), account("two").identity());
    }
}
