//! By which fields of the request the responses for one key differ (RFC 9111 section 4.1).

use apus_http::fields::{AcceptEncoding, Coding, Vary};
use apus_http::{Headers, is_identity_field, list};
use smallvec::SmallVec;

use super::{PresentedRequest, Refusal, Rules};

/// More fields than an origin has reason to choose by.
const MAX_FIELDS: usize = 8;

/// The fields by which a response was chosen: those in `Vary`, in lower case, sorted. Mostly none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variance {
    fields: SmallVec<[Box<str>; 1]>,
}

/// The values of those fields in one request, in a normal form: equal for requests that would be
/// answered alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variant(SmallVec<[u8; 40]>);

impl Variance {
    /// The fields by which the response with these headers was chosen.
    ///
    /// # Errors
    /// It may have been chosen by anything (`*`), or by too many fields.
    pub(super) fn of(headers: &Headers, rules: &Rules) -> Result<Self, Refusal> {
        let mut variance = Self::default();
        if !rules.ignored.vary {
            match Vary::of(headers) {
                Vary::Any => return Err(Refusal::VaryAny),
                Vary::Fields(named) if named.len() > MAX_FIELDS => {
                    return Err(Refusal::VaryTooMany);
                }
                Vary::Fields(named) if named.iter().any(|name| is_of_client(name)) => {
                    return Err(Refusal::VaryClient);
                }
                Vary::Fields(named) => variance.fields.extend(named),
            }
        }
        let mut is_encoded = false;
        for value in headers.get_all("content-encoding") {
            for coding in list::members(value) {
                match coding_bit(coding) {
                    Some(bit) => is_encoded |= bit != 0,
                    // It is not part of the normal form of Accept-Encoding.
                    None => return Err(Refusal::UnknownCoding),
                }
            }
        }
        // Many origins forget to say that they looked at it.
        if is_encoded && !variance.fields().any(|name| name == "accept-encoding") {
            variance.fields.push("accept-encoding".into());
            variance.fields.sort_unstable();
        }
        Ok(variance)
    }

    /// The names as one line of bytes, for [`Variance::from_line`].
    pub fn line(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.fields.iter().map(|name| name.as_bytes()).collect();
        names.join(&b',')
    }

    /// What [`Variance::line`] was made of.
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

    /// Whether all requests for the key get the same response.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// What this request has in those fields.
    pub fn variant(&self, request: &PresentedRequest<'_>) -> Variant {
        let mut out = SmallVec::new();
        for name in &self.fields {
            write_field(name, request, &mut out);
        }
        Variant(out)
    }
}

impl Variant {
    /// The normal form. It is short, unless a field is long that has no other normal form than itself.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

/// Writes a length and the bytes, so that nothing that follows can be taken for a part of them.
pub(super) fn write_value<A: smallvec::Array<Item = u8>>(value: &[u8], out: &mut SmallVec<A>) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

/// Writes the normal form of a field of the request. An absent one is like no other (RFC 9111 section
/// 4.1).
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
        match of_target(name, request) {
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
        // As lines are mostly joined (RFC 9110 section 5.3).
        separator = if is_list { b"," } else { b", " };
        if is_list {
            // Names of these lists have no case, and white space no meaning.
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

/// Whether an origin is told by a field who the client is, so that no two clients are sent the same.
fn is_of_client(name: &str) -> bool {
    is_identity_field(name) && !OF_TARGET.contains(&name)
}

/// The fields that tell an origin which scheme, host and port the client used.
const OF_TARGET: [&str; 3] = ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];

/// What an origin is told in a field that the request itself does not have. The port is that of the
/// authority.
fn of_target<'a>(name: &str, request: &PresentedRequest<'a>) -> Option<&'a str> {
    match name {
        "x-forwarded-proto" => Some(request.scheme),
        "x-forwarded-host" | "x-forwarded-port" => Some(request.authority),
        _ => None,
    }
}

/// Codings beyond those of [`Coding`], with the bit that stands for each.
const OTHER_CODINGS: [(&[u8], u8); 4] =
    [(b"deflate", 1), (b"compress", 2), (b"dcb", 4), (b"dcz", 8)];

/// What most clients send, with its normal form: the way around reading it for each request.
const USUAL: [(&[u8], &[u8]); 4] = [
    (b"gzip, deflate, br, zstd", b"bzgi\x01"),
    (b"gzip, deflate, br", b"bgi\x01"),
    (b"gzip, deflate", b"gi\x01"),
    (b"gzip", b"gi\0"),
];

/// Writes which codings are accepted and in which order. A client can name what it wants: there are
/// no more outcomes than there are codings in use.
fn write_codings<A: smallvec::Array<Item = u8>>(
    request: &PresentedRequest<'_>,
    out: &mut SmallVec<A>,
) {
    let Some(mut lines) = request.values("accept-encoding") else {
        return out.push(b'-');
    };
    if let (Some(line), None) = (lines.next(), lines.next())
        && let Some((_, normal)) = USUAL.iter().find(|(usual, _)| *usual == line)
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
    // Not a letter, and the last one.
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

/// Nothing for `identity`, something for a coding that the normal form knows, `None` for others.
fn coding_bit(coding: &[u8]) -> Option<u8> {
    let coding = coding.strip_prefix(b"x-").unwrap_or(coding);
    if coding.eq_ignore_ascii_case(b"identity") {
        return Some(0);
    }
    let is_known = Coding::ALL
        .iter()
        .map(|known| known.as_str().as_bytes())
        .chain(OTHER_CODINGS.iter().map(|(known, _)| *known))
        .any(|known| coding.eq_ignore_ascii_case(known));
    is_known.then_some(1)
}
