//! The control thread of a server: starts the engine, and handles signals and the control socket.

mod commands;
mod config_commands;
mod history;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_access::{Bans, Glitches};
use apus_acme::{CertificateMaintenance, TicketRotation};
use apus_control::{
    BoundControlSocket, ControlExchange, ControlRequest, ControlResponse, ControlSocket,
    LogLevelName, StartTime, socket_path,
};
use apus_http::ResponseMemory;
use apus_net::{Binder, Engine, EngineStartError, SystemAccount};
use apus_php::WorkerPool;
use apus_php::plan::WorkerPoolPlan;
use apus_tokens::random_bytes;
use apus_upstream::Upstreams;
use apus_upstream::plan::GroupPlan;
use rustix::fs::Access;
use rustix::process::geteuid;
use sd_notify::NotifyState;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval, interval_at, timeout};
use tracing::{error, info, warn};

use crate::admin_server::AdminServer;
use crate::application_log::ApplicationLog;
use crate::assemble::kept_records;
use crate::audit_log::AuditLog;
use crate::ban_control::{BanControl, BanEvent};
use crate::browser::open_in_browser;
use crate::cache_admin::CachedHandler;
use crate::config_change::{ConfigChanges, ConfigText};
use crate::core_dumps;
use crate::descriptors;
use crate::folder_config::{FolderConfig, ListenArgument};
use crate::glitch_control::GlitchControl;
use crate::helper_protocol::{HelperClient, LoadedByRoot};
use crate::history_sampler::HistorySampler;
use crate::load::{Certificates, LoadError, LoadedPlan, PlanLoader, managed_certificates};
use crate::otlp_export::{OtlpEvent, OtlpExport};
use crate::privileges::{self, PrivilegeSeparation, bind_control_socket};
use crate::quota_control::QuotaControl;
use crate::serve_error::ServeError;
use crate::signals::ServerSignals;
use crate::source::ConfigSource;
use crate::traffic_lease::TrafficLease;
use apus_access_log::{AccessLogs, LogWriterHandle, OpenFile};
use apus_config::{Diagnostics, HiddenSecrets, Recording, ServerPlan, changes};

/// The interval of checks whether a local certificate expires soon.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// The interval in which the files of certificates and other credentials are looked at.
const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The interval in which free memory is returned to the system.
const MEMORY_RETURN_INTERVAL: Duration = Duration::from_secs(5);

/// The interval in which a change of the configuration that is tried is looked at.
const CHANGE_WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long blocked work may delay the end of the process.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How often a folder gets other default ports, because another process took those that were free a moment before.
const OTHER_PORTS: usize = 10;

/// How long a start or a reload waits for the addresses of new origins.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(2);

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The source of the configuration.
    pub source: ConfigSource,
    /// The address for a folder.
    pub listen: Option<ListenArgument>,
    /// Worker threads, which override the configuration.
    pub workers: Option<NonZeroUsize>,
    /// Whether a folder is served with TLS too, and sites with TLS that name no certificate get one
    /// of the local authority.
    pub tls: bool,
    /// Whether the first address is opened in the browser.
    pub open: bool,
    /// The user for a server that is started as root, which overrides the configuration.
    pub user: Option<String>,
    /// Returns free memory to the system, if the allocator of the program keeps it. It is called every few seconds.
    pub return_memory: fn(),
}

/// Serves until a signal or `apus stop` ends it.
///
/// # Errors
/// It cannot start. Nothing keeps running then.
pub fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let certificates = if options.tls {
        Certificates::Local
    } else {
        Certificates::Named
    };
    let folder = FolderConfig::new(options.listen.clone(), options.tls);
    let mut loader = PlanLoader::new(
        options.source.clone(),
        folder,
        certificates,
        options.workers,
    );
    core_dumps::turn_off();
    // It depends on the user, who may change below.
    let default_socket = socket_path(options.source.path());
    // This must come before any thread, which would keep root for itself.
    let separated = privileges::separate(&loader, options.user.as_deref())?;
    let (helper, control) = separated
        .map(|PrivilegeSeparation { helper, control }| (helper, control))
        .unzip();
    if let Some(helper) = &helper {
        loader.ask_helper(Arc::clone(helper));
    }
    let result = run_server(ServerParts {
        loader,
        helper: helper.clone(),
        control,
        default_socket,
        options,
    });
    if let Some(helper) = helper {
        helper.remove_control_socket();
    }
    result
}

