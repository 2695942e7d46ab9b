//! Origins whose behaviour a test controls, and requests to groups of them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use apus_client::{Address, ClientRequest, ClientRequestHead, RequestTemplate};
use apus_http::{Body, Headers, Method, StatusCode};
pub(crate) use apus_testkit::eventually;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};
use apus_upstream::{
    GroupStatus, NodeStatus, RequestContext, UpstreamError, UpstreamResponse, Upstreams,
    WorkerGroup, is_idempotent,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// How long a test waits for an event. It is long because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A plain response.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Runs a test on a thread with a runtime as a worker has it.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(PATIENCE * 3, test).await.unwrap() };
    LocalSet::new().block_on(&runtime, test)
}

/// What an origin does with a request.
pub(crate) enum Reply {
    /// Sends this and waits for the next request.
    Send(String),
    /// Sends this and closes the connection.
    SendAndClose(String),
    /// Closes the connection.
    Close,
    /// Sends nothing until the client closes the connection.
    Freeze,
}

/// A request that an origin received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// The head.
    pub(crate) head: String,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

/// An origin on the thread of the test.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    received: Rc<RefCell<Vec<ReceivedRequest>>>,
    connections: Rc<Cell<usize>>,
    open: Rc<Cell<usize>>,
}

impl Origin {
    /// Starts an origin that reacts as `reply` says.
    pub(crate) async fn start(reply: impl AsyncFn(ReceivedRequest) -> Reply + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received: Rc<RefCell<Vec<ReceivedRequest>>> = Rc::default();
        let (connections, open): (Rc<Cell<usize>>, Rc<Cell<usize>>) =
            (Rc::default(), Rc::default());
        let reply = Rc::new(reply);
        spawn_local({
            let (received, connections, open) =
                (received.clone(), connections.clone(), open.clone());
            async move {
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let (received, open, reply) = (received.clone(), open.clone(), reply.clone());
                    let number = connections.replace(connections.get() + 1);
                    open.set(open.get() + 1);
                    spawn_local(async move {
                        serve(&mut socket, number, &received, &*reply).await;
                        open.set(open.get() - 1);
                    });
                }
            }
        });
        Self {
            address,
            received,
            connections,
            open,
        }
    }

    /// Starts an origin that always sends this.
    pub(crate) async fn sending(response: impl Into<String>) -> Self {
        let response = response.into();
        Self::start(async move |_| Reply::Send(response.clone())).await
    }

    /// Returns the requests that the origin received.
    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.borrow().clone()
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> usize {
        self.received.borrow().len()
    }

    /// Returns the number of connections since the start.
    pub(crate) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Returns the plan of a node for this origin.
    pub(crate) fn node(&self, name: &str) -> NodePlan {
        node(name, self.address)
    }
}

async fn serve(
    socket: &mut TcpStream,
    connection: usize,
    received: &RefCell<Vec<ReceivedRequest>>,
    reply: &impl AsyncFn(ReceivedRequest) -> Reply,
) {
    let mut input = Vec::new();
    while let Some(head) = read_request(socket, &mut input).await {
        let request = ReceivedRequest { head, connection };
        received.borrow_mut().push(request.clone());
        match reply(request).await {
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

/// Reads a request with its body; `None` at the end of the connection.
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

/// Returns an address that refuses connections.
pub(crate) async fn refusing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Returns the plan of a node at an address.
pub(crate) fn node(name: &str, address: SocketAddr) -> NodePlan {
    NodePlan::new(name, NodeTarget::Address(Address::Ip(address)))
}

/// Applies a plan and returns its group.
pub(crate) fn group(plan: GroupPlan) -> (Upstreams, Rc<WorkerGroup>) {
    let upstreams = Upstreams::new();
    let name = plan.name.clone();
    upstreams.apply(vec![plan]);
    let group = upstreams.group(&name).unwrap();
    (upstreams, group)
}

/// Returns a plan without passive checks and retries, which tests may change.
pub(crate) fn plain(nodes: Vec<NodePlan>) -> GroupPlan {
    let mut plan = GroupPlan::new("app", nodes);
    plan.passive = None;
    plan.retry.tries = 1;
    plan
}

/// Returns a request without a body.
pub(crate) fn request(group: &WorkerGroup, method: Method) -> ClientRequest {
    ClientRequest {
        template: RequestTemplate {
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
            interim: None,
            timeouts: group.timeouts(),
            stderr: None,
        },
        body: Body::Empty,
    }
}

/// Sends a request without a body.
pub(crate) async fn send(
    group: &Rc<WorkerGroup>,
    method: Method,
) -> Result<UpstreamResponse, UpstreamError> {
    let context = RequestContext {
        idempotent: is_idempotent(&method),
        ..RequestContext::default()
    };
    group.send(request(group, method), context).await
}

/// Sends a GET, asserts that the status is 200, and reads the body.
pub(crate) async fn get(group: &Rc<WorkerGroup>) -> UpstreamResponse {
    let mut response = send(group, Method::GET).await.unwrap();
    assert_eq!(response.response.status, StatusCode::OK);
    read(&mut response).await;
    response
}

/// Reads the body of a response.
pub(crate) async fn read(response: &mut UpstreamResponse) -> String {
    let mut body = Vec::new();
    while let Some(frame) = response.response.body.frame().await {
        match frame.unwrap() {
            apus_http::Frame::Data(bytes) => body.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    String::from_utf8(body).unwrap()
}

/// Sends a GET in a task.
pub(crate) fn spawn_get(
    group: &Rc<WorkerGroup>,
) -> JoinHandle<Result<UpstreamResponse, UpstreamError>> {
    let group = Rc::clone(group);
    spawn_local(async move { send(&group, Method::GET).await })
}

/// Returns the status of the only group.
pub(crate) fn status(upstreams: &Upstreams) -> GroupStatus {
    upstreams.status().remove(0)
}

/// Returns the status of a node of the only group.
pub(crate) fn node_status(upstreams: &Upstreams, name: &str) -> NodeStatus {
    let nodes = status(upstreams).nodes;
    nodes.into_iter().find(|node| &*node.name == name).unwrap()
}

/// Returns the number of requests in flight at all nodes.
pub(crate) fn in_flight(upstreams: &Upstreams) -> u32 {
    status(upstreams)
        .nodes
        .iter()
        .map(|node| node.in_flight)
        .sum()
}

/// A gate at which origins wait until the test lets them through.
#[derive(Clone)]
pub(crate) struct Gate(Rc<tokio::sync::Semaphore>);

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Rc::new(tokio::sync::Semaphore::new(0)))
    }

    /// Lets this many more through.
    pub(crate) fn let_through(&self, count: usize) {
        self.0.add_permits(count);
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}
