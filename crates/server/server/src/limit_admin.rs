//! Limits for the control socket: their status, what was used of quotas, and its reset.

use apus_config::ServerPlan;
use apus_layers::{LimitHandle, QuotaReport};
use serde_json::{Value, json};

/// The keys of a quota that are listed.
const MAX_LISTED: usize = 1000;

/// All limits with their decisions as JSON. A limit that several locations share is there once.
pub(crate) fn status(config: &ServerPlan) -> Value {
    let limits = config.limits().map(|(site, location, limit)| {
        let counts = limit.counts();
        json!({
            "site": site,
            "location": location,
            "name": limit.name(),
            "key": limit.key().to_string(),
            "dry_run": limit.is_dry_run(),
            "allowed": counts.allowed,
            "delayed": counts.delayed,
            "refused": counts.refused,
            "would_delay": counts.would_delay,
            "would_refuse": counts.would_refuse,
            "quota": limit.quota_report().map(|report| quota(&report)),
        })
    });
    limits.collect()
}

/// The quotas with what their keys have used.
///
/// # Errors
/// There is no quota of this name, in words for the operator.
pub(crate) fn list(config: &ServerPlan, name: Option<&str>) -> Result<Value, String> {
    let quotas: Vec<Value> = named(config, name)
        .map(|(place, limit, report)| {
            let mut listed = quota(&report);
            let keys = report.keys.iter().take(MAX_LISTED);
            let keys: Value = keys
                .map(|usage| json!({ "key": usage.key, "used": usage.used }))
                .collect();
            if let Value::Object(fields) = &mut listed {
                fields.insert("usage".to_owned(), keys);
            }
            json!({
                "site": place.0,
                "location": place.1,
                "name": limit.name(),
                "key": limit.key().to_string(),
                "quota": listed,
            })
        })
        .collect();
    match name {
        Some(name) if quotas.is_empty() => Err(unknown(name)),
        _ => Ok(json!({ "quotas": quotas })),
    }
}

/// Gives a key of the quotas of a name the whole quota again, or all keys.
///
/// # Errors
/// There is no quota of this name, or the key has used nothing, in words for the operator.
pub(crate) fn reset(config: &ServerPlan, name: &str, key: Option<&str>) -> Result<Value, String> {
    let mut quotas = named(config, Some(name)).peekable();
    if quotas.peek().is_none() {
        return Err(unknown(name));
    }
    let keys: usize = quotas.map(|(_, limit, _)| limit.reset_quota(key)).sum();
    match key {
        Some(_) if keys == 0 => Err(format!(
            "no such key has used anything of the quota `{}`; `apus limit list` shows those that have",
            name.escape_debug()
        )),
        _ => {
            tracing::info!(limit = name, keys, "reset a quota");
            Ok(json!({ "name": name, "keys": keys }))
        }
    }
}

type LimitPlace<'a> = (Option<&'a str>, Option<&'a str>);

fn named<'a>(
    config: &'a ServerPlan,
    name: Option<&'a str>,
) -> impl Iterator<Item = (LimitPlace<'a>, &'a LimitHandle, QuotaReport)> {
    config
        .limits()
        .filter(move |(_, _, limit)| name.is_none_or(|name| limit.name() == name))
        .filter_map(|(site, location, limit)| {
            Some(((site, location), limit, limit.quota_report()?))
        })
}

fn unknown(name: &str) -> String {
    format!("there is no limit `{}` with a quota", name.escape_debug())
}

/// A quota, and how many keys have used it and used it up.
fn quota(report: &QuotaReport) -> Value {
    let has_used_up = |used: &u64| *used >= report.units;
    let used = report.keys.iter().map(|usage| usage.used);
    json!({
        "units": report.units,
        "unit": report.unit,
        "window": report.window,
        "resets_in": report.resets_in.as_secs(),
        "keys": report.keys.len(),
        "used_up": used.filter(has_used_up).count(),
    })
}
