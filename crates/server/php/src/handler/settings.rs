//! The settings of the PHP service of a site.

use std::path::PathBuf;

use apus_files::Symlinks;
use apus_patterns::Glob;
use apus_proxy::{HoldSettings, PathForm};
use apus_sites::Template;

/// The settings of the PHP service: which scripts run, and their variables.
#[derive(Clone, Debug)]
pub struct PhpSettings {
    /// The folder with the scripts; `None` if it is on another machine with PHP, so that it cannot be checked
    /// whether a script exists.
    pub root: Option<PathBuf>,
    /// Where symbolic links below the root may lead.
    pub symlinks: Symlinks,
    /// The prefix of paths that is removed before they are looked up below the root: empty, or a path without a
    /// slash at its end. Not percent-encoded.
    pub prefix: Box<str>,
    /// The root as PHP sees it, if that is another path.
    pub script_root: Option<Box<str>>,
    /// Whether symbolic links in the root are resolved for PHP, so that a link to a new release changes the path
    /// of all scripts.
    pub resolve_root: bool,
    /// Whether scripts run whose path has a segment that starts with a dot.
    pub hidden_files: bool,
    /// The names of index files, in order; those without `.php` are ignored.
    pub index: Vec<Box<str>>,
    /// The path below the root of the script that handles requests without another script.
    pub front_controller: Option<Box<str>>,
    /// Paths below the root at which no script runs, such as folders for uploads.
    pub no_php: Vec<Glob>,
    /// Paths below the root that get a 404.
    pub protected: Vec<Glob>,
    /// The name of the site, for variables.
    pub site: Box<str>,
    /// `SERVER_NAME`; `None` for the host of the request.
    pub server_name: Option<Box<str>>,
    /// `SERVER_SOFTWARE`.
    pub server_software: Box<str>,
    /// The form of the path in `REQUEST_URI`. Paths with an encoded slash, which is a slash in all rules, are refused
    /// unless it is raw.
    pub path_form: PathForm,
    /// Whether header fields with an underscore in their name become variables.
    pub underscores: bool,
    /// Additional variables, which replace variables of the same name. An empty value removes a variable.
    pub params: Vec<(Box<str>, Template)>,
    /// The header fields of responses that are not forwarded, in lower case.
    pub hidden: Vec<Box<str>>,
    /// How much of a request body is buffered before it is sent to PHP, so that a slow client does not occupy a
    /// process. A body of unknown length is always buffered, as PHP needs its length.
    pub hold_request: Option<HoldSettings>,
    /// How much of a response body is buffered ahead of the client, so that a slow client does not occupy a
    /// process.
    pub hold_response: Option<HoldSettings>,
}

impl PhpSettings {
    /// The default settings with scripts below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: Some(root.into()),
            ..Self::default()
        }
    }
}

impl Default for PhpSettings {
    fn default() -> Self {
        Self {
            root: None,
            symlinks: Symlinks::default(),
            prefix: "".into(),
            script_root: None,
            resolve_root: true,
            hidden_files: false,
            index: vec!["index.php".into()],
            front_controller: None,
            no_php: Vec::new(),
            protected: Vec::new(),
            site: "".into(),
            server_name: None,
            server_software: "Apus".into(),
            underscores: false,
            path_form: PathForm::Normalized,
            params: Vec::new(),
            hidden: Vec::new(),
            hold_request: Some(HoldSettings {
                memory: 64 << 10,
                disk: 1 << 30,
                folder: "/var/tmp".into(),
            }),
            hold_response: Some(HoldSettings {
                memory: 256 << 10,
                disk: 1 << 30,
                folder: "/var/tmp".into(),
            }),
        }
    }
}
