//! Handles the unidirectional streams of the peer (RFC 9114 sections 6.2 and 7.2, RFC 9218 section 7.2).

use apus_codec::flood::Flood;
use apus_codec::priority::Priority;
use bytes::{Buf, Bytes};

use super::{
    CONTROL_STREAM, DECODER_STREAM, ENCODER_STREAM, H3Connection, H3Event, H3Role, ID_STEP,
    StreamAction,
};
use crate::error::{H3Error, H3ErrorCode, H3Fault};
use crate::frame::{FrameKind, FrameStart};
use crate::settings::H3PeerSettings;
use crate::varint;

/// The type of push streams (section 6.2.2).
const PUSH_STREAM: u8 = 0x1;

/// Maximum bytes of a SETTINGS or PRIORITY_UPDATE frame.
const MAX_PAYLOAD: u64 = 4096;

/// Maximum streams whose priority is kept before they open.
// A client can name any number of streams that it never opens (RFC 9218 section 7).
const MAX_EARLY_PRIORITIES: usize = 64;

/// A unidirectional stream of the peer.
#[derive(Debug)]
pub(super) struct PeerStream {
    id: u64,
    kind: PeerStreamKind,
    /// The received part of the stream type, of a frame's type and length, or of its payload.
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerStreamKind {
    /// Its type was not received yet.
    Untyped,
    Control(ControlProgress),
    QpackEncoder,
    QpackDecoder,
    /// What it carries is ignored.
    Ignored,
}

impl PeerStreamKind {
    /// Whether there is one stream of this kind, which never ends (section 6.2.1, RFC 9204 section 4.2).
    fn is_critical(self) -> bool {
        !matches!(self, Self::Untyped | Self::Ignored)
    }

    fn is_same(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// The place in the frames of the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlProgress {
    /// A type and a length are expected.
    Start,
    /// The payload of a frame is expected.
    Payload(FrameStart),
    /// This many bytes are skipped.
    Skip(u64),
}

impl H3Connection {
    pub(super) fn handle_peer_stream(
        &mut self,
        id: u64,
        input: &mut Bytes,
        fin: bool,
    ) -> Result<H3Event, H3Error> {
        let known = self.peer_streams.iter().position(|stream| stream.id == id);
        let mut stream = match known {
            Some(at) => self.peer_streams.swap_remove(at),
            // It is over, or ignored.
            None if !self.seen_peer_streams.insert(id / ID_STEP) => {
                input.clear();
                return Ok(H3Event::Incomplete);
            }
            None => {
                // Streams of unknown types are allowed in any number (section 6.2.3).
                self.budgets.overhead.spend()?;
                PeerStream {
                    id,
                    kind: PeerStreamKind::Untyped,
                    buffer: Vec::new(),
                }
            }
        };
        if stream.kind == PeerStreamKind::Untyped {
            self.read_stream_type(&mut stream, input)?;
        }
        let event = match stream.kind {
            PeerStreamKind::Control(_) => self.read_control(&mut stream, input)?,
            PeerStreamKind::QpackEncoder => {
                self.read_encoder_stream(input)?;
                H3Event::Incomplete
            }
            PeerStreamKind::QpackDecoder => {
                self.encoder
                    .handle_decoder_stream(input)
                    .map_err(|_| H3Fault::DecoderStream)?;
                H3Event::Incomplete
            }
            PeerStreamKind::Untyped | PeerStreamKind::Ignored => H3Event::Incomplete,
        };
        if !matches!(stream.kind, PeerStreamKind::Control(_)) {
            input.clear();
        }
        let is_at_end = fin && input.is_empty() && matches!(event, H3Event::Incomplete);
        if is_at_end && stream.kind.is_critical() {
            return Err(H3Fault::ClosedCriticalStream.into());
        }
        // The transport stops one that is ignored, and says no more of it.
        if !is_at_end && stream.kind != PeerStreamKind::Ignored {
            self.peer_streams.push(stream);
        }
        Ok(event)
    }

    /// Whether the type of a stream is incomplete.
    pub(super) fn is_untyped(&self, id: u64) -> bool {
        let mut streams = self.peer_streams.iter();
        streams.any(|stream| stream.id == id && stream.kind == PeerStreamKind::Untyped)
    }

    /// Ignores what comes on a stream whose type did not come.
    pub(super) fn ignore_peer_stream(&mut self, id: u64) {
        self.seen_peer_streams.insert(id / ID_STEP);
        self.actions.push_back(StreamAction::StopSending {
            id,
            code: H3ErrorCode::STREAM_CREATION_ERROR,
        });
    }

    pub(super) fn handle_peer_stream_reset(&mut self, id: u64) -> Result<(), H3Error> {
        let known = self.peer_streams.iter().position(|stream| stream.id == id);
        let stream = known.map(|at| self.peer_streams.swap_remove(at));
        if stream.is_some_and(|stream| stream.kind.is_critical()) {
            Err(H3Fault::ClosedCriticalStream.into())
        } else {
            Ok(())
        }
    }

