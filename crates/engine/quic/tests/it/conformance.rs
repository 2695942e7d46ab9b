//! Every error of RFC 9000 and RFC 9001 that frames and packets of a client can provoke, with its code.

use std::collections::HashMap;
use std::sync::Arc;

use apus_quic::{QuicEndpoint, QuicServerTls, QuicSettings, RetryMode};
use apus_testkit::block_on;
use apus_testkit::quic::frame::{
    ServerFrame, crypto, integer, integers, kind, new_connection_id, stream,
};
use apus_testkit::quic::{
    PacketLevel, RawQuicClient, RawQuicOptions, default_parameters, parameter,
};

use tokio::net::UdpSocket;

use crate::harness::*;

const FLOW_CONTROL_ERROR: u64 = 0x3;
const STREAM_LIMIT_ERROR: u64 = 0x4;
const STREAM_STATE_ERROR: u64 = 0x5;
const FINAL_SIZE_ERROR: u64 = 0x6;
const FRAME_ENCODING_ERROR: u64 = 0x7;
const TRANSPORT_PARAMETER_ERROR: u64 = 0x8;
const CONNECTION_ID_LIMIT_ERROR: u64 = 0x9;
const PROTOCOL_VIOLATION: u64 = 0xa;
const INVALID_TOKEN: u64 = 0xb;
const CRYPTO_BUFFER_EXCEEDED: u64 = 0xd;
const KEY_UPDATE_ERROR: u64 = 0xe;

/// The first streams of each kind.
const CLIENT_BIDI: u64 = 0;
const SERVER_BIDI: u64 = 1;
const CLIENT_UNI: u64 = 2;
const SERVER_UNI: u64 = 3;

/// Limits of the default settings.
const BIDI_STREAMS: u64 = 100;
const UNI_STREAMS: u64 = 8;
const STREAM_WINDOW: u64 = 1 << 20;

/// One more than the greatest integer, and the most streams (sections 4.6 and 16).
const INTEGERS: u64 = 1 << 62;
const MAX_STREAM_COUNT: u64 = 1 << 60;

fn options() -> RawQuicOptions {
    RawQuicOptions::new(client_config(), "localhost")
}

fn echo_server() -> QuicEndpoint {
    let server = server();
    echo_all(&server);
    server
}

/// The code with which the server closes a connection after these frames in a packet of this level.
async fn code_after(server: &QuicEndpoint, frames: &[u8]) -> u64 {
    let mut client = RawQuicClient::connect(server.local_address(), &options()).await;
    client.send_frames(frames).await;
    let (code, by_application) = client.closed().await;
    assert!(!by_application, "{code:x}");
    code
}

/// The code with which the server closes a connection with these transport parameters.
async fn code_of_parameters(server: &QuicEndpoint, parameters: Vec<u8>) -> u64 {
    let options = RawQuicOptions {
        parameters,
        ..options()
    };
    let mut client = RawQuicClient::begin(server.local_address(), &options).await;
    client.closed().await.0
}

