//! Tests HPACK (RFC 7541) with the examples of its appendix C, every error, round trips, and another implementation.

use apus_codec::h2::hpack::{Field, HpackDecoder, HpackEncoder, HpackError};
use apus_http::{Headers, StatusCode};
use loona_hpack::decoder::DecoderError;
use proptest::prelude::*;

use apus_testkit::cases;

type Line = (Vec<u8>, Vec<u8>);

/// Bytes from hexadecimal digits with white space.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn line(name: &str, value: &str) -> Line {
    (name.into(), value.into())
}

fn lines(pairs: &[(&str, &str)]) -> Vec<Line> {
    pairs
        .iter()
        .map(|(name, value)| line(name, value))
        .collect()
}

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<Line>, HpackError> {
    let mut lines = Vec::new();
    decoder.decode(block, |field| {
        lines.push((field.name.to_vec(), field.value.to_vec()));
    })?;
    Ok(lines)
}

fn encode(encoder: &mut HpackEncoder, lines: &[Line]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in lines {
        encoder.field(name, value, &mut out);
    }
    out
}

/// One block of the examples: its bytes and its lines.
type Example<'a> = (&'a str, &'a [(&'a str, &'a str)]);

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

const RESPONSES: [&[(&str, &str)]; 3] = [
    &[
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        (
            "set-cookie",
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
    ],
];

fn reads(examples: &[Example<'_>], table_size: usize) {
    let mut decoder = HpackDecoder::new(table_size);
    for (block, expected) in examples {
        assert_eq!(decode(&mut decoder, &hex(block)).unwrap(), lines(expected));
    }
}

/// RFC 7541 appendix C.2.
#[test]
fn reads_each_kind_of_field() {
    for (block, name, value) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key",
            "custom-header",
        ),
        (
            "040c 2f73 616d 706c 652f 7061 7468",
            ":path",
            "/sample/path",
        ),
        (
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            "password",
            "secret",
        ),
        ("82", ":method", "GET"),
    ] {
        reads(&[(block, &[(name, value)])], 4096);
    }
}

/// RFC 7541 appendix C.3.
#[test]
fn reads_requests_without_huffman_codes() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    reads(
        &[
            (blocks[0], REQUESTS[0]),
            (blocks[1], REQUESTS[1]),
            (blocks[2], REQUESTS[2]),
        ],
        4096,
    );
}

/// RFC 7541 appendix C.4, which the encoder reproduces.
#[test]
fn reads_and_writes_requests_with_huffman_codes() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    reads(
        &[
            (blocks[0], REQUESTS[0]),
            (blocks[1], REQUESTS[1]),
            (blocks[2], REQUESTS[2]),
        ],
        4096,
    );
    let mut encoder = HpackEncoder::new();
    for (block, request) in blocks.iter().zip(REQUESTS) {
        assert_eq!(encode(&mut encoder, &lines(request)), hex(block));
    }
}

/// RFC 7541 appendix C.5, with evictions from a table of 256 bytes.
#[test]
fn reads_responses_without_huffman_codes() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    reads(
        &[
            (blocks[0], RESPONSES[0]),
            (blocks[1], RESPONSES[1]),
            (blocks[2], RESPONSES[2]),
        ],
        256,
    );
}

/// RFC 7541 appendix C.6, with evictions from a table of 256 bytes.
#[test]
fn reads_responses_with_huffman_codes() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    reads(
        &[
            (blocks[0], RESPONSES[0]),
            (blocks[1], RESPONSES[1]),
            (blocks[2], RESPONSES[2]),
        ],
        256,
    );
}

