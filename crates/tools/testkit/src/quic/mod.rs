//! A QUIC client (RFC 9000) for tests that send exactly these frames, packets and datagrams.
//!
//! It shares nothing with the code under test except TLS. It never repeats what was lost, and obeys no limit of the
//! server. When the server updates its keys, it follows.

pub mod client_hello;
pub mod frame;
mod packet;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, DirectionalKeys, KeyChange, Secrets, Suite, Version};
use rustls::{CipherSuite, ClientConfig, Side, SupportedCipherSuite};
use tokio::net::UdpSocket;

use self::frame::{
    ServerFrame, ServerFrameReader, acknowledgement, crypto, integer, integers, kind,
};
pub use self::packet::{PacketHeader, PacketLevel, parameter};
use self::packet::{PacketSpace, SealedPacket};

/// How long a test waits for a packet. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The smallest datagram with an Initial packet (RFC 9000 section 14.1).
pub const INITIAL_DATAGRAM: usize = 1200;

/// How many clients this process has had.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// How a [`RawQuicClient`] begins.
#[derive(Clone)]
pub struct RawQuicOptions {
    /// TLS, with ALPN.
    pub tls: ClientConfig,
    /// The server name.
    pub name: &'static str,
    /// The transport parameters.
    pub parameters: Vec<u8>,
    /// The connection ID of the client.
    pub source: Vec<u8>,
    /// Whether the transport parameters have the type that they had in drafts.
    pub are_parameters_of_a_draft: bool,
}

impl RawQuicOptions {
    /// With large windows.
    pub fn new(tls: ClientConfig, name: &'static str) -> Self {
        let source = vec![0xc1, 1, 2, 3, 4, 5, 6, 7];
        Self {
            tls,
            name,
            parameters: default_parameters(&source),
            source,
            are_parameters_of_a_draft: false,
        }
    }
}

/// Transport parameters (RFC 9000 section 18.2) with large windows, and this `initial_source_connection_id`.
pub fn default_parameters(source: &[u8]) -> Vec<u8> {
    let window = integer(1 << 30);
    let mut parameters = parameter(0xf, source);
    for id in [0x4, 0x5, 0x6, 0x7] {
        parameters.extend(parameter(id, &window));
    }
    for id in [0x8, 0x9] {
        parameters.extend(parameter(id, &integer(100)));
    }
    parameters
}

/// A client whose every packet the test decides on.
pub struct RawQuicClient {
    /// From which it sends, and at which it receives.
    pub socket: UdpSocket,
    /// Where the server is.
    pub server: SocketAddr,
    /// The connection ID of the server that packets have.
    pub destination: Vec<u8>,
    /// Whether it acknowledges what it receives, and responds to challenges of its path.
    pub acknowledges: bool,
    /// Whether it goes on with the handshake when the server has responded.
    pub continues_handshake: bool,
    /// The connection ID of the client.
    pub source: Vec<u8>,
    /// Of Initial packets.
    token: Vec<u8>,
    suite: Suite,
    tls: ClientConnection,
    spaces: [PacketSpace; 3],
    early_keys: Option<DirectionalKeys>,
    secrets: Option<Secrets>,
    key_phase: bool,
    write_level: PacketLevel,
    largest_acknowledged: Option<u64>,
    /// Those that it has not responded to.
    challenges: Vec<[u8; 8]>,
    /// Frames that were received and not yet returned.
    frames: VecDeque<ServerFrame>,
}

impl RawQuicClient {
    /// Opens a connection, and waits until the server has confirmed the handshake.
    pub async fn connect(server: SocketAddr, options: &RawQuicOptions) -> Self {
        let mut client = Self::begin(server, options).await;
        client.confirmed().await;
        client
    }

    /// Sends the ClientHello.
    pub async fn begin(server: SocketAddr, options: &RawQuicOptions) -> Self {
        let mut client = Self::silent(server, options).await;
        client.send_handshake().await;
        client
    }

