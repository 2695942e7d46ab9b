//! What is remembered of the frames of a sent packet.

use std::ops::Range;

use crate::streams::{StreamControl, StreamRecord};

/// No stream, and no packet number.
const NONE: u64 = u64::MAX;

/// The frames of a sent packet. Packets with one STREAM frame need no memory beside it.
#[derive(Debug)]
pub(crate) struct SentFrames {
    // Sentinels in place of an `Option` keep the record small: the ring has one for each packet in flight.
    stream: StreamRecord,
    /// The largest packet number of the ACK frame.
    largest_acknowledged: u64,
    others: Option<Box<OtherFrames>>,
}

/// Frames that most packets do not have.
#[derive(Debug, Default)]
pub(crate) struct OtherFrames {
    /// STREAM frames after the first.
    pub(crate) streams: Vec<StreamRecord>,
    pub(crate) stream_controls: Vec<StreamControl>,
    pub(crate) controls: Vec<Control>,
    /// Data of CRYPTO frames.
    pub(crate) crypto: Vec<Range<u64>>,
}

/// A frame that concerns no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    HandshakeDone,
    NewToken,
    NewConnectionId(u64),
    RetireConnectionId(u64),
    PathChallenge,
}

impl Default for SentFrames {
    fn default() -> Self {
        Self {
            stream: StreamRecord {
                stream: NONE,
                offset: 0,
                length: 0,
                fin: false,
            },
            largest_acknowledged: NONE,
            others: None,
        }
    }
}

impl SentFrames {
    /// Adds a STREAM frame.
    #[inline]
    pub(crate) fn push_stream(&mut self, record: StreamRecord) {
        match self.stream.stream {
            NONE => self.stream = record,
            _ => self.others().streams.push(record),
        }
    }

    pub(crate) fn set_acknowledged(&mut self, largest: u64) {
        self.largest_acknowledged = largest;
    }

    /// The largest packet number of the ACK frame.
    #[inline]
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        (self.largest_acknowledged != NONE).then_some(self.largest_acknowledged)
    }

    /// The first STREAM frame.
    #[inline]
    pub(crate) fn stream(&self) -> Option<StreamRecord> {
        (self.stream.stream != NONE).then_some(self.stream)
    }

    /// The frames that most packets do not have, to add some.
    pub(crate) fn others(&mut self) -> &mut OtherFrames {
        self.others.get_or_insert_default()
    }

    /// The frames that most packets do not have.
    #[inline]
    pub(crate) fn take_others(self) -> Option<Box<OtherFrames>> {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::SentPacket;

    #[test]
    fn a_sent_packet_takes_little_memory() {
        assert!(size_of::<SentPacket<SentFrames>>() <= 72);
    }

    #[test]
    fn the_first_stream_frame_needs_no_memory() {
        let record = |stream| StreamRecord {
            stream,
            offset: 1,
            length: 2,
            fin: true,
        };
        let mut frames = SentFrames::default();
        assert_eq!((frames.stream(), frames.acknowledged()), (None, None));
        frames.push_stream(record(4));
        assert!(frames.others.is_none());
        frames.push_stream(record(8));
        assert_eq!(frames.stream(), Some(record(4)));
        assert_eq!(frames.take_others().unwrap().streams, [record(8)]);
    }
}
