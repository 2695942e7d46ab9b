//! Rooms over several workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apus::websocket::{CloseCode, Compression, Rooms, SlowReceivers, WebSocketSettings};

use super::app;
use super::client::Client;
use crate::harness::{Server, wait_until};

/// A chat: the first message names the room, `leave` leaves it, and all other messages go to its other members.
async fn chat(
    rooms: &Rooms,
    mut receiver: apus::websocket::Receiver,
    sender: apus::websocket::Sender,
) {
    let Some(room) = receiver.recv().await else {
        return;
    };
    let room = room.as_text().unwrap().to_owned();
    rooms.join(&room, &sender);
    rooms.join(&room, &sender);
    sender.send("joined").await.unwrap();
    while let Some(message) = receiver.recv().await {
        match message.as_text() {
            Some("leave") => {
                assert!(rooms.leave(&room, &sender));
                assert!(!rooms.leave(&room, &sender));
                sender.send("left").await.unwrap();
            }
            _ => rooms.publish_from(&sender, &room, message).await,
        }
    }
}

pub(super) fn serve(workers: usize, rooms: &Rooms) -> Server {
    let rooms = rooms.clone();
    let app = app(
        WebSocketSettings::default(),
        async move |receiver, sender| {
            chat(&rooms, receiver, sender).await;
        },
    );
    Server::with_workers(workers, app)
}

pub(super) fn join(server: &Server, room: &str, compression: Option<Compression>) -> Client {
    let mut client = Client::open_with(server.address(), compression);
    client.send(room.to_owned());
    assert_eq!(client.message(), "joined".into());
    client
}

#[test]
fn a_message_reaches_all_others_in_its_room_and_nobody_else() {
    let rooms = Rooms::default();
    let server = serve(3, &rooms);
    // There are enough clients that every worker has some.
    let mut here: Vec<_> = (0..16)
        .map(|n| join(&server, "here", (n % 2 == 0).then(Compression::default)))
        .collect();
    let mut there = join(&server, "there", None);
    for round in 0..5 {
        let long = format!("from {round} ").repeat(200);
        here[round].send(long.clone());
        for (at, client) in here.iter_mut().enumerate() {
            if at != round {
                assert_eq!(client.message(), long.clone().into());
            }
        }
    }
    // The members of another room got none of these messages.
    let mut also_there = join(&server, "there", None);
    also_there.send("to there");
    assert_eq!(there.message(), "to there".into());
    // A thread that is not a worker publishes a message.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(rooms.publish("here", "from outside"));
    for client in &mut here {
        assert_eq!(client.message(), "from outside".into());
    }
    runtime.block_on(rooms.publish("nowhere", "unheard"));
}

#[test]
fn members_that_leave_or_disconnect_are_removed() {
    let rooms = Rooms::default();
    let counted = Arc::new(AtomicUsize::new(usize::MAX));
    let (counting, counter) = (rooms.clone(), counted.clone());
    let server = Server::start(app(
        WebSocketSettings::default(),
        async move |receiver, sender| {
            let watched = counting.clone();
            let counter = counter.clone();
            tokio::task::spawn_local(async move {
                loop {
                    counter.store(watched.members_here("room"), Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            chat(&counting, receiver, sender).await;
        },
    ));
    let mut leaving = join(&server, "room", None);
    let mut staying = join(&server, "room", None);
    let mut closing = join(&server, "room", None);
    let vanishing = join(&server, "room", None);
    wait_until("four", || counted.load(Ordering::Relaxed) == 4);
    leaving.send("leave");
    assert_eq!(leaving.message(), "left".into());
    closing.close(CloseCode::NORMAL);
    closing.closed();
    drop(vanishing);
    wait_until("one", || counted.load(Ordering::Relaxed) == 1);
    leaving.send("to who stays");
    assert_eq!(staying.message(), "to who stays".into());
    staying.send("unheard");
    leaving.close(CloseCode::NORMAL);
    // The client receives only the response to its close.
    let close = leaving.event();
    assert!(
        matches!(close, Some(apus_websocket::codec::WebSocketEvent::Close(_))),
        "{close:?}"
    );
}

/// Publishes many messages to a client that does not read, and to one that does.
fn flood(slow: SlowReceivers) -> (Client, Client) {
    let rooms = Rooms::new(slow, None);
    let joined = Arc::new(Mutex::new(0));
    let (joining, count) = (rooms.clone(), joined.clone());
    let settings = WebSocketSettings {
        send_buffer: 64 << 10,
        // The slow client reads its close after the flood, which takes a busy machine longer than the default.
        close_timeout: Duration::from_secs(120),
        ..WebSocketSettings::default()
    };
    let server = Server::with_workers(
        2,
        app(settings, async move |mut receiver, sender| {
            joining.join("room", &sender);
            *count.lock().unwrap() += 1;
            while receiver.recv().await.is_some() {}
        }),
    );
    let slow = Client::open(server.address());
    let mut quick = Client::open(server.address());
    wait_until("both joined", || *joined.lock().unwrap() == 2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for n in 0_u32..500 {
        let mut message = n.to_be_bytes().to_vec();
        message.resize(60_000, 0);
        runtime.block_on(rooms.publish("room", message));
        assert_eq!(quick.message().as_bytes()[..4], n.to_be_bytes());
    }
    // The server must run as long as the clients use it.
    std::mem::forget(server);
    (slow, quick)
}

#[test]
fn a_slow_receiver_misses_messages_or_is_closed() {
    let (mut slow, _quick) = flood(SlowReceivers::Skip);
    let mut received = Vec::new();
    slow.connection.ping(b"").unwrap();
    slow.flush();
    loop {
        match slow.event() {
            Some(apus_websocket::codec::WebSocketEvent::Message(message)) => {
                let number: [u8; 4] = message.as_bytes()[..4].try_into().unwrap();
                received.push(u32::from_be_bytes(number));
            }
            // The pong arrives after all messages that waited.
            Some(apus_websocket::codec::WebSocketEvent::Pong(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        received.is_sorted() && received.len() < 500,
        "{}",
        received.len()
    );

    let (mut slow, _quick) = flood(SlowReceivers::Close);
    let close = slow.closed().unwrap();
    assert_eq!(close.code(), CloseCode::TRY_AGAIN_LATER);
    assert_eq!(close.reason(), "reads too slowly");
}
