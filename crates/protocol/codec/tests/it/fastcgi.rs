//! Tests the web server's end of FastCGI 1.0, and the header block of CGI (RFC 3875 section 6).

use apus_codec::fastcgi::{
    BodyLength, CgiResponseHead, FastCgiConnection, FastCgiError, FastCgiEvent, Params,
};
use apus_codec::h1::HeadLimits;
use apus_http::StatusCode;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits {
    target_bytes: 0,
    head_bytes: 1000,
    fields: 10,
};

const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn record(kind: u8, request: u16, body: &[u8], padding: u8) -> Vec<u8> {
    let [r1, r0] = request.to_be_bytes();
    let [c1, c0] = u16::try_from(body.len()).unwrap().to_be_bytes();
    let mut record = vec![1, kind, r1, r0, c1, c0, padding, 0];
    record.extend_from_slice(body);
    record.extend(std::iter::repeat_n(b'P', padding.into()));
    record
}

fn out(body: &str) -> Vec<u8> {
    record(STDOUT, 1, body.as_bytes(), 0)
}

fn end(app_status: u32, protocol_status: u8) -> Vec<u8> {
    let mut body = app_status.to_be_bytes().to_vec();
    body.extend_from_slice(&[protocol_status, 0, 0, 0]);
    record(3, 1, &body, 0)
}

/// A connection that has sent a request.
fn requesting(is_head: bool) -> FastCgiConnection {
    let mut connection = FastCgiConnection::new(LIMITS);
    send_request(&mut connection, is_head);
    connection
}

fn send_request(connection: &mut FastCgiConnection, is_head: bool) {
    let mut out = Vec::new();
    assert!(connection.send_request(&Params::new(), is_head, true, &mut out));
    connection.send_end(&mut out);
}

/// A parsed response.
#[derive(Debug, Default, PartialEq)]
struct ParsedResponse {
    head: Option<CgiResponseHead>,
    body: Vec<u8>,
    errors: Vec<u8>,
    app_status: Option<u32>,
}

/// Passes input to a connection in pieces that end at these positions.
fn feed(
    connection: &mut FastCgiConnection,
    input: &[u8],
    cuts: &[usize],
) -> Result<ParsedResponse, FastCgiError> {
    let mut response = ParsedResponse::default();
    let mut consumed = 0;
    for seen in cuts.iter().copied().chain([input.len()]) {
        loop {
            let unread = &input[consumed..seen];
            let (bytes, event) = connection.handle_input(unread)?;
            consumed += bytes;
            match event {
                FastCgiEvent::Incomplete => break,
                FastCgiEvent::Head(head) => {
                    assert!(response.head.replace(head).is_none());
                }
                FastCgiEvent::Data(range) => {
                    assert!(response.head.is_some() && !range.is_empty());
                    response.body.extend_from_slice(&unread[range]);
                }
                FastCgiEvent::Stderr(range) => response.errors.extend_from_slice(&unread[range]),
                FastCgiEvent::End { app_status } => {
                    response.app_status = Some(app_status);
                    break;
                }
            }
        }
    }
    Ok(response)
}

fn read(input: &[u8]) -> Result<ParsedResponse, FastCgiError> {
    feed(&mut requesting(false), input, &[])
}

#[test]
fn sends_the_example_of_the_specification() {
    // Appendix B.1 and B.2, without padding.
    let mut params = Params::new();
    params.push("SERVER_PORT", "80");
    params.push("SERVER_ADDR", "199.170.183.42");
    let mut sent = Vec::new();
    let mut connection = FastCgiConnection::new(LIMITS);
    assert!(connection.send_request(&params, false, false, &mut sent));
    connection.send_data_start(5, &mut sent);
    sent.extend_from_slice(b"12345");
    connection.send_end(&mut sent);
    let expected = [
        record(1, 1, &[0, 1, 0, 0, 0, 0, 0, 0], 0),
        record(
            4,
            1,
            b"\x0b\x02SERVER_PORT80\x0b\x0eSERVER_ADDR199.170.183.42",
            0,
        ),
        record(4, 1, b"", 0),
        record(5, 1, b"12345", 0),
        record(5, 1, b"", 0),
    ];
    assert_eq!(sent, expected.concat());
    // The application closes the connection.
    assert!(!connection.keeps_alive());
}

