//! The connection IDs that this end has issued (RFC 9000 section 5.1).

use crate::connection_id::{ConnectionId, ResetToken};
use crate::error::TransportError;
use crate::frame::NewConnectionId;

/// Connection IDs of this end that are active: enough for a client that migrates twice in a round trip. Each costs a frame,
/// two signatures and memory of the endpoint.
pub(crate) const MAX_LOCAL_IDS: u64 = 3;

/// The connection IDs by which packets reach this end.
#[derive(Debug)]
pub(crate) struct LocalIds {
    ids: Vec<(u64, ConnectionId, ResetToken)>,
    next_sequence: u64,
    /// The sequence numbers of NEW_CONNECTION_ID frames to send.
    pending: Vec<u64>,
}

impl LocalIds {
    /// The one of the handshake.
    pub(crate) fn new(id: ConnectionId, token: ResetToken) -> Self {
        Self {
            ids: vec![(0, id, token)],
            next_sequence: 1,
            pending: Vec::new(),
        }
    }

    /// Adds one that the endpoint has issued.
    pub(crate) fn add(&mut self, id: ConnectionId, token: ResetToken) {
        self.ids.push((self.next_sequence, id, token));
        self.pending.push(self.next_sequence);
        self.next_sequence += 1;
    }

    /// RETIRE_CONNECTION_ID (section 19.16) in a packet with this destination. Returns the one that is retired; `None` if
    /// it was before.
    pub(crate) fn on_retired(
        &mut self,
        sequence: u64,
        destination: &ConnectionId,
    ) -> Result<Option<ConnectionId>, TransportError> {
        if sequence >= self.next_sequence {
            return Err(TransportError::protocol_violation(
                "a connection ID is retired that was not issued",
            ));
        }
        let Some(index) = self.ids.iter().position(|(known, ..)| *known == sequence) else {
            return Ok(None);
        };
        if self
            .ids
            .get(index)
            .is_some_and(|(_, id, _)| id == destination)
        {
            return Err(TransportError::protocol_violation(
                "a packet retires the connection ID that it has",
            ));
        }
        self.pending.retain(|pending| *pending != sequence);
        let (_, id, _) = self.ids.swap_remove(index);
        Ok(Some(id))
    }

    /// NEW_CONNECTION_ID is lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self.ids.iter().any(|(known, ..)| *known == sequence) {
            self.pending.push(sequence);
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next NEW_CONNECTION_ID frame.
    pub(crate) fn pop_pending(&mut self) -> Option<NewConnectionId> {
        let sequence = self.pending.pop()?;
        let (_, id, reset_token) = self.ids.iter().find(|(known, ..)| *known == sequence)?;
        Some(NewConnectionId {
            sequence,
            retire_prior_to: 0,
            id: *id,
            reset_token: *reset_token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_offered_until_they_are_retired() {
        let id = |byte| ConnectionId::new(&[byte; 8]);
        let token = ResetToken([0; 16]);
        let mut ids = LocalIds::new(id(0), token);
        ids.add(id(1), token);
        assert_eq!(
            ids.pop_pending().map(|new| (new.sequence, new.id)),
            Some((1, id(1)))
        );
        ids.on_lost(1);
        assert_eq!(ids.pop_pending().map(|new| new.sequence), Some(1));
        assert!(ids.on_retired(2, &id(0)).is_err());
        assert!(ids.on_retired(1, &id(1)).is_err());
        assert_eq!(ids.on_retired(1, &id(0)), Ok(Some(id(1))));
        assert_eq!(ids.on_retired(1, &id(0)), Ok(None));
        ids.on_lost(1);
        assert!(!ids.has_pending());
    }
}
