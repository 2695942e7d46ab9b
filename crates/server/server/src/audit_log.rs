//! Who changed what: the last changes that the operator made to the running server, over restarts.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use apus_control::{ControlRequest, ControlResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{error, info};

use crate::saved_file::{SavedFile, SavedFileWords};
use crate::state_folder::StateFolder;

/// The file, in the state folder.
const FILE: &str = "audit";

const WORDS: SavedFileWords = SavedFileWords {
    contents: "the audit log of before the restart",
    failed: "cannot store the audit log: a restart forgets it until that is possible",
    works_again: "the audit log is stored again",
};

/// The changes that are kept. The server's own log has them all.
const MAX_ENTRIES: usize = 1000;

/// The most bytes of the arguments of one change, and of why it failed.
const MAX_ARGUMENTS: usize = 1024;

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AuditEntry {
    /// In seconds since 1970.
    time: u64,
    by: String,
    command: String,
    arguments: String,
    /// Why it failed; `None`: it did not.
    error: Option<String>,
}

/// The last changes.
pub(crate) struct AuditLog {
    entries: VecDeque<AuditEntry>,
    file: SavedFile,
}

impl AuditLog {
    pub(crate) fn start(folder: StateFolder) -> Self {
        let file = SavedFile::new(FILE, WORDS, folder);
        let stored = file.read().unwrap_or_else(|| b"[]".to_vec());
        let entries = match serde_json::from_slice(&stored) {
            Ok(entries) => entries,
            Err(damage) => {
                let path = file.put_aside();
                error!(path = %path.display(), error = %damage, "the audit log of before the restart is damaged, and was put aside");
                VecDeque::new()
            }
        };
        Self { entries, file }
    }

    /// Writes to another folder from now on.
    pub(crate) fn configure(&mut self, folder: StateFolder) {
        self.file.set_folder(folder);
    }

    /// Notes what came of a request, if it was to change something.
    pub(crate) fn record(
        &mut self,
        by: &str,
        request: &ControlRequest,
        response: &ControlResponse,
    ) {
        if !request.is_change() {
            return;
        }
        let (command, arguments) = described(request);
        let error = match response {
            ControlResponse::Done(_) => None,
            ControlResponse::Failed { message, .. } => Some(shortened(message.clone())),
        };
        info!(
            by,
            command,
            arguments,
            error = error.as_deref(),
            "a command of the operator"
        );
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(AuditEntry {
            time: time.map_or(0, |time| time.as_secs()),
            by: by.to_owned(),
            command,
            arguments,
            error,
        });
        self.file.mark_unsaved();
        self.save();
    }

    /// The changes, the last one first.
    pub(crate) fn list(&self) -> Value {
        let entries: Vec<_> = self.entries.iter().rev().collect();
        json!({ "entries": entries })
    }

    /// Looks whether a write has ended, and begins the next one if something has changed.
    pub(crate) async fn tick(&mut self) {
        let entries = &self.entries;
        self.file.tick(|| text(entries)).await;
    }

    /// Writes what is not written.
    pub(crate) async fn finish(&mut self) {
        if !self.file.is_settled() {
            let entries = &self.entries;
            // The log has said why it was not possible.
            let _ = self.file.save_now(|| text(entries)).await;
        }
    }

    fn save(&mut self) {
        let entries = &self.entries;
        self.file.save_if_idle(|| text(entries));
    }
}

fn text(entries: &VecDeque<AuditEntry>) -> String {
    serde_json::to_string(entries).unwrap_or_default()
}

/// The text up to [`MAX_ARGUMENTS`] bytes.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_ARGUMENTS {
        text.truncate(text.floor_char_boundary(MAX_ARGUMENTS));
        text.push('…');
    }
    text
}

/// The command and its arguments, without what may be a secret: keys of quotas are values of fields and cookies.
fn described(request: &ControlRequest) -> (String, String) {
    let mut fields = serde_json::to_value(request).unwrap_or_default();
    let fields = fields.as_object_mut();
    let Some(fields) = fields else {
        return (String::new(), String::new());
    };
    let command = fields.remove("command");
    if let (ControlRequest::LimitReset { .. }, Some(key)) = (request, fields.get_mut("key"))
        && !key.is_null()
    {
        *key = "(hidden)".into();
    }
    // The versions have the text, for those who may read it.
    match fields.get_mut("edit") {
        Some(Value::Object(edit)) => {
            edit.remove("text");
            let keys = edit.get_mut("keys").and_then(Value::as_array_mut);
            for change in keys.into_iter().flatten().filter_map(Value::as_object_mut) {
                change.remove("value");
            }
        }
        _ => {
            fields.remove("text");
        }
    }
    fields.retain(|_, value| !value.is_null());
    let arguments = if fields.is_empty() {
        String::new()
    } else {
        shortened(serde_json::to_string(fields).unwrap_or_default())
    };
    let command = command.as_ref().and_then(Value::as_str);
    (command.unwrap_or_default().to_owned(), arguments)
}

#[cfg(test)]
mod tests {
    use apus_control::{ConfigEdit, KeyChange};

    use super::*;

    fn done() -> ControlResponse {
        ControlResponse::Done(Value::Null)
    }

    #[tokio::test]
    async fn changes_are_listed_over_restarts_without_secrets_and_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = AuditLog::start(StateFolder::new(folder.path()));
        log.record("ana", &ControlRequest::Status, &done());
        assert_eq!(log.list(), json!({ "entries": [] }), "reading is no change");
        let reset = ControlRequest::LimitReset {
            name: "api".to_owned(),
            key: Some("secret".to_owned()),
        };
        let failed = ControlResponse::Failed {
            message: "no such limit".to_owned(),
            details: Value::Null,
        };
        log.record("ana from 127.0.0.1", &reset, &failed);
        let edits = [
            ConfigEdit::Text("token = \"secret\"".to_owned()),
            ConfigEdit::Keys(vec![KeyChange {
                key: vec!["global".to_owned(), "token".to_owned()],
                value: "secret".into(),
            }]),
        ];
        for edit in edits {
            let change = ControlRequest::ConfigChange {
                edit,
                version: 1,
                try_seconds: 30,
                keep: false,
                write: false,
                note: Some("why".to_owned()),
            };
            let (command, arguments) = described(&change);
            assert_eq!(command, "config_change");
            assert!(
                arguments.contains("why") && !arguments.contains("secret"),
                "{arguments}"
            );
        }
        log.finish().await;
        let mut again = AuditLog::start(StateFolder::new(folder.path()));
        let entry = again.list()["entries"][0].take();
        assert_eq!(entry["by"], "ana from 127.0.0.1");
        assert_eq!(entry["command"], "limit_reset");
        assert_eq!(
            entry["arguments"],
            "{\"key\":\"(hidden)\",\"name\":\"api\"}"
        );
        assert_eq!(entry["error"], "no such limit");
        let long = ControlRequest::BanRemove {
            network: "é".repeat(MAX_ARGUMENTS),
        };
        for _ in 0..MAX_ENTRIES + 5 {
            again.record("bo", &long, &done());
        }
        again.finish().await;
        assert_eq!(again.entries.len(), MAX_ENTRIES);
        assert!(
            again
                .entries
                .iter()
                .all(|entry| entry.arguments.len() <= MAX_ARGUMENTS + 3)
        );
        std::fs::write(folder.path().join(FILE), "[{").unwrap();
        let damaged = AuditLog::start(StateFolder::new(folder.path()));
        assert_eq!(damaged.list(), json!({ "entries": [] }));
    }
}
