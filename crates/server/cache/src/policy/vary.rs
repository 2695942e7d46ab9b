//! The `Vary` field and secondary keys (RFC 9111 section 4.1).

use apus_http::fields::{Coding, Vary};
use apus_http::{Headers, is_identity_field, list};
use smallvec::SmallVec;

use super::normal_form::{OTHER_CODINGS, TARGET_FIELDS, write_field};
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

/// Whether a field identifies the client to the origin, so that no two clients could share the
/// response.
fn identifies_client(name: &str) -> bool {
    is_identity_field(name) && !TARGET_FIELDS.contains(&name)
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
