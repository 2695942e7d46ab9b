//! The life of a connection: time-outs, its end, key updates, and the stop of an endpoint.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use apus_quic::{
    CongestionControl, ConnectError, Dir, QuicCloseReason, QuicEndpoint, QuicEvent, QuicSettings,
    StreamEvent,
};
use apus_testkit::quic::frame::ServerFrame;
use apus_testkit::quic::{RawQuicClient, RawQuicOptions};
use apus_testkit::{UdpRelay, block_on, eventually, free_port};
use bytes::Bytes;

use crate::harness::*;

#[test]
fn the_peer_gets_the_code_and_the_reason_of_a_close() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        accepted.close(0x10c, Bytes::from_static(b"enough"));
        let expected = QuicCloseReason::Application {
            code: 0x10c,
            reason: Bytes::from_static(b"enough"),
        };
        assert_eq!(closed(&connection).await, expected);
        // It stays the last event.
        assert_eq!(closed(&connection).await, expected);
        assert_eq!(closed(&accepted).await, QuicCloseReason::Local);
        assert_eq!(connection.open(Dir::Bi), None);
        eventually("the connection is forgotten", || server.connections() == 0).await;
    });
}

#[test]
fn a_dropped_connection_is_closed() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        drop(accept(&server).await);
        let reason = Bytes::new();
        let expected = QuicCloseReason::Application { code: 0, reason };
        assert_eq!(closed(&connection).await, expected);
    });
}

#[test]
fn a_silent_connection_ends_after_the_idle_timeout() {
    block_on(async {
        let settings = QuicSettings {
            max_idle_timeout: Duration::from_millis(200),
            ..QuicSettings::default()
        };
        let server = server_with(settings);
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        // The client has the longer timeout, and uses the timeout of the server.
        assert_eq!(closed(&connection).await, QuicCloseReason::IdleTimeout);
        assert_eq!(closed(&accepted).await, QuicCloseReason::IdleTimeout);
        eventually("the connection is forgotten", || server.connections() == 0).await;
    });
}

#[test]
fn a_client_gives_up_when_nobody_responds() {
    block_on(async {
        let client = client_with(QuicSettings {
            handshake_timeout: Duration::from_millis(300),
            ..QuicSettings::default()
        });
        // Nobody is at this port: the kernel responds with ICMP.
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let connection = client.connect(address, "localhost", &client_tls()).unwrap();
        let reason = closed(&connection).await;
        assert_eq!(reason, QuicCloseReason::HandshakeTimeout);
        // The endpoint works for others.
        let server = server();
        echo_all(&server);
        let connection = connect(&client, &server).await;
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
    });
}

#[test]
fn a_client_that_stays_in_the_handshake_is_forgotten() {
    block_on(async {
        let server = server_with(QuicSettings {
            handshake_timeout: Duration::from_millis(300),
            ..QuicSettings::default()
        });
        let relay = UdpRelay::to(server.local_address()).await;
        relay.limit(None, Some(0));
        let client = client();
        let _connection = client
            .connect(relay.address, "localhost", &client_tls())
            .unwrap();
        eventually("the server sees it", || server.connections() == 1).await;
        relay.limit(Some(0), Some(0));
        eventually("the server forgets it", || server.connections() == 0).await;
        assert_eq!(server.counters().failed_handshakes, 1);
        assert_eq!(server.counters().accepted, 0);
    });
}

#[test]
fn a_half_open_connection_that_is_silent_makes_room_after_the_idle_timeout() {
    block_on(async {
        let server = server_with(QuicSettings {
            max_idle_timeout: Duration::from_millis(200),
            max_half_open: 1,
            retry: apus_quic::RetryMode::Never,
            ..QuicSettings::default()
        });
        let client = client();
        for _ in 0..3 {
            let relay = UdpRelay::to(server.local_address()).await;
            relay.limit(Some(2), Some(0));
            let _connection = client
                .connect(relay.address, "localhost", &client_tls())
                .unwrap();
            eventually("the server sees it", || server.connections() == 1).await;
            eventually("the server forgets it", || server.connections() == 0).await;
        }
        assert_eq!(server.counters().failed_handshakes, 3);
        assert_eq!(server.counters().refused, 0);
        connect(&client, &server).await;
    });
}

#[test]
fn keys_can_be_updated_during_a_transfer() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        tokio::task::spawn_local(echo(accept(&server).await));
        for _ in 0..3 {
            assert!(exchange(&connection, &data(300_000)).await == data(300_000));
            connection.update_keys();
        }
        assert!(exchange(&connection, &data(300_000)).await == data(300_000));
    });
}

