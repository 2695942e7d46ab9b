//! Stored responses as bytes.

use apus_cache::policy::{DecodeError, Rules, Stored};

use super::{Ask, Reply, date, try_store};

fn stored() -> Stored {
    let old = date(-100);
    let reply = Reply::with(
        200,
        &[
            ("cache-control", "max-age=60, stale-if-error=10"),
            ("etag", "\"x\""),
            ("last-modified", &old),
            ("vary", "accept-encoding, x"),
            ("xkey", "a b"),
        ],
    );
    let ask = Ask::with(&[("accept-encoding", "gzip"), ("x", "1")]);
    try_store(&ask, &reply, &Rules::default()).unwrap().stored
}

fn encoded() -> Vec<u8> {
    let mut bytes = Vec::new();
    stored().encode(&mut bytes);
    bytes
}

#[test]
fn are_read_back_as_they_were() {
    assert_eq!(Stored::decode(&encoded()), Ok(stored()));
}

#[test]
fn can_be_shared_by_threads() {
    fn assert_shared<T: Send + Sync + 'static>() {}
    assert_shared::<Stored>();
}

#[test]
fn are_refused_if_they_are_cut_off_or_longer() {
    let bytes = encoded();
    for end in 0..bytes.len() {
        assert_eq!(
            Stored::decode(&bytes[..end]),
            Err(DecodeError::Truncated),
            "{end}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(Stored::decode(&longer), Err(DecodeError::Invalid));
}

#[test]
fn are_refused_if_they_are_of_another_version_or_damaged() {
    let mut other = encoded();
    other[3] = 2;
    assert_eq!(Stored::decode(&other), Err(DecodeError::Version));
    let mut status = encoded();
    status[4..6].copy_from_slice(&[0, 7]);
    assert_eq!(Stored::decode(&status), Err(DecodeError::Invalid));
    let mut flags = encoded();
    flags[6] = 0xff;
    assert_eq!(Stored::decode(&flags), Err(DecodeError::Invalid));
    let mut line = encoded();
    let last = line.len() - 1;
    line[last] = b'x';
    assert_eq!(Stored::decode(&line), Err(DecodeError::Invalid));
    let mut length = encoded();
    length[55..59].copy_from_slice(&[0xff; 4]);
    assert_eq!(Stored::decode(&length), Err(DecodeError::Invalid));
}