    fn read_stream_type(
        &mut self,
        stream: &mut PeerStream,
        input: &mut Bytes,
    ) -> Result<(), H3Error> {
        let missing = varint::MAX_BYTES.saturating_sub(stream.buffer.len());
        let before = stream.buffer.len();
        let added = input.get(..missing.min(input.len())).unwrap_or_default();
        stream.buffer.extend_from_slice(added);
        let mut rest = stream.buffer.as_slice();
        let Some(number) = varint::take(&mut rest) else {
            return Ok(());
        };
        let used = stream.buffer.len().saturating_sub(rest.len());
        input.advance(used.saturating_sub(before).min(input.len()));
        stream.buffer.clear();
        stream.kind = match u8::try_from(number) {
            Ok(CONTROL_STREAM) => PeerStreamKind::Control(ControlProgress::Start),
            Ok(ENCODER_STREAM) => PeerStreamKind::QpackEncoder,
            Ok(DECODER_STREAM) => PeerStreamKind::QpackDecoder,
            // A client never pushes, and a client that sends no MAX_PUSH_ID allows no push (section 4.6).
            Ok(PUSH_STREAM) => {
                return Err(match self.role {
                    H3Role::Server => H3Fault::ClientPush,
                    H3Role::Client => H3Fault::PushId,
                }
                .into());
            }
            _ => {
                // Section 6.2.3.
                self.actions.push_back(StreamAction::StopSending {
                    id: stream.id,
                    code: H3ErrorCode::STREAM_CREATION_ERROR,
                });
                PeerStreamKind::Ignored
            }
        };
        let mut others = self.peer_streams.iter();
        if stream.kind.is_critical() && others.any(|other| other.kind.is_same(stream.kind)) {
            return Err(H3Fault::SecondCriticalStream.into());
        }
        Ok(())
    }

    fn read_encoder_stream(&mut self, input: &[u8]) -> Result<(), H3Error> {
        let inserts = self
            .decoder
            .handle_encoder_stream(input)
            .map_err(|_| H3Fault::EncoderStream)?;
        // Each of them makes this end acknowledge it (RFC 9204 section 4.4.3).
        for _ in 0..inserts {
            self.budgets.acks.spend()?;
        }
        let inserted = self.decoder.inserted();
        let before = inserted.saturating_sub(inserts);
        for (id, required) in &self.blocked {
            // Only those that wait for one of these inserts, so that each stream is resumed once.
            if (before.saturating_add(1)..=inserted).contains(required) {
                self.actions.push_back(StreamAction::Resume { id: *id });
            }
        }
        Ok(())
    }

    /// Reads the frames of the control stream up to the first event.
    fn read_control(
        &mut self,
        stream: &mut PeerStream,
        input: &mut Bytes,
    ) -> Result<H3Event, H3Error> {
        while let PeerStreamKind::Control(progress) = stream.kind {
            let next = match progress {
                ControlProgress::Start => {
                    let mut rest = &input[..];
                    let start = FrameStart::take(&mut stream.buffer, &mut rest);
                    input.advance(input.len().saturating_sub(rest.len()));
                    let Some(start) = start else {
                        return Ok(H3Event::Incomplete);
                    };
                    self.begin_control_frame(start)?
                }
                ControlProgress::Skip(0) => ControlProgress::Start,
                ControlProgress::Skip(left) => {
                    if input.is_empty() {
                        return Ok(H3Event::Incomplete);
                    }
                    let available = u64::try_from(input.len()).unwrap_or(u64::MAX);
                    let skipped = available.min(left);
                    input.advance(usize::try_from(skipped).unwrap_or(0));
                    ControlProgress::Skip(left.saturating_sub(skipped))
                }
                ControlProgress::Payload(start) => {
                    let len = usize::try_from(start.len).unwrap_or(usize::MAX);
                    let missing = len.saturating_sub(stream.buffer.len()).min(input.len());
                    stream.buffer.extend_from_slice(&input.split_to(missing));
                    if stream.buffer.len() < len {
                        return Ok(H3Event::Incomplete);
                    }
                    stream.kind = PeerStreamKind::Control(ControlProgress::Start);
                    let payload = std::mem::take(&mut stream.buffer);
                    match self.handle_control_frame(start.kind, &payload)? {
                        Some(event) => return Ok(event),
                        None => ControlProgress::Start,
                    }
                }
            };
            stream.kind = PeerStreamKind::Control(next);
        }
        Ok(H3Event::Incomplete)
    }

