//! The two implementations behind one interface.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use apus_quic_protocol::{
    ClientConfig, ConnectionEnd, ConnectionEvent, Dir, EcnCodepoint, QuicVersion, ReadState,
    ServerConfig, Side, StreamEvent, StreamId, StreamReadError, StreamWriteError, TokenKey,
    TokenStore, TransportConfig,
};
use aws_lc_rs::hmac;
use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};

use super::super::harness::end::{OnIncoming, TestEnd};
use super::super::harness::network::Datagram;
use super::super::harness::tls::{TestTls, client_config, server_config};
use super::super::harness::wire::Secrets;
use super::super::harness::{client_address, server_address};
use super::application::Ending;
use super::script::{IDLE_TIMEOUT, Script};

/// What an end reports to the application.
#[derive(Debug)]
pub(crate) enum Event {
    Connected,
    Ended(Ending),
    Opened(u64),
    Readable(u64),
    Writable(u64),
    Stopped { stream: u64, code: u64 },
}

pub(crate) enum ReadResult {
    Blocked,
    Finished,
    Reset(u64),
    Closed,
}

pub(crate) enum WriteResult {
    /// What is left is written after an event.
    Taken,
    Stopped,
    Closed,
}

/// An end, of any implementation.
pub(crate) trait End {
    fn receive(&mut self, now: Instant, datagram: Datagram, responses: &mut Vec<Datagram>);
    fn handle_timers(&mut self, now: Instant);
    fn next_timer(&mut self) -> Option<Instant>;
    fn transmit(&mut self, now: Instant, datagrams: &mut Vec<Datagram>);
    fn poll(&mut self) -> Option<Event>;
    fn open(&mut self, direction: Dir) -> Option<u64>;
    fn write(&mut self, stream: u64, data: &mut Bytes) -> WriteResult;
    fn finish(&mut self, stream: u64);
    /// Returns whether the stream was open for writing.
    fn reset(&mut self, stream: u64, code: u64) -> bool;
    fn read(&mut self, stream: u64, data: &mut Vec<u8>) -> ReadResult;
    /// Returns whether the stream was open for reading.
    fn stop(&mut self, stream: u64, code: u64) -> bool;
    fn update_keys(&mut self);
    fn ping(&mut self);
    fn close(&mut self, now: Instant, code: u64);
    /// The code with which this end has closed the connection.
    fn close_code(&self) -> Option<u64>;
    /// Whether this end has closed the connection, and was not able to say so.
    fn is_close_unsent(&self) -> bool;
    fn has_connection(&self) -> bool;
    /// Whether its timers wait for a datagram.
    fn is_paused(&self) -> bool;
    /// Whether nothing is left of connections that were opened.
    fn is_drained(&self) -> bool;
}

fn address(side: Side) -> SocketAddr {
    match side {
        Side::Client => client_address(),
        Side::Server => server_address(),
    }
}

/// Ours.
pub(crate) struct OurEnd {
    end: TestEnd,
    polled: usize,
    close_code: Option<u64>,
}

impl OurEnd {
    pub(crate) fn new(side: Side, now: Instant, script: &Script) -> Self {
        let limits = script.limits(side);
        let transport = Arc::new(TransportConfig {
            receive_window: limits.receive_window.into(),
            stream_receive_window: limits.stream_window.into(),
            send_window: limits.send_window.into(),
            max_idle_timeout: Some(IDLE_TIMEOUT),
            max_bidirectional_streams: limits.bidirectional.into(),
            max_unidirectional_streams: limits.unidirectional.into(),
            ..TransportConfig::default()
        });
        #[expect(clippy::arc_with_non_send_sync, reason = "a test is one thread")]
        let server = (side == Side::Server).then(|| ServerConfig {
            tls: Arc::new(TestTls {
                config: Arc::new(server_config(script.has_large_certificate)),
                edit_own: None,
                edit_peer: None,
            }),
            tokens: Arc::new(TokenKey::new(&[7; 32])),
            transport: Arc::clone(&transport),
        });
        let mut end = TestEnd::new(side, address(side), server, script.seed, true);
        end.reads = false;
        if script.is_retry {
            end.on_incoming = OnIncoming::Retry;
        }
        if side == Side::Client {
            let tls = client_config(Arc::new(Secrets::default()), script.has_large_hello);
            let config = ClientConfig {
                tls: Arc::new(tls),
                tokens: Arc::new(TokenStore::default()),
                transport,
                version: QuicVersion::V1,
            };
            let opened = end
                .endpoint
                .connect(now, &config, server_address(), "localhost");
            let (handle, connection) = opened.unwrap();
            end.add(handle, connection);
        }
        Self {
            end,
            polled: 0,
            close_code: None,
        }
    }
}