fn run_server(parts: ServerParts) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .map_err(ServeError::Runtime)?;
    let result = runtime.block_on(async {
        let mut server = ControlThread::start(parts).await?;
        server.run().await;
        Ok(())
    });
    runtime.shutdown_timeout(LAST_PATIENCE);
    result
}

/// The parts that a server is started with.
struct ServerParts {
    loader: PlanLoader,
    /// The privileged helper, if this process dropped root.
    helper: Option<Arc<HelperClient>>,
    /// The control socket, if root had to create it.
    control: Option<BoundControlSocket>,
    /// The default path of the control socket, for the user who started the server.
    default_socket: PathBuf,
    options: ServeOptions,
}

/// A running server.
struct ControlThread {
    engine: Engine,
    certificates: CertificateMaintenance,
    /// Gets a message when there is a new certificate.
    issued: mpsc::Receiver<()>,
    /// Keeps the secrets of session tickets, if they are stored.
    tickets: Option<TicketRotation>,
    /// Certificates that changed and have mistakes, which were reported.
    refused_credentials: Option<Recording>,
    credential_check: Interval,
    loader: PlanLoader,
    loaded: RunningPlan,
    control: ControlSocket,
    signals: ServerSignals,
    renewal: Interval,
    memory_return: Interval,
    return_memory: fn(),
    started: StartTime,
    bans: BanControl,
    glitches: GlitchControl,
    quotas: QuotaControl,
    admin: AdminServer,
    otlp: OtlpExport,
    audit: AuditLog,
    changes: ConfigChanges,
    change_watch: Interval,
    history: HistorySampler,
    traffic: TrafficLease,
    reloads: u64,
    last_failure: Option<String>,
    /// The user that the configuration named at the start, unless it has no effect here.
    account: Option<Option<SystemAccount>>,
    access_logs: AccessLogs,
    log_writer: LogWriterHandle,
    logging: ApplicationLog,
    /// Another level of the log than that of the configuration, and until when.
    other_log_level: Option<(LogLevelName, Instant)>,
}

/// The parts of the current plan that a reload compares.
struct RunningPlan {
    control_socket: Option<PathBuf>,
    stop_timeout: Duration,
    log_level: &'static str,
    groups: Vec<GroupPlan>,
    pools: Vec<WorkerPoolPlan>,
    cached: Vec<CachedHandler>,
    config: ServerPlan,
    recording: LoadedByRoot,
    /// The files of the configuration, the first one first; none for a folder.
    texts: Vec<ConfigText>,
}

/// What a reload did.
struct ReloadReport {
    warnings: String,
    /// What differs from the configuration before, in words.
    changes: Vec<String>,
}

/// The events of the control thread.
enum ServerEvent {
    Reload,
    Stop,
    Reopen,
    Renew,
    CertificateIssued,
    CheckCredentials,
    ReturnMemory,
    Bans(BanEvent),
    Quotas,
    WatchChange,
    SecondEnded,
    Otlp(OtlpEvent),
    ControlRequest(ControlExchange),
}

