//! The endpoint: which connection a datagram belongs to, and responses to those of none (RFC 9000 section 5.2).

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Connection as TlsConnection, Keys};

use crate::config::{ClientConfig, EndpointConfig, ServerConfig, transport_parameters};
use crate::connection::{
    Connection, EndpointEvent, EndpointRequest, IssuedIds, NewConnection, NewSide,
};
use crate::connection_id::{ConnectionId, ConnectionIdGenerator, RESET_TOKEN_LENGTH, ResetToken};
use crate::datagram::{DatagramSource, Transmit};
use crate::error::{ConnectError, TransportErrorCode};
use crate::frame;
use crate::packet::{self, FIXED_BIT, LONG_HEADER, Packet, PacketKind, SentHeader, TAG};
use crate::random::{self, RandomNumbers};
use crate::stream_id::Side;
use crate::tls::{self, ServerOffer};
use crate::token::OpenedToken;
use crate::version::{QuicVersion, VersionInformation};

/// The least size of a datagram with an Initial packet (RFC 9000 section 14.1).
const MIN_INITIAL: usize = 1_200;
/// The least length of the connection ID that a client chooses (section 7.2).
const MIN_CHOSEN_ID: usize = 8;
/// A stateless reset is shorter than the packet that it responds to, and has at least this size (section 10.3).
const MIN_RESET: usize = 5 + RESET_TOKEN_LENGTH;
const USUAL_RESET: u64 = 38;
/// The least time between two stateless resets, which may go to forged addresses. After a restart, all clients need one.
const RESET_INTERVAL: Duration = Duration::from_millis(1);
/// A version that does not exist, so that clients get used to unknown ones (section 15).
// Versions of this form are reserved so that no client may rely on a list of known ones (RFC 9000 section 6.3).
const RESERVED_VERSION: u32 = 0x0a1a_2a3a;

/// The number of a connection of an endpoint. Numbers of connections that are gone are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionHandle(pub usize);

/// What to do with a datagram.
#[derive(Debug)]
pub enum DatagramEvent {
    /// Pass it to [`Connection::handle_datagram`] of this connection.
    Connection(ConnectionHandle),
    /// A client opens a connection: accept it, refuse it, demand a proof of its address, or ignore it.
    NewConnection(IncomingConnection),
    /// Send this response.
    Response(Transmit),
}

/// The first packet of a client, which is authentic.
pub struct IncomingConnection {
    version: QuicVersion,
    source: DatagramSource,
    datagram: Vec<u8>,
    destination: ConnectionId,
    client: ConnectionId,
    token: Option<OpenedToken>,
    keys: Keys,
}

impl IncomingConnection {
    /// Where it came from.
    pub fn source(&self) -> DatagramSource {
        self.source
    }

    /// The connection ID that the client chose for the server.
    pub fn destination(&self) -> ConnectionId {
        self.destination
    }

    /// Whether a token has proved the address of the client.
    pub fn is_address_validated(&self) -> bool {
        self.token.is_some()
    }
}

/// An endpoint.
pub struct ProtocolEndpoint {
    config: EndpointConfig,
    server: Option<Arc<ServerConfig>>,
    generator: Box<dyn ConnectionIdGenerator>,
    random: RandomNumbers,
    /// By the connection IDs that the generator issued. Nobody else can choose these.
    issued: HashMap<ConnectionId, ConnectionHandle, BuildHasherDefault<IssuedIdHasher>>,
    /// By the connection IDs that clients chose for their first packets.
    chosen: HashMap<ConnectionId, ConnectionHandle>,
    reset_tokens: HashMap<(SocketAddr, ResetToken), ConnectionHandle>,
    connections: Vec<Option<ConnectionEntry>>,
    free: Vec<usize>,
    last_reset: Option<Instant>,
}

/// What the maps of an endpoint have of a connection.
#[derive(Debug)]
struct ConnectionEntry {
    issued: Vec<ConnectionId>,
    chosen: Option<ConnectionId>,
    reset_token: Option<(SocketAddr, ResetToken)>,
}

