//! Comparisons in TOML.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    ArrivalRate, BenchError, BenchUrl, CpuList, HttpVersion, InvalidCpuList, InvalidDuration,
    LoadLimit, LoadPlan, PlannedRequest, ScenarioPlan, ThinkTime, parse_duration, parse_statuses,
};
use apus_http::{Headers, Method};
use serde::Deserialize;

use crate::comparison::error::{
    CaseMistake, ComparisonMistake, HelperMistake, InvalidComparisonFile, InvalidServerUrl,
    LoadMistake, ServerMistake,
};
use crate::comparison::figures::{ComparisonGoal, RawGoal, RawNames, RawPublished, figure};
use crate::comparison::helper::{ComparisonHelper, ReadySign};
use crate::comparison::idle::IDLE_FIRST;
use crate::comparison::placeholders::Placeholders;
use crate::comparison::plan::{ComparisonChanges, ComparisonFile, ComparisonPlan};
use crate::comparison::server::ComparedServer;
use crate::comparison::statistics::MIN_ROUNDS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawComparison {
    title: Option<String>,
    note: Option<String>,
    reference: Option<String>,
    /// Read by `Placeholders`.
    #[serde(default, rename = "values")]
    _values: BTreeMap<String, String>,
    /// Texts by the names of files in the folder of this comparison alone.
    #[serde(default)]
    files: BTreeMap<PathBuf, String>,
    #[serde(default)]
    prepare: Vec<RawCommand>,
    loopback_mtu: Option<u32>,
    check: Option<PathBuf>,
    /// What tables show although nobody has published it and there is no goal for it.
    #[serde(default)]
    figures: Vec<String>,
    #[serde(default)]
    rounds: RawRounds,
    #[serde(default)]
    load: RawLoad,
    #[serde(default)]
    helper: Vec<RawHelper>,
    server: Vec<RawServer>,
    #[serde(default)]
    case: Vec<RawCase>,
    #[serde(default)]
    goal: Vec<RawGoal>,
    #[serde(default)]
    published: Vec<RawPublished>,
}

/// One load on the servers, or on some of them.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: String,
    title: Option<String>,
    note: Option<String>,
    reference: Option<String>,
    loopback_mtu: Option<u32>,
    servers: Option<Vec<String>>,
    /// What is requested of servers by their names, instead of their URLs.
    #[serde(default)]
    urls: BTreeMap<String, String>,
    check: Option<PathBuf>,
    figures: Option<Vec<String>>,
    limit: Option<f64>,
    #[serde(default)]
    rounds: RawRounds,
    #[serde(default)]
    load: RawLoad,
    #[serde(default)]
    goal: Vec<RawGoal>,
    #[serde(default)]
    published: Vec<RawPublished>,
}

#[derive(Clone, Default, Deserialize)]
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

#[derive(Clone, Default, Deserialize)]
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
    connections: Option<usize>,
    idle: Option<bool>,
    threads: Option<NonZeroUsize>,
    streams: Option<NonZeroUsize>,
    pipeline: Option<NonZeroUsize>,
    duration: Option<String>,
    requests: Option<u64>,
    warm_up: Option<String>,
    timeout: Option<String>,
    rate: Option<RawRate>,
    close: Option<bool>,
    insecure: Option<bool>,
    ca: Option<PathBuf>,
    no_resumption: Option<bool>,
    tls_cipher: Option<String>,
    tls_group: Option<String>,
    status: Option<String>,
    length: Option<u64>,
    cores: Option<String>,
}

impl RawRounds {
    /// What is said here, and else what is said in general.
    fn or(self, general: &Self) -> Self {
        let general = general.clone();
        Self {
            least: self.least.or(general.least),
            most: self.most.or(general.most),
            budget: self.budget.or(general.budget),
            precision: self.precision.or(general.precision),
            restart: self.restart.or(general.restart),
            same_responses: self.same_responses.or(general.same_responses),
            seed: self.seed.or(general.seed),
        }
    }
}

