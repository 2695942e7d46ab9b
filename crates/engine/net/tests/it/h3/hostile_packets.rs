//! Attacks by packets that no honest client sends, on a server with default settings. Beside each of them, an honest
//! client is served.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use apus_h3::H3ErrorCode;
use apus_net::Limits;
use apus_testkit::quic::frame::{
    ServerFrame, acknowledgement, crypto, integer, integers, kind, new_connection_id, path, stream,
};
use apus_testkit::quic::{INITIAL_DATAGRAM, PacketLevel, RawQuicClient, parameter};
use apus_testkit::{block_on, body_bytes};
use bytes::Bytes;
use tokio::net::UdpSocket;

use super::H3Server;
use super::raw::*;
use crate::harness::{collector, ok, paths, service};

/// Codes of the transport (RFC 9000 section 20.1).
const INTERNAL_ERROR: u64 = 0x1;
const CONNECTION_ID_LIMIT_ERROR: u64 = 0x9;
const PROTOCOL_VIOLATION: u64 = 0xa;

/// What a new path costs: a challenge, a probe of its MTU, and data that was on its way.
const FEW_DATAGRAMS: usize = 3 * 1_472;

/// A moment in which a server would respond.
const MOMENT: Duration = Duration::from_millis(300);

fn assert_serves(server: &H3Server) {
    assert_eq!(server.open().get("/honest").status, 200);
}

/// A server with a response of this size.
fn large(size: usize) -> H3Server {
    let body = Bytes::from(body_bytes(size));
    H3Server::start(service(move |_| ok(body.clone()).into()))
}

async fn bind() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

/// Waits for the first data of the first response.
async fn begins_to_respond(client: &mut RawQuicClient) {
    client
        .wait_for("a response", |frame| {
            matches!(frame, ServerFrame::Stream { stream: 0, .. })
        })
        .await;
}

/// Receives until nothing comes for this time; the bytes.
async fn received_bytes(client: &mut RawQuicClient, silence: Duration) -> usize {
    let mut total = 0;
    while let Some(length) = client.receive_datagram(silence).await {
        total += length;
    }
    total
}

/// RFC 9000 section 8.1: the handshake of a client that never responds, as of one whose address is forged.
#[test]
fn amplification_is_limited_before_the_address_is_validated() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client =
            RawQuicClient::silent(server.server.address(), &server.raw_options()).await;
        client.acknowledges = false;
        client.continues_handshake = false;
        let sent = client.send_handshake().await;
        // Timers of the server expire meanwhile, and it repeats its packets.
        let received = received_bytes(&mut client, Duration::from_secs(2)).await;
        assert!(
            received > 0 && received <= 3 * sent,
            "{received} for {sent}"
        );
    });
    assert_serves(&server);
}

/// Clients that send the first byte of a handshake, each with another connection ID.
#[test]
fn half_open_connections_make_clients_prove_their_address() {
    let server = H3Server::start(paths());
    block_on(async {
        let options = server.raw_options();
        // Half of the share of one client, and those whose packets the kernel drops.
        let mut begun = 0;
        loop {
            let mut client = RawQuicClient::silent(server.server.address(), &options).await;
            client.send(PacketLevel::Initial, &crypto(0, &[1])).await;
            begun += 1;
            assert!(begun < 2_000, "no Retry packet");
            if begun >= 120 {
                let mut packet = [0; 2_000];
                let receiving = client.socket.recv(&mut packet);
                let received = tokio::time::timeout(MOMENT, receiving).await;
                // A Retry packet (section 17.2.5), which is smaller than what it responds to.
                if let Ok(Ok(length)) = received
                    && packet[0] & 0xf0 == 0xf0
                {
                    assert!(length < INITIAL_DATAGRAM);
                    break;
                }
            }
        }
    });
    assert_eq!(server.server.totals().h3_connections, 0);
    assert_serves(&server);
}

