//! The `apus` command: reads its arguments, has `apus-server` do the work, and tells what came of it.

#![forbid(unsafe_code)]

mod arguments;
mod manual;
mod metrics;
mod new;
mod output;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use apus_server::{
    ControlError, Question, ServeError, ServeOptions, Source, ask, ask_server_of, check, control,
    explain, serve, warm,
};
use clap::{CommandFactory, Parser};

use arguments::{
    Arguments, Cache, Change, Command, Explain, Purge, Purged, Running, Serve, Status, Upstream,
    Warm,
};
use output::{print, print_error, print_json};
use tally::Tally;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The work failed; why has been told.
struct Failed;

/// Why a command did nothing.
enum Refused {
    /// It failed.
    Failed(String),
    /// An argument is wrong.
    Misused(String),
}

fn main() -> ExitCode {
    // `--help` ends with 0 and a misuse with 2.
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Failed)) => ExitCode::from(1),
        Err(Refused::Failed(message)) => {
            print_error(&message);
            ExitCode::from(1)
        }
        Err(Refused::Misused(message)) => {
            print_error(&message);
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<Result<(), Failed>, Refused> {
    match command {
        Command::New { name, path } => {
            print(new::create(&name, path.as_deref())?.as_bytes());
            Ok(Ok(()))
        }
        Command::Serve(arguments) => run_serve(arguments),
        Command::Check { file, tls, json } => run_check(file, tls, json),
        Command::Reload(running) => run_ask(&running, &control::Request::Reload),
        Command::Stop(running) => run_ask(&running, &control::Request::Stop),
        Command::Status(Status { running, metrics }) => match metrics {
            true => run_metrics(&running),
            false => run_ask(&running, &control::Request::Status),
        },
        Command::Upstream(arguments) => run_upstream(arguments),
        Command::Cache(Cache::Purge(arguments)) => run_purge(arguments),
        Command::Cache(Cache::Warm(arguments)) => run_warm(arguments),
        Command::Explain(arguments) => run_explain(arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "apus", &mut script);
            print(&script);
            Ok(Ok(()))
        }
        Command::Man { command } => run_man(command.as_deref()),
    }
}

fn find(source: Option<&Path>) -> Result<Source, Refused> {
    Source::find(source).map_err(|error| Refused::Misused(error.to_string()))
}

fn run_serve(arguments: Serve) -> Result<Result<(), Failed>, Refused> {
    let source = find(arguments.source.as_deref())?;
    if let Source::File(path) = &source
        && arguments.listen.is_some()
    {
        return Err(Refused::Misused(format!(
            "--listen is for a folder, and {} is a configuration; say it there, with `listen` and \
             `listen_tls`",
            path.display()
        )));
    }
    let options = ServeOptions {
        source,
        listen: arguments.listen,
        workers: arguments.workers,
        tls: arguments.tls,
        open: arguments.open,
        user: arguments.user,
    };
    serve(options).map(Ok).map_err(|error| match error {
        ServeError::Load(error) => {
            Refused::Failed(error.render(output::has_colours(std::io::stderr())))
        }
        other => Refused::Failed(other.to_string()),
    })
}

fn run_check(file: Option<PathBuf>, tls: bool, json: bool) -> Result<Result<(), Failed>, Refused> {
    let file = file.unwrap_or_else(|| apus_server::DEFAULT_FILE.into());
    let (diagnostics, is_good) = match check(&file, tls) {
        Ok(warnings) => (warnings, true),
        Err(mistakes) => (mistakes, false),
    };
    if json {
        print_json(&diagnostics.to_json());
    } else {
        if !diagnostics.is_empty() {
            print_error(&diagnostics.render_for_stderr());
        }
        if is_good {
            print(format!("{}: good\n", file.display()).as_bytes());
        }
    }
    Ok(if is_good { Ok(()) } else { Err(Failed) })
}

fn run_upstream(arguments: Upstream) -> Result<Result<(), Failed>, Refused> {
    let running = Running {
        source: arguments.config,
        socket: None,
        json: arguments.json,
    };
    let request = control::Request::Upstream {
        group: arguments.group,
        node: arguments.node,
        change: match arguments.change {
            Change::Up => control::NodeChange::Up,
            Change::Drain => control::NodeChange::Drain,
            Change::Down => control::NodeChange::Down,
        },
    };
    run_ask(&running, &request)
}

