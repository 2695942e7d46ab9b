//! The disk tier after restarts, damage, and on a full disk.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_cache::store::{
    CacheLookup, DiskSettings, FillOutcome, NewObject, Object, ObjectPiece, PurgeRequest,
    PurgeSelector, ReadError, Store, StoreSettings,
};
use apus_http::Body;
use bytes::Bytes;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tempfile::TempDir;

use super::{drain, key, no_vary, pattern, put, put_as, response, start};

pub(super) fn open(path: &Path) -> Store {
    open_with(DiskSettings::new(path, 64 << 20))
}

fn open_with(disk: DiskSettings) -> Store {
    let settings = StoreSettings {
        memory_object_bytes: 64 << 10,
        unwritten_bytes: 256 << 10,
        ..StoreSettings::default()
    };
    Store::open(settings, disk).expect("opens")
}

/// Opens the same directory again, as after a restart.
fn reopen(store: Store, path: &Path) -> Store {
    store.close().expect("closes");
    drop(store);
    open(path)
}

pub(super) async fn find(store: &Store, url: &str) -> Option<Arc<Object>> {
    store.find(&key(url), &mut no_vary).await
}

/// The object at `url`, if it is complete.
pub(super) async fn body(store: &Store, url: &str) -> Option<Vec<u8>> {
    let object = find(store, url).await?;
    assert!(object.is_complete());
    let (bytes, error) = drain(object.read(None)).await;
    assert_eq!(error, None);
    Some(bytes)
}

/// The files of objects.
fn files(path: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(path) else {
            return Vec::new();
        };
        entries.map(|entry| entry.expect("entry").path()).collect()
    };
    let outer = list(path);
    let inner = outer
        .iter()
        .filter(|path| path.file_name().expect("named").len() == 2);
    inner
        .flat_map(|path| list(path))
        .flat_map(|path| list(&path))
        .collect()
}

fn wait_for_scan(store: &Store) {
    while store.statistics().disk_scanned < 1000 {
        store.flush();
    }
}

/// Between fork and exec, a child has copies of all descriptors.
#[tokio::test]
async fn a_copy_of_the_lock_in_a_child_process_does_not_keep_the_directory_locked() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let lock = fs::canonicalize(dir.path()).expect("dir").join("lock");
    let number = fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| fs::read_link(path).is_ok_and(|target| target == lock))
        .and_then(|path| path.file_name()?.to_str()?.parse().ok())
        .expect("the lock is open");
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("opens");
    let copy = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).expect("copies");
    store.close().expect("closes");
    drop(store);
    open(dir.path());
    drop(copy);
}

#[tokio::test]
async fn small_and_large_objects_are_found_again() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let new = NewObject {
        vary: b"accept".to_vec(),
        secondary: b"html".to_vec(),
        tags: vec![(*b"tag").into()],
        ..response(None)
    };
    put(&store, &key("/small"), &pattern(0..1000)).await;
    put(&store, &key("/empty"), b"").await;
    put(&store, &key("/large"), &pattern(0..3_000_000)).await;
    put_as(
        &store,
        &key("/unknown"),
        response(None),
        &pattern(0..2_000_000),
    )
    .await;
    put_as(&store, &key("/varies"), new.clone(), b"html").await;
    let store = reopen(store, dir.path());
    assert_eq!(body(&store, "/small").await, Some(pattern(0..1000)));
    assert_eq!(body(&store, "/empty").await, Some(Vec::new()));
    assert!(body(&store, "/large").await == Some(pattern(0..3_000_000)));
    assert!(body(&store, "/unknown").await == Some(pattern(0..2_000_000)));
    assert_eq!(body(&store, "/none").await, None);
    let html = store
        .find(&key("/varies"), &mut |_| b"html".to_vec())
        .await
        .expect("found");
    assert_eq!(*html.metadata(), new.metadata);
    assert_eq!((html.tags(), html.vary()), (&new.tags[..], &b"accept"[..]));
    assert!(
        store
            .find(&key("/varies"), &mut |_| b"json".to_vec())
            .await
            .is_none()
    );
    // Small objects are in memory then, and large ones are sent from the file.
    let small = find(&store, "/small").await.expect("found");
    assert!(matches!(small.body(None), Body::Bytes(_)));
    let large = find(&store, "/large").await.expect("found");
    let mut reader = large.read(Some(10..3_000_000));
    assert_eq!(reader.remaining(), Some(2_999_990));
    assert!(
        matches!(reader.piece().await, Some(Ok(ObjectPiece::File(range))) if range.len > 64 << 10)
    );
}

