//! The cases of the Autobahn test suite, against a handler that echoes: a client of ours sends valid and invalid
//! frames unchanged over a connection of HTTP/1.1 or a stream of HTTP/2. The cases of compression (12 and 13) use the
//! codec of our client, which other tests compare with zlib's streams.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use apus::websocket::{CloseCode, Compression, Message, WebSocketSettings};
use apus_websocket::codec::{CodecSettings, DeflateConfig, WebSocketConnection, WebSocketEvent};
use bytes::{Bytes, BytesMut};
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, StatusCode};

use super::{client, echoing};
use apus_testkit::block_on;

#[path = "../../../../../server/websocket/tests/it/peer.rs"]
#[expect(dead_code, reason = "its echo is for tests of the codec")]
mod peer;
#[path = "../../../../../server/websocket/tests/it/table.rs"]
mod table;

use crate::harness::Server;
use peer::{FIN, Frame, close};
use table::Outcome;

/// Compresses all messages.
const COMPRESSION: Compression = Compression {
    level: 3,
    min_length: 0,
    keep_sent_context: true,
    keep_received_context: true,
};

/// A client of a server, over one version of HTTP.
enum Http {
    One(SocketAddr),
    Two(h2::client::SendRequest<Bytes>),
}

/// A connection or a stream after the handshake.
enum Wire {
    One(TcpStream),
    Two(SendStream<Bytes>, RecvStream),
}

impl Http {
    async fn two(address: SocketAddr) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        Self::Two(client)
    }

    /// Performs a handshake with this offer of extensions, and returns the agreed extensions.
    async fn open(&mut self, offer: Option<&str>) -> (Wire, Option<String>) {
        match self {
            Self::One(address) => {
                let mut stream = client::connect(*address);
                let offer = offer.map(|offer| format!("Sec-WebSocket-Extensions: {offer}"));
                let more: Vec<&str> = offer.iter().map(|line| &**line).collect();
                let head = client::request(&mut stream, &client::handshake(&more));
                assert!(head.starts_with("http/1.1 101 "), "{head}");
                let agreed = head
                    .lines()
                    .find_map(|line| line.strip_prefix("sec-websocket-extensions: "));
                (Wire::One(stream), agreed.map(str::to_owned))
            }
            Self::Two(client) => {
                let mut request = Request::builder()
                    .method(Method::CONNECT)
                    .uri("https://example.com/")
                    .header("sec-websocket-version", "13");
                if let Some(offer) = offer {
                    request = request.header("sec-websocket-extensions", offer);
                }
                let mut request = request.body(()).unwrap();
                let protocol = Protocol::from_static("websocket");
                request.extensions_mut().insert(protocol);
                *client = client.clone().ready().await.unwrap();
                let (response, sending) = client.send_request(request, false).unwrap();
                let response = response.await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                let agreed = response.headers().get("sec-websocket-extensions");
                let agreed = agreed.map(|value| value.to_str().unwrap().to_owned());
                (Wire::Two(sending, response.into_body()), agreed)
            }
        }
    }
}

impl Wire {
    async fn write(&mut self, bytes: Vec<u8>) {
        match self {
            // A write fails only after a close, when the server no longer reads.
            Self::One(stream) => drop(stream.write_all(&bytes)),
            Self::Two(sending, _) => drop(sending.send_data(bytes.into(), false)),
        }
    }

    /// The next bytes; `None` at the end.
    async fn read(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::One(stream) => {
                let mut buffer = [0; 16 * 1024];
                match stream.read(&mut buffer) {
                    Ok(0) => None,
                    Ok(read) => Some(buffer[..read].to_vec()),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
                    Err(error) => panic!("{error}"),
                }
            }
            Self::Two(_, receiving) => {
                let data = receiving.data().await?.unwrap();
                let window = receiving.flow_control();
                window.release_capacity(data.len()).unwrap();
                Some(data.to_vec())
            }
        }
    }
}

/// Runs a test over HTTP/1.1 and over HTTP/2, with a server that echoes.
fn over_both(test: impl AsyncFn(&str, &mut Http)) {
    let server = Server::start(echoing(WebSocketSettings {
        max_message: 32 << 20,
        compression: Some(COMPRESSION),
        ..WebSocketSettings::default()
    }));
    let address = server.address();
    block_on(async {
        test("HTTP/1.1", &mut Http::One(address)).await;
        test("HTTP/2", &mut Http::two(address).await).await;
    });
}

