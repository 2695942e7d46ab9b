//! Quality values (RFC 9110 section 12.4.2).

/// A quality value in thousandths. A value that is only implied ranks below all values that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Quality(u16);

impl Quality {
    /// Not acceptable.
    pub const NONE: Self = Self(0);
    /// Acceptable, although the client does not name it.
    pub(super) const IMPLIED: Self = Self(1);
    /// The quality of a member without a weight.
    pub(crate) const FULL: Self = Self(1001);

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

/// The quality that the parameters of a member give it, and whether it has other parameters; `None` if
/// a weight is invalid.
pub(super) fn weigh<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<(Quality, bool)> {
    let (mut quality, mut has_others) = (Quality::FULL, false);
    for parameter in parameters {
        match parameter {
            [b'q' | b'Q', b'=', weight @ ..] => quality = Quality::parse(weight)?,
            _ => has_others = true,
        }
    }
    Some((quality, has_others))
}
