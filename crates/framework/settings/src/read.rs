//! Reads a struct from values (serde), with the key of a value that is not valid, and without the value.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::value::{SettingsValue, ValueKind};

/// The first mistake of values.
#[derive(Debug)]
pub(crate) struct SettingsReadError {
    /// The key, outermost last.
    path: Vec<String>,
    pub(crate) kind: MistakeKind,
}

#[derive(Debug)]
pub(crate) enum MistakeKind {
    /// The value is not what the field takes.
    Invalid(String),
    /// A field of the table at the path has no value.
    Missing(&'static str),
    /// The table at the path has no such field.
    Unknown { expected: &'static [&'static str] },
    /// The value is not one of these.
    NotListed { expected: &'static [&'static str] },
}

impl SettingsReadError {
    fn new(kind: MistakeKind) -> Self {
        Self {
            path: Vec::new(),
            kind,
        }
    }

    fn at(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }

    /// The key, outermost first.
    pub(crate) fn path(&self) -> Vec<String> {
        self.path.iter().rev().cloned().collect()
    }
}

impl fmt::Display for SettingsReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for SettingsReadError {}

/// No message contains the value.
impl de::Error for SettingsReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(MistakeKind::Invalid(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {}", noun(&found)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(MistakeKind::NotListed { expected })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(MistakeKind::Unknown { expected }).at(field)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(MistakeKind::Missing(field))
    }
}

fn noun(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a number",
        Unexpected::Str(_) | Unexpected::Char(_) => "a text",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a table",
        _ => "something else",
    }
}

/// A variable as a number or boolean.
macro_rules! parsed {
    ($($method:ident: $type:ty, $visit:ident, $expected:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsReadError> {
            match &self.kind {
                ValueKind::Variable(text) => match text.trim().parse::<$type>() {
                    Ok(value) => visitor.$visit(value),
                    Err(_) => Err(de::Error::custom(concat!("expected ", $expected))),
                },
                _ => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de SettingsValue {
    type Error = SettingsReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsReadError> {
        match &self.kind {
            ValueKind::Variable(text) | ValueKind::Text(text) => visitor.visit_borrowed_str(text),
            ValueKind::Integer(number) => visitor.visit_i64(*number),
            ValueKind::Float(number) => visitor.visit_f64(*number),
            ValueKind::Boolean(is_set) => visitor.visit_bool(*is_set),
            ValueKind::List(values) => visitor.visit_seq(ListReader(values.iter().enumerate())),
            ValueKind::Table(values) => visitor.visit_map(TableReader {
                values: values.iter(),
                value: None,
            }),
        }
    }

    parsed! {
        deserialize_bool: bool, visit_bool, "true or false";
        deserialize_i8: i8, visit_i8, "an integer from -128 to 127";
        deserialize_i16: i16, visit_i16, "an integer from -32768 to 32767";
        deserialize_i32: i32, visit_i32, "an integer of 32 bits";
        deserialize_i64: i64, visit_i64, "an integer";
        deserialize_u8: u8, visit_u8, "an integer from 0 to 255";
        deserialize_u16: u16, visit_u16, "an integer from 0 to 65535";
        deserialize_u32: u32, visit_u32, "an integer of 32 bits that is not negative";
        deserialize_u64: u64, visit_u64, "an integer that is not negative";
        deserialize_f32: f32, visit_f32, "a number";
        deserialize_f64: f64, visit_f64, "a number";
    }

    fn deserialize_option<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        match &self.kind {
            // A variable cannot be unset in a `.env` file, so an empty one is none.
            ValueKind::Variable(text) if text.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsReadError> {
        let ValueKind::Variable(text) = &self.kind else {
            return self.deserialize_any(visitor);
        };
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let items = items
            .map(|item| SettingsValue::new(ValueKind::Variable(item.to_owned()), &self.origin));
        visitor.visit_seq(VariableItems(items.collect::<Vec<_>>().into_iter()))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        match &self.kind {
            ValueKind::Variable(text) | ValueKind::Text(text) => {
                visitor.visit_enum(text.as_str().into_deserializer())
            }
            ValueKind::Table(values) if values.len() == 1 => match values.first_key_value() {
                Some((name, value)) => visitor.visit_enum(VariantReader { name, value }),
                None => self.deserialize_any(visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct ListReader<'de>(std::iter::Enumerate<std::slice::Iter<'de, SettingsValue>>);

impl<'de> SeqAccess<'de> for ListReader<'de> {
    type Error = SettingsReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SettingsReadError> {
        let Some((index, value)) = self.0.next() else {
            return Ok(None);
        };
        let read = seed.deserialize(value);
        read.map(Some).map_err(|error| error.at(&index.to_string()))
    }
}

/// The items of a variable, which are read while they live.
struct VariableItems(std::vec::IntoIter<SettingsValue>);

impl<'de> SeqAccess<'de> for VariableItems {
    type Error = SettingsReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SettingsReadError> {
        let Some(item) = self.0.next() else {
            return Ok(None);
        };
        let ValueKind::Variable(text) = item.kind else {
            return Ok(None);
        };
        seed.deserialize(VariableItem(text)).map(Some)
    }
}

/// One item of a variable.
struct VariableItem(String);

/// An item as a number or boolean.
macro_rules! parsed_item {
    ($($method:ident: $type:ty, $visit:ident, $expected:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsReadError> {
            match self.0.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(de::Error::custom(concat!("expected ", $expected, " between commas"))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for VariableItem {
    type Error = SettingsReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsReadError> {
        visitor.visit_string(self.0)
    }

    parsed_item! {
        deserialize_bool: bool, visit_bool, "true or false";
        deserialize_i32: i32, visit_i32, "integers";
        deserialize_i64: i64, visit_i64, "integers";
        deserialize_u8: u8, visit_u8, "integers";
        deserialize_u16: u16, visit_u16, "integers from 0 to 65535";
        deserialize_u32: u32, visit_u32, "integers";
        deserialize_u64: u64, visit_u64, "integers";
        deserialize_f64: f64, visit_f64, "numbers";
    }

    fn deserialize_option<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

struct TableReader<'de> {
    values: std::collections::btree_map::Iter<'de, String, SettingsValue>,
    value: Option<(&'de str, &'de SettingsValue)>,
}

impl<'de> MapAccess<'de> for TableReader<'de> {
    type Error = SettingsReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, SettingsReadError> {
        let Some((key, value)) = self.values.next() else {
            return Ok(None);
        };
        self.value = Some((key, value));
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, SettingsReadError> {
        match self.value.take() {
            Some((key, value)) => seed.deserialize(value).map_err(|error| error.at(key)),
            None => Err(de::Error::custom("a key has no value")),
        }
    }
}

/// A variant of an enum with a value: a table with one key.
struct VariantReader<'de> {
    name: &'de str,
    value: &'de SettingsValue,
}

impl<'de> EnumAccess<'de> for VariantReader<'de> {
    type Error = SettingsReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), SettingsReadError> {
        let variant = seed.deserialize(StrDeserializer::<SettingsReadError>::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for VariantReader<'de> {
    type Error = SettingsReadError;

    fn unit_variant(self) -> Result<(), SettingsReadError> {
        Err(de::Error::custom("expected a text"))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, SettingsReadError> {
        seed.deserialize(self.value)
            .map_err(|error| error.at(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        let read = self.value.deserialize_seq(visitor);
        read.map_err(|error| error.at(self.name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsReadError> {
        let read = self.value.deserialize_any(visitor);
        read.map_err(|error| error.at(self.name))
    }
}
