//! Packets outside of connections: version negotiation, stateless resets, and what is not QUIC.

use std::net::SocketAddr;
use std::time::Duration;

use apus_quic::{QuicCloseReason, QuicEndpoint, QuicSettings};
use apus_testkit::{block_on, eventually};
use tokio::net::UdpSocket;

use crate::harness::*;

/// A packet with a long header, and connection IDs of 8 bytes.
fn long_header(first: u8, version: u32, length: usize) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    packet.extend([8, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet.extend([8, 11, 12, 13, 14, 15, 16, 17, 18]);
    packet.resize(length, 0);
    packet
}

async fn send(packet: &[u8], to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).await.unwrap();
    socket.send_to(packet, to).await.unwrap();
    socket
}

/// The response to a packet, if there is one within a moment.
async fn response(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut packet = vec![0; 2_000];
    let received = tokio::time::timeout(Duration::from_millis(300), socket.recv(&mut packet));
    let length = received.await.ok()?.unwrap();
    packet.truncate(length);
    Some(packet)
}

#[test]
fn an_unknown_version_is_negotiated() {
    block_on(async {
        let server = server();
        let request = long_header(0xc0, 0x5a5a_5a5a, 1_200);
        let socket = send(&request, server.local_address()).await;
        let packet = response(&socket).await.unwrap();
        assert_eq!(packet[1..5], [0; 4]);
        // The connection IDs change places.
        assert_eq!(packet[5..14], request[14..23]);
        assert_eq!(packet[14..23], request[5..14]);
        let versions: Vec<_> = packet[23..].chunks(4).collect();
        assert!(versions.contains(&&[0, 0, 0, 1][..]));
        assert!(versions.contains(&&[0x6b, 0x33, 0x43, 0xcf][..]));
        // One that must not be used (RFC 9000 section 15), and no draft.
        assert_eq!(versions.len(), 3);
    });
}

#[test]
fn an_unknown_version_in_a_small_packet_gets_no_response() {
    block_on(async {
        let server = server();
        let request = long_header(0xc0, 0x5a5a_5a5a, 1_199);
        let socket = send(&request, server.local_address()).await;
        assert_eq!(response(&socket).await, None);
    });
}

#[test]
fn packets_that_are_not_quic_are_ignored() {
    block_on(async {
        let server = server();
        echo_all(&server);
        let connection = connect(&client(), &server).await;
        let before = server.counters().received;
        let mut packets: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0xff],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 65_000],
            vec![0xff; 65_000],
            // An Initial packet that ends in its header, and one whose payload cannot be decrypted.
            long_header(0xc0, 1, 23),
            long_header(0xc0, 1, 1_200),
            long_header(0xc3, 1, 1_500),
            // Handshake, 0-RTT and Retry packets of no connection.
            long_header(0xe0, 1, 1_200),
            long_header(0xd0, 1, 1_200),
            long_header(0xf0, 1, 1_200),
        ];
        // Connection IDs of all lengths.
        for length in 0..=255 {
            let mut packet = long_header(0xc0, 1, 1_200);
            packet[5] = length;
            packets.push(packet);
        }
        let socket = UdpSocket::bind(V4).await.unwrap();
        for packet in &packets {
            socket
                .send_to(packet, server.local_address())
                .await
                .unwrap();
        }
        eventually("the server has them", || {
            server.counters().received >= before + packets.len() as u64
        })
        .await;
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_server_that_lost_its_connections_resets_them() {
    block_on(async {
        let workers = new_workers();
        let socket = workers.bind(V4).unwrap();
        let (server, task) =
            QuicEndpoint::new(socket, QuicSettings::default(), Some(one_site())).unwrap();
        let task = tokio::task::spawn_local(task);
        let connection = connect(&client(), &server).await;
        // The task of the worker dies, and another worker takes its address.
        let _accepted = accept(&server).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let address = server.local_address();
        let other = endpoint(&workers, address, QuicSettings::default(), Some(one_site()));
        assert_eq!(other.local_address(), address);
        let stream = connection.open(apus_quic::Dir::Bi).unwrap();
        connection.write(stream, &mut [data(1_000)]).unwrap();
        assert_eq!(closed(&connection).await, QuicCloseReason::Reset);
    });
}

#[test]
fn a_short_packet_with_a_connection_id_of_no_endpoint_gets_no_response() {
    block_on(async {
        let server = server();
        let mut packet = vec![0x40];
        packet.resize(1_000, 7);
        let socket = send(&packet, server.local_address()).await;
        assert_eq!(response(&socket).await, None);
        assert_eq!(server.counters().received, 1);
    });
}
