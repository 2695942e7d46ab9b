//! The encoding of stored responses.

use apus_cache::policy::{CacheRules, StoredDecodeError, StoredResponse};

use super::{TestRequest, TestResponse, date, try_store};

fn stored() -> StoredResponse {
    let old = date(-100);
    let reply = TestResponse::with(
        200,
        &[
            ("cache-control", "max-age=60, stale-if-error=10"),
            ("etag", "\"x\""),
            ("last-modified", &old),
            ("vary", "accept-encoding, x"),
            ("xkey", "a b"),
        ],
    );
    let request = TestRequest::with(&[("accept-encoding", "gzip"), ("x", "1")]);
    try_store(&request, &reply, &CacheRules::default())
        .unwrap()
        .stored
}

fn encoded() -> Vec<u8> {
    let mut bytes = Vec::new();
    stored().encode(&mut bytes);
    bytes
}

#[test]
fn stored_responses_are_decoded_as_encoded() {
    assert_eq!(StoredResponse::decode(&encoded()), Ok(stored()));
}

#[test]
fn stored_responses_can_be_shared_by_threads() {
    fn assert_shared<T: Send + Sync + 'static>() {}
    assert_shared::<StoredResponse>();
}

#[test]
fn rejects_truncated_or_longer_bytes() {
    let bytes = encoded();
    for end in 0..bytes.len() {
        assert_eq!(
            StoredResponse::decode(&bytes[..end]),
            Err(StoredDecodeError::Truncated),
            "{end}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(
        StoredResponse::decode(&longer),
        Err(StoredDecodeError::Invalid)
    );
}

#[test]
fn rejects_other_versions_and_damaged_bytes() {
    let mut other = encoded();
    other[3] = 2;
    assert_eq!(
        StoredResponse::decode(&other),
        Err(StoredDecodeError::Version)
    );
    let mut status = encoded();
    status[4..6].copy_from_slice(&[0, 7]);
    assert_eq!(
        StoredResponse::decode(&status),
        Err(StoredDecodeError::Invalid)
    );
    let mut flags = encoded();
    flags[6] = 0xff;
    assert_eq!(
        StoredResponse::decode(&flags),
        Err(StoredDecodeError::Invalid)
    );
    let mut line = encoded();
    let last = line.len() - 1;
    line[last] = b'x';
    assert_eq!(
        StoredResponse::decode(&line),
        Err(StoredDecodeError::Invalid)
    );
    let mut length = encoded();
    length[55..59].copy_from_slice(&[0xff; 4]);
    assert_eq!(
        StoredResponse::decode(&length),
        Err(StoredDecodeError::Invalid)
    );
}
