//! `Running`: a started server, and the handles that stop it.

use std::fmt;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use apus_net::ListenAddress;
use tokio::sync::watch;

use super::signals::SignalSender;

/// Notifies a task when the server stops.
#[derive(Clone, Debug)]
pub struct Stopping(pub(super) watch::Receiver<bool>);

impl Stopping {
    /// Waits until the server stops.
    pub async fn wait(&mut self) {
        // An error means that the sender is gone, so the server has ended.
        let _ = self.0.wait_for(|is_requested| *is_requested).await;
    }

    /// Whether the server stops.
    pub fn is_stopping(&self) -> bool {
        *self.0.borrow()
    }
}

/// Stops a server from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Stops the server: it completes open requests and accepts no new connections.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A running server. Dropping it stops the server and waits for its end.
pub struct Running {
    pub(super) listening: Vec<ListenAddress>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) signals: SignalSender,
}

impl Running {
    /// The addresses that the server listens on, with the actual ports, in the order in which they were
    /// added; without Unix sockets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let listening = self.listening.iter();
        let addresses = listening.filter_map(|address| match address {
            ListenAddress::Tcp { address, .. } => Some(*address),
            _ => None,
        });
        addresses.collect()
    }

    /// A handle that stops the server.
    pub fn handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Stops the server and waits for its end.
    pub fn stop(mut self) {
        self.handle().stop();
        self.join();
    }

    /// Waits for the end of the server: until a [`StopHandle`] stops it, or SIGTERM or SIGINT, as in
    /// [`Server::run`](crate::Server::run). Open requests are completed. Before this call, signals are left to the program.
    pub fn wait(mut self) {
        if self
            .thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            self.signals.send();
        }
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the background tasks panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.join();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("listening", &self.listening)
            .finish_non_exhaustive()
    }
}