/// The responses of appendix C.6 with the encoder's policy: locations are not indexed, and cookies are never
/// indexed. Strings that a Huffman code would not shorten have none.
#[test]
fn writes_responses_by_the_policy_of_their_fields() {
    let mut encoder = HpackEncoder::new();
    encoder.set_max_table_size(256);
    let blocks = [
        "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff 0f1f 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4803 3330 37c0 bf 0f1f 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "88c0 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff
         0f1f 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3 5a83 9bd9 ab
         1f28 ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for (block, response) in blocks.iter().zip(RESPONSES) {
        assert_eq!(encode(&mut encoder, &lines(response)), hex(block));
    }
}

/// The first byte of the encoding of `value` on a new connection, which holds the index of `name`.
fn first_byte(name: &str, value: &str) -> u8 {
    encode(&mut HpackEncoder::new(), &[line(name, value)])[0]
}

#[test]
fn never_indexes_credentials() {
    for (name, value) in [
        ("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ("proxy-authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ("set-cookie", "session=0123456789abcdef0123456789abcdef"),
        ("cookie", "pin=1234"),
    ] {
        assert_eq!(first_byte(name, value) & 0xf0, 0x10, "{name}");
    }
    // Too long to be guessed by its length.
    let cookie = "session=0123456789abcdef0123456789abcdef";
    assert_eq!(first_byte("cookie", cookie) & 0xc0, 0x40);
}

#[test]
fn does_not_index_values_that_rarely_repeat() {
    for name in [
        ":path",
        "age",
        "content-length",
        "content-range",
        "etag",
        "expires",
        "if-modified-since",
        "if-none-match",
        "last-modified",
        "location",
        "range",
    ] {
        assert_eq!(first_byte(name, "123") & 0xf0, 0, "{name}");
    }
    for name in [
        ":authority",
        "content-type",
        "date",
        "server",
        "vary",
        "x-frame-options",
    ] {
        assert_eq!(first_byte(name, "123") & 0xc0, 0x40, "{name}");
    }
}

#[test]
fn does_not_index_values_that_would_fill_the_table() {
    let name = "content-security-policy";
    let room = 4096 * 3 / 4 - 32 - name.len();
    assert_eq!(first_byte(name, &"a".repeat(room)) & 0xc0, 0x40);
    assert_eq!(first_byte(name, &"a".repeat(room + 1)) & 0xf0, 0);
}

#[test]
fn writes_each_status() {
    let mut encoder = HpackEncoder::new();
    let mut decoder = HpackDecoder::new(4096);
    for code in (100..600)
        .chain([600, 999])
        .chain([200, 206, 304, 404, 403, 503])
    {
        let status = StatusCode::from_u16(code).unwrap();
        let mut block = Vec::new();
        encoder.begin(&mut block);
        encoder.status(status, &mut block);
        assert!(block.len() <= 5);
        let decoded = decode(&mut decoder, &block).unwrap();
        assert_eq!(decoded, lines(&[(":status", status.as_str())]));
    }
    let mut block = Vec::new();
    encoder.status(StatusCode::OK, &mut block);
    assert_eq!(block, [0x88]);
}

#[test]
fn writes_a_repeated_line_as_one_byte_and_a_repeated_name_as_an_index() {
    let mut encoder = HpackEncoder::new();
    let first = encode(&mut encoder, &[line("x-frame-options", "DENY")]);
    assert_eq!(first[0], 0x40);
    assert_eq!(
        encode(&mut encoder, &[line("x-frame-options", "DENY")]),
        [0xbe]
    );
    let other = encode(&mut encoder, &[line("x-frame-options", "SAMEORIGIN")]);
    assert_eq!(other[0], 0x40 | 62);
}

#[test]
fn signals_new_table_sizes_once() {
    let mut encoder = HpackEncoder::new();
    let mut begin = |sizes: &[usize]| {
        for size in sizes {
            encoder.set_max_table_size(*size);
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        out
    };
    // The default size, and a size above the encoder's limit.
    assert_eq!(begin(&[4096]), b"");
    assert_eq!(begin(&[65_536]), b"");
    assert_eq!(begin(&[256]), hex("3fe101"));
    assert_eq!(begin(&[]), b"");
    // RFC 7541 section 4.2: the smallest size in between, then the last.
    assert_eq!(begin(&[1024, 0, 4096]), hex("20 3fe11f"));
    assert_eq!(begin(&[0, 4096]), hex("20 3fe11f"));
    assert_eq!(begin(&[1024, 100_000]), hex("3fe107 3fe11f"));
    assert_eq!(begin(&[1024, 0]), hex("20"));
    assert_eq!(begin(&[100, 30]), hex("3e"));
    assert_eq!(begin(&[30]), b"");
}

#[test]
fn uses_no_dynamic_table_of_size_zero() {
    let mut encoder = HpackEncoder::new();
    let mut decoder = HpackDecoder::new(0);
    encoder.set_max_table_size(0);
    for _ in 0..3 {
        let block = encode(&mut encoder, &lines(RESPONSES[2]));
        assert_eq!(decode(&mut decoder, &block).unwrap(), lines(RESPONSES[2]));
    }
}

#[test]
fn does_not_use_evicted_entries() {
    let mut decoder = HpackDecoder::new(4096);
    let insert = b"\x40\x01a\x01b\x40\x01c\x01d";
    assert_eq!(
        decode(&mut decoder, insert).unwrap(),
        lines(&[("a", "b"), ("c", "d")])
    );
    assert_eq!(
        decode(&mut decoder, &[0xbe, 0xbf]).unwrap(),
        lines(&[("c", "d"), ("a", "b")])
    );
    // The table has space for one entry: 34 bytes are used.
    let smaller = hex("3f03");
    assert_eq!(decode(&mut decoder, &smaller).unwrap(), []);
    assert_eq!(decode(&mut decoder, &[0xbe]).unwrap(), lines(&[("c", "d")]));
    assert_eq!(decode(&mut decoder, &[0xbf]), Err(HpackError::Index));
    // The entry whose name it refers to is evicted (section 4.4).
    assert_eq!(
        decode(&mut decoder, b"\x7e\x01e\xbe").unwrap(),
        lines(&[("c", "e"), ("c", "e")])
    );
    // An entry that is too large empties the table without an error.
    assert_eq!(
        decode(&mut decoder, b"\x7e\x02ee").unwrap(),
        lines(&[("c", "ee")])
    );
    assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError::Index));
}

#[test]
fn rejects_invalid_blocks() {
    for (block, error) in [
        // Section 6.1: the index 0 is not used.
        ("80", HpackError::Index),
        // After the static table, with an empty dynamic table.
        ("be", HpackError::Index),
        ("7e 0161", HpackError::Index),
        ("0f2f 0161", HpackError::Index),
        ("1f2f 0161", HpackError::Index),
        ("ffff ffff ff0f", HpackError::IntegerTooLarge),
        ("ffff ffff ffff ffff ffff 01", HpackError::IntegerTooLarge),
        ("ff80 8080 8080 00", HpackError::IntegerTooLarge),
        ("007f ffff ffff ffff 01", HpackError::IntegerTooLarge),
        // Truncated at each position of a literal.
        ("ff", HpackError::Truncated),
        ("ff80", HpackError::Truncated),
        ("40", HpackError::Truncated),
        ("4001", HpackError::Truncated),
        ("400161", HpackError::Truncated),
        ("40016102", HpackError::Truncated),
        ("4001610261", HpackError::Truncated),
        ("5f", HpackError::Truncated),
        ("0084 6402", HpackError::Truncated),
        ("04 7fff ff03", HpackError::Truncated),
        // Section 5.2: padding with zeros, padding of a whole byte, and the EOS code.
        ("0481 00", HpackError::HuffmanPadding),
        ("0482 1fff", HpackError::HuffmanPadding),
        ("0481 ff", HpackError::HuffmanPadding),
        ("0484 ffff ffff", HpackError::HuffmanCode),
        ("0485 1fff ffff ff", HpackError::HuffmanCode),
        // Section 6.3, and 4.2: only before the first field.
        ("3fe2 1f", HpackError::SizeUpdateTooLarge),
        ("8220", HpackError::SizeUpdateMisplaced),
        ("0400 3fe11f", HpackError::SizeUpdateMisplaced),
    ] {
        let result = decode(&mut HpackDecoder::new(4096), &hex(block));
        assert_eq!(result, Err(error), "{block}");
    }
    for block in ["", "20", "20 3fe11f", "20 3fe11f 82", "0480 82", "00 00 00"] {
        let result = decode(&mut HpackDecoder::new(4096), &hex(block));
        assert!(result.is_ok(), "{block}");
    }
}

/// RFC 9113 section 8.2.1: literals are checked, and the table keeps the result.
#[test]
fn reports_which_fields_are_valid() {
    for (name, value, is_valid) in [
        ("a", "b", true),
        ("a", "", true),
        ("a", "b \t c", true),
        ("a", "\u{e9}", true),
        (":path", "/", true),
        (":anything", "/", true),
        ("x-1!#$%&'*+-.^_`|~", "b", true),
        ("", "b", false),
        (":", "b", false),
        ("::path", "b", false),
        ("a:", "b", false),
        ("a b", "b", false),
        ("A", "b", false),
        ("x-Custom", "b", false),
        ("\u{e9}", "b", false),
        ("a\r\nb", "c", false),
        ("a\0", "c", false),
        ("a", " b", false),
        ("a", "b ", false),
        ("a", "\tb", false),
        ("a", "b\t", false),
        ("a", " ", false),
        ("a", "b\r\nc: d", false),
        ("a", "b\nc", false),
        ("a", "b\rc", false),
        ("a", "b\0c", false),
        ("a", "b\x1fc", false),
        ("a", "b\x7fc", false),
    ] {
        let mut literal = Vec::new();
        for string in [name, value] {
            literal.push(u8::try_from(string.len()).unwrap());
            literal.extend_from_slice(string.as_bytes());
        }
        // Not indexed, never indexed, indexed, out of the table, and its name with another value.
        let mut block = vec![0x00];
        block.extend_from_slice(&literal);
        block.push(0x10);
        block.extend_from_slice(&literal);
        block.push(0x40);
        block.extend_from_slice(&literal);
        block.push(0xbe);
        let mut seen = Vec::new();
        let mut note = |field: Field<'_>| {
            assert_eq!(
                (field.name, field.value),
                (name.as_bytes(), value.as_bytes())
            );
            seen.push(field.is_valid);
        };
        let mut decoder = HpackDecoder::new(4096);
        decoder.decode(&block, &mut note).unwrap();
        assert_eq!(seen, [is_valid; 4], "{name:?}: {value:?}");
        let mut by_name = None;
        decoder
            .decode(b"\x7e\x02ok", |field| by_name = Some(field.is_valid))
            .unwrap();
        let is_name_valid = !matches!(name, "" | "::path" | ":" | "a:" | "a b" | "\u{e9}" | "a\0")
            && !name.contains(char::is_uppercase)
            && !name.contains('\n');
        assert_eq!(by_name, Some(is_name_valid), "{name:?}");
    }
    // A name of the static table with a bad value.
    let mut is_valid = true;
    HpackDecoder::new(4096)
        .decode(b"\x54\x01\n", |field| is_valid = field.is_valid)
        .unwrap();
    assert!(!is_valid);
}

