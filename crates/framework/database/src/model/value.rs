//! `ColumnValue`: the types of columns, as all databases have them.

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::error::BoxDynError;
use sqlx::{Arguments, Error, Row, ValueRef};

/// A value for a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// A truth value.
    Bool(Option<bool>),
    /// An integer of 16 bits.
    SmallInt(Option<i16>),
    /// An integer of 32 bits.
    Integer(Option<i32>),
    /// An integer of 64 bits.
    BigInt(Option<i64>),
    /// A floating point number of 32 bits.
    Real(Option<f32>),
    /// A floating point number of 64 bits.
    Double(Option<f64>),
    /// A text.
    Text(Option<String>),
    /// Bytes.
    Blob(Option<Vec<u8>>),
}

impl SqlValue {
    pub(super) fn is_null(&self) -> bool {
        matches!(
            self,
            Self::Bool(None)
                | Self::SmallInt(None)
                | Self::Integer(None)
                | Self::BigInt(None)
                | Self::Real(None)
                | Self::Double(None)
                | Self::Text(None)
                | Self::Blob(None)
        )
    }

    pub(super) fn add_to(self, arguments: &mut AnyArguments) -> Result<(), BoxDynError> {
        match self {
            Self::Bool(value) => arguments.add(value),
            Self::SmallInt(value) => arguments.add(value),
            Self::Integer(value) => arguments.add(value),
            Self::BigInt(value) => arguments.add(value),
            Self::Real(value) => arguments.add(value),
            Self::Double(value) => arguments.add(value),
            Self::Text(value) => arguments.add(value),
            Self::Blob(value) => arguments.add(value),
        }
    }
}

/// The type of a column that a [`Model`](crate::Model) can have: `i16`, `i32`, `i64`, `f32`, `f64`, `bool`, `String`,
/// `Vec<u8>`, or an `Option` of one for a column that can be NULL. A type of your own converts to one of these.
///
/// A `bool` is a `BOOLEAN` in PostgreSQL, an `INTEGER` in SQLite and a `SMALLINT` in MariaDB.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a column",
    label = "no type of a column",
    note = "a column is an `i16`, `i32`, `i64`, `f32`, `f64`, `bool`, `String`, `Vec<u8>`, or an `Option` of one",
    note = "`#[model(skip)]` leaves a field out; a type of your own can implement `ColumnValue`"
)]
pub trait ColumnValue: Clone + Send + Sync + 'static {
    /// The value for a statement.
    fn to_value(&self) -> SqlValue;

    /// NULL, as a value of this type.
    fn null() -> SqlValue;

    /// Reads the column of a row.
    ///
    /// # Errors
    /// The row has no such column, or its value is of another type.
    fn read(row: &AnyRow, column: &str) -> Result<Self, Error>;

    /// The value of a key that the database made.
    #[doc(hidden)]
    fn of_new_key(_key: i64) -> Option<Self> {
        None
    }
}

macro_rules! column_values {
    ($($type:ty: $variant:ident, $read:expr, $key:expr;)*) => {$(
        impl ColumnValue for $type {
            fn to_value(&self) -> SqlValue {
                SqlValue::$variant(Some(self.clone()))
            }

            fn null() -> SqlValue {
                SqlValue::$variant(None)
            }

            fn read(row: &AnyRow, column: &str) -> Result<Self, Error> {
                let read: fn(&AnyRow, &str) -> Result<Self, Error> = $read;
                read(row, column)
            }

            fn of_new_key(key: i64) -> Option<Self> {
                let of_key: fn(i64) -> Option<Self> = $key;
                of_key(key)
            }
        }
    )*};
}

column_values! {
    i16: SmallInt, |row, column| row.try_get(column), |key| key.try_into().ok();
    i32: Integer, |row, column| row.try_get(column), |key| key.try_into().ok();
    i64: BigInt, |row, column| row.try_get(column), Some;
    f32: Real, |row, column| row.try_get(column), |_| None;
    f64: Double, read_double, |_| None;
    bool: Bool, read_bool, |_| None;
    String: Text, |row, column| row.try_get(column), |_| None;
    Vec<u8>: Blob, |row, column| row.try_get(column), |_| None;
}

/// SQLite stores a whole number in a column of floating point numbers as one.
fn read_double(row: &AnyRow, column: &str) -> Result<f64, Error> {
    row.try_get(column)
        .or_else(|error| {
            row.try_get::<f32, _>(column)
                .map(f64::from)
                .map_err(|_| error)
        })
        .or_else(|error| {
            row.try_get::<i32, _>(column)
                .map(f64::from)
                .map_err(|_| error)
        })
}

/// SQLite and MariaDB have integers.
fn read_bool(row: &AnyRow, column: &str) -> Result<bool, Error> {
    row.try_get(column).or_else(|error| {
        row.try_get::<i64, _>(column)
            .map(|value| value != 0)
            .map_err(|_| error)
    })
}

impl<T: ColumnValue> ColumnValue for Option<T> {
    fn to_value(&self) -> SqlValue {
        self.as_ref().map_or_else(T::null, T::to_value)
    }

    fn null() -> SqlValue {
        T::null()
    }

    fn read(row: &AnyRow, column: &str) -> Result<Self, Error> {
        if row.try_get_raw(column)?.is_null() {
            return Ok(None);
        }
        T::read(row, column).map(Some)
    }
}

/// A column that refers to a key of type `K`: one of this type, or an `Option` of it.
pub trait ForeignKey<K>: ColumnValue {
    /// The key that it refers to; `None` if it is NULL.
    fn target(&self) -> Option<&K>;
}

impl<K: ColumnValue> ForeignKey<K> for K {
    fn target(&self) -> Option<&K> {
        Some(self)
    }
}

impl<K: ColumnValue> ForeignKey<K> for Option<K> {
    fn target(&self) -> Option<&K> {
        self.as_ref()
    }
}
