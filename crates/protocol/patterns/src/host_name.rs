//! The form in which host names are compared: lower case, without the last dot, and in ASCII (RFC 5890).

use std::borrow::Cow;

/// A host name, or a wildcard such as `*.example.com`, in the form in which names are compared: in lower case, without the dot at
/// its end, and with A-labels (`xn--...`) for those in other scripts, by UTS #46. `None` if it has characters that no name has. Without
/// the feature `idna`, those are all but ASCII.
pub fn canonical_host_name(text: &str) -> Option<Cow<'_, str>> {
    let name: Cow<'_, str> = if text.is_ascii() {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            text.to_ascii_lowercase().into()
        } else {
            text.into()
        }
    } else {
        let (wildcard, rest) = match text.strip_prefix("*.") {
            Some(rest) => ("*.", rest),
            None => ("", text),
        };
        let ascii = a_labels(rest)?;
        format!("{wildcard}{ascii}").into()
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

#[cfg(feature = "idna")]
fn a_labels(name: &str) -> Option<String> {
    idna::domain_to_ascii(name).ok()
}

#[cfg(not(feature = "idna"))]
fn a_labels(_: &str) -> Option<String> {
    None
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
}
