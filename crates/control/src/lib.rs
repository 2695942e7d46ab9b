//! The control socket: `apus reload`, `stop` and `status` of a server or an application.
//!
//! A Unix socket that only its user can open takes one request as a line of JSON and answers with
//! one line of JSON.

#![forbid(unsafe_code)]

mod place;
mod socket;
mod status;

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use place::socket_path;
pub use socket::{BoundControlSocket, ControlFiles, ControlSocket, Exchange};
pub use status::{Started, status};

/// What a running server can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What it does, since when, and how much.
    Status,
    /// To read its configuration again and go on with that. Answered when that is so.
    Reload,
    /// To answer what it was asked and end. Answered when that is so.
    Stop,
    /// To have a node of a group of origins asked or not, whatever the configuration says, until it is
    /// told something else or ends.
    Upstream {
        /// The name of the group, with that of its site and a slash before it or, where that is enough,
        /// without.
        group: String,
        /// The name of the node.
        node: String,
        /// What becomes of it.
        change: NodeChange,
    },
    /// To take stored answers out. Answered when that holds after a crash, too.
    CachePurge {
        /// Only of the site with this name.
        site: Option<String>,
        /// Which.
        what: PurgeWhat,
        /// Whether they only become stale, so that they can be sent while they are refreshed.
        soft: bool,
    },
}

/// Which stored answers are taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeWhat {
    /// All.
    All,
    /// Those for this URL.
    Url(String),
    /// Those for URLs that begin with this one.
    Prefix(String),
    /// Those with this tag.
    Tag(String),
}

/// What becomes of a node of a group of origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChange {
    /// It gets requests.
    Up,
    /// It gets only requests of clients that a sticky cookie keeps with it.
    Drain,
    /// It gets no requests.
    Down,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// It is done; the details.
    Done(serde_json::Value),
    /// It failed.
    Failed {
        /// Why, for people.
        message: String,
        /// Why, for programs; null if there is no more to say.
        details: serde_json::Value,
    },
}

/// Asks the server whose control socket is at `path`, and waits for the answer.
///
/// # Errors
/// No server listens there, or it broke off.
pub fn ask(path: &Path, request: &Request) -> Result<Response, ControlError> {
    let broken = |error| ControlError::Io(path.to_owned(), error);
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning(path.to_owned())
        }
        _ => broken(error),
    })?;
    let mut line = serde_json::to_vec(request).map_err(|error| broken(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(broken)?;
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    reader.read_line(&mut answer).map_err(broken)?;
    if answer.is_empty() {
        return Err(ControlError::BrokeOff(path.to_owned()));
    }
    let response = serde_json::from_str(&answer).map_err(|error| broken(error.into()))?;
    if *request == Request::Stop {
        // The process holds its end open until it ends.
        let _ = reader.read_line(&mut answer);
    }
    Ok(response)
}

/// Why the control socket is of no use.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// Nobody listens on the socket.
    NotRunning(PathBuf),
    /// Another server runs with this socket.
    AlreadyRunning(PathBuf),
    /// The server ended before it answered.
    BrokeOff(PathBuf),
    /// The folder of the socket belongs to somebody else, or others may write to it.
    Unsafe(PathBuf),
    /// The socket cannot be made or used.
    Io(PathBuf, io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(path) => write!(
                f,
                "no server is running for this (nobody listens on {})",
                path.display()
            ),
            Self::AlreadyRunning(path) => write!(
                f,
                "a server for this is already running (it listens on {0}); `apus stop --socket {0}` \
                 ends it",
                path.display()
            ),
            Self::BrokeOff(path) => write!(
                f,
                "the server at {} ended before it answered; its log tells why",
                path.display()
            ),
            Self::Unsafe(path) => write!(
                f,
                "{} must belong to this user and be closed to others; remove it, or have the control \
                 socket at another place",
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
    async fn asks_and_answers_one_line_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let client = {
            let path = path.clone();
            thread::spawn(move || ask(&path, &Request::Status))
        };
        let mut exchange = socket.next().await;
        assert_eq!(*exchange.request(), Request::Status);
        let response = Response::Done(serde_json::json!({"x": 1}));
        exchange.answer(&response).await;
        assert_eq!(client.join().unwrap().unwrap(), response);
        drop(socket);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(matches!(
            ask(&path, &Request::Stop),
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
    async fn what_is_no_request_is_answered_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let _socket = ControlSocket::bind(&path).unwrap();
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"command\":\"dance\"}\n").unwrap();
            io::read_to_string(stream).unwrap()
        });
        let answer: Response = serde_json::from_str(&answer.await.unwrap()).unwrap();
        assert!(matches!(answer, Response::Failed { .. }), "{answer:?}");
    }
}
