//! `ServerControl`: the thread that runs the tasks, the control socket and the shutdown of a server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use apus_control::{
    ControlExchange, ControlRequest, ControlResponse, ControlSocket, StartTime, status,
};
use apus_http::{RouteInfo, ServiceFactory};
use apus_net::{DevelopmentSocket, Engine, EnginePlan};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::error::StartError;
use super::running::Stopping;
use super::signals::SignalSource;
use super::task::{self, Task};

/// Begins to maintain certificates, on the control thread.
pub(super) type StartCertificates = Box<dyn FnOnce() -> Box<dyn ServedCertificates> + Send>;

/// Certificates that change while the server runs.
pub(super) trait ServedCertificates {
    /// Waits for the next certificate, and returns the plan with it.
    fn next_plan(&mut self) -> Pin<Box<dyn Future<Output = Result<EnginePlan, StartError>> + '_>>;

    /// What is known of the certificates.
    fn status(&self) -> Value;

    /// Renews the certificates that have this name; returns how many there are.
    fn renew(&self, name: &str) -> usize;
}

/// The state of the control thread.
pub(super) struct ServerControl {
    pub(super) engine: Engine,
    pub(super) service: Arc<dyn ServiceFactory>,
    pub(super) stop_timeout: Duration,
    pub(super) signals: SignalSource,
    pub(super) socket: Option<ControlSocket>,
    pub(super) started: StartTime,
    pub(super) stop: watch::Sender<bool>,
    pub(super) stop_requested: watch::Receiver<bool>,
    pub(super) tasks: Vec<(String, Task)>,
    #[cfg(feature = "jobs")]
    pub(super) queues: Vec<apus_jobs::Jobs>,
    /// Under `apus dev`; another server of this process may have it after this one.
    pub(super) _development: Option<DevelopmentSocket>,
}

impl ServerControl {
    /// Runs until the server has stopped, and maintains its certificates.
    pub(super) async fn run(mut self, certificates: Option<StartCertificates>) {
        let mut certificates = certificates.map(|start| start());
        let tasks: Vec<_> = std::mem::take(&mut self.tasks)
            .into_iter()
            .map(|(name, task)| task::spawn(name, task, Stopping(self.stop_requested.clone())))
            .collect();
        let mut waiting = Vec::new();
        let mut stop_requested = self.stop_requested.clone();
        loop {
            tokio::select! {
                _ = stop_requested.wait_for(|is_requested| *is_requested) => break,
                plan = next_plan(&mut certificates) => put_in_force(&self.engine, plan),
                () = self.signals.next() => break,
                exchange = next_exchange(&mut self.socket) => match exchange.request() {
                    ControlRequest::Stop => {
                        waiting.push(exchange);
                        break;
                    }
                    _ => self.respond(exchange, certificates.as_deref()).await,
                },
            }
        }
        self.stop.send_replace(true);
        self.shut_down(tasks, &mut waiting).await;
        for mut exchange in waiting {
            exchange.respond(&ControlResponse::Done(json!({}))).await;
        }
    }

    /// Waits until open requests and tasks end, or until a second signal.
    async fn shut_down(
        &mut self,
        tasks: Vec<tokio::task::JoinHandle<()>>,
        waiting: &mut Vec<ControlExchange>,
    ) {
        let ended = async {
            self.engine.stop(self.stop_timeout).await;
            for task in tasks {
                // A panic was already logged.
                let _ = task.await;
            }
        };
        let ended = tokio::time::timeout(self.stop_timeout, ended);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                _ = &mut ended => return,
                () = self.signals.next() => return,
                mut exchange = next_exchange(&mut self.socket) => match exchange.request() {
                    ControlRequest::Stop => waiting.push(exchange),
                    _ => exchange.respond(&failed("the application is stopping")).await,
                },
            }
        }
    }

    async fn respond(
        &self,
        mut exchange: ControlExchange,
        certificates: Option<&dyn ServedCertificates>,
    ) {
        let response = match exchange.request() {
            ControlRequest::Status => ControlResponse::Done(self.status(certificates)),
            ControlRequest::Reload => failed(
                "an application has no configuration to reload: stop it and start the new version",
            ),
            ControlRequest::RenewCertificate { name } => {
                match certificates.map_or(0, |own| own.renew(name)) {
                    0 => failed(&format!(
                        "no certificate that is ordered by ACME is for `{name}`"
                    )),
                    count => ControlResponse::Done(json!({ "orders": count })),
                }
            }
            ControlRequest::Stop
            | ControlRequest::Upstream { .. }
            | ControlRequest::CachePurge { .. } => {
                failed("an application does not support this command")
            }
        };
        exchange.respond(&response).await;
    }

    fn status(&self, certificates: Option<&dyn ServedCertificates>) -> Value {
        let program = std::env::current_exe().unwrap_or_default();
        let routes: Value = self.service.routes().iter().map(route_status).collect();
        let certificates = certificates.map(ServedCertificates::status);
        let own = [
            ("routes", routes),
            #[cfg(feature = "jobs")]
            (
                "jobs",
                self.queues.iter().map(apus_jobs::Jobs::status).collect(),
            ),
        ];
        let own = own.into_iter();
        let own = own.chain(certificates.map(|status| ("certificates", status)));
        status(&program.to_string_lossy(), self.started, &self.engine, own)
    }
}

/// The plan with the next certificate. Without certificates it never returns.
async fn next_plan(
    certificates: &mut Option<Box<dyn ServedCertificates>>,
) -> Result<EnginePlan, StartError> {
    match certificates {
        Some(certificates) => certificates.next_plan().await,
        None => std::future::pending().await,
    }
}

/// Uses a new certificate for new connections.
fn put_in_force(engine: &Engine, plan: Result<EnginePlan, StartError>) {
    let reloaded = plan.and_then(|plan| Ok(engine.reload(plan)?));
    if let Err(error) = reloaded {
        tracing::error!(%error, "a new certificate cannot be used");
    }
}

fn route_status(route: &RouteInfo) -> Value {
    json!({
        "method": route.method.as_ref().map(|method| method.as_str()),
        "path": route.path,
        "host": route.host,
        "name": route.name,
        "handler": route.handler,
        "at": route.at,
    })
}

fn failed(message: &str) -> ControlResponse {
    ControlResponse::Failed {
        message: message.to_owned(),
        details: Value::Null,
    }
}

/// The next request on the control socket. Without a socket it never returns.
async fn next_exchange(socket: &mut Option<ControlSocket>) -> ControlExchange {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}
