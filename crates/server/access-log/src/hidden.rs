//! Parameters of queries that are secrets: lines have `hidden` in place of their values.

use std::borrow::Cow;

/// What stands in place of a secret.
pub(crate) const HIDDEN: &[u8] = b"hidden";

/// The longest name that is compared; a longer one is no secret.
const MAX_NAME: usize = 256;

/// The parameters of queries whose values are left out of the lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenParameters {
    names: Vec<Box<str>>,
}

/// What a value with a query begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryPlace {
    /// A URL, or a line with one: the query begins behind `?` or `#`, and ends at a space.
    Url,
    /// The query itself.
    Query,
}

impl Default for HiddenParameters {
    fn default() -> Self {
        Self {
            names: Self::DEFAULT.iter().map(|name| (*name).into()).collect(),
        }
    }
}

impl HiddenParameters {
    /// The names that are hidden in every log, unless none are.
    pub const DEFAULT: &[&str] = &[
        "access_token",
        "api_key",
        "apikey",
        "auth_token",
        "client_secret",
        "id_token",
        "jwt",
        "passwd",
        "password",
        "pwd",
        "refresh_token",
        "secret",
        "sig",
        "signature",
        "token",
        "x-amz-security-token",
        "x-amz-signature",
        "x-goog-signature",
    ];

    /// Hides nothing.
    pub fn none() -> Self {
        Self { names: Vec::new() }
    }

    /// Hides the values of another name, in upper or lower case.
    #[must_use]
    pub fn and(mut self, name: &str) -> Self {
        self.names.push(name.into());
        self
    }

    /// Whether it hides nothing.
    pub(crate) fn is_none(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a parameter with this name, as it was sent, is hidden. `a[b]` of PHP is hidden if `a` or `b` is.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        if name.is_empty() || name.len() > MAX_NAME {
            return false;
        }
        let is_encoded = name.iter().any(|byte| matches!(byte, b'%' | b'+'));
        let decoded = if is_encoded {
            Cow::Owned(decoded(name))
        } else {
            Cow::Borrowed(name)
        };
        let has = |name: &[u8]| {
            let mut names = self.names.iter();
            names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        };
        let name = decoded.trim_ascii();
        has(name)
            || (name.contains(&b'[') && name.split(|byte| matches!(byte, b'[' | b']')).any(has))
    }

    /// Appends the value without its secrets, and says whether there were any; otherwise nothing is appended.
    pub(crate) fn write(&self, value: &[u8], place: QueryPlace, out: &mut Vec<u8>) -> bool {
        let start = match place {
            QueryPlace::Query => 0,
            QueryPlace::Url => match value.iter().position(|byte| matches!(byte, b'?' | b'#')) {
                Some(at) => at.saturating_add(1),
                None => return false,
            },
        };
        let (before, query) = value.split_at_checked(start).unwrap_or((value, b""));
        if self.names.is_empty() || !query.iter().any(|byte| matches!(byte, b'=' | b'%')) {
            return false;
        }
        let begin = out.len();
        out.extend_from_slice(before);
        let mut has_hidden = false;
        let is_end = |byte: &u8| matches!(byte, b'&' | b';' | b'?' | b'#' | b' ');
        for part in query.split_inclusive(is_end) {
            let (parameter, end) = match part.split_last() {
                Some((end, parameter)) if is_end(end) => (parameter, Some(end)),
                _ => (part, None),
            };
            has_hidden |= self.write_parameter(parameter, out);
            out.extend(end);
        }
        if !has_hidden {
            out.truncate(begin);
        }
        has_hidden
    }

    /// Appends one parameter, and says whether it had secrets.
    fn write_parameter(&self, parameter: &[u8], out: &mut Vec<u8>) -> bool {
        let equals = parameter.iter().position(|byte| *byte == b'=');
        match equals.and_then(|at| parameter.split_at_checked(at)) {
            Some((name, [_, _, ..])) if self.has(name) => {
                out.extend_from_slice(name);
                out.push(b'=');
                out.extend_from_slice(HIDDEN);
                true
            }
            _ => self.write_encoded(parameter, out),
        }
    }

    /// Appends a value that may be a URL with parameters of its own, whose delimiters are percent-encoded.
    fn write_encoded(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let mut has_hidden = false;
        let mut rest = value;
        loop {
            let end = find_code(rest, &[b"26", b"3F", b"23", b"3B"]).unwrap_or(rest.len());
            let (parameter, behind) = rest.split_at_checked(end).unwrap_or((rest, b""));
            let equals = find_code(parameter, &[b"3D"]);
            match equals.and_then(|at| parameter.split_at_checked(at)) {
                Some((name, [_, _, _, _, ..])) if self.has_encoded(name) => {
                    has_hidden = true;
                    out.extend_from_slice(name);
                    out.extend_from_slice(b"%3D");
                    out.extend_from_slice(HIDDEN);
                }
                _ => out.extend_from_slice(parameter),
            }
            let Some((delimiter, after)) = behind.split_at_checked(CODE) else {
                return has_hidden;
            };
            out.extend_from_slice(delimiter);
            rest = after;
        }
    }

