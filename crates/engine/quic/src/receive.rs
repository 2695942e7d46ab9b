//! What an endpoint does with a packet: it gives it to its connection or to another endpoint, begins a connection, or
//! responds outside of connections (RFC 9000 section 5.2).

use std::rc::Rc;
use std::time::Instant;

use apus_quic_protocol::{DatagramEvent, DatagramSource, IncomingConnection, Transmit};

use crate::connection_id::destination;
use crate::core::ConnectionCore;
use crate::endpoint_state::EndpointState;
use crate::half_open::{HalfOpenRoom, client_network};
use crate::udp::UdpIo;
use crate::workers::HandedPacket;

/// Handles packets that were received.
pub(crate) struct PacketHandler<'a> {
    state: &'a EndpointState,
    udp: &'a UdpIo,
    response: &'a mut Vec<u8>,
    now: Instant,
}

impl<'a> PacketHandler<'a> {
    pub(crate) fn of(
        state: &'a EndpointState,
        udp: &'a UdpIo,
        response: &'a mut Vec<u8>,
        now: Instant,
    ) -> Self {
        Self {
            state,
            udp,
            response,
            now,
        }
    }

    /// Gives a packet to the endpoint that its connection ID names, or handles it.
    pub(crate) fn route(&mut self, source: DatagramSource, packet: &mut [u8]) {
        let key = &self.state.workers.keys().connection_id;
        let named = destination(packet).and_then(|id| {
            let named = key.endpoint(id)?;
            (named != self.state.number && key.is_ours(id)).then_some(named)
        });
        let Some(named) = named else {
            return self.handle(source, packet);
        };
        let contents = packet.to_vec();
        match self
            .state
            .workers
            .hand_over(HandedPacket { source, contents }, named)
        {
            Ok(()) => self.state.count(|counters| counters.handed_over += 1),
            // The endpoint is gone: its connections are reset.
            Err(_) => self.handle(source, packet),
        }
    }

    pub(crate) fn handle(&mut self, source: DatagramSource, packet: &mut [u8]) {
        self.state.count(|counters| counters.received += 1);
        self.response.clear();
        let event =
            self.state
                .protocol
                .borrow_mut()
                .handle(self.now, source, packet, self.response);
        match event {
            None => {}
            Some(DatagramEvent::Connection(handle)) => {
                if let Some(connection) = self.state.connection(handle.0) {
                    connection.handle_packet(self.now, source, packet);
                    self.state.work.push(&connection);
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit),
            Some(DatagramEvent::NewConnection(incoming)) => {
                if self.state.is_stopping.get() {
                    self.pass_on(&incoming, packet)
                } else {
                    self.admit(incoming)
                }
            }
        }
    }

    /// Accepts a new connection, or makes the client prove its address, or refuses it.
    fn admit(&mut self, incoming: IncomingConnection) {
        let ignored = self.state.ignored_clients.borrow();
        if ignored
            .as_ref()
            .is_some_and(|is_ignored| is_ignored(incoming.source().remote.ip()))
        {
            return self.state.count(|counters| counters.ignored += 1);
        }
        drop(ignored);
        let configuration = self.state.configuration.borrow();
        let settings = &configuration.settings;
        let half_open = &self.state.half_open;
        let client = incoming.source().remote.ip();
        let is_required =
            || settings.requires_retry(half_open.count(), half_open.of_client(client));
        if !incoming.is_address_validated() && is_required() {
            return self.retry(&incoming);
        }
        if let HalfOpenRoom::InPlaceOf(network) = half_open.room(client, settings.max_half_open)
            && !self.state.replace_half_open(self.now, network)
        {
            let is_own = network == client_network(client) && half_open.of_client(client) > 0;
            return if is_own {
                // The client repeats its packet after a moment, when there may be room.
                self.state.count(|counters| counters.ignored += 1)
            } else {
                self.refuse(&incoming)
            };
        }
        let accepted = self.state.protocol.borrow_mut().accept(self.now, incoming);
        if let Some((handle, protocol)) = accepted {
            let deadline = self.now + settings.handshake_timeout;
            let connection = Rc::new(ConnectionCore::new(handle, protocol, self.now, deadline));
            let place = half_open.enter(handle, client);
            connection.half_open.set(Some(place));
            self.state.insert(&connection);
            self.state.work.push(&connection);
        }
    }

    fn retry(&mut self, incoming: &IncomingConnection) {
        let retry = self
            .state
            .protocol
            .borrow_mut()
            .retry(incoming, self.response);
        if let Some(transmit) = retry {
            self.state.count(|counters| counters.retries += 1);
            self.respond(&transmit);
        }
    }

    fn refuse(&mut self, incoming: &IncomingConnection) {
        self.state.count(|counters| counters.refused += 1);
        let transmit = self
            .state
            .protocol
            .borrow_mut()
            .refuse(incoming, self.response);
        self.respond(&transmit);
    }

    /// Gives a new connection to an endpoint of this address that does not stop.
    fn pass_on(&mut self, incoming: &IncomingConnection, packet: &[u8]) {
        let successor = self
            .state
            .workers
            .successor(self.state.number, &incoming.destination());
        let Some(successor) = successor else {
            return self.refuse(incoming);
        };
        let packet = HandedPacket {
            source: incoming.source(),
            contents: packet.to_vec(),
        };
        if self.state.workers.hand_over(packet, successor).is_ok() {
            self.state.count(|counters| counters.handed_over += 1);
        }
    }

    /// Sends a response outside of connections, if the socket takes it: the client would repeat its packet.
    fn respond(&self, transmit: &Transmit) {
        if let Err(error) = self.udp.try_send(transmit, self.response) {
            self.state.count(|counters| counters.unsent += 1);
            tracing::debug!(%error, "sending a QUIC response");
        }
    }
}