#[test]
fn records_of_parameters_end_with_whole_ones_as_php_requires() {
    const RECORD: usize = 65_535;
    // The name, its two lengths of one and four bytes, and the value.
    const BEFORE: usize = 6;
    let value = |len: usize| vec![b'v'; len - BEFORE];
    for (lengths, records, oversized) in [
        (&[RECORD][..], &[RECORD][..], false),
        (&[RECORD - 200, 200], &[RECORD], false),
        (&[RECORD - 200, 201], &[RECORD - 200, 201], false),
        (&[RECORD - 1, 200, 300], &[RECORD - 1, 500], false),
        (&[40_000, 40_000, 40_000], &[40_000, 40_000, 40_000], false),
        // Only a server other than PHP can read these.
        (&[RECORD + 1], &[RECORD, 1], true),
        (&[200, RECORD + 1, 200], &[200, RECORD, 1, 200], true),
    ] {
        let mut params = Params::new();
        for len in lengths {
            params.push("A", value(*len));
        }
        assert_eq!(params.wire().len(), lengths.iter().sum::<usize>());
        assert_eq!(params.oversized().is_some(), oversized, "{lengths:?}");
        let mut sent = Vec::new();
        assert!(FastCgiConnection::new(LIMITS).send_request(&params, false, true, &mut sent));
        let mut expected = record(1, 1, &[0, 1, 1, 0, 0, 0, 0, 0], 0);
        let mut rest = params.wire();
        for len in records {
            expected.extend(record(4, 1, &rest[..*len], 0));
            rest = &rest[*len..];
        }
        expected.extend(record(4, 1, b"", 0));
        assert!(sent == expected, "{lengths:?}");
    }
}

#[test]
fn reads_the_examples_of_the_specification() {
    // Appendix B.1, and B.3 with its error.
    let head = "Content-type: text/html\r\n\r\n<html>\n<head> ... ";
    let input = [
        record(STDOUT, 1, head.as_bytes(), 3),
        record(STDOUT, 1, b"", 0),
        end(0, 0),
    ];
    let response = read(&input.concat()).unwrap();
    assert_eq!(response.body, b"<html>\n<head> ... ");
    assert_eq!(response.app_status, Some(0));
    let input = [
        out("Content-type: text/html\r\n\r\n<ht"),
        record(STDERR, 1, b"config error: missing SI_UID\n", 1),
        out("ml>\n<head> ... "),
        record(STDOUT, 1, b"", 0),
        record(STDERR, 1, b"", 0),
        end(938, 0),
    ];
    let response = read(&input.concat()).unwrap();
    assert_eq!(response.body, b"<html>\n<head> ... ");
    assert_eq!(response.errors, b"config error: missing SI_UID\n");
    assert_eq!(response.app_status, Some(938));
    let head = response.head.unwrap();
    assert_eq!(head.status, StatusCode::OK);
    assert_eq!(head.headers.wire(), b"content-type: text/html\r\n");
}

#[test]
fn carries_one_request_after_another() {
    let mut connection = requesting(false);
    let mut out_of_turn = Vec::new();
    assert!(!connection.send_request(&Params::new(), false, true, &mut out_of_turn));
    assert!(out_of_turn.is_empty());
    for _ in 0..3 {
        let response = feed(&mut connection, &[out("\n"), end(0, 0)].concat(), &[]).unwrap();
        assert_eq!(response.app_status, Some(0));
        assert!(connection.is_done() && connection.keeps_alive());
        send_request(&mut connection, false);
    }
}

#[test]
fn does_not_persist_if_the_response_ends_before_the_request() {
    let mut connection = FastCgiConnection::new(LIMITS);
    let mut sent = Vec::new();
    assert!(connection.send_request(&Params::new(), false, true, &mut sent));
    feed(&mut connection, &[out("\n"), end(0, 0)].concat(), &[]).unwrap();
    assert!(connection.is_done() && !connection.keeps_alive());
}

#[test]
fn sends_an_abort_once_and_does_not_persist() {
    let mut connection = requesting(false);
    let mut sent = Vec::new();
    connection.send_abort(&mut sent);
    connection.send_abort(&mut sent);
    assert_eq!(sent, record(2, 1, b"", 0));
    assert!(!connection.keeps_alive());
    feed(&mut connection, &[out("\n"), end(0, 0)].concat(), &[]).unwrap();
    sent.clear();
    connection.send_abort(&mut sent);
    assert!(sent.is_empty());
}

#[test]
fn ignores_management_records() {
    let input = [
        // FCGI_GET_VALUES_RESULT and FCGI_UNKNOWN_TYPE (sections 4.1 and 4.2).
        record(10, 0, b"\x0f\x01FCGI_MPXS_CONNS1", 7),
        out("A: b\n"),
        record(11, 0, &[99, 0, 0, 0, 0, 0, 0, 0], 0),
        out("\nx"),
        end(0, 0),
    ];
    assert_eq!(read(&input.concat()).unwrap().body, b"x");
}

