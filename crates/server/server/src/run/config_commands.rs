//! What the operator asks of the configuration: to show it, to change it, and to bring back a version.

use std::path::PathBuf;
use std::time::Duration;

use apus_control::{ConfigEdit, ControlResponse};
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::{ControlThread, ReloadReport};
use crate::config_change::{
    ConfigFile, ConfigText, EditedConfig, Totals, TrialTerms, TrialVerdict,
};
use crate::load::LoadError;
use crate::serve_error::ServeError;
use crate::source::ConfigSource;

/// The longest trial.
const MAX_TRIAL: Duration = Duration::from_secs(3600);

/// A change of the configuration that somebody asks for.
pub(super) struct ConfigChange<'a> {
    pub(super) edit: &'a ConfigEdit,
    /// The version that it was made for.
    pub(super) version: u64,
    pub(super) try_seconds: u64,
    pub(super) keep: bool,
    pub(super) write: bool,
    pub(super) note: Option<&'a str>,
    pub(super) by: &'a str,
}

impl ControlThread {
    /// The configuration in force, with its secrets hidden.
    pub(super) fn show_config(&self) -> Value {
        let changes = &self.changes;
        let current = changes.versions.current();
        let file = match self.loader.source() {
            ConfigSource::File(path) => Some(path.to_string_lossy()),
            ConfigSource::Folder(_) => None,
        };
        let is_in_file = current.is_some_and(|current| {
            let text = changes.file_text.as_deref();
            text == Some(current.text())
        });
        json!({
            "version": changes.versions.current_id(),
            "file": file,
            "text": current.map(|current| changes.hide(current.text())),
            "files": current.map(|current| changes.files(current)),
            "is_in_file": is_in_file,
        })
    }

    /// What a text would change, and its mistakes. Nothing is opened or created for it.
    pub(super) fn check_config(&self, text: &str) -> Result<Value, ControlResponse> {
        let edit = ConfigEdit::Text(text.to_owned());
        let EditedConfig { files } = self.changes.edited(&edit).map_err(refused)?;
        let texts = files.iter().map(pair);
        let read = self.loader.read_texts(texts.collect());
        let (found, changes) = match &read {
            Ok(config) => {
                let changes = apus_config::changes(&self.loaded.config, config);
                (config.warnings.to_json(), changes)
            }
            Err(LoadError::Mistakes(mistakes)) => (mistakes.to_json(), Vec::new()),
            Err(other) => return Err(refused(other.to_string())),
        };
        let old = self.changes.versions.current();
        let old = old.and_then(|old| old.files.first()).cloned();
        Ok(json!({
            "valid": read.is_ok(),
            "mistakes": self.hidden(found, &files),
            "changes": changes,
            "diff": self.changes.difference(old.as_slice(), &files),
        }))
    }

    /// Puts a change in force, on trial.
    pub(super) async fn change_config(&mut self, change: &ConfigChange<'_>) -> ControlResponse {
        match self.try_change(change).await {
            Ok(done) => ControlResponse::Done(done),
            Err(response) => response,
        }
    }

    async fn try_change(&mut self, change: &ConfigChange<'_>) -> Result<Value, ControlResponse> {
        let ConfigSource::File(path) = self.loader.source().clone() else {
            return Err(refused(
                "the server serves a folder, and has no configuration file",
            ));
        };
        let time = Duration::from_secs(change.try_seconds);
        if time > MAX_TRIAL {
            return Err(refused("a change is tried for an hour at most"));
        }
        let current = self.changes.versions.current_id();
        if let Some(trial) = &self.changes.trial {
            let message = format!(
                "version {} by {} is being tried: confirm it or roll it back first",
                trial.version, trial.by
            );
            return Err(conflict(message, current));
        }
        if change.version != current {
            let message = format!(
                "the change was made for version {}, and version {current} is in force: look at that first",
                change.version
            );
            return Err(conflict(message, current));
        }
        let EditedConfig { files } = self.changes.edited(change.edit).map_err(refused)?;
        let is_same = self
            .changes
            .versions
            .current()
            .is_some_and(|current| files.iter().all(|file| current.files.contains(file)));
        if is_same && !change.write {
            return Ok(json!({ "version": current, "changes": [], "warnings": "", "trial": null }));
        }
        if change.write {
            let old = self.changes.file_text.clone().unwrap_or_default();
            ConfigFile::writable(&path, &old).map_err(refused)?;
        }
        let previous = self.loaded.recording.clone();
        let before_pools = self.loader.pools().all();
        let loaded = self
            .loader
            .load_texts(files.iter().map(pair).collect(), &self.access_logs);
        let report = self.use_loaded(loaded, &before_pools).await;
        let ReloadReport { warnings, changes } =
            report.map_err(|failure| self.failed_change(&failure, &files))?;
        let texts = self.loaded.texts.clone();
        let version = (self.changes.versions).put_in_force(texts, change.by, change.note);
        let (totals, groups) = (self.totals(), self.loader.upstreams().status());
        let terms = TrialTerms {
            time,
            keep: change.keep,
            write: change.write,
        };
        let what = (version, current, previous);
        self.changes
            .begin_trial(what, change.by, &terms, (totals, &groups));
        info!(
            version,
            by = change.by,
            seconds = change.try_seconds,
            changes = changes.join("; "),
            "a change of the configuration is tried"
        );
        if time.is_zero() {
            self.keep_change()?;
        }
        let mut done = self.changes.trial_status(&self.totals());
        if let Some(fields) = done.as_object_mut() {
            let warnings = self.hide_in(&warnings, &files);
            fields.insert("warnings".to_owned(), warnings.into());
            fields.insert("changes".to_owned(), changes.into());
        }
        Ok(done)
    }

