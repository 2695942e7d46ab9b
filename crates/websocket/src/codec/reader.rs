//! Bytes into messages and control frames (RFC 6455 sections 5 and 6.2).

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;

use super::frame::{FrameHead, Opcode};
use super::inflate::Inflater;
use super::utf8::Utf8;
use super::{Close, Message, ProtocolError, mask};

/// Reads frames, and puts messages together from them.
#[derive(Debug)]
pub(super) struct Reader {
    /// Whether frames must be masked, as those of clients, or must not be.
    expects_mask: bool,
    max_frame: usize,
    max_message: usize,
    inflater: Option<Inflater>,
    frame: Option<Frame>,
    message: Option<Partial>,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Item {
    Message(Message),
    Ping(Bytes),
    Pong(Bytes),
    Close(Option<Close>),
}

/// The frame whose payload comes.
#[derive(Debug)]
struct Frame {
    head: FrameHead,
    /// Bytes of payload that were not taken from the input yet.
    left: usize,
    /// How many of those that stand at the front of the input were unmasked already.
    unmasked: usize,
    /// Bytes of payload that were unmasked in all.
    offset: usize,
    /// Whether the payload is left in the input until all of it is there, and never copied.
    stays: bool,
}

/// The message whose frames come.
#[derive(Debug)]
struct Partial {
    is_text: bool,
    is_compressed: bool,
    payload: Vec<u8>,
    utf8: Utf8,
}

impl Reader {
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

    /// Takes input up to the end of the first message or control frame in it. `None`: more is
    /// needed; what is left in `input` then has to stand before what comes.
    pub(super) fn read(&mut self, input: &mut BytesMut) -> Result<Option<Item>, ProtocolError> {
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
            if let Some(item) = self.end(piece)? {
                return Ok(Some(item));
            }
        }
    }

    /// Bytes that are still to come before anything can be read, as far as that is known.
    pub(super) fn missing(&self, input: &BytesMut) -> usize {
        let left = self.frame.as_ref().map_or(0, |frame| frame.left);
        left.saturating_sub(input.len())
    }

    /// Whether this frame may come now.
    fn begin(&mut self, head: FrameHead) -> Result<Frame, ProtocolError> {
        match (self.expects_mask, head.mask) {
            (true, None) => return Err(ProtocolError::Unmasked),
            (false, Some(_)) => return Err(ProtocolError::Masked),
            _ => {}
        }
        let begins = matches!(head.opcode, Opcode::Text | Opcode::Binary);
        if head.is_compressed && !(begins && self.inflater.is_some()) {
            return Err(ProtocolError::ReservedBits);
        }
        let left = usize::try_from(head.len).map_err(|_| ProtocolError::FrameTooLong)?;
        if head.opcode.is_control() {
            return Ok(Frame::new(head, left, true));
        }
        match (&self.message, begins) {
            (Some(_), true) => return Err(ProtocolError::InterruptedMessage),
            (None, false) => return Err(ProtocolError::UnexpectedContinuation),
            _ => {}
        }
        if left > self.max_frame {
            return Err(ProtocolError::FrameTooLong);
        }
        let message = self.message.get_or_insert_with(|| Partial {
            is_text: head.opcode == Opcode::Text,
            is_compressed: head.is_compressed,
            payload: Vec::new(),
            utf8: Utf8::default(),
        });
        // Refused before it comes, not after it took the memory.
        if !message.is_compressed && message.payload.len().saturating_add(left) > self.max_message {
            return Err(ProtocolError::MessageTooLong);
        }
        let stays = head.is_final && !message.is_compressed && message.payload.is_empty();
        Ok(Frame::new(head, left, stays))
    }

    /// Takes the payload of the frame as it comes; at its end gives what was left in the input.
    fn payload(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, ProtocolError> {
        let Some(frame) = &mut self.frame else {
            return Ok(None);
        };
        let here = frame.left.min(input.len());
        let fresh = input.get_mut(frame.unmasked..here).unwrap_or_default();
        if let Some(key) = frame.head.mask {
            mask::apply(fresh, key, frame.offset);
        }
        frame.offset = frame.offset.saturating_add(fresh.len());
        if frame.stays {
            let is_whole = here == frame.left;
            // Text that comes in pieces is refused as soon as it is wrong; what is here at once is
            // looked at once.
            let looks_now = !is_whole || frame.unmasked > 0;
            if looks_now
                && !frame.head.opcode.is_control()
                && let Some(message) = self.message.as_mut().filter(|message| message.is_text)
            {
                message.utf8.check(fresh)?;
            }
            frame.unmasked = here;
            return Ok(is_whole.then(|| match here == input.len() {
                true => std::mem::take(input).freeze(),
                false => input.split_to(here).freeze(),
            }));
        }
        frame.left = frame.left.saturating_sub(here);
        let is_whole = frame.left == 0;
        if let Some(message) = &mut self.message {
            let piece = input.get(..here).unwrap_or_default();
            message.add(piece, self.inflater.as_mut(), self.max_message)?;
        }
        input.advance(here);
        Ok(is_whole.then(Bytes::new))
    }

    /// What the frame is, now that all of it is here.
    fn end(&mut self, payload: Bytes) -> Result<Option<Item>, ProtocolError> {
        let Some(Frame { head, stays, .. }) = self.frame.take() else {
            return Ok(None);
        };
        match head.opcode {
            Opcode::Ping => return Ok(Some(Item::Ping(payload))),
            Opcode::Pong => return Ok(Some(Item::Pong(payload))),
            Opcode::Close => return Ok(Some(Item::Close(Close::parse(&payload)?))),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {}
        }
        if !head.is_final {
            return Ok(None);
        }
        let Some(mut message) = self.message.take() else {
            return Ok(None);
        };
        let payload = match stays {
            true => payload,
            false => {
                message.finish(self.inflater.as_mut(), self.max_message)?;
                message.payload.into()
            }
        };
        Ok(Some(Item::Message(match message.is_text {
            true => Message::Text(
                ByteString::try_from(payload).map_err(|_| ProtocolError::InvalidUtf8)?,
            ),
            false => Message::Binary(payload),
        })))
    }
}

impl Frame {
    fn new(head: FrameHead, left: usize, stays: bool) -> Self {
        Self {
            head,
            left,
            unmasked: 0,
            offset: 0,
            stays,
        }
    }
}

impl Partial {
    /// Adds a piece of payload.
    fn add(
        &mut self,
        piece: &[u8],
        inflater: Option<&mut Inflater>,
        max: usize,
    ) -> Result<(), ProtocolError> {
        let before = self.payload.len();
        let added = match inflater.filter(|_| self.is_compressed) {
            Some(inflater) => inflater.inflate(piece, &mut self.payload, max),
            None => {
                self.payload.extend_from_slice(piece);
                Ok(())
            }
        };
        // What came out before a fault is looked at first, so that pieces make no difference.
        self.check(before)?;
        added
    }

    /// Ends the message.
    fn finish(&mut self, inflater: Option<&mut Inflater>, max: usize) -> Result<(), ProtocolError> {
        if let Some(inflater) = inflater.filter(|_| self.is_compressed) {
            let before = self.payload.len();
            inflater.finish(&mut self.payload, max)?;
            self.check(before)?;
        }
        self.utf8.finish()
    }

    /// Looks at the text from here on.
    fn check(&mut self, from: usize) -> Result<(), ProtocolError> {
        match self.is_text {
            true => self
                .utf8
                .check(self.payload.get(from..).unwrap_or_default()),
            false => Ok(()),
        }
    }
}
