//! permessage-deflate (RFC 7692): its negotiation, the examples of the RFC, and groups 12 and 13 of the Autobahn
//! test suite.

use apus_websocket::codec::{
    CodecSettings, Compression, DeflateConfig, Message, PreparedMessage, WebSocketConnection,
    WebSocketEvent, WebSocketProtocolError,
};
use bytes::BytesMut;
use flate2::{Compress, FlushCompress};

use super::peer::{BINARY, CONTINUATION, Echo, FIN, Frame, PING, RSV1, TEXT, frame, text};

fn accept(compression: &Compression, offer: &str) -> Option<(DeflateConfig, String)> {
    compression.accept([offer.as_bytes()].into_iter())
}

fn settings(compression: &Compression, offer: &str) -> CodecSettings {
    CodecSettings {
        max_frame: 1 << 20,
        max_message: 1 << 20,
        compression: accept(compression, offer).map(|(agreement, _)| agreement),
    }
}

const ALL: Compression = Compression {
    level: 6,
    min_length: 0,
    keep_sent_context: true,
    keep_received_context: true,
};

const NO_CONTEXTS: Compression = Compression {
    keep_sent_context: false,
    keep_received_context: false,
    ..ALL
};

#[test]
fn accepts_the_first_supported_offer_rfc_7692_section_7_1() {
    let plain = "permessage-deflate";
    let alone = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    for (compression, offer, response) in [
        (ALL, plain, Some(plain)),
        (NO_CONTEXTS, plain, Some(alone)),
        (
            ALL,
            "permessage-deflate; client_max_window_bits",
            Some(plain),
        ),
        (
            ALL,
            "permessage-deflate; client_max_window_bits=8",
            Some(plain),
        ),
        (
            ALL,
            "permessage-deflate;client_no_context_takeover",
            Some("permessage-deflate; client_no_context_takeover"),
        ),
        (
            ALL,
            "permessage-deflate; server_max_window_bits=10",
            Some("permessage-deflate; server_max_window_bits=10"),
        ),
        (
            ALL,
            "permessage-deflate; server_max_window_bits=\"10\"",
            Some("permessage-deflate; server_max_window_bits=10"),
        ),
        // zlib does not support 8 bits; the next offer is accepted.
        (ALL, "permessage-deflate; server_max_window_bits=8", None),
        (
            ALL,
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            Some(plain),
        ),
        (
            ALL,
            "x-webkit-deflate-frame, permessage-deflate",
            Some(plain),
        ),
        (ALL, "foo; x=\"a, permessage-deflate, b\"", None),
        // Declined by RFC 7692 section 7.1.
        (ALL, "permessage-deflate; unknown", None),
        (ALL, "permessage-deflate; server_max_window_bits", None),
        (ALL, "permessage-deflate; server_max_window_bits=16", None),
        (ALL, "permessage-deflate; server_max_window_bits=08", None),
        (
            ALL,
            "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
            None,
        ),
        (
            ALL,
            "permessage-deflate; server_no_context_takeover=1",
            None,
        ),
        (ALL, "permessage-deflate; client_max_window_bits=7", None),
        (ALL, "", None),
    ] {
        let accepted = accept(&compression, offer).map(|(_, response)| response);
        assert_eq!(accepted.as_deref(), response, "{offer}");
    }
}

