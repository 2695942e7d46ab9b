//! Whether the type of a `Path` can be read from the parameters of a route, found without a request.
//!
//! The type is read from sample values. An error of the shape of the type is a mistake; an error of a value only
//! says that the sample does not suit.

use std::cell::Cell;
use std::fmt;

use serde::de::value::SeqDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::path_parameters::{ParameterValue, PathParameters};

/// Texts of which most types accept one.
const SAMPLES: [&str; 8] = [
    "1",
    "a",
    "00000000-0000-4000-8000-000000000000",
    "2000-01-01",
    "2000-01-01T00:00:00Z",
    "00:00:00",
    "127.0.0.1",
    "en",
];

/// Checks a type against the names of the parameters.
///
/// # Errors
/// What does not match, as a part of a sentence: `takes 2 parameters`.
pub(super) fn check<T: de::DeserializeOwned>(names: &[&str]) -> Result<(), String> {
    let mut samples = vec![0; names.len()];
    loop {
        let last = Cell::new(None);
        let values = names.iter().zip(&samples).enumerate();
        let parameters = values.map(|(index, (name, sample))| {
            let text = SAMPLES.get(*sample).copied().unwrap_or_default();
            (
                *name,
                SampleValue {
                    index,
                    text,
                    last: &last,
                },
            )
        });
        let error = match T::deserialize(PathParameters(parameters.collect())) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error {
            ShapeError::Shape(text) => return Err(text),
            ShapeError::Value => match last.get().and_then(|index| samples.get_mut(index)) {
                Some(sample) if sample.saturating_add(1) < SAMPLES.len() => {
                    *sample = sample.saturating_add(1);
                }
                // No sample suits, so nothing is known.
                _ => return Ok(()),
            },
        }
    }
}

#[derive(Debug)]
enum ShapeError {
    /// The shape of the type does not match the parameters.
    Shape(String),
    /// A value is not accepted.
    Value,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape(text) => text,
            Self::Value => "a value is not accepted",
        })
    }
}

impl std::error::Error for ShapeError {}

impl de::Error for ShapeError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Value
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Shape(format!("has a field {field:?}"))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::Shape(format!("has no field {field:?}"))
    }
}

/// A sample in place of the value of a parameter.
struct SampleValue<'a> {
    index: usize,
    text: &'static str,
    /// The last parameter that was read.
    last: &'a Cell<Option<usize>>,
}

macro_rules! numbers {
    ($($method:ident: $visit:ident, $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
            self.last.set(Some(self.index));
            visitor.$visit(<$type>::from(1u8))
        }
    )*};
}

impl<'de> Deserializer<'de> for SampleValue<'de> {
    type Error = ShapeError;

    numbers! {
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
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        self.last.set(Some(self.index));
        visitor.visit_borrowed_str(self.text)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        self.last.set(Some(self.index));
        visitor.visit_i8(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        self.last.set(Some(self.index));
        visitor.visit_bool(true)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        self.last.set(Some(self.index));
        visitor.visit_char('1')
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::once(self)))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        self.last.set(Some(self.index));
        let first = variants.first().copied().unwrap_or(self.text);
        visitor.visit_enum(first.into_deserializer())
    }

    forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> ParameterValue<'de> for SampleValue<'de> {
    fn wrong_count(_: usize, expected: usize) -> ShapeError {
        ShapeError::Shape(match expected {
            1 => "takes one parameter".to_owned(),
            expected => format!("takes {expected} parameters"),
        })
    }
}

impl<'de> IntoDeserializer<'de, ShapeError> for SampleValue<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Item {
        id: u32,
        address: IpAddr,
        kind: Kind,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Lenient {
        id: Option<u32>,
        #[serde(default)]
        tag: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        New,
        Old,
    }

    #[derive(Deserialize)]
    struct Id(#[expect(dead_code, reason = "only its shape matters")] u64);

    #[test]
    fn types_that_match_the_parameters_are_accepted() {
        check::<()>(&[]).unwrap();
        check::<u32>(&["id"]).unwrap();
        check::<i8>(&["id"]).unwrap();
        check::<String>(&["id"]).unwrap();
        check::<Id>(&["id"]).unwrap();
        check::<Kind>(&["kind"]).unwrap();
        check::<IpAddr>(&["address"]).unwrap();
        check::<(u32,)>(&["id"]).unwrap();
        check::<(u32, IpAddr, Kind)>(&["id", "address", "kind"]).unwrap();
        check::<Item>(&["kind", "address", "id", "more"]).unwrap();
        check::<Lenient>(&["id"]).unwrap();
        check::<Lenient>(&["other"]).unwrap();
        for names in [&[][..], &["a"], &["a", "b"]] {
            check::<Vec<String>>(names).unwrap();
            check::<HashMap<String, String>>(names).unwrap();
        }
    }

    #[test]
    fn types_of_another_shape_are_mistakes() {
        for names in [&[][..], &["a", "b"]] {
            assert_eq!(check::<u32>(names).unwrap_err(), "takes one parameter");
            assert_eq!(check::<Id>(names).unwrap_err(), "takes one parameter");
            assert_eq!(check::<Kind>(names).unwrap_err(), "takes one parameter");
        }
        for names in [&[][..], &["a"], &["a", "b", "c"]] {
            let error = check::<(u32, u32)>(names).unwrap_err();
            assert_eq!(error, "takes 2 parameters");
        }
        // Fields before it are read from samples of several kinds.
        assert_eq!(
            check::<Item>(&["id", "address"]).unwrap_err(),
            "has a field \"kind\""
        );
        assert_eq!(check::<Item>(&[]).unwrap_err(), "has a field \"id\"");
    }
}
