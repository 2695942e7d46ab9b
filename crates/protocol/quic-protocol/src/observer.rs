//! The events of a connection that an observer gets: its packets, losses and keys, as for a log in the qlog format
//! (draft-ietf-quic-qlog-quic-events).

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::connection_id::ConnectionId;
use crate::error::ConnectionEnd;
use crate::frame::{Ack, QuicFrame};
use crate::packet::PacketKind;
use crate::recovery::CongestionPhase;
use crate::stream_id::{Dir, Side, StreamId};
use crate::transport_parameters::TransportParameters;
use crate::varint::Reader;
use crate::version::QuicVersion;

/// Begins to observe connections.
pub trait StartObserver: fmt::Debug + Send + Sync {
    /// The observer of a new connection; `None` if it is not observed. The ID is the first destination of the client, by which
    /// both ends and tools know the connection.
    fn start(
        &self,
        side: Side,
        original_destination: ConnectionId,
    ) -> Option<Box<dyn ConnectionObserver>>;
}

/// Gets the events of a connection. It must not block: it is called on the thread of the connection.
pub trait ConnectionObserver: Send {
    /// Something has happened at this time.
    fn on_event(&mut self, now: Instant, event: ObservedEvent);
}

/// What happens on a connection.
// Owned and without text, so that an observer can give it to another thread, which does the formatting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ObservedEvent {
    /// The connection begins.
    Started {
        /// The version of its first packet.
        version: QuicVersion,
        /// The address of the peer.
        remote: SocketAddr,
        /// The connection ID of this end.
        local_id: ConnectionId,
        /// The connection ID of the peer; that which a client makes up, if the peer has none yet.
        remote_id: ConnectionId,
    },
    /// The transport parameters of an end are known.
    ParametersSet {
        /// Whether they are those of this end.
        is_local: bool,
        /// Their values.
        parameters: Box<ObservedParameters>,
    },
    /// A packet was made, which the owner of the connection sends.
    PacketSent(ObservedPacket),
    /// A packet came that is authentic and new.
    PacketReceived(ObservedPacket),
    /// A packet, or the rest of a datagram, was dropped.
    PacketDropped {
        /// Its type, if that could be read.
        kind: Option<PacketKind>,
        /// Its bytes.
        size: usize,
        /// Why.
        reason: DropReason,
    },
    /// A packet is lost.
    PacketLost {
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// How the loss was found.
        reason: LossReason,
        /// Whether it was a probe of a larger size, whose loss is expected.
        is_mtu_probe: bool,
    },
    /// Loss detection or congestion control has new values.
    MetricsUpdated(RecoveryMetrics),
    /// The congestion controller is in another phase.
    CongestionStateUpdated {
        /// The phase before; `None` at first.
        old: Option<CongestionPhase>,
        /// The phase now.
        new: CongestionPhase,
    },
    /// There are keys of an encryption level, or new ones of 1-RTT packets.
    KeyUpdated {
        /// The packets that they are for.
        kind: PacketKind,
        /// How often the keys of 1-RTT packets were updated.
        phase: u64,
        /// Why.
        reason: KeyUpdateReason,
    },
    /// The connection is closed, or lost.
    Closed(ObservedEnd),
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPacket {
    /// Its type.
    pub kind: PacketKind,
    /// Its number, if it has one.
    pub number: Option<u64>,
    /// Its bytes, with its header and tag.
    pub size: usize,
    /// Its destination.
    pub destination: ConnectionId,
    /// Its source, if it has a long header.
    pub source: Option<ConnectionId>,
    /// Its frames.
    pub frames: Vec<ObservedFrame>,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It cannot be parsed, or comes from an ID or an address that is not that of the peer.
    Invalid,
    /// It is of another version.
    OtherVersion,
    /// It is for another connection than the first packet of its datagram.
    OtherConnection,
    /// There are no keys yet, or no longer.
    NoKeys,
    /// It is not authentic.
    Undecryptable,
    /// It came before.
    Duplicate,
}

/// How a loss was found (RFC 9002 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Enough later packets were acknowledged.
    Reordering,
    /// It was sent long enough before one that was acknowledged.
    Time,
}

/// Why keys are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUpdateReason {
    /// The handshake has made them.
    Tls,
    /// This end has updated them (RFC 9001 section 6).
    Local,
    /// The peer has updated them.
    Remote,
}

