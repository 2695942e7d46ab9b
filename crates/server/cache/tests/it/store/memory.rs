//! The limits of the memory tier, and its eviction.

use std::sync::Arc;

use apus_cache::store::StoreKey;

use super::{get, key, pattern, put, small_store};

#[tokio::test]
async fn never_exceeds_its_capacity() {
    let store = small_store();
    for number in 0..1000 {
        put(
            &store,
            &key(&format!("/{number}")),
            &pattern(0..(number * 37) % 60_000),
        )
        .await;
        assert!(store.statistics().memory_bytes <= 1 << 20);
    }
    let figures = store.statistics();
    assert_eq!(figures.stored, 1000);
    assert_eq!(figures.stored, figures.memory_objects + figures.evictions);
    assert!(figures.memory_bytes > 900_000);
}

#[tokio::test]
async fn a_scan_does_not_evict_popular_objects() {
    let store = small_store();
    let hot = |number| key(&format!("/hot/{number}"));
    for number in 0..20 {
        put(&store, &hot(number), &pattern(0..10_000)).await;
    }
    for scanned in 0..5000 {
        if scanned % 50 == 0 {
            for number in 0..20 {
                assert!(get(&store, &hot(number)).is_some());
            }
        }
        put(
            &store,
            &key(&format!("/scan/{scanned}")),
            &pattern(0..10_000),
        )
        .await;
    }
    assert!((0..20).all(|number| get(&store, &hot(number)).is_some()));
}

#[tokio::test]
async fn sites_do_not_share_objects() {
    let store = small_store();
    let other = StoreKey::new(&Arc::from("other"), key("/a").bytes());
    put(&store, &key("/a"), b"1").await;
    assert!(get(&store, &other).is_none());
    let object = put(&store, &other, b"2").await;
    assert_eq!(object.key(), &other);
    assert_eq!(
        get(&store, &key("/a"))
            .expect("stored")
            .bytes()
            .expect("whole"),
        "1"
    );
}
