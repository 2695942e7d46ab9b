//! Handles the frames of request streams (RFC 9114 sections 4.1 and 7.2).

use apus_codec::flood::Flood;
use apus_codec::messages::MessageFault;
use bytes::{Buf, Bytes};

use super::stream::{FrameProgress, Incoming, Outgoing};
use super::{H3Connection, H3Event, H3Role, H3Shutdown, ID_STEP, StreamAction, StreamKey};
use crate::error::{H3Error, H3ErrorCode, H3Fault};
use crate::frame::{FrameKind, FrameStart};

/// Up to this multiple of the limit of a field section, its encoded form is decoded and its sender gets an error
/// response.
const SECTION_SIZE_FACTOR: usize = 2;

/// The encoded form of a field section may always have this many bytes.
const MIN_SECTION_BYTES: usize = 16_384;

/// The encoded forms of the field sections that are incomplete or blocked may together have this many times the bytes
/// of one.
const MAX_BUFFERED_SECTIONS: usize = 16;

impl H3Connection {
    pub(super) fn handle_request_stream(
        &mut self,
        id: u64,
        input: &mut Bytes,
        fin: bool,
    ) -> Result<H3Event, H3Error> {
        let Some(key) = self.find_or_open(id)? else {
            input.clear();
            return Ok(H3Event::Incomplete);
        };
        loop {
            let Some(stream) = self.streams.get_mut(key) else {
                input.clear();
                return Ok(H3Event::Incomplete);
            };
            match stream.incoming {
                Incoming::Discarded => {
                    input.clear();
                    if fin {
                        self.end_receiving(key);
                    }
                    return Ok(H3Event::Incomplete);
                }
                Incoming::Ended => {
                    input.clear();
                    return Ok(H3Event::Incomplete);
                }
                Incoming::Head | Incoming::Body | Incoming::Complete => {}
            }
            match stream.frame {
                FrameProgress::Start => {
                    let mut rest = &input[..];
                    let start = FrameStart::take(&mut stream.buffer, &mut rest);
                    let used = input.len().saturating_sub(rest.len());
                    let is_begun = !stream.buffer.is_empty();
                    input.advance(used);
                    match start {
                        Some(start) => {
                            if let Some(event) = self.begin_frame(key, start)? {
                                return Ok(event);
                            }
                        }
                        // A stream that ends in the middle of a frame is an error of the connection (section 7.1).
                        None if fin && is_begun => return Err(H3Fault::FrameSize.into()),
                        None if fin => return self.end_of_stream(key),
                        None => return Ok(H3Event::Incomplete),
                    }
                }
                FrameProgress::Data(0) | FrameProgress::Skip(0) => {
                    stream.frame = FrameProgress::Start;
                }
                FrameProgress::Data(left) | FrameProgress::Skip(left) => {
                    let available = u64::try_from(input.len()).unwrap_or(u64::MAX);
                    if input.is_empty() {
                        return if fin {
                            Err(H3Fault::FrameSize.into())
                        } else {
                            Ok(H3Event::Incomplete)
                        };
                    }
                    let len =
                        usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                    let data = input.split_to(len);
                    let left = left.saturating_sub(available.min(left));
                    if matches!(stream.frame, FrameProgress::Data(_)) {
                        stream.frame = FrameProgress::Data(left);
                        let is_last = fin && input.is_empty() && left == 0;
                        return Ok(self.read_data(key, data, is_last));
                    }
                    stream.frame = FrameProgress::Skip(left);
                }
                FrameProgress::Section(len) => {
                    // Nearly every section comes in one piece, and is decoded where it is.
                    if stream.buffer.is_empty() && input.len() >= len {
                        let section = input.split_to(len);
                        stream.frame = FrameProgress::Start;
                        return self.read_section(key, &section, fin && input.is_empty());
                    }
                    let missing = len.saturating_sub(stream.buffer.len()).min(input.len());
                    stream.buffer.extend_from_slice(&input.split_to(missing));
                    let is_complete = stream.buffer.len() == len;
                    if !is_complete {
                        self.reserve_section(missing)?;
                        return if fin {
                            Err(H3Fault::FrameSize.into())
                        } else {
                            Ok(H3Event::Incomplete)
                        };
                    }
                    stream.frame = FrameProgress::Start;
                    let section = std::mem::take(&mut stream.buffer);
                    let counted = section.len().saturating_sub(missing);
                    self.buffered = self.buffered.saturating_sub(counted);
                    return self.read_section(key, &section, fin && input.is_empty());
                }
                FrameProgress::Blocked(inserts) if inserts > self.decoder.inserted() => {
                    return Ok(H3Event::Blocked);
                }
                FrameProgress::Blocked(_) => {
                    stream.frame = FrameProgress::Start;
                    let section = std::mem::take(&mut stream.buffer);
                    self.buffered = self.buffered.saturating_sub(section.len());
                    self.blocked.retain(|(blocked, _)| *blocked != id);
                    return self.read_section(key, &section, fin && input.is_empty());
                }
            }
        }
    }

