//! `Server`: listeners, background tasks, and shutdown.

mod internal_fields;
mod serve;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use apus::layers::Compression;
use apus::sites::{Location, Site, Sites};
use apus::{App, CompressedFactory, Server, ServiceFactory, StartError};
use apus_testkit::wait_until;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[expect(clippy::disallowed_methods, reason = "a test may block")]
fn connect(address: SocketAddr) -> std::io::Result<std::net::TcpStream> {
    std::net::TcpStream::connect(address)
}

fn send_request(mut stream: impl Read + Write) -> String {
    stream.write_all(REQUEST).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn hello() -> Server {
    Server::new(App::new().get("/", async || "hello")).workers(NonZeroUsize::MIN)
}

#[test]
fn one_application_serves_several_listeners() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let running = hello()
        .listen("127.0.0.1:0")
        .unwrap()
        .listen("127.0.0.2:0")
        .unwrap()
        .listen_unix(&socket)
        .start()
        .unwrap();
    let addresses = running.addresses();
    assert_eq!(addresses.len(), 2);
    for address in &addresses {
        assert!(send_request(connect(*address).unwrap()).ends_with("\r\n\r\nhello"));
    }
    assert!(send_request(UnixStream::connect(&socket).unwrap()).ends_with("\r\n\r\nhello"));
    let handle = running.handle();
    std::thread::spawn(move || handle.stop());
    running.wait();
    for address in addresses {
        assert!(connect(address).is_err());
    }
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn one_server_serves_a_second_application_at_an_address_of_its_own() {
    let inside = App::new().get("/", async || "metrics");
    let running = hello()
        .also("127.0.0.2:0", inside)
        .unwrap()
        .listen("127.0.0.1:0")
        .unwrap()
        .start()
        .unwrap();
    let [own, also] = running.addresses()[..] else {
        panic!("{running:?}");
    };
    assert!(send_request(connect(own).unwrap()).ends_with("\r\n\r\nhello"));
    assert!(send_request(connect(also).unwrap()).ends_with("\r\n\r\nmetrics"));
    running.stop();
    assert!(connect(also).is_err());
    // It is checked like the first one, and is not the address of that one.
    let twice = App::new().get("/a", async || "1").get("/a", async || "2");
    let server = hello().listen("127.0.0.1:0").unwrap();
    let error = server.also("127.0.0.1:0", twice).unwrap().start();
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("GET /a already has a handler"),
        "{message}"
    );
    let alone = hello().also("127.0.0.1:0", App::new()).unwrap().start();
    assert!(matches!(alone, Err(StartError::NoAddress)), "{alone:?}");
    assert!(hello().also("no address", App::new()).is_err());
}

#[test]
fn open_requests_are_completed_before_the_stop() {
    let (entered, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (entered_now, go_now) = (entered.clone(), go.clone());
    let app = App::new().get("/", move || {
        let (entered, go) = (entered_now.clone(), go_now.clone());
        async move {
            entered.fetch_add(1, Ordering::SeqCst);
            while go.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            "finished"
        }
    });
    let server = Server::new(app).workers(NonZeroUsize::MIN);
    let running = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let address = running.addresses()[0];
    let client = std::thread::spawn(move || send_request(connect(address).unwrap()));
    wait_until("the request arrives", || {
        entered.load(Ordering::SeqCst) == 1
    });
    let stopping = std::thread::spawn(move || running.stop());
    wait_until("connections are refused", || connect(address).is_err());
    go.store(1, Ordering::SeqCst);
    assert!(client.join().unwrap().ends_with("\r\n\r\nfinished"));
    stopping.join().unwrap();
}

#[test]
fn tasks_run_beside_the_workers_and_end_with_the_server() {
    let (runs, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (runs_now, ended_now) = (runs.clone(), ended.clone());
    let running = hello()
        .listen("127.0.0.1:0")
        .unwrap()
        .every("counting", Duration::from_millis(1), move || {
            let run = runs_now.fetch_add(1, Ordering::SeqCst);
            async move { assert!(run != 1, "one run fails") }
        })
        .task("waiting", async move |mut stopping: apus::Stopping| {
            stopping.wait().await;
            ended_now.fetch_add(1, Ordering::SeqCst);
        })
        .start()
        .unwrap();
    wait_until("the task runs", || runs.load(Ordering::SeqCst) > 3);
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    running.stop();
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    // The task that would run again is gone, with what it counts in.
    assert_eq!(Arc::strong_count(&runs), 1);
}

/// The log of all threads without their own subscriber, from the first call on.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    struct Writer;
    impl Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            log().lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    LOG.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(|| Writer);
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        Mutex::default()
    })
}

