//! A FastCGI application on a separate thread, with processes that serve one connection at a time.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use apus_client::Address;
use apus_upstream::plan::{NodePlan, NodeTarget};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

const END_OF_BODY: [u8; 8] = [1, 5, 0, 1, 0, 0, 0, 0];
const RESPONSE: &[u8] = b"\x01\x06\0\x01\0\x02\0\0\nx\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";

/// A running application.
pub(crate) struct Application {
    address: Address,
    counts: Arc<Counts>,
    more: Option<mpsc::UnboundedSender<usize>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

/// What it does.
#[derive(Clone, Copy)]
pub(crate) struct Behaviour {
    /// The number of its processes.
    pub(crate) processes: usize,
    /// The time that a response takes.
    pub(crate) takes: Duration,
    /// Whether it closes each connection after its response.
    pub(crate) closes: bool,
    pub(crate) tcp: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            processes: 5,
            takes: Duration::from_millis(1),
            closes: false,
            tcp: false,
        }
    }
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    busy: AtomicUsize,
    most: AtomicUsize,
    /// Requests that end their process without a response.
    deaths: AtomicUsize,
    /// The first parameter of each request, in the order in which they were read.
    order: Mutex<Vec<u8>>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Application {
    /// Starts an application; `name` is unique to the test.
    pub(crate) fn start(name: &str, behaviour: Behaviour) -> Self {
        let path = std::env::temp_dir().join(format!("apus-app-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let counts: Arc<Counts> = Arc::default();
        let (more, mut grows) = mpsc::unbounded_channel();
        let (started, starts) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let (counts, path) = (Arc::clone(&counts), path.clone());
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                LocalSet::new().block_on(&runtime, async move {
                    let listener = Rc::new(if behaviour.tcp {
                        Listener::Tcp(TcpListener::bind("127.0.0.1:0").await.unwrap())
                    } else {
                        Listener::Unix(UnixListener::bind(&path).unwrap())
                    });
                    started.send(listener.address(&path)).unwrap();
                    let mut added = behaviour.processes;
                    loop {
                        for _ in 0..added {
                            let (listener, counts) = (Rc::clone(&listener), Arc::clone(&counts));
                            spawn_local(process(listener, counts, behaviour));
                        }
                        match grows.recv().await {
                            Some(more) => added = more,
                            None => return,
                        }
                    }
                });
            }
        });
        Self {
            address: starts.recv().unwrap(),
            counts,
            more: Some(more),
            thread: Some(thread),
            path,
        }
    }

    /// Returns the plan of a node for it.
    pub(crate) fn node(&self) -> NodePlan {
        NodePlan::new("app", NodeTarget::Address(self.address.clone()))
    }

    /// Returns the number of connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Returns the most requests that were served at once, and begins to count anew.
    pub(crate) fn take_most(&self) -> usize {
        self.counts.most.swap(0, Ordering::SeqCst)
    }

    /// Returns the number of requests that are being served.
    pub(crate) fn busy(&self) -> usize {
        self.counts.busy.load(Ordering::SeqCst)
    }

    /// Returns the values that requests had as their first parameter, in order.
    pub(crate) fn order(&self) -> Vec<u8> {
        self.counts.order.lock().unwrap().clone()
    }

    /// Adds processes.
    pub(crate) fn grow(&self, processes: usize) {
        self.more.as_ref().unwrap().send(processes).unwrap();
    }

    /// Makes the next requests close their connections without a response.
    pub(crate) fn fail(&self, requests: usize) {
        self.counts.deaths.store(requests, Ordering::SeqCst);
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.more = None;
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    fn address(&self, path: &std::path::Path) -> Address {
        match self {
            Self::Unix(_) => Address::Unix(path.into()),
            Self::Tcp(listener) => Address::Ip(listener.local_addr().unwrap()),
        }
    }
}

async fn process(listener: Rc<Listener>, counts: Arc<Counts>, behaviour: Behaviour) {
    loop {
        match &*listener {
            Listener::Unix(listener) => {
                let (mut socket, _) = listener.accept().await.unwrap();
                serve(&mut socket, &counts, behaviour).await;
            }
            Listener::Tcp(listener) => {
                let (mut socket, _) = listener.accept().await.unwrap();
                serve(&mut socket, &counts, behaviour).await;
            }
        }
    }
}

async fn serve(
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    counts: &Counts,
    behaviour: Behaviour,
) {
    counts.connections.fetch_add(1, Ordering::SeqCst);
    loop {
        let mut input = Vec::new();
        while !input.ends_with(&END_OF_BODY) {
            if socket.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let busy = counts.busy.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(busy, Ordering::SeqCst);
        // The value of the parameter stands behind two records' heads, two lengths and the name.
        if let Some(value) = input.get(16 + 8 + 2 + 1) {
            counts.order.lock().unwrap().push(*value);
        }
        tokio::time::sleep(behaviour.takes).await;
        counts.busy.fetch_sub(1, Ordering::SeqCst);
        let left = counts.deaths.load(Ordering::SeqCst);
        if left > 0 {
            counts.deaths.store(left - 1, Ordering::SeqCst);
            return;
        }
        if socket.write_all(RESPONSE).await.is_err() || behaviour.closes {
            return;
        }
    }
}
