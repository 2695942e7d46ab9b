//! The bans of a running server on its control thread: they are logged, listed, changed by commands and kept over restarts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_access::{Ban, BanBook, BanSettings, BannedNetwork, Bans};
use apus_conditions::NetworkSet;
use apus_config::BanPlan;
use apus_http::Network;
use apus_metrics::MetricSamples;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::ban_lists::BanLists;
use crate::saved_file::{SavedFile, SavedFileWords};
use crate::server_metrics::add_bans;
use crate::site_admin::written;
use crate::state_folder::StateFolder;

/// The file, in the state folder.
const FILE: &str = "bans";

const WORDS: SavedFileWords = SavedFileWords {
    contents: "the bans of before the restart",
    failed: "cannot store bans: a restart forgets them until that is possible",
    works_again: "bans are stored again",
};

/// How often bans end, lists are looked at, and bans that cannot be stored are tried again.
const INTERVAL: Duration = Duration::from_secs(1);

/// The lines of the log about bans in an interval; further bans are counted in one line.
const MAX_LINES: usize = 20;

/// The most bans that are taken at once, so that commands do not wait.
const BATCH: usize = 1024;

/// The bans of a running server.
pub(crate) struct BanControl {
    bans: Arc<Bans>,
    book: BanBook,
    made: mpsc::Receiver<Ban>,
    lists: BanLists,
    never: Vec<Network>,
    file: SavedFile,
    tick: Interval,
    /// The bans of this interval.
    recent: usize,
}

/// What happens to bans.
pub(crate) enum BanEvent {
    Made(Vec<Ban>),
    Tick,
}

impl BanControl {
    /// Takes over the bans of a table, and puts those that were stored in force.
    pub(crate) fn start(
        (bans, made): (Arc<Bans>, mpsc::Receiver<Ban>),
        plan: &BanPlan,
        folder: StateFolder,
    ) -> Self {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut control = Self {
            book: BanBook::new(Arc::clone(&bans)),
            bans,
            made,
            lists: BanLists::default(),
            never: Vec::new(),
            file: SavedFile::new(FILE, WORDS, folder),
            tick,
            recent: 0,
        };
        control.set_plan(plan);
        control.restore();
        control
    }

    /// Puts the settings of a new configuration in force.
    pub(crate) fn configure(&mut self, plan: &BanPlan, folder: StateFolder) {
        self.set_plan(plan);
        self.file.set_folder(folder);
        if !self.book.is_empty() {
            self.file.mark_unsaved();
        }
    }

    fn set_plan(&mut self, plan: &BanPlan) {
        self.never.clone_from(&plan.never);
        self.bans.configure(ban_settings(plan));
        if self.lists.configure(&plan.files) {
            self.book.set_lists(self.lists.networks());
        }
    }

    fn restore(&mut self) {
        let Some(stored) = self.file.read() else {
            return;
        };
        match self.book.restore(&stored) {
            Ok(()) => info!(
                bans = self.book.len(),
                "the bans of before the restart are in force"
            ),
            Err(error) => {
                let aside = self.file.put_aside();
                warn!(path = %aside.display(), "{error}: it was put aside, and nothing of it is in force");
            }
        }
    }

    /// Waits until workers have banned clients, or until there is something to look at.
    pub(crate) async fn next(&mut self) -> BanEvent {
        let mut made = Vec::new();
        let is_idle = self.book.is_unused() && self.lists.is_empty() && self.file.is_settled();
        tokio::select! {
            _ = self.made.recv_many(&mut made, BATCH) => BanEvent::Made(made),
            _ = self.tick.tick(), if !is_idle => BanEvent::Tick,
        }
    }

    pub(crate) async fn handle(&mut self, event: BanEvent) {
        match event {
            BanEvent::Made(made) => {
                for ban in made {
                    self.recent = self.recent.saturating_add(1);
                    if self.recent <= MAX_LINES {
                        log(&ban);
                    }
                    self.book.record(ban);
                }
                self.file.mark_unsaved();
                self.file.save_if_idle(|| self.book.to_text());
            }
            BanEvent::Tick => {
                let others = self.recent.saturating_sub(MAX_LINES);
                if others > 0 {
                    info!(clients = others, "banned further clients");
                }
                self.recent = 0;
                if self.book.sweep() {
                    self.file.mark_unsaved();
                }
                if self.lists.refresh() {
                    self.book.set_lists(self.lists.networks());
                }
                self.file.tick(|| self.book.to_text()).await;
            }
        }
    }

