//! Loads a configuration, and opens everything that it names before anything is applied.

use std::cell::RefCell;
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use apus_access::{Bans, Glitches, LimitStates};
use apus_acme::{
    CertificateMaintenance, CertificateStore, ManagedCertificate, OnDemandNames, OnDemandSite,
    PendingChallenges, SharedStorage, TicketRotation,
};
use apus_cache::service::Cache;
use apus_control::{ControlError, ControlRequest, ControlResponse, send_request, socket_path};
use apus_files::VariantStore;
use apus_http::RequestRecords;
use apus_metrics::MetricSamples;
use apus_net::tls::TicketSecrets;
use apus_net::{Http3Secret, SystemAccount};
use apus_php::plan::WorkerPoolPlan;
use apus_php::{Launcher, WorkerPools};
use apus_private_files::{PrivateFiles, register};
use apus_sites::{ChallengeStates, RuleCount, RuleCounters, SiteMetrics, TrafficWatch};
use apus_transport::tls::KeyLogFile;
use apus_upstream::Upstreams;
use apus_upstream::plan::GroupPlan;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::assemble::{OriginServices, ProcessResources, assemble, groups};
use crate::cache_admin::{self, CachedHandler};
use crate::certificate_report::{CertificateReport, reports};
use crate::folder_config::{FolderConfig, ListenArgument};
use crate::helper_protocol::{HelperClient, IssuedCertificate, LoadedByRoot};
use crate::local_ca::{LocalCa, LocalCaError, LocalCertificate, passing_certificate};
use crate::maintenance::MaintenanceSwitches;
use crate::server_metrics;
use crate::source::ConfigSource;
use crate::state_folder::StateFolder;
use apus_access_log::AccessLogs;
use apus_config::{
    self as config, ConfigFiles, Diagnostics, FetchedKeySets, ListenerSpans, LogLevel,
};

/// Loads a source, at the start and for each reload.
pub(crate) struct PlanLoader {
    source: ConfigSource,
    folder: FolderConfig,
    certificates: Certificates,
    workers: Option<NonZeroUsize>,
    /// Reads files as root, once this process has given that up.
    helper: Option<Arc<HelperClient>>,
    /// Compressed variants of files, which a reload keeps.
    variants: RefCell<Arc<VariantStore>>,
    /// The state of origins, which a reload keeps.
    upstreams: Upstreams,
    /// The pools of resident PHP workers, which a reload restarts.
    pools: WorkerPools,
    /// The cache, which a reload keeps.
    cache: RefCell<Option<OpenCache>>,
    /// The hosts of each local certificate that is in use.
    certified: RefCell<Vec<Vec<String>>>,
    /// The responses to certificate authorities.
    challenges: Arc<PendingChallenges>,
    /// Certificates for names that are first seen in a handshake.
    on_demand: Arc<OnDemandNames>,
    /// The secrets of session tickets, if they are stored.
    tickets: Arc<TicketSecrets>,
    /// How often rules applied, also those of configurations before.
    rule_counters: RuleCounters,
    /// Where requests are counted while somebody watches.
    traffic: TrafficWatch,
    site_metrics: SiteMetrics,
    records: RequestRecords,
    /// What limits have counted, which a reload keeps.
    limits: Arc<LimitStates>,
    /// The keys of tokens that were fetched.
    key_sets: RefCell<FetchedKeySets>,
    /// The maintenance of sites by command.
    maintenance: MaintenanceSwitches,
    /// What the challenges of sites remember.
    challenge_states: ChallengeStates,
    /// The bans of clients, of a server that runs.
    bans: Option<Arc<Bans>>,
    /// What clients do wrong, in a server that runs.
    glitches: Option<Arc<Glitches>>,
    /// The folder of what is remembered over restarts, if the configuration names none. It belongs to the user who started
    /// the server.
    state_folder: PathBuf,
    /// The folder of certificates that are ordered, if the configuration names none. It belongs to the user who started
    /// the server.
    acme_folder: PathBuf,
}

/// The cache, and the plan that it was opened with.
struct OpenCache {
    store: config::CacheStorePlan,
    cache: Cache,
}

/// The certificate of a site with TLS that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// None, which is an error.
    Named,
    /// A certificate of the local authority.
    Local,
    /// A certificate in memory, for a configuration that is only checked.
    Passing,
}

