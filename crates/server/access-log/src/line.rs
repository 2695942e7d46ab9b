//! Formats a line of the access log: the request's values when it arrives, the others when its response has ended.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_conditions::RequestVariables;
use apus_http::{Completion, Request, ResponseOutcome};
use apus_sites::VariableSink;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::format::{Escape, FormatPart, LogFormat, ResponseVariable};
use crate::hidden::{HIDDEN, HiddenParameters, QueryPlace};

/// A line whose response has not ended yet: the escaped values of the request variables, each after its
/// length in four bytes.
pub(crate) struct LogLine {
    values: Vec<u8>,
}

/// What is known when a response has ended.
pub(crate) struct LineEnding<'a> {
    pub(crate) completion: &'a Completion,
    pub(crate) user: Option<&'a str>,
    pub(crate) variables: Option<&'a RequestVariables>,
    pub(crate) clock: &'a LogClock,
    /// The share of requests like this one that are logged.
    pub(crate) sample_rate: f64,
}

const LENGTH: usize = size_of::<u32>();

impl LogLine {
    /// Formats the values of the request into an empty buffer.
    pub(crate) fn begin(
        format: &LogFormat,
        site_name: &str,
        request: &Request,
        mut values: Vec<u8>,
    ) -> Self {
        for part in &format.parts {
            if let FormatPart::Request(variable)
            | FormatPart::Query(variable, _)
            | FormatPart::Secret(variable) = part
            {
                let at = values.len();
                values.extend_from_slice(&[0; LENGTH]);
                let mut sink = EscapingSink {
                    escape: format.escape,
                    out: &mut values,
                };
                match part {
                    FormatPart::Query(_, place) => {
                        let mut sink = HidingSink {
                            sink,
                            hidden: Some((&format.hidden, *place)),
                        };
                        variable.write(request, site_name, &mut sink);
                    }
                    FormatPart::Secret(_) => {
                        let mut sink = HidingSink { sink, hidden: None };
                        variable.write(request, site_name, &mut sink);
                    }
                    _ => variable.write(request, site_name, &mut sink),
                }
                let len = values.len().saturating_sub(at.saturating_add(LENGTH));
                let len = u32::try_from(len).unwrap_or(0);
                if let Some(length) = values.get_mut(at..at.saturating_add(LENGTH)) {
                    length.copy_from_slice(&len.to_ne_bytes());
                }
            }
        }
        Self { values }
    }

    /// The buffer of a line that is not written.
    pub(crate) fn into_values(self) -> Vec<u8> {
        self.values
    }

    /// Appends the complete line with its line feed to `out`. Returns the buffer.
    pub(crate) fn finish(
        self,
        format: &LogFormat,
        ending: &LineEnding<'_>,
        out: &mut Vec<u8>,
    ) -> Vec<u8> {
        let LineEnding {
            completion,
            user,
            variables,
            clock,
            sample_rate,
        } = *ending;
        let mut rest = self.values.as_slice();
        for part in &format.parts {
            match part {
                FormatPart::Text(text) => out.extend_from_slice(text.as_bytes()),
                FormatPart::Response(ResponseVariable::SampleRate) => {
                    write(out, format_args!("{sample_rate}"));
                }
                FormatPart::Response(variable) => {
                    write_response_variable(*variable, completion, clock, format.escape, out);
                }
                FormatPart::SentUrl(name) => {
                    let fields = completion.fields.as_deref();
                    let value = fields.and_then(|fields| fields.get(name));
                    let mut shown = Vec::new();
                    let has_hidden = value.is_some_and(|value| {
                        format.hidden.write(value, QueryPlace::Url, &mut shown)
                    });
                    let value = if has_hidden { Some(&*shown) } else { value };
                    format.escape.string(value, out);
                }
                FormatPart::Sent(name) => {
                    let fields = completion.fields.as_deref();
                    format
                        .escape
                        .string(fields.and_then(|fields| fields.get(name)), out);
                }
                FormatPart::User => format.escape.string(user.map(str::as_bytes), out),
                FormatPart::Rule(name) => {
                    let value = variables.and_then(|variables| variables.get(name));
                    format.escape.string(value.as_deref(), out);
                }
                FormatPart::Request(_) | FormatPart::Query(..) | FormatPart::Secret(_) => {
                    let Some((length, after)) = rest.split_first_chunk::<LENGTH>() else {
                        continue;
                    };
                    let length = u32::from_ne_bytes(*length) as usize;
                    if let Some((value, after)) = after.split_at_checked(length) {
                        out.extend_from_slice(value);
                        rest = after;
                    }
                }
            }
        }
        out.push(b'\n');
        self.values
    }
}

