//! Names of projects: of a package, a crate, an image and a unit at once.

use std::fmt;
use std::str::FromStr;

/// How long a name may be.
const MAX_LEN: usize = 64;

/// What a package cannot be named: keywords of Rust, its own crates, and those that the project is made
/// with; the last four are folders that Cargo makes.
const TAKEN: [&str; 66] = [
    "abstract",
    "alloc",
    "apus",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "serde_json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tracing-subscriber",
    "tracing_subscriber",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "union",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "build",
    "deps",
    "examples",
];

/// A name for a project: lower-case letters, digits, dashes and underscores, with a letter first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectName(String);

impl ProjectName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As Rust names its crate.
    pub(crate) fn as_crate(&self) -> String {
        self.0.replace('-', "_")
    }
}

impl FromStr for ProjectName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
        if !text.starts_with(|c: char| c.is_ascii_lowercase())
            || !text.chars().all(is_allowed)
            || text.ends_with(['-', '_'])
        {
            return Err(
                "expected lower-case letters a to z, digits, dashes and underscores, with a letter first and \
                 a letter or digit last",
            );
        }
        if text.len() > MAX_LEN {
            return Err("expected at most 64 characters");
        }
        if TAKEN.contains(&text) {
            return Err("Rust or Cargo reserves this name");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_would_refuse_are_refused() {
        for name in ["a", "my-shop", "shop_2", "x9"] {
            let parsed: ProjectName = name.parse().unwrap();
            assert_eq!(parsed.as_str(), name);
        }
        let long = "a".repeat(65);
        for name in [
            "", "-a", "a-", "9a", "_a", "A", "über", "a b", "a/b", "../a", ".", "a.b", "fn",
            "test", "apus", "std", "deps", &long,
        ] {
            assert!(name.parse::<ProjectName>().is_err(), "{name:?}");
        }
        let name: ProjectName = "my-shop".parse().unwrap();
        assert_eq!(name.as_crate(), "my_shop");
    }
}
