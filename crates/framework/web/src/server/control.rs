//! `ServerControl`: the thread that runs the tasks, the control socket and the shutdown of a server.

use std::sync::Arc;
use std::time::Duration;

use apus_http::ServiceFactory;
use apus_net::{DevelopmentSocket, Engine, EnginePlan};
use tokio::sync::watch;

use super::control_socket::{ApplicationSocket, SocketRequest};
use super::controlled_server::{ControlledServer, ServedCertificates, StartCertificates};
use super::error::StartError;
use super::running::Stopping;
use super::signals::SignalSource;
use super::task::{self, Task};

/// The state of the control thread.
pub(super) struct ServerControl {
    pub(super) engine: Engine,
    pub(super) service: Arc<dyn ServiceFactory>,
    pub(super) stop_timeout: Duration,
    pub(super) signals: SignalSource,
    pub(super) socket: ApplicationSocket,
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
                request = self.socket.next() => {
                    if request.is_stop() {
                        waiting.push(request);
                        break;
                    }
                    let server = ControlledServer {
                        engine: &self.engine,
                        service: &*self.service,
                        certificates: certificates.as_deref(),
                        #[cfg(feature = "jobs")]
                        queues: &self.queues,
                    };
                    self.socket.respond(request, server).await;
                }
            }
        }
        self.stop.send_replace(true);
        self.shut_down(tasks, &mut waiting).await;
        for request in waiting {
            request.respond_stopped().await;
        }
    }

    /// Waits until open requests and tasks end, or until a second signal.
    async fn shut_down(
        &mut self,
        tasks: Vec<tokio::task::JoinHandle<()>>,
        waiting: &mut Vec<SocketRequest>,
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
                request = self.socket.next() => {
                    if request.is_stop() {
                        waiting.push(request);
                    } else {
                        request.refuse().await;
                    }
                }
            }
        }
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
