//! Serde deserializers of the texts of path parameters, queries and forms.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use apus_http::path;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use smallvec::{SmallVec, smallvec};

use super::path_parameters::{ParameterValue, PathParameters};

/// The values of one name, at least one.
#[derive(Clone, Debug)]
pub(super) struct FieldValues<'a>(SmallVec<[Cow<'a, str>; 1]>);

impl<'a> FieldValues<'a> {
    fn one(text: impl Into<Cow<'a, str>>) -> Self {
        Self(smallvec![text.into()])
    }

    fn single(self) -> Result<Cow<'a, str>, Error> {
        let mut texts = self.0.into_iter();
        match (texts.next(), texts.next()) {
            (Some(text), None) => Ok(text),
            _ => Err(de::Error::custom("a value came more than once")),
        }
    }
}

macro_rules! parsed {
    ($($method:ident: $visit:ident, $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let text = self.single()?;
            match text.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(de::Error::invalid_value(de::Unexpected::Str(&text), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for FieldValues<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.single()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    /// Browsers send `on` for a checkbox without a value (HTML Living Standard section 4.10.5.1.15).
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.single()?;
        match &*text {
            "true" | "on" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            text => Err(de::Error::invalid_value(
                de::Unexpected::Str(text),
                &visitor,
            )),
        }
    }

    parsed! {
        deserialize_i8: visit_i8, i8;
        deserialize_i16: visit_i16, i16;
        deserialize_i32: visit_i32, i32;
        deserialize_i64: visit_i64, i64;
        deserialize_i128: visit_i128, i128;
        deserialize_u8: visit_u8, u8;
        deserialize_u16: visit_u16, u16;
        deserialize_u32: visit_u32, u32;
        deserialize_u64: visit_u64, u64;
        deserialize_u128: visit_u128, u128;
        deserialize_f32: visit_f32, f32;
        deserialize_f64: visit_f64, f64;
        deserialize_char: visit_char, char;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(
            self.0.into_iter().map(FieldValues::one),
        ))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.single()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for FieldValues<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The parameters of the path of a request.
pub(super) fn path_parameters<'a>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
) -> PathParameters<'a, FieldValues<'a>> {
    PathParameters(
        texts
            .map(|(name, text)| (name, FieldValues::one(text)))
            .collect(),
    )
}

impl<'de> ParameterValue<'de> for FieldValues<'de> {
    fn wrong_count(count: usize, expected: usize) -> Error {
        match expected {
            1 => de::Error::invalid_length(count, &"one parameter in the path"),
            _ => de::Error::invalid_length(count, &"as many parameters as the route has"),
        }
    }
}

/// The fields of a query or a form, each with all its values, in order.
#[derive(Default)]
pub(super) struct FormFields<'a> {
    fields: Vec<(Cow<'a, str>, FieldValues<'a>)>,
    /// The index of each name. Clients choose the names, so a search must not be linear.
    positions: HashMap<Cow<'a, str>, usize>,
}

/// The most fields. More are an attack on maps and lists.
const MAX_FIELDS: usize = 1024;

impl<'a> FormFields<'a> {
    /// The fields of parsed names and values, in order.
    pub(super) fn from_texts(
        texts: impl IntoIterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    ) -> Self {
        let mut fields = Self::default();
        for (name, value) in texts {
            fields.add(name, value);
        }
        fields
    }

    /// The values of each field by its name.
    pub(super) fn into_values(self) -> BTreeMap<String, Vec<String>> {
        let texts = |values: FieldValues<'_>| values.0.into_iter().map(Cow::into_owned).collect();
        let fields = self.fields.into_iter();
        fields
            .map(|(name, values)| (name.into_owned(), texts(values)))
            .collect()
    }

    fn add(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        let known = self.positions.get(&name);
        match known.and_then(|position| self.fields.get_mut(*position)) {
            Some((_, texts)) => texts.0.push(value),
            None => {
                self.positions.insert(name.clone(), self.fields.len());
                self.fields.push((name, FieldValues::one(value)));
            }
        }
    }

    /// Parses `name=value&...` (WHATWG URL, application/x-www-form-urlencoded).
    pub(super) fn parse(encoded: &'a [u8]) -> Result<Self, Error> {
        let mut fields = Self::default();
        for (count, field) in encoded
            .split(|byte| *byte == b'&')
            .filter(|field| !field.is_empty())
            .enumerate()
        {
            if count >= MAX_FIELDS {
                return Err(de::Error::custom("there are too many fields"));
            }
            let split = memchr::memchr(b'=', field).unwrap_or(field.len());
            let (name, value) = field.split_at(split);
            let name = decode(name)?;
            let value = decode(value.strip_prefix(b"=").unwrap_or(value))?;
            fields.add(name, value);
        }
        Ok(fields)
    }
}

fn decode(text: &[u8]) -> Result<Cow<'_, str>, Error> {
    let not_utf8 = || de::Error::custom("a field is not UTF-8");
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return std::str::from_utf8(text)
            .map(Cow::Borrowed)
            .map_err(|_| not_utf8());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        decoded.push(match (first, after) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (path::hex(*high), path::hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            (byte, _) => *byte,
        });
    }
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| not_utf8())
}

impl<'de> Deserializer<'de> for FormFields<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(self.fields.into_iter()))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        seq unit unit_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(encoded: &str) -> Vec<(String, Vec<String>)> {
        let fields = FormFields::parse(encoded.as_bytes()).unwrap();
        fields.into_values().into_iter().collect()
    }

    #[test]
    fn a_form_is_split_and_decoded_once() {
        for (encoded, name, value) in [
            ("a=b", "a", "b"),
            ("a", "a", ""),
            ("a=", "a", ""),
            ("=b", "", "b"),
            ("a=b=c", "a", "b=c"),
            ("a=b;c", "a", "b;c"),
            ("a+b=c+d", "a b", "c d"),
            ("%61=%C3%A9", "a", "é"),
            ("a=%2541", "a", "%41"),
            ("a=%26%3D%2B", "a", "&=+"),
            ("a=%", "a", "%"),
            ("a=%4", "a", "%4"),
            ("a=%4g%41", "a", "%4gA"),
            ("&&a=b&", "a", "b"),
        ] {
            let expected = [(name.to_owned(), vec![value.to_owned()])];
            assert_eq!(parsed(encoded), expected, "{encoded}");
        }
        let several = parsed("b=1&a=2&b=3");
        assert_eq!(several[1].1, ["1", "3"]);
        assert!(parsed("").is_empty());
        for encoded in [&b"a=\xff"[..], b"a=%FF", b"%FF=a"] {
            assert!(FormFields::parse(encoded).is_err(), "{encoded:?}");
        }
    }

    #[test]
    fn a_form_has_at_most_the_largest_number_of_fields() {
        for (count, is_accepted) in [
            (MAX_FIELDS - 1, true),
            (MAX_FIELDS, true),
            (MAX_FIELDS + 1, false),
        ] {
            let encoded = "a=b&&".repeat(count);
            let parsed = FormFields::parse(encoded.as_bytes());
            assert_eq!(parsed.is_ok(), is_accepted, "{count}");
        }
    }
}
