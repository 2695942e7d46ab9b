//! Our own client of the Autobahn test suite's cases, over sockets and their HTTP: what is sent goes as it is, right
//! or wrong, over a connection of HTTP/1.1 or a stream of HTTP/2, and a handler echoes. Compression (12 and 13) is
//! that of our client's codec, which other tests compare with zlib's streams.

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

#[path = "../../../../websocket/tests/it/peer.rs"]
#[expect(dead_code, reason = "its echo is for tests of the codec")]
mod peer;
#[path = "../../../../websocket/tests/it/table.rs"]
mod table;

use crate::harness::Server;
use peer::{FIN, Frame, close};
use table::Outcome;

/// All that may be is compressed.
const COMPRESSION: Compression = Compression {
    level: 3,
    min_length: 0,
    keep_sent_context: true,
    keep_received_context: true,
};

/// A way to a server.
enum Http {
    One(SocketAddr),
    Two(h2::client::SendRequest<Bytes>),
}

/// Bytes to a handler and back, after a handshake.
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

    /// A handshake with this offer of extensions, and the answer to that.
    async fn open(&mut self, offer: Option<&str>) -> (Wire, Option<String>) {
        match self {
            Self::One(address) => {
                let mut stream = client::connect(*address);
                let offer = offer.map(|offer| format!("Sec-WebSocket-Extensions: {offer}"));
                let more: Vec<&str> = offer.iter().map(|line| &**line).collect();
                let head = client::ask(&mut stream, &client::handshake(&more));
                assert!(head.starts_with("http/1.1 101 "), "{head}");
                let answer = head
                    .lines()
                    .find_map(|line| line.strip_prefix("sec-websocket-extensions: "));
                (Wire::One(stream), answer.map(str::to_owned))
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
                let (answer, sending) = client.send_request(request, false).unwrap();
                let answer = answer.await.unwrap();
                assert_eq!(answer.status(), StatusCode::OK);
                let agreed = answer.headers().get("sec-websocket-extensions");
                let agreed = agreed.map(|value| value.to_str().unwrap().to_owned());
                (Wire::Two(sending, answer.into_body()), agreed)
            }
        }
    }
}

impl Wire {
    async fn write(&mut self, bytes: Vec<u8>) {
        match self {
            // Fails only after a close, when nobody listens.
            Self::One(stream) => drop(stream.write_all(&bytes)),
            Self::Two(sending, _) => drop(sending.send_data(bytes.into(), false)),
        }
    }

    /// What comes next; `None` at the end.
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

/// Both ways to a server that echoes.
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
                    // The connection is as good as before.
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
            let mut answers = Frame::read_all(&read);
            let last = answers.pop().unwrap();
            let said = last.payload.get(..2).unwrap_or_default();
            assert_eq!(
                (last.first, said),
                (FIN | 8, &*end),
                "{} over {http}",
                case.name
            );
            let expected: Vec<_> = expected.into_iter().map(Frame::unmasked).collect();
            assert!(answers == expected, "{} over {http}", case.name);
        }
    });
}

/// Offers of 12 and 13, and what the client has to agree to by them.
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

/// What the client and the server settled on.
fn agreement(answer: &str) -> Option<DeflateConfig> {
    COMPRESSION
        .read_response([answer.as_bytes()].into_iter())
        .unwrap()
}

/// Text that compresses, but not too well.
fn content(len: usize, seed: u32) -> String {
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
            let (mut wire, answer) = server.open(Some(offer)).await;
            assert_eq!(answer.as_deref(), Some(expected), "{offer} over {http}");
            let settings = CodecSettings {
                max_frame: 1 << 20,
                max_message: 1 << 20,
                compression: agreement(expected),
            };
            let mut client = WebSocketConnection::client(&settings, || [9, 8, 7, 6]);
            let (mut input, mut plain, mut compressed) = (BytesMut::new(), 0, 0);
            for round in 0..3 {
                for len in [0, 16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 131_072] {
                    let text = content(len, round);
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
                        let read = wire.read().await.expect("an answer");
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

/// What waits to be sent.
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