/// CVE-2024-22189: connection IDs that the server has to retire, of which the client acknowledges nothing.
#[test]
fn retired_connection_ids_that_are_never_acknowledged_end_the_connection() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        client.acknowledges = false;
        for round in 0..100 {
            let frames: Vec<u8> = (1..=30)
                .flat_map(|index| {
                    let sequence: u64 = 30 * round + index;
                    new_connection_id(sequence, sequence, &sequence.to_be_bytes())
                })
                .collect();
            client.send_frames(&frames).await;
        }
        let closed = client.closed().await;
        assert_eq!(closed, (CONNECTION_ID_LIMIT_ERROR, false));
    });
    assert_serves(&server);
}

/// A client that retires each connection ID which the server issues gets no more of them than it retires.
#[test]
fn connection_ids_are_issued_as_they_are_retired_and_no_faster() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        let is_new = |frame: &ServerFrame| matches!(frame, ServerFrame::NewConnectionId { .. });
        let mut issued = BTreeSet::from([0]);
        let mut retired = 0;
        while retired < 100 {
            let ServerFrame::NewConnectionId { sequence, id } =
                client.wait_for("a connection ID", is_new).await
            else {
                unreachable!()
            };
            issued.insert(sequence);
            client.destination = id;
            while retired < sequence {
                let frame = integers(&[kind::RETIRE_CONNECTION_ID, retired]);
                client.send_frames(&frame).await;
                retired += 1;
            }
        }
        for frame in client.receive(MOMENT).await {
            if let ServerFrame::NewConnectionId { sequence, .. } = frame {
                issued.insert(sequence);
            }
        }
        // `active_connection_id_limit` of the client is 2.
        assert!(
            issued.len() as u64 <= retired + 2,
            "{} {retired}",
            issued.len()
        );
        client.acknowledged().await.unwrap();
    });
    assert_serves(&server);
}

/// CVE-2024-22189, too: challenges of paths, each of which wants a response.
#[test]
fn path_challenges_get_no_more_packets_than_they_came_in() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        client.receive(MOMENT).await;
        let mut responses = 0;
        let is_response = |frame: &ServerFrame| matches!(frame, ServerFrame::PathResponse(_));
        for round in 0..20_u8 {
            let challenges: Vec<u8> = (0..100)
                .flat_map(|index| path(kind::PATH_CHALLENGE, [round, index, 0, 0, 0, 0, 0, 0]))
                .collect();
            client.send_frames(&challenges).await;
            let frames = client.receive(Duration::from_millis(10)).await;
            responses += frames.iter().filter(|frame| is_response(frame)).count();
        }
        let frames = client.receive(MOMENT).await;
        responses += frames.iter().filter(|frame| is_response(frame)).count();
        assert!((1..=20).contains(&responses), "{responses}");
        client.acknowledged().await.unwrap();
    });
    assert_serves(&server);
}

/// CVE-2026-40460: packets of a download come from another address, the address of a victim.
#[test]
fn a_new_address_gets_few_datagrams_until_it_is_validated() {
    let server = large(16 << 20);
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        client.send_frames(&stream(0, 0, &get(), true)).await;
        begins_to_respond(&mut client).await;
        // The old address stays open, so that the server can send to it.
        let old = std::mem::replace(&mut client.socket, bind().await);
        client.acknowledges = false;
        client.send_frames(&integers(&[kind::PING])).await;
        // The client never responds to PATH_CHALLENGE.
        let received = received_bytes(&mut client, Duration::from_secs(1)).await;
        assert!((1..=FEW_DATAGRAMS).contains(&received), "{received}");
        // The client is still there, at its old address.
        client.socket = old;
        client.acknowledges = true;
        client
            .wait_for("the end of the response", |frame| {
                let ServerFrame::Stream { stream, end, .. } = frame else {
                    return false;
                };
                *stream == 0 && *end
            })
            .await;
    });
    assert_serves(&server);
}

