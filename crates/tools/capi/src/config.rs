//! Configurations: the text of an `apus.toml`, and the services that it describes.

use std::ffi::c_char;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus::upstream::Upstreams;
use apus::{Request, ResponseFuture, Service, ServiceFactory, tokio};
use apus_cache::service::Cache;
use apus_files::VariantStore;
use apus_net::EnginePlan;
use apus_php::WorkerPools;
use apus_private_files::register;
use apus_server::acme::PendingChallenges;
use apus_server::assemble::{OriginServices, ProcessResources, assemble, groups};
use apus_server::config::{ServerPlan, parse_str};
use apus_server::{MaintenanceSwitches, ban_settings};
use apus_sites::{
    BanResult, Bans, ChallengeStates, MaintenanceState, RuleCounters, SiteMetrics, TrafficWatch,
};

use crate::background;
use crate::error::{ApusStatus, CallError};
use crate::ffi::{object, protect, status};
use crate::service::ApusService;
use crate::text::{name, optional_name, text};

/// A configuration: the text of an apus.toml, checked.
pub struct ApusConfig {
    plan: ServerPlan,
    shared: ConfigState,
}

/// What all services and servers of a configuration share.
struct ConfigState {
    bans: Arc<Bans>,
    maintenance: MaintenanceSwitches,
    rule_counters: RuleCounters,
}

/// Reads the text of an apus.toml. Paths in it are relative to `folder` (NULL: the current folder), and `${NAME}` reads the
/// environment. Certificates that are ordered by ACME and resident PHP workers need the program `apus`. NULL is an error
/// (APUS_CONFIG: all mistakes with line and column are in the text). Free it by apus_config_free().
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_parse(
    toml: *const c_char,
    len: usize,
    folder: *const c_char,
) -> Option<Box<ApusConfig>> {
    object("apus_config_parse", || {
        let toml = text(toml, len, "text")?;
        let folder = optional_name(folder, "folder")?.unwrap_or(".");
        let folder: PathBuf = std::path::absolute(Path::new(folder)).map_err(|error| {
            CallError::io(format!("the path of a folder, not {folder:?}"), &error)
        })?;
        let variable = |name: &str| std::env::var(name).ok();
        let plan = parse_str(toml, "apus.toml", &folder, &variable).map_err(|mistakes| {
            CallError::new(
                ApusStatus::Config,
                "the text of an apus.toml without mistakes",
                mistakes.render(false),
                "correct them, or see docs/reference.md",
            )
        })?;
        let needs_program = |what: &'static str| {
            CallError::new(
                ApusStatus::Config,
                "a configuration for a library",
                what,
                "serve this by the program `apus`",
            )
        };
        if plan
            .sites
            .iter()
            .any(|site| !site.acme.is_empty() || site.on_demand.is_some())
        {
            return Err(needs_program("certificates that are ordered by ACME"));
        }
        if plan.pools().next().is_some() {
            return Err(needs_program("resident PHP workers"));
        }
        if !plan.global.bans.files.is_empty() {
            return Err(needs_program("bans by lists in files"));
        }
        let shared = ConfigState {
            bans: Bans::in_memory(),
            maintenance: MaintenanceSwitches::default(),
            rule_counters: RuleCounters::default(),
        };
        shared.bans.configure(ban_settings(&plan.global.bans));
        for (_, _, limit) in plan.limits() {
            limit.use_bans(&shared.bans);
        }
        Ok(ApusConfig { plan, shared })
    })
}

/// Frees a configuration. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_free(config: Option<Box<ApusConfig>>) {
    protect("apus_config_free", || drop(config));
}

/// The engine's plan of a configuration, whose origins are looked after from now on.
fn engine_plan(plan: &ServerPlan, shared: &ConfigState) -> Result<EnginePlan, CallError> {
    register(plan.private.clone());
    let failed = |error: std::io::Error| {
        CallError::io("logs, folders and certificates that can be opened", &error)
    };
    let upstreams = Upstreams::new();
    upstreams.apply(groups(plan).map_err(failed)?);
    let store = &plan.global.cache;
    let cache = match (plan.caches().next(), &store.disk) {
        (None, _) => None,
        (_, None) => Some(Cache::new(store.settings.clone())),
        (_, Some(disk)) => Some(Cache::open(store.settings.clone(), disk.clone()).map_err(failed)?),
    };
    let pools = WorkerPools::new();
    let resources = ProcessResources {
        challenge_states: &ChallengeStates::default(),
        maintenance: &shared.maintenance,
        bans: Some(&shared.bans),
        glitches: None,
        logs: &background::access_logs()?,
        variants: &Arc::new(VariantStore::new(plan.global.static_cache_bytes)),
        origins: OriginServices::Live {
            upstreams: &upstreams,
            cache: cache.as_ref(),
            pools: &pools,
        },
        challenges: &Arc::<PendingChallenges>::default(),
        on_demand: &Arc::default(),
        tickets: &Arc::default(),
        rule_counters: &shared.rule_counters,
        traffic: &TrafficWatch::default(),
        metrics: &SiteMetrics::default(),
        records: &Default::default(),
    };
    let engine = assemble(plan, resources).map_err(failed)?;
    if !plan.upstreams.is_empty() {
        background::run(Box::new(move || {
            let checked = upstreams.clone();
            tokio::task::spawn_local(async move { checked.run_checks().await });
            tokio::task::spawn_local(async move {
                upstreams.resolve().await;
                upstreams.run_dns().await;
            });
        }))?;
    }
    Ok(engine)
}

