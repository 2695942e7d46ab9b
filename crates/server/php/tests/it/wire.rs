//! The decoder of the wire protocol: valid and invalid frames of a worker (`php/WIRE.md`).

use std::time::Duration;

use apus_http::StatusCode;
use apus_php::wire::{
    LogLevel, MessageFormat, PhpCommand, ReadyFrame, WireDecoder, WireError, WireLimits,
    WorkerEvent, WorkerResponseEnd, WorkerResponseHead,
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

const HELLO: u8 = 65;
const READY: u8 = 66;
const RESPONSE: u8 = 67;
const CHUNK: u8 = 68;
const PULL: u8 = 69;
const PONG: u8 = 70;
const LOG: u8 = 71;
const COMMAND: u8 = 72;
const FAILED: u8 = 73;
const BYE: u8 = 74;
const INTERIM: u8 = 75;

/// The common end of a response.
const END: WorkerEvent = WorkerEvent::End(WorkerResponseEnd {
    continues_working: false,
    is_leaving: false,
    is_truncated: false,
});

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}

fn response(status: u16, block: &str, body: &[u8], flags: u8) -> Vec<u8> {
    let mut payload = status.to_le_bytes().to_vec();
    payload.extend_from_slice(&[0, 0]);
    payload.extend_from_slice(&4096_u32.to_le_bytes());
    payload.extend_from_slice(&(block.len() as u32).to_le_bytes());
    payload.extend_from_slice(block.as_bytes());
    payload.extend_from_slice(body);
    frame(RESPONSE, flags, &payload)
}

fn command(kind: u8, name: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![kind];
    payload.extend_from_slice(&(name.len() as u32).to_le_bytes());
    payload.extend_from_slice(name);
    payload.extend_from_slice(bytes);
    frame(COMMAND, 0, &payload)
}

/// Decodes input in pieces of `size` bytes, and joins the pieces of bodies.
fn decode(input: &[u8], size: usize) -> (Vec<WorkerEvent>, Option<WireError>) {
    let mut decoder = WireDecoder::new(WireLimits::default());
    let mut buffer = BytesMut::new();
    let mut events: Vec<WorkerEvent> = Vec::new();
    for piece in input.chunks(size.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.handle_input(&mut buffer) {
                Ok(None) => break,
                Ok(Some(WorkerEvent::Body(bytes))) => {
                    assert!(!bytes.is_empty() && decoder.is_in_response());
                    match events.last_mut() {
                        Some(WorkerEvent::Body(before)) => {
                            *before = [&before[..], &bytes].concat().into();
                        }
                        _ => events.push(WorkerEvent::Body(bytes)),
                    }
                }
                Ok(Some(event)) => events.push(event),
                Err(error) => {
                    assert_eq!(decoder.handle_input(&mut buffer), Err(error));
                    return (events, Some(error));
                }
            }
        }
    }
    (events, None)
}

fn error(input: &[u8]) -> WireError {
    let (_, error) = decode(input, input.len());
    assert_eq!(decode(input, 1).1, error);
    match error {
        Some(error) => error,
        None => panic!("it was accepted"),
    }
}

fn events(input: &[u8]) -> Vec<WorkerEvent> {
    let (events, error) = decode(input, input.len());
    assert_eq!(error, None);
    assert_eq!(decode(input, 1).0, events);
    events
}

#[test]
fn decodes_a_response_in_one_frame() {
    let mut input = response(201, "A: b\r\n", b"hello", 0);
    input.extend(response(204, "", b"", 0));
    let [first, body, end, second, last] = events(&input).try_into().unwrap();
    let WorkerEvent::Head(WorkerResponseHead {
        status,
        block,
        memory,
        content_length,
    }) = first
    else {
        panic!("{first:?}");
    };
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(block, "A: b\r\n");
    assert_eq!((memory, content_length), (4096, Some(5)));
    assert_eq!(body, WorkerEvent::Body("hello".into()));
    assert_eq!((end, last), (END, END));
    assert!(matches!(second, WorkerEvent::Head(head) if head.content_length == Some(0)));
}

#[test]
fn decodes_a_response_in_chunks_with_log_lines_between() {
    let input = [
        response(200, "", b"a", 1),
        frame(CHUNK, 0, b"b"),
        frame(LOG, 0, b"\x04careful"),
        frame(CHUNK, 0, b""),
        frame(CHUNK, 0, b"c"),
        frame(CHUNK, 1, b""),
    ]
    .concat();
    let events = events(&input);
    assert!(matches!(&events[0], WorkerEvent::Head(head) if head.content_length.is_none()));
    assert_eq!(events[1], WorkerEvent::Body("ab".into()));
    assert_eq!(
        events[2],
        WorkerEvent::Log(LogLevel::Warning, "careful".into())
    );
    assert_eq!(events[3..], [WorkerEvent::Body("c".into()), END]);
}