    /// A client that has sent nothing yet.
    pub async fn silent(server: SocketAddr, options: &RawQuicOptions) -> Self {
        let own = SocketAddr::new(server.ip(), 0);
        let name = ServerName::try_from(options.name).unwrap();
        let tls = Arc::new(options.tls.clone());
        let suite = initial_suite(tls.crypto_provider());
        let parameters = options.parameters.clone();
        // For TLS, only this type tells the versions apart.
        let version = if options.are_parameters_of_a_draft {
            Version::V1Draft
        } else {
            Version::V1
        };
        let tls = ClientConnection::new(tls, version, name, parameters).unwrap();
        let socket = UdpSocket::bind(own).await.unwrap();
        // Different for each client, also for one at a port that the server remembers.
        let port = socket.local_addr().unwrap().port().to_be_bytes();
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let destination = [&port[..], &[0xde, 1], &number].concat();
        let mut spaces: [PacketSpace; 3] = Default::default();
        spaces[0].keys = Some(suite.keys(&destination, Side::Client, Version::V1));
        Self {
            socket,
            server,
            destination,
            acknowledges: true,
            continues_handshake: true,
            source: options.source.clone(),
            token: Vec::new(),
            suite,
            tls,
            spaces,
            early_keys: None,
            secrets: None,
            key_phase: false,
            write_level: PacketLevel::Initial,
            largest_acknowledged: None,
            challenges: Vec::new(),
            frames: VecDeque::new(),
        }
    }

    /// Waits until the server has confirmed the handshake.
    pub async fn confirmed(&mut self) {
        self.wait_for("HANDSHAKE_DONE", |frame| {
            *frame == ServerFrame::HandshakeDone
        })
        .await;
    }

    /// Sends a packet with these frames.
    pub async fn send(&mut self, level: PacketLevel, frames: &[u8]) {
        let datagram = self.seal(level, frames);
        self.send_datagram(&datagram).await;
    }

    /// Sends a 1-RTT packet with these frames.
    pub async fn send_frames(&mut self, frames: &[u8]) {
        self.send(PacketLevel::Application, frames).await;
    }

    /// Sends a datagram.
    pub async fn send_datagram(&self, datagram: &[u8]) {
        let sent = self.socket.send_to(datagram, self.server).await;
        assert_eq!(sent.unwrap(), datagram.len());
    }

    /// A packet with these frames and the next packet number.
    pub fn seal(&mut self, level: PacketLevel, frames: &[u8]) -> Vec<u8> {
        let header = self.header(level);
        self.seal_with(&header, frames)
    }

    /// The header of the next packet.
    pub fn header(&mut self, level: PacketLevel) -> PacketHeader {
        let space = &mut self.spaces[space_of(level)];
        let number = space.next_number;
        space.next_number += 1;
        let is_changed = level == PacketLevel::Application && self.key_phase;
        PacketHeader {
            level,
            destination: self.destination.clone(),
            source: self.source.clone(),
            token: self.token.clone(),
            number,
            changed_bits: if is_changed { 0x4 } else { 0 },
        }
    }

    /// A packet with this header and these frames. A datagram with an Initial packet is as large as it has to be.
    pub fn seal_with(&mut self, header: &PacketHeader, frames: &[u8]) -> Vec<u8> {
        let mut frames = frames.to_vec();
        if header.level == PacketLevel::Initial {
            let ids = 1 + header.destination.len() + 1 + header.source.len();
            let token = integer(header.token.len() as u64).len() + header.token.len();
            let other = 1 + 4 + ids + token + 2;
            let least = INITIAL_DATAGRAM - other - 4 - 16;
            frames.resize(frames.len().max(least), 0);
        }
        let keys = match header.level {
            PacketLevel::Early => self.early_keys.as_ref(),
            level => {
                let keys = self.spaces[space_of(level)].keys.as_ref();
                keys.map(|keys| &keys.local)
            }
        };
        header.seal(keys.expect("the keys are known"), &frames)
    }

    /// A 1-RTT packet as the first one after a key update (RFC 9001 section 6). The client keeps its keys.
    pub fn seal_after_key_update(&mut self, header: &PacketHeader, frames: &[u8]) -> Vec<u8> {
        let mut header = header.clone();
        header.changed_bits ^= 0x4;
        let next = self.secrets.as_mut().unwrap().next_packet_keys();
        let space = space_of(PacketLevel::Application);
        let keys = &mut self.spaces[space].keys.as_mut().unwrap().local;
        let current = std::mem::replace(&mut keys.packet, next.local);
        let packet = header.seal(keys, frames);
        keys.packet = current;
        packet
    }

