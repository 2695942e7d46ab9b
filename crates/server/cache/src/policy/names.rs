//! Names of cookies and query parameters, and how origins interpret them.
//!
//! Origins interpret names differently: all decode `%69d` to `id`; PHP reads `a.b`, `a b` and `a[b`
//! as `a_b`; PHP, Rack and `qs` read `a[x]` as an element of `a`; C libraries end a name at a NUL;
//! ASP.NET ignores case; and some split at `;` or `,`. A cache that compared bytes would store the
//! response to one of these spellings for clients that did not send it. So there are two
//! predicates: [`CacheNamePattern::may_match`] for names that have to be in the key, and
//! [`CacheNamePattern::always_matches`] for names that are left out of it.

use apus_http::Headers;
use apus_http::fields::{CookiePair, cookie_texts};
use smallvec::SmallVec;

/// A name, in which `*` at the end matches any suffix and `*` at the front any prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheNamePattern {
    text: Box<str>,
    /// [`Self::text`], folded: names that origins may take for one another are equal.
    folded: Box<[u8]>,
    /// Whether any prefix is allowed.
    has_any_prefix: bool,
    /// Whether any suffix is allowed.
    has_any_suffix: bool,
}

impl CacheNamePattern {
    /// Reads `name`, `prefix*`, `*suffix` or `*part*`.
    pub fn new(pattern: &str) -> Self {
        let without_suffix = pattern.strip_suffix('*');
        let text = without_suffix.unwrap_or(pattern);
        let without_prefix = text.strip_prefix('*');
        let text = without_prefix.unwrap_or(text);
        Self {
            text: text.into(),
            folded: text.bytes().map(fold).collect(),
            has_any_prefix: without_prefix.is_some(),
            has_any_suffix: without_suffix.is_some(),
        }
    }

    /// Whether some origin may interpret the name as it was sent as one that these patterns match.
    pub fn may_match(patterns: &[Self], sent: &[u8]) -> bool {
        let is_match = |name: &[u8]| patterns.iter().any(|own| own.matches(name, &own.folded));
        // Names were compared as they were sent once, so `?id=2&%69d=evil` was stored as `?id=2` for everybody.
        !patterns.is_empty() && NameInterpretations::of(sent).any(is_match)
    }

    /// Whether every origin interprets the name as it was sent as one that these patterns match.
    pub fn always_matches(patterns: &[Self], sent: &[u8]) -> bool {
        let is_match = |name: &[u8]| patterns.iter().any(|own| own.matches(name, &own.folded));
        let decoded = decoded(sent);
        let is_named = |own: &Self| own.matches(&decoded, own.text.as_bytes());
        patterns.iter().any(is_named) && !NameInterpretations::of(sent).any(|name| !is_match(name))
    }

    /// Whether some origin may find a cookie that these patterns match in the `Cookie` fields of a
    /// request.
    pub fn matches_any_cookie(patterns: &[Self], headers: &Headers) -> bool {
        !patterns.is_empty()
            && (headers.get_all("cookie").flat_map(cookies))
                .any(|cookie| cookie.may_match(patterns))
    }

    fn matches(&self, name: &[u8], text: &[u8]) -> bool {
        match (self.has_any_prefix, self.has_any_suffix) {
            (false, false) => name == text,
            (false, true) => name.starts_with(text),
            (true, false) => name.ends_with(text),
            (true, true) => text.is_empty() || name.windows(text.len()).any(|part| part == text),
        }
    }
}

/// The interpretations of one name by origins, each folded.
struct NameInterpretations {
    /// The whole name, percent-decoded.
    whole: SmallVec<[u8; 32]>,
}

impl NameInterpretations {
    fn of(sent: &[u8]) -> Self {
        Self {
            whole: decoded(sent),
        }
    }

    /// Whether the predicate holds for one of the interpretations.
    fn any(&self, mut is_match: impl FnMut(&[u8]) -> bool) -> bool {
        let whole = trim(&self.whole);
        // A NUL ends strings in C.
        let ended = trim(until(whole, |byte| byte == 0));
        // The name of the array that it is an element of, and the name that Rack and `qs` read from
        // `[name]`.
        let is_bracket = |byte| matches!(byte, b'[' | b']');
        let array = trim(until(ended, is_bracket));
        let opening = ended.iter().take_while(|byte| is_bracket(**byte)).count();
        let element = until(ended.get(opening..).unwrap_or_default(), is_bracket);
        let mut folded: SmallVec<[u8; 32]> = SmallVec::new();
        let mut previous: Option<&[u8]> = None;
        for name in [&self.whole, whole, ended, array, element] {
            // They are usually equal.
            if previous == Some(name) {
                continue;
            }
            previous = Some(name);
            folded.clear();
            folded.extend(name.iter().copied().map(fold));
            if is_match(&folded) {
                return true;
            }
        }
        false
    }
}

