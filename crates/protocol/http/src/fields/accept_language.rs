//! `Accept-Language` (RFC 9110 section 12.5.4), for the pages that the server makes itself.

use super::quality::{Quality, weigh};
use crate::{Headers, list};

/// A language of the pages that the server makes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageLanguage {
    /// English, also for clients that prefer another language.
    #[default]
    English,
    /// Simplified Chinese.
    Chinese,
}

impl PageLanguage {
    /// The language that a client prefers. A member with an invalid weight is ignored.
    pub fn preferred(headers: &Headers) -> Self {
        let (mut best, mut preferred) = (Quality::NONE, Self::default());
        let lines = headers.get_all("accept-language");
        for member in lines.flat_map(list::members) {
            let (tag, parameters) = list::parameters(member);
            let Some(language) = Self::of_tag(tag) else {
                continue;
            };
            let Some((quality, _)) = weigh(parameters) else {
                continue;
            };
            if quality > best {
                (best, preferred) = (quality, language);
            }
            // None has a higher one, and the first of several counts.
            if best == Quality::FULL {
                break;
            }
        }
        preferred
    }

    /// The tag of the language (RFC 5646), for `lang`.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-Hans",
        }
    }

    fn of_tag(tag: &[u8]) -> Option<Self> {
        let primary = tag.split(|byte| *byte == b'-').next()?;
        if primary.eq_ignore_ascii_case(b"en") {
            Some(Self::English)
        } else if primary.eq_ignore_ascii_case(b"zh") {
            Some(Self::Chinese)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_the_one_that_the_client_prefers() {
        use PageLanguage::{Chinese, English};

        for (lines, expected) in [
            (&[][..], English),
            (&[""], English),
            (&["de"], English),
            (&["zh"], Chinese),
            (&["ZH-tw, en;q=0.9"], Chinese),
            (&["en-US,en;q=0.9,zh;q=0.8"], English),
            (&["de, zh;q=0.5, en;q=0.4"], Chinese),
            (&["en;q=0.3", "zh-CN ; q=0.4"], Chinese),
            (&["en;q=0, zh;q=0.1"], Chinese),
            (&["zh;q=0"], English),
            (&["zh;q=2, en;q=0.1"], English),
            (&["zhx, \u{e9}, -, ;"], English),
        ] {
            let mut headers = Headers::new();
            for line in lines {
                headers.try_append("accept-language", *line).unwrap();
            }
            assert_eq!(PageLanguage::preferred(&headers), expected, "{lines:?}");
        }
    }
}
