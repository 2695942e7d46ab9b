//! The control socket of a server or an application, and its status.
//!
//! The control socket is a Unix socket that only its user can open. A client sends one request as a line of
//! JSON and receives the response as a line of JSON.
//!
//! # Modules
//!
//! - `socket`, `socket_path`: the control socket, through which `apus status` and other commands reach a server or an
//!   application.
//! - `accounts`: who may send which requests over HTTP.
//! - `history`: what the server did each second, which the control thread writes and the API reads.
//! - `request_report`: what happened to a request.
//! - `status`: the response to `apus status`; `engine_metrics`: the metrics that any server has.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. The commands that use the socket are tested from outside in
//! `crates/tools/cli/tests/it/commands`.

#![forbid(unsafe_code)]

mod accounts;
mod engine_metrics;
mod history;
mod request_report;
mod socket;
mod socket_path;
mod status;

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use apus_metrics::MetricFormat;
use serde::{Deserialize, Serialize};

pub use accounts::{OperatorAccount, OperatorAccounts, OperatorRole, TokenDigest};
pub use engine_metrics::{add_engine_metrics, engine_metrics};
pub use history::ServerHistory;
pub use request_report::{request_line, request_report};
pub use socket::{BoundControlSocket, ControlExchange, ControlFiles, ControlQueue, ControlSocket};
pub use socket_path::{socket_path, socket_path_at};
pub use status::{StartTime, status};

/// For how long one [`ControlRequest::Traffic`] has requests counted, in seconds. Who watches for longer asks again.
pub const MAX_TRAFFIC_SECONDS: u64 = 60;

/// The most responses of one [`ControlRequest::CacheList`].
pub const MAX_LISTED_RESPONSES: u64 = 1000;

/// A request to a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Returns the status of the server.
    Status,
    /// Returns the metrics.
    Metrics {
        /// Their format.
        format: MetricsFormat,
    },
    /// Reloads the configuration. The response is sent when the new configuration is active.
    Reload,
    /// Stops the server gracefully. The response is sent when open requests are complete.
    Stop,
    /// Sets the administrative state of a node of an upstream group, until the next change or the end of
    /// the server.
    Upstream {
        /// The name of the group, after the name of its site and a slash if it is ambiguous.
        group: String,
        /// The name of the node.
        node: String,
        /// The new state.
        change: NodeChange,
    },
    /// Renews the certificates that have this name now. The response is sent when the orders have begun.
    RenewCertificate {
        /// The name.
        name: String,
    },
    /// Lists the sites.
    Sites,
    /// Turns the maintenance of a site on or off. It holds over reloads and restarts.
    Maintenance {
        /// The name of the site.
        site: String,
        /// What holds from now on.
        change: MaintenanceChange,
    },
    /// Shows the busiest sites, nodes, clients and paths since requests are counted, and has them counted for a time.
    Traffic {
        /// For how long from now on they are counted, in seconds, at least; up to [`MAX_TRAFFIC_SECONDS`]. 0 only shows them.
        seconds: u64,
        /// Whether counting begins anew, if this is not only to show what was counted.
        anew: bool,
    },
    /// Lists the bans of clients.
    BanList,
    /// Bans an address or a network. The response is sent when that would survive a crash.
    BanAdd {
        /// The address or network.
        network: String,
        /// For how long; `None`: until it is removed.
        seconds: Option<u64>,
        /// Why.
        reason: String,
        /// Whether networks are banned that are never banned otherwise, such as loopback and proxies.
        force: bool,
    },
    /// Ends the ban of an address or a network.
    BanRemove {
        /// The address or network, as it was banned.
        network: String,
    },
    /// Lists what clients have used of quotas.
    LimitList {
        /// Only of limits with this name.
        name: Option<String>,
    },
    /// Gives a key of a quota the whole quota again. The response is sent when that would survive a crash.
    LimitReset {
        /// The name of the limit.
        name: String,
        /// The key; `None`: all.
        key: Option<String>,
    },
    /// Purges stored responses. The response is sent when the purge would survive a crash.
    CachePurge {
        /// Only of the site with this name.
        site: Option<String>,
        /// The responses to purge.
        what: PurgeScope,
        /// Whether the responses only become stale, so that they can be served while they are revalidated.
        soft: bool,
    },
    /// Lists the largest stored responses.
    CacheList {
        /// Only of the site with this name.
        site: Option<String>,
        /// Which responses.
        what: PurgeScope,
        /// At most this many, up to [`MAX_LISTED_RESPONSES`].
        most: u64,
    },
    /// Changes the level of the server's log for a time.
    LogLevel {
        /// The level; `None`: that of the configuration.
        level: Option<LogLevelName>,
        /// For how long, in seconds, up to a day.
        seconds: u64,
    },
    /// Makes a code with which somebody can log in at the address of the operator once, soon.
    AdminLogin,
    /// Lists what was changed, by whom.
    Audit,
    /// Lists the last warnings and errors of the server's log.
    Errors {
        /// Only those about these sites.
        sites: Option<Vec<String>>,
    },
    /// Tells what happened to a request of the last minutes. The response is null if it is not known any more.
    ExplainRequest {
        /// Its id.
        id: String,
        /// Only if it was one of these sites.
        sites: Option<Vec<String>>,
    },
    /// Shows the configuration in force, with its secrets hidden.
    Config,
    /// Finds the mistakes of a text of the configuration file, and what it would change. Nothing changes.
    ConfigCheck {
        /// The text.
        text: String,
    },
    /// Puts a change of the configuration in force, without its file, for a trial: it ends when more requests fail than before, or when
    /// nobody confirms it in time.
    ConfigChange {
        /// The change.
        edit: ConfigEdit,
        /// The version that it was made for. If another one is in force, nothing changes.
        version: u64,
        /// How long it is tried, in seconds; 0: it is kept at once.
        try_seconds: u64,
        /// Whether it is kept after that time also if nobody confirms it.
        keep: bool,
        /// Whether it is written to the file when it is kept.
        write: bool,
        /// Why, for the list of versions.
        note: Option<String>,
    },
    /// Shows the change that is tried, or what became of the last one.
    ConfigTrial,
    /// Keeps the change that is tried.
    ConfigConfirm,
    /// Ends the change that is tried: the version before is in force again.
    ConfigRollback,
    /// Lists the versions of the configuration.
    ConfigVersions,
    /// Shows a version, with its secrets hidden, and what it changed.
    ConfigVersion {
        /// Its number.
        id: u64,
    },
}