    /// Handles the type and the length of a frame.
    fn begin_control_frame(&mut self, start: FrameStart) -> Result<ControlProgress, H3Error> {
        let is_first = self.peer.is_none();
        let max_bytes = match start.kind {
            // Types that HTTP/2 has and HTTP/3 has not are reserved: a peer sends them that takes one for the other
            // (section 7.2.8).
            FrameKind::Http2 => return Err(H3Fault::Http2Frame.into()),
            FrameKind::Settings if is_first => MAX_PAYLOAD,
            _ if is_first => return Err(H3Fault::MissingSettings.into()),
            FrameKind::Extension => {
                self.budgets.overhead.spend()?;
                // Nothing of it is kept, so its length needs no limit.
                return Ok(ControlProgress::Skip(start.len));
            }
            FrameKind::MaxPushId | FrameKind::RequestPriority | FrameKind::PushPriority
                if self.role == H3Role::Client =>
            {
                return Err(H3Fault::UnexpectedFrame.into());
            }
            FrameKind::RequestPriority | FrameKind::PushPriority => MAX_PAYLOAD,
            FrameKind::GoAway | FrameKind::CancelPush | FrameKind::MaxPushId => {
                // One integer.
                if !matches!(start.len, 1..=8) {
                    return Err(H3Fault::FrameSize.into());
                }
                MAX_PAYLOAD
            }
            FrameKind::Data | FrameKind::Headers | FrameKind::PushPromise | FrameKind::Settings => {
                return Err(H3Fault::UnexpectedFrame.into());
            }
        };
        if start.len > max_bytes {
            return Err(Flood::Overhead.into());
        }
        // SETTINGS comes once, and has to come.
        if !is_first {
            self.budgets.overhead.spend()?;
        }
        Ok(ControlProgress::Payload(start))
    }

    fn handle_control_frame(
        &mut self,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<Option<H3Event>, H3Error> {
        if kind == FrameKind::Settings {
            let settings = H3PeerSettings::parse(payload)?;
            self.encoder.set_peer_table_bytes(settings.table_bytes);
            self.peer = Some(settings);
            return Ok(Some(H3Event::Settings));
        }
        let mut rest = payload;
        let id = varint::take(&mut rest).ok_or(H3Fault::FrameSize)?;
        if kind == FrameKind::RequestPriority {
            return self.handle_priority_update(id, rest);
        }
        if kind == FrameKind::PushPriority {
            // This end pushes nothing.
            return Err(H3Fault::PriorityUpdate.into());
        }
        if !rest.is_empty() {
            return Err(H3Fault::FrameSize.into());
        }
        match kind {
            FrameKind::GoAway => {
                let is_request = id.is_multiple_of(ID_STEP);
                let is_greater = self.peer_go_away.is_some_and(|before| id > before);
                // The identifiers of one GOAWAY after another must not grow (section 5.2).
                if is_greater || self.role == H3Role::Client && !is_request {
                    return Err(H3Fault::GoAwayId.into());
                }
                self.peer_go_away = Some(id);
                Ok(Some(H3Event::GoAway { id }))
            }
            FrameKind::MaxPushId => {
                // A limit of pushes cannot be taken back (section 7.2.7).
                if self.max_push_id.is_some_and(|before| id < before) {
                    return Err(H3Fault::MaxPushId.into());
                }
                self.max_push_id = Some(id);
                Ok(None)
            }
            // CANCEL_PUSH: nothing was pushed.
            _ => Err(H3Fault::PushId.into()),
        }
    }

    /// Changes the priority of a stream, or keeps it until the stream opens.
    fn handle_priority_update(
        &mut self,
        id: u64,
        value: &[u8],
    ) -> Result<Option<H3Event>, H3Error> {
        // Only the identifier of a request stream is allowed here (RFC 9218 section 7.2).
        if !id.is_multiple_of(ID_STEP) {
            return Err(H3Fault::PriorityUpdate.into());
        }
        let priority = Priority::parse(value);
        let is_seen = self.seen.contains(id / ID_STEP);
        let Some(key) = self.streams.find(id) else {
            // An update for a stream that is closed is only late, and no error.
            if !is_seen {
                self.keep_early_priority(id, priority);
            }
            return Ok(None);
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        if stream.incoming == super::Incoming::Head {
            // The head would replace it.
            self.keep_early_priority(id, priority);
            return Ok(None);
        }
        if stream.is_scheduled {
            self.schedule.remove(key, stream.priority);
            self.schedule.insert(key, priority);
        }
        stream.priority = priority;
        Ok(Some(H3Event::PriorityUpdate { stream: key }))
    }

    fn keep_early_priority(&mut self, id: u64, priority: Priority) {
        // The last update counts.
        self.take_early_priority(id);
        if self.early_priorities.len() >= MAX_EARLY_PRIORITIES {
            self.early_priorities.pop_front();
        }
        self.early_priorities.push_back((id, priority));
    }

    /// Removes the priority that was received before the head of a stream.
    pub(super) fn take_early_priority(&mut self, id: u64) -> Option<Priority> {
        let mut priorities = self.early_priorities.iter();
        let at = priorities.position(|(stream, _)| *stream == id)?;
        let (_, priority) = self.early_priorities.remove(at)?;
        Some(priority)
    }
}
