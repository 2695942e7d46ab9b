//! Mirroring of requests to another group of origins.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use apus_client::Address;
use apus_http::{Body, Service, ServiceFactory};
use apus_proxy::{HoldSettings, MirrorSettings, Proxy, ProxySettings};
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};
use apus_upstream::{GroupStatus, Upstreams};

use crate::forwarding::{Origin, SIMPLE};
use apus_testkit::{PieceStream, Reply, RequestBuilder, ask, block_on, eventually, free_port, get};

/// The response of the mirror, which no client gets.
const OTHER: &str = "HTTP/1.1 500 Broken\r\nContent-Length: 3\r\nX-Other: yes\r\n\r\nbad";

fn mirror() -> MirrorSettings {
    MirrorSettings {
        group: "shadow".into(),
        scheme: "http",
        percent: 100,
        unsafe_methods: false,
        max_requests: 10,
        memory: 1000,
        timeout: Duration::from_secs(60),
    }
}

/// A proxy whose requests are copied to another origin.
struct MirroredProxy {
    upstreams: Upstreams,
    service: Rc<dyn Service>,
}

impl MirroredProxy {
    fn of(origin: SocketAddr, shadow: SocketAddr, mirror: MirrorSettings) -> Self {
        let settings = ProxySettings::default();
        Self::with(origin, shadow, mirror, settings)
    }

    fn with(
        origin: SocketAddr,
        shadow: SocketAddr,
        mirror: MirrorSettings,
        settings: ProxySettings,
    ) -> Self {
        let upstreams = Upstreams::new();
        let plan = |name: &str, at: SocketAddr| {
            let place = NodeTarget::Address(Address::Ip(at));
            GroupPlan::new(name, vec![NodePlan::new(at.to_string(), place)])
        };
        upstreams.apply(vec![plan("app", origin), plan("shadow", shadow)]);
        let settings = ProxySettings {
            mirror: Some(mirror),
            ..settings
        };
        let service = Proxy::new(&upstreams, "app", settings).service();
        Self { upstreams, service }
    }

    async fn send(&self, request: RequestBuilder) -> Reply {
        Reply::read(self.service.call(request.request()).wait().await).await
    }

    fn shadow(&self) -> GroupStatus {
        let mut status = self.upstreams.status();
        status.retain(|group| &*group.name == "shadow");
        status.remove(0)
    }

    fn failures(&self) -> u64 {
        let counted = self.shadow().nodes[0].failures;
        counted.iter().map(|(_, count)| count).sum()
    }
}

fn run(test: impl Future<Output = ()>) {
    block_on(test);
}

/// Returns an origin that accepts connections and sends nothing.
fn frozen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn sends_a_copy_and_discards_its_response() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror());
        let reply = mirrored.send(get("/a?b=c").with("x-one", "1")).await;
        assert_eq!((reply.status, reply.text()), (200, "hello"));
        assert_eq!(reply.field("x-other"), None);
        let copy = eventually("the copy", || shadow.received.try_recv().ok()).await;
        assert_eq!(copy, origin.received.recv().unwrap());
        assert!(copy.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{copy}");
    });
}

#[test]
fn does_not_wait_for_a_mirror_that_is_frozen_or_gone_and_counts_its_failures() {
    run(async {
        let origin = Origin::sending(SIMPLE);
        let (_listener, frozen) = frozen();
        let slow = MirrorSettings {
            timeout: Duration::from_millis(100),
            ..mirror()
        };
        let mirrored = MirroredProxy::of(origin.address, frozen, slow);
        assert_eq!(mirrored.send(get("/")).await.status, 200);
        assert_eq!(mirrored.failures(), 0);
        eventually("the failure", || mirrored.failures() == 1).await;

        let address = ([127, 0, 0, 1], free_port()).into();
        let mirrored = MirroredProxy::of(origin.address, address, mirror());
        assert_eq!(mirrored.send(get("/")).await.status, 200);
        eventually("the failure", || mirrored.failures() > 0).await;
    });
}

