//! The `Vary` field and secondary keys (RFC 9111 section 4.1).

use apus_http::fields::{AcceptEncoding, Coding, Vary};
use apus_http::{Headers, is_identity_field, list};
use smallvec::SmallVec;

use super::{CacheRules, PresentedRequest, StoreRefusal};

/// The most fields in `Vary`.
const MAX_FIELDS: usize = 8;

/// The request fields that `Vary` names, in lower case and sorted. Usually there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VaryFields {
    fields: SmallVec<[Box<str>; 1]>,
}

/// The values of those fields in a request, in a normal form: equal for requests that get the same
/// response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecondaryKey(SmallVec<[u8; 40]>);

impl VaryFields {
    /// The fields that `Vary` names in a response.
    ///
    /// # Errors
    /// The response varies by everything (`*`), by too many fields, or by a field that identifies
    /// the client.
    pub(super) fn of(headers: &Headers, rules: &CacheRules) -> Result<Self, StoreRefusal> {
        let mut vary = Self::default();
        if !rules.ignored.vary {
            match Vary::of(headers) {
                Vary::Any => return Err(StoreRefusal::VaryAny),
                Vary::Fields(named) if named.len() > MAX_FIELDS => {
                    return Err(StoreRefusal::VaryTooMany);
                }
                Vary::Fields(named) if named.iter().any(|name| identifies_client(name)) => {
                    return Err(StoreRefusal::VaryClient);
                }
                Vary::Fields(named) => vary.fields.extend(named),
            }
        }
        let mut is_encoded = false;
        for value in headers.get_all("content-encoding") {
            for coding in list::members(value) {
                match is_encoding(coding) {
                    Some(is_encoding) => is_encoded |= is_encoding,
                    // The normal form of Accept-Encoding does not contain it.
                    None => return Err(StoreRefusal::UnknownCoding),
                }
            }
        }
        // Many origins compress without naming the field in Vary.
        if is_encoded && !vary.fields().any(|name| name == "accept-encoding") {
            vary.fields.push("accept-encoding".into());
            vary.fields.sort_unstable();
        }
        Ok(vary)
    }

    /// The names in one line of bytes, for [`VaryFields::from_line`].
    pub fn line(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.fields.iter().map(|name| name.as_bytes()).collect();
        names.join(&b',')
    }

    /// Parses the result of [`VaryFields::line`].
    pub fn from_line(line: &[u8]) -> Self {
        Self {
            fields: list::members(line)
                .map(|name| String::from_utf8_lossy(name).into())
                .collect(),
        }
    }

    /// The names of the fields, in lower case.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &str> {
        self.fields.iter().map(|name| &**name)
    }

    /// Whether all requests with the key get the same response.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The secondary key of a request.
    pub fn secondary_key(&self, request: &PresentedRequest<'_>) -> SecondaryKey {
        let mut out = SmallVec::new();
        for name in &self.fields {
            write_field(name, request, &mut out);
        }
        SecondaryKey(out)
    }
}

impl SecondaryKey {
    /// The normal form. It is short, unless a field value without another normal form is long.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

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
    let is_list = matches!(
        name,
        "accept" | "accept-language" | "accept-charset" | "prefer" | "x-requested-with"
    );
    let mut text: SmallVec<[u8; 64]> = SmallVec::new();
    let mut separator: &[u8] = b"";
    for value in values {
        text.extend_from_slice(separator);
        // The common way to join lines (RFC 9110 section 5.3).
        separator = if is_list { b"," } else { b", " };
        if is_list {
            // These lists are case-insensitive, and white space has no meaning in them.
            text.extend(
                value
                    .iter()
                    .filter(|byte| !matches!(byte, b' ' | b'\t'))
                    .map(u8::to_ascii_lowercase),
            );
        } else {
            text.extend_from_slice(value);
        }
    }
    write_value(&text, out);
}

/// Whether a field identifies the client to the origin, so that no two clients could share the
/// response.
fn identifies_client(name: &str) -> bool {
    is_identity_field(name) && !TARGET_FIELDS.contains(&name)
}

/// The fields that carry the scheme, host and port of the client's request.
const TARGET_FIELDS: [&str; 3] = ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];

/// The value of such a field that the proxy sends if the request has none. The port is that of the
/// authority.
fn target_value<'a>(name: &str, request: &PresentedRequest<'a>) -> Option<&'a str> {
    match name {
        "x-forwarded-proto" => Some(request.scheme),
        "x-forwarded-host" | "x-forwarded-port" => Some(request.authority),
        _ => None,
    }
}

/// Content codings beyond [`Coding`], each with its bit.
const OTHER_CODINGS: [(&[u8], u8); 4] =
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

/// Whether a known coding is other than `identity`; `None` for an unknown one.
fn is_encoding(coding: &[u8]) -> Option<bool> {
    let coding = coding.strip_prefix(b"x-").unwrap_or(coding);
    if coding.eq_ignore_ascii_case(b"identity") {
        return Some(false);
    }
    let is_known = Coding::ALL
        .iter()
        .map(|known| known.as_str().as_bytes())
        .chain(OTHER_CODINGS.iter().map(|(known, _)| *known))
        .any(|known| coding.eq_ignore_ascii_case(known));
    is_known.then_some(true)
}
