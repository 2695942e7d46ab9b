//! A process without descriptors left: accept goes on, does not spin, and serves again.

use std::fs::File;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use apus_testkit::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Client, Server, in_own_process, paths};

fn allow_descriptors(number: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(number),
            maximum,
        },
    )
    .unwrap();
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Connects as many as the queue of the socket takes; the sockets are opened before the limit.
fn sockets(number: usize) -> Vec<socket2::Socket> {
    (0..number)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
        .collect()
}

fn lowest_free_descriptor() -> u64 {
    use std::os::fd::AsRawFd;
    File::open("/dev/null").unwrap().as_raw_fd() as u64
}

#[test]
fn accept_goes_on_when_descriptors_are_back_and_does_not_spin() {
    if !in_own_process("descriptors::accept_goes_on_when_descriptors_are_back_and_does_not_spin") {
        return;
    }
    let server = Server::start(paths());
    server.assert_serves();
    server.wait_for("the end of that connection", |totals| {
        totals.connections == 0
    });
    let waiting = sockets(20);
    allow_descriptors(lowest_free_descriptor());
    for socket in &waiting {
        socket.connect(&server.address().into()).unwrap();
    }
    server.wait_for("the lack of descriptors", |totals| {
        totals.accept_failures > 0
    });
    let (start, used) = (Instant::now(), processor_time());
    wait_until("a second", || start.elapsed() > Duration::from_secs(1));
    let spent = processor_time() - used;
    assert!(
        spent < Duration::from_millis(300),
        "accept spins: {spent:?} in a second"
    );
    assert_eq!(server.totals().accepted, 1);

    allow_descriptors(1024);
    for socket in waiting {
        let mut client = Client::new(TcpStream::from(socket));
        assert_eq!(client.get("/back").text(), "/back");
    }
    server.assert_serves();
}

#[test]
fn idle_connections_make_room_when_descriptors_run_out() {
    if !in_own_process("descriptors::idle_connections_make_room_when_descriptors_run_out") {
        return;
    }
    let server = Server::start(paths());
    let mut idle: Vec<_> = (0..10).map(|_| server.connect()).collect();
    idle.iter_mut()
        .for_each(|client| assert_eq!(client.get("/idle").status, 200));
    let new = sockets(1);
    allow_descriptors(lowest_free_descriptor());
    for socket in new {
        socket.connect(&server.address().into()).unwrap();
        let mut client = Client::new(TcpStream::from(socket));
        assert_eq!(client.get("/new").text(), "/new");
    }
    assert!(server.totals().evicted >= 1 && server.totals().accept_failures >= 1);
}
