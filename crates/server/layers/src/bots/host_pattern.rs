//! Names of hosts that are of a bot: `crawl.example.com`, or `*.example.com` for all below it.

use std::fmt;
use std::str::FromStr;

/// A name of hosts, or all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The name in lower case, after the dot of `*.` if it is for all below.
    name: Box<str>,
    is_for_all_below: bool,
}

/// A text that is no name of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHostPattern;

impl FromStr for HostPattern {
    type Err = InvalidHostPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.to_ascii_lowercase();
        let (name, is_for_all_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (&*text, false),
        };
        let is_label = |label: &str| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            (1..=63).contains(&label.len()) && label.bytes().all(is_valid)
        };
        // Everybody can have a name below a name without a dot, as below `com`.
        let is_valid = name.len() <= 253 && name.contains('.') && name.split('.').all(is_label);
        if !is_valid {
            return Err(InvalidHostPattern);
        }
        Ok(Self {
            name: name.into(),
            is_for_all_below,
        })
    }
}

impl HostPattern {
    /// Whether a name in lower case, without a dot at its end, is one of these.
    pub(super) fn matches(&self, name: &str) -> bool {
        if !self.is_for_all_below {
            return *name == *self.name;
        }
        let below = name.strip_suffix(&*self.name);
        below.is_some_and(|below| below.len() > 1 && below.ends_with('.'))
    }
}

impl fmt::Display for InvalidHostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no name of hosts as `*.example.com`")
    }
}

impl std::error::Error for InvalidHostPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_one_name_or_for_all_below() {
        let all: HostPattern = "*.GoogleBot.com".parse().unwrap();
        for (name, expected) in [
            ("crawl-1.googlebot.com", true),
            ("a.b.googlebot.com", true),
            ("googlebot.com", false),
            (".googlebot.com", false),
            ("notgooglebot.com", false),
            ("crawl.googlebot.com.evil.example", false),
        ] {
            assert_eq!(all.matches(name), expected, "{name}");
        }
        let one: HostPattern = "crawl.example.com".parse().unwrap();
        assert!(one.matches("crawl.example.com") && !one.matches("a.crawl.example.com"));
        for text in [
            "",
            "*",
            "*.",
            "*.com",
            "com",
            "a..b",
            "a.*.b",
            "*a.example",
            "ä.example",
            "a.example.",
        ] {
            assert_eq!(
                text.parse::<HostPattern>(),
                Err(InvalidHostPattern),
                "{text}"
            );
        }
    }
}
