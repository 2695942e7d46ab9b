//! What can be wrong in a file of comparisons.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::comparison::figures::{InvalidGoal, InvalidPublished, UnknownFigure};
use crate::comparison::idle::IDLE_FIRST;
use crate::comparison::placeholders::PlaceholderError;
use crate::{
    BenchError, InvalidBenchUrl, InvalidCpuList, InvalidDuration, InvalidRate, InvalidStatuses,
};

/// The error for a file of comparisons.
#[derive(Debug)]
pub(crate) struct InvalidComparisonFile {
    pub(crate) path: PathBuf,
    pub(crate) mistake: ComparisonMistake,
}

impl fmt::Display for InvalidComparisonFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "the comparison {path}: {}", self.mistake)
    }
}

impl Error for InvalidComparisonFile {}

/// Why a comparison cannot be made.
#[derive(Debug)]
pub(crate) enum ComparisonMistake {
    /// The file or its folder cannot be read.
    Unreadable(io::Error),
    /// The folder of the comparison alone cannot be made.
    NoFolder(io::Error),
    Placeholder(PlaceholderError),
    /// It is no TOML, or has other keys or values than those of comparisons.
    Toml(toml::de::Error),
    FewServers,
    SameServers,
    Server {
        name: String,
        mistake: ServerMistake,
    },
    Helper {
        name: String,
        mistake: HelperMistake,
    },
    Case {
        /// The name, if the file names its cases.
        name: Option<String>,
        mistake: CaseMistake,
    },
    SameCases(String),
}

impl fmt::Display for ComparisonMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::NoFolder(error) => write!(f, "no folder can be made for it: {error}"),
            Self::Placeholder(error) => error.fmt(f),
            Self::Toml(error) => error.fmt(f),
            Self::FewServers => f.write_str("a comparison needs at least two servers"),
            Self::SameServers => f.write_str("two servers have the same name"),
            Self::Server { name, mistake } => write!(f, "server `{name}`: {mistake}"),
            Self::Helper { name, mistake } => write!(f, "helper `{name}`: {mistake}"),
            Self::Case {
                name: Some(name),
                mistake,
            } => write!(f, "case `{name}`: {mistake}"),
            Self::Case {
                name: None,
                mistake,
            } => mistake.fmt(f),
            Self::SameCases(name) => write!(f, "two cases have the name `{name}`"),
        }
    }
}

impl From<PlaceholderError> for ComparisonMistake {
    fn from(error: PlaceholderError) -> Self {
        Self::Placeholder(error)
    }
}

impl From<toml::de::Error> for ComparisonMistake {
    fn from(error: toml::de::Error) -> Self {
        Self::Toml(error)
    }
}

/// The error for a URL, with its text.
#[derive(Debug)]
pub(crate) struct InvalidServerUrl {
    pub(crate) text: String,
    pub(crate) error: InvalidBenchUrl,
}

impl fmt::Display for InvalidServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.text, self.error)
    }
}

/// Why a server cannot be compared.
#[derive(Debug)]
pub(crate) enum ServerMistake {
    Url(InvalidServerUrl),
    Cores(InvalidCpuList),
    Time(InvalidDuration),
}

impl fmt::Display for ServerMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Cores(error) => error.fmt(f),
            Self::Time(error) => error.fmt(f),
        }
    }
}

impl From<InvalidServerUrl> for ServerMistake {
    fn from(error: InvalidServerUrl) -> Self {
        Self::Url(error)
    }
}

impl From<InvalidCpuList> for ServerMistake {
    fn from(error: InvalidCpuList) -> Self {
        Self::Cores(error)
    }
}

impl From<InvalidDuration> for ServerMistake {
    fn from(error: InvalidDuration) -> Self {
        Self::Time(error)
    }
}

/// Why a helper cannot be started.
#[derive(Debug)]
pub(crate) enum HelperMistake {
    /// It counts for a server that does not exist.
    UnknownServer(String),
    ApartFromNone,
    Cores(InvalidCpuList),
    Time(InvalidDuration),
}

impl fmt::Display for HelperMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownServer(name) => write!(f, "`{name}` is none of the servers"),
            Self::ApartFromNone => f.write_str("`apart` needs `counts_for`"),
            Self::Cores(error) => error.fmt(f),
            Self::Time(error) => error.fmt(f),
        }
    }
}

impl From<InvalidCpuList> for HelperMistake {
    fn from(error: InvalidCpuList) -> Self {
        Self::Cores(error)
    }
}

impl From<InvalidDuration> for HelperMistake {
    fn from(error: InvalidDuration) -> Self {
        Self::Time(error)
    }
}

/// Why a case cannot be measured.
#[derive(Debug)]
pub(crate) enum CaseMistake {
    UnknownServer(String),
    UnknownReference(String),
    /// `urls` has a server that does not exist.
    UnknownServerOfUrl(String),
    Goal(InvalidGoal),
    /// A goal is about a figure that is known with this key only.
    GoalNeeds {
        figure: &'static str,
        key: &'static str,
    },
    Published(InvalidPublished),
    Figure(UnknownFigure),
    Limit,
    Url(InvalidServerUrl),
    LoadPath(String),
    Load(LoadMistake),
    Rounds,
    Precision,
    Budget(InvalidDuration),
}

