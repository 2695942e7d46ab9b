//! The trace of a request through the services, which `apus explain` shows.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Request;

/// The steps of one request. As an extension of the request, it collects the steps of the services that
/// the request meets; without it, a step costs a branch.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    steps: Arc<Mutex<Vec<Step>>>,
}

/// A decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was decided.
    pub kind: StepKind,
    /// The decision: the name of the site, the new path, the file.
    pub what: String,
    /// The reason for it.
    pub why: String,
}

/// The subject of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// The certificate of the TLS handshake.
    Certificate,
    /// The site of the request.
    Site,
    /// A rule whose condition holds, or the first one whose condition does not.
    Rule,
    /// The path after a rewrite rule.
    Rewrite,
    /// The location of the path.
    Location,
    /// Whether the client is admitted, and why.
    Access,
    /// The service that responds.
    Handler,
    /// The cache key of the response, if it may be stored.
    Cache,
    /// The group of origins that the request is forwarded to.
    Origins,
    /// The script that responds.
    Script,
    /// A variable of the script.
    Variable,
    /// The file that is sent.
    File,
    /// The form of the body: a variant, a range, a compression, an error page.
    Content,
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Certificate => "tls",
            Self::Site => "site",
            Self::Rule => "rule",
            Self::Rewrite => "rewrite",
            Self::Location => "location",
            Self::Access => "access",
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
    /// Creates a step.
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

    /// The trace of a request, for a service that adds steps after it passed the request on.
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

/// Adds a step if the request has a trace; `step` is not called otherwise.
#[inline]
pub fn note(request: &Request, step: impl FnOnce() -> Step) {
    if request.extensions().is_empty() {
        return;
    }
    if let Some(trace) = request.extensions().get::<Trace>() {
        trace.push(step());
    }
}