impl ProtocolEndpoint {
    /// An endpoint that opens connections, and accepts them with a configuration of the server.
    pub fn new(
        config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        generator: Box<dyn ConnectionIdGenerator>,
    ) -> Self {
        Self {
            random: RandomNumbers::new(config.seed),
            config,
            server,
            generator,
            issued: HashMap::default(),
            chosen: HashMap::new(),
            reset_tokens: HashMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            last_reset: None,
        }
    }

    /// Replaces the configuration of new server connections. Without one, none is accepted.
    pub fn set_server_config(&mut self, server: Option<Arc<ServerConfig>>) {
        self.server = server;
    }

    /// Decides on a datagram. A response is written to the buffer, which has to be empty.
    pub fn handle(
        &mut self,
        now: Instant,
        source: DatagramSource,
        datagram: &mut [u8],
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let first = *datagram.first()?;
        let destination = match first & LONG_HEADER {
            0 => {
                // A short header does not say how long the ID is. All IDs of an endpoint have one length, so that it
                // can be found.
                let end = 1 + self.generator.length();
                ConnectionId::checked(datagram.get(1..end)?)?
            }
            _ => {
                let (version, destination, client) = packet::invariants(datagram)?;
                // Before the length of the IDs is checked: other versions may have IDs of up to 255 bytes (RFC 8999
                // section 5.3).
                if version != 0 && QuicVersion::of_number(version).is_none() {
                    let size = datagram.len();
                    return self.negotiate_version(size, destination, client, source, response);
                }
                ConnectionId::checked(destination)?
            }
        };
        // The IDs that this end issued are looked up first and without a keyed hash: nobody else can choose them.
        // Those that clients choose for their first packets have a map with one, as a client could make them
        // collide.
        let known = self
            .issued
            .get(&destination)
            .or_else(|| match first & LONG_HEADER {
                0 => None,
                _ => self.chosen.get(&destination),
            })
            // Last, as it compares 16 bytes of each datagram of an unknown connection: a stateless reset looks like
            // any short header (RFC 9000 section 10.3).
            .or_else(|| self.find_reset(source.remote, datagram));
        if let Some(handle) = known {
            return Some(DatagramEvent::Connection(*handle));
        }
        match first & LONG_HEADER {
            // Only a short header gets a stateless reset. To reset on a long header would let an attacker end a
            // handshake by its first packet, and two endpoints could reset each other for ever.
            0 => self.reset(now, &destination, datagram.len(), source, response),
            _ => self.begin(source, datagram, response),
        }
    }

    /// The connection to which a datagram is a stateless reset (section 10.3.1).
    fn find_reset(&self, remote: SocketAddr, datagram: &[u8]) -> Option<&ConnectionHandle> {
        if self.reset_tokens.is_empty() || datagram.len() < MIN_RESET {
            return None;
        }
        let token = ResetToken(*datagram.last_chunk()?);
        // A map and no comparison with each token: a lookup by hash does not tell by its time how many bytes were
        // right (RFC 9000 section 10.3.1).
        self.reset_tokens.get(&(remote, token))
    }

    /// Version Negotiation (section 6.1).
    fn negotiate_version(
        &self,
        size: usize,
        destination: &[u8],
        client: &[u8],
        source: DatagramSource,
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        // A small datagram would be answered with a larger one, towards an address that may be forged (RFC 9000
        // section 6.1).
        if self.server.is_none() || size < MIN_INITIAL {
            return None;
        }
        response.push(LONG_HEADER | FIXED_BIT);
        response.extend_from_slice(&[0; 4]);
        for id in [client, destination] {
            response.push(id.len() as u8);
            response.extend_from_slice(id);
        }
        response.extend_from_slice(&RESERVED_VERSION.to_be_bytes());
        for version in QuicVersion::ALL {
            response.extend_from_slice(&version.number().to_be_bytes());
        }
        Some(DatagramEvent::Response(transmit(response, source)))
    }

