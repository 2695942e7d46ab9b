//! General types of values: numbers, times, lists and tables.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use toml::de::DeValue;

use super::description::TypeDescription;
use super::diagnostics::Finding;
use super::keys::{
    ConfigReader, ConfigTable, KeyType, StringType, ValueError, ValueNode, parse_string,
};
use super::source::{Setting, SourceSpan};

impl KeyType for bool {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let value = node.value.as_bool();
        if value.is_none() {
            reader.wrong_type(node, "true or false");
        }
        value
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new("true or false", json!({"type": "boolean"}))
    }

    fn shown(&self) -> serde_json::Value {
        (*self).into()
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Int<const MIN: u64, const MAX: u64>(pub(super) u64);

impl<const MIN: u64, const MAX: u64> Int<MIN, MAX> {
    pub(super) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

pub(super) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

impl<const MIN: u64, const MAX: u64> KeyType for Int<MIN, MAX> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let expected = format!("a whole number from {MIN} to {MAX}");
        if !node.value.is_integer() {
            reader.wrong_type(node, &expected);
            return None;
        }
        match integer(node.value).filter(|number| (MIN..=MAX).contains(number)) {
            Some(number) => Some(Self(number)),
            None => {
                out_of_range(node, &expected, reader);
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            format!("a whole number from {MIN} to {MAX}"),
            json!({"type": "integer", "minimum": MIN, "maximum": MAX}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        self.0.into()
    }
}

pub(super) fn out_of_range(node: &ValueNode<'_>, expected: &str, reader: &mut ConfigReader<'_>) {
    reader.report(out_of_range_finding(node, expected));
}

pub(super) fn out_of_range_finding(node: &ValueNode<'_>, expected: &str) -> Finding {
    Finding::error(
        &node.span,
        "the number is out of range",
        format!("expected {expected}"),
    )
}

pub(super) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => integer(value).map(|integer| integer as f64),
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}

pub(super) fn shown_number(number: f64) -> serde_json::Value {
    if number.fract() == 0.0 {
        (number as u64).into()
    } else {
        number.into()
    }
}

/// Reads a number, whole or not, from `min` to `max`.
fn read_number(
    node: &ValueNode<'_>,
    reader: &mut ConfigReader<'_>,
    (min, max): (u64, u64),
    expected: &str,
) -> Option<f64> {
    if !matches!(node.value, DeValue::Integer(_) | DeValue::Float(_)) {
        reader.wrong_type(node, expected);
        return None;
    }
    let number = number(node.value).filter(|number| (min as f64..=max as f64).contains(number));
    if number.is_none() {
        out_of_range(node, expected, reader);
    }
    number
}

/// A time from `MIN` to `MAX` seconds, in seconds or as a string with a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds<const MIN: u64, const MAX: u64>(pub(super) Duration);

impl<const MIN: u64, const MAX: u64> Seconds<MIN, MAX> {
    fn expected() -> String {
        format!("a number of seconds from {MIN} to {MAX}, or a string like \"1m30s\"")
    }

    pub(super) const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl<const MIN: u64, const MAX: u64> KeyType for Seconds<MIN, MAX> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::String(_) = node.value {
            let text = node.text(reader, &Self::expected())?;
            let TimeWithUnits(time) = parse_string(&text, &node.span, reader)?;
            if (Duration::from_secs(MIN)..=Duration::from_secs(MAX)).contains(&time) {
                return Some(Self(time));
            }
            out_of_range(node, &Self::expected(), reader);
            return None;
        }
        let number = match integer(node.value) {
            Some(number) if number > MAX && (MIN..=MAX).contains(&(number / 1000)) => {
                let finding = out_of_range_finding(node, &Self::expected());
                let help = format!("the number is in seconds; {number} ms are \"{number}ms\"");
                reader.report(finding.help(help));
                None
            }
            _ => read_number(node, reader, (MIN, MAX), &Self::expected()),
        };
        number.map(|seconds| Self(Duration::from_secs_f64(seconds)))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            Self::expected(),
            json!({"anyOf": [
                {"type": "number", "minimum": MIN, "maximum": MAX},
                {"type": "string"},
            ]}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        shown_number(self.0.as_secs_f64())
    }
}

/// A time above nothing, of at most `MAX` seconds, in seconds or as a string with a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time<const MAX: u64>(pub(super) Duration);

impl<const MAX: u64> Time<MAX> {
    pub(super) const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    fn expected() -> String {
        format!("a number of seconds above 0, to {MAX}, or a string like \"500ms\"")
    }
}

impl<const MAX: u64> KeyType for Time<MAX> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let Seconds(time) = Seconds::<0, MAX>::read(node, reader)?;
        if time.is_zero() {
            out_of_range(node, &Self::expected(), reader);
            return None;
        }
        Some(Self(time))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            Self::expected(),
            json!({"anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX},
                {"type": "string"},
            ]}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        shown_number(self.0.as_secs_f64())
    }
}

