//! QPACK by the examples of RFC 9204 appendix B, and by its edges.

use apus_h3::qpack::{QpackDecoder, QpackEncoder, QpackError, SectionProgress};

type Line = (Vec<u8>, Vec<u8>);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().filter(|byte| *byte != b' ').collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn decode(
    decoder: &mut QpackDecoder,
    stream: u64,
    section: &[u8],
) -> Result<(SectionProgress, Vec<Line>), QpackError> {
    let mut lines = Vec::new();
    let progress = decoder.decode(stream, section, |field| {
        lines.push((field.name.to_vec(), field.value.to_vec()));
    })?;
    Ok((progress, lines))
}

fn lines(lines: &[(&str, &str)]) -> Vec<Line> {
    let line = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    lines.iter().map(line).collect()
}

#[test]
fn decodes_the_examples_of_the_rfc() {
    let mut decoder = QpackDecoder::new(220);
    let decoded = |found| Ok((SectionProgress::Decoded, found));
    // B.1
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(
        decode(&mut decoder, 0, &section),
        decoded(lines(&[(":path", "/index.html")]))
    );
    assert!(decoder.output().is_empty());
    // B.2
    let section = bytes("0381 10 11");
    assert_eq!(
        decode(&mut decoder, 4, &section),
        Ok((SectionProgress::Blocked(2), vec![]))
    );
    let instructions = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    );
    assert_eq!(decoder.handle_encoder_stream(&instructions), Ok(2));
    assert_eq!(
        decode(&mut decoder, 4, &section),
        decoded(lines(&[
            (":authority", "www.example.com"),
            (":path", "/sample/path")
        ]))
    );
    // The increment that the RFC's decoder leaves to the acknowledgement.
    assert_eq!(decoder.output()[..], [2, 0x84]);
    decoder.output().clear();
    // B.3
    let instructions = bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565");
    assert_eq!(decoder.handle_encoder_stream(&instructions), Ok(1));
    assert_eq!(decoder.output()[..], [1]);
    decoder.output().clear();
    // B.4
    assert_eq!(decoder.handle_encoder_stream(&[2]), Ok(1));
    let section = bytes("0500 80 c1 81");
    assert_eq!(
        decode(&mut decoder, 8, &section),
        decoded(lines(&[
            (":authority", "www.example.com"),
            (":path", "/"),
            ("custom-key", "custom-value")
        ]))
    );
    decoder.output().clear();
    decoder.cancel(8);
    assert_eq!(decoder.output()[..], [0x48]);
    // B.5: the first entry is evicted.
    let instructions = bytes("810d 6375 7374 6f6d 2d76 616c 7565 32");
    assert_eq!(decoder.handle_encoder_stream(&instructions), Ok(1));
    assert_eq!(
        decode(&mut decoder, 12, &bytes("0600 80 81 82 83")),
        decoded(lines(&[
            ("custom-key", "custom-value2"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
            (":path", "/sample/path"),
        ]))
    );
    assert_eq!(
        decode(&mut decoder, 16, &bytes("0600 84")),
        Err(QpackError::Index)
    );
}

#[test]
fn the_capacity_and_the_size_of_entries_have_limits() {
    // An entry of 64 bytes: `a` with a value of 31 bytes.
    let insert = |len: u8| [&[0x41, b'a', len][..], &vec![b'x'; usize::from(len)]].concat();
    let mut decoder = QpackDecoder::new(64);
    let set_capacity = |capacity: u8| vec![0x3f, capacity - 31];
    assert_eq!(decoder.handle_encoder_stream(&set_capacity(64)), Ok(0));
    assert_eq!(decoder.handle_encoder_stream(&insert(31)), Ok(1));
    assert_eq!(
        decoder.handle_encoder_stream(&insert(32)),
        Err(QpackError::EntryTooLarge)
    );
    let mut decoder = QpackDecoder::new(64);
    assert_eq!(
        decoder.handle_encoder_stream(&set_capacity(65)),
        Err(QpackError::Capacity)
    );
    let mut decoder = QpackDecoder::new(64);
    decoder.handle_encoder_stream(&set_capacity(63)).unwrap();
    assert_eq!(
        decoder.handle_encoder_stream(&insert(31)),
        Err(QpackError::EntryTooLarge)
    );
}

