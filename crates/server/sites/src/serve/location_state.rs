//! The locations of a site on one worker, with the settings of the site and their own.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use apus_files::{Files, FilesService};
use apus_handler::middleware::Layer;
use apus_http::{Service, StatusCode};
use apus_layers::HstsField;

use crate::fields::FieldChange;
use crate::location::{LocationPattern, ScriptUse};
use crate::respond::ReturnHandler;
use crate::rewrite::RewriteRule;
use crate::rules::WorkerRules;
use crate::settings::{AccelSettings, ErrorPage, LocationSettings};
use crate::site::{Location, LocationHandler, Site};
use crate::template::DocumentRoot;

/// A location on one worker, or the site outside of all locations, with the settings of both.
pub(super) struct LocationState {
    pub(super) pattern: Option<LocationPattern>,
    pub(super) handler: WorkerHandler,
    pub(super) rewrites: Vec<RewriteRule>,
    pub(super) request_fields: Vec<FieldChange>,
    pub(super) response_fields: Vec<FieldChange>,
    /// Whether a response field depends on the request.
    pub(super) has_variables: bool,
    /// Whether the handler or a field refers to the groups of the pattern.
    pub(super) has_captures: bool,
    pub(super) body_limit: u64,
    pub(super) root: DocumentRoot,
    pub(super) error_pages: HashMap<StatusCode, ErrorPage>,
    pub(super) intercepts_errors: bool,
    pub(super) accel: Option<AccelSettings>,
    pub(super) layers: Rc<[Layer]>,
    /// Its own rules, at most one list.
    pub(super) rules: Box<[WorkerRules]>,
    pub(super) is_internal: bool,
    pub(super) allows_encoded_slash: bool,
    pub(super) redirects_to_slash: bool,
    /// Whether it has its own layers or rules, is internal, or has a fixed response.
    pub(super) has_own_rules: bool,
}

/// The handler of a location on one worker.
pub(super) enum WorkerHandler {
    NotFound,
    Return(ReturnHandler),
    Files {
        name: &'static str,
        files: Box<FilesService>,
    },
    Service {
        name: Arc<str>,
        service: Rc<dyn Service>,
    },
}

impl LocationState {
    pub(super) fn new(settings: &LocationSettings) -> Self {
        let root = settings.root.as_deref().unwrap_or(Path::new(""));
        Self {
            pattern: None,
            handler: WorkerHandler::NotFound,
            rewrites: settings.rewrites.clone(),
            request_fields: settings.request_fields.clone(),
            has_variables: settings
                .response_fields
                .iter()
                .any(FieldChange::has_variables),
            response_fields: settings.response_fields.clone(),
            has_captures: false,
            body_limit: settings.body_limit.unwrap_or(0),
            root: DocumentRoot {
                folder: OsStr::as_bytes(root.as_os_str()).into(),
                prefix: Box::default(),
            },
            error_pages: settings.error_pages.iter().cloned().collect(),
            intercepts_errors: settings.intercepts_errors.unwrap_or(false),
            accel: settings.accel.clone(),
            layers: settings.layers.clone().into(),
            rules: Box::default(),
            is_internal: false,
            allows_encoded_slash: false,
            redirects_to_slash: false,
            has_own_rules: false,
        }
    }

    pub(super) fn of_location(location: &Location, site: &Site) -> Self {
        let settings = site.settings.refined(&location.settings);
        let handler = match &location.handler {
            LocationHandler::Return(handler) => WorkerHandler::Return(handler.clone()),
            LocationHandler::Service { name, factory } => WorkerHandler::Service {
                name: name.clone(),
                service: factory.service(),
            },
            LocationHandler::Files(files) => WorkerHandler::Files {
                name: if files.runs_programs() {
                    "files and programs"
                } else {
                    "static files"
                },
                files: Box::new(with_response_fields(files, &settings, site).build()),
            },
        };
        let mut fields = (settings.request_fields.iter()).chain(&settings.response_fields);
        let has_captures = fields.any(FieldChange::has_captures)
            || matches!(&handler, WorkerHandler::Return(handler) if handler.has_captures());
        let mut state = Self {
            pattern: Some(location.pattern.clone()),
            handler,
            has_captures,
            is_internal: location.is_internal,
            allows_encoded_slash: location.allows_encoded_slash,
            redirects_to_slash: location.redirects_to_slash,
            rules: location.rules.iter().map(WorkerRules::new).collect(),
            has_own_rules: location.is_internal
                || !location.settings.layers.is_empty()
                || location.rules.is_some()
                || matches!(location.handler, LocationHandler::Return(_)),
            ..Self::new(&settings)
        };
        if let LocationHandler::Files(files) = &location.handler {
            state.root.prefix = files.prefix().into();
        }
        state
    }
}

impl LocationState {
    /// Its pattern, for people.
    pub(super) fn title(&self) -> String {
        let pattern = self.pattern.as_ref().map(ToString::to_string);
        pattern.unwrap_or_default()
    }
}

/// Which paths run the script of a location, besides its own path.
pub(super) fn script_use(location: &Location) -> ScriptUse {
    match &location.handler {
        LocationHandler::Return(_) => ScriptUse::None,
        // An index in an internal location is run for its folder, as the path of the client is another one.
        LocationHandler::Files(files) if files.runs_programs() && !location.is_internal => {
            ScriptUse::PathInfoAndFolder
        }
        _ => ScriptUse::PathInfo,
    }
}

/// The files with the field lines that every response gets, so that they are cached with the files.
fn with_response_fields(files: &Files, settings: &LocationSettings, site: &Site) -> Files {
    let mut files = files.clone();
    for change in &settings.response_fields {
        if let Some((name, value)) = change.as_static_line() {
            files = files.field(name, value);
        }
    }
    // Where clear text is redirected, all files are sent over TLS. A line that is kept with the file is one that
    // `SiteState::finish` need not set in a copy of the lines of each response.
    if site.force_https.is_some()
        && let Some(hsts) = site.hsts.map(HstsField::from)
    {
        let (name, value) = hsts.line();
        files = files.field(&name, value);
    }
    files
}