fn has_logged(parts: &[&str]) -> bool {
    let log = String::from_utf8_lossy(&log().lock().unwrap()).into_owned();
    log.lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn a_panic_of_a_task_is_logged_and_the_server_continues() {
    log();
    let runs = Arc::new(AtomicUsize::new(0));
    let runs_now = runs.clone();
    let running = hello()
        .listen("127.0.0.1:0")
        .unwrap()
        .task("falls-later", async |_| {
            tokio::task::yield_now().await;
            panic!("later");
        })
        .task("falls-first", |_| -> std::future::Ready<()> {
            panic!("at first")
        })
        .every("falls-by-turns", Duration::from_millis(1), move || {
            assert!(runs_now.fetch_add(1, Ordering::SeqCst) != 0, "first turn");
            std::future::ready(())
        })
        .start()
        .unwrap();
    for parts in [
        ["falls-later", "panic=\"later\"", "continues without it"],
        ["falls-first", "panic=\"at first\"", "continues without it"],
        [
            "falls-by-turns",
            "panic=\"first turn\"",
            "the next run follows",
        ],
    ] {
        wait_until("the panic is logged", || has_logged(&parts));
    }
    wait_until("the task runs again after the failed run", || {
        runs.load(Ordering::SeqCst) > 2
    });
    let address = running.addresses()[0];
    assert!(send_request(connect(address).unwrap()).ends_with("\r\n\r\nhello"));
    running.stop();
}

#[test]
fn invalid_routes_are_rejected_before_the_server_listens() {
    let twice = || App::new().get("/a", async || "1").get("/a", async || "2");
    let mounted = App::new().mount("/in", twice());
    for app in [twice(), mounted] {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap();
        // If the server listened first, the error would be that the address is in use.
        let error = Server::new(app.clone()).listen(address).unwrap().start();
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("GET /a already has a handler"),
            "{message}"
        );
        let places = message.matches("tests/it/server/mod.rs:").count();
        assert!(places >= 2, "{message}");
        let served = app.serve(address).unwrap_err();
        assert!(matches!(served, StartError::Application(_)));
        assert_eq!(served.to_string(), message);
        // A `main` that returns the error prints this text.
        assert!(format!("{served:?}").contains(&message), "{served:?}");
    }
}

#[test]
fn wrappers_of_an_application_return_its_routes_and_errors() {
    let site = |app: App| {
        let app = CompressedFactory::new(Compression::default(), app);
        let location = Location::service("/".parse().unwrap(), "app", app);
        let site = Site::new("site").location(location);
        Sites::new().site(site).unwrap()
    };
    let routes = site(App::new().get("/a", async || "1")).routes();
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].path, "/a");
    let twice = App::new().get("/a", async || "1").get("/a", async || "2");
    let server = Server::new(site(twice)).listen("127.0.0.1:0").unwrap();
    let message = server.start().unwrap_err().to_string();
    assert!(
        message.contains("GET /a already has a handler"),
        "{message}"
    );
}

#[test]
fn an_address_in_use_and_no_address_are_errors() {
    let running = hello().listen("127.0.0.1:0").unwrap().start().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = hello().listen(address).unwrap().start().unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(matches!(error, StartError::Listen(_)));
    let told = format!("{error:?}");
    assert!(
        told.starts_with(&format!("cannot listen on {address}: ")),
        "{told}"
    );
    assert!(!told.contains("Custom"), "{told}");
    assert!(hello().start().is_err());
    assert!(hello().listen("no address").is_err());
    running.stop();
}
