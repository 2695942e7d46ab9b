//! The list of files to try in turn, and what to do if there is none: `$uri`, `$uri/`, `=404`.

use std::fmt;

use apus_http::StatusCode;

use apus_http::path::encode;

/// Files and folders to look for in turn, and what happens if none is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryFiles {
    attempts: Vec<Attempt>,
    otherwise: Otherwise,
}

/// A path to look for: `$uri` in it stands for the path of the request below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    template: String,
    is_folder: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Otherwise {
    Status(StatusCode),
    Rewrite(String),
}

/// What is left when nothing was found.
pub(crate) enum Last {
    /// An answer with this status.
    Status(StatusCode),
    /// Another path and query, percent-encoded.
    Rewrite(String),
}

impl TryFiles {
    /// Reads a list as `["$uri", "$uri/", "/index.php?$args"]`. A path with a slash at its end is for
    /// folders with an index, any other for files. The last is not looked for, but taken: `=404` to
    /// answer with a status, or a path to continue with, in which `$args` stands for the query.
    ///
    /// # Errors
    /// The list is empty, a path does not start with `/` or `$uri`, or a status is not one.
    pub fn parse<S: AsRef<str>>(
        list: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidTryFiles> {
        let mut attempts = Vec::new();
        let mut last: Option<String> = None;
        for item in list {
            if let Some(template) = last.replace(item.as_ref().to_owned()) {
                check_path(&template)?;
                attempts.push(Attempt {
                    is_folder: template.ends_with('/'),
                    template: template.trim_end_matches('/').to_owned(),
                });
            }
        }
        let last = last.ok_or(InvalidTryFiles::Empty)?;
        let otherwise = match last.strip_prefix('=') {
            Some(code) => Otherwise::Status(
                code.parse()
                    .ok()
                    .filter(|status: &StatusCode| status.as_u16() >= 200)
                    .ok_or(InvalidTryFiles::Status(last.clone()))?,
            ),
            None => {
                check_path(&last)?;
                Otherwise::Rewrite(last)
            }
        };
        Ok(Self {
            attempts,
            otherwise,
        })
    }

    /// Whether a request for which there is no file goes on with another path.
    pub(crate) fn ends_with_path(&self) -> bool {
        matches!(self.otherwise, Otherwise::Rewrite(_))
    }

    /// The paths to look for, and whether as folders, for a request of `uri`.
    pub(crate) fn attempts(&self, uri: &[u8]) -> impl Iterator<Item = (Vec<u8>, bool)> {
        self.attempts.iter().map(move |attempt| {
            let mut path = Vec::with_capacity(uri.len().saturating_add(16));
            let mut pieces = attempt.template.split("$uri");
            push_path(&mut path, pieces.next().unwrap_or_default().as_bytes());
            for piece in pieces {
                push_path(&mut path, uri);
                push_path(&mut path, piece.as_bytes());
            }
            while path.last() == Some(&b'/') {
                path.pop();
            }
            (path, attempt.is_folder)
        })
    }

    /// What to do if none of them is there.
    pub(crate) fn last(&self, uri: &[u8], query: Option<&str>) -> Last {
        match &self.otherwise {
            Otherwise::Status(status) => Last::Status(*status),
            Otherwise::Rewrite(template) => Last::Rewrite(
                template
                    .replace("$uri", &encode(uri))
                    .replace("$is_args", if query.is_some() { "?" } else { "" })
                    .replace("$query_string", query.unwrap_or_default())
                    .replace("$args", query.unwrap_or_default()),
            ),
        }
    }
}

/// Appends part of a path, with no slash after a slash.
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
    /// There is nothing in it, so it does not say what to do in the end.
    Empty,
    /// What is not a path below the root.
    Path(String),
    /// `=` without a final status, from 200 to 999.
    Status(String),
}

impl fmt::Display for InvalidTryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected paths and a last resort, such as \"=404\""),
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
        let attempts: Vec<_> = list.attempts(b"/a b/").collect();
        assert_eq!(
            attempts,
            [
                (b"/a b".to_vec(), false),
                (b"/a b".to_vec(), true),
                (b"/cache/a b/.html".to_vec(), false),
            ]
        );
        let Last::Rewrite(uri) = list.last(b"/a b/", Some("x=1")) else {
            panic!("a status");
        };
        assert_eq!(uri, "/index.php?q=/a%20b/&x=1");
    }

    #[test]
    fn refuses_what_is_no_list() {
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
