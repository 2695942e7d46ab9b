//! The settings of both ends of a connection (RFC 9114 section 7.2.4, RFC 9204 section 5, RFC 9220 section 3).

use apus_codec::messages::SectionLimits;

use crate::error::H3Fault;
use crate::{frame, varint};

/// The limits and features of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Config {
    /// Maximum requests at once, at most 32,768. The transport should allow as many bidirectional streams; requests
    /// beyond are rejected.
    pub max_concurrent_streams: u32,
    /// Maximum bytes of a request target.
    pub target_bytes: usize,
    /// Maximum bytes of a field section, each line counted with 32 extra bytes (SETTINGS_MAX_FIELD_SECTION_SIZE).
    pub head_bytes: usize,
    /// Maximum field lines of a field section, all `cookie` lines counted as one.
    pub fields: usize,
    /// Whether extended CONNECT is offered (RFC 9220).
    pub extended_connect: bool,
    /// Bytes of the table with which the peer may compress (SETTINGS_QPACK_MAX_TABLE_CAPACITY).
    pub decoder_table_bytes: usize,
    /// Maximum streams that may wait for inserts into that table (SETTINGS_QPACK_BLOCKED_STREAMS).
    pub blocked_streams: usize,
    /// Bytes of the table with which this end compresses, if the peer allows as many. 0 is the best value for most
    /// servers: a response that is sent again has a form that is encoded once for all connections, which a table
    /// of one connection excludes.
    pub encoder_table_bytes: usize,
}

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// A setting that peers have to ignore (section 7.2.4.1).
// A peer that fails on it is found early, so that new settings stay possible.
const GREASE: u64 = 0x1f * 0x2a7_9c35 + 0x21;

impl H3Config {
    #[inline]
    pub(crate) fn section_limits(&self) -> SectionLimits {
        SectionLimits {
            target_bytes: self.target_bytes,
            head_bytes: self.head_bytes,
            fields: self.fields,
            extended_connect: self.extended_connect,
        }
    }

    pub(crate) fn max_streams(&self) -> usize {
        usize::try_from(self.max_concurrent_streams)
            .unwrap_or(0)
            .min(32_768)
    }

    /// Appends the SETTINGS frame of this end.
    pub(crate) fn encode(&self, is_server: bool, out: &mut Vec<u8>) {
        let number = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX).min(varint::MAX);
        let mut payload = Vec::with_capacity(48);
        for (setting, value) in [
            (QPACK_MAX_TABLE_CAPACITY, number(self.decoder_table_bytes)),
            (MAX_FIELD_SECTION_SIZE, number(self.head_bytes)),
            (QPACK_BLOCKED_STREAMS, number(self.blocked_streams)),
            (
                ENABLE_CONNECT_PROTOCOL,
                // Only a server offers it (RFC 9220 section 3).
                u64::from(is_server && self.extended_connect),
            ),
            (GREASE, 0),
        ] {
            varint::put(setting, &mut payload);
            varint::put(value, &mut payload);
        }
        frame::whole(0x4, &payload, out);
    }
}

/// The settings of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct H3PeerSettings {
    pub(crate) table_bytes: u64,
    pub(crate) field_section_bytes: u64,
    pub(crate) extended_connect: bool,
}

impl H3PeerSettings {
    /// The settings before the SETTINGS frame of the peer.
    pub(crate) const INITIAL: Self = Self {
        table_bytes: 0,
        // No limit, until the peer sets one (section 7.2.4.1).
        field_section_bytes: u64::MAX,
        extended_connect: false,
    };

    /// Parses the payload of a SETTINGS frame, and ignores unknown settings.
    pub(crate) fn parse(mut payload: &[u8]) -> Result<Self, H3Fault> {
        let mut settings = Self::INITIAL;
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let setting = varint::take(&mut payload).ok_or(H3Fault::FrameSize)?;
            let value = varint::take(&mut payload).ok_or(H3Fault::FrameSize)?;
            seen.push(setting);
            match setting {
                // Reserved, as they have other meanings or none in HTTP/3, and an error where they occur (section
                // 7.2.4.1).
                0x0 | 0x2..=0x5 => return Err(H3Fault::Http2Setting),
                QPACK_MAX_TABLE_CAPACITY => settings.table_bytes = value,
                MAX_FIELD_SECTION_SIZE => settings.field_section_bytes = value,
                ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(H3Fault::SettingValue),
                ENABLE_CONNECT_PROTOCOL => settings.extended_connect = value == 1,
                // The encoder of this end never makes a stream wait.
                _ => {}
            }
        }
        // Sorted once at the end: comparing each with all before takes the square of a frame of 4 KB.
        seen.sort_unstable();
        if seen.iter().zip(seen.iter().skip(1)).any(|(a, b)| a == b) {
            return Err(H3Fault::RepeatedSetting);
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[u64]) -> Result<H3PeerSettings, H3Fault> {
        let mut payload = Vec::new();
        settings
            .iter()
            .for_each(|number| varint::put(*number, &mut payload));
        H3PeerSettings::parse(&payload)
    }

    #[test]
    fn rejects_invalid_settings() {
        for (settings, fault) in [
            (&[0, 0][..], H3Fault::Http2Setting),
            (&[2, 0], H3Fault::Http2Setting),
            (&[3, 100], H3Fault::Http2Setting),
            (&[4, 65_535], H3Fault::Http2Setting),
            (&[5, 16_384], H3Fault::Http2Setting),
            (&[8, 2], H3Fault::SettingValue),
            (&[1, 0, 6, 0, 1, 0], H3Fault::RepeatedSetting),
            (&[0x40, 0, 0x40, 0], H3Fault::RepeatedSetting),
            (&[1], H3Fault::FrameSize),
            (&[1, 0, 6], H3Fault::FrameSize),
        ] {
            assert_eq!(parse(settings), Err(fault), "{settings:?}");
        }
    }

    #[test]
    fn applies_known_settings_and_ignores_the_rest() {
        assert_eq!(parse(&[]), Ok(H3PeerSettings::INITIAL));
        let settings = H3PeerSettings {
            table_bytes: 4096,
            field_section_bytes: 1000,
            extended_connect: true,
        };
        assert_eq!(
            parse(&[1, 4096, 0x21, 5, 6, 1000, 7, 100, 8, 1, 0x33, 1]),
            Ok(settings)
        );
        assert_eq!(GREASE % 0x1f, 0x21 % 0x1f);
    }
}
