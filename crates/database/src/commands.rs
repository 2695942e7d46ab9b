//! `Commands`: `db migrate`, `rollback`, `status` and `seed` as arguments of an application.

use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;

use serde::Serialize;

use crate::db::Db;
use crate::driver::Driver;
use crate::error::DbError;
use crate::migrations::{MigrationState, MigrationStatus, Migrations};

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
    /// use apus::sql::Db;
    ///
    /// fn main() -> Result<(), apus::StartError> {
    ///     let db: Db = Db::open("sqlite:shop.db")?;
    ///     db.commands("migrations").handle_arguments();
    ///     db.migrate("migrations")?;
    ///     apus::App::new().state(db).serve("127.0.0.1:8080")
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
        let mut arguments = std::env::args().skip(1);
        if arguments.next().as_deref() != Some("db") {
            return;
        }
        let code = self.run(arguments, &mut io::stdout(), &mut io::stderr());
        std::process::exit(code);
    }

    /// Runs the command with these arguments, which follow `db`, and returns the exit code.
    pub fn run(
        self,
        arguments: impl IntoIterator<Item = String>,
        output: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> i32 {
        let command = match DbCommand::parse(arguments.into_iter()) {
            Ok(command) => command,
            Err(message) => {
                let _ = writeln!(errors, "error: {message}\n\n{USAGE}");
                return 2;
            }
        };
        match self.execute(command, output) {
            Ok(code) => code,
            Err(message) => {
                let _ = writeln!(errors, "error: {message}");
                1
            }
        }
    }

    fn execute(self, command: DbCommand, output: &mut dyn Write) -> Result<i32, String> {
        let Self {
            db,
            migrations,
            seed,
        } = self;
        let failed = |error: DbError| error.to_string();
        let unwritten = |error: io::Error| format!("the output cannot be written: {error}");
        let list = |output: &mut dyn Write, done: &str, names: Vec<String>| {
            let mut lines = names.iter().map(|name| writeln!(output, "{done} {name}"));
            lines.try_for_each(|line| line)
        };
        match command {
            DbCommand::Help => write!(output, "{USAGE}").map_err(unwritten)?,
            DbCommand::Migrate { dry_run: true } => {
                let pending = db.pending(&migrations).map_err(failed)?;
                print_statements(output, &pending).map_err(unwritten)?;
            }
            DbCommand::Migrate { dry_run: false } => {
                let names = db.apply_pending(&migrations).map_err(failed)?;
                if names.is_empty() {
                    writeln!(output, "nothing to do: all migrations ran").map_err(unwritten)?;
                }
                list(output, "applied", names).map_err(unwritten)?;
            }
            DbCommand::Rollback {
                steps,
                dry_run: true,
            } => {
                let undoing = db.undoing(&migrations, steps).map_err(failed)?;
                print_statements(output, &undoing).map_err(unwritten)?;
            }
            DbCommand::Rollback {
                steps,
                dry_run: false,
            } => {
                let names = db.rollback(&migrations, steps).map_err(failed)?;
                if names.is_empty() {
                    writeln!(output, "nothing to do: no migration ran").map_err(unwritten)?;
                }
                list(output, "rolled back", names).map_err(unwritten)?;
            }
            DbCommand::Status { json } => {
                let all = db.migration_status(&migrations).map_err(failed)?;
                print_status(output, &all, json).map_err(unwritten)?;
                let is_good = |status: &MigrationStatus| {
                    matches!(
                        status.state,
                        MigrationState::Applied | MigrationState::Pending
                    )
                };
                return Ok(if all.iter().all(is_good) { 0 } else { 1 });
            }
            DbCommand::Seed => {
                let seed = seed.ok_or("the application has no seed: `Commands::seed` sets it")?;
                let own = db.clone();
                let seeded = db.apart(async || Ok(seed(own).await)).map_err(failed)?;
                seeded.map_err(|error| format!("the seed failed: {error}"))?;
                writeln!(output, "seeded").map_err(unwritten)?;
            }
        }
        Ok(0)
    }
}

fn print_statements(output: &mut dyn Write, files: &[(String, String)]) -> io::Result<()> {
    if files.is_empty() {
        return writeln!(output, "-- nothing to do");
    }
    for (path, text) in files {
        writeln!(output, "-- {path}\n{}\n", text.trim_end())?;
    }
    Ok(())
}

#[derive(Serialize)]
struct StatusLine<'a> {
    number: i64,
    name: &'a str,
    state: &'static str,
}

fn print_status(output: &mut dyn Write, all: &[MigrationStatus], json: bool) -> io::Result<()> {
    let lines = all.iter().map(|status| StatusLine {
        number: status.number,
        name: &status.name,
        state: status.state.as_str(),
    });
    if json {
        let lines: Vec<_> = lines.collect();
        serde_json::to_writer_pretty(&mut *output, &lines)?;
        return writeln!(output);
    }
    for line in lines {
        let name = match line.name {
            "" => format!("{:04}", line.number),
            name => name.to_owned(),
        };
        writeln!(output, "{:8} {name}", line.state)?;
    }
    Ok(())
}

enum DbCommand {
    Help,
    Migrate { dry_run: bool },
    Rollback { steps: usize, dry_run: bool },
    Status { json: bool },
    Seed,
}

impl DbCommand {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
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
            "new" => return Err("`apus db new NAME` creates the files in the project".to_owned()),
            "" => return Err("a command is missing".to_owned()),
            other => return Err(format!("there is no command {other:?}")),
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
                    *steps = number.ok_or("--steps takes a number from 1")?;
                }
                (Self::Status { json }, "--json") => *json = true,
                (_, other) => return Err(format!("`{name}` does not take {other:?}")),
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
