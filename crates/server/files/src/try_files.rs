//! The list of paths to try, as in nginx's `try_files`: `$uri`, `$uri/`, `=404`.

use std::fmt;
use std::sync::Arc;

use apus_http::{Request, StatusCode};

use apus_http::path::encode;

/// The URI of a rewrite, which is made for each request.
pub trait RewriteUri: fmt::Debug + Send + Sync {
    /// The path and query for a request, percent-encoded; `path` is its path in normal form. A value
    /// of the request must not end the path, nor add parameters to the query.
    fn uri(&self, request: &Request, path: &[u8]) -> Vec<u8>;

    /// Whether the URI depends only on the request target, so that a cache may keep the response to
    /// the rewritten request for others with the same target.
    fn depends_only_on_target(&self) -> bool;
}

/// Files and folders to try in order, and what to do if none of them exists.
#[derive(Clone, Debug)]
pub struct TryFiles {
    paths: Vec<TryPath>,
    last: LastAction,
}

/// A path to try, in which `$uri` stands for the path of the request below the root.
#[derive(Clone, Debug)]
struct TryPath {
    template: String,
    is_folder: bool,
}

/// What to do if no path exists.
#[derive(Clone, Debug)]
pub(crate) enum LastAction {
    /// A response with this status.
    Status(StatusCode),
    /// A rewrite to this path and query.
    Rewrite(Arc<dyn RewriteUri>),
}

/// A URI with the variables `$uri`, `$args`, `$query_string` and `$is_args`.
#[derive(Debug)]
struct UriText(Vec<UriPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum UriPart {
    Text(String),
    /// The path, in the path of the URI.
    Path,
    /// The path, in the query of the URI.
    PathInQuery,
    Query,
    /// `?` if there is a query.
    QuestionMark,
}

const URI_VARIABLES: [(&str, UriPart); 4] = [
    ("$uri", UriPart::Path),
    ("$is_args", UriPart::QuestionMark),
    ("$query_string", UriPart::Query),
    ("$args", UriPart::Query),
];

impl UriText {
    fn parse(mut text: &str) -> Self {
        let mut parts = Vec::new();
        let mut is_query = false;
        while !text.is_empty() {
            let variable = URI_VARIABLES
                .iter()
                .find_map(|(name, part)| Some((text.strip_prefix(name)?, part)));
            if let Some((rest, part)) = variable {
                is_query |= matches!(part, UriPart::QuestionMark);
                parts.push(match part {
                    UriPart::Path if is_query => UriPart::PathInQuery,
                    part => part.clone(),
                });
                text = rest;
                continue;
            }
            let end = text.char_indices().skip(1).find(|(_, char)| *char == '$');
            let end = end.map_or(text.len(), |(at, _)| at);
            let (literal, rest) = text.split_at_checked(end).unwrap_or((text, ""));
            is_query |= literal.contains('?');
            parts.push(UriPart::Text(literal.to_owned()));
            text = rest;
        }
        Self(parts)
    }
}

impl RewriteUri for UriText {
    fn uri(&self, request: &Request, path: &[u8]) -> Vec<u8> {
        let query = request.query();
        let parts = self.0.iter().map(|part| match part {
            UriPart::Text(text) => text.clone(),
            UriPart::Path => encode(path),
            UriPart::PathInQuery => encode_in_query(path),
            UriPart::Query => query.unwrap_or_default().to_owned(),
            UriPart::QuestionMark => query.map_or("", |_| "?").to_owned(),
        });
        parts.collect::<String>().into_bytes()
    }

    fn depends_only_on_target(&self) -> bool {
        true
    }
}

/// A path as the value of a parameter, percent-encoded with the separators of a query.
fn encode_in_query(path: &[u8]) -> String {
    let mut text = String::new();
    for char in encode(path).chars() {
        match char {
            '&' => text.push_str("%26"),
            '+' => text.push_str("%2B"),
            ';' => text.push_str("%3B"),
            '=' => text.push_str("%3D"),
            char => text.push(char),
        }
    }
    text
}

impl TryFiles {
    /// Parses a list such as `["$uri", "$uri/", "/index.php?$args"]`. A path with a slash at its
    /// end matches folders with an index, any other path matches files. The last parameter is not
    /// looked up: it is `=404` to respond with a status, or a path to continue with, in which
    /// `$args` stands for the query. There, `$uri` behind a `?` cannot add parameters.
    ///
    /// # Errors
    /// The list is empty, a path does not start with `/` or `$uri`, or a status is not one.
    pub fn parse<S: AsRef<str>>(
        list: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidTryFiles> {
        Self::parse_with(list, |last| Ok(Arc::new(UriText::parse(last))))
    }

    /// As [`TryFiles::parse`], with `rewrite` for a path as last parameter.
    ///
    /// # Errors
    /// As of [`TryFiles::parse`], or of `rewrite`.
    pub fn parse_with<S: AsRef<str>>(
        list: impl IntoIterator<Item = S>,
        rewrite: impl FnOnce(&str) -> Result<Arc<dyn RewriteUri>, InvalidTryFiles>,
    ) -> Result<Self, InvalidTryFiles> {
        let mut paths = Vec::new();
        let mut last: Option<String> = None;
        for item in list {
            if let Some(template) = last.replace(item.as_ref().to_owned()) {
                check_path(&template)?;
                paths.push(TryPath {
                    is_folder: template.ends_with('/'),
                    template: template.trim_end_matches('/').to_owned(),
                });
            }
        }
        let last = last.ok_or(InvalidTryFiles::Empty)?;
        let last = match last.strip_prefix('=') {
            Some(code) => LastAction::Status(
                code.parse()
                    .ok()
                    .filter(|status: &StatusCode| status.as_u16() >= 200)
                    .ok_or(InvalidTryFiles::Status(last.clone()))?,
            ),
            None => {
                check_path(&last)?;
                LastAction::Rewrite(rewrite(&last)?)
            }
        };
        Ok(Self { paths, last })
    }

    /// Whether the last parameter is a path.
    pub(crate) fn ends_with_path(&self) -> bool {
        matches!(self.last, LastAction::Rewrite(_))
    }

    /// The paths to try for `uri`, each with whether it is for folders.
    pub(crate) fn candidates(&self, uri: &[u8]) -> impl Iterator<Item = (Vec<u8>, bool)> {
        self.paths.iter().map(move |candidate| {
            let mut path = Vec::with_capacity(uri.len().saturating_add(16));
            let mut pieces = candidate.template.split("$uri");
            push_path(&mut path, pieces.next().unwrap_or_default().as_bytes());
            for piece in pieces {
                push_path(&mut path, uri);
                push_path(&mut path, piece.as_bytes());
            }
            while path.last() == Some(&b'/') {
                path.pop();
            }
            (path, candidate.is_folder)
        })
    }

    /// What to do if no path exists.
    pub(crate) fn last_action(&self) -> LastAction {
        self.last.clone()
    }
}

/// Appends to a path without repeating a slash.
fn push_path(path: &mut Vec<u8>, part: &[u8]) {
    for byte in part {
        if *byte != b'/' || path.last() != Some(&b'/') {
            path.push(*byte);
        }
    }
}

fn check_path(path: &str) -> Result<(), InvalidTryFiles> {
    if path.starts_with('/') || path.starts_with("$uri") {
        Ok(())
    } else {
        Err(InvalidTryFiles::Path(path.to_owned()))
    }
}

/// Why a list of files to try is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTryFiles {
    /// The list is empty, so that the last parameter is missing.
    Empty,
    /// This is not a path below the root.
    Path(String),
    /// `=` without a final status, from 200 to 999.
    Status(String),
    /// The path to continue with has this mistake.
    Rewrite(String),
}

impl fmt::Display for InvalidTryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected paths and a last parameter such as \"=404\""),
            Self::Path(path) => write!(f, "expected a path from / or $uri, found {path:?}"),
            Self::Status(status) => {
                write!(f, "expected a status such as \"=404\", found {status:?}")
            }
            Self::Rewrite(mistake) => f.write_str(mistake),
        }
    }
}

