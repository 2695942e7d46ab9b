//! Names of hosts that no certificate authority accepts.

/// Why no certificate authority issues a certificate for a name, in the form of [`canonical_host_name`](crate::canonical_host_name); `None` if one may (RFC
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
