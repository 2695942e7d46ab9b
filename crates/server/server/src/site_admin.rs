//! The sites on the control socket: their list, and their maintenance.

use std::time::SystemTime;

use apus_config::{ServerPlan, SitePlan};
use apus_sites::MaintenanceState;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::maintenance::MaintenanceSwitches;

/// All sites as JSON.
pub(crate) fn list(config: &ServerPlan, switches: &MaintenanceSwitches) -> Value {
    let sites = config.sites.iter();
    sites.map(|site| status(site, switches)).collect()
}

/// The names of the sites that are in maintenance, and when it ends.
pub(crate) fn in_maintenance(config: &ServerPlan, switches: &MaintenanceSwitches) -> Value {
    let is_on = |site: &&SitePlan| state(site, switches) != MaintenanceState::Off;
    let sites = config.sites.iter().filter(is_on);
    sites.map(|site| status(site, switches)).collect()
}

/// That no site has a name, in words for the operator; `None` if one has it.
pub(crate) fn unknown(config: &ServerPlan, name: &str) -> Option<String> {
    let names: Vec<&str> = config.sites.iter().map(|site| &*site.name).collect();
    (!names.contains(&name)).then(|| {
        format!(
            "no site is named `{}`; expected one of {}",
            name.escape_debug(),
            names.join(", ")
        )
    })
}

fn state(site: &SitePlan, switches: &MaintenanceSwitches) -> MaintenanceState {
    let maintenance = site.maintenance.clone();
    maintenance.switch(&switches.of(&site.name)).current()
}

fn status(site: &SitePlan, switches: &MaintenanceSwitches) -> Value {
    let names = site.server_names.iter().map(ToString::to_string);
    let listening = site.listeners.iter();
    let state = state(site, switches);
    let until = match state {
        MaintenanceState::Until(end) => Some(written(end)),
        MaintenanceState::On | MaintenanceState::Off => None,
    };
    json!({
        "name": site.name,
        "server_names": names.collect::<Vec<_>>(),
        "listening": listening.map(|one| one.address.url(one.tls)).collect::<Vec<_>>(),
        "maintenance": state != MaintenanceState::Off,
        "maintenance_until": until,
        "maintenance_by_command": switches.of(&site.name).state().is_some(),
    })
}

/// A moment as RFC 3339 writes it.
pub(crate) fn written(time: SystemTime) -> String {
    OffsetDateTime::from(time)
        .format(&Rfc3339)
        .unwrap_or_default()
}
