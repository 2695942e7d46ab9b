//! The cases of the Autobahn test suite for echo servers, groups 1 to 7, 9 and 10, with the frames to send and
//! the expected outcome.
//!
//! The tests here run them against the codec, and `crates/framework/web/tests/it/websocket` against a server.

use super::peer::{
    BINARY, CONTINUATION, FIN, Frame, PING, PONG, TEXT, binary, close, close_without_code, frame,
    ping, pong, text,
};

/// A case with its number.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) sent: Vec<Frame>,
    pub(crate) outcome: Outcome,
}

/// The expected outcome of a case.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// These messages and pongs; the connection stays open.
    Frames(Vec<Frame>),
    /// These messages and pongs, and a close frame with this code.
    Closed(Vec<Frame>, u16),
    /// These messages and pongs, and a close frame without a payload.
    ClosedWithoutCode(Vec<Frame>),
}

const PROTOCOL_ERROR: u16 = 1002;
const INVALID_PAYLOAD: u16 = 1007;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    [
        sizes(),
        pings(),
        reserved_bits(),
        reserved_opcodes(),
        fragments(),
        utf8(),
        closing(),
        long_messages(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn case(name: &'static str, sent: Vec<Frame>, outcome: Outcome) -> Case {
    Case {
        name,
        sent,
        outcome,
    }
}

fn cases(cases: Vec<(&'static str, Vec<Frame>, Outcome)>) -> Vec<Case> {
    let cases = cases.into_iter();
    cases
        .map(|(name, sent, outcome)| case(name, sent, outcome))
        .collect()
}

fn echoed(frames: Vec<Frame>) -> Outcome {
    Outcome::Frames(frames)
}

fn failed(code: u16) -> Outcome {
    Outcome::Closed(Vec::new(), code)
}

/// Groups 1 and 9: messages of all sizes are echoed.
fn sizes() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 1 << 20] {
        let payload = vec![b'*'; len];
        cases.push(case(
            "1.1, 9.1",
            vec![text(&payload)],
            echoed(vec![text(&payload)]),
        ));
        let payload = vec![0xfe; len];
        let sent = vec![binary(&payload)];
        cases.push(case("1.2, 9.2", sent.clone(), echoed(sent)));
    }
    cases
}

/// Group 2: pings get a response, and pongs none.
fn pings() -> Vec<Case> {
    let ten = || (0..10).map(|n| format!("payload-{n}"));
    cases(vec![
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
    ])
}

/// Group 3: reserved bits close the connection.
fn reserved_bits() -> Vec<Case> {
    let mut cases = Vec::new();
    let small = || text("small");
    for bits in 1..=7_u8 {
        for opcode in [TEXT, BINARY, CONTINUATION, PING, PONG, 8] {
            let sent = vec![frame(FIN | bits << 4 | opcode, "x")];
            cases.push(case("3.1 to 3.7", sent, failed(PROTOCOL_ERROR)));
        }
        let sent = vec![small(), frame(FIN | bits << 4 | TEXT, "x"), ping("")];
        let outcome = Outcome::Closed(vec![small()], PROTOCOL_ERROR);
        cases.push(case("3.2 to 3.4", sent, outcome));
    }
    cases
}

/// Group 4: reserved opcodes close the connection.
fn reserved_opcodes() -> Vec<Case> {
    let mut cases = Vec::new();
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        for payload in ["", "reserved"] {
            let sent = vec![text("Hello"), frame(FIN | opcode, payload), ping("")];
            let outcome = Outcome::Closed(vec![text("Hello")], PROTOCOL_ERROR);
            cases.push(case("4", sent, outcome));
        }
    }
    cases
}

/// Group 5: fragments are assembled, with control frames between them.
fn fragments() -> Vec<Case> {
    let (one, two) = (|| frame(TEXT, "fragment1"), || frame(FIN, "fragment2"));
    let both = || text("fragment1fragment2");
    cases(vec![
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
            Outcome::Closed(vec![both()], PROTOCOL_ERROR),
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
    ])
}

/// Group 6: valid UTF-8 is echoed, and invalid closes the connection.
fn utf8() -> Vec<Case> {
    let cases = texts().into_iter().map(|(name, payload)| {
        let outcome = match std::str::from_utf8(&payload) {
            Ok(_) => echoed(vec![text(&payload)]),
            Err(_) => failed(INVALID_PAYLOAD),
        };
        case(name, vec![text(payload)], outcome)
    });
    cases.collect()
}

