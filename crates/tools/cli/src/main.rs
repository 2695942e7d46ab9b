//! The `apus` command: parses its arguments, calls `apus-server`, and prints the result.
//!
//! # Modules
//!
//! `arguments` defines every command and flag once: help, completions and the manual are made of it. A command is
//! there, its work in apus-server, apus-dev or apus-bench. `output`, `live_view`, `traffic_view`: what is printed. `top`: `apus top`.
//! `certificate_commands`: `apus cert`. `site_commands`, `site_list`: `apus site`. `ban_commands`: `apus ban`. `limit_commands`: `apus limit`. `new`: projects of `apus new`, with the parts of `--with` in `new::parts`.
//! `project_database`, `project_jobs`, `project_program`: `apus db` and `apus jobs`. `other_generators`: the command
//! lines of wrk, ab and hey.
//!
//! # Decisions
//!
//! - **The allocator is mimalloc, called directly** (`allocator`). The crate mimalloc passes an alignment in every call,
//!   which takes a longer way, although nearly all allocations need none. Libraries leave the choice to their program.
//!
//! # Tests
//!
//! `tests/it` runs the program from outside: `server`, `proxy`, `cache`, `php`, `acme`, `commands`, and `attacks`,
//! where each class of attack is tried against the release binary. `tests/clients` and `tests/origins` are other
//! implementations: quic-go, aioquic, browsers, servers in Go.

// Only the allocator has some.
#![deny(unsafe_code)]

mod admin_commands;
#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
mod allocator;
mod arguments;
mod ban_commands;
mod bench;
mod bench_compare;
mod cache_list;
mod certificate_commands;
mod config_commands;
mod drain_wait;
mod error_list;
mod field_argument;
mod limit_commands;
mod live_view;
mod load_course;
mod manual;
mod new;
mod other_generators;
mod output;
mod project_database;
mod project_jobs;
mod project_program;
mod request_view;
mod sign_url;
mod site_commands;
mod site_list;
mod time_argument;
mod top;
mod traffic_view;
mod warm_progress;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use apus_dev::{DevError, DevOptions, PackageSelection};
use apus_server::{
    ConfigSource, ControlError, ExplainRequest, ServeError, ServeOptions, ask_server_of, check,
    control, explain, serve, warm,
};
use clap::{CommandFactory, Parser};

use arguments::{
    Arguments, CacheCommand, CliCommand, DevArguments, ExplainArguments, NodeCommand,
    PurgeArguments, PurgeTarget, RunningServer, ServeArguments, StatusArguments, UpstreamArguments,
    WarmArguments,
};
use output::{print, print_error, print_json};
use warm_progress::WarmProgress;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: allocator::Mimalloc = allocator::Mimalloc;

/// Returns memory to the system that has been free for about a second.
fn give_back_free_memory() {
    #[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
    allocator::give_back_free_memory();
}

/// Why a command failed.
enum CommandError {
    /// The command failed and printed the reason.
    Reported,
    /// An argument is wrong, and the command printed which.
    ReportedMisuse,
    /// The command failed.
    Failed(String),
    /// An argument is wrong.
    Misused(String),
}

fn main() -> ExitCode {
    let words = match other_generators::translate(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(error) => {
            print_error(&error.to_string());
            return ExitCode::from(2);
        }
    };
    // `--help` ends with 0 and a misuse with 2.
    let arguments = Arguments::parse_from(words);
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Reported) => ExitCode::from(1),
        Err(CommandError::ReportedMisuse) => ExitCode::from(2),
        Err(CommandError::Failed(message)) => {
            print_error(&message);
            ExitCode::from(1)
        }
        Err(CommandError::Misused(message)) => {
            print_error(&message);
            ExitCode::from(2)
        }
    }
}

