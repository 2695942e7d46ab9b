//! `Broadcast`: the same events for many clients.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use apus::sse::{Broadcast, BroadcastSettings, Event, LastEventId, Subscription};
use apus::websocket::SlowReceivers;
use apus::{App, Sse, State};
use futures_core::Stream;

use super::Source;
use crate::harness::{Server, wait_until};

fn serve(workers: usize, broadcast: &Broadcast) -> Server {
    async fn follow(State(broadcast): State<Broadcast>, last: LastEventId) -> Sse {
        Sse::new(broadcast.subscribe(&last))
    }
    let app = App::new().get("/", follow).state(broadcast.clone());
    Server::with_workers(workers, app)
}

/// The data of the available events, and whether the stream has ended.
fn available(subscription: &mut Subscription) -> (Vec<String>, bool) {
    let mut data = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *subscription).poll_next(&mut cx) {
            Poll::Ready(Some(event)) => {
                let text = String::from_utf8(event.as_bytes().to_vec()).unwrap();
                let line = text.lines().find_map(|line| line.strip_prefix("data: "));
                data.push(line.unwrap().to_owned());
            }
            Poll::Ready(None) => return (data, true),
            Poll::Pending => return (data, false),
        }
    }
}

#[test]
fn all_clients_on_all_workers_get_all_events() {
    let broadcast = Broadcast::default();
    let server = serve(3, &broadcast);
    let mut sources: Vec<_> = (0..12)
        .map(|_| Source::open(server.address(), None))
        .collect();
    wait_until("12 clients wait", || broadcast.waiting() == 12);
    for n in 0..100 {
        broadcast.publish(Event::new().event("tick").data(format!("{n}")));
    }
    for source in &mut sources {
        let mut ids = Vec::new();
        for n in 0..100 {
            let (id, data) = source.id_and_data();
            assert_eq!(data, n.to_string());
            ids.push(id);
        }
        ids.dedup();
        assert_eq!(ids.len(), 100);
    }
    drop(sources);
    wait_until("no client waits", || {
        // A disconnected client is noticed when an event is sent.
        broadcast.publish("are you there?");
        broadcast.waiting() == 0
    });
}

#[test]
fn a_client_that_reconnects_gets_missed_events_once() {
    let broadcast = Broadcast::new(BroadcastSettings {
        kept: 10,
        missed: Some(Event::new().event("missed").data("load anew")),
        ..BroadcastSettings::default()
    });
    let server = serve(2, &broadcast);
    let mut source = Source::open(server.address(), None);
    wait_until("one client waits", || broadcast.waiting() == 1);
    broadcast.publish("first");
    let (id, data) = source.id_and_data();
    assert_eq!(data, "first");
    drop(source);
    for n in 0..5 {
        broadcast.publish(n.to_string());
    }
    let mut source = Source::open(server.address(), Some(&id));
    for n in 0..5 {
        assert_eq!(source.id_and_data().1, n.to_string());
    }
    broadcast.publish("live");
    assert_eq!(source.id_and_data().1, "live");
    drop(source);
    // These are more events than are kept.
    for n in 0..20 {
        broadcast.publish(n.to_string());
    }
    let mut source = Source::open(server.address(), Some(&id));
    assert_eq!(source.event(), "event: missed\ndata: load anew\n\n");
    for n in 10..20 {
        assert_eq!(source.id_and_data().1, n.to_string());
    }
    // These ids belong to another process or are not valid.
    let number = id.split_once('-').unwrap().1;
    for unknown in [
        &format!("77-{number}"),
        "77",
        "-",
        "x-y",
        &format!("{id}9999"),
    ] {
        let mut source = Source::open(server.address(), Some(unknown));
        assert_eq!(source.event(), "event: missed\ndata: load anew\n\n");
    }
}

#[test]
fn new_clients_get_the_replayed_events() {
    let broadcast = Broadcast::new(BroadcastSettings {
        kept: 5,
        replay: 2,
        ..BroadcastSettings::default()
    });
    let new = LastEventId::default();
    assert_eq!(available(&mut broadcast.subscribe(&new)), (vec![], false));
    broadcast.publish("a");
    let mut early = broadcast.subscribe(&new);
    assert_eq!(available(&mut early).0, ["a"]);
    broadcast.publish("b");
    broadcast.publish("c");
    assert_eq!(available(&mut early).0, ["b", "c"]);
    assert_eq!(available(&mut broadcast.subscribe(&new)).0, ["b", "c"]);
}

#[test]
fn a_slow_client_misses_events_or_its_stream_ends() {
    for slow in [SlowReceivers::Skip, SlowReceivers::Close] {
        let broadcast = Broadcast::new(BroadcastSettings {
            kept: 3,
            slow,
            missed: Some("missed".into()),
            ..BroadcastSettings::default()
        });
        let mut subscription = broadcast.subscribe(&LastEventId::default());
        for n in 0..3 {
            broadcast.publish(n.to_string());
        }
        assert_eq!(available(&mut subscription).0, ["0", "1", "2"]);
        for n in 3..8 {
            broadcast.publish(n.to_string());
        }
        let (data, has_ended) = available(&mut subscription);
        match slow {
            SlowReceivers::Skip => {
                assert_eq!(data, ["missed", "5", "6", "7"]);
                assert!(!has_ended);
            }
            SlowReceivers::Close => assert!(data.is_empty() && has_ended),
        }
    }
}
