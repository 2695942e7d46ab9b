//! Identity fields: header fields in which proxies describe the client and its request.

use smallvec::SmallVec;

/// Whether an application may read a field as the description of the client by a proxy: its address, its
/// certificate, its user name, or the scheme, host and path that it requested. So the field of a client
/// must not reach an application.
///
/// `name` is in lower case. `_` and `.` count as `-`, because such names are the same variable to CGI
/// programs.
pub fn is_identity_field(name: impl AsRef<[u8]>) -> bool {
    let name = name.as_ref();
    // Few other names begin like one of these.
    if !matches!(
        name,
        [b'x', b'-' | b'_' | b'.', ..]
            | [b'c', b'f', b'-' | b'_' | b'.', ..]
            | [b'c', b'l', b'i', ..]
            | [b'f', b'a', b's', ..]
            | [b'f', b'o', b'r', ..]
            | [b'f', b'r', b'o', ..]
            | [b'r', b'e', b'm', ..]
            | [b's', b's', b'l', ..]
            | [b't', b'r', b'u', ..]
    ) {
        return false;
    }
    if !name.iter().any(|byte| matches!(byte, b'_' | b'.')) {
        return is_known(name);
    }
    let hyphened: SmallVec<[u8; 64]> = name
        .iter()
        .map(|byte| match byte {
            b'_' | b'.' => b'-',
            byte => *byte,
        })
        .collect();
    is_known(&hyphened)
}

fn is_known(name: &[u8]) -> bool {
    match name {
        b"cf-connecting-ip"
        | b"cf-connecting-ipv6"
        | b"client-cert"
        | b"client-cert-chain"
        | b"client-ip"
        | b"fastly-client-ip"
        | b"forwarded"
        | b"forwarded-for"
        | b"front-end-https"
        | b"remote-addr"
        | b"remote-user"
        | b"true-client-ip"
        | b"x-arr-clientcert"
        | b"x-arr-ssl"
        | b"x-backend-host"
        | b"x-client-cert"
        | b"x-client-ip"
        | b"x-cluster-client-ip"
        | b"x-envoy-external-address"
        | b"x-host"
        | b"x-http-host-override"
        | b"x-original-forwarded-for"
        | b"x-original-host"
        | b"x-original-uri"
        | b"x-original-url"
        | b"x-proxyuser-ip"
        | b"x-real-ip"
        | b"x-remote-addr"
        | b"x-remote-ip"
        | b"x-remote-user"
        | b"x-rewrite-url"
        | b"x-scheme"
        | b"x-script-name"
        | b"x-url-scheme" => true,
        name => {
            let starts: [&[u8]; 3] = [b"x-forwarded", b"x-ssl-client-", b"ssl-client-"];
            starts.iter().any(|start| name.starts_with(start))
        }
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
            "cf-connecting-ip",
            "cf_connecting.ip",
            "fastly-client-ip",
            "front-end-https",
            "true-client-ip",
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
            "referer",
            "x",
            "cf",
            "cfconnecting-ip",
        ] {
            assert!(!is_identity_field(name), "{name}");
        }
    }
}
