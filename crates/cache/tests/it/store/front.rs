//! What a worker keeps for itself.

use std::rc::Rc;

use apus_cache::store::{Head, WorkerFront};

use super::{get, key, put, small_store, ticket};

#[tokio::test]
async fn an_entry_is_good_until_something_happens_to_its_object() {
    let store = small_store();
    let front = WorkerFront::new(store.clone(), 100, 1 << 20);
    let url = key("/a");
    let keep = |object: &std::sync::Arc<_>, value: &'static str| {
        let epoch = apus_cache::store::Object::epoch(object);
        front.keep(url.bytes(), object, epoch, Rc::new(value), 10);
    };
    let found = || front.find(url.bytes(), |_| true).map(|value| *value);

    let first = put(&store, &url, b"1").await;
    keep(&first, "first");
    assert_eq!(found(), Some("first"));
    assert_eq!(front.find(url.bytes(), |_| false), None);

    ticket(&store, &url).freshen(&first, Head::default());
    assert_eq!(found(), None, "freshened");
    keep(&first, "freshened");
    assert_eq!(found(), Some("freshened"));

    let second = put(&store, &url, b"2").await;
    assert_eq!(found(), None, "replaced");
    keep(&second, "second");
    assert_eq!(found(), Some("second"));

    super::purge::tag(&store, "other", false).await;
    assert_eq!(found(), Some("second"), "that purge was about others");
    super::purge::everything(&store, true).await;
    assert_eq!(found(), None, "purged softly");
    assert!(second.is_purged_softly());
    keep(&second, "stale");
    assert_eq!(found(), Some("stale"));
    super::purge::everything(&store, false).await;
    assert_eq!(found(), None, "purged");
    assert!(get(&store, &url).is_none());
}

#[tokio::test]
async fn it_stays_within_its_bounds_and_keeps_what_is_used() {
    let store = small_store();
    let front = WorkerFront::new(store.clone(), 10, 1000);
    let object = put(&store, &key("/"), b"1").await;
    let keep = |name: &str, bytes| {
        front.keep(name.as_bytes(), &object, object.epoch(), Rc::new(()), bytes);
    };
    let has = |name: &str| front.find(name.as_bytes(), |_| true).is_some();
    keep("hot", 10);
    for number in 0..1000 {
        assert!(has("hot"));
        keep(&number.to_string(), 10);
    }
    let kept = (0..1000).filter(|number| has(&number.to_string())).count();
    assert_eq!(kept, 9);
    keep("large", 1000);
    assert!(!has("large"));
    for number in 0..10 {
        keep(&format!("wide-{number}"), 240);
    }
    let kept = (0..10)
        .filter(|number| has(&format!("wide-{number}")))
        .count();
    assert!(kept <= 4, "{kept}");
}

#[tokio::test]
async fn its_hits_are_counted_by_the_object() {
    let store = small_store();
    let front = WorkerFront::new(store.clone(), 10, 1000);
    let object = put(&store, &key("/"), b"1").await;
    front.keep(b"/", &object, object.epoch(), Rc::new(()), 1);
    for _ in 0..100 {
        assert!(front.find(b"/", |_| true).is_some());
    }
    front.clear();
    assert_eq!(object.hits(), 100);
}
