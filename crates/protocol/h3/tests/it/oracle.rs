//! This codec against another implementation of HTTP/3 and QPACK.

use apus_h3::qpack::{QpackDecoder, QpackEncoder};
use apus_h3::{H3Event, OutgoingRequest};
use apus_http::{Method, StatusCode};
use proptest::prelude::*;
use shiguredo_http3::{
    ClientConnection, Event, Header, QpackDecoder as OtherDecoder, QpackEncoder as OtherEncoder,
    ServerConnection, Settings, VarInt,
};

use super::endpoint::{Endpoint, config, headers, request_head};

fn settings() -> Settings {
    Settings::default()
        .qpack_max_table_capacity(VarInt::new(4096).unwrap())
        .qpack_blocked_streams(VarInt::new(16).unwrap())
        .max_field_section_size(VarInt::new(16_384).unwrap())
}

fn with_table() -> apus_h3::H3Config {
    apus_h3::H3Config {
        encoder_table_bytes: 4096,
        ..config()
    }
}

/// Passes the output of another end, its unidirectional streams first.
macro_rules! deliver_from {
    ($other:ident, $to:ident) => {{
        let mut ids: Vec<_> = $other.writable_streams().collect();
        ids.sort_by_key(|id| (id & 2 == 0, *id));
        let mut events = Vec::new();
        for id in ids {
            // The end comes after all data was taken.
            while let Some((bytes, fin)) = $other.take_stream_data(id) {
                if bytes.is_empty() && !fin {
                    break;
                }
                events.extend($to.receive(id, &bytes, fin).unwrap());
                if fin {
                    break;
                }
            }
        }
        events
    }};
}

#[test]
fn our_server_and_another_client() {
    let mut server = Endpoint::server(with_table());
    let mut client = ClientConnection::new(settings());
    let start = client.init_h3_streams(2, 6, 10).unwrap();
    server.receive(2, &start.control_data, false).unwrap();
    server.receive(6, &start.encoder_data, false).unwrap();
    server.receive(10, &start.decoder_data, false).unwrap();
    let local = |server: &mut Endpoint, client: &mut ClientConnection| {
        for (id, output) in [3, 7, 11].into_iter().zip(server.take_output()) {
            if !output.is_empty() {
                client.feed_stream(id, &output, false).unwrap();
            }
        }
    };
    local(&mut server, &mut client);
    let request = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/path"),
        ("x-long", "a value that repeats in every request"),
    ]
    .map(|(name, value)| Header::new(name, value).unwrap());
    for round in 0..20 {
        let id = client.send_request(&request, false).unwrap();
        client.send_body(id, b"body", true).unwrap();
        let events = deliver_from!(client, server);
        let Some(H3Event::Request(received)) = events.first() else {
            panic!("{events:?}");
        };
        assert_eq!(received.head.method, Method::POST);
        assert_eq!(
            received.head.headers.get_str("x-long"),
            Some("a value that repeats in every request")
        );
        assert!(matches!(
            events.last(),
            Some(H3Event::Data { end: true, .. })
        ));
        let fields = format!("x-answer: another value that repeats\nx-round: {round}");
        let out = server.responds(received.stream, 200, &fields, b"hello");
        local(&mut server, &mut client);
        client.feed_stream(id, &out, true).unwrap();
        let events = client.drain_events().unwrap();
        let answer = events.iter().any(|event| {
            matches!(event, Event::Header { name, value, .. }
                if name == b"x-answer" && value == b"another value that repeats")
        });
        let data = events
            .iter()
            .any(|event| matches!(event, Event::Data { data, .. } if data == b"hello"));
        let end = events
            .iter()
            .any(|event| matches!(event, Event::StreamEnd { stream_id } if *stream_id == id));
        assert!(answer && data && end, "{events:?}");
        deliver_from!(client, server);
    }
    assert_eq!(server.connection.open_streams(), 0);
}

#[test]
fn our_client_and_another_server() {
    let mut client = Endpoint::client(with_table());
    let mut server = ServerConnection::new(settings());
    let start = server.init_h3_streams(3, 7, 11).unwrap();
    client.receive(3, &start.control_data, false).unwrap();
    client.receive(7, &start.encoder_data, false).unwrap();
    client.receive(11, &start.decoder_data, false).unwrap();
    let local = |client: &mut Endpoint, server: &mut ServerConnection| {
        for (id, output) in [2, 6, 10].into_iter().zip(client.take_output()) {
            if !output.is_empty() {
                server.feed_stream(id, &output, false).unwrap();
            }
        }
    };
    local(&mut client, &mut server);
    let head = request_head(
        &Method::GET,
        "/path",
        "host: a.example\nx-long: a value that repeats in every request",
    );
    let response = [
        (":status", "200"),
        ("content-type", "text/html"),
        ("x-answer", "another value that repeats"),
    ]
    .map(|(name, value)| Header::new(name, value).unwrap());
    for round in 0..20 {
        let id = 4 * round;
        let mut out = Vec::new();
        client
            .connection
            .send_request(id, OutgoingRequest::of(&head, "https"), true, &mut out)
            .unwrap();
        local(&mut client, &mut server);
        server.feed_stream(id, &out, true).unwrap();
        let events = server.drain_events().unwrap();
        let is_received = events.iter().any(|event| {
            matches!(event, Event::Header { name, value, .. }
                if name == b"x-long" && value == b"a value that repeats in every request")
        });
        assert!(is_received, "{events:?}");
        server.send_response(id, &response, false).unwrap();
        server.send_body(id, b"hello", true).unwrap();
        let events = deliver_from!(server, client);
        let Some(H3Event::Response {
            status: StatusCode::OK,
            headers: found,
            ..
        }) = events.first()
        else {
            panic!("{events:?}");
        };
        assert_eq!(
            found.wire(),
            headers("content-type: text/html\nx-answer: another value that repeats").wire()
        );
        assert!(matches!(
            events.last(),
            Some(H3Event::Data { end: true, .. })
        ));
        deliver_from!(server, client);
        local(&mut client, &mut server);
    }
    assert_eq!(client.connection.open_streams(), 0);
}

proptest! {
    /// Sections without a table mean the same to both implementations.
    #[test]
    fn field_sections_mean_the_same_to_both(
        lines in proptest::collection::vec(("[a-z][a-z0-9-]{0,15}", "[!-~]{0,60}"), 0..10)
    ) {
        let mut encoder = QpackEncoder::new(0);
        let mut out = Vec::new();
        let mut references = encoder.begin(&mut out);
        for (name, value) in &lines {
            encoder.line((name.as_bytes(), value.as_bytes(), false), &mut references, &mut out);
        }
        encoder.end(0, references, &mut out);
        let theirs = OtherDecoder::new().decode(&out).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found: Vec<_> = theirs.iter().map(|header| (text(header.name()), text(header.value()))).collect();
        prop_assert_eq!(&found, &lines);

        let lines_of_others: Vec<_> = lines.iter().map(|(name, value)| Header::new(name, value).unwrap()).collect();
        let mut buffer = vec![0; 4096];
        let len = OtherEncoder::new().encode(&mut buffer, &lines_of_others, 0).unwrap();
        let mut found = Vec::new();
        QpackDecoder::new(0)
            .decode(0, &buffer[..len], |field| found.push((text(field.name), text(field.value))))
            .unwrap();
        prop_assert_eq!(found, lines);
    }
}
