//! Fuzz target of path resolution.

use apus::path::{encode, normalise};

/// The normal form has no dot segments, and is its own normal form.
pub fn path_resolution(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(normal) = normalise(raw) else {
        return;
    };
    assert_eq!(normal.first(), Some(&b'/'));
    assert!(!normal.iter().any(u8::is_ascii_control));
    let inner = normal.strip_suffix(b"/").unwrap_or(&normal);
    for segment in inner.split(|byte| *byte == b'/').skip(1) {
        assert!(!matches!(segment, b"" | b"." | b".."));
    }
    let encoded = encode(&normal);
    assert!(encoded.is_ascii());
    assert_eq!(normalise(&encoded).as_deref(), Ok(&*normal));
}
