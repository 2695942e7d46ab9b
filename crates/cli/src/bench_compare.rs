//! `apus bench compare` and `apus bench repeat`: several servers beside one another, and the same once more.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use apus_bench::{
    BenchError, ComparisonPlan, ComparisonProgress, ComparisonReport, compare, to_comparison_text,
    to_page,
};
use clap::{Args, Subcommand, ValueHint};

use crate::CommandError;
use crate::output::{print, print_error};

/// Subcommands of `apus bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare servers: each is started, loaded and stopped in turn, until the difference is known
    ///
    /// FILE names the servers, the load, and how long to go on. Each round measures all of them in an order by chance. The result
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
        /// A file that names servers and a load
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
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
    let failed = |error: BenchError| match error {
        BenchError::Plan(message) => CommandError::Misused(message),
        BenchError::NotLocal { .. } => CommandError::Misused(error.to_string()),
        error => CommandError::Failed(error.to_string()),
    };
    let (plan, output) = match command {
        BenchCommand::Compare { file, output } => (ComparisonPlan::read(&file), output),
        BenchCommand::Repeat { report, output } => {
            let text = fs::read_to_string(&report).map_err(|error| {
                CommandError::Misused(format!("{} cannot be read: {error}", report.display()))
            })?;
            (ComparisonPlan::of_report(&text), output)
        }
    };
    let mut plan = plan.map_err(failed)?;
    if output.i_own_this_host {
        plan.allow_others();
    }
    let is_shown = io::stderr().is_terminal();
    let report = compare(&plan, &mut |progress| {
        if is_shown {
            show(progress);
        }
    });
    if is_shown {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
    report_result(&report.map_err(failed)?, &output)
}

fn show(progress: &ComparisonProgress<'_>) {
    let cpu = progress
        .cpu_per_response_us
        .map_or(String::new(), |cpu| format!("  {cpu:.2} us of CPU"));
    let _ = write!(
        io::stderr().lock(),
        "\r\x1b[Kround {} of at most {}  {}  {:.0}/s{cpu}",
        progress.round,
        progress.rounds,
        progress.server,
        progress.responses_per_second,
    );
}

fn report_result(report: &ComparisonReport, output: &ComparisonOutput) -> Result<(), CommandError> {
    if output.json {
        match serde_json::to_string_pretty(report) {
            Ok(text) => print(format!("{text}\n").as_bytes()),
            Err(error) => return Err(CommandError::Failed(error.to_string())),
        }
    } else {
        print(to_comparison_text(report).as_bytes());
    }
    // The result was printed before, so that a full disk loses only the page.
    if let Some(path) = &output.html {
        fs::write(path, to_page(report)).map_err(|error| {
            CommandError::Failed(format!("{} cannot be written: {error}", path.display()))
        })?;
    }
    if report.has_failed || report.rounds == 0 {
        print_error(&format!(
            "the comparison ended because of {}",
            report.ended_by
        ));
        return Err(CommandError::Reported);
    }
    Ok(())
}
