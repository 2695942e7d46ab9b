//! `EmailAddress`: the address of an account.

use std::fmt;

/// An e-mail address that identifies an account: in lower case, and of ASCII characters only.
///
/// Two addresses that look the same, or that databases and mail servers convert to the same, would be two accounts with
/// one mailbox: whoever has the other one could reset the password. So all letters are lower case, and addresses with
/// other letters are rejected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmailAddress(String);

impl EmailAddress {
    /// The address in a text of the client; `None` if it is not one.
    ///
    /// ```
    /// use apus_account::EmailAddress;
    ///
    /// let address = EmailAddress::parse(" Ada@Example.com ").unwrap();
    /// assert_eq!(address.as_str(), "ada@example.com");
    /// for text in ["ada", "@example.com", "ada@", "a@b@c.d", "ada @example.com", "ada@exam_ple.com", "ada@example..com", "ädä@example.com"] {
    ///     assert!(EmailAddress::parse(text).is_none());
    /// }
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (local, domain) = text.rsplit_once('@')?;
        let is_local =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(is_plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let has_dots_between =
            !local.starts_with('.') && !local.ends_with('.') && !local.contains("..");
        // RFC 5321 section 4.5.3.1 sets these lengths.
        let is_valid = (1..=64).contains(&local.len())
            && text.len() <= 254
            && local.bytes().all(is_local)
            && has_dots_between
            && domain.split('.').all(is_label);
        is_valid.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
