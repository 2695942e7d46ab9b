//! The role of a client.

use apus_websocket::codec::{
    Close, CloseCode, Closed, Connection, Event, Message, ProtocolError, Settings,
};
use bytes::BytesMut;

use super::peer::{Echo, Frame, close, ping, text};

fn client() -> Echo {
    let mut keys = 0x1357_9bdf_u32;
    Echo::of(Connection::client(&Settings::default(), move || {
        keys = keys.wrapping_mul(0x0101_0101).wrapping_add(7);
        keys.to_be_bytes()
    }))
}

#[test]
fn everything_is_masked_each_time_anew_rfc_6455_section_5_3() {
    let mut client = client();
    client.connection.send("Hello".into()).unwrap();
    client.connection.send(vec![7; 70_000].into()).unwrap();
    client.connection.ping(b"ping").unwrap();
    let answer = client.feed(&ping("pong").unmasked().bytes());
    client.connection.close_with(CloseCode::NORMAL).unwrap();
    let sent = Frame::read_all(&[answer, client.sent()].concat());
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
    assert_eq!(client.events, [Event::Failed(ProtocolError::Masked)]);
}

#[test]
fn who_closes_first_hears_the_rest_and_says_nothing_more() {
    let mut client = client();
    let close_frame = Close::new(CloseCode::GOING_AWAY, "bye");
    client.connection.close(Some(close_frame.clone())).unwrap();
    assert_eq!(client.connection.send("more".into()), Err(Closed));
    assert_eq!(client.connection.ping(b""), Err(Closed));
    let sent = Frame::read_all(&client.sent());
    assert_eq!(sent[0].payload, b"\x03\xe9bye");
    assert!(!client.connection.is_finished());
    let rest = [
        text("last").unmasked().bytes(),
        ping("").unmasked().bytes(),
        close(1001, "bye").unmasked().bytes(),
    ];
    assert_eq!(client.feed(&rest.concat()), b"");
    assert_eq!(client.events[0], Event::Message("last".into()));
    assert_eq!(client.events[2], Event::Close(Some(close_frame)));
    assert!(client.connection.is_finished());
}

#[test]
fn a_message_in_one_frame_is_the_memory_it_came_in() {
    let mut server = Connection::server(&Settings::default());
    let mut input = BytesMut::from(&text("x".repeat(1000)).bytes()[..]);
    let place = input.as_ptr() as usize;
    let Some(Event::Message(Message::Text(text))) = server.handle_input(&mut input) else {
        panic!("no text");
    };
    assert_eq!(text.as_ptr() as usize, place + 8);
}
