//! Copies of requests for another group of origins: what it gets, and that nobody waits for it.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_http::{Body, Service, ServiceFactory};
use apus_net::client::Address;
use apus_proxy::{Hold, Mirror, Proxy, ProxySettings};
use apus_upstream::plan::{GroupPlan, NodePlan, Place};
use apus_upstream::{GroupStatus, Upstreams};

use crate::forwarding::{Origin, SIMPLE};
use apus_testkit::{Ask, Pieces, Reply, ask, block_on, get};

/// What the origins of copies say, which is no answer for anybody.
const OTHER: &str = "HTTP/1.1 500 Broken\r\nContent-Length: 3\r\nX-Other: yes\r\n\r\nbad";

fn mirror() -> Mirror {
    Mirror {
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
struct Mirrored {
    upstreams: Upstreams,
    service: Rc<dyn Service>,
}

impl Mirrored {
    fn of(origin: SocketAddr, shadow: SocketAddr, mirror: Mirror) -> Self {
        let settings = ProxySettings::default();
        Self::with(origin, shadow, mirror, settings)
    }

    fn with(
        origin: SocketAddr,
        shadow: SocketAddr,
        mirror: Mirror,
        settings: ProxySettings,
    ) -> Self {
        let upstreams = Upstreams::new();
        let plan = |name: &str, at: SocketAddr| {
            let place = Place::Address(Address::Ip(at));
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

    async fn ask(&self, ask: Ask) -> Reply {
        Reply::read(self.service.call(ask.request()).wait().await).await
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

/// Waits until something is so, while copies go on.
async fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn run(test: impl Future<Output = ()>) {
    block_on(test);
}

/// An origin that takes connections and says nothing.
fn frozen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn another_group_gets_a_copy_and_its_answer_goes_nowhere() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        let mirrored = Mirrored::of(origin.address, shadow.address, mirror());
        let reply = mirrored.ask(get("/a?b=c").with("x-one", "1")).await;
        assert_eq!((reply.status, reply.text()), (200, "hello"));
        assert_eq!(reply.field("x-other"), None);
        let copy = eventually("the copy", || shadow.got.try_recv().ok()).await;
        assert_eq!(copy, origin.got.recv().unwrap());
        assert!(copy.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{copy}");
    });
}

#[test]
fn a_group_that_is_frozen_or_gone_delays_nobody_and_is_counted() {
    run(async {
        let origin = Origin::saying(SIMPLE);
        let (_listener, frozen) = frozen();
        let slow = Mirror {
            timeout: Duration::from_millis(100),
            ..mirror()
        };
        let mirrored = Mirrored::of(origin.address, frozen, slow);
        assert_eq!(mirrored.ask(get("/")).await.status, 200);
        assert_eq!(mirrored.failures(), 0);
        eventually("it is given up", || {
            (mirrored.failures() == 1).then_some(())
        })
        .await;

        let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let mirrored = Mirrored::of(origin.address, address, mirror());
        assert_eq!(mirrored.ask(get("/")).await.status, 200);
        eventually("it is counted", || (mirrored.failures() > 0).then_some(())).await;
    });
}

#[test]
fn what_changes_something_is_copied_only_if_that_is_wanted() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        for unsafe_methods in [false, true] {
            let mirror = Mirror {
                unsafe_methods,
                ..mirror()
            };
            let mirrored = Mirrored::of(origin.address, shadow.address, mirror);
            let copy = || eventually("the copy", || shadow.got.try_recv().ok());
            let post = ask("POST", "/").body("content".to_owned());
            assert_eq!(mirrored.ask(post).await.status, 200);
            // Copies overtake each other: the next request is not sent before this one's is there.
            if unsafe_methods {
                let copy = copy().await;
                assert!(
                    copy.starts_with("POST") && copy.ends_with("content"),
                    "{copy}"
                );
            }
            mirrored.ask(get("/last")).await;
            let copy = copy().await;
            assert!(copy.starts_with("GET /last"), "{copy}");
        }
    });
}

#[test]
fn of_some_requests_there_is_a_copy() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        let mirror = Mirror {
            percent: 40,
            ..mirror()
        };
        let mirrored = Mirrored::of(origin.address, shadow.address, mirror);
        for _ in 0..10 {
            mirrored.ask(get("/")).await;
        }
        let all = || (mirrored.shadow().totals.requests == 4).then_some(());
        eventually("four copies", all).await;
        assert_eq!(mirrored.shadow().totals.copies_dropped, 0);
    });
}

#[test]
fn no_more_copies_are_under_way_than_allowed() {
    run(async {
        let origin = Origin::saying(SIMPLE);
        let (_listener, frozen) = frozen();
        let mirror = Mirror {
            max_requests: 2,
            ..mirror()
        };
        let mirrored = Mirrored::of(origin.address, frozen, mirror);
        for _ in 0..5 {
            assert_eq!(mirrored.ask(get("/")).await.status, 200);
        }
        let totals = mirrored.shadow().totals;
        assert_eq!((totals.requests, totals.copies_dropped), (2, 3));
    });
}

fn streamed() -> Ask {
    ask("POST", "/").body(Body::stream(Pieces::of(&["one ", "two ", "three"])))
}

#[test]
fn streamed_content_goes_both_ways() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        let mirror = Mirror {
            unsafe_methods: true,
            ..mirror()
        };
        let mirrored = Mirrored::of(origin.address, shadow.address, mirror);
        assert_eq!(mirrored.ask(streamed()).await.status, 200);
        let copy = eventually("the copy", || shadow.got.try_recv().ok()).await;
        for piece in ["one ", "two ", "three"] {
            assert!(copy.contains(piece), "{copy}");
        }
    });
}

#[test]
fn a_copy_that_is_too_far_behind_is_broken_off_and_counted_unless_requests_are_held() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        let mirror = Mirror {
            unsafe_methods: true,
            memory: 5,
            ..mirror()
        };
        let mirrored = Mirrored::of(origin.address, shadow.address, mirror.clone());
        assert_eq!(mirrored.ask(streamed()).await.status, 200);
        let dropped = || (mirrored.shadow().totals.copies_dropped == 1).then_some(());
        eventually("it is counted", dropped).await;
        assert_eq!(mirrored.failures(), 0);

        let held = ProxySettings {
            hold_request: Some(Hold {
                memory: 1000,
                disk: 0,
                folder: "/var/tmp".into(),
            }),
            ..ProxySettings::default()
        };
        let mirrored = Mirrored::with(origin.address, shadow.address, mirror, held);
        assert_eq!(mirrored.ask(streamed()).await.status, 200);
        let copy = eventually("the copy", || shadow.got.try_recv().ok()).await;
        assert!(copy.ends_with("one two three"), "{copy}");
    });
}

#[test]
fn an_upgrade_is_not_copied() {
    run(async {
        let (origin, shadow) = (Origin::saying(SIMPLE), Origin::saying(OTHER));
        let mirrored = Mirrored::of(origin.address, shadow.address, mirror());
        let upgrade = get("/")
            .with("connection", "upgrade")
            .with("upgrade", "websocket")
            .with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        mirrored.ask(upgrade).await;
        assert_eq!(mirrored.shadow().totals.requests, 0);
        mirrored.ask(get("/")).await;
        let one = || (mirrored.shadow().totals.requests == 1).then_some(());
        eventually("the other is", one).await;
    });
}
