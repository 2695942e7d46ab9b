//! `JobCommands`: `jobs status`, `list`, `retry` and `forget` as arguments of an application.

use std::io::Write;

use apus_commands::{CommandFailure, CommandGroup, CommandReport, run_on_own_thread};
use serde_json::{Value, json};

use crate::queue::Jobs;
use crate::record::{DeadJob, JobId};

const GROUP: CommandGroup = CommandGroup {
    name: "jobs",
    usage: USAGE,
};

const USAGE: &str = "\
Usage: jobs COMMAND [--queue NAME]

Commands:
  status [--json]            count the jobs that wait, run and are dead
  list [--limit N] [--json]  list the dead jobs, those that failed last first
  retry ID... | --all        make dead jobs due again, with all their attempts
  forget ID... | --all       remove dead jobs

--queue selects a queue of the same store by its name.

Exit status: 0 success, 1 failure, 2 wrong arguments.
";

/// The most dead jobs that `list` shows, if it is not told how many.
const LIMIT: u32 = 100;

/// The commands of a queue, which an application responds to if its first argument is `jobs`: [`Jobs::commands`].
///
/// `apus jobs list` in the folder of a project, and `shop jobs list` where only the program is, do the same. Exit codes: 0 for
/// success, 1 for a failure, 2 for wrong arguments. `retry` and `forget` fail if there is no dead job with an identity.
#[derive(Debug)]
pub struct JobCommands {
    jobs: Jobs,
}

impl Jobs {
    /// The commands of this queue and of the others in its store, for a `main`:
    ///
    /// ```no_run
    /// use apus_database::{Db, DbError};
    /// use apus_jobs::Jobs;
    ///
    /// fn main() -> Result<(), DbError> {
    ///     let db: Db = Db::open("sqlite:shop.db")?;
    ///     let jobs = Jobs::in_database(&db);
    ///     jobs.commands().handle_arguments();
    ///     // And the server with its runner.
    ///     Ok(())
    /// }
    /// ```
    pub fn commands(&self) -> JobCommands {
        JobCommands { jobs: self.clone() }
    }
}

impl JobCommands {
    /// Runs the command and ends the process, if the first argument of the program is `jobs`. Else it does nothing.
    pub fn handle_arguments(self) {
        GROUP.handle(|arguments| self.execute(arguments));
    }

    /// Runs the command with these arguments, which follow `jobs`, and returns the exit code.
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
        let words = CommandWords::parse(arguments)?;
        if words.command == JobCommand::Help {
            return Ok(USAGE.to_owned().into());
        }
        let jobs = match &words.queue {
            Some(name) => self.jobs.named(name),
            None => self.jobs.clone(),
        };
        if !jobs.is_shared() {
            let why = "the queue is in the memory of the server, which no other process reaches";
            return Err(CommandFailure::failed(why));
        }
        run_on_own_thread("jobs", || run(&jobs, &words))
            .map_err(|cause| CommandFailure::Failed(format!("no thread can be started: {cause}")))?
    }
}

async fn run(jobs: &Jobs, words: &CommandWords) -> Result<CommandReport, CommandFailure> {
    let mut failures = Vec::new();
    let output = match words.command {
        JobCommand::Help => USAGE.to_owned(),
        JobCommand::Status => {
            let counts = jobs.counts().await.map_err(CommandFailure::failed)?;
            let [ready, delayed] = [counts.ready, counts.delayed];
            let [running, dead] = [counts.running, counts.dead];
            if words.is_json {
                json_text(&json!({
                    "queue": jobs.name(), "ready": ready, "delayed": delayed, "running": running, "dead": dead,
                }))
            } else {
                format!(
                    "{}: {ready} ready, {delayed} delayed, {running} running, {dead} dead\n",
                    jobs.name()
                )
            }
        }
        JobCommand::List => {
            let dead = jobs
                .dead(words.limit.unwrap_or(LIMIT))
                .await
                .map_err(CommandFailure::failed)?;
            if words.is_json {
                json_text(&dead.iter().map(as_json).collect())
            } else {
                dead.iter().map(as_line).collect()
            }
        }
        JobCommand::Retry | JobCommand::Forget => {
            let ids = if words.is_all {
                jobs.dead(u32::MAX).await.map_err(CommandFailure::failed)?
            } else {
                Vec::new()
            };
            let ids = ids.iter().map(|job| &job.id).chain(&words.ids);
            let mut count: usize = 0;
            for id in ids {
                let is_found = match words.command {
                    JobCommand::Retry => jobs.requeue(id).await,
                    _ => jobs.discard(id).await,
                };
                if is_found.map_err(CommandFailure::failed)? {
                    count = count.saturating_add(1);
                } else if !words.is_all {
                    // Another process may have taken one of all.
                    failures.push(format!("there is no dead job {id}"));
                }
            }
            let done = match words.command {
                JobCommand::Retry => "due again",
                _ => "removed",
            };
            format!("{count} {done}\n")
        }
    };
    Ok(CommandReport { output, failures })
}

