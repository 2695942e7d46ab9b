//! The server at the address of the operator, beside that of the sites.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use apus_admin::{Admin, AdminSessions, AdminSettings};
use apus_config::AdminPlan;
use apus_control::{ControlQueue, ServerHistory};
use apus_http::{Network, RequestRecords};
use apus_net::{
    Binder, ClientFilter, ClientRefusal, Engine, EnginePlan, EngineStartError, Limits,
    ListenAddress, ListenerPlan,
};
use apus_transport::descriptors::DescriptorPermit;
use serde_json::{Value, json};

/// How long requests of the operator may take to end after a reload that turns the address off.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The server; without an address nothing runs.
pub(crate) struct AdminServer {
    queue: ControlQueue,
    history: ServerHistory,
    records: RequestRecords,
    /// They outlive reloads.
    sessions: Arc<AdminSessions>,
    binder: Option<Arc<dyn Binder>>,
    running: Option<(AdminPlan, Engine)>,
    /// Those of the engine, beside its connections: without them, the sites had too few for files when their connections are many.
    descriptors: Vec<DescriptorPermit>,
}

/// The descriptors of an engine of one worker without listeners: those of its runtime and its signals.
const ENGINE_DESCRIPTORS: usize = 6;

impl AdminServer {
    pub(crate) fn new(
        queue: ControlQueue,
        (history, records): (ServerHistory, RequestRecords),
        binder: Option<Arc<dyn Binder>>,
    ) -> Self {
        Self {
            queue,
            history,
            records,
            sessions: Arc::default(),
            binder,
            running: None,
            descriptors: Vec::new(),
        }
    }

    /// Serves this plan from now on, and the one before no more. After an error, that goes on.
    pub(crate) fn apply(&mut self, plan: Option<&AdminPlan>) -> Result<(), EngineStartError> {
        if self.running.as_ref().map(|(plan, _)| plan) == plan {
            return Ok(());
        }
        let Some(plan) = plan else {
            self.descriptors.clear();
            if let Some((_, engine)) = self.running.take() {
                tokio::task::spawn_local(async move { engine.stop(STOP_TIMEOUT).await });
            }
            return Ok(());
        };
        let engine_plan = self.engine_plan(plan);
        match &mut self.running {
            Some((running, engine)) => {
                engine.reload(engine_plan)?;
                running.clone_from(plan);
            }
            None => {
                let engine = Engine::start_with(engine_plan, self.binder.clone())?;
                self.running = Some((plan.clone(), engine));
            }
        }
        let descriptors = ENGINE_DESCRIPTORS + plan.addresses.len();
        self.descriptors
            .resize_with(descriptors, DescriptorPermit::of_pipe);
        if let Some((_, engine)) = &self.running {
            let addresses = urls(plan, engine);
            tracing::info!(addresses = addresses.join(" "), "serving the operator");
        }
        Ok(())
    }

    /// A code for a log-in, and the addresses at which it is good.
    pub(crate) fn log_in(&self) -> Result<Value, String> {
        let Some((plan, engine)) = &self.running else {
            return Err(
                "there is no address to log in at: the configuration has no `admin_listen`"
                    .to_owned(),
            );
        };
        let code = self
            .sessions
            .new_code()
            .map_err(|error| error.to_string())?;
        Ok(json!({ "code": code, "urls": urls(plan, engine) }))
    }

    /// The addresses that it listens on.
    pub(crate) fn listening(&self) -> Vec<String> {
        let engine = self.running.as_ref().map(|(_, engine)| engine);
        let addresses = engine.map(|engine| engine.status().listening);
        let addresses = addresses.unwrap_or_default();
        addresses.iter().map(ToString::to_string).collect()
    }

    fn engine_plan(&self, plan: &AdminPlan) -> EnginePlan {
        let settings = AdminSettings {
            allowed: plan.allowed.clone(),
            names: plan.names.clone(),
            accounts: plan.accounts.clone(),
            sessions: Arc::clone(&self.sessions),
            history: self.history.clone(),
            records: self.records.clone(),
        };
        let admin = Arc::new(Admin::new(self.queue.clone(), settings));
        let listeners = plan.addresses.iter();
        let listeners = listeners.map(|address| ListenerPlan {
            tls: (plan.tls.as_ref())
                .filter(|_| !matches!(address, ListenAddress::Unix { .. }))
                .map(|tls| Arc::clone(&tls.settings)),
            ..ListenerPlan::new(address.clone(), admin.clone())
        });
        EnginePlan {
            limits: Limits {
                // Operators and their tools are few. Each connection can hold a page of metrics.
                max_connections: 256,
                connections_per_address: 64,
                ..Limits::default()
            },
            server_field: Some("Apus".into()),
            client_filter: Some(Arc::new(AllowedClients(plan.allowed.clone()))),
            is_secondary: true,
            ..EnginePlan::new(NonZeroUsize::MIN, listeners.collect())
        }
    }
}

/// The URLs at which it is used.
fn urls(plan: &AdminPlan, engine: &Engine) -> Vec<String> {
    let addresses = engine.status().listening;
    let urls = addresses.iter().map(|address| {
        let is_unix = matches!(address, ListenAddress::Unix { .. });
        address.url(plan.tls.is_some() && !is_unix)
    });
    urls.collect()
}

/// Closes the connections of clients of other networks, so that they take no place of the operator's.
struct AllowedClients(Vec<Network>);

impl ClientFilter for AllowedClients {
    fn refuses(&self, client: IpAddr) -> Option<ClientRefusal> {
        if self.0.iter().any(|network| network.contains_ip(client)) {
            return None;
        }
        tracing::warn!(%client, "refused a connection to `admin_listen`: `admin_allow` does not name the client");
        Some(ClientRefusal::Banned)
    }
}
