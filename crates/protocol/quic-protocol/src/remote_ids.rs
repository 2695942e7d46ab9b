//! The connection IDs of the peer (RFC 9000 section 5.1).

use crate::connection_id::{ConnectionId, ResetToken};
use crate::error::{TransportError, TransportErrorCode};
use crate::frame::NewConnectionId;

/// Connection IDs of the peer that are kept, `active_connection_id_limit`.
pub(crate) const MAX_REMOTE_IDS: usize = 5;
/// RETIRE_CONNECTION_ID frames that wait to be sent (section 5.1.2).
// A peer that offers IDs and retires them in the same frame makes this end owe a frame for each. RFC 9000 section
// 5.1.2 allows to end the connection beyond a limit of at least twice `active_connection_id_limit`.
const MAX_RETIRED: usize = 64;

/// The connection IDs by which packets reach the peer: the active one and spare ones.
#[derive(Debug)]
pub(crate) struct RemoteIds {
    active: RemoteId,
    spare: Vec<RemoteId>,
    retire_prior_to: u64,
    /// The sequence numbers of RETIRE_CONNECTION_ID frames to send.
    retired: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RemoteId {
    sequence: u64,
    id: ConnectionId,
    token: Option<ResetToken>,
}

impl RemoteIds {
    /// The one of the handshake.
    pub(crate) fn new(id: ConnectionId) -> Self {
        Self {
            active: RemoteId {
                sequence: 0,
                id,
                token: None,
            },
            spare: Vec::new(),
            retire_prior_to: 0,
            retired: Vec::new(),
        }
    }

    /// The one that packets have.
    #[inline]
    pub(crate) fn active(&self) -> &ConnectionId {
        &self.active.id
    }

    /// The stateless reset token of the active one.
    pub(crate) fn reset_token(&self) -> Option<ResetToken> {
        self.active.token
    }

    /// Replaces the one of the handshake.
    pub(crate) fn set_initial(&mut self, id: ConnectionId) {
        self.active.id = id;
    }

    /// Sets the token of the one of the handshake, from the transport parameters.
    pub(crate) fn set_initial_token(&mut self, token: ResetToken) {
        if self.active.sequence == 0 {
            self.active.token = Some(token);
        }
    }

    /// NEW_CONNECTION_ID (section 19.15). Returns whether the active one has changed.
    pub(crate) fn on_new(&mut self, new: &NewConnectionId) -> Result<bool, TransportError> {
        // A peer whose ID is empty has chosen to go without (section 19.15).
        if self.active.id.is_empty() {
            return Err(TransportError::protocol_violation(
                "a connection ID of an end without connection IDs",
            ));
        }
        let added = RemoteId {
            sequence: new.sequence,
            id: new.id,
            token: Some(new.reset_token),
        };
        let same = |known: &RemoteId| known.sequence == added.sequence || known.id == added.id;
        let known = std::iter::once(&self.active)
            .chain(&self.spare)
            .find(|known| same(known));
        match known {
            // Repeated frames are usual, as a lost ACK repeats them; a frame that says something else is an error
            // (section 19.15).
            Some(known) if known.sequence != added.sequence || known.id != added.id => {
                return Err(TransportError::protocol_violation(
                    "two meanings of a connection ID",
                ));
            }
            Some(_) => {}
            // A reordered frame with an ID that is already to be retired: it is retired without ever being used
            // (section 19.15).
            None if new.sequence < self.retire_prior_to => self.retire(new.sequence)?,
            None => self.spare.push(added),
        }
        let mut has_changed = false;
        if new.retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = new.retire_prior_to;
            let (retired, kept) = std::mem::take(&mut self.spare)
                .into_iter()
                .partition(|id: &RemoteId| id.sequence < new.retire_prior_to);
            self.spare = kept;
            for id in &retired as &Vec<RemoteId> {
                self.retire(id.sequence)?;
            }
            if self.active.sequence < new.retire_prior_to {
                has_changed = self.next()?;
            }
        }
        // Counted after the retirements: a frame may bring one and retire one at the limit (section 5.1.1).
        if self.spare.len() + 1 > MAX_REMOTE_IDS {
            return Err(TransportError::new(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "more connection IDs than the limit",
            ));
        }
        Ok(has_changed)
    }

