//! The change of the path of requests for the origin, and its reverse for references in responses.

use apus_http::path::strip_decoded_prefix;

/// The replacement of a prefix of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The prefix.
    pub strip: Box<str>,
    /// Its replacement, which starts with `/`.
    pub put: Box<str>,
}

impl PathChange {
    /// Returns the changed path; `None` if it does not start with the prefix in any encoding.
    pub(super) fn apply(&self, path: &str) -> Option<ChangedPath> {
        let rest = strip_decoded_prefix(path, self.strip.as_bytes())?;
        Some(ChangedPath::Path(if rest.is_empty() {
            self.put.clone().into()
        } else if self.strip.ends_with('/') {
            format!("{}/{rest}", trimmed(&self.put))
        } else if rest.starts_with('/') {
            format!("{}{rest}", trimmed(&self.put))
        } else if self.put.ends_with('/') {
            // The prefix ends inside a segment. Its rest behind a slash would be the path of another request.
            return Some(ChangedPath::Outside);
        } else {
            format!("{}{rest}", self.put)
        }))
    }

    /// Returns the path of the site for a path of the origin; `None` if it stays as it is: it is not below the
    /// replacement, or is below the prefix already, which is not below the replacement itself.
    pub(super) fn reverse(&self, path: &str) -> Option<String> {
        let is_own = !is_below(&self.put, &self.strip) && is_below(path, &self.strip);
        if is_own || !is_below(path, &self.put) {
            return None;
        }
        let rest = path.get(trimmed(&self.put).len()..)?;
        let strip = if rest.is_empty() {
            &*self.strip
        } else {
            trimmed(&self.strip)
        };
        let changed = format!("{strip}{rest}");
        // Browsers read an authority behind two slashes.
        (!starts_with_authority(&changed)).then_some(changed)
    }
}

/// What a path becomes for the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangedPath {
    /// This path.
    Path(String),
    /// None: the prefix ends inside a segment of the path.
    Outside,
}

/// A path without the slash at its end.
fn trimmed(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Whether a path without its query is a folder, or is below it.
fn is_below(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(trimmed(folder));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether browsers read the start of a relative reference as an authority.
pub(super) fn starts_with_authority(reference: &str) -> bool {
    let mut bytes = reference.bytes();
    let is_slash = |byte| matches!(byte, Some(b'/' | b'\\'));
    is_slash(bytes.next()) && is_slash(bytes.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_prefix_of_a_path() {
        for (strip, put, path, expected) in [
            ("/api/", "/", "/api/x", Some("/x")),
            ("/api", "/", "/api/x", Some("/x")),
            ("/api", "/", "/api", Some("/")),
            ("/api/", "/v1/", "/api/x?", Some("/v1/x?")),
            ("/api", "/v1", "/api/x", Some("/v1/x")),
            ("/api/", "/v1", "/api/x", Some("/v1/x")),
            ("/", "/base/", "/x", Some("/base/x")),
            ("/api/", "/", "/other", None),
            ("/api/", "/public/", "/%61pi/x", Some("/public/x")),
            ("/api/", "/", "/api/a%2Fb", Some("/a%2Fb")),
        ] {
            let change = PathChange {
                strip: strip.into(),
                put: put.into(),
            };
            let expected = expected.map(|path| ChangedPath::Path(path.to_owned()));
            assert_eq!(change.apply(path), expected, "{strip} {put} {path}");
        }
    }

    fn change(strip: &str, put: &str) -> PathChange {
        PathChange {
            strip: strip.into(),
            put: put.into(),
        }
    }

    #[test]
    fn a_prefix_that_ends_inside_a_segment_never_reaches_the_path_of_another_request() {
        for (strip, put, path, expected) in [
            ("/w", "/w1", "/wx", Some("/w1x")),
            ("/w", "/w1", "/w/x", Some("/w1/x")),
            ("/w", "/w1", "/w", Some("/w1")),
            ("/w", "/w1", "/w%2Fx", Some("/w1%2Fx")),
            ("/w", "/w1", "/w../x", Some("/w1../x")),
            ("/w", "/w1", "/w;/x", Some("/w1;/x")),
            // `/x` is the path of `/w/x`.
            ("/w", "/", "/wx", None),
            ("/w", "/w1/", "/wx", None),
            ("/w", "/", "/w../x", None),
            ("/w", "/w1/", "/w../x", None),
            ("/w", "/", "/w", Some("/")),
            ("/w", "/", "/w/x", Some("/x")),
            ("/w/", "/", "/w//x", Some("//x")),
            ("/w/", "/v/", "/w//x", Some("/v//x")),
            ("/w/", "/v", "/w//x", Some("/v//x")),
            ("/w", "/v", "/w//x", Some("/v//x")),
            ("/w/", "/v/", "/w/%2Fx", Some("/v/%2Fx")),
        ] {
            let expected = expected.map_or(ChangedPath::Outside, |path| {
                ChangedPath::Path(path.to_owned())
            });
            let changed = change(strip, put).apply(path);
            assert_eq!(changed, Some(expected), "{strip} {put} {path}");
        }
    }

    #[test]
    fn a_path_of_the_origin_is_mapped_back_to_that_of_the_location() {
        for (strip, put, path, expected) in [
            ("/app/", "/v1/", "/v1/login", Some("/app/login")),
            ("/app/", "/v1/", "/v1/", Some("/app/")),
            ("/app/", "/v1/", "/v1", Some("/app/")),
            ("/app/", "/v1", "/v1/login", Some("/app/login")),
            ("/app", "/v1", "/v1/login", Some("/app/login")),
            ("/app", "/v1", "/v1", Some("/app")),
            ("/app/", "/", "/login", Some("/app/login")),
            ("/app/", "/", "/", Some("/app/")),
            ("/", "/v1/", "/v1/login", Some("/login")),
            ("/", "/v1/", "/v1", Some("/")),
            ("/v1/", "/v1/v2/", "/v1/v2/a", Some("/v1/a")),
            // Not below the path of the upstream.
            ("/app/", "/v1/", "/other", None),
            ("/app/", "/v1/", "/v12", None),
            ("/app/", "/v1/", "/", None),
            ("/v1/", "/v1/v2/", "/v1/a", None),
            // The origin knows the location.
            ("/app/", "/", "/app/login", None),
            ("/app/", "/", "/app", None),
            ("/app/", "/v1/", "/app/login", None),
            // Another host.
            ("/", "/v1/", "/v1//evil.example", None),
            ("/", "/v1/", "/v1/\\evil.example", None),
        ] {
            let reversed = change(strip, put).reverse(path);
            assert_eq!(reversed.as_deref(), expected, "{strip} {put} {path}");
        }
    }
}
