//! Rows of a file in CSV (RFC 4180) with names in its first row.

use std::path::Path;

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
    pub(super) fn read(path: &Path, is_random: bool) -> Result<Self, String> {
        let wrong = |error: csv::Error| format!("{}: {error}", path.display());
        let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
        let columns = reader.headers().map_err(wrong)?;
        let columns = columns.iter().map(|name| name.trim().to_owned()).collect();
        let rows: Vec<_> = reader.records().collect::<Result<_, _>>().map_err(wrong)?;
        if rows.is_empty() {
            Err(format!("{} has no row below its names", path.display()))
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