impl RawLoad {
    /// What is said here, and else what is said in general.
    fn or(self, general: &Self) -> Self {
        let general = general.clone();
        let mut headers = general.headers;
        headers.extend(self.headers);
        let (body, body_file) = if self.body.is_some() || self.body_file.is_some() {
            (self.body, self.body_file)
        } else {
            (general.body, general.body_file)
        };
        let (duration, requests) = if self.duration.is_some() || self.requests.is_some() {
            (self.duration, self.requests)
        } else {
            (general.duration, general.requests)
        };
        Self {
            path: self.path.or(general.path),
            method: self.method.or(general.method),
            headers,
            body,
            body_file,
            scenario: self.scenario.or(general.scenario),
            protocol: self.protocol.or(general.protocol),
            connections: self.connections.or(general.connections),
            idle: self.idle.or(general.idle),
            threads: self.threads.or(general.threads),
            streams: self.streams.or(general.streams),
            pipeline: self.pipeline.or(general.pipeline),
            duration,
            requests,
            warm_up: self.warm_up.or(general.warm_up),
            timeout: self.timeout.or(general.timeout),
            rate: self.rate.or(general.rate),
            close: self.close.or(general.close),
            insecure: self.insecure.or(general.insecure),
            ca: self.ca.or(general.ca),
            no_resumption: self.no_resumption.or(general.no_resumption),
            tls_cipher: self.tls_cipher.or(general.tls_cipher),
            tls_group: self.tls_group.or(general.tls_group),
            status: self.status.or(general.status),
            length: self.length.or(general.length),
            cores: self.cores.or(general.cores),
        }
    }
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

#[derive(Clone, Deserialize)]
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
    #[serde(default)]
    prepare: Vec<RawCommand>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    other_response: bool,
}

/// A program that runs beside the servers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHelper {
    name: String,
    command: RawCommand,
    cores: Option<String>,
    ready: Option<String>,
    ready_within: Option<String>,
    #[serde(default)]
    then: Vec<RawCommand>,
    /// The servers whose consumption includes that of the helper.
    counts_for: Option<RawNames>,
    #[serde(default)]
    apart: bool,
    idle_within: Option<String>,
}

/// The words of a command, or a line for the shell.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawCommand {
    Line(String),
    Words(Vec<String>),
}

impl RawCommand {
    fn all(commands: Vec<Self>) -> Vec<Vec<String>> {
        let commands = commands.into_iter();
        commands.map(|command| Self::words(Some(command))).collect()
    }

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

impl ComparisonFile {
    /// Reads comparisons from a file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file or one that it names cannot be read, or contains a mistake.
    pub fn read(path: &Path, changes: &ComparisonChanges) -> Result<Self, BenchError> {
        let wrong = |mistake| {
            BenchError::plan(InvalidComparisonFile {
                path: path.to_owned(),
                mistake,
            })
        };
        let unreadable = |error| wrong(ComparisonMistake::Unreadable(error));
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let folder = folder.canonicalize().map_err(unreadable)?;
        Self::parse(&text, &folder, changes).map_err(wrong)
    }

