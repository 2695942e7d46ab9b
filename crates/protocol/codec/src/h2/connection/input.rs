//! Handles the frames of the peer (RFC 9113 section 6, RFC 9218 section 7.1).

use super::{
    BANDWIDTH_PING, BLOCK_SIZE_FACTOR, FieldBlock, HeadersFrame, Http2Codec, Http2Event,
    KEEP_ALIVE_PING, MAX_CONTINUATIONS, ReadState, Role, SHUTDOWN_PING, ShutdownState,
};
use crate::flood::Flood;
use crate::h2::frame::{self, DEFAULT_MAX_PAYLOAD, FrameHeader, FrameType, HEADER_BYTES, PREFACE};
use crate::h2::settings::{self};
use crate::h2::streams::{ReceiveState, ScheduleState, StreamState};
use crate::h2::{ConnectionError, ErrorCode, Fault, StreamKey};
use crate::messages::{
    FieldReader, MessageFault, RequestKind, RequestSection, ResponseSection, SectionError,
    SectionKind,
};
use crate::priority::Priority;
use crate::schedule::Schedule;
use apus_http::{Headers, Version};
use http::StatusCode;

impl Http2Codec {
    /// Reads one frame, or a part of it, from the input. No event and no consumed bytes means that more
    /// input is needed.
    pub(super) fn read_event(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Http2Event>), ConnectionError> {
        match self.reading {
            ReadState::Failed(error) => return Err(error),
            ReadState::Preface(seen) => {
                let expected = PREFACE.get(seen..).unwrap_or_default();
                let len = expected.len().min(input.len());
                // Each byte is compared as it comes: a client of another protocol gets its error at once, and not
                // after 24 bytes.
                if expected.get(..len) != input.get(..len) {
                    return Err(Fault::Preface.into());
                }
                self.reading = if len == expected.len() {
                    ReadState::FirstFrame
                } else {
                    ReadState::Preface(seen.saturating_add(len))
                };
                return Ok((len, None));
            }
            ReadState::Data {
                stream,
                left,
                padding,
                end,
            } => return Ok(self.read_data(stream, (left, padding), end, input, out)),
            ReadState::FirstFrame | ReadState::Frame | ReadState::FieldBlock(_) => {}
        }
        let Some(frame) = FrameHeader::read(input) else {
            return Ok((0, None));
        };
        if matches!(self.reading, ReadState::FirstFrame) && frame.kind != FrameType::Settings {
            return Err(Fault::FirstFrame.into());
        }
        // Before the payload is awaited: the input buffer never has to hold a frame that is not allowed.
        if frame.len > self.config.max_payload() {
            return Err(Fault::FrameSize.into());
        }
        if matches!(self.reading, ReadState::FieldBlock(_)) && frame.kind != FrameType::Continuation
        {
            return Err(Fault::Interleaved.into());
        }
        // DATA is not awaited whole, unlike the small frames below: a body is passed on as it arrives, whatever its
        // frames are.
        if frame.kind == FrameType::Data {
            return self.begin_data(frame, input, out);
        }
        let whole = frame.len.saturating_add(HEADER_BYTES);
        let Some(payload) = input.get(HEADER_BYTES..whole) else {
            return Ok((0, None));
        };
        let event = match frame.kind {
            FrameType::Headers => self.handle_headers(frame, payload, out),
            FrameType::Continuation => self.handle_continuation(frame, payload, out),
            FrameType::Settings => self.handle_settings(frame, payload, out).map(|()| None),
            FrameType::WindowUpdate => self.handle_window_update(frame, payload, out),
            FrameType::RstStream => self.handle_rst_stream(frame, payload, out),
            FrameType::Ping => self.handle_ping(frame, payload, out).map(|()| None),
            FrameType::GoAway => self.handle_go_away(frame, payload),
            FrameType::Priority => self.handle_priority(frame, payload, out),
            FrameType::PriorityUpdate => self.handle_priority_update(frame, payload).map(|()| None),
            // The settings of this end forbid it, and a client never may (section 6.6).
            FrameType::PushPromise => Err(Fault::Push.into()),
            // Unknown types are ignored (section 5.5), but have a price: a flood of them costs as much to read as one
            // of PING.
            FrameType::Data | FrameType::Unknown => {
                self.budgets.overhead.spend()?;
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
    ) -> Result<(usize, Option<Http2Event>), ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let (mut used, mut left, mut padding) = (HEADER_BYTES, frame.len, 0);
        if frame.has(frame::PADDED) {
            let Some(len) = input.get(HEADER_BYTES) else {
                // A frame without the length of its padding would wait for more input forever.
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
        // Padding and its length count for the windows (section 6.1), also on streams that are closed: the peer has
        // counted them.
        if !self.receive_window.reserve(whole) {
            return Err(Fault::WindowExceeded.into());
        }
        let end = frame.has(frame::END_STREAM);
        // On a stream that this end reset, END_STREAM has no meaning either.
        if left == 0 && (!end || self.closed_streams.was_reset(frame.stream)) {
            self.budgets.overhead.spend()?;
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
            let fault = match (known.receiving, known.body_left) {
                (ReceiveState::Ended, _) => Some(Fault::StreamClosed),
                // A client that gets data before a head cannot know what it is of.
                (ReceiveState::Head, _) => Some(Fault::PseudoField),
                // RFC 9113 section 8.1.1: a body of another length than its Content-Length is malformed. Passed on to
                // an origin over HTTP/1.1, the rest would be read as the next request: request smuggling by a
                // downgrade.
                (_, Some(expected)) if content > expected || (end && content < expected) => {
                    Some(Fault::ContentLength)
                }
                _ => None,
            };
            if let Some(fault) = fault {
                event = Some(self.reset_malformed(key, fault, out)?);
                stream = None;
            } else {
                known.receive_window = known
                    .receive_window
                    .saturating_sub(i32::try_from(whole).unwrap_or(i32::MAX));
                known.body_left = known
                    .body_left
                    .map(|expected| expected.saturating_sub(content));
                // Padding is released at once, as no reader will ever report it as consumed.
                known.release(key.id(), overhead, self.receive_window.stream_target(), out);
                if known.receiving == ReceiveState::Discarded {
                    // Discarded data produces no event.
                    if end {
                        self.end_receiving(key, out);
                    }
                    stream = None;
                }
            }
        // A peer that does not know of the reset yet may send data for a round trip (section 5.1). It is ignored
        // without a price; on any other closed stream, data is a fault.
        } else if !self.closed_streams.was_reset(frame.stream) {
            self.budgets.resets.spend()?;
            frame::rst_stream(frame.stream, ErrorCode::STREAM_CLOSED, out);
        }
        if stream.is_some() {
            self.budgets.acks.earn(1);
            if self.receive_window.measure(whole) {
                frame::ping(BANDWIDTH_PING, false, out);
            }
        }
        self.receive_window.release(overhead, out);
        if left == 0 && padding == 0 && !(end && stream.is_some()) {
            self.reading = ReadState::Frame;
        } else {
            self.reading = ReadState::Data {
                stream,
                left,
                padding,
                end,
            };
        }
        Ok((used, event))
    }

    fn read_data(
        &mut self,
        stream: Option<StreamKey>,
        (left, padding): (usize, usize),
        end: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, Option<Http2Event>) {
        let stream = stream.filter(|key| self.streams.get(*key).is_some());
        let len = left.min(input.len());
        let left = left.saturating_sub(len);
        let skipped = match left {
            0 => padding.min(input.len().saturating_sub(len)),
            _ => 0,
        };
        let padding = padding.saturating_sub(skipped);
        let is_complete = left == 0;
        self.reading = if is_complete && padding == 0 {
            ReadState::Frame
        } else {
            ReadState::Data {
                // The event with the last data reported the end.
                stream: stream.filter(|_| !is_complete),
                left,
                padding,
                end,
            }
        };
        let used = len.saturating_add(skipped);
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(key) = stream else {
            // The caller will not report it as consumed.
            self.receive_window.release(bytes, out);
            return (used, None);
        };
        let end = end && is_complete;
        if len == 0 && !end {
            return (used, None);
        }
        if let Some(known) = self.streams.get_mut(key) {
            known.unread = known.unread.saturating_add(bytes);
        }
        if end {
            self.end_receiving(key, out);
        }
        let event = Http2Event::Data {
            stream: key,
            range: 0..len,
            end,
        };
        (used, Some(event))
    }

    // HEADERS and CONTINUATION (sections 6.2 and 6.10)

    fn handle_headers(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
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
            // The priorities of RFC 7540 are read over. This error is kept as h2spec checks it.
            if frame::identifier(dependency) == frame.stream {
                return Err(Fault::SelfDependency.into());
            }
            block = rest;
        }
        let headers_frame = HeadersFrame {
            stream: frame.stream,
            end: frame.has(frame::END_STREAM),
        };
        if frame.has(frame::END_HEADERS) {
            return self.handle_field_block(headers_frame, block, out);
        }
        self.reading = ReadState::FieldBlock(Box::new(FieldBlock {
            headers_frame,
            bytes: block.to_vec(),
            frames: 0,
        }));
        self.check_block_size()?;
        Ok(None)
    }

    fn handle_continuation(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        let ReadState::FieldBlock(block) = &mut self.reading else {
            return Err(Fault::Continuation.into());
        };
        if block.headers_frame.stream != frame.stream {
            return Err(Fault::Interleaved.into());
        }
        block.bytes.extend_from_slice(payload);
        block.frames = block.frames.saturating_add(1);
        self.check_block_size()?;
        if !frame.has(frame::END_HEADERS) {
            return Ok(None);
        }
        let ReadState::FieldBlock(block) = std::mem::replace(&mut self.reading, ReadState::Frame)
        else {
            return Err(Fault::Continuation.into());
        };
        self.handle_field_block(block.headers_frame, &block.bytes, out)
    }

    fn check_block_size(&self) -> Result<(), Flood> {
        let max_bytes = self.config.head_bytes.saturating_mul(BLOCK_SIZE_FACTOR);
        match &self.reading {
            ReadState::FieldBlock(block)
                if block.bytes.len() > max_bytes.max(DEFAULT_MAX_PAYLOAD)
                    || block.frames > MAX_CONTINUATIONS =>
            {
                Err(Flood::FieldBlock)
            }
            _ => Ok(()),
        }
    }

    /// Handles a complete field block. It is decoded even if its stream is closed, because later blocks
    /// depend on the dynamic table after it.
    fn handle_field_block(
        &mut self,
        headers_frame: HeadersFrame,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        let is_server = self.role == Role::Server;
        let known = self.streams.find(headers_frame.stream);
        let section = match (known.and_then(|key| self.streams.get(key)), self.role) {
            (None, Role::Server) => SectionKind::Request,
            (Some(stream), Role::Client) if stream.receiving == ReceiveState::Head => {
                SectionKind::Response
            }
            _ => SectionKind::Trailers,
        };
        let is_new = known.is_none() && is_server && headers_frame.stream > self.last_peer;
        if is_new && headers_frame.stream.is_multiple_of(2) {
            return Err(Fault::StreamIdentifier.into());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reader = FieldReader::new(
            section,
            self.config.section_limits(),
            &mut scratch,
            block.len(),
        );
        let decoded = self.decoder.decode(block, |field| reader.add(field));
        if decoded.is_err() {
            return Err(Fault::Compression.into());
        }
        if reader.is_bomb() {
            return Err(Flood::FieldBlock.into());
        }
        let event = match (section, known) {
            (SectionKind::Request, _) if is_new => {
                let request = reader.into_request(Version::HTTP_2);
                self.handle_request(headers_frame, request, out)
            }
            (SectionKind::Response, Some(key)) => {
                let response = reader.into_response();
                self.handle_response(key, headers_frame, response, out)
            }
            (SectionKind::Trailers, Some(key)) => {
                let trailers = reader.into_trailers();
                self.handle_trailers(key, headers_frame, trailers, out)
            }
            _ => {
                self.check_closed_stream(headers_frame)?;
                Ok(None)
            }
        };
        self.scratch = scratch;
        event
    }

    /// Handles a field block for a stream that is not open.
    fn check_closed_stream(&mut self, headers_frame: HeadersFrame) -> Result<(), ConnectionError> {
        let is_ours = !headers_frame.stream.is_multiple_of(2) && self.role == Role::Client;
        if is_ours && headers_frame.stream >= self.next_local {
            return Err(Fault::IdleStream.into());
        }
        if self.role == Role::Client && !is_ours {
            return Err(Fault::StreamIdentifier.into());
        }
        if self.closed_streams.was_reset(headers_frame.stream) {
            // It was on its way when this end reset the stream (section 5.1).
            self.budgets.overhead.spend()?;
            return Ok(());
        }
        let fault = if self.closed_streams.has_ended(headers_frame.stream) {
            Fault::StreamClosed
        } else {
            Fault::StreamIdentifier
        };
        Err(fault.into())
    }

    fn handle_request(
        &mut self,
        headers_frame: HeadersFrame,
        request: Result<RequestSection, SectionError>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        // Also for streams that are refused: identifiers only grow, and a GOAWAY says up to which one this end has
        // looked.
        self.last_peer = headers_frame.stream;
        self.budgets.overhead.earn(4);
        let is_after_shutdown =
            matches!(self.shutdown, ShutdownState::Final(last) if headers_frame.stream > last);
        if is_after_shutdown || self.streams.open_count() >= self.config.max_streams() {
            if !is_after_shutdown {
                self.budgets.resets.spend()?;
            }
            self.closed_streams.add_reset(headers_frame.stream);
            frame::rst_stream(headers_frame.stream, ErrorCode::REFUSED_STREAM, out);
            return Ok(None);
        }
        let request = match request {
            Ok(request)
                // END_STREAM says that there is no body, and the length that there is one (section 8.1.1).
                if headers_frame.end && request.content_length.is_some_and(|len| len > 0) =>
            {
                Err(SectionError::Malformed(MessageFault::ContentLength))
            }
            request => request,
        };
        let end = headers_frame.end;
        match request {
            Ok(request) => {
                let receiving = if end {
                    ReceiveState::Ended
                } else {
                    ReceiveState::Body
                };
                let stream = self.streams.insert(
                    headers_frame.stream,
                    StreamState {
                        body_left: request.content_length,
                        priority: request.priority,
                        request: request.kind,
                        ..self.new_stream(receiving)
                    },
                );
                Ok(Some(Http2Event::Request(request.into_request(stream, end))))
            }
            Err(SectionError::Refused(why)) => {
                let receiving = if end {
                    ReceiveState::Ended
                } else {
                    ReceiveState::Discarded
                };
                let stream = self
                    .streams
                    .insert(headers_frame.stream, self.new_stream(receiving));
                Ok(Some(Http2Event::Refused { stream, why }))
            }
            Err(SectionError::Malformed(fault)) => {
                let fault = Fault::from(fault);
                self.budgets.resets.spend()?;
                self.closed_streams.add_reset(headers_frame.stream);
                frame::rst_stream(headers_frame.stream, fault.code(), out);
                Ok(Some(Http2Event::Malformed {
                    stream: None,
                    fault,
                }))
            }
        }
    }

    fn handle_response(
        &mut self,
        key: StreamKey,
        headers_frame: HeadersFrame,
        response: Result<ResponseSection, SectionError>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        let response = match response {
            Ok(response) => response,
            Err(SectionError::Malformed(fault)) => {
                return self.reset_malformed(key, fault.into(), out).map(Some);
            }
            // The head of the response exceeds a limit.
            Err(SectionError::Refused(_)) => {
                return self
                    .reset_malformed(key, Fault::HeadTooLarge, out)
                    .map(Some);
            }
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(None);
        };
        let headers = Box::new(response.headers);
        let status = response.status;
        if status.is_informational() {
            // After an interim response there has to be a final one (section 8.1).
            if headers_frame.end {
                return self.reset_malformed(key, Fault::PseudoField, out).map(Some);
            }
            self.budgets.overhead.spend()?;
            return Ok(Some(Http2Event::Informational {
                stream: key,
                status,
                headers,
            }));
        }
        // A response earns a client as much as a request earns a server.
        self.budgets.overhead.earn(4);
        stream.receiving = ReceiveState::Body;
        let is_tunnel = stream.request.begins_tunnel_over_stream(status);
        let has_no_content = stream.request == RequestKind::Head
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        // Their Content-Length is the one that the response to GET would have (RFC 9110 section 8.6).
        stream.body_left = if has_no_content {
            Some(0)
        } else {
            // Section 8.5: Content-Length has no meaning for a tunnel.
            response.content_length.filter(|_| !is_tunnel)
        };
        if headers_frame.end {
            if stream.body_left.is_some_and(|left| left > 0) {
                return self
                    .reset_malformed(key, Fault::ContentLength, out)
                    .map(Some);
            }
            self.end_receiving(key, out);
        }
        Ok(Some(Http2Event::Response {
            stream: key,
            status,
            headers,
            end: headers_frame.end,
        }))
    }

    fn handle_trailers(
        &mut self,
        key: StreamKey,
        headers_frame: HeadersFrame,
        trailers: Result<Headers, SectionError>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        let fault = match (stream.receiving, &trailers) {
            (ReceiveState::Ended, _) => Some(Fault::StreamClosed),
            _ if !headers_frame.end => Some(Fault::Trailers),
            _ if stream.body_left.is_some_and(|left| left > 0) => Some(Fault::ContentLength),
            (_, Err(SectionError::Malformed(fault))) => Some(Fault::from(*fault)),
            (_, Err(SectionError::Refused(_))) => Some(Fault::HeadTooLarge),
            _ => None,
        };
        if let Some(fault) = fault {
            return self.reset_malformed(key, fault, out).map(Some);
        }
        let is_wanted = stream.receiving != ReceiveState::Discarded;
        self.end_receiving(key, out);
        let trailers = trailers.ok().filter(|_| is_wanted);
        Ok(trailers.map(|trailers| Http2Event::Trailers {
            stream: key,
            trailers: Box::new(trailers),
        }))
    }

    // The other frames

    fn handle_settings(
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
        // Each of them has to be acknowledged: a peer that does not read fills the output (CVE-2019-9515).
        self.budgets.acks.spend()?;
        let before = self.peer;
        let smallest_table = self.peer.apply(payload, self.role == Role::Server)?;
        if let Some(smallest) = smallest_table {
            for size in [smallest, self.peer.header_table_size] {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                self.encoder.set_max_table_size(size);
            }
        }
        if self.peer.initial_window != before.initial_window {
            // Section 6.9.2: windows change by the difference, and may become negative.
            let difference = i64::from(self.peer.initial_window)
                .saturating_sub(i64::from(before.initial_window));
            self.shift_send_windows(difference)?;
        }
        frame::settings_ack(out);
        self.reading = ReadState::Frame;
        Ok(())
    }

    fn shift_send_windows(&mut self, difference: i64) -> Result<(), Fault> {
        for (key, stream) in self.streams.iter_mut() {
            let window = i64::from(stream.send_window).saturating_add(difference);
            stream.send_window = i32::try_from(window).map_err(|_| Fault::WindowOverflow)?;
            resume(key, stream, &mut self.schedule);
        }
        Ok(())
    }

    fn handle_window_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        let increment = frame::identifier(*fixed_size(payload)?);
        self.budgets.overhead.spend()?;
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
        // An increment of 0 is an error of the stream (section 6.9), unless it is for the connection.
        let fault = match stream.send_window.checked_add(increment) {
            Some(_) if increment == 0 => Fault::WindowIncrement,
            None => Fault::WindowOverflow,
            Some(window) => {
                stream.send_window = window;
                resume(key, stream, &mut self.schedule);
                return Ok(None);
            }
        };
        self.reset_malformed(key, fault, out).map(Some)
    }

    fn handle_rst_stream(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        let code = ErrorCode(u32::from_be_bytes(*fixed_size(payload)?));
        let Some(key) = self.find(frame.stream)? else {
            self.budgets.overhead.spend()?;
            return Ok(None);
        };
        // Rapid reset (CVE-2023-44487): a stream that is reset makes room for the next request at once, whose service
        // has begun to work all the same.
        // A client can only have as many streams reset as it opened itself.
        if self.role == Role::Server {
            self.budgets.resets.spend()?;
        }
        self.closed_streams.add_ended(key.id());
        self.remove(key, out);
        Ok(Some(Http2Event::Reset { stream: key, code }))
    }

    fn handle_ping(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let opaque: [u8; 8] = *fixed_size(payload)?;
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        if !frame.has(frame::ACK) {
            // As for SETTINGS (CVE-2019-9512).
            self.budgets.acks.spend()?;
            frame::ping(opaque, true, out);
            return Ok(());
        }
        match opaque {
            KEEP_ALIVE_PING if self.awaits_ping_ack => self.awaits_ping_ack = false,
            SHUTDOWN_PING if self.shutdown == ShutdownState::Announced => {
                self.go_away(ErrorCode::NO_ERROR, out);
            }
            BANDWIDTH_PING if self.receive_window.is_sampling() => {
                if let Some(grown) = self.receive_window.end_sample(out) {
                    settings::encode_window(self.receive_window.stream_target(), out);
                    self.unacknowledged = self.unacknowledged.saturating_add(1);
                    let grown = i32::try_from(grown).unwrap_or(0);
                    for (_, stream) in self.streams.iter_mut() {
                        stream.receive_window = stream.receive_window.saturating_add(grown);
                    }
                }
            }
            // An acknowledgement of no PING.
            _ => self.budgets.overhead.spend()?,
        }
        Ok(())
    }

    fn handle_go_away(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Http2Event>, ConnectionError> {
        if frame.stream != 0 {
            return Err(Fault::StreamZero.into());
        }
        let (last, rest) = payload.split_first_chunk::<4>().ok_or(Fault::FrameSize)?;
        let code = rest.first_chunk::<4>().ok_or(Fault::FrameSize)?;
        self.budgets.overhead.spend()?;
        self.peer_is_closing = true;
        Ok(Some(Http2Event::GoAway {
            last: frame::identifier(*last),
            code: ErrorCode(u32::from_be_bytes(*code)),
        }))
    }

    /// Checks the deprecated PRIORITY frame and ignores its value (section 5.3).
    fn handle_priority(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Event>, ConnectionError> {
        if frame.stream == 0 {
            return Err(Fault::StreamZero.into());
        }
        self.budgets.overhead.spend()?;
        let Ok([dependency @ .., _weight]) = fixed_size::<5>(payload) else {
            // Section 6.3: a stream error.
            return match self.streams.find(frame.stream) {
                Some(key) => self.reset_malformed(key, Fault::FrameSize, out).map(Some),
                None => Err(Fault::FrameSize.into()),
            };
        };
        if frame::identifier(*dependency) == frame.stream {
            return match self.streams.find(frame.stream) {
                Some(key) => self
                    .reset_malformed(key, Fault::SelfDependency, out)
                    .map(Some),
                None => Err(Fault::SelfDependency.into()),
            };
        }
        Ok(None)
    }

    /// Changes the priority of a stream (RFC 9218 section 7.1).
    fn handle_priority_update(
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
        self.budgets.overhead.spend()?;
        // A frame that arrives before its stream is ignored; browsers send the `priority` field instead.
        if let Some(key) = self.streams.find(stream)
            && let Some(stream) = self.streams.get_mut(key)
        {
            let priority = Priority::parse(value);
            if stream.schedule_state == ScheduleState::Queued {
                self.schedule.remove(key, stream.priority);
                self.schedule.insert(key, priority);
            }
            stream.priority = priority;
        }
        Ok(())
    }
}

/// The payload of a frame type with a fixed length.
fn fixed_size<const N: usize>(payload: &[u8]) -> Result<&[u8; N], Fault> {
    payload.try_into().map_err(|_| Fault::FrameSize)
}

/// Schedules a stream that waited for its window, if the window is open now.
fn resume(key: StreamKey, stream: &mut StreamState, schedule: &mut Schedule<u32>) {
    if stream.schedule_state == ScheduleState::Stalled && stream.send_window > 0 {
        stream.schedule_state = ScheduleState::Queued;
        schedule.insert(key, stream.priority);
    }
}
