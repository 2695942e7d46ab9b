//! What a server has to know of a ClientHello before TLS reads it (RFC 8446 section 4.1.2).

use crate::varint::Reader;

/// The types of messages and extensions.
const CLIENT_HELLO: u8 = 1;
const EARLY_DATA: u16 = 42;
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;
/// That of drafts of version 1, which TLS would take for the other one.
const DRAFT_TRANSPORT_PARAMETERS: u16 = 0xffa5;

/// What the version of a connection depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientHelloFacts<'a> {
    /// The transport parameters.
    pub(crate) parameters: Option<&'a [u8]>,
    /// Whether packets with early data follow.
    pub(crate) has_early_data: bool,
    /// Whether there are transport parameters of a draft.
    pub(crate) has_draft_parameters: bool,
    /// Whether there is a session ID, which TLS over TCP has for middleboxes.
    pub(crate) has_session_id: bool,
}

impl<'a> ClientHelloFacts<'a> {
    /// Reads a message; `None` if it is no ClientHello. TLS reports what else is wrong with it.
    pub(crate) fn read(message: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        if reader.byte()? != CLIENT_HELLO {
            return None;
        }
        // The length, the version and the random bytes.
        reader.bytes(3 + 2 + 32)?;
        let session = reader.byte()?;
        reader.bytes(session.into())?;
        let suites = short(&mut reader)?;
        reader.bytes(suites.into())?;
        let compressions = reader.byte()?;
        reader.bytes(compressions.into())?;
        let length = short(&mut reader)?;
        let mut extensions = Reader::new(reader.bytes(length.into())?);
        let mut facts = Self {
            has_session_id: session > 0,
            ..Self::default()
        };
        while !extensions.is_empty() {
            let extension = short(&mut extensions)?;
            let length = short(&mut extensions)?;
            let value = extensions.bytes(length.into())?;
            match extension {
                EARLY_DATA => facts.has_early_data = true,
                QUIC_TRANSPORT_PARAMETERS => facts.parameters = Some(value),
                DRAFT_TRANSPORT_PARAMETERS => facts.has_draft_parameters = true,
                _ => {}
            }
        }
        Some(facts)
    }
}

fn short(reader: &mut Reader<'_>) -> Option<u16> {
    reader.array().map(u16::from_be_bytes)
}

/// A ClientHello with these extensions.
#[cfg(test)]
pub(crate) fn message(extensions: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 0, 0, 0, 3, 3];
    message.extend([7; 32]);
    message.push(0);
    message.extend([0, 4, 0x13, 1, 0x13, 2]);
    message.extend([1, 0]);
    message.extend((extensions.len() as u16).to_be_bytes());
    message.extend(extensions);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_early_data_are_found() {
        let message = message(&[0, 5, 0, 1, 9, 0, 0x39, 0, 3, 1, 2, 3, 0, 42, 0, 0]);
        let facts = ClientHelloFacts::read(&message);
        let expected = ClientHelloFacts {
            parameters: Some(&[1, 2, 3]),
            has_early_data: true,
            has_draft_parameters: false,
            has_session_id: false,
        };
        assert_eq!(facts, Some(expected));
        for length in 0..message.len() {
            assert_eq!(ClientHelloFacts::read(&message[..length]), None);
        }
    }

    #[test]
    fn a_hello_without_them_has_neither() {
        let message = message(&[]);
        let facts = ClientHelloFacts::read(&message).unwrap();
        assert_eq!(facts, ClientHelloFacts::default());
    }
}
