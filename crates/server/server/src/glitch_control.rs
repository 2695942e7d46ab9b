//! What clients do wrong, on the control thread of a running server: settings, the log and the status.

use std::sync::Arc;

use crate::server_metrics::add_glitches;
use apus_access::{GlitchSettings, Glitches};
use apus_conditions::NetworkSet;
use apus_config::GlobalPlan;
use apus_http::Glitch;
use apus_metrics::MetricSamples;
use apus_net::Engine;
use serde_json::{Map, Value, json};
use tracing::warn;

/// The glitches of the clients of a running server.
pub(crate) struct GlitchControl {
    glitches: Arc<Glitches>,
    /// The connections that were refused before the last line of the log.
    logged: u64,
}

impl GlitchControl {
    /// Puts the settings of a configuration in force. What was counted before stays.
    pub(crate) fn start(glitches: Arc<Glitches>, plan: &GlobalPlan) -> Self {
        glitches.configure(settings(plan));
        Self {
            glitches,
            logged: 0,
        }
    }

    /// Puts the settings of a new configuration in force.
    pub(crate) fn configure(&self, plan: &GlobalPlan) {
        self.glitches.configure(settings(plan));
    }

    /// Has the load measured once there is a client that may be refused, and logs in one line how many connections were refused
    /// since the last time.
    pub(crate) fn tick(&mut self, engine: &Engine) {
        if !self.glitches.has_any() {
            return;
        }
        engine.measure_load();
        let refused = engine.status().totals().refused_for_glitches;
        let connections = refused.saturating_sub(self.logged);
        if connections > 0 {
            warn!(
                connections,
                "refused connections of clients that did much wrong, as the workers are busy"
            );
        }
        self.logged = refused;
    }

    /// How many glitches of each kind were counted, and how many clients are remembered.
    /// Adds the metrics of glitches.
    pub(crate) fn add_metrics(&self, samples: &mut MetricSamples) {
        add_glitches(&self.glitches, samples);
    }

    pub(crate) fn status(&self) -> Value {
        let counted: Map<String, Value> = Glitch::ALL
            .into_iter()
            .map(|glitch| {
                (
                    glitch.name().to_owned(),
                    self.glitches.counted(glitch).into(),
                )
            })
            .collect();
        json!({ "counted": counted, "clients": self.glitches.clients() })
    }
}

/// The settings of glitches in a plan. Who is never banned is never refused for glitches either.
fn settings(plan: &GlobalPlan) -> GlitchSettings {
    let set = |networks: &[_]| Arc::new(NetworkSet::new(networks.iter().copied()));
    GlitchSettings {
        proxies: set(&plan.glitches.proxies),
        never: set(&plan.bans.never),
        threshold: plan.glitches.threshold,
    }
}
