//! Matching of paths to locations, in nginx's order.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

use super::template::Captures;

/// The pattern of a location's paths, in normal form (see [`apus_http::path`]).
///
/// | pattern | meaning |
/// | --- | --- |
/// | `= /path` | this path and no other; takes precedence over all. A path of PHP, as `/login.php`, holds for `/login.php/info`, too |
/// | `^~ /prefix` | paths with this prefix; if it is the longest, no expression is tried |
/// | `~ regex` | paths in which the expression matches; the first one takes precedence over
/// prefixes |
/// | `~* regex` | as `~`, ignoring case |
/// | `/prefix` | paths with this prefix; the longest is used |
#[derive(Clone, Debug)]
pub struct LocationPattern {
    text: Box<str>,
    kind: PatternKind,
}

#[derive(Clone, Debug)]
enum PatternKind {
    Exact(Box<str>),
    Prefix { prefix: Box<str>, is_final: bool },
    Regex(Regex),
}

impl FromStr for LocationPattern {
    type Err = InvalidLocationPattern;

    fn from_str(text: &str) -> Result<Self, InvalidLocationPattern> {
        let text = text.trim();
        let (operator, operand) = match text.split_once(char::is_whitespace) {
            Some((operator, operand)) if !operator.starts_with('/') => (operator, operand.trim()),
            _ => ("", text),
        };
        let kind = match operator {
            "=" => PatternKind::Exact(normal_path(operand)?),
            "^~" | "" => PatternKind::Prefix {
                prefix: normal_path(operand)?,
                is_final: operator == "^~",
            },
            "~" | "~*" => RegexBuilder::new(operand)
                .case_insensitive(operator == "~*")
                .build()
                .map(PatternKind::Regex)
                .map_err(InvalidLocationPattern::Regex)?,
            _ => return Err(InvalidLocationPattern::Operator),
        };
        Ok(Self {
            text: text.into(),
            kind,
        })
    }
}

/// A path that a request in normal form can have or start with.
fn normal_path(text: &str) -> Result<Box<str>, InvalidLocationPattern> {
    if !text.starts_with('/') {
        return Err(InvalidLocationPattern::NotAbsolute);
    }
    let mut segments: Vec<_> = text.split('/').skip(1).collect();
    segments.pop_if(|last| last.is_empty());
    if segments.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(InvalidLocationPattern::NotNormal);
    }
    Ok(text.into())
}

impl LocationPattern {
    /// `/`: the prefix of every path.
    pub fn everywhere() -> Self {
        Self {
            text: "/".into(),
            kind: PatternKind::Prefix {
                prefix: "/".into(),
                is_final: false,
            },
        }
    }

    /// The expression, if it is one.
    pub(super) fn regex(&self) -> Option<&Regex> {
        match &self.kind {
            PatternKind::Regex(regex) => Some(regex),
            _ => None,
        }
    }

    /// The prefix or the path, if it is no expression.
    pub fn literal(&self) -> Option<&str> {
        match &self.kind {
            PatternKind::Exact(path) | PatternKind::Prefix { prefix: path, .. } => Some(path),
            PatternKind::Regex(_) => None,
        }
    }

    /// Whether the pattern takes precedence over longer prefixes and over expressions.
    pub fn is_exact(&self) -> bool {
        matches!(self.kind, PatternKind::Exact(_))
    }

    /// Whether no expression is tried after this prefix.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, PatternKind::Prefix { is_final: true, .. })
    }

    /// Whether it matches a path in normal form.
    pub fn is_match(&self, path: &str) -> bool {
        match &self.kind {
            PatternKind::Exact(exact) => **exact == *path,
            PatternKind::Prefix { prefix, .. } => path.starts_with(&**prefix),
            PatternKind::Regex(regex) => regex.is_match(path.as_bytes()),
        }
    }

    /// Whether this expression takes all paths of another pattern: the paths of a prefix without `^~`, or all paths at all if
    /// the other one is an expression. Samples of paths decide.
    pub fn takes_all_of(&self, other: &Self) -> bool {
        const BELOW: [&str; 5] = ["", "zq7", "zq7/", "zq7.zq7", "Zq_7-~/0.Zq"];
        let base = match &other.kind {
            PatternKind::Exact(_) | PatternKind::Prefix { is_final: true, .. } => return false,
            PatternKind::Prefix { prefix, .. } => &**prefix,
            PatternKind::Regex(_) => "/",
        };
        let is_taken = |path: String| {
            self.regex()
                .is_some_and(|regex| regex.is_match(path.as_bytes()))
        };
        BELOW.iter().all(|below| is_taken(format!("{base}{below}")))
    }

    /// The captures of its groups in `path`.
    pub(super) fn captures(&self, path: &[u8]) -> Captures {
        self.regex()
            .and_then(|regex| Captures::of(regex, path))
            .unwrap_or_default()
    }

    /// Whether two patterns of one site match the same paths.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (PatternKind::Exact(one), PatternKind::Exact(two)) => one == two,
            (PatternKind::Prefix { prefix: one, .. }, PatternKind::Prefix { prefix: two, .. }) => {
                one == two
            }
            _ => false,
        }
    }
}