/// Appends the escaped values of request variables.
struct EscapingSink<'a> {
    escape: Escape,
    out: &'a mut Vec<u8>,
}

impl VariableSink for EscapingSink<'_> {
    fn text(&mut self, value: &[u8]) {
        self.escape.string(Some(value), self.out);
    }

    fn uri(&mut self, value: std::fmt::Arguments<'_>) {
        match value.as_str() {
            Some(value) => self.text(value.as_bytes()),
            None => self.escape.quoted(self.out, |out| {
                let mut out = EscapingWriter {
                    escape: self.escape,
                    out,
                };
                let _ = std::fmt::Write::write_fmt(&mut out, value);
            }),
        }
    }

    fn number(&mut self, value: u64) {
        write(self.out, format_args!("{value}"));
    }

    fn missing(&mut self) {
        self.escape.string(None, self.out);
    }
}

/// Appends values without their secrets.
struct HidingSink<'a, 'b> {
    sink: EscapingSink<'a>,
    /// What is hidden of a query; `None`: the whole value.
    hidden: Option<(&'b HiddenParameters, QueryPlace)>,
}

impl VariableSink for HidingSink<'_, '_> {
    fn text(&mut self, value: &[u8]) {
        let Some((hidden, place)) = self.hidden else {
            return self
                .sink
                .text(if value.is_empty() { value } else { HIDDEN });
        };
        let mut shown = Vec::new();
        if hidden.write(value, place, &mut shown) {
            self.sink.text(&shown);
        } else {
            self.sink.text(value);
        }
    }

    fn uri(&mut self, value: std::fmt::Arguments<'_>) {
        match value.as_str() {
            Some(value) => self.text(value.as_bytes()),
            None => self.text(value.to_string().as_bytes()),
        }
    }

    fn number(&mut self, value: u64) {
        self.sink.number(value);
    }

    fn missing(&mut self) {
        self.sink.missing();
    }
}

/// Escapes formatted text.
struct EscapingWriter<'a> {
    escape: Escape,
    out: &'a mut Vec<u8>,
}

impl std::fmt::Write for EscapingWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.escape.bytes(text.as_bytes(), self.out);
        Ok(())
    }
}

fn write_response_variable(
    variable: ResponseVariable,
    completion: &Completion,
    clock: &LogClock,
    escape: Escape,
    out: &mut Vec<u8>,
) {
    let complete = completion.outcome == ResponseOutcome::Complete;
    match variable {
        ResponseVariable::TimeLocal => {
            escape.quoted(out, |out| clock.write(TimestampFormat::Common, out))
        }
        ResponseVariable::TimeIso => {
            escape.quoted(out, |out| clock.write(TimestampFormat::Iso, out))
        }
        ResponseVariable::Milliseconds => {
            let now = LogClock::now();
            write(
                out,
                format_args!("{}.{:03}", now.as_secs(), now.subsec_millis()),
            );
        }
        ResponseVariable::Status => out.extend_from_slice(completion.status.as_str().as_bytes()),
        ResponseVariable::BodyBytes => write(out, format_args!("{}", completion.body_bytes)),
        ResponseVariable::Bytes => write(out, format_args!("{}", completion.bytes)),
        ResponseVariable::Duration => seconds(completion.duration, out),
        ResponseVariable::FirstByte => {
            seconds(completion.first_byte.unwrap_or(completion.duration), out);
        }
        ResponseVariable::Completion => match escape {
            Escape::Json => write(out, format_args!("{complete}")),
            Escape::Hexadecimal if complete => out.extend_from_slice(b"OK"),
            Escape::Hexadecimal => out.push(b'-'),
        },
        ResponseVariable::UpstreamAddr => {
            let address = completion.origin.as_ref().map(|source| &*source.address);
            escape.string(address.map(str::as_bytes), out);
        }
        ResponseVariable::UpstreamStatus => match &completion.origin {
            Some(source) => write(out, format_args!("{}", source.status.as_u16())),
            None => escape.string(None, out),
        },
        ResponseVariable::UpstreamDuration => match &completion.origin {
            Some(source) => seconds(source.duration, out),
            None => escape.string(None, out),
        },
        ResponseVariable::UpstreamCacheStatus => {
            let result = completion.cache.map(|cache| cache.as_str().as_bytes());
            escape.string(result, out);
        }
        // The line knows it.
        ResponseVariable::SampleRate => {}
    }
}

