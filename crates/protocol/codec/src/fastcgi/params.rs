//! FastCGI parameters: name-value pairs (FastCGI 1.0 section 3.4).

use std::fmt;

use super::record;

/// The parameters of a request, in order: the meta-variables of CGI (RFC 3875 section 4.1) and
/// further variables for the application.
///
/// One buffer holds them in encoded form. Parameters that are the same for all requests can be encoded
/// once and copied with [`append`](Self::append).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params {
    wire: Vec<u8>,
}

impl Params {
    /// Maximum length of a name or value: its length has 31 bits.
    const MAX_LENGTH: usize = 0x7fff_ffff;
    /// Maximum length that is encoded in one byte.
    const MAX_SHORT_LENGTH: usize = 0x7f;

    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// No parameters, with a capacity of `bytes` in encoded form.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            wire: Vec::with_capacity(bytes),
        }
    }

    /// Appends a parameter. A name or value of 2 GiB or more cannot be encoded, and the parameter is
    /// dropped.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push_parts(name, &[value.as_ref()]);
    }

    /// Appends a parameter whose value is the concatenation of these parts, like [`push`](Self::push).
    pub fn push_parts(&mut self, name: impl AsRef<[u8]>, value: &[&[u8]]) {
        let name = name.as_ref();
        if self.start_pair(name.len(), length(value)) {
            self.wire.extend_from_slice(name);
            for part in value {
                self.wire.extend_from_slice(part);
            }
        }
    }

    /// Appends a header field of the request as a protocol-specific meta-variable: `HTTP_`, and its name
    /// in upper case with `_` for `-` (RFC 3875 section 4.1.18). The caller excludes the fields that must
    /// not become variables. Like [`push`](Self::push).
    pub fn push_field(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        const PREFIX: &[u8] = b"HTTP_";
        let (name, value) = (name.as_ref(), value.as_ref());
        if self.start_pair(PREFIX.len().saturating_add(name.len()), value.len()) {
            self.wire.extend_from_slice(PREFIX);
            self.wire.extend(name.iter().map(|byte| match byte {
                // `X-Real-IP` and `X_Real_IP` become the same variable, so the caller leaves out names with
                // underscores.
                b'-' => b'_',
                byte => byte.to_ascii_uppercase(),
            }));
            self.wire.extend_from_slice(value);
        }
    }

    /// Appends all parameters of `other`.
    pub fn append(&mut self, other: &Self) {
        self.wire.extend_from_slice(&other.wire);
    }

    /// Removes all parameters and keeps the capacity.
    pub fn clear(&mut self) {
        self.wire.clear();
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.wire.is_empty()
    }

    /// The encoded parameters: the content of the `FCGI_PARAMS` records.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.wire.as_slice();
        std::iter::from_fn(move || read_pair(&mut rest))
    }

    /// The value of the last parameter with this name, which is the one that applications use.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        let found = self.iter().filter(|(candidate, _)| *candidate == name);
        found.last().map(|(_, value)| value)
    }

    /// The name of the first parameter that is too long for one record: PHP closes the connection if a parameter
    /// continues in the next one.
    pub fn oversized(&self) -> Option<&[u8]> {
        if self.wire.len() <= record::MAX_CONTENT {
            return None;
        }
        let mut rest = self.wire.as_slice();
        loop {
            let before = rest.len();
            let (name, _) = read_pair(&mut rest)?;
            if before.saturating_sub(rest.len()) > record::MAX_CONTENT {
                return Some(name);
            }
        }
    }

    /// Appends the `FCGI_PARAMS` records. Each one ends with a whole parameter, unless that is
    /// [too long](Self::oversized) for one record.
    pub(super) fn write_records(&self, out: &mut Vec<u8>) {
        let mut rest = self.wire.as_slice();
        while !rest.is_empty() {
            let (pairs, after) = rest
                .split_at_checked(length_for_record(rest))
                .unwrap_or((rest, &[]));
            record::stream(record::PARAMS, pairs, out);
            rest = after;
        }
    }

    /// Encodes the two lengths of a pair. Returns whether they are within the limit.
    fn start_pair(&mut self, name: usize, value: usize) -> bool {
        if name > Self::MAX_LENGTH || value > Self::MAX_LENGTH {
            return false;
        }
        self.wire
            .reserve(name.saturating_add(value).saturating_add(8));
        for length in [name, value] {
            match u8::try_from(length) {
                Ok(short) if length <= Self::MAX_SHORT_LENGTH => self.wire.push(short),
                _ => {
                    let length = u32::try_from(length).unwrap_or_default() | 0x8000_0000;
                    self.wire.extend_from_slice(&length.to_be_bytes());
                }
            }
        }
        true
    }
}