impl LocationPattern {
    /// The pattern as it was written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for LocationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A location's pattern is invalid.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InvalidLocationPattern {
    /// The path does not start with a slash.
    NotAbsolute,
    /// The path has `//`, `.` or `..`, which no normalised path has.
    NotNormal,
    /// The operator before the path is none of `=`, `^~`, `~` and `~*`.
    Operator,
    /// The regular expression has an error.
    Regex(regex::Error),
}

impl fmt::Display for InvalidLocationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("a location's path starts with a slash"),
            Self::NotNormal => f.write_str(
                "a location's path has no `//`, `.` or `..`; requests are matched without them",
            ),
            Self::Operator => f.write_str(
                "a location is `/prefix`, `= /path`, `^~ /prefix`, `~ regex` or `~* regex`",
            ),
            Self::Regex(error) => write!(f, "the regular expression has an error: {error}"),
        }
    }
}

impl std::error::Error for InvalidLocationPattern {}

/// The rule by which a location matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocationMatch {
    Exact,
    Script,
    Regex,
    FinalPrefix,
    Prefix,
    Rule,
}

impl fmt::Display for LocationMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "the path is equal",
            Self::Script => "the path runs the script of this exact path",
            Self::Regex => "the first regular expression that matches",
            Self::FinalPrefix => "the longest prefix, and it rules out regular expressions",
            Self::Prefix => "the longest prefix, and no regular expression matches",
            Self::Rule => "a rule chose it",
        })
    }
}

/// The locations of a site, prepared for lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct LocationMatcher {
    exact: HashMap<Box<[u8]>, usize>,
    /// The locations of exact paths whose script other paths run, too, and whether the path of a folder runs it.
    scripts: HashMap<Box<[u8]>, ScriptLocation>,
    /// Sorted by text.
    prefixes: Vec<Prefix>,
    regexes: Vec<(Regex, usize)>,
}

#[derive(Clone, Debug)]
struct Prefix {
    text: Box<[u8]>,
    is_final: bool,
    location: usize,
    /// The longest other prefix that this one starts with.
    parent: Option<usize>,
}

/// The location of an exact path that is a script of PHP.
#[derive(Clone, Copy, Debug)]
struct ScriptLocation {
    location: usize,
    /// Whether the path of its folder runs it, if it is the index.
    is_run_by_folder: bool,
}

/// Which other paths run the script of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptUse {
    /// None: the location has a fixed response.
    None,
    /// Those with a `PATH_INFO`.
    PathInfo,
    /// Those, and the path of the folder of an index.
    PathInfoAndFolder,
}

/// The ending of scripts.
const PHP: &[u8] = b".php";

/// The name of the index script of a folder.
const INDEX: &[u8] = b"index.php";

impl LocationMatcher {
    pub(super) fn new<'a>(
        patterns: impl Iterator<Item = (&'a LocationPattern, ScriptUse)>,
    ) -> Self {
        let mut matcher = Self::default();
        for (location, (pattern, script_use)) in patterns.enumerate() {
            match &pattern.kind {
                PatternKind::Exact(path) => {
                    let path = path.as_bytes();
                    matcher.exact.insert(path.into(), location);
                    if path.ends_with(PHP) && script_use != ScriptUse::None {
                        let script = ScriptLocation {
                            location,
                            is_run_by_folder: script_use == ScriptUse::PathInfoAndFolder,
                        };
                        matcher.scripts.insert(path.into(), script);
                    }
                }
                PatternKind::Prefix { prefix, is_final } => matcher.prefixes.push(Prefix {
                    text: prefix.as_bytes().into(),
                    is_final: *is_final,
                    location,
                    parent: None,
                }),
                PatternKind::Regex(regex) => matcher.regexes.push((regex.clone(), location)),
            }
        }
        matcher.prefixes.sort_by(|one, two| one.text.cmp(&two.text));
        for at in 0..matcher.prefixes.len() {
            let (before, rest) = matcher.prefixes.split_at_mut(at);
            if let Some(prefix) = rest.first_mut() {
                prefix.parent = before
                    .iter()
                    .rposition(|other| prefix.text.starts_with(&other.text));
            }
        }
        matcher
    }

