//! The names of fields as clients send them: garde knows the names in Rust, and serde may rename them.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;

/// The path of a field with the names that a client sends: for a name in Rust, the field of the type or of the value
/// that has the same letters and digits, as `replyTo` for `reply_to`.
pub(super) fn sent_path(path: &str, fields: &[&str], sent: &Value) -> String {
    let mut found = String::new();
    let mut value = Some(sent);
    for segment in path.split_inclusive(['.', '[']) {
        let name = segment.trim_end_matches(['.', '[']);
        if let Some(index) = name.strip_suffix(']') {
            value = value.and_then(|value| value.get(index.parse::<usize>().ok()?));
            found.push_str(segment);
            continue;
        }
        let object = value.and_then(Value::as_object);
        let keys = object.into_iter().flat_map(|object| object.keys());
        let keys = keys.map(String::as_str);
        let is_outermost = found.is_empty();
        let known = fields.iter().copied().filter(|_| is_outermost).chain(keys);
        let name = sent_name(name, known).unwrap_or(name);
        found.push_str(name);
        found.push_str(
            segment
                .get(segment.trim_end_matches(['.', '[']).len()..)
                .unwrap_or(""),
        );
        value = value.and_then(|value| value.get(name));
    }
    found
}

/// The name among those that are known.
fn sent_name<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let letters = |name: &'a str| letters(name);
    let exact = known.clone().find(|known| *known == name);
    let wanted: String = self::letters(name).collect();
    exact.or_else(|| {
        known
            .clone()
            .find(|known| letters(known).eq(wanted.chars()))
    })
}

/// The letters and digits of a name, by which the conventions of `rename_all` do not differ.
fn letters(name: &str) -> impl Iterator<Item = char> {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.map(|letter| letter.to_ascii_lowercase())
}

/// The names of the fields of a struct, as serde reads them; none for other types.
pub(super) fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(FieldProbe) {
        Err(ProbeResult(fields)) => fields,
        Ok(_) => &[],
    }
}

/// A deserializer that has no values, and ends with the names that it was asked for.
struct FieldProbe;

/// The names, as an error.
#[derive(Debug)]
struct ProbeResult(&'static [&'static str]);

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for ProbeResult {}

impl de::Error for ProbeResult {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for FieldProbe {
    type Error = ProbeResult;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbeResult> {
        Err(ProbeResult(&[]))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ProbeResult> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ProbeResult> {
        Err(ProbeResult(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        seq unit unit_struct tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only the names count")]
    struct Order {
        reply_to: String,
        line_items: Vec<String>,
    }

    #[test]
    fn names_are_those_that_clients_send() {
        let fields = fields_of::<Order>();
        assert_eq!(fields, ["replyTo", "lineItems"]);
        assert!(fields_of::<u32>().is_empty());
        let sent = json!({ "lineItems": [{}, { "unit-price": 1 }], "by_name": { "a": 1 } });
        for (path, expected) in [
            ("", ""),
            ("reply_to", "replyTo"),
            ("line_items", "lineItems"),
            ("line_items[1].unit_price", "lineItems[1].unit-price"),
            ("line_items[7].unit_price", "lineItems[7].unit_price"),
            ("by_name.a", "by_name.a"),
            ("other.reply_to", "other.reply_to"),
            ("[1]", "[1]"),
            ("[1].a[2][3].b", "[1].a[2][3].b"),
        ] {
            assert_eq!(sent_path(path, fields, &sent), expected);
        }
    }
}