/// A loaded configuration, ready to be applied.
pub(crate) struct LoadedPlan {
    pub(crate) plan: apus_net::EnginePlan,
    /// The groups of origins, which have to be applied before the plan.
    pub(crate) groups: Vec<GroupPlan>,
    /// The pools of resident PHP workers, which run already.
    pub(crate) pools: Vec<WorkerPoolPlan>,
    /// The places of listen addresses in the file.
    pub(crate) listening: ListenerSpans,
    pub(crate) control_socket: Option<PathBuf>,
    /// The user of the configuration.
    pub(crate) account: Option<SystemAccount>,
    pub(crate) log_level: &'static str,
    /// Bytes of memory that responses may use beyond the chunk that each is sending.
    pub(crate) response_memory: u64,
    /// The handlers with a cache.
    pub(crate) cached: Vec<CachedHandler>,
    /// Whether the open cache differs from the configuration.
    pub(crate) has_old_cache: bool,
    /// The local certificates in use.
    pub(crate) local_certificates: Vec<LocalCertificate>,
    /// The configuration, without its warnings.
    pub(crate) config: config::ServerPlan,
    /// The files that were read for it.
    pub(crate) recording: LoadedByRoot,
    /// The warnings about the configuration.
    pub(crate) warnings: Diagnostics,
}

/// The certificates of a configuration that are ordered by ACME.
pub(crate) fn managed_certificates(
    config: &config::ServerPlan,
) -> impl Iterator<Item = &ManagedCertificate> {
    config.sites.iter().flat_map(|site| &site.acme)
}

/// The storage that machines share. Its address was tried when the configuration was loaded.
fn shared_storage(config: &config::ServerPlan) -> Option<Arc<dyn SharedStorage>> {
    config.global.acme_storage.as_ref()?.open().ok()
}

/// Whether a site has HTTP/3.
pub(crate) fn has_http3(config: &config::ServerPlan) -> bool {
    config.sites.iter().any(|site| site.http3.is_some())
}

impl PlanLoader {
    /// A loader of `source`; `folder` is the configuration if it is a folder.
    pub(crate) fn new(
        source: ConfigSource,
        folder: FolderConfig,
        certificates: Certificates,
        workers: Option<NonZeroUsize>,
    ) -> Self {
        let state_folder = StateFolder::default_of(source.path());
        Self {
            source,
            folder,
            certificates,
            workers,
            helper: None,
            variants: RefCell::new(Arc::new(VariantStore::new(0))),
            upstreams: Upstreams::new(),
            pools: WorkerPools::new(),
            cache: RefCell::default(),
            certified: RefCell::default(),
            challenges: Arc::default(),
            on_demand: Arc::default(),
            tickets: Arc::default(),
            rule_counters: RuleCounters::default(),
            traffic: TrafficWatch::default(),
            site_metrics: SiteMetrics::default(),
            records: RequestRecords::new(0),
            limits: Arc::default(),
            key_sets: RefCell::default(),
            maintenance: MaintenanceSwitches::default(),
            challenge_states: ChallengeStates::default(),
            bans: None,
            glitches: None,
            state_folder,
            acme_folder: CertificateStore::default_folder(),
        }
    }

    /// What the challenge of each site has done.
    pub(crate) fn challenges_status(&self, config: &config::ServerPlan) -> Value {
        let sites = config.sites.iter().filter(|site| site.challenge.is_some());
        let counts = sites.map(|site| (site, self.challenge_states.of(&site.name).counts()));
        counts
            .map(|(site, counts)| {
                let ([sent_1, sent_2, sent_3], [passed_1, passed_2, passed_3]) =
                    (counts.sent, counts.passed);
                json!({
                    "site": site.name,
                    "sent_1": sent_1,
                    "sent_2": sent_2,
                    "sent_3": sent_3,
                    "passed_1": passed_1,
                    "passed_2": passed_2,
                    "passed_3": passed_3,
                    "failed": counts.failed,
                    "refused": counts.refused,
                })
            })
            .collect()
    }

    /// Where requests are counted while somebody watches.
    pub(crate) fn traffic(&self) -> &TrafficWatch {
        &self.traffic
    }

    /// What happened to the last requests.
    pub(crate) fn records(&self) -> &RequestRecords {
        &self.records
    }

    /// Where the requests of sites are counted.
    pub(crate) fn site_metrics(&self) -> &SiteMetrics {
        &self.site_metrics
    }

    /// What the challenges of sites did.
    pub(crate) fn challenge_states(&self) -> &ChallengeStates {
        &self.challenge_states
    }