    /// The location of a path in normal form.
    pub(super) fn find(&self, path: &[u8]) -> Option<(usize, LocationMatch)> {
        if !self.exact.is_empty()
            && let Some(location) = self.exact.get(path)
        {
            return Some((*location, LocationMatch::Exact));
        }
        let prefix = self.longest_prefix(path);
        let is_final = prefix.is_some_and(|prefix| prefix.is_final);
        let mut regexes = self.regexes.iter().filter(|_| !is_final);
        let regex = regexes.find(|(regex, _)| regex.is_match(path));
        if !self.scripts.is_empty() {
            // Would this location take the path of the script, too? If not, it was written for `path`.
            let is_for_path = |script: &[u8]| match (regex, prefix) {
                (Some((regex, _)), _) => !regex.is_match(script),
                (None, prefix) => prefix.is_some_and(|prefix| prefix.text.starts_with(script)),
            };
            if let Some(location) = self.location_of_script(path, is_for_path) {
                return Some((location, LocationMatch::Script));
            }
        }
        if let Some(prefix) = prefix.filter(|prefix| prefix.is_final) {
            return Some((prefix.location, LocationMatch::FinalPrefix));
        }
        match (regex, prefix) {
            (Some((_, location)), _) => Some((*location, LocationMatch::Regex)),
            (None, Some(prefix)) => Some((prefix.location, LocationMatch::Prefix)),
            (None, None) => None,
        }
    }

