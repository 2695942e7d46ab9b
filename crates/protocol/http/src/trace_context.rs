//! The context of a distributed trace (W3C Trace Context): `traceparent` and `tracestate`.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use crate::Headers;

/// The most members of `tracestate` (section 3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// The length up to which `tracestate` is passed on (section 3.3.1.5).
const MAX_STATE: usize = 512;

/// A member that is longer is left out first if all together are too long (section 3.3.1.5).
const LONG_MEMBER: usize = 128;

/// Where a request belongs in a distributed trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: NonZeroU128,
    span_id: NonZeroU64,
    is_sampled: bool,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Begins a trace.
    pub fn new(trace_id: NonZeroU128, span_id: NonZeroU64, is_sampled: bool) -> Self {
        Self {
            trace_id,
            span_id,
            is_sampled,
            state: None,
        }
    }

    /// The context that the fields of a request have. One that is not valid is none, and `tracestate` without a valid
    /// `traceparent` does not count (section 3.3).
    pub fn read(headers: &Headers) -> Option<Self> {
        let mut lines = headers.get_all("traceparent");
        let parent = lines.next().filter(|_| lines.next().is_none())?;
        let mut context = Self::parse_parent(parent)?;
        context.state = joined_state(headers.get_all("tracestate"));
        Some(context)
    }

    /// Parses the value of `traceparent` (section 3.2). Of a version after 00, the part that has the form of version 00
    /// counts.
    pub fn parse_parent(value: &[u8]) -> Option<Self> {
        let (known, after) = value.split_at_checked(55)?;
        let version = hexadecimal(known.get(..2)?)?;
        let is_complete = match version {
            0 => after.is_empty(),
            0xff => false,
            _ => matches!(after, [] | [b'-', ..]),
        };
        let is_separated = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        if !is_complete || !is_separated {
            return None;
        }
        let span_id = u64::try_from(hexadecimal(known.get(36..52)?)?).ok()?;
        Some(Self {
            trace_id: NonZeroU128::new(hexadecimal(known.get(3..35)?)?)?,
            span_id: NonZeroU64::new(span_id)?,
            is_sampled: hexadecimal(known.get(53..)?)? & 1 == 1,
            state: None,
        })
    }

    /// The context of a span below this one.
    #[must_use]
    pub fn child(&self, span_id: NonZeroU64) -> Self {
        Self {
            span_id,
            ..self.clone()
        }
    }

    /// The same context, sampled or not.
    #[must_use]
    pub fn sampled(mut self, is_sampled: bool) -> Self {
        self.is_sampled = is_sampled;
        self
    }

    /// The id of the trace.
    pub fn trace_id(&self) -> NonZeroU128 {
        self.trace_id
    }

    /// The id of the span.
    pub fn span_id(&self) -> NonZeroU64 {
        self.span_id
    }

    /// Whether whoever sent the context may have recorded it.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// The value of `tracestate`, if there is one.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// The value of `traceparent`, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (self.trace_id, self.span_id);
        write!(
            f,
            "00-{trace:032x}-{span:016x}-{:02x}",
            u8::from(self.is_sampled)
        )
    }
}

/// Hexadecimal digits in lower case, of which there are at most 32.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit.checked_sub(b'0')?,
            b'a'..=b'f' => digit.checked_sub(b'a')?.checked_add(10)?,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

/// The members of all lines of `tracestate`; `None` if there is none, or if one is not valid.
fn joined_state<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut members: Vec<&str> = Vec::new();
    for line in lines {
        for member in line.split(|byte| *byte == b',') {
            let member = std::str::from_utf8(member).ok()?;
            let member = member.trim_matches([' ', '\t']);
            // A list may have empty members.
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let is_known = members.iter().any(|known| key_of(known) == key);
            if !is_key(key) || !is_value(value) || is_known || members.len() == MAX_MEMBERS {
                return None;
            }
            members.push(member);
        }
    }
    let length = |members: &[&str]| {
        let texts: usize = members.iter().map(|member| member.len()).sum();
        texts.saturating_add(members.len().saturating_sub(1))
    };
    if length(&members) > MAX_STATE {
        members.retain(|member| member.len() <= LONG_MEMBER);
    }
    while length(&members) > MAX_STATE {
        members.pop();
    }
    (!members.is_empty()).then(|| members.join(",").into())
}

