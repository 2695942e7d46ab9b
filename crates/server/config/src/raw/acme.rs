//! How certificates are ordered: the keys of ACME.

use crate::keys::{choices, keys};
use crate::string_type::acme::{DnsSecret, SecretText, WebUrl};
use crate::string_type::origin::DnsServer;
use crate::value::Text;

choices! {
    /// A way to prove control over a name.
    pub(crate) Challenge: "a challenge" {
        /// A file at port 80.
        Http = "http-01",
        /// A handshake at port 443.
        TlsAlpn = "tls-alpn-01",
        /// A TXT record.
        Dns = "dns-01",
    }
}

keys! {
    /// How TXT records of challenges are published. CNAME records that delegate `_acme-challenge` are followed, and the name
    /// servers of the zone have to show the records before the authority is told.
    pub(crate) struct AcmeDns {
        /// The protocol.
        provider [required]: DnsProvider,
        /// The primary name server of the zone, for `rfc2136`.
        server: DnsServer,
        /// The name of the key of TSIG, for `rfc2136`.
        key_name: Text,
        /// The secret of that key, as base64.
        key: DnsSecret,
        /// The algorithm of that key.
        key_algorithm: TsigAlgorithm = TsigAlgorithm::HmacSha256,
        /// The URL of the server, for `acme-dns` and `webhook`.
        url: WebUrl,
        /// The user, for `acme-dns`.
        user: Text,
        /// The password, for `acme-dns`.
        password: SecretText,
        /// The subdomain, for `acme-dns`.
        subdomain: Text,
        /// A token that a webhook gets in `Authorization: Bearer`.
        token: SecretText,
    }
}

choices! {
    /// A protocol to publish TXT records.
    pub(crate) DnsProvider: "a protocol of DNS changes" {
        /// Dynamic updates of the zone (RFC 2136), signed by TSIG (RFC 8945).
        Rfc2136 = "rfc2136",
        /// The API of acme-dns.
        AcmeDns = "acme-dns",
        /// A web server of yours, which gets `{"action": "present", "name": "...", "value": "..."}`, and later `"cleanup"`.
        Webhook = "webhook",
    }
}

choices! {
    /// An algorithm of TSIG.
    pub(crate) TsigAlgorithm: "an algorithm of TSIG" {
        /// HMAC with SHA-256.
        HmacSha256 = "hmac-sha256",
        /// HMAC with SHA-384.
        HmacSha384 = "hmac-sha384",
        /// HMAC with SHA-512.
        HmacSha512 = "hmac-sha512",
    }
}

choices! {
    /// The kind of a private key.
    pub(crate) AcmeKeyType: "a kind of key" {
        /// ECDSA on P-256.
        P256 = "p256",
        /// ECDSA on P-384.
        P384 = "p384",
        /// RSA with 2,048 bits, for clients older than about 2014.
        Rsa2048 = "rsa2048",
    }
}
