//! Names of cookies, parameters and the like, exact or by their beginning.

/// A name; with `*` at its end all names that begin so, with `*` at its front all that end so, with both
/// all in which it is found. Case matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: Box<str>,
    /// Whether anything may stand in front.
    is_open_before: bool,
    /// Whether anything may follow.
    is_open_behind: bool,
}

impl NamePattern {
    /// Reads `name`, `prefix*`, `*suffix` or `*part*`.
    pub fn new(pattern: &str) -> Self {
        let behind = pattern.strip_suffix('*');
        let text = behind.unwrap_or(pattern);
        let before = text.strip_prefix('*');
        Self {
            text: before.unwrap_or(text).into(),
            is_open_before: before.is_some(),
            is_open_behind: behind.is_some(),
        }
    }

    /// Whether this is one of the names.
    pub fn matches(&self, name: &[u8]) -> bool {
        let text = self.text.as_bytes();
        match (self.is_open_before, self.is_open_behind) {
            (false, false) => name == text,
            (false, true) => name.starts_with(text),
            (true, false) => name.ends_with(text),
            (true, true) => text.is_empty() || name.windows(text.len()).any(|part| part == text),
        }
    }

    pub(super) fn any_matches(patterns: &[Self], name: &[u8]) -> bool {
        patterns.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_at_either_end() {
        for (pattern, name, matches) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("*a*", "bab", true),
            ("*a*", "b", false),
            ("*", "b", true),
            ("**", "", true),
        ] {
            let found = NamePattern::new(pattern).matches(name.as_bytes());
            assert_eq!(found, matches, "{pattern} {name}");
        }
    }
}
