//! Fuzz target of fingerprints of TLS clients.

use apus_codec::client_hello::{TlsTransport, ja4, ja4_of_records};

/// A ClientHello, as a message and in records: the fingerprint has its form, it is the same over both transports but for its first
/// letter, and records say the same as the message in them, however it is split.
pub fn client_hello(data: &[u8]) {
    ja4_of_records(data);
    let found = ja4(data, TlsTransport::Tcp);
    let over_quic = ja4(data, TlsTransport::Quic);
    assert_eq!(
        found.as_ref().map(|found| &found[1..]),
        over_quic.as_ref().map(|found| &found[1..])
    );
    let Some(found) = found else {
        return;
    };
    // Three parts; the two characters of the protocol are the last of the first.
    assert_eq!(
        (found.len(), found.matches('_').count()),
        (36, 2),
        "{found}"
    );
    assert!(found.is_ascii(), "{found}");
    let size = 1 + usize::from(data[0] ^ data[data.len() / 2]);
    let records: Vec<u8> = data
        .chunks(size)
        .flat_map(|part| {
            let length = u16::try_from(part.len()).unwrap_or_default().to_be_bytes();
            [&[22, 3, 1], &length[..], part].concat()
        })
        .collect();
    assert_eq!(ja4_of_records(&records), Some(found));
}
