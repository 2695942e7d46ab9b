//! Handlers that block: the line of the log, and work on other threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use apus::testing::TestClient;
use apus::{App, Json, Path, State, StatusCode, get, handler, routes, tokio};

use crate::harness::{Client, PATIENCE, Server, head};
use apus_testkit::{LogBuffer, logged};

/// Takes the thread for longer than a handler should.
fn compute() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(120) {
        std::hint::spin_loop();
    }
}

fn blocks_at_once() -> &'static str {
    compute();
    "done"
}

async fn blocks_later(body: String) -> String {
    tokio::task::yield_now().await;
    compute();
    body
}

fn app() -> App {
    App::new()
        .get("/at-once", blocks_at_once)
        .post("/later/{id}", blocks_later)
        .group("/layered", |layered| {
            let layer = async |request, next: apus::Next| next.run(request).await;
            layered.layer(layer).get("/", async || compute())
        })
}

#[test]
fn a_handler_that_blocks_is_logged_with_its_name_and_place() {
    let log = logged(|| {
        let client = TestClient::new(app());
        client.get("/at-once").send().assert_text("done");
    });
    let line = log
        .lines()
        .find(|line| line.contains("blocked its worker"))
        .unwrap();
    for part in [
        "WARN",
        "route=\"/at-once\"",
        "blocking::blocks_at_once",
        "blocking.rs:",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let log = logged(|| {
        let client = TestClient::new(app());
        client
            .post("/later/7")
            .body("text")
            .send()
            .assert_text("text");
    });
    assert!(log.contains("blocking::blocks_later"), "{log}");
    // The layer around it waited as well, and is not logged.
    let log = logged(|| {
        TestClient::new(app())
            .get("/layered")
            .send()
            .assert_status(204);
    });
    assert_eq!(log.matches("blocked its worker").count(), 1, "{log}");
}

/// Takes the thread until the log says so.
fn blocks_until_it_is_logged(State(log): State<LogBuffer>) -> &'static str {
    while !log.text().contains("a handler blocks its worker") {
        std::hint::spin_loop();
    }
    "done"
}

#[test]
fn the_log_says_where_a_handler_is_while_it_blocks_its_worker() {
    apus::report_blocked_stacks();
    let log = LogBuffer::default();
    let app = App::new()
        .get("/", blocks_until_it_is_logged)
        .state(log.clone());
    log.logs(|| {
        TestClient::new(app).get("/").send().assert_text("done");
    });
    let text = log.text();
    for part in [
        "route=\"/\"",
        "blocking::blocks_until_it_is_logged",
        "app/blocking.rs:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("apus_watchdog::run_watched"), "{text}");
}

/// The two ends by which a handler waits until a test lets it go on.
#[derive(Clone)]
struct Gate {
    entered: Sender<ThreadId>,
    leave: Arc<Mutex<Receiver<()>>>,
}

/// Waits on a separate thread.
#[get("/wait/{id}")]
#[handler(blocking)]
fn wait(State(gate): State<Gate>, Path(mut id): Path<u32>) -> apus::Result<String> {
    gate.entered.send(thread::current().id())?;
    let leave = gate
        .leave
        .lock()
        .map_err(|_| apus::Error::of(StatusCode::CONFLICT))?;
    leave.recv_timeout(PATIENCE)?;
    id += 1;
    Ok(format!("{id}"))
}

#[handler(blocking)]
fn panics(Json(message): Json<String>) -> String {
    panic!("{message}")
}

#[handler]
async fn checked(Path(id): Path<u32>) -> String {
    id.to_string()
}

#[test]
fn other_connections_of_the_worker_do_not_wait_for_work_that_moved_away() {
    let (entered, has_entered) = channel();
    let (let_go, leave) = channel();
    let leave = Arc::new(Mutex::new(leave));
    let app = App::new()
        .state(Gate { entered, leave })
        .register(routes![wait])
        .post("/panics", panics)
        .get("/checked/{id}", checked)
        .get("/thread", || format!("{:?}", thread::current().id()));
    let server = Server::with_workers(1, app);
    let mut first = Client::connect(server.address());
    first.send(head("GET", "/wait/7", &[]));
    let blocked = has_entered.recv_timeout(PATIENCE).unwrap();
    // The one worker responds to another connection, while the first handler waits.
    let mut second = Client::connect(server.address());
    let thread = second.request(&head("GET", "/thread", &[]));
    assert_ne!(thread.text(), format!("{blocked:?}"));
    let_go.send(()).unwrap();
    assert_eq!(first.read(false).text(), "8");
    assert_eq!(second.request(&head("GET", "/wait/x", &[])).status, 404);
    assert_eq!(second.request(&head("GET", "/checked/3", &[])).text(), "3");

    // A panic there is one of the handler, and the worker goes on.
    let panic = "POST /panics HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n\"x\"";
    assert_eq!(Client::connect(server.address()).request(panic).status, 500);
    assert_eq!(second.request(&head("GET", "/checked/4", &[])).text(), "4");
}

#[test]
fn a_worker_runs_eight_pieces_of_work_at_once_and_more_wait() {
    let (entered, has_entered) = channel();
    let (let_go, leave) = channel();
    let leave = Arc::new(Mutex::new(leave));
    let app = App::new()
        .state(Gate { entered, leave })
        .register(routes![wait])
        .get("/quick", async || "quick");
    let server = Server::with_workers(1, app);
    let ask = |id: u32| {
        let mut client = Client::connect(server.address());
        client.send(head("GET", &format!("/wait/{id}"), &[]));
        client
    };
    let mut clients: Vec<Client> = (0..8).map(ask).collect();
    for _ in &clients {
        has_entered.recv_timeout(PATIENCE).unwrap();
    }
    clients.push(ask(8));
    // The worker has seen the ninth request before it responds to later ones.
    for _ in 0..20 {
        let mut other = Client::connect(server.address());
        assert_eq!(other.request(&head("GET", "/quick", &[])).text(), "quick");
    }
    assert!(has_entered.try_recv().is_err());
    for _ in &clients {
        let_go.send(()).unwrap();
    }
    has_entered.recv_timeout(PATIENCE).unwrap();
    for (id, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read(false).text(), format!("{}", id + 1));
    }
}
