//! Purging.

use std::sync::Arc;

use apus_cache::store::{NewObject, PurgeRequest, PurgeSelector, Store, StoreKey};

use super::{get, key, put, put_as, response, small_store, ticket};

pub(super) async fn everything(store: &Store, soft: bool) {
    purge(store, None, PurgeSelector::All, soft).await;
}

pub(super) async fn tag(store: &Store, tag: &str, soft: bool) {
    purge(store, None, PurgeSelector::Tag(tag.as_bytes().into()), soft).await;
}

async fn purge(store: &Store, site: Option<&str>, selector: PurgeSelector, soft: bool) {
    let site = site.map(Box::from);
    store.purge(&PurgeRequest {
        site,
        selector,
        soft,
    });
}

#[tokio::test]
async fn removes_matching_objects_only() {
    let store = small_store();
    let tagged = |tags: &[&str]| NewObject {
        tags: tags.iter().map(|tag| tag.as_bytes().into()).collect(),
        ..response(None)
    };
    let other = StoreKey::new(&Arc::from("other"), b"/blog/1");
    put_as(&store, &key("/blog/1"), tagged(&["blog", "one"]), b"1").await;
    put_as(&store, &key("/blog/2"), tagged(&["blog", "two"]), b"2").await;
    put_as(&store, &key("/shop/1"), tagged(&["shop"]), b"3").await;
    put_as(&store, &other, tagged(&["blog"]), b"4").await;
    let left = || {
        let keys = [
            key("/blog/1"),
            key("/blog/2"),
            key("/shop/1"),
            other.clone(),
        ];
        keys.iter()
            .map(|key| get(&store, key).is_some())
            .collect::<Vec<_>>()
    };
    purge(
        &store,
        Some("site"),
        PurgeSelector::Tag((*b"two").into()),
        false,
    )
    .await;
    assert_eq!(left(), [true, false, true, true]);
    purge(
        &store,
        None,
        PurgeSelector::Key((*b"/shop/1").into()),
        false,
    )
    .await;
    assert_eq!(left(), [true, false, false, true]);
    purge(
        &store,
        Some("site"),
        PurgeSelector::Prefix((*b"/blog/").into()),
        false,
    )
    .await;
    assert_eq!(left(), [false, false, false, true]);
    purge(&store, Some("other"), PurgeSelector::All, false).await;
    assert_eq!(left(), [false, false, false, false]);
    put(&store, &key("/blog/1"), b"again").await;
    assert_eq!(left(), [true, false, false, false]);
}

#[tokio::test]
async fn a_soft_purge_marks_objects_until_they_are_validated() {
    let store = small_store();
    let object = put(&store, &key("/a"), b"1").await;
    everything(&store, true).await;
    assert!(
        get(&store, &key("/a"))
            .expect("still there")
            .is_purged_softly()
    );
    let requested_before = ticket(&store, &key("/a"));
    everything(&store, true).await;
    requested_before.freshen(&object, Default::default());
    assert!(
        get(&store, &key("/a"))
            .expect("still there")
            .is_purged_softly()
    );
    ticket(&store, &key("/a")).freshen(&object, Default::default());
    assert!(
        !get(&store, &key("/a"))
            .expect("still there")
            .is_purged_softly()
    );
}
