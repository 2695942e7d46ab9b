//! `StatementWriter`: the text of a statement in the syntax of a database, and its values.

use std::fmt::Write;

use sqlx::any::AnyArguments;
use sqlx::{AssertSqlSafe, Error};

use super::value::SqlValue;
use crate::driver::System;

/// A statement while it is written. Names come from the program, and all values are parameters.
pub(super) struct StatementWriter {
    system: System,
    text: String,
    values: Vec<SqlValue>,
}

impl StatementWriter {
    pub(super) fn new(system: System, text: &str) -> Self {
        Self {
            system,
            text: text.to_owned(),
            values: Vec::new(),
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// The name of a table or a column. The derive accepts only letters, digits and underscores.
    pub(super) fn name(&mut self, name: &str) {
        let quote = match self.system {
            System::MySql => '`',
            System::Sqlite | System::Postgres => '"',
        };
        self.text.push(quote);
        self.text.push_str(name);
        self.text.push(quote);
    }

    pub(super) fn value(&mut self, value: SqlValue) {
        self.values.push(value);
        match self.system {
            // Writing to a String does not fail.
            System::Postgres => drop(write!(self.text, "${}", self.values.len())),
            System::Sqlite | System::MySql => self.text.push('?'),
        }
    }

    /// What `write` writes for each, with commas.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push_str(", ");
            }
            write(self, item);
        }
    }

    /// The statement, for an executor.
    pub(super) fn finish(self) -> Result<(AssertSqlSafe<String>, Option<AnyArguments>), Error> {
        let mut arguments = AnyArguments::default();
        for value in self.values {
            value.add_to(&mut arguments).map_err(Error::Encode)?;
        }
        Ok((AssertSqlSafe(self.text), Some(arguments)))
    }
}
