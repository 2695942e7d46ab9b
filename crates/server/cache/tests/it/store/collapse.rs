//! Request collapsing: one of many requests is forwarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use apus_cache::store::{CacheLookup, NewObject, ObjectMetadata, WaitOutcome};
use bytes::Bytes;

use super::{drain, get, key, no_vary, put, response, runtime, small_store, start, ticket};

#[test]
fn one_of_many_concurrent_requests_leads() {
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
                                CacheLookup::Hit(object) | CacheLookup::Filling(object) => {
                                    break object;
                                }
                                CacheLookup::Wait(wait) => {
                                    assert_eq!(wait.outcome().await, WaitOutcome::Again);
                                }
                                CacheLookup::Lead(ticket) => {
                                    led.fetch_add(1, Ordering::Relaxed);
                                    tokio::task::yield_now().await;
                                    let mut filler = ticket.start(response(None));
                                    let bytes = Bytes::from_static(b"response");
                                    filler.append(bytes).await.expect("wanted");
                                    let object = filler.object().clone();
                                    filler.finish();
                                    break object;
                                }
                                CacheLookup::Pass => panic!("it can be shared"),
                            }
                        };
                        assert_eq!(drain(object.read(None)).await, (b"response".to_vec(), None));
                    })
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("got the response");
        }
        assert_eq!(led.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn another_request_leads_if_the_leader_gives_up() {
    let store = small_store();
    let key = key("/a");
    let first = ticket(&store, &key);
    let CacheLookup::Wait(wait) = store.lookup_or_fill(&key, &mut no_vary) else {
        panic!("another leads");
    };
    let (outcome, ()) = tokio::join!(wait.outcome(), async { drop(first) });
    assert_eq!(outcome, WaitOutcome::Again);
    let second = ticket(&store, &key);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        CacheLookup::Wait(_)
    ));
    drop(second);
}

#[tokio::test]
async fn waiting_requests_pass_if_the_response_cannot_be_shared() {
    let store = small_store();
    let key = key("/a");
    let first = ticket(&store, &key);
    let CacheLookup::Wait(wait) = store.lookup_or_fill(&key, &mut no_vary) else {
        panic!("another leads");
    };
    first.pass(Duration::from_secs(60));
    assert_eq!(wait.outcome().await, WaitOutcome::Pass);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        CacheLookup::Pass
    ));

    let other = super::key("/b");
    ticket(&store, &other).pass(Duration::ZERO);
    drop(ticket(&store, &other));
}

#[tokio::test]
async fn requests_for_another_variant_do_not_join() {
    let store = small_store();
    let key = key("/a");
    let mut english = |_: &[u8]| b"en".to_vec();
    let mut german = |_: &[u8]| b"de".to_vec();
    let CacheLookup::Lead(ticket) = store.lookup_or_fill(&key, &mut english) else {
        panic!("nobody leads");
    };
    let CacheLookup::Wait(wait) = store.lookup_or_fill(&key, &mut german) else {
        panic!("it is not known yet that they differ");
    };
    let variant = |secondary: &[u8]| NewObject {
        vary: b"accept-language".to_vec(),
        secondary: secondary.to_vec(),
        ..response(None)
    };
    let first = ticket.start(variant(b"en"));
    assert_eq!(wait.outcome().await, WaitOutcome::Again);
    assert!(matches!(
        store.lookup_or_fill(&key, &mut english),
        CacheLookup::Filling(_)
    ));
    let CacheLookup::Lead(ticket) = store.lookup_or_fill(&key, &mut german) else {
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
async fn surplus_variants_replace_older_ones() {
    let store = small_store();
    let key = key("/a");
    for number in 0..100_u32 {
        let mut secondary = |_: &[u8]| number.to_string().into_bytes();
        let CacheLookup::Lead(ticket) = store.lookup_or_fill(&key, &mut secondary) else {
            panic!("not stored yet");
        };
        let new = NewObject {
            vary: b"cookie".to_vec(),
            secondary: secondary(b"cookie"),
            ..response(None)
        };
        ticket.start(new).finish();
    }
    assert_eq!(store.statistics().memory_objects, 32);
    assert!(store.lookup(&key, &mut |_| b"99".to_vec()).is_some());
    assert!(store.lookup(&key, &mut |_| b"0".to_vec()).is_none());
}

#[tokio::test]
async fn one_request_validates_for_all() {
    let store = small_store();
    let key = key("/a");
    let object = put(&store, &key, b"content").await;
    let (epoch, ticket) = (object.epoch(), ticket(&store, &key));
    let CacheLookup::Wait(wait) = store.lead(&key, &mut no_vary) else {
        panic!("another leads");
    };
    let head = ObjectMetadata {
        policy: Bytes::from_static(b"fresher"),
        ..ObjectMetadata::default()
    };
    ticket.freshen(&object, head.clone());
    assert_eq!(wait.outcome().await, WaitOutcome::Again);
    assert_ne!(object.epoch(), epoch);
    assert_eq!(*get(&store, &key).expect("stored").metadata(), head);
}

#[tokio::test]
async fn no_request_joins_a_fill_that_was_purged() {
    let store = small_store();
    let key = key("/a");
    let filler = start(&store, &key, response(None));
    super::purge::everything(&store, false).await;
    assert!(matches!(
        store.lookup_or_fill(&key, &mut no_vary),
        CacheLookup::Lead(_)
    ));
    filler.finish();
    assert!(get(&store, &key).is_none());
}
