//! The list of paths to try, as in nginx's `try_files`: `$uri`, `$uri/`, `=404`.

use std::fmt;

use apus_http::StatusCode;

use apus_http::path::encode;

/// Files and folders to try in order, and what to do if none of them exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryFiles {
    paths: Vec<TryPath>,
    last: LastParameter,
}

/// A path to try, in which `$uri` stands for the path of the request below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TryPath {
    template: String,
    is_folder: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LastParameter {
    Status(StatusCode),
    Rewrite(String),
}

/// What to do if no path exists.
pub(crate) enum LastAction {
    /// A response with this status.
    Status(StatusCode),
    /// A rewrite to this path and query, percent-encoded.
    Rewrite(String),
}

impl TryFiles {
    /// Parses a list such as `["$uri", "$uri/", "/index.php?$args"]`. A path with a slash at its
    /// end matches folders with an index, any other path matches files. The last parameter is not
    /// looked up: it is `=404` to respond with a status, or a path to continue with, in which
    /// `$args` stands for the query.
    ///
    /// # Errors
    /// The list is empty, a path does not start with `/` or `$uri`, or a status is not one.
    pub fn parse<S: AsRef<str>>(
        list: impl IntoIterator<Item = S>,
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
            Some(code) => LastParameter::Status(
                code.parse()
                    .ok()
                    .filter(|status: &StatusCode| status.as_u16() >= 200)
                    .ok_or(InvalidTryFiles::Status(last.clone()))?,
            ),
            None => {
                check_path(&last)?;
                LastParameter::Rewrite(last)
            }
        };
        Ok(Self { paths, last })
    }

    /// Whether the last parameter is a path.
    pub(crate) fn ends_with_path(&self) -> bool {
        matches!(self.last, LastParameter::Rewrite(_))
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

    /// What to do for `uri` if no path exists.
    pub(crate) fn last_action(&self, uri: &[u8], query: Option<&str>) -> LastAction {
        match &self.last {
            LastParameter::Status(status) => LastAction::Status(*status),
            LastParameter::Rewrite(template) => LastAction::Rewrite(
                template
                    .replace("$uri", &encode(uri))
                    .replace("$is_args", if query.is_some() { "?" } else { "" })
                    .replace("$query_string", query.unwrap_or_default())
                    .replace("$args", query.unwrap_or_default()),
            ),
        }
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
}

impl fmt::Display for InvalidTryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected paths and a last parameter such as \"=404\""),
            Self::Path(path) => write!(f, "expected a path from / or $uri, found {path:?}"),
            Self::Status(status) => {
                write!(f, "expected a status such as \"=404\", found {status:?}")
            }
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
        let LastAction::Rewrite(uri) = list.last_action(b"/a b/", Some("x=1")) else {
            panic!("a status");
        };
        assert_eq!(uri, "/index.php?q=/a%20b/&x=1");
    }

    #[test]
    fn rejects_invalid_lists() {
        assert_eq!(TryFiles::parse([""; 0]), Err(InvalidTryFiles::Empty));
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
