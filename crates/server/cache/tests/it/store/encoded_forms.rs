//! Compressed forms of an object's body.

use super::{get, key, put, small_store};

#[tokio::test]
async fn an_encoded_form_is_made_once_and_counted() {
    let store = small_store();
    let object = put(&store, &key("/a"), b"content").await;
    let before = store.statistics().memory_bytes;
    let ticket = object
        .claim_encoded_form(&store, 1)
        .expect("nobody makes it");
    assert!(object.claim_encoded_form(&store, 1).is_none());
    assert!(
        object.claim_encoded_form(&store, 0).is_some(),
        "another one"
    );
    ticket.keep(vec![b'x'; 1000].into());
    assert_eq!(object.encoded_form(1).map(|form| form.len()), Some(1000));
    assert!(object.encoded_form(0).is_none());
    assert!(object.claim_encoded_form(&store, 1).is_none());
    assert_eq!(store.statistics().memory_bytes, before + 1000);
    let found = get(&store, &key("/a")).expect("stored");
    assert!(found.encoded_form(1).is_some());
    store.remove(&object);
    assert_eq!(store.statistics().memory_bytes, 0);
}

#[tokio::test]
async fn a_dropped_form_is_made_later_and_a_refused_one_never() {
    let store = small_store();
    let object = put(&store, &key("/a"), b"content").await;
    drop(object.claim_encoded_form(&store, 0));
    let ticket = object.claim_encoded_form(&store, 0).expect("the next");
    ticket.refuse();
    assert!(object.claim_encoded_form(&store, 0).is_none());
    // The form is larger than an object in memory may be.
    let ticket = object
        .claim_encoded_form(&store, 2)
        .expect("nobody makes it");
    ticket.keep(vec![b'x'; 1 << 20].into());
    assert!(object.encoded_form(2).is_none());
    assert!(object.claim_encoded_form(&store, 3).is_none());
}