/// The same with one address after another, each of which gets the first datagrams of a path.
#[test]
fn clients_that_change_their_address_again_and_again_multiply_no_traffic() {
    let server = large(4 << 20);
    block_on(async {
        // A packet that moves the connection, and one that only probes the path.
        let probe = path(kind::PATH_CHALLENGE, [7; 8]);
        for frames in [integers(&[kind::PING]), probe] {
            let mut client = server.connect_raw_h3().await;
            client.send_frames(&stream(0, 0, &get(), true)).await;
            begins_to_respond(&mut client).await;
            client.acknowledges = false;
            let start = Instant::now();
            let mut received = 0;
            let mut victims = [bind().await, bind().await];
            for _ in 0..300 {
                std::mem::swap(&mut client.socket, &mut victims[0]);
                victims.swap(0, 1);
                client.send_frames(&frames).await;
                received += received_bytes(&mut client, Duration::from_millis(2)).await;
            }
            for victim in victims {
                client.socket = victim;
                received += received_bytes(&mut client, MOMENT).await;
            }
            // Eight addresses, and one more each second.
            let allowed = FEW_DATAGRAMS * (10 + start.elapsed().as_secs() as usize);
            assert!(received > 0 && received <= allowed, "{received}");
        }
    });
    assert_serves(&server);
}

/// CVE-2025-4821: a client acknowledges all packet numbers, also those that the server skips on purpose.
#[test]
fn optimistic_acknowledgements_end_the_connection() {
    /// So little that the kernel loses nothing.
    const WINDOW: u64 = 64 << 10;
    let server = large(32 << 20);
    block_on(async {
        let mut options = server.raw_options();
        options.parameters = [
            parameter(0xf, &options.source),
            parameter(0x4, &integer(WINDOW)),
            parameter(0x5, &integer(1 << 30)),
            parameter(0x7, &integer(1 << 20)),
            parameter(0x9, &integer(3)),
        ]
        .concat();
        let mut client = RawQuicClient::connect(server.server.address(), &options).await;
        client.send_frames(&local_streams()).await;
        client.send_frames(&stream(0, 0, &get(), true)).await;
        begins_to_respond(&mut client).await;
        client.acknowledges = false;
        let closing = async {
            let mut window = WINDOW;
            loop {
                for frame in client.receive(Duration::from_millis(10)).await {
                    match frame {
                        ServerFrame::Close { code, .. } => return code,
                        ServerFrame::Stream { end: true, .. } => panic!("the whole response came"),
                        _ => {}
                    }
                }
                let all: BTreeSet<u64> = (0..=client.largest_received()).collect();
                window += WINDOW;
                let more = integers(&[kind::MAX_DATA, window]);
                client
                    .send_frames(&[acknowledgement(&all), more].concat())
                    .await;
            }
        };
        let code = tokio::time::timeout(Duration::from_secs(60), closing).await;
        assert_eq!(code.expect("the connection stays open"), PROTOCOL_VIOLATION);
    });
    assert_serves(&server);
}

/// RUSTSEC-2026-0185: every second byte of a stream.
#[test]
fn gaps_in_a_stream_end_the_connection() {
    let server = H3Server::start(collector());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        for packet in 0..1_000 {
            let frames: Vec<u8> = (0..150)
                .flat_map(|index| stream(0, 2 * (150 * packet + index) + 1, b"x", false))
                .collect();
            client.send_frames(&frames).await;
            if packet % 10 == 9 && client.acknowledged().await.is_err() {
                break;
            }
        }
        assert_eq!(client.closed().await, (INTERNAL_ERROR, false));
    });
    assert_serves(&server);
}

