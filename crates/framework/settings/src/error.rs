//! `SettingsError`: all mistakes of the settings.

use std::error::Error;
use std::fmt;

/// All mistakes of the settings, one on each line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub(crate) Vec<SettingsMistake>);

/// A mistake of the settings. It contains no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingsMistake {
    /// The key, as `mail.server`; empty for a file that cannot be read.
    pub key: String,
    /// Where the value comes from, as `shop.toml` or `the variable SHOP_PORT`; empty if there is none.
    pub origin: String,
    /// What is wrong.
    pub problem: String,
}

impl SettingsError {
    /// The mistakes.
    pub fn mistakes(&self) -> &[SettingsMistake] {
        &self.0
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "{count} {noun} in the settings:")?;
        self.0
            .iter()
            .try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl fmt::Display for SettingsMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            origin,
            problem,
        } = self;
        match (key.is_empty(), origin.is_empty()) {
            (true, true) => f.write_str(problem),
            (true, false) => write!(f, "{origin}: {problem}"),
            (false, true) => write!(f, "{key}: {problem}"),
            (false, false) => write!(f, "{key}: {problem} (in {origin})"),
        }
    }
}

impl Error for SettingsError {}
