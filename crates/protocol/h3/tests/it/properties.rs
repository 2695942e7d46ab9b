//! Properties that hold for any message, any split of the bytes and any order of arrival.

use apus_h3::qpack::{QpackDecoder, QpackEncoder, SectionProgress};
use apus_h3::{ExpectedBody, H3Event, OutgoingRequest};
use apus_http::{Method, StatusCode};
use apus_testkit::cases;
use proptest::prelude::*;

use super::endpoint::{Endpoint, head_of, headers, request_head};
use super::messages::pair_with;

fn line() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        Just("x-a".to_owned()),
        Just("accept".to_owned()),
        Just("vary".to_owned()),
        Just("set-cookie".to_owned()),
        "[a-z][a-z0-9-]{0,12}",
    ];
    let value = prop_oneof![
        Just("*/*".to_owned()),
        Just("value".to_owned()),
        "[ -~]{0,40}".prop_map(|value| value.trim().to_owned()),
    ];
    (name, value)
}

fn sections() -> impl Strategy<Value = Vec<Vec<(String, String)>>> {
    proptest::collection::vec(proptest::collection::vec(line(), 0..8), 1..12)
}

/// The events in a form that does not depend on how data was split.
fn summary(events: Vec<H3Event>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for event in events {
        match event {
            H3Event::Data { data, end, .. } => {
                let more = data.escape_ascii().to_string();
                match found.last_mut() {
                    Some(last) if last.starts_with("data ") => last.push_str(&more),
                    _ => found.push(format!("data {more}")),
                }
                if end {
                    found.push("end".to_owned());
                }
            }
            H3Event::Request(request) => {
                found.push(format!("{:?}", request.head));
                if request.end {
                    found.push("end".to_owned());
                }
            }
            H3Event::Response {
                status,
                headers,
                end,
                ..
            } => {
                found.push(format!("{status} {headers:?}"));
                if end {
                    found.push("end".to_owned());
                }
            }
            event => found.push(format!("{event:?}")),
        }
    }
    // A body may be known to be empty with its head, or later.
    found.retain(|event| event != "data ");
    found
}

proptest! {
    #![proptest_config(cases(256))]

    /// Sections and instructions arrive in any order, and acknowledgements late or never.
    #[test]
    fn what_is_encoded_is_decoded(
        sections in sections(),
        table in 0..400_usize,
        order in proptest::collection::vec(any::<u8>(), 12),
        split in 1..5_usize,
    ) {
        let mut encoder = QpackEncoder::new(table);
        encoder.set_peer_table_bytes(300);
        let mut decoder = QpackDecoder::new(300);
        let mut late = Vec::new();
        for (stream, (section, order)) in sections.iter().zip(order).enumerate() {
            let stream = stream as u64;
            let mut out = Vec::new();
            let mut references = encoder.begin(&mut out);
            for (name, value) in section {
                encoder.line((name.as_bytes(), value.as_bytes(), false), &mut references, &mut out);
            }
            encoder.end(stream, references, &mut out);
            late.push((stream, out, section.clone()));
            if order & 1 == 0 {
                let instructions = std::mem::take(encoder.output());
                for part in instructions.chunks(split) {
                    decoder.handle_encoder_stream(part).unwrap();
                }
            }
            if order & 2 == 0 {
                for (stream, out, section) in late.drain(..).rev() {
                    let mut found = Vec::new();
                    let progress = decoder
                        .decode(stream, &out, |field| {
                            assert!(field.is_valid);
                            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                            found.push((text(field.name), text(field.value)));
                        })
                        .unwrap();
                    prop_assert_eq!(progress, SectionProgress::Decoded);
                    prop_assert_eq!(found, section);
                }
            }
            if order & 4 == 0 {
                for part in std::mem::take(decoder.output()).chunks(split) {
                    encoder.handle_decoder_stream(part).unwrap();
                }
            }
        }
    }

    /// A request and its response, with the bytes in pieces of any sizes, and both with and without tables.
    #[test]
    fn both_roles_understand_each_other_however_bytes_are_split(
        lines in proptest::collection::vec(line(), 0..6),
        body in proptest::collection::vec(any::<u8>(), 0..40),
        table in prop_oneof![Just(0_usize), Just(200), Just(4096)],
        sizes in proptest::collection::vec(1..20_usize, 1..6),
    ) {
        let (mut client, mut server) = pair_with(table);
        let fields: String = lines
            .iter()
            .filter(|(name, _)| !matches!(&name[..], "host" | "te" | "expect" | "upgrade"))
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        let request = request_head(&Method::POST, "/a", &format!("host: a\n{fields}"));
        for id in [0, 4] {
            let mut out = Vec::new();
            let sent = client
                .connection
                .send_request(id, OutgoingRequest::of(&request, "https"), false, &mut out)
                .unwrap();
            client.connection.send_data(sent, body.len(), true, &mut out);
            out.extend_from_slice(&body);
            client.deliver(&mut server, 2);
            let events = in_pieces(&mut server, id, &out, &sizes);
            let Some(H3Event::Request(received)) = events.first() else {
                panic!("{events:?}");
            };
            let stream = received.stream;
            prop_assert_eq!(received.head.headers.wire(), request.headers.wire());
            let escaped = format!("data {}", body.escape_ascii());
            let found = summary(events);
            prop_assert_eq!(found.last().map(String::as_str), Some("end"));
            prop_assert_eq!(found.len(), if body.is_empty() { 2 } else { 3 });
            if !body.is_empty() {
                prop_assert_eq!(&found[1], &escaped);
            }

            let fields = headers(&fields);
            let mut out = Vec::new();
            let head = head_of(StatusCode::OK, &fields, None);
            let expected = server.connection.send_head(stream, head, &mut out);
            prop_assert_eq!(expected, ExpectedBody::Data(None));
            server.connection.send_data(stream, body.len(), false, &mut out);
            out.extend_from_slice(&body);
            server.connection.send_trailers(stream, &headers("x-end: 1"), &mut out);
            server.deliver(&mut client, 3);
            let found = summary(in_pieces(&mut client, id, &out, &sizes));
            prop_assert!(found[0].starts_with("200"));
            prop_assert!(found.last().unwrap().starts_with("Trailers"));
            prop_assert_eq!(client.connection.open_streams(), 0);
            prop_assert_eq!(server.connection.open_streams(), 0);
            client.deliver(&mut server, 2);
            server.deliver(&mut client, 3);
        }
    }
}

fn in_pieces(end: &mut Endpoint, id: u64, bytes: &[u8], sizes: &[usize]) -> Vec<H3Event> {
    let mut events = Vec::new();
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = (*sizes.next().unwrap()).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        events.extend(end.receive(id, piece, rest.is_empty()).unwrap());
    }
    events
}
