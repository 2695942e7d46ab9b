//! Filling an object while others read it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use apus_cache::store::{
    CacheLookup, FillOutcome, NewObject, ReadError, Store, StoreSettings, UnwantedBytesError,
};
use apus_http::Body;
use bytes::Bytes;

use super::{drain, get, key, no_vary, pattern, put, response, runtime, small_store, start};

#[tokio::test]
async fn a_stored_body_is_one_piece() {
    let store = small_store();
    let mut filler = start(&store, &key("/a"), response(None));
    for piece in pattern(0..20_000).chunks(777) {
        filler
            .append(Bytes::copy_from_slice(piece))
            .await
            .expect("wanted");
    }
    assert_eq!(filler.finish(), FillOutcome::Complete);
    let object = get(&store, &key("/a")).expect("stored");
    // Short ranges of a long body are sent with the header section.
    let body = object.body(None);
    assert!(matches!(body, Body::Sealed(_)), "{body:?}");
    assert_eq!(*body.in_memory().unwrap(), pattern(0..20_000));
    let body = object.body(Some(5..10));
    assert!(matches!(body, Body::Bytes(_)), "{body:?}");
    assert_eq!(*body.in_memory().unwrap(), pattern(5..10));
    let body = object.body(Some(1000..18_000));
    assert!(matches!(body, Body::Sealed(_)), "{body:?}");
    assert_eq!(*body.in_memory().unwrap(), pattern(1000..18_000));
    assert!(object.body(Some(20_000..30_000)).is_empty());
}

#[tokio::test]
async fn a_short_body_needs_no_descriptor() {
    let store = small_store();
    put(&store, &key("/a"), &pattern(0..5_000)).await;
    let object = get(&store, &key("/a")).expect("stored");
    let body = object.body(None);
    assert!(matches!(body, Body::Bytes(_)), "{body:?}");
    assert_eq!(*body.in_memory().unwrap(), pattern(0..5_000));
}

#[test]
fn readers_on_other_threads_follow_a_fill() {
    let store = small_store();
    let runtime = runtime();
    let mut filler = start(&store, &key("/a"), response(Some(50_000)));
    let (turn, turns) = mpsc::channel();
    let readers: Vec<_> = (0..4)
        .map(|number| {
            let CacheLookup::Filling(object) = store.lookup_or_fill(&key("/a"), &mut no_vary)
            else {
                panic!("cannot be read along");
            };
            let turn = turn.clone();
            thread::spawn(move || {
                super::runtime().block_on(async {
                    let mut reader = object.read(Some(number * 10_000..50_000));
                    let first = super::bytes_of(reader.piece().await.expect("more").expect("read"));
                    turn.send(number).expect("listening");
                    let (rest, error) = drain(reader).await;
                    assert_eq!(error, None);
                    assert_eq!([first, rest].concat(), pattern(number * 10_000..50_000));
                })
            })
        })
        .collect();
    for piece in 0..50 {
        let bytes = pattern(piece * 1000..(piece + 1) * 1000);
        runtime
            .block_on(filler.append(bytes.into()))
            .expect("wanted");
        // Each reader has its first bytes before more arrive.
        if piece % 10 == 0 && piece < 40 {
            assert_eq!(turns.recv().expect("read"), piece / 10);
        }
    }
    assert_eq!(filler.finish(), FillOutcome::Complete);
    for reader in readers {
        reader.join().expect("read");
    }
}

#[tokio::test]
async fn an_interrupted_fill_is_an_error_and_is_not_stored() {
    let store = small_store();
    let mut filler = start(&store, &key("/a"), response(Some(100)));
    let reader = filler.object().read(None);
    filler.append(pattern(0..50).into()).await.expect("wanted");
    drop(filler);
    assert_eq!(
        drain(reader).await,
        (pattern(0..50), Some(ReadError::BrokenOff))
    );
    assert!(get(&store, &key("/a")).is_none());
    assert_eq!(store.statistics().memory_objects, 0);
}

