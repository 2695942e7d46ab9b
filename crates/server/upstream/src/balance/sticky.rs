//! The sticky cookie, which binds a client to a node (RFC 6265 section 4.1).

use std::fmt::Write;

use apus_tokens::{Hexadecimal, sha256};

use crate::plan::StickyPlan;

/// Returns the cookie value of a node. It is the same on every machine and after every restart, and does not
/// reveal the node's name or address.
pub(crate) fn route(group: &str, node: &str) -> Box<str> {
    // A NUL between the parts: `a` and `bc` must not give the cookie of `ab` and `c`.
    let mut input = b"apus route\0".to_vec();
    input.extend_from_slice(group.as_bytes());
    input.push(0);
    input.extend_from_slice(node.as_bytes());
    // A cookie with the address of a node would tell clients about the network behind the server. 80 bits of the digest are enough
    // to tell nodes apart.
    let digits = Hexadecimal(&sha256(&input)).to_string();
    format!("{digits:.20}").into()
}

/// Returns the value of the `Set-Cookie` field that binds a client to a node.
pub(crate) fn set_cookie(plan: &StickyPlan, route: &str) -> String {
    let mut value = format!("{}={route}; Path={}", plan.name, plan.path);
    if let Some(domain) = &plan.domain {
        value.push_str("; Domain=");
        value.push_str(domain);
    }
    if let Some(max_age) = plan.max_age {
        let _ = write!(value, "; Max-Age={}", max_age.as_secs());
    }
    if plan.secure {
        value.push_str("; Secure");
    }
    if plan.http_only {
        value.push_str("; HttpOnly");
    }
    if let Some(same_site) = plan.same_site {
        let _ = write!(value, "; SameSite={same_site}");
    }
    value
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::SameSite;

    #[test]
    fn names_a_node_without_revealing_its_address() {
        let first = route("app", "10.0.0.1:80");
        assert_eq!(first, route("app", "10.0.0.1:80"));
        assert_ne!(first, route("app", "10.0.0.2:80"));
        assert_ne!(first, route("other", "10.0.0.1:80"));
        assert!(first.len() == 20 && first.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn writes_the_configured_attributes() {
        let mut plan = StickyPlan::new("route");
        assert_eq!(set_cookie(&plan, "ab"), "route=ab; Path=/; HttpOnly");
        plan.domain = Some("example.com".into());
        plan.path = "/app".into();
        plan.max_age = Some(Duration::from_secs(3600));
        plan.secure = true;
        plan.same_site = Some(SameSite::Lax);
        assert_eq!(
            set_cookie(&plan, "ab"),
            "route=ab; Path=/app; Domain=example.com; Max-Age=3600; Secure; HttpOnly; SameSite=Lax"
        );
    }
}
