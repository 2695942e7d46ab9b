//! The cases of the Autobahn test suite for servers, groups 1 to 5, 7, 9 and 10, by their numbers: an echo
//! is fed all bytes at once, byte by byte, and in pieces that end anywhere.

use apus_http::websocket::Settings;

use super::peer::{
    BINARY, CONTINUATION, Echo, FIN, Frame, PING, PONG, TEXT, binary, close, close_plainly, frame,
    ping, pong, text,
};

/// What answers a case, beside nothing.
#[derive(Clone, Debug)]
enum Answer {
    /// These messages and pongs; then the connection goes on.
    Frames(Vec<Frame>),
    /// Likewise, and then a close frame with this code.
    Closed(Vec<Frame>, u16),
    /// A close frame that says nothing.
    ClosedPlainly(Vec<Frame>),
}

const PROTOCOL_ERROR: u16 = 1002;
const INVALID_PAYLOAD: u16 = 1007;

fn check(name: &str, sent: &[Frame], answer: &Answer) {
    let bytes: Vec<u8> = sent.iter().flat_map(Frame::bytes).collect();
    for size in [usize::MAX, 1, 7, 997] {
        if bytes.len() > 1 << 14 && size < 997 {
            continue;
        }
        let mut echo = Echo::server(&Settings {
            max_frame: 32 << 20,
            max_message: 32 << 20,
            compression: None,
        });
        let answers = echo.answers(&bytes, size);
        let (frames, end) = match answer {
            Answer::Frames(frames) => (frames, None),
            Answer::Closed(frames, code) => (frames, Some(code.to_be_bytes().to_vec())),
            Answer::ClosedPlainly(frames) => (frames, Some(Vec::new())),
        };
        let expected: Vec<_> = frames.iter().cloned().map(Frame::unmasked).collect();
        let (messages, rest) = answers.split_at(expected.len().min(answers.len()));
        assert!(messages == expected, "{name} in pieces of {size}");
        match (end, rest) {
            (None, []) => assert!(!echo.connection.is_closing(), "{name}"),
            (Some(code), [close]) => {
                assert_eq!(close.first, FIN | 8, "{name}");
                assert_eq!(close.mask, None, "{name}");
                let said = close.payload.get(..2).unwrap_or_default();
                assert_eq!(said, code, "{name} in pieces of {size}");
                assert!(echo.connection.is_finished(), "{name}");
                assert_eq!(echo.feed(&text("after").bytes()), b"", "{name}");
            }
            other => panic!("{name} in pieces of {size}: {other:?}"),
        }
    }
}

fn check_all(cases: Vec<(&str, Vec<Frame>, Answer)>) {
    for (name, sent, answer) in cases {
        check(name, &sent, &answer);
    }
}

fn echoed(frames: Vec<Frame>) -> Answer {
    Answer::Frames(frames)
}

fn failed(code: u16) -> Answer {
    Answer::Closed(Vec::new(), code)
}

#[test]
fn group_1_and_9_messages_of_all_sizes_come_back() {
    for len in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 1 << 20] {
        let content = vec![b'*'; len];
        check("1.1, 9.1", &[text(&content)], &echoed(vec![text(&content)]));
        let content = vec![0xfe; len];
        check(
            "1.2, 9.2",
            &[binary(&content)],
            &echoed(vec![binary(&content)]),
        );
    }
}

#[test]
fn group_2_pings_are_answered_and_pongs_are_not() {
    let ten = || (0..10).map(|n| format!("payload-{n}"));
    check_all(vec![
        ("2.1", vec![ping("")], echoed(vec![pong("")])),
        (
            "2.2",
            vec![ping("Hello, world!")],
            echoed(vec![pong("Hello, world!")]),
        ),
        (
            "2.3",
            vec![ping(b"\x00\xff\xfe\xfd")],
            echoed(vec![pong(b"\x00\xff\xfe\xfd")]),
        ),
        (
            "2.4, 2.6",
            vec![ping([0xfe; 125])],
            echoed(vec![pong([0xfe; 125])]),
        ),
        ("2.5", vec![ping([0xfe; 126])], failed(PROTOCOL_ERROR)),
        ("2.7", vec![pong("")], echoed(vec![])),
        ("2.8", vec![pong("unsolicited")], echoed(vec![])),
        (
            "2.9",
            vec![pong("unsolicited"), ping("x")],
            echoed(vec![pong("x")]),
        ),
        (
            "2.10, 2.11",
            ten().map(ping).collect(),
            echoed(ten().map(pong).collect()),
        ),
    ]);
}