#[test]
fn connections_can_be_opened_to_an_address_of_the_same_family_only() {
    block_on(async {
        let server = endpoint(
            &new_workers(),
            V6,
            QuicSettings::default(),
            Some(one_site()),
        );
        let error = client().connect(server.local_address(), "localhost", &client_tls());
        let expected = ConnectError::InvalidRemoteAddress(server.local_address());
        assert_eq!(error.err(), Some(expected));
    });
}

/// An endpoint, and the handle of its task.
fn server_and_task() -> (QuicEndpoint, tokio::task::JoinHandle<()>) {
    let socket = new_workers().bind(V4).unwrap();
    let (server, task) =
        QuicEndpoint::new(socket, QuicSettings::default(), Some(one_site())).unwrap();
    (server, tokio::task::spawn_local(task))
}

#[test]
fn an_endpoint_that_stops_serves_its_connections_and_refuses_others() {
    block_on(async {
        let (server, task) = server_and_task();
        let client = client();
        let connection = connect(&client, &server).await;
        tokio::task::spawn_local(echo(accept(&server).await));
        server.stop();
        assert!(within(server.accept()).await.is_none());
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
        let refused = closed(&begin(&client, &server)).await;
        let expected = QuicCloseReason::Peer {
            // CONNECTION_REFUSED
            code: 2,
            reason: Bytes::new(),
        };
        assert_eq!(refused, expected);
        assert!(server.counters().refused > 0);
        assert!(!task.is_finished());
        connection.close(0, Bytes::new());
        within(task).await.unwrap();
        let error = server.connect(V4, "localhost", &client_tls()).err();
        assert_eq!(error, Some(ConnectError::EndpointStopping));
    });
}

#[test]
fn an_endpoint_without_connections_stops_at_once() {
    block_on(async {
        let (server, task) = server_and_task();
        let waiting = {
            let server = server.clone();
            tokio::task::spawn_local(async move { server.accept().await.is_none() })
        };
        tokio::task::yield_now().await;
        server.stop();
        within(task).await.unwrap();
        assert!(within(waiting).await.unwrap());
    });
}

#[test]
fn a_handshake_that_began_before_the_stop_is_completed() {
    block_on(async {
        let (server, task) = server_and_task();
        let relay = UdpRelay::to(server.local_address()).await;
        relay.limit(None, Some(0));
        let client = client();
        let connection = client
            .connect(relay.address, "localhost", &client_tls())
            .unwrap();
        eventually("the server sees it", || server.connections() == 1).await;
        server.stop();
        relay.limit(None, None);
        let accepted = accept(&server).await;
        connected(&connection).await;
        assert!(within(server.accept()).await.is_none());
        drop(accepted);
        within(task).await.unwrap();
    });
}

#[test]
fn all_connections_can_be_closed() {
    block_on(async {
        let (server, task) = server_and_task();
        let client = client();
        let connections = [
            connect(&client, &server).await,
            connect(&client, &server).await,
        ];
        let accepted = [accept(&server).await, accept(&server).await];
        server.stop();
        server.close_all(7, &Bytes::from_static(b"over"));
        for connection in &connections {
            let reason = Bytes::from_static(b"over");
            let expected = QuicCloseReason::Application { code: 7, reason };
            assert_eq!(closed(connection).await, expected);
        }
        for connection in &accepted {
            assert_eq!(closed(connection).await, QuicCloseReason::Local);
        }
        within(task).await.unwrap();
    });
}

#[test]
fn the_task_of_an_idle_endpoint_sleeps() {
    block_on(async {
        let socket = new_workers().bind(V4).unwrap();
        let settings = QuicSettings {
            max_idle_timeout: Duration::from_millis(800),
            ..QuicSettings::default()
        };
        let (server, mut task) = QuicEndpoint::new(socket, settings, Some(one_site())).unwrap();
        let polls = Rc::new(Cell::new(0));
        tokio::task::spawn_local({
            let polls = Rc::clone(&polls);
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                Pin::new(&mut task).poll(cx)
            })
        });
        echo_all(&server);
        let connection = connect(&client(), &server).await;
        assert!(exchange(&connection, &data(1_000_000)).await == data(1_000_000));
        // Until the idle timeout, with acknowledgements that are late and timers that are set.
        let before = polls.get();
        assert_eq!(closed(&connection).await, QuicCloseReason::IdleTimeout);
        let idle = polls.get() - before;
        assert!(idle < 30, "{idle} polls");
    });
}