#[tokio::test]
async fn a_regular_end_before_the_declared_length_is_incomplete() {
    let store = small_store();
    let mut filler = start(&store, &key("/a"), response(Some(100)));
    filler.append(pattern(0..99).into()).await.expect("wanted");
    assert_eq!(filler.finish(), FillOutcome::Nothing);
    assert!(get(&store, &key("/a")).is_none());
}

#[tokio::test]
async fn bytes_beyond_the_declared_length_are_dropped() {
    let store = small_store();
    let mut filler = start(&store, &key("/a"), response(Some(100)));
    assert_eq!(
        filler.append(pattern(0..101).into()).await,
        Err(UnwantedBytesError)
    );
    filler.finish();
    let object = get(&store, &key("/a")).expect("stored");
    assert_eq!(object.bytes().expect("whole"), &pattern(0..100));
}

#[tokio::test]
async fn an_interrupted_resumable_object_stays_and_its_gaps_are_filled() {
    let store = small_store();
    let new = NewObject {
        resumable: true,
        ..response(Some(1000))
    };
    let mut filler = start(&store, &key("/a"), new);
    filler.append(pattern(0..300).into()).await.expect("wanted");
    drop(filler);
    let object = get(&store, &key("/a")).expect("stored in parts");
    assert!(!object.is_complete());
    assert_eq!(object.missing(100..400).first(), Some(&(300..400)));
    assert_eq!(
        drain(object.read(Some(100..300))).await,
        (pattern(100..300), None)
    );
    let gap = Some(ReadError::Gap(300..400));
    assert_eq!(
        drain(object.read(Some(250..400))).await,
        (pattern(250..300), gap)
    );

    let mut middle = object.fill(&store, 500..600);
    assert_eq!(middle.len(), 1);
    let mut around = object.fill(&store, 200..2000);
    let ranges: Vec<_> = around.iter().map(|filler| filler.range()).collect();
    assert_eq!(ranges, [300..500, 600..1000]);
    assert!(object.fill(&store, 0..1000).is_empty(), "all is claimed");

    // A reader waits for its own bytes only.
    let mut reader = object.read(Some(550..650));
    middle[0]
        .append(pattern(500..600).into())
        .await
        .expect("wanted");
    let piece = reader.piece().await.expect("more").expect("read");
    assert_eq!(super::bytes_of(piece), pattern(550..600));
    around[1]
        .append(pattern(600..1000).into())
        .await
        .expect("wanted");
    assert_eq!(drain(reader).await, (pattern(600..650), None));

    assert_eq!(middle.remove(0).finish(), FillOutcome::Ongoing);
    assert_eq!(around.remove(1).finish(), FillOutcome::Ongoing);
    // The filler of a gap breaks off: another one continues.
    let mut broken = around.remove(0);
    broken
        .append(pattern(300..350).into())
        .await
        .expect("wanted");
    let reader = object.read(Some(300..500));
    drop(broken);
    assert_eq!(
        drain(reader).await,
        (pattern(300..350), Some(ReadError::Gap(350..500)))
    );
    let mut last = object.fill(&store, 0..1000);
    assert_eq!(last[0].range(), 350..500);
    last[0]
        .append(pattern(350..500).into())
        .await
        .expect("wanted");
    assert_eq!(last.remove(0).finish(), FillOutcome::Complete);
    assert_eq!(object.bytes().expect("whole"), &pattern(0..1000));
    assert!(object.is_complete());
}

#[tokio::test]
async fn a_fill_ends_with_its_last_reader_unless_it_continues_without() {
    let store = small_store();
    for fill_without_readers in [false, true] {
        let new = NewObject {
            fill_without_readers,
            ..response(None)
        };
        let mut filler = start(&store, &key("/a"), new);
        let readers = [filler.object().read(None), filler.object().read(None)];
        filler.append(pattern(0..10).into()).await.expect("wanted");
        let [one, other] = readers;
        drop(one);
        filler
            .append(pattern(10..20).into())
            .await
            .expect("another reads");
        drop(other);
        let wanted = filler.append(pattern(20..30).into()).await.is_ok();
        assert_eq!(wanted, fill_without_readers);
        if !fill_without_readers {
            filler.unwanted().await;
        }
    }
}