fn length(parts: &[&[u8]]) -> usize {
    parts
        .iter()
        .fold(0, |length: usize, part| length.saturating_add(part.len()))
}

/// The length of the pairs at the start of `wire` that fit into one record, or of the first pair if that is longer.
fn length_for_record(wire: &[u8]) -> usize {
    if wire.len() <= record::MAX_CONTENT {
        return wire.len();
    }
    let (mut left, mut fitting) = (wire, 0);
    while read_pair(&mut left).is_some() {
        let end = wire.len().saturating_sub(left.len());
        match (end > record::MAX_CONTENT, fitting) {
            (false, _) => fitting = end,
            // PHP-FPM closes the connection at a parameter that continues in the next record, so the caller
            // refuses such a request before (`oversized`), and others may read it.
            (true, 0) => return end,
            (true, fitting) => return fitting,
        }
    }
    wire.len()
}

/// Splits the first pair off `rest`. `None` if there is no complete pair.
pub(super) fn read_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut left = *rest;
    let name = read_length(&mut left)?;
    let value = read_length(&mut left)?;
    let (name, left) = left.split_at_checked(name)?;
    let (value, left) = left.split_at_checked(value)?;
    *rest = left;
    Some((name, value))
}

fn read_length(rest: &mut &[u8]) -> Option<usize> {
    match **rest {
        [short, ref left @ ..] if usize::from(short) <= Params::MAX_SHORT_LENGTH => {
            *rest = left;
            Some(usize::from(short))
        }
        [a, b, c, d, ref left @ ..] => {
            *rest = left;
            usize::try_from(u32::from_be_bytes([a & 0x7f, b, c, d])).ok()
        }
        _ => None,
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.iter().map(|(name, value)| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            (text(name), text(value))
        });
        f.debug_map().entries(pairs).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_lengths_in_one_byte_or_four() {
        for (name, value, expected) in [
            (0, 0, &[0, 0][..]),
            (1, 127, &[1, 127]),
            (127, 128, &[127, 0x80, 0, 0, 128]),
            (128, 0, &[0x80, 0, 0, 128, 0]),
            (300, 70_000, &[0x80, 0, 1, 44, 0x80, 1, 0x11, 0x70]),
        ] {
            let (name, value) = (vec![b'n'; name], vec![b'v'; value]);
            let mut params = Params::new();
            params.push(&name, &value);
            assert_eq!(params.wire(), [expected, &name, &value].concat());
            assert_eq!(
                params.iter().collect::<Vec<_>>(),
                [(name.as_slice(), value.as_slice())]
            );
        }
    }

    #[test]
    fn returns_the_last_value_of_a_name() {
        let mut fixed = Params::with_capacity(64);
        fixed.push("A", "1");
        let mut params = Params::new();
        params.append(&fixed);
        params.push_parts("B", &[b"2", b"", b"3"]);
        params.push_field("X-Forwarded-For", "4");
        params.push("A", "");
        assert_eq!(params.get("A"), Some(&b""[..]));
        assert_eq!(params.get("B"), Some(&b"23"[..]));
        assert_eq!(params.get("HTTP_X_FORWARDED_FOR"), Some(&b"4"[..]));
        assert_eq!(params.get("C"), None);
        let text = format!("{params:?}");
        assert_eq!(
            text,
            r#"{"A": "1", "B": "23", "HTTP_X_FORWARDED_FOR": "4", "A": ""}"#
        );
        params.clear();
        assert!(params.is_empty());
    }

    #[test]
    fn ignores_truncated_pairs() {
        let mut params = Params::new();
        params.push("name", [b'v'; 200]);
        for end in 0..params.wire().len() {
            assert_eq!(read_pair(&mut &params.wire()[..end]), None, "{end}");
        }
    }
}