#[test]
fn decodes_hello() {
    let text =
        b"token: 0123\npid: 7\nphp: 8.2.35\nsapi: cgi-fcgi\nmode: worker\nscript: /a b\nx: y\n?\n";
    let events = events(&[frame(HELLO, 0, text), frame(READY, 0, b"")].concat());
    let WorkerEvent::Hello(hello) = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!((&*hello.token, &*hello.pid), ("0123", "7"));
    assert_eq!((&*hello.php, &*hello.sapi), ("8.2.35", "cgi-fcgi"));
    assert_eq!((&*hello.mode, &*hello.script), ("worker", "/a b"));
    assert!(!hello.uploads);
    assert_eq!(events[1], WorkerEvent::Ready(ReadyFrame::default()));
}

#[test]
fn decodes_ready() {
    let text = b"timer: clean-up 60000\ntimer: x\nsockets: 1\nlater: y\n";
    let ready = ReadyFrame {
        timers: vec![("clean-up".to_owned(), 60_000)],
        sockets: true,
    };
    assert_eq!(events(&frame(READY, 0, text)), [WorkerEvent::Ready(ready)]);
}

#[test]
fn decodes_the_end_of_a_response() {
    let end = |flags, whole| {
        let input = if whole {
            response(200, "", b"", flags)
        } else {
            [response(200, "", b"", 1), frame(CHUNK, flags | 1, b"")].concat()
        };
        match events(&input).pop() {
            Some(WorkerEvent::End(end)) => {
                (end.continues_working, end.is_leaving, end.is_truncated)
            }
            other => panic!("{other:?}"),
        }
    };
    for whole in [false, true] {
        assert_eq!(end(2, whole), (true, false, false));
        assert_eq!(end(4, whole), (false, true, false));
    }
    assert_eq!(end(8, false), (false, false, true));
    let early = response(200, "", b"", 1 | 4);
    assert_eq!(error(&early), WireError::Reserved(RESPONSE));
}

#[test]
fn decodes_the_other_frames() {
    let input = [
        frame(PULL, 0, &70_000_u32.to_le_bytes()),
        frame(PONG, 0, b""),
        frame(FAILED, 0, b"Parse error"),
        frame(BYE, 0, b"recycled"),
        frame(INTERIM, 0, b"\x67\0Link: </a>\r\n"),
        command(1, b"news", b"hi"),
        command(2, b"mail", b"\x0a\0\0\0x"),
        command(3, b"room", b""),
        command(4, b"room", b"s-1"),
        command(5, b"s-1", b"\xe9\x03bye"),
        command(6, b"", b"hello"),
        command(7, b"", b"mine"),
    ]
    .concat();
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(
        events(&input),
        [
            WorkerEvent::Pull(70_000),
            WorkerEvent::Pong,
            WorkerEvent::Failed(text("Parse error")),
            WorkerEvent::Bye(text("recycled")),
            WorkerEvent::Interim(StatusCode::EARLY_HINTS, text("Link: </a>\r\n")),
            WorkerEvent::Command(PhpCommand::Publish {
                channel: text("news"),
                format: MessageFormat::Text,
                message: text("hi"),
            }),
            WorkerEvent::Command(PhpCommand::Task {
                name: text("mail"),
                delay: Duration::from_millis(10),
                payload: text("x"),
            }),
            WorkerEvent::Command(PhpCommand::Join {
                room: text("room"),
                socket: text(""),
            }),
            WorkerEvent::Command(PhpCommand::Leave {
                room: text("room"),
                socket: text("s-1"),
            }),
            WorkerEvent::Command(PhpCommand::Close {
                socket: text("s-1"),
                code: 1001,
                reason: text("bye"),
            }),
            WorkerEvent::Command(PhpCommand::Send {
                socket: text(""),
                format: MessageFormat::Text,
                message: text("hello"),
            }),
            WorkerEvent::Command(PhpCommand::Keep {
                socket: text(""),
                data: text("mine"),
            }),
        ]
    );
}

