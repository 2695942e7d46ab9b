//! The headers of a response for the client: redirects and cookies are changed to the URLs of the site.

use apus_http::url::UrlParts;
use apus_http::{FieldSet, Headers, KnownField};
use apus_upstream::plan::SameSite;

use super::path_change::{PathChange, starts_with_authority};

/// Replaces the prefix of a `Location` or `Refresh` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectRule {
    /// The prefix, such as `http://internal:8080/app/`.
    pub from: Box<str>,
    /// Its replacement, such as `/`.
    pub to: Box<str>,
}

impl RedirectRule {
    /// The rule that keeps all references as the origin sends them. Rules after it have no effect.
    pub fn keep() -> Self {
        Self {
            from: "".into(),
            to: "".into(),
        }
    }
}

/// Changes the attributes of cookies that an origin sets (RFC 6265 section 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRules {
    /// Domains and their replacements; an empty replacement removes the attribute.
    pub domains: Vec<(Box<str>, Box<str>)>,
    /// Prefixes of paths and their replacements.
    pub paths: Vec<(Box<str>, Box<str>)>,
    /// Adds `Secure`.
    pub secure: bool,
    /// Adds `HttpOnly`.
    pub http_only: bool,
    /// Sets `SameSite`.
    pub same_site: Option<SameSite>,
}

/// The changes of the references to the origin in a response.
pub(super) struct OriginReferences<'a> {
    /// The configured rules, which are applied first.
    pub(super) rules: &'a [RedirectRule],
    /// The change of the path of requests, which is reversed.
    pub(super) path: Option<&'a PathChange>,
    /// The authority of the request to the origin.
    pub(super) origin: &'a str,
    /// The authority of the client's request.
    pub(super) client: Option<&'a str>,
    /// The name and the address of the node, which the origin may use in redirects whatever the request's
    /// authority is.
    pub(super) own: [&'a str; 2],
}

/// The fields with a reference that is changed.
pub(super) const REFERENCES: FieldSet = FieldSet::of(&[
    KnownField::ContentLocation,
    KnownField::Location,
    KnownField::Refresh,
]);

impl OriginReferences<'_> {
    /// Changes `Location`, `Content-Location` and `Refresh`. If no rule matches, a reference to the origin itself
    /// becomes one to the site, and a path below the upstream's path one below the location's path.
    pub(super) fn change_in(&self, headers: &mut Headers) {
        for name in ["location", "content-location"] {
            if let Some(reference) = headers.get_str(name)
                && let Some(changed) = self.changed(reference)
            {
                // An invalid value leaves the origin's header as it is.
                let _ = headers.try_insert(name, changed);
            }
        }
        if let Some(refresh) = headers.get_str("refresh")
            && let Some((before, reference, after)) = split_refresh(refresh)
            && let Some(changed) = self.changed(reference)
        {
            let changed = format!("{before}{changed}{after}");
            let _ = headers.try_insert("refresh", changed);
        }
    }

    fn changed(&self, reference: &str) -> Option<String> {
        for rule in self.rules {
            if let Some(rest) = reference.strip_prefix(&*rule.from) {
                return Some(format!("{}{rest}", rule.to));
            }
        }
        if reference.starts_with('/') && !starts_with_authority(reference) {
            return self.changed_path(reference);
        }
        // A reference with an authority and no scheme has the scheme of its response.
        let with_scheme;
        let (url, is_relative) = if reference.starts_with("//") {
            with_scheme = format!("http:{reference}");
            (&*with_scheme, true)
        } else {
            (reference, false)
        };
        let UrlParts {
            scheme,
            authority,
            rest,
        } = UrlParts::split(url)?;
        let port = match scheme.to_ascii_lowercase().as_str() {
            "http" => ":80",
            "https" => ":443",
            _ => return None,
        };
        let is = |name: &str| {
            let bare = |name: &'_ str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
            !name.is_empty() && bare(authority) == bare(name)
        };
        if self.client.is_some_and(is) {
            // To the site itself, perhaps with the other scheme.
            let changed = self.changed_path(rest)?;
            return Some(if is_relative {
                format!("//{authority}{changed}")
            } else {
                format!("{scheme}://{authority}{changed}")
            });
        }
        let is_own = is(self.origin) || self.own.into_iter().any(is);
        // A path with two slashes at the front would name another host.
        if !is_own || starts_with_authority(rest) {
            return None;
        }
        let rest = if rest.starts_with('/') {
            rest.to_owned()
        } else {
            format!("/{rest}")
        };
        Some(self.changed_path(&rest).unwrap_or(rest))
    }

    /// A path, and what follows it, below the location; `None` if it stays as it is.
    fn changed_path(&self, reference: &str) -> Option<String> {
        let end = reference.find(['?', '#']).unwrap_or(reference.len());
        let (path, rest) = reference.split_at_checked(end)?;
        Some(format!("{}{rest}", self.path?.reverse(path)?))
    }
}