/// A share, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(pub(super) f64);

impl Share {
    const EXPECTED: &'static str = "a number from 0 to 1 as 0.1";
}

impl KeyType for Share {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        read_number(node, reader, (0, 1), Self::EXPECTED).map(Self)
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            Self::EXPECTED,
            json!({"type": "number", "minimum": 0, "maximum": 1}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        shown_number(self.0)
    }
}

/// A time like `500ms` or `1h30m`.
struct TimeWithUnits(Duration);

impl StringType for TimeWithUnits {
    const EXPECTED: &'static str = "a time like \"30s\", \"500ms\" or \"1h30m\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let mut rest = text.trim();
        let mut milliseconds = 0u64;
        if rest.is_empty() {
            return Err("it is empty".into());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (count, after) = rest.split_at(digits);
            let count: u64 = count
                .parse()
                .map_err(|_| "a number stands before each unit")?;
            let letters = after
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            let unit = match unit {
                "ms" => 1,
                "s" => 1000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "" => {
                    return Err(
                        format!("the unit is missing: write {count} or \"{count}s\"").into(),
                    );
                }
                _ => return Err("the units are ms, s, m, h and d".into()),
            };
            milliseconds = count
                .checked_mul(unit)
                .and_then(|more| milliseconds.checked_add(more))
                .ok_or("it is too long")?;
            rest = after;
        }
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

/// A text that is not empty.
#[derive(Clone, Debug)]
pub(super) struct Text(pub(super) String);

impl StringType for Text {
    const EXPECTED: &'static str = "a string";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            Err("it is empty".into())
        } else if text.chars().any(char::is_control) {
            Err("it has control characters".into())
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// A path in the file system, relative to the file of the configuration.
#[derive(Clone, Debug)]
pub(super) struct FilePath(pub(super) PathBuf);

impl KeyType for FilePath {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, "a path")?;
        if text.is_empty() || text.contains('\0') {
            reader.report(Finding::error(
                &node.span,
                "the path is empty or holds a NUL",
                "expected a path",
            ));
            return None;
        }
        Some(Self(reader.sources.resolve(&node.span, text)))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            "a path, relative to the file in which it stands",
            json!({"type": "string", "minLength": 1}),
        )
    }
}

/// A list of tables. A table with an error is left out, so that the others are checked too.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<Setting<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: KeyType> KeyType for List<T> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Array(array) = node.value else {
            reader.wrong_type(node, "a list of tables");
            return None;
        };
        let mut items = Vec::with_capacity(array.len());
        for item in array {
            match Setting::read(&ValueNode::new(item, node.span.file), reader) {
                Some(item) => items.push(item),
                None => reader.leave_out(&node.span),
            }
        }
        Some(Self(items))
    }

    fn type_description() -> TypeDescription {
        let item = T::type_description();
        TypeDescription {
            expected: "a list of tables".to_owned(),
            schema: json!({"type": "array", "items": item.schema}),
            table: item.table,
            repeated: true,
            named: false,
        }
    }

    fn shown(&self) -> serde_json::Value {
        self.0.iter().map(|item| item.shown()).collect()
    }
}

