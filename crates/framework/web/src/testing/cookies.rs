//! `CookieJar`: the cookies of a test client (RFC 6265 section 5).

use apus_http::fields::http_date;

/// The cookies that responses set.
#[derive(Debug, Default)]
pub(super) struct CookieJar(Vec<ClientCookie>);

#[derive(Debug)]
struct ClientCookie {
    name: String,
    value: String,
    path: String,
}

impl CookieJar {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut cookies = self.0.iter();
        let cookie = cookies.find(|cookie| cookie.name == name)?;
        Some(&cookie.value)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.keep(ClientCookie {
            name: name.to_owned(),
            value: value.to_owned(),
            path: "/".to_owned(),
        });
    }

    fn keep(&mut self, cookie: ClientCookie) {
        self.forget(&cookie.name, &cookie.path);
        self.0.push(cookie);
    }

    fn forget(&mut self, name: &str, path: &str) {
        self.0
            .retain(|cookie| cookie.name != name || cookie.path != path);
    }

    /// Sets or removes the cookie of a `Set-Cookie` line in a response for `path`.
    pub(super) fn take(&mut self, line: &str, path: &str) {
        let mut parts = line.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        // The default path is the path of the request up to its last slash (RFC 6265 section 5.1.4).
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut cookie_path = if folder.is_empty() { "/" } else { folder };
        let mut is_over = None;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            if attribute.eq_ignore_ascii_case("path") && value.starts_with('/') {
                cookie_path = value;
            } else if attribute.eq_ignore_ascii_case("max-age") {
                is_over = value.parse::<i64>().ok().map(|seconds| seconds <= 0);
            } else if attribute.eq_ignore_ascii_case("expires") && is_over.is_none() {
                let expires = http_date(value.as_bytes());
                is_over = expires.map(|expires| expires <= apus_clock::now());
            }
        }
        if is_over == Some(true) {
            self.forget(name.trim(), cookie_path);
        } else {
            self.keep(ClientCookie {
                name: name.trim().to_owned(),
                value: value.trim().to_owned(),
                path: cookie_path.to_owned(),
            });
        }
    }

    /// The `Cookie` field of a request for `path`.
    pub(super) fn field(&self, path: &str) -> Option<String> {
        let pairs: Vec<String> = self
            .0
            .iter()
            .filter(|cookie| is_below(path, &cookie.path))
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// Whether a path matches the path of a cookie (RFC 6265 section 5.1.4).
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || folder.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_sent_below_their_path_until_they_expire() {
        let mut cookies = CookieJar::default();
        cookies.take("a=1; Path=/; HttpOnly", "/x/y");
        cookies.take("b=2", "/x/y");
        assert_eq!(cookies.field("/x/z").as_deref(), Some("a=1; b=2"));
        assert_eq!(cookies.field("/xx").as_deref(), Some("a=1"));
        cookies.take("a=3; path=/", "/");
        cookies.take("b=; Max-Age=0; path=/x", "/");
        assert_eq!(cookies.field("/x/z").as_deref(), Some("a=3"));
        cookies.take("a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Path=/", "/");
        assert_eq!(cookies.field("/"), None);
    }
}
