//! Sizes: a number in the unit of its key, or a string with a unit.

use serde_json::json;
use toml::de::DeValue;

use super::description::TypeDescription;
use super::diagnostics::Finding;
use super::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, parse_string};
use super::value::{integer, number, out_of_range, out_of_range_finding, shown_number};

/// A number of bytes, written in units of `UNIT` bytes or as a string with a unit, from `MIN` to `MAX` units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<const UNIT: u64, const MIN: u64, const MAX: u64>(
    /// Bytes.
    pub(super) u64,
);

/// From `MIN` to `MAX` bytes.
pub(super) type Bytes<const MIN: u64, const MAX: u64> = Size<1, MIN, MAX>;

/// From `MIN` to `MAX` kilobytes of 1024 bytes.
pub(super) type Kilobytes<const MIN: u64, const MAX: u64> = Size<1024, MIN, MAX>;

/// From `MIN` to `MAX` megabytes of 1024 * 1024 bytes.
pub(super) type Megabytes<const MIN: u64, const MAX: u64> = Size<1_048_576, MIN, MAX>;

/// The units of sizes, the largest first: their names, and their bytes.
const SIZE_UNITS: [(&str, u64); 5] = [
    ("TB", 1 << 40),
    ("GB", 1 << 30),
    ("MB", 1 << 20),
    ("KB", 1 << 10),
    ("bytes", 1),
];

/// The size from which a number without a unit, which is a whole number of KB if it counts bytes, is taken for bytes.
const DOUBTFUL_SIZE: u128 = 1 << 40;

impl<const UNIT: u64, const MIN: u64, const MAX: u64> Size<UNIT, MIN, MAX> {
    pub(super) const fn new(units: u64) -> Self {
        Self(units * UNIT)
    }

    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn unit() -> &'static str {
        let unit = SIZE_UNITS.iter().find(|(_, bytes)| *bytes == UNIT);
        unit.map_or("units", |(name, _)| name)
    }

    fn expected() -> String {
        let example = match UNIT {
            1 | 1024 => "16K",
            _ => "16M",
        };
        let unit = Self::unit();
        format!("a number of {unit} from {MIN} to {MAX}, or a string like \"{example}\"")
    }

    fn is_in_range(bytes: u128) -> bool {
        let limit = |units: u64| u128::from(units) * u128::from(UNIT);
        (limit(MIN)..=limit(MAX)).contains(&bytes)
    }

    /// Reads a string with a unit.
    fn read_text(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, &Self::expected())?;
        let SizeWithUnit(bytes) = parse_string(&text, &node.span, reader)?;
        if Self::is_in_range(u128::from(bytes)) {
            return Some(Self(bytes));
        }
        out_of_range(node, &Self::expected(), reader);
        None
    }

    /// What a number without a unit that is out of range was probably meant to be.
    fn other_unit(number: u64) -> Option<String> {
        let (name, bytes) = SIZE_UNITS
            .iter()
            .rev()
            .map(|(name, unit)| (*name, u128::from(number) * u128::from(*unit)))
            .find(|(_, bytes)| Self::is_in_range(*bytes))?;
        Some(format!(
            "the number is in {}; {number} {name} are {}",
            Self::unit(),
            Self::written(bytes)
        ))
    }

    /// The warning about a number that is in range, but was probably meant to be one of bytes.
    fn doubt(node: &ValueNode<'_>, number: u64) -> Option<Finding> {
        let (meant, size) = (u128::from(number), u128::from(number) * u128::from(UNIT));
        let is_doubtful = UNIT > 1 && size >= DOUBTFUL_SIZE && number.is_multiple_of(1024);
        if !is_doubtful || !Self::is_in_range(meant) {
            return None;
        }
        let title = format!(
            "the number is in {}: it means {}",
            Self::unit(),
            size_with_unit(size)
        );
        let help = format!(
            "write {} for {number} bytes, or \"{}\" if so much is meant",
            Self::written(meant),
            size_with_unit(size)
        );
        Some(Finding::warning(&node.span, title, "a number of bytes?").help(help))
    }

    /// A size as it may be written for this key.
    fn written(bytes: u128) -> String {
        let unit = u128::from(UNIT);
        match size_with_unit(bytes) {
            text if bytes.is_multiple_of(unit) => format!("{} or \"{text}\"", bytes / unit),
            text => format!("\"{text}\""),
        }
    }
}

