//! Names of cookies, parameters and the like, exact or by their beginning.

/// A name, or with `*` at its end all names that begin so. Case matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: Box<str>,
    is_prefix: bool,
}

impl NamePattern {
    /// Reads `name` or `prefix*`.
    pub fn new(pattern: &str) -> Self {
        match pattern.strip_suffix('*') {
            Some(prefix) => Self {
                text: prefix.into(),
                is_prefix: true,
            },
            None => Self {
                text: pattern.into(),
                is_prefix: false,
            },
        }
    }

    /// Whether this is one of the names.
    pub fn matches(&self, name: &[u8]) -> bool {
        if self.is_prefix {
            name.starts_with(self.text.as_bytes())
        } else {
            name == self.text.as_bytes()
        }
    }

    pub(super) fn any_matches(patterns: &[Self], name: &[u8]) -> bool {
        patterns.iter().any(|pattern| pattern.matches(name))
    }
}
