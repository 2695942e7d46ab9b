//! One end: an endpoint without sockets, and an application that writes what it is given and reads what comes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use apus_quic_protocol::{
    Connection, ConnectionEnd, ConnectionEvent, ConnectionHandle, ConnectionId,
    ConnectionIdGenerator, DatagramEvent, DatagramSource, Dir, EndpointConfig, ProtocolEndpoint,
    ReadState, ServerConfig, Side, StreamEvent, StreamId, StreamReadError,
};
use aws_lc_rs::hmac;
use bytes::Bytes;

use super::network::Datagram;
use super::tls::initial_suite;
use super::wire::ID_LENGTH;

/// What a server does with the first packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnIncoming {
    Accept,
    Retry,
    Refuse,
}

/// Connection IDs that begin with a byte of their endpoint.
struct TestIds {
    endpoint: u8,
    next: u64,
}

impl ConnectionIdGenerator for TestIds {
    fn generate(&mut self) -> ConnectionId {
        self.next += 1;
        let mut id = self.next.to_be_bytes();
        id[0] = self.endpoint;
        ConnectionId::new(&id)
    }

    fn is_valid(&self, id: &[u8]) -> bool {
        id.first() == Some(&self.endpoint)
    }

    fn length(&self) -> usize {
        ID_LENGTH
    }
}

pub(crate) struct TestEnd {
    pub(crate) side: Side,
    pub(crate) endpoint: ProtocolEndpoint,
    pub(crate) address: SocketAddr,
    connections: BTreeMap<ConnectionHandle, Connection>,
    /// The connection that was opened last.
    handle: Option<ConnectionHandle>,
    pub(crate) events: Vec<ConnectionEvent>,
    /// The events that the reading application has seen.
    events_read: usize,
    pub(crate) on_incoming: OnIncoming,
    /// How many connections were opened, and how many are drained.
    pub(crate) opened: usize,
    pub(crate) drained: usize,
    /// Whether the application reads.
    pub(crate) reads: bool,
    /// What is still to be written, and whether the stream ends with it.
    outbox: BTreeMap<StreamId, (Bytes, bool)>,
    pub(crate) inbox: BTreeMap<StreamId, Vec<u8>>,
    /// The streams that were read to their ends.
    pub(crate) finished: BTreeSet<StreamId>,
    /// The streams that the peer has reset, with their codes.
    pub(crate) resets: BTreeMap<StreamId, u64>,
    /// Datagrams that are made at a time.
    pub(crate) batch: usize,
}

