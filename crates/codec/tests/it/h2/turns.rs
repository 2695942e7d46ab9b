//! In which order content is sent (RFC 9218).

use apus_codec::h2::StreamKey;
use apus_http::StatusCode;

use super::ends::*;

/// A server that has an answer at hand for each of these `priority` values, on streams 1, 3, 5, ...
fn answering(priorities: &[Option<&str>]) -> (End, Vec<StreamKey>) {
    let mut server = End::greeted(config());
    server.takes(&one(8, 0, 0, &[0x10, 0, 0, 0])).unwrap();
    let mut keys = Vec::new();
    for (at, priority) in priorities.iter().enumerate() {
        let id = u32::try_from(at * 2 + 1).unwrap();
        let mut fields = GET.to_vec();
        fields.extend(priority.map(|priority| ("priority", priority)));
        let key = stream_of(&server.takes(&headers_frame(id, true, &fields)).unwrap());
        let none = headers("");
        let head = head_of(StatusCode::OK, &none, None);
        server.connection.send_head(key, head, &mut server.out);
        server.connection.want_send(key);
        keys.push(key);
    }
    (server, keys)
}

/// Whose turns the next ones are, each answer having `frames` frames.
fn turns(server: &mut End, frames: usize) -> Vec<u32> {
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
fn the_urgent_come_first_and_the_incremental_share() {
    let (mut server, _) = answering(&[Some("u=5, i"), Some("u=0"), Some("u=5, i"), Some("u=0")]);
    assert_eq!(turns(&mut server, 2), [3, 3, 7, 7, 1, 5, 1, 5]);
}

#[test]
fn those_who_say_nothing_share() {
    let (mut server, _) = answering(&[None, None, None]);
    assert_eq!(turns(&mut server, 2), [1, 3, 5, 1, 3, 5]);
}

#[test]
fn a_priority_update_reorders_what_waits() {
    let (mut server, _) = answering(&[None, None, None]);
    server.takes(&one(16, 0, 0, b"\0\0\0\x05u=1")).unwrap();
    assert_eq!(turns(&mut server, 2), [5, 5, 1, 3, 1, 3]);
}

#[test]
fn the_old_tree_of_priorities_means_nothing() {
    let (mut server, _) = answering(&[None, None]);
    server.takes(&one(2, 0, 3, &[0x80, 0, 0, 0, 255])).unwrap();
    assert_eq!(turns(&mut server, 2), [1, 3, 1, 3]);
}

#[test]
fn who_is_reset_has_no_turn() {
    let (mut server, _) = answering(&[None, Some("u=0"), None]);
    server.takes(&one(3, 0, 3, &[0; 4])).unwrap();
    assert_eq!(turns(&mut server, 1), [1, 5]);
}