fn file_head() -> Headers {
    let mut headers = Headers::new();
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("connection", "keep-alive"),
        ("content-length", "1234"),
        ("etag", "\"5f3-61a\""),
        ("transfer-encoding", "chunked"),
        ("last-modified", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("accept-ranges", "bytes"),
        ("vary", "accept-encoding"),
        ("x-frame-options", "DENY"),
        ("x-frame-options", "SAMEORIGIN"),
        ("upgrade", "h2c"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("te", "trailers"),
        ("set-cookie", "a=b"),
        ("accept-encoding", "gzip, deflate"),
    ] {
        headers.try_append(name, value).unwrap();
    }
    headers
}

fn headers_block(encoder: &mut HpackEncoder, headers: &Headers, keeps_length: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    encoder.headers(headers, keeps_length, &mut out);
    out
}

fn sent_lines(headers: &Headers, keeps_length: bool) -> Vec<Line> {
    headers
        .iter()
        .filter(|(name, _)| match *name {
            "content-length" => keeps_length,
            "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection"
            | "te" => false,
            _ => true,
        })
        .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
        .collect()
}

/// Pre-encoded lines give the same bytes as lines that are encoded for the first time.
#[test]
fn preencoded_fields_equal_the_first_encoding() {
    for keeps_length in [false, true] {
        let shared = file_head();
        let (mut encoder, mut fresh, mut decoder) = (
            HpackEncoder::new(),
            HpackEncoder::new(),
            HpackDecoder::new(4096),
        );
        for round in 0..5 {
            let block = headers_block(&mut encoder, &shared, keeps_length);
            assert_eq!(
                block,
                headers_block(&mut fresh, &shared.clone(), keeps_length)
            );
            assert_eq!(
                decode(&mut decoder, &block).unwrap(),
                sent_lines(&shared, keeps_length),
                "round {round}"
            );
        }
        // Pre-encoded on one connection, and used on others; the last one has no table.
        for size in [4096, 256, 0] {
            let (mut encoder, mut fresh) = (HpackEncoder::new(), HpackEncoder::new());
            encoder.set_max_table_size(size);
            fresh.set_max_table_size(size);
            for _ in 0..3 {
                assert_eq!(
                    headers_block(&mut encoder, &shared, keeps_length),
                    headers_block(&mut fresh, &shared.clone(), keeps_length)
                );
            }
        }
    }
}

#[test]
fn encodes_changes_after_preencoding() {
    let mut headers = file_head();
    let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(4096));
    let changes: [fn(&mut Headers); 6] = [
        |_| {},
        |headers| headers.try_append("x-more", "1").unwrap(),
        |headers| assert!(headers.remove("etag")),
        |headers| headers.try_insert("vary", "*").unwrap(),
        |headers| headers.clear(),
        |headers| headers.try_append("vary", "x").unwrap(),
    ];
    for change in changes {
        change(&mut headers);
        for _ in 0..4 {
            let block = headers_block(&mut encoder, &headers, true);
            assert_eq!(
                decode(&mut decoder, &block).unwrap(),
                sent_lines(&headers, true)
            );
        }
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "content-type|cache-control|etag|cookie|set-cookie|date|vary|accept-encoding|:path|:status|:method",
        "x-[a-d]{1,2}",
    ]
    .prop_map(String::into_bytes)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        9 => "(200|GET|/|gzip, deflate|[a-c]{0,3})".prop_map(String::into_bytes),
        6 => "[ -~]{0,60}".prop_map(String::into_bytes),
        3 => prop::collection::vec(any::<u8>(), 0..100),
        1 => (any::<u8>(), 500..4200_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// A block, and the table sizes that are set before it.
fn blocks() -> impl Strategy<Value = Vec<(Vec<usize>, Vec<Line>)>> {
    let sizes = prop_oneof![
        4 => Just(vec![]),
        1 => prop::collection::vec(prop_oneof![0..300_usize, 0..9000_usize], 1..4),
    ];
    prop::collection::vec(
        (sizes, prop::collection::vec((name(), value()), 1..20)),
        1..8,
    )
}

proptest! {
    #[test]
    fn decodes_its_own_blocks(blocks in blocks()) {
        let (mut encoder, mut decoder) = (HpackEncoder::new(), HpackDecoder::new(4096));
        for (sizes, lines) in blocks {
            for size in sizes {
                encoder.set_max_table_size(size);
            }
            let block = encode(&mut encoder, &lines);
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), lines);
        }
    }

    /// Blocks of another implementation are decoded.
    #[test]
    fn decodes_blocks_of_another_encoder(blocks in blocks()) {
        let mut encoder = loona_hpack::Encoder::new();
        let mut decoder = HpackDecoder::new(4096);
        for (_, lines) in blocks {
            let block = encoder.encode(lines.iter().map(|(name, value)| (&name[..], &value[..])));
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), lines);
        }
    }

    /// Any bytes that both implementations accept have the same meaning.
    #[test]
    fn agrees_with_another_decoder_about_any_bytes(
        blocks in prop::collection::vec(prop::collection::vec(instruction(), 0..12), 1..6)
    ) {
        let mut ours = HpackDecoder::new(4096);
        let mut theirs = loona_hpack::Decoder::new();
        for block in blocks {
            let block = block.concat();
            match decode(&mut ours, &block) {
                // The other implementation rejects a block with only a size update. RFC 7541
                // section 4.2 allows it, as the update is at the start of the block.
                Ok(lines) if lines.is_empty() => match theirs.decode(&block) {
                    Ok(theirs) => prop_assert!(theirs.is_empty()),
                    Err(error) => prop_assert_eq!(error, DecoderError::SizeUpdateAtEnd),
                },
                Ok(lines) => prop_assert_eq!(theirs.decode(&block).unwrap(), lines),
                // The state of the table is unknown now.
                Err(_) => break,
            }
        }
    }
}

