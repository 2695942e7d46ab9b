//! Cross-origin resource sharing (Fetch standard, section 3.2).

use std::sync::Arc;
use std::time::Duration;

use apus_http::url::UrlParts;
use apus_http::{
    HeaderName, HeaderValue, Headers, Method, Request, Response, ResponseFuture, StatusCode, header,
};

use apus_handler::{Error, IntoResponse, Middleware, Next};

/// A layer that lets scripts of other origins read responses.
///
/// It allows only what is named: [`Cors::origin`] names origins, [`Cors::any_origin`] is for public
/// resources. Scripts may send GET, HEAD and POST with the fields that a form could send;
/// [`Cors::methods`] and [`Cors::request_headers`] allow more. The layer responds to preflight requests
/// itself, so routes need no handler for OPTIONS.
///
/// This protects the users of browsers, not the application: a form on another site still reaches it. CSRF
/// protection is for that.
#[derive(Clone, Debug)]
pub struct Cors<Origins = ListedOrigins> {
    origins: Origins,
    allow_credentials: bool,
    methods: Vec<Method>,
    request_headers: RequestHeaders,
    exposed: Option<HeaderValue>,
    max_age: Option<Duration>,
}

/// A list of origins.
#[derive(Clone, Default)]
pub struct ListedOrigins {
    exact: Vec<String>,
    /// What the origin of a subdomain starts and ends with.
    subdomains: Vec<(String, String)>,
    matching: Vec<Predicate>,
}

/// All origins. Responses are the same for all of them, and never allow credentials.
#[derive(Clone, Copy, Debug)]
pub struct AnyOrigin(());

type Predicate = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Clone, Debug)]
enum RequestHeaders {
    Listed(Vec<HeaderName>),
    Any,
}

impl Default for Cors {
    fn default() -> Self {
        Self::new()
    }
}

impl Cors {
    /// Allows no origin yet.
    pub fn new() -> Self {
        Self::with(ListedOrigins::default())
    }

    /// Allows an origin: scheme, host, and port if it is not the scheme's own, as
    /// `https://shop.example`. `https://*.shop.example` allows all subdomains, and not the domain itself.
    /// `null`, which files and sandboxed frames of any site are, is an origin like another.
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Self {
        let origin = serialised(origin);
        match origin.split_once("://*.") {
            Some((scheme, domain)) => {
                let (start, end) = (format!("{scheme}://"), format!(".{domain}"));
                self.origins.subdomains.push((start, end));
            }
            None => self.origins.exact.push(origin),
        }
        self
    }

    /// Allows the origins that a function accepts, such as all subdomains. It sees the whole
    /// origin: `|origin| origin.starts_with("https://") && origin.ends_with(".shop.example")`.
    #[must_use]
    pub fn origins_matching(
        mut self,
        accepts: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.origins.matching.push(Arc::new(accepts));
        self
    }

    /// Lets scripts send the cookies, client certificates and `Authorization` of the user, and read the
    /// responses. Such scripts act as the user.
    #[must_use]
    pub fn credentials(mut self) -> Self {
        self.allow_credentials = true;
        self
    }
}

impl Cors<AnyOrigin> {
    /// Allows all origins, without credentials, for public resources.
    pub fn any_origin() -> Self {
        Self::with(AnyOrigin(()))
    }
}

impl<Origins> Cors<Origins> {
    fn with(origins: Origins) -> Self {
        Self {
            origins,
            allow_credentials: false,
            methods: vec![Method::GET, Method::HEAD, Method::POST],
            request_headers: RequestHeaders::Listed(Vec::new()),
            exposed: None,
            max_age: None,
        }
    }