    /// Bans a network. Networks that are never banned need `force`.
    ///
    /// # Errors
    /// The network is one of those, is none, or the ban cannot be stored, in words for the operator.
    pub(crate) async fn add(
        &mut self,
        network: &str,
        time: Option<Duration>,
        (reason, force): (&str, bool),
    ) -> Result<Value, String> {
        let network = parse(network)?;
        let mut overlapping = self.never.iter().filter(|never| network.overlaps(**never));
        if !force && (network.bits() == 0 || overlapping.next().is_some()) {
            return Err(format!(
                "{network} has addresses that are never banned: loopback, proxies, or others of `never` in [global.bans]; \
                 --force bans them, too"
            ));
        }
        let reason: String = reason.chars().take(200).collect();
        self.book.add(network, time, &reason);
        if let Some(ban) = self.book.list().find(|ban| ban.network == network) {
            log(&ban);
        }
        self.save_now("the ban is in force, but a restart will forget it")
            .await?;
        Ok(json!({ "network": network.to_string() }))
    }

    /// Ends a ban.
    ///
    /// # Errors
    /// There is none, or the change cannot be stored, in words for the operator.
    pub(crate) async fn remove(&mut self, network: &str) -> Result<Value, String> {
        let network = parse(network)?;
        if !self.book.remove(network) {
            let banned = Network::from(network);
            let within = self.book.list().map(|ban| ban.network);
            let mut within = within.filter(|ban| ban.overlaps(banned));
            let mut listed = self.lists.networks().filter(|one| network.overlaps(*one));
            return Err(match (within.next(), listed.next()) {
                (Some(other), _) => {
                    format!("{network} is not banned itself, but {other} is; remove that")
                }
                (None, Some(_)) => {
                    format!("{network} is banned by a file of [global.bans]; remove it there")
                }
                (None, None) => format!("{network} is not banned; `apus ban list` shows what is"),
            });
        }
        info!(%network, "ended a ban");
        self.save_now("the ban is over, but it will be in force again after a restart")
            .await?;
        Ok(json!({ "network": network.to_string() }))
    }

    /// All bans as JSON.
    pub(crate) fn list(&self) -> Value {
        let now = SystemTime::now();
        let bans = self.book.list().map(|ban| {
            let left = ban
                .until
                .map(|until| until.duration_since(now).unwrap_or_default());
            json!({
                "network": ban.network.to_string(),
                "until": ban.until.map(written),
                "seconds_left": left.map(|left| left.as_secs()),
                "times": ban.times,
                "reason": ban.reason,
            })
        });
        json!({ "bans": bans.collect::<Value>(), "lists": self.lists.to_json() })
    }

    /// How many bans there are, and what they did.
    /// Adds the metrics of bans.
    /// How many requests of banned clients were refused.
    pub(crate) fn refused_requests(&self) -> u64 {
        self.bans.refused_requests()
    }

    pub(crate) fn add_metrics(&self, samples: &mut MetricSamples) {
        let refused = self.bans.refused_requests();
        add_bans(self.book.len(), self.lists.len(), refused, samples);
    }

    pub(crate) fn status(&self) -> Value {
        json!({
            "bans": self.book.len(),
            "networks_of_lists": self.lists.len(),
            "refused_requests": self.bans.refused_requests(),
            "unlisted": self.bans.unlisted(),
            "fault": self.file.fault(),
            "lists": self.lists.to_json(),
        })
    }

    /// Stores the bans before the end of the process.
    pub(crate) async fn finish(&mut self) {
        while let Ok(ban) = self.made.try_recv() {
            self.book.record(ban);
            self.file.mark_unsaved();
        }
        if !self.file.is_settled() {
            let _ = self.save_now("bans are forgotten").await;
        }
    }

    async fn save_now(&mut self, consequence: &str) -> Result<(), String> {
        let saved = self.file.save_now(|| self.book.to_text()).await;
        saved.map_err(|fault| format!("{consequence}: cannot write to the state folder: {fault}"))
    }
}

fn parse(network: &str) -> Result<BannedNetwork, String> {
    network.parse().map_err(|_| {
        format!(
            "`{}` is no network; expected an address, or address/bits such as 10.0.0.0/8",
            network.escape_debug()
        )
    })
}

fn log(ban: &Ban) {
    let left = ban.until.map(|until| {
        let left = until.duration_since(SystemTime::now());
        left.unwrap_or_default().as_secs_f64().round()
    });
    info!(client = %ban.network, seconds = left, times = ban.times, reason = &*ban.reason, "banned a client");
}

/// The settings of bans in a plan.
pub fn ban_settings(plan: &BanPlan) -> BanSettings {
    BanSettings {
        longest: plan.longest,
        forget_after: plan.forget_after,
        most: plan.most,
        never: Arc::new(NetworkSet::new(plan.never.iter().copied())),
    }
}
