//! Reloads and changes of the group while clients, streams and tunnels are active: no request, stream or
//! tunnel is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::origins::{HoldingClient, Origin, SMALL, go, large};
use super::{Configuration, Front, VERSIONS, curl, websocket};
use crate::harness::{Ends, Home, free_port, wait_until};
use crate::wire::Wire;

/// Sends requests until `stop` is set; their number. Every response has to be complete.
fn keep_requesting(front: &Front, stop: &AtomicBool) -> usize {
    let mut wire = Wire::connect(front.apus.address());
    let mut requests = 0;
    while !stop.load(Ordering::SeqCst) {
        assert!(wire.send("GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let received = wire.read();
        assert_eq!((received.status, received.text()), (200, SMALL.into()));
        requests += 1;
    }
    requests
}

/// Sends uploads until `stop` is set; their number. Every body has to be echoed.
fn keep_uploading(front: &Front, stop: &AtomicBool) -> usize {
    let body = "x".repeat(100_000);
    let request = format!(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut wire = Wire::connect(front.apus.address());
    let mut sent = 0;
    while !stop.load(Ordering::SeqCst) {
        assert!(wire.send(&request));
        let received = wire.read();
        assert_eq!((received.status, received.text() == body), (200, true));
        sent += 1;
    }
    sent
}

/// The gRPC client with a stream that stays open.
fn hold_stream(front: &Front) -> HoldingClient {
    let mut command = go("grpc");
    command.args(["ask", &front.apus.address().to_string(), "streams"]);
    HoldingClient::start(command)
}

#[test]
fn reloads_under_load_lose_nothing() {
    let origins = [Origin::node(), Origin::go()];
    let sockets = Origin::websocket();
    let calls = Origin::grpc();
    let other = format!(
        "[[sites.upstreams]]\nname = \"sockets\"\nnodes = [\"{}\"]\n\
         [[sites.upstreams]]\nname = \"calls\"\nnodes = [\"{}\"]\nprotocol = \"h2\"\n\
         [[sites.locations]]\npath = \"/grpc.testing.TestService/\"\n\
         handler = \"reverse_proxy\"\nupstream = \"calls\"\n\
         [[sites.locations]]\npath = \"= /\"\nhandler = \"reverse_proxy\"\nupstream = \"sockets\"",
        sockets.address(),
        calls.address()
    );
    let port = free_port();
    let of = |nodes: &[Origin]| {
        let configuration = Configuration::of(nodes.iter().map(Origin::address));
        configuration.site(&other).at(port)
    };
    let front = of(&origins).serve();
    let texts = [
        of(&origins).text(),
        of(&origins[..1]).text(),
        of(&origins).group("strategy = \"least_conn\"").text(),
        of(&origins).group("keepalive = { max_idle = 1 }").text(),
    ];
    let stop = AtomicBool::new(false);
    let mut socket = websocket::hold(front.apus.address());
    let mut stream = hold_stream(&front);
    let (front, stop) = (&front, &stop);
    thread::scope(|scope| {
        let clients = [
            scope.spawn(|| keep_requesting(front, stop)),
            scope.spawn(|| keep_requesting(front, stop)),
            scope.spawn(|| keep_uploading(front, stop)),
        ];
        let slow: Vec<_> = VERSIONS
            .map(|version| {
                scope.spawn(move || {
                    let reply = curl(version).args(&["--limit-rate", "8M"]);
                    assert!(reply.get(&front.url("/stream")).body == large());
                })
            })
            .into();
        let over = Ends(stop);
        let mut reloads = 0;
        while reloads < 12 || slow.iter().any(|download| !download.is_finished()) {
            front.home.write("apus.toml", &texts[reloads % texts.len()]);
            front.reload();
            socket.echo("still open");
            stream.echo("still open");
            reloads += 1;
        }
        drop(over);
        for client in clients {
            assert!(client.join().unwrap() > reloads);
        }
    });
    socket.end();
    stream.end();
}

#[test]
fn a_stop_waits_for_responses_in_progress() {
    let origin = Origin::node();
    let mut front = Front::of([origin.address()]);
    let url = front.url("/stream");
    let download = thread::spawn(move || {
        let reply = curl("--http1.1").args(&["--limit-rate", "10M"]).get(&url);
        assert!(reply.body == large());
    });
    wait_until("the download has begun", || {
        front.status()["totals"]["connections"] == 1
    });
    front.home.expect(&["stop"], 0);
    download.join().unwrap();
    assert!(front.apus.wait().success());
}

#[test]
fn nodes_on_unix_sockets_get_requests_like_any_other() {
    let home = Home::new();
    let path = home.path("node.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // The server may run as another user.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut request = [0; 4096];
                while matches!(stream.read(&mut request), Ok(1..)) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix");
                }
            });
        }
    });
    let front = Configuration::of_names([format!("unix:{}", path.display())]).serve_in(home);
    for _ in 0..3 {
        assert_eq!(front.get("/").text(), "unix");
    }
    fs::remove_file(front.home.path("node.sock")).unwrap();
    front.reload();
}
