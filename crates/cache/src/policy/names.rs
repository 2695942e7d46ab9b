//! Names of cookies and of parameters of the query, and what origins may take them for.
//!
//! Origins do not agree on names: all decode `%69d` to `id`, PHP reads `a.b`, `a b` and `a[b` as `a_b`, PHP, Rack
//! and `qs` read `a[x]` as a part of `a`, C libraries end a name at a NUL, ASP.NET ignores case, and
//! some split at `;` or `,`. A cache that compares the bytes would store what one of these spellings
//! causes for everybody who sends none of them. So two questions are asked of a name:
//! [`NamePattern::may_mean`], where a name that is meant has to count, and
//! [`NamePattern::always_means`], where one that is meant does not count.

use apus_http::Headers;
use apus_http::fields::{CookiePair, cookie_texts};
use smallvec::SmallVec;

/// A name; with `*` at its end all names that begin so, with `*` at its front all that end so, with both
/// all in which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: Box<str>,
    /// [`Self::text`] in the form in which what origins may take for the same is the same.
    folded: Box<[u8]>,
    /// Whether anything may stand in front.
    is_open_before: bool,
    /// Whether anything may follow.
    is_open_behind: bool,
}

impl NamePattern {
    /// Reads `name`, `prefix*`, `*suffix` or `*part*`.
    pub fn new(pattern: &str) -> Self {
        let behind = pattern.strip_suffix('*');
        let text = behind.unwrap_or(pattern);
        let before = text.strip_prefix('*');
        let text = before.unwrap_or(text);
        Self {
            text: text.into(),
            folded: text.bytes().map(fold).collect(),
            is_open_before: before.is_some(),
            is_open_behind: behind.is_some(),
        }
    }

    /// Whether some origin may take a name, as it was sent, for one of these.
    pub fn may_mean(patterns: &[Self], sent: &[u8]) -> bool {
        let is_one = |reading: &[u8]| patterns.iter().any(|own| own.matches(reading, &own.folded));
        !patterns.is_empty() && Readings::of(sent).any(is_one)
    }

    /// Whether every origin takes a name, as it was sent, for one of these.
    pub fn always_means(patterns: &[Self], sent: &[u8]) -> bool {
        let is_one = |reading: &[u8]| patterns.iter().any(|own| own.matches(reading, &own.folded));
        let decoded = decoded(sent);
        let is_named = |own: &Self| own.matches(&decoded, own.text.as_bytes());
        patterns.iter().any(is_named) && !Readings::of(sent).any(|reading| !is_one(reading))
    }

    /// Whether some origin may take something in the `Cookie` fields of a request for a cookie of
    /// one of these names.
    pub fn any_cookie(patterns: &[Self], headers: &Headers) -> bool {
        !patterns.is_empty()
            && (headers.get_all("cookie").flat_map(cookies)).any(|cookie| cookie.may_mean(patterns))
    }

    fn matches(&self, name: &[u8], text: &[u8]) -> bool {
        match (self.is_open_before, self.is_open_behind) {
            (false, false) => name == text,
            (false, true) => name.starts_with(text),
            (true, false) => name.ends_with(text),
            (true, true) => text.is_empty() || name.windows(text.len()).any(|part| part == text),
        }
    }
}

/// What origins may take a name for, each folded.
struct Readings {
    /// All of it, decoded.
    whole: SmallVec<[u8; 32]>,
}

impl Readings {
    fn of(sent: &[u8]) -> Self {
        Self {
            whole: decoded(sent),
        }
    }

    /// Whether one of them is one that is looked for.
    fn any(&self, mut is_one: impl FnMut(&[u8]) -> bool) -> bool {
        let whole = trim(&self.whole);
        // Before a NUL, which ends strings in C.
        let ended = trim(until(whole, |byte| byte == 0));
        // The name of the array of which it is an element, and that of Rack and `qs` for `[name]`.
        let is_bracket = |byte| matches!(byte, b'[' | b']');
        let array = trim(until(ended, is_bracket));
        let opening = ended.iter().take_while(|byte| is_bracket(**byte)).count();
        let element = until(ended.get(opening..).unwrap_or_default(), is_bracket);
        let mut folded: SmallVec<[u8; 32]> = SmallVec::new();
        let mut previous: Option<&[u8]> = None;
        for reading in [&self.whole, whole, ended, array, element] {
            // Mostly they are all the same.
            if previous == Some(reading) {
                continue;
            }
            previous = Some(reading);
            folded.clear();
            folded.extend(reading.iter().copied().map(fold));
            if is_one(&folded) {
                return true;
            }
        }
        false
    }
}