#[test]
fn group_3_reserved_bits_end_the_connection() {
    let small = || text("small");
    for bits in 1..=7_u8 {
        for opcode in [TEXT, BINARY, CONTINUATION, PING, PONG, 8] {
            check(
                "3.1 to 3.7",
                &[frame(FIN | bits << 4 | opcode, "x")],
                &failed(PROTOCOL_ERROR),
            );
        }
        let sent = [small(), frame(FIN | bits << 4 | TEXT, "x"), ping("")];
        check(
            "3.2 to 3.4",
            &sent,
            &Answer::Closed(vec![small()], PROTOCOL_ERROR),
        );
    }
}

#[test]
fn group_4_reserved_opcodes_end_the_connection() {
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        for payload in ["", "reserved"] {
            let sent = [text("Hello"), frame(FIN | opcode, payload), ping("")];
            check(
                "4",
                &sent,
                &Answer::Closed(vec![text("Hello")], PROTOCOL_ERROR),
            );
        }
    }
}

#[test]
fn group_5_fragments_make_messages_with_control_frames_between_them() {
    let (one, two) = (|| frame(TEXT, "fragment1"), || frame(FIN, "fragment2"));
    let both = || text("fragment1fragment2");
    check_all(vec![
        (
            "5.1",
            vec![frame(PING, "a"), frame(FIN, "b")],
            failed(PROTOCOL_ERROR),
        ),
        (
            "5.2",
            vec![frame(PONG, "a"), frame(FIN, "b")],
            failed(PROTOCOL_ERROR),
        ),
        ("5.3", vec![one(), two()], echoed(vec![both()])),
        (
            "5.6",
            vec![one(), ping("p"), two()],
            echoed(vec![pong("p"), both()]),
        ),
        (
            "5.9",
            vec![frame(FIN, "x"), text("Hello")],
            failed(PROTOCOL_ERROR),
        ),
        (
            "5.12",
            vec![frame(CONTINUATION, "x"), text("Hello")],
            failed(PROTOCOL_ERROR),
        ),
        (
            "5.15",
            vec![
                one(),
                two(),
                frame(CONTINUATION, "fragment3"),
                frame(FIN | TEXT, "x"),
            ],
            Answer::Closed(vec![both()], PROTOCOL_ERROR),
        ),
        (
            "5.16",
            vec![frame(CONTINUATION, "f"), one(), two()],
            failed(PROTOCOL_ERROR),
        ),
        (
            "5.18",
            vec![one(), frame(FIN | TEXT, "fragment2")],
            failed(PROTOCOL_ERROR),
        ),
        (
            "5.19",
            vec![
                frame(TEXT, "1"),
                frame(CONTINUATION, "2"),
                ping("a"),
                frame(CONTINUATION, "3"),
                frame(CONTINUATION, "4"),
                ping("b"),
                frame(FIN, "5"),
            ],
            echoed(vec![pong("a"), pong("b"), text("12345")]),
        ),
        (
            "6.1.3",
            vec![frame(TEXT, ""), frame(CONTINUATION, ""), frame(FIN, "")],
            echoed(vec![text("")]),
        ),
        (
            "an empty first fragment",
            vec![
                frame(TEXT, ""),
                frame(CONTINUATION, ""),
                frame(FIN, "whole"),
            ],
            echoed(vec![text("whole")]),
        ),
        (
            "binary fragments",
            vec![frame(BINARY, [0xff]), frame(FIN, [0xfe])],
            echoed(vec![binary([0xff, 0xfe])]),
        ),
    ]);
}

