//! An application on one of the ends: what it wants, and what it sees.

use std::collections::{BTreeMap, BTreeSet};

use apus_quic_protocol::{Dir, Side};
use bytes::Bytes;

use super::ends::{End, Event, ReadResult, WriteResult};

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The application of the peer closed it.
    Application(u64),
    /// The transport of the peer closed it.
    Peer(u64),
    Reset,
    TimedOut,
    /// An error that this end has found.
    Own(String),
}

/// A half that this end writes.
#[derive(Clone, Debug, Default)]
struct Sending {
    written: usize,
    is_finished: bool,
    reset: Option<u64>,
    /// The code of STOP_SENDING.
    stopped: Option<u64>,
    /// What the connection does not take yet.
    unsent: usize,
    has_sent_end: bool,
}

/// A half that this end reads.
#[derive(Clone, Debug, Default)]
struct Receiving {
    data: Vec<u8>,
    is_finished: bool,
    reset: Option<u64>,
    stop: Option<u64>,
}

pub(crate) struct Application {
    pub(crate) side: Side,
    pub(crate) end: Box<dyn End>,
    pub(crate) is_connected: bool,
    pub(crate) ending: Option<Ending>,
    pub(crate) has_closed: bool,
    sending: BTreeMap<u64, Sending>,
    receiving: BTreeMap<u64, Receiving>,
}

/// The bytes of a stream from this position on.
fn data(stream: u64, from: usize, length: usize) -> Bytes {
    (from..from + length)
        .map(|at| (at ^ (at >> 8) ^ (stream as usize * 37)) as u8)
        .collect()
}

fn is_bidirectional(stream: u64) -> bool {
    stream & 2 == 0
}

fn is_of(side: Side, stream: u64) -> bool {
    stream & 1 == side as u64
}

impl Application {
    pub(crate) fn new(side: Side, end: Box<dyn End>) -> Self {
        Self {
            side,
            end,
            is_connected: false,
            ending: None,
            has_closed: false,
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
        }
    }

