//! The session cookie (RFC 6265 sections 4.1 and 5.4, RFC 6265bis section 4.1.3).

use apus_http::fields::cookies;
use apus_http::{Headers, Request, Response};

/// The name and attributes of a cookie.
#[derive(Clone, Debug)]
pub(crate) struct CookieText {
    /// The name without prefix.
    pub(crate) name: &'static str,
    pub(crate) is_strict: bool,
    /// Its lifetime in seconds; `None` ends it when the browser closes.
    pub(crate) max_age: Option<u64>,
}

impl CookieText {
    /// The value of the cookie in a request. Over TLS it must have the prefix `__Host-`, which other hosts
    /// cannot set.
    pub(crate) fn read<'r>(&self, request: &'r Request, is_secure: bool) -> Option<&'r str> {
        value_of(request.headers(), prefix(is_secure), self.name)
    }

    /// Sets the cookie in a response.
    pub(crate) fn write(&self, response: &mut Response, is_secure: bool, value: &str) {
        let max_age = match self.max_age {
            Some(seconds) => format!("; Max-Age={seconds}"),
            None => String::new(),
        };
        self.append(response, is_secure, value, &max_age);
    }

    /// Removes the cookie from the browser.
    pub(crate) fn remove(&self, response: &mut Response, is_secure: bool) {
        self.append(response, is_secure, "", "; Max-Age=0");
    }

    fn append(&self, response: &mut Response, is_secure: bool, value: &str, max_age: &str) {
        let line = format!(
            "{}{}={value}; Path=/; HttpOnly; SameSite={}{}{max_age}",
            prefix(is_secure),
            self.name,
            if self.is_strict { "Strict" } else { "Lax" },
            if is_secure { "; Secure" } else { "" },
        );
        if let Err(error) = response.headers_mut().try_append("set-cookie", line) {
            tracing::error!(%error, name = self.name, "a cookie cannot be sent");
        }
    }
}

fn prefix(is_secure: bool) -> &'static str {
    if is_secure { "__Host-" } else { "" }
}

/// The first value of the cookie `prefix` + `name`.
fn value_of<'h>(headers: &'h Headers, prefix: &str, name: &str) -> Option<&'h str> {
    let is_named = |found: &[u8]| found.strip_prefix(prefix.as_bytes()) == Some(name.as_bytes());
    let found = cookies(headers).find(|cookie| cookie.name.is_some_and(is_named))?;
    std::str::from_utf8(found.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_cookie_among_others_by_its_whole_name() {
        let mut headers = Headers::new();
        headers
            .try_append("cookie", "xsession=1; session=2; __Host-session=3")
            .unwrap();
        headers.try_append("cookie", "session=4;other=5").unwrap();
        assert_eq!(value_of(&headers, "", "session"), Some("2"));
        assert_eq!(value_of(&headers, "__Host-", "session"), Some("3"));
        assert_eq!(value_of(&headers, "", "other"), Some("5"));
        assert_eq!(value_of(&headers, "", "none"), None);
    }
}
