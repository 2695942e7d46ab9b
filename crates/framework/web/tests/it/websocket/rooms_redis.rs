//! Rooms of two servers that share them through Redis.

use apus::redis::Redis;
use apus::websocket::Rooms;
use apus_testkit::{DatabaseKind, DatabaseServer};
use apus_websocket::codec::WebSocketEvent;

use super::client::Client;
use super::rooms::{join, serve};
use crate::harness::{Server, wait_until};

fn start_redis() -> DatabaseServer {
    DatabaseServer::start(DatabaseKind::Redis)
}

fn open(redis: &DatabaseServer) -> Redis {
    Redis::open(&redis.address()).unwrap()
}

/// A server with rooms of this name.
fn machine(redis: &DatabaseServer, name: &str) -> (Server, Rooms) {
    let rooms = Rooms::default().through_redis(&open(redis), name).unwrap();
    wait_until("a connection", || rooms.is_shared());
    (serve(2, &rooms), rooms)
}

/// Asserts that these are the next messages of every client.
fn all_receive(clients: &mut [Client], messages: &[&str]) {
    for client in clients {
        for text in messages {
            assert_eq!(client.message().as_text(), Some(*text));
        }
    }
}

#[test]
fn messages_reach_all_machines_once() {
    let redis = start_redis();
    let (one, _) = machine(&redis, "chat");
    let (two, rooms) = machine(&redis, "chat");
    let (other, _) = machine(&redis, "another chat");
    let mut here: Vec<_> = (0..6).map(|_| join(&one, "Zürich", None)).collect();
    let mut there: Vec<_> = (0..6).map(|_| join(&two, "Zürich", None)).collect();
    let mut bern = join(&two, "Bern", None);
    let mut stranger = join(&other, "Zürich", None);
    // A client does not receive its own messages, and receives each message of others once.
    here[0].send("from one");
    all_receive(&mut here[1..], &["from one"]);
    all_receive(&mut there, &["from one"]);
    there[0].send("from two");
    all_receive(&mut here, &["from two"]);
    all_receive(&mut there[1..], &["from two"]);
    // Messages of any kind arrive in order.
    let bytes = vec![0xff; 200_000];
    here[0].send(bytes.clone());
    for n in 0..500 {
        here[0].send(format!("{n}"));
    }
    for client in there.iter_mut().chain(&mut here[1..]) {
        assert_eq!(client.message().as_bytes(), bytes);
        for n in 0..500 {
            assert_eq!(client.message().as_text(), Some(&*n.to_string()));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(rooms.publish("Bern", "for Bern"));
    all_receive(std::slice::from_mut(&mut bern), &["for Bern"]);
    // The client in the rooms of another name receives only the pong.
    stranger.connection.ping(b"alone?").unwrap();
    stranger.flush();
    let event = stranger.event();
    assert_eq!(
        event,
        Some(WebSocketEvent::Pong(b"alone?".as_slice().into()))
    );
}

#[test]
fn rooms_work_locally_without_redis_and_reconnect() {
    let mut redis = start_redis();
    let (one, one_rooms) = machine(&redis, "chat");
    let (two, two_rooms) = machine(&redis, "chat");
    let mut here: Vec<_> = (0..4).map(|_| join(&one, "room", None)).collect();
    let mut there: Vec<_> = (0..4).map(|_| join(&two, "room", None)).collect();
    redis.stop();
    wait_until("no connection", || {
        !one_rooms.is_shared() && !two_rooms.is_shared()
    });
    here[0].send("local");
    all_receive(&mut here[1..], &["local"]);
    redis.restart();
    wait_until("connections", || {
        one_rooms.is_shared() && two_rooms.is_shared()
    });
    // Messages from the time without Redis may be lost: it keeps nothing for disconnected servers.
    there[0].send("again");
    all_receive(&mut here, &["again"]);
}

#[test]
fn an_invalid_address_and_a_second_redis_are_errors() {
    assert!(Redis::open("http://example.com").is_err());
    let redis = start_redis();
    let rooms = Rooms::default()
        .through_redis(&open(&redis), "chat")
        .unwrap();
    assert!(rooms.through_redis(&open(&redis), "chat").is_err());
}
