//! Two ends on virtual time, and a network between them whose faults follow from a seed.

pub(crate) mod end;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod parameters;
pub(crate) mod tls;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_quic_protocol::{
    ClientConfig, Connection, Dir, QuicVersion, ServerConfig, Side, StreamId, TokenKey, TokenStore,
    TransportConfig,
};
use bytes::Bytes;

use self::end::TestEnd;
use self::network::{Datagram, Link, Network};
use self::tls::{EditParameters, TestTls};
use self::wire::{Observer, Packet, PacketType, Secrets};

pub(crate) use apus_quic_protocol::Side::{Client, Server};

/// No test takes longer, on virtual time.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// How the ends begin.
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) client: TransportConfig,
    pub(crate) server: TransportConfig,
    pub(crate) version: QuicVersion,
    /// Whether the certificate of the server needs several datagrams.
    pub(crate) has_large_certificate: bool,
    /// Whether the ClientHello needs two datagrams.
    pub(crate) has_large_hello: bool,
    pub(crate) can_discover_mtu: bool,
    pub(crate) edit_server_parameters: Option<EditParameters>,
    pub(crate) edit_client_parameters: Option<EditParameters>,
    pub(crate) edit_client_tls: Option<fn(&mut rustls::ClientConfig)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            client: TransportConfig::default(),
            server: TransportConfig::default(),
            version: QuicVersion::V1,
            has_large_certificate: false,
            has_large_hello: false,
            can_discover_mtu: true,
            edit_server_parameters: None,
            edit_client_parameters: None,
            edit_client_tls: None,
        }
    }
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Deliver,
    Drop,
    Delay(Duration),
    Duplicate,
}

/// Decides on a datagram by its number, counted from zero for each sender, and by its packets.
type Rule = Box<dyn FnMut(usize, &[Packet]) -> Fate>;
type Edit = Box<dyn FnOnce(&mut Packet)>;

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Since the beginning.
    pub(crate) time: Duration,
    pub(crate) datagram: Datagram,
    pub(crate) is_delivered: bool,
}

/// A datagram that was sent, with its packets.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) sender: Side,
    pub(crate) size: usize,
    pub(crate) sent: Sent,
    pub(crate) packets: Vec<Packet>,
}

/// A client and a server.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) begin: Instant,
    pub(crate) client: TestEnd,
    pub(crate) server: TestEnd,
    pub(crate) network: Network,
    pub(crate) sent: Vec<Sent>,
    pub(crate) secrets: Arc<Secrets>,
    sessions: Arc<tls::Sessions>,
    config: ClientConfig,
    observer: Observer,
    /// What was known when what was sent before was forgotten.
    observer_before: Observer,
    /// Whether rules and changes are for packets. It costs time in long transfers.
    pub(crate) is_observed: bool,
    rules: [Option<Rule>; 2],
    edits: Vec<(Side, PacketType, Edit)>,
    counts: [usize; 2],
}

pub(crate) fn client_address() -> SocketAddr {
    "192.0.2.1:1000".parse().unwrap()
}

pub(crate) fn server_address() -> SocketAddr {
    "198.51.100.1:443".parse().unwrap()
}