impl ControlThread {
    async fn start(parts: ServerParts) -> Result<Self, ServeError> {
        let ServerParts {
            mut loader,
            helper,
            control,
            default_socket,
            options,
        } = parts;
        let signals = ServerSignals::install().map_err(ServeError::Runtime)?;
        refuse_unreadable(loader.source())?;
        let (access_logs, writer) = AccessLogs::with_opener(
            helper
                .clone()
                .map(|helper| Arc::new(move |path: &Path| helper.open_log(path)) as OpenFile),
        );
        let (bans, made) = Bans::new();
        let glitches = Glitches::of_process();
        loader.use_clients(Arc::clone(&bans), Arc::clone(&glitches));
        let LoadedPlan {
            mut plan,
            groups,
            pools,
            control_socket,
            account,
            log_level,
            response_memory,
            cached,
            has_old_cache: _,
            listening,
            local_certificates,
            config,
            recording,
            warnings,
        } = loader.load(Some(&access_logs))?;
        if !warnings.is_empty() {
            print_error(&warnings.render_for_stderr());
        }
        let logging = ApplicationLog::start(Some(log_level))?;
        descriptors::raise_limit();
        log_user(options.user.as_deref(), account.as_ref());
        let can_have_user = options.user.is_none() && (helper.is_some() || geteuid().is_root());
        // The control socket comes before the engine: addresses may be shared, this may not.
        let control = match control {
            Some(control) => control,
            None => bind_control_socket(&loader, control_socket.as_deref())?,
        };
        if !control.files().is_at(&default_socket) {
            let socket = control.files().socket().display();
            info!(
                %socket,
                "the default control socket belongs to another server; `apus stop`, `apus status` and others need `--socket` for this one"
            );
        }
        let control = control.serve()?;
        let stop_timeout = plan.limits.stop_timeout;
        let is_tls: Vec<bool> = plan.listeners.iter().map(|one| one.tls.is_some()).collect();
        let workers = plan.workers;
        ResponseMemory::of_process().set_limit(response_memory);
        loader.upstreams().apply(groups.clone());
        look_up(loader.upstreams()).await;
        look_after(loader.upstreams());
        let tickets = loader.ticket_rotation(&config);
        // The first handshake needs them.
        loader.apply_on_demand(&config);
        loader.maintenance().restore(&loader.state_folder(&config));
        let bans = BanControl::start(
            (bans, made),
            &config.global.bans,
            loader.state_folder(&config),
        );
        let glitches = GlitchControl::start(glitches, &config.global);
        let quotas = QuotaControl::start(loader.limit_states(), loader.state_folder(&config));
        let audit = AuditLog::start(loader.state_folder(&config));
        let key = random_bytes().map_err(|error| ServeError::Runtime(io::Error::other(error)))?;
        let folder = loader.state_folder(&config);
        let mut changes = ConfigChanges::start(folder, HiddenSecrets::new(key));
        let texts = texts(loader.source(), &warnings);
        changes.file_was_read(texts.clone(), "the start of the server");
        let traffic = TrafficLease::new(loader.traffic());
        let binder = helper.map(|helper| helper as Arc<dyn Binder>);
        let history = HistorySampler::default();
        let mut admin = AdminServer::new(
            control.queue(),
            (history.history(), loader.records().clone()),
            binder.clone(),
        );
        let http3_secret = loader.http3_secret(&config);
        plan.http3_secret = http3_secret;
        let mut start = Engine::start_with(plan, binder.clone());
        for _ in 0..OTHER_PORTS {
            match &start {
                Err(error) if error.is_address_in_use() && loader.choose_other_ports() => {}
                _ => break,
            }
            let mut plan = loader.load(Some(&access_logs))?.plan;
            plan.http3_secret = http3_secret;
            start = Engine::start_with(plan, binder.clone());
        }
        let engine = start.map_err(|error| ServeError::start(error, &listening))?;
        admin
            .apply(config.global.admin.as_ref())
            .map_err(|error| ServeError::start(error, &listening))?;
        let mut otlp = OtlpExport::default();
        otlp.apply(config.global.otlp.as_ref(), loader.records())
            .map_err(ServeError::Runtime)?;
        let urls: Vec<String> = engine
            .status()
            .listening
            .iter()
            .zip(is_tls)
            .map(|(address, is_tls)| address.url(is_tls))
            .collect();
        info!(%workers, addresses = urls.join(" "), "serving");
        warn_of_key_log(&config);
        announce(loader.source(), &urls);
        if let Some(first) = local_certificates.iter().find(|one| one.is_new_root) {
            print_error(&first.how_to_trust());
        }
        if options.tls && local_certificates.is_empty() {
            warn!("--tls has no effect: every site with `listen_tls` has a certificate");
        }
        if let Some(url) = urls.first().filter(|_| options.open) {
            open_in_browser(url);
        }
        notify(&[NotifyState::Ready]);
        let (certificates, issued) = loader.certificate_maintenance(&config);
        certificates.apply(managed_certificates(&config).cloned().collect());
        Ok(Self {
            engine,
            tickets,
            certificates,
            issued,
            loader,
            loaded: RunningPlan {
                control_socket,
                stop_timeout,
                log_level,
                groups,
                pools,
                cached,
                config,
                recording,
                texts,
            },
            refused_credentials: None,
            credential_check: interval_at(
                tokio::time::Instant::now() + CREDENTIAL_CHECK_INTERVAL,
                CREDENTIAL_CHECK_INTERVAL,
            ),
            control,
            signals,
            renewal: interval_at(
                tokio::time::Instant::now() + RENEWAL_INTERVAL,
                RENEWAL_INTERVAL,
            ),
            memory_return: interval(MEMORY_RETURN_INTERVAL),
            return_memory: options.return_memory,
            started: StartTime::now(),
            bans,
            glitches,
            quotas,
            admin,
            otlp,
            audit,
            changes,
            change_watch: interval(CHANGE_WATCH_INTERVAL),
            history,
            traffic,
            reloads: 0,
            last_failure: None,
            account: can_have_user.then_some(account),
            access_logs,
            log_writer: writer.spawn(),
            logging,
            other_log_level: None,
        })
    }

