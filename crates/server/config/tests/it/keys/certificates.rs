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
        "acme_staging_provider",
        "acme_agree = true",
        "acme_agree = true\nacme_staging_provider = \"letsencrypt-staging\"",
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
        "acme_dns",
        "acme_agree = true",
        "acme_agree = true\nacme_dns = { provider = \"webhook\", url = \"https://a.example/\" }",
    ),
    (
        "acme_dns.provider",
        UPDATES,
        "acme_agree = true\nacme_dns = { provider = \"webhook\", url = \"https://a.example/\" }",
    ),
    (
        "acme_dns.server",
        UPDATES,
        "acme_agree = true\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.2\", key_name = \"a.\", key = \"a2V5\" }",
    ),
    (
        "acme_dns.key_name",
        UPDATES,
        "acme_agree = true\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key_name = \"b.\", key = \"a2V5\" }",
    ),
    (
        "acme_dns.key",
        UPDATES,
        "acme_agree = true\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key_name = \"c.\", key = \"a2V6\" }",
    ),
    (
        "acme_dns.key_algorithm",
        UPDATES,
        "acme_agree = true\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key_name = \"a.\", key = \"a2V5\", key_algorithm = \"hmac-sha512\" }",
    ),
    (
        "acme_dns.url",
        ACCOUNT,
        "acme_agree = true\nacme_dns = { provider = \"acme-dns\", url = \"https://b.example/\", user = \"u\", password = \"p\", subdomain = \"s\" }",
    ),
    (
        "acme_dns.user",
        ACCOUNT,
        "acme_agree = true\nacme_dns = { provider = \"acme-dns\", url = \"https://a.example/\", user = \"v\", password = \"p\", subdomain = \"s\" }",
    ),
    (
        "acme_dns.password",
        ACCOUNT,
        "acme_agree = true\nacme_dns = { provider = \"acme-dns\", url = \"https://a.example/\", user = \"w\", password = \"q\", subdomain = \"s\" }",
    ),
    (
        "acme_dns.subdomain",
        ACCOUNT,
        "acme_agree = true\nacme_dns = { provider = \"acme-dns\", url = \"https://a.example/\", user = \"u\", password = \"p\", subdomain = \"t\" }",
    ),
    (
        "acme_dns.token",
        "acme_agree = true\nacme_dns = { provider = \"webhook\", url = \"https://a.example/\" }",
        "acme_agree = true\nacme_dns = { provider = \"webhook\", url = \"https://a.example/\", token = \"t\" }",
    ),
    (
        "acme_resolver",
        "acme_agree = true",
        "acme_agree = true\nacme_resolver = \"192.0.2.53\"",
    ),
    (
        "acme_reuse_key",
        "acme_agree = true",
        "acme_agree = true\nacme_reuse_key = true",
    ),
    (
        "acme_certificate_per",
        "acme_agree = true",
        "acme_agree = true\nacme_certificate_per = \"name\"",
    ),
    (
        "acme_check_dns",
        "acme_agree = true",
        "acme_agree = true\nacme_check_dns = false",
    ),
    (
        "acme_storage",
        "acme_agree = true",
        "acme_agree = true\nacme_storage = \"redis://user:secret@192.0.2.1/\"",
    ),
    (
        "tls_tickets",
        "acme_agree = true",
        "acme_agree = true\ntls_tickets = \"stored\"",
    ),
    (
        "tls_key_log",
        "acme_agree = true",
        "acme_agree = true\ntls_key_log = \"keys.log\"",
    ),
    (
        "acme_profile",
        "acme_agree = true",
        "acme_agree = true\nacme_profile = \"shortlived\"",
    ),
    (
        "acme_preferred_chain",
        "acme_agree = true",
        "acme_agree = true\nacme_preferred_chain = \"Root X1\"",
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

const UPDATES: &str = "acme_agree = true\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key_name = \"a.\", key = \"a2V5\" }";
const ACCOUNT: &str = "acme_agree = true\nacme_dns = { provider = \"acme-dns\", url = \"https://a.example/\", user = \"u\", password = \"p\", subdomain = \"s\" }";

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
    ("acme_check_dns", "", "acme_check_dns = false"),
    ("acme_reuse_key", "", "acme_reuse_key = true"),
    (
        "acme_certificate_per",
        "",
        "acme_certificate_per = \"name\"",
    ),
    ("acme_profile", "", "acme_profile = \"shortlived\""),
    (
        "acme_preferred_chain",
        "",
        "acme_preferred_chain = \"Root X1\"",
    ),
    ("acme_key_type", "", "acme_key_type = \"p384\""),
    (
        "acme_on_demand",
        "",
        "acme_on_demand = { names = \"example.com\" }",
    ),
    (
        "acme_on_demand.names",
        "acme_on_demand = { ask = \"http://127.0.0.1:9000/\" }",
        "acme_on_demand = { ask = \"http://127.0.0.1:9000/\", names = \"*.example.com\" }",
    ),
    (
        "acme_on_demand.ask",
        "acme_on_demand = { names = \"example.com\" }",
        "acme_on_demand = { names = \"example.com\", ask = \"http://127.0.0.1:9000/may\" }",
    ),
    (
        "acme_on_demand.orders_per_hour",
        "acme_on_demand = { names = \"example.com\" }",
        "acme_on_demand = { names = \"example.com\", orders_per_hour = 5 }",
    ),
];
