//! A connection (RFC 9000), of either side.
//!
//! It is a state machine that its owner drives. These are its inputs: [`Connection::handle_datagram`],
//! [`Connection::handle_timeout`], [`Connection::add_ids`], and what the application does. After any of them, the owner
//! takes the outputs until there are none: [`Connection::poll_transmit`] makes datagrams, [`Connection::poll`] reports to
//! the application, [`Connection::poll_endpoint_event`] to the endpoint, and [`Connection::poll_timeout`] tells when to
//! come back.
//!
//! # What a peer can make it hold
//!
//! Streams are bounded by flow control (see [`crate::streams`]), CRYPTO data by 16 KiB for each encryption level, received
//! packet numbers by 64 ranges, connection IDs by five of the peer and 64 to retire, PATH_RESPONSE frames to send by four,
//! and sent packets by the congestion window.

mod acknowledge;
mod close;
mod handshake;
mod keys;
mod migration;
mod observe;
mod path;
mod process;
mod receive;
mod received;
mod record;
mod space;
mod timeout;
mod timers;
mod transmit;
mod write;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::quic::{DirectionalKeys, Keys, Suite};

use crate::config::{TokenStore, TransportConfig, transport_parameters};
use crate::connection_id::{ConnectionId, ResetToken};
use crate::datagram::DatagramSource;
use crate::error::ConnectionEnd;
use crate::local_ids::LocalIds;
use crate::observer::KeyUpdateReason;
use crate::packet::Space;
use crate::random::RandomNumbers;
use crate::recovery::ProbeTimeout;
use crate::remote_ids::RemoteIds;
use crate::statistics::{ConnectionStats, PathStats};
use crate::stream_id::{Dir, Side, StreamId};
use crate::streams::{
    ReadState, StreamEvent, StreamReadError, StreamSettings, StreamWriteError, Streams,
};
use crate::tls::TlsSession;
use crate::token::TokenKey;
use crate::transport_parameters::TransportParameters;
use crate::version::QuicVersion;

use close::Closing;
use keys::OneRttKeys;
use migration::PathResponse;
use observe::Observation;
use path::NetworkPath;
use space::{HandshakeSpace, NumberSpace, Spaces};
use timers::Timers;

/// The first packet numbers of which one is skipped.
// Early, so that an optimistic ACK is found out before the window has grown much.
const FIRST_SKIP: u64 = 64;

/// What happens on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The handshake is complete.
    Connected,
    /// The connection has ended, by the peer or an error. It is reported once, after all events of streams.
    ConnectionLost {
        /// Why.
        reason: ConnectionEnd,
    },
    /// Something on a stream.
    Stream(StreamEvent),
}

/// What a connection wants of its endpoint.
#[derive(Clone, Debug)]
pub struct EndpointEvent(pub(crate) EndpointRequest);

#[derive(Clone, Debug)]
pub(crate) enum EndpointRequest {
    /// So many connection IDs to offer to the peer.
    Issue(u64),
    /// The peer does not use this one any more.
    Retire(ConnectionId),
    /// Datagrams from this address that end with this token are stateless resets.
    ResetToken(SocketAddr, ResetToken),
    /// The connection is over: nothing is sent, and no packet is expected.
    Drained,
}

/// Connection IDs that the endpoint has issued, for [`Connection::add_ids`].
#[derive(Clone, Debug)]
pub struct IssuedIds(pub(crate) Vec<(ConnectionId, ResetToken)>);