/// Valid and invalid texts with the numbers of their cases.
pub(crate) fn texts() -> Vec<(&'static str, Vec<u8>)> {
    let mut texts: Vec<(&str, Vec<u8>)> = vec![
        ("6.2", "Hello-µ@ßöäüàá-UTF-8!!".into()),
        (
            "6.3",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited".to_vec(),
        ),
        (
            "6.5",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5".to_vec(),
        ),
        ("6.6", b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce".to_vec()),
        ("6.7", b"\0".to_vec()),
        ("6.7", b"\xc2\x80".to_vec()),
        ("6.7", b"\xe0\xa0\x80".to_vec()),
        ("6.7", b"\xf0\x90\x80\x80".to_vec()),
        ("6.8", b"\xf8\x88\x80\x80\x80".to_vec()),
        ("6.8", b"\xfc\x84\x80\x80\x80\x80".to_vec()),
        ("6.9", b"\x7f".to_vec()),
        ("6.9", b"\xdf\xbf".to_vec()),
        ("6.9", b"\xef\xbf\xbf".to_vec()),
        ("6.9", b"\xf4\x8f\xbf\xbf".to_vec()),
        ("6.10", b"\xf7\xbf\xbf\xbf".to_vec()),
        ("6.10", b"\xfb\xbf\xbf\xbf\xbf".to_vec()),
        ("6.10", b"\xfd\xbf\xbf\xbf\xbf\xbf".to_vec()),
        ("6.11", b"\xed\x9f\xbf".to_vec()),
        ("6.11", b"\xee\x80\x80".to_vec()),
        ("6.11", b"\xef\xbf\xbd".to_vec()),
        ("6.11", b"\xf4\x8f\xbf\xbf".to_vec()),
        ("6.11", b"\xf4\x90\x80\x80".to_vec()),
        ("6.12", b"\x80".to_vec()),
        ("6.12", b"\xbf".to_vec()),
        ("6.12", b"\x80\xbf\x80\xbf\x80\xbf".to_vec()),
        ("6.14", b"\xc0".to_vec()),
        ("6.14", b"\xe0\x80".to_vec()),
        ("6.14", b"\xf0\x80\x80".to_vec()),
        ("6.14", b"\xdf".to_vec()),
        ("6.14", b"\xef\xbf".to_vec()),
        ("6.14", b"\xf7\xbf\xbf".to_vec()),
        ("6.16", b"\xfe".to_vec()),
        ("6.16", b"\xff".to_vec()),
        ("6.17", b"\xc0\xaf".to_vec()),
        ("6.17", b"\xe0\x80\xaf".to_vec()),
        ("6.17", b"\xf0\x80\x80\xaf".to_vec()),
        ("6.18", b"\xc1\xbf".to_vec()),
        ("6.18", b"\xe0\x9f\xbf".to_vec()),
        ("6.18", b"\xf0\x8f\xbf\xbf".to_vec()),
        ("6.19", b"\xc0\x80".to_vec()),
        ("6.20", b"\xed\xa0\x80".to_vec()),
        ("6.20", b"\xed\xaf\xbf".to_vec()),
        ("6.20", b"\xed\xbf\xbf".to_vec()),
        ("6.21", b"\xed\xa0\x80\xed\xb0\x80".to_vec()),
        ("6.21", b"\xed\xaf\xbf\xed\xbf\xbf".to_vec()),
    ];
    for last in [b"\xbe", b"\xbf"] {
        for plane in ["\u{ffff}", "\u{1ffff}", "\u{7ffff}", "\u{fffff}"] {
            let mut text = plane.as_bytes().to_vec();
            *text.last_mut().unwrap() = last[0];
            texts.push(("6.22", text));
        }
    }
    // Lead bytes without a continuation byte.
    texts.extend((0x80..=0xff).map(|byte| ("6.13, 6.15", vec![byte, b' '])));
    texts
}

/// Group 7: a close gets a response, and nothing follows it.
fn closing() -> Vec<Case> {
    let hello = || text("Hello World!");
    let mut cases = cases(vec![
        (
            "7.1.1",
            vec![hello(), close(1000, "")],
            Outcome::Closed(vec![hello()], 1000),
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
            Outcome::Closed(vec![text("x".repeat(256 << 10)), hello()], 1000),
        ),
        (
            "7.3.1",
            vec![close_without_code()],
            Outcome::ClosedWithoutCode(vec![]),
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
        cases.push(case("7.7", vec![close(code, "")], failed(code)));
    }
    for code in [
        0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535,
    ] {
        for reason in ["", "why"] {
            let sent = vec![close(code, reason)];
            cases.push(case("7.9, 7.13", sent, failed(PROTOCOL_ERROR)));
        }
    }
    cases
}

/// Groups 9 and 10: long messages in fragments of many sizes.
fn long_messages() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [64, 1000, 1300, 65_536] {
        let payload = vec![b'*'; 1 << 18];
        let mut frames: Vec<_> = payload
            .chunks(size)
            .map(|part| frame(CONTINUATION, part))
            .collect();
        frames[0].first |= TEXT;
        frames.last_mut().unwrap().first |= FIN;
        cases.push(case("9.3, 9.4, 10.1", frames, echoed(vec![text(&payload)])));
    }
    cases
}
