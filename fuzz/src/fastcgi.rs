//! Fuzz targets of the web server's end of FastCGI, and of the CGI header block.

use apus_codec::fastcgi::{
    BodyLength, CgiResponseHead, FastCgiConnection, FastCgiError, FastCgiEvent, Params,
};
use apus_codec::h1::HeadLimits;
use apus_http::Headers;

const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 1024,
    fields: 16,
};

/// A response is independent of the split of the input, starts with its head, has at most the announced
/// body, and ends only with `FCGI_END_REQUEST`. The first byte is odd for a response to HEAD.
pub fn fastcgi_client(data: &[u8]) {
    let (is_head, input) = match data.split_first() {
        Some((first, rest)) => (first & 1 == 1, rest),
        None => (false, data),
    };
    let whole = response(is_head, input, input.len());
    for step in [1, 7] {
        assert_eq!(response(is_head, input, step), whole, "in steps of {step}");
    }
    if let Some(head) = &whole.head {
        check(head);
        let most = match head.body {
            BodyLength::None => 0,
            BodyLength::Length(length) => length,
            BodyLength::UntilEnd => u64::MAX,
        };
        let len = whole.body.len() as u64;
        assert!(len <= most);
        if whole.end == Some(Ok(())) && most != u64::MAX {
            assert_eq!(len, most, "an response that ended is not whole");
        }
    } else {
        assert!(whole.body.is_empty());
        assert_ne!(whole.end, Some(Ok(())), "an end without a head");
    }
}

#[derive(Debug, Default, PartialEq)]
struct Response {
    head: Option<CgiResponseHead>,
    body: Vec<u8>,
    errors: Vec<u8>,
    /// `None` if the response is incomplete.
    end: Option<Result<(), FastCgiError>>,
}

fn response(is_head: bool, input: &[u8], step: usize) -> Response {
    let mut connection = FastCgiConnection::new(LIMITS);
    let mut out = Vec::new();
    assert!(connection.send_request(&Params::new(), is_head, true, &mut out));
    connection.send_end(&mut out);
    let mut response = Response::default();
    let (mut consumed, mut seen) = (0, 0);
    while response.end.is_none() {
        let unread = input.get(consumed..seen).unwrap_or_default();
        match connection.handle_input(unread) {
            Ok((bytes, event)) => {
                assert!(bytes <= unread.len());
                consumed += bytes;
                match event {
                    FastCgiEvent::Incomplete if seen == input.len() => break,
                    FastCgiEvent::Incomplete => {
                        seen = seen.saturating_add(step.max(1)).min(input.len());
                    }
                    FastCgiEvent::Head(head) => assert!(response.head.replace(head).is_none()),
                    FastCgiEvent::Data(range) => {
                        let data = unread.get(range).unwrap_or_default();
                        assert!(!data.is_empty() && response.head.is_some());
                        response.body.extend_from_slice(data);
                    }
                    FastCgiEvent::Stderr(range) => {
                        let data = unread.get(range).unwrap_or_default();
                        response.errors.extend_from_slice(data);
                    }
                    FastCgiEvent::End { .. } => response.end = Some(Ok(())),
                }
            }
            Err(error) => {
                assert_eq!(connection.handle_input(unread), Err(error));
                assert!(!connection.keeps_alive());
                response.end = Some(Err(error));
            }
        }
    }
    if response.end.is_none() {
        assert_eq!(connection.handle_eof(), Err(FastCgiError::Truncated));
    }
    response
}

/// An accepted header block contains nothing that splits a message, and is parsed again as it is written.
pub fn cgi_head(data: &[u8]) {
    let Ok(head) = CgiResponseHead::from_block(None, data, false, &LIMITS) else {
        return;
    };
    check(&head);
    let again = CgiResponseHead::from_block(Some(head.status), head.headers.wire(), false, &LIMITS);
    match again {
        // Lines that are no fields are left out of it.
        Ok(again) => {
            let head = CgiResponseHead {
                invalid_line: None,
                ..head
            };
            assert_eq!(again, head);
        }
        // The written block has spaces that the parsed one may lack.
        Err(error) => assert_eq!(error, FastCgiError::HeadTooLarge),
    }
}

fn check(head: &CgiResponseHead) {
    assert!(!head.status.is_informational());
    assert!(head.headers.len() <= LIMITS.fields);
    assert!(Headers::from_wire(head.headers.wire()).is_ok());
    for name in [
        "connection",
        "transfer-encoding",
        "keep-alive",
        "status",
        "upgrade",
    ] {
        assert!(!head.headers.contains(name), "{name}");
    }
}