/// The name without white space and control bytes around it: some origins take away the one, and some, as
/// those in Java, both.
fn trim(mut name: &[u8]) -> &[u8] {
    while let [0..=b' ', rest @ ..] | [rest @ .., 0..=b' '] = name {
        name = rest;
    }
    name
}

/// The bytes before the first such one.
fn until(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> &[u8] {
    let end = bytes.iter().position(|byte| is_end(*byte));
    bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default()
}

/// What PHP or ASP.NET take for the same is the same.
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

/// Whether some origin may take a name, as it was sent, for this one.
pub(super) fn may_be(name: &str, sent: &[u8]) -> bool {
    Readings::of(sent).any(|reading| reading.iter().copied().eq(name.bytes().map(fold)))
}

/// The name by which a parameter is sorted: the same for all that some origin may take for the same,
/// so that these keep their order. `None` if origins take it for different ones.
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

/// The parameters that an origin may see in one of a query: it, and what is between `;` in it.
pub(super) fn parameters_in(parameter: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_several = parameter.contains(&b';');
    let parts = parameter
        .split(|byte| *byte == b';')
        .filter(move |_| is_several);
    std::iter::once(parameter).chain(parts)
}

/// What some origin may take for a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cookie<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// Without `=`: all of it is the value, or all of it is the name (RFC 6265bis section 5.7).
    pub(super) is_nameless: bool,
    /// Only origins see it that split at more than `;`, as old Rack does at `,` and Python's
    /// `http.cookies` at white space.
    pub(super) is_inside: bool,
}

impl Cookie<'_> {
    pub(super) fn may_mean(&self, patterns: &[NamePattern]) -> bool {
        NamePattern::may_mean(patterns, self.name)
            || self.is_nameless && NamePattern::may_mean(patterns, self.value)
    }

    pub(super) fn always_means(&self, patterns: &[NamePattern]) -> bool {
        NamePattern::always_means(patterns, self.name)
            && (!self.is_nameless || NamePattern::always_means(patterns, self.value))
    }
}

/// What origins may take for the cookies of a line.
pub(super) fn cookies(line: &[u8]) -> impl Iterator<Item = Cookie<'_>> {
    cookie_texts(line).flat_map(|pair| {
        let inner = pair
            .split(|byte| matches!(byte, b',' | b' ' | b'\t'))
            .skip(1)
            .filter(|inner| inner.contains(&b'='))
            .map(|inner| cookie(inner, true));
        std::iter::once(cookie(pair, false)).chain(inner)
    })
}

fn cookie(pair: &[u8], is_inside: bool) -> Cookie<'_> {
    let CookiePair { name, value } = CookiePair::split(pair);
    Cookie {
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
    fn a_star_stands_for_anything_at_either_end() {
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
            let patterns = [NamePattern::new(pattern)];
            let name = name.as_bytes();
            let context = format!("{pattern} {name:?}");
            assert_eq!(NamePattern::may_mean(&patterns, name), matches, "{context}");
            assert_eq!(
                NamePattern::always_means(&patterns, name),
                matches,
                "{context}"
            );
        }
    }

    /// Each name with what it may mean to some origin, and whether it means that to every origin.
    #[test]
    fn names_are_what_any_origin_may_take_them_for() {
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
            // PHP leaves out spaces in front, and what follows a NUL.
            ("id", "+id", true, false),
            ("id", "%20%09id", true, false),
            ("id", "id+", true, false),
            ("id", "id%00x", true, false),
            ("id", "id%00[x]", true, false),
            // Java leaves out control bytes around it, too.
            ("id", "%00id", true, false),
            // Elements of arrays.
            ("id", "id[]", true, false),
            ("id", "id%5Bx%5D[y]", true, false),
            ("id", "id]", true, false),
            ("id", "[id]", true, false),
            ("id", "x[id]", false, false),
            // What PHP writes with `_`.
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
            let patterns = [NamePattern::new(pattern)];
            let context = format!("{pattern} {name}");
            let name = name.as_bytes();
            assert_eq!(NamePattern::may_mean(&patterns, name), may, "{context}");
            assert_eq!(
                NamePattern::always_means(&patterns, name),
                always,
                "{context}"
            );
        }
    }

    #[test]
    fn what_may_be_the_same_is_sorted_as_the_same() {
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
    fn cookies_are_found_wherever_an_origin_may_see_them() {
        for (line, is_there) in [
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
            let patterns = [NamePattern::new("sid")];
            assert_eq!(
                NamePattern::any_cookie(&patterns, &headers),
                is_there,
                "{line}"
            );
        }
    }
}