impl fmt::Display for CaseMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownServer(name) => write!(f, "`{name}` is none of the servers"),
            Self::UnknownReference(name) => {
                write!(f, "the reference `{name}` is none of the servers")
            }
            Self::UnknownServerOfUrl(name) => {
                write!(f, "`urls` names `{name}`, which is none of the servers")
            }
            Self::Goal(error) => error.fmt(f),
            Self::GoalNeeds { figure, key } => {
                write!(f, "a goal: the figure `{figure}` needs {key}")
            }
            Self::Published(error) => error.fmt(f),
            Self::Figure(error) => error.fmt(f),
            Self::Limit => {
                f.write_str("`limit` is a number of responses per second of more than 0")
            }
            Self::Url(error) => error.fmt(f),
            Self::LoadPath(path) => {
                write!(f, "the path of the load, `{path}`, does not begin with /")
            }
            Self::Load(mistake) => write!(f, "the load: {mistake}"),
            Self::Rounds => f.write_str(
                "`rounds.most` must not be less than `rounds.least`, which is at least 1",
            ),
            Self::Precision => f.write_str("`rounds.precision` is a share such as 0.02"),
            Self::Budget(error) => error.fmt(f),
        }
    }
}

impl From<InvalidGoal> for CaseMistake {
    fn from(error: InvalidGoal) -> Self {
        Self::Goal(error)
    }
}

impl From<InvalidPublished> for CaseMistake {
    fn from(error: InvalidPublished) -> Self {
        Self::Published(error)
    }
}

impl From<UnknownFigure> for CaseMistake {
    fn from(error: UnknownFigure) -> Self {
        Self::Figure(error)
    }
}

impl From<InvalidServerUrl> for CaseMistake {
    fn from(error: InvalidServerUrl) -> Self {
        Self::Url(error)
    }
}

impl From<LoadMistake> for CaseMistake {
    fn from(mistake: LoadMistake) -> Self {
        Self::Load(mistake)
    }
}

/// Why a load cannot be sent.
#[derive(Debug)]
pub(crate) enum LoadMistake {
    NoConnections,
    IdleExcludes(&'static str),
    FewIdleConnections,
    IdleWithoutConnections,
    Field {
        name: String,
        value: String,
    },
    RequestBesideScenario,
    SeveralBodies,
    File {
        path: PathBuf,
        error: io::Error,
    },
    Method(String),
    StreamsOfHttp1,
    PipelineOfStreams,
    SeveralLimits,
    Time(InvalidDuration),
    Rate(InvalidRate),
    Statuses(InvalidStatuses),
    Cores(InvalidCpuList),
    /// Its scenario is wrong, or its parts do not fit together.
    Plan(BenchError),
}

impl fmt::Display for LoadMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnections => f.write_str("`connections` may be 0 with `idle` only"),
            Self::IdleExcludes(key) => write!(f, "`idle` and `{key}` exclude each other"),
            Self::FewIdleConnections => write!(
                f,
                "`idle` needs more than {IDLE_FIRST} connections, which are opened before to know what the others cost, or none"
            ),
            Self::IdleWithoutConnections => f.write_str("`idle` needs `connections`"),
            Self::Field { name, value } => write!(f, "`{name}: {value}` is no header field"),
            Self::RequestBesideScenario => {
                f.write_str("a scenario has methods and bodies of its own")
            }
            Self::SeveralBodies => f.write_str("`body` and `body_file` exclude each other"),
            Self::File { path, error } => write!(f, "the file {}: {error}", path.display()),
            Self::Method(method) => write!(f, "`{method}` is no method"),
            Self::StreamsOfHttp1 => f.write_str("`streams` need the protocol h2 or h3"),
            Self::PipelineOfStreams => f.write_str("`pipeline` needs the protocol http/1.1"),
            Self::SeveralLimits => f.write_str("`duration` and `requests` exclude each other"),
            Self::Time(error) => error.fmt(f),
            Self::Rate(error) => error.fmt(f),
            Self::Statuses(error) => error.fmt(f),
            Self::Cores(error) => error.fmt(f),
            Self::Plan(error) => error.fmt(f),
        }
    }
}

impl From<InvalidDuration> for LoadMistake {
    fn from(error: InvalidDuration) -> Self {
        Self::Time(error)
    }
}

impl From<InvalidRate> for LoadMistake {
    fn from(error: InvalidRate) -> Self {
        Self::Rate(error)
    }
}

impl From<InvalidStatuses> for LoadMistake {
    fn from(error: InvalidStatuses) -> Self {
        Self::Statuses(error)
    }
}

impl From<InvalidCpuList> for LoadMistake {
    fn from(error: InvalidCpuList) -> Self {
        Self::Cores(error)
    }
}

impl From<BenchError> for LoadMistake {
    fn from(error: BenchError) -> Self {
        Self::Plan(error)
    }
}

/// Why the comparison of a report cannot be repeated.
#[derive(Debug)]
pub(crate) enum UnrepeatableReport {
    Json(serde_json::Error),
    NoReports,
    /// The report lacks this part.
    Missing(&'static str),
    /// Its file, as it is now.
    File(ComparisonMistake),
}

impl fmt::Display for UnrepeatableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the report cannot be repeated: ")?;
        match self {
            Self::Json(error) => error.fmt(f),
            Self::NoReports => f.write_str("it has no reports"),
            Self::Missing(name) => write!(f, "it has no `{name}`"),
            Self::File(mistake) => mistake.fmt(f),
        }
    }
}

impl Error for UnrepeatableReport {}

impl From<ComparisonMistake> for UnrepeatableReport {
    fn from(mistake: ComparisonMistake) -> Self {
        Self::File(mistake)
    }
}
