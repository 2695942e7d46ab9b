//! `RoutePattern`: the path of a route, as `/users/{id}`, `/users/{id:[0-9]+}` or `/files/{*rest}`.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use smallvec::SmallVec;

use apus_http::path;

use super::constraint::Constraint;

/// The ranges of the parameter values in a path, in order.
pub(crate) type Ranges = SmallVec<[Range<usize>; 4]>;

/// The parsed path of a route.
#[derive(Clone, Debug)]
pub(crate) struct RoutePattern {
    /// As it was written.
    text: Box<str>,
    parts: Vec<PatternPart>,
    names: Box<[Box<str>]>,
    /// The whole path with its constraints, if it has any.
    constraint: Option<Constraint>,
    /// Whether it is the root of a group, which also matches with a slash at the end.
    is_root: bool,
    /// Whether each parameter ends with a segment.
    has_whole_segments: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Literal(String),
    /// One segment, or a part of one.
    Parameter(Box<str>),
    /// The rest of the path.
    Rest(Box<str>),
}

/// Why a text is not a valid path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoutePatternError {
    NotAbsolute,
    NotClosed,
    NoName,
    NameTwice(String),
    RestNotLast(String),
    Constraint(String, String),
    /// No path in normal form matches; with the reason.
    NeverMatches(String),
}

