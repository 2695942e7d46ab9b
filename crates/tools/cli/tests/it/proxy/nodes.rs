//! Nodes that an operator removes from their group and adds again by `apus upstream`, and the state of nodes
//! after a reload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::origins::Origin;
use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, websocket};
use crate::harness::{free_port, wait_until};

/// A node that responds with its name, and to `/held` only once it may.
fn node(name: &'static str, may_go_on: &Arc<AtomicBool>) -> ScriptedOrigin {
    let may_go_on = may_go_on.clone();
    ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_request() {
            while head.starts_with("GET /held ") && !may_go_on.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(5));
            }
            let length = name.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}"
            ));
        }
    })
}

fn pair(may_go_on: &Arc<AtomicBool>) -> [ScriptedOrigin; 2] {
    ["one", "two"].map(|name| node(name, may_go_on))
}

/// Has `apus upstream` change a node of the one group.
fn change(front: &Front, what: &str, node: &ScriptedOrigin) {
    let node = node.address().to_string();
    front.home.expect(&["upstream", what, "app", &node], 0);
}

/// The names of the nodes that responded to twenty requests.
fn responding_nodes(front: &Front) -> Vec<String> {
    let replies = (0..20).map(|_| {
        let reply = front.get("/");
        assert_eq!(reply.status, 200);
        reply.text()
    });
    let mut names: Vec<_> = replies.collect();
    names.sort();
    names.dedup();
    names
}

/// The nodes of the one group in the output of `apus status`.
fn nodes(front: &Front) -> Vec<serde_json::Value> {
    let status = front.status();
    status["upstreams"][0]["nodes"].as_array().unwrap().clone()
}

