//! `Cookies`: the cookies of a request, and those that a response sets (RFC 6265).

use std::collections::HashSet;
use std::convert::Infallible;

use apus_http::fields::{self, CookiePair};
use apus_http::{Request, Response};
use cookie::{Cookie, SameSite};

use super::{FromRequestHead, Matched};
use crate::respond::IntoResponse;

/// The longest cookie that browsers accept, in bytes.
const MAX_LEN: usize = 4096;

/// An extractor of the cookies of a request, which also sets cookies of the response.
///
/// ```
/// # use apus_handler::Redirect;
/// # use apus_handler::extract::Cookies;
/// async fn choose(mut cookies: Cookies) -> (Cookies, Redirect) {
///     cookies.add(("theme", "dark"));
///     (cookies, Redirect::to("/"))
/// }
///
/// async fn page(cookies: Cookies) -> String {
///     format!("in {}\n", cookies.get("theme").unwrap_or("light"))
/// }
/// ```
///
/// By default, a new cookie is valid for the whole site (`Path=/`), not visible to scripts (`HttpOnly`), not
/// sent with requests from other sites (`SameSite=Lax`), and `Secure` if it is set over TLS. Values are
/// percent-encoded, so they can be any text.
///
/// Clients can change their cookies. Keep values that they must not change in a session.
#[derive(Clone, Debug, Default)]
pub struct Cookies {
    /// Each name once.
    received: Vec<Cookie<'static>>,
    changes: Vec<Cookie<'static>>,
    is_secure: bool,
}

impl Cookies {
    /// The cookies of a request, without invalid ones. Of several cookies with one name the first counts,
    /// which has the most specific path.
    pub fn of(request: &Request) -> Self {
        let mut cookies = Self {
            received: Vec::new(),
            changes: Vec::new(),
            is_secure: request.is_secure(),
        };
        // A head can contain thousands of cookies, so duplicates are found by a hash.
        let mut names = HashSet::new();
        for pair in fields::cookies(request.headers()) {
            if let Some(read) = parse(pair)
                && names.insert(read.name().to_owned())
            {
                cookies.received.push(read);
            }
        }
        cookies
    }

    /// The value of a cookie, including the changes of this response.
    pub fn get(&self, name: &str) -> Option<&str> {
        let changed = self.changes.iter().rev().find(|known| known.name() == name);
        match changed {
            Some(removed) if is_removal(removed) => None,
            Some(added) => Some(added.value()),
            None => {
                let mut received = self.received.iter();
                let found = received.find(|known| known.name() == name)?;
                Some(found.value())
            }
        }
    }

    /// The names and values of the request.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let received = self.received.iter();
        received.map(|cookie| (cookie.name(), cookie.value()))
    }

    /// Sets a cookie in the response: a name and a value, or a cookie with attributes from
    /// [`Cookie::build`].
    pub fn add(&mut self, cookie: impl Into<Cookie<'static>>) {
        let mut cookie = cookie.into();
        let needs_tls = ["__Secure-", "__Host-"]
            .iter()
            .any(|prefix| cookie.name().starts_with(prefix));
        if cookie.path().is_none() {
            cookie.set_path("/");
        }
        if cookie.http_only().is_none() {
            cookie.set_http_only(true);
        }
        if cookie.same_site().is_none() {
            cookie.set_same_site(SameSite::Lax);
        }
        let is_none = cookie.same_site() == Some(SameSite::None);
        if cookie.secure().is_none() && (self.is_secure || needs_tls || is_none) {
            // Browsers refuse the latter two without it.
            cookie.set_secure(true);
        }
        self.changes.retain(|other| {
            (other.name(), other.path(), other.domain())
                != (cookie.name(), cookie.path(), cookie.domain())
        });
        self.changes.push(cookie);
    }

    /// Removes a cookie in the response: a name, or a cookie with the path and domain with which it was
    /// set.
    pub fn remove(&mut self, cookie: impl Into<Cookie<'static>>) {
        let mut cookie = cookie.into();
        cookie.set_value("");
        cookie.make_removal();
        self.add(cookie);
    }

    /// Writes the changes to a response.
    pub fn apply(&self, response: &mut Response) {
        for cookie in &self.changes {
            let attributes = [cookie.path(), cookie.domain()];
            let is_plain =
                |text: &str| !text.contains(|each: char| each == ';' || each.is_control());
            let text = cookie.encoded().to_string();
            let headers = response.headers_mut();
            if cookie.name().is_empty()
                || !attributes.into_iter().flatten().all(is_plain)
                || headers.try_append("set-cookie", &text).is_err()
            {
                tracing::error!(
                    name = cookie.name(),
                    "a cookie cannot be set; it is left out"
                );
            } else if text.len() > MAX_LEN {
                tracing::warn!(name = cookie.name(), "a cookie is too long for browsers");
            }
        }
    }
}

/// A cookie in the field. Quotes around a value are removed.
fn parse(pair: CookiePair<'_>) -> Option<Cookie<'static>> {
    let name = std::str::from_utf8(pair.name?).ok()?;
    let value = std::str::from_utf8(pair.value).ok()?.trim();
    let unquoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    let pair = format!("{name}={}", unquoted.unwrap_or(value));
    let decoded = Cookie::parse_encoded(pair.clone());
    decoded.or_else(|_| Cookie::parse(pair)).ok()
}

fn is_removal(cookie: &Cookie<'_>) -> bool {
    cookie.max_age().is_some_and(|age| age.is_zero())
}

impl FromRequestHead for Cookies {
    type Rejection = Infallible;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Infallible> {
        Ok(Self::of(request))
    }
}

/// Sets cookies.
impl<T: IntoResponse> IntoResponse for (Cookies, T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        self.0.apply(&mut response);
        response
    }
}
