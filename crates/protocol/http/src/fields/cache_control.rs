//! `Cache-Control` and `Pragma` (RFC 9111 sections 5.2 and 5.4, RFC 5861, RFC 8246).

use smallvec::SmallVec;

use super::directives::{Directive, DirectiveArgument, directives};
use super::structured::{Dictionary, DictionaryItem};
use crate::grammar::is_token;
use crate::{Headers, list};

/// The argument of a directive that takes seconds (RFC 9111 section 1.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaSeconds {
    /// Whole seconds; more than 2^31 count as 2^31.
    Valid(u32),
    /// No number, or different ones: the response counts as stale (section 4.2.1).
    Invalid,
}

impl DeltaSeconds {
    const MAX: u32 = 1 << 31;

    /// The seconds; an invalid value stands for none.
    pub fn seconds(self) -> u32 {
        match self {
            Self::Valid(seconds) => seconds,
            Self::Invalid => 0,
        }
    }

    fn of_digits(digits: &[u8]) -> Self {
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Self::Invalid;
        }
        Self::Valid(digits.iter().fold(0_u32, |seconds, digit| {
            seconds
                .saturating_mul(10)
                .saturating_add(u32::from(digit.saturating_sub(b'0')))
                .min(Self::MAX)
        }))
    }

    fn of(argument: DirectiveArgument<'_>) -> Self {
        match argument {
            DirectiveArgument::Token(digits) | DirectiveArgument::Quoted(digits) => {
                Self::of_digits(digits)
            }
            DirectiveArgument::None | DirectiveArgument::Malformed => Self::Invalid,
        }
    }

    /// Reads one more occurrence of the same directive.
    fn add(known: &mut Option<Self>, more: Self) {
        *known = Some(match *known {
            Some(first) if first != more => Self::Invalid,
            _ => more,
        });
    }
}

/// What `no-cache` or `private` applies to (RFC 9111 sections 5.2.2.4 and 5.2.2.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DirectiveScope {
    /// Nothing: the directive is absent.
    #[default]
    Absent,
    /// These fields of the response, in lower case.
    Fields(SmallVec<[Box<str>; 2]>),
    /// The whole response.
    Whole,
}

impl DirectiveScope {
    /// Whether the directive applies to the whole response.
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }

    /// Whether the directive names this field (in lower case).
    pub fn names(&self, field: impl AsRef<[u8]>) -> bool {
        let field = field.as_ref();
        matches!(self, Self::Fields(names) if names.iter().any(|name| name.as_bytes() == field))
    }

    /// Reads a further occurrence. An argument that is not a list of field names counts as absent, which is
    /// stricter.
    fn add(&mut self, argument: Option<&[u8]>) {
        let names = match argument {
            None => return *self = Self::Whole,
            Some(names) => list::members(names),
        };
        let mut fields = match std::mem::take(self) {
            Self::Absent => SmallVec::new(),
            Self::Fields(fields) => fields,
            Self::Whole => return *self = Self::Whole,
        };
        for name in names {
            match std::str::from_utf8(name) {
                Ok(text) if name.iter().all(|byte| is_token(*byte)) => {
                    fields.push(text.to_ascii_lowercase().into());
                }
                _ => return *self = Self::Whole,
            }
        }
        *self = if fields.is_empty() {
            Self::Whole
        } else {
            Self::Fields(fields)
        };
    }
}

/// The directives of a response that a shared cache needs (RFC 9111 section 5.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age`.
    pub max_age: Option<DeltaSeconds>,
    /// `s-maxage`.
    pub s_maxage: Option<DeltaSeconds>,
    /// `stale-while-revalidate` (RFC 5861 section 3).
    pub stale_while_revalidate: Option<DeltaSeconds>,
    /// `stale-if-error` (RFC 5861 section 4).
    pub stale_if_error: Option<DeltaSeconds>,
    /// `no-cache`.
    pub no_cache: DirectiveScope,
    /// `private`.
    pub private: DirectiveScope,
    /// `no-store`.
    pub no_store: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `public`.
    pub public: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
}

