//! `apus db`: creates the files of migrations, and runs the commands of the project's own program on its database.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::CommandError;
use crate::arguments::DatabaseCommand;
use crate::output::print;
use crate::project_program;

/// The folders of systems in a folder of migrations.
const SYSTEMS: [&str; 3] = ["mysql", "postgres", "sqlite"];

/// Runs a command of `apus db`.
pub(crate) fn run(command: DatabaseCommand) -> Result<(), CommandError> {
    let dry_run = |dry_run: bool| dry_run.then(|| "--dry-run".to_owned());
    let (program, arguments) = match command {
        DatabaseCommand::New { name, folder } => return create(&name, &folder),
        DatabaseCommand::Migrate {
            program,
            dry_run: dry,
        } => (program, vec![Some("migrate".to_owned()), dry_run(dry)]),
        DatabaseCommand::Rollback {
            program,
            steps,
            dry_run: dry,
        } => {
            let steps = format!("--steps={steps}");
            let arguments = vec![Some("rollback".to_owned()), Some(steps), dry_run(dry)];
            (program, arguments)
        }
        DatabaseCommand::Status { program, json } => {
            let json = json.then(|| "--json".to_owned());
            (program, vec![Some("status".to_owned()), json])
        }
        DatabaseCommand::Seed { program } => (program, vec![Some("seed".to_owned())]),
    };
    project_program::run(&program, "db", arguments.into_iter().flatten())
}

/// Creates the files of a migration: in the folder, or in each folder of a system that is in it.
fn create(name: &str, folder: &Path) -> Result<(), CommandError> {
    let name = file_name(name).map_err(|error| CommandError::Misused(error.to_string()))?;
    let failed = |path: &Path, error: std::io::Error| {
        CommandError::Failed(format!("{}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let own: Vec<PathBuf> = SYSTEMS
        .iter()
        .map(|system| folder.join(system))
        .filter(|folder| folder.is_dir())
        .collect();
    let folders = if own.is_empty() {
        vec![folder.to_owned()]
    } else {
        own
    };
    let mut last = 0;
    for folder in &folders {
        last = last.max(last_number(folder).map_err(|error| failed(folder, error))?);
    }
    let number = last.saturating_add(1);
    for folder in &folders {
        let up = folder.join(format!("{number:04}_{name}.sql"));
        let down = folder.join(format!("{number:04}_{name}.down.sql"));
        for (path, text) in [
            (up, "-- The statements of this migration.\n"),
            (down, "-- The statements that undo this migration.\n"),
        ] {
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(|error| failed(&path, error))?;
            print(format!("{}\n", path.display()).as_bytes());
        }
    }
    Ok(())
}

/// The name of a migration in the name of its file: `Add e-mail` becomes `add_e_mail`.
fn file_name(name: &str) -> Result<String, InvalidMigrationName> {
    let words = name.split([' ', '-', '_']).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    let is_word = |word: &String| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if words.is_empty() || !words.iter().all(is_word) {
        return Err(InvalidMigrationName(name.to_owned()));
    }
    Ok(words.join("_"))
}

/// The error for a text that cannot be in the name of a file.
#[derive(Debug)]
struct InvalidMigrationName(String);

impl fmt::Display for InvalidMigrationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no name of a migration: use letters, digits, `-` and `_`, as `add_email`",
            self.0
        )
    }
}

/// The largest number of the files in a folder.
fn last_number(folder: &Path) -> std::io::Result<u64> {
    let mut last = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let number = name
            .split_once('_')
            .and_then(|(number, _)| number.parse().ok());
        if name.ends_with(".sql") {
            last = last.max(number.unwrap_or(0));
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_migrations_become_names_of_files() {
        assert_eq!(file_name("Add e-mail").unwrap(), "add_e_mail");
        assert_eq!(file_name("users").unwrap(), "users");
        for name in ["", "--", "a/b", "é", "a.sql"] {
            assert!(file_name(name).is_err(), "{name}");
        }
    }
}