#[tokio::test]
async fn a_directory_that_could_not_be_listed_is_scanned_again_without_a_restart() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/a"), b"content").await;
    let purged = NewObject {
        tags: vec![(*b"old").into()],
        ..response(Some(3))
    };
    put_as(&store, &key("/purged"), purged, b"old").await;
    store.flush();
    store.close().expect("closes");
    drop(store);
    // Both levels of directories: for each object, one of them cannot be opened.
    let files = files(dir.path());
    assert_eq!(files.len(), 2);
    let outer = |file: &Path| file.ancestors().nth(2).expect("outer").to_owned();
    let inner = |file: &Path| file.ancestors().nth(1).expect("inner").to_owned();
    let hidden = [outer(&files[0]), inner(&files[1])];
    let kept = TempDir::new().expect("kept");
    for (number, directory) in hidden.iter().enumerate() {
        fs::rename(directory, kept.path().join(number.to_string())).expect("moves");
        fs::write(directory, "no directory").expect("writes");
    }
    let store = open(dir.path());
    wait_for_scan(&store);
    assert!(store.statistics().disk_errors >= 2);
    for path in ["/a", "/purged"] {
        // Lookups do not wait for what cannot be read.
        assert!(find(&store, path).await.is_none(), "{path}");
    }
    let purge = PurgeRequest {
        site: None,
        selector: PurgeSelector::Tag((*b"old").into()),
        soft: false,
    };
    store.purge(&purge).durable().await.expect("written down");
    for (number, directory) in hidden.iter().enumerate() {
        fs::remove_file(directory).expect("removes");
        fs::rename(kept.path().join(number.to_string()), directory).expect("moves back");
    }
    while store.statistics().disk_objects == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(body(&store, "/a").await.as_deref(), Some(&b"content"[..]));
    // Not even what was purged while nobody could see it.
    store.flush();
    assert!(find(&store, "/purged").await.is_none());
}

#[tokio::test]
async fn a_lookup_that_has_to_read_the_disk_waits_for_it() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/a"), b"content").await;
    let store = reopen(store, dir.path());
    let object = loop {
        match store.lookup_or_fill(&key("/a"), &mut no_vary) {
            CacheLookup::Wait(wait) => wait.outcome().await,
            CacheLookup::Hit(object) => break object,
            other => panic!("{other:?}"),
        };
    };
    assert_eq!(object.bytes().expect("small"), "content");
    let lead = loop {
        match store.lookup_or_fill(&key("/b"), &mut no_vary) {
            CacheLookup::Wait(wait) => wait.outcome().await,
            CacheLookup::Lead(ticket) => break ticket,
            other => panic!("{other:?}"),
        };
    };
    drop(lead);
    wait_for_scan(&store);
    assert_eq!(store.statistics().disk_objects, 1);
}

#[tokio::test]
async fn a_large_object_is_read_while_it_is_written() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let mut filler = start(&store, &key("/large"), response(Some(5_000_000)));
    let readers = [0, 1_000_000, 4_999_999].map(|from| filler.object().read(Some(from..5_000_000)));
    let fill = async {
        for at in 0..50 {
            let piece = pattern(at * 100_000..(at + 1) * 100_000);
            filler.append(piece.into()).await.expect("wanted");
        }
        filler.finish()
    };
    let [one, two, three] = readers;
    let (filled, one, two, three) = tokio::join!(fill, drain(one), drain(two), drain(three));
    assert_eq!(filled, FillOutcome::Complete);
    assert!(one == (pattern(0..5_000_000), None));
    assert!(two == (pattern(1_000_000..5_000_000), None));
    assert!(three == (pattern(4_999_999..5_000_000), None));
    store.flush();
    assert!(
        store.statistics().memory_bytes < 1 << 20,
        "{:?}",
        store.statistics()
    );
    assert_eq!(files(dir.path()).len(), 1);
}

