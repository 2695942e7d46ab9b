//! The cookies of one user (RFC 6265), who visits one host.

use std::time::{SystemTime, UNIX_EPOCH};

use apus_http::Headers;
use cookie::Cookie;

/// The cookies that a server has set.
#[derive(Debug, Default)]
pub(super) struct UserCookies(Vec<StoredCookie>);

#[derive(Debug)]
struct StoredCookie {
    name: String,
    value: String,
    path: String,
}

impl UserCookies {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes the cookies of a response to a request for this path.
    pub(super) fn store(&mut self, headers: &Headers, request_path: &str) {
        for line in headers.get_all("set-cookie") {
            let Some(cookie) = std::str::from_utf8(line)
                .ok()
                .and_then(|line| Cookie::parse(line).ok())
            else {
                continue;
            };
            let path = match cookie.path() {
                Some(path) if path.starts_with('/') => path.to_owned(),
                _ => default_path(request_path).to_owned(),
            };
            let name = cookie.name().to_owned();
            self.0
                .retain(|known| known.name != name || known.path != path);
            if !is_expired(&cookie) {
                self.0.push(StoredCookie {
                    name,
                    value: cookie.value().to_owned(),
                    path,
                });
            }
        }
    }

    /// The value of `Cookie` for a path, if there is one.
    pub(super) fn header(&self, path: &str) -> Option<String> {
        let path = path.split('?').next().unwrap_or(path);
        let mut matching: Vec<_> = self
            .0
            .iter()
            .filter(|cookie| path_matches(path, &cookie.path))
            .collect();
        // Cookies with longer paths are first (RFC 6265 section 5.4).
        matching.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<_> = matching
            .iter()
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// RFC 6265 section 5.1.4.
fn default_path(request_path: &str) -> &str {
    let path = request_path.split('?').next().unwrap_or(request_path);
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => path.get(..at).unwrap_or("/"),
    }
}

/// RFC 6265 section 5.1.4.
fn path_matches(path: &str, cookie_path: &str) -> bool {
    path.strip_prefix(cookie_path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || cookie_path.ends_with('/'))
}

fn is_expired(cookie: &Cookie<'_>) -> bool {
    if let Some(age) = cookie.max_age() {
        return !age.is_positive();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    cookie
        .expires_datetime()
        .is_some_and(|time| time.unix_timestamp() <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(cookies: &mut UserCookies, path: &str, lines: &[&str]) {
        let mut headers = Headers::new();
        for line in lines {
            headers.push(b"set-cookie", line.as_bytes());
        }
        cookies.store(&headers, path);
    }

    #[test]
    fn cookies_are_sent_to_their_paths_and_end() {
        let mut cookies = UserCookies::default();
        store(
            &mut cookies,
            "/shop/login?x=/y",
            &[
                "id=1; Path=/; HttpOnly",
                "cart=2; Secure",
                "old=3; Max-Age=0",
            ],
        );
        assert_eq!(cookies.header("/").as_deref(), Some("id=1"));
        assert_eq!(cookies.header("/shop/a?b").as_deref(), Some("cart=2; id=1"));
        assert_eq!(cookies.header("/shopping").as_deref(), Some("id=1"));
        store(&mut cookies, "/", &["id=9; Path=/", "x"]);
        assert_eq!(cookies.header("/").as_deref(), Some("id=9"));
        store(
            &mut cookies,
            "/",
            &["id=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
        );
        assert_eq!(cookies.header("/"), None);
        cookies.clear();
        assert_eq!(cookies.header("/shop/"), None);
    }
}
