//! One request of many goes to the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use apus_cache::store::{Awaited, Found, Head, NewObject};
use bytes::Bytes;

use super::{drain, get, key, no_vary, put, response, runtime, small_store, start, ticket};

#[test]
fn of_many_requests_on_many_threads_one_leads_and_all_get_its_answer() {
    let store = small_store();
    for round in 0..50 {
        let key = key(&format!("/{round}"));
        let led = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (store, key, led) = (store.clone(), key.clone(), led.clone());
                thread::spawn(move || {
                    runtime().block_on(async {
                        let object = loop {
                            match store.lookup_or_fill(&key, &mut no_vary) {
                                Found::Hit(object) | Found::Filling(object) => break object,
                                Found::Wait(wait) => {
                                    assert_eq!(wait.outcome().await, Awaited::Again);
                                }
                                Found::Lead(ticket) => {
                                    led.fetch_add(1, Ordering::Relaxed);
                                    tokio::task::yield_now().await;
                                    let mut filler = ticket.start(response(None));
                                    let bytes = Bytes::from_static(b"answer");
                                    filler.append(bytes).await.expect("wanted");
                                    let object = filler.object().clone();
                                    filler.finish();
                                    break object;
                                }
                                Found::Pass => panic!("it can be shared"),
                            }
                        };
                        assert_eq!(drain(object.read(None)).await, (b"answer".to_vec(), None));
                    })
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("answered");
        }
        assert_eq!(led.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn when_the_one_that_leads_gives_up_another_does() {
    let store = small_store();
    let key = key("/a");
    let first = ticket(&store, &key);
    let Found::Wait(wait) = store.lookup_or_fill(&key, &mut no_vary) else {
        panic!("another leads");
    };
    let (outcome, ()) = tokio::join!(wait.outcome(), async { drop(first) });
    assert_eq!(outcome, Awaited::Again);
    let second = ticket(&store, &key);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        Found::Wait(_)
    ));
    drop(second);
}

#[tokio::test]
async fn those_who_wait_for_what_cannot_be_shared_go_by_themselves() {
    let store = small_store();
    let key = key("/a");
    let first = ticket(&store, &key);
    let Found::Wait(wait) = store.lookup_or_fill(&key, &mut no_vary) else {
        panic!("another leads");
    };
    first.pass(Duration::from_secs(60));
    assert_eq!(wait.outcome().await, Awaited::Pass);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        Found::Pass
    ));

    let other = super::key("/b");
    ticket(&store, &other).pass(Duration::ZERO);
    drop(ticket(&store, &other));
}

#[tokio::test]
async fn those_who_want_another_variant_do_not_get_the_one_that_comes() {
    let store = small_store();
    let key = key("/a");
    let mut english = |_: &[u8]| b"en".to_vec();
    let mut german = |_: &[u8]| b"de".to_vec();
    let Found::Lead(ticket) = store.lookup_or_fill(&key, &mut english) else {
        panic!("nobody leads");
    };
    let Found::Wait(wait) = store.lookup_or_fill(&key, &mut german) else {
        panic!("it is not known yet that they differ");
    };
    let variant = |secondary: &[u8]| NewObject {
        vary: b"accept-language".to_vec(),
        secondary: secondary.to_vec(),
        ..response(None)
    };
    let first = ticket.start(variant(b"en"));
    assert_eq!(wait.outcome().await, Awaited::Again);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut english),
        Found::Filling(_)
    ));
    let Found::Lead(ticket) = store.lookup_or_fill(&key, &mut german) else {
        panic!("another variant");
    };
    let second = ticket.start(variant(b"de"));
    first.finish();
    second.finish();
    for (mut language, secondary) in [
        (&mut english as &mut dyn FnMut(&[u8]) -> Vec<u8>, "en"),
        (&mut german, "de"),
    ] {
        let object = store.lookup(&key, &mut language).expect("stored");
        assert_eq!(object.secondary(), secondary.as_bytes());
    }
    assert!(store.lookup(&key, &mut |_| b"fr".to_vec()).is_none());
}

#[tokio::test]
async fn variants_without_end_take_the_place_of_older_ones() {
    let store = small_store();
    let key = key("/a");
    for number in 0..100_u32 {
        let mut secondary = |_: &[u8]| number.to_string().into_bytes();
        let Found::Lead(ticket) = store.lookup_or_fill(&key, &mut secondary) else {
            panic!("not stored yet");
        };
        let new = NewObject {
            vary: b"cookie".to_vec(),
            secondary: secondary(b"cookie"),
            ..response(None)
        };
        ticket.start(new).finish();
    }
    assert_eq!(store.figures().memory_objects, 32);
    assert!(store.lookup(&key, &mut |_| b"99".to_vec()).is_some());
    assert!(store.lookup(&key, &mut |_| b"0".to_vec()).is_none());
}

#[tokio::test]
async fn one_validates_for_all_and_freshens_what_they_find() {
    let store = small_store();
    let key = key("/a");
    let object = put(&store, &key, b"content").await;
    let (epoch, ticket) = (object.epoch(), ticket(&store, &key));
    let Found::Wait(wait) = store.lead(&key, &mut no_vary) else {
        panic!("another leads");
    };
    let head = Head {
        policy: Bytes::from_static(b"fresher"),
        ..Head::default()
    };
    ticket.freshen(&object, head.clone());
    assert_eq!(wait.outcome().await, Awaited::Again);
    assert_ne!(object.epoch(), epoch);
    assert_eq!(*get(&store, &key).expect("stored").head(), head);
}

#[tokio::test]
async fn nobody_joins_what_a_purge_has_met_while_it_was_filled() {
    let store = small_store();
    let key = key("/a");
    let filler = start(&store, &key, response(None));
    super::purge::everything(&store, false).await;
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        Found::Lead(_)
    ));
    filler.finish();
    assert!(get(&store, &key).is_none());
}
