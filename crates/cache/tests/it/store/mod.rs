//! Tests of where stored responses are kept.

mod collapse;
mod disk;
mod fill;
mod forms;
mod front;
mod intervals;
mod kill;
mod memory;
mod parts;
mod purge;
mod stress;

use std::sync::Arc;

use apus_cache::store::{
    FillTicket, Filler, Found, Head, Key, NewObject, Object, Piece, Reader, Settings, Store,
};
use bytes::Bytes;

/// A key of the site `site`.
fn key(url: &str) -> Key {
    Key::new(&Arc::from("site"), url.as_bytes())
}

/// For responses without Vary.
fn no_vary(_: &[u8]) -> Vec<u8> {
    Vec::new()
}

fn small_store() -> Store {
    Store::new(Settings {
        memory_bytes: 1 << 20,
        memory_object_bytes: 64 << 10,
        ..Settings::default()
    })
}

/// A response of `length` bytes.
fn response(length: Option<u64>) -> NewObject {
    NewObject {
        head: Head {
            policy: Bytes::from_static(b"policy"),
            fields: Bytes::from_static(b"content-type: text/plain\r\n"),
            expires: 0,
            received: 7,
        },
        length,
        ..NewObject::default()
    }
}

/// The duty to fetch `key`, which nobody else has.
fn ticket(store: &Store, key: &Key) -> FillTicket {
    match store.lead(key, &mut no_vary) {
        Found::Lead(ticket) => ticket,
        other => panic!("expected to lead, got {other:?}"),
    }
}

/// Starts to fill `key`.
fn start(store: &Store, key: &Key, new: NewObject) -> Filler {
    ticket(store, key).start(new)
}

/// Stores `content` below `key`.
async fn put(store: &Store, key: &Key, content: &[u8]) -> Arc<Object> {
    put_as(store, key, response(Some(content.len() as u64)), content).await
}

async fn put_as(store: &Store, key: &Key, new: NewObject, content: &[u8]) -> Arc<Object> {
    let mut filler = start(store, key, new);
    filler
        .append(Bytes::copy_from_slice(content))
        .await
        .expect("wanted");
    let object = filler.object().clone();
    filler.finish();
    object
}

fn get(store: &Store, key: &Key) -> Option<Arc<Object>> {
    store.lookup(key, &mut no_vary)
}

/// Everything a reader gets, and how it ended.
async fn drain(mut reader: Reader) -> (Vec<u8>, Option<apus_cache::store::ReadError>) {
    let mut all = Vec::new();
    loop {
        match reader.piece().await {
            Some(Ok(piece)) => all.extend(bytes_of(piece)),
            Some(Err(error)) => return (all, Some(error)),
            None => return (all, None),
        }
    }
}

fn bytes_of(piece: Piece) -> Vec<u8> {
    match piece {
        Piece::Bytes(bytes) => bytes.to_vec(),
        Piece::File(range) => {
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

/// Bytes that differ from their neighbours near and far, so that a misplaced piece is noticed.
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
