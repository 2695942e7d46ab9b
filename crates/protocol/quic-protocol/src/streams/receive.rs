//! The receiving half of a stream (RFC 9000 section 3.2).

use crate::assembler::Assembler;
use crate::error::TransportError;

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub(crate) assembler: Assembler,
    /// The largest offset that was received.
    end: u64,
    final_size: Option<u64>,
    /// The error code of RESET_STREAM.
    pub(crate) reset: Option<u64>,
    /// Whether the application does not want the data.
    pub(crate) is_stopped: bool,
    /// The limit that the peer knows.
    pub(crate) announced: u64,
    /// Whether MAX_STREAM_DATA has to be sent.
    pub(crate) is_credit_pending: bool,
    /// Whether the application knows that there is something to read.
    pub(crate) is_reported: bool,
}

impl ReceiveHalf {
    pub(crate) fn new(window: u64) -> Self {
        Self {
            assembler: Assembler::default(),
            end: 0,
            final_size: None,
            reset: None,
            is_stopped: false,
            announced: window,
            is_credit_pending: false,
            is_reported: false,
        }
    }

    /// What was received of the connection's flow control, and not yet read.
    pub(crate) fn unread(&self) -> u64 {
        self.end - self.assembler.bytes_read()
    }

    /// Whether all data up to the end was received.
    pub(crate) fn is_at_end(&self) -> bool {
        self.final_size == Some(self.assembler.bytes_read())
    }

    /// Whether the application can learn anything by a read.
    pub(crate) fn is_readable(&self) -> bool {
        self.assembler.is_readable() || self.reset.is_some() || self.is_at_end()
    }

    /// Whether the final size is known.
    pub(crate) fn is_final_size_known(&self) -> bool {
        self.final_size.is_some()
    }

    /// Checks a STREAM frame, and counts it. Returns by how much it exceeds what was received before.
    pub(crate) fn receive(
        &mut self,
        offset: u64,
        data: &[u8],
        fin: bool,
    ) -> Result<u64, TransportError> {
        let end = offset.saturating_add(data.len() as u64);
        self.check_end(end, fin)?;
        let grown = end.saturating_sub(self.end);
        self.end = self.end.max(end);
        if fin {
            self.final_size = Some(end);
        }
        if !self.is_stopped && self.reset.is_none() {
            self.assembler
                .insert(offset, data)
                .map_err(|_| TransportError::internal("stream data has too many gaps"))?;
        }
        Ok(grown)
    }

    /// Checks RESET_STREAM, and counts it. Returns by how much it exceeds what was received before.
    pub(crate) fn receive_reset(
        &mut self,
        code: u64,
        final_size: u64,
    ) -> Result<u64, TransportError> {
        self.check_end(final_size, true)?;
        let grown = final_size - self.end;
        // After the end was read, there is nothing to abandon.
        let is_over = self.is_at_end();
        self.end = final_size;
        self.final_size = Some(final_size);
        if self.reset.is_none() && !is_over {
            self.reset = Some(code);
            self.assembler.clear();
        }
        Ok(grown)
    }

    fn check_end(&self, end: u64, is_final: bool) -> Result<(), TransportError> {
        if end > self.announced {
            return Err(TransportError::flow_control(
                "more data than the stream's limit",
            ));
        }
        match self.final_size {
            // RFC 9000 section 4.5: with a final size that changes, the ends would disagree about the connection's
            // flow control.
            Some(size) if end > size || is_final && end != size => {
                Err(TransportError::final_size("another final size"))
            }
            None if is_final && end < self.end => {
                Err(TransportError::final_size("data beyond the final size"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> ReceiveHalf {
        ReceiveHalf::new(100)
    }

    fn code(result: Result<u64, TransportError>) -> u64 {
        result.unwrap_err().code.into()
    }

    #[test]
    fn data_counts_once() {
        let mut half = half();
        assert_eq!(half.receive(10, &[0; 10], false), Ok(20));
        assert_eq!(half.receive(0, &[0; 15], false), Ok(0));
        assert_eq!(half.receive(15, &[0; 10], true), Ok(5));
        assert!(half.is_final_size_known() && !half.is_at_end());
        assert_eq!(half.assembler.read(10).unwrap().len(), 10);
        assert_eq!(half.unread(), 15);
    }

    #[test]
    fn the_final_size_does_not_change() {
        let mut receiver = half();
        receiver.receive(0, &[0; 10], true).unwrap();
        assert_eq!(code(receiver.receive(0, &[0; 11], false)), 6);
        assert_eq!(code(receiver.receive(0, &[0; 9], true)), 6);
        assert_eq!(code(receiver.receive_reset(1, 9)), 6);
        assert_eq!(code(receiver.receive_reset(1, 11)), 6);
        assert_eq!(receiver.receive(2, &[0; 8], true), Ok(0));
        let mut receiver = half();
        receiver.receive(0, &[0; 10], false).unwrap();
        assert_eq!(code(receiver.receive(0, &[0; 9], true)), 6);
        assert_eq!(code(receiver.receive_reset(1, 9)), 6);
        assert_eq!(receiver.receive_reset(1, 10), Ok(0));
        assert_eq!(receiver.reset, Some(1));
    }

    #[test]
    fn no_data_exceeds_the_limit() {
        for (offset, length) in [(100, 1), (1 << 61, 10), (u64::MAX >> 2, 2)] {
            assert_eq!(code(half().receive(offset, &vec![0; length], false)), 3);
        }
        assert_eq!(half().receive(99, &[0], false), Ok(100));
        assert_eq!(code(half().receive_reset(0, 101)), 3);
        assert_eq!(half().receive_reset(0, 100), Ok(100));
    }
}
