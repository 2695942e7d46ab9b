//! The settings of both ends of a connection (RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1).

use super::Fault;
use super::frame::{self, DEFAULT_MAX_PAYLOAD};
use crate::messages::SectionLimits;

/// The limits and features of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Config {
    /// Maximum concurrent streams that a server allows, or that a client opens even if the server allows
    /// more; at most 32,768.
    pub max_concurrent_streams: u32,
    /// Maximum payload bytes of a received frame: 16,384 to 16,777,215.
    pub max_frame_size: u32,
    /// Maximum bytes of a request target.
    pub target_bytes: usize,
    /// Maximum bytes of a field section, each line counted with 32 extra bytes
    /// (SETTINGS_MAX_HEADER_LIST_SIZE).
    pub head_bytes: usize,
    /// Maximum field lines of a field section, all `cookie` lines counted as one.
    pub fields: usize,
    /// Maximum bytes of unconsumed data over the whole connection. At a server, the window starts at four
    /// times the window of a stream, and both grow up to this limit with the measured bandwidth-delay
    /// product. At a client, the connection's window has this size from the start, and a stream's window
    /// grows to at most an equal share of it, so that unread responses do not block the others.
    pub receive_window: u32,
    /// The window of a stream at the start: from 65,535 bytes up to the connection's window. `None`: 65,535.
    pub stream_receive_window: Option<u32>,
    /// Whether extended CONNECT is offered (RFC 8441).
    pub extended_connect: bool,
}

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
const NO_RFC7540_PRIORITIES: u16 = 0x9;

const MAX_PAYLOAD: u32 = 0xff_ffff;

/// The initial windows of a connection and of a stream (section 6.9.2).
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// The largest window (section 6.9.1).
const MAX_WINDOW: u32 = 0x7fff_ffff;

impl Http2Config {
    pub(super) fn max_payload(&self) -> usize {
        let max = self.max_frame_size.min(MAX_PAYLOAD);
        usize::try_from(max)
            .unwrap_or(DEFAULT_MAX_PAYLOAD)
            .max(DEFAULT_MAX_PAYLOAD)
    }

    #[inline]
    pub(super) fn section_limits(&self) -> SectionLimits {
        SectionLimits {
            target_bytes: self.target_bytes,
            head_bytes: self.head_bytes,
            fields: self.fields,
            extended_connect: self.extended_connect,
        }
    }

    /// The connection's window at most.
    pub(super) fn window(&self) -> u32 {
        self.receive_window.clamp(DEFAULT_WINDOW, MAX_WINDOW)
    }

    /// The window of a stream at the start, unless it is the default.
    pub(super) fn stream_window(&self) -> Option<u32> {
        self.stream_receive_window
            .map(|window| window.clamp(DEFAULT_WINDOW, self.window()))
            .filter(|window| *window > DEFAULT_WINDOW)
    }

    pub(super) fn max_streams(&self) -> usize {
        usize::try_from(self.max_concurrent_streams)
            .unwrap_or(0)
            .min(32_768)
    }

    /// Appends the SETTINGS frame of this end.
    pub(super) fn encode(&self, is_server: bool, out: &mut Vec<u8>) {
        let payload = u32::try_from(self.max_payload()).unwrap_or(MAX_PAYLOAD);
        let head = u32::try_from(self.head_bytes).unwrap_or(u32::MAX);
        let mut settings = if is_server {
            vec![
                (
                    MAX_CONCURRENT_STREAMS,
                    u32::try_from(self.max_streams()).unwrap_or(0),
                ),
                (ENABLE_CONNECT_PROTOCOL, u32::from(self.extended_connect)),
                // RFC 9218 section 2.1: clients then leave out PRIORITY frames, and send the field that is understood
                // here.
                (NO_RFC7540_PRIORITIES, 1),
            ]
        } else {
            // A client that does not say so allows pushes, whose promises it would have to track (section 6.5.2).
            vec![(ENABLE_PUSH, 0)]
        };
        settings.extend([(MAX_FRAME_SIZE, payload), (MAX_HEADER_LIST_SIZE, head)]);
        settings.extend(
            self.stream_window()
                .map(|window| (INITIAL_WINDOW_SIZE, window)),
        );
        frame::settings(&settings, out);
    }
}