impl ApusConfig {
    /// The listeners of the configuration with their sites, and the settings of the whole server.
    pub(crate) fn engine_plan(&self) -> Result<EnginePlan, CallError> {
        engine_plan(&self.plan, &self.shared)
    }
}

/// The sites of a configuration as one service.
struct ConfiguredSites(Arc<dyn ServiceFactory>);

struct ConfiguredService(Rc<dyn Service>);

impl Service for ConfiguredService {
    fn call(&self, request: Request) -> ResponseFuture {
        self.0.call(request)
    }
}

impl ServiceFactory for ConfiguredSites {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(ConfiguredService(self.0.service()))
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.check()
    }
}

/// The sites of a configuration, found by the host of the request. Settings of a whole server, such as its limits, are taken
/// from the server that serves them. The configuration stays with the caller. NULL is an error (APUS_IO: a log or a folder
/// cannot be opened).
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_service(config: Option<&ApusConfig>) -> Option<Box<ApusService>> {
    object("apus_config_service", || {
        let config = config.ok_or_else(|| CallError::null("config"))?;
        let mut plan = config.plan.clone();
        // All sites on one listener, which nobody binds: they are found by their names.
        let first = plan
            .sites
            .iter()
            .flat_map(|site| site.listeners.iter())
            .next()
            .cloned();
        let Some(mut first) = first else {
            return Err(CallError::new(
                ApusStatus::Config,
                "a configuration with a site",
                "none",
                "add [[sites]]",
            ));
        };
        first.tls = false;
        for site in &mut plan.sites {
            site.listeners = vec![first.clone()];
        }
        let listeners = engine_plan(&plan, &config.shared)?.listeners;
        let service = listeners
            .into_iter()
            .next()
            .map(|listener| listener.service);
        let service = service.ok_or_else(|| {
            CallError::new(
                ApusStatus::Internal,
                "a listener of the sites",
                "none",
                "please report it",
            )
        })?;
        Ok(ApusService::new(ConfiguredSites(service)))
    })
}

/// Bans a client from all services and servers of a configuration for `seconds`, and longer if it was banned before, as
/// `[global.bans]` says: it gets 403, and the connections of a server end before TLS. `address` is an IP address; an IPv6 network
/// of 64 bits is one client. Bans are kept in memory. APUS_INVALID is no address, or one that `never` names.
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_ban(
    config: Option<&ApusConfig>,
    address: *const c_char,
    seconds: u32,
) -> ApusStatus {
    status("apus_config_ban", || {
        let config = config.ok_or_else(|| CallError::null("config"))?;
        let client = client(address)?;
        let time = Duration::from_secs(seconds.into());
        match config.shared.bans.ban(client, time, "the application") {
            BanResult::Banned(_) | BanResult::Already => Ok(()),
            BanResult::Never => Err(CallError::invalid(
                "an address that may be banned",
                "one that `never` names",
                "see `[global.bans]` and `trusted_proxies`",
            )),
        }
    })
}

/// Ends the ban of a client, and forgets that it was banned.
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_unban(
    config: Option<&ApusConfig>,
    address: *const c_char,
) -> ApusStatus {
    status("apus_config_unban", || {
        let config = config.ok_or_else(|| CallError::null("config"))?;
        config.shared.bans.unban(client(address)?);
        Ok(())
    })
}

/// Puts a site of a configuration, named by its `name`, into maintenance or out of it, whatever its `maintenance` says, while it is
/// served. APUS_INVALID is a site that the configuration does not have.
#[unsafe(no_mangle)]
pub extern "C" fn apus_config_maintenance(
    config: Option<&ApusConfig>,
    site: *const c_char,
    on: bool,
) -> ApusStatus {
    status("apus_config_maintenance", || {
        let config = config.ok_or_else(|| CallError::null("config"))?;
        let site = name(site, "site")?;
        if !config.plan.sites.iter().any(|other| other.name == site) {
            return Err(CallError::invalid(
                "the name of a site",
                format!("{site:?}"),
                "see `name` of [[sites]]",
            ));
        }
        let state = if on {
            MaintenanceState::On
        } else {
            MaintenanceState::Off
        };
        config.shared.maintenance.of(site).set(Some(state));
        Ok(())
    })
}

fn client(address: *const c_char) -> Result<IpAddr, CallError> {
    let address = name(address, "address")?;
    address.parse().map_err(|_| {
        CallError::invalid(
            "an IP address",
            format!("{address:?}"),
            "as \"203.0.113.7\"",
        )
    })
}