fn our_id(stream: u64) -> StreamId {
    let initiator = if stream & 1 == 0 {
        Side::Client
    } else {
        Side::Server
    };
    let direction = if stream & 2 == 0 { Dir::Bi } else { Dir::Uni };
    StreamId::new(initiator, direction, stream >> 2)
}

impl End for OurEnd {
    fn receive(&mut self, now: Instant, datagram: Datagram, responses: &mut Vec<Datagram>) {
        self.end.receive(now, datagram, responses);
        self.end.settle();
    }

    fn handle_timers(&mut self, now: Instant) {
        self.end.handle_timers(now);
        self.end.settle();
    }

    fn next_timer(&mut self) -> Option<Instant> {
        self.end.next_timer()
    }

    fn transmit(&mut self, now: Instant, datagrams: &mut Vec<Datagram>) {
        self.end.transmit(now, datagrams);
        self.end.settle();
    }

    fn poll(&mut self) -> Option<Event> {
        self.end.settle();
        loop {
            let event = self.end.events.get(self.polled)?.clone();
            self.polled += 1;
            return Some(match event {
                ConnectionEvent::Connected => Event::Connected,
                ConnectionEvent::ConnectionLost { reason } => Event::Ended(match reason {
                    ConnectionEnd::Application { code, .. } => Ending::Application(code),
                    ConnectionEnd::Peer { code, .. } => Ending::Peer(code),
                    ConnectionEnd::Reset => Ending::Reset,
                    ConnectionEnd::TimedOut => Ending::TimedOut,
                    other => Ending::Own(other.to_string()),
                }),
                ConnectionEvent::Stream(event) => match event {
                    StreamEvent::Opened(stream) => Event::Opened(stream.into()),
                    StreamEvent::Readable(stream) => Event::Readable(stream.into()),
                    StreamEvent::Writable(stream) => Event::Writable(stream.into()),
                    StreamEvent::Stopped { stream, code } => Event::Stopped {
                        stream: stream.into(),
                        code,
                    },
                    StreamEvent::Finished(_) | StreamEvent::Available(_) => continue,
                },
            });
        }
    }

    fn open(&mut self, direction: Dir) -> Option<u64> {
        self.end.connection().open(direction).map(Into::into)
    }

    fn write(&mut self, stream: u64, data: &mut Bytes) -> WriteResult {
        let mut chunks = [data.clone()];
        let result = self.end.connection().write(our_id(stream), &mut chunks);
        let [rest] = chunks;
        *data = rest;
        match result {
            Ok(_) => WriteResult::Taken,
            Err(StreamWriteError::Stopped { .. }) => WriteResult::Stopped,
            Err(StreamWriteError::Closed) => WriteResult::Closed,
        }
    }

    fn finish(&mut self, stream: u64) {
        let _ = self.end.connection().finish(our_id(stream));
    }

    fn reset(&mut self, stream: u64, code: u64) -> bool {
        self.end.connection().reset(our_id(stream), code).is_ok()
    }

    fn read(&mut self, stream: u64, data: &mut Vec<u8>) -> ReadResult {
        let sink = |chunk: Bytes| data.extend_from_slice(&chunk);
        match self.end.connection().read(our_id(stream), usize::MAX, sink) {
            Ok(ReadState::Finished) => ReadResult::Finished,
            Ok(ReadState::Blocked | ReadState::Limited) => ReadResult::Blocked,
            Err(StreamReadError::Reset { code }) => ReadResult::Reset(code),
            Err(StreamReadError::Closed) => ReadResult::Closed,
        }
    }

