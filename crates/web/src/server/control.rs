//! The thread that looks after a running server: its tasks, its control socket, its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use apus_control::{ControlSocket, Exchange, Request, Response, Started, status};
use apus_http::{RouteInfo, ServiceFactory};
use apus_net::Engine;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::running::Stopping;
use super::task::{self, Task};

/// What a running server is looked after by, on a thread of its own.
pub(super) struct Control {
    pub(super) engine: Engine,
    pub(super) service: Arc<dyn ServiceFactory>,
    pub(super) stop_timeout: Duration,
    pub(super) signals: Option<Signals>,
    pub(super) socket: Option<ControlSocket>,
    pub(super) started: Started,
    pub(super) stop: watch::Sender<bool>,
    pub(super) told: watch::Receiver<bool>,
    pub(super) tasks: Vec<(String, Task)>,
}

impl Control {
    pub(super) async fn run(mut self) {
        let tasks: Vec<_> = std::mem::take(&mut self.tasks)
            .into_iter()
            .map(|(name, task)| task::spawn(name, task, Stopping(self.told.clone())))
            .collect();
        let mut waiting = Vec::new();
        let mut told = self.told.clone();
        loop {
            tokio::select! {
                _ = told.wait_for(|told| *told) => break,
                () = Signals::wait(&mut self.signals) => break,
                exchange = asked(&mut self.socket) => match exchange.request() {
                    Request::Stop => {
                        waiting.push(exchange);
                        break;
                    }
                    _ => self.answer(exchange).await,
                },
            }
        }
        self.stop.send_replace(true);
        self.end(tasks, &mut waiting).await;
        for mut exchange in waiting {
            exchange.answer(&Response::Done(json!({}))).await;
        }
    }

    /// Lets open requests and tasks end; a second signal does not.
    async fn end(&mut self, tasks: Vec<tokio::task::JoinHandle<()>>, waiting: &mut Vec<Exchange>) {
        let ended = async {
            self.engine.stop(self.stop_timeout).await;
            for task in tasks {
                // How it ended was told when it did.
                let _ = task.await;
            }
        };
        let ended = tokio::time::timeout(self.stop_timeout, ended);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                _ = &mut ended => return,
                () = Signals::wait(&mut self.signals) => return,
                mut exchange = asked(&mut self.socket) => match exchange.request() {
                    Request::Stop => waiting.push(exchange),
                    _ => exchange.answer(&failed("the application is stopping")).await,
                },
            }
        }
    }

    async fn answer(&self, mut exchange: Exchange) {
        let response = match exchange.request() {
            Request::Status => Response::Done(self.status()),
            Request::Reload => failed(
                "an application has no configuration to read again: stop it, and start what is new",
            ),
            Request::Stop | Request::Upstream { .. } | Request::CachePurge { .. } => {
                failed("an application has its own ways for that; ask it over HTTP")
            }
        };
        exchange.answer(&response).await;
    }

    fn status(&self) -> Value {
        let program = std::env::current_exe().unwrap_or_default();
        let routes: Value = self.service.routes().iter().map(told_route).collect();
        let own = [("routes", routes)];
        status(&program.to_string_lossy(), self.started, &self.engine, own)
    }
}

fn told_route(route: &RouteInfo) -> Value {
    json!({
        "method": route.method.as_ref().map(|method| method.as_str()),
        "path": route.path,
        "host": route.host,
        "name": route.name,
        "handler": route.handler,
        "at": route.at,
    })
}

fn failed(message: &str) -> Response {
    Response::Failed {
        message: message.to_owned(),
        details: Value::Null,
    }
}

/// What is asked next over the control socket; waits for ever without one.
async fn asked(socket: &mut Option<ControlSocket>) -> Exchange {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one; for ever, if nobody listens to them.
    async fn wait(signals: &mut Option<Self>) {
        match signals {
            Some(signals) => {
                tokio::select! {
                    _ = signals.terminate.recv() => {}
                    _ = signals.interrupt.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }
}
