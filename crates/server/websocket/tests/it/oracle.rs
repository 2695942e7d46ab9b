//! The codec against `tungstenite`, in both roles.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use apus_websocket::codec::{CodecSettings, Message, WebSocketConnection, WebSocketEvent};
use bytes::BytesMut;
use proptest::prelude::*;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};

use apus_testkit::cases;

/// A transport in memory.
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

/// Our end with its input.
struct CodecEnd {
    connection: WebSocketConnection,
    input: BytesMut,
}

impl CodecEnd {
    fn send(&mut self, pipe: &mut Pipe) {
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            pipe.incoming.extend(output);
            let len = output.len();
            self.connection.consume_output(len);
        }
    }
}

fn exchange_messages(role: Role, messages: &[Message]) -> Result<(), TestCaseError> {
    let connection = match role {
        Role::Client => WebSocketConnection::server(&CodecSettings::default()),
        Role::Server => WebSocketConnection::client(&CodecSettings::default(), || [9, 8, 7, 6]),
    };
    let mut ours = CodecEnd {
        connection,
        input: BytesMut::new(),
    };
    let config = WebSocketConfig::default();
    let mut oracle = tungstenite::WebSocket::from_raw_socket(Pipe::default(), role, Some(config));
    for message in messages {
        // From tungstenite to the codec,
        oracle.send(theirs(message)).unwrap();
        let written = std::mem::take(&mut oracle.get_mut().written);
        ours.input.extend_from_slice(&written);
        let event = ours.connection.handle_input(&mut ours.input);
        prop_assert_eq!(event, Some(WebSocketEvent::Message(message.clone())));
        // and back to tungstenite.
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
    prop_assert_eq!(event, Some(WebSocketEvent::Pong("alive".into())));
    let Some(WebSocketEvent::Close(Some(close))) = ours.connection.handle_input(&mut ours.input)
    else {
        return Err(TestCaseError::fail("no close"));
    };
    ours.connection.respond_to_close();
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
    fn exchanges_messages_with_tungstenite_as_a_client(messages in messages()) {
        exchange_messages(Role::Client, &messages)?;
    }

    #[test]
    fn exchanges_messages_with_tungstenite_as_a_server(messages in messages()) {
        exchange_messages(Role::Server, &messages)?;
    }

    /// Any first frame: what tungstenite rejects, the codec rejects, too.
    #[test]
    fn rejects_frames_that_tungstenite_rejects(
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
        let is_rejected = match oracle.read() {
            Ok(tungstenite::Message::Close(Some(close))) => {
                // It responds to a code that must not be sent instead of failing.
                close.code == CloseCode::Protocol
            }
            Ok(_) => false,
            Err(tungstenite::Error::Io(_)) => false,
            Err(_) => true,
        };
        let mut connection = WebSocketConnection::server(&CodecSettings::default());
        let event = connection.handle_input(&mut BytesMut::from(&bytes[..]));
        prop_assert!(!is_rejected || matches!(event, Some(WebSocketEvent::Failed(_))), "{:?}", event);
    }
}