/// A change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigEdit {
    /// Another text of the configuration file.
    Text(String),
    /// Other values of single keys.
    Keys(Vec<KeyChange>),
    /// A version that was in force before.
    Version(u64),
}

/// Another value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyChange {
    /// The names of its tables, and of the key. A table of an array is named by its `name` or its number, from 0.
    pub key: Vec<String>,
    /// The value; null removes the key.
    pub value: serde_json::Value,
}

/// A level of the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevelName {
    /// Errors only.
    Error,
    /// Also warnings.
    Warn,
    /// Also what the operator may want to know.
    Info,
    /// Also what the clients do wrong.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevelName {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsFormat {
    /// The text format of Prometheus.
    Prometheus,
    /// The text format of OpenMetrics.
    Openmetrics,
}

impl From<MetricsFormat> for MetricFormat {
    fn from(format: MetricsFormat) -> Self {
        match format {
            MetricsFormat::Prometheus => Self::Prometheus,
            MetricsFormat::Openmetrics => Self::OpenMetrics,
        }
    }
}

impl From<MetricFormat> for MetricsFormat {
    fn from(format: MetricFormat) -> Self {
        match format {
            MetricFormat::Prometheus => Self::Prometheus,
            MetricFormat::OpenMetrics => Self::Openmetrics,
        }
    }
}

/// The stored responses that a purge removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeScope {
    /// All responses.
    All,
    /// The responses for this URL.
    Url(String),
    /// The responses for URLs with this prefix.
    Prefix(String),
    /// The responses with this tag.
    Tag(String),
}

/// As text, for logs: `https://example.com/a`, `https://example.com/img/*`, `tag news` or `all`.
impl fmt::Display for PurgeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Url(url) => write!(f, "{}", url.escape_debug()),
            Self::Prefix(url) => write!(f, "{}*", url.escape_debug()),
            Self::Tag(tag) => write!(f, "tag {}", tag.escape_debug()),
        }
    }
}