#[test]
fn rejects_invalid_responses() {
    let head = || out("A: b\n\n");
    for (input, error) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
            FastCgiError::Version,
        ),
        (vec![2, 6, 0, 1, 0, 0, 0, 0], FastCgiError::Version),
        (
            record(STDOUT, 2, b"A: b", 0),
            FastCgiError::UnexpectedRecord,
        ),
        (record(5, 1, b"x", 0), FastCgiError::UnexpectedRecord),
        (record(1, 1, &[0; 8], 0), FastCgiError::UnexpectedRecord),
        (record(99, 1, b"", 0), FastCgiError::UnexpectedRecord),
        (record(3, 1, &[0; 9], 0), FastCgiError::RecordLength),
        (end(255, 0), FastCgiError::NoHead(255)),
        ([out("A: b\n"), end(0, 0)].concat(), FastCgiError::NoHead(0)),
        ([head(), end(0, 1)].concat(), FastCgiError::CannotMultiplex),
        (end(0, 2), FastCgiError::Overloaded),
        (end(0, 3), FastCgiError::UnknownRole),
        (end(0, 4), FastCgiError::ProtocolStatus(4)),
        (
            [head(), out(""), out("x")].concat(),
            FastCgiError::DataAfterEnd,
        ),
        (
            [out("Content-Length: 2\n\nx"), end(0, 0)].concat(),
            FastCgiError::ShortBody,
        ),
    ] {
        assert_eq!(read(&input), Err(error), "{input:?}");
    }
    let mut connection = requesting(false);
    feed(&mut connection, &[head(), end(0, 0)].concat(), &[]).unwrap();
    assert_eq!(
        connection.handle_input(&head()),
        Err(FastCgiError::DataAfterEnd)
    );
    // Further input returns the same error.
    assert_eq!(
        connection.handle_input(&[]),
        Err(FastCgiError::DataAfterEnd)
    );
    assert!(!connection.keeps_alive());
}

#[test]
fn only_end_request_completes_a_response() {
    for input in [
        Vec::new(),
        out("A: b\n"),
        out("A: b\n\nx"),
        [out("Content-Length: 1\n\nx"), out("")].concat(),
        [out("A: b\n\n"), end(0, 0)[..15].to_vec()].concat(),
    ] {
        let mut connection = requesting(false);
        let response = feed(&mut connection, &input, &[]).unwrap();
        assert_eq!(response.app_status, None);
        assert_eq!(
            connection.handle_eof(),
            Err(FastCgiError::Truncated),
            "{input:?}"
        );
    }
    let mut connection = requesting(false);
    feed(&mut connection, &[out("\n"), end(0, 0)].concat(), &[]).unwrap();
    assert_eq!(connection.handle_eof(), Ok(()));
    assert!(!connection.keeps_alive());
}

#[test]
fn ignores_output_after_the_announced_length() {
    let input = [
        out("Content-Length: 3\n\nab"),
        record(STDOUT, 1, b"cdef", 2),
        out("g"),
        end(0, 0),
    ];
    let response = read(&input.concat()).unwrap();
    assert_eq!(response.body, b"abc");
    assert_eq!(response.head.unwrap().body, BodyLength::Length(3));
}

#[test]
fn ignores_output_of_responses_without_a_body() {
    for (is_head, block, length) in [
        (true, "Content-Length: 5\n\n", true),
        (true, "A: b\n\n", false),
        (false, "Status: 304\nContent-Length: 5\n\n", true),
        (
            false,
            "Status: 204 No Content\nContent-Length: 5\n\n",
            false,
        ),
        (false, "Content-Length: 0\n\n", true),
    ] {
        let mut connection = requesting(is_head);
        let input = [out(block), out("abcdef"), end(0, 0)].concat();
        let response = feed(&mut connection, &input, &[]).unwrap();
        let head = response.head.unwrap();
        assert_eq!(head.body, BodyLength::None, "{block}");
        assert_eq!(head.headers.contains("content-length"), length, "{block}");
        assert!(response.body.is_empty() && response.app_status == Some(0));
    }
}

fn block(text: &str) -> Result<(u16, String), FastCgiError> {
    let response = read(&[record(STDOUT, 1, text.as_bytes(), 0), end(0, 0)].concat())?;
    let head = response.head.unwrap();
    let wire = String::from_utf8(head.headers.wire().to_vec()).unwrap();
    Ok((head.status.as_u16(), wire))
}