#[tokio::test]
async fn ranges_of_an_object_are_found_again_and_completed() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let new = || NewObject {
        resumable: true,
        ..response(Some(1_000_000))
    };
    for (url, received) in [("/large", 600_000), ("/small", 10_000)] {
        let length = if url == "/large" { 1_000_000 } else { 50_000 };
        let new = NewObject {
            length: Some(length),
            ..new()
        };
        let mut filler = start(&store, &key(url), new);
        filler
            .append(pattern(0..received).into())
            .await
            .expect("wanted");
        drop(filler);
    }
    let store = reopen(store, dir.path());
    for (url, received, length) in [("/large", 600_000, 1_000_000), ("/small", 10_000, 50_000)] {
        let object = find(&store, url).await.expect("found");
        assert_eq!(object.missing(0..length).first(), Some(&(received..length)));
        let (bytes, error) = drain(object.read(None)).await;
        assert_eq!(
            (bytes.len() as u64, error),
            (received, Some(ReadError::Gap(received..length)))
        );
        // First the end, then the remaining gap.
        for range in [length - 1000..length, 0..length] {
            for mut filler in object.fill(&store, range) {
                filler
                    .append(pattern(filler.range()).into())
                    .await
                    .expect("wanted");
                filler.finish();
            }
        }
        assert!(drain(object.read(None)).await == (pattern(0..length), None));
    }
    let store = reopen(store, dir.path());
    assert!(body(&store, "/large").await == Some(pattern(0..1_000_000)));
    assert!(body(&store, "/small").await == Some(pattern(0..50_000)));
}

#[tokio::test]
async fn an_interrupted_fill_leaves_nothing() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let mut filler = start(&store, &key("/large"), response(Some(1_000_000)));
    filler
        .append(pattern(0..500_000).into())
        .await
        .expect("wanted");
    drop(filler);
    store.flush();
    assert_eq!(files(dir.path()).len(), 0);
    assert_eq!(
        fs::read_dir(dir.path().join("tmp")).expect("dir").count(),
        0
    );
    assert_eq!(body(&store, "/large").await, None);
}

#[tokio::test]
async fn freshened_metadata_is_found_again() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    for (url, length) in [("/small", 10), ("/large", 100_000)] {
        let object = put(&store, &key(url), &pattern(0..length)).await;
        for number in 0..3 {
            let mut head = (*object.metadata()).clone();
            head.policy = Bytes::from(format!("validated {number}"));
            super::ticket(&store, &key(url)).freshen(&object, head);
            store.flush();
        }
    }
    let store = reopen(store, dir.path());
    for (url, length) in [("/small", 10), ("/large", 100_000)] {
        let object = find(&store, url).await.expect("found");
        assert_eq!(object.metadata().policy, "validated 2");
        assert!(body(&store, url).await == Some(pattern(0..length)));
    }
}

#[tokio::test]
async fn a_new_response_replaces_the_old_one_on_disk() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    for round in 0..5 {
        put(&store, &key("/a"), format!("{round}").as_bytes()).await;
        put(&store, &key("/b"), &pattern(round..100_000)).await;
    }
    store.flush();
    assert_eq!(files(dir.path()).len(), 2);
    assert_eq!(store.statistics().disk_objects, 2);
    let store = reopen(store, dir.path());
    assert_eq!(body(&store, "/a").await, Some(b"4".to_vec()));
    assert!(body(&store, "/b").await == Some(pattern(4..100_000)));
}