    /// How often the conditions of rules held.
    pub(crate) fn rule_matches(&self) -> u64 {
        self.rule_counters.matches()
    }

    /// How often each rule of a configuration applied.
    pub(crate) fn rule_counts(&self, config: &config::ServerPlan) -> Vec<RuleCount> {
        let mut counts: Vec<(String, Vec<RuleCount>)> = Vec::new();
        for rules in config.rules() {
            let place = rules.place().to_owned();
            let rules = rules.clone().counters(&self.rule_counters);
            // The rules for all sites are those of each of them.
            if counts.iter().any(|(known, _)| *known == place) {
                continue;
            }
            counts.push((place, rules.counts()));
        }
        counts.into_iter().flat_map(|(_, counts)| counts).collect()
    }

    /// How often each rule of a configuration applied, as JSON.
    pub(crate) fn rules_status(&self, config: &config::ServerPlan) -> Value {
        let counts = self.rule_counts(config);
        counts
            .iter()
            .map(|count| {
                json!({
                    "place": &*count.place,
                    "rule": &*count.rule,
                    "applied": count.applied,
                    "dry_run": count.is_dry_run,
                })
            })
            .collect()
    }

    /// What orders and renews the certificates of a configuration.
    pub(crate) fn certificate_maintenance(
        &self,
        config: &config::ServerPlan,
    ) -> (CertificateMaintenance, mpsc::Receiver<()>) {
        let (mut maintenance, issued) = CertificateMaintenance::new(
            self.certificate_store(config),
            Arc::clone(&self.challenges),
        );
        if let Some(storage) = shared_storage(config) {
            maintenance = maintenance.with_shared_storage(storage);
        }
        let on_demand = Arc::clone(&self.on_demand);
        (maintenance.with_on_demand(on_demand), issued)
    }

    /// Orders certificates on demand for the sites of a configuration from now on.
    pub(crate) fn apply_on_demand(&self, config: &config::ServerPlan) {
        let sites = config.sites.iter().filter_map(|site| {
            let (tls, plan) = (site.tls.clone()?, site.on_demand.clone()?);
            Some(OnDemandSite {
                tls,
                settings: plan.settings,
                allowed: plan.allowed,
                ask: plan.ask,
                orders_per_hour: plan.orders_per_hour,
                ticket_secrets: self.stored_tickets(config).cloned(),
            })
        });
        self.on_demand.apply(sites.collect());
    }

    /// The secrets of session tickets, if they are stored.
    fn stored_tickets(&self, config: &config::ServerPlan) -> Option<&Arc<TicketSecrets>> {
        config.global.stores_tickets.then_some(&self.tickets)
    }

    /// Begins to keep the secrets of session tickets equal to the secrets in the folder, if they are stored.
    pub(crate) fn ticket_rotation(&self, config: &config::ServerPlan) -> Option<TicketRotation> {
        let secrets = self.stored_tickets(config)?;
        let store = self.certificate_store(config);
        let storage = shared_storage(config);
        Some(TicketRotation::start(store, storage, Arc::clone(secrets)))
    }

    /// The secret of HTTP/3 in the folder of certificates, if a site has HTTP/3 and the folder can be used.
    pub(crate) fn http3_secret(&self, config: &config::ServerPlan) -> Option<Http3Secret> {
        if !has_http3(config) {
            return None;
        }
        match self.certificate_store(config).http3_secret() {
            Ok(secret) => Some(secret),
            Err(error) => {
                tracing::info!(%error, "HTTP/3 connections are not reset after a restart: their secret cannot be stored");
                None
            }
        }
    }

    /// The folder of certificates that are ordered.
    pub(crate) fn certificate_store(&self, config: &config::ServerPlan) -> CertificateStore {
        let named = config.global.acme_folder.as_ref();
        CertificateStore::in_folder(named.unwrap_or(&self.acme_folder))
    }

    /// The folder of what is remembered over restarts.
    pub(crate) fn state_folder(&self, config: &config::ServerPlan) -> StateFolder {
        let named = config.global.state_folder.as_ref();
        StateFolder::new(named.unwrap_or(&self.state_folder))
    }

    /// The maintenance of sites by command.
    pub(crate) fn maintenance(&self) -> &MaintenanceSwitches {
        &self.maintenance
    }

    /// What the limits of its plans have counted.
    pub(crate) fn limit_states(&self) -> Arc<LimitStates> {
        Arc::clone(&self.limits)
    }

