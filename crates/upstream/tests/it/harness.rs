//! Origins that do exactly what a test wants, and requests to groups of them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_http::{Body, Headers, Method, StatusCode};
use apus_net::client::{Address, ClientRequest, ClientRequestHead};
use apus_upstream::plan::{GroupPlan, NodePlan, Place};
use apus_upstream::{
    Context, Delivered, Failed, GroupStatus, NodeStatus, Upstreams, WorkerGroup, is_idempotent,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// How long a test waits for what must come. Long, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What origins answer if nothing else matters.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Runs a test on a thread that is like a worker's.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(PATIENCE * 3, test).await.unwrap() };
    LocalSet::new().block_on(&runtime, test)
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What an origin does with a request.
pub(crate) enum Reply {
    /// Sends this and waits for the next request.
    Send(String),
    /// Sends this and closes the connection.
    SendAndClose(String),
    /// Closes the connection.
    Close,
    /// Says nothing until the client goes away.
    Freeze,
}

/// A request as an origin saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The head.
    pub(crate) head: String,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

/// An origin on this thread.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Rc<RefCell<Vec<Seen>>>,
    connections: Rc<Cell<usize>>,
    open: Rc<Cell<usize>>,
}

impl Origin {
    /// An origin that does what `answer` says.
    pub(crate) async fn start(answer: impl AsyncFn(Seen) -> Reply + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Rc<RefCell<Vec<Seen>>> = Rc::default();
        let (connections, open): (Rc<Cell<usize>>, Rc<Cell<usize>>) =
            (Rc::default(), Rc::default());
        let answer = Rc::new(answer);
        spawn_local({
            let (seen, connections, open) = (seen.clone(), connections.clone(), open.clone());
            async move {
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let (seen, open, answer) = (seen.clone(), open.clone(), answer.clone());
                    let number = connections.replace(connections.get() + 1);
                    open.set(open.get() + 1);
                    spawn_local(async move {
                        serve(&mut socket, number, &seen, &*answer).await;
                        open.set(open.get() - 1);
                    });
                }
            }
        });
        Self {
            address,
            seen,
            connections,
            open,
        }
    }

    /// An origin that always sends this.
    pub(crate) async fn sending(response: impl Into<String>) -> Self {
        let response = response.into();
        Self::start(async move |_| Reply::Send(response.clone())).await
    }

    /// The requests that came.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// How many requests came.
    pub(crate) fn requests(&self) -> usize {
        self.seen.borrow().len()
    }

    /// How many connections were opened to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// The plan of a node that is this origin.
    pub(crate) fn node(&self, name: &str) -> NodePlan {
        node(name, self.address)
    }
}

async fn serve(
    socket: &mut TcpStream,
    connection: usize,
    seen: &RefCell<Vec<Seen>>,
    answer: &impl AsyncFn(Seen) -> Reply,
) {
    let mut input = Vec::new();
    while let Some(head) = read_request(socket, &mut input).await {
        let request = Seen { head, connection };
        seen.borrow_mut().push(request.clone());
        match answer(request).await {
            Reply::Send(response) => {
                if socket.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::SendAndClose(response) => {
                let _ = socket.write_all(response.as_bytes()).await;
                return;
            }
            Reply::Close => return,
            Reply::Freeze => {
                let mut rest = Vec::new();
                let _ = socket.read_to_end(&mut rest).await;
                return;
            }
        }
    }
}

/// Reads a request with its content; `None` at the end.
async fn read_request(socket: &mut TcpStream, input: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(input).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if input.len() >= head.len() + 4 + length {
                input.drain(..head.len() + 4 + length);
                return Some(head.into());
            }
        }
        if socket.read_buf(input).await.ok()? == 0 {
            return None;
        }
    }
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A node at an address.
pub(crate) fn node(name: &str, address: SocketAddr) -> NodePlan {
    NodePlan::new(name, Place::Address(Address::Ip(address)))
}

/// A group of its own, put in force.
pub(crate) fn group(plan: GroupPlan) -> (Upstreams, Rc<WorkerGroup>) {
    let upstreams = Upstreams::new();
    let name = plan.name.clone();
    upstreams.apply(vec![plan]);
    let group = upstreams.group(&name).unwrap();
    (upstreams, group)
}

/// A plan that takes no node out and repeats nothing, for tests to add to.
pub(crate) fn plain(nodes: Vec<NodePlan>) -> GroupPlan {
    let mut plan = GroupPlan::new("app", nodes);
    plan.passive = None;
    plan.retry.tries = 1;
    plan
}

/// A request without content.
pub(crate) fn request(group: &WorkerGroup, method: Method) -> ClientRequest {
    ClientRequest {
        head: Rc::new(ClientRequestHead {
            method,
            scheme: "http",
            authority: "app.test".into(),
            target: "/".into(),
            headers: Headers::new(),
            upgrade: None,
            te_trailers: false,
            expects_continue: false,
            params: None,
        }),
        body: Body::Empty,
        interim: None,
        timeouts: group.timeouts(),
        stderr: None,
    }
}

/// Sends a request without content.
pub(crate) async fn send(group: &Rc<WorkerGroup>, method: Method) -> Result<Delivered, Failed> {
    let context = Context {
        idempotent: is_idempotent(&method),
        ..Context::default()
    };
    group.send(request(group, method), context).await
}

/// Sends a GET, which has to be answered with 200, and reads the content.
pub(crate) async fn get(group: &Rc<WorkerGroup>) -> Delivered {
    let mut delivered = send(group, Method::GET).await.unwrap();
    assert_eq!(delivered.response.status, StatusCode::OK);
    read(&mut delivered).await;
    delivered
}

/// Reads the content of a response.
pub(crate) async fn read(delivered: &mut Delivered) -> String {
    let mut content = Vec::new();
    while let Some(frame) = delivered.response.body.frame().await {
        match frame.unwrap() {
            apus_http::Frame::Data(bytes) => content.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    String::from_utf8(content).unwrap()
}

/// Sends a GET beside what else is done.
pub(crate) fn get_beside(group: &Rc<WorkerGroup>) -> JoinHandle<Result<Delivered, Failed>> {
    let group = Rc::clone(group);
    spawn_local(async move { send(&group, Method::GET).await })
}

/// The state of the only group.
pub(crate) fn status(upstreams: &Upstreams) -> GroupStatus {
    upstreams.status().remove(0)
}

/// The state of a node of the only group.
pub(crate) fn node_status(upstreams: &Upstreams, name: &str) -> NodeStatus {
    let nodes = status(upstreams).nodes;
    nodes.into_iter().find(|node| &*node.name == name).unwrap()
}

/// How many requests are open at all nodes.
pub(crate) fn in_flight(upstreams: &Upstreams) -> u32 {
    status(upstreams)
        .nodes
        .iter()
        .map(|node| node.in_flight)
        .sum()
}

/// Permits that a test gives to requests which wait for them.
#[derive(Clone)]
pub(crate) struct Gate(Rc<tokio::sync::Semaphore>);

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Rc::new(tokio::sync::Semaphore::new(0)))
    }

    /// Lets one more through.
    pub(crate) fn let_through(&self, count: usize) {
        self.0.add_permits(count);
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}
