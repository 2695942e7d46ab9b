//! Fuzz target of the decoder for the protocol of resident PHP workers.

use apus_php::wire::{WireDecoder, WireError, WireLimits, WorkerEvent};
use bytes::{Bytes, BytesMut};

/// Small limits, which inputs of the fuzzer reach.
const LIMITS: WireLimits = WireLimits {
    header_block: 64,
    command: 48,
    text: 56,
};

/// Events do not depend on how the input is split, bodies belong to a response that began, and a response ends once.
pub fn php_wire(data: &[u8]) {
    let decoded = DecodedEvents::of(data, data.len());
    assert_eq!(decoded, DecodedEvents::of(data, 1));
    assert_eq!(decoded, DecodedEvents::of(data, 7));
    let mut in_response = false;
    for event in &decoded.events {
        match event {
            WorkerEvent::Head(head) => {
                let status = head.status.as_u16();
                assert!(!in_response && (status == 101 || status >= 200));
                in_response = true;
            }
            WorkerEvent::Body(bytes) => assert!(in_response && !bytes.is_empty()),
            WorkerEvent::End(_) => assert!(std::mem::take(&mut in_response)),
            WorkerEvent::Hello(_) | WorkerEvent::Ready(_) | WorkerEvent::Bye(_) => {
                assert!(!in_response)
            }
            WorkerEvent::Log(_, text) | WorkerEvent::Failed(text) => assert!(text.len() <= 56),
            _ => {}
        }
    }
}

#[derive(Debug, PartialEq)]
struct DecodedEvents {
    /// The events, with pieces of bodies joined.
    events: Vec<WorkerEvent>,
    error: Option<WireError>,
}

impl DecodedEvents {
    /// Decodes input in pieces of `size` bytes.
    fn of(input: &[u8], size: usize) -> Self {
        let mut decoder = WireDecoder::new(LIMITS);
        let mut buffer = BytesMut::new();
        let mut decoded = Self {
            events: Vec::new(),
            error: None,
        };
        for piece in input.chunks(size.max(1)) {
            buffer.extend_from_slice(piece);
            while decoded.error.is_none() {
                match decoder.handle_input(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(event)) => decoded.push(event),
                    Err(error) => decoded.error = Some(error),
                }
            }
        }
        decoded
    }

    fn push(&mut self, event: WorkerEvent) {
        match (self.events.last_mut(), event) {
            (Some(WorkerEvent::Body(before)), WorkerEvent::Body(bytes)) => {
                *before = Bytes::from([&before[..], &bytes].concat());
            }
            (_, event) => self.events.push(event),
        }
    }
}
