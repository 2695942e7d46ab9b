//! The files of migrations: their names, and the line of a statement that fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::driver::System;
use crate::parameters::token_len;

/// The files of a folder by their numbers.
pub(crate) struct MigrationFiles(BTreeMap<i64, PathBuf>);

impl MigrationFiles {
    /// The folder for a system: the folder in `folder` with its name, or `folder` itself.
    ///
    /// # Errors
    /// The message: a file beside such a folder would never be run.
    pub(crate) fn folder(folder: &Path, system: System) -> Result<PathBuf, String> {
        let own = folder.join(system.name());
        if !own.is_dir() {
            return Ok(folder.to_owned());
        }
        match sql_files(folder)?.first() {
            Some(file) => Err(format!(
                "{} is beside the folder {}, so it would never be run; move it into the folder",
                file.display(),
                own.display()
            )),
            None => Ok(own),
        }
    }

    /// Reads the names of the files in a folder.
    ///
    /// # Errors
    /// The message: a name has no number, or two have the same one.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for file in sql_files(folder)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let number = name.split_once('_').map(|(number, _)| number);
            let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.filter(is_number).and_then(|text| text.parse().ok());
            let Some(number) = number.filter(|number: &i64| *number > 0) else {
                return Err(format!(
                    "{} has no number; the name of a migration is as `0001_users.sql`",
                    file.display()
                ));
            };
            // A migration that can be undone has a second file, which is not run.
            if name.ends_with(".down.sql") {
                continue;
            }
            if let Some(other) = files.insert(number, file.clone()) {
                return Err(format!(
                    "{} and {} have the same number, {number}",
                    other.display(),
                    file.display()
                ));
            }
        }
        Ok(Self(files))
    }

    /// The file of a migration.
    pub(crate) fn get(&self, number: i64) -> Option<&Path> {
        self.0.get(&number).map(PathBuf::as_path)
    }
}

/// The SQL files of a folder, sorted.
fn sql_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("{} cannot be read: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_sql = (path.extension()).is_some_and(|name| name.eq_ignore_ascii_case("sql"));
        if is_sql && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The statements of a file with the offsets of their first tokens. The statements of a trigger are a part of it.
pub(crate) fn statements(text: &str) -> Vec<(usize, &str)> {
    let mut statements = Vec::new();
    let mut start = None;
    let mut words: Vec<&str> = Vec::new();
    let mut at = 0_usize;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let end = at.saturating_add(token_len(rest).max(1));
        let token = text.get(at..end).unwrap_or_default();
        let is_comment = token.starts_with("--") || token.starts_with("/*");
        if token == ";" && !is_in_trigger(&words) {
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

/// Whether these are the words of a trigger that has not ended.
fn is_in_trigger(words: &[&str]) -> bool {
    let is = |index: usize, wanted: &str| {
        let word = words.get(index);
        word.is_some_and(|word| word.eq_ignore_ascii_case(wanted))
    };
    let is_trigger = is(0, "create")
        && (is(1, "trigger") || ((is(1, "temp") || is(1, "temporary")) && is(2, "trigger")));
    is_trigger
        && !words
            .last()
            .is_some_and(|word| word.eq_ignore_ascii_case("end"))
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
        let found = statements(text);
        let lines: Vec<usize> = found.iter().map(|(at, _)| line_of(text, *at)).collect();
        assert_eq!(lines, [2, 4, 7]);
        assert!(found[1].1.ends_with("END;"));
        assert!(statements("  \n-- nothing\n;").is_empty());
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
}
