//! Requests beyond those that an application serves at once.

use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use apus_codec::fastcgi::Params;
use apus_http::Method;
use apus_upstream::plan::{CheckKind, CheckPlan, GroupPlan};
use apus_upstream::{UpstreamErrorKind, Upstreams, WorkerGroup};
use tokio::task::{JoinHandle, spawn_local};

use super::application::{Application, Behaviour};
use super::{plan, send};
use crate::harness::{eventually, group, read, request, run, status};

/// Sends a request, whose only parameter has this value.
async fn get_numbered(group: &Rc<WorkerGroup>, number: u8) -> Result<(), UpstreamErrorKind> {
    let mut request = request(group, Method::GET);
    let mut params = Params::new();
    params.push("N", [number].as_slice());
    Rc::get_mut(&mut request.template.head).unwrap().params = Some(params);
    let mut response = send(group, request).await.map_err(|error| error.kind)?;
    assert_eq!(read(&mut response).await, "x");
    Ok(())
}

async fn get(group: &Rc<WorkerGroup>) {
    get_numbered(group, 0).await.unwrap();
}

/// Sends requests from this many clients at once, each one after another.
async fn load(group: &Rc<WorkerGroup>, clients: usize, requests: usize) {
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let group = Rc::clone(group);
            spawn_local(async move {
                for _ in 0..requests {
                    get(&group).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

fn spawn_numbered(group: &Rc<WorkerGroup>, number: u8) -> JoinHandle<()> {
    let group = Rc::clone(group);
    spawn_local(async move { get_numbered(&group, number).await.unwrap() })
}

/// Connections that a load may open for probes, although it has as many open as are served.
const PROBES: usize = 10;

#[test]
fn requests_wait_for_connections_that_are_served_instead_of_opening_others() {
    for (name, tcp) in [("limit-unix", false), ("limit-tcp", true)] {
        let behaviour = Behaviour {
            tcp,
            ..Behaviour::default()
        };
        let application = Application::start(name, behaviour);
        run(async {
            let (_upstreams, group) = group(plan(application.node()));
            // The first load opens a connection for each client, and learns how many are served.
            load(&group, 64, 20).await;
            let before = application.connections();
            assert!(tcp || before <= 64 + 5 + PROBES, "{before}");
            for clients in [64, 1, 4, 5, 6, 64] {
                load(&group, clients, 20).await;
            }
            let opened = application.connections() - before;
            assert!(opened <= PROBES, "{name}: {opened}");
            assert_eq!(application.take_most(), 5);
        });
    }
}

#[test]
fn a_slow_application_responds_to_all() {
    let behaviour = Behaviour {
        processes: 3,
        takes: Duration::from_millis(30),
        ..Behaviour::default()
    };
    let application = Application::start("slow", behaviour);
    run(async {
        let (upstreams, group) = group(plan(application.node()));
        load(&group, 64, 1).await;
        let before = application.connections();
        assert!(before <= 64 + 3, "{before}");
        load(&group, 64, 2).await;
        let opened = application.connections() - before;
        assert!(opened <= PROBES, "{opened}");
        assert_eq!(application.take_most(), 3);
        assert!(status(&upstreams).totals.queued > 60);
    });
}

#[test]
fn an_application_that_serves_all_at_once_gets_all_at_once() {
    for (name, tcp) in [("all-unix", false), ("all-tcp", true)] {
        let behaviour = Behaviour {
            processes: 64,
            takes: Duration::from_millis(200),
            tcp,
            ..Behaviour::default()
        };
        let application = Application::start(name, behaviour);
        run(async {
            let (upstreams, group) = group(plan(application.node()));
            for clients in [1, 64, 64, 10, 64] {
                load(&group, clients, 1).await;
                assert_eq!(application.take_most(), clients, "{name}");
            }
            assert_eq!(status(&upstreams).totals.queued, 0);
            assert!(tcp || application.connections() == 64);
        });
    }
}

#[test]
fn sends_more_at_once_when_the_application_serves_more() {
    let application = Application::start("grows", Behaviour::default());
    run(async {
        let (_upstreams, group) = group(plan(application.node()));
        load(&group, 64, 20).await;
        assert_eq!(application.take_most(), 5);
        application.grow(45);
        let began = Instant::now();
        while application.take_most() < 50 {
            load(&group, 64, 20).await;
            assert!(began.elapsed() < Duration::from_secs(15));
        }
    });
}

#[test]
fn probes_while_all_processes_are_busy_for_long() {
    let behaviour = Behaviour {
        processes: 2,
        takes: Duration::from_millis(20),
        ..Behaviour::default()
    };
    let application = Application::start("busy", behaviour);
    run(async {
        let (_upstreams, group) = group(plan(application.node()));
        load(&group, 16, 3).await;
        application.grow(14);
        let waiting: Vec<_> = (0..16)
            .map(|number| spawn_numbered(&group, number))
            .collect();
        for task in waiting {
            task.await.unwrap();
        }
        load(&group, 16, 50).await;
        assert_eq!(application.take_most(), 16);
    });
}

/// How many requests may overtake the request of a probe.
const PROBE_DELAY: u8 = 5;

#[test]
fn requests_are_sent_in_the_order_of_arrival() {
    let behaviour = Behaviour {
        processes: 1,
        takes: Duration::from_millis(3),
        ..Behaviour::default()
    };
    let application = Application::start("order", behaviour);
    run(async {
        let (_upstreams, group) = group(plan(application.node()));
        load(&group, 8, 5).await;
        let before = application.order().len();
        let tasks: Vec<_> = (1..=40)
            .map(|number| spawn_numbered(&group, number))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let order = application.order().split_off(before);
        for (expected, number) in (1_u8..).zip(&order) {
            // The request of a probe is late, and those behind it are early.
            assert!(number.abs_diff(expected) <= PROBE_DELAY, "{order:?}");
        }
        assert_eq!(order.len(), 40);
    });
}

#[test]
fn workers_and_groups_wait_for_the_same_application() {
    let application = Application::start("workers", Behaviour::default());
    let upstreams = Upstreams::new();
    let named = |name: &str| GroupPlan {
        name: name.into(),
        ..plan(application.node())
    };
    upstreams.apply(vec![named("first"), named("second")]);
    let ready = Barrier::new(4);
    let before = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for name in ["first", "second", "first", "second"] {
            let (upstreams, ready, before) = (&upstreams, &ready, &before);
            let application = &application;
            scope.spawn(move || {
                run(async {
                    let group = upstreams.group(name).unwrap();
                    load(&group, 16, 30).await;
                    ready.wait();
                    before.lock().unwrap().get_or_insert_with(|| {
                        application.take_most();
                        application.connections()
                    });
                    ready.wait();
                    load(&group, 16, 30).await;
                });
            });
        }
    });
    let before = before.into_inner().unwrap().unwrap();
    assert!(application.connections() - before <= PROBES);
    assert_eq!(application.take_most(), 5);
}

#[test]
fn a_request_whose_client_is_gone_passes_its_permit_on() {
    let behaviour = Behaviour {
        processes: 1,
        takes: Duration::from_millis(20),
        ..Behaviour::default()
    };
    let application = Application::start("gone", behaviour);
    run(async {
        let (upstreams, group) = group(plan(application.node()));
        load(&group, 4, 4).await;
        for _ in 0..10 {
            let tasks: Vec<_> = (0..8)
                .map(|number| spawn_numbered(&group, number))
                .collect();
            eventually("one is at work, and others wait", || {
                status(&upstreams).waiting > 0
            })
            .await;
            for (number, task) in tasks.into_iter().enumerate() {
                match number % 2 {
                    0 => task.abort(),
                    _ => task.await.unwrap(),
                }
            }
        }
        assert_eq!(status(&upstreams).waiting, 0);
        assert_eq!(status(&upstreams).nodes[0].in_flight, 0);
    });
}

#[test]
fn requests_continue_when_processes_end() {
    let application = Application::start("ends", Behaviour::default());
    run(async {
        let mut plan = plan(application.node());
        plan.retry.tries = 3;
        let (_upstreams, group) = group(plan);
        load(&group, 64, 5).await;
        for _ in 0..10 {
            application.fail(3);
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    let group = Rc::clone(&group);
                    spawn_local(async move { get_numbered(&group, 0).await.is_ok() })
                })
                .collect();
            let mut failed = 0;
            for client in clients {
                failed += usize::from(!client.await.unwrap());
            }
            assert!(failed <= 3, "{failed}");
        }
        application.take_most();
        load(&group, 64, 5).await;
        assert_eq!(application.take_most(), 5);
    });
}