/// Section 4.5.1.1: the insert count wraps around at twice the entries that fit.
#[test]
fn insert_counts_wrap_around() {
    // Three entries fit, so the form of a count is the count modulo 6, plus 1.
    let mut decoder = QpackDecoder::new(100);
    decoder.handle_encoder_stream(&[0x3f, 69]).unwrap();
    for count in 1..=50_u8 {
        assert_eq!(
            decoder.handle_encoder_stream(&[0x41, b'a', 1, count]),
            Ok(1)
        );
        let section = [count % 6 + 1, 0, 0x80];
        assert_eq!(
            decode(&mut decoder, 0, &section),
            Ok((SectionProgress::Decoded, vec![(b"a".to_vec(), vec![count])]))
        );
        for ahead in 1..=3 {
            let section = [(count + ahead) % 6 + 1, 0, 0x80];
            assert_eq!(
                decode(&mut decoder, 0, &section),
                Ok((SectionProgress::Blocked(u64::from(count + ahead)), vec![]))
            );
        }
    }
    assert_eq!(
        decode(&mut decoder, 0, &[7, 0]),
        Err(QpackError::InsertCount)
    );
    let mut without_table = QpackDecoder::new(0);
    assert_eq!(
        decode(&mut without_table, 0, &[1, 0]),
        Err(QpackError::InsertCount)
    );
    without_table.cancel(4);
    assert!(without_table.output().is_empty());
}

#[test]
fn never_indexed_lines_are_marked() {
    let mut decoder = QpackDecoder::new(0);
    let mut encoder = QpackEncoder::new(4096);
    encoder.set_peer_table_bytes(4096);
    for (name, value, marked, is_marked) in [
        ("authorization", "secret", false, true),
        ("cookie", "a=b", false, true),
        ("x-token", "secret", true, true),
        ("accept", "*/*", true, true),
        ("accept", "*/*", false, false),
        ("x-other", "1", false, false),
    ] {
        let mut out = Vec::new();
        let mut references = encoder.begin(&mut out);
        encoder.line(
            (name.as_bytes(), value.as_bytes(), marked),
            &mut references,
            &mut out,
        );
        encoder.end(0, references, &mut out);
        let mut found = Vec::new();
        decoder
            .decode(0, &out, |field| {
                found.push((
                    field.name.to_vec(),
                    field.value.to_vec(),
                    field.never_indexed,
                ));
            })
            .unwrap();
        assert_eq!(found, [(name.into(), value.into(), is_marked)]);
    }
    // Only the last line is in the table.
    assert_eq!(encoder.output()[3..], encoder_insert("x-other", "1"));
}

/// The instruction that inserts a line with a literal name, as another encoder writes it.
fn encoder_insert(name: &str, value: &str) -> Vec<u8> {
    let mut stream = shiguredo_http3::EncoderStream::new();
    stream.set_max_table_capacity(4096);
    stream
        .encode_insert_with_literal_name(name.as_bytes(), value.as_bytes())
        .unwrap();
    stream.get_data().to_vec()
}