#[tokio::test]
async fn an_unstorable_object_is_buffered_only_for_its_readers() {
    let store = Store::new(StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 64 << 10,
        window_bytes: 100_000,
        ..StoreSettings::default()
    });
    for length in [None, Some(10_000_000)] {
        let mut filler = start(&store, &key("/big"), response(length));
        let object = filler.object().clone();
        let reader = object.read(None);
        let fill = async {
            for at in 0..100 {
                let bytes = pattern(at * 100_000..(at + 1) * 100_000);
                filler.append(bytes.into()).await.expect("wanted");
                assert!(object.bytes().is_none());
            }
            filler.finish()
        };
        let (filled, (read, error)) = tokio::join!(fill, drain(reader));
        assert_eq!((filled, error), (FillOutcome::Complete, None));
        assert!(read == pattern(0..10_000_000));
        assert!(get(&store, &key("/big")).is_none());
        assert_eq!(store.statistics().memory_bytes, 0);
    }
}

#[tokio::test]
async fn a_slow_reader_does_not_delay_the_others() {
    let store = Store::new(StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 64 << 10,
        window_bytes: 100_000,
        lag: Duration::from_millis(1),
        ..StoreSettings::default()
    });
    let mut filler = start(&store, &key("/big"), response(Some(1_000_000)));
    let (slow, fast) = (filler.object().read(None), filler.object().read(None));
    let fill = async {
        for at in 0..10 {
            let bytes = pattern(at * 100_000..(at + 1) * 100_000);
            filler.append(bytes.into()).await.expect("wanted");
        }
        filler.finish()
    };
    let (filled, (read, error)) = tokio::join!(fill, drain(fast));
    assert_eq!((filled, error), (FillOutcome::Complete, None));
    assert!(read == pattern(0..1_000_000));
    let (_, error) = drain(slow).await;
    assert_eq!(error, Some(ReadError::LeftBehind));
}

#[tokio::test]
async fn a_reader_that_joined_in_time_gets_the_complete_body() {
    let store = Store::new(StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 64 << 10,
        window_bytes: 100_000,
        ..StoreSettings::default()
    });
    let mut filler = start(&store, &key("/big"), response(None));
    let object = filler.object().clone();
    let early = object.read(None);
    assert!(object.is_joinable());
    let fill = async {
        for at in 0..10 {
            let bytes = pattern(at * 100_000..(at + 1) * 100_000);
            filler.append(bytes.into()).await.expect("wanted");
        }
        filler.finish()
    };
    // It is joined while it may be stored, and read only afterwards.
    let late = async {
        while object.is_joinable() {
            tokio::task::yield_now().await;
        }
        drain(early).await
    };
    let (filled, (read, error)) = tokio::join!(fill, late);
    assert_eq!((filled, error), (FillOutcome::Complete, None));
    assert!(read == pattern(0..1_000_000));
    assert!(!object.is_joinable());
}

#[tokio::test]
async fn a_new_response_replaces_the_old_one_when_it_is_complete() {
    let store = small_store();
    let old = put(&store, &key("/a"), b"old").await;
    let mut filler = start(&store, &key("/a"), response(None));
    filler
        .append(Bytes::from_static(b"new"))
        .await
        .expect("wanted");
    let found = get(&store, &key("/a")).expect("the old one");
    assert_eq!(found.bytes().expect("whole"), "old");
    let epoch = old.epoch();
    filler.finish();
    assert_eq!(
        get(&store, &key("/a"))
            .expect("stored")
            .bytes()
            .expect("whole"),
        "new"
    );
    assert!(old.is_gone());
    assert_ne!(old.epoch(), epoch);
    assert_eq!(store.statistics().memory_objects, 1);
}