/// Splits `5; url=http://...` into the text before the URL, the URL, and the text behind it. The URL may be in quotes.
fn split_refresh(value: &str) -> Option<(&str, &str, &str)> {
    let at = value.to_ascii_lowercase().find("url=")?;
    let (before, url) = value.split_at_checked(at.checked_add("url=".len())?)?;
    let Some(quote) = url
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''))
    else {
        return Some((before, url, ""));
    };
    let (before, url) = value.split_at_checked(before.len().checked_add(1)?)?;
    let (url, after) = url.split_at_checked(url.find(quote).unwrap_or(url.len()))?;
    Some((before, url, after))
}

/// Changes the attributes of all cookies by the rules. If none matches, a path below the upstream's path becomes one
/// below the location's path.
pub(super) fn change_cookies(
    headers: &mut Headers,
    rules: &CookieRules,
    path: Option<&PathChange>,
) {
    if !headers.has(KnownField::SetCookie) || path.is_none() && *rules == CookieRules::default() {
        return;
    }
    let changed: Vec<Vec<u8>> = headers
        .get_all("set-cookie")
        .map(|cookie| rules.change(cookie, path))
        .collect();
    headers.remove("set-cookie");
    for cookie in changed {
        // The configuration checks the parts of the rules, so the value is valid.
        let _ = headers.try_append("set-cookie", cookie);
    }
}

impl CookieRules {
    fn change(&self, cookie: &[u8], path: Option<&PathChange>) -> Vec<u8> {
        let mut parts = cookie.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let mut changed = parts.next().unwrap_or_default().to_vec();
        let mut add = |attribute: &[u8]| {
            changed.extend_from_slice(b"; ");
            changed.extend_from_slice(attribute);
        };
        let (mut secure, mut http_only) = (self.secure, self.http_only);
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, value) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => part.split_at_checked(at).unwrap_or((part, b"")),
                None => (part, &b""[..]),
            };
            let value = value.strip_prefix(b"=").unwrap_or(value).trim_ascii();
            match name.trim_ascii().to_ascii_lowercase().as_slice() {
                b"secure" => secure = false,
                b"httponly" => http_only = false,
                b"samesite" if self.same_site.is_some() => continue,
                b"domain" => {
                    if let Some(to) = self.domain(value) {
                        if !to.is_empty() {
                            add(&[b"Domain=", to.as_bytes()].concat());
                        }
                        continue;
                    }
                }
                b"path" => {
                    if let Some(to) = self.path(value).or_else(|| cookie_path(path?, value)) {
                        add(&[b"Path=", to.as_slice()].concat());
                        continue;
                    }
                }
                _ => {}
            }
            add(part);
        }
        if secure {
            add(b"Secure");
        }
        if http_only {
            add(b"HttpOnly");
        }
        if let Some(same_site) = self.same_site {
            add(format!("SameSite={same_site}").as_bytes());
        }
        changed
    }

    fn domain(&self, value: &[u8]) -> Option<&str> {
        let value = value.strip_prefix(b".").unwrap_or(value);
        let is = |from: &str| value.eq_ignore_ascii_case(from.trim_start_matches('.').as_bytes());
        let rule = self.domains.iter().find(|(from, _)| is(from))?;
        Some(&rule.1)
    }

    fn path(&self, value: &[u8]) -> Option<Vec<u8>> {
        self.paths.iter().find_map(|(from, to)| {
            let rest = value.strip_prefix(from.as_bytes())?;
            Some([to.as_bytes(), rest].concat())
        })
    }
}