    /// The open stream with this identifier, which is opened if it is new; `None` if it is closed or rejected.
    fn find_or_open(&mut self, id: u64) -> Result<Option<StreamKey>, H3Error> {
        if let Some(key) = self.streams.find(id) {
            return Ok(Some(key));
        }
        // A client opens request streams by sending a request.
        if self.role == H3Role::Client || !self.seen.insert(id / ID_STEP) {
            return Ok(None);
        }
        let is_after_shutdown = matches!(self.shutdown, H3Shutdown::Final(end) if id >= end);
        if is_after_shutdown || self.streams.open_count() >= self.config.max_streams() {
            // A client cannot know of a GOAWAY that is on its way, so these streams cost it nothing.
            if !is_after_shutdown {
                self.budgets.resets.spend()?;
            }
            self.reject(id);
            return Ok(None);
        }
        let stream = self.new_stream(Incoming::Head);
        Ok(Some(self.streams.insert(id, stream)))
    }

    /// Handles the type and the length of a frame.
    fn begin_frame(
        &mut self,
        key: StreamKey,
        start: FrameStart,
    ) -> Result<Option<H3Event>, H3Error> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        match start.kind {
            FrameKind::Data if stream.incoming != Incoming::Body => {
                return Err(H3Fault::UnexpectedFrame.into());
            }
            FrameKind::Data => {
                // Empty frames cost a peer next to nothing and carry nothing (CVE-2019-9518).
                if start.len == 0 {
                    self.budgets.overhead.spend()?;
                }
                stream.body_left = match stream.body_left {
                    Some(left) => match left.checked_sub(start.len) {
                        Some(left) => Some(left),
                        None => {
                            let fault = MessageFault::ContentLength.into();
                            return self.fail_stream(key, fault).map(Some);
                        }
                    },
                    None => None,
                };
                stream.frame = FrameProgress::Data(start.len);
            }
            FrameKind::Headers
                // Only DATA is allowed in a tunnel (section 4.4).
                if stream.incoming == Incoming::Complete
                    || stream.is_tunnel && stream.incoming == Incoming::Body =>
            {
                return Err(H3Fault::UnexpectedFrame.into());
            }
            FrameKind::Headers => {
                let len = usize::try_from(start.len)
                    .ok()
                    .filter(|len| *len <= self.max_section_bytes())
                    .ok_or(Flood::FieldBlock)?;
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.frame = FrameProgress::Section(len);
                }
            }
            // This end sends no MAX_PUSH_ID, so every push is beyond the limit (section 7.2.5).
            FrameKind::PushPromise if self.role == H3Role::Client => {
                return Err(H3Fault::PushId.into());
            }
            FrameKind::PushPromise
            | FrameKind::CancelPush
            | FrameKind::Settings
            | FrameKind::GoAway
            | FrameKind::MaxPushId
            | FrameKind::RequestPriority
            | FrameKind::PushPriority => return Err(H3Fault::UnexpectedFrame.into()),
            FrameKind::Http2 => return Err(H3Fault::Http2Frame.into()),
            FrameKind::Extension => {
                self.budgets.overhead.spend()?;
                stream.frame = FrameProgress::Skip(start.len);
            }
        }
        Ok(None)
    }

    /// Maximum bytes of the encoded form of a field section.
    fn max_section_bytes(&self) -> usize {
        self.config
            .head_bytes
            .saturating_mul(SECTION_SIZE_FACTOR)
            .max(MIN_SECTION_BYTES)
    }

    /// Counts bytes of a field section that is kept.
    pub(super) fn reserve_section(&mut self, bytes: usize) -> Result<(), Flood> {
        self.buffered = self.buffered.saturating_add(bytes);
        let max_bytes = self
            .max_section_bytes()
            .saturating_mul(MAX_BUFFERED_SECTIONS);
        if self.buffered > max_bytes {
            Err(Flood::FieldBlock)
        } else {
            Ok(())
        }
    }

    /// Returns data, which is the last of its stream if `is_last`. The end of a body that is too short is an event of its
    /// own.
    fn read_data(&mut self, key: StreamKey, data: Bytes, is_last: bool) -> H3Event {
        self.budgets.acks.earn(1);
        let left = self.streams.get(key).and_then(|stream| stream.body_left);
        let end = is_last && left.is_none_or(|left| left == 0);
        if end {
            self.end_receiving(key);
        }
        H3Event::Data {
            stream: key,
            data,
            end,
        }
    }

    /// Handles the end of a stream between two frames.
    fn end_of_stream(&mut self, key: StreamKey) -> Result<H3Event, H3Error> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(H3Event::Incomplete);
        };
        match stream.incoming {
            Incoming::Head => {
                let fault = match self.role {
                    H3Role::Server => H3Fault::RequestIncomplete,
                    H3Role::Client => H3Fault::ResponseIncomplete,
                };
                self.fail_stream(key, fault)
            }
            Incoming::Body if stream.body_left.is_some_and(|left| left > 0) => {
                self.fail_stream(key, MessageFault::ContentLength.into())
            }
            Incoming::Body => {
                self.end_receiving(key);
                Ok(H3Event::Data {
                    stream: key,
                    data: Bytes::new(),
                    end: true,
                })
            }
            Incoming::Complete | Incoming::Discarded | Incoming::Ended => {
                self.end_receiving(key);
                Ok(H3Event::Incomplete)
            }
        }
    }

    pub(super) fn handle_request_reset(
        &mut self,
        id: u64,
        code: H3ErrorCode,
    ) -> Result<Option<H3Event>, H3Error> {
        let Some(key) = self.streams.find(id) else {
            // QUIC may deliver a reset before any data of the stream, or without it.
            if self.role == H3Role::Server && self.seen.insert(id / ID_STEP) {
                self.budgets.resets.spend()?;
                self.take_early_priority(id);
                self.decoder.cancel(id);
                let code = H3ErrorCode::REQUEST_CANCELLED;
                self.actions.push_back(StreamAction::Reset { id, code });
            }
            return Ok(None);
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        match stream.incoming {
            // The message was received as a whole.
            Incoming::Ended => return Ok(None),
            Incoming::Complete | Incoming::Discarded => {
                self.end_receiving(key);
                return Ok(None);
            }
            Incoming::Head | Incoming::Body => stream.incoming = Incoming::Ended,
        }
        // A client can only have as many streams reset as it opened itself.
        if self.role == H3Role::Server {
            self.budgets.resets.spend()?;
        }
        self.decoder.cancel(id);
        self.abort(key, H3ErrorCode::REQUEST_CANCELLED);
        Ok(Some(H3Event::Reset { stream: key, code }))
    }

    pub(super) fn handle_request_stop(
        &mut self,
        id: u64,
        code: H3ErrorCode,
    ) -> Result<Option<H3Event>, H3Error> {
        let key = match self.role {
            // The frame may come before any data of the stream, whose request is then of no use.
            H3Role::Server => self.find_or_open(id)?,
            H3Role::Client => self.streams.find(id),
        };
        let Some(key) = key else {
            return Ok(None);
        };
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        if stream.outgoing == Outgoing::Ended {
            return Ok(None);
        }
        if self.role == H3Role::Server {
            self.budgets.resets.spend()?;
            self.abort(key, H3ErrorCode::REQUEST_CANCELLED);
            return Ok(Some(H3Event::Reset { stream: key, code }));
        }
        // Section 4.1.1: the response may be complete without the rest of the request.
        let reset = StreamAction::Reset {
            id,
            code: H3ErrorCode::NO_ERROR,
        };
        self.actions.push_back(reset);
        self.end_sending(key);
        Ok(Some(H3Event::BodyRefused { stream: key, code }))
    }
}
