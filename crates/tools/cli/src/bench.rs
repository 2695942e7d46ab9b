//! `apus bench`: its arguments, the load that they mean, and how the result is printed.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apus_bench::{
    ArrivalOrder, ArrivalRate, BenchError, BenchReport, BenchUrl, ClientCertificate, ClientSpeed,
    ConnectionLife, CpuList, Expectations, HttpVersion, LoadLimit, LoadObjective, LoadPlan,
    LoadProgress, PlannedRequest, ScenarioPlan, ThinkTime, TlsPlan, WebSocketMode, parse_duration,
    parse_statuses, to_csv, to_html, to_text,
};
use apus_http::{Headers, Method};
use clap::{Args, ValueHint};

use crate::CommandError;
use crate::bench_compare::{self, BenchCommand};
use crate::field_argument::field;
use crate::live_view::LiveView;
use crate::load_course::LoadCourse;
use crate::output::{print, print_error};

/// How long each load of a search takes.
const SEARCH_DURATION: Duration = Duration::from_secs(3);

/// Arguments of `apus bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    #[arg(
        required_unless_present = "scenario",
        value_name = "URL",
        value_hint = ValueHint::Url,
        help = "What is requested, such as http://127.0.0.1:8080/; several of one server are chosen at random"
    )]
    urls: Vec<BenchUrl>,
    /// How often the URL at the same place is requested, relative to the others [default: 1]
    #[arg(long = "weight", value_name = "N")]
    weights: Vec<u32>,

    /// Run the scenarios of a TOML file: requests one after another, with checks and captured values
    ///
    /// A URL on the command line replaces the URL of the file.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["weights", "method", "body", "body_file", "status", "length", "expect_body", "pipeline", "streams"]
    )]
    scenario: Option<PathBuf>,

    /// Take the command line of wrk, ab or hey instead, where it means the same; the first argument
    #[arg(long = "as", value_name = "TOOL")]
    other_generator: Option<String>,

    /// Connections at once
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "50",
        help_heading = "Load"
    )]
    connections: NonZeroUsize,
    /// Threads that generate the load [default: half of the cores]
    #[arg(short, long, value_name = "N", help_heading = "Load")]
    threads: Option<NonZeroUsize>,
    /// How long the measurement takes [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "requests", help_heading = "Load")]
    duration: Option<Duration>,
    /// End after this number of requests instead
    #[arg(short = 'n', long, value_name = "N", help_heading = "Load")]
    requests: Option<u64>,
    /// Load before the measurement [default: 1s; none with --requests]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Load")]
    warm_up: Option<Duration>,
    /// Open loop: requests per second, whether or not earlier ones are complete
    ///
    /// 500 or 2k is a constant rate, 1k:10s,2k:10s has steps, and 1k..5k:30s is a ramp. The last rate lasts until the end.
    /// The latency of a request counts from the time at which it was due.
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    rate: Option<ArrivalRate>,
    /// With --rate: requests at random distances, as of independent users
    #[arg(long, requires = "rate", help_heading = "Load")]
    poisson: bool,
    /// How long a connection waits between a response and its next request: a time, or 1s..3s at random
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "rate",
        help_heading = "Load"
    )]
    think_time: Option<ThinkTime>,
    /// Requests that each connection sends before it waits for the responses
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        conflicts_with = "close",
        help_heading = "Load"
    )]
    pipeline: NonZeroUsize,
    /// HTTP/2, by ALPN over TLS, and by prior knowledge in clear text; with a ws or wss URL, WebSocket over it
    #[arg(long, conflicts_with_all = ["close", "pipeline"], help_heading = "Load")]
    http2: bool,
    /// HTTP/3
    #[arg(long, conflicts_with_all = ["pipeline", "http2"], help_heading = "Load")]
    http3: bool,
    /// gRPC over HTTP/2: --body-file is the encoded message of a unary call, whose status has to be 0 (OK)
    #[arg(long, conflicts_with_all = ["close", "pipeline", "http3", "method", "scenario"], help_heading = "Load")]
    grpc: bool,
    /// With a ws or wss URL: the server sends each message to all connections, instead of back
    #[arg(long, conflicts_with_all = ["http3", "grpc", "scenario"], help_heading = "Load")]
    broadcast: bool,
    /// With --http2 and --http3: requests in flight over each connection
    #[arg(
        short = 'm',
        long,
        value_name = "N",
        default_value = "1",
        conflicts_with_all = ["close", "pipeline"],
        help_heading = "Load"
    )]
    streams: NonZeroUsize,
    /// With --http2 and --http3: bytes that the server may send over a connection, and over each stream, before they are read [default: 16 MiB, 1 MiB]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(65_535..=0x7fff_ffff), help_heading = "Load")]
    receive_window: Option<u32>,
    /// Search the highest rate at which the server keeps --slo, by loads of --duration each [default: 3s]
    #[arg(long, requires = "slo", conflicts_with_all = ["rate", "requests", "csv", "html"], help_heading = "Load")]
    find_max: bool,
    /// What the server has to keep: percentiles of the latency, and errors in percent
    #[arg(
        long,
        value_name = "p99=20ms,errors=0",
        requires = "find_max",
        help_heading = "Load"
    )]
    slo: Option<LoadObjective>,
    /// A new connection for each request (`Connection: close` over HTTP/1.1)
    #[arg(long, help_heading = "Load")]
    close: bool,
    /// A new connection after this number of requests
    #[arg(long, value_name = "N", help_heading = "Load")]
    requests_per_connection: Option<NonZeroU64>,
    /// A new connection after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Load")]
    connection_lifetime: Option<Duration>,
    /// Slow clients: read this number of bytes per second over each connection
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    receive_rate: Option<NonZeroU32>,
    /// Slow clients: send this number of bytes per second over each connection
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    send_rate: Option<NonZeroU32>,
    /// Send no request before the load, so that a server that cannot be reached fails requests
    #[arg(long, help_heading = "Load")]
    no_probe: bool,
    /// Time limit of opening a connection, and of each response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, help_heading = "Load")]
    timeout: Duration,
    /// The processors that the threads of the generator may use, such as 0,2-3 [default: all]
    #[arg(long, value_name = "LIST", help_heading = "Load")]
    cores: Option<CpuList>,
    /// Load a host that is not this machine
    #[arg(long, help_heading = "Load")]
    i_own_this_host: bool,

    /// The method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    method: Option<Method>,
    /// A header field; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field, help_heading = "Request")]
    headers: Vec<(String, String)>,
    /// The body
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        help_heading = "Request"
    )]
    body: Option<String>,
    /// A file with the body
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Request")]
    body_file: Option<PathBuf>,

    /// The status of a good response: 200, or a range such as 200-299 [default: 200-399]
    #[arg(long, value_name = "STATUS", value_parser = parse_statuses, help_heading = "Response")]
    status: Option<RangeInclusive<u16>>,
    /// The length of the body of a good response
    #[arg(long, value_name = "BYTES", help_heading = "Response")]
    length: Option<u64>,
    /// A file with the body of a good response
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Response")]
    expect_body: Option<PathBuf>,
    /// Exit with 0 although requests failed
    #[arg(long, help_heading = "Response")]
    allow_errors: bool,

    /// Accept any certificate of the server
    #[arg(short = 'k', long, help_heading = "TLS")]
    insecure: bool,
    /// A file with the authorities that are trusted, in PEM form [default: the authorities of the system]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "insecure", help_heading = "TLS")]
    cacert: Option<PathBuf>,
    /// A file with the certificate that is presented to the server, in PEM form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key", help_heading = "TLS")]
    cert: Option<PathBuf>,
    /// A file with the key of that certificate, in PEM form
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert", help_heading = "TLS")]
    key: Option<PathBuf>,
    /// A full handshake for each connection
    #[arg(long, help_heading = "TLS")]
    no_resumption: bool,
    /// Offer this cipher suite only, such as TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    tls_cipher: Option<String>,
    /// Offer this group for the key exchange only, such as X25519
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    tls_group: Option<String>,

    /// Measure what this process of this machine consumes [default: those that listen on the port]
    #[arg(long, value_name = "PID", help_heading = "Result")]
    pid: Option<u32>,
    /// Measure what this endpoint of the server says of its process, in the text format of Prometheus
    ///
    /// It has to have `process_cpu_seconds_total`, `process_resident_memory_bytes` and `process_open_fds`, as the client libraries of
    /// Prometheus and the layer Metrics of Apus write them. For servers of other machines.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "pid", help_heading = "Result")]
    status_url: Option<BenchUrl>,
    /// On a terminal: show a line during the load instead of the whole screen
    #[arg(long, help_heading = "Result")]
    no_view: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "csv", help_heading = "Result")]
    json: bool,
    /// Write a page with plots to this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Result")]
    html: Option<PathBuf>,
    /// Print CSV: a line of names and a line of values
    #[arg(long, help_heading = "Result")]
    csv: bool,
}

