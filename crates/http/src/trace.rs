//! What `apus explain` shows: the steps a request took through the services, noted as they are taken.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Request;

/// Collects the steps of one request. Put into the request's extensions, it is filled by the
/// services that the request really meets; without one a step costs a branch.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    steps: Arc<Mutex<Vec<Step>>>,
}

/// A decision that was taken about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was decided.
    pub kind: StepKind,
    /// The decision: the name of the site, the new path, the file.
    pub what: String,
    /// What led to it.
    pub why: String,
}

/// What a [`Step`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// Which site the request is for.
    Site,
    /// What a rewrite rule made of the path.
    Rewrite,
    /// Which location of the site the path is in.
    Location,
    /// Which service answers.
    Handler,
    /// Under which key the answer is stored, if it may be.
    Cache,
    /// Which group of origins is asked.
    Origins,
    /// Which program answers.
    Script,
    /// What it is told: a variable.
    Variable,
    /// Which file the answer comes from.
    File,
    /// What became of the content: a variant, a range, a compression, an error page.
    Content,
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Site => "site",
            Self::Rewrite => "rewrite",
            Self::Location => "location",
            Self::Handler => "handler",
            Self::Cache => "cache",
            Self::Origins => "origins",
            Self::Script => "script",
            Self::Variable => "variable",
            Self::File => "file",
            Self::Content => "content",
        })
    }
}

impl Step {
    /// A step.
    pub fn new(kind: StepKind, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            why: why.into(),
        }
    }
}

impl Trace {
    /// The steps so far, in order.
    pub fn steps(&self) -> Vec<Step> {
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The trace of a request, for what notes steps after it gave the request away.
    pub fn of(request: &Request) -> Option<Self> {
        if request.extensions().is_empty() {
            return None;
        }
        request.extensions().get::<Self>().cloned()
    }

    /// Adds a step.
    pub fn push(&self, step: Step) {
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(step);
    }
}

/// Notes a step if somebody wants to know; `step` is not called otherwise.
#[inline]
pub fn note(request: &Request, step: impl FnOnce() -> Step) {
    if request.extensions().is_empty() {
        return;
    }
    if let Some(trace) = request.extensions().get::<Trace>() {
        trace.push(step());
    }
}