impl EndpointEvent {
    /// Whether the connection is over, so that its owner can drop it.
    pub fn is_drained(&self) -> bool {
        matches!(self.0, EndpointRequest::Drained)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionStage {
    Handshake,
    Established,
    /// This end has closed it, and repeats that to a peer that goes on (RFC 9000 section 10.2.1).
    Closing,
    /// The peer has closed it (section 10.2.2).
    Draining,
    Drained,
}

/// What only one side has.
enum SideState {
    Client {
        server_name: String,
        tokens: Arc<TokenStore>,
        /// The token in Initial packets.
        token: Vec<u8>,
        /// The source of the Retry packet.
        retry_source: Option<ConnectionId>,
        /// The keys of 0-RTT packets.
        early_keys: Option<Box<DirectionalKeys>>,
        is_early_data_accepted: bool,
    },
    Server {
        tokens: Arc<TokenKey>,
        early_keys: Option<Box<DirectionalKeys>>,
        /// The version with which the client began, if another one was selected.
        original: Option<Box<OriginalVersion>>,
    },
}

/// The version before a compatible negotiation, and the keys of the Initial packets that the client sends in it until it
/// knows the selected one (RFC 9369 section 4.1).
struct OriginalVersion {
    version: QuicVersion,
    remote: DirectionalKeys,
}

/// What a new connection is made of.
pub(crate) struct NewConnection {
    pub(crate) side: NewSide,
    pub(crate) transport: Arc<TransportConfig>,
    pub(crate) version: QuicVersion,
    pub(crate) suite: Suite,
    pub(crate) initial_keys: Keys,
    pub(crate) can_discover_mtu: bool,
    pub(crate) seed: Option<u64>,
    /// The first destination of the client, which Initial keys follow from.
    pub(crate) initial_destination: ConnectionId,
    /// Its first destination before a Retry.
    pub(crate) original_destination: ConnectionId,
    pub(crate) local_id: ConnectionId,
    pub(crate) local_token: ResetToken,
    pub(crate) remote_id: ConnectionId,
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) tls: Box<dyn TlsSession>,
}

pub(crate) enum NewSide {
    Client {
        server_name: String,
        tokens: Arc<TokenStore>,
    },
    Server {
        tokens: Arc<TokenKey>,
        /// Whether a token has proved the address of the client.
        is_validated: bool,
    },
}

/// A connection.
pub struct Connection {
    side: Side,
    side_state: SideState,
    state: ConnectionStage,
    config: Arc<TransportConfig>,
    version: QuicVersion,
    suite: Suite,
    can_discover_mtu: bool,
    random: RandomNumbers,
    tls: Box<dyn TlsSession>,
    spaces: Spaces,
    keys: Option<Box<OneRttKeys>>,
    streams: Streams,
    path: NetworkPath,
    /// The path before a migration that is not validated yet.
    previous_path: Option<Box<NetworkPath>>,
    probe_timeout: ProbeTimeout,
    timers: Timers,
    /// Whether the timer of loss detection has to be computed.
    is_loss_timer_old: bool,
    /// When packets were last acknowledged or discarded.
    probe_base: Instant,
    local_ids: LocalIds,
    remote_ids: RemoteIds,
    /// The first destination of the client, and the source of this end's handshake packets.
    initial_destination: ConnectionId,
    local_id: ConnectionId,
    /// The source of the peer's handshake packets. A client learns it from the first of them.
    peer_id: Option<ConnectionId>,
    peer: TransportParameters,
    idle_timeout: Option<Duration>,
    /// Whether sending restarts the idle timeout: the first packet after one was received does.
    restarts_idle: bool,
    /// Whether the handshake is confirmed (RFC 9001 section 4.1.2).
    is_confirmed: bool,
    /// Whether the server has validated the address of this client, as it has acknowledged a Handshake packet.
    is_peer_validated: bool,
    /// Whether any packet of the peer was authentic.
    has_received: bool,
    is_handshake_done_pending: bool,
    is_new_token_pending: bool,
    is_ping_pending: bool,
    path_responses: VecDeque<PathResponse>,
    /// The next packet number that is skipped, and how far the one after it is.
    skip_at: u64,
    skip_distance: u64,
    closing: Option<Box<Closing>>,
    events: VecDeque<ConnectionEvent>,
    end: Option<ConnectionEnd>,
    endpoint_events: VecDeque<EndpointRequest>,
    stats: ConnectionStats,
    observation: Option<Box<Observation>>,
}

impl Connection {
    pub(crate) fn new(now: Instant, new: NewConnection) -> Self {
        let side = match new.side {
            NewSide::Client { .. } => Side::Client,
            NewSide::Server { .. } => Side::Server,
        };
        let mut path = NetworkPath::new(
            now,
            new.remote,
            new.local_ip,
            &new.transport,
            new.can_discover_mtu,
        );
        let mut random = RandomNumbers::new(new.seed);
        let side_state = match new.side {
            NewSide::Client {
                server_name,
                tokens,
            } => {
                // The client has chosen this address itself, so nobody can have made it up: the limit of three times
                // the received bytes is one of servers alone (RFC 9000 section 8.1).
                path.is_validated = true;
                SideState::Client {
                    token: tokens.take(&server_name).unwrap_or_default(),
                    server_name,
                    tokens,
                    retry_source: None,
                    early_keys: None,
                    is_early_data_accepted: false,
                }
            }
            NewSide::Server {
                tokens,
                is_validated,
            } => {
                // With a token the client has proved that it receives at its address, so the limit does not hold back
                // the certificates (RFC 9000 section 8.1.2).
                path.is_validated = is_validated;
                SideState::Server {
                    tokens,
                    early_keys: None,
                    original: None,
                }
            }
        };
        let observation = new
            .transport
            .observer
            .as_ref()
            .and_then(|observer| observer.start(side, new.original_destination))
            .map(|observer| Observation::new(now, observer));
        let initial = HandshakeSpace {
            keys: new.initial_keys,
            space: NumberSpace::new(),
        };
        let settings = StreamSettings {
            receive_window: new.transport.receive_window,
            stream_receive_window: new.transport.stream_receive_window,
            send_window: new.transport.send_window,
            max_bidi: new.transport.max_bidirectional_streams,
            max_uni: new.transport.max_unidirectional_streams,
        };
        let mut connection = Self {
            side,
            side_state,
            state: ConnectionStage::Handshake,
            idle_timeout: new.transport.max_idle_timeout,
            config: new.transport,
            version: new.version,
            suite: new.suite,
            can_discover_mtu: new.can_discover_mtu,
            tls: new.tls,
            spaces: Spaces {
                initial: Some(Box::new(initial)),
                handshake: None,
                data: NumberSpace::new(),
            },
            keys: None,
            streams: Streams::new(side, settings),
            path,
            previous_path: None,
            probe_timeout: ProbeTimeout::default(),
            timers: Timers::default(),
            is_loss_timer_old: true,
            probe_base: now,
            local_ids: LocalIds::new(new.local_id, new.local_token),
            remote_ids: RemoteIds::new(new.remote_id),
            initial_destination: new.initial_destination,
            local_id: new.local_id,
            // A client must not know it yet: the first packet of the server brings another ID than the one that the
            // client has made up, and Retry one more before (RFC 9000 section 7.2).
            peer_id: side.is_server().then_some(new.remote_id),
            peer: TransportParameters::default(),
            restarts_idle: true,
            is_confirmed: false,
            // A server does not need it: a client never limits what it sends to a server (RFC 9002 section 6.2.2.1).
            is_peer_validated: side.is_server(),
            has_received: false,
            is_handshake_done_pending: false,
            is_new_token_pending: false,
            is_ping_pending: false,
            path_responses: VecDeque::new(),
            // At random: a peer that knew the number could leave it out of an optimistic ACK (RFC 9000 section 21.4).
            skip_at: 1 + random.below(FIRST_SKIP),
            skip_distance: FIRST_SKIP,
            random,
            closing: None,
            events: VecDeque::new(),
            end: None,
            endpoint_events: VecDeque::new(),
            stats: ConnectionStats::default(),
            observation,
        };
        if connection.observation.is_some() {
            let is_retried = new.original_destination != new.initial_destination;
            let local = TransportParameters {
                initial_source: Some(new.local_id),
                original_destination: side.is_server().then_some(new.original_destination),
                retry_source: is_retried.then_some(new.initial_destination),
                ..transport_parameters(&connection.config)
            };
            connection.observe_start(&local, new.remote_id);
        }
        // From the start on, so that a handshake whose peer never responds ends, too.
        connection.restart_idle_timer(now);
        if side.is_client() {
            connection.begin_handshake();
        }
        connection
    }

