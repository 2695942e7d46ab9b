//! `Cookie` (RFC 6265 section 4.2).

use crate::Headers;
use crate::grammar::trim;

/// A pair of a `Cookie` field, as it was sent: neither percent-decoded nor without quotation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePair<'a> {
    /// The text before the first `=`; `None` without one.
    pub name: Option<&'a [u8]>,
    /// The text after the first `=`; the whole text without one.
    pub value: &'a [u8],
}

impl<'a> CookiePair<'a> {
    /// Splits `name=value`.
    pub fn split(pair: &'a [u8]) -> Self {
        match memchr::memchr(b'=', pair).and_then(|at| pair.split_at_checked(at)) {
            Some((name, value)) => Self {
                name: Some(name),
                value: value.get(1..).unwrap_or_default(),
            },
            None => Self {
                name: None,
                value: pair,
            },
        }
    }
}

/// The texts between the semicolons of a `Cookie` line, without white space around them. Empty ones
/// are left out.
pub fn cookie_texts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b';')
        .map(trim)
        .filter(|pair| !pair.is_empty())
}

/// The pairs of all `Cookie` lines: HTTP/2 may split the field (RFC 9113 section 8.2.3).
pub fn cookies(headers: &Headers) -> impl Iterator<Item = CookiePair<'_>> {
    headers
        .get_all("cookie")
        .flat_map(cookie_texts)
        .map(CookiePair::split)
}

/// The value of the first cookie of this name, which is the one for the most specific path (RFC 6265
/// section 5.4).
pub fn cookie_value<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let mut cookies = cookies(headers);
    let found = cookies.find(|cookie| cookie.name == Some(name.as_bytes()))?;
    Some(found.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&[u8]]) -> Headers {
        let mut headers = Headers::new();
        for line in lines {
            headers.try_append("cookie", line).unwrap();
        }
        headers
    }

    #[test]
    fn splits_all_lines_into_pairs_as_they_were_sent() {
        let headers = headers(&[
            b" a=1;b=\"2\" ;; c==3=; d = 4",
            b"e; =5; f=",
            b"\xff=6; g=\xff",
        ]);
        let found: Vec<_> = cookies(&headers)
            .map(|cookie| (cookie.name, cookie.value))
            .collect();
        assert_eq!(
            found,
            [
                (Some(&b"a"[..]), &b"1"[..]),
                (Some(b"b"), b"\"2\""),
                (Some(b"c"), b"=3="),
                (Some(b"d "), b" 4"),
                (None, b"e"),
                (Some(b""), b"5"),
                (Some(b"f"), b""),
                (Some(b"\xff"), b"6"),
                (Some(b"g"), b"\xff"),
            ]
        );
    }

    #[test]
    fn the_first_cookie_of_a_name_counts() {
        let headers = headers(&[b"xa=0; A=1; a=2; a=3", b"a=4; b=5"]);
        assert_eq!(cookie_value(&headers, "a"), Some(&b"2"[..]));
        assert_eq!(cookie_value(&headers, "b"), Some(&b"5"[..]));
        assert_eq!(cookie_value(&headers, "c"), None);
    }
}