#[test]
fn an_application_that_closes_its_connections_is_not_limited() {
    let behaviour = Behaviour {
        takes: Duration::from_millis(10),
        closes: true,
        ..Behaviour::default()
    };
    let application = Application::start("closes", behaviour);
    run(async {
        let (upstreams, group) = group(plan(application.node()));
        load(&group, 64, 3).await;
        let before = status(&upstreams).totals.queued;
        load(&group, 64, 5).await;
        assert_eq!(status(&upstreams).totals.queued, before);
        assert_eq!(application.take_most(), 5);
    });
}

#[test]
fn a_health_check_gets_a_process_although_all_have_connections() {
    let application = Application::start("check", Behaviour::default());
    run(async {
        let mut plan = plan(application.node());
        plan.active = Some(CheckPlan {
            interval: Duration::from_millis(50),
            timeout: Duration::from_millis(500),
            ..CheckPlan::new(CheckKind::Http {
                target: "/ping".into(),
                host: None,
                statuses: Vec::new(),
                contains: None,
            })
        });
        let (upstreams, group) = group(plan);
        load(&group, 16, 5).await;
        let upstreams = Rc::new(upstreams);
        let checks = Rc::clone(&upstreams);
        spawn_local(async move { checks.run_checks().await });
        for _ in 0..5 {
            load(&group, 16, 60).await;
            let check = status(&upstreams).nodes[0].last_check.clone().unwrap();
            assert_eq!(check.fault, None);
        }
    });
}