    pub(crate) fn parse(
        text: &str,
        folder: &Path,
        changes: &ComparisonChanges,
    ) -> Result<Self, ComparisonMistake> {
        let work = tempfile::Builder::new()
            .prefix("apus-bench-")
            .tempdir()
            .map_err(ComparisonMistake::NoFolder)?;
        // Servers with another user read files in it.
        fs::set_permissions(work.path(), Permissions::from_mode(0o755))
            .map_err(ComparisonMistake::NoFolder)?;
        let mut known = Placeholders::of(text, &changes.values, (folder, work.path()))?;
        let filled = known.fill(text)?;
        let raw: RawComparison = toml::from_str(&filled)?;
        let mut servers = Vec::new();
        for server in raw.server {
            let name = server.name.clone();
            let server = server
                .parse(folder)
                .map_err(|mistake| ComparisonMistake::Server { name, mistake })?;
            servers.push(server);
        }
        check_names(&servers)?;
        let mut helpers = Vec::new();
        for helper in raw.helper {
            let name = helper.name.clone();
            let helper = helper
                .parse(folder, &servers)
                .map_err(|mistake| ComparisonMistake::Helper { name, mistake })?;
            helpers.push(helper);
        }
        let has_cases = !raw.case.is_empty();
        let title = raw.title.unwrap_or_else(|| {
            let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
            names.join(", ")
        });
        let general = GeneralPart {
            text: text.into(),
            folder,
            title: &title,
            reference: raw.reference.as_deref(),
            loopback_mtu: raw.loopback_mtu,
            check: raw.check.as_deref(),
            figures: &raw.figures,
            rounds: &raw.rounds,
            load: &raw.load,
            servers: &servers,
            changes,
        };
        let cases = if has_cases {
            raw.case
        } else {
            vec![RawCase {
                goal: raw.goal,
                published: raw.published,
                note: raw.note.clone(),
                ..RawCase::default()
            }]
        };
        let mut plans: Vec<ComparisonPlan> = Vec::new();
        for case in cases {
            let name = case.name.clone();
            let plan = match general.plan(case, has_cases) {
                Ok(plan) => plan,
                Err(mistake) => {
                    let name = has_cases.then_some(name);
                    return Err(ComparisonMistake::Case { name, mistake });
                }
            };
            if plans.iter().any(|other| other.case == plan.case) {
                return Err(ComparisonMistake::SameCases(name));
            }
            plans.push(plan);
        }
        plans.retain(|plan| !plan.servers.is_empty());
        if !changes.cases.is_empty() {
            plans.retain(|plan| {
                plan.case
                    .as_ref()
                    .is_none_or(|name| changes.cases.contains(name))
            });
        }
        Ok(Self {
            title,
            note: raw.note,
            value_names: known.names(),
            work,
            files: raw.files.into_iter().collect(),
            prepare: RawCommand::all(raw.prepare),
            helpers,
            has_cases,
            cases: plans,
        })
    }
}

fn check_names(servers: &[ComparedServer]) -> Result<(), ComparisonMistake> {
    if servers.len() < 2 {
        return Err(ComparisonMistake::FewServers);
    }
    let mut names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    names.sort_unstable();
    let is_twice = names.windows(2).any(|pair| pair.first() == pair.last());
    if is_twice {
        Err(ComparisonMistake::SameServers)
    } else {
        Ok(())
    }
}

/// What all cases of a file have in common.
struct GeneralPart<'a> {
    text: Arc<str>,
    folder: &'a Path,
    title: &'a str,
    reference: Option<&'a str>,
    loopback_mtu: Option<u32>,
    check: Option<&'a Path>,
    figures: &'a [String],
    rounds: &'a RawRounds,
    load: &'a RawLoad,
    servers: &'a [ComparedServer],
    changes: &'a ComparisonChanges,
}

impl GeneralPart<'_> {
    fn plan(&self, case: RawCase, is_named: bool) -> Result<ComparisonPlan, CaseMistake> {
        let mut servers = self.servers.to_vec();
        if let Some(names) = &case.servers {
            let known = |name: &&String| servers.iter().any(|server| server.name == **name);
            if let Some(unknown) = names.iter().find(|name| !known(name)) {
                return Err(CaseMistake::UnknownServer(unknown.clone()));
            }
            servers.retain(|server| names.contains(&server.name));
        }
        let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
        let reference = case.reference.as_deref().or(self.reference);
        if let Some(name) = reference
            && !names.contains(&name)
        {
            return Err(CaseMistake::UnknownReference(name.to_owned()));
        }
        if let Some(name) = case
            .urls
            .keys()
            .find(|name| !names.contains(&name.as_str()))
        {
            return Err(CaseMistake::UnknownServerOfUrl(name.clone()));
        }
        let goals = case.goal.into_iter().map(|goal| goal.parse(&names));
        let goals = goals.collect::<Result<Vec<_>, _>>()?;
        let chosen = &self.changes.servers;
        servers.retain(|server| chosen.is_empty() || chosen.contains(&server.name));
        let reference = reference.and_then(|name| servers.iter().position(|one| one.name == name));
        let reference = reference.unwrap_or(0);
        let published = case.published.into_iter().map(RawPublished::parse);
        let published = published.collect::<Result<_, _>>()?;
        let shown = case.figures.as_deref().unwrap_or(self.figures);
        let shown = shown
            .iter()
            .map(|name| figure(name).map(|figure| figure.key));
        let shown = shown.collect::<Result<Vec<_>, _>>()?;
        let raw_load = case.load.or(self.load);
        let idle = raw_load.idle_connections()?;
        if case
            .limit
            .is_some_and(|limit| limit.is_nan() || limit <= 0.0)
        {
            return Err(CaseMistake::Limit);
        }
        for (figure, is_known, key) in [
            ("of-limit", case.limit.is_some(), "`limit`"),
            (
                "per-connection",
                idle.is_some_and(|count| count > 0),
                "`load.idle` with connections",
            ),
        ] {
            if !is_known
                && goals
                    .iter()
                    .any(|goal: &ComparisonGoal| goal.is_about(figure))
            {
                return Err(CaseMistake::GoalNeeds { figure, key });
            }
        }
        let mut loads = Vec::new();
        for server in &mut servers {
            match (case.urls.get(&server.name), &raw_load.path) {
                (Some(url), _) => server.url = parse_url(url)?,
                (None, Some(path)) if path.starts_with('/') => server.url.set_path(path.clone()),
                (None, Some(path)) => {
                    return Err(CaseMistake::LoadPath(path.clone()));
                }
                (None, None) => {}
            }
            loads.push(raw_load.parse(self.folder, &server.url, self.changes)?);
        }
        let rounds = case.rounds.or(self.rounds);
        let least = rounds.least.unwrap_or(MIN_ROUNDS);
        let most = rounds.most.unwrap_or(least.max(20));
        if least == 0 || most < least {
            return Err(CaseMistake::Rounds);
        }
        let precision = rounds.precision.unwrap_or(0.02);
        if !(precision > 0.0 && precision < 1.0) {
            return Err(CaseMistake::Precision);
        }
        let title = match (&case.title, is_named) {
            (Some(title), _) => title.clone(),
            (None, true) => case.name.clone(),
            (None, false) => self.title.to_owned(),
        };
        Ok(ComparisonPlan {
            text: Arc::clone(&self.text),
            folder: self.folder.to_owned(),
            values: self.changes.values.clone(),
            title,
            case: is_named.then_some(case.name),
            note: case.note,
            loopback_mtu: case.loopback_mtu.or(self.loopback_mtu),
            servers,
            loads,
            idle,
            check: case
                .check
                .as_deref()
                .or(self.check)
                .map(|file| self.folder.join(file)),
            limit: case.limit,
            shown,
            reference,
            rounds: match self.changes.rounds {
                Some(rounds) => (rounds, rounds),
                None => (least, most),
            },
            budget: duration(rounds.budget.as_deref(), Duration::from_secs(600))
                .map_err(CaseMistake::Budget)?,
            precision,
            restarts: rounds.restart.unwrap_or(true),
            expects_same_responses: rounds.same_responses.unwrap_or(true),
            seed: rounds.seed.unwrap_or(1),
            published,
            goals,
            left_out: Vec::new(),
        })
    }
}

