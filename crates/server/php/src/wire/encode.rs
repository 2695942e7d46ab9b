//! The encoder of frames for a worker, whose variables are in the format of PHP's `serialize()`.

use std::ops::Range;

use super::{HEADER_LEN, flag, kind};

/// Variables that are the same for many requests, serialized once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedVariables {
    bytes: Vec<u8>,
    count: u32,
}

impl FixedVariables {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        string(&mut self.bytes, &[name.as_ref()]);
        string(&mut self.bytes, &[value.as_ref()]);
        self.count = self.count.saturating_add(1);
        self
    }
}

/// How the body of a [`RequestFrame`] is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyTransfer {
    /// This many bytes, which are written behind the frame.
    Inline(usize),
    /// In BODY frames, as it is longer or its length is unknown.
    Frames,
}

/// A REQUEST or EVENT frame without its body, which is written behind it and not copied.
///
/// Call [`RequestFrame::request`] or [`RequestFrame::event`], then [`RequestFrame::push`] and its variants for each
/// variable, then [`RequestFrame::finish`], and write [`RequestFrame::as_bytes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFrame {
    bytes: Vec<u8>,
    variables: u32,
    target: Range<usize>,
}

/// The position of the frame's type.
const KIND: usize = 4;

/// The position of the serialized array.
const ARRAY: usize = HEADER_LEN + 4;

/// The position of the number of variables, behind `a:`.
const COUNT: usize = ARRAY + 2;

/// The number of digits of the number of variables. PHP accepts leading zeros, so the number has a fixed length.
const COUNT_DIGITS: usize = 5;

impl RequestFrame {
    /// A request with fixed variables, and a capacity of `bytes` for others.
    pub fn request(fixed: &FixedVariables, bytes: usize) -> Self {
        let room = ARRAY
            .saturating_add(fixed.bytes.len())
            .saturating_add(bytes);
        let mut buffer = Vec::with_capacity(room);
        buffer.extend_from_slice(&[0, 0, 0, 0, kind::REQUEST, 0, 0, 0]);
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(b"a:00000:{");
        buffer.extend_from_slice(&fixed.bytes);
        Self {
            bytes: buffer,
            variables: fixed.count,
            target: 0..0,
        }
    }

    /// An event with a capacity of `bytes` for variables.
    pub fn event(bytes: usize) -> Self {
        Self::request(&FixedVariables::new(), bytes).into_event()
    }

    /// Converts a request to an event with the same variables.
    #[must_use]
    pub fn into_event(mut self) -> Self {
        self.set(KIND, &[kind::EVENT]);
        self
    }

    /// Adds a variable. PHP uses the last of two with the same name.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_parts(name, &[value]);
    }

    /// Adds a variable whose value is the concatenation of these parts.
    pub fn push_parts(&mut self, name: &[u8], value: &[&[u8]]) {
        string(&mut self.bytes, &[name]);
        string(&mut self.bytes, value);
        self.variables = self.variables.saturating_add(1);
    }

    /// Adds a header field as a meta-variable: `HTTP_` and its name in upper case, with `_` for `-` (RFC 3875
    /// section 4.1.18).
    pub fn push_field(&mut self, name: &[u8], value: &[u8]) {
        string(&mut self.bytes, &[b"HTTP_", name]);
        // Behind it there are a quote and a semicolon.
        let end = self.bytes.len().saturating_sub(2);
        let written = end.saturating_sub(name.len())..end;
        for byte in self.bytes.get_mut(written).unwrap_or_default() {
            *byte = match *byte {
                b'-' => b'_',
                byte => byte.to_ascii_uppercase(),
            };
        }
        string(&mut self.bytes, &[value]);
        self.variables = self.variables.saturating_add(1);
    }

    /// Adds a variable that log lines show: `REQUEST_URI`, or the name of a task.
    pub fn push_target(&mut self, name: &[u8], target: &[u8]) {
        self.push(name, target);
        // Behind it there are a quote and a semicolon.
        let end = self.bytes.len().saturating_sub(2);
        self.target = end.saturating_sub(target.len())..end;
    }

    /// The value of [`RequestFrame::push_target`], or nothing.
    pub fn target(&self) -> &[u8] {
        self.bytes.get(self.target.clone()).unwrap_or_default()
    }

    /// Ends the variables and sets how the body is sent.
    ///
    /// # Errors
    /// The frame is longer than its header can express, or has more than 99,999 variables. It must not be sent.
    pub fn finish(&mut self, transfer: BodyTransfer, is_head: bool) -> Result<(), Oversized> {
        self.bytes.push(b'}');
        let digits = format_args!("{:0COUNT_DIGITS$}", self.variables).to_string();
        if digits.len() != COUNT_DIGITS {
            return Err(Oversized);
        }
        let serialized = self.bytes.len().saturating_sub(ARRAY);
        let (inline, mut flags) = match transfer {
            BodyTransfer::Inline(len) => (len, 0),
            BodyTransfer::Frames => (0, flag::FIRST),
        };
        if is_head {
            flags |= flag::HEAD;
        }
        let whole = self
            .bytes
            .len()
            .saturating_sub(HEADER_LEN)
            .saturating_add(inline);
        let whole = u32::try_from(whole).map_err(|_| Oversized)?;
        let serialized = u32::try_from(serialized).map_err(|_| Oversized)?;
        self.set(0, &whole.to_le_bytes());
        self.set(5, &[flags]);
        self.set(HEADER_LEN, &serialized.to_le_bytes());
        self.set(COUNT, digits.as_bytes());
        Ok(())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len());
        if let Some(field) = self.bytes.get_mut(at..end) {
            field.copy_from_slice(bytes);
        }
    }

    /// The bytes of the frame.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The variables do not fit in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized;

