//! What the history has of a running server: its counters, each second.

use apus_config::ServerPlan;
use apus_http::ResponseMemory;
use apus_metrics::{HistoryColumn, HistoryRecord, cpu_time, resident_memory};
use apus_net::WorkerTotals;
use apus_upstream::plan::AdminState;
use apus_upstream::{NodeAvailability, NodeStatus, Upstreams};

use super::ControlThread;
use crate::state_folder::StateFolder;

impl ControlThread {
    /// Begins with the history at the start of the server, if the configuration says so.
    pub(super) async fn begin_history(&mut self) {
        // Requests may have come already.
        let folder = self.history_folder();
        self.history.configure(folder, HistoryRecord::zero).await;
    }

    /// Begins, goes on or ends with the history after a reload, as the configuration says.
    pub(super) async fn configure_history(&mut self) {
        let mut sampler = std::mem::take(&mut self.history);
        let folder = self.history_folder();
        sampler
            .configure(folder, || {
                // What happened before is no part of the first second.
                self.loader.site_metrics().take_activity();
                self.counters()
            })
            .await;
        self.history = sampler;
    }

    /// Where the history is; `None`: nobody can ask for it.
    fn history_folder(&self) -> Option<StateFolder> {
        let config = &self.loaded.config;
        (config.global.admin.is_some()).then(|| self.loader.state_folder(config))
    }

    /// Takes a record of the last second.
    pub(super) async fn take_history(&mut self) {
        let counts_sites = self.loaded.config.global.metrics.is_some();
        let activity = counts_sites.then(|| self.loader.site_metrics().take_activity());
        let counters = self.counters();
        self.history.take(counters, activity).await;
    }

    /// All counters of the server now, beside those of sites.
    fn counters(&self) -> HistoryRecord {
        let mut counters = HistoryRecord::new(0, 0);
        add_engine(&self.engine.status().totals(), &mut counters);
        add_upstreams(self.loader.upstreams(), &mut counters);
        let lost = self.log_writer.counts().iter().map(|log| log.lost).sum();
        let cpu = u64::try_from(cpu_time().as_micros()).unwrap_or(u64::MAX);
        for (column, value) in [
            (
                HistoryColumn::LimitRefusals,
                limit_refusals(&self.loaded.config),
            ),
            (HistoryColumn::BanRefusals, self.bans.refused_requests()),
            (HistoryColumn::RuleMatches, self.loader.rule_matches()),
            (HistoryColumn::LogLinesLost, lost),
            (HistoryColumn::CpuTime, cpu),
            (
                HistoryColumn::ResponseMemory,
                ResponseMemory::of_process().used(),
            ),
        ] {
            counters.set(column, value);
        }
        if let Some(bytes) = resident_memory() {
            counters.set(HistoryColumn::Memory, bytes);
        }
        counters
    }
}

fn limit_refusals(config: &ServerPlan) -> u64 {
    let limits = config.limits();
    limits.map(|(_, _, limit)| limit.counts().refused).sum()
}

fn add_engine(totals: &WorkerTotals, counters: &mut HistoryRecord) {
    let floods = [
        totals.stopped_reset_floods,
        totals.stopped_field_block_floods,
        totals.stopped_reply_floods,
        totals.stopped_idle_floods,
        totals.stopped_tiny_window_floods,
    ];
    for (column, value) in [
        (HistoryColumn::Requests, totals.requests),
        (HistoryColumn::BadRequests, totals.bad_requests),
        (HistoryColumn::ReceivedBytes, totals.bytes_in),
        (HistoryColumn::SentBytes, totals.bytes_out),
        (HistoryColumn::Accepted, totals.accepted),
        (HistoryColumn::RefusedByLimit, totals.refused),
        (HistoryColumn::RefusedByBan, totals.banned),
        (
            HistoryColumn::RefusedForGlitches,
            totals.refused_for_glitches,
        ),
        (HistoryColumn::Evicted, totals.evicted),
        (HistoryColumn::AcceptFailures, totals.accept_failures),
        (HistoryColumn::Handshakes, totals.handshakes),
        (HistoryColumn::HandshakeFailures, totals.handshake_failures),
        (HistoryColumn::ClientTimeouts, totals.timeouts),
        (HistoryColumn::Floods, floods.iter().sum()),
        (HistoryColumn::Panics, totals.panics),
        (HistoryColumn::BrokenResponses, totals.broken_responses),
        (HistoryColumn::Connections, totals.connections),
    ] {
        counters.set(column, value);
    }
}

fn add_upstreams(upstreams: &Upstreams, counters: &mut HistoryRecord) {
    let (mut requests, mut failures, mut down) = (0, 0, 0);
    for group in upstreams.status() {
        for node in &group.nodes {
            requests += node.requests;
            failures += node.failures.iter().map(|(_, count)| count).sum::<u64>();
            down += u64::from(!is_up(node));
        }
    }
    counters.set(HistoryColumn::UpstreamRequests, requests);
    counters.set(HistoryColumn::UpstreamFailures, failures);
    counters.set(HistoryColumn::NodesDown, down);
}

fn is_up(node: &NodeStatus) -> bool {
    node.admin != AdminState::Down && !matches!(node.state, NodeAvailability::Out(..))
}
