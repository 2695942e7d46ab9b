//! The fields by which proxies tell who a client is and what it asked for.

use smallvec::SmallVec;

/// Whether an application may take a field for what a proxy in front of it knows of the client: its
/// address, its certificate, its user name, or the scheme, host and path that it asked for.
///
/// Such fields never come from clients. `name` is in lower case. Names that differ only by `_` or `.` in
/// place of `-` are the same variable to CGI programs, and count as the same.
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
    fn fields_that_name_the_client_are_known_however_they_are_spelt() {
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