impl ResponseDirectives {
    /// Reads all `Cache-Control` lines.
    pub fn of(headers: &Headers) -> Self {
        let mut read = Self::default();
        for Directive { name, argument } in headers.get_all("cache-control").flat_map(directives) {
            read.add(name, argument);
        }
        read
    }

    /// Reads the targeted field `name` (RFC 9213 section 2.1). `None` if it is absent, empty or not
    /// a dictionary, in which case it counts as absent.
    pub fn targeted(headers: &Headers, name: &str) -> Option<Self> {
        let mut lines = headers.get_all(name);
        let first = lines.next()?;
        let joined;
        let text = match lines.next() {
            None => first,
            Some(second) => {
                let all: Vec<_> = [first, second].into_iter().chain(lines).collect();
                joined = all.join(&b", "[..]);
                &joined
            }
        };
        let dictionary = Dictionary::parse(text)?;
        let mut read = Self::default();
        for (name, item) in dictionary.members() {
            // A member of another type than the directive has is ignored.
            match (name, item) {
                (_, DictionaryItem::Boolean(false)) => {}
                (
                    b"max-age" | b"s-maxage" | b"stale-while-revalidate" | b"stale-if-error",
                    item,
                ) => {
                    if let DictionaryItem::Integer(digits) = item {
                        read.add(name, DirectiveArgument::Token(digits));
                    }
                }
                (
                    b"no-cache" | b"private",
                    DictionaryItem::String(list) | DictionaryItem::Token(list),
                ) => {
                    read.add(name, DirectiveArgument::Quoted(list));
                }
                // A list that cannot be read counts as absent, which is stricter.
                (b"no-cache" | b"private", _) | (_, DictionaryItem::Boolean(true)) => {
                    read.add(name, DirectiveArgument::None);
                }
                _ => {}
            }
        }
        Some(read)
    }

    fn add(&mut self, name: &[u8], argument: DirectiveArgument<'_>) {
        let mut lower = [0; 24];
        let Some(lower) = lower.get_mut(..name.len()) else {
            return;
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        // A restriction is valid despite an argument that it does not take; a permission is not.
        let is_bare = argument == DirectiveArgument::None;
        match &*lower {
            b"max-age" => DeltaSeconds::add(&mut self.max_age, DeltaSeconds::of(argument)),
            b"s-maxage" => DeltaSeconds::add(&mut self.s_maxage, DeltaSeconds::of(argument)),
            b"stale-while-revalidate" => {
                DeltaSeconds::add(&mut self.stale_while_revalidate, DeltaSeconds::of(argument))
            }
            b"stale-if-error" => {
                DeltaSeconds::add(&mut self.stale_if_error, DeltaSeconds::of(argument));
            }
            b"no-cache" => self.no_cache.add(argument.text()),
            b"private" => self.private.add(argument.text()),
            b"no-store" => self.no_store = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand |= is_bare,
            b"public" => self.public |= is_bare,
            b"immutable" => self.immutable |= is_bare,
            _ => {}
        }
    }
}

/// How stale a response may be: `max-stale` (RFC 9111 section 5.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStale {
    /// Any staleness.
    Any,
    /// At most these seconds.
    Seconds(u32),
}

/// The directives of a request (RFC 9111 section 5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `max-age`: seconds; an invalid one counts as 0.
    pub max_age: Option<u32>,
    /// `min-fresh`: seconds; an invalid one counts as the largest.
    pub min_fresh: Option<u32>,
    /// `max-stale`; an invalid one counts as absent.
    pub max_stale: Option<MaxStale>,
    /// `stale-if-error` (RFC 5861 section 4): seconds; an invalid one counts as absent.
    pub stale_if_error: Option<u32>,
    /// `no-cache`, or `Pragma: no-cache` without any `Cache-Control`.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
}