impl RoutePattern {
    /// Parses a path; `{{` and `}}` stand for braces.
    pub(crate) fn parse(text: &str) -> Result<Self, RoutePatternError> {
        if !text.starts_with('/') {
            return Err(RoutePatternError::NotAbsolute);
        }
        let mut parts = Vec::new();
        let mut names: Vec<Box<str>> = Vec::new();
        let mut literal = String::new();
        let mut whole = String::from("^");
        let mut is_constrained = false;
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let escaped = ["{{", "}}"].into_iter().find(|two| rest.starts_with(two));
            if escaped.is_some() || character != '{' {
                literal.push(character);
                let taken = escaped.map_or(character.len_utf8(), str::len);
                rest = rest.get(taken..).unwrap_or("");
                continue;
            }
            let inside = inside(rest).ok_or(RoutePatternError::NotClosed)?;
            rest = rest.get(inside.len().saturating_add(2)..).unwrap_or("");
            let (name, constraint) = match inside.split_once(':') {
                Some((name, constraint)) => (name, Some(constraint)),
                None => (inside, None),
            };
            let (name, is_rest) = match name.strip_prefix('*') {
                Some(name) => (name, true),
                None => (name, false),
            };
            if name.is_empty() {
                return Err(RoutePatternError::NoName);
            }
            if names.iter().any(|other| **other == *name) {
                return Err(RoutePatternError::NameTwice(name.to_owned()));
            }
            if is_rest && !rest.is_empty() {
                return Err(RoutePatternError::RestNotLast(name.to_owned()));
            }
            if let Some(constraint) = constraint {
                Constraint::new(constraint).map_err(|why| {
                    RoutePatternError::Constraint(name.to_owned(), why.to_string())
                })?;
                is_constrained = true;
            }
            let default = if is_rest { ".+" } else { "[^/]+?" };
            // A separate group keeps the alternatives of a constraint together.
            let _ = write!(
                whole,
                "{}((?:{}))",
                Constraint::escape(&literal),
                constraint.unwrap_or(default)
            );
            if !literal.is_empty() {
                parts.push(PatternPart::Literal(std::mem::take(&mut literal)));
            }
            names.push(name.into());
            parts.push(if is_rest {
                PatternPart::Rest(name.into())
            } else {
                PatternPart::Parameter(name.into())
            });
        }
        let _ = write!(whole, "{}$", Constraint::escape(&literal));
        if !literal.is_empty() {
            parts.push(PatternPart::Literal(literal));
        }
        if let Some(why) = mismatch(&parts) {
            return Err(RoutePatternError::NeverMatches(why));
        }
        let constraint = is_constrained.then(|| Constraint::new(&whole)).transpose();
        let has_whole_segments = parts.windows(2).all(|pair| match pair {
            [PatternPart::Parameter(_), PatternPart::Literal(next)] => next.starts_with('/'),
            [PatternPart::Parameter(_), _] => false,
            _ => true,
        });
        Ok(Self {
            text: text.into(),
            parts,
            constraint: constraint
                .map_err(|why| RoutePatternError::Constraint(text.to_owned(), why.to_string()))?,
            names: names.into(),
            is_root: false,
            has_whole_segments,
        })
    }

    /// This pattern under a path.
    pub(crate) fn under(&self, prefix: &str) -> Result<Self, RoutePatternError> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        match (prefix, &*self.text) {
            ("", _) => Ok(self.clone()),
            (prefix, "/") => Ok(Self {
                is_root: true,
                ..Self::parse(prefix)?
            }),
            (prefix, text) => Self::parse(&format!("{prefix}{text}")),
        }
    }

    /// As it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters, in order.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Whether its last parameter is the rest of the path.
    pub(crate) fn takes_rest(&self) -> bool {
        matches!(self.parts.last(), Some(PatternPart::Rest(_)))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.is_root
    }

    pub(crate) fn is_constrained(&self) -> bool {
        self.constraint.is_some()
    }

    /// The pattern with numbers in place of names and without constraints. Two patterns of the same shape
    /// match the same paths, constraints aside.
    pub(crate) fn shape(&self) -> String {
        let mut shape = String::new();
        let mut number = 0_usize;
        for part in &self.parts {
            let _ = match part {
                PatternPart::Literal(text) => {
                    let text = text.replace('{', "{{").replace('}', "}}");
                    write!(shape, "{text}")
                }
                PatternPart::Parameter(_) => write!(shape, "{{{number}}}"),
                PatternPart::Rest(_) => write!(shape, "{{*{number}}}"),
            };
            number = number.saturating_add(usize::from(!matches!(part, PatternPart::Literal(_))));
        }
        shape
    }

    /// The constraints as text. Two patterns of one shape with the same constraints are equal.
    pub(crate) fn constraint(&self) -> Option<&str> {
        self.constraint.as_ref().map(Constraint::as_str)
    }

    /// Whether a path of this shape also meets the constraints.
    pub(crate) fn permits(&self, path: &str) -> bool {
        self.constraint
            .as_ref()
            .is_none_or(|constraint| constraint.matches(path))
    }

    /// The ranges of the parameters in a path of this shape; `None` if one of them may end within a segment.
    pub(crate) fn ranges_of_segments(&self, path: &str) -> Option<Ranges> {
        let mut ranges = Ranges::new();
        let mut at = 0_usize;
        for part in self.parts.iter().filter(|_| self.has_whole_segments) {
            let rest = path.as_bytes().get(at..)?;
            let length = match part {
                PatternPart::Literal(text) => text.len(),
                PatternPart::Parameter(_) => {
                    let end = rest.iter().position(|byte| *byte == b'/');
                    end.unwrap_or(rest.len())
                }
                PatternPart::Rest(_) => rest.len(),
            };
            let end = at.saturating_add(length);
            if !matches!(part, PatternPart::Literal(_)) {
                ranges.push(at..end);
            }
            at = end;
        }
        self.has_whole_segments.then_some(ranges)
    }

    /// The ranges of the parameters if a path matches the pattern and its constraints. It is slower than
    /// the tree of the router, and used only where the tree found no match.
    pub(crate) fn find(&self, path: &str) -> Option<Ranges> {
        let mut ranges = Ranges::new();
        if let Some(constraint) = &self.constraint {
            // The groups inside a constraint are not parameters.
            let mut end = 0;
            for group in constraint.groups(path)? {
                if ranges.len() < self.names.len() && (group.start >= end || ranges.is_empty()) {
                    end = group.end;
                    ranges.push(group);
                }
            }
            return Some(ranges);
        }
        let mut at = 0_usize;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let rest = path.get(at..)?;
            match part {
                PatternPart::Literal(text) => {
                    rest.strip_prefix(text.as_str())?;
                    at = at.saturating_add(text.len());
                }
                PatternPart::Rest(_) => {
                    (!rest.is_empty()).then(|| ranges.push(at..path.len()))?;
                    at = path.len();
                }
                PatternPart::Parameter(_) => {
                    let segment = rest.split('/').next().unwrap_or("");
                    let length = match parts.peek() {
                        Some(PatternPart::Literal(next)) => {
                            let next = next.split('/').next().unwrap_or("");
                            match next {
                                "" => segment.len(),
                                next => segment.rfind(next)?,
                            }
                        }
                        _ => segment.len(),
                    };
                    (length > 0).then(|| ranges.push(at..at.saturating_add(length)))?;
                    at = at.saturating_add(length);
                }
            }
        }
        (at == path.len()).then_some(ranges)
    }

    /// The path with these values, percent-encoded. It removes the values that it uses.
    pub(crate) fn fill(&self, values: &mut Vec<(&str, String)>) -> Result<String, PathValueError> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                PatternPart::Literal(text) => path::encode_onto(&mut filled, text.as_bytes()),
                PatternPart::Parameter(name) | PatternPart::Rest(name) => {
                    let at = values.iter().position(|(given, _)| *given == &**name);
                    let at = at.ok_or_else(|| PathValueError::Missing(name.to_string()))?;
                    let (_, value) = values.remove(at);
                    let unfit = || PathValueError::Invalid(name.to_string(), value.clone());
                    let is_segment = matches!(part, PatternPart::Parameter(_));
                    if value.is_empty()
                        || (is_segment && value.contains('/'))
                        || value
                            .split('/')
                            .any(|segment| matches!(segment, "." | ".."))
                    {
                        return Err(unfit());
                    }
                    path::encode_onto(&mut filled, value.as_bytes());
                }
            }
        }
        Ok(filled)
    }
}