    async fn run(&mut self) {
        let mut stop_requests = Vec::new();
        self.begin_history().await;
        loop {
            match self.next_event().await {
                ServerEvent::Stop => break,
                ServerEvent::Reopen => reopen_logs(&self.log_writer).await,
                ServerEvent::Renew => self.renew().await,
                ServerEvent::CertificateIssued => self.use_certificates(),
                ServerEvent::CheckCredentials => self.check_credentials(),
                ServerEvent::ReturnMemory => {
                    (self.return_memory)();
                    self.glitches.tick(&self.engine);
                    self.audit.tick().await;
                    self.end_log_level();
                    let is_counted = self.loaded.config.global.metrics.is_some();
                    let totals = is_counted.then(|| self.totals());
                    self.changes.note(totals);
                    self.changes.versions.tick().await;
                }
                ServerEvent::Bans(event) => self.bans.handle(event).await,
                ServerEvent::Quotas => self.quotas.handle().await,
                ServerEvent::SecondEnded => self.take_history().await,
                ServerEvent::Reload => {
                    let _ = self.reload("a signal").await;
                }
                ServerEvent::Otlp(OtlpEvent::Metrics) => self.push_metrics(),
                ServerEvent::Otlp(OtlpEvent::Requests) => self.otlp.read(self.loader.records()),
                ServerEvent::WatchChange => self.watch_change().await,
                ServerEvent::ControlRequest(mut exchange) => {
                    let Some(response) = self.perform(exchange.request(), exchange.by()).await
                    else {
                        let done = ControlResponse::Done(Value::Null);
                        self.audit.record(exchange.by(), exchange.request(), &done);
                        stop_requests.push(exchange);
                        break;
                    };
                    self.audit
                        .record(exchange.by(), exchange.request(), &response);
                    exchange.respond(response).await;
                }
            }
        }
        self.stop(stop_requests).await;
    }

    async fn next_event(&mut self) -> ServerEvent {
        tokio::select! {
            () = self.signals.stop.next() => ServerEvent::Stop,
            _ = self.signals.hangup.recv() => ServerEvent::Reload,
            _ = self.signals.reopen.recv() => ServerEvent::Reopen,
            exchange = self.control.next() => ServerEvent::ControlRequest(exchange),
            _ = self.renewal.tick() => ServerEvent::Renew,
            Some(()) = self.issued.recv() => ServerEvent::CertificateIssued,
            _ = self.credential_check.tick() => ServerEvent::CheckCredentials,
            _ = self.memory_return.tick() => ServerEvent::ReturnMemory,
            event = self.bans.next() => ServerEvent::Bans(event),
            () = self.quotas.next() => ServerEvent::Quotas,
            event = self.otlp.next() => ServerEvent::Otlp(event),
            _ = self.change_watch.tick(), if self.changes.trial.is_some() => ServerEvent::WatchChange,
            () = self.history.next() => ServerEvent::SecondEnded,
        }
    }