fn run_purge(arguments: Purge) -> Result<Result<(), Failed>, Refused> {
    let running = Running {
        source: arguments.config,
        socket: None,
        json: arguments.json,
    };
    let what = match arguments.what {
        Purged { url: Some(url), .. } => control::PurgeWhat::Url(url),
        Purged {
            prefix: Some(url), ..
        } => control::PurgeWhat::Prefix(url),
        Purged { tag: Some(tag), .. } => control::PurgeWhat::Tag(tag),
        Purged { .. } => control::PurgeWhat::All,
    };
    let request = control::Request::CachePurge {
        site: arguments.site,
        what,
        soft: arguments.soft,
    };
    run_ask(&running, &request)
}

fn run_warm(arguments: Warm) -> Result<Result<(), Failed>, Refused> {
    let source = find(arguments.config.as_deref())?;
    let mut tally = Tally::default();
    warm(source, &arguments.list, &mut |url, warmed, count| {
        tally.add(url, warmed, count);
    })
    .map_err(|error| Refused::Failed(error.to_string()))?;
    if arguments.json {
        print_json(&tally.to_json());
    } else {
        print(tally.summary().as_bytes());
    }
    Ok(match tally.has_failures() {
        true => Err(Failed),
        false => Ok(()),
    })
}

fn run_ask(running: &Running, request: &control::Request) -> Result<Result<(), Failed>, Refused> {
    match reach(running, request)? {
        control::Response::Done(value) => {
            if running.json {
                print_json(&value);
            } else {
                print(output::answer(request, &value).as_bytes());
            }
            Ok(Ok(()))
        }
        control::Response::Failed { message, details } => {
            if running.json {
                print_json(&serde_json::json!({ "error": message, "details": details }));
            } else {
                print_error(&message);
            }
            Ok(Err(Failed))
        }
    }
}

/// Asks the server that is meant, and waits for its answer.
fn reach(running: &Running, request: &control::Request) -> Result<control::Response, Refused> {
    if let Some(socket) = &running.socket {
        return ask(socket, request).map_err(|error| Refused::Failed(error.to_string()));
    }
    let source = find(running.source.as_deref())?;
    ask_server_of(&source, request).map_err(|error| {
        let ControlError::NotRunning(_) = error else {
            return Refused::Failed(error.to_string());
        };
        let advice = match &source {
            Source::File(path) => check(path, true).err().map(|mistakes| {
                let mistakes = mistakes.render(output::has_colours(std::io::stderr()));
                format!(
                    "the configuration, which may name another socket, has mistakes:\n{mistakes}"
                )
            }),
            Source::Folder(_) => None,
        };
        let advice = advice.unwrap_or_else(|| "start it with `apus serve`".to_owned());
        Refused::Failed(format!("{error}; {advice}"))
    })
}

fn run_metrics(running: &Running) -> Result<Result<(), Failed>, Refused> {
    match reach(running, &control::Request::Status)? {
        control::Response::Done(status) => {
            print(metrics::exposition(&status).as_bytes());
            Ok(Ok(()))
        }
        control::Response::Failed { message, .. } => {
            print_error(&message);
            Ok(Err(Failed))
        }
    }
}

fn run_explain(arguments: Explain) -> Result<Result<(), Failed>, Refused> {
    let source = find(arguments.config.as_deref())?;
    let question = Question {
        method: arguments.method,
        url: arguments.url,
        headers: arguments.headers,
    };
    let explanation = explain(source, &question).map_err(|error| {
        let message = error.to_string();
        if error.is_misuse() {
            Refused::Misused(message)
        } else {
            Refused::Failed(message)
        }
    })?;
    if arguments.json {
        print_json(&explanation.to_json());
    } else {
        print(output::explanation(&explanation).as_bytes());
    }
    Ok(Ok(()))
}

fn run_man(command: Option<&str>) -> Result<Result<(), Failed>, Refused> {
    let page = manual::page(command)?;
    print(&page);
    Ok(Ok(()))
}