fn with_short_heads() -> H3Server {
    let limits = Limits {
        head_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    H3Server::with_limits(limits, collector())
}

/// Streams of which data came and the first byte never did: they had no deadline, and held their data for as long as the
/// client wanted.
#[test]
fn streams_whose_start_never_comes_are_ended_at_the_deadline_of_a_head() {
    // Requests, those before them, which are opened by them (RFC 9000 section 2.1), and streams without a type.
    let cases: [(&[u64], &[u64]); 3] = [
        (&[0, 4, 8], &[0, 4, 8]),
        (&[12], &[0, 4, 8, 12]),
        (&[OTHER, OTHER + 4], &[OTHER, OTHER + 4]),
    ];
    for (sent, ended) in cases {
        let server = with_short_heads();
        block_on(async {
            let mut client = server.connect_raw_h3().await;
            let frames = sent.iter().map(|id| stream(*id, 1_000, &[7; 300], false));
            client
                .send_frames(&frames.collect::<Vec<_>>().concat())
                .await;
            let mut open: BTreeSet<u64> = ended.iter().copied().collect();
            while !open.is_empty() {
                let frame = client
                    .wait_for("the end of a stream", |frame| {
                        matches!(frame, ServerFrame::StopSending { .. })
                    })
                    .await;
                let ServerFrame::StopSending { stream, .. } = frame else {
                    unreachable!()
                };
                assert!(open.remove(&stream), "{stream}");
            }
            // What comes later is of nobody, and the connection goes on.
            for id in sent {
                client.send_frames(&stream(*id, 0, &get(), false)).await;
            }
            client.send_frames(&stream(400, 0, &get(), true)).await;
            client
                .wait_for("a response", |frame| {
                    matches!(frame, ServerFrame::Stream { stream: 400, .. })
                })
                .await;
        });
        assert!(server.server.totals().timeouts >= 1);
        assert_serves(&server);
    }
}

/// A head in packets of one byte, each of which comes in time.
#[test]
fn a_head_that_comes_byte_by_byte_has_the_deadline_of_a_head() {
    let server = with_short_heads();
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        let head = frame(HEADERS, &[0; 4_000]);
        let mut sent = 0;
        let closed = loop {
            let byte = [*head.get(sent).unwrap_or(&0)];
            client
                .send_frames(&stream(0, sent as u64, &byte, false))
                .await;
            sent += 1;
            let frames = client.receive(Duration::from_millis(50)).await;
            let mut closes = frames.into_iter().filter_map(|frame| match frame {
                ServerFrame::Close { code, .. } => Some(code),
                _ => None,
            });
            if let Some(code) = closes.next() {
                break code;
            }
        };
        assert_eq!(closed, H3ErrorCode::EXCESSIVE_LOAD.0);
    });
    assert_serves(&server);
}

/// The same with the handshake: every second byte of a ClientHello.
#[test]
fn gaps_in_a_handshake_end_the_connection() {
    let server = H3Server::start(collector());
    block_on(async {
        let options = server.raw_options();
        let mut client = RawQuicClient::silent(server.server.address(), &options).await;
        for packet in 0..80 {
            let frames: Vec<u8> = (0..100)
                .flat_map(|index| crypto(2 * (100 * packet + index) + 1, b"x"))
                .collect();
            client.send(PacketLevel::Initial, &frames).await;
        }
        let (code, by_application) = client.closed().await;
        assert_eq!((code, by_application), (INTERNAL_ERROR, false));
    });
    assert_serves(&server);
}

/// A field section of 1,000 bytes that stands for 4 MB.
#[test]
fn a_qpack_bomb_ends_the_connection() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        // A capacity of 4096, and one entry of 4,000 bytes.
        let mut insert = vec![0x3f, 0xe1, 0x1f, 0x41, b'a'];
        prefixed(0, 7, 4_000, &mut insert);
        insert.extend([b'x'; 4_000]);
        let mut offset = 1;
        for part in insert.chunks(1_000) {
            client
                .send_frames(&stream(ENCODER, offset, part, false))
                .await;
            offset += part.len() as u64;
        }
        let head = [2, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0x50, 1, b'a'];
        let bomb = [&head[..], &[0x80; 1_000]].concat();
        client
            .send_frames(&stream(0, 0, &frame(HEADERS, &bomb), true))
            .await;
        let code = H3ErrorCode::EXCESSIVE_LOAD.0;
        assert_eq!(client.closed().await, (code, true));
    });
    assert_eq!(server.server.totals().stopped_field_block_floods, 1);
    assert_serves(&server);
}