fn run(command: CliCommand) -> Result<(), CommandError> {
    match command {
        CliCommand::Bench(arguments) => bench::run(*arguments),
        CliCommand::New { name, with, source } => {
            print(new::create(&name, &with, &source)?.as_bytes());
            Ok(())
        }
        CliCommand::Dev(arguments) => run_dev(arguments),
        CliCommand::Db(command) => project_database::run(command),
        CliCommand::Jobs(command) => project_jobs::run(command),
        CliCommand::Serve(arguments) => run_serve(arguments),
        CliCommand::Check { file, tls, json } => run_check(file, tls, json),
        CliCommand::Reload(running) => run_ask(&running, &control::ControlRequest::Reload),
        CliCommand::Stop(running) => run_ask(&running, &control::ControlRequest::Stop),
        CliCommand::Status(StatusArguments {
            running,
            metrics,
            rules,
            errors,
            top,
            time,
        }) => {
            if top {
                traffic_view::run(&running, time)
            } else if metrics {
                run_metrics(&running)
            } else if rules {
                run_rules(&running)
            } else if errors {
                let request = control::ControlRequest::Errors { sites: None };
                ban_commands::ask(&running, &request, error_list::lines)
            } else {
                run_ask(&running, &control::ControlRequest::Status)
            }
        }
        CliCommand::Top { source, socket } => top::run(&RunningServer {
            source,
            socket,
            json: false,
        }),
        CliCommand::Upstream(arguments) => run_upstream(arguments),
        CliCommand::Site(command) => site_commands::run(command),
        CliCommand::Admin(command) => admin_commands::run(command),
        CliCommand::Ban(command) => ban_commands::run(command),
        CliCommand::Config(command) => config_commands::run(command),
        CliCommand::Limit(command) => limit_commands::run(command),
        CliCommand::Cache(CacheCommand::Purge(arguments)) => run_purge(arguments),
        CliCommand::Cache(CacheCommand::Warm(arguments)) => run_warm(arguments),
        CliCommand::Cache(CacheCommand::List(arguments)) => cache_list::run(arguments),
        CliCommand::Cert(command) => certificate_commands::run(command),
        CliCommand::Explain(arguments) => run_explain(arguments),
        CliCommand::SignUrl(arguments) => sign_url::run(&arguments),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "apus", &mut script);
            print(&script);
            Ok(())
        }
        CliCommand::Man { command } => run_man(command.as_deref()),
    }
}

fn find(source: Option<&Path>) -> Result<ConfigSource, CommandError> {
    ConfigSource::find(source).map_err(|error| CommandError::Misused(error.to_string()))
}

