//! What the frames of the peer do with streams (RFC 9000 sections 19.4 to 19.14).

use crate::error::TransportError;
use crate::frame::StreamFrame;
use crate::stream_id::{Dir, StreamId};

use super::send::SendHalfState;
use super::write::{StreamControl, StreamRecord};
use super::{StreamEvent, Streams};

impl Streams {
    /// STREAM (section 19.8).
    #[inline]
    pub(crate) fn on_stream_frame(
        &mut self,
        frame: &StreamFrame<'_>,
    ) -> Result<(), TransportError> {
        let id = frame.stream;
        self.open_by_frame(id, true)?;
        let room = self.announced_data - self.data_received;
        let Some(receive) = self.receive_half(id) else {
            return Ok(());
        };
        let memory_before = receive.assembler.memory();
        let grown = receive.receive(frame.offset, frame.data, frame.fin)?;
        let memory_after = receive.assembler.memory();
        // The connection's limit counts the highest offsets, not the bytes: a frame far ahead takes the room for its
        // gap as well (RFC 9000 section 4.1).
        if grown > room {
            return Err(TransportError::flow_control(
                "more data than the connection's limit",
            ));
        }
        let is_over = receive.is_stopped && receive.is_final_size_known();
        let is_discarded = receive.is_stopped || receive.reset.is_some();
        self.memory = (self.memory + memory_after).saturating_sub(memory_before);
        self.data_received += grown;
        if is_discarded {
            self.credit_discarded(id, grown);
        } else {
            self.report_readable(id);
        }
        if is_over {
            self.end_receiving(id);
        }
        Ok(())
    }

    /// RESET_STREAM (section 19.4).
    pub(crate) fn on_reset(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
    ) -> Result<(), TransportError> {
        self.open_by_frame(id, true)?;
        let room = self.announced_data - self.data_received;
        let Some(receive) = self.receive_half(id) else {
            return Ok(());
        };
        let memory_before = receive.assembler.memory();
        let grown = receive.receive_reset(code, final_size)?;
        let freed = memory_before.saturating_sub(receive.assembler.memory());
        if grown > room {
            return Err(TransportError::flow_control(
                "more data than the connection's limit",
            ));
        }
        let is_stopped = receive.is_stopped;
        self.memory = self.memory.saturating_sub(freed);
        self.data_received += grown;
        if is_stopped {
            self.credit_discarded(id, grown);
            self.end_receiving(id);
        } else {
            self.report_readable(id);
        }
        Ok(())
    }

    /// STOP_SENDING (section 19.5).
    pub(crate) fn on_stop_sending(
        &mut self,
        id: StreamId,
        code: u64,
    ) -> Result<(), TransportError> {
        self.open_by_frame(id, false)?;
        let Some(send) = self.send_half(id) else {
            return Ok(());
        };
        let is_over = matches!(send.state, SendHalfState::Reset { .. }) || send.is_complete();
        // A second STOP_SENDING, or one that comes after all is acknowledged, changes nothing (RFC 9000 section 3.5).
        if is_over || send.stopped.is_some() {
            return Ok(());
        }
        send.stopped = Some(code);
        self.reset_half(id, code);
        let stream = id;
        self.events.push_back(StreamEvent::Stopped { stream, code });
        Ok(())
    }

    /// MAX_DATA (section 19.9).
    pub(crate) fn on_max_data(&mut self, most: u64) {
        if most > self.max_data {
            self.max_data = most;
            self.is_data_limit_told = false;
            self.wake_blocked();
        }
    }

    /// MAX_STREAM_DATA (section 19.10).
    pub(crate) fn on_max_stream_data(
        &mut self,
        id: StreamId,
        most: u64,
    ) -> Result<(), TransportError> {
        self.open_by_frame(id, false)?;
        let Some(send) = self.send_half(id) else {
            return Ok(());
        };
        if most <= send.max_data {
            return Ok(());
        }
        send.max_data = most;
        if !std::mem::take(&mut send.is_blocked) || send.state != SendHalfState::Open {
            return Ok(());
        }
        if self.has_connection_room() {
            self.events.push_back(StreamEvent::Writable(id));
        } else if let Some(send) = self.send_half(id)
            && !std::mem::replace(&mut send.is_connection_blocked, true)
        {
            self.connection_blocked.push(id);
        }
        Ok(())
    }

    /// MAX_STREAMS (section 19.11).
    pub(crate) fn on_max_streams(&mut self, direction: Dir, most: u64) {
        self.raise_max_local(direction, most);
    }

    /// STREAM_DATA_BLOCKED (section 19.13).
    pub(crate) fn on_stream_data_blocked(&mut self, id: StreamId) -> Result<(), TransportError> {
        self.open_by_frame(id, true)
    }

