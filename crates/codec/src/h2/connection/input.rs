//! What each frame of the peer does (RFC 9113 section 6, RFC 9218 section 7.1).

use super::{
    BLOCK_EXCESS, Block, CONTINUATIONS, Connection, Ending, Event, GOODBYE, KEEP_ALIVE, Opening,
    Reading, RequestHead, Role, SAMPLE,
};
use crate::h2::frame::{self, FrameHeader, HEADER, Kind, PAYLOAD_ALWAYS, PREFACE};
use crate::h2::head::{FieldReader, ReadRequest, ReadResponse, Section, Unusable};
use crate::h2::priority::Priority;
use crate::h2::schedule::Schedule;
use crate::h2::settings::{self};
use crate::h2::streams::{Receiving, RequestKind, Stream, Turn};
use crate::h2::{ConnectionError, ErrorCode, Fault, Flood, StreamKey};
use apus_http::Headers;
use http::StatusCode;

impl Connection {
    /// Takes one thing from the input: `None` and nothing used means that more is needed.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        match self.reading {
            Reading::Failed(error) => return Err(error),
            Reading::Preface(seen) => {
                let expected = PREFACE.get(seen..).unwrap_or_default();
                let len = expected.len().min(input.len());
                if expected.get(..len) != input.get(..len) {
                    return Err(Fault::Preface.into());
                }
                self.reading = match len == expected.len() {
                    true => Reading::FirstFrame,
                    false => Reading::Preface(seen.saturating_add(len)),
                };
                return Ok((len, None));
            }
            Reading::Data {
                stream,
                left,
                padding,
                end,
            } => return Ok(self.data(stream, (left, padding), end, input, out)),
            Reading::FirstFrame | Reading::Frame | Reading::Block(_) => {}
        }
        let Some(frame) = FrameHeader::read(input) else {
            return Ok((0, None));
        };
        if matches!(self.reading, Reading::FirstFrame) && frame.kind != Kind::Settings {
            return Err(Fault::FirstFrame.into());
        }
        if frame.len > self.config.payload_most() {
            return Err(Fault::FrameSize.into());
        }
        if matches!(self.reading, Reading::Block(_)) && frame.kind != Kind::Continuation {
            return Err(Fault::Interleaved.into());
        }
        if frame.kind == Kind::Data {
            return self.begin_data(frame, input, out);
        }
        let whole = frame.len.saturating_add(HEADER);
        let Some(payload) = input.get(HEADER..whole) else {
            return Ok((0, None));
        };
        let event = match frame.kind {
            Kind::Headers => self.headers(frame, payload, out),
            Kind::Continuation => self.continuation(frame, payload, out),
            Kind::Settings => self.settings(frame, payload, out).map(|()| None),
            Kind::WindowUpdate => self.window_update(frame, payload, out),
            Kind::RstStream => self.rst_stream(frame, payload, out),
            Kind::Ping => self.handle_ping(frame, payload, out).map(|()| None),
            Kind::GoAway => self.handle_go_away(frame, payload),
            Kind::Priority => self.handle_priority(frame, payload, out),
            Kind::PriorityUpdate => self.priority_update(frame, payload).map(|()| None),
            Kind::PushPromise => Err(Fault::Push.into()),
            Kind::Data | Kind::Unknown => {
                self.budgets.idle.spend()?;
                Ok(None)
            }
        }?;
        Ok((whole, event))
    }

    // DATA (section 6.1)

    fn begin_data(
        &mut self,
        frame: FrameHeader,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event>), ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let (mut used, mut left, mut padding) = (HEADER, frame.len, 0);
        if frame.has(frame::PADDED) {
            let Some(len) = input.get(HEADER) else {
                // Without this, a frame that ends before its padding would wait for ever.
                return match frame.len {
                    0 => Err(Fault::FrameSize.into()),
                    _ => Ok((0, None)),
                };
            };
            used = used.saturating_add(1);
            padding = usize::from(*len);
            left = left
                .checked_sub(1)
                .ok_or(Fault::FrameSize)?
                .checked_sub(padding)
                .ok_or(Fault::Padding)?;
        }
        let whole = u32::try_from(frame.len).unwrap_or(u32::MAX);
        if !self.receive.take(whole) {
            return Err(Fault::WindowExceeded.into());
        }
        let end = frame.has(frame::END_STREAM);
        // On a stream that we reset, the end of the content is news to nobody either.
        if left == 0 && (!end || self.forgotten.holds(frame.stream)) {
            self.budgets.idle.spend()?;
        }
        let overhead = u32::try_from(frame.len.saturating_sub(left)).unwrap_or(u32::MAX);
        let mut stream = self.find(frame.stream)?;
        let mut event = None;
        if let Some(key) = stream
            && let Some(known) = self.streams.get_mut(key)
        {
            if known.receive_window < i32::try_from(whole).unwrap_or(i32::MAX) {
                return Err(Fault::WindowExceeded.into());
            }
            let content = u64::try_from(left).unwrap_or(u64::MAX);
            let fault = match (known.receiving, known.content_left) {
                (Receiving::Ended, _) => Some(Fault::StreamClosed),
                (Receiving::Head, _) => Some(Fault::PseudoField),
                (_, Some(expected)) if content > expected || (end && content < expected) => {
                    Some(Fault::ContentLength)
                }
                _ => None,
            };
            if let Some(fault) = fault {
                event = Some(self.malformed(key, fault, out)?);
                stream = None;
            } else {
                known.receive_window = known
                    .receive_window
                    .saturating_sub(i32::try_from(whole).unwrap_or(i32::MAX));
                known.content_left = known
                    .content_left
                    .map(|expected| expected.saturating_sub(content));
                known.give_back(key.id(), overhead, self.receive.stream_target(), out);
                if known.receiving == Receiving::Discarded {
                    // It is thrown away, and nobody hears of it.
                    if end {
                        self.end_receiving(key, out);
                    }
                    stream = None;
                }
            }
        } else if !self.forgotten.holds(frame.stream) {
            self.budgets.resets.spend()?;
            frame::rst_stream(frame.stream, ErrorCode::STREAM_CLOSED, out);
        }
        if stream.is_some() {
            self.budgets.answers.earn(1);
            if self.receive.count(whole) {
                frame::ping(SAMPLE, false, out);
            }
        }
        self.receive.used(overhead, out);
        if left == 0 && padding == 0 && !(end && stream.is_some()) {
            self.reading = Reading::Frame;
        } else {
            self.reading = Reading::Data {
                stream,
                left,
                padding,
                end,
            };
        }
        Ok((used, event))
    }

    fn data(
        &mut self,
        stream: Option<StreamKey>,
        (left, padding): (usize, usize),
        end: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, Option<Event>) {
        let stream = stream.filter(|key| self.streams.get(*key).is_some());
        let len = left.min(input.len());
        let left = left.saturating_sub(len);
        let skipped = match left {
            0 => padding.min(input.len().saturating_sub(len)),
            _ => 0,
        };
        let padding = padding.saturating_sub(skipped);
        let is_last = left == 0;
        self.reading = match is_last && padding == 0 {
            true => Reading::Frame,
            false => Reading::Data {
                // The end was told with the last of the content.
                stream: stream.filter(|_| !is_last),
                left,
                padding,
                end,
            },
        };
        let used = len.saturating_add(skipped);
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(key) = stream else {
            // Nobody will report it as used.
            self.receive.used(bytes, out);
            return (used, None);
        };
        let end = end && is_last;
        if len == 0 && !end {
            return (used, None);
        }
        if let Some(known) = self.streams.get_mut(key) {
            known.unread = known.unread.saturating_add(bytes);
        }
        if end {
            self.end_receiving(key, out);
        }
        let event = Event::Data {
            stream: key,
            range: 0..len,
            end,
        };
        (used, Some(event))
    }

    // HEADERS and CONTINUATION (sections 6.2 and 6.10)

    fn headers(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        if frame.has(frame::PADDED) && payload.is_empty() {
            return Err(Fault::FrameSize.into());
        }
        let mut block = frame::without_padding(frame, payload).ok_or(Fault::Padding)?;
        if frame.has(frame::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Fault::FrameSize)?;
            let [dependency @ .., _weight] = *priority;
            if frame::identifier(dependency) == frame.stream {
                return Err(Fault::SelfDependency.into());
            }
            block = rest;
        }
        let opening = Opening {
            stream: frame.stream,
            end: frame.has(frame::END_STREAM),
        };
        if frame.has(frame::END_HEADERS) {
            return self.section(opening, block, out);
        }
        self.reading = Reading::Block(Box::new(Block {
            opening,
            bytes: block.to_vec(),
            frames: 0,
        }));
        self.block_in_bounds()?;
        Ok(None)
    }

    fn continuation(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let Reading::Block(block) = &mut self.reading else {
            return Err(Fault::Continuation.into());
        };
        if block.opening.stream != frame.stream {
            return Err(Fault::Interleaved.into());
        }
        block.bytes.extend_from_slice(payload);
        block.frames = block.frames.saturating_add(1);
        self.block_in_bounds()?;
        if !frame.has(frame::END_HEADERS) {
            return Ok(None);
        }
        let Reading::Block(block) = std::mem::replace(&mut self.reading, Reading::Frame) else {
            return Err(Fault::Continuation.into());
        };
        self.section(block.opening, &block.bytes, out)
    }

    fn block_in_bounds(&self) -> Result<(), Flood> {
        let most = self.config.head_bytes.saturating_mul(BLOCK_EXCESS);
        match &self.reading {
            Reading::Block(block)
                if block.bytes.len() > most.max(PAYLOAD_ALWAYS) || block.frames > CONTINUATIONS =>
            {
                Err(Flood::FieldBlock)
            }
            _ => Ok(()),
        }
    }

    /// Takes a whole field block. Whatever it is for, it has to be decoded, as what follows is
    /// compressed with what it leaves in the table.
    fn section(
        &mut self,
        opening: Opening,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let is_from_opener = self.role == Role::Server;
        let known = self.streams.find(opening.stream);
        let section = match (known.and_then(|key| self.streams.get(key)), self.role) {
            (None, Role::Server) => Section::Request,
            (Some(stream), Role::Client) if stream.receiving == Receiving::Head => {
                Section::Response
            }
            _ => Section::Trailers,
        };
        let is_new = known.is_none() && is_from_opener && opening.stream > self.last_peer;
        if is_new && opening.stream.is_multiple_of(2) {
            return Err(Fault::StreamIdentifier.into());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reader = FieldReader::new(section, &self.config, &mut scratch, block.len());
        let decoded = self.decoder.decode(block, |field| reader.take(field));
        if decoded.is_err() {
            return Err(Fault::Compression.into());
        }
        if reader.is_bomb() {
            return Err(Flood::FieldBlock.into());
        }
        let event = match (section, known) {
            (Section::Request, _) if is_new => {
                let request = reader.into_request();
                self.request(opening, request, out)
            }
            (Section::Response, Some(key)) => {
                let response = reader.into_response();
                self.response(key, opening, response, out)
            }
            (Section::Trailers, Some(key)) => {
                let trailers = reader.into_trailers();
                self.trailers(key, opening, trailers, out)
            }
            _ => {
                self.closed_section(opening)?;
                Ok(None)
            }
        };
        self.scratch = scratch;
        event
    }

    /// A field block for a stream that is not open.
    fn closed_section(&mut self, opening: Opening) -> Result<(), ConnectionError> {
        let is_ours = !opening.stream.is_multiple_of(2) && self.role == Role::Client;
        if is_ours && opening.stream >= self.next_local {
            return Err(Fault::IdleStream.into());
        }
        if self.role == Role::Client && !is_ours {
            return Err(Fault::StreamIdentifier.into());
        }
        if self.forgotten.holds(opening.stream) {
            self.budgets.idle.spend()?;
            return Ok(());
        }
        let fault = match self.forgotten.ended(opening.stream) {
            true => Fault::StreamClosed,
            false => Fault::StreamIdentifier,
        };
        Err(fault.into())
    }

    fn request(
        &mut self,
        opening: Opening,
        request: Result<ReadRequest, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        self.last_peer = opening.stream;
        self.budgets.idle.earn(4);
        let is_past = matches!(self.ending, Ending::Final(last) if opening.stream > last);
        if is_past || self.streams.open() >= self.config.streams_most() {
            if !is_past {
                self.budgets.resets.spend()?;
            }
            self.forgotten.add(opening.stream);
            frame::rst_stream(opening.stream, ErrorCode::REFUSED_STREAM, out);
            return Ok(None);
        }
        let request = match request {
            Ok(request) if opening.end && request.content_length.is_some_and(|len| len > 0) => {
                Err(Unusable::Malformed(Fault::ContentLength))
            }
            request => request,
        };
        let end = opening.end;
        match request {
            Ok(request) => {
                let receiving = if end {
                    Receiving::Ended
                } else {
                    Receiving::Content
                };
                let stream = self.streams.insert(
                    opening.stream,
                    Stream {
                        content_left: request.content_length,
                        priority: request.priority,
                        request: request.kind,
                        ..self.fresh(receiving)
                    },
                );
                Ok(Some(Event::Request(RequestHead {
                    stream,
                    head: request.head,
                    end,
                    content_length: request.content_length,
                    expects_continue: request.expects_continue && !end,
                    is_tunnel: request.kind == RequestKind::ExtendedConnect,
                })))
            }
            Err(Unusable::Refused(why)) => {
                let receiving = if end {
                    Receiving::Ended
                } else {
                    Receiving::Discarded
                };
                let stream = self.streams.insert(opening.stream, self.fresh(receiving));
                Ok(Some(Event::Refused { stream, why }))
            }
            Err(Unusable::Malformed(fault)) => {
                self.budgets.resets.spend()?;
                self.forgotten.add(opening.stream);
                frame::rst_stream(opening.stream, fault.code(), out);
                Ok(Some(Event::Malformed {
                    stream: None,
                    fault,
                }))
            }
        }
    }

    fn response(
        &mut self,
        key: StreamKey,
        opening: Opening,
        response: Result<ReadResponse, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let response = match response {
            Ok(response) => response,
            Err(Unusable::Malformed(fault)) => return self.malformed(key, fault, out).map(Some),
            // The origin's answer is too large for us.
            Err(Unusable::Refused(_)) => {
                return self.malformed(key, Fault::HeadTooLarge, out).map(Some);
            }
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        let headers = Box::new(response.headers);
        let status = response.status;
        if status.is_informational() {
            if opening.end {
                return self.malformed(key, Fault::PseudoField, out).map(Some);
            }
            self.budgets.idle.spend()?;
            return Ok(Some(Event::Informational {
                stream: key,
                status,
                headers,
            }));
        }
        // As much as a request is worth to a server.
        self.budgets.idle.earn(4);
        stream.receiving = Receiving::Content;
        let is_tunnel = stream.request == RequestKind::ExtendedConnect && status.is_success();
        let has_no_content = stream.request == RequestKind::Head
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        stream.content_left = match has_no_content {
            true => Some(0),
            // Section 8.5: it has no meaning for a tunnel.
            false => response.content_length.filter(|_| !is_tunnel),
        };
        if opening.end {
            if stream.content_left.is_some_and(|left| left > 0) {
                return self.malformed(key, Fault::ContentLength, out).map(Some);
            }
            self.end_receiving(key, out);
        }
        Ok(Some(Event::Response {
            stream: key,
            status,
            headers,
            end: opening.end,
        }))
    }

    fn trailers(
        &mut self,
        key: StreamKey,
        opening: Opening,
        trailers: Result<Headers, Unusable>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        let fault = match (stream.receiving, &trailers) {
            (Receiving::Ended, _) => Some(Fault::StreamClosed),
            _ if !opening.end => Some(Fault::Trailers),
            _ if stream.content_left.is_some_and(|left| left > 0) => Some(Fault::ContentLength),
            (_, Err(Unusable::Malformed(fault))) => Some(*fault),
            (_, Err(Unusable::Refused(_))) => Some(Fault::HeadTooLarge),
            _ => None,
        };
        if let Some(fault) = fault {
            return self.malformed(key, fault, out).map(Some);
        }
        let is_wanted = stream.receiving != Receiving::Discarded;
        self.end_receiving(key, out);
        let trailers = trailers.ok().filter(|_| is_wanted);
        Ok(trailers.map(|trailers| Event::Trailers {
            stream: key,
            trailers: Box::new(trailers),
        }))
    }

    // The other frames

    fn settings(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        if frame.has(frame::ACK) {
            if !payload.is_empty() {
                return Err(Fault::FrameSize.into());
            }
            self.unacknowledged = self
                .unacknowledged
                .checked_sub(1)
                .ok_or(Fault::SettingsAck)?;
            return Ok(());
        }
        self.budgets.answers.spend()?;
        let before = self.peer;
        let smallest_table = self.peer.take(payload, self.role == Role::Server)?;
        if let Some(smallest) = smallest_table {
            for size in [smallest, self.peer.header_table_size] {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                self.encoder.set_max_table_size(size);
            }
        }
        if self.peer.initial_window != before.initial_window {
            // Section 6.9.2: windows move by the difference, and may become negative.
            let difference = i64::from(self.peer.initial_window)
                .saturating_sub(i64::from(before.initial_window));
            self.move_windows(difference)?;
        }
        frame::settings_ack(out);
        self.reading = Reading::Frame;
        Ok(())
    }

    fn move_windows(&mut self, difference: i64) -> Result<(), Fault> {
        for (key, stream) in self.streams.iter_mut() {
            let window = i64::from(stream.send_window).saturating_add(difference);
            stream.send_window = i32::try_from(window).map_err(|_| Fault::WindowOverflow)?;
            unstall(key, stream, &mut self.schedule);
        }
        Ok(())
    }

    fn window_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let increment = frame::identifier(*exactly(payload)?);
        self.budgets.idle.spend()?;
        let increment = i32::try_from(increment).unwrap_or(i32::MAX);
        if frame.stream == 0 {
            if increment == 0 {
                return Err(Fault::WindowIncrement.into());
            }
            self.send_window = self
                .send_window
                .checked_add(increment)
                .ok_or(Fault::WindowOverflow)?;
            return Ok(None);
        }
        let Some(key) = self.find(frame.stream)? else {
            return Ok(None);
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        let fault = match stream.send_window.checked_add(increment) {
            Some(_) if increment == 0 => Fault::WindowIncrement,
            None => Fault::WindowOverflow,
            Some(window) => {
                stream.send_window = window;
                unstall(key, stream, &mut self.schedule);
                return Ok(None);
            }
        };
        self.malformed(key, fault, out).map(Some)
    }

    fn rst_stream(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let code = ErrorCode(u32::from_be_bytes(*exactly(payload)?));
        let Some(key) = self.find(frame.stream)? else {
            self.budgets.idle.spend()?;
            return Ok(None);
        };
        // A client has as many streams reset as it opens itself.
        if self.role == Role::Server {
            self.budgets.resets.spend()?;
        }
        self.forgotten.note_end(key.id());
        self.remove(key, out);
        Ok(Some(Event::Reset { stream: key, code }))
    }

    fn handle_ping(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let opaque: [u8; 8] = *exactly(payload)?;
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        if !frame.has(frame::ACK) {
            self.budgets.answers.spend()?;
            frame::ping(opaque, true, out);
            return Ok(());
        }
        match opaque {
            KEEP_ALIVE if self.awaits_pong => self.awaits_pong = false,
            GOODBYE if self.ending == Ending::Announced => {
                self.go_away(ErrorCode::NO_ERROR, out);
            }
            SAMPLE if self.receive.is_sampling() => {
                if let Some(grown) = self.receive.end_sample(out) {
                    settings::announce_window(self.receive.stream_target(), out);
                    self.unacknowledged = self.unacknowledged.saturating_add(1);
                    let grown = i32::try_from(grown).unwrap_or(0);
                    for (_, stream) in self.streams.iter_mut() {
                        stream.receive_window = stream.receive_window.saturating_add(grown);
                    }
                }
            }
            // An answer to nothing.
            _ => self.budgets.idle.spend()?,
        }
        Ok(())
    }

    fn handle_go_away(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        let (last, rest) = payload.split_first_chunk::<4>().ok_or(Fault::FrameSize)?;
        let code = rest.first_chunk::<4>().ok_or(Fault::FrameSize)?;
        self.budgets.idle.spend()?;
        self.peer_ending = true;
        Ok(Some(Event::GoAway {
            last: frame::identifier(*last),
            code: ErrorCode(u32::from_be_bytes(*code)),
        }))
    }

    /// The old tree of priorities, which is read and has no meaning (section 5.3).
    fn handle_priority(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        self.budgets.idle.spend()?;
        let Ok([dependency @ .., _weight]) = exactly::<5>(payload) else {
            // Section 6.3: an error of the stream.
            return match self.streams.find(frame.stream) {
                Some(key) => self.malformed(key, Fault::FrameSize, out).map(Some),
                None => Err(Fault::FrameSize.into()),
            };
        };
        if frame::identifier(*dependency) == frame.stream {
            return match self.streams.find(frame.stream) {
                Some(key) => self.malformed(key, Fault::SelfDependency, out).map(Some),
                None => Err(Fault::SelfDependency.into()),
            };
        }
        Ok(None)
    }

    /// RFC 9218 section 7.1.
    fn priority_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        let (stream, value) = payload.split_first_chunk::<4>().ok_or(Fault::FrameSize)?;
        let stream = frame::identifier(*stream);
        if self.role == Role::Client || stream == 0 || stream.is_multiple_of(2) {
            return Err(Fault::PriorityUpdate.into());
        }
        self.budgets.idle.spend()?;
        // One that comes before its stream could be kept; browsers send the field then.
        if let Some(key) = self.streams.find(stream)
            && let Some(stream) = self.streams.get_mut(key)
        {
            let priority = Priority::parse(value);
            if stream.turn == Turn::Queued {
                self.schedule.leave(key, stream.priority);
                self.schedule.enter(key, priority);
            }
            stream.priority = priority;
        }
        Ok(())
    }
}

/// The payload of a frame that has one length only.
fn exactly<const N: usize>(payload: &[u8]) -> Result<&[u8; N], Fault> {
    payload.try_into().map_err(|_| Fault::FrameSize)
}

/// Gives a stream that waited for its window a turn, if the window is open now.
fn unstall(key: StreamKey, stream: &mut Stream, schedule: &mut Schedule) {
    if stream.turn == Turn::Stalled && stream.send_window > 0 {
        stream.turn = Turn::Queued;
        schedule.enter(key, stream.priority);
    }
}