    /// Handles events. What they do not announce is not tried, so that a missing one is found out.
    pub(crate) fn settle(&mut self) {
        let mut readable = BTreeSet::new();
        while let Some(event) = self.end.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::Ended(ending) => {
                    assert!(self.ending.is_none(), "it ends twice");
                    self.ending = Some(ending);
                }
                Event::Opened(stream) => {
                    assert!(!is_of(self.side, stream), "it is its own: {stream}");
                    let before = self.receiving.insert(stream, Receiving::default());
                    assert!(before.is_none(), "{stream} is opened twice");
                    if is_bidirectional(stream) {
                        self.sending.insert(stream, Sending::default());
                    }
                    readable.insert(stream);
                }
                Event::Readable(stream) => {
                    readable.insert(stream);
                }
                Event::Writable(stream) => self.send(stream),
                Event::Stopped { stream, code } => {
                    let sending = self.sending.get_mut(&stream).unwrap();
                    assert_eq!(sending.stopped, None, "it is stopped twice");
                    sending.stopped = Some(code);
                    sending.unsent = 0;
                    // RFC 9000 section 3.5. Ours has done so; in quinn it is done by the application.
                    self.end.reset(stream, code);
                }
            }
        }
        for stream in readable {
            self.read(stream);
        }
    }

    fn read(&mut self, stream: u64) {
        let receiving = self.receiving.get_mut(&stream).unwrap();
        if receiving.stop.is_some() || receiving.is_finished || receiving.reset.is_some() {
            return;
        }
        match self.end.read(stream, &mut receiving.data) {
            ReadResult::Blocked => {}
            ReadResult::Finished => receiving.is_finished = true,
            ReadResult::Reset(code) => receiving.reset = Some(code),
            ReadResult::Closed => panic!("{stream} is closed for reading"),
        }
    }

    fn send(&mut self, stream: u64) {
        let sending = self.sending.get_mut(&stream).unwrap();
        if sending.reset.is_some() || sending.stopped.is_some() {
            return;
        }
        if sending.unsent > 0 {
            let from = sending.written - sending.unsent;
            let mut rest = data(stream, from, sending.unsent);
            match self.end.write(stream, &mut rest) {
                WriteResult::Taken => sending.unsent = rest.len(),
                // The event follows.
                WriteResult::Stopped => return,
                WriteResult::Closed => panic!("{stream} is closed for writing"),
            }
        }
        if sending.unsent == 0 && sending.is_finished && !sending.has_sent_end {
            sending.has_sent_end = true;
            self.end.finish(stream);
        }
    }

    pub(crate) fn open(&mut self, direction: Dir) {
        let Some(stream) = self.end.open(direction) else {
            return;
        };
        self.sending.insert(stream, Sending::default());
        if is_bidirectional(stream) {
            self.receiving.insert(stream, Receiving::default());
        }
    }

    fn chosen(&self, number: u8) -> Option<u64> {
        let number = usize::from(number) % self.sending.len().max(1);
        self.sending.keys().nth(number).copied()
    }

    pub(crate) fn write(&mut self, number: u8, size: usize) {
        let Some(stream) = self.chosen(number) else {
            return;
        };
        let sending = self.sending.get_mut(&stream).unwrap();
        if sending.is_finished || sending.reset.is_some() || sending.stopped.is_some() {
            return;
        }
        // What waits is written by the event.
        let is_blocked = sending.unsent > 0;
        sending.written += size;
        sending.unsent += size;
        if !is_blocked {
            self.send(stream);
        }
    }

    pub(crate) fn finish(&mut self, number: u8) {
        let Some(stream) = self.chosen(number) else {
            return;
        };
        let sending = self.sending.get_mut(&stream).unwrap();
        if sending.reset.is_some() || sending.stopped.is_some() {
            return;
        }
        sending.is_finished = true;
        if sending.unsent == 0 {
            self.send(stream);
        }
    }

    pub(crate) fn reset(&mut self, number: u8, code: u64) {
        let Some(stream) = self.chosen(number) else {
            return;
        };
        let sending = self.sending.get_mut(&stream).unwrap();
        if sending.reset.is_some() || sending.stopped.is_some() {
            return;
        }
        // It may be over: then nothing changes.
        if self.end.reset(stream, code) {
            sending.reset = Some(code);
            sending.unsent = 0;
        }
    }

    pub(crate) fn stop(&mut self, number: u8, code: u64) {
        let number = usize::from(number) % self.receiving.len().max(1);
        let Some((stream, receiving)) = self.receiving.iter_mut().nth(number) else {
            return;
        };
        if receiving.stop.is_none()
            && !receiving.is_finished
            && receiving.reset.is_none()
            && self.end.stop(*stream, code)
        {
            receiving.stop = Some(code);
        }
    }

    /// Whether this end has seen all that the other one has written.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        other.sending.iter().all(|(stream, sent)| {
            let Some(seen) = self.receiving.get(stream) else {
                // An opened stream without data sends nothing.
                return sent.written == 0 && !sent.is_finished && sent.reset.is_none();
            };
            if seen.stop.is_some() {
                sent.stopped.is_some() || sent.reset.is_some() || sent.has_sent_end
            } else if sent.reset.is_some() {
                seen.reset.is_some() || seen.is_finished
            } else {
                seen.data.len() == sent.written && seen.is_finished == sent.is_finished
            }
        })
    }

    /// Compares what the other end has written with what this one has read.
    pub(crate) fn compare(&self, other: &Self, is_settled: bool) {
        for (stream, seen) in &self.receiving {
            let context = format!("stream {stream} to {:?}: {seen:?}", self.side);
            let Some(sent) = other.sending.get(stream) else {
                // The other end has not seen it yet.
                assert!(
                    is_of(self.side, *stream) && seen.data.is_empty() && !seen.is_finished,
                    "{context}"
                );
                continue;
            };
            assert!(
                seen.data.len() <= sent.written && seen.data == data(*stream, 0, seen.data.len()),
                "not what was sent, {sent:?}"
            );
            if seen.is_finished {
                assert!(
                    sent.is_finished && seen.data.len() == sent.written,
                    "the final size: {context}"
                );
            }
            if let Some(code) = seen.reset {
                assert!(Some(code) == sent.reset, "the code of a reset: {context}");
            }
            if let Some(code) = sent.stopped {
                assert!(
                    Some(code) == seen.stop,
                    "the code of STOP_SENDING: {context}"
                );
            }
        }
        if !is_settled {
            return;
        }
        for (stream, sent) in &other.sending {
            let Some(seen) = self.receiving.get(stream) else {
                assert!(
                    sent.written == 0 && !sent.is_finished && sent.reset.is_none(),
                    "stream {stream} never came to {:?}",
                    self.side
                );
                continue;
            };
            let size = seen.data.len();
            let what = format!(
                "stream {stream} to {:?}, {size} bytes, finished {}, reset {:?}, stop {:?}; {sent:?}",
                self.side, seen.is_finished, seen.reset, seen.stop
            );
            if seen.stop.is_some() {
                // Data that has arrived before makes STOP_SENDING needless (RFC 9000 section 3.5).
                assert!(
                    sent.stopped.is_some() || sent.reset.is_some() || sent.has_sent_end,
                    "STOP_SENDING is lost: {what}"
                );
            } else if sent.reset.is_some() {
                // All may have arrived before the reset (section 3.2).
                assert!(seen.reset.is_some() || seen.is_finished, "{what}");
            } else {
                assert!(
                    size == sent.written && seen.is_finished == sent.is_finished,
                    "{what}"
                );
            }
        }
    }
}
