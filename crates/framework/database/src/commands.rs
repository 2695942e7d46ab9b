//! `Commands`: `db migrate`, `rollback`, `status` and `seed` as arguments of an application.

use std::fmt::{self, Write as _};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;

use apus_commands::{CommandFailure, CommandGroup, CommandReport};
use serde::Serialize;

use crate::db::Db;
use crate::driver::Driver;
use crate::error::DbError;
use crate::migrations::{MigrationState, MigrationStatus, Migrations};

const GROUP: CommandGroup = CommandGroup {
    name: "db",
    usage: USAGE,
};

const USAGE: &str = "\
Usage: db COMMAND

Commands:
  migrate [--dry-run]               run the migrations that did not run yet
  rollback [--steps N] [--dry-run]  undo the last migration, or the last N
  status [--json]                   list the migrations, and whether they ran
  seed                              fill the database with the data of the application

--dry-run prints the statements and runs none.

Exit status: 0 success, 1 failure, 2 wrong arguments.
";

type SeedFuture = Pin<Box<dyn Future<Output = Result<(), String>>>>;
type Seed<D> = Box<dyn FnOnce(Db<D>) -> SeedFuture + Send>;

/// The commands of a database, which an application responds to if its first argument is `db`: [`Db::commands`].
///
/// `apus db migrate` in the folder of a project, and `shop db migrate` where only the program is, do the same. Exit codes:
/// 0 for success, 1 for a failure, 2 for wrong arguments. `status` fails if a migration was changed, is missing or failed.
pub struct Commands<D: Driver> {
    db: Db<D>,
    migrations: Migrations,
    seed: Option<Seed<D>>,
}

impl<D: Driver> Db<D> {
    /// The commands of this database, for a `main`:
    ///
    /// ```no_run
    /// use apus_database::{Db, DbError};
    ///
    /// fn main() -> Result<(), DbError> {
    ///     let db: Db = Db::open("sqlite:shop.db")?;
    ///     db.commands("migrations").handle_arguments();
    ///     db.migrate("migrations")
    ///     // And the server.
    /// }
    /// ```
    pub fn commands(&self, migrations: impl Into<Migrations>) -> Commands<D> {
        Commands {
            db: self.clone(),
            migrations: migrations.into(),
            seed: None,
        }
    }
}

impl<D: Driver> Commands<D> {
    /// What `db seed` runs: `.seed(async |db| Product::fill(&db).await)`.
    #[must_use]
    pub fn seed<S, E>(mut self, seed: S) -> Self
    where
        S: AsyncFnOnce(Db<D>) -> Result<(), E> + Send + 'static,
        E: fmt::Display,
    {
        self.seed = Some(Box::new(|db| {
            Box::pin(async move { seed(db).await.map_err(|error| error.to_string()) })
        }));
        self
    }

    /// Runs the command and ends the process, if the first argument of the program is `db`. Else it does nothing.
    pub fn handle_arguments(self) {
        GROUP.handle(|arguments| self.execute(arguments));
    }

    /// Runs the command with these arguments, which follow `db`, and returns the exit code.
    pub fn run(
        self,
        arguments: impl IntoIterator<Item = String>,
        output: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> i32 {
        GROUP.finish(self.execute(&mut arguments.into_iter()), output, errors)
    }

    fn execute(
        self,
        arguments: &mut dyn Iterator<Item = String>,
    ) -> Result<CommandReport, CommandFailure> {
        let command = DbCommand::parse(arguments)?;
        let Self {
            db,
            migrations,
            seed,
        } = self;
        let failed = |error: DbError| CommandFailure::failed(error);
        let output = match command {
            DbCommand::Help => USAGE.to_owned(),
            DbCommand::Migrate { dry_run: true } => {
                statements(&db.pending(&migrations).map_err(failed)?)
            }
            DbCommand::Migrate { dry_run: false } => {
                let names = db.apply_pending(&migrations).map_err(failed)?;
                done("applied", &names, "nothing to do: all migrations ran")
            }
            DbCommand::Rollback {
                steps,
                dry_run: true,
            } => statements(&db.undoing(&migrations, steps).map_err(failed)?),
            DbCommand::Rollback {
                steps,
                dry_run: false,
            } => {
                let names = db.rollback(&migrations, steps).map_err(failed)?;
                done("rolled back", &names, "nothing to do: no migration ran")
            }
            DbCommand::Status { json } => {
                return status(&db.migration_status(&migrations).map_err(failed)?, json);
            }
            DbCommand::Seed => {
                let seed = seed.ok_or_else(|| {
                    CommandFailure::failed("the application has no seed: `Commands::seed` sets it")
                })?;
                let own = db.clone();
                let seeded = db.apart(async || Ok(seed(own).await)).map_err(failed)?;
                seeded
                    .map_err(|cause| CommandFailure::Failed(format!("the seed failed: {cause}")))?;
                "seeded\n".to_owned()
            }
        };
        Ok(output.into())
    }
}

/// The names of migrations with what was done, or a line if there are none.
fn done(what: &str, names: &[String], nothing: &str) -> String {
    match names {
        [] => format!("{nothing}\n"),
        names => names.iter().fold(String::new(), |mut lines, name| {
            let _ = writeln!(lines, "{what} {name}");
            lines
        }),
    }
}

/// The statements of files, each with its path before it.
fn statements(files: &[(String, String)]) -> String {
    if files.is_empty() {
        return "-- nothing to do\n".to_owned();
    }
    files.iter().fold(String::new(), |mut text, (path, file)| {
        let _ = writeln!(text, "-- {path}\n{}\n", file.trim_end());
        text
    })
}

#[derive(Serialize)]
struct StatusLine<'a> {
    number: i64,
    name: &'a str,
    state: &'static str,
}

