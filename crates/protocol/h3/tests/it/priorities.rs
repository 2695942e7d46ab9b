//! Priorities by the field and by PRIORITY_UPDATE, and the order of sending (RFC 9218).

use apus_h3::{H3Event, Priority, SendOrder, StreamKey};
use apus_http::{Headers, StatusCode};

use super::endpoint::{Endpoint, frames, get, head_of};

/// A stream that has data to send.
fn begins_response(server: &mut Endpoint, id: u64, priority: &str) -> StreamKey {
    let section = match priority {
        "" => get(&[]),
        priority => get(&[("priority", priority)]),
    };
    let stream = server.receives_request(id, &section, true);
    let fields = Headers::new();
    let head = head_of(StatusCode::OK, &fields, None);
    server.connection.send_head(stream, head, &mut Vec::new());
    server.connection.want_send(stream);
    stream
}

/// The next streams, each of which still has data after its turn.
fn turns(server: &mut Endpoint, count: usize) -> Vec<u64> {
    let turn = |_| {
        let stream = server.connection.next_send().unwrap();
        assert!(
            server
                .connection
                .send_data(stream, 1, false, &mut Vec::new())
        );
        server.connection.want_send(stream);
        stream.id()
    };
    (0..count).map(turn).collect()
}

fn update(id: u8, value: &[u8]) -> Vec<u8> {
    frames(&[(0xf0700, &[&[id], value].concat())])
}

#[test]
fn sends_urgent_streams_first_and_interleaves_incremental_ones() {
    let mut server = Endpoint::connected();
    begins_response(&mut server, 0, "u=5");
    begins_response(&mut server, 4, "u=1, i");
    begins_response(&mut server, 8, "u=1, i");
    assert_eq!(turns(&mut server, 4), [4, 8, 4, 8]);
    begins_response(&mut server, 12, "u=0");
    assert_eq!(turns(&mut server, 2), [12, 12]);
    assert!(server.connection.is_send_due());
}

#[test]
fn a_priority_update_reorders_scheduled_streams() {
    let mut server = Endpoint::connected();
    let first = begins_response(&mut server, 0, "");
    begins_response(&mut server, 4, "");
    let events = server.receive(2, &update(0, b"u=7"), false).unwrap();
    assert!(matches!(events[..], [H3Event::PriorityUpdate { stream }] if stream == first));
    let priority = Priority {
        urgency: 7,
        order: SendOrder::Sequential,
    };
    assert_eq!(server.connection.priority(first), priority);
    assert_eq!(turns(&mut server, 3), [4, 4, 4]);
}

/// RFC 9218 section 7: the frame may arrive before the request, and takes precedence over the field.
#[test]
fn a_priority_update_may_come_before_its_stream() {
    let mut server = Endpoint::connected();
    for value in [&b"u=1"[..], b"u=0"] {
        assert!(
            server
                .receive(2, &update(4, value), false)
                .unwrap()
                .is_empty()
        );
    }
    let half = frames(&[(1, &get(&[("priority", "u=6")]))]);
    assert!(server.receive(8, &half[..9], false).unwrap().is_empty());
    assert!(
        server
            .receive(2, &update(8, b"u=2"), false)
            .unwrap()
            .is_empty()
    );
    let events = server.receive(8, &half[9..], true).unwrap();
    let [H3Event::Request(request)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(server.connection.priority(request.stream).urgency, 2);
    let stream = begins_response(&mut server, 4, "u=5");
    assert_eq!(server.connection.priority(stream).urgency, 0);
    let other = begins_response(&mut server, 12, "u=5");
    assert_eq!(server.connection.priority(other).urgency, 5);
}

/// As many as are kept, and one more.
#[test]
fn keeps_the_last_priorities_of_streams_that_are_not_open() {
    for (count, urgency) in [(64, 0), (65, 3)] {
        let mut server = Endpoint::connected();
        for stream in 0..count {
            let mut payload = Vec::new();
            super::endpoint::integer(4 * stream, &mut payload);
            payload.extend_from_slice(b"u=0");
            let bytes = frames(&[(0xf0700, &payload)]);
            assert!(server.receive(2, &bytes, false).unwrap().is_empty());
        }
        let stream = server.receives_request(0, &get(&[]), true);
        assert_eq!(server.connection.priority(stream).urgency, urgency);
    }
}

#[test]
fn does_not_schedule_closed_streams() {
    let mut server = Endpoint::connected();
    let stream = begins_response(&mut server, 0, "");
    server
        .connection
        .reset(stream, apus_h3::H3ErrorCode::INTERNAL_ERROR);
    assert_eq!(server.connection.next_send(), None);
    let stream = begins_response(&mut server, 4, "");
    server.connection.want_send(stream);
    assert!(
        server
            .connection
            .send_data(stream, 0, true, &mut Vec::new())
    );
    assert_eq!(server.connection.next_send(), None);
    assert!(!server.connection.is_send_due());
    server.connection.want_send(stream);
    assert_eq!(server.connection.next_send(), None);
}