fn run_serve(arguments: ServeArguments) -> Result<(), CommandError> {
    let source = find(arguments.source.as_deref())?;
    if let ConfigSource::File(path) = &source
        && arguments.listen.is_some()
    {
        return Err(CommandError::Misused(format!(
            "--listen is for a folder, but {} is a configuration; set `listen` or `listen_tls` there",
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
        return_memory: give_back_free_memory,
    };
    serve(options).map_err(|error| match error {
        ServeError::Load(error) => {
            CommandError::Failed(error.render(output::has_colours(std::io::stderr())))
        }
        other => CommandError::Failed(other.to_string()),
    })
}

fn run_dev(arguments: DevArguments) -> Result<(), CommandError> {
    let options = DevOptions {
        listen: arguments.listen,
        hosts: arguments.host,
        tls: arguments.tls,
        open: arguments.open,
        selection: PackageSelection {
            package: arguments.package,
            binary: arguments.bin,
            features: arguments.features,
            is_release: arguments.release,
        },
        arguments: arguments.arguments,
    };
    apus_dev::run(options).map_err(|error| match error {
        DevError::Project(error) => CommandError::Misused(error.to_string()),
        other => CommandError::Failed(other.to_string()),
    })
}

fn run_check(argument: Option<PathBuf>, tls: bool, json: bool) -> Result<(), CommandError> {
    let folder = argument.as_ref().filter(|path| path.is_dir()).cloned();
    let file = match (&folder, argument) {
        (Some(folder), _) => folder.join(apus_server::DEFAULT_FILE),
        (None, Some(file)) => file,
        (None, None) => apus_server::DEFAULT_FILE.into(),
    };
    if !file.exists() {
        return match &folder {
            Some(folder) => check_folder(folder, json),
            None => Err(no_such_configuration(&file, json)),
        };
    }
    let (diagnostics, certificates, is_good) = match check(&file, tls) {
        Ok(checked) => (checked.warnings, checked.certificates, true),
        Err(mistakes) => (mistakes, Vec::new(), false),
    };
    if json {
        print_json(&diagnostics.to_json());
    } else {
        if !diagnostics.is_empty() {
            print_error(&diagnostics.render_for_stderr());
        }
        if is_good {
            for certificate in &certificates {
                print(format!("{certificate}\n").as_bytes());
            }
            print(format!("{}: good\n", file.display()).as_bytes());
        }
        if let Some(folder) = &folder {
            let note = format!(
                "`apus serve {}` serves this configuration, and `apus serve {}` the files of the folder\n",
                file.display(),
                folder.display()
            );
            print(note.as_bytes());
        }
    }
    if is_good {
        Ok(())
    } else {
        Err(CommandError::Reported)
    }
}

/// Checks a folder to serve.
fn check_folder(folder: &Path, json: bool) -> Result<(), CommandError> {
    std::fs::read_dir(folder).map_err(|error| {
        CommandError::Failed(format!("cannot serve {}: {error}", folder.display()))
    })?;
    if json {
        print_json(&serde_json::json!([]))
    } else {
        print(
            format!(
                "{0}: good; `apus serve {0}` serves this folder\n",
                folder.display()
            )
            .as_bytes(),
        )
    }
    Ok(())
}

/// The misuse of `apus check` with a file that does not exist.
fn no_such_configuration(file: &Path, json: bool) -> CommandError {
    let message = format!(
        "{}: there is no such file or folder; expected a configuration file or a folder to serve",
        file.display()
    );
    if !json {
        return CommandError::Misused(message);
    }
    print_json(&serde_json::json!([{
        "severity": "error", "message": message, "file": null, "line": null, "column": null, "text": null,
        "label": null, "help": null,
    }]));
    CommandError::ReportedMisuse
}

fn run_upstream(arguments: UpstreamArguments) -> Result<(), CommandError> {
    let running = RunningServer {
        source: arguments.config,
        socket: None,
        json: arguments.json,
    };
    let request = control::ControlRequest::Upstream {
        group: arguments.group,
        node: arguments.node,
        change: match arguments.change {
            NodeCommand::Up => control::NodeChange::Up,
            NodeCommand::Drain => control::NodeChange::Drain,
            NodeCommand::Down => control::NodeChange::Down,
        },
    };
    if arguments.wait {
        drain_wait::run(&running, &request, arguments.timeout)
    } else {
        run_ask(&running, &request)
    }
}

fn run_purge(arguments: PurgeArguments) -> Result<(), CommandError> {
    let running = RunningServer {
        source: arguments.config,
        socket: None,
        json: arguments.json,
    };
    let what = match arguments.what {
        PurgeTarget { url: Some(url), .. } => control::PurgeScope::Url(url),
        PurgeTarget {
            prefix: Some(url), ..
        } => control::PurgeScope::Prefix(url),
        PurgeTarget { tag: Some(tag), .. } => control::PurgeScope::Tag(tag),
        PurgeTarget { .. } => control::PurgeScope::All,
    };
    let request = control::ControlRequest::CachePurge {
        site: arguments.site,
        what,
        soft: arguments.soft,
    };
    run_ask(&running, &request)
}

fn run_warm(arguments: WarmArguments) -> Result<(), CommandError> {
    let source = find(arguments.config.as_deref())?;
    let mut progress = WarmProgress::default();
    warm(source, &arguments.list, &mut |url, warmed, count| {
        progress.add(url, warmed, count);
    })
    .map_err(|error| CommandError::Failed(error.to_string()))?;
    if arguments.json {
        print_json(&progress.to_json());
    } else {
        print(progress.summary().as_bytes());
    }
    if progress.has_failures() {
        Err(CommandError::Reported)
    } else {
        Ok(())
    }
}

fn run_ask(running: &RunningServer, request: &control::ControlRequest) -> Result<(), CommandError> {
    match send(running, request)? {
        control::ControlResponse::Done(value) => {
            if running.json {
                print_json(&value);
            } else {
                print(output::response(request, &value).as_bytes());
            }
            Ok(())
        }
        control::ControlResponse::Failed { message, details } => {
            if running.json {
                print_json(&serde_json::json!({ "error": message, "details": details }));
            } else {
                print_error(&message);
            }
            Err(CommandError::Reported)
        }
    }
}

/// Sends a request to the running server and waits for the response.
fn send(
    running: &RunningServer,
    request: &control::ControlRequest,
) -> Result<control::ControlResponse, CommandError> {
    if let Some(socket) = &running.socket {
        return control::send_request(socket, request)
            .map_err(|error| CommandError::Failed(error.to_string()));
    }
    let source = find(running.source.as_deref())?;
    ask_server_of(&source, request).map_err(|error| {
        let ControlError::NotRunning(_) = error else {
            return CommandError::Failed(error.to_string());
        };
        let advice = match &source {
            ConfigSource::File(path) => check(path, true).err().map(|mistakes| {
                let mistakes = mistakes.render(output::has_colours(std::io::stderr()));
                format!(
                    "the configuration, which may name another control socket, has mistakes:\n{mistakes}"
                )
            }),
            ConfigSource::Folder(_) => None,
        };
        let advice = advice.unwrap_or_else(|| "start it with `apus serve`".to_owned());
        CommandError::Failed(format!("{error}; {advice}"))
    })
}

fn run_metrics(running: &RunningServer) -> Result<(), CommandError> {
    let format = control::MetricsFormat::Prometheus;
    match send(running, &control::ControlRequest::Metrics { format })? {
        control::ControlResponse::Done(answer) => {
            let text = answer.get("text").and_then(serde_json::Value::as_str);
            print(text.unwrap_or_default().as_bytes());
            Ok(())
        }
        control::ControlResponse::Failed { message, .. } => {
            print_error(&message);
            Err(CommandError::Reported)
        }
    }
}

fn run_rules(running: &RunningServer) -> Result<(), CommandError> {
    match send(running, &control::ControlRequest::Status)? {
        control::ControlResponse::Done(status) => {
            let rules = status.get("rules").cloned().unwrap_or_default();
            if running.json {
                print_json(&rules);
            } else {
                print(output::rules(&rules).as_bytes());
            }
            Ok(())
        }
        control::ControlResponse::Failed { message, .. } => {
            print_error(&message);
            Err(CommandError::Reported)
        }
    }
}

fn run_explain(arguments: ExplainArguments) -> Result<(), CommandError> {
    if let Some(id) = arguments.id {
        let running = RunningServer {
            source: arguments.config,
            socket: arguments.socket,
            json: arguments.json,
        };
        return explain_request(&running, id);
    }
    let source = find(arguments.config.as_deref())?;
    let request = ExplainRequest {
        method: arguments.method.unwrap_or_default(),
        url: arguments.url.unwrap_or_default(),
        headers: arguments.headers,
    };
    let explanation = explain(source, &request).map_err(|error| {
        let message = error.to_string();
        if error.is_misuse() {
            CommandError::Misused(message)
        } else {
            CommandError::Failed(message)
        }
    })?;
    if arguments.json {
        print_json(&explanation.to_json());
    } else {
        print(output::explanation(&explanation).as_bytes());
    }
    Ok(())
}

/// Prints what happened to a request.
fn explain_request(running: &RunningServer, id: String) -> Result<(), CommandError> {
    let request = control::ControlRequest::ExplainRequest { id, sites: None };
    match send(running, &request)? {
        control::ControlResponse::Done(serde_json::Value::Null) => Err(CommandError::Failed(
            "the server does not know this request: it keeps as many of the last ones as `explain_requests` says, and none that reached no site".to_owned(),
        )),
        control::ControlResponse::Done(value) => {
            if running.json {
                print_json(&value);
            } else {
                print(request_view::request(&value).as_bytes());
            }
            Ok(())
        }
        control::ControlResponse::Failed { message, .. } => Err(CommandError::Failed(message)),
    }
}

fn run_man(command: Option<&str>) -> Result<(), CommandError> {
    let page = manual::page(command)?;
    print(&page);
    Ok(())
}