/// The list of the migrations. It is a failure if one was changed, is missing or failed.
fn status(all: &[MigrationStatus], json: bool) -> Result<CommandReport, CommandFailure> {
    let lines = all.iter().map(|status| StatusLine {
        number: status.number,
        name: &status.name,
        state: status.state.as_str(),
    });
    let mut report = CommandReport::default();
    if json {
        let list = serde_json::to_string_pretty(&lines.collect::<Vec<_>>());
        report.output = list.map_err(CommandFailure::failed)? + "\n";
    } else {
        for line in lines {
            let name = match line.name {
                "" => format!("{:04}", line.number),
                name => name.to_owned(),
            };
            let _ = writeln!(report.output, "{:8} {name}", line.state);
        }
    }
    let is_good = |status: &&MigrationStatus| {
        matches!(
            status.state,
            MigrationState::Applied | MigrationState::Pending
        )
    };
    match all.iter().filter(|status| !is_good(status)).count() {
        0 => {}
        1 => {
            let failure = "1 migration was changed, is missing or failed";
            report.failures.push(failure.to_owned());
        }
        count => {
            let failure = format!("{count} migrations were changed, are missing or failed");
            report.failures.push(failure);
        }
    }
    Ok(report)
}

enum DbCommand {
    Help,
    Migrate { dry_run: bool },
    Rollback { steps: usize, dry_run: bool },
    Status { json: bool },
    Seed,
}

impl DbCommand {
    fn parse(arguments: &mut dyn Iterator<Item = String>) -> Result<Self, CommandFailure> {
        let wrong = CommandFailure::WrongArguments;
        let name = arguments.next().unwrap_or_default();
        let mut command = match &*name {
            "help" | "--help" | "-h" => Self::Help,
            "migrate" => Self::Migrate { dry_run: false },
            "rollback" => Self::Rollback {
                steps: 1,
                dry_run: false,
            },
            "status" => Self::Status { json: false },
            "seed" => Self::Seed,
            "new" => {
                return Err(wrong(
                    "`apus db new NAME` creates the files in the project".to_owned(),
                ));
            }
            "" => return Err(wrong("a command is missing".to_owned())),
            other => return Err(wrong(format!("there is no command {other:?}"))),
        };
        while let Some(argument) = arguments.next() {
            match (&mut command, &*argument) {
                (_, "--help" | "-h") => command = Self::Help,
                (Self::Migrate { dry_run } | Self::Rollback { dry_run, .. }, "--dry-run") => {
                    *dry_run = true
                }
                (Self::Rollback { steps, .. }, steps_argument)
                    if matches!(steps_argument.split('=').next(), Some("--steps")) =>
                {
                    let number = match steps_argument.split_once('=') {
                        Some((_, number)) => number.to_owned(),
                        None => arguments.next().unwrap_or_default(),
                    };
                    let number = number.parse().ok().filter(|number| *number > 0);
                    *steps =
                        number.ok_or_else(|| wrong("--steps takes a number from 1".to_owned()))?;
                }
                (Self::Status { json }, "--json") => *json = true,
                (_, other) => return Err(wrong(format!("`{name}` does not take {other:?}"))),
            }
        }
        Ok(command)
    }
}

impl<D: Driver> fmt::Debug for Commands<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands")
            .field("db", &self.db)
            .field("migrations", &self.migrations)
            .finish_non_exhaustive()
    }
}