    fn stop(&mut self, stream: u64, code: u64) -> bool {
        let connection = self.end.connection();
        connection.stop_sending(our_id(stream), code).is_ok()
    }

    fn update_keys(&mut self) {
        self.end.connection().update_keys();
    }

    fn ping(&mut self) {
        self.end.connection().ping();
    }

    fn close(&mut self, now: Instant, code: u64) {
        self.end.connection().close(now, code, Bytes::new());
        self.close_code = Some(code);
    }

    fn close_code(&self) -> Option<u64> {
        self.close_code
    }

    fn is_close_unsent(&self) -> bool {
        false
    }

    fn has_connection(&self) -> bool {
        self.end.has_connection()
    }

    fn is_paused(&self) -> bool {
        false
    }

    fn is_drained(&self) -> bool {
        self.end.opened == self.end.drained
    }
}

/// quinn-proto's.
pub(crate) struct QuinnEnd {
    side: Side,
    endpoint: quinn_proto::Endpoint,
    connection: Option<(quinn_proto::ConnectionHandle, quinn_proto::Connection)>,
    is_retry: bool,
    events: VecDeque<Event>,
    has_ended: bool,
    close_code: Option<u64>,
    /// The address to which this end has sent last, and a newer one from which a datagram has come.
    destination: Option<SocketAddr>,
    new_address: Option<SocketAddr>,
}

fn integer(value: u64) -> quinn_proto::VarInt {
    quinn_proto::VarInt::from_u64(value).unwrap()
}

fn quinn_direction(direction: Dir) -> quinn_proto::Dir {
    match direction {
        Dir::Bi => quinn_proto::Dir::Bi,
        Dir::Uni => quinn_proto::Dir::Uni,
    }
}

fn quinn_id(stream: u64) -> quinn_proto::StreamId {
    quinn_proto::StreamId::from(integer(stream))
}

fn ended(reason: quinn_proto::ConnectionError) -> Option<Ending> {
    use quinn_proto::ConnectionError as Error;
    Some(match reason {
        Error::ApplicationClosed(close) => Ending::Application(close.error_code.into()),
        Error::ConnectionClosed(close) => Ending::Peer(close.error_code.into()),
        Error::Reset => Ending::Reset,
        Error::TimedOut => Ending::TimedOut,
        Error::LocallyClosed => return None,
        other => Ending::Own(format!("{other:?}")),
    })
}