/// Inserts into the table that no request ever uses.
#[test]
fn endless_qpack_inserts_end_the_connection() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        let mut offset = 1;
        let inserts = [&[0x3f, 0xe1, 0x1f][..], &b"\x41a\x011".repeat(200)].concat();
        for _ in 0..10 {
            client
                .send_frames(&stream(ENCODER, offset, &inserts, false))
                .await;
            offset += inserts.len() as u64;
        }
        let code = H3ErrorCode::EXCESSIVE_LOAD.0;
        assert_eq!(client.closed().await, (code, true));
    });
    assert_serves(&server);
}

/// CVE-2023-44487 in single packets: a request and its reset, or a request whose response is not wanted.
#[test]
fn rapid_resets_in_the_packet_of_their_request_end_the_connection() {
    let request = get();
    let length = request.len() as u64;
    let reset = |id: u64| {
        [
            stream(id, 0, &request, false),
            integers(&[kind::RESET_STREAM, id, 0x10c, length]),
            integers(&[kind::STOP_SENDING, id, 0x10c]),
        ]
        .concat()
    };
    let stop = |id: u64| {
        [
            stream(id, 0, &request, true),
            integers(&[kind::STOP_SENDING, id, 0x10c]),
        ]
        .concat()
    };
    // CVE-2025-8671: requests that the server has to reset.
    let malformed = |id: u64| stream(id, 0, &frame(HEADERS, &get_without(":path")), true);
    let floods: [&dyn Fn(u64) -> Vec<u8>; 3] = [&reset, &stop, &malformed];
    for flood in floods {
        let server = H3Server::start(service(|_| {
            apus_http::ResponseFuture::later(std::future::pending())
        }));
        block_on(async {
            let mut client = server.connect_raw_h3().await;
            let mut allowed = 100;
            let mut next = 0;
            loop {
                while next < allowed {
                    let frames: Vec<u8> = (next..allowed.min(next + 10))
                        .flat_map(|index| flood(4 * index))
                        .collect();
                    client.send_frames(&frames).await;
                    next = allowed.min(next + 10);
                }
                let frame = client
                    .wait_for("more streams", |frame| {
                        matches!(
                            frame,
                            ServerFrame::MaxStreams(_) | ServerFrame::Close { .. }
                        )
                    })
                    .await;
                match frame {
                    ServerFrame::MaxStreams(streams) => allowed = allowed.max(streams),
                    ServerFrame::Close { code, .. } => {
                        assert_eq!(H3ErrorCode(code), H3ErrorCode::EXCESSIVE_LOAD);
                        break;
                    }
                    _ => unreachable!(),
                }
                assert!(next < 10_000, "there is no limit");
            }
        });
        assert_eq!(server.server.totals().stopped_reset_floods, 1);
    }
}

/// Frames that have to be acknowledged and do nothing cost no more packets than they came in.
#[test]
fn endless_pings_get_no_more_packets_than_they_came_in() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        client.receive(MOMENT).await;
        let before = client.received_packets();
        let pings = integers(&[kind::PING; 1_000]);
        for _ in 0..50 {
            for _ in 0..10 {
                client.send_frames(&pings).await;
            }
            client.acknowledged().await.unwrap();
        }
        let received = client.received_packets() - before;
        assert!(received <= 550, "{received} packets for 550");
    });
    assert_serves(&server);
}

