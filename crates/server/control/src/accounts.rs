//! Who may send which requests over HTTP: accounts in a file, and their roles.

use std::collections::HashSet;
use std::fmt;

use apus_tokens::{from_hexadecimal, sha256};
use serde::{Deserialize, Serialize};

use crate::ControlRequest;

/// What stands before the digest of a token in the file.
const DIGEST_PREFIX: &str = "sha256:";

/// What an account may do. Each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRole {
    /// See what happens.
    Read,
    /// Change what holds until the next change: bans, nodes, maintenance, the cache.
    Operate,
    /// Do everything that the API can, and see who changed what.
    Configure,
}

impl OperatorRole {
    /// All roles, the one that may do least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Configure];

    /// The role with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Configure => "configure",
        }
    }
}

impl ControlRequest {
    /// The role that may send this request over HTTP; `None`: only the control socket may.
    pub fn role(&self) -> Option<OperatorRole> {
        match self {
            Self::Status
            | Self::Metrics { .. }
            | Self::Sites
            | Self::Traffic { .. }
            | Self::BanList
            | Self::LimitList { .. }
            | Self::Errors { .. }
            | Self::ExplainRequest { .. } => Some(OperatorRole::Read),
            Self::Reload
            | Self::Upstream { .. }
            | Self::RenewCertificate { .. }
            | Self::Maintenance { .. }
            | Self::BanAdd { .. }
            | Self::BanRemove { .. }
            | Self::LimitReset { .. }
            | Self::CachePurge { .. }
            | Self::CacheList { .. }
            | Self::LogLevel { .. } => Some(OperatorRole::Operate),
            Self::Audit
            | Self::Config
            | Self::ConfigCheck { .. }
            | Self::ConfigChange { .. }
            | Self::ConfigTrial
            | Self::ConfigConfirm
            | Self::ConfigRollback
            | Self::ConfigVersions
            | Self::ConfigVersion { .. } => Some(OperatorRole::Configure),
            Self::AdminLogin | Self::Stop => None,
        }
    }

    /// Whether it changes what the server does, so that the audit log has it.
    pub fn is_change(&self) -> bool {
        match self {
            Self::AdminLogin | Self::Stop => true,
            Self::Audit
            | Self::CacheList { .. }
            | Self::Config
            | Self::ConfigCheck { .. }
            | Self::ConfigTrial
            | Self::ConfigVersions
            | Self::ConfigVersion { .. } => false,
            _ => self.role() > Some(OperatorRole::Read),
        }
    }
}

/// A person or a program that may send requests over HTTP.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorAccount {
    /// Its name, which the audit log shows.
    pub name: String,
    /// What it may do.
    pub role: OperatorRole,
    /// The sites that it is for; `None`: all, and the server.
    #[serde(default)]
    pub sites: Option<Vec<String>>,
    /// The hash of its password; `None`: it has none.
    #[serde(default)]
    pub password: Option<String>,
    /// The SHA-256 digests of its tokens, as `sha256:` and 64 hexadecimal digits.
    #[serde(default)]
    pub tokens: Vec<TokenDigest>,
    /// The SHA-256 digests of its client certificates, in DER, in the same form.
    #[serde(default)]
    pub certificates: Vec<TokenDigest>,
}

/// The hash of a password is left out.
impl fmt::Debug for OperatorAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorAccount")
            .field("name", &self.name)
            .field("role", &self.role)
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}

/// The SHA-256 digest of a token, which has so many random bits that nobody finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a token.
    pub fn of(token: &str) -> Self {
        Self(sha256(token.as_bytes()))
    }

    /// The digest of a certificate in DER: its fingerprint.
    pub fn of_certificate(der: &[u8]) -> Self {
        Self(sha256(der))
    }
}

impl TryFrom<String> for TokenDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.strip_prefix(DIGEST_PREFIX);
        digits.and_then(from_hexadecimal).map(Self).ok_or(
            "a digest is `sha256:` and the 64 hexadecimal digits of SHA-256; `apus admin account` writes it",
        )
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIGEST_PREFIX}{}", apus_tokens::Hexadecimal(&self.0))
    }
}

/// The accounts of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorAccounts {
    #[serde(default)]
    accounts: Vec<OperatorAccount>,
}