/// Carries out a load and prints its result.
pub(crate) fn run(arguments: BenchArguments) -> Result<(), CommandError> {
    if let Some(command) = arguments.command {
        return bench_compare::run(command);
    }
    if arguments.other_generator.is_some() {
        return Err(CommandError::Misused(
            "--as has to be the first argument of `apus bench`".to_owned(),
        ));
    }
    let (json, csv, allows_errors) = (arguments.json, arguments.csv, arguments.allow_errors);
    let (html, slo) = (arguments.html.clone(), arguments.slo.clone());
    let no_view = arguments.no_view;
    let plan = plan(arguments)?;
    if let Some(objective) = slo {
        return search(&plan, &objective, json);
    }
    let mut progress = ShownProgress::new(&plan, !no_view);
    let report = apus_bench::run(plan, &mut |state| progress.show(state));
    progress.clear();
    let report = report.map_err(misuse_or_failure)?;
    match (json, csv) {
        (true, _) => match serde_json::to_string_pretty(&report) {
            Ok(text) => print(format!("{text}\n").as_bytes()),
            Err(error) => return Err(CommandError::Failed(error.to_string())),
        },
        (_, true) => print(to_csv(&report).as_bytes()),
        _ => print(to_text(&report).as_bytes()),
    }
    // The result was printed before, so that a full disk loses only the page.
    if let Some(path) = html {
        fs::write(&path, to_html(&report)).map_err(|error| {
            CommandError::Failed(format!("{} cannot be written: {error}", path.display()))
        })?;
    }
    verdict(&report, allows_errors)
}

