//! The maintenance of sites by command: switches that outlive a plan, and their file.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_control::MaintenanceChange;
use apus_sites::{MaintenanceState, MaintenanceSwitch};
use serde_json::{Map, Value, json};
use tracing::{error, warn};

use crate::state_folder::StateFolder;

/// The file, in the state folder.
const FILE: &str = "maintenance.json";

/// The switches of all sites, by their names.
#[derive(Debug, Default)]
pub struct MaintenanceSwitches(Mutex<BTreeMap<String, MaintenanceSwitch>>);

impl MaintenanceSwitches {
    /// The switch of a site.
    pub fn of(&self, site: &str) -> MaintenanceSwitch {
        let mut switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        switches.entry(site.to_owned()).or_default().clone()
    }

    /// Sets the switch of a site, and stores all that are set.
    ///
    /// # Errors
    /// They cannot be stored. The switch is set.
    pub(crate) fn set(
        &self,
        site: &str,
        change: MaintenanceChange,
        folder: &StateFolder,
    ) -> std::io::Result<()> {
        self.of(site).set(match change {
            MaintenanceChange::Configured => None,
            MaintenanceChange::Off => Some(MaintenanceState::Off),
            MaintenanceChange::On { until: None } => Some(MaintenanceState::On),
            MaintenanceChange::On { until: Some(until) } => Some(moment(until)),
        });
        folder.write(FILE, self.to_json().to_string().as_bytes())
    }

    /// Sets the switches that were stored, as [`Self::set_stored`]. A damaged file is put aside.
    pub(crate) fn restore(&self, folder: &StateFolder) {
        match self.set_stored(folder) {
            Ok(()) => {}
            Err(StoredSwitchesError::Read(error)) => {
                let path = folder.path(FILE);
                error!(path = %path.display(), %error, "cannot read which sites are in maintenance by command");
            }
            Err(StoredSwitchesError::Damaged) => {
                let aside = folder.put_aside(FILE);
                warn!(path = %aside.display(), "the file of maintenance by command is damaged, and was put aside: sites are as the configuration says");
            }
        }
    }

    /// Sets the switches that were stored, if there are any.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged. No switch is set.
    pub(crate) fn set_stored(&self, folder: &StateFolder) -> Result<(), StoredSwitchesError> {
        let Some(stored) = folder.read(FILE).map_err(StoredSwitchesError::Read)? else {
            return Ok(());
        };
        let sites = serde_json::from_slice::<Map<String, Value>>(&stored);
        let sites = sites.map_err(|_| StoredSwitchesError::Damaged)?.into_iter();
        let states = sites.map(|(site, state)| Some((site, parsed(&state)?)));
        let states = states.collect::<Option<Vec<_>>>();
        for (site, state) in states.ok_or(StoredSwitchesError::Damaged)? {
            self.of(&site).set(Some(state));
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let states = switches.iter();
        states
            .filter_map(|(site, switch)| Some((site.clone(), written(switch.state()?))))
            .collect::<Map<_, _>>()
            .into()
    }
}

/// Why stored switches cannot be used.
#[derive(Debug)]
pub(crate) enum StoredSwitchesError {
    /// The file cannot be read.
    Read(std::io::Error),
    /// The file has other contents than this program writes.
    Damaged,
}

fn moment(seconds: u64) -> MaintenanceState {
    let end = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    // A moment that the system cannot express never comes.
    end.map_or(MaintenanceState::On, MaintenanceState::Until)
}

fn parsed(state: &Value) -> Option<MaintenanceState> {
    match state {
        Value::String(text) if text == "on" => Some(MaintenanceState::On),
        Value::String(text) if text == "off" => Some(MaintenanceState::Off),
        Value::Number(seconds) => Some(moment(seconds.as_u64()?)),
        _ => None,
    }
}

fn written(state: MaintenanceState) -> Value {
    match state {
        MaintenanceState::On => json!("on"),
        MaintenanceState::Off => json!("off"),
        MaintenanceState::Until(end) => json!(unix_seconds(end)),
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_set_is_there_after_a_restart() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(parent.path());
        let before = MaintenanceSwitches::default();
        let set = |site, change| before.set(site, change, &folder).unwrap();
        set("a", MaintenanceChange::On { until: None });
        set("b", MaintenanceChange::Off);
        set(
            "c",
            MaintenanceChange::On {
                until: Some(4_000_000_000),
            },
        );
        set("d", MaintenanceChange::On { until: None });
        set("d", MaintenanceChange::Configured);
        let after = MaintenanceSwitches::default();
        after.restore(&folder);
        let state = |site| after.of(site).state();
        assert_eq!(state("a"), Some(MaintenanceState::On));
        assert_eq!(state("b"), Some(MaintenanceState::Off));
        assert_eq!(state("c"), Some(moment(4_000_000_000)));
        assert_eq!(state("d"), None);
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_changes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(parent.path());
        for damaged in ["", "{\"a\": \"on\"", "{\"a\": \"on\", \"b\": 1.5}", "[]"] {
            folder.write(FILE, damaged.as_bytes()).unwrap();
            let switches = MaintenanceSwitches::default();
            switches.restore(&folder);
            assert_eq!(switches.of("a").state(), None, "{damaged}");
            assert_eq!(folder.read(FILE).unwrap(), None, "{damaged}");
        }
    }
}