#[tokio::test]
async fn never_exceeds_its_capacity() {
    let dir = TempDir::new().expect("dir");
    let store = open_with(DiskSettings::new(dir.path(), 2 << 20));
    for number in 0..300 {
        let length = (number * 7919) % 300_000;
        put(&store, &key(&format!("/{number}")), &pattern(0..length)).await;
        if number % 20 == 0 {
            store.flush();
            assert!(store.statistics().disk_bytes <= 2 << 20);
        }
    }
    store.flush();
    let blocks: u64 = files(dir.path())
        .iter()
        .map(|file| fs::metadata(file).expect("file").blocks())
        .sum();
    assert!(blocks * 512 <= 2 << 20, "{blocks}");
    assert_eq!(
        files(dir.path()).len() as u64,
        store.statistics().disk_objects
    );
    assert!(store.statistics().disk_evictions > 0);
    // An object larger than the capacity is not stored.
    let mut filler = start(&store, &key("/huge"), response(None));
    let reader = filler.object().read(None);
    let fill = async {
        for at in 0..60 {
            let piece = pattern(at * 100_000..(at + 1) * 100_000);
            filler.append(piece.into()).await.expect("wanted");
        }
        filler.finish()
    };
    let (_, (bytes, error)) = tokio::join!(fill, drain(reader));
    assert_eq!(error, None);
    assert!(bytes == pattern(0..6_000_000));
    store.flush();
    assert_eq!(body(&store, "/huge").await, None);
    assert_eq!(
        fs::read_dir(dir.path().join("tmp")).expect("dir").count(),
        0
    );
}

#[tokio::test]
async fn min_free_bytes_are_left_free() {
    let dir = TempDir::new().expect("dir");
    let store = open_with(DiskSettings {
        min_free_bytes: u64::MAX,
        ..DiskSettings::new(dir.path(), 64 << 20)
    });
    put(&store, &key("/small"), b"1").await;
    let object = put(&store, &key("/large"), &pattern(0..100_000)).await;
    store.flush();
    assert_eq!(files(dir.path()).len(), 0);
    assert_eq!(store.statistics().disk_skipped, 2);
    assert!(drain(object.read(None)).await.1.is_some() || object.is_gone());
    assert_eq!(
        super::get(&store, &key("/small"))
            .expect("in memory")
            .bytes()
            .expect("whole"),
        "1"
    );
}

#[tokio::test]
async fn damaged_files_are_never_sent() {
    let dir = TempDir::new().expect("dir");
    for damage in 0..6 {
        let store = open(dir.path());
        put(&store, &key("/small"), &pattern(0..5000)).await;
        put(&store, &key("/large"), &pattern(0..100_000)).await;
        store.close().expect("closes");
        drop(store);
        for file in files(dir.path()) {
            let mut bytes = fs::read(&file).expect("read");
            let middle = bytes.len() - 2500;
            match damage {
                0 => bytes.truncate(100),
                1 => bytes.clear(),
                2 => bytes[3] ^= 1,
                // Both slots.
                3 => bytes[64..middle].fill(7),
                4 => bytes.truncate(middle),
                _ if bytes.len() < 10_000 => bytes[middle] ^= 1,
                _ => bytes[57] ^= 1,
            }
            fs::write(&file, bytes).expect("write");
        }
        let store = open(dir.path());
        assert!(body(&store, "/small").await.is_none(), "{damage}");
        assert!(body(&store, "/large").await.is_none(), "{damage}");
        wait_for_scan(&store);
        assert_eq!(files(dir.path()).len(), 0, "{damage}");
        assert_eq!(store.statistics().disk_damaged, 2, "{damage}");
        store.close().expect("closes");
    }
}

/// The bytes of an object from `from` on, and how the read ended.
async fn read_from(store: &Store, url: &str, from: u64) -> Option<(Vec<u8>, Option<ReadError>)> {
    let object = find(store, url).await?;
    Some(drain(object.read(Some(from..u64::MAX))).await)
}

/// Changes a byte of the body of `length` bytes at the end of a file.
fn alter(path: &Path, length: u64, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.expect("opens");
    let at = file.metadata().expect("file").len() - length + at;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("reads");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("writes");
}