/// Packets and timers that came between the halves of a turn consumed the only wake-up, and the endpoint slept for ever.
#[test]
fn packets_between_the_halves_of_a_turn_are_handled() {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    block_on(async {
        let socket = new_workers().bind(V4).unwrap();
        let (server, mut task) =
            QuicEndpoint::new(socket, QuicSettings::default(), Some(one_site())).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll_once = || {
            let _ = Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
        };
        poll_once();
        let connection = begin(&client(), &server);
        let (mut accepted, mut stream) = (None, None);
        let (accepted, stream) = eventually("both ends have the connection", || {
            if woken.0.swap(false, Ordering::Relaxed) {
                poll_once();
            }
            let accepting = pin!(server.accept());
            if let Poll::Ready(new) = accepting.poll(&mut Context::from_waker(Waker::noop())) {
                accepted = new;
            }
            stream = stream.or_else(|| connection.open(Dir::Uni));
            accepted.take_if(|_| stream.is_some()).zip(stream)
        })
        .await;
        let mut received = 0;
        for round in 1..=10 {
            connection.write(stream, &mut [data(10)]).unwrap();
            // The task of the endpoint is polled only when it is woken, and late: more packets and timers come meanwhile.
            for late in 0.. {
                if received == round * 10 {
                    break;
                }
                assert!(late < 100, "the endpoint sleeps");
                // A packet, and the time by which the endpoint delays its acknowledgement.
                let sent = || connection.statistics().udp_tx.datagrams;
                let (before, polled) = (sent(), Instant::now());
                eventually("a packet and a timer have come", || {
                    sent() > before && polled.elapsed() > Duration::from_millis(25)
                })
                .await;
                if woken.0.swap(false, Ordering::Relaxed) {
                    poll_once();
                }
                connection.ping();
                let mut cx = Context::from_waker(Waker::noop());
                while let Poll::Ready(event) = accepted.poll_event(&mut cx) {
                    if let QuicEvent::Stream(
                        StreamEvent::Opened(stream) | StreamEvent::Readable(stream),
                    ) = event
                    {
                        let _ = accepted.read(stream, 100, |chunk| received += chunk.len());
                    }
                }
            }
        }
    });
}

#[test]
fn settings_and_sites_can_be_replaced() {
    block_on(async {
        let server = server();
        let client = client();
        let before = connect(&client, &server).await;
        let settings = QuicSettings {
            max_bidirectional_streams: 1,
            ..QuicSettings::default()
        };
        server.configure(settings, Some(one_site())).unwrap();
        let after = connect(&client, &server).await;
        assert!(before.open(Dir::Bi).is_some() && before.open(Dir::Bi).is_some());
        assert!(after.open(Dir::Bi).is_some() && after.open(Dir::Bi).is_none());
        server.configure(QuicSettings::default(), None).unwrap();
        let refused = client_with(QuicSettings {
            handshake_timeout: Duration::from_millis(200),
            ..QuicSettings::default()
        });
        let reason = closed(&begin(&refused, &server)).await;
        assert_eq!(reason, QuicCloseReason::HandshakeTimeout);
    });
}

/// CONNECTION_CLOSE is not limited by congestion control (RFC 9002 section 7), which waits for a peer that acknowledges
/// nothing.
#[test]
fn a_close_reaches_a_peer_that_acknowledges_nothing() {
    for congestion in [CongestionControl::Cubic, CongestionControl::Bbr] {
        block_on(async {
            let server = server_with(QuicSettings {
                congestion,
                ..QuicSettings::default()
            });
            let options = RawQuicOptions::new(client_config(), "localhost");
            let mut client = RawQuicClient::connect(server.local_address(), &options).await;
            let accepted = accept(&server).await;
            client.acknowledges = false;
            let stream = accepted.open(Dir::Uni).expect("the peer allows streams");
            // More than may be in flight: the rest waits.
            accepted.write(stream, &mut [data(100_000)]).unwrap();
            client
                .wait_for("data", |frame| matches!(frame, ServerFrame::Stream { .. }))
                .await;
            while client
                .receive_datagram(Duration::from_millis(20))
                .await
                .is_some()
            {}
            accepted.close(0x10c, Bytes::new());
            assert_eq!(client.closed().await, (0x10c, true));
        });
    }
}
