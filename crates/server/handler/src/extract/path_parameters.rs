//! `PathParameters`: the parameters of a path as serde reads them, as one value, a tuple in order, or fields by name.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use smallvec::SmallVec;

/// The value of a parameter: the text of a request, or a sample of the check before a server listens.
pub(super) trait ParameterValue<'de>:
    Deserializer<'de> + IntoDeserializer<'de, <Self as Deserializer<'de>>::Error>
{
    /// The error for a type that takes another number of parameters.
    fn wrong_count(count: usize, expected: usize) -> <Self as Deserializer<'de>>::Error;
}

/// The names and values of parameters, in order.
pub(super) struct PathParameters<'a, T>(pub(super) SmallVec<[(&'a str, T); 4]>);

impl<'de, T: ParameterValue<'de>> PathParameters<'de, T> {
    fn only(self) -> Result<T, <T as Deserializer<'de>>::Error> {
        let count = self.0.len();
        let mut values = self.in_order();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(T::wrong_count(count, 1)),
        }
    }

    fn in_order(self) -> impl Iterator<Item = T> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

macro_rules! only {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.only()?.$method(visitor)
        }
    )*};
}

impl<'de, T: ParameterValue<'de>> Deserializer<'de> for PathParameters<'de, T> {
    type Error = <T as Deserializer<'de>>::Error;

    only! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_option deserialize_bytes
        deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_seq(SeqDeserializer::new(self.in_order()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self.0.len() {
            count if count == len => self.deserialize_seq(visitor),
            count => Err(T::wrong_count(count, len)),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(MapDeserializer::new(self.0.into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }
}
