//! The form in which host names are compared: lower case, without the last dot, and in ASCII (RFC 5890).

use std::borrow::Cow;

/// A host name, or a wildcard such as `*.example.com`, in the form in which names are compared: in lower case, without the dot at
/// its end, and with A-labels (`xn--...`) for those in other scripts, by UTS #46. `None` if it has characters that no name has.
pub fn canonical_host_name(text: &str) -> Option<Cow<'_, str>> {
    let name: Cow<'_, str> = match text.is_ascii() {
        true if text.bytes().all(|byte| !byte.is_ascii_uppercase()) => text.into(),
        true => text.to_ascii_lowercase().into(),
        false => {
            let (wildcard, rest) = match text.strip_prefix("*.") {
                Some(rest) => ("*.", rest),
                None => ("", text),
            };
            let ascii = idna::domain_to_ascii(rest).ok()?;
            format!("{wildcard}{ascii}").into()
        }
    };
    Some(match name {
        Cow::Borrowed(name) => name.strip_suffix('.').unwrap_or(name).into(),
        Cow::Owned(mut name) => {
            if name.ends_with('.') {
                name.pop();
            }
            name.into()
        }
    })
}

/// Why no certificate authority issues a certificate for a name, in the form of [`canonical_host_name`]; `None` if one may (RFC
/// 5280 section 7.2, RFC 5890, and the rules of the CA/Browser Forum). Addresses are no names.
pub fn uncertifiable(name: &str) -> Option<String> {
    let domain = name.strip_prefix("*.").unwrap_or(name);
    if domain.len() > 253 {
        return Some(format!(
            "it has {} characters, at most 253 are allowed",
            domain.len()
        ));
    }
    for label in domain.split('.') {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if let Some(other) = label
            .chars()
            .find(|char| !u8::try_from(*char).is_ok_and(is_allowed))
        {
            return Some(match other {
                '_' => {
                    format!("`{label}` has an underscore, which is not allowed in names of hosts")
                }
                other => format!("`{label}` has the character `{other}`"),
            });
        }
        if label.is_empty() || label.len() > 63 {
            return Some("a part between dots has 1 to 63 characters".to_owned());
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some(format!("`{label}` begins or ends with a hyphen"));
        }
        if label.get(2..4) == Some("--")
            && (!label.starts_with("xn--") || idna::domain_to_unicode(label).1.is_err())
        {
            return Some(format!(
                "`{label}` looks like a name in another script, and is none"
            ));
        }
    }
    let last = domain.rsplit('.').next().unwrap_or_default();
    last.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| format!("`{last}` at its end is a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case_without_the_last_dot_and_in_ascii() {
        for (text, expected) in [
            ("example.com", "example.com"),
            ("Example.COM.", "example.com"),
            ("*.Example.com", "*.example.com"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("B\u{dc}CHER.example.", "xn--bcher-kva.example"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("*.b\u{fc}cher.example", "*.xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            (
                "\u{4f8b}\u{3048}\u{3002}\u{30c6}\u{30b9}\u{30c8}",
                "xn--r8jz45g.xn--zckzah",
            ),
            ("stra\u{df}e.example", "xn--strae-oqa.example"),
            ("my_site.example", "my_site.example"),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(
                canonical_host_name(text).as_deref(),
                Some(expected),
                "{text}"
            );
        }
        assert_eq!(canonical_host_name("\u{fffd}.example"), None);
    }

    #[test]
    fn names_that_no_authority_accepts_are_told_from_others() {
        let label = |length: usize| "a".repeat(length);
        let name = |length: usize| {
            let parts = [label(63), label(63), label(63)].join(".");
            format!("{parts}.{}", label(length - parts.len() - 1))
        };
        for good in [
            "example.com".to_owned(),
            "*.example.com".to_owned(),
            "wiki".to_owned(),
            "1.example.com".to_owned(),
            "xn--bcher-kva.example".to_owned(),
            "a--b.example".to_owned(),
            format!("{}.example", label(62)),
            format!("{}.example", label(63)),
            name(252),
            name(253),
        ] {
            assert_eq!(uncertifiable(&good), None, "{good}");
        }
        for bad in [
            String::new(),
            "my_site.example.com".to_owned(),
            "*.my_site.example.com".to_owned(),
            "*.*.example.com".to_owned(),
            "a.*.example.com".to_owned(),
            "-a.example.com".to_owned(),
            "a-.example.com".to_owned(),
            "a..example.com".to_owned(),
            "a b.example.com".to_owned(),
            "ab--c.example.com".to_owned(),
            "xn--\u{61}\u{61}--.example".to_owned(),
            "example.com.".to_owned(),
            "Example.com".to_owned(),
            "example.123".to_owned(),
            format!("{}.example", label(64)),
            name(254),
        ] {
            assert!(uncertifiable(&bad).is_some(), "{bad}");
        }
    }
}
