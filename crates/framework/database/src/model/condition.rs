//! `Column` and `RowCondition`: what a query of a model compares and sorts by.

use std::fmt;
use std::marker::PhantomData;

use super::statement::StatementWriter;
use super::value::{ColumnValue, SqlValue};

/// A column of a model, as `User::NAME`, which the derive makes for each field.
pub struct Column<M, T> {
    name: &'static str,
    get: fn(&M) -> &T,
}

impl<M, T> Clone for Column<M, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, T> Copy for Column<M, T> {}

impl<M, T> fmt::Debug for Column<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Column").field(&self.name).finish()
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident: $operator:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name(self, value: impl Into<T>) -> RowCondition<M> {
            self.compare($operator, &value.into())
        }
    )*};
}

impl<M, T> Column<M, T> {
    /// A column and its field.
    #[doc(hidden)]
    pub const fn new(name: &'static str, get: fn(&M) -> &T) -> Self {
        Self { name, get }
    }

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The value of a row.
    pub fn value_of(self, row: &M) -> &T {
        (self.get)(row)
    }

    /// Sorts by it, the smallest value first.
    pub fn asc(self) -> Sorting<M> {
        Sorting::new(self.name, false)
    }

    /// Sorts by it, the largest value first.
    pub fn desc(self) -> Sorting<M> {
        Sorting::new(self.name, true)
    }
}

impl<M, T: ColumnValue> Column<M, T> {
    comparisons! {
        /// Whether the value is this one, also if that is NULL.
        eq: "=";
        /// Whether the value is another one, also if this is NULL.
        ne: "<>";
        /// Whether the value is less.
        lt: "<";
        /// Whether the value is not greater.
        le: "<=";
        /// Whether the value is greater.
        gt: ">";
        /// Whether the value is not less.
        ge: ">=";
    }

    /// Whether the value is one of these.
    pub fn one_of<V: Into<T>>(self, values: impl IntoIterator<Item = V>) -> RowCondition<M> {
        let values = values.into_iter().map(|value| value.into().to_value());
        RowCondition::new(ConditionKind::OneOf(self.name, values.collect()))
    }

    /// Whether the text matches a pattern of SQL, in which `%` is any text and `_` any character.
    pub fn like(self, pattern: impl Into<String>) -> RowCondition<M> {
        let pattern = SqlValue::Text(Some(pattern.into()));
        RowCondition::new(ConditionKind::Compare(self.name, "LIKE", pattern))
    }

    fn compare(self, operator: &'static str, value: &T) -> RowCondition<M> {
        let value = value.to_value();
        RowCondition::new(match operator {
            "=" if value.is_null() => ConditionKind::IsNull(self.name, true),
            "<>" if value.is_null() => ConditionKind::IsNull(self.name, false),
            operator => ConditionKind::Compare(self.name, operator, value),
        })
    }
}

/// A condition on the rows of a model.
pub struct RowCondition<M> {
    kind: ConditionKind,
    model: PhantomData<fn(M)>,
}

#[derive(Clone, Debug)]
enum ConditionKind {
    Compare(&'static str, &'static str, SqlValue),
    IsNull(&'static str, bool),
    OneOf(&'static str, Vec<SqlValue>),
    Both(Box<[Self; 2]>),
    Either(Box<[Self; 2]>),
}

impl<M> RowCondition<M> {
    fn new(kind: ConditionKind) -> Self {
        Self {
            kind,
            model: PhantomData,
        }
    }

    /// Whether both hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(ConditionKind::Both(Box::new([self.kind, other.kind])))
    }

    /// Whether one of both holds.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(ConditionKind::Either(Box::new([self.kind, other.kind])))
    }

    pub(super) fn write(&self, statement: &mut StatementWriter) {
        self.kind.write(statement);
    }
}

impl ConditionKind {
    fn write(&self, statement: &mut StatementWriter) {
        match self {
            Self::Compare(column, operator, value) => {
                statement.name(column);
                statement.text(&format!(" {operator} "));
                statement.value(value.clone());
            }
            Self::IsNull(column, is_null) => {
                statement.name(column);
                statement.text(if *is_null { " IS NULL" } else { " IS NOT NULL" });
            }
            // No value is one of none.
            Self::OneOf(_, values) if values.is_empty() => statement.text("1 = 0"),
            Self::OneOf(column, values) => {
                statement.name(column);
                statement.text(" IN (");
                statement.list(values, |statement, value| statement.value(value.clone()));
                statement.text(")");
            }
            Self::Both(both) => Self::write_two(both, " AND ", statement),
            Self::Either(both) => Self::write_two(both, " OR ", statement),
        }
    }

    fn write_two([one, other]: &[Self; 2], operator: &str, statement: &mut StatementWriter) {
        statement.text("(");
        one.write(statement);
        statement.text(operator);
        other.write(statement);
        statement.text(")");
    }
}

impl<M> Clone for RowCondition<M> {
    fn clone(&self) -> Self {
        Self::new(self.kind.clone())
    }
}

impl<M> fmt::Debug for RowCondition<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// The order of rows by one column.
pub struct Sorting<M> {
    column: &'static str,
    is_descending: bool,
    model: PhantomData<fn(M)>,
}

impl<M> Sorting<M> {
    fn new(column: &'static str, is_descending: bool) -> Self {
        Self {
            column,
            is_descending,
            model: PhantomData,
        }
    }

    pub(super) fn write(&self, statement: &mut StatementWriter) {
        statement.name(self.column);
        if self.is_descending {
            statement.text(" DESC");
        }
    }
}

impl<M> Clone for Sorting<M> {
    fn clone(&self) -> Self {
        Self::new(self.column, self.is_descending)
    }
}

impl<M> fmt::Debug for Sorting<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorting")
            .field("column", &self.column)
            .field("is_descending", &self.is_descending)
            .finish()
    }
}
