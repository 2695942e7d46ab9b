//! Transport parameters (RFC 9000 section 18, RFC 9287, RFC 9368 section 3).

use std::time::Duration;

use crate::connection_id::{ConnectionId, RESET_TOKEN_LENGTH, ResetToken};
use crate::error::TransportError;
use crate::frame::MAX_STREAM_COUNT;
use crate::stream_id::Side;
use crate::varint::{self, Reader};
use crate::version::VersionInformation;

/// The identifiers of parameters.
mod id {
    pub(super) const ORIGINAL_DESTINATION: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE: u64 = 0x0f;
    pub(super) const RETRY_SOURCE: u64 = 0x10;
    pub(super) const VERSION_INFORMATION: u64 = 0x11;
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    /// The identifiers that come first.
    pub(super) const KNOWN: u64 = 0x12;
}

/// The least value of `max_udp_payload_size`.
const MIN_UDP_PAYLOAD: u64 = 1_200;
/// The largest value of `ack_delay_exponent`.
const MAX_ACK_DELAY_EXPONENT: u64 = 20;
/// `max_ack_delay` is less than this.
const ACK_DELAY_END: u64 = 1 << 14;
/// The least value of `active_connection_id_limit`.
const MIN_ACTIVE_IDS: u64 = 2;

/// The transport parameters of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransportParameters {
    pub(crate) original_destination: Option<ConnectionId>,
    /// In milliseconds; zero is none.
    pub(crate) max_idle_timeout: u64,
    pub(crate) reset_token: Option<ResetToken>,
    pub(crate) max_udp_payload_size: u64,
    pub(crate) max_data: u64,
    pub(crate) max_stream_data_bidi_local: u64,
    pub(crate) max_stream_data_bidi_remote: u64,
    pub(crate) max_stream_data_uni: u64,
    pub(crate) max_streams_bidi: u64,
    pub(crate) max_streams_uni: u64,
    pub(crate) ack_delay_exponent: u8,
    /// In milliseconds.
    pub(crate) max_ack_delay: u64,
    pub(crate) disable_active_migration: bool,
    /// The connection ID of the preferred address, which has the sequence number 1. The address is not used.
    pub(crate) preferred: Option<(ConnectionId, ResetToken)>,
    pub(crate) active_connection_id_limit: u64,
    pub(crate) initial_source: Option<ConnectionId>,
    pub(crate) retry_source: Option<ConnectionId>,
    /// Whether the fixed bit of packets may be zero (RFC 9287).
    pub(crate) grease_quic_bit: bool,
    pub(crate) version_information: Option<Box<VersionInformation>>,
}

impl Default for TransportParameters {
    /// What counts where a parameter is absent.
    fn default() -> Self {
        Self {
            original_destination: None,
            max_idle_timeout: 0,
            reset_token: None,
            max_udp_payload_size: 65_527,
            max_data: 0,
            max_stream_data_bidi_local: 0,
            max_stream_data_bidi_remote: 0,
            max_stream_data_uni: 0,
            max_streams_bidi: 0,
            max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay: 25,
            disable_active_migration: false,
            preferred: None,
            active_connection_id_limit: MIN_ACTIVE_IDS,
            initial_source: None,
            retry_source: None,
            grease_quic_bit: false,
            version_information: None,
        }
    }
}

impl TransportParameters {
    /// `max_ack_delay`.
    pub(crate) fn ack_delay(&self) -> Duration {
        Duration::from_millis(self.max_ack_delay)
    }

