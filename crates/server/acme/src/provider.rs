//! Certificate authorities that issue certificates by ACME.

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcmeProvider {
    /// Its short name, or its URL if it has none here.
    pub name: String,
    /// The URL of its directory (RFC 8555 section 7.1.1).
    pub directory: String,
}

/// Names and directories.
const KNOWN: [(&str, &str); 7] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
    ("zerossl", "https://acme.zerossl.com/v2/DV90"),
    ("google", "https://dv.acme-v02.api.pki.goog/directory"),
    (
        "google-staging",
        "https://dv.acme-v02.test-api.pki.goog/directory",
    ),
    ("actalis", "https://acme-api.actalis.com/acme/directory"),
    ("sslcom", "https://acme.ssl.com/sslcom-dv-ecc"),
];

impl AcmeProvider {
    /// The authority with this name or URL of a directory, which has to begin with `https://`; `None` if there is none.
    pub fn find(text: &str) -> Option<Self> {
        if text.starts_with("https://") && text.len() > "https://".len() {
            let known = KNOWN.iter().find(|(_, directory)| *directory == text);
            return Some(Self {
                name: known.map_or(text, |(name, _)| name).to_owned(),
                directory: text.to_owned(),
            });
        }
        let (name, directory) = KNOWN.iter().find(|(name, _)| *name == text)?;
        Some(Self {
            name: (*name).to_owned(),
            directory: (*directory).to_owned(),
        })
    }

    /// The names of authorities.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// The authority of the same operator for trials, whose certificates no browser trusts, and whose limits are wide.
    pub(crate) fn staging(&self) -> Option<Self> {
        let name = format!("{}-staging", self.name);
        // A URL with this end names no authority.
        Self::names()
            .find(|known| *known == name)
            .and_then(Self::find)
    }
}

impl Default for AcmeProvider {
    /// Let's Encrypt.
    fn default() -> Self {
        let (name, directory) = KNOWN[0];
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_found_by_its_name_and_by_its_url() {
        let zerossl = AcmeProvider::find("zerossl").unwrap();
        assert_eq!(AcmeProvider::find(&zerossl.directory), Some(zerossl));
        let own = AcmeProvider::find("https://ca.internal/acme/directory").unwrap();
        assert_eq!(own.name, own.directory);
        for wrong in ["", "lets-encrypt", "http://ca.internal/", "https://"] {
            assert_eq!(AcmeProvider::find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_some_providers_have_a_staging_directory() {
        let staging = AcmeProvider::default().staging().unwrap();
        assert_eq!(staging.name, "letsencrypt-staging");
        assert_eq!(staging.staging(), None);
        for other in ["zerossl", "https://ca.internal/acme/directory"] {
            assert_eq!(
                AcmeProvider::find(other).unwrap().staging(),
                None,
                "{other}"
            );
        }
    }
}
