//! The handshake: TLS in CRYPTO frames (RFC 9001 section 4), transport parameters, Retry and version negotiation.

use std::time::{Duration, Instant};

use rustls::quic::KeyChange;

use crate::error::{ConnectionEnd, TransportError, TransportErrorCode};
use crate::local_ids::MAX_LOCAL_IDS;
use crate::observer::ObservedEnd;
use crate::packet::{Packet, PacketKind, Space, TAG};
use crate::stream_id::Side;
use crate::tls::{self, MISSING_EXTENSION};
use crate::transport_parameters::TransportParameters;
use crate::version::QuicVersion;

use super::keys::OneRttKeys;
use super::space::{HandshakeSpace, NumberSpace};
use super::timers::ConnectionTimer;
use super::{
    Connection, ConnectionEvent, ConnectionStage, EndpointRequest, OriginalVersion, SideState,
};

/// Bytes of CRYPTO frames of an encryption level that are held (RFC 9000 section 7.5 requires 4,096).
// A ClientHello with post-quantum key shares and a large ticket has 2 to 4 KB, and one with client certificates is
// followed by a chain of several KB. Three levels of 16 KiB are what a client without an address can make the server
// hold.
const CRYPTO_BUFFER: u64 = 16 * 1024;

impl Connection {
    /// The first bytes of a client, and early data if it resumes a session.
    pub(super) fn begin_handshake(&mut self) {
        self.write_crypto();
        let Some(keys) = self.tls.early_keys() else {
            return;
        };
        let remembered = self
            .tls
            .transport_parameters()
            // A ticket of another build whose parameters cannot be read means a handshake without early data, not an
            // error.
            .and_then(|bytes| TransportParameters::read(Side::Server, bytes).ok());
        let Some(remembered) = remembered else {
            return;
        };
        // Other parameters must not be remembered (RFC 9000 section 7.4.1).
        self.peer = TransportParameters {
            max_data: remembered.max_data,
            max_stream_data_bidi_local: remembered.max_stream_data_bidi_local,
            max_stream_data_bidi_remote: remembered.max_stream_data_bidi_remote,
            max_stream_data_uni: remembered.max_stream_data_uni,
            max_streams_bidi: remembered.max_streams_bidi,
            max_streams_uni: remembered.max_streams_uni,
            active_connection_id_limit: remembered.active_connection_id_limit,
            ..TransportParameters::default()
        };
        self.streams.set_peer_parameters(&self.peer);
        if let SideState::Client { early_keys, .. } = &mut self.side_state {
            // Set last: that there are keys is what allows `transmit` to send 0-RTT packets, which need the limits
            // above.
            *early_keys = Some(Box::new(keys));
        }
    }