/// Searches the highest rate and prints it.
fn search(plan: &LoadPlan, objective: &LoadObjective, json: bool) -> Result<(), CommandError> {
    // Each load would begin anew.
    let mut progress = ShownProgress::new(plan, false);
    let found = apus_bench::find_max(plan, objective, &mut |state| progress.show(state));
    progress.clear();
    let found = found.map_err(misuse_or_failure)?;
    if json {
        match serde_json::to_string_pretty(&found) {
            Ok(text) => print(format!("{text}\n").as_bytes()),
            Err(error) => return Err(CommandError::Failed(error.to_string())),
        }
    } else {
        print(found.to_text().as_bytes());
    }
    match found.rate {
        Some(_) => Ok(()),
        None => Err(CommandError::Reported),
    }
}

fn misuse_or_failure(error: BenchError) -> CommandError {
    match error {
        BenchError::Plan(_) | BenchError::NotLocal { .. } => {
            CommandError::Misused(error.to_string())
        }
        error => CommandError::Failed(error.to_string()),
    }
}

fn verdict(report: &BenchReport, allows_errors: bool) -> Result<(), CommandError> {
    if report.is_clean() || (allows_errors && report.responses > 0) {
        return Ok(());
    }
    print_error(&match report.responses {
        0 => "no request got a good response".to_owned(),
        _ => format!(
            "{} requests failed; --allow-errors accepts that",
            report.failed
        ),
    });
    Err(CommandError::Reported)
}

