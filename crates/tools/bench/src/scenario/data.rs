//! Rows of a file in CSV (RFC 4180) with names in its first row.

use std::fmt;
use std::path::{Path, PathBuf};

/// Rows that templates take values from.
#[derive(Debug)]
pub(super) struct RowSource {
    columns: Vec<String>,
    rows: Vec<csv::StringRecord>,
    /// Whether each run of a scenario takes a row at random, instead of the next one.
    pub(super) is_random: bool,
}

impl RowSource {
    /// Reads a file.
    pub(super) fn read(path: &Path, is_random: bool) -> Result<Self, InvalidRows> {
        let wrong = |error| InvalidRows::Csv {
            path: path.to_owned(),
            error,
        };
        let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
        let columns = reader.headers().map_err(wrong)?;
        let columns = columns.iter().map(|name| name.trim().to_owned()).collect();
        let rows: Vec<_> = reader.records().collect::<Result<_, _>>().map_err(wrong)?;
        if rows.is_empty() {
            Err(InvalidRows::None(path.to_owned()))
        } else {
            Ok(Self {
                columns,
                rows,
                is_random,
            })
        }
    }

    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// How many rows there are; at least one.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn value(&self, row: usize, column: usize) -> &str {
        self.rows
            .get(row)
            .and_then(|row| row.get(column))
            .unwrap_or("")
    }
}

/// Why a file has no rows for templates.
#[derive(Debug)]
pub(super) enum InvalidRows {
    /// It cannot be read, or is no CSV.
    Csv { path: PathBuf, error: csv::Error },
    /// It has no row below the names of its columns.
    None(PathBuf),
}

impl fmt::Display for InvalidRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv { path, error } => write!(f, "{}: {error}", path.display()),
            Self::None(path) => write!(f, "{} has no row below its names", path.display()),
        }
    }
}