    /// Writes those that differ from the default.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        let default = Self::default();
        let integers = [
            (
                id::MAX_IDLE_TIMEOUT,
                self.max_idle_timeout,
                default.max_idle_timeout,
            ),
            (
                id::MAX_UDP_PAYLOAD_SIZE,
                self.max_udp_payload_size,
                default.max_udp_payload_size,
            ),
            (id::INITIAL_MAX_DATA, self.max_data, 0),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.max_stream_data_bidi_local,
                0,
            ),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.max_stream_data_bidi_remote,
                0,
            ),
            (id::INITIAL_MAX_STREAM_DATA_UNI, self.max_stream_data_uni, 0),
            (id::INITIAL_MAX_STREAMS_BIDI, self.max_streams_bidi, 0),
            (id::INITIAL_MAX_STREAMS_UNI, self.max_streams_uni, 0),
            (
                id::ACK_DELAY_EXPONENT,
                self.ack_delay_exponent.into(),
                default.ack_delay_exponent.into(),
            ),
            (id::MAX_ACK_DELAY, self.max_ack_delay, default.max_ack_delay),
            (
                id::ACTIVE_CONNECTION_ID_LIMIT,
                self.active_connection_id_limit,
                MIN_ACTIVE_IDS,
            ),
        ];
        for (id, value, default) in integers {
            if value != default {
                varint::write(id, buffer);
                varint::write(varint::size(value) as u64, buffer);
                varint::write(value, buffer);
            }
        }
        let reset_token = self.reset_token.map(|token| token.0);
        let versions = self.version_information.as_ref();
        let versions = versions.map(|information| information.value());
        let bytes = [
            (
                id::ORIGINAL_DESTINATION,
                self.original_destination.as_deref(),
            ),
            (id::INITIAL_SOURCE, self.initial_source.as_deref()),
            (id::RETRY_SOURCE, self.retry_source.as_deref()),
            (
                id::STATELESS_RESET_TOKEN,
                reset_token.as_ref().map(|token| &token[..]),
            ),
            (
                id::DISABLE_ACTIVE_MIGRATION,
                self.disable_active_migration.then_some(&[][..]),
            ),
            (id::GREASE_QUIC_BIT, self.grease_quic_bit.then_some(&[][..])),
            (id::VERSION_INFORMATION, versions.as_deref()),
        ];
        for (id, value) in bytes {
            if let Some(value) = value {
                varint::write(id, buffer);
                varint::write(value.len() as u64, buffer);
                buffer.extend_from_slice(value);
            }
        }
    }

    /// Reads the parameters that this side has sent.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR, where one is invalid, is there twice, or is not for this side.
    pub(crate) fn read(sender: Side, bytes: &[u8]) -> Result<Self, TransportError> {
        let mut parameters = Self::default();
        let mut reader = Reader::new(bytes);
        let mut seen = 0u32;
        let error = || TransportError::transport_parameter("an invalid transport parameter");
        while !reader.is_empty() {
            let id = reader.integer().ok_or_else(error)?;
            let value = reader.prefixed().ok_or_else(error)?;
            let bit = match id {
                0..id::KNOWN => 1 << id,
                id::GREASE_QUIC_BIT => 1 << id::KNOWN,
                // One that this end does not know.
                // Grease and extensions: a receiver ignores what it does not know (section 7.4.2).
                _ => continue,
            };
            // Section 7.4: with two values, ends could disagree about which one counts.
            if seen & bit != 0 {
                return Err(error());
            }
            seen |= bit;
            parameters.set(sender, id, value).ok_or_else(error)?;
        }
        Ok(parameters)
    }

    fn set(&mut self, sender: Side, id: u64, value: &[u8]) -> Option<()> {
        let integer = || {
            let mut reader = Reader::new(value);
            reader.integer().filter(|_| reader.is_empty())
        };
        let connection_id = || ConnectionId::checked(value);
        let is_set = || value.is_empty().then_some(true);
        let is_of_server = matches!(
            id,
            id::ORIGINAL_DESTINATION
                | id::STATELESS_RESET_TOKEN
                | id::PREFERRED_ADDRESS
                | id::RETRY_SOURCE
        );
        // Section 18.2: a client cannot know these, so one that sends them is broken or an attack.
        if is_of_server && sender.is_client() {
            return None;
        }
        match id {
            id::ORIGINAL_DESTINATION => self.original_destination = Some(connection_id()?),
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout = integer()?,
            id::STATELESS_RESET_TOKEN => {
                self.reset_token = Some(ResetToken(value.try_into().ok()?));
            }
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size = integer().filter(|size| *size >= MIN_UDP_PAYLOAD)?;
            }
            id::INITIAL_MAX_DATA => self.max_data = integer()?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => self.max_stream_data_bidi_local = integer()?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.max_stream_data_bidi_remote = integer()?;
            }
            id::INITIAL_MAX_STREAM_DATA_UNI => self.max_stream_data_uni = integer()?,
            id::INITIAL_MAX_STREAMS_BIDI => {
                self.max_streams_bidi = integer().filter(|most| *most <= MAX_STREAM_COUNT)?;
            }
            id::INITIAL_MAX_STREAMS_UNI => {
                self.max_streams_uni = integer().filter(|most| *most <= MAX_STREAM_COUNT)?;
            }
            id::ACK_DELAY_EXPONENT => {
                let exponent = integer().filter(|exponent| *exponent <= MAX_ACK_DELAY_EXPONENT)?;
                self.ack_delay_exponent = exponent as u8;
            }
            id::MAX_ACK_DELAY => {
                self.max_ack_delay = integer().filter(|delay| *delay < ACK_DELAY_END)?;
            }
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = is_set()?,
            id::PREFERRED_ADDRESS => self.preferred = Some(preferred_address(value)?),
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                let limit = integer().filter(|limit| *limit >= MIN_ACTIVE_IDS)?;
                self.active_connection_id_limit = limit;
            }
            id::INITIAL_SOURCE => self.initial_source = Some(connection_id()?),
            id::RETRY_SOURCE => self.retry_source = Some(connection_id()?),
            id::GREASE_QUIC_BIT => self.grease_quic_bit = is_set()?,
            id::VERSION_INFORMATION => {
                let information = VersionInformation::read(value)?;
                // A client lists the one that it has chosen, too.
                if sender.is_client() && !information.available.contains(&information.chosen) {
                    return None;
                }
                self.version_information = Some(Box::new(information));
            }
            _ => {}
        }
        Some(())
    }
}