    /// Uses these bans, and counts glitches here, for all plans from now on.
    pub(crate) fn use_clients(&mut self, bans: Arc<Bans>, glitches: Arc<Glitches>) {
        self.bans = Some(bans);
        self.glitches = Some(glitches);
    }

    /// Chooses the ports of a folder again, unless an address was named.
    pub(crate) fn choose_other_ports(&mut self) -> bool {
        matches!(self.source, ConfigSource::Folder(_)) && self.folder.choose_again()
    }

    /// The address of a folder, if one was named.
    pub(crate) fn folder_address(&self) -> Option<&ListenArgument> {
        match self.source {
            ConfigSource::Folder(_) => self.folder.named_address(),
            ConfigSource::File(_) => None,
        }
    }

    /// Reads files, and starts PHP of other users, through the helper from now on.
    pub(crate) fn ask_helper(&mut self, helper: Arc<HelperClient>) {
        self.pools = WorkerPools::with_launcher(Arc::clone(&helper) as Arc<dyn Launcher>);
        self.helper = Some(helper);
    }

    pub(crate) fn source(&self) -> &ConfigSource {
        &self.source
    }

    /// The groups of origins of its plans.
    pub(crate) fn upstreams(&self) -> &Upstreams {
        &self.upstreams
    }

    /// The pools of resident PHP workers of its plans.
    pub(crate) fn pools(&self) -> &WorkerPools {
        &self.pools
    }

    /// The cache of its plans, once it is open.
    pub(crate) fn cache(&self) -> Option<Cache> {
        self.cache.borrow().as_ref().map(|open| open.cache.clone())
    }

    /// Adds the metrics of the cache, if there is one.
    pub(crate) fn add_cache_metrics(&self, samples: &mut MetricSamples) {
        if let Some(open) = self.cache.borrow().as_ref() {
            let has_disk = open.store.disk.is_some();
            server_metrics::add_cache(&open.cache.statistics(), has_disk, samples);
        }
    }

    /// The status of the cache; null without one.
    pub(crate) fn cache_status(&self) -> Value {
        let open = self.cache.borrow();
        open.as_ref().map_or(Value::Null, |open| {
            cache_admin::status(&open.cache, open.store.disk.is_some())
        })
    }

    /// Loads the source. Without `access_logs`, for a plan that is not applied, no log file is
    /// opened or created, and no request is sent to an origin.
    pub(crate) fn load(&self, access_logs: Option<&AccessLogs>) -> Result<LoadedPlan, LoadError> {
        let loaded = match &self.helper {
            Some(helper) => helper.load().map_err(LoadError::Open)?,
            None => LoadedByRoot::default(),
        };
        self.load_from(loaded, access_logs)
    }

    /// Loads the source with other texts of its configuration files, for a change that is put in force. What the file on disk does
    /// not name is read as the user of the server: the helper trusts nothing but the file.
    pub(crate) fn load_texts(
        &self,
        texts: Vec<(PathBuf, String)>,
        access_logs: &AccessLogs,
    ) -> Result<LoadedPlan, LoadError> {
        self.load_from(self.with_texts(texts)?, Some(access_logs))
    }

    /// Reads the source with other texts of its configuration files, and changes nothing.
    pub(crate) fn read_texts(
        &self,
        texts: Vec<(PathBuf, String)>,
    ) -> Result<config::ServerPlan, LoadError> {
        let files = ConfigFiles::recorded(self.with_texts(texts)?.files);
        match self.certificates {
            Certificates::Named => self.read(None, &files),
            Certificates::Local | Certificates::Passing => self.read(Some(&passing), &files),
        }
    }

    fn with_texts(&self, texts: Vec<(PathBuf, String)>) -> Result<LoadedByRoot, LoadError> {
        let mut loaded = match &self.helper {
            Some(helper) => helper.load().map_err(LoadError::Open)?,
            None => LoadedByRoot::default(),
        };
        loaded.files = loaded.files.with_texts(texts);
        Ok(loaded)
    }

    /// The configuration that is in force, by its recording, with the certificates and other credentials that its files have
    /// now; `None` if they have not changed.
    pub(crate) fn changed_credentials(&self, in_force: &LoadedByRoot) -> Option<LoadedByRoot> {
        let credentials = match &self.helper {
            Some(helper) => helper.read_credentials().ok()?,
            None => in_force.files.read_credentials(),
        };
        Some(LoadedByRoot {
            files: in_force.files.with_credentials_of(&credentials)?,
            certificates: in_force.certificates.clone(),
        })
    }

