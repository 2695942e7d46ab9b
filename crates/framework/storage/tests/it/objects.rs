//! What holds in a folder and in an object store.

use std::time::{Duration, SystemTime};

use apus_handler::HttpError;
use apus_http::{Body, BodyError, Frame};
use apus_storage::{ObjectInfo, StorageError};
use apus_testkit::{block_on, body_bytes, ready_frames};

use crate::harness::{content, key, of_each, streamed};

#[test]
fn objects_are_stored_read_listed_and_removed() {
    for (storage, _folder) in of_each("contract") {
        block_on(async {
            let name = key("notes/ä +&=?#%.txt");
            assert_eq!(content(&storage, &name).await, None);
            assert_eq!(storage.info(&name).await.unwrap(), None);
            storage.delete(&name).await.unwrap();

            let before = SystemTime::now() - Duration::from_secs(2);
            let stored = storage.put(&name, "a note").await.unwrap();
            assert_eq!((&stored.key, stored.bytes), (&name, 6));
            assert_eq!(content(&storage, &name).await.unwrap(), "a note");
            let info = storage.info(&name).await.unwrap().unwrap();
            assert_eq!((info.bytes, &info.tag), (6, &stored.tag));
            assert!(info.modified >= before, "{info:?}");

            let again = storage.put(&name, streamed(b"another note")).await.unwrap();
            assert_ne!(again.tag, stored.tag);
            assert_eq!(content(&storage, &name).await.unwrap(), "another note");
            storage.put(&key("empty"), Body::Empty).await.unwrap();
            assert_eq!(content(&storage, &key("empty")).await.unwrap(), "");

            for name in ["b", "b/1", "b/2", "b2", "c/d/e.txt"] {
                // A folder has no file and folder of the same name.
                if name != "b" {
                    storage.put(&key(name), "x").await.unwrap();
                }
            }
            let names = |list: Vec<ObjectInfo>| {
                let names = list.into_iter().map(|object| object.key.to_string());
                names.collect::<Vec<_>>()
            };
            assert_eq!(
                names(storage.list("", None).await.unwrap()),
                ["b/1", "b/2", "b2", "c/d/e.txt", "empty", name.as_str()]
            );
            assert_eq!(
                names(storage.list("b/", None).await.unwrap()),
                ["b/1", "b/2"]
            );
            let after = key("b/1");
            assert_eq!(
                names(storage.list("b", Some(&after)).await.unwrap()),
                ["b/2", "b2"]
            );
            assert!(storage.list("none/", None).await.unwrap().is_empty());

            storage.delete(&key("b/1")).await.unwrap();
            assert_eq!(content(&storage, &key("b/1")).await, None);
            assert!(content(&storage, &name).await.is_some());
            storage.ping().await.unwrap();
        });
    }
}

#[test]
fn a_large_object_is_streamed_in_parts() {
    let large = body_bytes(20 * 1024 * 1024 + 7);
    for (storage, _folder) in of_each("files") {
        block_on(async {
            let name = key("large.bin");
            let stored = storage.put(&name, streamed(&large)).await.unwrap();
            assert_eq!(stored.bytes, large.len() as u64);
            let read = content(&storage, &name).await.unwrap();
            assert!(read == large, "another content");
            // Exactly one part.
            let part = &large[..8 * 1024 * 1024];
            storage.put(&name, streamed(part)).await.unwrap();
            assert!(content(&storage, &name).await.unwrap() == part);
        });
    }
}

#[test]
fn an_object_that_breaks_off_or_is_too_large_is_not_stored() {
    let nine = 9 * 1024 * 1024;
    for (storage, folder) in of_each("files") {
        let storage = storage.max_bytes(10 * 1024 * 1024);
        block_on(async {
            let name = key("broken.bin");
            storage.put(&name, "old").await.unwrap();
            // One that is sent in parts, and one that is not.
            for length in [nine, 10] {
                let frames = vec![
                    Ok(Frame::Data(vec![1_u8; length].into())),
                    Err(BodyError::Disconnected),
                ];
                let error = storage.put(&name, ready_frames(None, frames)).await;
                let error = error.unwrap_err();
                assert!(matches!(error, StorageError::Body(_)), "{error:?}");
            }
            let error = storage.put(&name, streamed(&vec![1_u8; nine * 2])).await;
            let error = error.unwrap_err();
            assert_eq!(error.status(), 413, "{error:?}");
            let error = storage.put(&name, vec![1_u8; nine * 2]).await.unwrap_err();
            assert_eq!(error.status(), 413, "{error:?}");
            assert_eq!(content(&storage, &name).await.unwrap(), "old");
        });
        if let Some(folder) = folder {
            let left = std::fs::read_dir(folder.path().join("a/.incoming")).unwrap();
            assert_eq!(left.count(), 0);
        }
    }
}
