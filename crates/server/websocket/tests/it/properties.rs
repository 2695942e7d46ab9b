//! Properties of the codec for any messages, in any pieces and fragments.

use apus_websocket::codec::{CodecSettings, Message, WebSocketConnection, WebSocketEvent};
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

use super::peer::{CONTINUATION, Echo, FIN, Frame, TEXT, frame, ping};

fn events(bytes: &[u8], sizes: &[usize]) -> Vec<WebSocketEvent> {
    let mut echo = Echo::server(&CodecSettings::default());
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        rest = after;
        echo.feed(piece);
    }
    echo.events
}

proptest! {
    #[test]
    fn events_do_not_depend_on_the_pieces(
        frames in vec((any::<u8>(), any::<[u8; 4]>(), vec(any::<u8>(), 0..300)), 1..6),
        sizes in vec(1..50_usize, 1..20),
    ) {
        let bytes: Vec<u8> = frames
            .into_iter()
            .flat_map(|(first, mask, payload)| {
                // Without reserved bits, most frames are valid.
                let first = first & 0x8f;
                Frame { first, mask: Some(mask), payload }.bytes()
            })
            .collect();
        prop_assert_eq!(events(&bytes, &[usize::MAX]), events(&bytes, &sizes));
    }

    #[test]
    fn messages_do_not_depend_on_the_fragments(
        text in ".{1,200}",
        cuts in vec(1..40_usize, 1..10),
        pings in any::<bool>(),
    ) {
        let mut frames = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts.iter().cycle() {
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            rest = after;
            frames.push(frame(CONTINUATION, part));
            if rest.is_empty() {
                break;
            }
        }
        frames[0].first |= TEXT;
        frames.last_mut().unwrap().first |= FIN;
        let mut bytes = Vec::new();
        for frame in &frames {
            if pings {
                bytes.extend(ping("x").bytes());
            }
            bytes.extend(frame.bytes());
        }
        let all = events(&bytes, &[7]);
        prop_assert_eq!(all.last(), Some(&WebSocketEvent::Message(text.into())));
        prop_assert_eq!(all.len(), if pings { frames.len() + 1 } else { 1 });
    }

    #[test]
    fn a_client_and_a_server_exchange_messages(
        messages in vec(vec(any::<u8>(), 0..2000), 1..10),
        key in any::<[u8; 4]>(),
        size in 1..5000_usize,
    ) {
        let mut client = WebSocketConnection::client(&CodecSettings::default(), move || key);
        for message in &messages {
            client.send(message.clone().into()).unwrap();
        }
        let mut server = Echo::server(&CodecSettings::default());
        let mut input = BytesMut::new();
        while !client.output().is_empty() {
            let len = client.output().len().min(size);
            input.extend_from_slice(&server.feed(&client.output()[..len]));
            client.consume_output(len);
        }
        for message in messages {
            let event = client.handle_input(&mut input);
            prop_assert_eq!(event, Some(WebSocketEvent::Message(Message::from(message))));
        }
        prop_assert!(input.is_empty());
    }
}
