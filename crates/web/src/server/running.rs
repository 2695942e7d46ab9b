//! A server that runs, and what tells its end.

use std::fmt;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use apus_net::ListenAddress;
use tokio::sync::watch;

/// Tells a task that the server stops.
#[derive(Clone, Debug)]
pub struct Stopping(pub(super) watch::Receiver<bool>);

impl Stopping {
    /// Waits until the server stops.
    pub async fn wait(&mut self) {
        // An error means that nobody is left to tell.
        let _ = self.0.wait_for(|told| *told).await;
    }

    /// Whether the server stops.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }
}

/// Stops a server, from wherever.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Has the server stop: what has connected is answered, and no more is taken.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that runs. Dropped, it stops and is waited for.
pub struct Running {
    pub(super) listening: Vec<ListenAddress>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Running {
    /// The addresses that are listened on, with the ports that were picked, in the order in which they were
    /// given; Unix sockets are left out.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let listening = self.listening.iter();
        let addresses = listening.filter_map(|address| match address {
            ListenAddress::Tcp { address, .. } => Some(*address),
            _ => None,
        });
        addresses.collect()
    }

    /// What stops it.
    pub fn handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Stops it, and waits for its end.
    pub fn stop(self) {
        self.handle().stop();
        self.wait();
    }

    /// Waits for its end.
    pub fn wait(mut self) {
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
