//! `TestRequest`: builds and sends a request.

use apus_http::{Body, Headers, Method, percent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::transport::{IncomingTestResponse, OutgoingTestRequest};
use super::{TestClient, TestResponse, fail, html};

macro_rules! by_method {
    ($($(#[$doc:meta])* $name:ident: $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, target: &str) -> TestRequest {
            self.request(Method::$method, target)
        }
    )*};
}

impl TestClient {
    by_method! {
        /// A GET request for a path, with or without a query: `/users?page=2`.
        get: GET;
        /// A POST request.
        post: POST;
        /// A PUT request.
        put: PUT;
        /// A PATCH request.
        patch: PATCH;
        /// A DELETE request.
        delete: DELETE;
        /// A HEAD request.
        head: HEAD;
        /// An OPTIONS request.
        options: OPTIONS;
    }

    /// A request of any method.
    pub fn request(&self, method: Method, target: &str) -> TestRequest {
        TestRequest::new(self.clone(), method, target)
    }
}

/// A builder of a request; [`TestRequest::send`] sends it.
#[derive(Debug)]
#[must_use = "it is sent by `send`"]
pub struct TestRequest {
    pub(super) client: TestClient,
    pub(super) method: Method,
    pub(super) target: String,
    headers: Headers,
    body: Body,
}

impl TestRequest {
    fn new(client: TestClient, method: Method, target: &str) -> Self {
        Self {
            headers: client.headers.clone(),
            client,
            method,
            target: target.to_owned(),
            body: Body::Empty,
        }
    }

    /// Sets a header field.
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Err(error) = self.headers.try_insert(name, value) {
            fail(error);
        }
        self
    }

    /// Adds parameters to the query.
    pub fn query<N: AsRef<str>, V: AsRef<str>>(
        mut self,
        parameters: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        for (name, value) in parameters {
            self.target
                .push(if self.target.contains('?') { '&' } else { '?' });
            push_pair(&mut self.target, name.as_ref(), value.as_ref());
        }
        self
    }

    /// Sets the body: bytes, a text, or a stream.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON body.
    #[track_caller]
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(json) => self.header("content-type", "application/json").body(json),
            Err(error) => fail(error),
        }
    }

    /// Sets the fields of a form as the body.
    #[track_caller]
    pub fn form<N: AsRef<str>, V: AsRef<str>>(
        self,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut encoded = String::new();
        for (name, value) in fields {
            if !encoded.is_empty() {
                encoded.push('&');
            }
            push_pair(&mut encoded, name.as_ref(), value.as_ref());
        }
        self.header("content-type", "application/x-www-form-urlencoded")
            .body(encoded)
    }

    /// Sets a form with files as the body (RFC 7578): the fields, and for each file the name of its field, its own
    /// name, its media type and its bytes.
    #[track_caller]
    pub fn multipart<'a>(
        self,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        files: impl IntoIterator<Item = (&'a str, &'a str, &'a str, &'a [u8])>,
    ) -> Self {
        // No test has this line in a value.
        const BOUNDARY: &str = "apus-test-4f1c9b27d85e";
        let mut body = Vec::new();
        for (name, value) in fields {
            let head =
                format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend([head.as_bytes(), value.as_bytes(), b"\r\n"].concat());
        }
        for (name, file, media_type, bytes) in files {
            let head = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\
                 Content-Type: {media_type}\r\n\r\n"
            );
            body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
        }
        body.extend(format!("--{BOUNDARY}--\r\n").into_bytes());
        self.header(
            "content-type",
            &format!("multipart/form-data; boundary={BOUNDARY}"),
        )
        .body(body)
    }

    /// Requests a page first and sends the CSRF token of its form, which [`Csrf`](crate::auth::Csrf)
    /// requires: `client.post("/notes").token_of("/notes").form(fields)`.
    ///
    /// # Panics
    /// The page has no field named `csrf_token`.
    #[track_caller]
    pub fn token_of(self, page: &str) -> Self {
        let mut shown = self.client.get(page).send();
        let text = shown.text();
        match html::field_value(&text, "csrf_token") {
            Some(token) => self.header("x-csrf-token", token),
            None => fail(format_args!("GET {page} has no field csrf_token:\n{text}")),
        }
    }

    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    #[track_caller]
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// `Authorization: Basic` (RFC 7617).
    #[track_caller]
    pub fn basic(self, user: &str, password: &str) -> Self {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        self.header("authorization", &format!("Basic {credentials}"))
    }

    /// Sends the request and waits for the head of the response. Redirects are not followed.
    ///
    /// # Panics
    /// There is no response.
    #[track_caller]
    pub fn send(self) -> TestResponse {
        let request = format!("{} {}", self.method, self.target);
        let client = self.client.clone();
        let incoming = self.exchange();
        TestResponse::new(client, request, incoming)
    }

    #[track_caller]
    pub(super) fn exchange(mut self) -> IncomingTestResponse {
        let shared = self.client.shared.clone();
        let path = self.target.split('?').next().unwrap_or("/").to_owned();
        if let Some(cookies) = shared.cookies.borrow().field(&path) {
            let own = self.headers.get_str("cookie");
            let both = match own {
                Some(own) => format!("{own}; {cookies}"),
                None => cookies,
            };
            // Cookies of responses are valid field values.
            let _ = self.headers.try_insert("cookie", both);
        }
        let request = format!("{} {}", self.method, self.target);
        let exchange = shared.transport.exchange(OutgoingTestRequest {
            method: self.method,
            target: self.target,
            headers: self.headers,
            body: self.body,
        });
        match self.client.run(exchange) {
            Ok(incoming) => {
                let mut cookies = shared.cookies.borrow_mut();
                for line in incoming.headers.get_all("set-cookie") {
                    cookies.take(&String::from_utf8_lossy(line), &path);
                }
                incoming
            }
            Err(error) => fail(format_args!("{request}: {error}")),
        }
    }
}

/// Writes `name=value` (WHATWG URL, application/x-www-form-urlencoded).
fn push_pair(encoded: &mut String, name: &str, value: &str) {
    percent::encode_form_onto(encoded, name);
    encoded.push('=');
    percent::encode_form_onto(encoded, value);
}
