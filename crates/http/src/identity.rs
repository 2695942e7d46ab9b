//! Identity fields: header fields in which proxies describe the client and its request.

use smallvec::SmallVec;

/// Whether an application may read a field as the description of the client by a proxy: its address, its
/// certificate, its user name, or the scheme, host and path that it requested. So the field of a client
/// must not reach an application.
///
/// `name` is in lower case. `_` and `.` count as `-`, because such names are the same variable to CGI
/// programs.
pub fn is_identity_field(name: &str) -> bool {
    if !matches!(
        name.bytes().next(),
        Some(b'c' | b'f' | b'r' | b's' | b't' | b'x')
    ) {
        return false;
    }
    if !name.contains(['_', '.']) {
        return is_known(name);
    }
    let hyphened: SmallVec<[u8; 64]> = name
        .bytes()
        .map(|byte| match byte {
            b'_' | b'.' => b'-',
            byte => byte,
        })
        .collect();
    std::str::from_utf8(&hyphened).is_ok_and(is_known)
}

fn is_known(name: &str) -> bool {
    match name {
        "cf-connecting-ip"
        | "cf-connecting-ipv6"
        | "client-cert"
        | "client-cert-chain"
        | "client-ip"
        | "fastly-client-ip"
        | "forwarded"
        | "forwarded-for"
        | "front-end-https"
        | "remote-addr"
        | "remote-user"
        | "true-client-ip"
        | "x-arr-clientcert"
        | "x-arr-ssl"
        | "x-backend-host"
        | "x-client-cert"
        | "x-client-ip"
        | "x-cluster-client-ip"
        | "x-envoy-external-address"
        | "x-host"
        | "x-http-host-override"
        | "x-original-forwarded-for"
        | "x-original-host"
        | "x-original-uri"
        | "x-original-url"
        | "x-proxyuser-ip"
        | "x-real-ip"
        | "x-remote-addr"
        | "x-remote-ip"
        | "x-remote-user"
        | "x-rewrite-url"
        | "x-scheme"
        | "x-script-name"
        | "x-url-scheme" => true,
        name => ["x-forwarded", "x-ssl-client-", "ssl-client-"]
            .iter()
            .any(|start| name.starts_with(start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_fields_are_known_in_all_spellings() {
        for name in [
            "x-real-ip",
            "x_real_ip",
            "x.real-ip",
            "forwarded",
            "x-forwarded",
            "x-forwarded-for",
            "x-forwarded_client.cert",
            "x-ssl-client-verify",
            "ssl-client-s-dn",
            "remote-user",
            "client-cert",
        ] {
            assert!(is_identity_field(name), "{name}");
        }
        for name in [
            "",
            "cookie",
            "x-request-id",
            "x-real-ipx",
            "x-hosts",
            "forwarder",
            "accept",
        ] {
            assert!(!is_identity_field(name), "{name}");
        }
    }
}
