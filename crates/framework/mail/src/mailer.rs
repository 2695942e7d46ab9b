//! `Mailer`: sends mails by SMTP, or catches them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use lettre::message::Mailbox;
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use crate::background_slots::BackgroundMails;
use crate::catcher::MailCatcher;
use crate::mail::mailbox;
use crate::{CaughtMail, Mail, MailError, MailPage, smtp};

/// Sends the mails of an application: a state of the application, which is cheap to clone.
///
/// | address | what happens to mails |
/// | --- | --- |
/// | `smtps://user:password@host` | sent over TLS, port 465 |
/// | `smtp://user:password@host` | sent, port 587; STARTTLS is required unless the host is this machine |
/// | `smtp://host` | sent, port 25; with STARTTLS if the server offers it |
/// | `folder:mails` | written to files `*.eml` in this folder, and kept in memory |
/// | `memory:` | kept in memory: the last 200 |
///
/// `?tls=required`, `?tls=opportunistic` and `?tls=none` at the end of an `smtp://` address change the encryption.
/// Certificates are checked against the root certificates of the system.
#[derive(Clone)]
pub struct Mailer(Arc<MailerState>);

struct MailerState {
    from: Mailbox,
    delivery: Delivery,
    background: BackgroundMails,
}

enum Delivery {
    Smtp {
        transport: AsyncSmtpTransport<Tokio1Executor>,
        server: String,
    },
    Caught(Arc<MailCatcher>),
}

impl Mailer {
    /// A mailer by the address of its server, and the sender of its mails, as `Shop <shop@example.com>`.
    ///
    /// # Errors
    /// One of them is not valid.
    pub fn open(address: &str, from: &str) -> Result<Self, MailError> {
        let delivery = if let Some(folder) = address.strip_prefix("folder:") {
            if folder.is_empty() {
                return Err(MailError::server("folder: has no path"));
            }
            Delivery::Caught(Arc::new(MailCatcher::new(Some(PathBuf::from(folder)))))
        } else if address == "memory:" {
            Delivery::Caught(Arc::new(MailCatcher::new(None)))
        } else {
            let (transport, server) = smtp::transport(address)?;
            Delivery::Smtp { transport, server }
        };
        Ok(Self(Arc::new(MailerState {
            from: mailbox(from)?,
            delivery,
            background: BackgroundMails::default(),
        })))
    }

    /// Sends a mail, and waits until the server has taken it. Other requests of the worker are not held up.
    ///
    /// # Errors
    /// The mail is not valid, or the server did not take it.
    pub async fn send(&self, mail: Mail) -> Result<(), MailError> {
        let message = mail.message(&self.0.from)?;
        match &self.0.delivery {
            Delivery::Smtp { transport, server } => {
                let sent = transport.send(message).await;
                sent.map(|_| ()).map_err(|cause| MailError::Delivery {
                    server: server.clone(),
                    // What the server rejects for good, it rejects again.
                    is_transient: !cause.is_permanent() && !cause.is_client(),
                    cause,
                })
            }
            Delivery::Caught(catcher) => {
                let from = self.0.from.to_string();
                catcher.keep(mail, from, message.formatted()).await
            }
        }
    }

    /// The mails that this mailer, or a clone of it, caught, the oldest first. None if it sends them.
    pub fn mails(&self) -> Vec<Arc<CaughtMail>> {
        match &self.0.delivery {
            Delivery::Smtp { .. } => Vec::new(),
            Delivery::Caught(catcher) => catcher.all(),
        }
    }

    /// A page that shows the caught mails, to mount in development; `None` if this mailer sends mails.
    ///
    /// Whoever can open it can reset every password. Mount it in development only.
    pub fn page(&self) -> Option<MailPage> {
        match &self.0.delivery {
            Delivery::Smtp { .. } => None,
            Delivery::Caught(catcher) => Some(MailPage::new(catcher.clone())),
        }
    }

    pub(crate) fn background(&self) -> &BackgroundMails {
        &self.0.background
    }
}

impl fmt::Debug for Mailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.0.delivery {
            Delivery::Smtp { server, .. } => server,
            Delivery::Caught(_) => "caught",
        };
        f.debug_tuple("Mailer").field(&server).finish()
    }
}
