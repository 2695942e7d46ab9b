//! `Accept` (RFC 9110 section 12.5.1).

use super::quality::{Quality, weigh};
use crate::{Headers, KnownField, list};

/// A member of `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedMediaRange<'a> {
    /// `type/subtype`, `type/*` or `*/*`, in any case.
    pub name: &'a [u8],
    /// Whether it has parameters other than its weight.
    pub has_parameters: bool,
    /// Its weight.
    pub quality: Quality,
}

/// The members of all `Accept` lines. Those with an invalid weight are left out.
pub fn media_ranges(headers: &Headers) -> impl Iterator<Item = WeightedMediaRange<'_>> {
    headers
        .values_of(KnownField::Accept)
        .flat_map(media_ranges_of)
}

fn media_ranges_of(line: &[u8]) -> impl Iterator<Item = WeightedMediaRange<'_>> {
    list::quoted_members(line).filter_map(|member| {
        let (name, parameters) = list::parameters(member);
        let (quality, has_parameters) = weigh(parameters)?;
        Some(WeightedMediaRange {
            name,
            has_parameters,
            quality,
        })
    })
}

/// Chooses the media type of `offered` (`type/subtype` in lower case) with the highest quality, and the
/// first one of several with the same. `None` if the client accepts none of them; the first one without
/// an `Accept` line.
///
/// Media ranges with parameters are ignored.
pub fn choose<'a>(headers: &Headers, offered: &[&'a str]) -> Option<&'a str> {
    if !headers.has(KnownField::Accept) {
        return offered.first().copied();
    }
    let mut best = None;
    for media_type in offered {
        let quality = quality(headers, media_type);
        if quality > best.map_or(Quality::NONE, |(quality, _)| quality) {
            best = Some((quality, *media_type));
        }
    }
    best.map(|(_, media_type)| media_type)
}

/// The quality of the most specific media range that matches.
fn quality(headers: &Headers, media_type: &str) -> Quality {
    let type_only = media_type.split('/').next().unwrap_or("").as_bytes();
    let mut found = (0, Quality::NONE);
    for range in media_ranges(headers).filter(|range| !range.has_parameters) {
        let specificity = match range.name {
            b"*/*" => 1,
            [range_type @ .., b'/', b'*'] if range_type.eq_ignore_ascii_case(type_only) => 2,
            name if name.eq_ignore_ascii_case(media_type.as_bytes()) => 3,
            _ => continue,
        };
        if specificity > found.0 {
            found = (specificity, range.quality);
        }
    }
    found.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: [&str; 2] = ["text/html", "application/json"];

    fn chosen(value: &str) -> Option<&'static str> {
        let mut headers = Headers::new();
        headers.try_append("accept", value).unwrap();
        choose(&headers, &OFFERED)
    }

    #[test]
    fn chooses_the_type_with_the_highest_quality() {
        assert_eq!(choose(&Headers::new(), &OFFERED), Some("text/html"));
        assert_eq!(chosen("*/*"), Some("text/html"));
        assert_eq!(chosen("application/json"), Some("application/json"));
        assert_eq!(
            chosen("text/html;q=0.5, application/*"),
            Some("application/json")
        );
        assert_eq!(
            chosen("text/html,application/xhtml+xml,*/*;q=0.8"),
            Some("text/html")
        );
        assert_eq!(chosen("*/*, text/html;q=0"), Some("application/json"));
        assert_eq!(chosen("image/png"), None);
        assert_eq!(
            chosen("text/html;level=1, */*;q=0.1, application/json;x=\",*/*;\""),
            Some("text/html")
        );
    }
}
