//! What holds for any messages, cut in any way.

use apus_websocket::codec::{Connection, Event, Message, Settings};
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

use super::peer::{CONTINUATION, Echo, FIN, Frame, TEXT, frame, ping};

fn events(bytes: &[u8], sizes: &[usize]) -> Vec<Event> {
    let mut echo = Echo::server(&Settings::default());
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
    fn pieces_make_no_difference(
        frames in vec((any::<u8>(), any::<[u8; 4]>(), vec(any::<u8>(), 0..300)), 1..6),
        sizes in vec(1..50_usize, 1..20),
    ) {
        let bytes: Vec<u8> = frames
            .into_iter()
            .flat_map(|(first, mask, payload)| {
                // Mostly possible frames.
                let first = first & 0x8f;
                Frame { first, mask: Some(mask), payload }.bytes()
            })
            .collect();
        prop_assert_eq!(events(&bytes, &[usize::MAX]), events(&bytes, &sizes));
    }

    #[test]
    fn fragments_make_no_difference(
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
        prop_assert_eq!(all.last(), Some(&Event::Message(text.into())));
        prop_assert_eq!(all.len(), if pings { frames.len() + 1 } else { 1 });
    }

    #[test]
    fn two_ends_understand_each_other(
        messages in vec(vec(any::<u8>(), 0..2000), 1..10),
        key in any::<[u8; 4]>(),
        size in 1..5000_usize,
    ) {
        let mut client = Connection::client(&Settings::default(), move || key);
        for message in &messages {
            client.send(message.clone().into()).unwrap();
        }
        let mut server = Echo::server(&Settings::default());
        let mut input = BytesMut::new();
        while !client.output().is_empty() {
            let len = client.output().len().min(size);
            input.extend_from_slice(&server.feed(&client.output()[..len]));
            client.consume_output(len);
        }
        for message in messages {
            let event = client.handle_input(&mut input);
            prop_assert_eq!(event, Some(Event::Message(Message::from(message))));
        }
        prop_assert!(input.is_empty());
    }
}
