//! The encoding of [`StoredResponse`] for the disk.

use std::fmt;

use apus_http::{Headers, StatusCode};

use super::stored::{ResponseFlags, ResponseTimes};
use super::{SecondaryKey, StoredResponse, Timestamp, VaryFields};

/// Two letters, and the version of the layout. Data with another signature is not read.
const SIGNATURE: [u8; 4] = *b"AS\0\x01";

/// More bytes than any field has. A greater length is an error, so that it allocates nothing.
const MAX_FIELD_BYTES: usize = 1 << 24;

impl StoredResponse {
    /// Appends the encoded response. The encoding does not contain its own length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIGNATURE);
        out.extend_from_slice(&self.status.as_u16().to_be_bytes());
        out.push(self.flags.0);
        for time in self.times.all() {
            out.extend_from_slice(&time.as_unix_millis().to_be_bytes());
        }
        for field in [
            &self.vary.line()[..],
            self.secondary_key.bytes(),
            &self.tags,
            self.headers.wire(),
        ] {
            let len = u32::try_from(field.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(field);
        }
    }

    /// Decodes the output of [`StoredResponse::encode`].
    ///
    /// # Errors
    /// The bytes are of another version, truncated, followed by other bytes, or invalid.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredDecodeError> {
        let mut reader = StoredResponseReader(bytes);
        if reader.take()? != SIGNATURE {
            return Err(StoredDecodeError::Version);
        }
        let status = u16::from_be_bytes(reader.take()?);
        let status = StatusCode::from_u16(status).map_err(|_| StoredDecodeError::Invalid)?;
        let [flags] = reader.take()?;
        let times = ResponseTimes {
            generated: reader.time()?,
            received: reader.time()?,
            fresh_until: reader.time()?,
            revalidate_until: reader.time()?,
            error_until: reader.time()?,
            changed: reader.time()?,
        };
        let names = reader.field()?;
        let vary = VaryFields::from_line(names);
        let secondary_key = SecondaryKey::from_bytes(reader.field()?);
        let tags = reader.field()?;
        let headers =
            Headers::from_wire(reader.field()?).map_err(|_| StoredDecodeError::Invalid)?;
        // The names are compared with what they parse into: a damaged list would select other requests than the
        // origin meant.
        if !reader.0.is_empty() || flags & !ResponseFlags::ALL != 0 || vary.line() != names {
            return Err(StoredDecodeError::Invalid);
        }
        Ok(Self {
            status,
            flags: ResponseFlags(flags),
            times,
            vary,
            secondary_key,
            tags: tags.into(),
            headers,
        })
    }
}

impl ResponseTimes {
    /// All times in the order of the encoding.
    fn all(&self) -> [Timestamp; 6] {
        let Self {
            generated,
            received,
            fresh_until,
            revalidate_until,
            error_until,
            changed,
        } = *self;
        [
            generated,
            received,
            fresh_until,
            revalidate_until,
            error_until,
            changed,
        ]
    }
}

/// The bytes that are not read yet.
struct StoredResponseReader<'a>(&'a [u8]);

impl<'a> StoredResponseReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], StoredDecodeError> {
        let (taken, rest) = self
            .0
            .split_first_chunk()
            .ok_or(StoredDecodeError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn time(&mut self) -> Result<Timestamp, StoredDecodeError> {
        Ok(Timestamp::from_unix_millis(u64::from_be_bytes(
            self.take()?,
        )))
    }

    fn field(&mut self) -> Result<&'a [u8], StoredDecodeError> {
        let len = u32::from_be_bytes(self.take()?) as usize;
        if len > MAX_FIELD_BYTES {
            return Err(StoredDecodeError::Invalid);
        }
        let (field, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(StoredDecodeError::Truncated)?;
        self.0 = rest;
        Ok(field)
    }
}

/// Why bytes cannot be decoded as a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredDecodeError {
    /// The bytes were written by another version of Apus, or by another program.
    Version,
    /// The bytes end too early: the writer was stopped, or the disk was full.
    Truncated,
    /// The bytes are damaged, or were not written by Apus.
    Invalid,
}

impl fmt::Display for StoredDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the response was stored by another version",
            Self::Truncated => "the stored response is cut off",
            Self::Invalid => "the stored response is damaged",
        })
    }
}

impl std::error::Error for StoredDecodeError {}