    async fn renew(&mut self) {
        match self.loader.renew_certificates() {
            Ok(false) => {}
            Ok(true) => {
                let _ = self.reload("a renewed local certificate").await;
            }
            Err(error) => error!(%error, "a local certificate cannot be renewed"),
        }
    }

    /// Puts new certificates in force for new connections. The configuration stays: its file may have been changed.
    fn use_certificates(&mut self) {
        let plan = self
            .loader
            .assemble_again(&self.loaded.config, &self.access_logs)
            .map_err(|error| error.to_string())
            .and_then(|plan| self.engine.reload(plan).map_err(|error| error.to_string()));
        if let Err(error) = plan {
            error!(error, "a new certificate cannot be used");
        }
    }

    /// Puts certificates and other credentials whose files have changed in force for new connections, unless they have
    /// mistakes. The configuration stays: its file may have been changed, too.
    fn check_credentials(&mut self) {
        let Some(changed) = self.loader.changed_credentials(&self.loaded.recording) else {
            self.refused_credentials = None;
            return;
        };
        if self.refused_credentials.as_ref() == Some(&changed.files) {
            return;
        }
        let files = changed.files.clone();
        let result = self
            .loader
            .load_from(changed, Some(&self.access_logs))
            .map_err(ServeError::from)
            .and_then(|loaded| {
                let reloaded = self.engine.reload(loaded.plan);
                reloaded.map_err(|error| ServeError::start(error, &loaded.listening))?;
                Ok((loaded.config, loaded.recording))
            });
        match result {
            Ok((config, recording)) => {
                self.loaded.config = config;
                self.loaded.recording = recording;
                self.refused_credentials = None;
                let admin = self.loaded.config.global.admin.as_ref();
                if let Err(error) = self.admin.apply(admin) {
                    error!(%error, "the accounts of the operator's address cannot be changed");
                }
                info!("files of certificates, credentials or lists have changed, and are used now");
            }
            Err(error) => {
                error!(
                    "files of certificates, credentials or lists have changed, and are not used:\n{error}"
                );
                self.refused_credentials = Some(files);
            }
        }
    }

    /// Loads the source again and applies it; after an error, everything stays as it is.
    /// `by` is who asks for it.
    async fn reload(&mut self, by: &str) -> ControlResponse {
        let mut states = vec![NotifyState::Reloading];
        states.extend(NotifyState::monotonic_usec_now());
        notify(&states);
        let result = self.try_reload(by).await;
        notify(&[NotifyState::Ready]);
        match result {
            Ok(ReloadReport { warnings, changes }) => {
                self.reloads += 1;
                self.last_failure = None;
                let what = match changes.as_slice() {
                    [] => "none".to_owned(),
                    changes => changes.join("; "),
                };
                info!(changes = what, "reloaded");
                warn_of_key_log(&self.loaded.config);
                ControlResponse::Done(json!({ "warnings": warnings, "changes": changes }))
            }
            Err(failure) => {
                let message = failure.to_string();
                error!("the reload failed, and the server keeps the old configuration:\n{message}");
                self.last_failure = Some(message.clone());
                let details = match &failure {
                    ServeError::Load(error) => error.to_json(),
                    _ => Value::Null,
                };
                ControlResponse::Failed { message, details }
            }
        }
    }

    async fn try_reload(&mut self, by: &str) -> Result<ReloadReport, ServeError> {
        let before = self.loader.pools().all();
        let loaded = self.loader.load(Some(&self.access_logs));
        let mut report = self.use_loaded(loaded, &before).await?;
        let texts = self.loaded.texts.clone();
        if let Some(ended) = self.changes.file_was_read(texts, by) {
            warn!("{ended}");
            report.warnings += &ended;
            report.warnings.push('\n');
        }
        Ok(report)
    }

