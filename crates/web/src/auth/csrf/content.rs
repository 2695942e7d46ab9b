//! The CSRF token in a form, found at the start of the body.
//!
//! The handler gets the whole body all the same. Forms are application/x-www-form-urlencoded (URL
//! standard) or multipart/form-data (RFC 7578).

use std::collections::VecDeque;

use apus_http::{Body, BodyError, Frame, Request, StatusCode};
use bytes::{Bytes, BytesMut};

use apus_handler::Error;

/// The name of the field.
const FIELD: &str = "csrf_token";

/// The token of a form, if the content is one. At most so many bytes are read for it, and they are
/// put back.
pub(super) async fn token(request: &mut Request, limit: usize) -> Result<Option<String>, Error> {
    let Some(form) = Form::of(request) else {
        return Ok(None);
    };
    let mut body = request.take_body();
    let mut read = Pieces::default();
    let mut search_at = 0;
    let token = loop {
        let is_last = read.is_whole || read.len > limit;
        // Searched anew only when there is twice as much: crumbs cost no more than pieces.
        if is_last || read.len >= search_at {
            if let Some(token) = form.find(&read.joined(), read.is_whole) {
                break Some(token);
            }
            search_at = read.len.saturating_mul(2);
        }
        if is_last {
            break None;
        }
        match body.frame().await {
            Some(Ok(Frame::Data(bytes))) => read.push(bytes),
            Some(Ok(other)) => {
                read.after = Some(other);
                read.is_whole = true;
            }
            Some(Err(error)) => return Err(broken(&error)),
            None => read.is_whole = true,
        }
    };
    *request.body_mut() = read.put_back(body);
    Ok(token)
}

fn broken(error: &BodyError) -> Error {
    let status = match error {
        BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    Error::new(status, error)
}

/// How fields are written down.
enum Form {
    UrlEncoded,
    /// With this between the parts.
    Multipart(String),
}

impl Form {
    fn of(request: &Request) -> Option<Self> {
        let content_type = request.headers().get_str("content-type")?;
        let (media, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        let media = media.trim();
        if media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Some(Self::UrlEncoded);
        }
        if !media.eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.trim().split_once('=')?;
            let boundary = value.trim_matches('"');
            (name.eq_ignore_ascii_case("boundary") && !boundary.is_empty())
                .then(|| Self::Multipart(format!("--{boundary}")))
        })
    }

    /// The token in what was read, once it is there as a whole.
    fn find(&self, read: &[u8], is_whole: bool) -> Option<String> {
        match self {
            Self::UrlEncoded => {
                let mut fields = read.split(|byte| *byte == b'&').peekable();
                while let Some(field) = fields.next() {
                    let is_field_whole = is_whole || fields.peek().is_some();
                    let text = std::str::from_utf8(field).ok();
                    let (name, value) = match text.and_then(|text| text.split_once('=')) {
                        Some(pair) if is_field_whole => pair,
                        _ => continue,
                    };
                    // A token needs no escapes.
                    if name == FIELD {
                        return Some(value.to_owned());
                    }
                }
                None
            }
            Self::Multipart(delimiter) => {
                let text = String::from_utf8_lossy(read);
                let mut parts = text.split(delimiter.as_str()).peekable();
                while let Some(part) = parts.next() {
                    // What stands before the next delimiter is whole.
                    let is_part_whole = parts.peek().is_some();
                    let Some((head, value)) = part.split_once("\r\n\r\n") else {
                        continue;
                    };
                    let is_token = head.lines().any(|line| {
                        let line = line.to_ascii_lowercase();
                        line.starts_with("content-disposition:")
                            && !line.contains("filename")
                            && line.contains(&format!("name=\"{FIELD}\""))
                    });
                    if is_token && is_part_whole {
                        return Some(value.trim_end_matches("\r\n").to_owned());
                    }
                }
                None
            }
        }
    }
}

/// Content that was read ahead.
#[derive(Default)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    len: usize,
    is_whole: bool,
    /// What came behind the data.
    after: Option<Frame>,
}

impl Pieces {
    fn push(&mut self, bytes: Bytes) {
        self.len = self.len.saturating_add(bytes.len());
        self.pieces.push_back(bytes);
    }

    /// All of it; mostly it came in one piece, which then is not copied.
    fn joined(&mut self) -> Bytes {
        if self.pieces.len() > 1 {
            let mut joined = BytesMut::with_capacity(self.len);
            self.pieces
                .drain(..)
                .for_each(|piece| joined.extend_from_slice(&piece));
            self.pieces.push_back(joined.freeze());
        }
        self.pieces.front().cloned().unwrap_or_default()
    }

    /// The content as it was.
    fn put_back(mut self, rest: Body) -> Body {
        if self.is_whole && self.after.is_none() {
            return self.joined().into();
        }
        let first = Some(self.joined()).filter(|first| !first.is_empty());
        rest.preceded_by(first.map(Frame::Data).into_iter().chain(self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_only_as_a_whole() {
        let form = Form::UrlEncoded;
        assert_eq!(form.find(b"a=b&csrf_token=x", true).as_deref(), Some("x"));
        assert_eq!(form.find(b"a=b&csrf_token=x", false), None);
        assert_eq!(form.find(b"csrf_token=x&", false).as_deref(), Some("x"));
        assert_eq!(form.find(b"xcsrf_token=x&a", true), None);
    }

    #[test]
    fn a_token_is_found_among_the_parts_of_a_form_with_files() {
        let form = Form::Multipart("--B".to_owned());
        let part = "--B\r\nContent-Disposition: form-data; name=\"csrf_token\"\r\n\r\nabc\r\n";
        assert_eq!(form.find(part.as_bytes(), false), None);
        assert_eq!(
            form.find(format!("{part}--B").as_bytes(), false).as_deref(),
            Some("abc")
        );
        let file = "--B\r\nContent-Disposition: form-data; name=\"f\"; \
                    filename=\"name=\\\"csrf_token\\\"\"\r\n\r\nabc\r\n--B--";
        assert_eq!(form.find(file.as_bytes(), true), None);
    }
}