    /// CRYPTO (RFC 9000 section 19.6).
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        space: Space,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        // New data of a level after the keys of the next one are there is a violation; repeated data is not, as
        // packets are repeated and come late (RFC 9001 section 4.1.3).
        let level = match (&self.spaces.handshake, self.state) {
            (_, ConnectionStage::Established) => Space::Data,
            (Some(_), _) => Space::Handshake,
            (None, _) => Space::Initial,
        };
        let Some(packets) = self.spaces.get_mut(space) else {
            return Ok(());
        };
        let read = packets.crypto_received.bytes_read();
        let end = offset.saturating_add(data.len() as u64);
        if space < level && end > read {
            return Err(TransportError::protocol_violation(
                "handshake data of an encryption level that is over",
            ));
        }
        // Before the data is inserted. The limit is relative to what TLS has read, so a long chain of certificates
        // that comes in order passes in any length.
        if end > read + CRYPTO_BUFFER {
            return Err(crypto_buffer_exceeded());
        }
        packets
            .crypto_received
            .insert(offset, data)
            .map_err(|_| TransportError::internal("handshake data has too many gaps"))?;
        let mut any = false;
        // The space is looked up again for each piece: reading may change the keys of the connection.
        while let Some(packets) = self.spaces.get_mut(space)
            && let Some(bytes) = packets.crypto_received.read(usize::MAX)
        {
            self.tls.read(&bytes)?;
            any = true;
        }
        if any {
            self.continue_handshake(now)
        } else {
            Ok(())
        }
    }

    fn continue_handshake(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.state != ConnectionStage::Handshake {
            self.write_crypto();
            return Ok(());
        }
        if self.side.is_server() && self.peer.initial_source.is_none() {
            self.read_client_parameters()?;
        }
        self.write_crypto();
        if self.spaces.handshake.is_some()
            && self.peer.initial_source.is_none()
            && self.side.is_server()
        {
            return Err(TransportError::new(
                TransportErrorCode::crypto(MISSING_EXTENSION),
                "transport parameters are missing",
            ));
        }
        if self.spaces.handshake.is_some() {
            self.check_is_consumed(Space::Initial)?;
        }
        if !self.tls.is_handshaking() {
            self.check_is_consumed(Space::Handshake)?;
            match self.side {
                Side::Client => self.complete_client()?,
                Side::Server => self.complete_server(now),
            }
            self.events.push_back(ConnectionEvent::Connected);
            self.restart_idle_timer(now);
        }
        Ok(())
    }

    /// No data of an encryption level may be left when TLS has the keys of the next one (RFC 9001 section 4.1.3).
    // TLS finds what follows its last message of the level. This finds what waits behind a gap: bytes that were sent with
    // keys that anybody may have would otherwise stay in the connection.
    fn check_is_consumed(&mut self, space: Space) -> Result<(), TransportError> {
        let packets = self.spaces.get_mut(space);
        if packets.is_none_or(|packets| packets.crypto_received.is_empty()) {
            Ok(())
        } else {
            Err(TransportError::protocol_violation(
                "handshake data is left of an encryption level that is over",
            ))
        }
    }

    /// Moves what TLS writes into CRYPTO frames.
    fn write_crypto(&mut self) {
        loop {
            let mut bytes = Vec::new();
            let change = self.tls.write(&mut bytes);
            let is_empty = bytes.is_empty();
            let packets = match (&self.keys, &mut self.spaces) {
                (Some(_), spaces) => &mut spaces.data,
                (None, spaces) => match (&mut spaces.handshake, &mut spaces.initial) {
                    (Some(level), _) | (None, Some(level)) => &mut level.space,
                    (None, None) => &mut spaces.data,
                },
            };
            packets.crypto_sent.write(bytes.into());
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    let space = NumberSpace::new();
                    self.spaces.handshake = Some(Box::new(HandshakeSpace { keys, space }));
                    if let SideState::Server { early_keys, .. } = &mut self.side_state {
                        *early_keys = self.tls.early_keys().map(Box::new);
                    }
                    self.observe_keys(PacketKind::Handshake);
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.keys = Some(Box::new(OneRttKeys::new(keys, next)));
                    self.observe_keys(PacketKind::OneRtt);
                }
                None if is_empty => return,
                None => {}
            }
        }
    }

    /// The parameters of the client, which come with its ClientHello.
    fn read_client_parameters(&mut self) -> Result<(), TransportError> {
        let Some(bytes) = self.tls.transport_parameters() else {
            return Ok(());
        };
        let mut parameters = TransportParameters::read(Side::Client, bytes)?;
        self.check_ids(&parameters)?;
        self.check_version(&mut parameters)?;
        self.set_peer_parameters(parameters);
        if let Some(version) = self.tls.selected_version() {
            self.change_version(version);
        }
        Ok(())
    }

    /// The version that the peer claims to use must be that of its packets (RFC 9368 section 4).
    fn check_version(&self, parameters: &mut TransportParameters) -> Result<(), TransportError> {
        match parameters.version_information.take() {
            Some(information) if information.chosen != self.version.number() => {
                Err(TransportError::new(
                    TransportErrorCode::VERSION_NEGOTIATION_ERROR,
                    "the chosen version is not that of the packets",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Changes to the version that the server has selected. Initial packets of the client still come in the original one.
    fn change_version(&mut self, version: QuicVersion) {
        if version == self.version {
            return;
        }
        let original = std::mem::replace(&mut self.version, version);
        let side = self.side;
        let keys = tls::initial_keys(self.suite, version, &self.initial_destination, side);
        if let Some(level) = &mut self.spaces.initial
            && let SideState::Server {
                original: before, ..
            } = &mut self.side_state
        {
            *before = Some(Box::new(OriginalVersion {
                version: original,
                remote: std::mem::replace(&mut level.keys, keys).remote,
            }));
        }
    }

    /// The connection IDs in the parameters must be those of the handshake (RFC 9000 section 7.3).
    fn check_ids(&self, parameters: &TransportParameters) -> Result<(), TransportError> {
        let is_server = match &self.side_state {
            SideState::Server { .. } => true,
            SideState::Client { retry_source, .. } => {
                parameters.original_destination == Some(self.initial_destination)
                    && parameters.retry_source == *retry_source
            }
        };
        let is_authentic =
            parameters.initial_source.is_some() && parameters.initial_source == self.peer_id;
        if is_server && is_authentic {
            Ok(())
        } else {
            Err(TransportError::transport_parameter(
                "a connection ID that is not that of the handshake",
            ))
        }
    }

    fn set_peer_parameters(&mut self, parameters: TransportParameters) {
        self.streams.set_peer_parameters(&parameters);
        self.idle_timeout = match (self.config.max_idle_timeout, parameters.max_idle_timeout) {
            (own, 0) => own,
            (None, peer) => Some(Duration::from_millis(peer)),
            (Some(own), peer) => Some(own.min(Duration::from_millis(peer))),
        };
        let ids = parameters.active_connection_id_limit.min(MAX_LOCAL_IDS);
        if ids > 1 {
            self.endpoint_events
                .push_back(EndpointRequest::Issue(ids - 1));
        }
        if let Some(token) = parameters.reset_token {
            self.remote_ids.set_initial_token(token);
        }
        self.peer = parameters;
        self.observe_peer_parameters();
        self.path.mtu.on_peer_limit(self.peer_payload_limit());
        self.register_reset_token();
    }

    fn complete_server(&mut self, now: Instant) {
        self.state = ConnectionStage::Established;
        self.is_handshake_done_pending = true;
        self.is_new_token_pending = true;
        self.confirm(now);
    }

    fn complete_client(&mut self) -> Result<(), TransportError> {
        let bytes = self.tls.transport_parameters().ok_or_else(|| {
            TransportError::new(
                TransportErrorCode::crypto(MISSING_EXTENSION),
                "transport parameters are missing",
            )
        })?;
        let mut parameters = TransportParameters::read(Side::Server, bytes)?;
        self.check_ids(&parameters)?;
        self.check_version(&mut parameters)?;
        let is_accepted = self.tls.is_early_data_accepted();
        if let SideState::Client {
            early_keys,
            is_early_data_accepted,
            ..
        } = &mut self.side_state
            && early_keys.take().is_some()
        {
            *is_early_data_accepted = is_accepted;
            if !is_accepted {
                self.streams.reject_early_data();
                self.spaces.data.sent.drain(&mut |_, _| {});
            } else if is_less(&parameters, &self.peer) {
                return Err(TransportError::protocol_violation(
                    "limits below those of the resumed session",
                ));
            }
        }
        if let Some((id, reset_token)) = parameters.preferred {
            self.remote_ids.on_new(&crate::frame::NewConnectionId {
                sequence: 1,
                retire_prior_to: 0,
                id,
                reset_token,
            })?;
        }
        self.set_peer_parameters(parameters);
        self.state = ConnectionStage::Established;
        Ok(())
    }

    /// HANDSHAKE_DONE (RFC 9000 section 19.20).
    pub(super) fn on_handshake_done(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.side.is_server() {
            return Err(TransportError::protocol_violation(
                "HANDSHAKE_DONE of a client",
            ));
        }
        if self.state == ConnectionStage::Established {
            self.is_peer_validated = true;
            self.confirm(now);
        }
        Ok(())
    }

    /// The handshake is confirmed (RFC 9001 section 4.9.2).
    fn confirm(&mut self, now: Instant) {
        self.is_confirmed = true;
        self.discard_space(now, Space::Initial);
        self.discard_space(now, Space::Handshake);
    }

    /// Discards the keys of an encryption level (RFC 9001 section 4.9).
    pub(super) fn discard_space(&mut self, now: Instant, space: Space) {
        let discarded = match space {
            Space::Initial => {
                if let SideState::Server { original, .. } = &mut self.side_state {
                    *original = None;
                }
                self.spaces.initial.take()
            }
            Space::Handshake => self.spaces.handshake.take(),
            Space::Data => None,
        };
        if discarded.is_some() {
            self.probe_timeout.reset();
            self.probe_base = now;
            self.is_loss_timer_old = true;
        }
    }

    /// Retry (RFC 9000 section 17.2.5).
    pub(super) fn on_retry(&mut self, now: Instant, packet: &Packet<'_>) {
        let source = packet.source;
        let SideState::Client {
            token,
            retry_source,
            ..
        } = &mut self.side_state
        else {
            return;
        };
        let new_token = packet.bytes.get(packet.token.clone()).unwrap_or_default();
        let is_expected = self.state == ConnectionStage::Handshake
            && !self.has_received
            && retry_source.is_none()
            && !new_token.is_empty()
            && source != self.initial_destination;
        let Some((retry, tag)) = packet.bytes.split_last_chunk::<TAG>() else {
            return;
        };
        let expected = tls::retry_tag(self.version, &self.initial_destination, retry);
        if !is_expected || expected != Some(*tag) {
            return;
        }
        *token = new_token.to_vec();
        *retry_source = Some(source);
        self.has_received = true;
        self.remote_ids.set_initial(source);
        if let Some(level) = &mut self.spaces.initial {
            level.keys = tls::initial_keys(self.suite, self.version, &source, Side::Client);
            level.space.sent.drain(&mut |_, _| {});
            level.space.next_loss_time = None;
            level.space.crypto_sent.send_all_again();
        }
        let mut lost = Vec::new();
        self.spaces
            .data
            .sent
            .drain(&mut |_, packet| lost.push(packet.frames));
        for frames in lost {
            self.on_frames_lost(Space::Data, frames);
        }
        self.probe_timeout.reset();
        self.probe_base = now;
        self.is_loss_timer_old = true;
        self.timers.set(ConnectionTimer::Loss, None);
    }

    /// Version Negotiation (RFC 9000 section 6.2).
    pub(super) fn on_version_negotiation(&mut self, packet: &Packet<'_>) {
        let is_expected =
            self.side.is_client() && self.state == ConnectionStage::Handshake && !self.has_received;
        let versions = packet.bytes.get(packet.number_at..).unwrap_or_default();
        let own = self.version.number().to_be_bytes();
        let is_supported = versions.chunks(4).any(|version| version == own);
        if is_expected && !is_supported && packet.source == *self.remote_ids.active() {
            self.observe_end(|| ObservedEnd::Ended(ConnectionEnd::VersionMismatch));
            self.end = Some(ConnectionEnd::VersionMismatch);
            self.drain();
        }
    }
}

fn crypto_buffer_exceeded() -> TransportError {
    TransportError::new(
        TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
        "more handshake data than there is room for",
    )
}

/// Whether limits are lower than those that the client has used for its early data (RFC 9000 section 7.4.1).
fn is_less(parameters: &TransportParameters, remembered: &TransportParameters) -> bool {
    let limits = |parameters: &TransportParameters| {
        [
            parameters.max_data,
            parameters.max_stream_data_bidi_local,
            parameters.max_stream_data_bidi_remote,
            parameters.max_stream_data_uni,
            parameters.max_streams_bidi,
            parameters.max_streams_uni,
            parameters.active_connection_id_limit,
        ]
    };
    limits(parameters)
        .into_iter()
        .zip(limits(remembered))
        .any(|(new, old)| new < old)
}