    /// A stateless reset, if an endpoint with the same keys has issued the connection ID (section 10.3).
    fn reset(
        &mut self,
        now: Instant,
        destination: &ConnectionId,
        size: usize,
        source: DatagramSource,
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let is_too_soon = self
            .last_reset
            .is_some_and(|last| now.saturating_duration_since(last) < RESET_INTERVAL);
        // Each reset is shorter than what it responds to, so that two endpoints that have lost their connections do
        // not go on resetting each other (RFC 9000 section 10.3.3).
        let most = size.checked_sub(1).filter(|most| *most >= MIN_RESET)?;
        // An ID that no endpoint with this key has issued gets nothing: a scan of the port is not answered.
        if is_too_soon || !self.generator.is_valid(destination) {
            return None;
        }
        self.last_reset = Some(now);
        // The length varies as that of small packets does, so that an observer cannot tell a reset by it.
        let usual = (USUAL_RESET + self.random.below(8)) as usize;
        let before_token = usual.min(most) - RESET_TOKEN_LENGTH;
        while response.len() < before_token {
            response.extend_from_slice(&random::secret::<8>());
        }
        response.truncate(before_token);
        if let Some(first) = response.first_mut() {
            *first = *first & !LONG_HEADER | FIXED_BIT;
        }
        let token = ResetToken::of(&self.config.reset_key, destination);
        response.extend_from_slice(&token.0);
        Some(DatagramEvent::Response(transmit(response, source)))
    }

    /// The first packet of a client.
    fn begin(
        &mut self,
        source: DatagramSource,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let server = self.server.as_ref()?;
        // RFC 9000 section 14.1. It also bounds amplification: the client has to send 1,200 bytes before it gets
        // 3,600.
        if datagram.len() < MIN_INITIAL {
            return None;
        }
        let mut copy = datagram.to_vec();
        let (mut packet, _) = Packet::parse(&mut copy, self.generator.length()).ok()?;
        // A short ID would let somebody who does not see the packet guess the Initial keys that follow from it
        // (section 7.2).
        if packet.kind != PacketKind::Initial || packet.destination.len() < MIN_CHOSEN_ID {
            return None;
        }
        let (destination, client) = (packet.destination, packet.source);
        let version = packet.version?;
        let token = packet.bytes.get(packet.token.clone()).unwrap_or_default();
        let token = if token.is_empty() {
            None
        } else {
            server
                .tokens
                .open(version, SystemTime::now(), source.remote, token)
        };
        // Only a client of QUIC can have made it.
        // The first packet is decrypted here, on a copy, before anything is kept for it: noise from the Internet costs
        // one key derivation and no place among the half-open connections.
        let suite = self.config.initial_suite;
        let keys = tls::initial_keys(suite, version, &destination, Side::Server);
        let unprotected = packet.unprotect(&*keys.remote.header)?;
        let number = unprotected.number(0);
        packet.decrypt(&*keys.remote.packet, unprotected, number)?;
        let incoming = IncomingConnection {
            version,
            source,
            datagram: datagram.to_vec(),
            destination,
            client,
            token,
            keys,
        };
        // A client follows one Retry only, so this connection cannot succeed: an error ends it at once, where silence
        // would let it wait for its timeout (section 8.1.3).
        if token == Some(OpenedToken::InvalidRetry) {
            let code = TransportErrorCode::INVALID_TOKEN;
            return Some(DatagramEvent::Response(
                self.close(&incoming, code, response),
            ));
        }
        Some(DatagramEvent::NewConnection(incoming))
    }

