//! `MailError`: why a mail was not sent, or an address of a mail server is not one.

use std::error::Error;
use std::fmt;

/// Why a mail was not sent. Its messages contain no password.
#[derive(Debug)]
#[non_exhaustive]
pub enum MailError {
    /// The address of the mail server is not valid.
    Server {
        /// What is wrong with it.
        problem: String,
    },
    /// A text is not the address of a mailbox (RFC 5322 section 3.4).
    Mailbox {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The mail has neither text nor HTML.
    Empty,
    /// A part of the mail is not valid, as the media type of an attachment.
    Part {
        /// What is wrong with it.
        problem: String,
    },
    /// The mail server cannot be reached, or did not accept the mail.
    Delivery {
        /// The server, without user and password.
        server: String,
        /// Whether a later attempt may succeed.
        is_transient: bool,
        /// Why.
        cause: lettre::transport::smtp::Error,
    },
    /// A caught mail cannot be written to its folder.
    Folder {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Too many mails wait to be sent.
    Busy,
}

impl MailError {
    /// Whether the same mail may be accepted later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Delivery { is_transient, .. } => *is_transient,
            Self::Busy => true,
            _ => false,
        }
    }

    pub(crate) fn server(problem: impl fmt::Display) -> Self {
        Self::Server {
            problem: problem.to_string(),
        }
    }
}

impl fmt::Display for MailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { problem } => write!(
                f,
                "the address of the mail server is not valid: {problem}; expected smtp://host:port, \
                 smtps://user:password@host, folder:PATH or memory:"
            ),
            Self::Mailbox { text, problem } => {
                write!(f, "{text:?} is not the address of a mailbox: {problem}")
            }
            Self::Empty => f.write_str("the mail has neither text nor HTML"),
            Self::Part { problem } => write!(f, "a part of the mail is not valid: {problem}"),
            Self::Delivery { server, cause, .. } => {
                write!(f, "the mail server {server} did not take the mail: {cause}")
            }
            Self::Folder { path, cause } => {
                write!(f, "cannot write the mail {}: {cause}", path.display())
            }
            Self::Busy => f.write_str("too many mails wait to be sent"),
        }
    }
}

impl Error for MailError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Delivery { cause, .. } => Some(cause),
            Self::Folder { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
