//! The control socket of an application: what `apus status`, `apus stop` and `apus cert renew` get.

use std::error::Error;
use std::path::Path;

use apus_control::{
    ControlExchange, ControlRequest, ControlResponse, ControlSocket, StartTime, add_engine_metrics,
    status,
};
use apus_http::RouteInfo;
use apus_metrics::{MetricFormat, MetricSamples};
use serde_json::{Value, json};

use super::controlled_server::ControlledServer;

/// The socket, if there is one.
pub(super) struct ApplicationSocket {
    socket: Option<ControlSocket>,
    started: StartTime,
}

/// A request on the socket.
pub(super) struct SocketRequest(ControlExchange);

impl ApplicationSocket {
    /// Opens the socket at a path.
    pub(super) fn bind(path: Option<&Path>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let socket = path.map(ControlSocket::bind).transpose();
        Ok(Self {
            socket: socket.map_err(|error| error.to_string())?,
            started: StartTime::now(),
        })
    }

    /// The next request. Without a socket it never returns.
    pub(super) async fn next(&mut self) -> SocketRequest {
        match &mut self.socket {
            Some(socket) => SocketRequest(socket.next().await),
            None => std::future::pending().await,
        }
    }

    /// Responds to a request that does not stop the server.
    pub(super) async fn respond(&self, request: SocketRequest, server: ControlledServer<'_>) {
        let SocketRequest(mut exchange) = request;
        let response = match exchange.request() {
            ControlRequest::Status => ControlResponse::Done(self.status(&server)),
            ControlRequest::Metrics { format } => {
                let format = MetricFormat::from(*format);
                ControlResponse::Done(json!({ "text": format.write(self.metrics(&server)) }))
            }
            ControlRequest::Reload => failed(
                "an application has no configuration to reload: stop it and start the new version",
            ),
            ControlRequest::RenewCertificate { name } => {
                match server.certificates.map_or(0, |own| own.renew(name)) {
                    0 => failed(&format!(
                        "no certificate that is ordered by ACME is for `{name}`"
                    )),
                    count => ControlResponse::Done(json!({ "orders": count })),
                }
            }
            _ => failed("an application does not support this command"),
        };
        exchange.respond(response).await;
    }

    fn metrics(&self, server: &ControlledServer<'_>) -> MetricSamples {
        let mut samples = MetricSamples::new();
        add_engine_metrics(self.started, server.engine, &mut samples);
        #[cfg(feature = "jobs")]
        apus_jobs::Jobs::add_metrics(server.queues, &mut samples);
        samples
    }

    fn status(&self, server: &ControlledServer<'_>) -> Value {
        let program = std::env::current_exe().unwrap_or_default();
        let routes: Value = server.service.routes().iter().map(route_status).collect();
        let certificates = server.certificates.map(|own| own.status());
        let own = [
            ("routes", routes),
            #[cfg(feature = "jobs")]
            (
                "jobs",
                server.queues.iter().map(apus_jobs::Jobs::status).collect(),
            ),
        ];
        let own = own.into_iter();
        let own = own.chain(certificates.map(|status| ("certificates", status)));
        status(&program.to_string_lossy(), self.started, server.engine, own)
    }
}

impl SocketRequest {
    /// Whether it stops the server. It is responded to when the server has stopped.
    pub(super) fn is_stop(&self) -> bool {
        matches!(self.0.request(), ControlRequest::Stop)
    }

    /// Responds that the server has stopped.
    pub(super) async fn respond_stopped(mut self) {
        self.0.respond(ControlResponse::Done(json!({}))).await;
    }

    /// Responds that the server is stopping, and does nothing else any more.
    pub(super) async fn refuse(mut self) {
        self.0.respond(failed("the application is stopping")).await;
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
