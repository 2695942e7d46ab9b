//! Cache tags, by which responses are purged: `Surrogate-Key`, `xkey`, `Cache-Tag`.

use crate::Headers;

/// The longest tag that is read, in bytes.
const MAX_BYTES: usize = 256;

/// The tags in all lines of the field `name`, in order and with repetitions. Commas separate them in
/// `Cache-Tag` and `Edge-Cache-Tag`, and white space in all other fields, as the CDNs that introduced the
/// fields define them. Tags of more than 256 bytes are left out.
pub fn surrogate_keys<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let is_list =
        name.eq_ignore_ascii_case("cache-tag") || name.eq_ignore_ascii_case("edge-cache-tag");
    headers
        .get_all(name)
        .flat_map(move |line| {
            line.split(move |byte| {
                if is_list {
                    *byte == b','
                } else {
                    matches!(byte, b' ' | b'\t')
                }
            })
        })
        .map(<[u8]>::trim_ascii)
        .filter(|tag| (1..=MAX_BYTES).contains(&tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_as_each_field_is_used() {
        let mut headers = Headers::new();
        for (name, value) in [
            ("surrogate-key", "a  b,c\td"),
            ("surrogate-key", "e"),
            ("cache-tag", "a b, c,,d"),
            ("xkey", &"x".repeat(257)),
        ] {
            headers.try_append(name, value).unwrap();
        }
        let read = |name| surrogate_keys(&headers, name).collect::<Vec<_>>();
        assert_eq!(read("surrogate-key"), [&b"a"[..], b"b,c", b"d", b"e"]);
        assert_eq!(read("Cache-Tag"), [&b"a b"[..], b"c", b"d"]);
        assert!(read("xkey").is_empty());
    }
}