    /// The exact location of the script that `path` runs by a `PATH_INFO` or as the index of a folder, so that the
    /// rules of the location cannot be passed by.
    fn location_of_script(
        &self,
        path: &[u8],
        is_for_path: impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        let index = if path.ends_with(b"/") {
            [path, INDEX].concat()
        } else {
            Vec::new()
        };
        if let Some(script) = self.scripts.get(&*index)
            && script.is_run_by_folder
            && !is_for_path(&index)
        {
            return Some(script.location);
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes
            .filter_map(|(end, _)| path.get(..end))
            .filter(|script| script.ends_with(PHP))
            .find_map(|script| Some((script, self.scripts.get(script)?)))
            .filter(|(script, _)| !is_for_path(script))
            .map(|(_, script)| script.location)
    }

    /// The location of the prefix that is `path` and a slash, unless `path` itself is a location's path.
    pub(super) fn find_with_slash(&self, path: &[u8]) -> Option<usize> {
        let has_text = |prefix: &Prefix, slash: &[u8]| {
            let text = prefix.text.strip_suffix(slash);
            text.is_some_and(|text| text == path)
        };
        let at = self
            .prefixes
            .iter()
            .position(|prefix| has_text(prefix, b"/"))?;
        let is_taken = self.exact.contains_key(path)
            || self.prefixes.iter().any(|prefix| has_text(prefix, b""));
        let found = self.prefixes.get(at)?;
        (!is_taken).then_some(found.location)
    }

    /// Every prefix of `path` is a prefix of the last one in order that is not greater than `path`,
    /// so the longest is that one or one of its parents.
    fn longest_prefix(&self, path: &[u8]) -> Option<&Prefix> {
        let behind = self
            .prefixes
            .partition_point(|prefix| *prefix.text <= *path);
        let mut candidate = self.prefixes.get(behind.checked_sub(1)?)?;
        while !path.starts_with(&candidate.text) {
            candidate = self.prefixes.get(candidate.parent?)?;
        }
        Some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_without_the_slash_of_a_prefix_is_found_unless_it_is_a_location_itself() {
        let patterns = [
            "/", "/api/", "^~ /b/", "= /c/", "/d/", "= /d", "/e/", "/e", "~ ^/f$",
        ];
        let matcher = matcher(&patterns);
        for (path, found) in [
            ("/api", Some(1)),
            ("/b", Some(2)),
            ("/api/", None),
            ("/ap", None),
            ("/api/x", None),
            // An exact path is not a prefix.
            ("/c", None),
            ("/d", None),
            ("/e", None),
            ("/f", None),
            ("/", None),
        ] {
            assert_eq!(matcher.find_with_slash(path.as_bytes()), found, "{path}");
        }
    }

    fn matcher(patterns: &[&str]) -> LocationMatcher {
        let patterns: Vec<LocationPattern> =
            patterns.iter().map(|text| text.parse().unwrap()).collect();
        let uses = patterns
            .iter()
            .map(|pattern| (pattern, ScriptUse::PathInfoAndFolder));
        LocationMatcher::new(uses)
    }

    #[test]
    fn an_exact_path_of_php_holds_for_what_its_script_runs_for() {
        let matcher = matcher(&[
            "/",
            "= /login.php",
            "/admin/",
            "= /admin/index.php",
            "~ [^/]\\.php(/|$)",
            "~ ^/login\\.php/open",
            "^~ /login.php/own/",
            "= /a",
        ]);
        for (path, location) in [
            ("/login.php", 1),
            ("/login.php/", 1),
            ("/login.php/x", 1),
            ("/login.php/x.php/y", 1),
            ("/login.php/own", 1),
            ("/admin/index.php", 3),
            ("/admin/index.php/x", 3),
            ("/admin/", 3),
            // Locations for these paths alone.
            ("/login.php/own/x", 6),
            // Other scripts, and paths of no script.
            ("/login.phpx", 0),
            ("/login.php.bak", 0),
            ("/x/login.php/y", 4),
            ("/other.php/login.php", 4),
            ("/admin/x", 2),
            ("/admin", 0),
            ("/a", 7),
            ("/a/b", 0),
        ] {
            let found = matcher.find(path.as_bytes()).map(|(found, _)| found);
            assert_eq!(found, Some(location), "{path}");
        }
    }

    #[test]
    fn an_expression_for_a_path_info_alone_precedes_the_exact_path_of_its_script() {
        let patterns = ["= /index.php", "~ ^/index\\.php/admin", "~ \\.php", "/"];
        let matcher = matcher(&patterns);
        for (path, location) in [
            ("/index.php/admin/x", 1),
            ("/index.php/other", 0),
            ("/other.php", 2),
            ("/", 0),
        ] {
            let found = matcher.find(path.as_bytes()).map(|(found, _)| found);
            assert_eq!(found, Some(location), "{path}");
        }
    }

    #[test]
    fn a_fixed_response_for_an_exact_path_of_php_is_for_that_path_alone() {
        let patterns: Vec<LocationPattern> = ["= /index.php", "/"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        for (script_use, expected) in [
            (ScriptUse::None, [0, 1, 1]),
            (ScriptUse::PathInfo, [0, 0, 1]),
            (ScriptUse::PathInfoAndFolder, [0, 0, 0]),
        ] {
            let matcher =
                LocationMatcher::new(patterns.iter().map(|pattern| (pattern, script_use)));
            let found = ["/index.php", "/index.php/x", "/"]
                .map(|path| matcher.find(path.as_bytes()).unwrap().0);
            assert_eq!(found, expected, "{script_use:?}");
        }
    }

    #[test]
    fn follows_the_order_of_nginx() {
        let matcher = matcher(&[
            "= /",
            "/",
            "/documents/",
            "^~ /images/",
            "~* \\.(gif|jpg|jpeg)$",
            "~ ^/documents/[A-Z]",
            "/images/raw/",
        ]);
        for (path, location, how) in [
            ("/", 0, LocationMatch::Exact),
            ("/index.html", 1, LocationMatch::Prefix),
            ("/documents/document.html", 2, LocationMatch::Prefix),
            ("/images/1.gif", 3, LocationMatch::FinalPrefix),
            ("/documents/1.JPG", 4, LocationMatch::Regex),
            ("/documents/A.jpg", 4, LocationMatch::Regex),
            ("/documents/A.txt", 5, LocationMatch::Regex),
            ("/images/raw/1.gif", 4, LocationMatch::Regex),
            ("/images/raw/1.txt", 6, LocationMatch::Prefix),
        ] {
            assert_eq!(
                matcher.find(path.as_bytes()),
                Some((location, how)),
                "{path}"
            );
        }
    }

    #[test]
    fn finds_nothing_without_a_match() {
        let matcher = matcher(&["= /a", "/b/", "~ ^/c$"]);
        for path in ["/", "/a/", "/b", "/c/"] {
            assert_eq!(matcher.find(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn a_regex_matches_bytes_that_are_not_utf8() {
        let matcher = matcher(&["~ \\.php$"]);
        assert!(matcher.find(b"/\xff.php").is_some());
    }

    #[test]
    fn refuses_what_no_request_can_match() {
        for pattern in [
            "", "a", "= a", "/a//b", "/a/../b", "/./", "! /a", "~ (", "=/a",
        ] {
            assert!(pattern.parse::<LocationPattern>().is_err(), "{pattern:?}");
        }
    }

    proptest! {
        #[test]
        fn longest_prefix_agrees_with_trying_all(
            prefixes in proptest::collection::btree_set("/[ab/]{0,5}", 0..8),
            path in "/[ab/]{0,8}",
        ) {
            let prefixes: Vec<_> = prefixes
                .into_iter()
                .filter(|text| text.parse::<LocationPattern>().is_ok())
                .collect();
            let matcher = matcher(&prefixes.iter().map(String::as_str).collect::<Vec<_>>());
            let expected = prefixes
                .iter()
                .filter(|prefix| path.starts_with(prefix.as_str()))
                .max_by_key(|prefix| prefix.len());
            let found = matcher
                .longest_prefix(path.as_bytes())
                .map(|prefix| String::from_utf8_lossy(&prefix.text).into_owned());
            prop_assert_eq!(found.as_ref(), expected);
        }
    }
}
