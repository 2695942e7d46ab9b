//! Settings of a site that each of its locations can refine.

use std::fmt;
use std::path::{Path, PathBuf};

use apus_handler::middleware::{Layer, Middleware};
use apus_http::{HeaderValue, StatusCode};
use bytes::Bytes;

use super::fields::{FieldChange, effective_changes};
use super::rewrite::RewriteRule;

/// Settings of a site or of a location.
///
/// A location's field changes come after its site's; its limit, its root, and each of its error
/// pages replace its site's.
#[derive(Clone, Debug, Default)]
pub struct LocationSettings {
    pub(super) rewrites: Vec<RewriteRule>,
    pub(super) request_fields: Vec<FieldChange>,
    pub(super) response_fields: Vec<FieldChange>,
    pub(super) body_limit: Option<u64>,
    pub(super) root: Option<PathBuf>,
    pub(super) error_pages: Vec<(StatusCode, ErrorPage)>,
    pub(super) intercepts_errors: Option<bool>,
    pub(super) accel: Option<AccelSettings>,
    pub(super) layers: Vec<Layer>,
    pub(super) replaces_layers: bool,
}

/// Internal redirects of a service: a response with a path of the site in `X-Accel-Redirect`, or with a
/// file in `X-Sendfile`, is replaced by the site's response for that path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccelSettings {
    /// Pairs of a file name prefix and the path of the site that replaces it. A file without a
    /// matching pair is not sent.
    pub files: Vec<(Box<str>, Box<str>)>,
}

/// The body of an error response that has none of its own.
#[derive(Clone, Debug)]
pub enum ErrorPage {
    /// This body.
    Body {
        /// Its media type.
        content_type: HeaderValue,
        /// The body.
        body: Bytes,
    },
    /// A file, read when it is needed; the type follows from its name.
    File(PathBuf),
    /// The response of the site to a GET of this path; the status of the error stays.
    Path(String),
}

impl fmt::Display for ErrorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body { .. } => f.write_str("of the site"),
            Self::File(file) => file.display().fmt(f),
            Self::Path(path) => f.write_str(path),
        }
    }
}

impl LocationSettings {
    /// Settings without a value.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rewrite rule behind the others.
    #[must_use]
    pub fn rewrite(mut self, rule: RewriteRule) -> Self {
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

    /// The largest request body in bytes; larger ones get 413. 0 is no limit.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// `$document_root` for conditions and variables; [`apus_files::Files`] has the root of files.
    #[must_use]
    pub fn root(mut self, root: impl AsRef<Path>) -> Self {
        self.root = Some(root.as_ref().to_owned());
        self
    }

    /// The error page for this status.
    #[must_use]
    pub fn error_page(mut self, status: StatusCode, page: ErrorPage) -> Self {
        self.error_pages.push((status, page));
        self
    }

    /// Whether the site's error pages replace the bodies of error responses of a service.
    #[must_use]
    pub fn intercept_errors(mut self, intercept: bool) -> Self {
        self.intercepts_errors = Some(intercept);
        self
    }

    /// Follows `X-Accel-Redirect` and `X-Sendfile` of services.
    #[must_use]
    pub fn accel(mut self, accel: AccelSettings) -> Self {
        self.accel = Some(accel);
        self
    }

    /// Adds a layer inside of those that were added before. Layers of a site are around the layers of its locations.
    #[must_use]
    pub fn layer<Marker: 'static>(self, middleware: impl Middleware<Marker>) -> Self {
        self.shared_layer(Layer::new(middleware))
    }

    /// As [`LocationSettings::layer`], with a layer that other locations have too. A request that is redirected
    /// from one to another passes it once.
    #[must_use]
    pub fn shared_layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Leaves the layers of the site out.
    #[must_use]
    pub fn without_layers_of_site(mut self) -> Self {
        self.replaces_layers = true;
        self
    }

    /// The settings of a location with its own settings.
    pub(super) fn refined(&self, own: &Self) -> Self {
        let mut all = self.clone();
        all.rewrites = own.rewrites.clone();
        all.request_fields.extend_from_slice(&own.request_fields);
        all.request_fields = effective_changes(all.request_fields);
        all.response_fields.extend_from_slice(&own.response_fields);
        all.response_fields = effective_changes(all.response_fields);
        all.body_limit = own.body_limit.or(all.body_limit);
        all.root = own.root.clone().or(all.root);
        all.error_pages.extend_from_slice(&own.error_pages);
        all.intercepts_errors = own.intercepts_errors.or(all.intercepts_errors);
        all.accel = own.accel.clone().or(all.accel);
        if own.replaces_layers {
            all.layers.clear();
        }
        all.layers.extend(own.layers.iter().cloned());
        all
    }
}
