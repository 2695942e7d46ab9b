//! What an input tells: the network, the limits, and what the applications do.

use std::time::Duration;

use apus_quic_protocol::Dir;

use super::super::harness::network::Link;
use super::super::harness::{Client, Server, ms};

pub(crate) use apus_quic_protocol::Side;

pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

const MAX_ACTIONS: usize = 64;

/// Takes bytes of an input, whose end is followed by zeros.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn side(&mut self) -> Side {
        if self.byte() & 1 == 0 { Client } else { Server }
    }

    fn share(&mut self, most: f64) -> f64 {
        // Half of the inputs are without this fault.
        let byte = self.byte();
        f64::from(byte.saturating_sub(128)) / 127.0 * most
    }

    /// Codes of each length of a variable-length integer (RFC 9000 section 16).
    fn code(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        match byte >> 6 {
            0 => byte,
            1 => byte << 6,
            2 => byte << 20,
            _ => (1 << 62) - 1 - (byte & 0x3f),
        }
    }
}

/// The limits of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) receive_window: u32,
    pub(crate) stream_window: u32,
    pub(crate) send_window: u32,
    pub(crate) bidirectional: u32,
    pub(crate) unidirectional: u32,
}

impl Limits {
    fn read(reader: &mut Reader<'_>) -> Self {
        let byte = reader.byte();
        let window = |bits: u8| [2_000, 20_000, 200_000, 2_000_000][usize::from(bits & 3)];
        Self {
            receive_window: window(byte),
            stream_window: window(byte >> 2),
            send_window: window(byte >> 4),
            bidirectional: 1 + u32::from(byte >> 6) * 5,
            unidirectional: 1 + u32::from(byte >> 5 & 3) * 3,
        }
    }
}

/// What an application does. A stream is the number of one of its own halves, modulo their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Open { side: Side, direction: Dir },
    Write { side: Side, stream: u8, size: usize },
    Finish { side: Side, stream: u8 },
    Reset { side: Side, stream: u8, code: u64 },
    Stop { side: Side, stream: u8, code: u64 },
    UpdateKeys { side: Side },
    Ping { side: Side },
    Migrate,
    Wait(Duration),
    Close { side: Side, code: u64 },
}

impl Action {
    fn read(reader: &mut Reader<'_>) -> Self {
        let kind = reader.byte();
        let side = reader.side();
        match kind % 24 {
            0..=4 => Self::Open {
                side,
                direction: if reader.byte() & 1 == 0 {
                    Dir::Bi
                } else {
                    Dir::Uni
                },
            },
            5..=9 => Self::Write {
                side,
                stream: reader.byte(),
                size: {
                    let byte = usize::from(reader.byte());
                    // Up to 65 KB, and often a few bytes.
                    byte * byte
                },
            },
            10..=12 => Self::Finish {
                side,
                stream: reader.byte(),
            },
            13 => Self::Reset {
                side,
                stream: reader.byte(),
                code: reader.code(),
            },
            14 => Self::Stop {
                side,
                stream: reader.byte(),
                code: reader.code(),
            },
            15 | 16 => Self::UpdateKeys { side },
            17 => Self::Ping { side },
            18 => Self::Migrate,
            19..=22 => Self::Wait(ms(u64::from(reader.byte()))),
            _ if reader.byte() < 64 => Self::Close {
                side,
                code: reader.code(),
            },
            _ => Self::Wait(ms(u64::from(reader.byte()) * 16)),
        }
    }
}

/// A whole input.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) is_our_client: bool,
    pub(crate) has_large_certificate: bool,
    pub(crate) has_large_hello: bool,
    pub(crate) is_retry: bool,
    /// After which time an end closes the connection, although its handshake may go on.
    pub(crate) early_close: Option<Duration>,
    /// The end that closes the connection at the end, and with which code.
    pub(crate) closes_first: Side,
    pub(crate) code: u64,
    pub(crate) links: [Link; 2],
    pub(crate) has_faults: bool,
    pub(crate) client: Limits,
    pub(crate) server: Limits,
    pub(crate) actions: Vec<Action>,
}

impl Script {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let flags = reader.byte();
        let seed = u64::from(reader.byte());
        let early_close = (flags & 0xf0 == 0xf0).then(|| ms(u64::from(reader.byte())));
        let is_server = reader.side() == Server;
        let code = reader.code();
        let links = [(); 2].map(|()| Link {
            delay: ms(1 + u64::from(reader.byte()) / 2),
            loss: reader.share(0.1),
            burst: 1 + u32::from(reader.byte() % 3),
            reordering: reader.share(0.3),
            duplication: reader.share(0.2),
            corruption: reader.share(0.05),
            congestion: reader.share(0.1),
            ..Link::default()
        });
        let client = Limits::read(reader);
        let server = Limits::read(reader);
        let mut actions = Vec::new();
        while !reader.0.is_empty() && actions.len() < MAX_ACTIONS {
            actions.push(Action::read(reader));
        }
        Self {
            seed,
            is_our_client: flags & 1 == 0,
            has_large_certificate: flags & 2 != 0,
            has_large_hello: flags & 4 != 0,
            is_retry: flags & 8 != 0,
            early_close,
            // A server may have no connection yet.
            closes_first: if is_server && early_close.is_none() {
                Server
            } else {
                Client
            },
            code,
            has_faults: links
                .iter()
                .any(|link| link.loss > 0.0 || link.corruption > 0.0),
            links,
            client,
            server,
            actions,
        }
    }

    pub(crate) fn limits(&self, side: Side) -> Limits {
        match side {
            Client => self.client,
            Server => self.server,
        }
    }
}