    /// Whether a parameter of an encoded URL is hidden. Before its name may be that of the parameter with the URL.
    fn has_encoded(&self, name: &[u8]) -> bool {
        let name = name.rsplit(|byte| *byte == b'=').next().unwrap_or(name);
        name.len() <= MAX_NAME && self.has(&decoded(name))
    }
}

/// The length of a percent-encoded byte.
const CODE: usize = 3;

/// The position of the first of these percent-encoded bytes.
fn find_code(text: &[u8], digits: &[&[u8; 2]]) -> Option<usize> {
    text.windows(CODE).position(|code| match code {
        [b'%', code @ ..] => digits.iter().any(|one| one.eq_ignore_ascii_case(code)),
        _ => false,
    })
}

/// Decodes the name of a parameter as a form has it.
fn decoded(name: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        decoded.push(match first {
            b'+' => b' ',
            b'%' => match (digit(after.first()), digit(after.get(1))) {
                (Some(high), Some(low)) => {
                    rest = after.get(2..).unwrap_or_default();
                    u8::try_from(high * 16 + low).unwrap_or(b'%')
                }
                _ => b'%',
            },
            other => *other,
        });
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &str, place: QueryPlace) -> String {
        let mut out = b"x".to_vec();
        let has_hidden = HiddenParameters::default().write(value.as_bytes(), place, &mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_prefix('x').unwrap().to_owned();
        if has_hidden {
            assert_ne!(text, value);
            text
        } else {
            assert_eq!(text, "");
            value.to_owned()
        }
    }

    #[test]
    fn secrets_of_queries_are_hidden() {
        for (value, expected) in [
            ("/a", "/a"),
            ("/token=1", "/token=1"),
            ("/a?b=1&c", "/a?b=1&c"),
            ("/a?token=1", "/a?token=hidden"),
            ("/a?b=1&token=s3cret&c=2", "/a?b=1&token=hidden&c=2"),
            ("/a?TOKEN=1;Password=2", "/a?TOKEN=hidden;Password=hidden"),
            (
                "/a?to%6ben=1&p%61ssword=2",
                "/a?to%6ben=hidden&p%61ssword=hidden",
            ),
            ("/a?+token=1", "/a?+token=hidden"),
            (
                "/a?user[password]=1&token[]=2",
                "/a?user[password]=hidden&token[]=hidden",
            ),
            ("/a?user%5Bpassword%5D=1", "/a?user%5Bpassword%5D=hidden"),
            ("/a?token=a=b%26c&d=1", "/a?token=hidden&d=1"),
            ("/a?token=&token", "/a?token=&token"),
            ("/a?tokens=1&atoken=2", "/a?tokens=1&atoken=2"),
            ("/a?b=/c?token=1", "/a?b=/c?token=hidden"),
            ("/a#access_token=1&b=2", "/a#access_token=hidden&b=2"),
            (
                "/a?next=%2Fb%3Ftoken%3D1%26c%3D2&d=3",
                "/a?next=%2Fb%3Ftoken%3Dhidden%26c%3D2&d=3",
            ),
            ("/a?next=token%3d1", "/a?next=token%3Dhidden"),
            ("/a?next=%3Fto%256ben%3D1", "/a?next=%3Fto%256ben%3Dhidden"),
            ("/a?%zz=1&%=2&token%=3&%3d", "/a?%zz=1&%=2&token%=3&%3d"),
            ("GET /a?token=1 HTTP/1.1", "GET /a?token=hidden HTTP/1.1"),
            ("https://a/?b#c?sig=1", "https://a/?b#c?sig=hidden"),
        ] {
            assert_eq!(shown(value, QueryPlace::Url), expected);
        }
        assert_eq!(shown("token=1&a=2", QueryPlace::Query), "token=hidden&a=2");
        assert_eq!(shown("a=2&token", QueryPlace::Query), "a=2&token");
    }

    #[test]
    fn names_of_the_configuration_are_hidden_too_and_none_if_it_says_so() {
        let own = HiddenParameters::default().and("Sid");
        assert!(own.has(b"sid") && own.has(b"token") && !own.has(b"side"));
        assert!(!HiddenParameters::none().has(b"token"));
        let mut out = Vec::new();
        assert!(!HiddenParameters::none().write(b"token=1", QueryPlace::Query, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn no_text_makes_it_slow_or_fail() {
        for unit in [
            "token=",
            "%",
            "%3D",
            "%26token%3D",
            "[",
            "?",
            "=&",
            "%3D=",
            "a%3Db%26",
        ] {
            let text = unit.repeat(20_000);
            shown(&text, QueryPlace::Query);
        }
    }
}