    /// Begins anew with the token and the connection ID of a Retry packet (RFC 9000 section 17.2.5), which may have been
    /// sent to another client.
    pub fn use_retry(&mut self, retry: &[u8]) {
        let mut reader = ServerFrameReader(&retry[1 + 4..]);
        let length = reader.bytes(1)[0];
        reader.bytes(length.into());
        let length = reader.bytes(1)[0];
        self.destination = reader.bytes(length.into());
        // The integrity tag ends the packet.
        self.token = reader.bytes(reader.0.len() - 16);
        let keys = self
            .suite
            .keys(&self.destination, Side::Client, Version::V1);
        self.spaces[space_of(PacketLevel::Initial)].keys = Some(keys);
    }

    /// Waits until the server has all 1-RTT packets; what closed the connection otherwise.
    ///
    /// # Errors
    /// The frame with which the server closed the connection.
    pub async fn acknowledged(&mut self) -> Result<(), ServerFrame> {
        self.send_frames(&integers(&[kind::PING])).await;
        let last = self.spaces[space_of(PacketLevel::Application)].next_number - 1;
        while self.largest_acknowledged.is_none_or(|found| found < last) {
            if let Some(close) = self.close_frame() {
                return Err(close.clone());
            }
            self.receive_datagram(PATIENCE).await.expect("a packet");
        }
        Ok(())
    }

    fn close_frame(&self) -> Option<&ServerFrame> {
        let mut frames = self.frames.iter();
        frames.find(|frame| matches!(frame, ServerFrame::Close { .. }))
    }

    /// The next frame of the server that meets the condition. Those before it are dropped.
    pub async fn wait_for(
        &mut self,
        what: &str,
        condition: impl Fn(&ServerFrame) -> bool,
    ) -> ServerFrame {
        loop {
            while let Some(frame) = self.frames.pop_front() {
                if condition(&frame) {
                    return frame;
                }
                let is_closed = matches!(frame, ServerFrame::Close { .. });
                assert!(!is_closed, "{frame:?} instead of {what}");
            }
            let received = self.receive_datagram(PATIENCE).await;
            received.unwrap_or_else(|| panic!("waited in vain for {what}"));
        }
    }

    /// Waits until the server closes the connection: the code, and whether it is one of the application.
    pub async fn closed(&mut self) -> (u64, bool) {
        let is_close = |frame: &ServerFrame| matches!(frame, ServerFrame::Close { .. });
        match self.wait_for("CONNECTION_CLOSE", is_close).await {
            ServerFrame::Close {
                code,
                by_application,
                ..
            } => (code, by_application),
            _ => unreachable!(),
        }
    }