    /// Puts a configuration in force; after an error, everything stays as it is. `before` are the pools of before it was loaded.
    async fn use_loaded(
        &mut self,
        loaded: Result<LoadedPlan, LoadError>,
        before: &[WorkerPool],
    ) -> Result<ReloadReport, ServeError> {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.loader.pools().retain(&self.loaded.pools).await;
                return Err(error.into());
            }
        };
        let pools = loaded.pools;
        let mut warnings = String::new();
        if !loaded.warnings.is_empty() {
            warnings = loaded.warnings.render(false);
            warnings.push('\n');
        }
        let stop_timeout = loaded.plan.limits.stop_timeout;
        if loaded.plan.workers.get() != self.engine.status().workers.len() {
            warnings += "a new number of workers needs a restart\n";
        }
        if loaded.control_socket != self.loaded.control_socket {
            warnings += "a new control socket needs a restart\n";
        }
        if loaded.has_old_cache {
            warnings += "changes of [global.cache] need a restart\n";
        }
        if (self.account.as_ref()).is_some_and(|started| *started != loaded.account) {
            warnings += "another `user` or `group` needs a restart\n";
        }
        let log_level = loaded.log_level;
        if let Err(error) = self.admin.apply(loaded.config.global.admin.as_ref()) {
            self.loader.pools().retain(&self.loaded.pools).await;
            return Err(ServeError::start(error, &loaded.listening));
        }
        if let Err(error) = self.put_in_force(loaded.plan, loaded.groups).await {
            // What served before can serve again.
            let before = self.loaded.config.global.admin.as_ref();
            if let Err(error) = self.admin.apply(before) {
                error!(%error, "the address of the operator cannot be used any more");
            }
            self.loader.pools().retain(&self.loaded.pools).await;
            return Err(ServeError::start(error, &loaded.listening));
        }
        ResponseMemory::of_process().set_limit(loaded.response_memory);
        warnings += &self.put_pools_in_force(pools, before).await;
        self.loaded.stop_timeout = stop_timeout;
        self.loaded.log_level = log_level;
        if let Err(error) = self.apply_log_level() {
            warnings += &format!("the level of the log stays as it was: {error}\n");
        }
        self.loaded.cached = loaded.cached;
        let folder_has_changed = self.loader.certificate_store(&loaded.config)
            != self.loader.certificate_store(&self.loaded.config)
            || loaded.config.global.acme_storage != self.loaded.config.global.acme_storage;
        if folder_has_changed
            || loaded.config.global.stores_tickets != self.loaded.config.global.stores_tickets
        {
            self.tickets = self.loader.ticket_rotation(&loaded.config);
        }
        if folder_has_changed {
            (self.certificates, self.issued) = self.loader.certificate_maintenance(&loaded.config);
        }
        self.quotas
            .configure(self.loader.state_folder(&loaded.config));
        self.audit
            .configure(self.loader.state_folder(&loaded.config));
        (self.changes.versions).configure(self.loader.state_folder(&loaded.config));
        self.glitches.configure(&loaded.config.global);
        self.bans.configure(
            &loaded.config.global.bans,
            self.loader.state_folder(&loaded.config),
        );
        self.loader.apply_on_demand(&loaded.config);
        self.certificates
            .apply(managed_certificates(&loaded.config).cloned().collect());
        let mut changes = changes(&self.loaded.config, &loaded.config);
        let credentials = &loaded.recording.files;
        if (self.loaded.recording.files.with_credentials_of(credentials)).is_some() {
            changes.push("files of certificates or credentials changed".to_owned());
        }
        let sites = loaded.config.sites.iter().map(|site| &*site.name);
        match &loaded.config.global.metrics {
            Some(_) => self.loader.site_metrics().retain(sites),
            None => self.loader.site_metrics().retain([]),
        }
        let otlp = loaded.config.global.otlp.as_ref();
        if let Err(error) = self.otlp.apply(otlp, self.loader.records()) {
            warnings += &format!("metrics are pushed as before: {error}\n");
        }
        self.loaded.texts = texts(self.loader.source(), &loaded.warnings);
        if kept_records(&loaded.config) == 0 {
            self.loader.records().clear();
        }
        self.loaded.config = loaded.config;
        self.loaded.recording = loaded.recording;
        self.configure_history().await;
        if !warnings.is_empty() {
            warn!("{}", warnings.trim_end());
        }
        Ok(ReloadReport { warnings, changes })
    }

    /// Stops PHP workers that are no longer configured, and restarts the others. Returns warnings.
    async fn put_pools_in_force(
        &mut self,
        plans: Vec<WorkerPoolPlan>,
        before: &[WorkerPool],
    ) -> String {
        let mut warnings = String::new();
        for pool in before.iter().filter(|pool| plans.contains(pool.plan())) {
            if let Err(message) = pool.reload().await {
                let name = &pool.plan().name;
                warnings += &format!("the old workers of `{name}` keep running: {message}\n");
            }
        }
        self.loader.pools().retain(&plans).await;
        self.loaded.pools = plans;
        warnings
    }

    /// Applies a plan with its groups of origins. Removed groups stay until the plan is applied,
    /// because they are still needed if that fails.
    async fn put_in_force(
        &mut self,
        plan: apus_net::EnginePlan,
        groups: Vec<GroupPlan>,
    ) -> Result<(), EngineStartError> {
        let before = &self.loaded.groups;
        let is_gone = |old: &&GroupPlan| !groups.iter().any(|new| new.name == old.name);
        let gone = before.iter().filter(is_gone);
        let upstreams = self.loader.upstreams();
        upstreams.apply(groups.iter().chain(gone).cloned().collect());
        look_up(upstreams).await;
        let result = self.engine.reload(plan);
        if result.is_ok() {
            self.loaded.groups = groups;
        }
        upstreams.apply(self.loaded.groups.clone());
        result
    }

    /// Waits for open requests; a second signal aborts them.
    async fn stop(&mut self, mut waiting: Vec<ControlExchange>) {
        notify(&[NotifyState::Stopping]);
        let within = self.loaded.stop_timeout;
        info!(
            seconds = within.as_secs(),
            "stopping after the open requests"
        );
        self.loader.pools().end_streams();
        let mut stopped = Box::pin(self.engine.stop(within));
        loop {
            tokio::select! {
                () = &mut stopped => {
                    info!("stopped");
                    break;
                }
                () = self.signals.stop.next() => {
                    let _ = timeout(LAST_PATIENCE, self.engine.stop(Duration::ZERO)).await;
                    warn!("stopped at once: open requests were aborted");
                    break;
                }
                _ = self.signals.reopen.recv() => reopen_logs(&self.log_writer).await,
                () = self.quotas.next() => self.quotas.handle().await,
                mut exchange = self.control.next() => match exchange.request() {
                    ControlRequest::Stop => waiting.push(exchange),
                    _ => {
                        let message = "the server is stopping".to_owned();
                        let details = Value::Null;
                        exchange.respond(ControlResponse::Failed { message, details }).await;
                    }
                },
            }
        }
        drop(stopped);
        tokio::select! {
            () = self.loader.pools().retain(&[]) => {}
            () = self.signals.stop.next() => {}
        }
        self.push_metrics();
        self.otlp.read(self.loader.records());
        self.otlp.finish().await;
        self.bans.finish().await;
        self.quotas.finish().await;
        self.audit.finish().await;
        self.changes.versions.finish().await;
        self.take_history().await;
        self.history.finish().await;
        self.close_cache().await;
        self.log_writer.finish().await;
        let mut sites = self.loaded.config.sites.iter();
        if let Some(key_log) = sites.find_map(|site| site.tls.as_ref()?.key_log.as_ref()) {
            key_log.flush();
        }
        for exchange in &mut waiting {
            exchange.respond(ControlResponse::Done(json!({}))).await;
        }
        // Clients of the control socket wait until their connection is closed, which the end of the
        // process does.
        std::mem::forget(waiting);
    }

    /// Writes the cache to disk; a signal ends the wait.
    async fn close_cache(&mut self) {
        let Some(cache) = self.loader.cache() else {
            return;
        };
        let closing = tokio::task::spawn_blocking(move || cache.close());
        tokio::select! {
            closed = closing => if let Ok(Err(error)) = closed {
                warn!(%error, "cannot write all stored responses to disk");
            },
            () = self.signals.stop.next() => {
                warn!("stopped at once: the cache was not written completely");
            }
        }
    }
}