#[test]
fn parses_header_blocks_of_applications() {
    for (text, status, wire) in [
        // RFC 3875 sections 6.2.1 to 6.2.4.
        ("Content-Type: a/b\r\n\r\n", 200, "content-type: a/b\r\n"),
        ("Location: /a?b\n\n", 302, "location: /a?b\r\n"),
        ("Location: http://a/\n\n", 302, "location: http://a/\r\n"),
        ("Status: 301 Moved\nLocation: /\n\n", 301, "location: /\r\n"),
        (
            "Status: 201\r\nLocation: /a\r\n\r\n",
            201,
            "location: /a\r\n",
        ),
        ("\r\n", 200, ""),
        ("\n", 200, ""),
        ("status:404\n\n", 404, ""),
        ("Status:  500 \n\n", 500, ""),
        ("Status: 404 x\nStatus: 404 y\n\n", 404, ""),
        ("Status: 799 \u{e9}\n\n", 799, ""),
        // Headers that PHP applications send.
        ("A : b\n\n", 200, "a: b\r\n"),
        ("A:\nB: \tc \n\n", 200, "a: \r\nb: c\r\n"),
        ("A: \u{e9};\"x\"\n\n", 200, "a: \u{e9};\"x\"\r\n"),
        ("A: b\u{1}c\u{7f}\n\n", 200, "a: b c\r\n"),
        ("A: b\nA: c\n\n", 200, "a: b\r\na: c\r\n"),
        ("Content-Type:\nContent-type: \n\n", 200, ""),
        (
            "Content-Length: 0\nContent-Length: 0\n\n",
            200,
            "content-length: 0\r\n",
        ),
        (
            "Transfer-Encoding: chunked\nConnection: close\nUpgrade: h2c\nKeep-Alive: 5\n\n",
            200,
            "",
        ),
    ] {
        assert_eq!(block(text), Ok((status, wire.into())), "{text:?}");
    }
}

/// nginx, too, responds with what these lines leave, unless they are no fields at all.
#[test]
fn a_mistake_of_a_script_in_a_header_line_leaves_the_response() {
    for (text, status, wire, invalid) in [
        ("A: b\r\n c\r\n\r\n", 200, "a: b\r\n", " c"),
        ("\tA: b\nB: c\n\n", 200, "b: c\r\n", "\tA: b"),
        ("Foo\n\n", 200, "foo: \r\n", ""),
        ("A: b\nno colon\nno more\n\n", 200, "a: b\r\n", "no colon"),
        (": a\nA: b\n\n", 200, "a: b\r\n", ": a"),
        ("A b: c\nA: b\n\n", 200, "a: b\r\n", "A b: c"),
        ("\u{e9}: a\nA: b\n\n", 200, "a: b\r\n", "\u{e9}: a"),
        (
            "A: b\rSet-Cookie: c\nB: c\n\n",
            200,
            "b: c\r\n",
            "A: b\rSet-Cookie: c",
        ),
        ("A: b\0\nB: c\n\n", 200, "b: c\r\n", "A: b\0"),
        (
            "HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n",
            404,
            "a: b\r\n",
            "",
        ),
        ("HTTP/1.1\r\nA: b\r\n\r\n", 500, "a: b\r\n", "HTTP/1.1"),
        ("Status: 200\nStatus: 500\n\n", 500, "", ""),
        (
            "Status: 404\nStatus: x\nA: b\n\n",
            404,
            "a: b\r\n",
            "Status: x",
        ),
        ("Status: x\nStatus: 404\n\n", 404, "", "Status: x"),
        ("Status: 100\nA: b\n\n", 500, "a: b\r\n", "Status: 100"),
        ("Status: 101\nA: b\n\n", 500, "a: b\r\n", "Status: 101"),
        ("Status: OK\nA: b\n\n", 500, "a: b\r\n", "Status: OK"),
        ("Status: 99\nA: b\n\n", 500, "a: b\r\n", "Status: 99"),
        ("Status: 2000\nA: b\n\n", 500, "a: b\r\n", "Status: 2000"),
        ("Status:\nA: b\n\n", 500, "a: b\r\n", "Status:"),
        (
            "Content-Length: abc\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length: abc",
        ),
        (
            "Content-Length: +1\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length: +1",
        ),
        (
            "Content-Length: -1\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length: -1",
        ),
        (
            "Content-Length:\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length:",
        ),
        (
            "Content-Length: 1, 1\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length: 1, 1",
        ),
        (
            "Content-Length: 18446744073709551616\nA: b\n\n",
            200,
            "a: b\r\n",
            "Content-Length: 18446744073709551616",
        ),
        (
            "Content-Length: 9\nContent-Length: 0\n\n",
            200,
            "content-length: 0\r\n",
            "",
        ),
        (
            "Content-Length: 9\nContent-Length: x\n\n",
            200,
            "",
            "Content-Length: x",
        ),
    ] {
        let response = read(&[record(STDOUT, 1, text.as_bytes(), 0), end(0, 0)].concat());
        let head = response.unwrap().head.unwrap();
        let line = head.invalid_line.as_deref().unwrap_or_default();
        let head_wire = std::str::from_utf8(head.headers.wire()).unwrap();
        assert_eq!(
            (
                head.status.as_u16(),
                head_wire,
                String::from_utf8_lossy(line)
            ),
            (status, wire, invalid.into()),
            "{text:?}"
        );
    }
}

