//! The files of migrations: their names, their statements, and the line of one that fails.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::Utf8Error;

use crate::driver::System;
use crate::parameters::token_len;

/// A file with statements.
#[derive(Clone, Debug)]
pub(crate) struct SqlFile {
    /// Its path, as it is shown.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SqlFile {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// A migration: what it does, and what undoes it.
#[derive(Clone, Debug)]
pub(crate) struct MigrationFile {
    pub(crate) number: i64,
    pub(crate) up: SqlFile,
    pub(crate) down: Option<SqlFile>,
}

impl MigrationFile {
    /// The name of the file, as `0001_users.sql`.
    pub(crate) fn name(&self) -> &str {
        self.up.name()
    }

    /// What the table of migrations says of it.
    pub(crate) fn description(&self) -> String {
        let (_, rest) = self.name().split_once('_').unwrap_or_default();
        let rest = rest.strip_suffix(".sql").unwrap_or(rest);
        rest.strip_suffix(".up").unwrap_or(rest).replace('_', " ")
    }
}

/// The migrations for one system, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct MigrationFiles(BTreeMap<i64, MigrationFile>);

impl MigrationFiles {
    /// Reads the files of a folder, or of the folder in it that is named after the system.
    ///
    /// # Errors
    /// A file cannot be read, or would never be run.
    pub(crate) fn read(folder: &Path, system: System) -> Result<Self, InvalidMigrations> {
        let own = folder.join(system.name());
        let beside = sql_files(folder)?;
        if !own.is_dir() {
            return Self::of(beside);
        }
        match beside.first() {
            Some(file) => Err(InvalidMigrations::BesideOwn {
                file: file.path.clone(),
                own: own.display().to_string(),
            }),
            None => Self::of(sql_files(&own)?),
        }
    }