#[tokio::test]
async fn altered_bytes_of_a_large_object_are_never_sent() {
    const PIECE: u64 = 64 << 10;
    for length in [
        2 * PIECE - 1,
        2 * PIECE,
        2 * PIECE + 1,
        18 * PIECE - 1,
        18 * PIECE,
        18 * PIECE + 1,
    ] {
        for altered in [
            0,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            length / 2,
            length - 2,
            length - 1,
        ] {
            let dir = TempDir::new().expect("dir");
            let store = open(dir.path());
            put(&store, &key("/large"), &pattern(0..length)).await;
            let store = reopen(store, dir.path());
            let [path] = &files(dir.path())[..] else {
                panic!("one file");
            };
            // It counts as complete until it is read.
            assert!(
                find(&store, "/large")
                    .await
                    .expect("found")
                    .is_sound_at(0)
                    .await
            );
            alter(path, length, altered);

            let context = format!("{altered} of {length}");
            // Bytes after the damage may be read.
            let piece_end = (altered / PIECE + 1) * PIECE;
            if piece_end < length {
                let (bytes, error) = read_from(&store, "/large", piece_end).await.expect("found");
                assert!(bytes == pattern(piece_end..length), "{context}");
                assert_eq!(error, None, "{context}");
            }
            let (bytes, error) = read_from(&store, "/large", 0).await.expect("found");
            assert!(bytes.len() as u64 <= altered / PIECE * PIECE, "{context}");
            assert!(bytes == pattern(0..bytes.len() as u64), "{context}");
            assert_eq!(error, Some(ReadError::Damaged), "{context}");
            // It is fetched again the next time.
            assert!(find(&store, "/large").await.is_none(), "{context}");
            assert_eq!(store.statistics().disk_damaged, 1, "{context}");
            store.flush();
            assert_eq!(files(dir.path()).len(), 0, "{context}");
        }
    }
}

/// Changes the file of a body of this length, at this position.
type FileChange = fn(&Path, u64, u64);

