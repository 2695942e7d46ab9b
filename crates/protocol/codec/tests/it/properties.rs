//! Tests properties that hold for any input.

use apus_codec::h1::{RequestFraming, ServerConnection};
use apus_http::{Headers, ResponseHead, StatusCode, Version};
use apus_testkit::cases;
use proptest::prelude::*;

use crate::transcript::{DATE, LIMITS, Transcript, cut};

/// A generated valid request.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The sizes of the chunks; empty for `Content-Length`.
    pub(crate) chunks: Vec<usize>,
}

impl GeneratedRequest {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nHost: a\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.fields {
            bytes.extend(format!("{name}: {value}\r\n").as_bytes());
        }
        if self.chunks.is_empty() {
            if !self.body.is_empty() {
                bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
            }
            bytes.extend(b"\r\n");
            bytes.extend(&self.body);
            return bytes;
        }
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        for piece in cut(&self.body, &self.chunks) {
            if !piece.is_empty() {
                bytes.extend(format!("{:X}\r\n", piece.len()).as_bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    }
}

prop_compose! {
    pub(crate) fn request()(
        method in "GET|POST|PUT|DELETE|PATCH|OPTIONS|PURGE",
        target in "/[a-zA-Z0-9/._~%-]{0,30}(\\?[a-z0-9=&]{0,10})?|http://[a-z]{1,9}(:[1-9][0-9]{0,3})?/[a-z]{0,9}",
        fields in prop::collection::vec(
            ("X-[A-Za-z0-9-]{1,12}", "([!-~]([ -~\t]{0,20}[!-~])?)?"), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..300),
        chunks in prop::collection::vec(any::<usize>(), 0..4),
    ) -> GeneratedRequest {
        GeneratedRequest { method, target, fields, body, chunks }
    }
}

/// Parts of requests in any order, which are more often nearly valid than random bytes.
pub(crate) fn nearly_valid() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\n"[..],
        b"POST /a HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: keep-alive\r\n",
        b"Expect: 100-continue\r\n",
        b" x\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"5\r\nhello\r\n",
        b"5;x=y\r\nhello\r\n",
        b"0\r\n",
        b"X: y\r\n",
        b"hello",
        b"\0",
    ]);
    (any::<bool>(), prop::collection::vec(piece, 0..16)).prop_map(|(start, pieces)| {
        let start: &[u8] = if start {
            b"POST / HTTP/1.1\r\nHost: a\r\n"
        } else {
            b""
        };
        [start, &pieces.concat()].concat()
    })
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn parses_requests_independently_of_the_split(
        input in prop_oneof![
            nearly_valid(),
            (request(), request()).prop_map(|(a, b)| [a.bytes(), b.bytes()].concat()),
            prop::collection::vec(any::<u8>(), 0..64),
        ],
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let at_once = Transcript::of([&input[..]]);
        prop_assert_eq!(&at_once, &Transcript::of(cut(&input, &cuts)));
        prop_assert_eq!(&at_once, &Transcript::of(input.chunks(1)));
    }

    #[test]
    fn parses_generated_requests(request in request()) {
        let transcript = Transcript::of([&request.bytes()[..]]);
        prop_assert_eq!(transcript.error, None);
        prop_assert_eq!(transcript.unread, 0);
        let [read] = &transcript.requests[..] else {
            return Err(TestCaseError::fail(format!("{transcript:?}")));
        };
        prop_assert!(read.complete);
        prop_assert_eq!(read.head.head.method.as_str(), &request.method);
        prop_assert_eq!(read.head.head.target.as_str(), &request.target);
        prop_assert_eq!(read.head.head.version, Version::HTTP_11);
        let fields: Vec<_> = read
            .head
            .head
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("x-"))
            .map(|(name, value)| (name.to_owned(), String::from_utf8(value.to_vec()).unwrap()))
            .collect();
        let expected: Vec<_> = request
            .fields
            .iter()
            .map(|(name, value)| (name.to_lowercase(), value.clone()))
            .collect();
        prop_assert_eq!(fields, expected);
        prop_assert_eq!(&read.body, &request.body);
        prop_assert_eq!(read.head.body == RequestFraming::Chunked, !request.chunks.is_empty());
    }

    /// A body that the server writes in chunks is parsed as the same body.
    #[test]
    fn parses_its_own_chunks(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let mut writer = ServerConnection::new(LIMITS);
        writer.handle_input(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let head = ResponseHead {
            status: StatusCode::OK,
            headers: &Headers::new(),
            content_length: None,
            date: DATE,
            server: None,
            alt_svc: None,
        };
        writer.send_head(head, &mut Vec::new());
        let mut written = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in &pieces {
            writer.send_chunk_start(piece.len(), &mut written);
            written.extend(piece);
            writer.send_chunk_end(&mut written);
        }
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "1").unwrap();
        writer.send_end(Some(&trailers), &mut written);
        let transcript = Transcript::of(cut(&written, &cuts));
        prop_assert_eq!(transcript.error, None);
        prop_assert_eq!(transcript.unread, 0);
        prop_assert_eq!(&transcript.requests[0].body, &pieces.concat());
        prop_assert_eq!(transcript.requests[0].trailers.as_ref(), Some(&trailers));
    }
}