#[test]
fn all_cases_of_the_table_pass() {
    over_both(async |http, server| {
        for case in table::all() {
            let (mut wire, _) = server.open(None).await;
            let mut bytes: Vec<u8> = case.sent.iter().flat_map(Frame::bytes).collect();
            let (expected, end) = match case.outcome {
                Outcome::Frames(frames) => {
                    // The connection stays open until the client closes it.
                    bytes.extend(close(1001, "").bytes());
                    (frames, 1001_u16.to_be_bytes().to_vec())
                }
                Outcome::Closed(frames, code) => (frames, code.to_be_bytes().to_vec()),
                Outcome::ClosedWithoutCode(frames) => (frames, Vec::new()),
            };
            wire.write(bytes).await;
            let mut read = Vec::new();
            while let Some(more) = wire.read().await {
                read.extend(more);
            }
            let mut received = Frame::read_all(&read);
            let last = received.pop().unwrap();
            let code = last.payload.get(..2).unwrap_or_default();
            assert_eq!(
                (last.first, code),
                (FIN | 8, &*end),
                "{} over {http}",
                case.name
            );
            let expected: Vec<_> = expected.into_iter().map(Frame::unmasked).collect();
            assert!(received == expected, "{} over {http}", case.name);
        }
    });
}

/// The offers of the cases 12 and 13, and the extensions that are agreed on.
const OFFERS: [(&str, &str); 7] = [
    (
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate",
    ),
    (
        "permessage-deflate; client_no_context_takeover; client_max_window_bits",
        "permessage-deflate; client_no_context_takeover",
    ),
    (
        "permessage-deflate; server_no_context_takeover; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover",
    ),
    (
        "permessage-deflate; server_max_window_bits=9; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=9",
    ),
    (
        "permessage-deflate; server_max_window_bits=15; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=15",
    ),
    (
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=9; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=9",
    ),
    (
        "permessage-deflate; server_max_window_bits=8, permessage-deflate; client_max_window_bits",
        "permessage-deflate",
    ),
];

/// The settings that the client and the server agreed on.
fn agreement(response: &str) -> Option<DeflateConfig> {
    COMPRESSION
        .read_response([response.as_bytes()].into_iter())
        .unwrap()
}

/// Text that compresses, but not too well.
fn compressible_text(len: usize, seed: u32) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 28) as u8)
    });
    letters.take(len).collect()
}

#[test]
fn compressed_messages_of_all_sizes_are_echoed() {
    over_both(async |http, server| {
        for (offer, expected) in OFFERS {
            let (mut wire, agreed) = server.open(Some(offer)).await;
            assert_eq!(agreed.as_deref(), Some(expected), "{offer} over {http}");
            let settings = CodecSettings {
                max_frame: 1 << 20,
                max_message: 1 << 20,
                compression: agreement(expected),
            };
            let mut client = WebSocketConnection::client(&settings, || [9, 8, 7, 6]);
            let (mut input, mut plain, mut compressed) = (BytesMut::new(), 0, 0);
            for round in 0..3 {
                for len in [0, 16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 131_072] {
                    let text = compressible_text(len, round);
                    let message = match round {
                        1 => Message::binary(text.into_bytes()),
                        _ => Message::text(text),
                    };
                    client.send(message.clone()).unwrap();
                    plain += len;
                    wire.write(sent(&mut client)).await;
                    let event = loop {
                        if let Some(event) = client.handle_input(&mut input) {
                            break event;
                        }
                        let read = wire.read().await.expect("a response");
                        compressed += read.len();
                        input.extend_from_slice(&read);
                    };
                    let is_same = event == WebSocketEvent::Message(message);
                    assert!(is_same, "{len} bytes, {offer} over {http}");
                }
            }
            assert!(
                compressed < plain * 3 / 4,
                "{compressed} of {plain}, {offer}"
            );
            client.close_with(CloseCode::NORMAL).unwrap();
            wire.write(sent(&mut client)).await;
            while let Some(read) = wire.read().await {
                input.extend_from_slice(&read);
            }
            let event = client.handle_input(&mut input);
            assert!(
                matches!(event, Some(WebSocketEvent::Close(Some(_)))),
                "{event:?}"
            );
        }
    });
}

/// Removes and returns the pending output.
fn sent(client: &mut WebSocketConnection) -> Vec<u8> {
    let mut sent = Vec::new();
    while !client.output().is_empty() {
        let output = client.output();
        sent.extend_from_slice(output);
        let len = output.len();
        client.consume_output(len);
    }
    sent
}