#[test]
fn group_7_closing_is_answered_and_nothing_follows_it() {
    let hello = || text("Hello World!");
    check_all(vec![
        (
            "7.1.1",
            vec![hello(), close(1000, "")],
            Answer::Closed(vec![hello()], 1000),
        ),
        (
            "7.1.2",
            vec![close(1000, ""), close(1000, "")],
            failed(1000),
        ),
        ("7.1.3", vec![close(1000, ""), ping("")], failed(1000)),
        ("7.1.4", vec![close(1000, ""), hello()], failed(1000)),
        (
            "7.1.5",
            vec![frame(TEXT, "a"), close(1000, ""), frame(FIN, "b")],
            failed(1000),
        ),
        (
            "7.1.6",
            vec![
                text("x".repeat(256 << 10)),
                hello(),
                close(1000, ""),
                ping(""),
            ],
            Answer::Closed(vec![text("x".repeat(256 << 10)), hello()], 1000),
        ),
        (
            "7.3.1",
            vec![close_plainly()],
            Answer::ClosedPlainly(vec![]),
        ),
        ("7.3.2", vec![frame(FIN | 8, "a")], failed(PROTOCOL_ERROR)),
        ("7.3.3", vec![close(1000, "")], failed(1000)),
        ("7.3.4", vec![close(1000, "Hello World!")], failed(1000)),
        ("7.3.5", vec![close(1000, "*".repeat(123))], failed(1000)),
        (
            "7.3.6",
            vec![close(1000, "*".repeat(124))],
            failed(PROTOCOL_ERROR),
        ),
        (
            "7.5.1",
            vec![close(1000, b"\xce\xba\xed\xa0\x80ed")],
            failed(INVALID_PAYLOAD),
        ),
    ]);
    for code in [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999,
    ] {
        check("7.7", &[close(code, "")], &failed(code));
    }
    for code in [
        0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535,
    ] {
        check("7.9, 7.13", &[close(code, "")], &failed(PROTOCOL_ERROR));
        check(
            "7.9 with a reason",
            &[close(code, "why")],
            &failed(PROTOCOL_ERROR),
        );
    }
}

#[test]
fn group_9_and_10_long_messages_come_in_any_fragments() {
    for size in [64, 1000, 1300, 65_536] {
        let content = vec![b'*'; 1 << 18];
        let mut frames: Vec<_> = content
            .chunks(size)
            .map(|part| frame(CONTINUATION, part))
            .collect();
        frames[0].first |= TEXT;
        frames.last_mut().unwrap().first |= FIN;
        check("9.3, 9.4, 10.1", &frames, &echoed(vec![text(&content)]));
    }
}

#[test]
fn frames_of_the_wrong_role_end_the_connection_rfc_6455_section_5_1() {
    check("unmasked", &[text("x").unmasked()], &failed(PROTOCOL_ERROR));
    check("unmasked", &[ping("").unmasked()], &failed(PROTOCOL_ERROR));
}

#[test]
fn lengths_have_their_shortest_form_rfc_6455_section_5_2() {
    for long in [
        &[0x82, 0xfe, 0, 125][..],
        &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
        &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut echo = Echo::server(&Settings::default());
        let answers = echo.answers(long, 1);
        assert_eq!(answers[0].payload[..2], PROTOCOL_ERROR.to_be_bytes());
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_comes() {
    let settings = Settings {
        max_frame: 100,
        max_message: 150,
        compression: None,
    };
    let long = frame(FIN | BINARY, [0; 101]).bytes();
    let parts = [frame(BINARY, [0; 100]).bytes(), frame(FIN, [0; 51]).bytes()].concat();
    for bytes in [&long[..8], &parts[..100 + 6 + 6]] {
        let mut echo = Echo::server(&settings);
        assert_eq!(
            echo.answers(bytes, 1)[0].payload[..2],
            1009_u16.to_be_bytes()
        );
    }
    let fits = [frame(BINARY, [0; 100]).bytes(), frame(FIN, [0; 50]).bytes()].concat();
    let mut echo = Echo::server(&settings);
    assert_eq!(echo.answers(&fits, 1)[0].payload.len(), 150);
}

#[test]
fn pings_that_nobody_reads_the_answers_of_hold_no_memory() {
    let mut echo = Echo::server(&Settings::default());
    let mut input = bytes::BytesMut::new();
    for n in 0..10_000_u32 {
        input.extend_from_slice(&ping([n.to_be_bytes().as_slice(), &[0; 100]].concat()).bytes());
        assert!(echo.connection.handle_input(&mut input).is_some());
        assert!(echo.connection.output_len() < 20_000);
    }
    // The latest is answered (RFC 6455 section 5.5.3).
    let answers = Frame::read_all(&echo.sent());
    assert_eq!(answers.last().unwrap().payload[..4], 9999_u32.to_be_bytes());
}