    /// As [`Self::load`], from files that were read already. Others are read from disk.
    pub(crate) fn load_from(
        &self,
        loaded: LoadedByRoot,
        access_logs: Option<&AccessLogs>,
    ) -> Result<LoadedPlan, LoadError> {
        let LoadedByRoot {
            files,
            certificates,
        } = loaded;
        let files = ConfigFiles::recorded(files);
        let made = RefCell::new(Vec::new());
        let failure = RefCell::new(None);
        let make = |hosts: &[String]| match self.certificate(hosts, &certificates) {
            Ok((pem, certificate)) => {
                made.borrow_mut()
                    .extend(certificate.map(|made| (hosts.to_vec(), made)));
                Ok(pem)
            }
            Err(error) => {
                let text = error.to_string();
                failure.replace(Some(error));
                Err(Box::<dyn Error>::from(text))
            }
        };
        let read = match self.certificates {
            Certificates::Named => self.read(None, &files),
            Certificates::Local | Certificates::Passing => self.read(Some(&make), &files),
        };
        let mut config = match (read, failure.take()) {
            (Err(LoadError::Mistakes(_)), Some(error)) => return Err(LoadError::LocalCa(error)),
            (read, _) => read?,
        };
        if let Some(workers) = self.workers {
            config.global.workers = workers;
        }
        if let Some(address) = &config.global.acme_storage {
            let open = address.open();
            open.map_err(|error| LoadError::Open(io::Error::other(error)))?;
        }
        let certificates_folder = self.certificate_store(&config);
        let ordered = PrivateFiles::default().folder(certificates_folder.folder());
        register(ordered);
        register(config.private.clone());
        let variants = self.variants(config.global.static_cache_bytes);
        let no_logs;
        let cache;
        let (logs, origins) = match access_logs {
            Some(logs) => {
                config.continue_limits(&self.limits, self.bans.as_ref());
                config.continue_key_sets(&mut self.key_sets.borrow_mut());
                if config.caches().next().is_some() {
                    self.open_cache(&config.global.cache)?;
                }
                cache = self.cache();
                for plan in config.pools() {
                    self.pools
                        .prepare(plan)
                        .map_err(|error| LoadError::Open(io::Error::other(error)))?;
                }
                let origins = OriginServices::Live {
                    upstreams: &self.upstreams,
                    pools: &self.pools,
                    cache: cache.as_ref(),
                };
                let key_log = self.open_key_log(config.global.tls_key_log.as_deref())?;
                for tls in config.sites.iter_mut().filter_map(|site| site.tls.as_mut()) {
                    tls.key_log = key_log.clone();
                }
                (logs, origins)
            }
            None => {
                for site in &mut config.sites {
                    site.access_log = None;
                }
                no_logs = AccessLogs::new().0;
                (&no_logs, OriginServices::DryRun)
            }
        };
        let resources = ProcessResources {
            logs,
            variants: &variants,
            origins,
            challenges: &self.challenges,
            on_demand: &self.on_demand,
            tickets: &self.tickets,
            rule_counters: &self.rule_counters,
            traffic: &self.traffic,
            metrics: &self.site_metrics,
            records: &self.records,
            maintenance: &self.maintenance,
            challenge_states: &self.challenge_states,
            bans: self.bans.as_ref(),
            glitches: self.glitches.as_ref(),
        };
        let plan = self.assemble(&config, resources)?;
        let groups = groups(&config).map_err(LoadError::Open)?;
        let (hosts, local_certificates) = made.into_inner().into_iter().unzip();
        self.certified.replace(hosts);
        Ok(LoadedPlan {
            plan,
            groups,
            pools: config.pools().cloned().collect(),
            cached: CachedHandler::all(&config),
            has_old_cache: self.has_other_cache(&config.global.cache),
            listening: match self.source {
                ConfigSource::File(_) => ListenerSpans::of(&config),
                ConfigSource::Folder(_) => ListenerSpans::default(),
            },
            control_socket: config.global.control_socket.clone(),
            account: config.global.account.clone(),
            log_level: level(config.global.log_level),
            response_memory: config.global.response_memory_bytes,
            local_certificates,
            warnings: std::mem::take(&mut config.warnings),
            config,
            recording: LoadedByRoot {
                files: files.into_recording(),
                certificates,
            },
        })
    }

