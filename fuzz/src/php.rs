//! The wire to resident PHP workers, fed whatever a worker may say.

use apus_php::wire::{Decoder, Event, Limits, WireError};
use bytes::{Bytes, BytesMut};

/// Small, so that inputs reach them.
const LIMITS: Limits = Limits {
    header_block: 64,
    command: 48,
    text: 56,
};

/// What a worker says means the same however it is split, content belongs to an answer that began, and
/// an answer ends once.
pub fn php_wire(data: &[u8]) {
    let heard = Heard::of(data, data.len());
    assert_eq!(heard, Heard::of(data, 1));
    assert_eq!(heard, Heard::of(data, 7));
    let mut in_answer = false;
    for event in &heard.events {
        match event {
            Event::Head(head) => {
                let status = head.status.as_u16();
                assert!(!in_answer && (status == 101 || status >= 200));
                in_answer = true;
            }
            Event::Content(bytes) => assert!(in_answer && !bytes.is_empty()),
            Event::End(_) => assert!(std::mem::take(&mut in_answer)),
            Event::Hello(_) | Event::Ready(_) | Event::Bye(_) => assert!(!in_answer),
            Event::Log(_, text) | Event::Failed(text) => assert!(text.len() <= 56),
            _ => {}
        }
    }
}

#[derive(Debug, PartialEq)]
struct Heard {
    /// With pieces of content joined.
    events: Vec<Event>,
    error: Option<WireError>,
}

impl Heard {
    /// Of input that comes in pieces of so many bytes.
    fn of(input: &[u8], size: usize) -> Self {
        let mut decoder = Decoder::new(LIMITS);
        let mut buffer = BytesMut::new();
        let mut heard = Self {
            events: Vec::new(),
            error: None,
        };
        for piece in input.chunks(size.max(1)) {
            buffer.extend_from_slice(piece);
            while heard.error.is_none() {
                match decoder.handle_input(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(event)) => heard.take(event),
                    Err(error) => heard.error = Some(error),
                }
            }
        }
        heard
    }

    fn take(&mut self, event: Event) {
        match (self.events.last_mut(), event) {
            (Some(Event::Content(before)), Event::Content(bytes)) => {
                *before = Bytes::from([&before[..], &bytes].concat());
            }
            (_, event) => self.events.push(event),
        }
    }
}
