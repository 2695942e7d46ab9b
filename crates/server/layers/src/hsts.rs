//! HTTP Strict Transport Security (RFC 6797).

use std::time::Duration;

use apus_http::{HeaderName, HeaderValue, Request, Response, ResponseFuture, header};

use apus_handler::{Middleware, Next};

/// Makes browsers use TLS only, for a time after each response. The field is sent only over TLS, to this server or
/// to a trusted proxy. Begin with minutes, since browsers keep to it until the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// How long browsers keep to `https`, in seconds.
    pub max_age: u64,
    /// Whether it applies to subdomains too.
    pub include_subdomains: bool,
    /// Whether browsers may have the host in their built-in list.
    pub preload: bool,
}

impl Default for Hsts {
    /// A year, for this host alone.
    fn default() -> Self {
        Self::new(Duration::from_secs(31_536_000))
    }
}

impl Hsts {
    /// For this duration, in whole seconds, and for this host alone.
    pub fn new(max_age: Duration) -> Self {
        Self {
            max_age: max_age.as_secs(),
            include_subdomains: false,
            preload: false,
        }
    }

    /// The value of the field.
    pub fn value(self) -> HeaderValue {
        let mut value = format!("max-age={}", self.max_age);
        if self.include_subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.preload {
            value.push_str("; preload");
        }
        // Always a field value.
        HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("max-age=0"))
    }
}

/// For this host alone.
impl From<Duration> for Hsts {
    fn from(max_age: Duration) -> Self {
        Self::new(max_age)
    }
}

/// The field `Strict-Transport-Security` of a site or an application: whoever sends it sets it by this type.
///
/// RFC 6797 section 7.2 forbids the field over clear text.
#[derive(Clone, Debug)]
pub struct HstsField(HeaderValue);

impl HstsField {
    /// The field, for requests over TLS; `None` for others.
    pub fn for_request(hsts: Hsts, request: &Request) -> Option<Self> {
        request.is_secure().then(|| hsts.into())
    }

    /// The line of the field.
    pub fn line(&self) -> (HeaderName, &HeaderValue) {
        (header::STRICT_TRANSPORT_SECURITY, &self.0)
    }

    /// Sets the field in the response to a request over TLS, in place of one that it has.
    pub fn set(&self, response: &mut Response) {
        let (name, value) = self.line();
        // Files and stored responses share their lines, and `headers_mut` copies them.
        if response.headers().get(&name) != Some(value.as_bytes()) {
            response.headers_mut().insert(&name, value);
        }
    }

    /// Sets the field unless the response has one.
    pub fn set_if_missing(&self, response: &mut Response) {
        if !response
            .headers()
            .contains(header::STRICT_TRANSPORT_SECURITY)
        {
            self.set(response);
        }
    }
}

impl From<Hsts> for HstsField {
    fn from(hsts: Hsts) -> Self {
        Self(hsts.value())
    }
}

/// As a layer it replaces the field of a response.
impl Middleware<()> for Hsts {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        match HstsField::for_request(*self, &request) {
            None => next.call(request),
            Some(field) => next.call_and_change(request, move |mut response| {
                field.set(&mut response);
                response
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_has_whole_seconds_and_what_is_set() {
        let mut hsts = Hsts::new(Duration::from_millis(1999));
        assert_eq!(hsts.value(), "max-age=1");
        hsts.include_subdomains = true;
        assert_eq!(hsts.value(), "max-age=1; includeSubDomains");
        hsts.preload = true;
        assert_eq!(hsts.value(), "max-age=1; includeSubDomains; preload");
        assert_eq!(Hsts::from(Duration::ZERO).value(), "max-age=0");
        assert_eq!(Hsts::default().value(), "max-age=31536000");
    }
}