fn json_text(value: &Value) -> String {
    format!("{value:#}\n")
}

fn as_json(job: &DeadJob) -> Value {
    json!({
        "id": job.id.to_string(),
        "name": job.name,
        "payload": serde_json::from_str::<Value>(&job.payload).unwrap_or_else(|_| job.payload.clone().into()),
        "attempts": job.attempts,
        "error": job.error,
        "failed": failed_at(job),
    })
}

/// Its identity, name, attempts, time and error. What a client can write into it does not control a terminal.
fn as_line(job: &DeadJob) -> String {
    let error: String = job
        .error
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let DeadJob {
        id, name, attempts, ..
    } = job;
    format!(
        "{id}  {name}  {attempts} attempts  {}  {error}\n",
        failed_at(job)
    )
}

fn failed_at(job: &DeadJob) -> String {
    let time = jiff::Timestamp::try_from(job.failed);
    time.map_or_else(|_| String::new(), |time| time.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobCommand {
    Help,
    Status,
    List,
    Retry,
    Forget,
}

/// The arguments after `jobs`.
struct CommandWords {
    command: JobCommand,
    queue: Option<String>,
    ids: Vec<JobId>,
    is_all: bool,
    limit: Option<u32>,
    is_json: bool,
}

impl CommandWords {
    fn parse(arguments: &mut dyn Iterator<Item = String>) -> Result<Self, CommandFailure> {
        let wrong = CommandFailure::WrongArguments;
        let name = arguments.next().unwrap_or_default();
        let mut words = Self {
            command: match &*name {
                "help" | "--help" | "-h" => JobCommand::Help,
                "status" => JobCommand::Status,
                "list" => JobCommand::List,
                "retry" => JobCommand::Retry,
                "forget" => JobCommand::Forget,
                "" => return Err(wrong("a command is missing".to_owned())),
                other => return Err(wrong(format!("there is no command {other:?}"))),
            },
            queue: None,
            ids: Vec::new(),
            is_all: false,
            limit: None,
            is_json: false,
        };
        while let Some(argument) = arguments.next() {
            let (option, inline) = match argument.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (&*argument, None),
            };
            let mut value = |what: &str| {
                let value = inline.map(str::to_owned).or_else(|| arguments.next());
                value
                    .filter(|value| !value.is_empty())
                    .ok_or_else(|| wrong(format!("{option} takes {what}")))
            };
            match (words.command, option) {
                (_, "--help" | "-h") => words.command = JobCommand::Help,
                (_, "--queue") => words.queue = Some(value("the name of a queue")?),
                (JobCommand::List, "--limit") => {
                    let number = value("a number")?.parse();
                    words.limit =
                        Some(number.map_err(|_| wrong("--limit takes a number".to_owned()))?);
                }
                (JobCommand::List | JobCommand::Status, "--json") => words.is_json = true,
                (JobCommand::Retry | JobCommand::Forget, "--all") => words.is_all = true,
                (JobCommand::Retry | JobCommand::Forget, id) if !id.starts_with('-') => {
                    let id = JobId::parse(id).ok_or_else(|| {
                        wrong(format!(
                            "{id:?} is no identity of a job; `jobs list` shows them"
                        ))
                    })?;
                    words.ids.push(id);
                }
                (_, other) => return Err(wrong(format!("`{name}` does not take {other:?}"))),
            }
        }
        let selects = matches!(words.command, JobCommand::Retry | JobCommand::Forget);
        match (selects, words.ids.is_empty(), words.is_all) {
            (true, true, false) => Err(wrong(format!(
                "`{name}` takes the identities of jobs, or --all"
            ))),
            (true, false, true) => Err(wrong(format!(
                "`{name}` takes identities or --all, not both"
            ))),
            _ => Ok(words),
        }
    }
}