/// Removes white space and control bytes around a name: some origins remove white space, and some,
/// such as those in Java, both.
fn trim(mut name: &[u8]) -> &[u8] {
    while let [0..=b' ', rest @ ..] | [rest @ .., 0..=b' '] = name {
        name = rest;
    }
    name
}

/// The bytes before the first one that the predicate accepts.
fn until(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> &[u8] {
    let end = bytes.iter().position(|byte| is_end(*byte));
    bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default()
}

/// Maps the bytes that PHP or ASP.NET treat as equal to one byte.
fn fold(byte: u8) -> u8 {
    match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    }
}

/// `%69d` as `id`, and `+` as a space.
fn decoded(sent: &[u8]) -> SmallVec<[u8; 32]> {
    let digit = |at: usize| char::from(*sent.get(at)?).to_digit(16);
    let mut decoded = SmallVec::new();
    let mut at: usize = 0;
    while let Some(byte) = sent.get(at) {
        at = at.saturating_add(1);
        let pair = digit(at).zip(digit(at.saturating_add(1)));
        decoded.push(match (byte, pair) {
            (b'%', Some((high, low))) => {
                at = at.saturating_add(2);
                u8::try_from(high << 4 | low).unwrap_or_default()
            }
            (b'+', _) => b' ',
            (byte, _) => *byte,
        });
    }
    decoded
}

/// Whether some origin may interpret the name as it was sent as `name`.
pub(super) fn may_be_name(name: &str, sent: &[u8]) -> bool {
    NameInterpretations::of(sent)
        .any(|candidate| candidate.iter().copied().eq(name.bytes().map(fold)))
}

/// The name by which a parameter is sorted. Parameters that some origin may treat as one have equal
/// names, so that they keep their order. `None` if origins interpret the name differently.
pub(super) fn sort_name(sent: &[u8]) -> Option<SmallVec<[u8; 32]>> {
    let decoded = decoded(sent);
    let name = decoded.trim_ascii();
    let array = until(name, |byte| byte == b'[');
    let index = name.get(array.len()..).unwrap_or_default();
    let is_array = !array.is_empty() && index.contains(&b']');
    let is_plain =
        (index.is_empty() || is_array) && !array.contains(&b']') && !decoded.contains(&0);
    is_plain.then(|| array.trim_ascii().iter().copied().map(fold).collect())
}

/// The part of a parameter before its value.
pub(super) fn name_of(parameter: &[u8]) -> &[u8] {
    until(parameter, |byte| byte == b'=')
}

/// The parameters that an origin may find in one parameter: the parameter itself, and its parts
/// between `;`.
pub(super) fn parameters_in(parameter: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_several = parameter.contains(&b';');
    let parts = parameter
        .split(|byte| *byte == b';')
        .filter(move |_| is_several);
    std::iter::once(parameter).chain(parts)
}

/// A cookie that some origin may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CookieCandidate<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// Whether the pair has no `=`: all of it is the value, or all of it is the name (RFC 6265bis
    /// section 5.7).
    pub(super) is_nameless: bool,
    /// Whether it is found only by origins that split at more than `;`: old Rack at `,`, and
    /// Python's `http.cookies` at white space.
    pub(super) is_inside: bool,
}

impl CookieCandidate<'_> {
    pub(super) fn may_match(&self, patterns: &[CacheNamePattern]) -> bool {
        CacheNamePattern::may_match(patterns, self.name)
            || self.is_nameless && CacheNamePattern::may_match(patterns, self.value)
    }

    pub(super) fn always_matches(&self, patterns: &[CacheNamePattern]) -> bool {
        CacheNamePattern::always_matches(patterns, self.name)
            && (!self.is_nameless || CacheNamePattern::always_matches(patterns, self.value))
    }
}

/// The cookies that origins may find in a field line.
pub(super) fn cookies(line: &[u8]) -> impl Iterator<Item = CookieCandidate<'_>> {
    cookie_texts(line).flat_map(|pair| {
        let inner = pair
            .split(|byte| matches!(byte, b',' | b' ' | b'\t'))
            .skip(1)
            .filter(|inner| inner.contains(&b'='))
            .map(|inner| cookie(inner, true));
        std::iter::once(cookie(pair, false)).chain(inner)
    })
}

