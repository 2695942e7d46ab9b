//! Mails that are sent while the response is on its way: a bounded number, with a few attempts each.

use std::time::Duration;

use crate::{Mail, MailError, Mailer};

/// The times between the attempts.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(20),
    Duration::from_secs(120),
];

impl Mailer {
    /// Sends a mail without a wait: what goes wrong is logged, and tried again if the error may pass, for about two
    /// minutes. A process that ends meanwhile does not send it.
    ///
    /// The time of a response does not reveal whether a mail was sent, which the answer to "I forgot my
    /// password" must not.
    ///
    /// # Panics
    /// Outside of a runtime, which handlers have.
    pub fn send_later(&self, mail: Mail) {
        let Some(slot) = self.background().slot() else {
            log(&MailError::Busy, &mail);
            return;
        };
        let mailer = self.clone();
        tokio::task::spawn_local(async move {
            let _slot = slot;
            for pause in PAUSES {
                match mailer.send(mail.clone()).await {
                    Err(error) if error.is_transient() => {
                        tracing::warn!(%error, "a mail is sent again later");
                    }
                    result => return finish(result, &mail),
                }
                tokio::time::sleep(pause).await;
            }
            finish(mailer.send(mail.clone()).await, &mail);
        });
    }
}

fn finish(result: Result<(), MailError>, mail: &Mail) {
    if let Err(error) = result {
        log(&error, mail);
    }
}

fn log(error: &MailError, mail: &Mail) {
    tracing::error!(%error, subject = mail.subject, "a mail was not sent");
}