/// A size in the largest unit of which it is a whole number: `16M`.
fn size_with_unit(bytes: u128) -> String {
    if bytes == 0 {
        return "0".to_owned();
    }
    let mut units = SIZE_UNITS.iter();
    match units.find(|(_, unit)| bytes.is_multiple_of(u128::from(*unit))) {
        Some((_, 1)) | None => format!("{bytes}B"),
        Some((name, unit)) => format!(
            "{}{}",
            bytes / u128::from(*unit),
            name.trim_end_matches('B')
        ),
    }
}

impl<const UNIT: u64, const MIN: u64, const MAX: u64> KeyType for Size<UNIT, MIN, MAX> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::String(_) = node.value {
            return Self::read_text(node, reader);
        }
        // There are no parts of bytes.
        if !node.value.is_integer() && (UNIT == 1 || !node.value.is_float()) {
            reader.wrong_type(node, &Self::expected());
            return None;
        }
        let number = number(node.value).unwrap_or(-1.0);
        let whole = integer(node.value);
        if !(MIN as f64..=MAX as f64).contains(&number) {
            let finding = out_of_range_finding(node, &Self::expected());
            reader.report(match whole.and_then(Self::other_unit) {
                Some(help) => finding.help(help),
                None => finding,
            });
            return None;
        }
        if let Some(finding) = whole.and_then(|whole| Self::doubt(node, whole)) {
            reader.report(finding);
        }
        Some(Self((number * UNIT as f64) as u64))
    }

    fn type_description() -> TypeDescription {
        let number = if UNIT == 1 { "integer" } else { "number" };
        TypeDescription::new(
            Self::expected(),
            json!({"anyOf": [
                {"type": number, "minimum": MIN, "maximum": MAX},
                {"type": "string"},
            ]}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        shown_number(self.0 as f64 / UNIT as f64)
    }
}

/// A size like `16M` or `512 KB`, in bytes.
pub(super) struct SizeWithUnit(pub(super) u64);

impl StringType for SizeWithUnit {
    const EXPECTED: &'static str = "a size like \"512K\", \"16M\" or \"1.5 GB\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        const UNITS: &str =
            "the units are B, K, M, G and T, or KB, MB, GB and TB, each 1024 of the one before";
        let text = text.trim();
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        if number.is_empty() {
            return Err("it does not start with a number".into());
        }
        let number: f64 = number.parse().map_err(|_| "it is not a number")?;
        let bytes = match unit.to_ascii_lowercase().as_str() {
            "" => return Err(format!("the unit is missing: {UNITS}").into()),
            "b" | "byte" | "bytes" => 1,
            "k" | "kb" | "kib" => 1u64 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(UNITS.into()),
        };
        let bytes = number * bytes as f64;
        if bytes < u64::MAX as f64 {
            Ok(Self(bytes as u64))
        } else {
            Err("it is too large".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_with_units_of_1024() {
        for (text, bytes) in [
            ("0b", 0),
            ("1B", 1),
            ("512 KB", 512 << 10),
            ("512k", 512 << 10),
            ("512KiB", 512 << 10),
            ("50m", 50 << 20),
            ("16M", 16 << 20),
            (" 16 mb ", 16 << 20),
            ("1.5G", 3 << 29),
            ("2TiB", 2 << 40),
            ("100 bytes", 100),
        ] {
            let size = SizeWithUnit::parse(text).ok().unwrap().0;
            assert_eq!(size, bytes, "{text:?}");
        }
        for text in [
            "",
            "16",
            "M",
            "-1M",
            "1x",
            "1 M B",
            "1.2.3M",
            "1e3M",
            "99999999T",
        ] {
            assert!(SizeWithUnit::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_of_which_they_are_whole() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1025, "1025B"),
            (1 << 20, "1M"),
            (3 << 29, "1536M"),
            (10 << 40, "10T"),
        ] {
            assert_eq!(size_with_unit(bytes), text);
        }
    }
}