fn cookie(pair: &[u8], is_inside: bool) -> CookieCandidate<'_> {
    let CookiePair { name, value } = CookiePair::split(pair);
    CookieCandidate {
        name: name.unwrap_or_default(),
        value,
        is_nameless: name.is_none(),
        is_inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_prefix_or_suffix() {
        for (pattern, name, matches) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("*a*", "bab", true),
            ("*a*", "b", false),
            ("*", "b", true),
            ("**", "", true),
        ] {
            let patterns = [CacheNamePattern::new(pattern)];
            let name = name.as_bytes();
            let context = format!("{pattern} {name:?}");
            assert_eq!(
                CacheNamePattern::may_match(&patterns, name),
                matches,
                "{context}"
            );
            assert_eq!(
                CacheNamePattern::always_matches(&patterns, name),
                matches,
                "{context}"
            );
        }
    }

    /// Whether some origin, and whether every origin, interprets the name as a match.
    #[test]
    fn matches_names_as_origins_interpret_them() {
        for (pattern, name, may, always) in [
            ("id", "id", true, true),
            ("id", "%69d", true, true),
            ("id", "%69%64", true, true),
            ("id", "%49d", true, false),
            ("id", "ID", true, false),
            // Decoded once.
            ("id", "%2569d", false, false),
            ("id", "%6", false, false),
            ("id", "%zzid", false, false),
            // PHP removes leading spaces, and what follows a NUL.
            ("id", "+id", true, false),
            ("id", "%20%09id", true, false),
            ("id", "id+", true, false),
            ("id", "id%00x", true, false),
            ("id", "id%00[x]", true, false),
            // Java also removes control bytes around a name.
            ("id", "%00id", true, false),
            // Elements of arrays.
            ("id", "id[]", true, false),
            ("id", "id%5Bx%5D[y]", true, false),
            ("id", "id]", true, false),
            ("id", "[id]", true, false),
            ("id", "x[id]", false, false),
            // Names in which PHP replaces bytes by `_`.
            ("a_b", "a.b", true, false),
            ("a_b", "a b", true, false),
            ("a_b", "a+b", true, false),
            ("a_b", "a%2Eb", true, false),
            ("a_b", "a[b", true, false),
            ("a_b", "a.b[x]", true, false),
            ("a_b", "a-b", false, false),
            ("a.b", "a_b", true, false),
            ("a.b", "a.b", true, true),
            ("é", "%C3%A9", true, true),
            ("é", "é", true, true),
            // Patterns.
            ("utm_*", "utm_source", true, true),
            ("utm_*", "utm.source", true, false),
            ("utm_*", "utm_%00id", true, true),
            ("utm_*", "utm[id]", true, false),
            ("*id", "x[id", true, false),
            ("*id", "x%00id", true, false),
        ] {
            let patterns = [CacheNamePattern::new(pattern)];
            let context = format!("{pattern} {name}");
            let name = name.as_bytes();
            assert_eq!(
                CacheNamePattern::may_match(&patterns, name),
                may,
                "{context}"
            );
            assert_eq!(
                CacheNamePattern::always_matches(&patterns, name),
                always,
                "{context}"
            );
        }
    }

    #[test]
    fn equivalent_names_have_one_sort_name() {
        let sorted = |name: &str| sort_name(name.as_bytes()).map(|name| name.to_vec());
        for same in [
            "a_b", "a.b", "%61_b", "A_B", "+a_b+", "a+b", "a.b[x]", "a_b[][y]",
        ] {
            assert_eq!(sorted(same), Some(b"a_b".to_vec()), "{same}");
        }
        for unclear in ["a[b", "a]", "[a]", "a%00b", "a%5Bb"] {
            assert_eq!(sorted(unclear), None, "{unclear}");
        }
    }

    #[test]
    fn finds_cookies_wherever_an_origin_may_find_them() {
        for (line, is_found) in [
            ("sid=1", true),
            ("a=1; sid=2", true),
            ("a=1;sid=2", true),
            ("a=1; %73id=2", true),
            ("a=1; sid =2", true),
            ("a=1; SID=2", true),
            ("a=1; sid[x]=2", true),
            ("a=1; sid", true),
            ("a=1,sid=2", true),
            ("a=1 sid=2", true),
            ("a=\"1; sid=2\"", true),
            ("a=1; xsid=2", false),
            ("a=sid", false),
            ("a=1 sid", false),
            ("a=\"sid\"", false),
            ("sids=1", false),
            ("", false),
        ] {
            let mut headers = Headers::new();
            headers.try_append("cookie", line).unwrap();
            let patterns = [CacheNamePattern::new("sid")];
            assert_eq!(
                CacheNamePattern::matches_any_cookie(&patterns, &headers),
                is_found,
                "{line}"
            );
        }
    }
}
