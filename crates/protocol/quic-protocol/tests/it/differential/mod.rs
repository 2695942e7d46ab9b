//! Differential tests: one end is ours, the other one is quinn-proto's, and both have to agree on what happened.
//!
//! An input is bytes, so that a fuzzer can make them: the roles, the faults of the network, the limits of both ends, and then
//! what the applications do. [`run`] panics if the ends disagree.

pub(crate) mod application;
pub(crate) mod ends;
pub(crate) mod key_update;
pub(crate) mod script;

use std::time::{Duration, Instant};

use super::harness::network::{Datagram, Network};
use super::harness::{Client, Server, client_address, ms};
use application::{Application, Ending};
use ends::{OurEnd, QuinnEnd};
use key_update::KeyUpdate;
use script::{Action, Reader, Script, Side};

/// No run takes longer, on virtual time.
const PATIENCE: Duration = Duration::from_secs(300);

/// The next datagram arrives: a connection whose probes are all lost would end by its idle timeout.
const MAX_LOST_IN_A_ROW: u32 = 3;

/// The two ends, and the network between them.
struct Match {
    now: Instant,
    network: Network,
    client: Application,
    server: Application,
    /// The port from which the client sends, which changes when it migrates.
    port: u16,
    /// The end that is quinn-proto's.
    quinn: Side,
    has_large_certificate: bool,
    /// How many datagrams of each sender did not arrive as they were.
    lost_in_a_row: [u32; 2],
    key_update: Option<KeyUpdate>,
    /// Whether what the server sent after it had closed the connection went to an address that the client had left.
    is_close_misdirected: bool,
}

/// Runs an input, and compares what both ends have seen.
pub(crate) fn run(input: &[u8]) {
    let mut reader = Reader(input);
    let script = Script::read(&mut reader);
    let mut game = Match::new(&script);
    if let Some(after) = script.early_close {
        game.run_for(after);
        game.close(script.closes_first, script.code);
        game.finish(&script);
        return;
    }
    let is_connected = game.run_until(|game| {
        game.client.is_connected && game.server.is_connected
            || game.client.ending.is_some()
            || game.server.ending.is_some()
    });
    assert!(
        is_connected && game.client.ending.is_none() && game.server.ending.is_none(),
        "no handshake: {:?} {:?}",
        game.client.ending,
        game.server.ending
    );
    for action in script.actions {
        if game.act(&action) {
            game.finish(&Script {
                actions: Vec::new(),
                ..script
            });
            return;
        }
        game.assert_open();
    }
    game.settle();
    game.compare(true);
    game.close(script.closes_first, script.code);
    game.finish(&Script {
        actions: Vec::new(),
        ..script
    });
}

impl Match {
    fn new(script: &Script) -> Self {
        let now = Instant::now();
        let mut network = Network::new(script.seed);
        network.links = script.links.clone();
        let (client, server): (Box<dyn ends::End>, Box<dyn ends::End>) = if script.is_our_client {
            (
                Box::new(OurEnd::new(Client, now, script)),
                Box::new(QuinnEnd::new(Server, now, script)),
            )
        } else {
            (
                Box::new(QuinnEnd::new(Client, now, script)),
                Box::new(OurEnd::new(Server, now, script)),
            )
        };
        Self {
            now,
            network,
            client: Application::new(Client, client),
            server: Application::new(Server, server),
            port: client_address().port(),
            quinn: if script.is_our_client { Server } else { Client },
            has_large_certificate: script.has_large_certificate,
            lost_in_a_row: [0; 2],
            key_update: None,
            is_close_misdirected: false,
        }
    }

    fn application(&mut self, side: Side) -> &mut Application {
        match side {
            Client => &mut self.client,
            Server => &mut self.server,
        }
    }

    /// Handles what is due now.
    fn step(&mut self) {
        let mut datagrams = Vec::new();
        while let Some(datagram) = self.network.receive(self.now) {
            self.key_update
                .take_if(|update| update.on_arrival(&datagram));
            if datagram.to.port() == self.port {
                self.client.end.receive(self.now, datagram, &mut datagrams);
                self.client.settle();
            } else if datagram.sender == Client {
                self.server.end.receive(self.now, datagram, &mut datagrams);
                self.server.settle();
            } else {
                self.is_close_misdirected |= self.server.has_closed;
            }
        }
        for application in [&mut self.client, &mut self.server] {
            application.end.handle_timers(self.now);
            application.settle();
            application.end.transmit(self.now, &mut datagrams);
            application.settle();
        }
        for mut datagram in datagrams {
            if datagram.sender == Client {
                datagram.from.set_port(self.port);
            }
            self.send(datagram);
        }
    }

    fn send(&mut self, datagram: Datagram) {
        if let Some(update) = &mut self.key_update {
            update.on_sent(&datagram);
        }
        let side = datagram.sender as usize;
        let is_spared = self.lost_in_a_row[side] >= MAX_LOST_IN_A_ROW || self.is_needed(&datagram);
        if is_spared {
            let arrival = self.now + self.network.links[side].delay;
            self.network.deliver_at(arrival, datagram);
            self.lost_in_a_row[side] = 0;
        } else if self.network.send(self.now, datagram) {
            self.lost_in_a_row[side] = 0;
        } else {
            self.lost_in_a_row[side] += 1;
        }
    }

