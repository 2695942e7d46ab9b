//! Clients that may not connect: they are closed, and dropped by the kernel if they try again and again.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apus_net::{ClientFilter, ClientRefusal, EnginePlan, ListenerPlan};
use apus_testkit::wait_until;
use socket2::{Domain, Socket, Type};

use crate::harness::{Client, PATIENCE, Server, paths, plan, tcp};

/// Refuses one client, while this is set.
struct OneClient {
    address: IpAddr,
    is_refused: AtomicBool,
}

impl ClientFilter for OneClient {
    fn refuses(&self, client: IpAddr) -> Option<ClientRefusal> {
        let is_refused = self.is_refused.load(Ordering::Relaxed) && client == self.address;
        is_refused.then_some(ClientRefusal::Banned)
    }
}

/// A connection that begins at an address, or why there is none within a third of a second. The first segment is sent again
/// after one.
fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_millis(300))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Begins many connections at once, and waits for none.
fn begin_many(from: IpAddr, to: SocketAddr) -> Vec<Socket> {
    let begin = |_| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&to.into());
        socket
    };
    (0..64).map(begin).collect()
}

#[test]
fn a_refused_client_that_comes_again_and_again_is_dropped_until_it_may_connect() {
    for (refused, other, listen) in [
        ("127.0.0.2", "127.0.0.3", "127.0.0.1:0"),
        ("127.0.0.2", "127.0.0.3", "0.0.0.0:0"),
        ("::1", "127.0.0.3", "[::]:0"),
    ] {
        let (refused, other): (IpAddr, IpAddr) = (refused.parse().unwrap(), other.parse().unwrap());
        let filter = Arc::new(OneClient {
            address: refused,
            is_refused: AtomicBool::new(false),
        });
        let server = Server::run(EnginePlan {
            client_filter: Some(filter.clone()),
            ..plan(vec![ListenerPlan::new(tcp(listen), paths())])
        });
        let port = server.address().port();
        let [to, to_other] = [refused, other].map(|from| match from {
            IpAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], port)),
            IpAddr::V6(_) => SocketAddr::new(from, port),
        });
        let serve = |client: &mut Client<TcpStream>| {
            client.send("GET /well HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.read_response().status, 200);
        };
        let mut open = Client::new(connect_from(refused, to).unwrap());
        serve(&mut open);
        filter.is_refused.store(true, Ordering::Relaxed);

        let is_dropped = || {
            let _many = begin_many(refused, to);
            let attempt = connect_from(refused, to);
            attempt.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        wait_until("the kernel drops the client", is_dropped);
        assert!(server.totals().banned >= 16, "closed before");

        // Nobody else, and no connection that is open.
        let mut served = Client::new(connect_from(other, to_other).unwrap());
        serve(&mut served);
        serve(&mut open);

        filter.is_refused.store(false, Ordering::Relaxed);
        wait_until("the client can connect again", || {
            connect_from(refused, to).is_ok()
        });
    }
}