    /// Receives for this time; what came.
    pub async fn receive(&mut self, time: Duration) -> Vec<ServerFrame> {
        let end = tokio::time::Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            if self.receive_datagram(left).await.is_none() {
                return self.frames.drain(..).collect();
            }
        }
    }

    /// Receives a datagram, and handles it; its length, or `None` if none comes within this time.
    pub async fn receive_datagram(&mut self, within: Duration) -> Option<usize> {
        let mut datagram = vec![0; 65_536];
        let receiving = self.socket.recv_from(&mut datagram);
        let received = tokio::time::timeout(within, receiving).await.ok()?;
        let (length, _) = received.unwrap();
        datagram.truncate(length);
        let mut acknowledge = Vec::new();
        let mut rest = &datagram[..];
        while let Some((packet, following)) = SealedPacket::split(rest, self.source.len()) {
            if self.handle_packet(&packet) {
                acknowledge.push(packet.level);
            }
            rest = following;
        }
        if self.continues_handshake {
            self.send_handshake().await;
        }
        if self.acknowledges {
            for challenge in std::mem::take(&mut self.challenges) {
                let response = frame::path(kind::PATH_RESPONSE, challenge);
                self.send_frames(&response).await;
            }
            for level in acknowledge {
                let numbers = &self.spaces[space_of(level)].received;
                let frame = acknowledgement(numbers);
                self.send(level, &frame).await;
            }
        }
        Some(length)
    }

    /// Returns whether the packet has to be acknowledged.
    fn handle_packet(&mut self, packet: &SealedPacket<'_>) -> bool {
        let index = space_of(packet.level);
        let phase = packet.key_phase(&self.spaces[index]);
        if packet.level == PacketLevel::Application
            && phase.is_some_and(|phase| phase != self.key_phase)
        {
            self.update_keys();
        }
        let Some((number, frames)) = packet.open(&self.spaces[index]) else {
            return false;
        };
        if !self.spaces[index].received.insert(number) {
            return true;
        }
        if let Some(source) = &packet.source {
            self.destination.clone_from(source);
        }
        let mut reader = ServerFrameReader(&frames);
        let mut is_ack_eliciting = false;
        while let Some(frame) = reader.frame() {
            is_ack_eliciting |= frame.is_ack_eliciting();
            match &frame {
                ServerFrame::Crypto { offset, data } => {
                    let ordered = self.spaces[index].add_crypto(*offset, data);
                    // A test sees by the close what is wrong.
                    let _ = self.tls.read_hs(&ordered);
                }
                ServerFrame::Acknowledgement { largest }
                    if packet.level == PacketLevel::Application =>
                {
                    self.largest_acknowledged = self.largest_acknowledged.max(Some(*largest));
                }
                ServerFrame::PathChallenge(challenge) => self.challenges.push(*challenge),
                _ => {}
            }
            self.frames.push_back(frame);
        }
        is_ack_eliciting
    }

    /// Sends what TLS has to send; the bytes of the datagrams.
    pub async fn send_handshake(&mut self) -> usize {
        let mut sent = 0;
        loop {
            let mut message = Vec::new();
            let change = self.tls.write_hs(&mut message);
            if self.early_keys.is_none() {
                self.early_keys = self.tls.zero_rtt_keys();
            }
            let level = self.write_level;
            for chunk in message.chunks(1000) {
                let space = &mut self.spaces[space_of(level)];
                let frame = crypto(space.crypto_sent, chunk);
                space.crypto_sent += chunk.len() as u64;
                let datagram = self.seal(level, &frame);
                self.send_datagram(&datagram).await;
                sent += datagram.len();
            }
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.write_level = PacketLevel::Handshake;
                    self.spaces[space_of(self.write_level)].keys = Some(keys);
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.write_level = PacketLevel::Application;
                    self.spaces[space_of(self.write_level)].keys = Some(keys);
                    self.secrets = Some(next);
                }
                None if message.is_empty() => return sent,
                None => {}
            }
        }
    }

    /// The largest number of a 1-RTT packet that came.
    pub fn largest_received(&self) -> u64 {
        let received = &self.spaces[space_of(PacketLevel::Application)].received;
        received.last().copied().unwrap_or_default()
    }

    /// How many 1-RTT packets came.
    pub fn received_packets(&self) -> usize {
        let received = &self.spaces[space_of(PacketLevel::Application)].received;
        received.len()
    }

    /// Uses the next keys from now on (RFC 9001 section 6).
    fn update_keys(&mut self) {
        let next = self.secrets.as_mut().unwrap().next_packet_keys();
        let keys = self.spaces[space_of(PacketLevel::Application)]
            .keys
            .as_mut();
        let keys = keys.unwrap();
        keys.local.packet = next.local;
        keys.remote.packet = next.remote;
        self.key_phase = !self.key_phase;
    }
}

/// The suite of Initial packets (RFC 9001 section 5.2).
fn initial_suite(provider: &CryptoProvider) -> Suite {
    let suites = provider.cipher_suites.iter();
    let mut found = suites.filter_map(|suite| match suite {
        SupportedCipherSuite::Tls13(suite)
            if suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256 =>
        {
            suite.quic_suite()
        }
        _ => None,
    });
    found.next().expect("the suite of Initial packets")
}

fn space_of(level: PacketLevel) -> usize {
    match level {
        PacketLevel::Initial => 0,
        PacketLevel::Handshake => 1,
        PacketLevel::Early | PacketLevel::Application => 2,
    }
}