#[test]
fn invalid_frames_close_the_connection_with_their_code() {
    let at = |offset, data: &[u8], end| stream(CLIENT_BIDI, offset, data, end);
    let cases: Vec<(&str, Vec<u8>, u64)> = vec![
        ("3.2", at(u64::MAX >> 3, b"abc", false), FLOW_CONTROL_ERROR),
        // Section 4.1: one byte more than the window of the stream, and three streams that exceed the window of the
        // connection.
        ("4.1", at(STREAM_WINDOW, b"a", false), FLOW_CONTROL_ERROR),
        (
            "4.1",
            [0, 4, 8]
                .map(|id| stream(id, STREAM_WINDOW - 1, b"a", false))
                .concat(),
            FLOW_CONTROL_ERROR,
        ),
        (
            "4.1 of a final size",
            integers(&[kind::RESET_STREAM, CLIENT_BIDI, 0, STREAM_WINDOW + 1]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "4.5 beyond the end",
            [at(0, b"abc", true), at(3, b"d", false)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5 two ends",
            [at(0, b"abc", true), at(0, b"ab", true)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5 a reset before the data",
            [
                at(0, b"abc", false),
                integers(&[kind::RESET_STREAM, CLIENT_BIDI, 0, 2]),
            ]
            .concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5 a reset beyond the end",
            [
                at(0, b"abc", true),
                integers(&[kind::RESET_STREAM, CLIENT_BIDI, 0, 4]),
            ]
            .concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.6",
            stream(4 * BIDI_STREAMS, 0, b"a", false),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            stream(CLIENT_UNI + 4 * UNI_STREAMS, 0, b"a", false),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[kind::RESET_STREAM, 4 * BIDI_STREAMS, 0, 0]),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[kind::MAX_STREAM_DATA, 4 * BIDI_STREAMS, 0]),
            STREAM_LIMIT_ERROR,
        ),
        ("12.4 no frames", vec![], PROTOCOL_VIOLATION),
        (
            "12.4 an unknown type",
            integers(&[0x21]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "13.1",
            integers(&[kind::ACK, 1_000_000, 0, 0, 0]),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.3.1 a negative number",
            integers(&[kind::ACK, 0, 0, 0, 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.3.1 a gap below zero",
            integers(&[kind::ACK, 1, 0, 1, 0, 0, 0]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.4",
            integers(&[kind::RESET_STREAM, SERVER_UNI, 0, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.4",
            integers(&[kind::RESET_STREAM, SERVER_BIDI, 0, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, CLIENT_UNI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, SERVER_BIDI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, SERVER_UNI, 0]),
            STREAM_STATE_ERROR,
        ),
        ("7.5", crypto(100_000, b"a"), CRYPTO_BUFFER_EXCEEDED),
        ("19.6", crypto(INTEGERS - 1, b"a"), CRYPTO_BUFFER_EXCEEDED),
        (
            "19.7",
            [integers(&[kind::NEW_TOKEN, 1]), vec![7]].concat(),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.8",
            stream(SERVER_UNI, 0, b"a", false),
            STREAM_STATE_ERROR,
        ),
        (
            "19.8",
            stream(SERVER_BIDI, 0, b"a", false),
            STREAM_STATE_ERROR,
        ),
        ("19.8", at(INTEGERS - 1, b"ab", false), FLOW_CONTROL_ERROR),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, CLIENT_UNI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, SERVER_BIDI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, SERVER_UNI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.11",
            integers(&[kind::MAX_STREAMS, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.11",
            integers(&[kind::MAX_STREAMS + 1, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.13",
            integers(&[kind::STREAM_DATA_BLOCKED, SERVER_UNI, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.14",
            integers(&[kind::STREAMS_BLOCKED, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.14",
            integers(&[kind::STREAMS_BLOCKED + 1, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "5.1.1 more than the limit",
            (1..10)
                .flat_map(|sequence| new_connection_id(sequence, 0, &[sequence as u8; 8]))
                .collect(),
            CONNECTION_ID_LIMIT_ERROR,
        ),
        (
            "19.15 a retirement of later ones",
            new_connection_id(1, 2, &[1; 8]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.15 without an ID",
            new_connection_id(1, 0, &[]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.15 an ID of 21 bytes",
            new_connection_id(1, 0, &[1; 21]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.16",
            integers(&[kind::RETIRE_CONNECTION_ID, 1000]),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.20",
            integers(&[kind::HANDSHAKE_DONE]),
            PROTOCOL_VIOLATION,
        ),
        // RFC 9001 section 6: a KeyUpdate of TLS is an `unexpected_message`.
        ("RFC 9001 6", crypto(0, &[24, 0, 0, 1, 0]), 0x10a),
    ];
    block_on(async {
        let server = echo_server();
        for (section, frames, code) in cases {
            let found = code_after(&server, &frames).await;
            assert_eq!(found, code, "{section}: {found:x} instead of {code:x}");
        }
    });
}

/// Section 12.4: a frame whose fields are cut off.
#[test]
fn truncated_frames_close_the_connection() {
    let frames = [
        integers(&[kind::ACK, 0, 0, 0, 0]),
        integers(&[kind::RESET_STREAM, 0, 0, 0]),
        integers(&[kind::STOP_SENDING, 0, 0]),
        crypto(0, b"a"),
        [integers(&[kind::NEW_TOKEN, 1]), vec![7]].concat(),
        stream(0, 0, b"a", false),
        integers(&[kind::MAX_DATA, 0]),
        integers(&[kind::MAX_STREAM_DATA, 0, 0]),
        integers(&[kind::MAX_STREAMS, 0]),
        integers(&[kind::DATA_BLOCKED, 0]),
        integers(&[kind::STREAM_DATA_BLOCKED, 0, 0]),
        integers(&[kind::STREAMS_BLOCKED, 0]),
        new_connection_id(1, 0, &[1; 8]),
        integers(&[kind::RETIRE_CONNECTION_ID, 0]),
        [integer(kind::PATH_CHALLENGE), vec![0; 8]].concat(),
        [integer(kind::PATH_RESPONSE), vec![0; 8]].concat(),
        [integers(&[kind::CONNECTION_CLOSE, 0, 0, 1]), vec![b'a']].concat(),
        [integers(&[kind::APPLICATION_CLOSE, 0, 1]), vec![b'a']].concat(),
    ];
    block_on(async {
        let server = echo_server();
        for frame in frames {
            let cut_off = &frame[..frame.len() - 1];
            let code = code_after(&server, cut_off).await;
            assert_eq!(code, FRAME_ENCODING_ERROR, "{cut_off:x?}");
        }
    });
}

/// Section 12.4: only 1-RTT packets have most types of frames.
#[test]
fn frames_of_another_level_close_the_connection() {
    let frames = [
        stream(0, 0, b"a", false),
        integers(&[kind::RESET_STREAM, 0, 0, 0]),
        integers(&[kind::MAX_DATA, 100]),
        integers(&[kind::HANDSHAKE_DONE]),
        new_connection_id(1, 0, &[1; 8]),
        [integer(kind::PATH_CHALLENGE), vec![0; 8]].concat(),
    ];
    block_on(async {
        let server = echo_server();
        for frame in frames {
            let mut client = RawQuicClient::silent(server.local_address(), &options()).await;
            client.send(PacketLevel::Initial, &frame).await;
            let (code, _) = client.closed().await;
            assert_eq!(code, PROTOCOL_VIOLATION, "{frame:x?}");
        }
    });
}

/// Section 12.5: frames that a client cannot send before it has heard of the server. The server may reject them; of those
/// that refer to what it has sent, it ignores what is right.
#[test]
fn frames_that_early_data_must_not_have_close_the_connection() {
    let frames = [
        integers(&[kind::ACK, 1_000_000, 0, 0, 0]),
        crypto(0, b"a"),
        [integers(&[kind::NEW_TOKEN, 1]), vec![7]].concat(),
        integers(&[kind::HANDSHAKE_DONE]),
        integers(&[kind::RETIRE_CONNECTION_ID, 1_000]),
    ];
    block_on(async {
        let tls = QuicServerTls::new(server_config("localhost", false), true).unwrap();
        let sites = Arc::new(Sites(HashMap::from([("localhost", Arc::new(tls))])));
        let server = endpoint(&new_workers(), V4, QuicSettings::default(), Some(sites));
        echo_all(&server);
        let mut options = options();
        options.tls.enable_early_data = true;
        for frame in frames {
            // Has a session, which can be resumed once.
            let mut client = RawQuicClient::connect(server.local_address(), &options).await;
            client.acknowledged().await.unwrap();
            let mut client = RawQuicClient::begin(server.local_address(), &options).await;
            client.send(PacketLevel::Early, &frame).await;
            let (code, _) = client.closed().await;
            assert_eq!(code, PROTOCOL_VIOLATION, "{frame:x?}");
        }
    });
}

/// Section 8.1.3: the token of a Retry packet is for the address of the client that got it.
#[test]
fn the_token_of_another_client_closes_the_connection() {
    block_on(async {
        let server = server_with(QuicSettings {
            retry: RetryMode::Always,
            ..QuicSettings::default()
        });
        echo_all(&server);
        let client = RawQuicClient::begin(server.local_address(), &options()).await;
        let mut retry = vec![0; 65_536];
        let (length, _) = client.socket.recv_from(&mut retry).await.unwrap();
        retry.truncate(length);
        let mut other = RawQuicClient::silent(server.local_address(), &options()).await;
        other.use_retry(&retry);
        other.send_handshake().await;
        assert_eq!(other.closed().await, (INVALID_TOKEN, false));
        // At the address of the client, it is valid.
        let mut again = RawQuicClient::silent(server.local_address(), &options()).await;
        again.socket = client.socket;
        again.use_retry(&retry);
        again.send_handshake().await;
        again.confirmed().await;
    });
}

/// RFC 9001 section 6.4: a packet with new keys has a lower number than a packet with old keys.
#[test]
fn a_key_update_out_of_order_closes_the_connection() {
    block_on(async {
        let server = echo_server();
        let mut client = RawQuicClient::connect(server.local_address(), &options()).await;
        let earlier = client.header(PacketLevel::Application);
        client.acknowledged().await.unwrap();
        let packet = client.seal_after_key_update(&earlier, &integers(&[kind::PING]));
        client.send_datagram(&packet).await;
        assert_eq!(client.closed().await, (KEY_UPDATE_ERROR, false));
    });
}

/// Section 17.2 and 17.3.1.
#[test]
fn reserved_bits_close_the_connection() {
    block_on(async {
        let server = echo_server();
        for bit in [0x8, 0x10] {
            let mut client = RawQuicClient::connect(server.local_address(), &options()).await;
            let mut header = client.header(PacketLevel::Application);
            header.changed_bits |= bit;
            let packet = client.seal_with(&header, &integers(&[kind::PING]));
            client.send_datagram(&packet).await;
            assert_eq!(client.closed().await, (PROTOCOL_VIOLATION, false));
        }
        for bit in [0x4, 0x8] {
            let mut client = RawQuicClient::begin(server.local_address(), &options()).await;
            let mut header = client.header(PacketLevel::Initial);
            header.changed_bits |= bit;
            let packet = client.seal_with(&header, &integers(&[kind::PING]));
            client.send_datagram(&packet).await;
            assert_eq!(client.closed().await, (PROTOCOL_VIOLATION, false));
        }
    });
}

/// Section 18.2, section 7.3 and section 7.4.
#[test]
fn invalid_transport_parameters_close_the_connection() {
    let source = options().source;
    let with = |id, value: &[u8]| [default_parameters(&source), parameter(id, value)].concat();
    let number = |id, value| with(id, &integer(value));
    let cases = [
        (
            "7.3 no source connection ID",
            default_parameters(&source)[2 + source.len()..].to_vec(),
        ),
        (
            "7.3 another source connection ID",
            default_parameters(&[7; 8]),
        ),
        ("7.4 a parameter twice", number(0x4, 100)),
        ("7.4 the source connection ID twice", with(0xf, &source)),
        // Parameters of servers.
        (
            "18.2 original_destination_connection_id",
            with(0x0, &[1; 8]),
        ),
        ("18.2 stateless_reset_token", with(0x2, &[1; 16])),
        (
            "18.2 preferred_address",
            with(0xd, &[&[1; 25][..], &[2; 24]].concat()),
        ),
        ("18.2 retry_source_connection_id", with(0x10, &[1; 8])),
        ("18.2 max_udp_payload_size", number(0x3, 1199)),
        ("18.2 ack_delay_exponent", number(0xa, 21)),
        ("18.2 max_ack_delay", number(0xb, 1 << 14)),
        (
            "18.2 disable_active_migration with a value",
            with(0xc, &[1]),
        ),
        ("18.2 active_connection_id_limit", number(0xe, 1)),
        ("18.2 an integer with more bytes", with(0x1, &[1, 2])),
        ("18.2 an integer with fewer bytes", with(0x1, &[0x40])),
        ("18.2 an ID of 21 bytes", default_parameters(&[7; 21])),
        ("4.6 more streams than there are", {
            let streams = parameter(0x8, &integer(MAX_STREAM_COUNT + 1));
            [parameter(0xf, &source), streams].concat()
        }),
        ("4.6 more streams than there are", {
            let streams = parameter(0x9, &integer(MAX_STREAM_COUNT + 1));
            [parameter(0xf, &source), streams].concat()
        }),
        ("RFC 9368 4 no chosen version", with(0x11, &[])),
        (
            "RFC 9368 4 a chosen version that is not available",
            with(0x11, &[0, 0, 0, 1]),
        ),
        (
            "RFC 9368 4 a part of a version",
            with(0x11, &[0, 0, 0, 1, 0]),
        ),
        ("RFC 9368 4 the version zero", with(0x11, &[0; 4])),
        (
            "RFC 9368 4 the version zero",
            with(0x11, &[0, 0, 0, 1, 0, 0, 0, 0]),
        ),
        (
            "18 a length beyond the end",
            [default_parameters(&source), vec![0x1, 5, 0]].concat(),
        ),
    ];
    block_on(async {
        let server = echo_server();
        for (case, parameters) in cases {
            let code = code_of_parameters(&server, parameters).await;
            assert_eq!(code, TRANSPORT_PARAMETER_ERROR, "{case}: {code:x}");
        }
        // Unknown ones are ignored, and limits can be reached.
        for parameters in [
            with(0x1f * 7 + 27, b"grease"),
            number(0x3, 1200),
            number(0xa, 20),
            number(0xb, (1 << 14) - 1),
            number(0xe, 2),
        ] {
            let options = RawQuicOptions {
                parameters,
                ..options()
            };
            RawQuicClient::connect(server.local_address(), &options).await;
        }
    });
}

/// RFC 9001 sections 4.8 and 8.1.
#[test]
fn alerts_of_tls_close_the_connection() {
    block_on(async {
        let server = echo_server();
        for (alpn, alert) in [(vec![], 120), (vec![b"other".to_vec()], 120)] {
            let mut options = options();
            options.tls.alpn_protocols = alpn;
            let mut client = RawQuicClient::begin(server.local_address(), &options).await;
            assert_eq!(client.closed().await, (0x100 + alert, false));
        }
        // A message that is no ClientHello, and a ClientHello that is cut off.
        for (message, alert) in [(&[5, 0, 0, 0][..], 10), (&[1, 0, 0, 2, 0, 0], 50)] {
            let mut client = RawQuicClient::silent(server.local_address(), &options()).await;
            client.send(PacketLevel::Initial, &crypto(0, message)).await;
            assert_eq!(client.closed().await, (0x100 + alert, false));
        }
    });
}

/// RFC 9001 section 8.2: the extension type that transport parameters had in drafts is unknown.
#[test]
fn transport_parameters_of_a_draft_are_none() {
    block_on(async {
        let server = echo_server();
        let options = RawQuicOptions {
            are_parameters_of_a_draft: true,
            ..options()
        };
        let mut client = RawQuicClient::begin(server.local_address(), &options).await;
        // The alert `missing_extension`.
        assert_eq!(client.closed().await, (0x100 + 109, false));
    });
}

/// Drafts 27 to 34 of version 1: a client gets the versions of the RFCs (RFC 9000 section 6.1).
#[test]
fn versions_of_drafts_are_not_accepted() {
    block_on(async {
        let server = echo_server();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for draft in 27..=34 {
            let mut packet = vec![0xc0, 0xff, 0, 0, draft, 8];
            packet.extend([1; 8]);
            packet.extend([8, 2, 2, 2, 2, 2, 2, 2, 2]);
            packet.resize(1_200, 0);
            let address = server.local_address();
            socket.send_to(&packet, address).await.unwrap();
            let mut response = [0; 1_500];
            let length = within(socket.recv(&mut response)).await.unwrap();
            assert_eq!(response[1..5], [0; 4]);
            let mut versions = response[5 + 9 + 9..length].chunks(4);
            assert!(versions.all(|version| version[..3] != [0xff, 0, 0]));
        }
        assert_eq!(server.connections(), 0);
    });
}

/// RFC 9001 section 4.6.1 and RFC 9000 section 7.5: handshake data that never becomes a message.
#[test]
fn handshake_data_beyond_the_buffer_closes_the_connection() {
    block_on(async {
        let server = echo_server();
        for (offset, is_allowed) in [(16_383, true), (16_384, false)] {
            let mut client = RawQuicClient::silent(server.local_address(), &options()).await;
            client
                .send(PacketLevel::Initial, &crypto(offset, b"a"))
                .await;
            if is_allowed {
                // It is still open: this closes it.
                let close = integers(&[kind::MAX_DATA, 0]);
                client.send(PacketLevel::Initial, &close).await;
                assert_eq!(client.closed().await.0, PROTOCOL_VIOLATION);
            } else {
                assert_eq!(client.closed().await.0, CRYPTO_BUFFER_EXCEEDED)
            }
        }
    });
}

/// Sections 14.1, 5.2 and 12.2: packets that are dropped without harm.
#[test]
fn packets_that_must_be_dropped_are_dropped() {
    block_on(async {
        let server = server_with(QuicSettings::default());
        echo_all(&server);
        let mut client = RawQuicClient::connect(server.local_address(), &options()).await;
        let ping = integers(&[kind::PING]);
        // One that was changed on its way.
        let mut changed = client.seal(PacketLevel::Application, &ping);
        *changed.last_mut().unwrap() ^= 1;
        client.send_datagram(&changed).await;
        // The same packet twice: the second is not a second request.
        let request = client.seal(PacketLevel::Application, &stream(0, 0, b"abc", true));
        client.send_datagram(&request).await;
        client.send_datagram(&request).await;
        let mut echoed = Vec::new();
        while echoed.len() < 3 {
            let frame = client
                .wait_for("an echo", |frame| {
                    matches!(frame, ServerFrame::Stream { .. })
                })
                .await;
            if let ServerFrame::Stream { data, .. } = frame {
                echoed.extend(data);
            }
        }
        assert_eq!(echoed, b"abc");
        // An Initial packet after the handshake.
        let initial = client.seal(PacketLevel::Initial, &integers(&[kind::MAX_DATA, 0]));
        client.send_datagram(&initial).await;
        client.acknowledged().await.unwrap();
    });
}
