//! The headers of a response for the client: redirects and cookies are changed to the URLs of the site.

use apus_http::url::UrlParts;
use apus_http::{Headers, KnownField};
use apus_upstream::plan::SameSite;

/// Replaces the prefix of a `Location` or `Refresh` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectRule {
    /// The prefix, such as `http://internal:8080/app/`.
    pub from: Box<str>,
    /// Its replacement, such as `/`.
    pub to: Box<str>,
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

/// The names of an origin in redirects, and that of the site.
pub(super) struct OriginNames<'a> {
    /// The authority of the request to the origin.
    pub(super) origin: &'a str,
    /// The authority of the client's request.
    pub(super) client: Option<&'a str>,
    /// The name and the address of the node, which the origin may use in redirects whatever the request's
    /// authority is.
    pub(super) own: [&'a str; 2],
}

/// Changes redirects by the rules. If no rule matches, a redirect to the origin itself becomes one to the same
/// path of the site.
pub(super) fn change_redirects(
    headers: &mut Headers,
    rules: &[RedirectRule],
    names: &OriginNames<'_>,
) {
    if let Some(location) = headers.get_str("location")
        && let Some(changed) = changed_redirect(location, rules, names)
    {
        // An invalid value leaves the origin's header as it is.
        let _ = headers.try_insert("location", changed);
    }
    if !rules.is_empty()
        && let Some(refresh) = headers.get_str("refresh")
        && let Some((before, uri)) = split_refresh(refresh)
        && let Some(changed) = changed_redirect(uri, rules, names)
    {
        let changed = format!("{before}{changed}");
        let _ = headers.try_insert("refresh", changed);
    }
}

fn changed_redirect(uri: &str, rules: &[RedirectRule], names: &OriginNames<'_>) -> Option<String> {
    for rule in rules {
        if let Some(rest) = uri.strip_prefix(&*rule.from) {
            return Some(format!("{}{rest}", rule.to));
        }
    }
    let UrlParts {
        scheme,
        authority,
        rest,
    } = UrlParts::split(uri)?;
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let is = |name: &str| {
        let bare = |name: &'_ str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
        !name.is_empty() && bare(authority) == bare(name)
    };
    // The redirect is to the site itself, perhaps with the other scheme.
    if names.client.is_some_and(is) {
        return None;
    }
    // A path with two slashes at the front would name another host.
    let is_own = is(names.origin) || names.own.into_iter().any(is);
    let is_own = is_own && !rest.starts_with("//");
    is_own.then(|| match rest.starts_with('/') {
        true => rest.to_owned(),
        false => format!("/{rest}"),
    })
}

/// Splits `5; url=http://...` in front of the URI.
fn split_refresh(value: &str) -> Option<(&str, &str)> {
    let at = value.to_ascii_lowercase().find("url=")?;
    value.split_at_checked(at.checked_add(4)?)
}

/// Changes the attributes of all cookies by the rules.
pub(super) fn change_cookies(headers: &mut Headers, rules: &CookieRules) {
    if *rules == CookieRules::default() || !headers.has(KnownField::SetCookie) {
        return;
    }
    let changed: Vec<Vec<u8>> = headers
        .get_all("set-cookie")
        .map(|cookie| rules.change(cookie))
        .collect();
    headers.remove("set-cookie");
    for cookie in changed {
        // The configuration checks the parts of the rules, so the value is valid.
        let _ = headers.try_append("set-cookie", cookie);
    }
}

impl CookieRules {
    fn change(&self, cookie: &[u8]) -> Vec<u8> {
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
                    if let Some(to) = self.path(value) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: OriginNames<'_> = OriginNames {
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
        let same = OriginNames {
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
        let passed_on = OriginNames {
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
        let same = OriginNames {
            origin: "app.internal",
            client: Some("app.internal"),
            ..passed_on
        };
        assert_eq!(changed_redirect("http://app.internal/a", &[], &same), None);
        // An origin behind a Unix socket has no name.
        let unnamed = OriginNames {
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
    fn changes_refresh_only_by_rules() {
        let mut headers = Headers::new();
        headers.try_append("refresh", "5; URL=/base/a").unwrap();
        change_redirects(&mut headers, &[rule("/base/", "/")], &NAMES);
        assert_eq!(headers.get_str("refresh"), Some("5; URL=/a"));
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
        change_cookies(&mut headers, &rules);
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