fn plan(arguments: BenchArguments) -> Result<LoadPlan, CommandError> {
    let body = match (arguments.body, arguments.body_file) {
        (Some(body), _) => body.into_bytes(),
        (None, Some(file)) => read(&file)?,
        (None, None) => Vec::new(),
    };
    let is_websocket = arguments.urls.first().is_some_and(BenchUrl::is_websocket);
    let (method, body) = match (arguments.method, arguments.grpc) {
        (_, true) => (Method::POST, grpc_message(&body)?),
        (Some(method), false) => (method, body),
        (None, false) if body.is_empty() || is_websocket => (Method::GET, body),
        (None, false) => (Method::POST, body),
    };
    let mut headers = headers(&arguments.headers)?;
    if arguments.grpc && !headers.contains("content-type") {
        headers.push(b"content-type", b"application/grpc");
    }
    if arguments.weights.len() > arguments.urls.len() {
        return Err(CommandError::Misused(format!(
            "there are {} weights for {} URLs",
            arguments.weights.len(),
            arguments.urls.len()
        )));
    }
    let weights = arguments.weights.into_iter().chain(std::iter::repeat(1));
    let requests = arguments
        .urls
        .iter()
        .zip(weights)
        .map(|(url, weight)| PlannedRequest {
            name: None,
            url: url.clone(),
            weight,
            method: method.clone(),
            headers: headers.clone(),
            body: body.clone().into(),
        });
    let mut plan = match (&arguments.scenario, arguments.urls.as_slice()) {
        (Some(file), [] | [_]) => {
            let scenario = ScenarioPlan::read(file, arguments.urls.first().cloned(), &headers)
                .map_err(misuse_or_failure)?;
            let Some(first) = scenario.requests().first() else {
                return Err(CommandError::Misused("a load needs a scenario".to_owned()));
            };
            let mut plan = LoadPlan::new(first.url.clone());
            plan.set_scenario(Arc::new(scenario));
            plan
        }
        (Some(_), _) => {
            return Err(CommandError::Misused(
                "--scenario takes one URL at most, which replaces the URL of the file".to_owned(),
            ));
        }
        (None, [first, ..]) => {
            let mut plan = LoadPlan::new(first.clone());
            plan.requests = requests.collect();
            plan
        }
        (None, []) => return Err(CommandError::Misused("a load needs a URL".to_owned())),
    };
    plan.connections = arguments.connections;
    plan.threads = arguments.threads.unwrap_or(plan.threads);
    plan.limit = match (arguments.requests, arguments.duration) {
        (Some(requests), _) => LoadLimit::Requests(requests),
        (None, Some(duration)) => LoadLimit::Time(duration),
        (None, None) if arguments.find_max => LoadLimit::Time(SEARCH_DURATION),
        (None, None) => plan.limit,
    };
    plan.warm_up = arguments.warm_up.unwrap_or(match plan.limit {
        LoadLimit::Time(_) => plan.warm_up,
        LoadLimit::Requests(_) => Duration::ZERO,
    });
    plan.rate = arguments.rate;
    if arguments.poisson {
        plan.order = ArrivalOrder::Poisson;
    }
    plan.websocket = match (is_websocket, arguments.broadcast) {
        (true, false) => Some(WebSocketMode::Echo),
        (true, true) => Some(WebSocketMode::Broadcast),
        (false, false) => None,
        (false, true) => {
            return Err(CommandError::Misused(
                "--broadcast needs a URL with ws or wss".to_owned(),
            ));
        }
    };
    plan.version = match (arguments.http2 || arguments.grpc, arguments.http3) {
        (true, _) => HttpVersion::Http2,
        (_, true) => HttpVersion::Http3,
        _ => HttpVersion::Http1,
    };
    plan.in_flight = match plan.version {
        HttpVersion::Http1 => arguments.pipeline,
        _ => arguments.streams,
    };
    let is_multiplexed = plan.version != HttpVersion::Http1;
    if !is_multiplexed && (arguments.streams.get() > 1 || arguments.receive_window.is_some()) {
        return Err(CommandError::Misused(
            "--streams and --receive-window need --http2 or --http3; HTTP/1.1 has --pipeline"
                .to_owned(),
        ));
    }
    plan.life = ConnectionLife {
        requests: arguments.requests_per_connection,
        time: arguments.connection_lifetime,
    };
    plan.speed = ClientSpeed {
        receive: arguments.receive_rate,
        send: arguments.send_rate,
    };
    plan.receive_window = arguments.receive_window;
    plan.probes = !arguments.no_probe;
    plan.keeps_alive = !arguments.close;
    plan.think_time = arguments.think_time;
    plan.timeout = arguments.timeout;
    plan.may_load_others = arguments.i_own_this_host;
    plan.cores = arguments.cores;
    plan.server_pid = arguments.pid;
    plan.status_page = arguments.status_url;
    plan.expected = Expectations {
        length: arguments.length,
        body: arguments.expect_body.as_deref().map(read).transpose()?,
        statuses: arguments.status.unwrap_or(plan.expected.statuses),
        grpc: arguments.grpc,
    };
    plan.tls = TlsPlan {
        verify: !arguments.insecure,
        authorities: arguments.cacert.as_deref().map(read).transpose()?,
        certificate: match (&arguments.cert, &arguments.key) {
            (Some(certificate), Some(key)) => Some(Arc::new(
                ClientCertificate::from_files(certificate, key).map_err(|error| {
                    CommandError::Misused(format!(
                        "the certificate {}: {error}",
                        certificate.display()
                    ))
                })?,
            )),
            _ => None,
        },
        resumes: !arguments.no_resumption,
        cipher: arguments.tls_cipher,
        group: arguments.tls_group,
    };
    Ok(plan)
}

