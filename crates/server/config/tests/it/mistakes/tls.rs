//! Mistakes of TLS and ACME.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
    (
        "SITE\nlisten_tls = 443\n",
        "4:14 a TLS listener without a certificate; expected `cert` and `key`, or `certificates`, in [sites.tls]; to try",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"example.com\"\n",
        "4:14 a TLS listener without a certificate; the names are on the public Internet: it can be ordered by ACME; add \
         acme_email",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"example.com\"\ntls = { acme = true }\n",
        "6:7 you have not agreed to the terms of a certificate authority; for the certificate of this site; add acme_email",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"example.com\"\ntls = { acme = false, acme_agree = true }\n",
        "6:7 a TLS listener without a certificate; expected `cert` and `key`",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"*.example.com\"\ntls = { acme_agree = true }\n",
        "5:15 a certificate for `*.example.com` needs the challenge dns-01; a wildcard; add acme_dns or acme_dns_hook",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"~x\"\ntls = { acme = true, acme_agree = true }\n",
        "5:15 `~x` in a site whose certificate is ordered by ACME; expected names",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { acme = true, acme_agree = true }\n",
        "5:7 a certificate is ordered for names, and the site has none; expected `server_name`",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"a.com\"\ntls = { acme_agree = true, acme_challenge = \"dns-01\" }\n",
        "6:45 `dns-01` without `acme_dns` or `acme_dns_hook`; nothing is named that publishes TXT records",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { acme = true, cert = \"cert.pem\", key = \"key.pem\" }\n",
        "5:16 `acme` beside a certificate; the certificate is ordered by ACME, or it is given",
    ),
    (
        "SITE\nlisten_tls = 443\nserver_name = \"*.a.com\"\ntls = { acme_agree = true, acme_on_demand = {} }\n",
        "6:45 certificates on demand without a permission; expected `ask` or `names`",
    ),
    (
        "[global]\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key = \"a2V5\" }\nSITE\n",
        "2:12 `key_name` is missing; for \"rfc2136\"",
    ),
    (
        "[global]\nacme_dns = { provider = \"rfc2136\", server = \"192.0.2.1\", key_name = \"a.\", key = \"!\" }\nSITE\n",
        "2:81 ",
    ),
    (
        "[global]\nacme_dns = { provider = \"webhook\", url = \"a.example\" }\nSITE\n",
        "2:42 ",
    ),
    (
        "[global]\nacme_storage = \"http://a.example/\"\nSITE\n",
        "2:16 ",
    ),
    (
        "[global]\nacme_dns_hook = \"hook\"\nacme_dns = { provider = \"webhook\", url = \"https://a.example/\" }\nSITE\n",
        "3:12 `acme_dns` beside `acme_dns_hook`; one of them publishes the records",
    ),
    (
        "[global]\nacme_eab_id = \"a\"\nSITE\n",
        "2:15 `acme_eab_id` and `acme_eab_key` belong together; the other one is missing",
    ),
    (
        "[global]\nacme_provider = \"lets-encrypt\"\nSITE\n",
        "2:17 `lets-encrypt`: it is none of letsencrypt, letsencrypt-staging, ",
    ),
    (
        "[global]\nacme_email = \"nobody\"\nSITE\n",
        "2:14 `nobody`: it is no name, an @ and a domain",
    ),
    (
        "[global]\nacme_eab_id = \"a\"\nacme_eab_key = \"!\"\nSITE\n",
        "3:16 `!`: Invalid symbol",
    ),
    (
        "SITE\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
        "4:7 `tls` has no effect; the site has no `listen_tls`",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = {}\n",
        "5:7 a TLS listener without a certificate",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\" }\n",
        "5:16 `cert` and `key` belong together",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"no.pem\", key = \"key.pem\" }\n",
        "5:16 cannot read no.pem: there is no such file or folder",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"other-key.pem\" }\n",
        "5:34 the private key belongs to another certificate",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"key.pem\", key = \"key.pem\" }\n",
        "5:16 there is no certificate in it",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"cert.pem\" }\n",
        "5:34 there is no private key in it, but a certificate",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", protocols = [\"h4\"] }\n",
        "5:58 `h4` is not a protocol that is supported; expected \"h3\" or \"h2\" or \"http/1.1\"",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", protocols = [\"h3\"] }\n",
        "5:57 \"h3\" alone; clients learn of HTTP/3 over HTTP/2 or HTTP/1.1: expected \"h2\" or \"http/1.1\", too",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", protocols = \"h2\", http3 = {} }\n",
        "5:71 `http3` has no effect; `protocols` of the site does not have \"h3\"",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n[[sites]]\nserver_name = \"example.com\"\nlisten_tls = 443\nroot = \"public\"\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3 = { retry = \"never\" } }\n",
        "10:53 two sites on one address have different settings of HTTP/3; expected the same; only `early_data` may differ",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", protocols = [] }\n",
        "5:57 no protocol is offered; expected \"h3\", \"h2\" or \"http/1.1\", or several",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", client_auth = \"required\" }\n",
        "5:59 `client_auth` without `client_ca`",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"cert.pem\" }\n",
        "5:57 `client_ca` has no effect",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", client_crl = \"crl.pem\" }\n",
        "5:58 `client_crl` has no effect",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", client_auth = \"required\", client_ca = \"cert.pem\", client_crl = \"cert.pem\" }\n",
        "5:108 there is no list of revoked certificates in it",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", policy = \"modern\", min_version = \"1.2\" }\n",
        "5:78 TLS 1.2 with the policy \"modern\", which has TLS 1.3 alone; expected \"1.3\", or no `min_version`",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", policy = \"old\" }\n",
        "5:54 ",
    ),
    (
        "SITE\nlisten_tls = 443\ntls = { certificates = [{ cert = \"cert.pem\" }] }\n",
        "5:25 the key `key` is missing",
    ),
];