fn key_of(member: &str) -> &str {
    member.split_once('=').map_or(member, |(key, _)| key)
}

/// A key of `tracestate` (section 3.3.1.3.1): of a system, or of a tenant and a system.
fn is_key(key: &str) -> bool {
    let is_plain = |text: &str, max: usize| {
        let is_valid = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte)
        };
        text.len() <= max && text.bytes().all(is_valid)
    };
    let begins_with_letter =
        |text: &str| text.starts_with(|first: char| first.is_ascii_lowercase());
    match key.split_once('@') {
        None => begins_with_letter(key) && is_plain(key, 256),
        Some((tenant, system)) => {
            let begins = |first: char| first.is_ascii_lowercase() || first.is_ascii_digit();
            tenant.starts_with(begins)
                && is_plain(tenant, 241)
                && begins_with_letter(system)
                && is_plain(system, 14)
        }
    }
}

/// A value of `tracestate` (section 3.3.1.3.2). Space around it is not part of it.
fn is_value(value: &str) -> bool {
    let is_valid = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=256).contains(&value.len()) && value.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(lines: &[(&str, &str)]) -> Option<TraceContext> {
        let mut headers = Headers::default();
        for (name, value) in lines {
            headers.push(name.as_bytes(), value.as_bytes());
        }
        TraceContext::read(&headers)
    }

    fn state(lines: &[&str]) -> Option<String> {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let mut fields = vec![("traceparent", parent.as_str())];
        fields.extend(lines.iter().map(|line| ("tracestate", *line)));
        read(&fields).unwrap().state().map(str::to_owned)
    }

    #[test]
    fn a_parent_of_version_00_is_exactly_its_four_parts() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let context = TraceContext::parse_parent(text.as_bytes()).unwrap();
        assert_eq!(context.to_string(), text);
        assert!(context.is_sampled());
        for (value, is_sampled) in [
            (format!("00-{TRACE}-{SPAN}-00"), Some(false)),
            (format!("00-{TRACE}-{SPAN}-ff"), Some(true)),
            (format!("01-{TRACE}-{SPAN}-01"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01-later"), Some(true)),
            (format!("cc-{TRACE}-{SPAN}-01later"), None),
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}_{SPAN}-01"), None),
            (format!("0g-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-0"), None),
            (String::new(), None),
        ] {
            let found = TraceContext::parse_parent(value.as_bytes());
            assert_eq!(found.map(|found| found.is_sampled()), is_sampled, "{value}");
        }
    }

    #[test]
    fn two_parents_are_none_and_a_state_needs_a_parent() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let line = ("traceparent", parent.as_str());
        assert!(read(&[line]).is_some());
        assert!(read(&[line, line]).is_none());
        assert!(read(&[("tracestate", "a=1")]).is_none());
    }

    #[test]
    fn a_state_is_the_members_of_its_lines_or_none() {
        assert_eq!(state(&[]), None);
        assert_eq!(
            state(&["a=1 , ,b=2", "t1@c=x y"]).unwrap(),
            "a=1,b=2,t1@c=x y"
        );
        for invalid in [
            "a", "a=", "A=1", "1a=1", "a=1,a=2", "a=b=c", "a@=1", "@a=1", "a=\u{e4}",
        ] {
            assert_eq!(state(&["ok=1", invalid]), None, "{invalid}");
        }
        let members =
            |count: usize| -> Vec<String> { (0..count).map(|n| format!("k{n}=1")).collect() };
        assert!(state(&[&members(32).join(",")]).is_some());
        assert_eq!(state(&[&members(33).join(",")]), None);
    }

    #[test]
    fn a_state_that_is_too_long_loses_long_members_first_and_then_the_last() {
        let long = format!("long={}", "x".repeat(200));
        let all: Vec<String> = (0..5)
            .map(|n| format!("k{n}={}", "x".repeat(110)))
            .collect();
        let found = state(&[&long, &all.join(",")]).unwrap();
        assert_eq!(found, all[..4].join(","));
        assert!(state(&[&long]).is_some());
    }
}
