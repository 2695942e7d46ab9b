//! The settings of both ends (RFC 9113 section 6.5, RFC 8441 section 3, RFC 9218 section 2.1).

use super::Fault;
use super::frame::{self, PAYLOAD_ALWAYS};

/// What one end of a connection allows its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Streams that the client may have open at once: as a server allows it, or as a client does not
    /// go past even if the server allows it; at most 32,768.
    pub max_concurrent_streams: u32,
    /// Bytes of the largest frame that is taken: 16,384 to 16,777,215.
    pub max_frame_size: u32,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Bytes of a field section, each line counted with 32 bytes more
    /// (SETTINGS_MAX_HEADER_LIST_SIZE).
    pub head_bytes: usize,
    /// Field lines of a field section, all `cookie` lines counted as one.
    pub fields: usize,
    /// The most bytes of content that the peer may have sent without our having used them, over
    /// the whole connection. Windows begin at 64 KiB for a stream and 256 KiB for the connection,
    /// and grow up to this with the measured bandwidth-delay product. A client has the whole of it
    /// open from the start, and a stream's window grows to an equal share of it at most, so that
    /// answers that nobody reads do not hold up the others.
    pub receive_window: u32,
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

const LARGEST_PAYLOAD: u32 = 0xff_ffff;

impl Config {
    pub(super) fn payload_most(&self) -> usize {
        let most = self.max_frame_size.min(LARGEST_PAYLOAD);
        usize::try_from(most)
            .unwrap_or(PAYLOAD_ALWAYS)
            .max(PAYLOAD_ALWAYS)
    }

    pub(super) fn streams_most(&self) -> usize {
        usize::try_from(self.max_concurrent_streams)
            .unwrap_or(0)
            .min(32_768)
    }

    /// Appends the SETTINGS that say so.
    pub(super) fn announce(&self, is_server: bool, out: &mut Vec<u8>) {
        let payload = u32::try_from(self.payload_most()).unwrap_or(LARGEST_PAYLOAD);
        let head = u32::try_from(self.head_bytes).unwrap_or(u32::MAX);
        let common = [(MAX_FRAME_SIZE, payload), (MAX_HEADER_LIST_SIZE, head)];
        if is_server {
            let streams = u32::try_from(self.streams_most()).unwrap_or(0);
            let connect = u32::from(self.extended_connect);
            let [frame_size, list_size] = common;
            frame::settings(
                &[
                    (MAX_CONCURRENT_STREAMS, streams),
                    frame_size,
                    list_size,
                    (ENABLE_CONNECT_PROTOCOL, connect),
                    (NO_RFC7540_PRIORITIES, 1),
                ],
                out,
            );
        } else {
            let [frame_size, list_size] = common;
            frame::settings(&[(ENABLE_PUSH, 0), frame_size, list_size], out);
        }
    }
}

/// Appends the SETTINGS that give every stream a larger window.
pub(super) fn announce_window(window: u32, out: &mut Vec<u8>) {
    frame::settings(&[(INITIAL_WINDOW_SIZE, window)], out);
}

/// What the peer allows us.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) header_table_size: u32,
    pub(super) max_concurrent_streams: u32,
    pub(super) initial_window: u32,
    pub(super) max_frame_size: usize,
    pub(super) extended_connect: bool,
}

impl PeerSettings {
    /// What holds before the peer has said anything.
    pub(super) fn initial() -> Self {
        Self {
            header_table_size: 4096,
            // RFC 9113 section 6.5.2 recommends not to go below this.
            max_concurrent_streams: 100,
            initial_window: 65_535,
            max_frame_size: PAYLOAD_ALWAYS,
            extended_connect: false,
        }
    }

    /// Takes the payload of a SETTINGS frame over; settings that are not known are ignored. Gives the
    /// smallest size of the table that it names, which our encoder has to signal even where a larger
    /// one follows (RFC 7541 section 4.2).
    pub(super) fn take(&mut self, payload: &[u8], from_client: bool) -> Result<Option<u32>, Fault> {
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
                        .filter(|_| value <= LARGEST_PAYLOAD)
                        .filter(|size| *size >= PAYLOAD_ALWAYS)
                        .ok_or(Fault::SettingValue)?;
                }
                ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Fault::SettingValue);
                }
                // It cannot be taken back (RFC 8441 section 3).
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

    fn take(setting: u16, value: u32) -> Result<PeerSettings, Fault> {
        let mut payload = setting.to_be_bytes().to_vec();
        payload.extend_from_slice(&value.to_be_bytes());
        let mut settings = PeerSettings::initial();
        settings.take(&payload, true).map(|_| settings)
    }

    #[test]
    fn refuses_values_that_settings_cannot_have() {
        for (setting, value, fault) in [
            (ENABLE_PUSH, 2, Fault::SettingValue),
            (INITIAL_WINDOW_SIZE, 0x8000_0000, Fault::WindowOverflow),
            (MAX_FRAME_SIZE, 16_383, Fault::SettingValue),
            (MAX_FRAME_SIZE, 16_777_216, Fault::SettingValue),
            (ENABLE_CONNECT_PROTOCOL, 2, Fault::SettingValue),
            (NO_RFC7540_PRIORITIES, 2, Fault::SettingValue),
        ] {
            assert_eq!(
                take(setting, value).unwrap_err(),
                fault,
                "{setting} {value}"
            );
        }
        let mut settings = PeerSettings::initial();
        assert_eq!(settings.take(&[0; 5], true), Err(Fault::FrameSize));
        assert_eq!(
            settings.take(&[0, 2, 0, 0, 0, 1], false),
            Err(Fault::SettingValue)
        );
    }

    #[test]
    fn takes_what_is_known_and_ignores_the_rest() {
        assert_eq!(
            take(INITIAL_WINDOW_SIZE, 0x7fff_ffff)
                .unwrap()
                .initial_window,
            0x7fff_ffff
        );
        assert_eq!(
            take(MAX_FRAME_SIZE, 16_777_215).unwrap().max_frame_size,
            16_777_215
        );
        assert_eq!(take(HEADER_TABLE_SIZE, 0).unwrap().header_table_size, 0);
        assert_eq!(take(0xf000, 7).unwrap().initial_window, 65_535);
    }
}
