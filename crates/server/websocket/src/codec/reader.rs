//! Decodes bytes into messages and control frames (RFC 6455 sections 5 and 6.2).

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;

use super::frame::{FrameHead, Opcode};
use super::inflate::Inflater;
use super::utf8::Utf8;
use super::{Close, Message, WebSocketProtocolError, mask};

/// Reads frames and assembles messages from them.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// Whether frames must be masked, as clients do, or must not be.
    expects_mask: bool,
    max_frame: usize,
    max_message: usize,
    inflater: Option<Inflater>,
    frame: Option<PartialFrame>,
    message: Option<PartialMessage>,
}

/// A message or a control frame that was read.
#[derive(Debug)]
pub(super) enum ReaderEvent {
    Message(Message),
    Ping(Bytes),
    Pong(Bytes),
    Close(Option<Close>),
}

/// A frame whose payload is incomplete.
#[derive(Debug)]
struct PartialFrame {
    head: FrameHead,
    /// The number of payload bytes that are not consumed from the input yet.
    left: usize,
    /// The number of bytes at the front of the input that are unmasked already.
    unmasked: usize,
    /// The number of unmasked payload bytes in total.
    offset: usize,
    /// Whether the payload stays in the input until it is complete, without a copy.
    is_zero_copy: bool,
}

/// A message whose frames are incomplete.
#[derive(Debug)]
struct PartialMessage {
    is_text: bool,
    is_compressed: bool,
    /// The payload as it was received. A compressed message stays compressed until it is complete: otherwise a
    /// peer that sends a kilobyte could make us hold a thousand times as much for as long as it likes.
    payload: Vec<u8>,
    /// The state of text that is checked piece by piece; compressed text is checked at its end.
    utf8: Utf8,
}

impl FrameReader {
    pub(super) fn new(
        expects_mask: bool,
        (max_frame, max_message): (usize, usize),
        inflater: Option<Inflater>,
    ) -> Self {
        Self {
            expects_mask,
            max_frame,
            max_message,
            inflater,
            frame: None,
            message: None,
        }
    }

