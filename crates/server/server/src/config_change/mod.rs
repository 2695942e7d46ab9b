//! Changes of the configuration by the operator, without its file: versions, and changes that are tried.
//!
//! A change is put in force as by a reload, and is on trial for a time. It is rolled back when more requests fail than before
//! (`error_watch`), and at the end of the time unless somebody has confirmed it: who has locked himself out does nothing, and can come in
//! again. `versions` keeps what was in force, `patch` changes single keys of a text, and `file` writes it where it came from.
//!
//! # Decisions
//!
//! - **The text of the first file is what changes**: included files are read from disk, as by a reload, unless an old version is brought
//!   back, which has them all.
//! - **A version is what a change is based on**, so of two operators who change the same version, the second one gets a conflict.
//! - **The file stays as it is, unless a change says otherwise**: until then, a reload and a restart bring back what the file says, which the
//!   log and the response of a reload tell.
//! - **Failures are compared by site**: among thousands of sites, one that fails is nothing in the sum.

mod error_watch;
mod file;
mod patch;
mod versions;

use std::time::{Duration, Instant};

use apus_config::HiddenSecrets;
use apus_control::ConfigEdit;
use apus_upstream::GroupStatus;
use serde_json::{Value, json};
use similar::TextDiff;

pub(crate) use self::error_watch::Totals;
use self::error_watch::{ErrorWatch, RecentTotals};
pub(crate) use self::file::ConfigFile;
pub(crate) use self::versions::{ConfigText, ConfigVersion, ConfigVersions};
use crate::helper_protocol::LoadedByRoot;
use crate::state_folder::StateFolder;

/// How long a difference of two texts is searched for; a longer search gives a longer difference.
const DIFF_PATIENCE: Duration = Duration::from_millis(500);

/// The changes of the configuration of a running server.
pub(crate) struct ConfigChanges {
    pub(crate) versions: ConfigVersions,
    /// The text of the file when it was read or written last.
    pub(crate) file_text: Option<String>,
    pub(crate) trial: Option<Trial>,
    /// What became of the last trial.
    ended: Option<EndedTrial>,
    recent: RecentTotals,
    secrets: HiddenSecrets,
}

/// A change that is tried.
pub(crate) struct Trial {
    pub(crate) version: u64,
    /// The version that was in force before, and is again if this fails.
    pub(crate) before: u64,
    pub(crate) previous: LoadedByRoot,
    pub(crate) by: String,
    ends: Instant,
    /// Whether it is kept at the end without a confirmation.
    keep: bool,
    /// Whether it is written to the file when it is kept.
    pub(crate) write: bool,
    watch: ErrorWatch,
    /// Why it has to be rolled back, once that has failed.
    pub(crate) failing: Option<String>,
}

/// How a trial is made.
pub(crate) struct TrialTerms {
    pub(crate) time: Duration,
    pub(crate) keep: bool,
    pub(crate) write: bool,
}

struct EndedTrial {
    version: u64,
    outcome: &'static str,
    reason: Option<String>,
    sites: Value,
}

/// What has to be done about a trial.
pub(crate) enum TrialVerdict {
    Wait,
    Keep,
    RollBack(String),
}

/// What a change is made from, and to.
pub(crate) struct EditedConfig {
    /// The first file, and the others if a version is brought back.
    pub(crate) files: Vec<ConfigText>,
}

impl ConfigChanges {
    pub(crate) fn start(folder: StateFolder, secrets: HiddenSecrets) -> Self {
        Self {
            versions: ConfigVersions::start(folder),
            file_text: None,
            trial: None,
            ended: None,
            recent: RecentTotals::default(),
            secrets,
        }
    }

    /// Notes what requests did so far, every few seconds; `None`: it is not counted.
    pub(crate) fn note(&mut self, totals: Option<Totals>) {
        match totals {
            Some(totals) => self.recent.note(totals),
            None => self.recent.clear(),
        }
    }

    /// Notes that the file was read, and is in force. Says what ends by that.
    pub(crate) fn file_was_read(&mut self, files: Vec<ConfigText>, by: &str) -> Option<String> {
        let before = self.versions.current_id();
        let unwritten = self.versions.current().and_then(|current| {
            let text = self.file_text.as_deref()?;
            (current.text() != text).then_some(current.id)
        });
        self.file_text = files.first().map(|file| file.text.clone());
        if files.is_empty() {
            return None;
        }
        let now = self.versions.put_in_force(files, by, None);
        if let Some(trial) = self.trial.take() {
            self.end(&trial, "replaced", Some("the file was loaded"), Value::Null);
        }
        unwritten.filter(|_| now != before).map(|version| {
            format!(
                "version {version} of the configuration, which is not in the file, has ended: the file is version {now}; `apus config restore {version}` brings it back"
            )
        })
    }