fn parse_url(text: &str) -> Result<BenchUrl, InvalidServerUrl> {
    text.parse().map_err(|error| InvalidServerUrl {
        text: text.to_owned(),
        error,
    })
}

fn duration(text: Option<&str>, default: Duration) -> Result<Duration, InvalidDuration> {
    text.map_or(Ok(default), parse_duration)
}

impl RawServer {
    fn parse(self, folder: &Path) -> Result<ComparedServer, ServerMistake> {
        Ok(ComparedServer {
            name: self.name,
            url: parse_url(&self.url)?,
            command: RawCommand::words(self.command),
            stop: RawCommand::words(self.stop),
            version: RawCommand::words(self.version),
            directory: folder.join(self.directory.unwrap_or_default()),
            environment: self.environment.into_iter().collect(),
            cores: cores(self.cores.as_deref())?,
            ready_within: duration(self.ready_within.as_deref(), Duration::from_secs(10))?,
            prepare: RawCommand::all(self.prepare),
            is_optional: self.optional,
            has_other_response: self.other_response,
        })
    }
}

impl RawHelper {
    fn parse(
        self,
        folder: &Path,
        servers: &[ComparedServer],
    ) -> Result<ComparisonHelper, HelperMistake> {
        let of = RawNames::all(self.counts_for);
        let is_known = |name: &&String| servers.iter().any(|server| server.name == **name);
        if let Some(name) = of.iter().find(|name| !is_known(name)) {
            return Err(HelperMistake::UnknownServer(name.clone()));
        }
        if self.apart && of.is_empty() {
            return Err(HelperMistake::ApartFromNone);
        }
        Ok(ComparisonHelper {
            name: self.name,
            command: RawCommand::words(Some(self.command)),
            cores: cores(self.cores.as_deref())?,
            ready: self.ready.map(|sign| ReadySign::parse(&sign, folder)),
            ready_within: duration(self.ready_within.as_deref(), Duration::from_secs(60))?,
            then: RawCommand::all(self.then),
            of,
            is_apart: self.apart,
            idle_within: self
                .idle_within
                .map(|text| duration(Some(&text), Duration::ZERO))
                .transpose()?,
        })
    }
}