/// The maintenance of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaintenanceChange {
    /// It is on.
    On {
        /// When it ends, in seconds since 1970; `None`: when it is turned off.
        until: Option<u64>,
    },
    /// It is off.
    Off,
    /// It is as the configuration says.
    Configured,
}

/// The administrative state of a node of an upstream group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChange {
    /// The node gets requests.
    Up,
    /// The node gets only requests with its sticky cookie.
    Drain,
    /// The node gets no requests.
    Down,
}

/// A response of a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// The request succeeded, with these details.
    Done(serde_json::Value),
    /// The request failed.
    Failed {
        /// The reason, for people.
        message: String,
        /// The reason, for programs; null if there are no details.
        details: serde_json::Value,
    },
}

/// Sends a request to the control socket at `path` and waits for the response.
///
/// # Errors
/// No server listens there, or the connection failed.
pub fn send_request(
    path: &Path,
    request: &ControlRequest,
) -> Result<ControlResponse, ControlError> {
    let failed = |error| ControlError::Io(path.to_owned(), error);
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning(path.to_owned())
        }
        _ => failed(error),
    })?;
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut reader = BufReader::new(stream);
    let mut response = String::new();
    reader.read_line(&mut response).map_err(failed)?;
    if response.is_empty() {
        return Err(ControlError::Disconnected(path.to_owned()));
    }
    let parsed = serde_json::from_str(&response).map_err(|error| failed(error.into()))?;
    if *request == ControlRequest::Stop {
        // The process keeps its end open until it exits.
        let _ = reader.read_line(&mut response);
    }
    Ok(parsed)
}

/// Why the control socket cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// No server listens on the socket.
    NotRunning(PathBuf),
    /// Another server uses this socket.
    AlreadyRunning(PathBuf),
    /// The server closed the connection without a response.
    Disconnected(PathBuf),
    /// The folder of the socket belongs to another user, or others may write to it.
    Unsafe(PathBuf),
    /// The socket cannot be created or used.
    Io(PathBuf, io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(path) => write!(
                f,
                "no server is running (no process listens on {})",
                path.display()
            ),
            Self::AlreadyRunning(path) => write!(
                f,
                "a server is already running (it listens on {0}); `apus stop --socket {0}` stops it",
                path.display()
            ),
            Self::Disconnected(path) => write!(
                f,
                "the server at {} ended before it responded; see its log",
                path.display()
            ),
            Self::Unsafe(path) => write!(
                f,
                "{} must belong to this user, and others must not be able to access it; remove it, or \
                 configure another path for the control socket",
                path.display()
            ),
            Self::Io(path, error) => write!(f, "control socket {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::{fs, thread};

    use super::*;

    #[tokio::test]
    async fn a_request_and_its_response_are_one_line_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let client = {
            let path = path.clone();
            thread::spawn(move || send_request(&path, &ControlRequest::Status))
        };
        let mut exchange = socket.next().await;
        assert_eq!(*exchange.request(), ControlRequest::Status);
        let response = ControlResponse::Done(serde_json::json!({"x": 1}));
        exchange.respond(response.clone()).await;
        assert_eq!(client.join().unwrap().unwrap(), response);
        drop(socket);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(
            send_request(&path, &ControlRequest::Stop),
            Err(ControlError::NotRunning(_))
        ));
    }

    #[tokio::test]
    async fn replaces_a_stale_socket_and_respects_a_live_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = ControlSocket::bind(&path).unwrap();
        let second = ControlSocket::bind(&path).unwrap_err();
        assert!(
            matches!(second, ControlError::AlreadyRunning(_)),
            "{second}"
        );
        assert!(path.exists());
        drop(live);
        ControlSocket::bind(&path).unwrap();
    }

    #[tokio::test]
    async fn an_invalid_request_gets_an_error_response() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let _socket = ControlSocket::bind(&path).unwrap();
        let response = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"command\":\"dance\"}\n").unwrap();
            io::read_to_string(stream).unwrap()
        });
        let response: ControlResponse = serde_json::from_str(&response.await.unwrap()).unwrap();
        assert!(
            matches!(response, ControlResponse::Failed { .. }),
            "{response:?}"
        );
    }
}
