//! The memory of data that clients sent and nobody has read.

use std::net::Ipv4Addr;

use apus_quic::{QuicEndpoint, QuicSettings};
use apus_testkit::quic::frame::stream;
use apus_testkit::quic::{RawQuicClient, RawQuicOptions};
use apus_testkit::{block_on, eventually};
use tokio::net::UdpSocket;

use crate::harness::*;

/// The code with which connections are closed that hold too much.
const OVERLOAD: u64 = 0x107;
const BUDGET: u64 = 1 << 20;
/// What each frame of data takes beside its data, at most.
const PIECE: usize = 1_100;

fn limited() -> QuicEndpoint {
    let server = server_with(QuicSettings {
        receive_memory: BUDGET,
        overload_code: OVERLOAD,
        max_bidirectional_streams: 1_000,
        ..QuicSettings::default()
    });
    echo_all(&server);
    server
}

async fn client_at(address: [u8; 4], server: &QuicEndpoint) -> RawQuicClient {
    let options = RawQuicOptions::new(client_config(), "localhost");
    let mut client = RawQuicClient::silent(server.local_address(), &options).await;
    client.socket = UdpSocket::bind((Ipv4Addr::from(address), 0)).await.unwrap();
    client.send_handshake().await;
    client.confirmed().await;
    client
}

/// Sends this much data behind a gap, over streams of 30 KB each. The server has handled it when this returns, unless it has
/// closed the connection.
async fn send_ahead(client: &mut RawQuicClient, first_stream: u64, bytes: usize) -> bool {
    for number in 0..bytes / PIECE {
        let (id, at) = (first_stream + 4 * (number as u64 / 30), number as u64 % 30);
        let offset = 1 + at * PIECE as u64;
        client
            .send_frames(&stream(id, offset, &[7; PIECE], false))
            .await;
        if number % 16 == 15 && client.acknowledged().await.is_err() {
            return false;
        }
    }
    client.acknowledged().await.is_ok()
}

/// 17 MB of streams whose first byte never comes stayed for 100 seconds, and nothing bounded the streams of all
/// connections together.
#[test]
fn data_behind_gaps_is_bounded_for_all_connections_of_a_server() {
    block_on(async {
        let server = limited();
        let mut honest = client_at([127, 0, 0, 9], &server).await;
        // What it sent waits for a packet that was lost.
        assert!(send_ahead(&mut honest, 0, 20_000).await);
        let mut attackers = Vec::new();
        for _ in 0..6 {
            attackers.push(client_at([127, 0, 0, 2], &server).await);
        }
        // Below the budget, all of it is held.
        for attacker in &mut attackers[..3] {
            assert!(send_ahead(attacker, 0, 200_000).await);
        }
        assert_eq!(server.counters().evicted, 0);
        // Above it, connections of the client that holds most are closed.
        for attacker in &mut attackers[3..] {
            assert!(!send_ahead(attacker, 0, 400_000).await);
        }
        assert_eq!(server.counters().evicted, 3);
        for attacker in &mut attackers[..3] {
            attacker.acknowledged().await.unwrap();
        }
        // The lost packet comes, and the stream goes on.
        honest.send_frames(&stream(0, 0, &[7], false)).await;
        honest.acknowledged().await.unwrap();
        connect(&client(), &server).await;
    });
}

/// One connection with as much as it may send.
#[test]
fn a_connection_beyond_the_budget_is_closed_with_the_code_of_the_application() {
    block_on(async {
        let server = limited();
        let mut attacker = client_at([127, 0, 0, 2], &server).await;
        send_ahead(&mut attacker, 0, BUDGET as usize + 100_000).await;
        assert_eq!(attacker.closed().await, (OVERLOAD, true));
        assert_eq!(server.counters().evicted, 1);
        eventually("it is forgotten", || server.connections() == 0).await;
        // Its memory is free for others.
        let mut next = client_at([127, 0, 0, 2], &server).await;
        assert!(send_ahead(&mut next, 0, 700_000).await);
        assert_eq!(server.counters().evicted, 1);
    });
}

/// What a service has read does not count.
#[test]
fn data_that_is_read_uses_no_budget() {
    block_on(async {
        let server = limited();
        let connection = connect(&client(), &server).await;
        for _ in 0..4 {
            let sent = data(BUDGET as usize / 2);
            assert!(exchange(&connection, &sent).await == sent);
        }
        assert_eq!(server.counters().evicted, 0);
    });
}
