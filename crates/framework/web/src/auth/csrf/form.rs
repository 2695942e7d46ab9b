//! The search for the CSRF token at the start of a form (URL standard section 5, RFC 7578).

use std::collections::VecDeque;

use apus_http::{Body, BodyError, Frame, Request, StatusCode};
use bytes::{Bytes, BytesMut};

use apus_handler::multipart::{MultipartEvent, MultipartParser};
use apus_handler::{BodyLimit, Error, HttpError};

/// The name of the field.
const FIELD: &str = "csrf_token";

/// The token of a form; `None` if the body is not a form or has no token. It reads at most `limit`
/// bytes and a last piece, and puts them back: the handler gets the whole body.
pub(super) async fn find_token(
    request: &mut Request,
    limit: usize,
) -> Result<Option<String>, Error> {
    let Some(mut search) = TokenSearch::of(request) else {
        return Ok(None);
    };
    let mut body = request.take_body();
    let mut read = ReadAhead::default();
    let token = loop {
        let is_last = read.is_whole || read.len > limit;
        match search.run(&mut read, is_last) {
            SearchResult::Found(token) => break Some(token),
            SearchResult::More if !is_last => {}
            SearchResult::More | SearchResult::Missing => break None,
        }
        match body.frame().await {
            Some(Ok(Frame::Data(bytes))) => read.push(bytes),
            Some(Ok(other)) => {
                read.after = Some(other);
                read.is_whole = true;
            }
            Some(Err(error)) => return Err(read_error(&error, request)),
            None => read.is_whole = true,
        }
    };
    *request.body_mut() = read.put_back(body);
    Ok(token)
}

fn read_error(error: &BodyError, request: &Request) -> Error {
    let status = match (error, BodyLimit::of_body(request)) {
        (BodyError::TooLarge, Some(limit)) => {
            return Error::new(StatusCode::PAYLOAD_TOO_LARGE, BodyLimit::message(limit));
        }
        (BodyError::TooLarge, None) => StatusCode::PAYLOAD_TOO_LARGE,
        (error, _) => error.status(),
    };
    Error::new(status, error)
}

/// A search, by the media type of the form.
enum TokenSearch {
    /// The next search starts when this many bytes were read.
    UrlEncoded {
        next_at: usize,
    },
    Multipart(Box<MultipartSearch>),
}

enum SearchResult {
    Found(String),
    /// The form has no token, or is not valid.
    Missing,
    More,
}

impl TokenSearch {
    fn of(request: &Request) -> Option<Self> {
        let content_type = request.headers().get_str("content-type")?;
        let media_type = content_type.split(';').next().unwrap_or("").trim();
        if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Some(Self::UrlEncoded { next_at: 0 });
        }
        let parser = MultipartParser::for_content_type(content_type).ok()?;
        Some(Self::Multipart(Box::new(MultipartSearch::new(parser))))
    }

    fn run(&mut self, read: &mut ReadAhead, is_last: bool) -> SearchResult {
        match self {
            // Searches again only when twice as much was read, so that small pieces cost no more
            // than large ones.
            Self::UrlEncoded { next_at } if is_last || read.len >= *next_at => {
                *next_at = read.len.saturating_mul(2);
                match find_urlencoded(&read.joined(), read.is_whole) {
                    Some(token) => SearchResult::Found(token),
                    None => SearchResult::More,
                }
            }
            Self::UrlEncoded { .. } => SearchResult::More,
            Self::Multipart(search) => search.run(&read.pieces),
        }
    }
}

/// The token in a form of media type `application/x-www-form-urlencoded`, once it is complete.
fn find_urlencoded(read: &[u8], is_whole: bool) -> Option<String> {
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

/// A search in a form with files.
struct MultipartSearch {
    parser: MultipartParser,
    /// How many pieces the parser got.
    pushed: usize,
    /// The value of the token's part, while the parser is in that part.
    token: Option<BytesMut>,
}

impl MultipartSearch {
    fn new(parser: MultipartParser) -> Self {
        Self {
            parser,
            pushed: 0,
            token: None,
        }
    }

    fn run(&mut self, pieces: &VecDeque<Bytes>) -> SearchResult {
        loop {
            match self.parser.next() {
                Ok(Some(MultipartEvent::Part(head))) => {
                    let is_token = head.name == FIELD && head.file_name.is_none();
                    self.token = is_token.then(BytesMut::new);
                }
                Ok(Some(MultipartEvent::Data(data))) => {
                    if let Some(token) = &mut self.token {
                        token.extend_from_slice(&data);
                    }
                }
                Ok(Some(MultipartEvent::PartEnd)) => {
                    if let Some(token) = self.token.take() {
                        return match String::from_utf8(token.into()) {
                            Ok(token) => SearchResult::Found(token),
                            Err(_) => SearchResult::Missing,
                        };
                    }
                }
                Ok(Some(MultipartEvent::End)) | Err(_) => return SearchResult::Missing,
                Ok(None) => {
                    let Some(piece) = pieces.get(self.pushed) else {
                        return SearchResult::More;
                    };
                    self.parser.push(piece.clone());
                    self.pushed = self.pushed.saturating_add(1);
                }
            }
        }
    }
}

/// The start of a body, which was read before the handler runs.
#[derive(Default)]
struct ReadAhead {
    pieces: VecDeque<Bytes>,
    len: usize,
    is_whole: bool,
    /// The frame that followed the data.
    after: Option<Frame>,
}

impl ReadAhead {
    fn push(&mut self, bytes: Bytes) {
        self.len = self.len.saturating_add(bytes.len());
        self.pieces.push_back(bytes);
    }

    /// All bytes. Most bodies come in one piece, which is not copied.
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

    /// The body as it was.
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
    fn finds_a_complete_urlencoded_token() {
        let find = find_urlencoded;
        assert_eq!(find(b"a=b&csrf_token=x", true).as_deref(), Some("x"));
        assert_eq!(find(b"a=b&csrf_token=x", false), None);
        assert_eq!(find(b"csrf_token=x&", false).as_deref(), Some("x"));
        assert_eq!(find(b"xcsrf_token=x&a", true), None);
    }

    /// The token, or whether the search waits for more.
    fn find_multipart(form: &str, size: usize) -> Result<String, bool> {
        let content_type = "multipart/form-data; boundary=\"B\"";
        let parser = MultipartParser::for_content_type(content_type).unwrap();
        let pieces = form.as_bytes().chunks(size).map(Bytes::copy_from_slice);
        match MultipartSearch::new(parser).run(&pieces.collect()) {
            SearchResult::Found(token) => Ok(token),
            SearchResult::More => Err(true),
            SearchResult::Missing => Err(false),
        }
    }

    #[test]
    fn finds_a_complete_multipart_token() {
        let part = "--B\r\nContent-Disposition: form-data; name=\"csrf_token\"\r\n\r\nabc\r\n";
        let other = "--B\r\nContent-Disposition: form-data; name=a\r\n\r\ncsrf_token\r\n";
        let file = "--B\r\nContent-Disposition: form-data; name=\"csrf_token\"; \
                    filename=\"name=\\\"csrf_token\\\"\"\r\n\r\nabc\r\n";
        for size in [1, 7, 1000] {
            assert_eq!(find_multipart(part, size), Err(true));
            let form = format!("{other}{file}{part}--B");
            assert_eq!(find_multipart(&form, size).as_deref(), Ok("abc"));
            let form = format!("{other}{file}--B--");
            assert_eq!(find_multipart(&form, size), Err(false));
            assert_eq!(find_multipart("--B\r\nx\r\n\r\n", size), Err(false));
        }
    }
}