    /// Accepts a connection; `None` without a configuration of the server.
    pub fn accept(
        &mut self,
        now: Instant,
        mut incoming: IncomingConnection,
    ) -> Option<(ConnectionHandle, Connection)> {
        let server = Arc::clone(self.server.as_ref()?);
        if let Some(OpenedToken::NewToken { nonce }) = incoming.token
            // Here and not where the token was opened: a copied datagram must not use up the token of a client that is
            // refused or gets a Retry.
            && !server.tokens.consume(&nonce, SystemTime::now())
        {
            incoming.token = None;
        }
        let (local_id, local_token) = self.issue();
        let mut parameters = transport_parameters(&server.transport);
        parameters.initial_source = Some(local_id);
        parameters.reset_token = Some(local_token);
        let original_destination = match incoming.token {
            Some(OpenedToken::Retry {
                original_destination,
            }) => {
                parameters.retry_source = Some(incoming.destination);
                original_destination
            }
            _ => incoming.destination,
        };
        parameters.original_destination = Some(original_destination);
        let is_validated = incoming.token.is_some();
        let offer = ServerOffer::new(incoming.version, parameters)
            .with_proven_client(is_validated.then(|| incoming.source.remote.ip()));
        let mut connection = Connection::new(
            now,
            NewConnection {
                side: NewSide::Server {
                    tokens: Arc::clone(&server.tokens),
                    is_validated,
                },
                transport: Arc::clone(&server.transport),
                version: incoming.version,
                suite: self.config.initial_suite,
                initial_keys: incoming.keys,
                can_discover_mtu: self.config.can_discover_mtu,
                seed: self.connection_seed(),
                initial_destination: incoming.destination,
                original_destination,
                local_id,
                local_token,
                remote_id: incoming.client,
                remote: incoming.source.remote,
                local_ip: incoming.source.local_ip,
                tls: server.tls.start(offer),
            },
        );
        // The ID that the client chose is known from now on, so that its repeated first packets find this connection.
        let handle = self.insert(local_id, Some(incoming.destination));
        connection.handle_datagram(now, incoming.source, &mut incoming.datagram);
        Some((handle, connection))
    }

    /// Demands a proof of the client's address by a Retry packet (section 8.1.2); `None` if it has sent one.
    pub fn retry(
        &mut self,
        incoming: &IncomingConnection,
        response: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let server = self.server.as_ref()?;
        if incoming.token.is_some() {
            return None;
        }
        let version = incoming.version;
        let token = server.tokens.retry(
            version,
            SystemTime::now(),
            incoming.source.remote,
            &incoming.destination,
        )?;
        // Not kept: the client repeats it as its destination, and the token says which one it had before. Retry holds
        // no state.
        let source = self.generator.generate();
        let kind = version.type_bits(PacketKind::Retry);
        response.push(LONG_HEADER | FIXED_BIT | kind | self.random.below(16) as u8);
        response.extend_from_slice(&version.number().to_be_bytes());
        for id in [&incoming.client, &source] {
            response.push(id.len() as u8);
            response.extend_from_slice(id);
        }
        response.extend_from_slice(&token);
        let tag = tls::retry_tag(version, &incoming.destination, response)?;
        response.extend_from_slice(&tag);
        Some(transmit(response, incoming.source))
    }

    /// Refuses a connection with CONNECTION_REFUSED.
    pub fn refuse(&mut self, incoming: &IncomingConnection, response: &mut Vec<u8>) -> Transmit {
        self.close(incoming, TransportErrorCode::CONNECTION_REFUSED, response)
    }