fn headers(fields: &[(String, String)]) -> Result<Headers, CommandError> {
    let mut headers = Headers::new();
    let has = |name: &str| {
        fields
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    for (name, value) in [
        ("user-agent", concat!("apus/", env!("CARGO_PKG_VERSION"))),
        ("accept", "*/*"),
    ] {
        if !has(name) {
            headers.push(name.as_bytes(), value.as_bytes());
        }
    }
    for (name, value) in fields {
        // An empty value takes a field away, as with curl.
        if value.is_empty() {
            continue;
        }
        headers
            .try_append(name.as_str(), value.as_str())
            .map_err(|_| CommandError::Misused(format!("`{name}: {value}` is no header field")))?;
    }
    Ok(headers)
}

/// A message with its prefix: not compressed, and its length.
fn grpc_message(message: &[u8]) -> Result<Vec<u8>, CommandError> {
    let length = u32::try_from(message.len())
        .map_err(|_| CommandError::Misused("the message has more than 4 GiB".to_owned()))?;
    let mut framed = vec![0];
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Ok(framed)
}

fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(|error| {
        CommandError::Misused(format!(
            "the file {} cannot be read: {error}",
            path.display()
        ))
    })
}

/// What a terminal shows while a load goes on.
enum ShownProgress {
    /// The whole screen.
    View(Box<LiveView>),
    /// A line.
    Line(Box<LoadCourse>),
    /// Nothing: nobody looks.
    Nothing,
}

impl ShownProgress {
    fn new(plan: &LoadPlan, shows_view: bool) -> Self {
        let title = plan.requests.iter().map(|request| {
            let name = request.name.as_deref();
            name.map_or_else(
                || format!("{} {}", request.method, request.url),
                str::to_owned,
            )
        });
        let title = title.collect::<Vec<_>>().join(", ");
        let view = if shows_view {
            LiveView::open(title)
        } else {
            None
        };
        match view {
            Some(view) => Self::View(Box::new(view)),
            None if io::stderr().is_terminal() => Self::Line(Box::default()),
            None => Self::Nothing,
        }
    }

    fn show(&mut self, state: &LoadProgress) {
        match self {
            Self::View(view) => view.show(state),
            Self::Line(course) => {
                course.add(state.clone());
                let _ = write!(io::stderr().lock(), "\r\x1b[K{}", course.line());
            }
            Self::Nothing => {}
        }
    }

    /// Gives the terminal back.
    fn clear(self) {
        if matches!(self, Self::Line(_)) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_fields_replace_those_that_are_sent_anyway() {
        let own = [
            ("User-Agent".to_owned(), "x".to_owned()),
            ("Accept".to_owned(), String::new()),
        ];
        let Ok(found) = headers(&own) else {
            panic!("these are fields");
        };
        assert_eq!(found.get_str("user-agent"), Some("x"));
        assert!(!found.contains("accept"));
        assert!(headers(&[("a b".to_owned(), "x".to_owned())]).is_err());
    }
}