    /// The texts that a change makes.
    ///
    /// # Errors
    /// It does not fit: why.
    pub(crate) fn edited(&self, edit: &ConfigEdit) -> Result<EditedConfig, String> {
        let current = self.versions.current().ok_or("no version is in force")?;
        let first = current.files.first().ok_or("there is no file")?;
        let text = match edit {
            ConfigEdit::Version(id) => {
                let version = self.versions.get(*id);
                let version =
                    version.ok_or_else(|| format!("there is no version {id} any more"))?;
                let files = version.files.clone();
                return Ok(EditedConfig { files });
            }
            ConfigEdit::Text(text) => text.clone(),
            ConfigEdit::Keys(changes) => patch::patched(&first.text, changes)?,
        };
        let texts = self.versions.texts();
        let text = self.secrets.restore(&text, texts).map_err(|lines| {
            let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
            format!(
                "line {}: a hidden secret stands where no secret can be, or is not of this server: write it out",
                lines.join(", ")
            )
        })?;
        let path = first.path.clone();
        Ok(EditedConfig {
            files: vec![ConfigText { path, text }],
        })
    }

    /// Begins a trial of a version that was put in force, or keeps it if there is no time for one.
    pub(crate) fn begin_trial(
        &mut self,
        (version, before, previous): (u64, u64, LoadedByRoot),
        by: &str,
        terms: &TrialTerms,
        counts: (Totals, &[GroupStatus]),
    ) {
        self.trial = Some(Trial {
            version,
            before,
            previous,
            by: by.to_owned(),
            ends: Instant::now() + terms.time,
            keep: terms.keep,
            write: terms.write,
            watch: ErrorWatch::begin(&self.recent, counts.0, counts.1),
            failing: None,
        });
    }

    /// What has to be done about the trial now.
    pub(crate) fn verdict(&self, totals: &Totals, groups: &[GroupStatus]) -> TrialVerdict {
        let Some(trial) = &self.trial else {
            return TrialVerdict::Wait;
        };
        if let Some(reason) = &trial.failing {
            return TrialVerdict::RollBack(reason.clone());
        }
        if let Some(fault) = trial.watch.fault(totals, groups) {
            return TrialVerdict::RollBack(fault);
        }
        if Instant::now() < trial.ends {
            TrialVerdict::Wait
        } else if trial.keep {
            TrialVerdict::Keep
        } else {
            TrialVerdict::RollBack("nobody confirmed it in time".to_owned())
        }
    }

    /// Notes that the trial has ended with the version kept.
    pub(crate) fn kept(&mut self, totals: &Totals) {
        if let Some(trial) = self.trial.take() {
            let sites = trial.watch.report(totals);
            self.end(&trial, "kept", None, sites);
        }
    }

    /// Notes that the trial has ended with the version before in force again.
    pub(crate) fn rolled_back(&mut self, reason: &str, totals: &Totals) {
        if let Some(trial) = self.trial.take() {
            let sites = trial.watch.report(totals);
            (self.versions).roll_back(trial.version, trial.before, reason);
            self.end(&trial, "rolled_back", Some(reason), sites);
        }
    }

    fn end(&mut self, trial: &Trial, outcome: &'static str, reason: Option<&str>, sites: Value) {
        self.ended = Some(EndedTrial {
            version: trial.version,
            outcome,
            reason: reason.map(str::to_owned),
            sites,
        });
    }

    /// The change that is tried, or what became of the last one.
    pub(crate) fn trial_status(&self, totals: &Totals) -> Value {
        let current = self.versions.current_id();
        let trial = match (&self.trial, &self.ended) {
            (Some(trial), _) => json!({
                "version": trial.version,
                "before": trial.before,
                "by": trial.by,
                "outcome": null,
                "seconds_left": trial.ends.saturating_duration_since(Instant::now()).as_secs_f64().ceil(),
                "keep": trial.keep,
                "write": trial.write,
                "reason": trial.failing,
                "sites": trial.watch.report(totals),
            }),
            (None, Some(ended)) => json!({
                "version": ended.version,
                "outcome": ended.outcome,
                "reason": ended.reason,
                "sites": ended.sites,
            }),
            (None, None) => Value::Null,
        };
        json!({ "version": current, "trial": trial })
    }

    /// A text with its secrets hidden.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.secrets.hide(text)
    }

    /// A message about a text with its secrets hidden.
    pub(crate) fn hide_in_message(&self, message: &str, text: &str) -> String {
        self.secrets.hide_in_message(message, text)
    }

    /// The files of a version with their secrets hidden.
    pub(crate) fn files(&self, version: &ConfigVersion) -> Value {
        let files = version.files.iter();
        let files = files.map(|file| json!({ "path": file.path, "text": self.hide(&file.text) }));
        files.collect()
    }

    /// What differs between the texts of two versions, line by line with a mark before each, with their secrets hidden.
    pub(crate) fn difference(&self, old: &[ConfigText], new: &[ConfigText]) -> String {
        let text_of = |files: &[ConfigText], path: &str| {
            let file = files.iter().find(|file| file.path == path);
            file.map_or_else(String::new, |file| self.hide(&file.text))
        };
        let mut paths: Vec<_> = old.iter().chain(new).map(|file| &*file.path).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut differences = String::new();
        for path in paths {
            let (old, new) = (text_of(old, path), text_of(new, path));
            if old != new {
                let mut differ = TextDiff::configure();
                differ.timeout(DIFF_PATIENCE);
                let difference = differ.diff_lines(&old, &new);
                let mut difference = difference.unified_diff();
                differences += &difference.header(path, path).to_string();
            }
        }
        differences
    }
}
