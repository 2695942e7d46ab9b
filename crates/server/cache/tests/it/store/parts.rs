//! Objects that begin with a range, and readers far ahead of a fill.

use apus_cache::store::{
    FillOutcome, NewObject, ObjectFiller, ReadError, Store, StoreSettings, UnwantedBytesError,
};

use super::{drain, get, key, pattern, response, small_store, start, ticket};

fn resumable(length: u64) -> NewObject {
    NewObject {
        resumable: true,
        ..response(Some(length))
    }
}

async fn feed(filler: &mut ObjectFiller, range: std::ops::Range<u64>) {
    let fed = filler.append(pattern(range).into()).await;
    assert_eq!(fed, Ok(()));
}

#[tokio::test]
async fn an_object_may_begin_with_a_range() {
    let store = small_store();
    let mut filler = ticket(&store, &key("/a")).start_part(resumable(1000), 300..400);
    let object = filler.object().clone();
    assert_eq!(filler.range(), 300..400);
    let reader = object.read(Some(350..400));
    feed(&mut filler, 300..400).await;
    assert_eq!(
        filler.append(pattern(400..500).into()).await,
        Err(UnwantedBytesError)
    );
    assert_eq!(filler.finish(), FillOutcome::Partial);
    assert_eq!(drain(reader).await, (pattern(350..400), None));

    let found = get(&store, &key("/a")).expect("stored in parts");
    assert_eq!(found.missing(0..1000), [0..300, 400..1000]);
    for expected in [0..300, 400..1000] {
        let mut gap = found.fill_first(&store, 0..1000, 0).expect("a gap");
        assert_eq!(gap.range(), expected);
        feed(&mut gap, expected).await;
        gap.finish();
    }
    assert_eq!(found.bytes().expect("whole"), &pattern(0..1000));
    assert!(found.fill_first(&store, 0..1000, 0).is_none());
}

#[tokio::test]
async fn an_empty_range_is_not_stored() {
    let store = small_store();
    drop(ticket(&store, &key("/a")).start_part(resumable(1000), 300..400));
    assert!(get(&store, &key("/a")).is_none());
    let mut beyond = ticket(&store, &key("/a")).start_part(resumable(10), 20..30);
    assert_eq!(
        beyond.append(pattern(20..30).into()).await,
        Err(UnwantedBytesError)
    );
    assert_eq!(beyond.finish(), FillOutcome::Nothing);
    assert!(get(&store, &key("/a")).is_none());
}

#[tokio::test]
async fn a_far_reader_gets_a_second_filler() {
    let store = small_store();
    let mut first = start(&store, &key("/a"), resumable(1000));
    let object = first.object().clone();
    feed(&mut first, 0..100).await;
    assert!(object.fill_first(&store, 200..300, 100).is_none(), "near");
    let mut second = object.fill_first(&store, 500..600, 100).expect("far");
    assert_eq!(second.range(), 500..600);
    assert!(object.fill_first(&store, 500..600, 100).is_none());
    // The first one ends where the second begins.
    let reader = object.read(Some(450..700));
    assert_eq!(
        first.append(pattern(100..1000).into()).await,
        Err(UnwantedBytesError)
    );
    drop(first);
    feed(&mut second, 500..600).await;
    assert_eq!(second.finish(), FillOutcome::Partial);
    let gap = Some(ReadError::Gap(600..700));
    assert_eq!(drain(reader).await, (pattern(450..600), gap));
    let mut third = object.fill_first(&store, 0..1000, 100).expect("the rest");
    assert_eq!(third.range(), 600..1000);
    feed(&mut third, 600..1000).await;
    assert_eq!(third.finish(), FillOutcome::Complete);
    assert_eq!(object.bytes().expect("whole"), &pattern(0..1000));
}

#[tokio::test]
async fn an_outdated_object_is_not_completed() {
    let store = small_store();
    let mut filler = start(&store, &key("/a"), resumable(1000));
    feed(&mut filler, 0..300).await;
    drop(filler);
    let object = get(&store, &key("/a")).expect("stored in parts");
    let gap = object.fill_first(&store, 0..1000, 0).expect("a gap");
    let waiting = object.read(Some(200..400));
    gap.discard();
    store.remove(&object);
    let broken = Some(ReadError::BrokenOff);
    assert_eq!(drain(waiting).await, (pattern(200..300), broken));
    assert!(object.fill_first(&store, 0..1000, 0).is_none());
    assert!(get(&store, &key("/a")).is_none());
}

#[tokio::test]
async fn removing_an_object_keeps_its_replacement() {
    let store = small_store();
    let old = super::put(&store, &key("/a"), b"old").await;
    let mut filler = start(&store, &key("/a"), response(None));
    store.remove(&old);
    assert!(get(&store, &key("/a")).is_none());
    filler.append("new".into()).await.expect("wanted");
    filler.finish();
    store.remove(&old);
    let found = get(&store, &key("/a")).expect("the new one");
    assert_eq!(found.bytes().expect("whole"), "new");
}

#[tokio::test]
async fn an_object_too_large_to_store_is_not_filled_from_its_middle() {
    let store = Store::new(StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 1 << 10,
        ..StoreSettings::default()
    });
    let filler = start(&store, &key("/big"), resumable(1 << 20));
    let far = filler.object().fill_first(&store, 500_000..600_000, 10);
    assert!(far.is_none());
}
