//! Reads the instructions of a QPACK stream (RFC 9204 sections 4.3 and 4.4), which may come in pieces.

use apus_codec::field_compression::CodingError;

use super::QpackError;

/// The first bytes of an instruction whose rest was not received yet.
#[derive(Debug, Default)]
pub(super) struct InstructionReader {
    begun: Vec<u8>,
}

impl InstructionReader {
    /// Passes the instructions of `input` to `read`, one after the other. It takes one from the start of the bytes
    /// that it gets, or returns [`CodingError::Truncated`] if it is incomplete.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        mut read: impl FnMut(&mut &[u8]) -> Result<(), QpackError>,
    ) -> Result<(), QpackError> {
        let mut begun = std::mem::take(&mut self.begun);
        let mut rest = if begun.is_empty() {
            input
        } else {
            begun.extend_from_slice(input);
            begun.as_slice()
        };
        while !rest.is_empty() {
            let mut after = rest;
            match read(&mut after) {
                Ok(()) => rest = after,
                Err(QpackError::Coding(CodingError::Truncated)) => break,
                Err(error) => return Err(error),
            }
        }
        self.begun = rest.to_vec();
        Ok(())
    }
}
