//! Tests of the store.

mod collapse;
mod disk;
mod encoded_forms;
mod fill;
mod intervals;
mod kill;
mod memory;
mod parts;
mod purge;
mod stress;
mod worker_cache;

use std::sync::Arc;

use apus_cache::store::{
    CacheLookup, FillTicket, NewObject, Object, ObjectFiller, ObjectMetadata, ObjectPiece,
    ObjectReader, Store, StoreKey, StoreSettings,
};
use bytes::Bytes;

/// A key of the site `site`.
fn key(url: &str) -> StoreKey {
    StoreKey::new(&Arc::from("site"), url.as_bytes())
}

/// For responses without Vary.
fn no_vary(_: &[u8]) -> Vec<u8> {
    Vec::new()
}

fn small_store() -> Store {
    Store::new(StoreSettings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 64 << 10,
        ..StoreSettings::default()
    })
}

/// A response of `length` bytes.
fn response(length: Option<u64>) -> NewObject {
    NewObject {
        metadata: ObjectMetadata {
            policy: Bytes::from_static(b"policy"),
            fields: Bytes::from_static(b"content-type: text/plain\r\n"),
            expires: 0,
            received: 7,
        },
        length,
        ..NewObject::default()
    }
}

/// The ticket to fetch `key`, which no other request has.
fn ticket(store: &Store, key: &StoreKey) -> FillTicket {
    match store.lead(key, &mut no_vary) {
        CacheLookup::Lead(ticket) => ticket,
        other => panic!("expected to lead, got {other:?}"),
    }
}

/// Starts to fill `key`.
fn start(store: &Store, key: &StoreKey, new: NewObject) -> ObjectFiller {
    ticket(store, key).start(new)
}

/// Stores `body` for `key`.
async fn put(store: &Store, key: &StoreKey, body: &[u8]) -> Arc<Object> {
    put_as(store, key, response(Some(body.len() as u64)), body).await
}

async fn put_as(store: &Store, key: &StoreKey, new: NewObject, body: &[u8]) -> Arc<Object> {
    let mut filler = start(store, key, new);
    filler
        .append(Bytes::copy_from_slice(body))
        .await
        .expect("wanted");
    let object = filler.object().clone();
    filler.finish();
    object
}

fn get(store: &Store, key: &StoreKey) -> Option<Arc<Object>> {
    store.lookup(key, &mut no_vary)
}

/// All bytes of a reader, and the error at its end.
async fn drain(mut reader: ObjectReader) -> (Vec<u8>, Option<apus_cache::store::ReadError>) {
    let mut all = Vec::new();
    loop {
        match reader.piece().await {
            Some(Ok(piece)) => all.extend(bytes_of(piece)),
            Some(Err(error)) => return (all, Some(error)),
            None => return (all, None),
        }
    }
}

fn bytes_of(piece: ObjectPiece) -> Vec<u8> {
    match piece {
        ObjectPiece::Bytes(bytes) => bytes.to_vec(),
        ObjectPiece::File(range) => {
            use std::os::unix::fs::FileExt;
            let mut bytes = vec![0; usize::try_from(range.len).expect("fits")];
            range
                .file
                .read_exact_at(&mut bytes, range.offset)
                .expect("is there");
            bytes
        }
    }
}

/// Bytes that differ from those near and far, so that a misplaced piece is noticed.
fn pattern(range: std::ops::Range<u64>) -> Vec<u8> {
    range
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// A runtime like a worker's.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime")
}
