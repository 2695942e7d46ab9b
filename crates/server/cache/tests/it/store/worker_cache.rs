//! The cache of a worker.

use std::rc::Rc;

use apus_cache::store::{ObjectMetadata, WorkerCache};

use super::{get, key, put, small_store, ticket};

#[tokio::test]
async fn an_entry_is_valid_until_its_object_changes() {
    let store = small_store();
    let cache = WorkerCache::new(store.clone(), 100, 1 << 20);
    let url = key("/a");
    let insert = |object: &std::sync::Arc<_>, value: &'static str| {
        let epoch = apus_cache::store::Object::epoch(object);
        cache.insert(url.bytes(), object, epoch, Rc::new(value), 10);
    };
    let found = || cache.find(url.bytes(), |_| true).map(|value| *value);

    let first = put(&store, &url, b"1").await;
    insert(&first, "first");
    assert_eq!(found(), Some("first"));
    assert_eq!(cache.find(url.bytes(), |_| false), None);

    ticket(&store, &url).freshen(&first, ObjectMetadata::default());
    assert_eq!(found(), None, "freshened");
    insert(&first, "freshened");
    assert_eq!(found(), Some("freshened"));

    let second = put(&store, &url, b"2").await;
    assert_eq!(found(), None, "replaced");
    insert(&second, "second");
    assert_eq!(found(), Some("second"));

    super::purge::tag(&store, "other", false).await;
    assert_eq!(found(), Some("second"), "that purge was about others");
    super::purge::everything(&store, true).await;
    assert_eq!(found(), None, "purged softly");
    assert!(second.is_purged_softly());
    insert(&second, "stale");
    assert_eq!(found(), Some("stale"));
    super::purge::everything(&store, false).await;
    assert_eq!(found(), None, "purged");
    assert!(get(&store, &url).is_none());
}

#[tokio::test]
async fn stays_within_its_limits_and_keeps_used_entries() {
    let store = small_store();
    let cache = WorkerCache::new(store.clone(), 10, 1000);
    let object = put(&store, &key("/"), b"1").await;
    let insert = |name: &str, bytes| {
        cache.insert(name.as_bytes(), &object, object.epoch(), Rc::new(()), bytes);
    };
    let has = |name: &str| cache.find(name.as_bytes(), |_| true).is_some();
    insert("hot", 10);
    for number in 0..1000 {
        assert!(has("hot"));
        insert(&number.to_string(), 10);
    }
    let kept = (0..1000).filter(|number| has(&number.to_string())).count();
    assert_eq!(kept, 9);
    insert("large", 1000);
    assert!(!has("large"));
    for number in 0..10 {
        insert(&format!("wide-{number}"), 240);
    }
    let kept = (0..10)
        .filter(|number| has(&format!("wide-{number}")))
        .count();
    assert!(kept <= 4, "{kept}");
}

#[tokio::test]
async fn hits_are_reported_to_the_object() {
    let store = small_store();
    let cache = WorkerCache::new(store.clone(), 10, 1000);
    let object = put(&store, &key("/"), b"1").await;
    cache.insert(b"/", &object, object.epoch(), Rc::new(()), 1);
    for _ in 0..100 {
        assert!(cache.find(b"/", |_| true).is_some());
    }
    cache.clear();
    assert_eq!(object.hits(), 100);
}
