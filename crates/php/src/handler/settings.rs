//! Which programs of a site are run, and what they are told.

use std::path::PathBuf;

use apus_files::Symlinks;
use apus_patterns::Glob;
use apus_proxy::Hold;
use apus_sites::Template;

/// Which programs of a site are run, and what they are told.
#[derive(Clone, Debug)]
pub struct PhpSettings {
    /// The folder that programs are in; `None` if it is not here but where PHP is, so that nobody can
    /// look whether a program exists.
    pub root: Option<PathBuf>,
    /// Where symbolic links below the root may lead.
    pub symlinks: Symlinks,
    /// What is taken off the front of a path before it is looked for below the root: empty, or a path
    /// without a slash at its end. Not percent-encoded.
    pub prefix: Box<str>,
    /// The root as PHP sees it, if that is another.
    pub script_root: Option<Box<str>>,
    /// Whether PHP is told where the root leads if it is a symbolic link, so that a link that is
    /// switched at a release changes the names of all programs.
    pub resolve_root: bool,
    /// Whether programs are run whose path has a name that starts with a dot.
    pub hidden_files: bool,
    /// The names looked for in a folder, in this order; those that are not of PHP do not count.
    pub index: Vec<Box<str>>,
    /// The program, by its path below the root, that answers where nothing else does.
    pub front_controller: Option<Box<str>>,
    /// Paths below the root at which nothing is run, as of folders for uploads.
    pub no_php: Vec<Glob>,
    /// Paths below the root at which there is nothing for anybody.
    pub protected: Vec<Glob>,
    /// The name of the site, for variables.
    pub site: Box<str>,
    /// `SERVER_NAME`; `None` for the host of the request.
    pub server_name: Option<Box<str>>,
    /// `SERVER_SOFTWARE`.
    pub server_software: Box<str>,
    /// Whether programs are told of fields whose names hold an underscore.
    pub underscores: bool,
    /// Variables of our own, in place of those of the same name. One without a value is left out.
    pub params: Vec<(Box<str>, Template)>,
    /// Fields of answers that are not sent on. Names in lower case.
    pub hidden: Vec<Box<str>>,
    /// What of a request is taken in before PHP is asked, so that a slow client does not occupy a
    /// process. Content whose length is not known is taken in also without: PHP has to be told it.
    pub hold_request: Option<Hold>,
    /// How much of a response is taken in faster than its client reads, so that a slow client does not
    /// occupy a process.
    pub hold_response: Option<Hold>,
}

impl PhpSettings {
    /// Programs below `root`, with the defaults.
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
            params: Vec::new(),
            hidden: Vec::new(),
            hold_request: Some(Hold {
                memory: 64 << 10,
                disk: 1 << 30,
                folder: "/var/tmp".into(),
            }),
            hold_response: Some(Hold {
                memory: 256 << 10,
                disk: 1 << 30,
                folder: "/var/tmp".into(),
            }),
        }
    }
}
