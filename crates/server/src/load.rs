//! From a source to what the engine runs: the configuration is read, and everything that it names
//! is opened, before any of it takes over.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde_json::Value;

use crate::access_log::AccessLogs;
use crate::assemble::assemble;
use crate::config::{self, Diagnostics, LogLevel};
use crate::control::socket_path;
use crate::folder::{FolderSite, ListenArgument};
use crate::local_ca::{LocalCaError, LocalCertificate};
use crate::source::Source;

/// Reads a source, and again for each reload.
pub(crate) struct Loader {
    source: Source,
    folder: FolderSite,
    workers: Option<NonZeroUsize>,
}

/// All that a source says, ready to run.
pub(crate) struct Loaded {
    pub(crate) plan: apus_net::Plan,
    pub(crate) control_socket: Option<PathBuf>,
    pub(crate) log_level: &'static str,
    /// The local certificate, if one is served.
    pub(crate) certificate: Option<LocalCertificate>,
    /// What works, but not as somebody may think.
    pub(crate) warnings: Diagnostics,
}

impl Loader {
    /// A loader of `source`; the other arguments are for a folder, as on the command line.
    pub(crate) fn new(
        source: Source,
        listen: Option<ListenArgument>,
        tls: bool,
        workers: Option<NonZeroUsize>,
    ) -> Self {
        Self {
            source,
            folder: FolderSite::new(listen, tls),
            workers,
        }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Reads the source as it is now. Without `access_logs` no log file is opened, nor made.
    pub(crate) fn load(&self, access_logs: Option<&AccessLogs>) -> Result<Loaded, LoadError> {
        let (mut config, certificate) = match &self.source {
            Source::File(path) => (config::load(path).map_err(LoadError::mistakes)?, None),
            Source::Folder(path) => self.folder_configuration(path)?,
        };
        if let Some(workers) = self.workers {
            config.global.workers = workers;
        }
        let plan = match access_logs {
            Some(logs) => assemble(&config, logs),
            None => {
                for site in &mut config.sites {
                    site.access_log = None;
                }
                assemble(&config, &AccessLogs::new().0)
            }
        };
        let plan = plan.map_err(LoadError::Open)?;
        Ok(Loaded {
            plan,
            control_socket: config.global.control_socket,
            log_level: level(config.global.log_level),
            certificate,
            warnings: config.warnings,
        })
    }

    fn folder_configuration(
        &self,
        path: &Path,
    ) -> Result<(config::Plan, Option<LocalCertificate>), LoadError> {
        let name = path
            .to_str()
            .ok_or_else(|| LoadError::NotUtf8(path.to_owned()))?;
        let certificate = self.folder.certificate().map_err(LoadError::LocalCa)?;
        let pem = certificate
            .as_ref()
            .map(|certificate| certificate.pem_file.as_path());
        let text = self.folder.configuration(name, pem);
        let config = config::parse_str(&text, "what the command line says", path, &|_| None)
            .map_err(LoadError::mistakes)?;
        Ok((config, certificate))
    }

    /// Makes a new local certificate if the one that is served is about to expire; tells whether
    /// it has.
    pub(crate) fn renew_certificate(&self) -> Result<bool, LocalCaError> {
        match &self.source {
            Source::File(_) => Ok(false),
            Source::Folder(_) => {
                let certificate = self.folder.certificate()?;
                Ok(certificate.is_some_and(|certificate| certificate.is_new))
            }
        }
    }
}

fn level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// Reads a configuration and tells everything there is to say about it.
///
/// # Errors
/// Its mistakes.
pub fn check(file: &Path) -> Result<Diagnostics, Diagnostics> {
    config::load(file).map(|plan| plan.warnings)
}

/// The control socket of the server that was started with `source`, as far as its configuration
/// can be read.
pub fn control_socket_of(source: &Source) -> PathBuf {
    let named = match source {
        Source::Folder(_) => None,
        Source::File(path) => match config::load(path) {
            Ok(plan) => plan.global.control_socket,
            // A file with mistakes must not keep anybody from stopping the server.
            Err(_) => named_socket(path),
        },
    };
    named.unwrap_or_else(|| socket_path(source.path()))
}

fn named_socket(file: &Path) -> Option<PathBuf> {
    let table: toml::Table = fs::read_to_string(file).ok()?.parse().ok()?;
    let named = table.get("global")?.get("control_socket")?.as_str()?;
    Some(file.parent()?.join(named))
}

/// Why a source cannot be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The configuration has mistakes.
    Mistakes(Box<Diagnostics>),
    /// What the configuration names cannot be opened.
    Open(io::Error),
    /// There is no local certificate.
    LocalCa(LocalCaError),
    /// The name of the folder is not UTF-8, as that of its files could not be told then.
    NotUtf8(PathBuf),
}

impl LoadError {
    fn mistakes(diagnostics: Diagnostics) -> Self {
        Self::Mistakes(Box::new(diagnostics))
    }

    /// The mistakes, for programs.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Mistakes(diagnostics) => diagnostics.to_json(),
            _ => Value::Null,
        }
    }

    /// The error, in colours if `colours`.
    pub fn render(&self, colours: bool) -> String {
        match self {
            Self::Mistakes(diagnostics) => diagnostics.render(colours),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistakes(diagnostics) => f.write_str(diagnostics.render(false).trim_end()),
            Self::Open(error) => error.fmt(f),
            Self::LocalCa(error) => error.fmt(f),
            Self::NotUtf8(path) => write!(
                f,
                "{}: the name of the folder is not UTF-8; rename it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Mistakes(_) | Self::NotUtf8(_) => None,
            Self::Open(error) => Some(error),
            Self::LocalCa(error) => Some(error),
        }
    }
}
