//! Weights of what is negotiated (RFC 9110 section 12.4.2).

/// How welcome something is, in thousandths, with what is only implied below all that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Quality(u16);

impl Quality {
    /// Not acceptable.
    pub(super) const NONE: Self = Self(0);
    /// Acceptable without having been named.
    pub(super) const IMPLIED: Self = Self(1);
    /// The weight of a member without one.
    const FULL: Self = Self(1001);

    /// Reads `qvalue`: from 0 to 1 with up to three digits after the point.
    fn parse(text: &[u8]) -> Option<Self> {
        let (whole, fraction) = match text {
            [whole] | [whole, b'.'] => (*whole, &b""[..]),
            [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
            _ => return None,
        };
        let mut thousandths: u16 = match whole {
            b'0' => 0,
            b'1' if fraction.iter().all(|digit| *digit == b'0') => return Some(Self::FULL),
            _ => return None,
        };
        for (digit, unit) in fraction.iter().zip([100_u16, 10, 1]) {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
            thousandths = thousandths.saturating_add(unit.saturating_mul(digit.into()));
        }
        Some(match thousandths {
            0 => Self::NONE,
            some => Self(some.saturating_add(1)),
        })
    }
}

/// The members of a list, without white space around them. What is negotiated has no quoted commas.
pub(super) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// A member as its name and weight; `None` if it has parameters other than a valid `q`.
pub(super) fn parameters(member: &[u8]) -> Option<(&[u8], Quality)> {
    let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next()?;
    let mut quality = Quality::FULL;
    for parameter in parts {
        let [b'q' | b'Q', b'=', weight @ ..] = parameter else {
            return None;
        };
        quality = Quality::parse(weight)?;
    }
    Some((name, quality))
}
