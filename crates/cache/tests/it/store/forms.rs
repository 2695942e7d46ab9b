//! Other forms of an object's content.

use super::{get, key, put, small_store};

#[tokio::test]
async fn a_form_is_made_once_and_counted() {
    let store = small_store();
    let object = put(&store, &key("/a"), b"content").await;
    let before = store.figures().memory_bytes;
    let ticket = object.make_form(&store, 1).expect("nobody makes it");
    assert!(object.make_form(&store, 1).is_none());
    assert!(object.make_form(&store, 0).is_some(), "another one");
    ticket.keep(vec![b'x'; 1000].into());
    assert_eq!(object.form(1).map(|form| form.len()), Some(1000));
    assert!(object.form(0).is_none());
    assert!(object.make_form(&store, 1).is_none());
    assert_eq!(store.figures().memory_bytes, before + 1000);
    let found = get(&store, &key("/a")).expect("stored");
    assert!(found.form(1).is_some());
    store.remove(&object);
    assert_eq!(store.figures().memory_bytes, 0);
}

#[tokio::test]
async fn what_is_given_up_is_made_by_the_next_and_what_is_refused_by_nobody() {
    let store = small_store();
    let object = put(&store, &key("/a"), b"content").await;
    drop(object.make_form(&store, 0));
    let ticket = object.make_form(&store, 0).expect("the next");
    ticket.refuse();
    assert!(object.make_form(&store, 0).is_none());
    // Larger than an object in memory may be.
    let ticket = object.make_form(&store, 2).expect("nobody makes it");
    ticket.keep(vec![b'x'; 1 << 20].into());
    assert!(object.form(2).is_none());
    assert!(object.make_form(&store, 3).is_none());
}