    /// Keeps the change that is tried.
    pub(super) fn confirm_config(&mut self) -> Result<Value, ControlResponse> {
        if self.changes.trial.is_none() {
            return Err(refused("no change is being tried"));
        }
        self.keep_change()?;
        Ok(self.changes.trial_status(&self.totals()))
    }

    fn keep_change(&mut self) -> Result<(), ControlResponse> {
        let Some(trial) = &self.changes.trial else {
            return Ok(());
        };
        let (version, write) = (trial.version, trial.write);
        let totals = self.totals();
        self.changes.kept(&totals);
        info!(version, "a change of the configuration is kept");
        if write {
            self.write_config().map_err(|why| {
                refused(format!(
                    "version {version} is in force, and not in the file: {why}"
                ))
            })?;
        }
        Ok(())
    }

    /// Writes the text in force to the file.
    fn write_config(&mut self) -> Result<(), String> {
        let ConfigSource::File(path) = self.loader.source() else {
            return Ok(());
        };
        let new = self.changes.versions.current();
        let new = new.map_or_else(String::new, |current| current.text().to_owned());
        let old = self.changes.file_text.clone().unwrap_or_default();
        ConfigFile::writable(path, &old)?.replace(&old, &new)?;
        info!(path = %path.display(), "a change of the configuration is written to its file");
        self.changes.file_text = Some(new);
        Ok(())
    }

    /// Ends the change that is tried.
    pub(super) async fn roll_back_config(&mut self) -> Result<Value, ControlResponse> {
        if self.changes.trial.is_none() {
            return Err(refused("no change is being tried"));
        }
        self.roll_back("it was rolled back by command").await?;
        Ok(self.changes.trial_status(&self.totals()))
    }

    async fn roll_back(&mut self, reason: &str) -> Result<(), ControlResponse> {
        let Some(trial) = &self.changes.trial else {
            return Ok(());
        };
        let previous = trial.previous.clone();
        let (version, before) = (trial.version, trial.before);
        let pools = self.loader.pools().all();
        let loaded = self.loader.load_from(previous, Some(&self.access_logs));
        if let Err(failure) = self.use_loaded(loaded, &pools).await {
            let why = failure.to_string();
            let trial = self.changes.trial.as_mut();
            let failing = trial.map(|trial| trial.failing.replace(reason.to_owned()));
            // It is tried again each second, and said once.
            if failing.flatten().is_none() {
                error!(
                    version,
                    reason,
                    error = why,
                    "a change of the configuration cannot be rolled back yet"
                );
            }
            return Err(refused(format!(
                "version {version} cannot be rolled back yet: {why}"
            )));
        }
        let totals = self.totals();
        self.changes.rolled_back(reason, &totals);
        warn!(
            version,
            in_force = before,
            reason,
            "a change of the configuration is rolled back"
        );
        Ok(())
    }

    /// Looks whether the change that is tried has to end.
    pub(super) async fn watch_change(&mut self) {
        let (totals, groups) = (self.totals(), self.loader.upstreams().status());
        match self.changes.verdict(&totals, &groups) {
            TrialVerdict::Wait => {}
            TrialVerdict::Keep => {
                if let Err(ControlResponse::Failed { message, .. }) = self.keep_change() {
                    error!("{message}");
                }
            }
            TrialVerdict::RollBack(reason) => {
                // The log says why it is not possible.
                let _ = self.roll_back(&reason).await;
            }
        }
    }

    /// A version with what it changed.
    pub(super) fn show_version(&self, id: u64) -> Result<Value, String> {
        let versions = &self.changes.versions;
        let version = versions.get(id);
        let version = version.ok_or_else(|| format!("there is no version {id}"))?;
        let before = versions.before(id).map_or(&[][..], |before| &before.files);
        let mut shown = versions.description(version);
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("files".to_owned(), self.changes.files(version));
            let diff = self.changes.difference(before, &version.files);
            fields.insert("diff".to_owned(), diff.into());
        }
        Ok(shown)
    }

    /// What the requests of sites did so far.
    pub(super) fn totals(&self) -> Totals {
        self.loader.site_metrics().totals()
    }

    fn failed_change(&self, failure: &ServeError, files: &[ConfigText]) -> ControlResponse {
        let details = match failure {
            ServeError::Load(error) => self.hidden(error.to_json(), files),
            _ => Value::Null,
        };
        ControlResponse::Failed {
            message: self.hide_in(&failure.to_string(), files),
            details: if details.is_null() {
                details
            } else {
                json!({ "mistakes": details })
            },
        }
    }

    /// A message about texts with their secrets hidden.
    fn hide_in(&self, message: &str, files: &[ConfigText]) -> String {
        files.iter().fold(message.to_owned(), |message, file| {
            self.changes.hide_in_message(&message, &file.text)
        })
    }

    /// JSON about texts with their secrets hidden.
    fn hidden(&self, value: Value, files: &[ConfigText]) -> Value {
        match value {
            Value::String(text) => self.hide_in(&text, files).into(),
            Value::Array(values) => {
                let values = values.into_iter();
                values.map(|value| self.hidden(value, files)).collect()
            }
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let fields = fields.map(|(name, value)| (name, self.hidden(value, files)));
                Value::Object(fields.collect())
            }
            other => other,
        }
    }
}

fn pair(file: &ConfigText) -> (PathBuf, String) {
    (PathBuf::from(&file.path), file.text.clone())
}

fn refused(message: impl Into<String>) -> ControlResponse {
    ControlResponse::Failed {
        message: message.into(),
        details: Value::Null,
    }
}

/// Somebody else was faster.
fn conflict(message: String, version: u64) -> ControlResponse {
    ControlResponse::Failed {
        message,
        details: json!({ "conflict": { "version": version } }),
    }
}