#[test]
fn a_client_accepts_only_what_it_offered() {
    let read = |compression: &Compression, response: &str| {
        compression.read_response([response.as_bytes()].into_iter())
    };
    assert_eq!(ALL.read_response([].into_iter()), Ok(None));
    assert!(
        read(&ALL, "permessage-deflate; client_max_window_bits=9")
            .unwrap()
            .is_some()
    );
    assert!(
        read(&ALL, "permessage-deflate; server_max_window_bits=8")
            .unwrap()
            .is_some()
    );
    let alone = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    assert!(read(&ALL, alone).unwrap().is_some());
    assert!(read(&NO_CONTEXTS, alone).unwrap().is_some());
    assert!(read(&NO_CONTEXTS, "permessage-deflate").is_err());
    for wrong in [
        "foo",
        "permessage-deflate, permessage-deflate",
        "permessage-deflate; unknown",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=8",
        "permessage-deflate; server_max_window_bits=7",
    ] {
        assert!(read(&ALL, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn reads_the_examples_of_rfc_7692_section_7_2_3() {
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    let compressed = FIN | RSV1 | TEXT;
    for (name, frames) in [
        ("7.2.3.1", vec![frame(compressed, hello)]),
        (
            "7.2.3.1 in fragments",
            vec![frame(RSV1 | TEXT, &hello[..3]), frame(FIN, &hello[3..])],
        ),
        (
            "7.2.3.2",
            vec![
                frame(compressed, hello),
                frame(compressed, b"\xf2\x00\x11\x00\x00"),
            ],
        ),
        (
            "7.2.3.3",
            vec![frame(
                compressed,
                b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
            )],
        ),
        (
            "7.2.3.4",
            vec![frame(compressed, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00")],
        ),
        (
            "7.2.3.5",
            vec![frame(
                compressed,
                b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
            )],
        ),
    ] {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        for size in [usize::MAX, 1] {
            let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
            echo.responses(&bytes, size);
            let expected = WebSocketEvent::Message("Hello".into());
            assert!(!echo.events.is_empty());
            assert!(
                echo.events.iter().all(|event| *event == expected),
                "{name}: {:?}",
                echo.events
            );
        }
    }
    // 7.2.3.6: an empty message.
    let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
    echo.feed(&frame(compressed, b"\0").bytes());
    assert_eq!(echo.events, [WebSocketEvent::Message("".into())]);
}

/// Text with a moderate compression ratio.
fn compressible(len: usize) -> Vec<u8> {
    let words = [
        "swift ",
        "apus ",
        "nest ",
        "wing ",
        "Zürich ",
        "0123456789 ",
    ];
    let mut seed = 7_u32;
    let mut text = String::new();
    while text.len() < len {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(words[(seed >> 16) as usize % words.len()]);
    }
    text.truncate(text.floor_char_boundary(len));
    text.into_bytes()
}

#[test]
fn groups_12_and_13_echo_messages_with_all_parameters() {
    for (compression, offer) in [
        (ALL, "permessage-deflate"),
        (NO_CONTEXTS, "permessage-deflate; client_max_window_bits"),
        (ALL, "permessage-deflate; server_no_context_takeover"),
        (
            ALL,
            "permessage-deflate; server_max_window_bits=9; client_max_window_bits=9",
        ),
        (
            ALL,
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=9",
        ),
        (
            Compression {
                level: 1,
                min_length: 100,
                ..ALL
            },
            "permessage-deflate",
        ),
        (
            Compression { level: 9, ..ALL },
            "permessage-deflate; client_no_context_takeover",
        ),
    ] {
        let (agreement, response) = accept(&compression, offer).unwrap();
        let client = Compression {
            keep_received_context: true,
            ..compression
        };
        let agreed = client
            .read_response([response.as_bytes()].into_iter())
            .unwrap();
        let limits = CodecSettings {
            max_frame: 1 << 20,
            max_message: 1 << 20,
            compression: None,
        };
        let mut server = Echo::server(&CodecSettings {
            compression: Some(agreement),
            ..limits
        });
        let mut client = WebSocketConnection::client(
            &CodecSettings {
                compression: agreed,
                ..limits
            },
            || [1, 2, 3, 4],
        );
        let mut input = BytesMut::new();
        let (mut plain, mut sent) = (0, 0);
        for round in 0..4 {
            for len in [0, 1, 16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 131_072] {
                let message = match round % 2 {
                    0 => Message::text(String::from_utf8(compressible(len)).unwrap()),
                    _ => Message::binary(compressible(len)),
                };
                client.send(message.clone()).unwrap();
                while !client.output().is_empty() {
                    let output = client.output().to_vec();
                    client.consume_output(output.len());
                    for piece in output.chunks(1000) {
                        input.extend_from_slice(&server.feed(piece));
                    }
                }
                plain += message.len();
                sent += input.len();
                let event = client.handle_input(&mut input);
                assert!(
                    event == Some(WebSocketEvent::Message(message)),
                    "{offer}: {len} bytes: {event:?}"
                );
            }
        }
        assert!(sent < plain / 2, "{offer}: {sent} bytes of {plain}");
        assert!(!server.connection.is_closing());
    }
}

#[test]
fn decompresses_a_fragmented_message_with_pings_between() {
    let payload = compressible(5000);
    let mut compress = Compress::new(flate2::Compression::default(), false);
    let mut compressed = Vec::with_capacity(10_000);
    compress
        .compress_vec(&payload, &mut compressed, FlushCompress::Sync)
        .unwrap();
    compressed.truncate(compressed.len() - 4);
    let mut frames = vec![frame(RSV1 | TEXT, &compressed[..1])];
    for part in compressed[1..].chunks(13) {
        frames.push(frame(FIN | PING, "p"));
        frames.push(frame(CONTINUATION, part));
    }
    frames.push(frame(FIN, ""));
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
    for size in [usize::MAX, 1, 5] {
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        echo.responses(&bytes, size);
        let text = String::from_utf8(payload.clone()).unwrap();
        assert_eq!(
            echo.events.last(),
            Some(&WebSocketEvent::Message(text.into()))
        );
    }
}

#[test]
fn invalid_bits_and_compressed_data_close_the_connection() {
    let compressed = FIN | RSV1 | TEXT;
    for (frames, error) in [
        (
            vec![frame(compressed, b"\xff\xff\xff\xff")],
            WebSocketProtocolError::Compression,
        ),
        (
            vec![frame(RSV1 | TEXT, b""), frame(FIN | RSV1, b"")],
            WebSocketProtocolError::ReservedBits,
        ),
        (
            vec![frame(FIN | RSV1 | PING, b"")],
            WebSocketProtocolError::ReservedBits,
        ),
        // "\xed\xa0\x80" in a stored block.
        (
            vec![frame(compressed, b"\x00\x03\x00\xfc\xff\xed\xa0\x80\x00")],
            WebSocketProtocolError::InvalidUtf8,
        ),
    ] {
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        for frame in frames {
            echo.feed(&frame.bytes());
        }
        assert_eq!(echo.events, [WebSocketEvent::Failed(error)]);
    }
    let mut echo = Echo::server(&CodecSettings::default());
    echo.feed(&frame(compressed, b"\0").bytes());
    assert_eq!(
        echo.events,
        [WebSocketEvent::Failed(WebSocketProtocolError::ReservedBits)]
    );
}

#[test]
fn a_decompression_bomb_is_stopped_at_the_limit() {
    let mut compress = Compress::new(flate2::Compression::best(), false);
    let mut bomb = Vec::with_capacity(1 << 20);
    compress
        .compress_vec(&vec![0; 16 << 20], &mut bomb, FlushCompress::Sync)
        .unwrap();
    assert!(bomb.len() < 1 << 18);
    for size in [usize::MAX, 1000] {
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        let bytes = frame(FIN | RSV1 | BINARY, &bomb).bytes();
        echo.responses(&bytes, size);
        assert_eq!(
            echo.events,
            [WebSocketEvent::Failed(
                WebSocketProtocolError::MessageTooLong
            )]
        );
    }
}

#[test]
fn the_limit_applies_to_the_decompressed_message() {
    for (len, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut compress = Compress::new(flate2::Compression::default(), false);
        let mut compressed = Vec::with_capacity(1 << 20);
        compress
            .compress_vec(&vec![b'a'; len], &mut compressed, FlushCompress::Sync)
            .unwrap();
        compressed.truncate(compressed.len() - 4);
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        echo.feed(&frame(FIN | RSV1 | TEXT, &compressed).bytes());
        assert_eq!(
            matches!(echo.events[..], [WebSocketEvent::Message(_)]),
            fits
        );
    }
}

#[test]
fn a_prepared_message_fits_every_connection() {
    let message = Message::text(String::from_utf8(compressible(3000)).unwrap());
    let prepared = PreparedMessage::new(&message, Some(&NO_CONTEXTS));
    assert_eq!(
        prepared.as_bytes(),
        text(message.as_bytes()).unmasked().bytes()
    );
    for (compression, offer, is_compressed) in [
        (NO_CONTEXTS, "permessage-deflate", true),
        (
            NO_CONTEXTS,
            "permessage-deflate; server_max_window_bits=9",
            false,
        ),
        (ALL, "permessage-deflate", false),
        (ALL, "none", false),
    ] {
        let (agreement, response) = accept(&compression, offer).unzip();
        let mut server = WebSocketConnection::server(&CodecSettings {
            compression: agreement,
            ..CodecSettings::default()
        });
        let response = response.unwrap_or_default();
        let agreed = ALL
            .read_response([response.as_bytes()].into_iter())
            .unwrap();
        let mut client = WebSocketConnection::client(
            &CodecSettings {
                compression: agreed,
                ..CodecSettings::default()
            },
            || [0; 4],
        );
        // Prepared messages must not disturb the context of other messages.
        for _ in 0..3 {
            server.send(message.clone()).unwrap();
            let before = server.output_len();
            server.send_prepared(&prepared).unwrap();
            let len = server.output_len() - before;
            assert_eq!(len < 2000, is_compressed, "{offer}: {len}");
        }
        let mut input = BytesMut::from(server.output());
        for _ in 0..6 {
            assert_eq!(
                client.handle_input(&mut input),
                Some(WebSocketEvent::Message(message.clone()))
            );
        }
    }
}

/// A megabyte of zeros, compressed to a kilobyte.
fn bomb() -> Vec<u8> {
    let mut compress = Compress::new(flate2::Compression::best(), false);
    let mut out = Vec::with_capacity(8192);
    compress
        .compress_vec(&vec![0; 1 << 20], &mut out, FlushCompress::Sync)
        .unwrap();
    out.truncate(out.len() - 4);
    out
}

#[test]
fn a_compressed_message_is_not_inflated_before_it_is_complete() {
    let compressed = bomb();
    assert!(compressed.len() < 2048);
    let (first, rest) = compressed.split_at(compressed.len() - 1);
    let open_frame = {
        // The last frame announces more than has come.
        let bytes = frame(FIN | RSV1 | BINARY, &compressed).bytes();
        bytes[..bytes.len() - 1].to_vec()
    };
    let in_pieces: Vec<u8> = std::iter::once(frame(RSV1 | BINARY, &compressed[..1]).bytes())
        .chain(
            compressed[1..]
                .iter()
                .map(|byte| frame(CONTINUATION, [*byte]).bytes()),
        )
        .flatten()
        .collect();
    let with_pings = [
        frame(RSV1 | BINARY, first).bytes(),
        frame(FIN | PING, b"between").bytes(),
        frame(CONTINUATION, rest).bytes(),
    ]
    .concat();
    for (name, mut sent, end) in [
        (
            "a frame that is not the last",
            frame(RSV1 | BINARY, &compressed).bytes(),
            frame(FIN, b"").bytes(),
        ),
        (
            "a frame that is not complete",
            open_frame,
            frame(FIN | RSV1 | BINARY, &compressed)
                .bytes()
                .split_off(frame(FIN | RSV1 | BINARY, &compressed).bytes().len() - 1),
        ),
        ("frames of a byte", in_pieces, frame(FIN, b"").bytes()),
        ("a ping in between", with_pings, frame(FIN, b"").bytes()),
    ] {
        let settings = settings(&NO_CONTEXTS, "permessage-deflate");
        let mut connection = WebSocketConnection::server(&settings);
        let mut input = BytesMut::new();
        input.extend_from_slice(&std::mem::take(&mut sent));
        while let Some(event) = connection.handle_input(&mut input) {
            assert!(
                matches!(event, WebSocketEvent::Ping(_)),
                "{name}: {event:?}"
            );
        }
        assert!(
            connection.memory() < 4096,
            "{name}: {}",
            connection.memory()
        );
        assert!(connection.is_inside_message(), "{name}");
        input.extend_from_slice(&end);
        let whole = Message::binary(vec![0; 1 << 20]);
        assert!(
            connection.handle_input(&mut input) == Some(WebSocketEvent::Message(whole)),
            "{name}"
        );
        assert!(!connection.is_inside_message() && connection.memory() < 4096);
    }
}

#[test]
fn a_compressed_message_has_its_limit_in_pieces_too() {
    for (max, is_accepted) in [
        ((1 << 20) - 1, false),
        (1 << 20, true),
        ((1 << 20) + 1, true),
    ] {
        let settings = CodecSettings {
            max_message: max,
            ..settings(&NO_CONTEXTS, "permessage-deflate")
        };
        let compressed = bomb();
        for at in [0, 1, compressed.len() / 2, compressed.len()] {
            let mut connection = WebSocketConnection::server(&settings);
            let mut input = BytesMut::new();
            input.extend_from_slice(&frame(RSV1 | BINARY, &compressed[..at]).bytes());
            input.extend_from_slice(&frame(FIN, &compressed[at..]).bytes());
            let event = connection.handle_input(&mut input).unwrap();
            if is_accepted {
                assert!(matches!(event, WebSocketEvent::Message(_)), "{max}, {at}")
            } else {
                assert_eq!(
                    event,
                    WebSocketEvent::Failed(WebSocketProtocolError::MessageTooLong)
                )
            }
        }
    }
}

#[test]
fn compressed_data_without_output_does_not_gather() {
    let settings = CodecSettings {
        max_message: 10_000,
        max_frame: 10_000,
        ..settings(&NO_CONTEXTS, "permessage-deflate")
    };
    let mut connection = WebSocketConnection::server(&settings);
    // Empty stored blocks.
    let nothing = b"\x00\x00\x00\xff\xff".repeat(200);
    let mut input = BytesMut::new();
    input.extend_from_slice(&frame(RSV1 | BINARY, &nothing).bytes());
    let mut frames = 0;
    let event = loop {
        if let Some(event) = connection.handle_input(&mut input) {
            break event;
        }
        frames += 1;
        assert!(frames < 100 && connection.memory() < 32_768);
        input.extend_from_slice(&frame(CONTINUATION, &nothing).bytes());
    };
    assert_eq!(
        event,
        WebSocketEvent::Failed(WebSocketProtocolError::MessageTooLong)
    );
    assert_eq!(frames, 11);
}