#[test]
fn rejects_invalid_frames() {
    assert_eq!(error(&frame(1, 0, b"")), WireError::UnknownType(1));
    assert_eq!(error(b"HTTP/1.1 200"), WireError::UnknownType(b'/'));
    assert_eq!(error(&frame(READY, 2, b"")), WireError::Reserved(READY));
    assert_eq!(
        error(&[0, 0, 0, 0, READY, 0, 1, 0]),
        WireError::Reserved(READY)
    );
    assert_eq!(error(&frame(PULL, 0, b"abc")), WireError::Malformed(PULL));
    assert_eq!(error(&frame(LOG, 0, b"")), WireError::Malformed(LOG));
    for broken in [
        frame(COMMAND, 0, b"\x01\x05\0\0\0four"),
        frame(COMMAND, 0, b"\x01\0"),
        command(9, b"", b""),
        command(5, b"s", b"x"),
        command(1, b"", b""),
        command(1, b"a b", b""),
        command(3, b"room", b"no socket"),
    ] {
        assert_eq!(error(&broken), WireError::Malformed(COMMAND));
    }
}

#[test]
fn rejects_invalid_responses() {
    assert_eq!(error(&response(103, "", b"", 0)), WireError::Status(103));
    assert_eq!(error(&response(99, "", b"", 0)), WireError::Status(99));
    assert_eq!(error(&frame(INTERIM, 0, b"\xc8\0")), WireError::Status(200));
    assert_eq!(
        error(&frame(INTERIM, 0, b"\x67")),
        WireError::Malformed(INTERIM)
    );
    assert_eq!(
        error(&frame(RESPONSE, 0, &[200; 11])),
        WireError::Malformed(RESPONSE)
    );
    // A header block that is longer than its frame.
    let mut invalid = response(200, "A: b\r\n", b"", 0);
    invalid[HEADER_LENGTH] += 1;
    assert_eq!(error(&invalid), WireError::Malformed(RESPONSE));
    invalid[HEADER_LENGTH + 2] = 2;
    assert!(matches!(
        error(&invalid),
        WireError::TooLong { kind: RESPONSE, .. }
    ));
}

/// The position of the length of the header block.
const HEADER_LENGTH: usize = 16;

#[test]
fn rejects_frames_that_are_out_of_order() {
    let begun = response(200, "", b"", 1);
    for (before, kind) in [
        (&b""[..], CHUNK),
        (&begun, HELLO),
        (&begun, READY),
        (&begun, BYE),
        (&begun, INTERIM),
        (&begun, RESPONSE),
    ] {
        let input = [before, &frame(kind, 0, b"")].concat();
        assert_eq!(error(&input), WireError::OutOfOrder(kind));
    }
}

#[test]
fn rejects_frames_beyond_the_limits() {
    for (kind, flags) in [
        (HELLO, 0),
        (READY, 0),
        (CHUNK, 1),
        (LOG, 0),
        (FAILED, 0),
        (INTERIM, 0),
        (COMMAND, 0),
    ] {
        let mut input = response(200, "", b"", 1);
        if kind != CHUNK {
            input.clear();
        }
        input.extend_from_slice(&u32::MAX.to_le_bytes());
        input.extend_from_slice(&[kind, flags, 0, 0]);
        let error = error(&input);
        assert!(
            matches!(error, WireError::TooLong { .. }),
            "{kind}: {error}"
        );
    }
}

#[test]
fn bodies_share_the_memory_of_the_input() {
    let mut decoder = WireDecoder::new(WireLimits::default());
    let mut buffer = BytesMut::from(&response(200, "", &[b'x'; 1000], 0)[..]);
    let all = buffer.as_ptr_range();
    decoder.handle_input(&mut buffer).unwrap();
    let Ok(Some(WorkerEvent::Body(bytes))) = decoder.handle_input(&mut buffer) else {
        panic!("no body");
    };
    assert_eq!(bytes.len(), 1000);
    assert!(all.contains(&bytes.as_ptr()));
}

proptest! {
    #[test]
    fn events_do_not_depend_on_the_pieces(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        sizes in (1_usize..40, 1_usize..400),
    ) {
        let input = [
            response(200, "Content-Type: a\r\n", &body, 1),
            frame(CHUNK, 0, &body),
            command(1, b"c", &body),
            frame(CHUNK, 1, b""),
            frame(BYE, 0, b"requests"),
        ]
        .concat();
        let (whole, error) = decode(&input, sizes.0);
        prop_assert_eq!(error, None);
        prop_assert_eq!(whole, decode(&input, sizes.1).0);
    }
}