/// RFC 9000 section 6: version negotiation is smaller than what it responds to, and costs no state.
#[test]
fn version_negotiation_amplifies_nothing_and_keeps_nothing() {
    let server = H3Server::start(paths());
    block_on(async {
        let socket = bind().await;
        let mut packet = vec![0xc0, 0x5a, 0x5a, 0x5a, 0x5a];
        packet.extend([20; 21]);
        packet.extend([20; 21]);
        packet.resize(INITIAL_DATAGRAM, 0);
        let (mut sent, mut received) = (0, 0);
        let mut response = [0; 2_000];
        for _ in 0..2_000 {
            sent += socket
                .send_to(&packet, server.server.address())
                .await
                .unwrap();
            while let Ok((length, _)) = socket.try_recv_from(&mut response) {
                received += length;
            }
        }
        let waiting = tokio::time::timeout(MOMENT, socket.recv(&mut response)).await;
        received += waiting.map_or(0, Result::unwrap);
        assert!(
            received > 0 && received < sent / 10,
            "{received} for {sent}"
        );
    });
    assert_eq!(server.server.totals().h3_connections, 0);
    assert_serves(&server);
}

/// Datagrams of any bytes, among them such that look like packets of a connection.
#[test]
fn garbage_at_the_port_harms_no_connection() {
    let server = H3Server::start(paths());
    let mut honest = server.open();
    assert_eq!(honest.get("/a").text(), "/a");
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        let own = client.seal(PacketLevel::Application, &integers(&[kind::PING]));
        let attacker = bind().await;
        let mut state = 1_u32;
        for round in 0..3_000 {
            let mut packet = vec![0; 1 + round % 1_400];
            for byte in &mut packet {
                // Xorshift: the same bytes in each run.
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                *byte = state as u8;
            }
            // Every second one has the connection ID of the client.
            if round % 2 == 0 && packet.len() > 9 {
                packet[..9].copy_from_slice(&own[..9]);
            }
            attacker
                .send_to(&packet, server.server.address())
                .await
                .unwrap();
        }
        client.acknowledged().await.unwrap();
    });
    assert_eq!(honest.get("/b").text(), "/b");
    assert_serves(&server);
}

/// RFC 9000 section 10.3: packets that look like stateless resets, with any token.
#[test]
fn stateless_resets_of_strangers_are_ignored() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        // A token that the server would accept.
        client
            .send_frames(&new_connection_id(1, 0, b"12345678"))
            .await;
        client.acknowledged().await.unwrap();
        let attacker = bind().await;
        let mut reset = vec![0x40];
        reset.extend(&client.destination);
        reset.resize(reset.len() + 20, 7);
        // The token of the connection ID 1 ends in one other byte.
        for token in [
            [0; 16],
            [255; 16],
            [[1; 15].as_slice(), &[2]].concat().try_into().unwrap(),
        ] {
            let packet = [&reset[..], &token].concat();
            for socket in [&attacker, &client.socket] {
                socket
                    .send_to(&packet, server.server.address())
                    .await
                    .unwrap();
            }
        }
        client.acknowledged().await.unwrap();
    });
    assert_serves(&server);
}

/// RFC 9000 section 10.3.3: a server that knows no such connection must not begin a loop of resets.
#[test]
fn a_stateless_reset_is_smaller_than_what_it_responds_to() {
    let server = H3Server::start(paths());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        let close = [integers(&[kind::APPLICATION_CLOSE, 0x100, 0])].concat();
        let ping = client.seal(PacketLevel::Application, &integers(&[kind::PING; 60]));
        client.send_frames(&close).await;
        client.receive(MOMENT).await;
        let mut packet = [0; 2_000];
        // The server forgets the connection soon.
        let length = loop {
            client.send_datagram(&ping).await;
            let receiving = client.socket.recv(&mut packet);
            match tokio::time::timeout(MOMENT, receiving).await {
                Ok(received) if packet[0] & 0x80 == 0 => break received.unwrap(),
                _ => {}
            }
        };
        assert!(length < ping.len(), "{length} for {}", ping.len());
        // Too small for a response (section 10.3.3).
        client.send_datagram(&ping[..20]).await;
        let receiving = client.socket.recv(&mut packet);
        assert!(tokio::time::timeout(MOMENT, receiving).await.is_err());
    });
    assert_serves(&server);
}
