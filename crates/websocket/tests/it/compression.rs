//! permessage-deflate (RFC 7692): its negotiation, the examples of the RFC, and groups 12 and 13 of the
//! Autobahn test suite: messages of many sizes under many parameters, in one frame and in fragments.

use apus_websocket::codec::{
    Agreement, Compression, Connection, Event, Message, Prepared, ProtocolError, Settings,
};
use bytes::BytesMut;
use flate2::{Compress, FlushCompress};

use super::peer::{BINARY, CONTINUATION, Echo, FIN, Frame, PING, RSV1, TEXT, frame, text};

fn accept(compression: &Compression, offer: &str) -> Option<(Agreement, String)> {
    compression.accept([offer.as_bytes()].into_iter())
}

fn settings(compression: &Compression, offer: &str) -> Settings {
    Settings {
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

const ALONE: Compression = Compression {
    keep_sent_context: false,
    keep_received_context: false,
    ..ALL
};

#[test]
fn offers_are_taken_in_their_order_rfc_7692_section_7_1() {
    let plain = "permessage-deflate";
    let alone = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    for (compression, offer, answer) in [
        (ALL, plain, Some(plain)),
        (ALONE, plain, Some(alone)),
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
        // zlib cannot do that; the next offer is taken.
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
        // RFC 7692 section 7.1: declined.
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
        let accepted = accept(&compression, offer).map(|(_, answer)| answer);
        assert_eq!(accepted.as_deref(), answer, "{offer}");
    }
}

#[test]
fn a_client_takes_only_what_it_offered() {
    let agreed = |compression: &Compression, answer: &str| {
        compression.agreed([answer.as_bytes()].into_iter())
    };
    assert_eq!(ALL.agreed([].into_iter()), Ok(None));
    assert!(
        agreed(&ALL, "permessage-deflate; client_max_window_bits=9")
            .unwrap()
            .is_some()
    );
    assert!(
        agreed(&ALL, "permessage-deflate; server_max_window_bits=8")
            .unwrap()
            .is_some()
    );
    let alone = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    assert!(agreed(&ALL, alone).unwrap().is_some());
    assert!(agreed(&ALONE, alone).unwrap().is_some());
    assert!(agreed(&ALONE, "permessage-deflate").is_err());
    for wrong in [
        "foo",
        "permessage-deflate, permessage-deflate",
        "permessage-deflate; unknown",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=8",
        "permessage-deflate; server_max_window_bits=7",
    ] {
        assert!(agreed(&ALL, wrong).is_err(), "{wrong}");
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
            echo.answers(&bytes, size);
            let expected = Event::Message("Hello".into());
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
    assert_eq!(echo.events, [Event::Message("".into())]);
}

/// Text that compresses, but not too well.
fn content(len: usize) -> Vec<u8> {
    let words = [
        "swift ",
        "apus ",
        "nest ",
        "wing ",
        "Zürich ",
        "0123456789 ",
    ];
    let mut seed = 7_u32;
    let mut content = String::new();
    while content.len() < len {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        content.push_str(words[(seed >> 16) as usize % words.len()]);
    }
    content.truncate(content.floor_char_boundary(len));
    content.into_bytes()
}

#[test]
fn group_12_and_13_messages_come_back_under_all_parameters() {
    for (compression, offer) in [
        (ALL, "permessage-deflate"),
        (ALONE, "permessage-deflate; client_max_window_bits"),
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
        let (agreement, answer) = accept(&compression, offer).unwrap();
        let client = Compression {
            keep_received_context: true,
            ..compression
        };
        let agreed = client.agreed([answer.as_bytes()].into_iter()).unwrap();
        let limits = Settings {
            max_frame: 1 << 20,
            max_message: 1 << 20,
            compression: None,
        };
        let mut server = Echo::server(&Settings {
            compression: Some(agreement),
            ..limits
        });
        let mut client = Connection::client(
            &Settings {
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
                    0 => Message::text(String::from_utf8(content(len)).unwrap()),
                    _ => Message::binary(content(len)),
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
                    event == Some(Event::Message(message)),
                    "{offer}: {len} bytes: {event:?}"
                );
            }
        }
        assert!(sent < plain / 2, "{offer}: {sent} bytes of {plain}");
        assert!(!server.connection.is_closing());
    }
}

#[test]
fn a_compressed_message_comes_in_fragments_with_pings_between() {
    let content = content(5000);
    let mut compress = Compress::new(flate2::Compression::default(), false);
    let mut compressed = Vec::with_capacity(10_000);
    compress
        .compress_vec(&content, &mut compressed, FlushCompress::Sync)
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
        echo.answers(&bytes, size);
        let text = String::from_utf8(content.clone()).unwrap();
        assert_eq!(echo.events.last(), Some(&Event::Message(text.into())));
    }
}

#[test]
fn bits_and_data_that_are_wrong_end_the_connection() {
    let compressed = FIN | RSV1 | TEXT;
    for (frames, error) in [
        (
            vec![frame(compressed, b"\xff\xff\xff\xff")],
            ProtocolError::Compression,
        ),
        (
            vec![frame(RSV1 | TEXT, b""), frame(FIN | RSV1, b"")],
            ProtocolError::ReservedBits,
        ),
        (
            vec![frame(FIN | RSV1 | PING, b"")],
            ProtocolError::ReservedBits,
        ),
        // "\xed\xa0\x80" in a stored block.
        (
            vec![frame(compressed, b"\x00\x03\x00\xfc\xff\xed\xa0\x80\x00")],
            ProtocolError::InvalidUtf8,
        ),
    ] {
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        for frame in frames {
            echo.feed(&frame.bytes());
        }
        assert_eq!(echo.events, [Event::Failed(error)]);
    }
    let mut echo = Echo::server(&Settings::default());
    echo.feed(&frame(compressed, b"\0").bytes());
    assert_eq!(echo.events, [Event::Failed(ProtocolError::ReservedBits)]);
}

#[test]
fn a_decompression_bomb_costs_no_more_than_the_limit() {
    let mut compress = Compress::new(flate2::Compression::best(), false);
    let mut bomb = Vec::with_capacity(1 << 20);
    compress
        .compress_vec(&vec![0; 16 << 20], &mut bomb, FlushCompress::Sync)
        .unwrap();
    assert!(bomb.len() < 1 << 18);
    for size in [usize::MAX, 1000] {
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        let bytes = frame(FIN | RSV1 | BINARY, &bomb).bytes();
        echo.answers(&bytes, size);
        assert_eq!(echo.events, [Event::Failed(ProtocolError::MessageTooLong)]);
    }
}

#[test]
fn the_limit_is_that_of_the_decompressed_message() {
    for (len, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut compress = Compress::new(flate2::Compression::default(), false);
        let mut compressed = Vec::with_capacity(1 << 20);
        compress
            .compress_vec(&vec![b'a'; len], &mut compressed, FlushCompress::Sync)
            .unwrap();
        compressed.truncate(compressed.len() - 4);
        let mut echo = Echo::server(&settings(&ALL, "permessage-deflate"));
        echo.feed(&frame(FIN | RSV1 | TEXT, &compressed).bytes());
        assert_eq!(matches!(echo.events[..], [Event::Message(_)]), fits);
    }
}

#[test]
fn what_is_prepared_fits_every_connection() {
    let message = Message::text(String::from_utf8(content(3000)).unwrap());
    let prepared = Prepared::new(&message, Some(&ALONE));
    assert_eq!(
        prepared.as_bytes(),
        text(message.as_bytes()).unmasked().bytes()
    );
    for (compression, offer, is_compressed) in [
        (ALONE, "permessage-deflate", true),
        (ALONE, "permessage-deflate; server_max_window_bits=9", false),
        (ALL, "permessage-deflate", false),
        (ALL, "none", false),
    ] {
        let (agreement, answer) = accept(&compression, offer).unzip();
        let mut server = Connection::server(&Settings {
            compression: agreement,
            ..Settings::default()
        });
        let answer = answer.unwrap_or_default();
        let agreed = ALL.agreed([answer.as_bytes()].into_iter()).unwrap();
        let mut client = Connection::client(
            &Settings {
                compression: agreed,
                ..Settings::default()
            },
            || [0; 4],
        );
        // Between messages of its own, whose contexts must not be disturbed.
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
                Some(Event::Message(message.clone()))
            );
        }
    }
}