/// Reads all of the object until a read finds every byte verified by the one before, which happens
/// once the last write of the file is older than the resolution of its times.
async fn read_until_shared(store: &Store, object: &Arc<Object>, length: u64, context: &str) {
    for _ in 0..200 {
        let before = store.statistics().disk_verified_bytes;
        let (bytes, error) = drain(object.read(None)).await;
        assert!(bytes == pattern(0..length) && error.is_none(), "{context}");
        let verified = store.statistics().disk_verified_bytes - before;
        assert!(verified <= length, "{context}: {verified}");
        if verified == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{context}: each read verifies the body again");
}

#[tokio::test]
async fn a_body_that_was_verified_is_verified_again_after_any_change_of_its_file() {
    let changes: [(&str, FileChange); 2] = [
        ("altered", alter),
        ("touched", |path, _, _| {
            let file = fs::File::open(path).expect("opens");
            file.set_modified(UNIX_EPOCH).expect("sets the time");
        }),
    ];
    // What is verified at once is 1 MiB.
    let lengths = [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 19];
    let tests = lengths.into_iter().flat_map(|length| {
        let positions = [0, length / 2, length - 1];
        positions.map(move |position| async move {
            for (name, change) in changes {
                let context = format!("{name}, {position} of {length}");
                let dir = TempDir::new().expect("dir");
                let store = open(dir.path());
                let object = put(&store, &key("/large"), &pattern(0..length)).await;
                store.flush();
                read_until_shared(&store, &object, length, &context).await;
                let [path] = &files(dir.path())[..] else {
                    panic!("one file");
                };
                change(path, length, position);
                let before = store.statistics().disk_verified_bytes;
                let is_sound = object.is_sound_at(position).await;
                assert_eq!(is_sound, name == "touched", "{context}");
                let verified = store.statistics().disk_verified_bytes;
                assert_ne!(verified, before, "{context}");
                let (bytes, error) = drain(object.read(None)).await;
                if name == "altered" {
                    assert_eq!(error, Some(ReadError::Damaged), "{context}");
                    continue;
                }
                assert!(bytes.len() as u64 == length && error.is_none(), "{context}");
                read_until_shared(&store, &object, length, &context).await;
            }
        })
    });
    let tests: Vec<_> = tests.map(tokio::spawn).collect();
    for test in tests {
        test.await.expect("passes");
    }
}

#[tokio::test]
async fn readers_share_a_verification_whose_first_reader_may_leave() {
    const LENGTH: u64 = 5 << 19;
    let dir = TempDir::new().expect("dir");
    let mut store = open(dir.path());
    let object = put(&store, &key("/large"), &pattern(0..LENGTH)).await;
    store.flush();
    read_until_shared(&store, &object, LENGTH, "at first").await;
    drop(object);
    for first in [0, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, LENGTH - 1] {
        store = reopen(store, dir.path());
        let object = find(&store, "/large").await.expect("found");
        // It begins a verification, and others wait for it.
        let mut leaving = object.read(Some(first..LENGTH));
        let _ = std::future::poll_fn(|cx| Poll::Ready(leaving.poll_piece(cx).is_ready())).await;
        let readers: Vec<_> = [first, first / 2, 0]
            .into_iter()
            .map(|from| {
                let reader = object.read(Some(from..LENGTH));
                (from, tokio::spawn(drain(reader)))
            })
            .collect();
        tokio::task::yield_now().await;
        drop(leaving);
        for (from, reader) in readers {
            let (bytes, error) = reader.await.expect("reads");
            assert!(bytes == pattern(from..LENGTH), "{first} {from}");
            assert_eq!(error, None, "{first} {from}");
        }
        let figures = store.statistics();
        assert_eq!(figures.disk_damaged, 0, "{first}");
        if first == 0 {
            assert_eq!(figures.disk_verified_bytes, LENGTH);
        }
    }
}

#[tokio::test]
async fn damage_at_the_requested_position_is_found_before_sending() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let object = put(&store, &key("/large"), &pattern(0..1_000_000)).await;
    store.flush();
    let [path] = &files(dir.path())[..] else {
        panic!("one file");
    };
    let mut bytes = fs::read(path).expect("reads");
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("opens");
    file.write_all_at(&bytes[at..], at as u64).expect("writes");
    assert!(object.is_sound_at(0).await);
    assert!(!object.is_gone());
    assert!(!object.is_sound_at(999_000).await);
    assert!(object.is_gone());
    assert!(find(&store, "/large").await.is_none());
}

#[tokio::test]
async fn files_of_the_previous_format_are_discarded_and_not_counted_as_damaged() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/small"), b"content").await;
    store.close().expect("closes");
    drop(store);
    for path in files(dir.path()) {
        let mut bytes = fs::read(&path).expect("reads");
        assert_eq!(&bytes[..8], b"apusobj2");
        bytes[..8].copy_from_slice(b"apusobj1");
        fs::write(&path, bytes).expect("writes");
    }
    let store = open(dir.path());
    assert_eq!(body(&store, "/small").await, None);
    wait_for_scan(&store);
    assert_eq!(files(dir.path()).len(), 0);
    assert_eq!(store.statistics().disk_damaged, 0);
    put(&store, &key("/small"), b"anew").await;
    let store = reopen(store, dir.path());
    assert_eq!(body(&store, "/small").await, Some(b"anew".to_vec()));
}

#[tokio::test]
async fn objects_from_the_future_are_not_found_again() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    for (url, received) in [("/past", now.as_secs()), ("/future", now.as_secs() + 3600)] {
        let mut new = response(Some(100_000));
        new.metadata.received = received;
        put_as(&store, &key(url), new, &pattern(0..100_000)).await;
    }
    // An object may also be validated while the clock was ahead.
    let object = put(&store, &key("/validated"), b"content").await;
    let mut head = (*object.metadata()).clone();
    head.received = now.as_secs() + 3600;
    super::ticket(&store, &key("/validated")).freshen(&object, head);
    let store = reopen(store, dir.path());
    assert!(body(&store, "/past").await.is_some());
    assert!(body(&store, "/future").await.is_none());
    assert!(body(&store, "/validated").await.is_none());
}

