//! [`Stored`] as bytes, for keeping it on disk.

use std::fmt;

use apus_http::{Headers, StatusCode};

use super::stored::{Flags, Times};
use super::{Stored, Timestamp, Variance, Variant};

/// Two letters, and the version of the layout. What has another one is not read.
const SIGNATURE: [u8; 4] = *b"AS\0\x01";

/// More bytes than any of the parts has; a length past it is an error, not a reservation.
const MAX_PART: usize = 1 << 24;

impl Stored {
    /// Appends the form in which it is kept. It does not tell its own length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIGNATURE);
        out.extend_from_slice(&self.status.as_u16().to_be_bytes());
        out.push(self.flags.0);
        for time in self.times.all() {
            out.extend_from_slice(&time.as_unix_millis().to_be_bytes());
        }
        for part in [
            &self.variance.line()[..],
            self.variant.bytes(),
            &self.tags,
            self.headers.wire(),
        ] {
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(part);
        }
    }

    /// Reads what [`Stored::encode`] wrote, and nothing else.
    ///
    /// # Errors
    /// It is of another version, cut off, followed by something, or holds what cannot be stored.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader(bytes);
        if reader.take()? != SIGNATURE {
            return Err(DecodeError::Version);
        }
        let status = u16::from_be_bytes(reader.take()?);
        let status = StatusCode::from_u16(status).map_err(|_| DecodeError::Invalid)?;
        let [flags] = reader.take()?;
        let times = Times {
            born: reader.time()?,
            received: reader.time()?,
            fresh_until: reader.time()?,
            revalidate_until: reader.time()?,
            error_until: reader.time()?,
            changed: reader.time()?,
        };
        let names = reader.part()?;
        let variance = Variance::from_line(names);
        let variant = Variant::from_bytes(reader.part()?);
        let tags = reader.part()?;
        let headers = Headers::from_wire(reader.part()?).map_err(|_| DecodeError::Invalid)?;
        if !reader.0.is_empty() || flags & !Flags::ALL != 0 || variance.line() != names {
            return Err(DecodeError::Invalid);
        }
        Ok(Self {
            status,
            flags: Flags(flags),
            times,
            variance,
            variant,
            tags: tags.into(),
            headers,
        })
    }
}

impl Times {
    /// In the order in which they are kept.
    fn all(&self) -> [Timestamp; 6] {
        let Self {
            born,
            received,
            fresh_until,
            revalidate_until,
            error_until,
            changed,
        } = *self;
        [
            born,
            received,
            fresh_until,
            revalidate_until,
            error_until,
            changed,
        ]
    }
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn time(&mut self) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp::from_unix_millis(u64::from_be_bytes(
            self.take()?,
        )))
    }

    fn part(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = u32::from_be_bytes(self.take()?) as usize;
        if len > MAX_PART {
            return Err(DecodeError::Invalid);
        }
        let (part, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(part)
    }
}

/// Why bytes are not a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They were written by another version of Apus, or by something else.
    Version,
    /// They end too early: the writer was stopped, or the disk was full.
    Truncated,
    /// They hold what no stored response holds: they were damaged, or are not ours.
    Invalid,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "stored by another version",
            Self::Truncated => "the stored response is cut off",
            Self::Invalid => "the stored response is damaged",
        })
    }
}

impl std::error::Error for DecodeError {}
