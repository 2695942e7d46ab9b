//! Values of the keys of ACME.

use apus_acme::{AcmeProvider, SharedStorageAddress};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use http::Uri;

use crate::keys::{StringType, ValueError};

/// A certificate authority, and its text.
#[derive(Clone, Debug)]
pub(crate) struct ProviderText(pub(crate) AcmeProvider, String);

impl StringType for ProviderText {
    const EXPECTED: &'static str = "a certificate authority";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match AcmeProvider::find(text) {
            Some(provider) => Ok(Self(provider, text.to_owned())),
            None => {
                let names: Vec<_> = AcmeProvider::names().collect();
                let names = names.join(", ");
                Err(format!("it is none of {names}, and no https:// URL of a directory").into())
            }
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.1)
    }
}

/// An e-mail address.
#[derive(Clone, Debug)]
pub(crate) struct EmailText(pub(crate) String);

impl StringType for EmailText {
    const EXPECTED: &'static str = "an e-mail address";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|char| {
                    char.is_ascii_graphic() && !matches!(char, '@' | ',' | '?' | '<' | '>')
                })
        };
        match text.rsplit_once('@') {
            Some((user, domain)) if is_plain(user) && is_plain(domain) => Ok(Self(text.to_owned())),
            _ => Err("it is no name, an @ and a domain".into()),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// The key of an account at an authority, encoded as base64url (RFC 4648 section 5).
#[derive(Clone)]
pub(crate) struct ExternalKey(pub(crate) Vec<u8>);

impl std::fmt::Debug for ExternalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExternalKey")
    }
}

impl StringType for ExternalKey {
    const EXPECTED: &'static str = "a key as base64url";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')) {
            Ok(key) if key.is_empty() => Err("it is empty".into()),
            Ok(key) => Ok(Self(key)),
            Err(error) => Err(ValueError::of(error)),
        }
    }
}

/// The URL of a web server.
#[derive(Clone, Debug)]
pub(crate) struct WebUrl(pub(crate) String);

impl StringType for WebUrl {
    const EXPECTED: &'static str = "a URL as \"https://example.com/path\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let uri: Uri = text
            .parse()
            .map_err(|error: http::uri::InvalidUri| error.to_string())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(Self(text.to_owned())),
            _ => Err("it has no http:// or https:// and a host".into()),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// A secret that is in no output.
#[derive(Clone)]
pub(crate) struct SecretText(pub(crate) String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText")
    }
}

impl StringType for SecretText {
    const EXPECTED: &'static str = "a secret";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() || text.chars().any(char::is_control) {
            Err("it is empty or has control characters".into())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// The secret of a key of TSIG, encoded as base64 (RFC 4648 section 4).
#[derive(Clone)]
pub(crate) struct DnsSecret(pub(crate) Vec<u8>);

impl std::fmt::Debug for DnsSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DnsSecret")
    }
}

impl StringType for DnsSecret {
    const EXPECTED: &'static str = "a secret as base64";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match BASE64_STANDARD.decode(text) {
            Ok(key) if key.is_empty() => Err("it is empty".into()),
            Ok(key) => Ok(Self(key)),
            Err(error) => Err(ValueError::of(error)),
        }
    }
}

/// The address of a storage that machines share. Its password is in no output.
#[derive(Clone)]
pub(crate) struct StorageAddress(pub(crate) SharedStorageAddress);

impl std::fmt::Debug for StorageAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl StringType for StorageAddress {
    const EXPECTED: &'static str =
        "an address as \"redis://127.0.0.1/\" or \"postgres://user:password@host/database\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        SharedStorageAddress::parse(text)
            .map(Self)
            .map_err(ValueError::of)
    }
}