/// The values of loss detection and congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryMetrics {
    /// The least round-trip time.
    pub min_rtt: Duration,
    /// The smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// The last sample.
    pub latest_rtt: Duration,
    /// The mean deviation.
    pub rtt_variance: Duration,
    /// Probe timeouts since the last acknowledgement.
    pub pto_count: u32,
    /// The bytes that may be in flight.
    pub congestion_window: u64,
    /// The bytes in flight.
    pub bytes_in_flight: u64,
}

/// How a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedEnd {
    /// The application of this end closed it.
    Local {
        /// The error code.
        code: u64,
    },
    /// The peer closed it, or an error, a timeout or a reset ended it.
    Ended(ConnectionEnd),
    /// The owner of the connection dropped it without a word to the peer.
    Abandoned,
}

/// The transport parameters of an end (RFC 9000 section 18.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they have the names of the RFC")]
pub struct ObservedParameters {
    pub original_destination: Option<ConnectionId>,
    pub initial_source: Option<ConnectionId>,
    pub retry_source: Option<ConnectionId>,
    /// In milliseconds; zero is none.
    pub max_idle_timeout: u64,
    pub max_udp_payload_size: u64,
    pub ack_delay_exponent: u8,
    /// In milliseconds.
    pub max_ack_delay: u64,
    pub active_connection_id_limit: u64,
    pub max_data: u64,
    pub max_stream_data_bidi_local: u64,
    pub max_stream_data_bidi_remote: u64,
    pub max_stream_data_uni: u64,
    pub max_streams_bidi: u64,
    pub max_streams_uni: u64,
    pub disable_active_migration: bool,
    pub grease_quic_bit: bool,
}

impl ObservedParameters {
    pub(crate) fn of(parameters: &TransportParameters) -> Self {
        Self {
            original_destination: parameters.original_destination,
            initial_source: parameters.initial_source,
            retry_source: parameters.retry_source,
            max_idle_timeout: parameters.max_idle_timeout,
            max_udp_payload_size: parameters.max_udp_payload_size,
            ack_delay_exponent: parameters.ack_delay_exponent,
            max_ack_delay: parameters.max_ack_delay,
            active_connection_id_limit: parameters.active_connection_id_limit,
            max_data: parameters.max_data,
            max_stream_data_bidi_local: parameters.max_stream_data_bidi_local,
            max_stream_data_bidi_remote: parameters.max_stream_data_bidi_remote,
            max_stream_data_uni: parameters.max_stream_data_uni,
            max_streams_bidi: parameters.max_streams_bidi,
            max_streams_uni: parameters.max_streams_uni,
            disable_active_migration: parameters.disable_active_migration,
            grease_quic_bit: parameters.grease_quic_bit,
        }
    }
}

/// A frame, without the bytes that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they have the names of RFC 9000 section 19")]
pub enum ObservedFrame {
    Padding {
        length: u64,
    },
    Ping,
    Ack {
        /// In descending order.
        ranges: Vec<RangeInclusive<u64>>,
        /// In units of the exponent of its sender.
        delay: u64,
        /// ECT(0), ECT(1) and CE.
        ecn: Option<[u64; 3]>,
    },
    ResetStream {
        stream: StreamId,
        code: u64,
        final_size: u64,
    },
    StopSending {
        stream: StreamId,
        code: u64,
    },
    Crypto {
        offset: u64,
        length: u64,
    },
    NewToken {
        length: u64,
    },
    Stream {
        stream: StreamId,
        offset: u64,
        length: u64,
        fin: bool,
    },
    MaxData(u64),
    MaxStreamData {
        stream: StreamId,
        most: u64,
    },
    MaxStreams {
        direction: Dir,
        most: u64,
    },
    DataBlocked {
        limit: u64,
    },
    StreamDataBlocked {
        stream: StreamId,
        limit: u64,
    },
    StreamsBlocked {
        direction: Dir,
        limit: u64,
    },
    NewConnectionId {
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
    },
    RetireConnectionId {
        sequence: u64,
    },
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    Close {
        by_application: bool,
        code: u64,
        reason: Vec<u8>,
    },
    HandshakeDone,
}

