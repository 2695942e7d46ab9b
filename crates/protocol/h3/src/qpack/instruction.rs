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
        // Most input begins and ends with whole instructions, and is read without a copy.
        if self.begun.is_empty() {
            self.begun = read_complete(input, &mut read)?.to_vec();
            return Ok(());
        }
        self.begun.extend_from_slice(input);
        let rest = read_complete(&self.begun, &mut read)?.len();
        // An instruction that comes byte by byte is not copied for each of them.
        match rest {
            0 => self.begun = Vec::new(),
            rest => drop(self.begun.drain(..self.begun.len().saturating_sub(rest))),
        }
        Ok(())
    }
}

/// Reads the complete instructions of `input`, and returns the rest.
fn read_complete<'i>(
    input: &'i [u8],
    read: &mut impl FnMut(&mut &[u8]) -> Result<(), QpackError>,
) -> Result<&'i [u8], QpackError> {
    let mut rest = input;
    while !rest.is_empty() {
        let mut after = rest;
        match read(&mut after) {
            Ok(()) => rest = after,
            Err(QpackError::Coding(CodingError::Truncated)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(rest)
}
