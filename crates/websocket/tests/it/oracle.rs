//! The codec beside `tungstenite`, in both roles.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use apus_websocket::codec::{Connection, Event, Message, Settings};
use bytes::BytesMut;
use proptest::prelude::*;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};

use apus_testkit::cases;

/// A transport in memory: what is written gathers, what is to be read was put there.
#[derive(Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    written: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.incoming.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn theirs(message: &Message) -> tungstenite::Message {
    match message {
        Message::Text(text) => tungstenite::Message::text(&**text),
        Message::Binary(bytes) => tungstenite::Message::binary(bytes.clone()),
    }
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let text = "[a-zß\u{10ffff}]{0,200}".prop_map(Message::from);
    let bytes = proptest::collection::vec(any::<u8>(), 0..20_000).prop_map(Message::from);
    proptest::collection::vec(prop_oneof![4 => text, 1 => bytes], 1..8)
}

/// Our end with what it has read.
struct Ours {
    connection: Connection,
    input: BytesMut,
}

impl Ours {
    fn send(&mut self, pipe: &mut Pipe) {
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            pipe.incoming.extend(output);
            let len = output.len();
            self.connection.consume_output(len);
        }
    }
}

fn converse(role: Role, messages: &[Message]) -> Result<(), TestCaseError> {
    let connection = match role {
        Role::Client => Connection::server(&Settings::default()),
        Role::Server => Connection::client(&Settings::default(), || [9, 8, 7, 6]),
    };
    let mut ours = Ours {
        connection,
        input: BytesMut::new(),
    };
    let config = WebSocketConfig::default();
    let mut oracle = tungstenite::WebSocket::from_raw_socket(Pipe::default(), role, Some(config));
    for message in messages {
        // There,
        oracle.send(theirs(message)).unwrap();
        let written = std::mem::take(&mut oracle.get_mut().written);
        ours.input.extend_from_slice(&written);
        let event = ours.connection.handle_input(&mut ours.input);
        prop_assert_eq!(event, Some(Event::Message(message.clone())));
        // and back.
        ours.connection.send(message.clone()).unwrap();
        ours.send(oracle.get_mut());
        prop_assert_eq!(oracle.read().unwrap(), theirs(message));
    }
    ours.connection.ping(b"alive").unwrap();
    ours.send(oracle.get_mut());
    prop_assert_eq!(
        oracle.read().unwrap(),
        tungstenite::Message::Ping("alive".into())
    );
    oracle.flush().unwrap();
    oracle
        .close(Some(CloseFrame {
            code: CloseCode::Away,
            reason: "bye".into(),
        }))
        .unwrap();
    ours.input.extend_from_slice(&oracle.get_ref().written);
    let event = ours.connection.handle_input(&mut ours.input);
    prop_assert_eq!(event, Some(Event::Pong("alive".into())));
    let Some(Event::Close(Some(close))) = ours.connection.handle_input(&mut ours.input) else {
        return Err(TestCaseError::fail("no close"));
    };
    ours.connection.answer_close();
    prop_assert_eq!((close.code().get(), close.reason()), (1001, "bye"));
    ours.send(oracle.get_mut());
    prop_assert!(matches!(
        oracle.read().unwrap(),
        tungstenite::Message::Close(Some(_))
    ));
    prop_assert!(ours.connection.is_finished());
    Ok(())
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn tungstenite_as_a_client_is_understood(messages in messages()) {
        converse(Role::Client, &messages)?;
    }

    #[test]
    fn tungstenite_as_a_server_is_understood(messages in messages()) {
        converse(Role::Server, &messages)?;
    }

    /// Any bytes: both take the same messages before they refuse, up to what the oracle is laxer or
    /// stricter about.
    #[test]
    fn what_tungstenite_refuses_at_once_is_refused(
        first in any::<u8>(),
        len in 0..126_u8,
        payload in proptest::collection::vec(any::<u8>(), 126),
    ) {
        let mut bytes = vec![first, 0x80 | len, 0, 0, 0, 0];
        bytes.extend_from_slice(&payload[..usize::from(len)]);
        let mut oracle = tungstenite::WebSocket::from_raw_socket(
            Pipe { incoming: bytes.iter().copied().collect(), written: Vec::new() },
            Role::Server,
            None,
        );
        let refused = match oracle.read() {
            Ok(tungstenite::Message::Close(Some(close))) => {
                // It answers a code that must not be sent rather than to fail.
                close.code == CloseCode::Protocol
            }
            Ok(_) => false,
            Err(tungstenite::Error::Io(_)) => false,
            Err(_) => true,
        };
        let mut connection = Connection::server(&Settings::default());
        let event = connection.handle_input(&mut BytesMut::from(&bytes[..]));
        prop_assert!(!refused || matches!(event, Some(Event::Failed(_))), "{:?}", event);
    }
}
