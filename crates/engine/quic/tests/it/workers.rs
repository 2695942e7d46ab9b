//! Several endpoints at one address: steering, hand-over, and the replacement of workers.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use apus_quic::{QuicEndpoint, QuicKeys, QuicSettings, QuicWorkers, Steering};
use apus_testkit::{UdpRelay, block_on, eventually};

use crate::harness::*;

fn workers_with(steering: Steering) -> Arc<QuicWorkers> {
    QuicWorkers::new(QuicKeys::generate().unwrap(), steering)
}

/// Echo servers at one address.
fn echo_servers(
    workers: &Arc<QuicWorkers>,
    address: SocketAddr,
    count: usize,
) -> Vec<QuicEndpoint> {
    let mut address = address;
    (0..count)
        .map(|_| {
            let server = endpoint(workers, address, QuicSettings::default(), Some(one_site()));
            echo_all(&server);
            address = server.local_address();
            server
        })
        .collect()
}

fn sum(servers: &[QuicEndpoint], counter: impl Fn(apus_quic::QuicCounters) -> u64) -> u64 {
    servers
        .iter()
        .map(|server| counter(server.counters()))
        .sum()
}

/// Clients whose addresses change between exchanges, at several endpoints. Returns how many packets were handed over.
async fn handed_over_to_migrating_clients(steering: Steering, address: SocketAddr) -> u64 {
    let workers = workers_with(steering);
    let servers = echo_servers(&workers, address, 4);
    let client = endpoint(&new_workers(), address, QuicSettings::default(), None);
    for _ in 0..8 {
        let relay = UdpRelay::to(servers[0].local_address()).await;
        let connection = client
            .connect(relay.address, "localhost", &client_tls())
            .unwrap();
        connected(&connection).await;
        for _ in 0..4 {
            assert_eq!(exchange(&connection, &data(5_000)).await, data(5_000));
            relay.change_address().await;
        }
    }
    let used = servers
        .iter()
        .filter(|server| server.counters().accepted > 0);
    assert!(used.count() > 1, "all connections are at one endpoint");
    assert_eq!(sum(&servers, |counters| counters.accepted), 8);
    let handed_over = sum(&servers, |counters| counters.handed_over);
    assert_eq!(sum(&servers, |counters| counters.handed_in), handed_over);
    handed_over
}

#[test]
fn the_kernel_gives_packets_to_the_endpoint_of_their_connection() {
    block_on(async {
        for address in [V4, V6] {
            let steering = Steering::ByKernel;
            assert_eq!(handed_over_to_migrating_clients(steering, address).await, 0);
        }
    });
}

#[test]
fn packets_at_the_wrong_endpoint_are_handed_over() {
    block_on(async {
        for address in [V4, V6] {
            let steering = Steering::ByHandOver;
            assert!(handed_over_to_migrating_clients(steering, address).await > 0);
        }
    });
}

#[test]
fn steering_follows_the_sockets_that_are_closed() {
    block_on(async {
        let workers = workers_with(Steering::ByKernel);
        let mut servers = echo_servers(&workers, V4, 4);
        let address = servers[0].local_address();
        let client = client();
        let mut connections = Vec::new();
        while servers.iter().any(|server| server.counters().accepted == 0) {
            let connection = connect(&client, &servers[0]).await;
            exchange(&connection, &data(10)).await;
            connections.push(connection);
        }
        // The last socket takes the place of this one in the kernel.
        let stopped = servers.remove(1);
        stopped.stop();
        stopped.close_all(0, &bytes::Bytes::new());
        eventually("it is gone", || stopped.connections() == 0).await;
        tokio::task::yield_now().await;
        let before = sum(&servers, |counters| counters.handed_over);
        let mut alive = 0;
        for connection in connections {
            if connection.open(apus_quic::Dir::Bi).is_some() {
                assert_eq!(exchange(&connection, &data(10)).await, data(10));
                alive += 1;
            }
        }
        assert!(alive >= 3);
        assert_eq!(
            connect(&client, &servers[0]).await.remote_address(),
            address
        );
        assert_eq!(sum(&servers, |counters| counters.handed_over), before);
    });
}