/// Appends the SETTINGS frame that sets the window of all streams.
pub(super) fn encode_window(window: u32, out: &mut Vec<u8>) {
    frame::settings(&[(INITIAL_WINDOW_SIZE, window)], out);
}

/// The settings of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) header_table_size: u32,
    pub(super) max_concurrent_streams: u32,
    pub(super) initial_window: u32,
    pub(super) max_frame_size: usize,
    pub(super) extended_connect: bool,
}

impl PeerSettings {
    /// The settings before the first SETTINGS frame of the peer.
    pub(super) fn initial() -> Self {
        Self {
            // The initial values of section 6.5.2, which hold until the frame arrives.
            header_table_size: 4096,
            // RFC 9113 section 6.5.2 recommends at least this value.
            max_concurrent_streams: 100,
            initial_window: 65_535,
            max_frame_size: DEFAULT_MAX_PAYLOAD,
            extended_connect: false,
        }
    }

    /// Applies the payload of a SETTINGS frame and ignores unknown settings. Returns the smallest
    /// SETTINGS_HEADER_TABLE_SIZE in it, which the encoder has to signal even if a larger one follows (RFC
    /// 7541 section 4.2).
    pub(super) fn apply(
        &mut self,
        payload: &[u8],
        from_client: bool,
    ) -> Result<Option<u32>, Fault> {
        let mut smallest_table: Option<u32> = None;
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Fault::FrameSize);
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE => {
                    self.header_table_size = value;
                    smallest_table = Some(smallest_table.unwrap_or(value).min(value));
                }
                // A server must not send 1, a client may (section 6.5.2).
                ENABLE_PUSH if value > u32::from(from_client) => return Err(Fault::SettingValue),
                MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
                INITIAL_WINDOW_SIZE if value > 0x7fff_ffff => return Err(Fault::WindowOverflow),
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE => {
                    self.max_frame_size = usize::try_from(value)
                        .ok()
                        .filter(|_| value <= MAX_PAYLOAD)
                        .filter(|size| *size >= DEFAULT_MAX_PAYLOAD)
                        .ok_or(Fault::SettingValue)?;
                }
                ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Fault::SettingValue);
                }
                // It cannot be disabled again (RFC 8441 section 3).
                ENABLE_CONNECT_PROTOCOL => self.extended_connect |= value == 1,
                _ => {}
            }
        }
        Ok(smallest_table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(setting: u16, value: u32) -> Result<PeerSettings, Fault> {
        let mut payload = setting.to_be_bytes().to_vec();
        payload.extend_from_slice(&value.to_be_bytes());
        let mut settings = PeerSettings::initial();
        settings.apply(&payload, true).map(|_| settings)
    }

    #[test]
    fn rejects_invalid_values() {
        for (setting, value, fault) in [
            (ENABLE_PUSH, 2, Fault::SettingValue),
            (INITIAL_WINDOW_SIZE, 0x8000_0000, Fault::WindowOverflow),
            (MAX_FRAME_SIZE, 16_383, Fault::SettingValue),
            (MAX_FRAME_SIZE, 16_777_216, Fault::SettingValue),
            (ENABLE_CONNECT_PROTOCOL, 2, Fault::SettingValue),
            (NO_RFC7540_PRIORITIES, 2, Fault::SettingValue),
        ] {
            assert_eq!(
                apply(setting, value).unwrap_err(),
                fault,
                "{setting} {value}"
            );
        }
        let mut settings = PeerSettings::initial();
        assert_eq!(settings.apply(&[0; 5], true), Err(Fault::FrameSize));
        assert_eq!(
            settings.apply(&[0, 2, 0, 0, 0, 1], false),
            Err(Fault::SettingValue)
        );
    }

    #[test]
    fn applies_known_settings_and_ignores_the_rest() {
        assert_eq!(
            apply(INITIAL_WINDOW_SIZE, 0x7fff_ffff)
                .unwrap()
                .initial_window,
            0x7fff_ffff
        );
        assert_eq!(
            apply(MAX_FRAME_SIZE, 16_777_215).unwrap().max_frame_size,
            16_777_215
        );
        assert_eq!(apply(HEADER_TABLE_SIZE, 0).unwrap().header_table_size, 0);
        assert_eq!(apply(0xf000, 7).unwrap().initial_window, 65_535);
    }
}