    /// The plan of a configuration with the certificates that ACME has issued so far.
    fn assemble(
        &self,
        config: &config::ServerPlan,
        resources: ProcessResources<'_>,
    ) -> Result<apus_net::EnginePlan, LoadError> {
        if managed_certificates(config).next().is_none() {
            return assemble(config, resources).map_err(LoadError::Open);
        }
        let store = self.certificate_store(config);
        let mut config = config.clone();
        for site in &mut config.sites {
            let Some(tls) = &mut site.tls else { continue };
            // A damaged one is ordered again, which is logged.
            let stored = site.acme.iter().map(|acme| store.certificate(acme));
            tls.certificates
                .extend(stored.filter_map(|certificate| certificate.ok().flatten()));
        }
        assemble(&config, resources).map_err(LoadError::Open)
    }

    /// The plan of a configuration that is in force, with the certificates that there are now.
    pub(crate) fn assemble_again(
        &self,
        config: &config::ServerPlan,
        logs: &AccessLogs,
    ) -> Result<apus_net::EnginePlan, LoadError> {
        let cache = self.cache();
        let resources = ProcessResources {
            logs,
            variants: &self.variants(config.global.static_cache_bytes),
            origins: OriginServices::Live {
                upstreams: &self.upstreams,
                pools: &self.pools,
                cache: cache.as_ref(),
            },
            challenges: &self.challenges,
            on_demand: &self.on_demand,
            tickets: &self.tickets,
            rule_counters: &self.rule_counters,
            traffic: &self.traffic,
            metrics: &self.site_metrics,
            records: &self.records,
            maintenance: &self.maintenance,
            challenge_states: &self.challenge_states,
            bans: self.bans.as_ref(),
            glitches: self.glitches.as_ref(),
        };
        self.assemble(config, resources)
    }

    /// Opens the file of the secrets of TLS connections: as root, whose file the server's user cannot read, or as that user
    /// in a folder of its own.
    fn open_key_log(&self, path: Option<&Path>) -> Result<Option<KeyLogFile>, LoadError> {
        let Some(path) = path else {
            return Ok(None);
        };
        let opened = match &self.helper {
            Some(helper) => match helper.open_log(path) {
                Ok(file) => KeyLogFile::from_file(file, path),
                Err(refused) => KeyLogFile::open(path).map_err(|error| {
                    // Why the helper refused it says more than that the system did.
                    error.raw_os_error().map_or(error, |_| refused)
                }),
            },
            None => KeyLogFile::open(path),
        };
        opened.map(Some).map_err(|error| {
            let message = format!("cannot open the key log {}: {error}", path.display());
            LoadError::Open(io::Error::new(error.kind(), message))
        })
    }

    /// Opens the cache, unless it is open.
    fn open_cache(&self, store: &config::CacheStorePlan) -> Result<(), LoadError> {
        let mut open = self.cache.borrow_mut();
        if open.is_some() {
            return Ok(());
        }
        let cache = match &store.disk {
            None => Cache::new(store.settings.clone()),
            Some(disk) => Cache::open(store.settings.clone(), disk.clone()).map_err(|error| {
                let dir = disk.path.display();
                let why = match error.kind() {
                    io::ErrorKind::WouldBlock => "another process uses it".to_owned(),
                    _ => error.to_string(),
                };
                let message = format!("cannot open the folder {dir} of the cache: {why}");
                LoadError::Open(io::Error::new(error.kind(), message))
            })?,
        };
        *open = Some(OpenCache {
            store: store.clone(),
            cache,
        });
        Ok(())
    }

    fn has_other_cache(&self, store: &config::CacheStorePlan) -> bool {
        let open = self.cache.borrow();
        open.as_ref().is_some_and(|open| open.store != *store)
    }

    /// The store of compressed variants; a new one if its size changes.
    fn variants(&self, bytes: u64) -> Arc<VariantStore> {
        let mut variants = self.variants.borrow_mut();
        if variants.capacity() != bytes {
            *variants = Arc::new(VariantStore::new(bytes));
        }
        Arc::clone(&variants)
    }

