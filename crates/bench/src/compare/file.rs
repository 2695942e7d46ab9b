//! Comparisons in TOML.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apus_http::{Headers, Method};
use serde::Deserialize;

use super::ComparisonPlan;
use super::server::ComparedServer;
use super::statistics::ROUNDS_LEAST;
use crate::cpu_list::CpuList;
use crate::plan::{HttpVersion, LoadLimit, LoadPlan};
use crate::scenario::ScenarioPlan;
use crate::{ArrivalRate, BenchError, BenchUrl, PlannedRequest, parse_duration, parse_statuses};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawComparison {
    title: Option<String>,
    reference: Option<String>,
    #[serde(default)]
    rounds: RawRounds,
    #[serde(default)]
    load: RawLoad,
    server: Vec<RawServer>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRounds {
    least: Option<usize>,
    most: Option<usize>,
    budget: Option<String>,
    precision: Option<f64>,
    restart: Option<bool>,
    same_responses: Option<bool>,
    seed: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoad {
    path: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    scenario: Option<PathBuf>,
    protocol: Option<RawProtocol>,
    connections: Option<NonZeroUsize>,
    threads: Option<NonZeroUsize>,
    streams: Option<NonZeroUsize>,
    duration: Option<String>,
    warm_up: Option<String>,
    timeout: Option<String>,
    rate: Option<RawRate>,
    #[serde(default)]
    close: bool,
    #[serde(default)]
    insecure: bool,
    ca: Option<PathBuf>,
    #[serde(default)]
    no_resumption: bool,
    status: Option<String>,
    length: Option<u64>,
    cores: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
enum RawProtocol {
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
    #[serde(rename = "h3")]
    Http3,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRate {
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    name: String,
    url: String,
    command: Option<RawCommand>,
    stop: Option<RawCommand>,
    version: Option<RawCommand>,
    directory: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    cores: Option<String>,
    ready_within: Option<String>,
}

/// The words of a command, or a line for the shell.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

impl RawCommand {
    fn words(command: Option<Self>) -> Vec<String> {
        match command {
            Some(Self::Words(words)) => words,
            // The shell becomes the program, so that its process is that of the server.
            Some(Self::Line(line)) => {
                vec!["sh".to_owned(), "-c".to_owned(), format!("exec {line}")]
            }
            None => Vec::new(),
        }
    }
}

impl ComparisonPlan {
    /// Reads a comparison from a file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file or one that it names cannot be read, or contains a mistake.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let wrong =
            |error: String| BenchError::Plan(format!("the comparison {}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        let folder = folder
            .canonicalize()
            .map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text, &folder).map_err(wrong)
    }

    pub(super) fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let raw: RawComparison = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut servers = Vec::new();
        for server in raw.server {
            let name = server.name.clone();
            let server = server
                .parse(folder, raw.load.path.as_deref())
                .map_err(|error| format!("server `{name}`: {error}"))?;
            servers.push(server);
        }
        if servers.len() < 2 {
            return Err("a comparison needs at least two servers".to_owned());
        }
        let mut names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
        names.sort_unstable();
        if names
            .iter()
            .zip(names.iter().skip(1))
            .any(|(one, other)| one == other)
        {
            return Err("two servers have the same name".to_owned());
        }
        let reference = match &raw.reference {
            Some(name) => servers
                .iter()
                .position(|server| server.name == *name)
                .ok_or_else(|| format!("the reference `{name}` is none of the servers"))?,
            None => 0,
        };
        let mut loads = Vec::new();
        for server in &servers {
            let load = raw.load.parse(folder, &server.url);
            loads.push(load.map_err(|error| format!("the load: {error}"))?);
        }
        let rounds = raw.rounds;
        let least = rounds.least.unwrap_or(ROUNDS_LEAST);
        let most = rounds.most.unwrap_or(least.max(20));
        if least == 0 || most < least {
            return Err(
                "`rounds.most` must not be less than `rounds.least`, which is at least 1"
                    .to_owned(),
            );
        }
        let precision = rounds.precision.unwrap_or(0.02);
        if !(precision > 0.0 && precision < 1.0) {
            return Err("`rounds.precision` is a share such as 0.02".to_owned());
        }
        Ok(Self {
            text: text.to_owned(),
            folder: folder.to_owned(),
            title: raw.title.unwrap_or_else(|| {
                let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
                names.join(", ")
            }),
            servers,
            loads,
            reference,
            rounds: (least, most),
            budget: duration(rounds.budget.as_deref(), Duration::from_secs(600))?,
            precision,
            restarts: rounds.restart.unwrap_or(true),
            expects_same_responses: rounds.same_responses.unwrap_or(true),
            seed: rounds.seed.unwrap_or(1),
        })
    }
}

fn duration(text: Option<&str>, default: Duration) -> Result<Duration, String> {
    text.map_or(Ok(default), parse_duration)
}

impl RawServer {
    fn parse(self, folder: &Path, path: Option<&str>) -> Result<ComparedServer, String> {
        let mut url: BenchUrl = self
            .url
            .parse()
            .map_err(|error| format!("`{}`: {error}", self.url))?;
        if let Some(path) = path {
            if !path.starts_with('/') {
                return Err(format!(
                    "the path of the load, `{path}`, does not begin with /"
                ));
            }
            url.set_path(path.to_owned());
        }
        Ok(ComparedServer {
            name: self.name,
            url,
            command: RawCommand::words(self.command),
            stop: RawCommand::words(self.stop),
            version: RawCommand::words(self.version),
            directory: folder.join(self.directory.unwrap_or_default()),
            environment: self.environment.into_iter().collect(),
            cores: cores(self.cores.as_deref())?,
            ready_within: duration(self.ready_within.as_deref(), Duration::from_secs(10))?,
        })
    }
}

fn cores(text: Option<&str>) -> Result<Option<CpuList>, String> {
    text.map(str::parse).transpose()
}

impl RawLoad {
    /// The load on one server.
    fn parse(&self, folder: &Path, url: &BenchUrl) -> Result<LoadPlan, String> {
        let read = |file: &Path| {
            let file = folder.join(file);
            fs::read(&file).map_err(|error| format!("the file {}: {error}", file.display()))
        };
        let mut plan = LoadPlan::new(url.clone());
        let mut headers = Headers::new();
        for (name, value) in &self.headers {
            headers
                .try_append(name.as_str(), value.as_str())
                .map_err(|_| format!("`{name}: {value}` is no header field"))?;
        }
        match &self.scenario {
            Some(file) => {
                if self.method.is_some() || self.body.is_some() || self.body_file.is_some() {
                    return Err("a scenario has methods and bodies of its own".to_owned());
                }
                let file = folder.join(file);
                let scenario = ScenarioPlan::read(&file, Some(url.clone()), &headers)
                    .map_err(|error| error.to_string())?;
                plan.set_scenario(Arc::new(scenario));
            }
            None => {
                let mut request = PlannedRequest::get(url.clone());
                request.headers = headers;
                request.body = match (&self.body, &self.body_file) {
                    (Some(_), Some(_)) => {
                        return Err("`body` and `body_file` exclude each other".to_owned());
                    }
                    (Some(body), None) => body.clone().into_bytes().into(),
                    (None, Some(file)) => read(file)?.into(),
                    (None, None) => bytes::Bytes::new(),
                };
                request.method = match &self.method {
                    Some(method) => Method::from_bytes(method.as_bytes())
                        .map_err(|_| format!("`{method}` is no method"))?,
                    None if request.body.is_empty() => Method::GET,
                    None => Method::POST,
                };
                plan.requests = vec![request];
            }
        }
        plan.version = match self.protocol {
            None | Some(RawProtocol::Http1) => HttpVersion::Http1,
            Some(RawProtocol::Http2) => HttpVersion::Http2,
            Some(RawProtocol::Http3) => HttpVersion::Http3,
        };
        plan.connections = self.connections.unwrap_or(plan.connections);
        plan.threads = self.threads.unwrap_or(plan.threads);
        plan.in_flight = self.streams.unwrap_or(plan.in_flight);
        plan.limit = LoadLimit::Time(duration(self.duration.as_deref(), Duration::from_secs(3))?);
        plan.warm_up = duration(self.warm_up.as_deref(), Duration::from_secs(1))?;
        plan.timeout = duration(self.timeout.as_deref(), plan.timeout)?;
        plan.rate = match &self.rate {
            None => None,
            Some(RawRate::Number(rate)) => Some(ArrivalRate::constant(*rate)?),
            Some(RawRate::Text(rate)) => Some(rate.parse()?),
        };
        plan.keeps_alive = !self.close;
        plan.tls.verify = !self.insecure;
        plan.tls.authorities = self.ca.as_deref().map(read).transpose()?;
        plan.tls.resumes = !self.no_resumption;
        if let Some(status) = &self.status {
            plan.expected.statuses = parse_statuses(status)?;
        }
        plan.expected.length = self.length;
        plan.cores = cores(self.cores.as_deref())?;
        plan.check().map_err(|error| error.to_string())?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
[[server]]
name = \"a\"
command = \"serve --port 1\"
url = \"http://127.0.0.1:1\"
cores = \"0\"

[[server]]
name = \"b\"
command = [\"serve\", \"--port\", \"2\"]
url = \"http://127.0.0.1:2/x\"
environment = { HOME = \"/tmp\" }
ready_within = \"2s\"
";

    fn parse(text: &str) -> Result<ComparisonPlan, String> {
        ComparisonPlan::parse(text, Path::new("/folder"))
    }

    #[test]
    fn a_file_has_servers_and_a_load() {
        let text = format!(
            "reference = \"b\"\n[rounds]\nleast = 8\nbudget = \"1m\"\n[load]\npath = \"/y\"\nprotocol = \"h2\"\nstreams = 4\n\
             duration = \"500ms\"\nrate = 100\ncores = \"1\"\n{TWO}"
        );
        let plan = parse(&text).unwrap();
        assert_eq!((plan.title.as_str(), plan.reference), ("a, b", 1));
        assert_eq!(plan.rounds, (8, 20));
        assert_eq!(plan.servers[0].command, ["sh", "-c", "exec serve --port 1"]);
        assert_eq!(plan.servers[1].url.to_string(), "http://127.0.0.1:2/y");
        assert_eq!(plan.servers[1].directory, Path::new("/folder"));
        assert_eq!(plan.loads[0].in_flight.get(), 4);
        assert_eq!(plan.loads[1].requests[0].url.port(), 2);
        assert!(plan.restarts && plan.expects_same_responses);
    }

    #[test]
    fn mistakes_are_errors() {
        for (text, expected) in [
            ("", "missing field `server`"),
            ("server = []", "at least two servers"),
            ("reference = \"c\"", "none of the servers"),
            ("[rounds]\nleast = 5\nmost = 2", "rounds.most"),
            ("[rounds]\nprecision = 2.0", "rounds.precision"),
            ("[load]\npath = \"x\"", "does not begin with /"),
            ("[load]\nprotocol = \"h4\"", "unknown variant"),
            ("[load]\nprotocol = \"h3\"", "https"),
            ("[load]\nspeed = 1", "unknown field `speed`"),
            ("[load]\nduration = \"long\"", "expected a duration"),
            ("[load]\nbody_file = \"none\"", "the file /folder/none"),
            ("[load]\ncores = \"x\"", "no list of processors"),
        ] {
            let whole = match text.is_empty() || text.starts_with("server") {
                true => text.to_owned(),
                false => format!("{text}\n{TWO}"),
            };
            let error = parse(&whole).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let twice = TWO.replace("\"b\"", "\"a\"");
        assert!(parse(&twice).unwrap_err().contains("same name"));
    }
}