impl ObservedFrame {
    /// The frames of a payload, up to one that cannot be read.
    pub(crate) fn all(payload: &[u8]) -> Vec<Self> {
        let mut frames = Vec::new();
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let before = reader;
            let Ok(frame) = QuicFrame::read(&mut reader) else {
                break;
            };
            let size = (before.remaining() - reader.remaining()) as u64;
            frames.push(Self::of(&frame, size, before));
        }
        frames
    }

    /// A frame of `size` bytes that begins at `at`.
    fn of(frame: &QuicFrame<'_>, size: u64, at: Reader<'_>) -> Self {
        match *frame {
            QuicFrame::Padding => Self::Padding { length: size },
            QuicFrame::Ping => Self::Ping,
            QuicFrame::Ack(ref ack) => Self::of_ack(ack),
            QuicFrame::ResetStream {
                stream,
                code,
                final_size,
            } => Self::ResetStream {
                stream,
                code,
                final_size,
            },
            QuicFrame::StopSending { stream, code } => Self::StopSending { stream, code },
            QuicFrame::Crypto { offset, data } => Self::Crypto {
                offset,
                length: data.len() as u64,
            },
            QuicFrame::NewToken(token) => Self::NewToken {
                length: token.len() as u64,
            },
            QuicFrame::Stream(stream) => Self::Stream {
                stream: stream.stream,
                offset: stream.offset,
                length: stream.data.len() as u64,
                fin: stream.fin,
            },
            QuicFrame::MaxData(most) => Self::MaxData(most),
            QuicFrame::MaxStreamData { stream, most } => Self::MaxStreamData { stream, most },
            QuicFrame::MaxStreams { direction, most } => Self::MaxStreams { direction, most },
            // The connection has no use for the limits of these.
            QuicFrame::DataBlocked => Self::DataBlocked {
                limit: integer(at, 1),
            },
            QuicFrame::StreamDataBlocked(stream) => Self::StreamDataBlocked {
                stream,
                limit: integer(at, 2),
            },
            QuicFrame::StreamsBlocked => Self::StreamsBlocked {
                direction: if integer(at, 0) == crate::frame::kind::STREAMS_BLOCKED_BIDI.into() {
                    Dir::Bi
                } else {
                    Dir::Uni
                },
                limit: integer(at, 1),
            },
            QuicFrame::NewConnectionId(new) => Self::NewConnectionId {
                sequence: new.sequence,
                retire_prior_to: new.retire_prior_to,
                id: new.id,
            },
            QuicFrame::RetireConnectionId(sequence) => Self::RetireConnectionId { sequence },
            QuicFrame::PathChallenge(data) => Self::PathChallenge(data),
            QuicFrame::PathResponse(data) => Self::PathResponse(data),
            QuicFrame::Close {
                by_application,
                code,
                reason,
            } => Self::Close {
                by_application,
                code,
                reason: reason.to_vec(),
            },
            QuicFrame::HandshakeDone => Self::HandshakeDone,
        }
    }

    fn of_ack(ack: &Ack<'_>) -> Self {
        Self::Ack {
            ranges: ack.ranges().collect(),
            delay: ack.delay,
            ecn: ack.ecn.map(|counts| [counts.ect0, counts.ect1, counts.ce]),
        }
    }
}

/// The integer of a frame with this index, of which its type is the first.
fn integer(mut frame: Reader<'_>, index: usize) -> u64 {
    for _ in 0..index {
        frame.integer();
    }
    frame.integer().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{kind, write_integers};

    #[test]
    fn frames_have_what_the_connection_has_no_use_for() {
        let mut payload = Vec::new();
        write_integers(kind::DATA_BLOCKED, [70_000], &mut payload);
        write_integers(kind::STREAM_DATA_BLOCKED, [4, 80_000], &mut payload);
        write_integers(kind::STREAMS_BLOCKED_BIDI, [100], &mut payload);
        write_integers(kind::STREAMS_BLOCKED_UNI, [8], &mut payload);
        payload.extend([kind::PADDING; 5]);
        assert_eq!(
            ObservedFrame::all(&payload),
            [
                ObservedFrame::DataBlocked { limit: 70_000 },
                ObservedFrame::StreamDataBlocked {
                    stream: StreamId::new(Side::Client, Dir::Bi, 1),
                    limit: 80_000
                },
                ObservedFrame::StreamsBlocked {
                    direction: Dir::Bi,
                    limit: 100
                },
                ObservedFrame::StreamsBlocked {
                    direction: Dir::Uni,
                    limit: 8
                },
                ObservedFrame::Padding { length: 5 },
            ]
        );
    }

    #[test]
    fn frames_before_one_that_is_cut_off_are_observed() {
        let payload = [kind::PING, kind::MAX_DATA];
        assert_eq!(ObservedFrame::all(&payload), [ObservedFrame::Ping]);
    }
}
