//! The queue of requests that wait for a slot.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use apus_http::Method;
use apus_upstream::plan::{AdminState, GroupPlan};
use apus_upstream::{RequestContext, UpstreamErrorKind, Upstreams};
use tokio::task::spawn_local;

use crate::harness::{
    Gate, OK, Origin, PATIENCE, Reply, eventually, get, group, in_flight, node, plain, request,
    run, send, spawn_get, status,
};

/// Starts an origin that responds after it passed the gate. Returns it with its current and its highest
/// number of concurrent requests.
async fn gated(gate: &Gate) -> (Origin, Rc<Cell<(usize, usize)>>) {
    let counts: Rc<Cell<(usize, usize)>> = Rc::default();
    let origin = Origin::start({
        let (gate, counts) = (gate.clone(), Rc::clone(&counts));
        async move |_| {
            let (now, most) = counts.get();
            counts.set((now + 1, most.max(now + 1)));
            gate.pass().await;
            counts.set((counts.get().0 - 1, counts.get().1));
            Reply::Send(OK.into())
        }
    })
    .await;
    (origin, counts)
}

fn limited(origin: &Origin, max_requests: u32) -> GroupPlan {
    let mut node = origin.node("a");
    node.max_requests = max_requests;
    plain(vec![node])
}

/// A client that resets its requests at once must not fill the queue, nor close idle connections.
#[test]
fn a_request_that_is_dropped_before_it_begins_takes_nothing() {
    run(async {
        let gate = Gate::shut();
        let (origin, counts) = gated(&gate).await;
        let mut plan = limited(&origin, 1);
        plan.queue.max_waiting = 1;
        let (upstreams, group) = group(plan);
        let drop_some = || {
            for _ in 0..10 {
                drop(group.send(request(&group, Method::GET), RequestContext::default()));
            }
        };
        drop_some();
        let busy = spawn_get(&group);
        eventually("the origin works", || counts.get().0 == 1).await;
        drop_some();
        let waiting = spawn_get(&group);
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        gate.let_through(2);
        busy.await.unwrap().unwrap();
        waiting.await.unwrap().unwrap();
        // The connection of these requests is idle now, and stays open.
        drop_some();
        gate.let_through(1);
        get(&group).await;
        assert_eq!(origin.connections(), 1);
        assert_eq!(counts.get().1, 1);
    });
}

#[test]
fn keeps_the_limit_of_a_node_and_the_order_of_requests() {
    run(async {
        let gate = Gate::shut();
        let (origin, counts) = gated(&gate).await;
        let (upstreams, group) = group(limited(&origin, 3));
        let done: Rc<RefCell<Vec<usize>>> = Rc::default();
        let mut tasks = Vec::new();
        for number in 0..30 {
            let (group, done) = (Rc::clone(&group), Rc::clone(&done));
            tasks.push(spawn_local(async move {
                get(&group).await;
                done.borrow_mut().push(number);
            }));
            tokio::task::yield_now().await;
        }
        eventually("all wait", || status(&upstreams).waiting == 27).await;
        for count in 1..=30 {
            gate.let_through(1);
            eventually("one is done", || done.borrow().len() == count).await;
        }
        assert_eq!(counts.get(), (0, 3));
        assert_eq!(*done.borrow(), (0..30).collect::<Vec<_>>());
        let totals = status(&upstreams).totals;
        assert_eq!((totals.queued, status(&upstreams).waiting), (27, 0));
    });
}

#[test]
fn rejects_requests_when_the_queue_is_full() {
    run(async {
        let gate = Gate::shut();
        let (origin, _) = gated(&gate).await;
        let mut plan = limited(&origin, 1);
        plan.queue.max_waiting = 2;
        let (upstreams, group) = group(plan);
        let waiting: Vec<_> = (0..3).map(|_| spawn_get(&group)).collect();
        eventually("two wait", || status(&upstreams).waiting == 2).await;
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::QueueFull));
        gate.let_through(3);
        for task in waiting {
            task.await.unwrap().unwrap();
        }
        assert_eq!(status(&upstreams).totals.queue_full, 1);
    });
}