    /// Consumes input up to the end of its first message or control frame. `None` asks for more bytes behind
    /// the rest of `input`.
    pub(super) fn read(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<ReaderEvent>, WebSocketProtocolError> {
        loop {
            if self.frame.is_none() {
                let Some((head, len)) = FrameHead::parse(input)? else {
                    return Ok(None);
                };
                self.frame = Some(self.begin(head)?);
                input.advance(len);
            }
            let Some(piece) = self.payload(input)? else {
                return Ok(None);
            };
            if let Some(event) = self.end(piece)? {
                return Ok(Some(event));
            }
        }
    }

    /// The number of bytes that the current frame is known to need still.
    pub(super) fn missing(&self, input: &BytesMut) -> usize {
        let left = self.frame.as_ref().map_or(0, |frame| frame.left);
        left.saturating_sub(input.len())
    }

    /// Whether a message is incomplete.
    pub(super) fn is_inside_message(&self) -> bool {
        self.message.is_some()
    }

    /// The bytes of memory that the incomplete message takes, without those in the input.
    pub(super) fn buffered(&self) -> usize {
        let message = self.message.as_ref();
        message.map_or(0, |message| message.payload.capacity())
    }

    /// The received bytes of the incomplete message, without those in the input.
    pub(super) fn received(&self) -> usize {
        let message = self.message.as_ref();
        message.map_or(0, |message| message.payload.len())
    }

    /// Drops the incomplete message.
    pub(super) fn clear(&mut self) {
        (self.frame, self.message) = (None, None);
    }

    /// Checks that this frame is valid here, and begins it.
    fn begin(&mut self, head: FrameHead) -> Result<PartialFrame, WebSocketProtocolError> {
        match (self.expects_mask, head.mask) {
            (true, None) => return Err(WebSocketProtocolError::Unmasked),
            (false, Some(_)) => return Err(WebSocketProtocolError::Masked),
            _ => {}
        }
        let begins = matches!(head.opcode, Opcode::Text | Opcode::Binary);
        if head.is_compressed && !(begins && self.inflater.is_some()) {
            return Err(WebSocketProtocolError::ReservedBits);
        }
        let left = usize::try_from(head.len).map_err(|_| WebSocketProtocolError::FrameTooLong)?;
        if head.opcode.is_control() {
            return Ok(PartialFrame::new(head, left, true));
        }
        match (&self.message, begins) {
            (Some(_), true) => return Err(WebSocketProtocolError::InterruptedMessage),
            (None, false) => return Err(WebSocketProtocolError::UnexpectedContinuation),
            _ => {}
        }
        if left > self.max_frame {
            return Err(WebSocketProtocolError::FrameTooLong);
        }
        let message = self.message.get_or_insert_with(|| PartialMessage {
            is_text: head.opcode == Opcode::Text,
            is_compressed: head.is_compressed,
            payload: Vec::new(),
            utf8: Utf8::default(),
        });
        // A message that is too long is rejected before its payload takes memory.
        let max = if message.is_compressed {
            max_compressed(self.max_message)
        } else {
            self.max_message
        };
        if message.payload.len().saturating_add(left) > max {
            return Err(WebSocketProtocolError::MessageTooLong);
        }
        let is_zero_copy = head.is_final && message.payload.is_empty();
        Ok(PartialFrame::new(head, left, is_zero_copy))
    }

    /// Consumes available payload of the frame; at its end, returns the payload if it was left in the input.
    fn payload(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, WebSocketProtocolError> {
        let Some(frame) = &mut self.frame else {
            return Ok(None);
        };
        let available = frame.left.min(input.len());
        let masked = input.get_mut(frame.unmasked..available).unwrap_or_default();
        if let Some(key) = frame.head.mask {
            mask::apply(masked, key, frame.offset);
        }
        frame.offset = frame.offset.saturating_add(masked.len());
        if frame.is_zero_copy {
            let is_complete = available == frame.left;
            // Text in pieces is checked piece by piece, to fail early; text in one piece is checked at its end.
            let is_in_pieces = !is_complete || frame.unmasked > 0;
            if is_in_pieces
                && !frame.head.opcode.is_control()
                && let Some(message) = self
                    .message
                    .as_mut()
                    .filter(|message| message.is_plain_text())
            {
                message.utf8.check(masked)?;
            }
            frame.unmasked = available;
            return Ok(is_complete.then(|| {
                if available == input.len() {
                    std::mem::take(input).freeze()
                } else {
                    input.split_to(available).freeze()
                }
            }));
        }
        frame.left = frame.left.saturating_sub(available);
        let is_complete = frame.left == 0;
        if let Some(message) = &mut self.message {
            let piece = input.get(..available).unwrap_or_default();
            message.add(piece)?;
        }
        input.advance(available);
        Ok(is_complete.then(Bytes::new))
    }

    /// Ends a complete frame; returns the control frame, or the message if it was its last frame.
    fn end(&mut self, payload: Bytes) -> Result<Option<ReaderEvent>, WebSocketProtocolError> {
        let Some(PartialFrame {
            head, is_zero_copy, ..
        }) = self.frame.take()
        else {
            return Ok(None);
        };
        match head.opcode {
            Opcode::Ping => return Ok(Some(ReaderEvent::Ping(payload))),
            Opcode::Pong => return Ok(Some(ReaderEvent::Pong(payload))),
            Opcode::Close => return Ok(Some(ReaderEvent::Close(Close::parse(&payload)?))),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {}
        }
        if !head.is_final {
            return Ok(None);
        }
        let Some(message) = self.message.take() else {
            return Ok(None);
        };
        let is_text = message.is_text;
        let payload = match (&mut self.inflater, is_zero_copy) {
            (Some(inflater), true) if message.is_compressed => {
                inflater.inflate_message(&payload, self.max_message)?.into()
            }
            (Some(inflater), false) if message.is_compressed => inflater
                .inflate_message(&message.payload, self.max_message)?
                .into(),
            (_, true) => payload,
            (_, false) => {
                message.utf8.finish()?;
                message.payload.into()
            }
        };
        Ok(Some(ReaderEvent::Message(if is_text {
            Message::Text(
                ByteString::try_from(payload).map_err(|_| WebSocketProtocolError::InvalidUtf8)?,
            )
        } else {
            Message::Binary(payload)
        })))
    }
}

impl PartialFrame {
    fn new(head: FrameHead, left: usize, is_zero_copy: bool) -> Self {
        Self {
            head,
            left,
            unmasked: 0,
            offset: 0,
            is_zero_copy,
        }
    }
}

impl PartialMessage {
    /// Whether the text can be checked piece by piece.
    fn is_plain_text(&self) -> bool {
        self.is_text && !self.is_compressed
    }

    /// Adds a piece of payload.
    fn add(&mut self, piece: &[u8]) -> Result<(), WebSocketProtocolError> {
        self.payload.extend_from_slice(piece);
        if self.is_plain_text() {
            self.utf8.check(piece)
        } else {
            Ok(())
        }
    }
}

/// The maximum length of a compressed message: data that does not become shorter has some bytes more.
fn max_compressed(max_message: usize) -> usize {
    max_message
        .saturating_add(max_message / 8)
        .saturating_add(64)
}
