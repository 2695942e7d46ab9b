//! Names for which a public certificate authority issues certificates.

use std::net::IpAddr;

/// Top-level domains that are not on the public Internet: RFC 6761, RFC 6762, RFC 8375, and those that are used as such.
const LOCAL_DOMAINS: [&str; 12] = [
    "localhost",
    "local",
    "test",
    "invalid",
    "example",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "onion",
];

/// Whether a public certificate authority may issue a certificate for this name: a domain of the public Internet, or a
/// wildcard below one. Addresses are not, because most authorities issue none for them.
pub fn is_public(name: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    if name.parse::<IpAddr>().is_ok() || name.ends_with("home.arpa") {
        return false;
    }
    match name.rsplit_once('.') {
        None => false,
        Some((domain, top)) => !domain.is_empty() && !top.is_empty() && !is_local_domain(top),
    }
}

fn is_local_domain(top: &str) -> bool {
    LOCAL_DOMAINS
        .iter()
        .any(|local| local.eq_ignore_ascii_case(top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_of_the_internet_are_public_and_others_are_not() {
        for public in [
            "example.com",
            "*.example.com",
            "a.b.example.co.uk",
            "xn--p1ai.xn--p1ai",
        ] {
            assert!(is_public(public), "{public}");
        }
        for local in [
            "localhost",
            "app.localhost",
            "printer.local",
            "shop.test",
            "shop.TEST",
            "nas.home.arpa",
            "intranet",
            "192.0.2.1",
            "2001:db8::1",
            "",
            ".com",
            "com.",
            "*.com",
        ] {
            assert!(!is_public(local), "{local}");
        }
    }
}
