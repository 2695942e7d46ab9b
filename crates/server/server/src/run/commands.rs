//! What the operator asks of the running server, by a command or by the API.

use std::time::{Duration, Instant, SystemTime};

use apus_config::ServerPlan;
use apus_control::{
    ControlRequest, ControlResponse, LogLevelName, MAX_LISTED_RESPONSES, MaintenanceChange,
    NodeChange, PurgeScope, add_engine_metrics, request_report,
};
use apus_metrics::{MetricFormat, MetricSamples};
use apus_telemetry::MetricsExport;
use serde_json::{Value, json};
use tracing::{error, info};

use super::ControlThread;
use super::config_commands::ConfigChange;
use crate::assemble::kept_records;
use crate::cache_admin::{self, PurgeError};
use crate::certificate_files;
use crate::limit_admin;
use crate::pool_status;
use crate::server_metrics;
use crate::site_admin;
use crate::upstream_admin;

/// How long a purge counts what it is going to remove.
const COUNTING_PATIENCE: Duration = Duration::from_secs(2);

/// The longest change of the level of the log by command, in seconds.
const MAX_LOG_LEVEL_SECONDS: u64 = 24 * 3600;

impl ControlThread {
    /// Does what is asked; `None`: to stop, which comes after the responses to others.
    /// `by` is who asks.
    pub(super) async fn perform(
        &mut self,
        request: &ControlRequest,
        by: &str,
    ) -> Option<ControlResponse> {
        Some(match request {
            ControlRequest::Status => ControlResponse::Done(self.status()),
            ControlRequest::Metrics { format } => {
                let format = MetricFormat::from(*format);
                ControlResponse::Done(json!({ "text": format.write(self.metrics()) }))
            }
            ControlRequest::Reload => self.reload(by).await,
            ControlRequest::Upstream {
                group,
                node,
                change,
            } => respond(self.change_node(group, node, *change)),
            ControlRequest::CachePurge { site, what, soft } => {
                respond(self.purge(site.as_deref(), what, *soft).await)
            }
            ControlRequest::CacheList { site, what, most } => {
                respond(self.list_cache(site.as_deref(), what, *most).await)
            }
            ControlRequest::LogLevel { level, seconds } => {
                respond(self.change_log_level(*level, *seconds))
            }
            ControlRequest::RenewCertificate { name } => respond(self.renew_certificate(name)),
            ControlRequest::Traffic { seconds, anew } => {
                ControlResponse::Done(self.traffic.watch(*seconds, *anew))
            }
            ControlRequest::BanList => ControlResponse::Done(self.bans.list()),
            ControlRequest::BanAdd {
                network,
                seconds,
                reason,
                force,
            } => {
                let time = seconds.map(Duration::from_secs);
                respond(self.bans.add(network, time, (reason, *force)).await)
            }
            ControlRequest::BanRemove { network } => respond(self.bans.remove(network).await),
            ControlRequest::LimitList { name } => {
                let config = &self.loaded.config;
                respond(limit_admin::list(config, name.as_deref()))
            }
            ControlRequest::LimitReset { name, key } => {
                respond(self.reset_quota(name, key.as_deref()).await)
            }
            ControlRequest::Sites => ControlResponse::Done(json!({
                "sites": site_admin::list(&self.loaded.config, self.loader.maintenance()),
            })),
            ControlRequest::Maintenance { site, change } => {
                respond(self.change_maintenance(site, *change))
            }
            ControlRequest::AdminLogin => respond(self.admin.log_in()),
            ControlRequest::ExplainRequest { id, sites } => {
                respond(self.explain_request(id, sites.as_deref()))
            }
            ControlRequest::Errors { sites } => {
                ControlResponse::Done(self.logging.errors().list(sites.as_deref()))
            }
            ControlRequest::Audit => ControlResponse::Done(self.audit.list()),
            ControlRequest::Config => ControlResponse::Done(self.show_config()),
            ControlRequest::ConfigCheck { text } => done_or(self.check_config(text)),
            ControlRequest::ConfigChange {
                edit,
                version,
                try_seconds,
                keep,
                write,
                note,
            } => {
                let change = ConfigChange {
                    edit,
                    version: *version,
                    try_seconds: *try_seconds,
                    keep: *keep,
                    write: *write,
                    note: note.as_deref(),
                    by,
                };
                self.change_config(&change).await
            }
            ControlRequest::ConfigTrial => {
                ControlResponse::Done(self.changes.trial_status(&self.totals()))
            }
            ControlRequest::ConfigConfirm => done_or(self.confirm_config()),
            ControlRequest::ConfigRollback => done_or(self.roll_back_config().await),
            ControlRequest::ConfigVersions => ControlResponse::Done(self.changes.versions.list()),
            ControlRequest::ConfigVersion { id } => respond(self.show_version(*id)),
            ControlRequest::Stop => return None,
        })
    }