    /// Whether quinn-proto 0.11 does not get over the loss or the change of a datagram.
    fn is_needed(&self, datagram: &Datagram) -> bool {
        // The fixed bit may be anything (RFC 9287).
        let kind = datagram.bytes[0] & 0xb0;
        match self.quinn {
            // A client counts a Retry packet with a wrong integrity tag as one that it has processed, and discards the right
            // ones that follow, against RFC 9000 section 17.2.5.2 and RFC 9001 section 5.8.
            Client => datagram.sender == Server && kind == 0xb0,
            // A server whose window is full of Handshake packets sends a ServerHello that is lost never again: its probes are
            // Handshake packets alone, against RFC 9002 section 6.2.4.
            Server => datagram.sender == Server && self.has_large_certificate && kind == 0x80,
        }
    }

    fn next_time(&mut self) -> Option<Instant> {
        let times = [
            self.network.next_arrival(),
            self.client.end.next_timer(),
            self.server.end.next_timer(),
        ];
        times.into_iter().flatten().min()
    }

    fn run_until(&mut self, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + PATIENCE;
        let mut steps = 0_u32;
        loop {
            self.step();
            if condition(self) {
                return true;
            }
            steps += 1;
            assert!(steps < 1_000_000, "the ends go on and on");
            match self.next_time() {
                Some(time) if time <= end => self.now = self.now.max(time),
                _ => return false,
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0_u32;
        loop {
            self.step();
            steps += 1;
            assert!(steps < 1_000_000, "the ends go on and on");
            match self.next_time() {
                Some(time) if time <= end => self.now = self.now.max(time),
                _ => break,
            }
        }
        self.now = end;
        self.step();
    }

    /// Returns whether the connection was closed.
    fn act(&mut self, action: &Action) -> bool {
        match *action {
            Action::Open { side, direction } => self.application(side).open(direction),
            Action::Write { side, stream, size } => self.application(side).write(stream, size),
            Action::Finish { side, stream } => self.application(side).finish(stream),
            Action::Reset { side, stream, code } => self.application(side).reset(stream, code),
            Action::Stop { side, stream, code } => self.application(side).stop(stream, code),
            Action::UpdateKeys { side } => self.update_keys(side),
            Action::Ping { side } => self.application(side).end.ping(),
            Action::Migrate => {
                self.port = self.port.wrapping_add(1).max(1_000);
                // Otherwise a server with nothing but its own data does not learn the address (RFC 9000 section 9.3).
                self.client.end.ping();
            }
            Action::Wait(time) => self.run_for(time),
            Action::Close { side, code } => {
                self.close(side, code);
                return true;
            }
        }
        false
    }

    fn update_keys(&mut self, side: Side) {
        if side != self.quinn {
            self.key_update.get_or_insert_with(|| KeyUpdate::new(side));
        } else if self.key_update.is_some() {
            return;
        }
        self.application(side).end.update_keys();
    }

    fn close(&mut self, side: Side, code: u64) {
        let now = self.now;
        let application = self.application(side);
        application.end.close(now, code);
        application.has_closed = true;
    }

    /// The network works, and nobody has closed the connection.
    fn assert_open(&self) {
        for application in [&self.client, &self.server] {
            assert!(
                application.ending.is_none(),
                "{:?} ended: {:?}",
                application.side,
                application.ending
            );
        }
    }

    /// Lets all arrive that has been written.
    fn settle(&mut self) {
        let end = self.now + PATIENCE;
        while self.now < end && !self.is_complete() {
            // The client may have changed its address, and have nothing to send that would tell so.
            self.client.end.ping();
            self.run_for(ms(500));
            self.assert_open();
        }
    }

    fn is_complete(&self) -> bool {
        self.client.has_all_of(&self.server) && self.server.has_all_of(&self.client)
    }

    fn compare(&self, is_settled: bool) {
        self.client.compare(&self.server, is_settled);
        self.server.compare(&self.client, is_settled);
    }

    /// The connection was closed: data is a part of what was written, and the other end knows why.
    fn finish(&mut self, script: &Script) {
        // Longer than the idle timeout of both.
        self.run_for(script::IDLE_TIMEOUT * 3);
        self.compare(false);
        let (closing, other) = if self.client.has_closed {
            (&self.client, &self.server)
        } else {
            (&self.server, &self.client)
        };
        let code = closing.end.close_code().unwrap();
        match &other.ending {
            Some(Ending::Application(seen)) => {
                assert_eq!(*seen, code, "the code of the application")
            }
            // CONNECTION_CLOSE in Initial and Handshake packets has no code of the application (RFC 9000 section 10.2.3).
            Some(Ending::Peer(0xc)) => assert!(script.early_close.is_some(), "APPLICATION_ERROR"),
            // CONNECTION_CLOSE is not acknowledged (section 10.2), so that an end may miss it, then gets no response, or a
            // stateless reset (section 10.3). A closing end may discard packets from a new address (section 10.2.1).
            Some(Ending::TimedOut | Ending::Reset) => {
                let may_be_lost = script.has_faults
                    || script.early_close.is_some()
                    || self.is_close_misdirected
                    || closing.end.is_close_unsent();
                assert!(may_be_lost, "CONNECTION_CLOSE is lost without loss");
            }
            // The client gave up before its first packet came.
            None if script.early_close.is_some() && !other.end.has_connection() => {}
            // The client that it waits for is gone.
            None if other.end.is_paused() => {}
            ending => panic!(
                "{:?} closed with {code}, {:?} saw {ending:?}",
                closing.side, other.side
            ),
        }
        for application in [&self.client, &self.server] {
            assert!(
                application.end.is_drained() || application.end.is_paused(),
                "{:?} is not drained",
                application.side
            );
        }
    }
}