    /// CONNECTION_CLOSE in an Initial packet, without a connection.
    fn close(
        &mut self,
        incoming: &IncomingConnection,
        code: TransportErrorCode,
        response: &mut Vec<u8>,
    ) -> Transmit {
        let keys = &incoming.keys;
        let start = SentHeader {
            kind: PacketKind::Initial,
            version: incoming.version,
            destination: &incoming.client,
            source: &self.generator.generate(),
            token: &[],
            number: 0,
            number_length: 1,
            key_phase: false,
            is_greased: false,
        }
        .write(response);
        let most = MIN_INITIAL - response.len() - TAG;
        frame::write_close(false, code.into(), 0, &[], most, response);
        if !start.seal(response, &*keys.local.header, &*keys.local.packet) {
            response.clear();
        }
        transmit(response, incoming.source)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The address or the name is invalid, or TLS cannot be used.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<(ConnectionHandle, Connection), ConnectError> {
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::InvalidRemoteAddress(remote));
        }
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ConnectError::InvalidServerName(server_name.to_owned()))?;
        let (local_id, local_token) = self.issue();
        let mut parameters = transport_parameters(&config.transport);
        parameters.initial_source = Some(local_id);
        let version = config.version;
        parameters.version_information =
            Some(Box::new(VersionInformation::new(version, &[version])));
        let mut bytes = Vec::new();
        parameters.write(&mut bytes);
        let tls = ClientConnection::new(Arc::clone(&config.tls), version.tls(), name, bytes)
            .map_err(|error| ConnectError::Tls(error.to_string()))?;
        let initial_destination = ConnectionId::new(&random::secret::<MIN_CHOSEN_ID>());
        let suite = self.config.initial_suite;
        let initial_keys = tls::initial_keys(suite, version, &initial_destination, Side::Client);
        let connection = Connection::new(
            now,
            NewConnection {
                side: NewSide::Client {
                    server_name: server_name.to_owned(),
                    tokens: Arc::clone(&config.tokens),
                },
                transport: Arc::clone(&config.transport),
                version,
                suite,
                initial_keys,
                can_discover_mtu: self.config.can_discover_mtu,
                seed: self.connection_seed(),
                initial_destination,
                original_destination: initial_destination,
                local_id,
                local_token,
                remote_id: initial_destination,
                remote,
                local_ip: None,
                tls: Box::new(TlsConnection::Client(tls)),
            },
        );
        Ok((self.insert(local_id, None), connection))
    }

    /// Handles an event of a connection. Connection IDs that it returns go to [`Connection::add_ids`].
    pub fn handle_event(
        &mut self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<IssuedIds> {
        match event.0 {
            EndpointRequest::Issue(count) => {
                let ids: Vec<_> = (0..count).map(|_| self.issue()).collect();
                let entry = self.connections.get_mut(handle.0)?.as_mut()?;
                for (id, _) in &ids {
                    entry.issued.push(*id);
                    self.issued.insert(*id, handle);
                }
                return Some(IssuedIds(ids));
            }
            EndpointRequest::Retire(id) => {
                let entry = self.connections.get_mut(handle.0)?.as_mut()?;
                entry.issued.retain(|issued| *issued != id);
                self.issued.remove(&id);
            }
            EndpointRequest::ResetToken(remote, token) => {
                let entry = self.connections.get_mut(handle.0)?.as_mut()?;
                if let Some(before) = entry.reset_token.replace((remote, token)) {
                    self.reset_tokens.remove(&before);
                }
                self.reset_tokens.insert((remote, token), handle);
            }
            EndpointRequest::Drained => {
                let entry = self.connections.get_mut(handle.0)?.take()?;
                for id in &entry.issued {
                    self.issued.remove(id);
                }
                if let Some(id) = entry.chosen {
                    self.chosen.remove(&id);
                }
                if let Some(token) = entry.reset_token {
                    self.reset_tokens.remove(&token);
                }
                self.free.push(handle.0);
            }
        }
        None
    }

    /// A new connection ID, which is not in use, and its stateless reset token.
    fn issue(&mut self) -> (ConnectionId, ResetToken) {
        let mut id = self.generator.generate();
        while self.issued.contains_key(&id) {
            id = self.generator.generate();
        }
        (id, ResetToken::of(&self.config.reset_key, &id))
    }

    fn insert(&mut self, local_id: ConnectionId, chosen: Option<ConnectionId>) -> ConnectionHandle {
        let entry = ConnectionEntry {
            issued: vec![local_id],
            chosen,
            reset_token: None,
        };
        // Indices are used again, so that the table is as long as the most connections at a time, not as all that
        // there were.
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = Some(entry);
        }
        let handle = ConnectionHandle(index);
        self.issued.insert(local_id, handle);
        if let Some(id) = chosen {
            self.chosen.insert(id, handle);
        }
        handle
    }

    fn connection_seed(&mut self) -> Option<u64> {
        self.config.seed.map(|_| self.random.next())
    }
}

impl fmt::Debug for IncomingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingConnection")
            .field("source", &self.source)
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ProtocolEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolEndpoint")
            .field("connections", &(self.connections.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}

fn transmit(response: &[u8], source: DatagramSource) -> Transmit {
    Transmit {
        destination: source.remote,
        ecn: None,
        size: response.len(),
        segment_size: None,
        src_ip: source.local_ip,
    }
}

/// Hashes connection IDs that this end has issued, which are random.
#[derive(Default)]
struct IssuedIdHasher(u64);

impl Hasher for IssuedIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            let word = u64::from_le_bytes(word);
            // The function of FxHash. A keyed hash is for keys that others choose.
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
