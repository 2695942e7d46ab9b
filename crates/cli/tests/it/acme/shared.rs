//! Servers with folders of their own, as on several machines, that share certificates through Redis.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{CertificateTest, PebbleOptions};
use crate::harness::{Apus, Home, free_port, wait_until};

const LOCK: &str = "apus:acme:lock:certificates/shop.example.com";

/// A Redis that listens on a Unix socket.
struct Redis {
    process: Child,
    socket: String,
}

impl Redis {
    fn start(home: &Home) -> Self {
        let folder = home.path("redis");
        fs::create_dir(&folder).unwrap();
        let process = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "redis.sock"])
            .args([
                "--unixsocketperm",
                "777",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("`make test` installs Redis");
        let redis = Self {
            process,
            socket: folder.join("redis.sock").display().to_string(),
        };
        wait_until("Redis", || redis.command(&["PING"]) == "PONG");
        redis
    }

    /// The reply to a command.
    fn command(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-s", &self.socket])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Two machines with the same site, of which the authority reaches the first one.
struct Machines {
    test: CertificateTest,
    redis: Redis,
    second: (u16, u16),
}

impl Machines {
    fn new(keys: &str) -> Self {
        let home = Home::new();
        let redis = Redis::start(&home);
        let test = CertificateTest::in_home(
            home,
            PebbleOptions {
                hesitates: true,
                ..PebbleOptions::default()
            },
        );
        let second = (free_port(), free_port());
        let storage = format!("acme_storage = \"redis+unix://{}\"\n{keys}", redis.socket);
        let name = "\"shop.example.com\"";
        test.configure(&storage, name, "");
        let other = format!("control_socket = \"second.sock\"\n{storage}");
        test.configure_as("second.toml", second, &other, name, "");
        let text = test.home.read("second.toml");
        let text = text.replace("acme_folder = \"acme\"", "acme_folder = \"second\"");
        test.home.write("second.toml", text);
        Self {
            test,
            redis,
            second,
        }
    }

    fn serve_second(&self) -> Apus {
        self.test.home.serve(&["second.toml"])
    }

    /// Waits until the second machine has the lock, and has stored an order.
    fn wait_until_second_orders(&self) {
        let file = "apus:acme:file:certificates/shop.example.com/state.json";
        wait_until("the order of the second machine", || {
            self.redis.command(&["GET", file]).contains("/my-order/")
        });
    }

    fn wait_until_both_serve(&self) {
        self.test.wait_until_served("shop.example.com");
        let root = self.test.pebble.root();
        wait_until("the other machine", || {
            let output = self.test.fetch_at(self.second.1, &root, "shop.example.com");
            output.status.success()
        });
    }
}

/// The second machine orders, and the first one responds to the authority.
fn one_orders_and_all_respond_and_serve(challenge: &str) {
    let machines = Machines::new(&format!("acme_challenge = \"{challenge}\"\n"));
    let second = machines.serve_second();
    machines.wait_until_second_orders();
    let first = machines.test.serve();
    machines.wait_until_both_serve();
    let pebble = &machines.test.pebble;
    assert_eq!((pebble.accounts(), pebble.valid_orders()), (1, 1));
    for apus in [&first, &second] {
        assert!(!apus.log().contains("ERROR"), "{}", apus.log());
    }
    wait_until("the challenge is removed", || {
        machines.redis.command(&["HLEN", "apus:acme:challenges"]) == "0"
    });
    // A machine with a new folder serves at once, and a renewal of one is a renewal of all.
    drop(first);
    fs::remove_dir_all(machines.test.home.path("acme")).unwrap();
    let first = machines.test.serve();
    machines.wait_until_both_serve();
    assert_eq!(pebble.orders(), 1);
    let serial = machines.test.serial("shop.example.com");
    let renew = [
        "cert",
        "renew",
        "shop.example.com",
        "--config",
        "second.toml",
    ];
    machines.test.home.expect(&renew, 0);
    wait_until("the renewed certificate at the first machine", || {
        machines.test.serial("shop.example.com") != serial
    });
    assert_eq!(pebble.orders(), 2, "{}", first.log());
}

#[test]
fn machines_share_orders_by_http_and_certificates() {
    one_orders_and_all_respond_and_serve("http-01");
}

#[test]
fn machines_share_orders_by_tls_and_certificates() {
    one_orders_and_all_respond_and_serve("tls-alpn-01");
}

#[test]
fn another_machine_takes_an_order_over_after_a_crash() {
    let machines = Machines::new("");
    let mut second = machines.serve_second();
    machines.wait_until_second_orders();
    second.signal(Signal::KILL);
    second.wait();
    let _first = machines.test.serve();
    assert_ne!(machines.redis.command(&["PTTL", LOCK]), "-2");
    // The minute after which the lock expires is over.
    machines.redis.command(&["PEXPIRE", LOCK, "1"]);
    machines.test.wait_until_served("shop.example.com");
    let pebble = &machines.test.pebble;
    assert_eq!((pebble.accounts(), pebble.valid_orders()), (1, 1));
}

#[test]
fn without_the_shared_storage_certificates_are_served_and_none_is_ordered() {
    let mut machines = Machines::new("");
    let apus = machines.test.serve();
    machines.test.wait_until_served("shop.example.com");
    let serial = machines.test.serial("shop.example.com");
    machines.redis.stop();
    let renew = ["cert", "renew", "shop.example.com"];
    let (_, error) = machines.test.home.expect(&renew, 1);
    assert!(error.contains("the storage that machines share"), "{error}");
    let root = machines.test.pebble.root();
    assert!(machines.test.is_served(&root, "shop.example.com"));
    drop(apus);
    let _apus = machines.test.serve();
    assert!(machines.test.is_served(&root, "shop.example.com"));
    assert_eq!(machines.test.serial("shop.example.com"), serial);
    assert_eq!(machines.test.pebble.orders(), 1);
}