    /// A local certificate, from root or from the authority of this user.
    fn certificate(
        &self,
        hosts: &[String],
        by_root: &[(Vec<String>, Result<IssuedCertificate, String>)],
    ) -> Result<IssuedCertificate, LocalCaError> {
        match by_root.iter().find(|(names, _)| names == hosts) {
            Some((_, Ok(made))) => Ok(made.clone()),
            Some((_, Err(message))) => Err(LocalCaError::Helper(message.clone())),
            None => self.certificates.make(hosts),
        }
    }

    /// Reads the source as root before privileges are dropped, to find the user of the server.
    pub(crate) fn read_as_root(&self) -> Result<config::ServerPlan, LoadError> {
        let local_certificates: Option<config::LocalCertificates<'_>> = match self.certificates {
            Certificates::Named => None,
            Certificates::Local | Certificates::Passing => Some(&passing),
        };
        self.read(local_certificates, &ConfigFiles::default())
    }

    /// Reads the source for a process that cannot, and records its files.
    pub(crate) fn record(&self) -> (LoadedByRoot, Result<config::ServerPlan, LoadError>) {
        let files = ConfigFiles::default();
        let certificates = RefCell::new(Vec::new());
        let make = |hosts: &[String]| {
            let made = self.certificates.make(hosts);
            let made = made.map_err(|error| error.to_string());
            let pem = match &made {
                Ok((pem, _)) => Ok(pem.clone()),
                Err(message) => Err(Box::<dyn Error>::from(message.as_str())),
            };
            certificates.borrow_mut().push((hosts.to_vec(), made));
            pem
        };
        let read = match self.certificates {
            Certificates::Named => self.read(None, &files),
            Certificates::Local | Certificates::Passing => self.read(Some(&make), &files),
        };
        let certificates = certificates.into_inner();
        let hosts = certificates.iter().map(|(hosts, _)| hosts.clone());
        self.certified.replace(hosts.collect());
        let loaded = LoadedByRoot {
            files: files.into_recording(),
            certificates,
        };
        (loaded, read)
    }

    fn read(
        &self,
        local_certificates: Option<config::LocalCertificates<'_>>,
        files: &ConfigFiles,
    ) -> Result<config::ServerPlan, LoadError> {
        let path = match &self.source {
            ConfigSource::File(path) => {
                return config::load_with(path, local_certificates, files)
                    .map_err(LoadError::mistakes);
            }
            ConfigSource::Folder(path) => path,
        };
        let name = path
            .to_str()
            .ok_or_else(|| LoadError::NotUtf8(path.to_owned()))?;
        let text = self.folder.configuration(name);
        config::parse_with(&text, "the command line", path, local_certificates)
            .map_err(LoadError::mistakes)
    }

    /// Renews local certificates that expire soon. Returns whether there were any.
    pub(crate) fn renew_certificates(&self) -> Result<bool, LocalCaError> {
        if let Some(helper) = &self.helper {
            return helper
                .renew_certificates()
                .map_err(|error| LocalCaError::Helper(error.to_string()));
        }
        let mut has_new = false;
        for hosts in &*self.certified.borrow() {
            has_new |= LocalCa::of_user()?.certificate(hosts)?.is_new;
        }
        Ok(has_new)
    }
}

impl Certificates {
    /// A certificate with its key as PEM, and its files.
    fn make(self, hosts: &[String]) -> Result<IssuedCertificate, LocalCaError> {
        if self == Self::Passing {
            return Ok((passing_certificate(hosts)?.into_bytes(), None));
        }
        let certificate = LocalCa::of_user()?.certificate(hosts)?;
        let pem = fs::read(&certificate.pem_file)
            .map_err(|error| LocalCaError::Io(certificate.pem_file.clone(), error))?;
        Ok((pem, Some(certificate)))
    }
}

fn level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// A configuration without errors.
#[derive(Debug)]
pub struct CheckedConfig {
    /// Its warnings.
    pub warnings: Diagnostics,
    /// Where the certificates of its TLS sites come from.
    pub certificates: Vec<CertificateReport>,
}

/// Checks a configuration; with `tls`, for a server with local certificates.
///
/// # Errors
/// The errors of the configuration.
pub fn check(file: &Path, tls: bool) -> Result<CheckedConfig, Diagnostics> {
    let local_certificates: Option<config::LocalCertificates<'_>> =
        if tls { Some(&passing) } else { None };
    let plan = config::load_with(file, local_certificates, &ConfigFiles::default())?;
    Ok(CheckedConfig {
        certificates: reports(&plan),
        warnings: plan.warnings,
    })
}

