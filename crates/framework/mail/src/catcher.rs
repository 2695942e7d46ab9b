//! `MailCatcher`: keeps mails in memory, and in a folder, in place of sending them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::MailError;
use crate::mail::{Attachment, Mail};

/// How many mails are kept in memory. The oldest are forgotten.
const KEPT: usize = 200;

/// The most bytes of the mails that are kept, with the last one.
const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// A mail that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaughtMail {
    /// Counts from 1.
    pub number: u64,
    /// The sender.
    pub from: String,
    /// The readers.
    pub to: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The plain text; empty if there is none.
    pub text: String,
    /// The HTML, if there is one.
    pub html: Option<String>,
    /// The files.
    pub attachments: Vec<Attachment>,
    /// The message as it would be sent.
    pub source: Vec<u8>,
}

impl CaughtMail {
    /// The first link of the text that contains `part`, as `/reset/`.
    pub fn link(&self, part: &str) -> Option<&str> {
        let words = self.text.split_whitespace();
        let mut links =
            words.filter(|word| word.starts_with("http://") || word.starts_with("https://"));
        links.find(|link| link.contains(part))
    }
}

impl CaughtMail {
    /// The bytes that it holds: the message, and what it was made of.
    fn len(&self) -> usize {
        let attachments = self.attachments.iter();
        let attachments = attachments.map(|file| file.bytes.len()).sum::<usize>();
        let html = self.html.as_ref().map_or(0, String::len);
        [self.source.len(), self.text.len(), html, attachments]
            .into_iter()
            .sum()
    }
}

/// Keeps mails.
#[derive(Debug)]
pub(crate) struct MailCatcher {
    folder: Option<PathBuf>,
    mails: Mutex<CaughtMails>,
}

#[derive(Debug, Default)]
struct CaughtMails {
    last: u64,
    bytes: usize,
    kept: VecDeque<Arc<CaughtMail>>,
}

impl MailCatcher {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            mails: Mutex::default(),
        }
    }

    /// Keeps a mail.
    pub(crate) async fn keep(
        &self,
        mail: Mail,
        from: String,
        source: Vec<u8>,
    ) -> Result<(), MailError> {
        let number = {
            let mut mails = self.mails();
            mails.last = mails.last.saturating_add(1);
            mails.last
        };
        if let Some(folder) = &self.folder {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since.map_or(0, |since| since.as_secs());
            let path = folder.join(format!("{seconds}-{number}.eml"));
            let write = async {
                tokio::fs::create_dir_all(folder).await?;
                tokio::fs::write(&path, &source).await
            };
            let written = write.await;
            written.map_err(|cause| MailError::Folder {
                path: path.clone(),
                cause,
            })?;
        }
        let caught = CaughtMail {
            number,
            from,
            to: mail.to,
            subject: mail.subject,
            text: mail.text.unwrap_or_default(),
            html: mail.html,
            attachments: mail.attachments,
            source,
        };
        let mut mails = self.mails();
        mails.bytes = mails.bytes.saturating_add(caught.len());
        mails.kept.push_back(Arc::new(caught));
        while mails.kept.len() > KEPT || mails.bytes > KEPT_BYTES && mails.kept.len() > 1 {
            let forgotten = mails.kept.pop_front();
            let len = forgotten.map_or(0, |mail| mail.len());
            mails.bytes = mails.bytes.saturating_sub(len);
        }
        Ok(())
    }

    /// The mails that are kept, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<CaughtMail>> {
        self.mails().kept.iter().cloned().collect()
    }

    /// The mail with a number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<CaughtMail>> {
        let mails = self.mails();
        mails
            .kept
            .iter()
            .find(|mail| mail.number == number)
            .cloned()
    }

    fn mails(&self) -> MutexGuard<'_, CaughtMails> {
        // The lock is never held across an await, and no panic can leave the list inconsistent.
        self.mails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