impl RequestDirectives {
    /// Reads all `Cache-Control` lines, or `Pragma` if there is none.
    pub fn of(headers: &Headers) -> Self {
        let mut read = Self::default();
        let mut lines = headers.get_all("cache-control").peekable();
        if lines.peek().is_none() {
            read.no_cache = headers
                .get_all("pragma")
                .flat_map(directives)
                .any(|directive| directive.name.eq_ignore_ascii_case(b"no-cache"));
            return read;
        }
        for Directive { name, argument } in lines.flat_map(directives) {
            let seconds = DeltaSeconds::of(argument);
            let is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
            if is("max-age") {
                let more = seconds.seconds();
                read.max_age = Some(read.max_age.map_or(more, |known| known.min(more)));
            } else if is("min-fresh") {
                let more = match seconds {
                    DeltaSeconds::Valid(seconds) => seconds,
                    DeltaSeconds::Invalid => DeltaSeconds::MAX,
                };
                read.min_fresh = Some(read.min_fresh.map_or(more, |known| known.max(more)));
            } else if is("max-stale") {
                read.max_stale = match (argument, seconds) {
                    (DirectiveArgument::None, _) => Some(MaxStale::Any),
                    (_, DeltaSeconds::Valid(seconds)) => Some(MaxStale::Seconds(seconds)),
                    (_, DeltaSeconds::Invalid) => read.max_stale,
                };
            } else if is("stale-if-error") {
                if let DeltaSeconds::Valid(seconds) = seconds {
                    read.stale_if_error = Some(seconds);
                }
            } else if is("no-cache") {
                read.no_cache = true;
            } else if is("no-store") {
                read.no_store = true;
            } else if is("only-if-cached") {
                read.only_if_cached = true;
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, lines: &[&str]) -> Headers {
        let mut headers = Headers::new();
        for line in lines {
            headers.try_append(name, line).unwrap();
        }
        headers
    }

    fn response(value: &str) -> ResponseDirectives {
        ResponseDirectives::of(&headers("cache-control", &[value]))
    }

    fn request(value: &str) -> RequestDirectives {
        RequestDirectives::of(&headers("cache-control", &[value]))
    }

    fn fields(names: &[&str]) -> DirectiveScope {
        DirectiveScope::Fields(names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn reads_seconds_by_sections_1_2_2_and_4_2_1() {
        use DeltaSeconds::{Invalid, Valid};
        for (value, max_age) in [
            ("max-age=60", Some(Valid(60))),
            ("MAX-AGE=\"60\"", Some(Valid(60))),
            ("max-age=0060", Some(Valid(60))),
            ("max-age=60, max-age=60", Some(Valid(60))),
            ("max-age=60, max-age=61", Some(Invalid)),
            ("max-age=2147483648", Some(Valid(1 << 31))),
            ("max-age=99999999999999999999", Some(Valid(1 << 31))),
            ("max-age=-1", Some(Invalid)),
            ("max-age=1.5", Some(Invalid)),
            ("max-age=60s", Some(Invalid)),
            ("max-age='60'", Some(Invalid)),
            ("max-age", Some(Invalid)),
            ("max-age=", Some(Invalid)),
            ("max-age =60", Some(Invalid)),
            ("max-age= 60", Some(Invalid)),
            ("max-age=60 x", Some(Invalid)),
            ("x=\"max-age=60\"", None),
            ("x=\"a\\\", max-age=60, \"", None),
            ("max-ages=60", None),
        ] {
            assert_eq!(response(value).max_age, max_age, "{value}");
        }
    }

    #[test]
    fn reads_every_directive_in_any_case_and_on_any_line() {
        let read = ResponseDirectives::of(&headers(
            "cache-control",
            &[
                "S-MaxAge=5,,stale-while-revalidate=6 , unknown=\"x,y\"",
                "stale-if-error=7,No-Store,must-understand,MUST-revalidate",
                "proxy-revalidate,public,immutable, private, no-cache",
            ],
        ));
        let expected = ResponseDirectives {
            max_age: None,
            s_maxage: Some(DeltaSeconds::Valid(5)),
            stale_while_revalidate: Some(DeltaSeconds::Valid(6)),
            stale_if_error: Some(DeltaSeconds::Valid(7)),
            no_cache: DirectiveScope::Whole,
            private: DirectiveScope::Whole,
            no_store: true,
            must_understand: true,
            must_revalidate: true,
            proxy_revalidate: true,
            public: true,
            immutable: true,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn an_unexpected_argument_invalidates_permissions_only() {
        let read = response("no-store=1, must-revalidate=x, public=1, must-understand=\"\"");
        assert!(read.no_store && read.must_revalidate);
        assert!(!read.public && !read.must_understand);
    }

    #[test]
    fn reads_the_fields_that_no_cache_and_private_name() {
        for (value, scope) in [
            ("private", DirectiveScope::Whole),
            ("private=\"Set-Cookie\"", fields(&["set-cookie"])),
            ("private=set-cookie", fields(&["set-cookie"])),
            ("private=\" a , B,\"", fields(&["a", "b"])),
            ("private=\"a\", private=\"b\"", fields(&["a", "b"])),
            ("private=\"a\", private", DirectiveScope::Whole),
            ("private, private=\"a\"", DirectiveScope::Whole),
            ("private=\"\"", DirectiveScope::Whole),
            ("private=\"a b\"", DirectiveScope::Whole),
            ("private=\"a", DirectiveScope::Whole),
            ("public", DirectiveScope::Absent),
        ] {
            assert_eq!(response(value).private, scope, "{value}");
        }
    }

    #[test]
    fn reads_targeted_fields_as_dictionaries() {
        let read = |lines: &[&str]| {
            ResponseDirectives::targeted(&headers("cdn-cache-control", lines), "cdn-cache-control")
        };
        let max_age = |seconds| {
            Some(ResponseDirectives {
                max_age: Some(DeltaSeconds::Valid(seconds)),
                ..ResponseDirectives::default()
            })
        };
        assert_eq!(read(&["max-age=60"]), max_age(60));
        assert_eq!(read(&["max-age=60;ext=1, unknown=(1 2)"]), max_age(60));
        assert_eq!(read(&["max-age=60", "no-store=?0"]), max_age(60));
        // The last member of a name counts (RFC 9651 section 4.2.2).
        assert_eq!(read(&["max-age=60", "max-age=61"]), max_age(61));
        // Another type than an integer is not the directive.
        for other in ["max-age=\"60\"", "max-age=1.5", "max-age=x", "max-age"] {
            assert_eq!(
                read(&[other]),
                Some(ResponseDirectives::default()),
                "{other}"
            );
        }
        assert_eq!(
            read(&["max-age=-1"]).and_then(|read| read.max_age),
            Some(DeltaSeconds::Invalid)
        );
        assert!(read(&["no-store"]).is_some_and(|read| read.no_store));
        assert!(read(&["private=\"a\""]).is_some_and(|read| read.private == fields(&["a"])));
        assert!(read(&["private=(\"a\")"]).is_some_and(|read| read.private.is_whole()));
        // What is not a dictionary counts as absent (RFC 9213 section 2.1).
        for broken in [
            "",
            "max-age=60,",
            "Max-Age=60",
            "max-age = 60",
            "max-age=60 s",
        ] {
            assert_eq!(read(&[broken]), None, "{broken}");
        }
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn reads_request_directives() {
        let expected = RequestDirectives {
            max_age: Some(1),
            min_fresh: Some(2),
            max_stale: Some(MaxStale::Seconds(3)),
            stale_if_error: Some(4),
            no_cache: true,
            no_store: true,
            only_if_cached: true,
        };
        assert_eq!(
            request(
                "max-age=1, min-fresh=2,max-stale=3, stale-if-error=4, no-cache,no-store, \
                 only-if-cached"
            ),
            expected
        );
        assert_eq!(request("max-stale").max_stale, Some(MaxStale::Any));
        assert_eq!(request("max-stale=x").max_stale, None);
        assert_eq!(request("max-age=x").max_age, Some(0));
        assert_eq!(request("min-fresh=x").min_fresh, Some(1 << 31));
    }

    #[test]
    fn reads_pragma_only_without_cache_control() {
        let mut headers = headers("pragma", &["x, No-Cache"]);
        assert!(RequestDirectives::of(&headers).no_cache);
        headers.try_append("cache-control", "max-age=1").unwrap();
        assert!(!RequestDirectives::of(&headers).no_cache);
    }
}
