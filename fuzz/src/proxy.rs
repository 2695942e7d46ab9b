//! Fuzz target of the PROXY protocol.

use apus_codec::proxy_protocol::parse;

/// A header is complete at its last byte, whatever follows. More input does not change an error.
pub fn proxy_protocol(data: &[u8]) {
    let data = data.get(..1024).unwrap_or(data);
    let mut decided = None;
    for end in 0..=data.len() {
        let found = parse(&data[..end]);
        match decided {
            None => match found {
                Ok(None) => {}
                Ok(Some((bytes, header))) => {
                    assert_eq!(bytes, end);
                    assert!(bytes <= 536);
                    assert_eq!(header.source.is_some(), header.destination.is_some());
                    decided = Some(found);
                }
                Err(_) => decided = Some(found),
            },
            Some(before) => assert_eq!(found, before),
        }
    }
    assert!(decided.is_some() || data.len() < 536);
}