/// Replaces a worker while it has a connection.
async fn replace_a_worker(steering: Steering) {
    let workers = workers_with(steering);
    let old = echo_servers(&workers, V4, 1).remove(0);
    let client = client();
    let relay = UdpRelay::to(old.local_address()).await;
    let connection = client
        .connect(relay.address, "localhost", &client_tls())
        .unwrap();
    connected(&connection).await;
    assert_eq!(exchange(&connection, &data(10)).await, data(10));
    let new = echo_servers(&workers, old.local_address(), 2);
    old.stop();
    for _ in 0..6 {
        // New connections are at the new endpoints.
        let other = connect(&client, &new[0]).await;
        assert_eq!(exchange(&other, &data(10_000)).await, data(10_000));
        // The old one continues, wherever its packets arrive.
        relay.change_address().await;
        assert_eq!(exchange(&connection, &data(10_000)).await, data(10_000));
    }
    assert_eq!(old.counters().accepted, 1);
    assert_eq!(sum(&new, |counters| counters.accepted), 6);
    let handed_over = sum(&new, |counters| counters.handed_over) + old.counters().handed_over;
    assert_eq!(handed_over > 0, steering == Steering::ByHandOver);
    connection.close(0, bytes::Bytes::new());
    eventually("the old endpoint ends", || old.connections() == 0).await;
    let other = connect(&client, &new[0]).await;
    assert_eq!(exchange(&other, &data(10)).await, data(10));
}

#[test]
fn a_worker_that_is_replaced_serves_its_connections_to_the_end() {
    block_on(async {
        for steering in [Steering::ByKernel, Steering::ByHandOver] {
            replace_a_worker(steering).await;
        }
    });
}

#[test]
fn a_socket_that_another_process_bound_can_be_adopted() {
    block_on(async {
        let socket = std::net::UdpSocket::bind(V4).unwrap();
        let address = socket.local_addr().unwrap();
        let socket = new_workers().adopt(socket).unwrap();
        assert_eq!(socket.local_address(), address);
        let (server, task) =
            QuicEndpoint::new(socket, QuicSettings::default(), Some(one_site())).unwrap();
        tokio::task::spawn_local(task);
        echo_all(&server);
        let connection = connect(&client(), &server).await;
        assert_eq!(exchange(&connection, &data(10)).await, data(10));
    });
}

#[test]
fn workers_on_threads_of_their_own_share_an_address() {
    let workers = workers_with(Steering::ByHandOver);
    let first = workers.bind(V4).unwrap();
    let address = first.local_address();
    let sockets = [first, workers.bind(address).unwrap()];
    let threads = sockets.map(|socket| {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            block_on(async {
                let (server, task) =
                    QuicEndpoint::new(socket, QuicSettings::default(), Some(one_site())).unwrap();
                let task = tokio::task::spawn_local(task);
                echo_all(&server);
                let _ = stopped.await;
                server.stop();
                within(task).await.unwrap();
                server.counters()
            })
        });
        (stop, thread)
    });
    block_on(async {
        let client = client();
        for _ in 0..8 {
            let relay = UdpRelay::to(address).await;
            let connection = client
                .connect(relay.address, "localhost", &client_tls())
                .unwrap();
            connected(&connection).await;
            for _ in 0..3 {
                assert!(exchange(&connection, &data(50_000)).await == data(50_000));
                relay.change_address().await;
            }
        }
        client.stop();
        eventually("the client is done", || client.connections() == 0).await;
    });
    let counters = threads.map(|(stop, thread)| {
        stop.send(()).unwrap();
        thread.join().unwrap()
    });
    assert_eq!(
        counters
            .iter()
            .map(|counters| counters.accepted)
            .sum::<u64>(),
        8
    );
    assert!(counters.iter().any(|counters| counters.handed_in > 0));
}

#[test]
fn a_task_is_woken_once_for_the_packets_of_a_batch() {
    block_on(async {
        let server = server();
        let connection = connect(&client(), &server).await;
        let accepted = accept(&server).await;
        let wakes = Rc::new(Cell::new(0));
        let received = Rc::new(Cell::new(0));
        let task = {
            let (wakes, received) = (Rc::clone(&wakes), Rc::clone(&received));
            tokio::task::spawn_local(async move {
                while received.get() < 300_000 {
                    let event = next_event(&accepted).await;
                    wakes.set(wakes.get() + 1);
                    if let apus_quic::QuicEvent::Stream(
                        apus_quic::StreamEvent::Opened(stream)
                        | apus_quic::StreamEvent::Readable(stream),
                    ) = event
                    {
                        let mut count = 0;
                        let _ = accepted.read(stream, usize::MAX, |chunk| count += chunk.len());
                        received.set(received.get() + count);
                    }
                }
                accepted.statistics().udp_rx.datagrams
            })
        };
        let stream = connection.open(apus_quic::Dir::Uni).unwrap();
        write_all(&connection, stream, &data(300_000)).await;
        let packets = within(task).await.unwrap();
        assert!(packets > 4 * wakes.get(), "{packets} {}", wakes.get());
    });
}