fn cores(text: Option<&str>) -> Result<Option<CpuList>, InvalidCpuList> {
    text.map(str::parse).transpose()
}

impl RawLoad {
    /// The connections that are left alone after a response each, if that is the load.
    fn idle_connections(&self) -> Result<Option<usize>, LoadMistake> {
        if !self.idle.unwrap_or(false) {
            return match self.connections {
                Some(0) => Err(LoadMistake::NoConnections),
                _ => Ok(None),
            };
        }
        let excluded = [
            ("requests", self.requests.is_some()),
            ("rate", self.rate.is_some()),
            ("scenario", self.scenario.is_some()),
            ("streams", self.streams.is_some()),
            ("pipeline", self.pipeline.is_some()),
            ("close", self.close == Some(true)),
        ];
        if let Some((key, _)) = excluded.iter().find(|(_, is_set)| *is_set) {
            return Err(LoadMistake::IdleExcludes(key));
        }
        match self.connections {
            Some(count) if count > 0 && count <= IDLE_FIRST => Err(LoadMistake::FewIdleConnections),
            Some(count) => Ok(Some(count)),
            None => Err(LoadMistake::IdleWithoutConnections),
        }
    }

    /// The load on one server.
    fn parse(
        &self,
        folder: &Path,
        url: &BenchUrl,
        changes: &ComparisonChanges,
    ) -> Result<LoadPlan, LoadMistake> {
        let read = |file: &Path| {
            let path = folder.join(file);
            fs::read(&path).map_err(|error| LoadMistake::File { path, error })
        };
        let mut plan = LoadPlan::new(url.clone());
        let mut headers = Headers::new();
        for (name, value) in &self.headers {
            headers
                .try_append(name.as_str(), value.as_str())
                .map_err(|_| LoadMistake::Field {
                    name: name.clone(),
                    value: value.clone(),
                })?;
        }
        match &self.scenario {
            Some(file) => {
                if self.method.is_some() || self.body.is_some() || self.body_file.is_some() {
                    return Err(LoadMistake::RequestBesideScenario);
                }
                let file = folder.join(file);
                let scenario = ScenarioPlan::read(&file, Some(url.clone()), &headers)?;
                plan.set_scenario(Arc::new(scenario));
            }
            None => {
                let mut request = PlannedRequest::get(url.clone());
                request.headers = headers;
                request.body = match (&self.body, &self.body_file) {
                    (Some(_), Some(_)) => return Err(LoadMistake::SeveralBodies),
                    (Some(body), None) => body.clone().into_bytes().into(),
                    (None, Some(file)) => read(file)?.into(),
                    (None, None) => bytes::Bytes::new(),
                };
                request.method = match &self.method {
                    Some(method) => Method::from_bytes(method.as_bytes())
                        .map_err(|_| LoadMistake::Method(method.clone()))?,
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
        // None at all are no load: see `idle_connections`.
        let connections = self.connections.and_then(NonZeroUsize::new);
        plan.connections = connections.unwrap_or(plan.connections);
        plan.threads = self.threads.unwrap_or(plan.threads);
        plan.in_flight = match (plan.version, self.streams, self.pipeline) {
            (HttpVersion::Http1, None, pipeline) => pipeline.unwrap_or(plan.in_flight),
            (HttpVersion::Http1, Some(_), _) => return Err(LoadMistake::StreamsOfHttp1),
            (_, streams, None) => streams.unwrap_or(plan.in_flight),
            (_, _, Some(_)) => return Err(LoadMistake::PipelineOfStreams),
        };
        plan.limit = match (&self.duration, self.requests) {
            (Some(_), Some(_)) => return Err(LoadMistake::SeveralLimits),
            (None, Some(requests)) => LoadLimit::Requests(requests),
            (time, None) => LoadLimit::Time(duration(time.as_deref(), Duration::from_secs(3))?),
        };
        plan.warm_up = match plan.limit {
            LoadLimit::Time(_) => duration(self.warm_up.as_deref(), Duration::from_secs(1))?,
            LoadLimit::Requests(_) => Duration::ZERO,
        };
        if let Some(time) = changes.duration {
            plan.limit = LoadLimit::Time(time);
            plan.warm_up = plan.warm_up.min(time);
        }
        if self.idle.unwrap_or(false) {
            plan.warm_up = Duration::ZERO;
            plan.think_time = Some(ThinkTime::UNTIL_THE_END);
        }
        plan.timeout = duration(self.timeout.as_deref(), plan.timeout)?;
        plan.rate = match &self.rate {
            None => None,
            Some(RawRate::Number(rate)) => Some(ArrivalRate::constant(*rate)?),
            Some(RawRate::Text(rate)) => Some(rate.parse()?),
        };
        plan.keeps_alive = !self.close.unwrap_or(false);
        plan.tls.verify = !self.insecure.unwrap_or(false);
        plan.tls.authorities = self.ca.as_deref().map(read).transpose()?;
        plan.tls.resumes = !self.no_resumption.unwrap_or(false);
        plan.tls.cipher.clone_from(&self.tls_cipher);
        plan.tls.group.clone_from(&self.tls_group);
        if let Some(status) = &self.status {
            plan.expected.statuses = parse_statuses(status)?;
        }
        plan.expected.length = self.length;
        plan.cores = cores(self.cores.as_deref())?;
        plan.check()?;
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

    fn parse_file(
        text: &str,
        changes: &ComparisonChanges,
    ) -> Result<ComparisonFile, ComparisonMistake> {
        ComparisonFile::parse(text, Path::new("/folder"), changes)
    }

    fn parse(text: &str) -> Result<ComparisonPlan, ComparisonMistake> {
        let file = parse_file(text, &ComparisonChanges::default())?;
        assert!(!file.has_cases);
        Ok(file.cases[0].clone())
    }

    const CASES: &str = "\
reference = \"b\"
[values]
time = \"2s\"
[load]
connections = 8
duration = \"${time}\"
headers = { a = \"1\" }
[[case]]
name = \"small\"
note = \"few\"
load = { path = \"/s\", connections = 1, headers = { b = \"2\" } }
goal = [{ figure = \"cpu\", server = \"a\", of = \"b\", most = 0.5 }]
[[case]]
name = \"many\"
servers = [\"b\"]
load = { requests = 100 }
rounds = { least = 1, most = 1 }
published = [{ server = \"c\", rate = 7 }]
";

    #[test]
    fn cases_change_the_load_that_the_file_has_for_all() {
        let text = format!("{CASES}{TWO}");
        let file = parse_file(&text, &ComparisonChanges::default()).unwrap();
        let [small, many] = &file.cases[..] else {
            panic!("{} cases", file.cases.len());
        };
        assert_eq!(
            (small.case.as_deref(), small.note.as_deref()),
            (Some("small"), Some("few"))
        );
        assert_eq!((small.reference, small.goals.len()), (1, 1));
        let load = &small.loads[1];
        assert_eq!(
            (load.connections.get(), load.requests[0].url.path()),
            (1, "/s")
        );
        assert_eq!(load.limit, LoadLimit::Time(Duration::from_secs(2)));
        let headers = &load.requests[0].headers;
        assert!(headers.contains("a") && headers.contains("b"));
        assert_eq!(
            (many.servers.len(), many.reference, many.rounds),
            (1, 0, (1, 1))
        );
        assert_eq!(many.loads[0].limit, LoadLimit::Requests(100));
        assert_eq!(
            (
                many.loads[0].connections.get(),
                many.loads[0].requests[0].url.path()
            ),
            (8, "/x")
        );
        assert_eq!(many.published[0].figures["rate"], 7.0);

        let changes = ComparisonChanges {
            values: BTreeMap::from([("time".to_owned(), "9s".to_owned())]),
            cases: vec!["small".to_owned()],
            rounds: Some(3),
            ..ComparisonChanges::default()
        };
        let file = parse_file(&text, &changes).unwrap();
        assert_eq!((file.cases.len(), file.cases[0].rounds), (1, (3, 3)));
        assert_eq!(
            file.cases[0].loads[0].limit,
            LoadLimit::Time(Duration::from_secs(9))
        );
        let changes = ComparisonChanges {
            servers: vec!["a".to_owned()],
            ..ComparisonChanges::default()
        };
        let file = parse_file(&text, &changes).unwrap();
        assert_eq!((file.cases.len(), file.cases[0].servers.len()), (1, 1));
        assert_eq!(file.cases[0].reference, 0);
        let changes = ComparisonChanges {
            duration: Some(Duration::from_millis(500)),
            ..ComparisonChanges::default()
        };
        let load = &parse_file(&text, &changes).unwrap().cases[0].loads[0];
        assert_eq!(load.limit, LoadLimit::Time(Duration::from_millis(500)));
        assert_eq!(load.warm_up, Duration::from_millis(500));
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
    fn a_case_has_urls_a_check_and_idle_connections() {
        let text = format!(
            "check = \"all.toml\"\n[load]\npath = \"/y\"\n[[case]]\nname = \"urls\"\nlimit = 1000\n\
             urls = {{ b = \"https://127.0.0.1:3/z\" }}\n[[case]]\nname = \"idle\"\ncheck = \"own.toml\"\n\
             load = {{ idle = true, connections = 100, duration = \"4s\" }}\n\
             [[case]]\nname = \"rest\"\nload = {{ idle = true, connections = 0 }}\n{TWO}"
        );
        let file = parse_file(&text, &ComparisonChanges::default()).unwrap();
        let [urls, idle, rest] = &file.cases[..] else {
            panic!("{} cases", file.cases.len());
        };
        let of_load = |index: usize| urls.loads[index].requests[0].url.to_string();
        assert_eq!(of_load(0), "http://127.0.0.1:1/y");
        assert_eq!(of_load(1), "https://127.0.0.1:3/z");
        assert_eq!((urls.limit, urls.idle), (Some(1000.0), None));
        assert_eq!(urls.check.as_deref(), Some(Path::new("/folder/all.toml")));
        assert_eq!(idle.check.as_deref(), Some(Path::new("/folder/own.toml")));
        assert_eq!((idle.idle, rest.idle), (Some(100), Some(0)));
        let load = &idle.loads[0];
        assert_eq!(load.think_time, Some(ThinkTime::UNTIL_THE_END));
        assert_eq!(
            (load.warm_up, load.connections.get()),
            (Duration::ZERO, 100)
        );
        assert_eq!(load.limit, LoadLimit::Time(Duration::from_secs(4)));
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
            ("[load]\nstreams = 2", "`streams` need"),
            (
                "[load]\nprotocol = \"h2\"\npipeline = 2",
                "`pipeline` needs",
            ),
            (
                "[load]\nduration = \"1s\"\nrequests = 2",
                "exclude each other",
            ),
            ("title = \"${none}\"", "`${none}` is unknown"),
            (
                "[[case]]\nname = \"x\"\nservers = [\"c\"]",
                "case `x`: `c` is none",
            ),
            (
                "[[case]]\nname = \"x\"\n[[case]]\nname = \"x\"",
                "two cases have the name",
            ),
            ("figures = [\"speed\"]", "`speed` is no figure"),
            ("[load]\nconnections = 0", "with `idle` only"),
            ("[load]\nidle = true", "`idle` needs `connections`"),
            (
                "[load]\nidle = true\nconnections = 64",
                "more than 64 connections",
            ),
            (
                "[load]\nidle = true\nconnections = 100\nrequests = 5",
                "`idle` and `requests` exclude",
            ),
            (
                "[[case]]\nname = \"x\"\nurls = { c = \"http://127.0.0.1:3/\" }",
                "case `x`: `urls` names `c`",
            ),
            (
                "[[case]]\nname = \"x\"\nurls = { a = \"ftp://127.0.0.1/\" }",
                "case `x`: `ftp://127.0.0.1/`: ",
            ),
            ("[[case]]\nname = \"x\"\nlimit = 0", "`limit` is a number"),
            (
                "[[goal]]\nfigure = \"of-limit\"\nserver = \"a\"\nleast = 1",
                "`of-limit` needs `limit`",
            ),
            (
                "[[goal]]\nfigure = \"per-connection\"\nserver = \"a\"\nmost = 1",
                "`per-connection` needs `load.idle`",
            ),
            (
                "[[goal]]\nfigure = \"cpu\"\nserver = \"a\"",
                "either `most` or `least`",
            ),
            (
                "[[helper]]\nname = \"h\"\ncommand = \"x\"\ncounts_for = \"c\"",
                "helper `h`: `c` is none",
            ),
            (
                "[[helper]]\nname = \"h\"\ncommand = \"x\"\napart = true",
                "`apart` needs",
            ),
        ] {
            let whole = if text.is_empty() || text.starts_with("server") {
                text.to_owned()
            } else {
                format!("{text}\n{TWO}")
            };
            let error = parse(&whole).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let twice = TWO.replace("\"b\"", "\"a\"");
        let error = parse(&twice).unwrap_err().to_string();
        assert!(error.contains("same name"), "{error}");
    }
}
