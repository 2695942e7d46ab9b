//! `apus bench compare` and `apus bench repeat`: several servers beside one another, and the same once more.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use apus_bench::comparison::{
    ComparedCases, ComparisonChanges, ComparisonFile, ComparisonProgress, compare,
    to_comparison_text, to_page,
};
use apus_bench::{BenchError, format_rate, parse_duration};
use clap::{Args, Subcommand, ValueHint};

use crate::CommandError;
use crate::output::{print, print_error};

/// Subcommands of `apus bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare servers: each is started, loaded and stopped in turn, until the difference is known
    ///
    /// FILE names the servers, the load or several of them, and how long to go on. Each round measures all of them in an order by chance. The result
    /// is a ratio to the reference for the rate, CPU, latencies and memory, each with an interval, and says where no difference is
    /// certain.
    #[command(after_long_help = "\
Example of a file:
  [load]
  path = \"/page.html\"
  connections = 64
  cores = \"1\"

  [[server]]
  name = \"apus\"
  command = [\"apus\", \"serve\", \"site.toml\"]
  url = \"http://127.0.0.1:8080/\"
  cores = \"0\"

  [[server]]
  name = \"nginx\"
  command = \"nginx -c $PWD/nginx.conf -g 'daemon off;'\"
  url = \"http://127.0.0.1:8081/\"
  cores = \"0\"")]
    Compare {
        /// Files that name servers and loads
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        changes: ChangeArguments,
        #[command(flatten)]
        output: ComparisonOutput,
    },
    /// Repeat a comparison from the JSON that `compare --json` printed
    Repeat {
        /// The report
        #[arg(value_name = "REPORT", value_hint = ValueHint::FilePath)]
        report: PathBuf,
        #[command(flatten)]
        output: ComparisonOutput,
    },
}

/// What is changed of the files.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    /// Only this case; can be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Only this server; can be repeated
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// The number of rounds, instead of until the difference is known
    #[arg(long, value_name = "N")]
    rounds: Option<std::num::NonZeroUsize>,
    /// The time of load in a round, also in place of a number of requests
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Replace a value of the table `values` of all files that have it; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), InvalidSetting> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(InvalidSetting),
    }
}

/// The error for a value to replace that has no name.
#[derive(Debug)]
struct InvalidSetting;

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected NAME=VALUE")
    }
}

impl std::error::Error for InvalidSetting {}

/// How a comparison is reported.
#[derive(Debug, Args)]
pub(crate) struct ComparisonOutput {
    /// Print JSON, by which the comparison can be repeated
    #[arg(long)]
    json: bool,
    /// Write a page with plots to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Load hosts that are not this machine
    #[arg(long)]
    i_own_this_host: bool,
}

/// Compares servers and prints the result.
pub(crate) fn run(command: BenchCommand) -> Result<(), CommandError> {
    let (files, output) = match command {
        BenchCommand::Compare {
            files,
            changes,
            output,
        } => (read_files(&files, &changes)?, output),
        BenchCommand::Repeat { report, output } => {
            let text = fs::read_to_string(&report).map_err(|error| {
                CommandError::Misused(format!("{} cannot be read: {error}", report.display()))
            })?;
            (ComparisonFile::of_report(&text).map_err(failed)?, output)
        }
    };
    let is_shown = io::stderr().is_terminal();
    let is_one = matches!(&files[..], [file] if !file.has_cases());
    if !is_one {
        announce(&files);
    }
    let clock = ProgressClock::new(&files);
    let mut compared: Vec<ComparedCases> = Vec::new();
    let mut seconds_after: f64 = files.iter().map(|file| file.seconds_left((0, 0))).sum();
    for mut file in files {
        seconds_after -= file.seconds_left((0, 0));
        // Complete cases, and measurements of the next one.
        let made = Cell::new((0, 0));
        if output.i_own_this_host {
            file.allow_others();
        }
        let before = compared.clone();
        let result = compare(
            &file,
            &mut |progress| {
                let (cases, measurements) = made.get();
                made.set((cases, measurements + 1));
                let left = clock.left(file.seconds_left(made.get()) + seconds_after);
                let line = progress_line(progress, &left);
                let _ = if is_shown {
                    write!(io::stderr().lock(), "\r\x1b[K{line}")
                } else if !is_one {
                    // Many cases take long, also where a log is read later.
                    writeln!(io::stderr().lock(), "{line}")
                } else {
                    Ok(())
                };
            },
            &mut |so_far| {
                made.set((so_far.reports.len() + so_far.failures.len(), 0));
                // What was measured is kept if a later case takes the machine down.
                if !is_one && let Some(path) = &output.html {
                    let _ = write_page(path, &[&before[..], std::slice::from_ref(so_far)].concat());
                }
            },
        );
        if is_shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
        match result {
            Ok(result) => {
                let is_interrupted = result.is_interrupted;
                compared.push(result);
                if is_interrupted {
                    break;
                }
            }
            Err(error)
                if is_one || matches!(error, BenchError::Plan(_) | BenchError::NotLocal { .. }) =>
            {
                return Err(failed(error));
            }
            // The other files go on.
            Err(error) => compared.push(file.failed(&error)),
        }
    }
    report_result(&compared, is_one, &output)
}

fn failed(error: BenchError) -> CommandError {
    match error {
        BenchError::Plan(_) | BenchError::NotLocal { .. } => {
            CommandError::Misused(error.to_string())
        }
        error => CommandError::Failed(error.to_string()),
    }
}