/// The path of a cookie below the location. One for the whole origin stays, since it includes the location.
fn cookie_path(change: &PathChange, path: &[u8]) -> Option<Vec<u8>> {
    let path = std::str::from_utf8(path).ok().filter(|path| *path != "/")?;
    let reversed = change.reverse(path)?;
    Some(if path.ends_with('/') || reversed == "/" {
        reversed.into_bytes()
    } else {
        // Browsers send a cookie for `/app` to `/app` as well, and one for `/app/` only below it.
        reversed.trim_end_matches('/').into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_redirect(
        uri: &str,
        rules: &[RedirectRule],
        names: &OriginReferences<'_>,
    ) -> Option<String> {
        OriginReferences { rules, ..*names }.changed(uri)
    }

    const NAMES: OriginReferences<'_> = OriginReferences {
        rules: &[],
        path: None,
        origin: "app:8080",
        client: Some("www.example"),
        own: ["app", "127.0.0.1:8080"],
    };

    fn rule(from: &str, to: &str) -> RedirectRule {
        RedirectRule {
            from: from.into(),
            to: to.into(),
        }
    }

    #[test]
    fn changes_a_redirect_to_the_origin_to_the_site() {
        for (uri, changed) in [
            ("http://app:8080/a?b#c", Some("/a?b#c")),
            ("https://APP:8080", Some("/")),
            ("http://app:8080?q", Some("/?q")),
            ("http://app:8080//evil.example/", None),
            ("http://app:8080.evil.example/", None),
            ("http://app:81/", None),
            ("/a", None),
        ] {
            assert_eq!(
                changed_redirect(uri, &[], &NAMES).as_deref(),
                changed,
                "{uri}"
            );
        }
        let same = OriginReferences {
            origin: "www.example",
            client: Some("WWW.example"),
            ..NAMES
        };
        assert_eq!(changed_redirect("https://www.example/a", &[], &same), None);
        assert_eq!(
            changed_redirect("https://www.example:443/a", &[], &same),
            None
        );
    }

    #[test]
    fn changes_a_redirect_to_the_nodes_name_if_the_origin_got_the_clients_authority() {
        let passed_on = OriginReferences {
            rules: &[],
            path: None,
            origin: "www.example",
            client: Some("www.example"),
            own: ["app.internal:80", "192.0.2.1:80"],
        };
        for (uri, changed) in [
            ("http://app.internal/a?b#c", Some("/a?b#c")),
            ("http://APP.internal:80/a", Some("/a")),
            ("http://app.internal", Some("/")),
            ("http://192.0.2.1/a", Some("/a")),
            // Another server on that host.
            ("http://app.internal:8080/a", None),
            ("https://app.internal/a", None),
            ("http://app.internal.evil.example/", None),
            ("http://app.internal//evil.example/", None),
            ("https://www.example/a", None),
            ("http://other.example/a", None),
        ] {
            assert_eq!(
                changed_redirect(uri, &[], &passed_on).as_deref(),
                changed,
                "{uri}"
            );
        }
        // A client that uses the name of the node keeps it.
        let same = OriginReferences {
            origin: "app.internal",
            client: Some("app.internal"),
            ..passed_on
        };
        assert_eq!(changed_redirect("http://app.internal/a", &[], &same), None);
        // An origin behind a Unix socket has no name.
        let unnamed = OriginReferences {
            own: ["unix:/run/app.sock", ""],
            ..passed_on
        };
        assert_eq!(changed_redirect("http:///a", &[], &unnamed), None);
    }

    #[test]
    fn applies_the_first_rule_that_matches() {
        let rules = [rule("http://app:8080/base/", "/x/"), rule("/base/", "/y/")];
        let change = |uri| changed_redirect(uri, &rules, &NAMES);
        assert_eq!(change("http://app:8080/base/a").as_deref(), Some("/x/a"));
        assert_eq!(change("/base/a").as_deref(), Some("/y/a"));
        assert_eq!(change("/other"), None);
    }

    #[test]
    fn changes_refresh_and_content_location_as_location() {
        let rules = [rule("/base/", "/")];
        let references = OriginReferences {
            rules: &rules,
            ..NAMES
        };
        for (name, value, changed) in [
            ("refresh", "5; URL=/base/a", "5; URL=/a"),
            ("refresh", "5;url='http://app:8080/b?c'", "5;url='/b?c'"),
            ("refresh", "5; url=\"/base/a\"", "5; url=\"/a\""),
            ("refresh", "5", "5"),
            ("content-location", "/base/a", "/a"),
            ("content-location", "http://app:8080/a", "/a"),
            ("location", "/base/a", "/a"),
            ("link", "</base/a>; rel=next", "</base/a>; rel=next"),
        ] {
            let mut headers = Headers::new();
            headers.try_append(name, value).unwrap();
            references.change_in(&mut headers);
            assert_eq!(headers.get_str(name), Some(changed), "{value}");
        }
    }

    #[test]
    fn a_redirect_below_the_path_of_the_upstream_leads_below_the_location() {
        let path = PathChange {
            strip: "/app/".into(),
            put: "/v1/".into(),
        };
        let references = OriginReferences {
            path: Some(&path),
            ..NAMES
        };
        for (uri, changed) in [
            ("/v1/login", Some("/app/login")),
            ("/v1/login?to=/v1/a#b", Some("/app/login?to=/v1/a#b")),
            ("/v1", Some("/app/")),
            ("/v1?a", Some("/app/?a")),
            ("http://app:8080/v1/login", Some("/app/login")),
            ("HTTP://app:8080/v1/login", Some("/app/login")),
            ("//app:8080/v1/login", Some("/app/login")),
            ("http://127.0.0.1:8080/v1/", Some("/app/")),
            (
                "https://www.example/v1/a?b",
                Some("https://www.example/app/a?b"),
            ),
            ("//www.example/v1/a", Some("//www.example/app/a")),
            // Not below the path of the upstream.
            ("/other", None),
            ("/v12", None),
            ("http://app:8080/other", Some("/other")),
            ("https://www.example/other", None),
            ("https://other.example/v1/a", None),
            // Relative to the path of the request.
            ("login", None),
            ("../v1/login", None),
            ("?a", None),
            ("//evil.example/v1/a", None),
            ("/v1//evil.example/a", Some("/app//evil.example/a")),
            ("/\\evil.example/v1/", None),
        ] {
            assert_eq!(references.changed(uri).as_deref(), changed, "{uri}");
        }
        let rules = [rule("/v1/login", "/sign-in")];
        let references = OriginReferences {
            rules: &rules,
            ..references
        };
        assert_eq!(references.changed("/v1/login").as_deref(), Some("/sign-in"));
        assert_eq!(references.changed("/v1/a").as_deref(), Some("/app/a"));
    }

    #[test]
    fn a_cookie_below_the_path_of_the_upstream_is_one_below_the_location() {
        let change = |strip: &str, put: &str, cookie: &str, rules: &CookieRules| {
            let path = PathChange {
                strip: strip.into(),
                put: put.into(),
            };
            String::from_utf8(rules.change(cookie.as_bytes(), Some(&path))).unwrap()
        };
        let none = CookieRules::default();
        for (strip, put, cookie, changed) in [
            ("/app/", "/v1/", "a=1; Path=/v1/", "a=1; Path=/app/"),
            (
                "/app/",
                "/v1/",
                "a=1; path=/v1; Secure",
                "a=1; Path=/app; Secure",
            ),
            ("/app/", "/v1/", "a=1; Path=/v1/x", "a=1; Path=/app/x"),
            ("/app/", "/v1/", "a=1; Path=/", "a=1; Path=/"),
            ("/app/", "/v1/", "a=1; Path=/v12", "a=1; Path=/v12"),
            ("/app/", "/v1/", "a=1", "a=1"),
            ("/app/", "/", "a=1; Path=/", "a=1; Path=/"),
            ("/app/", "/", "a=1; Path=/x", "a=1; Path=/app/x"),
            ("/app/", "/", "a=1; Path=/app", "a=1; Path=/app"),
            ("/", "/v1/", "a=1; Path=/v1", "a=1; Path=/"),
        ] {
            assert_eq!(change(strip, put, cookie, &none), changed, "{strip} {put}");
        }
        let rules = CookieRules {
            paths: vec![("/v1/".into(), "/".into())],
            ..none
        };
        assert_eq!(
            change("/app/", "/v1/", "a=1; Path=/v1/x", &rules),
            "a=1; Path=/x"
        );
    }

    #[test]
    fn changes_the_attributes_of_every_cookie() {
        let rules = CookieRules {
            domains: vec![
                ("internal.example".into(), "example.com".into()),
                ("drop.example".into(), "".into()),
            ],
            paths: vec![("/base/".into(), "/".into())],
            secure: true,
            http_only: true,
            same_site: Some(SameSite::Lax),
        };
        let mut headers = Headers::new();
        for cookie in [
            "a=1; Domain=.Internal.example; path=/base/x; Max-Age=5",
            "b=\"x=y\"; domain=drop.example; Secure; SameSite=None",
            "c=; Path=/other; HttpOnly",
        ] {
            headers.try_append("set-cookie", cookie).unwrap();
        }
        change_cookies(&mut headers, &rules, None);
        let lines: Vec<_> = headers
            .get_all("set-cookie")
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                "a=1; Domain=example.com; Path=/x; Max-Age=5; Secure; HttpOnly; SameSite=Lax",
                "b=\"x=y\"; Secure; HttpOnly; SameSite=Lax",
                "c=; Path=/other; HttpOnly; Secure; SameSite=Lax",
            ]
        );
    }
}
