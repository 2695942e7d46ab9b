//! Fuzz targets of WebSocket frames and the negotiation of compression.

use apus_websocket::codec::{
    CodecSettings, Compression, DeflateConfig, Message, WebSocketConnection, WebSocketEvent,
};
use bytes::BytesMut;

/// Maximum bytes of a message.
const MAX: usize = 4096;

/// A first byte of options, an offer of extensions up to a line feed, then bytes for a server and for
/// a client. Pieces make no difference, messages are within the limit, nothing follows the end, and
/// the other end decodes what is sent back.
pub fn websocket_frames(data: &[u8]) {
    let Some((options, data)) = data.split_first() else {
        return;
    };
    let end = data.iter().position(|byte| *byte == b'\n');
    let (offer, frames) = data.split_at(end.unwrap_or(0));
    let frames = frames.strip_prefix(b"\n").unwrap_or(frames);
    let compression = Compression {
        level: 1,
        min_length: usize::from(options >> 2),
        keep_sent_context: options & 1 == 0,
        keep_received_context: options & 2 == 0,
    };
    let accepted = compression.accept([offer].into_iter());
    let (agreement, response) = accepted.unzip();
    let response = response.unwrap_or_default();
    // A client that keeps contexts accepts any response to its offer.
    let client_compression = Compression {
        keep_received_context: true,
        ..compression
    };
    let agreed = client_compression.read_response([response.as_bytes()].into_iter());
    let agreed = agreed.expect("the client rejects the response to its offer");
    let piece = usize::from(*options).max(1);
    let events = read(agreement, frames, usize::MAX, agreed);
    assert_eq!(events, read(agreement, frames, piece, agreed));
    // The other role handles any input.
    let mut client = WebSocketConnection::client(&settings(agreed), || [7; 4]);
    let mut input = BytesMut::from(frames);
    while client.handle_input(&mut input).is_some() {}
}

fn settings(compression: Option<DeflateConfig>) -> CodecSettings {
    CodecSettings {
        max_frame: MAX,
        max_message: MAX,
        compression,
    }
}

/// What a server reads that sends every message back, to a client that has to understand it.
fn read(
    agreement: Option<DeflateConfig>,
    bytes: &[u8],
    size: usize,
    agreed: Option<DeflateConfig>,
) -> Vec<WebSocketEvent> {
    let mut server = WebSocketConnection::server(&settings(agreement));
    // Incompressible data gets longer.
    let roomy = CodecSettings {
        max_frame: 2 * MAX,
        ..settings(agreed)
    };
    let mut client = WebSocketConnection::client(&roomy, || [7; 4]);
    let (mut input, mut back) = (BytesMut::new(), BytesMut::new());
    let mut events = Vec::new();
    for piece in bytes.chunks(size) {
        input.extend_from_slice(piece);
        while let Some(event) = server.handle_input(&mut input) {
            if let WebSocketEvent::Message(message) = &event {
                assert!(message.len() <= MAX);
                echo(&mut server, &mut client, &mut back, message);
            }
            let is_last = matches!(event, WebSocketEvent::Close(_) | WebSocketEvent::Failed(_));
            events.push(event);
            if is_last {
                server.respond_to_close();
                assert!(server.is_closing());
                input.extend_from_slice(b"more");
                assert_eq!(server.handle_input(&mut input), None);
                assert!(input.is_empty());
            }
        }
    }
    events
}

fn echo(
    server: &mut WebSocketConnection,
    client: &mut WebSocketConnection,
    back: &mut BytesMut,
    message: &Message,
) {
    if server.send(message.clone()).is_err() {
        return;
    }
    while !server.output().is_empty() {
        back.extend_from_slice(server.output());
        let len = server.output().len();
        server.consume_output(len);
    }
    loop {
        match client.handle_input(back) {
            Some(WebSocketEvent::Message(read)) => {
                assert_eq!(read, *message);
                return;
            }
            Some(WebSocketEvent::Pong(_)) => {}
            other => panic!("instead of {message:?}: {other:?}"),
        }
    }
}
