//! What can be set for a whole site and for a location in it.

use std::fmt;
use std::path::{Path, PathBuf};

use apus_http::{HeaderValue, StatusCode};
use bytes::Bytes;

use super::fields::{FieldChange, in_force};
use super::rewrite::Rewrite;

/// What can be set for a whole site and for a location in it.
///
/// A location's field changes come after its site's; its limit, its root, and each of its error
/// pages stand in the place of its site's.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub(super) rewrites: Vec<Rewrite>,
    pub(super) request_fields: Vec<FieldChange>,
    pub(super) response_fields: Vec<FieldChange>,
    pub(super) body_limit: Option<u64>,
    pub(super) root: Option<PathBuf>,
    pub(super) error_pages: Vec<(StatusCode, ErrorPage)>,
    pub(super) intercepts_errors: Option<bool>,
    pub(super) accel: Option<Accel>,
}

/// What an application behind us may have us answer in its place: a response of a service that names a
/// path of the site in `X-Accel-Redirect` is replaced by what the site has there, and so is one that
/// names a file in `X-Sendfile`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accel {
    /// From what a file's name starts with to what its path in the site starts with. A file that no
    /// pair fits is not sent.
    pub files: Vec<(Box<str>, Box<str>)>,
}

/// The content of an error response that has none of its own.
#[derive(Clone, Debug)]
pub enum ErrorPage {
    /// This content.
    Content {
        /// Its media type.
        content_type: HeaderValue,
        /// The content.
        content: Bytes,
    },
    /// A file, read when it is needed; the type follows from its name.
    File(PathBuf),
    /// What the site answers to a GET of this path; the status stays that of the error.
    Path(String),
}

impl fmt::Display for ErrorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { .. } => f.write_str("of the site"),
            Self::File(file) => file.display().fmt(f),
            Self::Path(path) => f.write_str(path),
        }
    }
}

impl Settings {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rewrite rule behind the others.
    #[must_use]
    pub fn rewrite(mut self, rule: Rewrite) -> Self {
        self.rewrites.push(rule);
        self
    }

    /// Changes a field of requests before a handler sees them.
    #[must_use]
    pub fn request_field(mut self, change: FieldChange) -> Self {
        self.request_fields.push(change);
        self
    }

    /// Changes a field of all responses, errors too.
    #[must_use]
    pub fn response_field(mut self, change: FieldChange) -> Self {
        self.response_fields.push(change);
        self
    }

    /// The largest content of a request in bytes; past it 413. 0 is no limit.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// `$document_root` for conditions and variables. Where files come from, [`apus_files::Files`] says.
    #[must_use]
    pub fn root(mut self, root: impl AsRef<Path>) -> Self {
        self.root = Some(root.as_ref().to_owned());
        self
    }

    /// The content of error responses with this status.
    #[must_use]
    pub fn error_page(mut self, status: StatusCode, page: ErrorPage) -> Self {
        self.error_pages.push((status, page));
        self
    }

    /// Whether error responses of a service get the site's error pages too, in place of the content
    /// that they have.
    #[must_use]
    pub fn intercept_errors(mut self, intercept: bool) -> Self {
        self.intercepts_errors = Some(intercept);
        self
    }

    /// Lets services have the site answer in their place.
    #[must_use]
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = Some(accel);
        self
    }

    /// What holds in a location with settings of its own.
    pub(super) fn refined(&self, own: &Self) -> Self {
        let mut all = self.clone();
        all.rewrites = own.rewrites.clone();
        all.request_fields.extend_from_slice(&own.request_fields);
        all.request_fields = in_force(all.request_fields);
        all.response_fields.extend_from_slice(&own.response_fields);
        all.response_fields = in_force(all.response_fields);
        all.body_limit = own.body_limit.or(all.body_limit);
        all.root = own.root.clone().or(all.root);
        all.error_pages.extend_from_slice(&own.error_pages);
        all.intercepts_errors = own.intercepts_errors.or(all.intercepts_errors);
        all.accel = own.accel.clone().or(all.accel);
        all
    }
}