    /// The methods that scripts may use, in place of GET, HEAD and POST, which need no preflight request.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// The request fields that scripts may send, beside those that need no preflight request.
    #[must_use]
    pub fn request_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.request_headers = RequestHeaders::Listed(names.into_iter().collect());
        self
    }

    /// Lets scripts send all fields that they request.
    #[must_use]
    pub fn any_request_header(mut self) -> Self {
        self.request_headers = RequestHeaders::Any;
        self
    }

    /// The response fields that scripts may read, beside those that they always may, such as
    /// `Content-Type`.
    #[must_use]
    pub fn exposed_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        let names: Vec<HeaderName> = names.into_iter().collect();
        // Names with commas between them are a field value.
        let exposed = HeaderValue::from_str(&joined(&names));
        self.exposed = exposed.ok().filter(|names| !names.is_empty());
        self
    }

    /// How long a browser may use the response to a preflight request; 5 seconds by default.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }
}

impl<Origins: AllowedOrigins> Cors<Origins> {
    /// The response to a preflight request; a refused one is an error of the application.
    fn preflight(&self, request: &Request, next: &Next) -> Response {
        let mut response = Response::new(StatusCode::NO_CONTENT);
        let fields = request.headers();
        let headers = response.headers_mut();
        headers.append(
            &header::VARY,
            &HeaderValue::from_static(
                "origin, access-control-request-method, access-control-request-headers",
            ),
        );
        let Some(allowed) = self.origins.allowed(fields.get("origin")) else {
            let mut refused = Error::forbidden("this origin is not allowed").into_response();
            *refused.headers_mut() = response.headers().clone();
            return next.rendering(request).apply(refused);
        };
        grant(headers, &allowed, self.allow_credentials);
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        set(headers, "access-control-allow-methods", methods.join(", "));
        let names = match &self.request_headers {
            RequestHeaders::Listed(names) => joined(names),
            RequestHeaders::Any => fields
                .get_str("access-control-request-headers")
                .unwrap_or("")
                .to_owned(),
        };
        set(headers, "access-control-allow-headers", names);
        if let Some(age) = self.max_age {
            set(headers, "access-control-max-age", age.as_secs().to_string());
        }
        response
    }
}

impl<Origins: AllowedOrigins> Middleware<()> for Cors<Origins> {
    fn changes_only_fields(&self) -> bool {
        true
    }

    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let fields = request.headers();
        let is_preflight = *request.method() == Method::OPTIONS
            && fields.contains("origin")
            && fields.contains("access-control-request-method");
        if is_preflight {
            return self.preflight(&request, &next).into();
        }
        let allowed = self.origins.allowed(fields.get("origin"));
        let (allow_credentials, exposed) = (self.allow_credentials, self.exposed.clone());
        next.call_and_change(request, move |mut response| {
            let headers = response.headers_mut();
            if Origins::VARIES {
                // Also for origins that are not allowed: a cache must not give them the response of another.
                headers.append(&header::VARY, &HeaderValue::from_static("origin"));
            }
            if let Some(allowed) = allowed {
                grant(headers, &allowed, allow_credentials);
                if let Some(exposed) = exposed {
                    headers.insert(&header::ACCESS_CONTROL_EXPOSE_HEADERS, &exposed);
                }
            }
            response
        })
    }
}

/// The origins that are allowed.
pub trait AllowedOrigins: Send + Sync + 'static {
    /// Whether responses depend on the origin.
    const VARIES: bool;

    /// The value of `Access-Control-Allow-Origin` for a request of this origin, if it is allowed.
    fn allowed(&self, origin: Option<&[u8]>) -> Option<HeaderValue>;
}

impl AllowedOrigins for ListedOrigins {
    const VARIES: bool = true;

    fn allowed(&self, origin: Option<&[u8]>) -> Option<HeaderValue> {
        let origin = std::str::from_utf8(origin?).ok()?;
        let is_allowed = self.exact.iter().any(|known| known == origin)
            || (self.subdomains.iter()).any(|(start, end)| is_subdomain(origin, start, end))
            || self.matching.iter().any(|accepts| accepts(origin));
        let value = is_allowed.then(|| HeaderValue::from_str(origin));
        value.and_then(Result::ok)
    }
}

impl AllowedOrigins for AnyOrigin {
    const VARIES: bool = false;

    fn allowed(&self, _: Option<&[u8]>) -> Option<HeaderValue> {
        // In every response, so that a cache has it for requests with an origin.
        Some(HeaderValue::from_static("*"))
    }
}

