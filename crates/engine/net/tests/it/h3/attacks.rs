//! Floods, which end their connections and are counted.

use std::sync::Arc;
use std::time::Duration;

use apus_h3::H3ErrorCode;
use apus_http::{Glitch, ResponseFuture};
use apus_net::{EnginePlan, Limits};
use apus_quic::Dir;

use super::{H3Request, H3Server};
use crate::harness::{GlitchRecorder, ok, paths, service};

#[test]
fn rapid_resets_end_the_connection() {
    let server = H3Server::start(service(|_| ResponseFuture::later(std::future::pending())));
    let mut client = server.open();
    while client.state().closed.is_none() {
        for _ in 0..100 {
            if let Some(id) = client.try_request(&H3Request::get("/")) {
                client.cancel(id);
            }
        }
        client.pause(Duration::from_millis(5));
    }
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().stopped_reset_floods, 1);
}

#[test]
fn a_field_section_beyond_all_limits_ends_the_connection() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    // HEADERS of one megabyte.
    client.send_raw(Dir::Bi, &[0x1, 0x80, 0x10, 0, 0], false);
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().stopped_field_block_floods, 1);
}

#[test]
fn frames_that_carry_nothing_end_the_connection() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    // A reserved frame without a payload (RFC 9114 section 7.2.8), again and again.
    let frames = [0x21, 0x0].repeat(200_000);
    client.send_raw(Dir::Bi, &frames, false);
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().stopped_idle_floods, 1);
}

#[test]
fn endless_priority_updates_end_the_connection() {
    let server = H3Server::start(paths());
    let mut client = server.open_raw();
    // SETTINGS, then PRIORITY_UPDATE for stream 0 (RFC 9218 section 7.2).
    let mut bytes = vec![0x0, 0x4, 0x0];
    for _ in 0..100_000 {
        bytes.extend([0x80, 0xf, 0x07, 0x0, 0x4, 0x0, b'u', b'=', b'1']);
    }
    client.send_raw(Dir::Uni, &bytes, false);
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    assert_eq!(server.server.totals().stopped_idle_floods, 1);
}

#[test]
fn unknown_streams_are_ignored() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    for _ in 0..3 {
        client.send_raw(Dir::Uni, &[0x21, 1, 2, 3], true);
    }
    assert_eq!(client.get("/b").text(), "/b");
}

#[test]
fn a_malformed_request_costs_its_stream_only() {
    let server = H3Server::start(paths());
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    // A field section without any pseudo-header field (RFC 9114 section 4.3.1).
    client.send_raw(Dir::Bi, &[0x1, 0x2, 0x0, 0x0], true);
    assert_eq!(client.get("/b").text(), "/b");
    client.wait("the fault", |_| server.server.totals().bad_requests == 1);
}

#[test]
fn what_clients_do_wrong_is_noted() {
    let recorder = Arc::new(GlitchRecorder::default());
    let of_path = service(|request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        path => ok(path.to_owned()).into(),
    });
    let server = H3Server::run(Limits::default(), of_path, |plan| EnginePlan {
        client_filter: Some(recorder.clone()),
        ..plan
    });
    let mut client = server.open();
    assert_eq!(client.get("/a").text(), "/a");
    client.close();
    let mut client = server.open();
    client.send_raw(Dir::Bi, &[0x1, 0x2, 0x0, 0x0], true);
    assert_eq!(client.get("/b").text(), "/b");
    client.wait("the fault", |_| server.server.totals().bad_requests == 1);
    recorder.wait_for(&[Glitch::Protocol]);
    // HEADERS of one megabyte.
    client.send_raw(Dir::Bi, &[0x1, 0x80, 0x10, 0, 0], false);
    client.assert_closed_with(H3ErrorCode::EXCESSIVE_LOAD);
    recorder.wait_for(&[Glitch::Protocol, Glitch::Flood]);
    let mut client = server.open();
    let waiting = client.request(&H3Request::get("/wait"));
    assert_eq!(client.get("/c").text(), "/c");
    client.cancel(waiting);
    assert_eq!(client.get("/d").text(), "/d");
    recorder.wait_for(&[Glitch::Protocol, Glitch::Flood, Glitch::Abandoned]);
}