    /// The files that are embedded in the program, by their paths below the folder.
    ///
    /// # Errors
    /// As [`MigrationFiles::read`].
    pub(crate) fn embedded(
        files: &[(&str, &[u8])],
        system: System,
    ) -> Result<Self, InvalidMigrations> {
        let own = format!("{}/", system.name());
        let is_sql = |name: &str| name.to_ascii_lowercase().ends_with(".sql");
        let read = |prefix: &str| {
            let inside = files.iter().filter_map(|(path, bytes)| {
                let name = path.strip_prefix(prefix)?;
                (!name.contains('/') && is_sql(name)).then_some((*path, *bytes))
            });
            inside
                .map(|(path, bytes)| match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(SqlFile {
                        path: path.to_owned(),
                        text: text.to_owned(),
                    }),
                    Err(error) => Err(InvalidMigrations::NoText {
                        file: path.to_owned(),
                        error,
                    }),
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let beside = read("")?;
        if !files.iter().any(|(path, _)| path.starts_with(&own)) {
            return Self::of(beside);
        }
        match beside.first() {
            Some(file) => Err(InvalidMigrations::BesideOwn {
                file: file.path.clone(),
                own: system.name().to_owned(),
            }),
            None => Self::of(read(&own)?),
        }
    }

    fn of(files: Vec<SqlFile>) -> Result<Self, InvalidMigrations> {
        let mut ups: BTreeMap<i64, SqlFile> = BTreeMap::new();
        let mut downs: BTreeMap<i64, SqlFile> = BTreeMap::new();
        for file in files {
            let number = file.name().split_once('_').map(|(number, _)| number);
            let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.filter(is_number).and_then(|text| text.parse().ok());
            let Some(number) = number.filter(|number: &i64| *number > 0) else {
                return Err(InvalidMigrations::NoNumber(file.path));
            };
            let of_kind = if file.name().ends_with(".down.sql") {
                &mut downs
            } else {
                &mut ups
            };
            if let Some(other) = of_kind.get(&number) {
                return Err(InvalidMigrations::SameNumber {
                    files: [other.path.clone(), file.path],
                    number,
                });
            }
            of_kind.insert(number, file);
        }
        let mut migrations = BTreeMap::new();
        for (number, up) in ups {
            let down = downs.remove(&number);
            migrations.insert(number, MigrationFile { number, up, down });
        }
        match downs.into_values().next() {
            Some(file) => Err(InvalidMigrations::NothingUndone(file.path)),
            None => Ok(Self(migrations)),
        }
    }

    /// A migration.
    pub(crate) fn get(&self, number: i64) -> Option<&MigrationFile> {
        self.0.get(&number)
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &MigrationFile> {
        self.0.values()
    }
}

/// Why the files of migrations cannot be run.
#[derive(Debug)]
pub(crate) enum InvalidMigrations {
    /// A folder or a file cannot be read.
    Unreadable {
        path: PathBuf,
        error: io::Error,
    },
    NoText {
        file: String,
        error: Utf8Error,
    },
    /// The name of this file has no number.
    NoNumber(String),
    SameNumber {
        files: [String; 2],
        number: i64,
    },
    /// This file undoes a migration that does not exist.
    NothingUndone(String),
    /// A file is beside the folder of the system, so it would never be run.
    BesideOwn {
        file: String,
        own: String,
    },
}

impl fmt::Display for InvalidMigrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            Self::NoText { file, error } => write!(f, "{file} is no text: {error}"),
            Self::NoNumber(file) => write!(
                f,
                "{file} has no number; the name of a migration is as `0001_users.sql`"
            ),
            Self::SameNumber {
                files: [one, other],
                number,
            } => write!(f, "{one} and {other} have the same number, {number}"),
            Self::NothingUndone(file) => {
                write!(f, "{file} undoes a migration that does not exist")
            }
            Self::BesideOwn { file, own } => write!(
                f,
                "{file} is beside the folder {own}, so it would never be run; move it into the folder"
            ),
        }
    }
}

/// The SQL files of a folder, sorted.
fn sql_files(folder: &Path) -> Result<Vec<SqlFile>, InvalidMigrations> {
    let unreadable = |path: &Path, error| InvalidMigrations::Unreadable {
        path: path.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        let is_sql = (path.extension()).is_some_and(|name| name.eq_ignore_ascii_case("sql"));
        if is_sql && path.is_file() {
            let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
            files.push(SqlFile {
                path: path.display().to_string(),
                text,
            });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The statements of a file with the offsets of their first tokens. The statements of a trigger or a procedure are a part
/// of it.
pub(crate) fn statements(text: &str, system: System) -> Vec<(usize, &str)> {
    let mut statements = Vec::new();
    let mut start = None;
    let mut words: Vec<&str> = Vec::new();
    let mut at = 0_usize;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let end = at.saturating_add(sql_token_len(rest, system).max(1));
        let token = text.get(at..end).unwrap_or_default();
        let is_comment = token.starts_with("--")
            || token.starts_with("/*")
            || (token.starts_with('#') && system == System::MySql);
        if token == ";" && !is_in_body(&words) {
            let from = start.take();
            statements.extend(from.and_then(|from| Some((from, text.get(from..end)?))));
            words.clear();
        } else if !is_comment && !token.trim().is_empty() {
            start.get_or_insert(at);
            words.push(token);
        }
        at = end;
    }
    statements.extend(start.and_then(|from| Some((from, text.get(from..)?))));
    statements
}

/// Whether one of these statements begins or ends a transaction.
pub(crate) fn ends_transactions(statements: &[(usize, &str)]) -> bool {
    statements.iter().any(|(_, statement)| {
        let word = statement.split(|c: char| !c.is_ascii_alphabetic()).next();
        word.is_some_and(|word| {
            let words = ["begin", "start", "commit", "end", "rollback", "abort"];
            words.iter().any(|own| word.eq_ignore_ascii_case(own))
        })
    })
}

/// The length of the first token, with what only MariaDB has: comments that begin with `#`, strings with backslashes,
/// and names in backticks, which SQLite has as well.
fn sql_token_len(text: &str, system: System) -> usize {
    let is_mysql = system == System::MySql;
    let quoted = |quote: u8, has_escapes: bool| {
        let mut bytes = text.bytes().enumerate().skip(1);
        while let Some((at, byte)) = bytes.next() {
            if byte == b'\\' && has_escapes {
                bytes.next();
            } else if byte == quote {
                return at.saturating_add(1);
            }
        }
        text.len()
    };
    match text.as_bytes().first() {
        Some(b'`') if system != System::Postgres => quoted(b'`', false),
        Some(quote @ (b'\'' | b'"')) if is_mysql => quoted(*quote, true),
        Some(b'#') if is_mysql => text.find('\n').unwrap_or(text.len()),
        _ => token_len(text),
    }
}

/// Whether these are the words of a trigger or a procedure whose body has not ended.
fn is_in_body(words: &[&str]) -> bool {
    let has = |words: &[&str], wanted: &[&str]| {
        let mut words = words.iter();
        words.any(|word| {
            wanted
                .iter()
                .any(|wanted| word.eq_ignore_ascii_case(wanted))
        })
    };
    let is_create = words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case("create"));
    let head = words.get(..words.len().min(12)).unwrap_or_default();
    let ends = words
        .last()
        .is_some_and(|word| word.eq_ignore_ascii_case("end"));
    is_create
        && has(head, &["trigger", "procedure", "function", "event"])
        && has(words, &["begin"])
        && !ends
}

/// The number of the line that an offset is in, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count().saturating_add(1)
}

/// The offset of what a message quotes as `near "..."`, if the text has it once.
pub(crate) fn quoted_offset(text: &str, message: &str) -> Option<usize> {
    let (_, quoted) = message.split_once("near ")?;
    let quote = quoted
        .chars()
        .next()
        .filter(|quote| "'\"".contains(*quote))?;
    let quoted = quoted.get(1..)?;
    // MariaDB quotes the rest of the statement, up to 80 characters, in which quotes may stand.
    let quoted = match quote {
        '\'' => quoted
            .rsplit_once("' at line")
            .map_or(quoted, |(quoted, _)| quoted),
        quote => quoted.split(quote).next().unwrap_or(quoted),
    };
    let mut found = text.match_indices(quoted);
    match (found.next(), found.next()) {
        (Some((offset, _)), None) if !quoted.is_empty() => Some(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_strings_comments_and_triggers() {
        let text = "-- first; a comment\nCREATE TABLE a (x TEXT DEFAULT ';');\n\n\
                    CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a; DELETE FROM a;\nEND;\n\
                    /* ; */ SELECT \"a;b\"\n";
        let found = statements(text, System::Sqlite);
        let lines: Vec<usize> = found.iter().map(|(at, _)| line_of(text, *at)).collect();
        assert_eq!(lines, [2, 4, 7]);
        assert!(found[1].1.ends_with("END;"));
        assert!(statements("  \n-- nothing\n;", System::Sqlite).is_empty());
    }

    #[test]
    fn statements_of_mariadb_have_backslashes_backticks_and_procedures() {
        let text = "# one; comment\nINSERT INTO `a;b` VALUES ('it\\'s;', \"x\\\";\");\n\
                    CREATE OR REPLACE PROCEDURE p()\nBEGIN\n  IF 1 THEN SELECT 1; END IF;\n  SELECT 2;\nEND;\n\
                    SELECT 3";
        let found = statements(text, System::MySql);
        let lines: Vec<usize> = found.iter().map(|(at, _)| line_of(text, *at)).collect();
        assert_eq!(lines, [2, 3, 8]);
    }

    #[test]
    fn a_message_names_an_offset_if_the_text_has_it_once() {
        let text = "CREATE TABLE a (x INT);\nCREATE TABEL b (x INT);";
        let offset = quoted_offset(text, "near \"TABEL\": syntax error").unwrap();
        assert_eq!(line_of(text, offset), 2);
        let told = "You have an error near 'TABEL b (x INT)' at line 1";
        assert_eq!(quoted_offset(text, told), Some(offset));
        for told in [
            "near \"CREATE\": x",
            "near \"\": x",
            "no such table: b",
            "near x",
        ] {
            assert_eq!(quoted_offset(text, told), None, "{told}");
        }
    }

    fn read(names: &[&str]) -> Result<MigrationFiles, InvalidMigrations> {
        let file = |name: &&str| SqlFile {
            path: format!("migrations/{name}"),
            text: String::new(),
        };
        MigrationFiles::of(names.iter().map(file).collect())
    }

    #[test]
    fn the_number_of_a_migration_is_from_1_to_the_largest_of_the_table() {
        for (name, number) in [
            ("0_a.sql", None),
            ("1_a.sql", Some(1)),
            ("0002_a.sql", Some(2)),
            ("9223372036854775807_a.sql", Some(i64::MAX)),
            ("9223372036854775808_a.sql", None),
            ("-1_a.sql", None),
            ("+1_a.sql", None),
            (" 1_a.sql", None),
            ("_a.sql", None),
            ("1.sql", None),
        ] {
            let read = read(&[name]);
            let found = read
                .ok()
                .and_then(|files| Some(files.iter().next()?.number));
            assert_eq!(found, number, "{name}");
        }
    }

    #[test]
    fn migrations_have_descriptions_and_what_undoes_them() {
        let files = [
            "0010_add_names.up.sql",
            "0010_add_names.down.sql",
            "0009_users.sql",
        ];
        let found = read(&files).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.number, one.description(), one.down.is_some()))
            .collect();
        let expected = [
            (9, "users".to_owned(), false),
            (10, "add names".to_owned(), true),
        ];
        assert_eq!(found, expected);
        let alone = read(&["0001_a.down.sql"]).unwrap_err().to_string();
        assert!(alone.contains("undoes a migration that does not exist"));
        let twice = read(&["1_a.up.sql", "01_b.sql"]).unwrap_err().to_string();
        assert!(twice.contains("have the same number, 1"), "{twice}");
        let twice = read(&["1_a.sql", "1_a.down.sql", "1_b.down.sql"]).unwrap_err();
        let twice = twice.to_string();
        assert!(twice.contains("have the same number, 1"), "{twice}");
    }

    #[test]
    fn statements_of_postgresql_have_dollar_quotes_and_no_backticks() {
        let text = "CREATE FUNCTION f() RETURNS int AS $$ BEGIN; END; $$ LANGUAGE sql;\n\
                    SELECT '`;';\nSELECT E'it\\'s;', $tag$;$$;$tag$";
        let found = statements(text, System::Postgres);
        let lines: Vec<usize> = found.iter().map(|(at, _)| line_of(text, *at)).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert!(found[2].1.ends_with("$tag$"));
    }

    #[test]
    fn statements_may_have_no_semicolon_at_the_end_or_several() {
        for (text, count) in [
            ("", 0),
            (";;", 0),
            ("SELECT 1", 1),
            ("SELECT 1;", 1),
            ("SELECT 1;;", 1),
            ("SELECT 1; SELECT 2", 2),
            ("SELECT '", 1),
            ("SELECT 1 -- ;", 1),
        ] {
            assert_eq!(statements(text, System::Sqlite).len(), count, "{text:?}");
        }
    }

    #[test]
    fn a_statement_that_begins_or_ends_a_transaction_is_found_by_its_first_word() {
        for (text, expected) in [
            ("COMMIT;", true),
            ("begin", true),
            ("Start transaction", true),
            ("SELECT 1; ROLLBACK TO a", true),
            ("SELECT 'commit'", false),
            ("COMMITTED", false),
            ("INSERT INTO commits VALUES (1)", false),
        ] {
            let found = ends_transactions(&statements(text, System::Postgres));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn the_line_of_an_offset_counts_from_1() {
        let text = "a\nb\n";
        for (offset, line) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(line_of(text, offset), line, "{offset}");
        }
    }
}