impl TestEnd {
    pub(crate) fn new(
        side: Side,
        address: SocketAddr,
        server: Option<ServerConfig>,
        seed: u64,
        can_discover_mtu: bool,
    ) -> Self {
        let config = EndpointConfig {
            reset_key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &[side as u8; 32])),
            initial_suite: initial_suite(),
            can_discover_mtu,
            seed: Some(seed),
        };
        let ids = TestIds {
            endpoint: 0xa0 | side as u8,
            next: 0,
        };
        Self {
            side,
            endpoint: ProtocolEndpoint::new(config, server.map(Arc::new), Box::new(ids)),
            address,
            connections: BTreeMap::new(),
            handle: None,
            events: Vec::new(),
            events_read: 0,
            on_incoming: OnIncoming::Accept,
            opened: 0,
            drained: 0,
            reads: true,
            outbox: BTreeMap::new(),
            inbox: BTreeMap::new(),
            finished: BTreeSet::new(),
            resets: BTreeMap::new(),
            batch: 10,
        }
    }

    /// The connection that was opened last.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        let handle = self.handle.expect("there is a connection");
        self.connections.get_mut(&handle).unwrap()
    }

    pub(crate) fn has_connection(&self) -> bool {
        self.handle.is_some()
    }

    /// Adds a connection, which replaces the one before for the test.
    pub(crate) fn add(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.connections.insert(handle, connection);
        self.handle = Some(handle);
        self.opened += 1;
        self.events.clear();
        self.events_read = 0;
        self.outbox.clear();
        self.inbox.clear();
        self.finished.clear();
        self.resets.clear();
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_connected(&self) -> bool {
        self.events.contains(&ConnectionEvent::Connected)
    }

    /// Why the connection has ended.
    pub(crate) fn end(&self) -> Option<ConnectionEnd> {
        self.events.iter().find_map(|event| match event {
            ConnectionEvent::ConnectionLost { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    /// The code of the transport by which this end has closed the connection.
    pub(crate) fn own_error(&self) -> Option<u64> {
        match self.end()? {
            ConnectionEnd::Transport(error) => Some(error.code.into()),
            _ => None,
        }
    }

    /// The code by which the transport of the peer has closed the connection.
    pub(crate) fn peer_error(&self) -> Option<u64> {
        match self.end()? {
            ConnectionEnd::Peer { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Opens a stream, and writes data to it whenever there is room.
    pub(crate) fn send(&mut self, direction: Dir, data: Bytes, is_end: bool) -> StreamId {
        let stream = self.connection().open(direction);
        let stream = stream.expect("the peer allows one more stream");
        self.send_on(stream, data, is_end);
        stream
    }

    pub(crate) fn send_on(&mut self, stream: StreamId, data: Bytes, is_end: bool) {
        self.outbox.insert(stream, (data, is_end));
        self.write();
    }

    /// The bytes that are not written yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.outbox.values().map(|(data, _)| data.len()).sum()
    }

    /// Handles a datagram. A response goes into the list.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        mut datagram: Datagram,
        responses: &mut Vec<Datagram>,
    ) {
        let source = DatagramSource {
            remote: datagram.from,
            local_ip: None,
            ecn: datagram.ecn,
        };
        let mut response = Vec::new();
        let event = self
            .endpoint
            .handle(now, source, &mut datagram.bytes, &mut response);
        match event {
            Some(DatagramEvent::Connection(handle)) => {
                if let Some(connection) = self.connections.get_mut(&handle) {
                    connection.handle_datagram(now, source, &mut datagram.bytes);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let is_validated = incoming.is_address_validated();
                match self.on_incoming {
                    OnIncoming::Refuse => {
                        self.endpoint.refuse(&incoming, &mut response);
                    }
                    OnIncoming::Retry if !is_validated => {
                        self.endpoint.retry(&incoming, &mut response);
                    }
                    OnIncoming::Accept | OnIncoming::Retry => {
                        if let Some((handle, connection)) = self.endpoint.accept(now, incoming) {
                            self.add(handle, connection);
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
        if !response.is_empty() {
            responses.push(Datagram {
                sender: self.side,
                from: self.address,
                to: datagram.from,
                ecn: None,
                bytes: response,
            });
        }
    }

    /// Handles timers that are due.
    pub(crate) fn handle_timers(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
        }
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&mut self) -> Option<Instant> {
        let connections = self.connections.values_mut();
        connections
            .filter_map(|connection| connection.poll_timeout())
            .min()
    }

    /// Lets the application and the endpoint handle events.
    pub(crate) fn settle(&mut self) {
        for (handle, connection) in &mut self.connections {
            while let Some(event) = connection.poll() {
                if Some(*handle) == self.handle {
                    self.events.push(event);
                }
            }
            while let Some(event) = connection.poll_endpoint_event() {
                self.drained += usize::from(event.is_drained());
                if let Some(ids) = self.endpoint.handle_event(*handle, event) {
                    connection.add_ids(ids);
                }
            }
        }
        if self.handle.is_some() {
            self.write();
            if self.reads {
                self.read();
            }
        }
    }

    fn write(&mut self) {
        let handle = self.handle.unwrap();
        let connection = self.connections.get_mut(&handle).unwrap();
        self.outbox.retain(|stream, (data, is_end)| {
            let mut chunks = [data.clone()];
            if connection.write(*stream, &mut chunks).is_err() {
                return false;
            }
            *data = chunks[0].clone();
            if !data.is_empty() {
                return true;
            }
            if *is_end {
                connection.finish(*stream).unwrap();
            }
            false
        });
    }

    fn read(&mut self) {
        let mut readable: BTreeSet<StreamId> = BTreeSet::new();
        for event in &self.events[self.events_read..] {
            if let ConnectionEvent::Stream(
                StreamEvent::Readable(stream) | StreamEvent::Opened(stream),
            ) = event
            {
                readable.insert(*stream);
            }
        }
        self.events_read = self.events.len();
        for stream in readable {
            if self.finished.contains(&stream) {
                continue;
            }
            let data = self.inbox.entry(stream).or_default();
            let read = self
                .connections
                .get_mut(&self.handle.unwrap())
                .unwrap()
                .read(stream, usize::MAX, |chunk| data.extend_from_slice(&chunk));
            match read {
                Ok(ReadState::Finished) => {
                    self.finished.insert(stream);
                }
                Err(StreamReadError::Reset { code }) => {
                    self.resets.insert(stream, code);
                }
                Ok(_) | Err(StreamReadError::Closed) => {}
            }
        }
    }

    /// Takes what the connections have to send.
    pub(crate) fn transmit(&mut self, now: Instant, datagrams: &mut Vec<Datagram>) {
        let mut buffer = Vec::new();
        for connection in self.connections.values_mut() {
            loop {
                buffer.clear();
                let Some(transmit) = connection.poll_transmit(now, self.batch, &mut buffer) else {
                    break;
                };
                let size = transmit.segment_size.unwrap_or(transmit.size);
                for bytes in buffer[..transmit.size].chunks(size) {
                    datagrams.push(Datagram {
                        sender: self.side,
                        from: self.address,
                        to: transmit.destination,
                        ecn: transmit.ecn,
                        bytes: bytes.to_vec(),
                    });
                }
            }
        }
    }
}