#[tokio::test]
async fn the_file_of_another_object_is_not_sent() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/a"), b"a").await;
    store.flush();
    let [a] = &files(dir.path())[..] else {
        panic!("one file");
    };
    let copy = fs::read(a).expect("read");
    put(&store, &key("/b"), b"b").await;
    store.close().expect("closes");
    drop(store);
    for file in files(dir.path()) {
        fs::write(file, &copy).expect("write");
    }
    let store = open(dir.path());
    assert_eq!(body(&store, "/a").await, Some(b"a".to_vec()));
    assert_eq!(body(&store, "/b").await, None);
}

#[tokio::test]
async fn symbolic_links_are_not_followed_and_files_are_private() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/a"), b"a").await;
    put(&store, &key("/b"), b"b").await;
    store.close().expect("closes");
    drop(store);
    let files = files(dir.path());
    for file in &files {
        assert_eq!(
            fs::metadata(file).expect("file").permissions().mode() & 0o777,
            0o600
        );
    }
    let moved = dir.path().join("moved");
    fs::rename(&files[0], &moved).expect("rename");
    symlink(&moved, &files[0]).expect("link");
    let inner = files[1].parent().expect("directory");
    let aside = dir.path().join("aside");
    fs::rename(inner, &aside).expect("rename");
    symlink(&aside, inner).expect("link");
    let store = open(dir.path());
    assert_eq!(body(&store, "/a").await, None);
    assert_eq!(body(&store, "/b").await, None);
    assert!(moved.exists());
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let disk = DiskSettings::new(dir.path(), 1 << 20);
    let error = Store::open(StoreSettings::default(), disk).expect_err("in use");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop(store);
}

#[tokio::test]
async fn a_purge_survives_a_restart() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    let tagged = NewObject {
        tags: vec![(*b"tag").into()],
        ..response(None)
    };
    let urls = ["/key", "/prefix/1", "/soft", "/stays"];
    for url in urls {
        put(&store, &key(url), b"1").await;
    }
    put_as(&store, &key("/tagged"), tagged, &pattern(0..100_000)).await;
    let purge = |selector, soft| PurgeRequest {
        site: Some("site".into()),
        selector,
        soft,
    };
    let purges = [
        purge(PurgeSelector::Key((*b"/key").into()), false),
        purge(PurgeSelector::Prefix((*b"/prefix/").into()), false),
        purge(PurgeSelector::Tag((*b"tag").into()), false),
        purge(PurgeSelector::Key((*b"/soft").into()), true),
    ];
    for purge in &purges {
        store.purge(purge).durable().await.expect("written down");
    }
    let mut store = store;
    // With the rules at first, and later without them, after they were applied.
    for _ in 0..3 {
        store = reopen(store, dir.path());
        wait_for_scan(&store);
        for url in ["/key", "/prefix/1", "/tagged"] {
            assert_eq!(body(&store, url).await, None, "{url}");
        }
        assert!(
            find(&store, "/soft")
                .await
                .expect("found")
                .is_purged_softly()
        );
        assert!(
            !find(&store, "/stays")
                .await
                .expect("found")
                .is_purged_softly()
        );
        let other = purge(PurgeSelector::Tag((*b"other").into()), false);
        store.purge(&other).durable().await.expect("written down");
        store.flush();
    }
    assert_eq!(files(dir.path()).len(), 2);
    assert!(
        fs::metadata(dir.path().join("purges"))
            .expect("journal")
            .len()
            < 100
    );
}

#[tokio::test]
async fn without_the_purge_journal_no_file_is_used() {
    let dir = TempDir::new().expect("dir");
    for damage in 0..3 {
        let store = open(dir.path());
        put(&store, &key("/a"), b"1").await;
        let purge = PurgeRequest {
            site: None,
            selector: PurgeSelector::Tag((*b"tag").into()),
            soft: true,
        };
        // The rule stays as long as an earlier request is being forwarded.
        let ticket = super::ticket(&store, &key("/b"));
        store.purge(&purge).durable().await.expect("written down");
        store.close().expect("closes");
        drop(ticket);
        drop(store);
        let journal = dir.path().join("purges");
        let mut bytes = fs::read(&journal).expect("read");
        match damage {
            0 => fs::remove_file(&journal).expect("remove"),
            1 => {
                *bytes.last_mut().expect("records") ^= 1;
                fs::write(&journal, bytes).expect("write");
            }
            _ => {
                // A truncated record was never confirmed: the others still apply.
                bytes.extend([1, 2, 3, 4, 200, 0, 0, 0, 5]);
                fs::write(&journal, bytes).expect("write");
            }
        }
        let store = open(dir.path());
        assert_eq!(body(&store, "/a").await.is_some(), damage == 2, "{damage}");
        store.close().expect("closes");
    }
}