/// Why no path in normal form matches these parts. Paths are matched decoded, without empty segments and without
/// dots for segments.
fn mismatch(parts: &[PatternPart]) -> Option<String> {
    for (index, part) in parts.iter().enumerate() {
        let PatternPart::Literal(text) = part else {
            continue;
        };
        let last = text.split('/').count().saturating_sub(1);
        // What is before the first slash belongs to a parameter, or is empty.
        for (number, segment) in text.split('/').enumerate().skip(1) {
            let is_whole = number < last || index.saturating_add(1) == parts.len();
            if let Some(name) = segment.strip_prefix([':', '*'])
                && !name.is_empty()
            {
                let star = if segment.starts_with('*') { "*" } else { "" };
                return Some(format!(
                    "a parameter is `{{{star}{name}}}`, not `{segment}`"
                ));
            }
            if is_whole && matches!(segment, "." | "..") {
                return Some(format!("`{segment}` is resolved before"));
            }
            if is_whole && segment.is_empty() && number < last {
                return Some("empty segments are removed before".to_owned());
            }
        }
        if let Some(encoded) = text.split('%').skip(1).find_map(|rest| {
            let digits = rest.get(..2)?;
            let is_hex = digits.bytes().all(|digit| path::hex(digit).is_some());
            is_hex.then(|| format!("%{digits}"))
        }) {
            return Some(format!(
                "paths are decoded before, so write the character for `{encoded}`"
            ));
        }
        if text.chars().any(|character| character.is_ascii_control()) {
            return Some("paths with control characters are rejected".to_owned());
        }
    }
    None
}