/// The files with a case to make.
fn read_files(
    paths: &[PathBuf],
    arguments: &ChangeArguments,
) -> Result<Vec<ComparisonFile>, CommandError> {
    let changes = ComparisonChanges {
        values: arguments
            .settings
            .iter()
            .cloned()
            .collect::<BTreeMap<_, _>>(),
        cases: arguments.cases.clone(),
        servers: arguments.servers.clone(),
        rounds: arguments.rounds.map(std::num::NonZeroUsize::get),
        duration: arguments.duration,
    };
    let mut files = Vec::new();
    for path in paths {
        files.push(ComparisonFile::read(path, &changes).map_err(failed)?);
    }
    for name in changes.values.keys() {
        if !files.iter().any(|file| file.has_value(name)) {
            return Err(CommandError::Misused(format!(
                "no file has a value `{name}` that could be set"
            )));
        }
    }
    files.retain(|file| file.case_count() > 0);
    if files.is_empty() {
        Err(CommandError::Misused(format!(
            "no file has such a case: {}",
            [&arguments.cases[..], &arguments.servers]
                .concat()
                .join(", ")
        )))
    } else {
        Ok(files)
    }
}

/// Says how long all of it will take.
fn announce(files: &[ComparisonFile]) {
    let cases: usize = files.iter().map(ComparisonFile::case_count).sum();
    let seconds: f64 = files.iter().map(|file| file.seconds_left((0, 0))).sum();
    let most: f64 = files.iter().map(ComparisonFile::seconds_at_most).sum();
    let _ = writeln!(
        io::stderr().lock(),
        "{cases} cases, about {}, at most {}, without what is prepared for them",
        time_in_words(seconds),
        time_in_words(most)
    );
}

/// How long comparisons still take, if they go on as they did so far.
struct ProgressClock {
    begin: Instant,
    /// What they were to take, in seconds.
    planned: f64,
}

impl ProgressClock {
    fn new(files: &[ComparisonFile]) -> Self {
        Self {
            begin: Instant::now(),
            planned: files.iter().map(|file| file.seconds_left((0, 0))).sum(),
        }
    }

    /// The time that is left, if this number of seconds of the plan is.
    fn left(&self, seconds: f64) -> String {
        let pace = self.begin.elapsed().as_secs_f64() / (self.planned - seconds).max(1.0);
        time_in_words(seconds * pace)
    }
}

fn time_in_words(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

/// A line about a measurement, with the time that is left.
fn progress_line(progress: &ComparisonProgress<'_>, left: &str) -> String {
    let sample = progress.sample;
    let rate = sample.responses_per_second;
    let rate = rate.map(|rate| format!("  {}/s", format_rate(rate)));
    let values = [
        (sample.cpu_per_response_us, 2, " us of CPU"),
        // What is measured of connections that are left alone.
        (sample.bytes_per_connection, 0, " bytes per connection"),
        (
            sample
                .pss_bytes
                .filter(|_| sample.responses_per_second.is_none()),
            0,
            " bytes of memory",
        ),
    ];
    let values = values
        .into_iter()
        .filter_map(|(value, digits, unit)| Some(format!("  {:.digits$}{unit}", value?)));
    let values: String = rate.into_iter().chain(values).collect();
    format!(
        "{}: round {} of at most {}  {}{values}  about {left} left",
        progress.title, progress.round, progress.rounds, progress.server,
    )
}

fn write_page(path: &Path, compared: &[ComparedCases]) -> Result<(), CommandError> {
    fs::write(path, to_page(compared)).map_err(|error| {
        CommandError::Failed(format!("{} cannot be written: {error}", path.display()))
    })
}

fn report_result(
    compared: &[ComparedCases],
    is_one: bool,
    output: &ComparisonOutput,
) -> Result<(), CommandError> {
    let reports = || compared.iter().flat_map(|file| &file.reports);
    if output.json {
        let text = match reports().next() {
            Some(report) if is_one => serde_json::to_string_pretty(report),
            _ => serde_json::to_string_pretty(&serde_json::json!({ "files": compared })),
        };
        match text {
            Ok(text) => print(format!("{text}\n").as_bytes()),
            Err(error) => return Err(CommandError::Failed(error.to_string())),
        }
    } else {
        let texts: Vec<_> = reports().map(to_comparison_text).collect();
        print(texts.join("\n\n").as_bytes());
    }
    // The result was printed before, so that a full disk loses only the page.
    if let Some(path) = &output.html {
        write_page(path, compared)?;
    }
    let mut is_whole = true;
    for failure in compared.iter().flat_map(|file| &file.failures) {
        is_whole = false;
        print_error(&format!("{}: {}", failure.case, failure.cause));
    }
    for report in reports().filter(|report| report.has_failed || report.rounds == 0) {
        is_whole = false;
        print_error(&format!(
            "the comparison ended because of {}",
            report.ended_by
        ));
    }
    if is_whole {
        Ok(())
    } else {
        Err(CommandError::Reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apus_bench::comparison::RoundSample;

    #[test]
    fn the_line_of_a_comparison_has_rates_below_one_per_second() {
        let line = |rate: Option<f64>| {
            let sample = RoundSample {
                responses_per_second: rate,
                cpu_per_response_us: rate.map(|_| 12.345),
                pss_bytes: Some(5000.0),
                ..RoundSample::default()
            };
            let progress = ComparisonProgress {
                title: "downloads",
                round: 2,
                rounds: 9,
                server: "apus",
                sample: &sample,
            };
            progress_line(&progress, "3 min")
        };
        assert_eq!(
            line(Some(0.4956)),
            "downloads: round 2 of at most 9  apus  0.496/s  12.35 us of CPU  about 3 min left"
        );
        assert!(line(Some(98_765.4)).contains("  apus  98,765/s  "));
        // Connections that were left alone have no rate.
        assert_eq!(
            line(None),
            "downloads: round 2 of at most 9  apus  5000 bytes of memory  about 3 min left"
        );
    }
}
