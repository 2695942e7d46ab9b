//! The web server's side of FastCGI, fed whatever an application may say, and the header block of CGI.

use apus_codec::fastcgi::{
    ClientConnection, ClientEvent, Params, ProtocolError, ResponseContent, ResponseHead,
};
use apus_codec::h1::HeadLimits;
use apus_http::Headers;

const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 1024,
    fields: 16,
};

/// An answer is the same however it is cut, has its head first, no more content than that says, and
/// comes to an end only by the word of the application. The first byte is odd for an answer to HEAD.
pub fn fastcgi_client(data: &[u8]) {
    let (is_head, input) = match data.split_first() {
        Some((first, rest)) => (first & 1 == 1, rest),
        None => (false, data),
    };
    let whole = answer(is_head, input, input.len());
    for step in [1, 7] {
        assert_eq!(answer(is_head, input, step), whole, "in steps of {step}");
    }
    if let Some(head) = &whole.head {
        check(head);
        let most = match head.content {
            ResponseContent::None => 0,
            ResponseContent::Length(length) => length,
            ResponseContent::UntilEnd => u64::MAX,
        };
        let len = whole.content.len() as u64;
        assert!(len <= most);
        if whole.end == Some(Ok(())) && most != u64::MAX {
            assert_eq!(len, most, "an answer that ended is not whole");
        }
    } else {
        assert!(whole.content.is_empty());
        assert_ne!(whole.end, Some(Ok(())), "an end without a head");
    }
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    head: Option<ResponseHead>,
    content: Vec<u8>,
    errors: Vec<u8>,
    /// `None`: more is to come.
    end: Option<Result<(), ProtocolError>>,
}

fn answer(is_head: bool, input: &[u8], step: usize) -> Answer {
    let mut connection = ClientConnection::new(LIMITS);
    let mut out = Vec::new();
    assert!(connection.send_request(&Params::new(), is_head, true, &mut out));
    connection.send_end(&mut out);
    let mut answer = Answer::default();
    let (mut consumed, mut seen) = (0, 0);
    while answer.end.is_none() {
        let unread = input.get(consumed..seen).unwrap_or_default();
        match connection.handle_input(unread) {
            Ok((bytes, event)) => {
                assert!(bytes <= unread.len());
                consumed += bytes;
                match event {
                    ClientEvent::Incomplete if seen == input.len() => break,
                    ClientEvent::Incomplete => {
                        seen = seen.saturating_add(step.max(1)).min(input.len());
                    }
                    ClientEvent::Head(head) => assert!(answer.head.replace(head).is_none()),
                    ClientEvent::Data(range) => {
                        let data = unread.get(range).unwrap_or_default();
                        assert!(!data.is_empty() && answer.head.is_some());
                        answer.content.extend_from_slice(data);
                    }
                    ClientEvent::Stderr(range) => {
                        let data = unread.get(range).unwrap_or_default();
                        answer.errors.extend_from_slice(data);
                    }
                    ClientEvent::End { .. } => answer.end = Some(Ok(())),
                }
            }
            Err(error) => {
                assert_eq!(connection.handle_input(unread), Err(error));
                assert!(!connection.keeps_alive());
                answer.end = Some(Err(error));
            }
        }
    }
    if answer.end.is_none() {
        assert_eq!(connection.handle_eof(), Err(ProtocolError::Truncated));
    }
    answer
}

/// A header block that is taken holds nothing that splits a message, and is read again as it is written.
pub fn cgi_head(data: &[u8]) {
    let Ok(head) = ResponseHead::from_block(None, data, false, &LIMITS) else {
        return;
    };
    check(&head);
    let again = ResponseHead::from_block(Some(head.status), head.headers.wire(), false, &LIMITS);
    match again {
        Ok(again) => assert_eq!(again, head),
        // The spaces that it is written with are not counted when it is read.
        Err(error) => assert_eq!(error, ProtocolError::HeadTooLarge),
    }
}

fn check(head: &ResponseHead) {
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