impl QuinnEnd {
    pub(crate) fn new(side: Side, now: Instant, script: &Script) -> Self {
        let limits = script.limits(side);
        let mut transport = quinn_proto::TransportConfig::default();
        transport
            .receive_window(limits.receive_window.into())
            .stream_receive_window(limits.stream_window.into())
            .send_window(limits.send_window.into())
            .max_concurrent_bidi_streams(limits.bidirectional.into())
            .max_concurrent_uni_streams(limits.unidirectional.into())
            .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().unwrap()));
        let transport = Arc::new(transport);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[side as u8; 32]);
        let mut config = quinn_proto::EndpointConfig::new(Arc::new(key));
        config.rng_seed(Some([script.seed as u8; 32]));
        let server = (side == Side::Server).then(|| {
            let tls = server_config(script.has_large_certificate);
            let crypto = QuicServerConfig::try_from(tls).unwrap();
            let mut config = quinn_proto::ServerConfig::with_crypto(Arc::new(crypto));
            config.transport_config(Arc::clone(&transport));
            Arc::new(config)
        });
        let mut endpoint = quinn_proto::Endpoint::new(Arc::new(config), server, true, None);
        let connection = (side == Side::Client).then(|| {
            let tls = client_config(Arc::new(Secrets::default()), script.has_large_hello);
            let crypto = QuicClientConfig::try_from(tls).unwrap();
            let mut config = quinn_proto::ClientConfig::new(Arc::new(crypto));
            config.transport_config(transport);
            endpoint
                .connect(now, config, server_address(), "localhost")
                .unwrap()
        });
        Self {
            side,
            endpoint,
            connection,
            is_retry: script.is_retry,
            events: VecDeque::new(),
            has_ended: false,
            close_code: None,
            destination: None,
            new_address: None,
        }
    }

    fn connection(&mut self) -> &mut quinn_proto::Connection {
        &mut self.connection.as_mut().unwrap().1
    }

    fn datagram(&self, transmit: &quinn_proto::Transmit, bytes: &[u8]) -> Datagram {
        let ecn = transmit.ecn.map(|mark| mark as u8);
        Datagram {
            sender: self.side,
            from: address(self.side),
            to: transmit.destination,
            ecn: ecn.and_then(EcnCodepoint::from_bits),
            bytes: bytes.to_vec(),
        }
    }

    fn settle(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        loop {
            let mut is_idle = true;
            while let Some(event) = connection.poll_endpoint_events() {
                is_idle = false;
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            while let Some(event) = connection.poll() {
                is_idle = false;
                use quinn_proto::StreamEvent as OfStream;
                match event {
                    quinn_proto::Event::Connected => self.events.push_back(Event::Connected),
                    quinn_proto::Event::ConnectionLost { reason } => {
                        // quinn-proto 0.11 reports a second end when a stateless reset comes, or the idle timeout expires,
                        // after CONNECTION_CLOSE. Both are without effect in the draining state (RFC 9000 section 10.2.2).
                        let is_first = !std::mem::replace(&mut self.has_ended, true);
                        let ending = ended(reason).filter(|_| is_first);
                        self.events.extend(ending.map(Event::Ended));
                    }
                    quinn_proto::Event::Stream(OfStream::Opened { dir }) => {
                        while let Some(stream) = connection.streams().accept(dir) {
                            let stream = quinn_proto::VarInt::from(stream).into_inner();
                            self.events.push_back(Event::Opened(stream));
                        }
                    }
                    quinn_proto::Event::Stream(OfStream::Readable { id }) => {
                        let stream = quinn_proto::VarInt::from(id).into_inner();
                        self.events.push_back(Event::Readable(stream));
                    }
                    quinn_proto::Event::Stream(OfStream::Writable { id }) => {
                        let stream = quinn_proto::VarInt::from(id).into_inner();
                        self.events.push_back(Event::Writable(stream));
                    }
                    quinn_proto::Event::Stream(OfStream::Stopped { id, error_code }) => {
                        self.events.push_back(Event::Stopped {
                            stream: quinn_proto::VarInt::from(id).into_inner(),
                            code: error_code.into_inner(),
                        });
                    }
                    _ => {}
                }
            }
            if is_idle {
                return;
            }
        }
    }
}

