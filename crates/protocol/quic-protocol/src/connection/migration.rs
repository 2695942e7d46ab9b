//! Migration and the validation of paths (RFC 9000 sections 8.2 and 9).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::datagram::DatagramSource;
use crate::error::TransportError;
use crate::random;

use super::path::NetworkPath;
use super::receive::ReceivedPacket;
use super::timers::ConnectionTimer;
use super::{Connection, EndpointRequest};

/// PATH_RESPONSE frames that wait to be sent, each to another address. The oldest are dropped: the peer sends its challenge
/// again.
const MAX_RESPONSES: usize = 4;

/// A PATH_RESPONSE frame to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathResponse {
    pub(super) remote: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) data: [u8; 8],
    /// The bytes of the datagram with the challenge.
    pub(super) received: usize,
}

impl Connection {
    pub(super) fn respond_to_challenge(&mut self, response: PathResponse) {
        // Many challenges in a packet get one response, as they multiply traffic otherwise.
        self.path_responses
            .retain(|waiting| waiting.remote != response.remote);
        if self.path_responses.len() == MAX_RESPONSES {
            self.path_responses.pop_front();
        }
        // The newest ones are kept: a challenge that is four addresses old is of a path that the client has left.
        self.path_responses.push_back(response);
    }

    /// The client has changed its address (section 9.3).
    pub(super) fn migrate(
        &mut self,
        now: Instant,
        packet: &ReceivedPacket<'_>,
    ) -> Result<(), TransportError> {
        // RFC 9000 section 9: no client migrates before the handshake is confirmed, and a server does not migrate
        // at all. The address of such a packet may be forged.
        if !self.is_confirmed || self.side.is_client() {
            return Ok(());
        }
        let DatagramSource {
            remote, local_ip, ..
        } = packet.source;
        let mut path = NetworkPath::new(now, remote, local_ip, &self.config, self.can_discover_mtu);
        if remote.ip() == self.path.remote.ip() {
            // Only the port has changed, most likely by a NAT: the way is the same (section 9.4).
            path.rtt = self.path.rtt.clone();
            path.congestion = self.path.congestion.clone_box();
            path.mtu = self.path.mtu.clone();
            path.pacer = self.path.pacer.clone();
        }
        // Another path may clear or drop marks (RFC 9000 section 13.4.2), but the counts of the peer go on: they are
        // of the connection.
        path.ecn = self.path.ecn.for_new_path();
        path.mtu.on_peer_limit(self.peer_payload_limit());
        // The new address begins with the credit of this datagram alone, so that a forged source gets at most three
        // times its size (RFC 9000 section 9.3.1).
        path.received = packet.datagram_size as u64;
        path.first_number = self.spaces.data.sent.next_number();
        path.challenge = Some(random::secret());
        path.is_challenge_pending = true;
        // Packets that are in flight to the address before may be lost, so that nothing opens the congestion window for the
        // challenge. A probe is not limited by it.
        self.spaces.data.probes = self.spaces.data.probes.max(1);
        let timeout = path
            .probe_timeout(self.max_ack_delay())
            // The longer of both paths: the new one has no sample of its round trip yet (RFC 9000 section 8.2.4).
            .max(self.path.probe_timeout(self.max_ack_delay()));
        let mut previous = std::mem::replace(&mut self.path, path);
        if previous.is_validated {
            // The packet may have been forged (section 9.3.3): is the client still at its address?
            previous.challenge = Some(random::secret());
            previous.is_challenge_pending = true;
            self.previous_path = Some(Box::new(previous));
        }
        self.remote_ids.next()?;
        self.register_reset_token();
        let at = now.checked_add(timeout.saturating_mul(3));
        self.timers.set(ConnectionTimer::PathValidation, at);
        Ok(())
    }

    /// PATH_RESPONSE (section 8.2.3).
    pub(super) fn on_path_response(&mut self, source: &DatagramSource, data: [u8; 8]) {
        if self.path.challenge == Some(data) && self.is_current_path(source) {
            self.path.is_validated = true;
            self.path.challenge = None;
            self.path.is_challenge_pending = false;
            self.previous_path = None;
            self.timers.set(ConnectionTimer::PathValidation, None);
        }
    }

    /// The new path was not validated in time (section 9.3.2).
    pub(super) fn on_path_validation_failed(&mut self) {
        if let Some(mut previous) = self.previous_path.take()
            && !self.path.is_validated
        {
            previous.challenge = None;
            previous.is_challenge_pending = false;
            previous.ecn = self.path.ecn.for_new_path();
            self.path = *previous;
            self.register_reset_token();
        }
        self.path.challenge = None;
        self.path.is_challenge_pending = false;
    }

    /// The endpoint has to know the stateless reset token of the peer's active connection ID.
    pub(super) fn register_reset_token(&mut self) {
        if let Some(token) = self.remote_ids.reset_token() {
            let request = EndpointRequest::ResetToken(self.path.remote, token);
            self.endpoint_events.push_back(request);
        }
    }

    /// The largest UDP payload that the peer wants.
    pub(super) fn peer_payload_limit(&self) -> u16 {
        u16::try_from(self.peer.max_udp_payload_size).unwrap_or(u16::MAX)
    }
}