/// A list, or its only item.
#[derive(Clone, Debug)]
pub(super) struct OneOrMore<T>(pub(super) Vec<Setting<T>>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: KeyType> KeyType for OneOrMore<T> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Array(array) = node.value else {
            return Setting::read(node, reader).map(|item| Self(vec![item]));
        };
        let items: Vec<_> = array
            .iter()
            .map(|item| Setting::read(&ValueNode::new(item, node.span.file), reader))
            .collect();
        // All items are read, so that all errors are reported.
        items.into_iter().collect::<Option<_>>().map(Self)
    }

    fn type_description() -> TypeDescription {
        let item = T::type_description();
        TypeDescription {
            expected: format!("{}, or a list of such", item.expected),
            schema: json!({"anyOf": [
                item.schema,
                {"type": "array", "items": item.schema},
            ]}),
            table: item.table,
            repeated: item.repeated,
            named: item.named,
        }
    }

    fn shown(&self) -> serde_json::Value {
        self.0.iter().map(|item| item.shown()).collect()
    }
}

/// A feature that is turned on with `true` or with a table of settings, or off.
#[derive(Clone, Debug)]
pub(super) enum Switch<T> {
    /// `false`.
    Off,
    /// `true`: with the defaults.
    On,
    /// On, by this table.
    As(Box<T>),
}

impl<T: ConfigTable + Clone> Switch<T> {
    /// The table, if it is on.
    pub(super) fn table(&self, span: &SourceSpan, reader: &mut ConfigReader<'_>) -> Option<T> {
        match self {
            Self::Off => None,
            Self::On => T::absent(span, reader),
            Self::As(table) => Some((**table).clone()),
        }
    }
}

impl<T: ConfigTable + KeyType> KeyType for Switch<T> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::Boolean(true) => Some(Self::On),
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::Table(_) => T::read(node, reader).map(|table| Self::As(Box::new(table))),
            _ => {
                reader.wrong_type(node, "true, false, or a table");
                None
            }
        }
    }

    fn type_description() -> TypeDescription {
        let table = T::type_description();
        TypeDescription {
            expected: "`true`, `false`, or a table".to_owned(),
            schema: json!({"anyOf": [{"type": "boolean"}, table.schema]}),
            ..table
        }
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::Off => false.into(),
            Self::On => true.into(),
            Self::As(_) => serde_json::Value::Null,
        }
    }
}

/// A table with arbitrary keys, in the order of the file. Entries with an error are left out.
#[derive(Clone, Debug)]
pub(super) struct Map<K, V>(pub(super) Vec<(Setting<K>, Setting<V>)>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: StringType, V: KeyType> KeyType for Map<K, V> {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Table(table) = node.value else {
            reader.wrong_type(node, &Self::type_description().expected);
            return None;
        };
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let span = SourceSpan {
                file: node.span.file,
                bytes: key.span(),
            };
            let name = parse_string::<K>(key.get_ref(), &span, reader);
            let value = Setting::read(&ValueNode::new(value, node.span.file), reader);
            if let (Some(name), Some(value)) = (name, value) {
                let name = Setting {
                    value: name,
                    span,
                    given: true,
                };
                entries.push((name, value));
            }
        }
        entries.sort_by_key(|(key, _)| key.span.bytes.start);
        Some(Self(entries))
    }

    fn type_description() -> TypeDescription {
        let value = V::type_description();
        TypeDescription {
            expected: format!("a table, from {} to {}", K::EXPECTED, value.expected),
            schema: json!({"type": "object", "additionalProperties": value.schema}),
            named: value.table.is_some(),
            ..value
        }
    }

    fn shown(&self) -> serde_json::Value {
        if self.0.is_empty() {
            json!({})
        } else {
            serde_json::Value::Null
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_with_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
        ] {
            let time = TimeWithUnits::parse(text).ok().unwrap().0;
            assert_eq!(time, Duration::from_millis(milliseconds), "{text:?}");
        }
        for text in ["", "s", "1", "1.5s", "1x", "-1s", "99999999999999999d"] {
            assert!(TimeWithUnits::parse(text).is_err(), "{text:?}");
        }
    }
}