#[test]
fn copies_unsafe_methods_only_if_configured() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        for unsafe_methods in [false, true] {
            let mirror = MirrorSettings {
                unsafe_methods,
                ..mirror()
            };
            let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror);
            let copy = || eventually("the copy", || shadow.received.try_recv().ok());
            let post = ask("POST", "/").body("content".to_owned());
            assert_eq!(mirrored.send(post).await.status, 200);
            // Copies may overtake each other, so this one has to arrive before the next request.
            if unsafe_methods {
                let copy = copy().await;
                assert!(
                    copy.starts_with("POST") && copy.ends_with("content"),
                    "{copy}"
                );
            }
            mirrored.send(get("/last")).await;
            let copy = copy().await;
            assert!(copy.starts_with("GET /last"), "{copy}");
        }
    });
}

/// A copy was lost if it was sent over an idle connection that the mirror closed at that moment.
#[test]
fn sends_a_copy_again_whose_idle_connection_was_closed() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::closing_late(OTHER));
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror());
        for path in ["/first", "/second"] {
            mirrored.send(get(path)).await;
            let copy = eventually("the copy", || shadow.received.try_recv().ok()).await;
            assert!(copy.starts_with(&format!("GET {path} ")), "{copy}");
            let is_idle = || mirrored.shadow().nodes[0].in_flight == 0;
            eventually("the idle connection", is_idle).await;
        }
        assert_eq!(mirrored.shadow().totals.reconnects, 1);
    });
}

#[test]
fn copies_a_percentage_of_requests() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        let mirror = MirrorSettings {
            percent: 40,
            ..mirror()
        };
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror);
        for _ in 0..10 {
            mirrored.send(get("/")).await;
        }
        let all = || mirrored.shadow().totals.requests == 4;
        eventually("four copies", all).await;
        assert_eq!(mirrored.shadow().totals.copies_dropped, 0);
    });
}

#[test]
fn keeps_the_limit_of_copies_in_flight() {
    run(async {
        let origin = Origin::sending(SIMPLE);
        let (_listener, frozen) = frozen();
        let mirror = MirrorSettings {
            max_requests: 2,
            ..mirror()
        };
        let mirrored = MirroredProxy::of(origin.address, frozen, mirror);
        for _ in 0..5 {
            assert_eq!(mirrored.send(get("/")).await.status, 200);
        }
        let totals = mirrored.shadow().totals;
        assert_eq!((totals.requests, totals.copies_dropped), (2, 3));
    });
}

fn streamed() -> RequestBuilder {
    ask("POST", "/").body(Body::stream(PieceStream::of(&["one ", "two ", "three"])))
}

#[test]
fn copies_a_streamed_body() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        let mirror = MirrorSettings {
            unsafe_methods: true,
            ..mirror()
        };
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror);
        assert_eq!(mirrored.send(streamed()).await.status, 200);
        let copy = eventually("the copy", || shadow.received.try_recv().ok()).await;
        for piece in ["one ", "two ", "three"] {
            assert!(copy.contains(piece), "{copy}");
        }
    });
}

#[test]
fn aborts_and_counts_a_copy_that_is_too_far_behind_unless_the_request_is_buffered() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        let mirror = MirrorSettings {
            unsafe_methods: true,
            memory: 5,
            ..mirror()
        };
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror.clone());
        assert_eq!(mirrored.send(streamed()).await.status, 200);
        let dropped = || mirrored.shadow().totals.copies_dropped == 1;
        eventually("it is counted", dropped).await;
        assert_eq!(mirrored.failures(), 0);

        let held = ProxySettings {
            hold_request: Some(HoldSettings {
                memory: 1000,
                disk: 0,
                folder: "/var/tmp".into(),
            }),
            ..ProxySettings::default()
        };
        let mirrored = MirroredProxy::with(origin.address, shadow.address, mirror, held);
        assert_eq!(mirrored.send(streamed()).await.status, 200);
        let copy = eventually("the copy", || shadow.received.try_recv().ok()).await;
        assert!(copy.ends_with("one two three"), "{copy}");
    });
}

#[test]
fn does_not_copy_an_upgrade() {
    run(async {
        let (origin, shadow) = (Origin::sending(SIMPLE), Origin::sending(OTHER));
        let mirrored = MirroredProxy::of(origin.address, shadow.address, mirror());
        let upgrade = get("/")
            .with("connection", "upgrade")
            .with("upgrade", "websocket")
            .with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        mirrored.send(upgrade).await;
        assert_eq!(mirrored.shadow().totals.requests, 0);
        mirrored.send(get("/")).await;
        let one = || mirrored.shadow().totals.requests == 1;
        eventually("the other is", one).await;
    });
}