    /// Data of a STREAM frame is acknowledged.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, record: StreamRecord) {
        let id = StreamId::from(record.stream);
        let Some(send) = self.send_half(id) else {
            return;
        };
        let end = record.offset + u64::from(record.length);
        let freed = send.buffer.on_acknowledged(record.offset..end);
        if record.fin
            && let SendHalfState::Finished {
                is_pending,
                is_acknowledged,
            } = &mut send.state
        {
            *is_pending = false;
            *is_acknowledged = true;
        }
        let is_complete = send.is_complete();
        self.unacknowledged -= freed.min(self.unacknowledged);
        if is_complete {
            self.dequeue(id);
            self.end_sending(id);
            self.events.push_back(StreamEvent::Finished(id));
        }
        self.wake_blocked();
    }

    /// A packet with a STREAM frame is lost.
    pub(crate) fn on_lost(&mut self, record: StreamRecord) {
        let id = StreamId::from(record.stream);
        let Some(send) = self.send_half(id) else {
            return;
        };
        send.buffer
            .on_lost(record.offset..record.offset + u64::from(record.length));
        if record.fin
            && let SendHalfState::Finished {
                is_pending,
                is_acknowledged: false,
            } = &mut send.state
        {
            *is_pending = true;
        }
        if send.has_pending() && !std::mem::replace(&mut send.is_queued, true) {
            send.turn_end = None;
            let priority = send.priority;
            // Lost data goes first within its priority: the receiver holds everything behind it, and cannot use it.
            self.queue.push_front(priority, id);
        }
    }

    /// A frame other than STREAM is acknowledged.
    pub(crate) fn on_control_acknowledged(&mut self, control: StreamControl) {
        if let StreamControl::ResetStream(id) = control
            && let Some(send) = self.send_half(id)
            && matches!(send.state, SendHalfState::Reset { .. })
        {
            self.end_sending(id);
        }
    }

    /// A packet with a frame other than STREAM is lost.
    pub(crate) fn on_control_lost(&mut self, control: StreamControl) {
        match control {
            // Limits are sent again with their value of then, not with that of the lost packet (RFC 9000 section
            // 13.3).
            StreamControl::MaxData => self.is_max_data_pending = true,
            StreamControl::MaxStreams(direction) => {
                if let Some(is_pending) = self.is_max_streams_pending.get_mut(direction as usize) {
                    *is_pending = true;
                }
            }
            StreamControl::MaxStreamData(id) => {
                if let Some(receive) = self.receive_half(id)
                    && !receive.is_final_size_known()
                    && !receive.is_stopped
                    && !std::mem::replace(&mut receive.is_credit_pending, true)
                {
                    self.pending.push(control);
                }
            }
            StreamControl::ResetStream(id) => {
                if let Some(send) = self.send_half(id)
                    && matches!(send.state, SendHalfState::Reset { .. })
                {
                    self.pending.push(control);
                }
            }
            // Unless the limit has been raised since (RFC 9000 section 13.3).
            StreamControl::DataBlocked if self.is_at_data_limit() => self.send_once(control),
            StreamControl::StreamDataBlocked(id)
                if self.send_half(id).is_some_and(|send| send.is_at_limit()) =>
            {
                self.send_stream_data_blocked(id);
            }
            StreamControl::StreamsBlocked(direction)
                if self.is_open_blocked.get(direction as usize) == Some(&true) =>
            {
                self.send_once(control);
            }
            StreamControl::DataBlocked
            | StreamControl::StreamDataBlocked(_)
            | StreamControl::StreamsBlocked(_) => {}
            StreamControl::StopSending { stream, .. } => {
                if let Some(receive) = self.receive_half(stream)
                    && !receive.is_final_size_known()
                {
                    self.pending.push(control);
                }
            }
        }
    }

    /// Removes a stream from the queue of those to send.
    fn dequeue(&mut self, id: StreamId) {
        if let Some(send) = self.send_half(id)
            && std::mem::take(&mut send.is_queued)
        {
            let priority = send.priority;
            self.queue.remove(priority, id);
        }
    }

    /// Opens the stream of a frame and those before it (section 2.1), unless it is open already or over. `is_received`:
    /// the frame is about data of the peer.
    #[inline]
    fn open_by_frame(&mut self, id: StreamId, is_received: bool) -> Result<(), TransportError> {
        let is_local = id.initiator() == self.side;
        if id.dir() == Dir::Uni && is_local == is_received {
            return Err(TransportError::stream_state(
                "a frame for the other direction",
            ));
        }
        let Some(table) = self.tables.get_mut(super::kind_of(id)) else {
            return Ok(());
        };
        let opened = table.opened();
        if id.index() < opened {
            return Ok(());
        }
        if is_local {
            return Err(TransportError::stream_state("a stream that is not open"));
        }
        if self
            .announced_remote
            .get(id.dir() as usize)
            .is_none_or(|most| id.index() >= *most)
        {
            return Err(TransportError::stream_limit("more streams than the limit"));
        }
        // A frame opens all streams before its own (RFC 9000 section 2.1); the limit above bounds how many, so the
        // loop is no attack.
        for index in opened..=id.index() {
            table.open_next();
            let opened = StreamId::new(id.initiator(), id.dir(), index);
            self.events.push_back(StreamEvent::Opened(opened));
            if id.dir() == Dir::Bi {
                self.sending += 1;
            }
        }
        if let Some(receive) = self.receive_half(id) {
            receive.is_reported = true;
        }
        Ok(())
    }

    fn report_readable(&mut self, id: StreamId) {
        if let Some(receive) = self.receive_half(id)
            && !receive.is_reported
            && receive.is_readable()
        {
            receive.is_reported = true;
            self.events.push_back(StreamEvent::Readable(id));
        }
    }

    /// Data that nobody will read has come. That of a reset is credited when the application learns of it.
    fn credit_discarded(&mut self, id: StreamId, bytes: u64) {
        if self
            .receive_half(id)
            .is_some_and(|receive| receive.is_stopped)
        {
            self.credit(bytes);
        }
    }
}