    /// The next event for the application.
    pub fn poll(&mut self) -> Option<ConnectionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if let Some(event) = self.streams.next_event() {
            return Some(ConnectionEvent::Stream(event));
        }
        // The end comes last: data and FIN that came before CONNECTION_CLOSE are reported to the application first.
        let reason = self.end.take()?;
        Some(ConnectionEvent::ConnectionLost { reason })
    }

    /// The next event for the endpoint.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint_events.pop_front().map(EndpointEvent)
    }

    /// Adds connection IDs that the endpoint has issued.
    pub fn add_ids(&mut self, ids: IssuedIds) {
        for (id, token) in ids.0 {
            self.local_ids.add(id, token);
        }
    }

    /// When [`Connection::handle_timeout`] has to be called.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        // Computed here, once after all inputs, and not after each packet or ACK: quinn-proto computes its timers for
        // every packet.
        self.update_loss_timer();
        self.timers.next()
    }

    /// Opens a stream, if the peer allows one more.
    pub fn open(&mut self, direction: Dir) -> Option<StreamId> {
        if self.is_closed() {
            None
        } else {
            self.streams.open(direction)
        }
    }

    /// Writes as much of the chunks as the limits allow, and takes that out of them. Returns the number of bytes; if
    /// something is left, [`StreamEvent::Writable`] follows.
    ///
    /// # Errors
    /// The peer does not read the stream, or it is not open for writing.
    pub fn write(
        &mut self,
        stream: StreamId,
        chunks: &mut [Bytes],
    ) -> Result<usize, StreamWriteError> {
        self.streams.write(stream, chunks)
    }

    /// Ends a stream after what was written.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub fn finish(&mut self, stream: StreamId) -> Result<(), StreamWriteError> {
        self.streams.finish(stream)
    }

    /// Abandons a stream that this end writes.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn reset(&mut self, stream: StreamId, code: u64) -> Result<(), StreamWriteError> {
        self.streams.reset(stream, code.min(crate::varint::MAX))
    }

    /// Sets the priority of a stream that this end writes. Streams with a higher one are sent first, and those with the
    /// same one in turns.
    ///
    /// # Errors
    /// The stream is not open for writing.
    pub fn set_priority(
        &mut self,
        stream: StreamId,
        priority: i32,
    ) -> Result<(), StreamWriteError> {
        self.streams.set_priority(stream, priority)
    }

    /// Passes the data of a stream to `sink`, in order, at most `limit` bytes.
    ///
    /// # Errors
    /// The peer reset the stream, or it is not open for reading.
    pub fn read(
        &mut self,
        stream: StreamId,
        limit: usize,
        sink: impl FnMut(Bytes),
    ) -> Result<ReadState, StreamReadError> {
        self.streams.read(stream, limit, sink)
    }

    /// Whether limits of streams wait to be sent, such as after a read.
    pub fn has_credit_to_send(&self) -> bool {
        self.streams.has_control()
    }

    /// Discards what comes on a stream, and asks the peer to stop.
    ///
    /// # Errors
    /// The stream is not open for reading.
    pub fn stop_sending(&mut self, stream: StreamId, code: u64) -> Result<(), StreamReadError> {
        self.streams
            .stop_sending(stream, code.min(crate::varint::MAX))
    }

    /// The streams that this end writes and whose end the peer has not acknowledged.
    pub fn sending_streams(&self) -> usize {
        self.streams.sending()
    }

    /// The memory of data that was received and not read, in bytes: of streams, and of the handshake.
    pub fn received_memory(&self) -> usize {
        let of_handshake: usize = Space::ALL
            .into_iter()
            .filter_map(|space| Some(self.spaces.get(space)?.crypto_received.memory()))
            .sum();
        self.streams.memory() + of_handshake
    }

    /// Sets how much the application may write over all streams before the peer acknowledges it, in bytes.
    pub fn set_send_window(&mut self, window: u64) {
        self.streams.set_send_window(window);
    }

    /// The bytes that may be in flight.
    pub fn congestion_window(&self) -> u64 {
        self.path.congestion.window()
    }

    /// The most bytes of a UDP payload.
    pub fn current_mtu(&self) -> u16 {
        self.path.mtu.current()
    }

    /// Whether it is over: nothing is sent, and no packet is expected.
    pub fn is_drained(&self) -> bool {
        self.state == ConnectionStage::Drained
    }

    /// Whether the connection was closed by an end, or is lost.
    pub fn is_closed(&self) -> bool {
        matches!(
            self.state,
            ConnectionStage::Closing | ConnectionStage::Draining | ConnectionStage::Drained
        )
    }

    /// Whether the handshake is going on.
    pub fn is_handshaking(&self) -> bool {
        self.state == ConnectionStage::Handshake
    }

    /// Whether there are keys for 0-RTT packets.
    pub fn has_early_data(&self) -> bool {
        match &self.side_state {
            SideState::Client { early_keys, .. } | SideState::Server { early_keys, .. } => {
                early_keys.is_some()
            }
        }
    }

    /// Whether the server has accepted the early data of this client.
    pub fn is_early_data_accepted(&self) -> bool {
        matches!(
            self.side_state,
            SideState::Client {
                is_early_data_accepted: true,
                ..
            }
        )
    }

    /// The version of QUIC, which a server may change when it reads the ClientHello.
    pub fn version(&self) -> QuicVersion {
        self.version
    }

    /// The side of this end.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The address of the peer.
    pub fn remote_address(&self) -> SocketAddr {
        self.path.remote
    }

    /// Whether the peer has shown that it receives at this address (section 8).
    pub fn is_address_validated(&self) -> bool {
        self.path.is_validated
    }

    /// The local address of packets, if the system reported it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.path.local_ip
    }

    /// The smoothed round-trip time.
    pub fn round_trip_time(&self) -> Duration {
        self.path.rtt.smoothed()
    }

    /// The TLS of the connection.
    pub fn tls(&self) -> &dyn TlsSession {
        &*self.tls
    }

    /// Asks the peer for an acknowledgement.
    pub fn ping(&mut self) {
        // No PING follows CONNECTION_CLOSE: in the closing state nothing else is sent (RFC 9000 section 10.2.1).
        self.is_ping_pending = !self.is_closed();
    }

    /// Updates the keys of packets, unless an update is going on (RFC 9001 section 6).
    pub fn update_keys(&mut self) {
        // Keys are not updated before the handshake is confirmed: until then, the peer may lack the 1-RTT keys of the
        // first phase (RFC 9001 section 6.1).
        let next_number = self.spaces.data.sent.next_number();
        if let Some(keys) = self.keys.as_mut().filter(|_| self.is_confirmed) {
            keys.update(next_number);
        }
        self.observe_key_phase(KeyUpdateReason::Local);
    }

    /// Counters.
    pub fn stats(&self) -> ConnectionStats {
        let stats = self.stats;
        ConnectionStats {
            path: PathStats {
                rtt: self.path.rtt.smoothed(),
                cwnd: self.path.congestion.window(),
                current_mtu: self.path.mtu.current(),
                ..stats.path
            },
            ..stats
        }
    }

    /// How often the peer has challenged a path.
    pub fn path_challenges(&self) -> u64 {
        self.stats.frame_rx.path_challenge
    }

    /// The time that the peer may delay an ACK of Application Data.
    fn max_ack_delay(&self) -> Duration {
        self.peer.ack_delay()
    }

    /// Three probe timeouts (RFC 9000 section 10.1).
    fn three_probe_timeouts(&self) -> Duration {
        let timeout = self.path.probe_timeout(self.max_ack_delay());
        timeout.saturating_mul(3)
    }

    /// The source of a datagram that came on the current path.
    fn is_current_path(&self, source: &DatagramSource) -> bool {
        // The local address is not compared: systems report it for some sockets only, and a change of the server's own
        // address is no migration of the client.
        source.remote == self.path.remote
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.side)
            .field("state", &self.state)
            .field("remote", &self.path.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_keys_and_streams_takes_little_memory() {
        let size = size_of::<Connection>();
        assert!(size <= 2_568, "{size}");
    }
}
