//! Encodes messages and control frames into bytes (RFC 6455 section 6.1).

use std::fmt;

use bytes::{BufMut, Bytes};

use super::deflate::Deflater;
use super::extension::Window;
use super::frame::{FrameHead, Opcode};
use super::mask;
use super::message::{Message, PreparedMessage};
use super::output::OutputBuffer;

/// Returns the masking key for each frame of a client.
pub(super) type MaskKeys = Box<dyn FnMut() -> [u8; 4]>;

/// Writes frames. It never fragments a message.
pub(super) struct FrameWriter {
    /// Set for clients.
    keys: Option<MaskKeys>,
    deflater: Option<Deflater>,
}

impl FrameWriter {
    pub(super) fn new(keys: Option<MaskKeys>, deflater: Option<Deflater>) -> Self {
        Self { keys, deflater }
    }

    pub(super) fn message(&mut self, message: Message, out: &mut OutputBuffer) {
        let opcode = message.opcode();
        let deflater = self.deflater.as_mut();
        let compressed = deflater.and_then(|deflater| deflater.deflate(message.as_bytes()));
        let is_compressed = compressed.is_some();
        let payload = compressed.map_or_else(|| message.into_bytes(), Bytes::from);
        let head = FrameHead {
            is_compressed,
            ..FrameHead::whole(opcode, payload.len())
        };
        if self.keys.is_some() {
            self.copy(head, &payload, out);
        } else {
            out.append(|out| head.write(out));
            out.push(payload);
        }
    }

    /// Writes an encoded message; only for servers, as clients mask each frame with a new key.
    pub(super) fn prepared(&mut self, prepared: &PreparedMessage, out: &mut OutputBuffer) {
        out.push_shared(prepared.bytes_for(self.window()));
    }

    pub(super) fn control(&mut self, opcode: Opcode, payload: &[u8], out: &mut OutputBuffer) {
        self.copy(FrameHead::whole(opcode, payload.len()), payload, out);
    }

    fn copy(&mut self, mut head: FrameHead, payload: &[u8], out: &mut OutputBuffer) {
        head.mask = self.keys.as_mut().map(|keys| keys());
        out.append(|out| {
            out.reserve(FrameHead::MAX_LEN.saturating_add(payload.len()));
            head.write(out);
            let start = out.len();
            out.put_slice(payload);
            if let (Some(key), Some(copied)) = (head.mask, out.get_mut(start..)) {
                mask::apply(copied, key, 0);
            }
        });
    }

    fn window(&self) -> Option<Window> {
        self.deflater.as_ref().map(Deflater::window)
    }
}

impl fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWriter")
            .field("masks", &self.keys.is_some())
            .field("deflater", &self.deflater)
            .finish()
    }
}