impl OperatorAccounts {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is wrong, with lines.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let read: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(0, |before| before.matches('\n').count()) + 1;
            vec![format!("line {line}: {}", error.message().trim())]
        })?;
        let mut mistakes = Vec::new();
        let (mut names, mut tokens) = (HashSet::new(), HashSet::new());
        let mut certificates = HashSet::new();
        for account in &read.accounts {
            let name = &account.name;
            let shown = name.escape_debug();
            let is_plain = |c: char| !c.is_control() && c != ':';
            if name.is_empty() || name.len() > 100 || !name.chars().all(is_plain) {
                mistakes.push(format!(
                    "`{shown}` is no name: expected up to 100 characters without a colon"
                ));
            }
            if !names.insert(name) {
                mistakes.push(format!("two accounts have the name `{shown}`"));
            }
            if account.password.is_none()
                && account.tokens.is_empty()
                && account.certificates.is_empty()
            {
                mistakes.push(format!(
                    "`{shown}` has no password, no token and no certificate"
                ));
            }
            if account.sites.as_ref().is_some_and(Vec::is_empty) {
                mistakes.push(format!(
                    "`{shown}` is for no site: without `sites`, it is for all"
                ));
            }
            if !account.tokens.iter().all(|token| tokens.insert(token)) {
                mistakes.push(format!(
                    "`{shown}` has a token that stands in the file already"
                ));
            }
            if !(account.certificates.iter()).all(|digest| certificates.insert(digest)) {
                mistakes.push(format!(
                    "`{shown}` has a certificate that stands in the file already"
                ));
            }
        }
        if mistakes.is_empty() {
            Ok(read)
        } else {
            Err(mistakes)
        }
    }

    /// All accounts.
    pub fn accounts(&self) -> &[OperatorAccount] {
        &self.accounts
    }

    /// The account with a name.
    pub fn named(&self, name: &str) -> Option<&OperatorAccount> {
        self.accounts.iter().find(|account| account.name == name)
    }

    /// The account of a client certificate.
    pub fn of_certificate(&self, digest: &TokenDigest) -> Option<&OperatorAccount> {
        let mut accounts = self.accounts.iter();
        accounts.find(|account| account.certificates.contains(digest))
    }

    /// The account of a token.
    pub fn of_token(&self, digest: &TokenDigest) -> Option<&OperatorAccount> {
        let mut accounts = self.accounts.iter();
        accounts.find(|account| account.tokens.contains(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_token() {
        let token = TokenDigest::of("apus_abc");
        let text = format!(
            "[[accounts]]\nname = \"ana\"\nrole = \"configure\"\npassword = \"$2y$x\"\n\
             [[accounts]]\nname = \"ci\"\nrole = \"read\"\nsites = [\"shop\"]\ntokens = [\"{token}\"]\n"
        );
        let accounts = OperatorAccounts::parse(&text).unwrap();
        assert_eq!(accounts.named("ana").unwrap().role, OperatorRole::Configure);
        assert!(accounts.named("Ana").is_none());
        let found = accounts.of_token(&token).unwrap();
        assert_eq!(found.sites.as_deref(), Some(&["shop".to_owned()][..]));
        assert!(accounts.of_token(&TokenDigest::of("apus_abd")).is_none());
        assert!(!format!("{accounts:?}").contains("$2y$"));
        let certificate = TokenDigest::of_certificate(b"abc");
        let text = format!(
            "[[accounts]]\nname = \"ana\"\nrole = \"read\"\ncertificates = [\"{certificate}\"]\n"
        );
        let accounts = OperatorAccounts::parse(&text).unwrap();
        assert!(accounts.of_certificate(&certificate).is_some());
        assert!(accounts.of_token(&certificate).is_none());
        let twice = format!("{text}{}", text.replace("ana", "bo"));
        assert!(OperatorAccounts::parse(&twice).is_err());
    }

    #[test]
    fn mistakes_are_told_all_at_once() {
        let text = "[[accounts]]\nname = \"a:b\"\nrole = \"read\"\n[[accounts]]\nname = \"\"\nrole = \"read\"\nsites = []\npassword = \"x\"\n";
        let mistakes = OperatorAccounts::parse(text).unwrap_err();
        assert_eq!(mistakes.len(), 4, "{mistakes:?}");
        for (text, expected) in [
            ("[[accounts]]\nname = \"a\"\nrole = \"root\"\n", "line 3"),
            (
                "[[accounts]]\nname = \"a\"\nrole = \"read\"\ntokens = [\"secret\"]\n",
                "`apus admin account` writes it",
            ),
            ("[[account]]\n", "unknown field `account`"),
            (
                "[[accounts]]\nname = \"a\"\nrole = \"read\"\npasword = \"x\"\n",
                "line 4",
            ),
        ] {
            let mistakes = OperatorAccounts::parse(text).unwrap_err();
            assert!(mistakes[0].contains(expected), "{mistakes:?}");
        }
    }

    #[test]
    fn roles_grow() {
        assert!(OperatorRole::Read < OperatorRole::Operate);
        assert!(OperatorRole::Operate < OperatorRole::Configure);
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::named(role.name()), Some(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert_eq!(OperatorRole::named("root"), None);
        assert!(!ControlRequest::Status.is_change());
        assert!(!ControlRequest::Audit.is_change());
        assert!(ControlRequest::Reload.is_change());
        assert!(ControlRequest::Stop.is_change() && ControlRequest::Stop.role().is_none());
    }
}