impl std::fmt::Display for Oversized {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the variables of a request do not fit in a frame")
    }
}

impl std::error::Error for Oversized {}

/// The header of a BODY frame with a payload of `len` bytes, which is written behind it.
pub fn body_header(len: u32, is_last: bool) -> [u8; HEADER_LEN] {
    let [a, b, c, d] = len.to_le_bytes();
    let flags = if is_last { flag::FIRST } else { 0 };
    [a, b, c, d, kind::BODY, flags, 0, 0]
}

/// A CANCEL frame: the client disconnected.
pub fn cancel() -> [u8; HEADER_LEN] {
    bare(kind::CANCEL)
}

/// A STOP frame: the worker must send BYE and end its loop.
pub fn stop() -> [u8; HEADER_LEN] {
    bare(kind::STOP)
}

fn bare(kind: u8) -> [u8; HEADER_LEN] {
    [0, 0, 0, 0, kind, 0, 0, 0]
}

/// Writes `s:LENGTH:"...";` with the concatenation of `text`.
fn string(out: &mut Vec<u8>, text: &[&[u8]]) {
    let len = text.iter().map(|part| part.len()).sum::<usize>();
    let digit = |number: usize| b'0' | u8::try_from(number % 10).unwrap_or(0);
    // Most names and values have less than a hundred bytes, so their lengths are written without a loop.
    match len {
        0..10 => out.extend_from_slice(&[b's', b':', digit(len), b':', b'"']),
        10..100 => {
            out.extend_from_slice(&[b's', b':', digit(len / 10), digit(len), b':', b'"']);
        }
        _ => {
            out.extend_from_slice(b"s:");
            decimal(out, len);
            out.extend_from_slice(b":\"");
        }
    }
    for part in text {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\";");
}

/// Writes a number without `fmt`, which would dominate the cost.
fn decimal(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0_u8; 20];
    let mut used = 0;
    let mut left = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' | u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        used += 1;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_variables_in_the_format_of_serialize() {
        let fixed = FixedVariables::new().with("SERVER_NAME", b"a");
        let mut message = RequestFrame::request(&fixed, 64);
        message.push_target(b"REQUEST_URI", b"/x?y");
        message.push_field(b"X-Y_z", b"");
        message.push_parts(b"E", &[&[b'v'; 99], b"", b"w"]);
        message.finish(BodyTransfer::Inline(5), false).unwrap();
        let mut array =
            b"a:00004:{s:11:\"SERVER_NAME\";s:1:\"a\";s:11:\"REQUEST_URI\";s:4:\"/x?y\";\
            s:10:\"HTTP_X_Y_Z\";s:0:\"\";s:1:\"E\";s:100:\""
                .to_vec();
        array.extend_from_slice(&[b'v'; 99]);
        array.extend_from_slice(b"w\";}");
        let mut frame = ((4 + array.len() + 5) as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&[1, 0, 0, 0]);
        frame.extend_from_slice(&(array.len() as u32).to_le_bytes());
        frame.extend_from_slice(&array);
        assert_eq!(message.as_bytes(), frame);
        assert_eq!(message.target(), b"/x?y");
        assert_eq!(message.into_event().as_bytes()[4], 6);
    }

    #[test]
    fn flags_mark_head_requests_and_bodies_in_frames() {
        let flags = |transfer, is_head| {
            let mut message = RequestFrame::request(&FixedVariables::new(), 0);
            message.finish(transfer, is_head).unwrap();
            message.as_bytes()[5]
        };
        assert_eq!(flags(BodyTransfer::Inline(0), true), 2);
        assert_eq!(flags(BodyTransfer::Frames, false), 1);
        assert_eq!(flags(BodyTransfer::Frames, true), 3);
    }

    #[test]
    fn rejects_too_many_variables() {
        let mut message = RequestFrame::request(&FixedVariables::new(), 0);
        for _ in 0..100_000 {
            message.push(b"", b"");
        }
        assert_eq!(
            message.finish(BodyTransfer::Inline(0), false),
            Err(Oversized)
        );
    }

    #[test]
    fn rejects_a_body_that_is_longer_than_a_frame() {
        let mut message = RequestFrame::request(&FixedVariables::new(), 0);
        let transfer = BodyTransfer::Inline(u32::MAX as usize);
        assert_eq!(message.finish(transfer, false), Err(Oversized));
    }

    #[test]
    fn writes_numbers_as_the_formatter_does() {
        for number in [0, 7, 10, 99, 100, 12_345, usize::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
