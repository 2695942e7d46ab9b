//! The cases of the Autobahn test suite, and more: an echo gets all bytes at once, byte by byte, and in pieces of
//! other sizes.

use apus_websocket::codec::CodecSettings;

use super::peer::{BINARY, Echo, FIN, Frame, frame, ping, text};
use super::table::{self, Outcome};

const PROTOCOL_ERROR: u16 = 1002;

fn check(name: &str, sent: &[Frame], outcome: &Outcome) {
    let bytes: Vec<u8> = sent.iter().flat_map(Frame::bytes).collect();
    for size in [usize::MAX, 1, 7, 997] {
        if bytes.len() > 1 << 14 && size < 997 {
            continue;
        }
        let mut echo = Echo::server(&CodecSettings {
            max_frame: 32 << 20,
            max_message: 32 << 20,
            compression: None,
        });
        let responses = echo.responses(&bytes, size);
        let (frames, end) = match outcome {
            Outcome::Frames(frames) => (frames, None),
            Outcome::Closed(frames, code) => (frames, Some(code.to_be_bytes().to_vec())),
            Outcome::ClosedWithoutCode(frames) => (frames, Some(Vec::new())),
        };
        let expected: Vec<_> = frames.iter().cloned().map(Frame::unmasked).collect();
        let (messages, rest) = responses.split_at(expected.len().min(responses.len()));
        assert!(messages == expected, "{name} in pieces of {size}");
        match (end, rest) {
            (None, []) => assert!(!echo.connection.is_closing(), "{name}"),
            (Some(code), [close]) => {
                assert_eq!(close.first, FIN | 8, "{name}");
                assert_eq!(close.mask, None, "{name}");
                let received = close.payload.get(..2).unwrap_or_default();
                assert_eq!(received, code, "{name} in pieces of {size}");
                assert!(echo.connection.is_finished(), "{name}");
                assert_eq!(echo.feed(&text("after").bytes()), b"", "{name}");
            }
            other => panic!("{name} in pieces of {size}: {other:?}"),
        }
    }
}

#[test]
fn all_cases_have_their_outcome() {
    for case in table::all() {
        check(case.name, &case.sent, &case.outcome);
    }
}

#[test]
fn frames_of_the_wrong_role_end_the_connection_rfc_6455_section_5_1() {
    check(
        "unmasked",
        &[text("x").unmasked()],
        &Outcome::Closed(Vec::new(), PROTOCOL_ERROR),
    );
    check(
        "unmasked",
        &[ping("").unmasked()],
        &Outcome::Closed(Vec::new(), PROTOCOL_ERROR),
    );
}

#[test]
fn rejects_lengths_that_are_not_in_shortest_form_rfc_6455_section_5_2() {
    for long in [
        &[0x82, 0xfe, 0, 125][..],
        &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
        &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut echo = Echo::server(&CodecSettings::default());
        let responses = echo.responses(long, 1);
        assert_eq!(responses[0].payload[..2], PROTOCOL_ERROR.to_be_bytes());
    }
}

#[test]
fn rejects_frames_and_messages_that_are_too_long_before_their_payload() {
    let settings = CodecSettings {
        max_frame: 100,
        max_message: 150,
        compression: None,
    };
    let long = frame(FIN | BINARY, [0; 101]).bytes();
    let parts = [frame(BINARY, [0; 100]).bytes(), frame(FIN, [0; 51]).bytes()].concat();
    for bytes in [&long[..8], &parts[..100 + 6 + 6]] {
        let mut echo = Echo::server(&settings);
        assert_eq!(
            echo.responses(bytes, 1)[0].payload[..2],
            1009_u16.to_be_bytes()
        );
    }
    let fits = [frame(BINARY, [0; 100]).bytes(), frame(FIN, [0; 50]).bytes()].concat();
    let mut echo = Echo::server(&settings);
    assert_eq!(echo.responses(&fits, 1)[0].payload.len(), 150);
}

#[test]
fn a_flood_of_pings_takes_no_memory_while_the_peer_reads_nothing() {
    let mut echo = Echo::server(&CodecSettings::default());
    let mut input = bytes::BytesMut::new();
    for n in 0..10_000_u32 {
        input.extend_from_slice(&ping([n.to_be_bytes().as_slice(), &[0; 100]].concat()).bytes());
        assert!(echo.connection.handle_input(&mut input).is_some());
        assert!(echo.connection.output_len() < 20_000);
    }
    // The latest ping gets a pong (RFC 6455 section 5.5.3).
    let responses = Frame::read_all(&echo.sent());
    assert_eq!(
        responses.last().unwrap().payload[..4],
        9999_u32.to_be_bytes()
    );
}