#[test]
fn a_node_that_is_down_finishes_its_requests_and_gets_no_new_ones() {
    for what in ["down", "drain"] {
        let may_go_on = Arc::default();
        let origins = pair(&may_go_on);
        let front = Front::of(origins.iter().map(ScriptedOrigin::address));
        assert_eq!(responding_nodes(&front), ["one", "two"]);
        let mut held: Vec<_> = (0..4).map(|_| front.connect()).collect();
        for wire in &mut held {
            wire.send("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        let held_by = |origin: &ScriptedOrigin| origin.received().matches("GET /held ").count();
        wait_until("the nodes have all requests", || {
            origins.iter().map(held_by).sum::<usize>() == 4
        });
        assert!(origins.iter().all(|origin| held_by(origin) > 0));
        change(&front, what, &origins[0]);
        assert_eq!(responding_nodes(&front), ["two"], "{what}");
        // The state of the node survives a reload.
        front.reload();
        assert_eq!(responding_nodes(&front), ["two"], "{what}");
        assert_eq!(nodes(&front)[0]["admin"], what);
        assert!(held.iter().all(|wire| !wire.is_readable()));
        may_go_on.store(true, Ordering::SeqCst);
        let mut names: Vec<_> = held.iter_mut().map(|wire| wire.read().text()).collect();
        names.sort();
        assert_eq!(
            names.iter().filter(|name| *name == "one").count(),
            held_by(&origins[0])
        );
        change(&front, "up", &origins[0]);
        assert_eq!(responding_nodes(&front), ["one", "two"], "{what}");
    }
}

#[test]
fn draining_waits_until_no_request_is_under_way_or_for_the_time_out() {
    for what in ["drain", "down"] {
        let may_go_on = Arc::default();
        let origins = pair(&may_go_on);
        let front = Front::of(origins.iter().map(ScriptedOrigin::address));
        let mut held: Vec<_> = (0..4).map(|_| front.connect()).collect();
        for wire in &mut held {
            wire.send("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        let held_by = |origin: &ScriptedOrigin| origin.received().matches("GET /held ").count();
        wait_until("the nodes have all requests", || {
            origins.iter().map(held_by).sum::<usize>() == 4
        });
        let node = origins[0].address().to_string();
        let wait = |timeout: &str, status| {
            let arguments = [
                "upstream",
                what,
                "app",
                &node,
                "--wait",
                "--timeout",
                timeout,
            ];
            front.home.expect(&arguments, status)
        };
        let (_, errors) = wait("100ms", 1);
        let count = match held_by(&origins[0]) {
            1 => "1 request is".to_owned(),
            many => format!("{many} requests are"),
        };
        assert_eq!(
            errors,
            format!(
                "error: {node}: after 0.1 s, {count} still under way; the node stays as it was set, and `apus upstream up` \
                 brings it back\n"
            )
        );
        assert_eq!(responding_nodes(&front), ["two"], "{what}");
        may_go_on.store(true, Ordering::SeqCst);
        let (out, errors) = wait("1m", 0);
        assert_eq!(out, format!("{node}: no request is under way\n"));
        assert_eq!(errors, "");
        let arguments = ["upstream", what, "app", &node, "--wait", "--json"];
        let (json, _) = front.home.expect(&arguments, 0);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["in_flight"], 0);
        let (_, errors) = front
            .home
            .expect(&["upstream", what, "app", "10.0.0.1:1", "--wait"], 1);
        let other = origins[1].address();
        assert!(
            errors.contains(&format!(
                "has no node `10.0.0.1:1`; expected one of {node}, {other}"
            )),
            "{errors}"
        );
    }
}

#[test]
fn without_any_node_that_is_up_the_status_is_503() {
    let origins = pair(&Arc::default());
    let front = Front::of(origins.iter().map(ScriptedOrigin::address));
    for origin in &origins {
        change(&front, "down", origin);
    }
    let reply = front.get("/");
    assert_eq!(reply.status, 503);
    assert!(reply.field("retry-after").is_some());
    change(&front, "up", &origins[1]);
    assert_eq!(responding_nodes(&front), ["two"]);
    // An unknown name is reported together with the known ones.
    let (_, errors) = front.home.expect(&["upstream", "down", "web", "a"], 1);
    assert!(
        errors.contains("`web`") && errors.contains("/app"),
        "{errors}"
    );
    let (_, errors) = front.home.expect(&["upstream", "down", "app", "a:1"], 1);
    assert!(errors.contains("`a:1`"), "{errors}");
}

#[test]
fn sticky_clients_stay_with_a_drained_node_and_no_others_get_it() {
    let origins = pair(&Arc::default());
    let front = Configuration::of(origins.iter().map(ScriptedOrigin::address))
        .group("sticky = true")
        .serve();
    let mut cookie = String::new();
    wait_until("a client has the cookie of the first node", || {
        let reply = front.get("/");
        let line = reply.field("set-cookie").unwrap();
        cookie = line.split(';').next().unwrap().to_owned();
        reply.text() == "one"
    });
    let stays = || {
        let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n");
        front.request(request).text()
    };
    change(&front, "drain", &origins[0]);
    assert_eq!(responding_nodes(&front), ["two"]);
    assert_eq!([stays(), stays()], ["one", "one"]);
    change(&front, "down", &origins[0]);
    assert_eq!([stays(), stays()], ["two", "two"]);
}

#[test]
fn a_tunnel_stays_open_to_a_node_that_is_taken_out() {
    let origin = Origin::websocket();
    let front = Front::of([origin.address()]);
    let mut client = websocket::hold(front.apus.address());
    let node = origin.address().to_string();
    for what in ["drain", "down"] {
        front.home.expect(&["upstream", what, "app", &node], 0);
        client.echo("still open");
    }
    assert_eq!(front.get("/").status, 503);
    front.reload();
    client.echo("still open");
    client.end();
}

#[test]
fn a_reload_that_cannot_bind_changes_nothing() {
    let origins = [
        ScriptedOrigin::responding(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\none",
        ),
        node("two", &Arc::default()),
    ];
    // The third node is not reachable.
    let third = ScriptedOrigin::responding("");
    let nodes_of = || {
        let nodes = origins.iter().chain([&third]).map(ScriptedOrigin::address);
        Configuration::of(nodes).location("cache = true")
    };
    let port = free_port();
    let text = nodes_of().at(port).text();
    let front = nodes_of().at(port).serve();
    change(&front, "down", &origins[1]);
    drop(third);
    let mut number = 0;
    wait_until("the third node is out", || {
        number += 1;
        assert_eq!(front.get(&format!("/{number}")).status, 200);
        nodes(&front)[2]["state"]
            .as_str()
            .unwrap()
            .starts_with("out")
    });
    assert_eq!(front.get("/kept").text(), "one");
    let received = origins[0].received();
    let mut wire = front.connect();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = taken.local_addr().unwrap();
    let listen = format!("listen = [\"127.0.0.1:{port}\"");
    let both = format!(
        "listen = [\"127.0.0.1:{}\", \"{taken_address}\"",
        free_port()
    );
    assert!(text.contains(&listen));
    front.home.write("apus.toml", text.replace(&listen, &both));
    let (_, errors) = front.home.expect(&["reload"], 1);
    assert!(errors.contains(&taken_address.to_string()), "{errors}");
    for _ in 0..5 {
        wire.send("GET /kept HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply = wire.read();
        assert!(reply.field("cache-status").unwrap().contains("; hit"));
        assert_eq!(front.get("/kept").text(), "one");
    }
    assert_eq!(origins[0].received(), received, "the cache was lost");
    let known = nodes(&front);
    assert_eq!(known[1]["admin"], "down");
    assert!(known[2]["state"].as_str().unwrap().starts_with("out"));
    // Once the address is free, the same configuration is loaded.
    drop(taken);
    front.reload();
    let mut wire = crate::wire::Wire::connect(taken_address);
    wire.send("GET /kept HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(wire.read().field("cache-status").unwrap().contains("; hit"));
    assert_eq!(nodes(&front)[1]["admin"], "down");
}