#[test]
fn the_queue_of_the_group_limits_how_many_wait_and_for_how_long() {
    let behaviour = Behaviour {
        processes: 1,
        takes: Duration::from_millis(300),
        ..Behaviour::default()
    };
    let application = Application::start("queue", behaviour);
    run(async {
        let mut plan = plan(application.node());
        plan.queue.max_waiting = 2;
        plan.queue.timeout = Duration::from_millis(100);
        let (upstreams, group) = group(plan);
        load(&group, 3, 1).await;
        // One is served, and one is a probe.
        let begun = [0, 1].map(|number| spawn_numbered(&group, number));
        eventually("one is served", || application.busy() == 1).await;
        let late: Vec<_> = (0..2)
            .map(|_| {
                let group = Rc::clone(&group);
                spawn_local(async move { get_numbered(&group, 0).await.unwrap_err() })
            })
            .collect();
        eventually("two wait", || status(&upstreams).waiting == 2).await;
        let full = get_numbered(&group, 0).await.unwrap_err();
        assert!(matches!(full, UpstreamErrorKind::QueueFull), "{full:?}");
        for task in late {
            let late = task.await.unwrap();
            assert!(matches!(late, UpstreamErrorKind::QueueTimedOut), "{late:?}");
        }
        assert_eq!(status(&upstreams).waiting, 0);
        for task in begun {
            task.await.unwrap();
        }
        get(&group).await;
        let totals = status(&upstreams).totals;
        assert_eq!((totals.queue_full, totals.queue_timed_out), (1, 2));
    });
}