/// The files of a configuration, the first one first; none for a folder.
fn texts(source: &ConfigSource, warnings: &Diagnostics) -> Vec<ConfigText> {
    let ConfigSource::File(_) = source else {
        return Vec::new();
    };
    let texts = warnings.texts().map(|(path, text)| ConfigText {
        path: path.to_owned(),
        text: text.to_owned(),
    });
    texts.collect()
}

/// Logs that the traffic can be decrypted. The warnings of the configuration are for whoever starts or reloads the server, and
/// may not be where its log is.
fn warn_of_key_log(config: &ServerPlan) {
    if let Some(path) = &config.global.tls_key_log {
        let path = path.display();
        warn!(%path, "the secrets of TLS connections are written to a file: whoever reads it can decrypt the traffic");
    }
}

/// Reopens the access logs, and logs in one line whether that was possible.
async fn reopen_logs(writer: &LogWriterHandle) {
    let Some(failures) = writer.reopen().await else {
        return;
    };
    if failures.is_empty() {
        info!("access logs reopened");
        return;
    }
    let failures = failures.iter();
    let causes: Vec<_> = failures
        .map(|failure| format!("{}: {}", failure.path.display(), failure.error))
        .collect();
    error!(
        "access logs cannot be reopened, and their lines still go to the old files: {}",
        causes.join("; ")
    );
}