impl std::error::Error for InvalidTryFiles {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_the_path_of_the_request() {
        let list = TryFiles::parse([
            "$uri",
            "$uri/",
            "/cache$uri.html",
            "/index.php?q=$uri&$args",
        ])
        .unwrap();
        let paths: Vec<_> = list.candidates(b"/a b/").collect();
        assert_eq!(
            paths,
            [
                (b"/a b".to_vec(), false),
                (b"/a b".to_vec(), true),
                (b"/cache/a b/.html".to_vec(), false),
            ]
        );
    }

    #[test]
    fn a_path_cannot_add_parameters_to_the_query_of_the_last_parameter() {
        for (last, parts) in [
            (
                "/index.php?q=$uri&$args",
                vec![
                    UriPart::Text("/index.php?q=".into()),
                    UriPart::PathInQuery,
                    UriPart::Text("&".into()),
                    UriPart::Query,
                ],
            ),
            (
                "$uri$is_args$args",
                vec![UriPart::Path, UriPart::QuestionMark, UriPart::Query],
            ),
            (
                "/$",
                vec![UriPart::Text("/".into()), UriPart::Text("$".into())],
            ),
        ] {
            assert_eq!(UriText::parse(last).0, parts, "{last}");
        }
        assert_eq!(
            encode_in_query(b"/a b&c=d;e+f?"),
            "/a%20b%26c%3Dd%3Be%2Bf%3F"
        );
    }

    #[test]
    fn rejects_invalid_lists() {
        assert_eq!(TryFiles::parse([""; 0]).err(), Some(InvalidTryFiles::Empty));
        for list in [
            &["uri", "=404"][..],
            &["$uri", "index.html"],
            &["$uri", "=4"],
            &["=100"],
        ] {
            assert!(TryFiles::parse(list).is_err(), "{list:?}");
        }
    }
}
