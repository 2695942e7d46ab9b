//! `TestResponse`: a response, and the assertions of a test on it.

use apus_http::{Body, Frame, Headers, StatusCode};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transport::{IncomingResponse, bytes_of};
use super::{TestClient, fail};

/// An answer whose head is here. Its content is read as it is asked for.
pub struct TestResponse {
    client: TestClient,
    /// Method and target.
    asked: String,
    status: StatusCode,
    headers: Headers,
    body: Body,
    /// What was read by [`TestResponse::bytes`].
    content: Option<Bytes>,
    trailers: Option<Headers>,
}

/// Content that a failed assertion shows, in bytes.
const SHOWN: usize = 2000;

impl TestResponse {
    pub(super) fn new(client: TestClient, asked: String, incoming: IncomingResponse) -> Self {
        Self {
            client,
            asked,
            status: incoming.status,
            headers: incoming.headers,
            body: incoming.body,
            content: None,
            trailers: None,
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The field lines.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The value of a field, the first one if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    /// Where the answer sends the client.
    ///
    /// # Panics
    /// It does not.
    #[track_caller]
    pub fn location(&mut self) -> &str {
        if self.header("location").is_none() {
            fail(format_args!("there is no Location: {}", self.describe()));
        }
        self.header("location").unwrap_or_default()
    }

    /// The next piece of the content, when it comes; `None` at the end.
    ///
    /// # Panics
    /// The content breaks off, or nothing comes.
    #[track_caller]
    pub fn chunk(&mut self) -> Option<Bytes> {
        loop {
            match self.client.run(self.body.frame()) {
                None => return None,
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
                Some(frame) => match frame.and_then(bytes_of) {
                    Ok(bytes) => return Some(bytes),
                    Err(error) => fail(format_args!("{}: {error}", self.asked)),
                },
            }
        }
    }

    /// All of the content that was not taken by [`TestResponse::chunk`].
    ///
    /// # Panics
    /// The content breaks off.
    #[track_caller]
    pub fn bytes(&mut self) -> Bytes {
        if let Some(content) = &self.content {
            return content.clone();
        }
        let mut content = Vec::new();
        while let Some(chunk) = self.chunk() {
            content.extend_from_slice(&chunk);
        }
        let content = Bytes::from(content);
        self.content = Some(content.clone());
        content
    }

    /// The content as text.
    ///
    /// # Panics
    /// It is not UTF-8.
    #[track_caller]
    pub fn text(&mut self) -> String {
        match String::from_utf8(self.bytes().into()) {
            Ok(text) => text,
            Err(error) => fail(format_args!("{}: {error}", self.asked)),
        }
    }

    /// The content as JSON.
    ///
    /// # Panics
    /// It is not, or not of this type.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&mut self) -> T {
        match serde_json::from_slice(&self.bytes()) {
            Ok(value) => value,
            Err(error) => fail(format_args!("{error}: {}", self.describe())),
        }
    }

    /// The trailer section (RFC 9110 section 6.5), once the content was read.
    pub fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref()
    }

    /// Fails unless the status is this.
    #[track_caller]
    pub fn assert_status(&mut self, status: u16) -> &mut Self {
        if self.status.as_u16() != status {
            fail(format_args!("expected {status}: {}", self.describe()));
        }
        self
    }

    /// Fails unless the status is 200.
    #[track_caller]
    pub fn assert_ok(&mut self) -> &mut Self {
        self.assert_status(200)
    }

    /// Fails unless the client is sent to this address.
    #[track_caller]
    pub fn assert_redirect(&mut self, location: &str) -> &mut Self {
        if !self.status.is_redirection() || self.header("location") != Some(location) {
            fail(format_args!(
                "expected a redirect to {location}: {}",
                self.describe()
            ));
        }
        self
    }

    /// Fails unless a field has this value.
    #[track_caller]
    pub fn assert_header(&mut self, name: &str, value: &str) -> &mut Self {
        let name_bytes = name.to_ascii_lowercase();
        let is_there = self
            .headers
            .get_all(&name_bytes)
            .any(|other| other == value.as_bytes());
        if !is_there {
            fail(format_args!(
                "expected {name}: {value}: {}",
                self.describe()
            ));
        }
        self
    }

    /// Fails if there is such a field.
    #[track_caller]
    pub fn assert_no_header(&mut self, name: &str) -> &mut Self {
        if self.headers.contains(name) {
            fail(format_args!("expected no {name}: {}", self.describe()));
        }
        self
    }

    /// Fails unless the content is this text.
    #[track_caller]
    pub fn assert_text(&mut self, text: &str) -> &mut Self {
        if self.bytes() != text.as_bytes() {
            fail(format_args!("expected {text:?}: {}", self.describe()));
        }
        self
    }

    /// Fails unless this text is in the content.
    #[track_caller]
    pub fn assert_contains(&mut self, text: &str) -> &mut Self {
        if !self.text().contains(text) {
            fail(format_args!("expected {text:?} in it: {}", self.describe()));
        }
        self
    }

    /// Fails unless the content is this JSON, however it is written.
    #[track_caller]
    pub fn assert_json(&mut self, value: impl Serialize) -> &mut Self {
        let expected = match serde_json::to_value(value) {
            Ok(expected) => expected,
            Err(error) => fail(error),
        };
        let found: serde_json::Value = self.json();
        if found != expected {
            fail(format_args!("expected {expected}: {}", self.describe()));
        }
        self
    }

    /// What came, for people.
    #[track_caller]
    pub(super) fn describe(&mut self) -> String {
        let mut text = format!("{}\n  is answered {}\n", self.asked, self.status);
        for (name, value) in self.headers.iter() {
            text.push_str(&format!("  {name}: {}\n", String::from_utf8_lossy(value)));
        }
        let mut content = self.bytes();
        content.truncate(SHOWN);
        text.push('\n');
        text.push_str(&String::from_utf8_lossy(&content));
        text
    }
}

impl std::fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestResponse")
            .field("asked", &self.asked)
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