#[test]
fn rejects_what_is_no_header_block_and_blames_the_script() {
    for text in ["no colon\n\n", "<html>\n: a\n\n", " A: b\n\n"] {
        assert_eq!(block(text), Err(FastCgiError::NoField), "{text:?}");
    }
    let many = "A: b\n".repeat(11) + "\n";
    assert_eq!(block(&many), Err(FastCgiError::TooManyFields));
    // With the end of the request, and without it.
    for long in ["A".repeat(1001), format!("A: {}\n\n", "b".repeat(1000))] {
        assert_eq!(block(&long), Err(FastCgiError::HeadTooLarge));
    }
    for (error, is_of_script) in [
        (FastCgiError::NoField, true),
        (FastCgiError::TooManyFields, true),
        (FastCgiError::HeadTooLarge, true),
        (FastCgiError::NoHead(255), true),
        (FastCgiError::ShortBody, true),
        (FastCgiError::Truncated, false),
        (FastCgiError::Version, false),
        (FastCgiError::Overloaded, false),
    ] {
        assert_eq!(error.is_of_script(), is_of_script, "{error}");
    }
}

#[test]
fn parses_complete_header_blocks() {
    let read =
        |status, block: &str| CgiResponseHead::from_block(status, block.as_bytes(), false, &LIMITS);
    let head = read(Some(StatusCode::ACCEPTED), "Status: 500\r\nA: b\r\n").unwrap();
    assert_eq!(head.status, StatusCode::ACCEPTED);
    assert_eq!(head.headers.wire(), b"a: b\r\n");
    assert_eq!(read(None, "").unwrap().status, StatusCode::OK);
    for cut in ["A: b", "A: b\r\n\r\n", "A: b\n\nC: d\n"] {
        assert_eq!(read(None, cut), Err(FastCgiError::Incomplete), "{cut:?}");
    }
    let informational = Some(StatusCode::EARLY_HINTS);
    assert_eq!(read(informational, "A: b\n"), Err(FastCgiError::Status));
}

fn records() -> impl Strategy<Value = Vec<u8>> {
    let block = "Status: 201 x\r\nContent-Type: text/html\r\nX: yz\r\n\r\n";
    let record_of = (0_u8..4, prop::collection::vec(any::<u8>(), 1..60), 0_u8..10);
    (prop::collection::vec(record_of, 0..12), 1_usize..20).prop_map(move |(more, cut)| {
        let mut input = Vec::new();
        for part in block.as_bytes().chunks(cut) {
            input.extend(record(STDOUT, 1, part, 3));
            input.extend(record(STDERR, 1, b"e", 0));
        }
        for (kind, body, padding) in more {
            let (kind, request) =
                [(STDOUT, 1), (STDOUT, 1), (STDERR, 1), (10, 0)][usize::from(kind)];
            input.extend(record(kind, request, &body, padding));
        }
        input.extend(end(7, 0));
        input
    })
}

proptest! {
    #[test]
    fn responses_do_not_depend_on_the_split_of_the_input(
        input in records(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let whole = read(&input).unwrap();
        prop_assert_eq!(whole.app_status, Some(7));
        let mut places: Vec<_> = cuts.drain(..).map(|cut| cut.index(input.len())).collect();
        places.sort_unstable();
        prop_assert_eq!(&feed(&mut requesting(false), &input, &places).unwrap(), &whole);
        let everywhere: Vec<_> = (0..input.len()).collect();
        prop_assert_eq!(&feed(&mut requesting(false), &input, &everywhere).unwrap(), &whole);
    }

    #[test]
    fn parameters_are_read_back(
        pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), prop::collection::vec(any::<u8>(), 0..200)), 0..20),
    ) {
        let mut params = Params::new();
        for (name, value) in &pairs {
            params.push(name, value);
        }
        let read: Vec<_> = params.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        prop_assert_eq!(read, pairs);
    }
}
