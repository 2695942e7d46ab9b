//! Workers on the thread of their caller.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use apus_http::{Response, ResponseFuture, StatusCode};
use apus_net::{EmbeddedWorker, EnginePlan, ListenAddress, ListenerPlan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};

use crate::harness::{self, local, service};

fn plan() -> EnginePlan {
    let service = service(|request| match request.path() {
        "/thread" => ResponseFuture::later(async {
            let read = tokio::task::spawn_blocking(|| "from another thread");
            Response::text(StatusCode::OK, read.await.unwrap())
        }),
        _ => Response::text(StatusCode::OK, "at once").into(),
    });
    harness::plan(vec![ListenerPlan::new(local(), service)])
}

/// Waits until the descriptor is readable, and fails if it is not within a time that no deadline of the worker explains.
fn wait(worker: &EmbeddedWorker) {
    // SAFETY: the worker has the descriptor open.
    let fd = unsafe { BorrowedFd::borrow_raw(worker.fd()) };
    let timeout = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    assert_eq!(ready, 1, "the descriptor shows no work");
}

/// The response to a request, which the worker serves when its descriptor is readable, and at no other time.
fn get(worker: &mut EmbeddedWorker, path: &str) -> String {
    let listening = worker.status().listening;
    let Some(ListenAddress::Tcp { address, .. }) = listening.first() else {
        panic!("it listens on no TCP address")
    };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.connect(&(*address).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut response = Vec::new();
    loop {
        wait(worker);
        assert!(worker.step());
        let mut some = [0; 1024];
        match stream.read(&mut some) {
            Ok(0) => return String::from_utf8(response).unwrap(),
            Ok(read) => response.extend_from_slice(&some[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        // The end of the connection is not an event of the worker.
        if response.ends_with(b"at once") || response.ends_with(b"another thread") {
            return String::from_utf8(response).unwrap();
        }
    }
}

#[test]
fn an_embedded_worker_serves_when_its_descriptor_is_readable() {
    let mut worker = EmbeddedWorker::start(plan()).unwrap();
    for _ in 0..50 {
        assert!(get(&mut worker, "/").ends_with("at once"));
        assert!(get(&mut worker, "/thread").ends_with("from another thread"));
    }
    assert_eq!(worker.status().totals().requests, 100);
    worker.stop(Duration::from_secs(60));
    let begun = Instant::now();
    while worker.step() {
        assert!(begun.elapsed() < Duration::from_secs(50));
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