/// Resolves the names of new origins, so that the first requests find them.
async fn look_up(upstreams: &Upstreams) {
    if timeout(LOOKUP_PATIENCE, upstreams.resolve()).await.is_err() {
        warn!("names of origins are not resolved yet; requests to them get 503 until then");
    }
}

/// Starts health checks and DNS updates of origins.
fn look_after(upstreams: &Upstreams) {
    let checked = upstreams.clone();
    tokio::task::spawn_local(async move { checked.run_checks().await });
    let resolved = upstreams.clone();
    tokio::task::spawn_local(async move { resolved.run_dns().await });
}

/// Rejects a folder that this user cannot read.
fn refuse_unreadable(source: &ConfigSource) -> Result<(), ServeError> {
    let ConfigSource::Folder(folder) = source else {
        return Ok(());
    };
    rustix::fs::access(folder, Access::READ_OK | Access::EXEC_OK).map_err(|error| {
        ServeError::Unreadable(folder.clone(), SystemAccount::current_name(), error.into())
    })
}

/// Logs the user of the server, if it is not the configured one.
fn log_user(argument: Option<&str>, configured: Option<&SystemAccount>) {
    let user = geteuid();
    let other = match (argument, configured) {
        (Some(name), _) => Some(name.to_owned()),
        (None, Some(account)) => Some(account.name.clone()),
        (None, None) => None,
    };
    if user.is_root() && other.is_some() {
        warn!(
            "the server stays root, as configured: a vulnerability in it affects the whole system"
        );
    } else if user.is_root() {
        warn!("the server stays root: its user namespace has no other user");
    } else if let Some(other) = other.filter(|other| *other != SystemAccount::current_name()) {
        let user = SystemAccount::current_name();
        warn!(%user, "the server was not started as root, so it cannot run as `{other}`");
    }
}

fn announce(source: &ConfigSource, urls: &[String]) {
    let text = format!(
        "Serving {} at {}\n",
        source.path().display(),
        urls.join(", ")
    );
    // The reader of standard output may be gone.
    let mut output = io::stdout().lock();
    let _ = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
}

fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
}

/// Notifies systemd, if it started this process.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot notify systemd");
    }
}
