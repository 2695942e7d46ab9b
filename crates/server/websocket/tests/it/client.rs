//! The role of a client.

use apus_websocket::codec::{
    Close, CloseCode, CodecSettings, ConnectionClosed, Message, WebSocketConnection,
    WebSocketEvent, WebSocketProtocolError,
};
use bytes::BytesMut;

use super::peer::{Echo, Frame, close, ping, text};

fn client() -> Echo {
    let mut keys = 0x1357_9bdf_u32;
    Echo::of(WebSocketConnection::client(
        &CodecSettings::default(),
        move || {
            keys = keys.wrapping_mul(0x0101_0101).wrapping_add(7);
            keys.to_be_bytes()
        },
    ))
}

#[test]
fn masks_every_frame_with_a_new_key_rfc_6455_section_5_3() {
    let mut client = client();
    client.connection.send("Hello".into()).unwrap();
    client.connection.send(vec![7; 70_000].into()).unwrap();
    client.connection.ping(b"ping").unwrap();
    let pong = client.feed(&ping("pong").unmasked().bytes());
    client.connection.close_with(CloseCode::NORMAL).unwrap();
    let sent = Frame::read_all(&[pong, client.sent()].concat());
    let payloads: Vec<_> = sent.iter().map(|frame| &frame.payload[..]).collect();
    let close = 1000_u16.to_be_bytes();
    assert_eq!(
        payloads,
        [b"Hello", &vec![7; 70_000][..], b"ping", b"pong", &close]
    );
    let mut keys: Vec<_> = sent.iter().map(|frame| frame.mask.unwrap()).collect();
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

#[test]
fn masked_frames_of_a_server_end_the_connection_rfc_6455_section_5_1() {
    let mut client = client();
    client.feed(&text("x").bytes());
    assert_eq!(
        client.events,
        [WebSocketEvent::Failed(WebSocketProtocolError::Masked)]
    );
}

#[test]
fn after_a_close_messages_are_received_and_none_can_be_sent() {
    let mut client = client();
    let close_frame = Close::new(CloseCode::GOING_AWAY, "bye");
    client.connection.close(Some(close_frame.clone())).unwrap();
    assert_eq!(client.connection.send("more".into()), Err(ConnectionClosed));
    assert_eq!(client.connection.ping(b""), Err(ConnectionClosed));
    let sent = Frame::read_all(&client.sent());
    assert_eq!(sent[0].payload, b"\x03\xe9bye");
    assert!(!client.connection.is_finished());
    let rest = [
        text("last").unmasked().bytes(),
        ping("").unmasked().bytes(),
        close(1001, "bye").unmasked().bytes(),
    ];
    assert_eq!(client.feed(&rest.concat()), b"");
    assert_eq!(client.events[0], WebSocketEvent::Message("last".into()));
    assert_eq!(client.events[2], WebSocketEvent::Close(Some(close_frame)));
    assert!(client.connection.is_finished());
}

#[test]
fn a_message_in_one_frame_shares_the_memory_of_the_input() {
    let mut server = WebSocketConnection::server(&CodecSettings::default());
    let mut input = BytesMut::from(&text("x".repeat(1000)).bytes()[..]);
    let address = input.as_ptr() as usize;
    let Some(WebSocketEvent::Message(Message::Text(text))) = server.handle_input(&mut input) else {
        panic!("no text");
    };
    assert_eq!(text.as_ptr() as usize, address + 8);
}
