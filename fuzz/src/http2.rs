//! Fuzz target of HPACK.

use apus_codec::h2::hpack::{HpackDecoder, HpackEncoder};

/// Field blocks, each after its length. A block that can be decoded is the same after it was encoded again.
pub fn hpack(mut data: &[u8]) {
    let mut decoder = HpackDecoder::new(4096);
    let (mut encoder, mut again) = (HpackEncoder::new(), HpackDecoder::new(4096));
    while let Some((len, rest)) = data.split_first() {
        let (block, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        let mut fields = Vec::new();
        let decoded = decoder.decode(block, |field| {
            fields.push((field.name.to_vec(), field.value.to_vec(), field.is_valid));
        });
        if decoded.is_err() {
            return;
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value, _) in &fields {
            encoder.field(name, value, &mut out);
        }
        let mut read = Vec::new();
        let decoded = again.decode(&out, |field| {
            read.push((field.name.to_vec(), field.value.to_vec(), field.is_valid));
        });
        assert_eq!(decoded, Ok(()));
        assert_eq!(read, fields);
    }
}
