//! `TestResponse`: a response, and the assertions of a test on it.

use apus_http::{Body, Frame, Headers, StatusCode};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::events::{EventReader, TestEvent};
use super::transport::{IncomingTestResponse, bytes_of};
use super::{TestClient, fail};

/// A response whose head was received. Its body is read on demand.
pub struct TestResponse {
    client: TestClient,
    /// Method and target.
    request: String,
    status: StatusCode,
    headers: Headers,
    body: Body,
    /// The body, once [`TestResponse::bytes`] read it.
    bytes: Option<Bytes>,
    trailers: Option<Headers>,
    events: EventReader,
}

/// The most bytes of a body that a failed assertion shows.
const SHOWN: usize = 2000;

impl TestResponse {
    pub(super) fn new(client: TestClient, request: String, incoming: IncomingTestResponse) -> Self {
        Self {
            client,
            request,
            status: incoming.status,
            headers: incoming.headers,
            body: incoming.body,
            bytes: None,
            trailers: None,
            events: EventReader::default(),
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

    /// The target of a redirect.
    ///
    /// # Panics
    /// There is no `Location`.
    #[track_caller]
    pub fn location(&mut self) -> &str {
        if self.header("location").is_none() {
            fail(format_args!("there is no Location: {}", self.describe()));
        }
        self.header("location").unwrap_or_default()
    }

    /// Waits for the next piece of the body; `None` at the end.
    ///
    /// # Panics
    /// The body is incomplete, or nothing arrives.
    #[track_caller]
    pub fn chunk(&mut self) -> Option<Bytes> {
        loop {
            match self.client.run(self.body.frame()) {
                None => return None,
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
                Some(frame) => match frame.and_then(bytes_of) {
                    Ok(bytes) => return Some(bytes),
                    Err(error) => fail(format_args!("{}: {error}", self.request)),
                },
            }
        }
    }

    /// The rest of the body, after the pieces of [`TestResponse::chunk`].
    ///
    /// # Panics
    /// The body is incomplete.
    #[track_caller]
    pub fn bytes(&mut self) -> Bytes {
        if let Some(bytes) = &self.bytes {
            return bytes.clone();
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk() {
            bytes.extend_from_slice(&chunk);
        }
        let bytes = Bytes::from(bytes);
        self.bytes = Some(bytes.clone());
        bytes
    }

    /// The body as text.
    ///
    /// # Panics
    /// It is not UTF-8.
    #[track_caller]
    pub fn text(&mut self) -> String {
        match String::from_utf8(self.bytes().into()) {
            Ok(text) => text,
            Err(error) => fail(format_args!("{}: {error}", self.request)),
        }
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// The body is not JSON of this type.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&mut self) -> T {
        match serde_json::from_slice(&self.bytes()) {
            Ok(value) => value,
            Err(error) => fail(format_args!("{error}: {}", self.describe())),
        }
    }

    /// The trailer section (RFC 9110 section 6.5), once the body was read.
    pub fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref()
    }

    /// Waits for the next event of a stream of Server-Sent Events, which [`TestResponse::chunk`] must not have read in
    /// part; `None` at the end. Comments, such as heart-beats, are skipped.
    ///
    /// # Panics
    /// The response is no such stream, or nothing arrives.
    #[track_caller]
    pub fn event(&mut self) -> Option<TestEvent> {
        let is_stream = self.header("content-type").unwrap_or_default();
        if !is_stream.starts_with("text/event-stream") {
            fail(format_args!(
                "expected a stream of events: {}",
                self.describe()
            ));
        }
        loop {
            if let Some(event) = self.events.next() {
                return Some(event);
            }
            let chunk = self.chunk()?;
            self.events.read(&chunk);
        }
    }

    /// Fails unless the next event of a stream has this data.
    #[track_caller]
    pub fn assert_event(&mut self, data: &str) -> &mut Self {
        let event = self.event();
        if event.as_ref().map(|event| &*event.data) != Some(data) {
            fail(format_args!(
                "{}: expected {data:?}, not {event:?}",
                self.request
            ));
        }
        self
    }

    /// The status, the fields in order of their names, and the body as text, for a test that compares it with a stored
    /// one. Fields that differ each time are left out: `Date`, and cookies and request ids have no value. JSON is
    /// indented.
    #[track_caller]
    pub fn snapshot(&mut self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (name, value) in self.headers.iter() {
            let name = name.to_string().to_ascii_lowercase();
            let value = String::from_utf8_lossy(value);
            match &*name {
                "date" => {}
                "set-cookie" => {
                    let (cookie, attributes) = value.split_once(';').unwrap_or((&value, ""));
                    let cookie = cookie.split('=').next().unwrap_or_default();
                    lines.push(format!("{name}: {cookie}=...;{attributes}"));
                }
                "x-request-id" => lines.push(format!("{name}: ...")),
                _ => lines.push(format!("{name}: {value}")),
            }
        }
        lines.sort();
        let text = self.text();
        let json = serde_json::from_str::<serde_json::Value>(&text);
        let body = match json {
            Ok(value) if value.is_object() || value.is_array() => format!("{value:#}"),
            _ => text,
        };
        format!("{}\n{}\n\n{body}", self.status, lines.join("\n"))
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

    /// Fails unless the response is a redirect to this URL.
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

    /// Fails if the field exists.
    #[track_caller]
    pub fn assert_no_header(&mut self, name: &str) -> &mut Self {
        if self.headers.contains(name) {
            fail(format_args!("expected no {name}: {}", self.describe()));
        }
        self
    }

    /// Fails unless the body is this text.
    #[track_caller]
    pub fn assert_text(&mut self, text: &str) -> &mut Self {
        if self.bytes() != text.as_bytes() {
            fail(format_args!("expected {text:?}: {}", self.describe()));
        }
        self
    }

    /// Fails unless the body contains this text.
    #[track_caller]
    pub fn assert_contains(&mut self, text: &str) -> &mut Self {
        if !self.text().contains(text) {
            fail(format_args!("expected {text:?} in it: {}", self.describe()));
        }
        self
    }

    /// Fails unless the body is this JSON, regardless of its formatting.
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

    /// The response as text, for messages.
    #[track_caller]
    pub(super) fn describe(&mut self) -> String {
        let mut text = format!("{}\n  gets {}\n", self.request, self.status);
        for (name, value) in self.headers.iter() {
            text.push_str(&format!("  {name}: {}\n", String::from_utf8_lossy(value)));
        }
        let mut bytes = self.bytes();
        bytes.truncate(SHOWN);
        text.push('\n');
        text.push_str(&String::from_utf8_lossy(&bytes));
        text
    }
}

impl std::fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestResponse")
            .field("request", &self.request)
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
