//! `Age` (RFC 9111 section 5.1).

use crate::{Headers, list};

/// The value of `Age` in seconds. The first one of several values counts. A value that is not a number
/// counts as absent, and one that exceeds 32 bits as the largest.
pub fn age(headers: &Headers) -> Option<u32> {
    let value = headers.get("age")?;
    let first = list::members(value).next()?;
    if !first.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(first.iter().fold(0_u32, |seconds, digit| {
        seconds
            .saturating_mul(10)
            .saturating_add(u32::from(digit.saturating_sub(b'0')))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_number() {
        for (lines, expected) in [
            (&[][..], None),
            (&["0"][..], Some(0)),
            (&["0600"], Some(600)),
            (&["5, 9"], Some(5)),
            (&["5", "9"], Some(5)),
            (&["99999999999"], Some(u32::MAX)),
            (&["-1"], None),
            (&["1.5"], None),
            (&["x"], None),
            (&["x, 5"], None),
            (&[",5"], Some(5)),
            (&[" , "], None),
            (&[""], None),
        ] {
            let mut headers = Headers::new();
            for line in lines {
                headers.try_append("age", line).unwrap();
            }
            assert_eq!(age(&headers), expected, "{lines:?}");
        }
    }
}
