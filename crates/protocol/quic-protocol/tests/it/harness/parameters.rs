//! Changes of transport parameters (RFC 9000 section 18).

use std::sync::Arc;

use super::tls::EditParameters;
use super::wire::integer;

/// A parameter in the place of the one with this identifier, if there is one.
pub(crate) fn replaced(id: u64, value: &[u8]) -> EditParameters {
    let value = value.to_vec();
    Arc::new(move |parameters| {
        let mut edited = without(&parameters, id);
        edited.extend(parameter(id, &value));
        edited
    })
}

/// An integer in the place of the one with this identifier.
pub(crate) fn number(id: u64, value: u64) -> EditParameters {
    replaced(id, &integer(value))
}

/// No parameter with this identifier.
pub(crate) fn removed(id: u64) -> EditParameters {
    Arc::new(move |parameters| without(&parameters, id))
}

/// One more parameter, which may be there already.
pub(crate) fn added(id: u64, value: &[u8]) -> EditParameters {
    let added = parameter(id, value);
    Arc::new(move |parameters| [&parameters[..], &added].concat())
}

fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    [&integer(id)[..], &integer(value.len() as u64), value].concat()
}

fn read(bytes: &mut &[u8]) -> u64 {
    let length = 1 << (bytes[0] >> 6);
    let (head, rest) = bytes.split_at(length);
    *bytes = rest;
    let first = u64::from(head[0] & 0x3f);
    head[1..]
        .iter()
        .fold(first, |value, byte| value << 8 | u64::from(*byte))
}

fn without(parameters: &[u8], id: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut rest = parameters;
    while !rest.is_empty() {
        let found = read(&mut rest);
        let length = read(&mut rest) as usize;
        let (value, after) = rest.split_at(length);
        rest = after;
        if found != id {
            kept.extend(parameter(found, value));
        }
    }
    kept
}
