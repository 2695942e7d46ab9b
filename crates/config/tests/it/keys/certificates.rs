//! Keys of certificates that are ordered by ACME.

/// A key of `[global]`, what the table holds without it, and with it, for a site that orders a certificate.
pub(super) const GLOBAL: &[(&str, &str, &str)] = &[
    (
        "acme_email",
        "acme_agree = true",
        "acme_email = \"a@example.com\"",
    ),
    (
        "acme_agree",
        "acme_email = \"a@example.com\"",
        "acme_agree = true",
    ),
    (
        "acme_provider",
        "acme_agree = true",
        "acme_agree = true\nacme_provider = \"zerossl\"",
    ),
    (
        "acme_provider_root",
        "acme_agree = true",
        "acme_agree = true\nacme_provider_root = \"cert.pem\"",
    ),
    (
        "acme_eab_id",
        "acme_agree = true",
        "acme_agree = true\nacme_eab_id = \"kid\"\nacme_eab_key = \"a2V5\"",
    ),
    (
        "acme_eab_key",
        "acme_agree = true\nacme_eab_id = \"kid\"\nacme_eab_key = \"a2V5\"",
        "acme_agree = true\nacme_eab_id = \"other\"\nacme_eab_key = \"a2V6\"",
    ),
    (
        "acme_challenge",
        "acme_agree = true",
        "acme_agree = true\nacme_challenge = \"tls-alpn-01\"",
    ),
    (
        "acme_dns_hook",
        "acme_agree = true",
        "acme_agree = true\nacme_dns_hook = \"hook\"",
    ),
    (
        "acme_profile",
        "acme_agree = true",
        "acme_agree = true\nacme_profile = \"shortlived\"",
    ),
    (
        "acme_key_type",
        "acme_agree = true",
        "acme_agree = true\nacme_key_type = \"rsa2048\"",
    ),
    (
        "acme_folder",
        "acme_agree = true",
        "acme_agree = true\nacme_folder = \"acme\"",
    ),
];

/// A key of `[sites.tls]`, what the table holds without it, and with it.
pub(super) const TLS: &[(&str, &str, &str)] = &[
    (
        "acme",
        "cert = \"cert.pem\", key = \"key.pem\"",
        "acme = true",
    ),
    ("acme_email", "", "acme_email = \"b@example.com\""),
    (
        "acme_agree",
        "cert = \"cert.pem\", key = \"key.pem\"",
        "acme_agree = true",
    ),
    ("acme_provider", "", "acme_provider = \"google\""),
    ("acme_challenge", "", "acme_challenge = \"http-01\""),
    ("acme_profile", "", "acme_profile = \"shortlived\""),
    ("acme_key_type", "", "acme_key_type = \"p384\""),
];