    /// Uses another one, if there is any.
    pub(crate) fn next(&mut self) -> Result<bool, TransportError> {
        let Some(index) =
            (0..self.spare.len()).min_by_key(|index| self.spare.get(*index).map(|id| id.sequence))
        else {
            return Ok(false);
        };
        // Each path gets an ID of its own, so that nobody can link the addresses of a client (section 9.5).
        let before = std::mem::replace(&mut self.active, self.spare.swap_remove(index));
        self.retire(before.sequence)?;
        Ok(true)
    }

    /// RETIRE_CONNECTION_ID has to be sent for this one.
    pub(crate) fn retire(&mut self, sequence: u64) -> Result<(), TransportError> {
        if self.retired.len() >= MAX_RETIRED {
            return Err(TransportError::new(
                TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
                "too many connection IDs to retire",
            ));
        }
        if !self.retired.contains(&sequence) {
            self.retired.push(sequence);
        }
        Ok(())
    }

    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// The next sequence number of a RETIRE_CONNECTION_ID frame.
    pub(crate) fn pop_retired(&mut self) -> Option<u64> {
        self.retired.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(sequence: u64, retire_prior_to: u64) -> NewConnectionId {
        NewConnectionId {
            sequence,
            retire_prior_to,
            id: ConnectionId::new(&[sequence as u8; 8]),
            reset_token: ResetToken([sequence as u8; 16]),
        }
    }

    fn ids() -> RemoteIds {
        RemoteIds::new(ConnectionId::new(&[0; 8]))
    }

    fn code(result: Result<bool, TransportError>) -> u64 {
        result.unwrap_err().code.into()
    }

    #[test]
    fn at_most_five_are_kept() {
        let mut ids = ids();
        for sequence in 1..=4 {
            assert_eq!(ids.on_new(&new(sequence, 0)), Ok(false));
            assert_eq!(ids.on_new(&new(sequence, 0)), Ok(false));
        }
        assert_eq!(code(ids.on_new(&new(5, 0))), 9);
    }

    #[test]
    fn those_that_the_peer_retires_are_replaced() {
        let mut ids = ids();
        ids.on_new(&new(1, 0)).unwrap();
        assert_eq!(ids.on_new(&new(3, 2)), Ok(true));
        assert_eq!(&**ids.active(), [3; 8]);
        assert_eq!(ids.reset_token(), Some(ResetToken([3; 16])));
        assert_eq!(
            [ids.pop_retired(), ids.pop_retired(), ids.pop_retired()],
            [Some(0), Some(1), None]
        );
        // One that comes late is retired at once.
        ids.on_new(&new(1, 0)).unwrap();
        assert_eq!(ids.pop_retired(), Some(1));
        assert!(!ids.has_retired());
    }

    #[test]
    fn an_id_has_one_meaning() {
        let mut ids = ids();
        ids.on_new(&new(1, 0)).unwrap();
        let same_id = NewConnectionId {
            sequence: 2,
            ..new(1, 0)
        };
        assert_eq!(code(ids.on_new(&same_id)), 10);
        let same_sequence = NewConnectionId {
            sequence: 1,
            ..new(2, 0)
        };
        assert_eq!(code(ids.on_new(&same_sequence)), 10);
        let mut without = RemoteIds::new(ConnectionId::new(&[]));
        assert_eq!(code(without.on_new(&new(1, 0))), 10);
    }

    #[test]
    fn retirements_that_wait_are_bounded() {
        let mut ids = ids();
        let failed = (1..).find_map(|sequence| ids.on_new(&new(sequence, sequence)).err());
        assert_eq!(u64::from(failed.unwrap().code), 9);
        assert!(ids.retired.len() <= MAX_RETIRED);
    }
}