impl std::fmt::Debug for ListedOrigins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListedOrigins")
            .field("exact", &self.exact)
            .field("subdomains", &self.subdomains)
            .finish_non_exhaustive()
    }
}

/// Adds the fields that allow an origin.
fn grant(headers: &mut Headers, origin: &HeaderValue, with_credentials: bool) {
    headers.insert(&header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if with_credentials {
        headers.insert(
            &header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
            &HeaderValue::from_static("true"),
        );
    }
}

/// Whether labels of a host, and nothing else, stand between the start and the end.
fn is_subdomain(origin: &str, start: &str, end: &str) -> bool {
    let labels = origin
        .strip_prefix(start)
        .and_then(|rest| rest.strip_suffix(end));
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    labels.is_some_and(|labels| !labels.is_empty() && labels.bytes().all(is_of_host))
}

/// An origin as browsers write it: in lower case, without a slash, and without the scheme's port.
fn serialised(origin: &str) -> String {
    let origin = origin.trim_end_matches('/').to_ascii_lowercase();
    let port = match UrlParts::split(&origin).map(|url| url.scheme) {
        Some("https") => ":443",
        Some("http") => ":80",
        _ => return origin,
    };
    match origin.strip_suffix(port) {
        Some(without) => without.to_owned(),
        None => origin,
    }
}

fn joined(names: &[HeaderName]) -> String {
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    names.join(", ")
}

/// Sets a field unless its value is empty. Names, and what browsers send, are valid field values.
fn set(headers: &mut Headers, name: &str, value: String) {
    if !value.is_empty() {
        let _ = headers.try_insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_labels_of_a_host_and_nothing_else() {
        let cors = Cors::new().origin("https://*.Shop.example:443/");
        let is_allowed = |origin: &str| cors.origins.allowed(Some(origin.as_bytes())).is_some();
        for origin in ["https://a.shop.example", "https://a.b.shop.example"] {
            assert!(is_allowed(origin), "{origin}");
        }
        for origin in [
            "https://shop.example",
            "https://.shop.example",
            "http://a.shop.example",
            "https://a.shop.example:8443",
            "https://a.shop.example.evil.example",
            "https://evil.example/.shop.example",
            "https://evil.example:1@a.shop.example",
            "https://evilshop.example",
        ] {
            assert!(!is_allowed(origin), "{origin}");
        }
    }

    #[test]
    fn an_origin_is_compared_as_browsers_write_it() {
        for (configured, sent) in [
            ("https://shop.example", "https://shop.example"),
            ("HTTPS://Shop.Example/", "https://shop.example"),
            ("https://shop.example:443", "https://shop.example"),
            ("https://shop.example:443/", "https://shop.example"),
            ("https://shop.example:4433", "https://shop.example:4433"),
            ("https://shop.example:80", "https://shop.example:80"),
            ("http://shop.example:80", "http://shop.example"),
            ("http://shop.example:443", "http://shop.example:443"),
            ("app://shop.example:80", "app://shop.example:80"),
            ("null", "null"),
        ] {
            assert_eq!(serialised(configured), sent, "{configured}");
        }
    }

    #[test]
    fn only_a_listed_origin_is_allowed() {
        let listed = Cors::new()
            .origin("https://shop.example")
            .origins_matching(|origin| origin.ends_with(".test"));
        let allowed = |origin: Option<&[u8]>| listed.origins.allowed(origin);
        for origin in ["https://shop.example", "http://a.test"] {
            let value = allowed(Some(origin.as_bytes())).unwrap();
            assert_eq!(value.as_bytes(), origin.as_bytes());
        }
        for origin in [
            None,
            Some(&b""[..]),
            Some(b"null"),
            Some(b"https://shop.example/"),
            Some(b"https://Shop.example"),
            Some(b"https://shop.example\xff"),
            Some(b"a\n.test"),
        ] {
            assert!(allowed(origin).is_none(), "{origin:?}");
        }
        let any = Cors::any_origin();
        for origin in [None, Some(&b"null"[..])] {
            assert_eq!(any.origins.allowed(origin).unwrap(), "*");
        }
    }
}