fn seconds(duration: Duration, out: &mut Vec<u8>) {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    write(out, format_args!("{seconds}.{millis:03}"));
}

/// Appends formatted text, which cannot fail.
fn write(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}

impl Escape {
    fn quoted(self, out: &mut Vec<u8>, write_value: impl FnOnce(&mut Vec<u8>)) {
        let quote: &[u8] = match self {
            Self::Json => b"\"",
            Self::Hexadecimal => b"",
        };
        out.extend_from_slice(quote);
        write_value(out);
        out.extend_from_slice(quote);
    }

    fn string(self, value: Option<&[u8]>, out: &mut Vec<u8>) {
        match (self, value) {
            (Self::Json, None) => out.extend_from_slice(b"null"),
            (Self::Hexadecimal, None) => out.push(b'-'),
            (_, Some(value)) => self.quoted(out, |out| self.bytes(value, out)),
        }
    }

    /// Appends `value`, escaped so that a client cannot end a line or a string with it, or control the
    /// terminal of the reader.
    fn bytes(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Hexadecimal => {
                for byte in value {
                    match byte {
                        b'"' | b'\\' | 0..b' ' | 0x7f.. => {
                            write(out, format_args!("\\x{byte:02X}"))
                        }
                        plain => out.push(*plain),
                    }
                }
            }
            Self::Json => {
                for character in value.utf8_chunks().flat_map(|chunk| {
                    let broken = (!chunk.invalid().is_empty()).then_some('\u{fffd}');
                    chunk.valid().chars().chain(broken)
                }) {
                    match character {
                        '"' => out.extend_from_slice(b"\\\""),
                        '\\' => out.extend_from_slice(b"\\\\"),
                        // Control characters of both sets, and characters that change the text direction.
                        control if control.is_control() || is_directional(control) => {
                            write(out, format_args!("\\u{:04x}", u32::from(control)));
                        }
                        plain => {
                            let mut buffer = [0; 4];
                            out.extend_from_slice(plain.encode_utf8(&mut buffer).as_bytes());
                        }
                    }
                }
            }
        }
    }
}

fn is_directional(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The current time as text, formatted once per second. The zone is UTC.
#[derive(Default)]
pub(crate) struct LogClock {
    second: Cell<u64>,
    common: RefCell<Vec<u8>>,
    iso: RefCell<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum TimestampFormat {
    Common,
    Iso,
}

const COMMON: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
const ISO: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]+00:00");

impl LogClock {
    pub(crate) fn now() -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn write(&self, stamp: TimestampFormat, out: &mut Vec<u8>) {
        let second = Self::now().as_secs();
        if self.second.replace(second) != second {
            self.set(second);
        }
        let text = match stamp {
            TimestampFormat::Common => &self.common,
            TimestampFormat::Iso => &self.iso,
        };
        out.extend_from_slice(&text.borrow());
    }

    fn set(&self, second: u64) {
        let time = i64::try_from(second)
            .ok()
            .and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok())
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        for (text, format) in [(&self.common, COMMON), (&self.iso, ISO)] {
            let mut text = text.borrow_mut();
            text.clear();
            let _ = time.format_into(&mut *text, format);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(escape: Escape, value: &[u8]) -> String {
        let mut out = Vec::new();
        escape.bytes(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_value_ends_a_line_or_a_string_or_controls_a_terminal() {
        let hostile = b"a\"\\\r\n\x1b[31m\x7f\xff\xc2\x9b";
        assert_eq!(
            escaped(Escape::Hexadecimal, hostile),
            r"a\x22\x5C\x0D\x0A\x1B[31m\x7F\xFF\xC2\x9B"
        );
        let json = escaped(Escape::Json, hostile);
        assert!(json.is_ascii() || json.contains('\u{fffd}'));
        assert!(!json.chars().any(char::is_control), "{json:?}");
        let back: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
        assert_eq!(back, "a\"\\\r\n\x1b[31m\x7f\u{fffd}\u{9b}");
    }

    #[test]
    fn timestamps_have_the_usual_forms() {
        let clock = LogClock::default();
        clock.set(784_111_777);
        assert_eq!(*clock.common.borrow(), b"06/Nov/1994:08:49:37 +0000");
        assert_eq!(*clock.iso.borrow(), b"1994-11-06T08:49:37+00:00");
    }
}