#[test]
fn entries_in_use_are_not_evicted() {
    // Room for two entries of 50 bytes.
    let mut encoder = QpackEncoder::new(128);
    encoder.set_peer_table_bytes(1000);
    let mut decoder = QpackDecoder::new(1000);
    let mut send = |encoder: &mut QpackEncoder, stream: u64, value: &str| {
        let mut out = Vec::new();
        let mut references = encoder.begin(&mut out);
        encoder.line(
            (b"x-name", value.as_bytes(), false),
            &mut references,
            &mut out,
        );
        encoder.end(stream, references, &mut out);
        let instructions = std::mem::take(encoder.output());
        let inserts = decoder.handle_encoder_stream(&instructions).unwrap();
        let (progress, found) = decode(&mut decoder, stream, &out).unwrap();
        assert_eq!(progress, SectionProgress::Decoded, "no section ever waits");
        assert_eq!(found, lines(&[("x-name", value)]));
        (inserts, out.len(), std::mem::take(decoder.output()))
    };
    let (first, second, third) = ("a".repeat(20), "b".repeat(20), "c".repeat(20));
    let (inserts, _, increment) = send(&mut encoder, 0, &first);
    assert_eq!((inserts, &increment[..]), (1, &[1][..]));
    // Not acknowledged yet: a literal.
    let (inserts, len, _) = send(&mut encoder, 4, &first);
    assert!(inserts == 0 && len > 10);
    encoder.handle_decoder_stream(&increment).unwrap();
    let (_, len, acknowledgement) = send(&mut encoder, 8, &first);
    assert_eq!((len, &acknowledgement[..]), (3, &[0x88][..]));
    let (inserts, _, increment) = send(&mut encoder, 12, &second);
    assert_eq!(inserts, 1);
    encoder.handle_decoder_stream(&increment).unwrap();
    // The oldest entry is referred to by the section of stream 8.
    assert_eq!(send(&mut encoder, 16, &third).0, 0);
    encoder.handle_decoder_stream(&acknowledgement).unwrap();
    assert_eq!(send(&mut encoder, 20, &third).0, 1);
    assert_eq!(
        encoder.handle_decoder_stream(&acknowledgement),
        Err(QpackError::SectionAcknowledgment)
    );
}

#[test]
fn acknowledgements_cover_only_what_was_sent() {
    let mut encoder = QpackEncoder::new(4096);
    encoder.set_peer_table_bytes(4096);
    let mut out = Vec::new();
    let mut references = encoder.begin(&mut out);
    encoder.line((b"x-name", b"value", false), &mut references, &mut out);
    encoder.end(0, references, &mut out);
    // Cancelling a stream without references is no error.
    assert_eq!(encoder.handle_decoder_stream(&[0x40]), Ok(()));
    assert_eq!(encoder.handle_decoder_stream(&[0x01]), Ok(()));
    assert_eq!(
        encoder.handle_decoder_stream(&[0x01]),
        Err(QpackError::InsertCountIncrement)
    );
}

/// An encoder of a peer that acknowledges nothing stops using references.
#[test]
fn sections_without_acknowledgement_are_limited() {
    let mut encoder = QpackEncoder::new(4096);
    encoder.set_peer_table_bytes(4096);
    let section = |encoder: &mut QpackEncoder, stream: u64| {
        let mut out = Vec::new();
        let mut references = encoder.begin(&mut out);
        encoder.line(
            (b"x-name", b"a long value", false),
            &mut references,
            &mut out,
        );
        encoder.end(stream, references, &mut out);
        out.len()
    };
    section(&mut encoder, 0);
    encoder.handle_decoder_stream(&[1]).unwrap();
    for stream in 0..256 {
        assert_eq!(section(&mut encoder, stream), 3, "{stream}");
    }
    assert!(section(&mut encoder, 256) > 3);
    encoder.handle_decoder_stream(&[0x80 | 3]).unwrap();
    assert_eq!(section(&mut encoder, 257), 3);
}

/// A peer acknowledges every insert, but its flow control lets none of them through.
#[test]
fn output_of_the_encoder_that_is_not_sent_is_limited() {
    let mut encoder = QpackEncoder::new(4096);
    encoder.set_peer_table_bytes(4096);
    let mut inserted = 0;
    for round in 0..10_000_u64 {
        let before = encoder.output().len();
        let value = format!("a value that is new in each section: {round}");
        let mut references = encoder.begin(&mut Vec::new());
        let mut out = Vec::new();
        encoder.line((b"x-a", value.as_bytes(), false), &mut references, &mut out);
        if encoder.output().len() > before {
            inserted += 1;
            encoder.handle_decoder_stream(&[1]).unwrap();
        }
    }
    assert!(inserted > 100, "{inserted}");
    assert!(encoder.output().len() < 16_500);
    // When the output is sent, inserts go on.
    encoder.output().clear();
    let mut references = encoder.begin(&mut Vec::new());
    encoder.line((b"x-a", b"new", false), &mut references, &mut Vec::new());
    assert!(!encoder.output().is_empty());
}