#[test]
fn rejects_a_request_after_the_queue_timeout() {
    run(async {
        let gate = Gate::shut();
        let (origin, _) = gated(&gate).await;
        let mut plan = limited(&origin, 1);
        plan.queue.timeout = Duration::from_millis(30);
        let (upstreams, group) = group(plan);
        let first = spawn_get(&group);
        eventually("the first is there", || origin.requests() == 1).await;
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::QueueTimedOut));
        assert_eq!(status(&upstreams).waiting, 0);
        gate.let_through(1);
        first.await.unwrap().unwrap();
        gate.let_through(1);
        get(&group).await;
    });
}

#[test]
fn removes_a_request_whose_client_is_gone() {
    run(async {
        let gate = Gate::shut();
        let (origin, _) = gated(&gate).await;
        let (upstreams, group) = group(limited(&origin, 1));
        let first = spawn_get(&group);
        eventually("the first is there", || origin.requests() == 1).await;
        let gone = spawn_get(&group);
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        let next = spawn_get(&group);
        eventually("two wait", || status(&upstreams).waiting == 2).await;
        gone.abort();
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        gate.let_through(2);
        first.await.unwrap().unwrap();
        next.await.unwrap().unwrap();
        assert_eq!(origin.requests(), 2);
    });
}

#[test]
fn gives_a_slot_of_one_worker_to_a_request_of_another() {
    let upstreams = Upstreams::new();
    let (address_of, address) = mpsc::channel();
    let (finish, finished) = mpsc::channel::<()>();
    let first = std::thread::spawn({
        let upstreams = upstreams.clone();
        move || {
            run(async {
                let gate = Gate::shut();
                let (origin, _) = gated(&gate).await;
                upstreams.apply(vec![limited(&origin, 1)]);
                let group = upstreams.group("app").unwrap();
                let request = spawn_get(&group);
                eventually("the first is there", || origin.requests() == 1).await;
                address_of.send(origin.address).unwrap();
                eventually("another worker's waits", || status(&upstreams).waiting == 1).await;
                gate.let_through(2);
                request.await.unwrap().unwrap();
                eventually("the other one got its response", || origin.requests() == 2).await;
                eventually("it is done", || finished.try_recv().is_ok()).await;
            });
        }
    });
    address.recv_timeout(PATIENCE).unwrap();
    run(async {
        let group = upstreams.group("app").unwrap();
        get(&group).await;
        finish.send(()).unwrap();
    });
    first.join().unwrap();
    assert_eq!(in_flight(&upstreams), 0);
}

#[test]
fn keeps_the_limit_over_all_workers_while_clients_come_and_go() {
    const LIMIT: usize = 4;
    let upstreams = Upstreams::new();
    let (address_of, address) = mpsc::channel();
    let (finish, finished) = mpsc::channel::<()>();
    let origin = std::thread::spawn(move || {
        run(async {
            let counts: Rc<Cell<(usize, usize)>> = Rc::default();
            let concurrent = Rc::clone(&counts);
            let origin = Origin::start(async move |_| {
                let (now, most) = concurrent.get();
                concurrent.set((now + 1, most.max(now + 1)));
                tokio::time::sleep(Duration::from_millis(1)).await;
                concurrent.set((concurrent.get().0 - 1, concurrent.get().1));
                Reply::Send(OK.into())
            })
            .await;
            address_of.send(origin.address).unwrap();
            eventually("all is done", || finished.try_recv().is_ok()).await;
            counts.get().1
        })
    });
    let mut node = node("a", address.recv_timeout(PATIENCE).unwrap());
    node.max_requests = LIMIT as u32;
    upstreams.apply(vec![plain(vec![node])]);
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let upstreams = upstreams.clone();
            std::thread::spawn(move || {
                run(async {
                    let group = upstreams.group("app").unwrap();
                    let tasks: Vec<_> = (0..60)
                        .map(|number| {
                            let task = spawn_get(&group);
                            // These still wait in the queue: the origin would not see their end.
                            if number > 10 && number % 3 == worker {
                                task.abort();
                            }
                            task
                        })
                        .collect();
                    for task in tasks {
                        match task.await {
                            Ok(response) => drop(response.unwrap()),
                            Err(gone) => assert!(gone.is_cancelled()),
                        }
                    }
                });
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    finish.send(()).unwrap();
    assert_eq!(origin.join().unwrap(), LIMIT);
    assert_eq!((in_flight(&upstreams), status(&upstreams).waiting), (0, 0));
    // All slots are free again.
    run(async {
        let group = upstreams.group("app").unwrap();
        let failed = send(&group, Method::GET).await.unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::Node { .. }));
    });
}