impl End for QuinnEnd {
    fn receive(&mut self, now: Instant, datagram: Datagram, responses: &mut Vec<Datagram>) {
        use quinn_proto::DatagramEvent;
        let ecn = datagram
            .ecn
            .and_then(|mark| quinn_proto::EcnCodepoint::from_bits(mark as u8));
        if self
            .destination
            .is_some_and(|last| last.port() < datagram.from.port())
        {
            self.new_address = Some(datagram.from);
        }
        let bytes = BytesMut::from(&datagram.bytes[..]);
        let mut response = Vec::new();
        let handled = self
            .endpoint
            .handle(now, datagram.from, None, ecn, bytes, &mut response);
        let transmit = match handled {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((known, connection)) = &mut self.connection
                    && *known == handle
                {
                    connection.handle_event(event);
                }
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.connection.is_some() {
                    self.endpoint.ignore(incoming);
                    None
                } else if self.is_retry && !incoming.remote_address_validated() {
                    self.endpoint.retry(incoming, &mut response).ok()
                } else {
                    match self.endpoint.accept(incoming, now, &mut response, None) {
                        Ok(accepted) => {
                            self.connection = Some(accepted);
                            None
                        }
                        Err(error) => error.response,
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => Some(transmit),
            None => None,
        };
        if let Some(transmit) = transmit {
            responses.push(self.datagram(&transmit, &response[..transmit.size]));
        }
        self.settle();
    }

    fn handle_timers(&mut self, now: Instant) {
        if self.next_timer().is_some_and(|at| at <= now) {
            self.connection().handle_timeout(now);
        }
        self.settle();
    }

    fn next_timer(&mut self) -> Option<Instant> {
        if self.is_paused() {
            return None;
        }
        self.connection.as_mut()?.1.poll_timeout()
    }

    fn transmit(&mut self, now: Instant, datagrams: &mut Vec<Datagram>) {
        let mut buffer = Vec::new();
        while let Some((_, connection)) = &mut self.connection {
            buffer.clear();
            let Some(transmit) = connection.poll_transmit(now, 10, &mut buffer) else {
                break;
            };
            self.new_address
                .take_if(|address| *address == transmit.destination);
            self.destination = Some(transmit.destination);
            let size = transmit.segment_size.unwrap_or(transmit.size);
            for bytes in buffer[..transmit.size].chunks(size) {
                datagrams.push(self.datagram(&transmit, bytes));
            }
        }
        self.settle();
    }

    fn poll(&mut self) -> Option<Event> {
        self.settle();
        self.events.pop_front()
    }

    fn open(&mut self, direction: Dir) -> Option<u64> {
        let stream = self.connection().streams().open(quinn_direction(direction));
        stream.map(|stream| quinn_proto::VarInt::from(stream).into_inner())
    }

    fn write(&mut self, stream: u64, data: &mut Bytes) -> WriteResult {
        use quinn_proto::WriteError;
        let mut stream = self.connection().send_stream(quinn_id(stream));
        while !data.is_empty() {
            match stream.write(data) {
                Ok(written) => drop(data.split_to(written)),
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_)) => return WriteResult::Stopped,
                Err(WriteError::ClosedStream) => return WriteResult::Closed,
            }
        }
        WriteResult::Taken
    }

    fn finish(&mut self, stream: u64) {
        let _ = self.connection().send_stream(quinn_id(stream)).finish();
    }

    fn reset(&mut self, stream: u64, code: u64) -> bool {
        let mut stream = self.connection().send_stream(quinn_id(stream));
        stream.reset(integer(code)).is_ok()
    }

    fn read(&mut self, stream: u64, data: &mut Vec<u8>) -> ReadResult {
        use quinn_proto::ReadError;
        let mut stream = self.connection().recv_stream(quinn_id(stream));
        let Ok(mut chunks) = stream.read(true) else {
            return ReadResult::Closed;
        };
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => data.extend_from_slice(&chunk.bytes),
                Ok(None) => break ReadResult::Finished,
                Err(ReadError::Blocked) => break ReadResult::Blocked,
                Err(ReadError::Reset(code)) => break ReadResult::Reset(code.into_inner()),
            }
        };
        let _ = chunks.finalize();
        result
    }

    fn stop(&mut self, stream: u64, code: u64) -> bool {
        let mut stream = self.connection().recv_stream(quinn_id(stream));
        stream.stop(integer(code)).is_ok()
    }

    fn update_keys(&mut self) {
        self.connection().force_key_update();
    }

    fn ping(&mut self) {
        self.connection().ping();
    }

    fn close(&mut self, now: Instant, code: u64) {
        self.connection().close(now, integer(code), Bytes::new());
        self.close_code = Some(code);
    }

    fn close_code(&self) -> Option<u64> {
        self.close_code
    }

    // quinn-proto 0.11 waits with CONNECTION_CLOSE until its congestion window has room if there is data to send, although
    // congestion control is for packets in flight, which those with CONNECTION_CLOSE are not (RFC 9002 sections 2 and 7). It
    // may forget the connection before.
    fn is_close_unsent(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|(_, connection)| connection.stats().frame_tx.connection_close == 0)
    }

    fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    // quinn-proto 0.11 panics (in a build with debug assertions) when a probe timeout that began before a migration expires
    // before the limit of three times (RFC 9000 section 8.2) lets it send anything to the new address.
    fn is_paused(&self) -> bool {
        let connection = self.connection.as_ref();
        self.new_address.is_some()
            && connection.is_some_and(|(_, connection)| !connection.is_closed())
    }

    fn is_drained(&self) -> bool {
        self.connection
            .as_ref()
            .is_none_or(|(_, connection)| connection.is_drained())
    }
}