#[test]
fn a_block_with_only_a_size_update_is_empty() {
    let mut decoder = HpackDecoder::new(4096);
    assert_eq!(decode(&mut decoder, &[0x20]).unwrap(), vec![]);
}

proptest! {
    // The other implementation decodes bit by bit, which is slow.
    #![proptest_config(cases(48))]

    /// Another implementation decodes the blocks of the encoder.
    #[test]
    fn another_decoder_reads_its_blocks(blocks in blocks()) {
        let mut encoder = HpackEncoder::new();
        let mut decoder = loona_hpack::Decoder::new();
        for (sizes, lines) in blocks {
            for size in sizes {
                encoder.set_max_table_size(size);
            }
            let block = encode(&mut encoder, &lines);
            prop_assert_eq!(decoder.decode(&block).unwrap(), lines);
        }
    }
}

/// An instruction of a field block that is valid or nearly valid.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let string = prop_oneof![
        "[a-z]{0,20}".prop_map(|string| {
            let mut out = vec![u8::try_from(string.len()).unwrap()];
            out.extend_from_slice(string.as_bytes());
            out
        }),
        Just(hex("86a8eb10649cbf")),
        Just(hex("8825a849e95ba97d7f")),
    ];
    prop_oneof![
        4 => (0x80..=0xcb_u8).prop_map(|byte| vec![byte]),
        2 => (0x41..=0x7e_u8, string.clone()).prop_map(|(byte, value)| [vec![byte], value].concat()),
        2 => (prop_oneof![Just(0x40_u8), Just(0), Just(0x10)], string.clone(), string.clone())
            .prop_map(|(byte, name, value)| [vec![byte], name, value].concat()),
        1 => (1..15_u8, string).prop_map(|(byte, value)| [vec![byte], value].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}
