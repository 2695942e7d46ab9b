//! The resolution of nodes' names, by a DNS server whose records a test sets (RFC 1035).

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};
use apus_upstream::{UpstreamErrorKind, Upstreams};
use tokio::net::UdpSocket;
use tokio::task::spawn_local;

use crate::harness::{OK, Origin, eventually, get, plain, run, send, status};

const A: u16 = 1;
const SRV: u16 = 33;

/// A record: its type, and its data.
type Record = (u16, Vec<u8>);

fn a(address: [u8; 4]) -> Record {
    (A, address.to_vec())
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> Record {
    let mut data = Vec::new();
    for number in [priority, weight, port] {
        data.extend_from_slice(&number.to_be_bytes());
    }
    for label in target.split('.').chain([""]) {
        data.push(label.len() as u8);
        data.extend_from_slice(label.as_bytes());
    }
    (SRV, data)
}

/// A DNS server on the thread of the test.
struct Dns {
    address: SocketAddr,
    /// The records, by name. The response to another name is SERVFAIL.
    zone: Rc<RefCell<Vec<(String, Record)>>>,
    /// The names of all queries, in order.
    queries: Rc<RefCell<Vec<String>>>,
    ttl: Rc<Cell<u32>>,
}

impl Dns {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dns = Self {
            address: socket.local_addr().unwrap(),
            zone: Rc::default(),
            queries: Rc::default(),
            ttl: Rc::default(),
        };
        let (zone, queries) = (Rc::clone(&dns.zone), Rc::clone(&dns.queries));
        let ttl = Rc::clone(&dns.ttl);
        spawn_local(async move {
            let mut query = [0; 512];
            loop {
                let (len, client) = socket.recv_from(&mut query).await.unwrap();
                let (name, response) = respond(&query[..len], &zone.borrow(), ttl.get());
                queries.borrow_mut().push(name);
                socket.send_to(&response, client).await.unwrap();
            }
        });
        dns
    }

    /// Returns the number of queries.
    fn queries(&self) -> usize {
        self.queries.borrow().len()
    }

    /// Returns the number of queries for a name.
    fn queries_for(&self, name: &str) -> usize {
        let queries = self.queries.borrow();
        queries.iter().filter(|query| *query == name).count()
    }

    fn set_records(&self, records: Vec<(&str, Record)>) {
        let records = records
            .into_iter()
            .map(|(name, record)| (name.into(), record));
        self.zone.replace(records.collect());
    }

    fn plan(&self, nodes: Vec<NodePlan>) -> GroupPlan {
        let mut plan = plain(nodes);
        plan.dns.servers = vec![self.address];
        plan.dns.min_ttl = Duration::from_millis(20);
        plan.dns.timeout = Duration::from_secs(2);
        plan
    }
}

/// Returns the name of a query, and the response to it.
fn respond(query: &[u8], zone: &[(String, Record)], ttl: u32) -> (String, Vec<u8>) {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_ascii_lowercase());
        at = end;
    }
    let query_type = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let name = labels.join(".");
    let known = zone.iter().any(|(known, _)| *known == name);
    let records: Vec<_> = zone
        .iter()
        .filter(|(known, (kind, _))| *known == name && *kind == query_type)
        .collect();
    let mut response = query[..2].to_vec();
    response.extend_from_slice(&[0x81, if known { 0x80 } else { 0x82 }]);
    for count in [1, records.len() as u16, 0, 0] {
        response.extend_from_slice(&count.to_be_bytes());
    }
    response.extend_from_slice(&query[12..at + 5]);
    for (_, (kind, data)) in records {
        response.extend_from_slice(&[0xc0, 12]);
        response.extend_from_slice(&kind.to_be_bytes());
        response.extend_from_slice(&[0, 1]);
        response.extend_from_slice(&ttl.to_be_bytes());
        response.extend_from_slice(&(data.len() as u16).to_be_bytes());
        response.extend_from_slice(data);
    }
    (name, response)
}

fn named(host: &str, port: u16) -> NodePlan {
    let place = NodeTarget::Name {
        host: host.into(),
        port,
    };
    NodePlan::new(host, place)
}

fn addresses(upstreams: &Upstreams) -> Vec<String> {
    let nodes = status(upstreams).nodes;
    nodes.into_iter().map(|node| node.address).collect()
}

/// Runs the resolution of names in a task.
fn spawn_dns(upstreams: &Upstreams) {
    let upstreams = upstreams.clone();
    spawn_local(async move { upstreams.run_dns().await });
}