    /// What happened to a request, if it was one of these sites; null if nobody knows any more.
    fn explain_request(&self, id: &str, sites: Option<&[String]>) -> Result<Value, String> {
        if kept_records(&self.loaded.config) == 0 {
            return Err(
                "no requests are kept: `explain_requests` of `[global]` says how many are"
                    .to_owned(),
            );
        }
        let is_visible = |site: &str| sites.is_none_or(|sites| sites.iter().any(|own| own == site));
        let Some(report) = self.loader.records().find(id, &is_visible) else {
            return Ok(Value::Null);
        };
        let mut shown = request_report(&report);
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("errors".to_owned(), self.logging.errors().of_request(id));
        }
        Ok(shown)
    }

    /// Gives a key of a quota, or all its keys, the whole quota again.
    async fn reset_quota(&mut self, name: &str, key: Option<&str>) -> Result<Value, String> {
        let reset = limit_admin::reset(&self.loaded.config, name, key)?;
        self.quotas.save_now().await?;
        Ok(reset)
    }

    fn change_node(&self, group: &str, node: &str, change: NodeChange) -> Result<Value, String> {
        let group = upstream_admin::set_node(self.loader.upstreams(), group, node, change)
            .map_err(|error| error.to_string())?;
        Ok(json!({ "group": group, "node": node }))
    }

    fn change_maintenance(&self, site: &str, change: MaintenanceChange) -> Result<Value, String> {
        let config = &self.loaded.config;
        if let Some(message) = site_admin::unknown(config, site) {
            return Err(message);
        }
        let switches = self.loader.maintenance();
        let stored = switches.set(site, change, &self.loader.state_folder(config));
        stored.map_err(|error| {
            format!("the site is changed, but a restart will forget it: cannot write to the state folder: {error}")
        })?;
        Ok(json!({ "sites": site_admin::list(config, switches) }))
    }

    async fn purge(
        &self,
        site: Option<&str>,
        what: &PurgeScope,
        soft: bool,
    ) -> Result<Value, String> {
        let purges = cache_admin::check_url(&self.loaded.config, what)
            .and_then(|()| cache_admin::purges(&self.loaded.cached, site, what, soft))
            .map_err(|error| error.to_string())?;
        let cache = self.loader.cache();
        let cache = cache.ok_or_else(|| PurgeError::Off.to_string())?;
        let counted = {
            let (cache, purges) = (cache.clone(), purges.clone());
            let deadline = Instant::now() + COUNTING_PATIENCE;
            tokio::task::spawn_blocking(move || cache.count(&purges, deadline)).await
        };
        let count = counted.unwrap_or_default();
        // All purges apply before the first one is waited for.
        let recorded: Vec<_> = purges.iter().map(|purge| cache.purge(purge)).collect();
        info!(
            site,
            %what,
            soft,
            responses = count.objects,
            "purged the cache"
        );
        for recorded in recorded {
            recorded.durable().await.map_err(|error| {
                format!("purged, but the removed responses may come back after a restart: {error}")
            })?;
        }
        Ok(json!({
            "responses": count.objects,
            "is_complete": count.is_complete,
        }))
    }

    async fn list_cache(
        &self,
        site: Option<&str>,
        what: &PurgeScope,
        most: u64,
    ) -> Result<Value, String> {
        let meant = cache_admin::check_url(&self.loaded.config, what)
            .and_then(|()| cache_admin::purges(&self.loaded.cached, site, what, false))
            .map_err(|error| error.to_string())?;
        let cache = self.loader.cache();
        let cache = cache.ok_or_else(|| PurgeError::Off.to_string())?;
        let most = usize::try_from(most.min(MAX_LISTED_RESPONSES)).unwrap_or(usize::MAX);
        let deadline = Instant::now() + COUNTING_PATIENCE;
        let list = move || cache_admin::list(&cache.list(&meant, most, deadline));
        let listed = tokio::task::spawn_blocking(list).await;
        listed.map_err(|error| error.to_string())
    }

    /// Changes the level of the log for a time.
    fn change_log_level(
        &mut self,
        level: Option<LogLevelName>,
        seconds: u64,
    ) -> Result<Value, String> {
        if seconds > MAX_LOG_LEVEL_SECONDS {
            return Err(format!(
                "the level can be changed for {MAX_LOG_LEVEL_SECONDS} seconds at most: a change of `log_level` lasts longer"
            ));
        }
        let until = Instant::now() + Duration::from_secs(seconds);
        self.other_log_level = level.map(|level| (level, until));
        self.apply_log_level()?;
        Ok(json!({ "level": self.log_level(), "seconds_left": level.map(|_| seconds) }))
    }

    /// Returns to the level of the configuration when the time of another one is over.
    pub(super) fn end_log_level(&mut self) {
        let is_over = |(_, until): (_, Instant)| Instant::now() >= until;
        if self.other_log_level.is_some_and(is_over) {
            self.other_log_level = None;
            match self.apply_log_level() {
                Ok(()) => info!(
                    level = self.log_level(),
                    "the log has its level of the configuration again"
                ),
                Err(error) => error!(error, "the level of the log cannot be changed"),
            }
        }
    }

    pub(super) fn apply_log_level(&self) -> Result<(), String> {
        let set = self.logging.set_level(Some(self.log_level()));
        set.map_err(|error| error.to_string())
    }

    fn log_level(&self) -> &'static str {
        let other = self.other_log_level.map(|(level, _)| level.name());
        other.unwrap_or(self.loaded.log_level)
    }

    fn renew_certificate(&self, name: &str) -> Result<Value, String> {
        match self.certificates.renew(name) {
            0 => Err(format!(
                "no certificate that is ordered by ACME is for `{name}`"
            )),
            count => Ok(json!({ "orders": count })),
        }
    }

    /// Hands the metrics to what pushes them, if there is a collector.
    pub(super) fn push_metrics(&self) {
        if self.otlp.pushes_metrics() {
            self.otlp.send(MetricsExport {
                samples: self.metrics(),
                started: self.started.time(),
                time: SystemTime::now(),
            });
        }
    }

    /// The metrics of all parts.
    fn metrics(&self) -> MetricSamples {
        let config = &self.loaded.config;
        let mut samples = server_metrics::samples();
        if let Some(metrics) = &config.global.metrics {
            let sites = self.loader.site_metrics();
            sites.add_to(metrics.max_sites, &mut samples);
        }
        add_engine_metrics(self.started, &self.engine, &mut samples);
        server_metrics::add_server(self.reloads, self.last_failure.is_some(), &mut samples);
        server_metrics::add_logs(&self.log_writer.counts(), &mut samples);
        if self.otlp.is_running() {
            server_metrics::add_otlp(self.otlp.counts(), &mut samples);
        }
        server_metrics::add_certificates(&self.certificates.status(), &mut samples);
        server_metrics::add_certificate_files(config, &mut samples);
        server_metrics::add_upstreams(self.loader.upstreams(), &mut samples);
        server_metrics::add_pools(self.loader.pools(), &mut samples);
        server_metrics::add_rules(&self.loader.rule_counts(config), &mut samples);
        server_metrics::add_limits(config, &mut samples);
        let challenges = self.loader.challenge_states();
        server_metrics::add_challenges(config, challenges, &mut samples);
        server_metrics::add_bots(&config.global.bots.bots.counts(), &mut samples);
        self.loader.add_cache_metrics(&mut samples);
        self.bans.add_metrics(&mut samples);
        self.glitches.add_metrics(&mut samples);
        samples
    }

    fn status(&self) -> Value {
        let access_logs: Vec<Value> = self
            .log_writer
            .counts()
            .iter()
            .map(|log| {
                json!({
                    "path": log.destination,
                    "lines_written": log.written,
                    "lines_lost": log.lost,
                })
            })
            .collect();
        let source = self.loader.source().path().to_string_lossy();
        let own = [
            ("reloads", self.reloads.into()),
            ("last_reload_failure", self.last_failure.clone().into()),
            ("admin_listening", self.admin.listening().into()),
            ("access_logs", access_logs.into()),
            ("php", pool_status::status(self.loader.pools())),
            ("upstreams", upstream_admin::status(self.loader.upstreams())),
            ("limits", limit_admin::status(&self.loaded.config)),
            ("cache", self.loader.cache_status()),
            ("certificates", json!(self.certificates.status())),
            (
                "certificate_files",
                certificate_files::status(&self.loaded.config),
            ),
            ("rules", self.loader.rules_status(&self.loaded.config)),
            (
                "challenges",
                self.loader.challenges_status(&self.loaded.config),
            ),
            ("bots", bots(&self.loaded.config)),
            ("log_level", self.log_level().into()),
            ("config", self.changes.trial_status(&self.totals())),
            ("counts_traffic", self.traffic.is_counting().into()),
            ("bans", self.bans.status()),
            ("glitches", self.glitches.status()),
            ("quotas_fault", self.quotas.fault().into()),
            (
                "maintenance",
                site_admin::in_maintenance(&self.loaded.config, self.loader.maintenance()),
            ),
        ];
        apus_control::status(&source, self.started, &self.engine, own)
    }
}

/// What was found out about requests that say they are from bots.
fn bots(config: &ServerPlan) -> Value {
    let counts = config.global.bots.bots.counts();
    let counts = counts.iter().map(|bot| {
        let fetched = bot.fetched;
        json!({
            "name": &*bot.name,
            "verified": bot.verified,
            "false": bot.refuted,
            "unproven": bot.unproven,
            "fetches": fetched.map(|counts| counts.fetches),
            "fetch_failures": fetched.map(|counts| counts.failures),
        })
    });
    counts.collect()
}

/// The response to a command that failed in words for the operator, or has details.
fn respond(result: Result<Value, String>) -> ControlResponse {
    match result {
        Ok(details) => ControlResponse::Done(details),
        Err(message) => ControlResponse::Failed {
            message,
            details: Value::Null,
        },
    }
}

/// What was done, or the response that says why not.
fn done_or(result: Result<Value, ControlResponse>) -> ControlResponse {
    result.map_or_else(|response| response, ControlResponse::Done)
}
