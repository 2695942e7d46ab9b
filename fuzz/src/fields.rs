//! Fuzz targets of field values: ranges and content negotiation.

use apus_http::fields::{AcceptEncoding, Coding, MAX_RANGES, Ranges};

/// The ranges are within the representation, disjoint, and few. The first eight bytes are the length of the
/// representation.
pub fn range(data: &[u8]) {
    let Some((complete, value)) = data.split_first_chunk() else {
        return;
    };
    let complete = u64::from_be_bytes(*complete);
    let Ranges::Parts(parts) = Ranges::parse(value, complete) else {
        return;
    };
    assert!((1..=MAX_RANGES).contains(&parts.len()));
    let mut parts: Vec<_> = parts.iter().map(|part| (part.start, part.len)).collect();
    parts.sort_unstable();
    let mut free = 0;
    for (start, len) in parts {
        assert!(len > 0);
        assert!(start >= free);
        let end = start.checked_add(len).expect("a part ends within 64 bits");
        assert!(end <= complete);
        // Adjacent ranges are merged.
        free = end.saturating_add(1);
    }
}

/// The preferred codings are acceptable, in order of preference. Splitting a field into lines changes nothing,
/// and there are at most as many results as orders of the codings.
pub fn accept_encoding(data: &[u8]) {
    let accept = AcceptEncoding::parse([data].into_iter());
    assert_eq!(
        accept,
        AcceptEncoding::parse(data.split(|byte| *byte == b','))
    );
    let preferred: Vec<_> = accept.preferred().collect();
    for coding in Coding::ALL {
        assert_eq!(preferred.contains(&coding), accept.accepts(coding));
    }
    let mut offered = Coding::ALL.to_vec();
    for expected in preferred {
        assert_eq!(accept.choose(&offered), Some(expected));
        offered.retain(|coding| *coding != expected);
    }
    assert_eq!(accept.choose(&offered), None);
}
