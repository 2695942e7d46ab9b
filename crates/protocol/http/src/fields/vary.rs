//! `Vary` (RFC 9110 section 12.5.5).

use smallvec::SmallVec;

use crate::grammar::is_token;
use crate::{Headers, list};

/// The fields of a request that select the response, besides target and method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*`, or an invalid value: anything may select the response.
    Any,
    /// These fields, in lower case, sorted, each once. Empty without `Vary`.
    Fields(SmallVec<[Box<str>; 2]>),
}

impl Vary {
    /// Reads all `Vary` lines.
    pub fn of(headers: &Headers) -> Self {
        let mut fields: SmallVec<[Box<str>; 2]> = SmallVec::new();
        for name in headers.get_all("vary").flat_map(list::members) {
            match std::str::from_utf8(name) {
                // `*` is a token character too.
                Ok(text) if name.iter().all(|byte| is_token(*byte)) && text != "*" => {
                    fields.push(text.to_ascii_lowercase().into());
                }
                _ => return Self::Any,
            }
        }
        fields.sort_unstable();
        fields.dedup();
        Self::Fields(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_in_one_order() {
        for (lines, expected) in [
            (&[][..], Some(&[][..])),
            (&["Accept-Encoding"], Some(&["accept-encoding"])),
            (&["B, a,,", "A"], Some(&["a", "b"])),
            (&["*"], None),
            (&["a, *"], None),
            (&["a", "*"], None),
            (&["a b"], None),
            (&["a;b"], None),
        ] {
            let mut headers = Headers::new();
            for line in lines {
                headers.try_append("vary", line).unwrap();
            }
            let expected = expected.map_or(Vary::Any, |names| {
                Vary::Fields(names.iter().map(|name| (*name).into()).collect())
            });
            assert_eq!(Vary::of(&headers), expected, "{lines:?}");
        }
    }
}