#[test]
fn follows_a_name_whose_addresses_change() {
    run(async {
        let origin = Origin::sending(OK).await;
        let port = origin.address.port();
        let dns = Dns::start().await;
        dns.set_records(vec![("app.test", a([127, 0, 0, 1]))]);
        let upstreams = Upstreams::new();
        upstreams.apply(vec![dns.plan(vec![named("app.test.", port)])]);
        let group = upstreams.group("app").unwrap();
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::NoNode));
        assert_eq!(status(&upstreams).unresolved, ["app.test.".into()]);

        upstreams.resolve().await;
        assert!(status(&upstreams).unresolved.is_empty());
        assert_eq!(addresses(&upstreams), [format!("127.0.0.1:{port}")]);
        get(&group).await;
        spawn_dns(&upstreams);
        dns.set_records(vec![
            ("app.test", a([127, 0, 0, 3])),
            ("app.test", a([127, 0, 0, 1])),
        ]);
        let both = [format!("127.0.0.1:{port}"), format!("127.0.0.3:{port}")];
        eventually("there are both", || addresses(&upstreams) == both).await;
        // The order of the records does not matter, and the node that stays keeps its state.
        assert_eq!(status(&upstreams).nodes[0].requests, 1);
        dns.set_records(vec![("app.test", a([127, 0, 0, 3]))]);
        eventually("the first is gone", || addresses(&upstreams) == both[1..]).await;
    });
}

#[test]
fn keeps_the_last_addresses_when_a_lookup_fails() {
    run(async {
        let origin = Origin::sending(OK).await;
        let dns = Dns::start().await;
        dns.set_records(vec![("app.test", a([127, 0, 0, 1]))]);
        let upstreams = Upstreams::new();
        upstreams.apply(vec![
            dns.plan(vec![named("app.test.", origin.address.port())]),
        ]);
        spawn_dns(&upstreams);
        let group = upstreams.group("app").unwrap();
        eventually("it is resolved", || addresses(&upstreams).len() == 1).await;
        dns.set_records(Vec::new());
        let before = dns.queries();
        eventually("it is looked up again", || dns.queries() > before + 4).await;
        get(&group).await;
        assert_eq!(addresses(&upstreams).len(), 1);
    });
}

#[test]
fn does_not_look_up_a_name_before_its_ttl_is_over() {
    run(async {
        let dns = Dns::start().await;
        dns.set_records(vec![("app.test", a([127, 0, 0, 1]))]);
        dns.ttl.set(3600);
        let upstreams = Upstreams::new();
        let mut plan = dns.plan(vec![named("app.test.", 80)]);
        plan.dns.ipv6 = false;
        plan.dns.max_ttl = Duration::from_secs(7200);
        upstreams.apply(vec![plan.clone()]);
        spawn_dns(&upstreams);
        eventually("it is resolved", || addresses(&upstreams).len() == 1).await;
        // A change of a known node is no reason for a lookup, but a new name is. Each lookup of a new name
        // begins after any that the change before it caused, so its result proves that there was none.
        for (number, name) in ["second.test", "third.test"].into_iter().enumerate() {
            plan.nodes[0].weight += 1;
            plan.nodes.push(named(&format!("{name}."), 80));
            dns.set_records(vec![(name, a([127, 0, 0, 9]))]);
            upstreams.apply(vec![plan.clone()]);
            let expected = number + 2;
            eventually("it is resolved", || addresses(&upstreams).len() == expected).await;
        }
        assert_eq!(dns.queries_for("app.test"), 1);
        assert_eq!(dns.queries_for("second.test"), 1);
    });
}

#[test]
fn takes_ports_weights_and_backups_from_srv_records() {
    run(async {
        let (a1, a2) = (Origin::sending(OK).await, Origin::sending(OK).await);
        let backup = Origin::sending(OK).await;
        let dns = Dns::start().await;
        let service = "_http._tcp.app.test";
        dns.set_records(vec![
            (service, srv(10, 3, a1.address.port(), "one.test")),
            (service, srv(10, 1, a2.address.port(), "one.test")),
            (service, srv(20, 0, backup.address.port(), "two.test")),
            ("one.test", a([127, 0, 0, 1])),
            ("two.test", a([127, 0, 0, 1])),
        ]);
        let upstreams = Upstreams::new();
        let node = NodePlan::new("app", NodeTarget::Service(format!("{service}.").into()));
        upstreams.apply(vec![dns.plan(vec![node])]);
        upstreams.resolve().await;
        let group = upstreams.group("app").unwrap();
        for _ in 0..8 {
            get(&group).await;
        }
        assert_eq!((a1.requests(), a2.requests()), (6, 2));
        assert_eq!(backup.requests(), 0);
        let nodes = status(&upstreams).nodes;
        assert_eq!(nodes.iter().filter(|node| node.backup).count(), 1);
    });
}

#[test]
fn resolves_names_that_are_addresses() {
    run(async {
        let origin = Origin::sending(OK).await;
        let dns = Dns::start().await;
        let upstreams = Upstreams::new();
        let host = Ipv4Addr::LOCALHOST.to_string();
        upstreams.apply(vec![dns.plan(vec![named(&host, origin.address.port())])]);
        upstreams.resolve().await;
        get(&upstreams.group("app").unwrap()).await;
        assert_eq!(dns.queries(), 0);
    });
}
