//! The status of limits for the control socket.

use apus_config::ServerPlan;
use serde_json::{Value, json};

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
        })
    });
    limits.collect()
}
