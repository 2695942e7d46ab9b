//! Tests the order in which data is sent (RFC 9218).

use apus_codec::h2::StreamKey;
use apus_http::StatusCode;

use super::endpoint::*;

/// A server with a pending response for each of these `priority` values, on streams 1, 3, 5, ...
fn with_requests(priorities: &[Option<&str>]) -> (Endpoint, Vec<StreamKey>) {
    let mut server = Endpoint::connected(config());
    server.receive(&one(8, 0, 0, &[0x10, 0, 0, 0])).unwrap();
    let mut keys = Vec::new();
    for (at, priority) in priorities.iter().enumerate() {
        let id = u32::try_from(at * 2 + 1).unwrap();
        let mut fields = GET.to_vec();
        fields.extend(priority.map(|priority| ("priority", priority)));
        let key = stream_of(&server.receive(&headers_frame(id, true, &fields)).unwrap());
        let none = headers("");
        let head = head_of(StatusCode::OK, &none, None);
        server.connection.send_head(key, head, &mut server.out);
        server.connection.want_send(key);
        keys.push(key);
    }
    (server, keys)
}

/// The streams of the next frames, if each response has `frames` frames.
fn sent_order(server: &mut Endpoint, frames: usize) -> Vec<u32> {
    let mut order = Vec::new();
    let mut sent = std::collections::HashMap::new();
    while let Some((key, _)) = server.connection.next_send() {
        order.push(key.id());
        let count = sent.entry(key).or_insert(0);
        *count += 1;
        let end = *count == frames;
        server
            .connection
            .send_data(key, 1000, end, &mut server.out)
            .unwrap();
        server.connection.want_send(key);
    }
    order
}

#[test]
fn sends_urgent_streams_first_and_interleaves_incremental_ones() {
    let (mut server, _) =
        with_requests(&[Some("u=5, i"), Some("u=0"), Some("u=5, i"), Some("u=0")]);
    assert_eq!(sent_order(&mut server, 2), [3, 3, 7, 7, 1, 5, 1, 5]);
}

#[test]
fn interleaves_streams_without_a_priority() {
    let (mut server, _) = with_requests(&[None, None, None]);
    assert_eq!(sent_order(&mut server, 2), [1, 3, 5, 1, 3, 5]);
}

#[test]
fn a_priority_update_reorders_scheduled_streams() {
    let (mut server, _) = with_requests(&[None, None, None]);
    server.receive(&one(16, 0, 0, b"\0\0\0\x05u=1")).unwrap();
    assert_eq!(sent_order(&mut server, 2), [5, 5, 1, 3, 1, 3]);
}

#[test]
fn ignores_the_deprecated_priority_tree() {
    let (mut server, _) = with_requests(&[None, None]);
    server
        .receive(&one(2, 0, 3, &[0x80, 0, 0, 0, 255]))
        .unwrap();
    assert_eq!(sent_order(&mut server, 2), [1, 3, 1, 3]);
}

#[test]
fn does_not_schedule_reset_streams() {
    let (mut server, _) = with_requests(&[None, Some("u=0"), None]);
    server.receive(&one(3, 0, 3, &[0; 4])).unwrap();
    assert_eq!(sent_order(&mut server, 1), [1, 5]);
}
