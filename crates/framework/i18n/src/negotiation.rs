//! The language that a client prefers (RFC 9110 section 12.5.4, RFC 4647 section 3.4).

/// The first of the languages that the field `Accept-Language` prefers.
pub(crate) fn negotiate<'a, I: Iterator<Item = &'a str>>(
    field: &str,
    languages: impl Fn() -> I,
) -> Option<usize> {
    let mut ranges: Vec<(u32, &str)> = Vec::new();
    for range in field.split(',').take(20) {
        let mut parts = range.split(';').map(str::trim);
        let tag = parts.next().unwrap_or("");
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .unwrap_or("1");
        let weight = weight.parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0);
        // Thousandths, which is all that the field has.
        let weight = (weight * 1000.0) as u32;
        if weight > 0 {
            ranges.push((weight, tag));
        }
    }
    // Equal weights stay in their order.
    ranges.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    ranges.iter().find_map(|(_, tag)| match *tag {
        "*" => Some(0),
        tag => find(tag, languages()),
    })
}

/// The language of a tag: the same, or one of the same primary language, as `de` for `de-AT`.
pub(crate) fn find<'a>(tag: &str, languages: impl Iterator<Item = &'a str>) -> Option<usize> {
    let primary = |tag: &str| tag.split('-').next().unwrap_or("").to_ascii_lowercase();
    let wanted = primary(tag);
    let mut similar = None;
    for (index, language) in languages.enumerate() {
        if language.eq_ignore_ascii_case(tag) {
            return Some(index);
        }
        if similar.is_none() && primary(language) == wanted {
            similar = Some(index);
        }
    }
    similar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_language_is_selected() {
        let languages = ["en", "de", "pt-BR", "pt"];
        for (field, expected) in [
            ("de", Some("de")),
            ("DE-at", Some("de")),
            ("fr, pt-PT;q=0.8, en;q=0.1", Some("pt-BR")),
            ("pt", Some("pt")),
            ("en;q=0.5, de;q=0.9", Some("de")),
            ("de;q=0, en;q=0.1", Some("en")),
            ("fr, *;q=0.1", Some("en")),
            ("de;q=x", None),
            ("fr", None),
            ("", None),
            (";;,,", None),
        ] {
            let found = negotiate(field, || languages.into_iter());
            assert_eq!(found.map(|index| languages[index]), expected, "{field:?}");
        }
    }
}
