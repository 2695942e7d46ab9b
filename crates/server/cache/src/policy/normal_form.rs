//! The normal forms of request fields in cache keys: equal for requests that get the same response (RFC 9111 sections 2 and 4.1).

use apus_http::fields::{AcceptEncoding, Coding};
use apus_http::list;
use smallvec::SmallVec;

use super::PresentedRequest;

/// Writes the length and the bytes, so that no following bytes can be mistaken for a part of them.
pub(super) fn write_value<A: smallvec::Array<Item = u8>>(value: &[u8], out: &mut SmallVec<A>) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

/// Writes the normal form of a request field. An absent field is unlike any present one (RFC 9111
/// section 4.1).
pub(super) fn write_field<A: smallvec::Array<Item = u8>>(
    name: &str,
    request: &PresentedRequest<'_>,
    out: &mut SmallVec<A>,
) {
    if name == "user-agent"
        && let Some(device) = request.device
    {
        out.push(2);
        write_value(device.as_bytes(), out);
        return;
    }
    if name == "accept-encoding" {
        out.push(3);
        write_codings(request, out);
        return;
    }
    let Some(values) = request.values(name) else {
        match target_value(name, request) {
            Some(value) => {
                out.push(4);
                write_value(value.as_bytes(), out);
            }
            None => out.push(0),
        }
        return;
    };
    out.push(1);
    // What one client has made is sent to all others whose form is the same, so the form may differ from the bytes only where
    // nobody who reads the field could see a difference (RFC 9111 section 4.1). Languages and charsets are case-insensitive,
    // and white space has no meaning in `Accept`, but applications compare bytes, and quoted strings have white space: a client
    // that asks for `DE` or for ` xmlhttprequest` must not choose what others get.
    let is_list = matches!(name, "accept-language" | "accept-charset");
    let mut text: SmallVec<[u8; 64]> = SmallVec::new();
    let mut separator: &[u8] = b"";
    for value in values {
        text.extend_from_slice(separator);
        // The common way to join lines (RFC 9110 section 5.3).
        separator = if is_list { b"," } else { b", " };
        if is_list {
            write_list(value, &mut text);
        } else {
            text.extend_from_slice(value);
        }
    }
    write_value(&text, out);
}

/// Writes a list, or a part of it, without the white space around `,` and `;`.
fn write_list<A: smallvec::Array<Item = u8>>(list: &[u8], out: &mut SmallVec<A>) {
    for part in list.split_inclusive(|byte| matches!(byte, b',' | b';')) {
        match part.split_last() {
            Some((delimiter @ (b',' | b';'), item)) => {
                out.extend_from_slice(item.trim_ascii());
                out.push(*delimiter);
            }
            _ => out.extend_from_slice(part.trim_ascii()),
        }
    }
}

/// The fields that carry the scheme, host and port of the client's request.
pub(super) const TARGET_FIELDS: [&str; 3] =
    ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];

/// The value of such a field that the proxy sends if the request has none. The port is taken from
/// the authority.
fn target_value<'a>(name: &str, request: &PresentedRequest<'a>) -> Option<&'a str> {
    match name {
        "x-forwarded-proto" => Some(request.scheme),
        "x-forwarded-host" | "x-forwarded-port" => Some(request.authority),
        _ => None,
    }
}

/// Content codings beyond [`Coding`], each with its bit.
pub(super) const OTHER_CODINGS: [(&[u8], u8); 4] =
    [(b"deflate", 1), (b"compress", 2), (b"dcb", 4), (b"dcz", 8)];

/// The values that most clients send, with their normal forms, which saves parsing them.
const COMMON_VALUES: [(&[u8], &[u8]); 4] = [
    (b"gzip, deflate, br, zstd", b"bzgi\x01"),
    (b"gzip, deflate, br", b"bgi\x01"),
    (b"gzip, deflate", b"gi\x01"),
    (b"gzip", b"gi\0"),
];

/// Writes which codings are accepted, and in which order. There are no more outcomes than
/// combinations of known codings, whatever a client sends.
fn write_codings<A: smallvec::Array<Item = u8>>(
    request: &PresentedRequest<'_>,
    out: &mut SmallVec<A>,
) {
    // A form by the bytes of the field would make a variant for each spelling, and a client that invents weights would fill
    // the store with copies of one response.
    let Some(mut lines) = request.values("accept-encoding") else {
        return out.push(b'-');
    };
    if let (Some(line), None) = (lines.next(), lines.next())
        && let Some((_, normal)) = COMMON_VALUES.iter().find(|(common, _)| *common == line)
    {
        return out.extend_from_slice(normal);
    }
    let lines = || request.headers.get_all("accept-encoding");
    for coding in AcceptEncoding::parse(lines()).preferred() {
        out.push(match coding {
            Coding::Brotli => b'b',
            Coding::Zstd => b'z',
            Coding::Gzip => b'g',
            Coding::Identity => b'i',
        });
    }
    // It is not a letter, and comes last.
    out.push(other_codings(lines()));
}

/// Which of [`OTHER_CODINGS`] are accepted.
fn other_codings<'a>(lines: impl Iterator<Item = &'a [u8]>) -> u8 {
    let (mut accepted, mut refused, mut takes_any) = (0_u8, 0_u8, false);
    for member in lines.flat_map(list::members) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is_refused = parts.any(is_zero_weight);
        let name = name.strip_prefix(b"x-").unwrap_or(name);
        let known = OTHER_CODINGS
            .iter()
            .find(|(coding, _)| name.eq_ignore_ascii_case(coding));
        match known {
            Some((_, bit)) if is_refused => refused |= bit,
            Some((_, bit)) => accepted |= bit,
            // `*` stands for codings that Apus does not know, too: an origin may send one of them (RFC 9110 section 12.5.3).
            None => takes_any |= name == b"*" && !is_refused,
        }
    }
    if takes_any {
        let all = OTHER_CODINGS.iter().fold(0, |all, (_, bit)| all | bit);
        accepted |= all & !refused;
    }
    accepted
}

/// Whether a parameter is `q=0` (RFC 9110 section 12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    match parameter {
        [b'q' | b'Q', b'=', b'0', rest @ ..] => rest.iter().all(|byte| matches!(byte, b'.' | b'0')),
        _ => false,
    }
}