#[tokio::test]
async fn bodies_are_verified_after_a_crash_of_the_machine() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    put(&store, &key("/good"), &pattern(0..100_000)).await;
    store.flush();
    let good = files(dir.path());
    put(&store, &key("/lost"), &pattern(0..100_000)).await;
    store.close().expect("closes");
    drop(store);
    for file in files(dir.path()).iter().filter(|file| !good.contains(file)) {
        let mut bytes = fs::read(file).expect("read");
        bytes[50_000..60_000].fill(0);
        fs::write(file, bytes).expect("write");
    }
    fs::write(dir.path().join("state"), "another-boot running\n").expect("write");
    let store = open(dir.path());
    assert!(body(&store, "/good").await.is_some());
    assert_eq!(body(&store, "/lost").await, None);
}

/// Runs this test binary again in a process whose files cannot grow beyond 300 KB, as on a full
/// disk.
#[test]
fn objects_that_cannot_be_written_are_still_sent() {
    let dir = TempDir::new().expect("dir");
    let exe = std::env::current_exe().expect("exe");
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 600; exec \"$@\"", "sh"])
        .arg(exe)
        .args([
            "--exact",
            "store::disk::on_a_full_disk",
            "--ignored",
            "--nocapture",
        ])
        .env("APUS_TEST_DIRECTORY", dir.path())
        .status()
        .expect("runs");
    assert!(status.success());
}

#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn on_a_full_disk() {
    let path = std::env::var_os("APUS_TEST_DIRECTORY").expect("directory");
    let store = open(Path::new(&path));
    for round in 0..3 {
        let mut filler = start(&store, &key("/large"), response(Some(5_000_000)));
        let readers = [
            filler.object().read(None),
            filler.object().read(Some(250_000..5_000_000)),
        ];
        let fill = async {
            for at in 0..50 {
                let piece = pattern(at * 100_000..(at + 1) * 100_000);
                filler.append(piece.into()).await.expect("wanted");
            }
            filler.finish()
        };
        let [one, two] = readers;
        let (_, one, two) = tokio::join!(fill, drain(one), drain(two));
        assert!(one == (pattern(0..5_000_000), None));
        assert!(two == (pattern(250_000..5_000_000), None));
        store.flush();
        assert_eq!(store.statistics().disk_errors, round + 1);
        assert!(body(&store, "/large").await.is_none());
    }
    assert_eq!(files(Path::new(&path)).len(), 0);
    put(&store, &key("/small"), &pattern(0..100_000)).await;
    assert!(body(&store, "/small").await == Some(pattern(0..100_000)));
    store.flush();
    assert_eq!(files(Path::new(&path)).len(), 1);
}

#[tokio::test]
async fn the_number_of_variants_on_disk_is_limited() {
    let dir = TempDir::new().expect("dir");
    let store = open(dir.path());
    for number in 0..200_u32 {
        let new = NewObject {
            vary: b"cookie".to_vec(),
            secondary: number.to_string().into_bytes(),
            ..response(None)
        };
        put_as(&store, &key("/"), new, b"content").await;
        store.flush();
    }
    assert_eq!(files(dir.path()).len(), 64);
    let store = reopen(store, dir.path());
    assert!(
        store
            .find(&key("/"), &mut |_| b"199".to_vec())
            .await
            .is_some()
    );
    assert!(
        store
            .find(&key("/"), &mut |_| b"0".to_vec())
            .await
            .is_none()
    );
}