/// The text between a brace and its closing brace.
fn inside(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '{' => depth = depth.saturating_add(1),
            '}' if depth == 1 => return text.get(1..at),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Why a path cannot be made of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathValueError {
    Missing(String),
    Invalid(String, String),
}

impl Display for RoutePatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("it must start with a slash"),
            Self::NotClosed => f.write_str("a `{` is never closed; a brace itself is `{{` or `}}`"),
            Self::NoName => f.write_str("a parameter has no name"),
            Self::NameTwice(name) => write!(f, "two parameters are named {name:?}"),
            Self::RestNotLast(name) => {
                write!(
                    f,
                    "`{{*{name}}}` matches the rest of the path, so it must be last"
                )
            }
            Self::NeverMatches(why) => write!(f, "no request matches it: {why}"),
            Self::Constraint(name, error) => write!(f, "the constraint of {name:?}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, path: &str) -> Option<Vec<String>> {
        let pattern = RoutePattern::parse(text).unwrap();
        let ranges = pattern.find(path)?;
        Some(
            ranges
                .into_iter()
                .map(|range| path[range].to_owned())
                .collect(),
        )
    }

    #[test]
    fn parameters_of_whole_segments_are_found_without_a_search() {
        for (text, path) in [
            ("/", "/"),
            ("/users/{id}", "/users/7"),
            ("/v{version}/{*rest}", "/v1/a/b"),
            ("/{a}/x/{b}/", "/1/x/2/"),
        ] {
            let pattern = RoutePattern::parse(text).unwrap();
            assert_eq!(
                pattern.ranges_of_segments(path),
                pattern.find(path),
                "{path}"
            );
        }
        let partial = RoutePattern::parse("/{a}.json").unwrap();
        assert_eq!(partial.ranges_of_segments("/x.json"), None);
    }

    #[test]
    fn paths_are_matched_segment_by_segment() {
        assert_eq!(values("/", "/").unwrap().len(), 0);
        assert_eq!(values("/users/{id}", "/users/7").unwrap(), ["7"]);
        assert_eq!(values("/users/{id}", "/users/"), None);
        assert_eq!(values("/users/{id}", "/users/7/x"), None);
        assert_eq!(
            values("/{a}/{b}.json", "/x/y.z.json").unwrap(),
            ["x", "y.z"]
        );
        assert_eq!(values("/f/{*rest}", "/f/a/b").unwrap(), ["a/b"]);
        assert_eq!(values("/{{x}}", "/{x}").unwrap().len(), 0);
    }

    #[test]
    fn constraints_match_the_whole_value() {
        let pattern = "/users/{id:[0-9]+}/{kind:new|old}";
        assert_eq!(values(pattern, "/users/7/new").unwrap(), ["7", "new"]);
        assert_eq!(values(pattern, "/users/7x/new"), None);
        assert_eq!(values(pattern, "/users/7/newer"), None);
        assert_eq!(
            values("/{date:(\\d{4})-(\\d{2})}/{b}", "/2026-11/x").unwrap(),
            ["2026-11", "x"]
        );
        assert!(
            RoutePattern::parse(pattern)
                .unwrap()
                .permits("/users/7/old")
        );
    }

    #[test]
    fn invalid_paths_are_errors() {
        for (text, why) in [
            ("users", RoutePatternError::NotAbsolute),
            ("/{id", RoutePatternError::NotClosed),
            ("/{}", RoutePatternError::NoName),
            ("/{a}/{a}", RoutePatternError::NameTwice("a".into())),
            ("/{*a}/b", RoutePatternError::RestNotLast("a".into())),
        ] {
            assert_eq!(RoutePattern::parse(text).unwrap_err(), why, "{text}");
        }
        let error = RoutePattern::parse("/{a:[}").unwrap_err();
        assert!(matches!(error, RoutePatternError::Constraint(name, _) if name == "a"));
    }

    #[test]
    fn values_fill_a_path() {
        let fill = |text: &str, values: &[(&str, &str)]| {
            let mut values = values
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect();
            RoutePattern::parse(text).unwrap().fill(&mut values)
        };
        assert_eq!(fill("/u/{id}", &[("id", "a b?")]).unwrap(), "/u/a%20b%3F");
        assert_eq!(fill("/f/{*rest}", &[("rest", "a/b")]).unwrap(), "/f/a/b");
        assert_eq!(
            fill("/u/{id}", &[]),
            Err(PathValueError::Missing("id".into()))
        );
        assert!(matches!(
            fill("/u/{id}", &[("id", "a/b")]),
            Err(PathValueError::Invalid(..))
        ));
    }

    #[test]
    fn shapes_have_no_names_and_constraints() {
        let shape = |text: &str| RoutePattern::parse(text).unwrap().shape();
        assert_eq!(shape("/a/{b:[0-9]+}/{*c}"), "/a/{0}/{*1}");
        assert_eq!(shape("/a/{x}/{*y}"), shape("/a/{b:[0-9]+}/{*c}"));
    }
}
