//! Numbers with units.

use crate::fact::Unit;

/// Reads a number in the unit of a fact.
pub(crate) fn parse_number(text: &str, unit: Unit) -> Result<u64, String> {
    let (digits, suffix) = text.split_at(
        text.find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let factors: &[(&str, u64)] = match unit {
        Unit::Count => &[("", 1)],
        Unit::Bytes => &[
            ("", 1),
            ("b", 1),
            ("kb", 1 << 10),
            ("mb", 1 << 20),
            ("gb", 1 << 30),
        ],
        Unit::Time => &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)],
        Unit::Share => &[("%", 100)],
        Unit::Clock => return clock(text).ok_or_else(|| expected(text, unit)),
    };
    let suffix = suffix.to_ascii_lowercase();
    let factor = factors.iter().find(|(name, _)| *name == suffix);
    let number = digits.parse::<u64>().ok();
    number
        .zip(factor)
        .and_then(|(number, (_, factor))| number.checked_mul(*factor))
        .ok_or_else(|| expected(text, unit))
}

/// `08:30`, in minutes.
fn clock(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let part = |text: &str, end| {
        text.parse::<u64>()
            .ok()
            .filter(|part| text.len() == 2 && *part < end)
    };
    Some(part(hours, 25)? * 60 + part(minutes, 60)?).filter(|minutes| *minutes <= 24 * 60)
}

fn expected(text: &str, unit: Unit) -> String {
    let forms = match unit {
        Unit::Count => "a whole number",
        Unit::Bytes => "a number of bytes, as in `10kb` or `1mb`",
        Unit::Time => "a time with its unit, as in `250ms`, `2s` or `1m`",
        Unit::Share => "a percentage, as in `50%`",
        Unit::Clock => "a time of day, as in `08:30`",
    };
    format!("`{text}` is not {forms}")
}