/// Data that repeats nowhere soon.
pub(crate) fn data(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

impl Pair {
    /// Ends whose first connection is not opened yet.
    pub(crate) fn idle(settings: Settings) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut client_tls = tls::client_config(Arc::clone(&secrets), settings.has_large_hello);
        if let Some(edit) = settings.edit_client_tls {
            edit(&mut client_tls);
        }
        let config = ClientConfig {
            tls: Arc::new(client_tls),
            tokens: Arc::new(TokenStore::default()),
            transport: Arc::new(settings.client),
            version: settings.version,
        };
        let mut server_tls = tls::server_config(settings.has_large_certificate);
        let sessions = Arc::new(tls::Sessions::default());
        server_tls.session_storage = sessions.clone();
        // The server has secrets before the client has them, and its packets are read when they are sent.
        server_tls.key_log = secrets.clone();
        #[expect(clippy::arc_with_non_send_sync, reason = "a test is one thread")]
        let server = ServerConfig {
            tls: Arc::new(TestTls {
                config: Arc::new(server_tls),
                edit_own: settings.edit_server_parameters,
                edit_peer: settings.edit_client_parameters,
            }),
            tokens: Arc::new(TokenKey::new(&[7; 32])),
            transport: Arc::new(settings.server),
        };
        let now = Instant::now();
        let can_discover_mtu = settings.can_discover_mtu;
        let seed = settings.seed;
        Self {
            now,
            begin: now,
            client: TestEnd::new(Client, client_address(), None, seed, can_discover_mtu),
            server: TestEnd::new(
                Server,
                server_address(),
                Some(server),
                !seed,
                can_discover_mtu,
            ),
            network: Network::new(seed),
            sent: Vec::new(),
            observer: Observer::new(Arc::clone(&secrets)),
            observer_before: Observer::new(Arc::clone(&secrets)),
            is_observed: true,
            secrets,
            sessions,
            config,
            rules: [None, None],
            edits: Vec::new(),
            counts: [0; 2],
        }
    }

    /// Ends whose client has begun to connect.
    pub(crate) fn with(settings: Settings) -> Self {
        let mut pair = Self::idle(settings);
        pair.connect();
        pair
    }

    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    /// Ends whose handshake is confirmed, with nothing on its way.
    pub(crate) fn connected_with(settings: Settings) -> Self {
        let mut pair = Self::with(settings);
        pair.handshake();
        pair
    }

    pub(crate) fn connected() -> Self {
        Self::connected_with(Settings::default())
    }

    /// Opens a connection of the client.
    pub(crate) fn connect(&mut self) {
        let opened =
            self.client
                .endpoint
                .connect(self.now, &self.config, server_address(), "localhost");
        let (handle, connection) = opened.unwrap();
        self.client.add(handle, connection);
        self.observer = Observer::new(Arc::clone(&self.secrets));
        self.forget_sent();
    }

    /// Runs until the handshake is confirmed and nothing is left to send, which has to work.
    pub(crate) fn handshake(&mut self) {
        let is_over = self.run_until(|pair| {
            pair.client.is_connected() && pair.server.is_connected() || pair.client.end().is_some()
        });
        assert!(
            is_over && self.client.end().is_none(),
            "{:?}",
            self.client.end()
        );
        self.run_for(ms(300));
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut TestEnd {
        match side {
            Client => &mut self.client,
            Server => &mut self.server,
        }
    }

    pub(crate) fn connection(&mut self, side: Side) -> &mut Connection {
        self.end(side).connection()
    }

    /// Closes the connection for the application of this end.
    pub(crate) fn close(&mut self, side: Side, code: u64, reason: &'static str) {
        let now = self.now;
        let reason = Bytes::from_static(reason.as_bytes());
        self.connection(side).close(now, code, reason);
    }

    /// The server knows no session any more.
    pub(crate) fn forget_sessions(&mut self) {
        self.sessions.forget();
    }

    /// The network from this end.
    pub(crate) fn link(&mut self, side: Side) -> &mut Link {
        &mut self.network.links[side as usize]
    }

    /// Changes the network in both directions.
    pub(crate) fn links(&mut self, change: impl Fn(&mut Link)) {
        self.network.links.iter_mut().for_each(change);
    }

    /// Decides on the datagrams that this end sends from now on, which are counted from zero.
    pub(crate) fn rule(
        &mut self,
        side: Side,
        rule: impl FnMut(usize, &[Packet]) -> Fate + 'static,
    ) {
        self.counts[side as usize] = 0;
        self.rules[side as usize] = Some(Box::new(rule));
    }

    /// Loses the datagrams of this end with these numbers, counted from now on.
    pub(crate) fn lose(&mut self, side: Side, numbers: &'static [usize]) {
        self.rule(side, |number, _| {
            if numbers.contains(&number) {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
    }

    /// Loses all that this end sends.
    pub(crate) fn lose_all(&mut self, side: Side) {
        self.rule(side, |_, _| Fate::Drop);
    }

    pub(crate) fn no_rule(&mut self, side: Side) {
        self.rules[side as usize] = None;
    }

    /// Changes the next packet of this type that an end sends.
    pub(crate) fn edit(
        &mut self,
        side: Side,
        kind: PacketType,
        edit: impl FnOnce(&mut Packet) + 'static,
    ) {
        self.edits.push((side, kind, Box::new(edit)));
    }

    /// The next 1-RTT packet of this end, which it is made to send, has these frames.
    pub(crate) fn inject(&mut self, side: Side, frames: Vec<u8>) {
        self.edit(side, PacketType::OneRtt, move |packet| {
            packet.payload = frames;
        });
        self.connection(side).ping();
    }

    /// Handles what is due now, and sends what follows from it.
    pub(crate) fn step(&mut self) {
        let mut datagrams = Vec::new();
        while let Some(datagram) = self.network.receive(self.now) {
            let end = if datagram.to == self.client.address {
                &mut self.client
            } else if datagram.to == self.server.address {
                &mut self.server
            } else {
                continue;
            };
            end.receive(self.now, datagram, &mut datagrams);
            end.settle();
        }
        for end in [&mut self.client, &mut self.server] {
            end.handle_timers(self.now);
            end.settle();
            end.transmit(self.now, &mut datagrams);
            end.settle();
        }
        for datagram in datagrams {
            self.send(datagram);
        }
    }

    fn send(&mut self, mut datagram: Datagram) {
        let side = datagram.sender;
        let mut fate = Fate::Deliver;
        if self.is_observed {
            let mut packets = self.observer.read(side, &datagram.bytes);
            self.edit_packets(&mut packets, &mut datagram);
            let number = self.counts[side as usize];
            self.counts[side as usize] += 1;
            if let Some(rule) = &mut self.rules[side as usize] {
                fate = rule(number, &packets);
            }
        }
        let is_delivered = match fate {
            Fate::Drop => false,
            Fate::Deliver => self.network.send(self.now, datagram.clone()),
            Fate::Delay(time) => {
                let arrival = self.now + self.network.links[side as usize].delay + time;
                self.network.deliver_at(arrival, datagram.clone());
                true
            }
            Fate::Duplicate => {
                self.network.send(self.now, datagram.clone());
                self.network.send(self.now, datagram.clone())
            }
        };
        let time = self.now - self.begin;
        self.sent.push(Sent {
            time,
            datagram,
            is_delivered,
        });
    }

    fn edit_packets(&mut self, packets: &mut [Packet], datagram: &mut Datagram) {
        let mut is_edited = false;
        for packet in packets.iter_mut() {
            let position = self
                .edits
                .iter()
                .position(|(side, kind, _)| *side == datagram.sender && *kind == packet.kind);
            if let Some(position) = position {
                let (_, _, edit) = self.edits.remove(position);
                edit(packet);
                is_edited = true;
            }
        }
        if is_edited {
            let sender = datagram.sender;
            let sealed = packets
                .iter()
                .map(|packet| self.observer.seal(sender, packet));
            datagram.bytes = sealed.collect::<Vec<_>>().concat();
            if packets[0].kind == PacketType::Initial {
                let size = datagram.bytes.len().max(1_200);
                datagram.bytes.resize(size, 0);
            }
        }
    }

    /// Delivers a packet that this end has not sent.
    pub(crate) fn forge(&mut self, side: Side, packet: &Packet) {
        let bytes = self.observer.seal(side, packet);
        let (from, to) = match side {
            Client => (self.client.address, self.server.address),
            Server => (self.server.address, self.client.address),
        };
        let datagram = Datagram {
            sender: side,
            from,
            to,
            ecn: None,
            bytes,
        };
        self.network.deliver_at(self.now, datagram);
    }

    fn next_time(&mut self) -> Option<Instant> {
        let times = [
            self.network.next_arrival(),
            self.client.next_timer(),
            self.server.next_timer(),
        ];
        times.into_iter().flatten().min()
    }

    /// Runs until the condition holds. Returns whether it does, before nothing can happen any more.
    pub(crate) fn run_until(&mut self, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + PATIENCE;
        let mut steps = 0;
        loop {
            self.step();
            if condition(self) {
                return true;
            }
            match self.next_time() {
                Some(time) if time <= end => self.now = self.now.max(time),
                _ => return false,
            }
            steps += 1;
            assert!(steps < 1_000_000, "the ends do not come to rest");
        }
    }

    /// Runs for this time.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.step();
            match self.next_time() {
                Some(time) if time <= end => self.now = self.now.max(time),
                _ => break,
            }
        }
        self.now = end;
        self.step();
    }

    /// The time since the beginning.
    pub(crate) fn time(&self) -> Duration {
        self.now - self.begin
    }

    /// Sends data on a stream of its own from one end, with its end, until the other one has it.
    pub(crate) fn transfer(&mut self, from: Side, length: usize) -> StreamId {
        let stream = self.end(from).send(Dir::Uni, data(length), true);
        let is_read = self.run_until(|pair| pair.end(!from).finished.contains(&stream));
        assert!(is_read, "{:?} {:?}", self.client.end(), self.server.end());
        assert!(self.end(!from).inbox[&stream] == data(length));
        stream
    }

    /// What was sent, with the packets.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut observer = self.observer_before.clone();
        let seen = self.sent.iter().map(|sent| Seen {
            sender: sent.datagram.sender,
            size: sent.datagram.bytes.len(),
            packets: observer.read(sent.datagram.sender, &sent.datagram.bytes),
            sent: sent.clone(),
        });
        seen.collect()
    }

    /// The packets of an end.
    pub(crate) fn packets(&self, side: Side) -> Vec<Packet> {
        let seen = self.seen().into_iter();
        seen.filter(|seen| seen.sender == side)
            .flat_map(|seen| seen.packets)
            .collect()
    }

    /// The last packet of this type of an end.
    pub(crate) fn last_packet(&self, side: Side, kind: PacketType) -> Packet {
        let mut packets = self.packets(side);
        packets.retain(|packet| packet.kind == kind);
        packets.pop().expect("a packet of this type")
    }

    /// How many bytes an end has sent.
    pub(crate) fn bytes_sent(&self, side: Side) -> usize {
        let sent = self.sent.iter();
        sent.filter(|sent| sent.datagram.sender == side)
            .map(|sent| sent.datagram.bytes.len())
            .sum()
    }

    /// Forgets what was sent.
    pub(crate) fn forget_sent(&mut self) {
        self.observer_before = self.observer.clone();
        self.sent.clear();
    }
}