/// A certificate to check a configuration with.
fn passing(hosts: &[String]) -> Result<Vec<u8>, Box<dyn Error>> {
    Ok(passing_certificate(hosts)?.into_bytes())
}

/// Sends a request to the server of `source`, and waits for the response.
///
/// # Errors
/// No such server runs, or the connection was closed.
pub fn ask_server_of(
    source: &ConfigSource,
    request: &ControlRequest,
) -> Result<ControlResponse, ControlError> {
    let named = match source {
        ConfigSource::Folder(_) => None,
        ConfigSource::File(path) => {
            match config::load_with(path, Some(&passing), &ConfigFiles::default()) {
                Ok(plan) => plan.global.control_socket,
                // A file with errors does not prevent stopping the server.
                Err(_) => named_socket(path),
            }
        }
    };
    // A server with another socket has a link to it at the default path: the file may have become
    // unreadable, or name another socket than at the start.
    let default = socket_path(source.path());
    match named.map(|named| send_request(&named, request)) {
        None => send_request(&default, request),
        Some(Err(ControlError::NotRunning(named))) => match send_request(&default, request) {
            Err(ControlError::NotRunning(_)) => Err(ControlError::NotRunning(named)),
            response => response,
        },
        Some(response) => response,
    }
}

fn named_socket(file: &Path) -> Option<PathBuf> {
    let table: toml::Table = fs::read_to_string(file).ok()?.parse().ok()?;
    let named = table.get("global")?.get("control_socket")?.as_str()?;
    Some(file.parent()?.join(named))
}

/// A source cannot be loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The configuration has errors.
    Mistakes(Box<Diagnostics>),
    /// A file of the configuration cannot be opened.
    Open(io::Error),
    /// There is no local certificate.
    LocalCa(LocalCaError),
    /// The name of the folder is not UTF-8.
    NotUtf8(PathBuf),
}

impl LoadError {
    pub(crate) fn mistakes(diagnostics: Diagnostics) -> Self {
        Self::Mistakes(Box::new(diagnostics))
    }

    /// The errors of the configuration as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Mistakes(diagnostics) => diagnostics.to_json(),
            _ => Value::Null,
        }
    }

    /// The error as text, with colours if `colours`.
    pub fn render(&self, colours: bool) -> String {
        match self {
            Self::Mistakes(diagnostics) => diagnostics.render(colours),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistakes(diagnostics) => f.write_str(diagnostics.render(false).trim_end()),
            Self::Open(error) => error.fmt(f),
            Self::LocalCa(error) => error.fmt(f),
            Self::NotUtf8(path) => write!(
                f,
                "{}: the name of the folder is not UTF-8; rename it",
                path.display()
            ),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Mistakes(_) | Self::NotUtf8(_) => None,
            Self::Open(error) => Some(error),
            Self::LocalCa(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loader(file: &Path) -> PlanLoader {
        let folder = FolderConfig::new(None, false);
        let source = ConfigSource::File(file.to_owned());
        PlanLoader::new(source, folder, Certificates::Named, None)
    }

    #[test]
    fn there_is_one_cache_for_as_long_as_the_process_lives() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("apus.toml");
        let write = |cached: bool, size: u32| {
            let text = format!(
                "[global.cache]\ndir = \"stored\"\nsize = {size}\n\
                 [[sites]]\nlisten = 80\nupstream = \"http://[::1]:1\"\ncache = {cached}\n"
            );
            fs::write(&file, text).unwrap();
        };
        let loader = loader(&file);
        let logs = AccessLogs::new().0;
        write(false, 10);
        loader.load(Some(&logs)).unwrap();
        write(true, 10);
        // A configuration that is only checked opens nothing.
        loader.load(None).unwrap();
        assert!(loader.cache().is_none() && loader.cache_status().is_null());
        assert!(!folder.path().join("stored").exists());
        let loaded = loader.load(Some(&logs)).unwrap();
        assert!(!loaded.has_old_cache);
        assert_eq!(loaded.cached.len(), 1);
        let folder_in_use = self::loader(&file).load(Some(&logs)).err().unwrap();
        let message = folder_in_use.to_string();
        assert!(
            message.contains("stored of the cache: another process uses it"),
            "{message}"
        );
        write(true, 20);
        assert!(loader.load(Some(&logs)).unwrap().has_old_cache);
        write(false, 10);
        assert!(!loader.load(Some(&logs)).unwrap().has_old_cache);
        assert!(loader.cache().is_some());
    }
}
