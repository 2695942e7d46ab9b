//! A storage in a folder and one in an object store, and the bodies of objects.

use apus_http::{Body, Frame};
use apus_storage::{S3Settings, Storage, StorageKey};
use apus_testkit::{ObjectStore, may_start_servers, ready_frames};
use bytes::{Bytes, BytesMut};

pub(crate) fn settings(bucket: &str) -> S3Settings {
    S3Settings::new(&ObjectStore::shared().endpoint, bucket).keys("S3RVER", "S3RVER")
}

pub(crate) fn of_each(bucket: &str) -> Vec<(Storage, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![(
        Storage::folder(folder.path().join("a")).unwrap(),
        Some(folder),
    )];
    if may_start_servers() {
        all.push((Storage::s3(settings(bucket)).unwrap(), None));
    }
    all
}

pub(crate) fn key(text: &str) -> StorageKey {
    text.parse().unwrap()
}

/// A body that is not in memory at once.
pub(crate) fn streamed(bytes: &[u8]) -> Body {
    let frames = bytes.chunks(100_000);
    let frames = frames.map(|chunk| Ok(Frame::Data(Bytes::copy_from_slice(chunk))));
    ready_frames(None, frames.collect())
}

pub(crate) async fn content(storage: &Storage, key: &StorageKey) -> Option<Bytes> {
    let mut object = storage.get(key).await.unwrap()?;
    let mut whole = BytesMut::new();
    while let Some(frame) = object.body.frame().await {
        match frame.unwrap() {
            Frame::Data(bytes) => whole.extend_from_slice(&bytes),
            Frame::File(range) => {
                let mut bytes = vec![0; usize::try_from(range.len).unwrap()];
                std::os::unix::fs::FileExt::read_exact_at(&*range.file, &mut bytes, range.offset)
                    .unwrap();
                whole.extend_from_slice(&bytes);
            }
            Frame::Trailers(_) => {}
        }
    }
    assert_eq!(object.info.bytes, whole.len() as u64);
    Some(whole.freeze())
}