/// The connection ID and the token of a preferred address (figure 22).
fn preferred_address(value: &[u8]) -> Option<(ConnectionId, ResetToken)> {
    /// Of IPv4 and IPv6, with the ports.
    const ADDRESSES: usize = 4 + 2 + 16 + 2;
    let mut reader = Reader::new(value);
    // The addresses are read over: moving to them needs sockets that this end may not have. The ID counts all the
    // same, as it has a sequence number.
    reader.bytes(ADDRESSES)?;
    let length = reader.byte().filter(|length| *length > 0)?;
    let id = ConnectionId::checked(reader.bytes(length.into())?)?;
    let token = ResetToken(reader.array::<RESET_TOKEN_LENGTH>()?);
    reader.is_empty().then_some((id, token))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> TransportParameters {
        TransportParameters {
            original_destination: Some(ConnectionId::new(&[1; 8])),
            max_idle_timeout: 30_000,
            reset_token: Some(ResetToken([2; 16])),
            max_udp_payload_size: 1_500,
            max_data: 1 << 40,
            max_stream_data_bidi_local: 1,
            max_stream_data_bidi_remote: 2,
            max_stream_data_uni: 3,
            max_streams_bidi: MAX_STREAM_COUNT,
            max_streams_uni: 5,
            ack_delay_exponent: 20,
            max_ack_delay: ACK_DELAY_END - 1,
            disable_active_migration: true,
            preferred: None,
            active_connection_id_limit: 5,
            initial_source: Some(ConnectionId::new(&[])),
            retry_source: Some(ConnectionId::new(&[3; 20])),
            grease_quic_bit: true,
            version_information: Some(Box::new(VersionInformation {
                chosen: 1,
                available: vec![1, 7],
            })),
        }
    }

    #[test]
    fn parameters_are_read_as_they_were_written() {
        for parameters in [all(), TransportParameters::default()] {
            let mut buffer = Vec::new();
            parameters.write(&mut buffer);
            assert_eq!(
                TransportParameters::read(Side::Server, &buffer),
                Ok(parameters)
            );
        }
    }

    #[test]
    fn parameters_of_servers_are_errors_of_clients() {
        let mut buffer = Vec::new();
        all().write(&mut buffer);
        assert!(TransportParameters::read(Side::Client, &buffer).is_err());
    }

    #[test]
    fn the_connection_id_of_a_preferred_address_is_read() {
        let mut value = vec![0; 24];
        value.push(4);
        value.extend([9; 4 + 16]);
        let buffer = [&[0x0d, value.len() as u8][..], &value].concat();
        let parameters = TransportParameters::read(Side::Server, &buffer).unwrap();
        let (id, token) = parameters.preferred.unwrap();
        assert_eq!((&*id, token), (&[9; 4][..], ResetToken([9; 16])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parameters_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for side in [Side::Client, Side::Server] {
                let _ = TransportParameters::read(side, &bytes);
            }
        }
    }
}