#[test]
fn makes_waiting_requests_choose_again_when_nodes_change() {
    run(async {
        let gate = Gate::shut();
        let (full, _) = gated(&gate).await;
        let (upstreams, group) = group(limited(&full, 1));
        let first = spawn_get(&group);
        eventually("the first is there", || full.requests() == 1).await;
        let second = spawn_get(&group);
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        let other = Origin::sending(OK).await;
        let mut plan = limited(&full, 1);
        plan.nodes.push(other.node("b"));
        upstreams.apply(vec![plan]);
        let response = second.await.unwrap().unwrap();
        assert_eq!(&*response.node.name, "b");
        gate.let_through(1);
        first.await.unwrap().unwrap();
    });
}

#[test]
fn does_not_wait_for_nodes_that_are_down() {
    run(async {
        let gate = Gate::shut();
        let (origin, _) = gated(&gate).await;
        let (upstreams, group) = group(limited(&origin, 1));
        let first = spawn_get(&group);
        eventually("the first is there", || origin.requests() == 1).await;
        let second = spawn_get(&group);
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        upstreams.set_node("app", "a", AdminState::Down).unwrap();
        let failed = second.await.unwrap().unwrap_err();
        assert!(matches!(failed.kind, UpstreamErrorKind::NoNode));
        gate.let_through(1);
        first.await.unwrap().unwrap();
        upstreams.set_node("app", "a", AdminState::Up).unwrap();
        gate.let_through(1);
        get(&group).await;
    });
}

#[test]
fn uses_another_node_when_one_is_full_and_a_backup_only_when_no_node_is_up() {
    run(async {
        let gate = Gate::shut();
        let (a, _) = gated(&gate).await;
        let (b, _) = gated(&gate).await;
        let backup = Origin::sending(OK).await;
        let mut nodes = vec![a.node("a"), b.node("b"), backup.node("backup")];
        nodes[0].max_requests = 1;
        nodes[1].max_requests = 1;
        nodes[2].backup = true;
        let (upstreams, group) = group(plain(nodes));
        let first = [spawn_get(&group), spawn_get(&group)];
        eventually("each has one", || (a.requests(), b.requests()) == (1, 1)).await;
        let waits = spawn_get(&group);
        eventually("one waits", || status(&upstreams).waiting == 1).await;
        gate.let_through(3);
        for task in first.into_iter().chain([waits]) {
            task.await.unwrap().unwrap();
        }
        assert_eq!(backup.requests(), 0);
        upstreams.set_node("app", "a", AdminState::Down).unwrap();
        upstreams.set_node("app", "b", AdminState::Down).unwrap();
        assert_eq!(&*get(&group).await.node.name, "backup");
    });
}

#[test]
fn releases_a_slot_before_it_waits_for_another() {
    run(async {
        let gate = Gate::shut();
        let (good, _) = gated(&gate).await;
        let dead = node("dead", crate::harness::refusing().await);
        let mut nodes = vec![dead, good.node("good")];
        nodes[0].max_requests = 1;
        nodes[1].max_requests = 1;
        let mut plan = plain(nodes);
        plan.retry.tries = 2;
        let (upstreams, group) = group(plan);
        let tasks: Vec<_> = (0..6).map(|_| spawn_get(&group)).collect();
        eventually("five wait", || status(&upstreams).waiting == 5).await;
        gate.let_through(6);
        for task in tasks {
            assert_eq!(&*task.await.unwrap().unwrap().node.name, "good");
        }
        assert_eq!(in_flight(&upstreams), 0);
    });
}
