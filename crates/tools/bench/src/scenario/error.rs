//! What can be wrong in a file of scenarios.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::data::InvalidRows;
use super::template::InvalidLoadTemplate;
use crate::status_range::InvalidStatuses;
use crate::target::InvalidBenchUrl;
use crate::think_time::InvalidThinkTime;

/// The error for a file of scenarios.
#[derive(Debug)]
pub(super) struct InvalidScenarioFile {
    pub(super) path: PathBuf,
    pub(super) mistake: ScenarioFileMistake,
}

impl fmt::Display for InvalidScenarioFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the scenario {}: {}", self.path.display(), self.mistake)
    }
}

impl Error for InvalidScenarioFile {}

/// Why a file of scenarios cannot be used.
#[derive(Debug)]
pub(super) enum ScenarioFileMistake {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is no TOML, or has other keys or values than those of scenarios.
    Toml(toml::de::Error),
    NoUrl,
    Url {
        text: String,
        error: InvalidBenchUrl,
    },
    Rows(InvalidRows),
    Scenario {
        name: String,
        mistake: ScenarioMistake,
    },
    /// Each of its scenarios has the weight 0.
    NoWeight,
}

impl fmt::Display for ScenarioFileMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Toml(error) => error.fmt(f),
            Self::NoUrl => f.write_str("`url` is missing, such as \"http://127.0.0.1:8080\""),
            Self::Url { text, error } => write!(f, "`{text}`: {error}"),
            Self::Rows(error) => error.fmt(f),
            Self::Scenario { name, mistake } => write!(f, "scenario `{name}`{mistake}"),
            Self::NoWeight => f.write_str("at least one scenario needs a weight of more than 0"),
        }
    }
}

impl From<InvalidRows> for ScenarioFileMistake {
    fn from(error: InvalidRows) -> Self {
        Self::Rows(error)
    }
}

impl From<toml::de::Error> for ScenarioFileMistake {
    fn from(error: toml::de::Error) -> Self {
        Self::Toml(error)
    }
}

/// Why a scenario cannot be run. Its text follows the name of the scenario.
#[derive(Debug)]
pub(super) enum ScenarioMistake {
    NoStep,
    ThinkTime(InvalidThinkTime),
    Step { title: String, mistake: StepMistake },
}

impl fmt::Display for ScenarioMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStep => f.write_str(": it has no step"),
            Self::ThinkTime(error) => write!(f, ": {error}"),
            Self::Step { title, mistake } => write!(f, ", step `{title}`: {mistake}"),
        }
    }
}

/// Why a step cannot be run.
#[derive(Debug)]
pub(super) enum StepMistake {
    Template(InvalidLoadTemplate),
    Path(String),
    FieldName(String),
    /// The value of the field with this name contains control characters.
    FieldValue(String),
    Method(String),
    Statuses(InvalidStatuses),
    /// A field must not exist, which cannot be checked.
    ExpectedAbsence(String),
    FieldPattern {
        name: String,
        error: regex::Error,
    },
    Pointer(InvalidPointer),
    Capture {
        name: String,
        mistake: CaptureMistake,
    },
    ThinkTime(InvalidThinkTime),
    SeveralBodies,
    BodyFile {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for StepMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(error) => error.fmt(f),
            Self::Path(path) => {
                write!(f, "`{path}` is no path such as /shop?page=${{random:1..9}}")
            }
            Self::FieldName(name) => write!(f, "`{name}` is no name of a header field"),
            Self::FieldValue(name) => {
                write!(f, "the value of `{name}` contains control characters")
            }
            Self::Method(method) => write!(f, "`{method}` is no method"),
            Self::Statuses(error) => error.fmt(f),
            Self::ExpectedAbsence(name) => write!(f, "`{name}`: expected a value, or true"),
            Self::FieldPattern { name, error } => write!(f, "`{name}`: {error}"),
            Self::Pointer(error) => error.fmt(f),
            Self::Capture { name, mistake } => write!(f, "`{name}`: {mistake}"),
            Self::ThinkTime(error) => error.fmt(f),
            Self::SeveralBodies => {
                f.write_str("`body`, `body_file`, `form` and `json` exclude one another")
            }
            Self::BodyFile { path, error } => {
                write!(f, "the file {}: {error}", path.display())
            }
        }
    }
}

impl From<InvalidLoadTemplate> for StepMistake {
    fn from(error: InvalidLoadTemplate) -> Self {
        Self::Template(error)
    }
}

impl From<InvalidStatuses> for StepMistake {
    fn from(error: InvalidStatuses) -> Self {
        Self::Statuses(error)
    }
}

impl From<InvalidPointer> for StepMistake {
    fn from(error: InvalidPointer) -> Self {
        Self::Pointer(error)
    }
}

impl From<InvalidThinkTime> for StepMistake {
    fn from(error: InvalidThinkTime) -> Self {
        Self::ThinkTime(error)
    }
}

/// Why a value cannot be captured.
#[derive(Debug)]
pub(super) enum CaptureMistake {
    /// It names no place in a response, or several.
    Place,
    Pointer(InvalidPointer),
    Pattern(regex::Error),
}

impl fmt::Display for CaptureMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place => f.write_str("expected one of header, json and regex"),
            Self::Pointer(error) => error.fmt(f),
            Self::Pattern(error) => error.fmt(f),
        }
    }
}

/// The error for a text that is no JSON pointer (RFC 6901).
#[derive(Debug)]
pub(super) struct InvalidPointer(pub(super) String);

impl fmt::Display for InvalidPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no JSON pointer such as /user/id (RFC 6901)",
            self.0
        )
    }
}
