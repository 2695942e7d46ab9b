//! Reading configurations: mistakes and their positions, includes, the environment, paths.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use apus_config::{self as config, Diagnostics, FilesRoot, HandlerPlan, ServerPlan};
use apus_net::Limits;
use apus_testkit::geo_database;
use tempfile::TempDir;

/// A folder with `public/`, and a certificate for example.com.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["public", "other", "sites"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("plans.map"), "ada gold\n").unwrap();
    for (name, host) in [("", "example.com"), ("other-", "example.org")] {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        let write = |file: &str, text: String| {
            let path = folder.path().join(format!("{name}{file}"));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("cert.pem", made.cert.pem());
        write("key.pem", made.signing_key.serialize_pem());
        let issuer = rcgen::Issuer::new(rcgen::CertificateParams::default(), made.signing_key);
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(4096, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        write("crl.pem", list.signed_by(&issuer).unwrap().pem().unwrap());
        // RFC 8037 appendix A.2.
        let jwk = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let jwk = format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{host}","x":"{jwk}"}}"#);
        let record = serde_json::json!({"country": {"iso_code": "DE"}});
        let database = geo_database("GeoLite2-Country", &[("192.0.2.0/24", record)]);
        fs::write(folder.path().join(format!("{name}geo.mmdb")), database).unwrap();
        write("jwks.json", format!(r#"{{"keys":[{jwk}]}}"#));
        // `openssl passwd -5 -salt saltsalt correct`.
        let hash = "$5$saltsalt$bM2NOMXBvP/yo4CGWbQ.USJSeF5uzaT2H3bDmiXYqo1";
        write("htpasswd", format!("{name}ada:{hash}\n"));
        write(
            "jwt.key",
            format!("{host}{}\n", "0123456789abcdef".repeat(4)),
        );
    }
    folder
}

pub(crate) fn parse_in(folder: &Path, text: &str) -> Result<ServerPlan, Diagnostics> {
    config::parse_str(text, "apus.toml", folder, &|name| match name {
        "PORT" => Some("8081".to_owned()),
        "PURGE_TOKEN" | "REDIS_PASSWORD" => Some("0123456789abcdef".to_owned()),
        "ACME_DNS_KEY" => Some("MDEyMzQ1Njc4OWFiY2RlZg==".to_owned()),
        _ => None,
    })
}

/// The findings about `text` as `line:column severity: message; label; help`.
pub(crate) fn findings(text: &str) -> Vec<String> {
    let folder = folder();
    let diagnostics = match parse_in(folder.path(), text) {
        Ok(plan) => plan.warnings,
        Err(diagnostics) => diagnostics,
    };
    let json = diagnostics.to_json();
    json.as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let mut line = format!(
                "{}:{} {}; {}",
                finding["line"],
                finding["column"],
                finding["message"].as_str().unwrap(),
                finding["label"].as_str().unwrap_or_default(),
            );
            if let Some(help) = finding["help"].as_str() {
                line.push_str("; ");
                line.push_str(help);
            }
            line.replace(&format!("{}/", folder.path().display()), "")
        })
        .collect()
}

const SITE: &str = "[[sites]]\nlisten = 80\nroot = \"public\"\n";

#[test]
fn reports_each_mistake_with_its_position() {
    let mut failed = Vec::new();
    for (text, expected) in MISTAKES {
        let text = text.replace("SITE\n", SITE);
        let found = findings(&text);
        if found.len() != 1 || !found.iter().all(|found| found.starts_with(expected)) {
            failed.push(format!(
                "{text}\n  expected {expected:?}\n  found    {found:#?}"
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
const MISTAKES: &[(&str, &str)] = &[
    ("", "1:1 there is no site"),
    ("SITE\n[sites.tls\n", "4:11 unclosed table, expected `]`"),
    (
        "SITE\nrooot = 1\n",
        "4:1 unknown key `rooot`; no such key in this table; did you mean `root`?",
    ),
    (
        "SITE\nkeepalive_timeout = 1\n",
        "4:1 unknown key `keepalive_timeout`; no such key in this table; it is a key of `[global]`",
    ),
    (
        "SITE\nqqq = 1\n",
        "4:1 unknown key `qqq`; no such key in this table; keys of this table: name, ",
    ),
    (
        "SITE\nlisting = 1\n",
        "4:11 expected true or false, found a number; expected true or false",
    ),
    ("SITE\nroot = \"other\"\n", "4:1 duplicate key"),
    (
        "[global]\nworker_threads = 2000\nSITE\n",
        "2:18 the number is out of range; expected a whole number from 0 to 1024",
    ),
    (
        "[global]\nworker_threads = \"2\"\nSITE\n",
        "2:18 expected a whole number from 0 to 1024, found a string",
    ),
    (
        "[global]\nkeepalive_timeout = 0\nSITE\n",
        "2:21 the number is out of range; expected a number of seconds from 1",
    ),
    (
        "[global]\nkeepalive_timeout = \"9x\"\nSITE\n",
        "2:21 `9x`: the units are ms, s, m, h and d",
    ),
    (
        "[global]\nclient_max_body_size = -1\nSITE\n",
        "2:24 the number is out of range",
    ),
    (
        "[global]\nclient_header_size = 4\nclient_target_size = 5\nSITE\n",
        "3:22 a request target longer than a whole head",
    ),
    (
        "[global]\nlog_level = \"inof\"\nSITE\n",
        "2:13 `inof` is not a log level; expected \"error\" or \"warn\" or \"info\" or \"debug\" or \"trace\"; did you mean \"info\"?",
    ),
    (
        "[global]\naccess_log = true\nSITE\n",
        "2:14 expected false, a path, or a table, found a boolean",
    ),
    (
        "[global]\naccess_log = { path = \"a\", format = \"jsn\" }\nSITE\n",
        "2:37 `jsn` is not a format of access logs",
    ),
    (
        "[global]\naccess_log = { path = \"a\", format = \"$statuss\" }\nSITE\n",
        "2:37 ",
    ),
    (
        "[global]\naccess_log = { format = \"json\" }\nSITE\n",
        "2:14 the key `path` is missing",
    ),
    (
        "[[sites]]\nroot = \"public\"\n",
        "1:1 the site listens nowhere",
    ),
    (
        "[[sites]]\nlisten = 80\n",
        "1:1 the site has nothing to serve",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"nothere\"\n",
        "3:8 cannot serve nothere: there is no such file or folder; expected a folder",
    ),
    (
        "[[sites]]\nlisten = 80\nroot = \"cert.pem\"\n",
        "3:8 cannot serve cert.pem: it is not a folder",
    ),
    (
        "[[sites]]\nlisten = 99999\nroot = \"public\"\n",
        "2:10 the number is out of range; expected a whole number from 0 to 65535",
    ),
    (
        "[[sites]]\nlisten = \"localhost:80\"\nroot = \"public\"\n",
        "2:10 `localhost:80`: write \"127.0.0.1:80\" or \"[::1]:80\"",
    ),
    (
        "[[sites]]\nlisten = \"::1\"\nroot = \"public\"\n",
        "2:10 `::1`: the port is missing",
    ),
    (
        "[[sites]]\nlisten = [80, \"*:80\"]\nroot = \"public\"\n",
        "2:15 the site listens on [::]:80 twice",
    ),
    (
        "[[sites]]\nlisten = \"unix:a\"\nipv6_only = true\nroot = \"public\"\n",
        "3:13 `ipv6_only` has no effect; the site does not listen on IPv6",
    ),
    (
        "SITE\nunix_socket_mode = \"0600\"\n",
        "4:20 `unix_socket_mode` has no effect",
    ),
    (
        "SITE\nproxy_protocol_from = \"10.0.0.0/33\"\n",
        "4:23 `10.0.0.0/33`: the prefix length is from 0 to 32",
    ),
    (
        "SITE\nserver_name = \"a*b\"\n",
        "4:15 `a*b`: a * stands for whole labels",
    ),
    (
        "SITE\nserver_name = \"~(\"\n",
        "4:15 `~(`: the regular expression has an error: ",
    ),
    (
        "SITE\nserver_name = \"example.com:80\"\n",
        "4:15 `example.com:80`: ",
    ),
    (
        "SITE\nname = \"one\"\nSITE\nname = \"two\"\n",
        "5:1 two sites are for all other hosts on [::]:80",
    ),
    (
        "SITE\nserver_name = \"a.example\"\nname = \"one\"\nSITE\nserver_name = [\"b.example\", \"A.example\"]\nname = \"two\"\n",
        "9:29 two sites are for the host `a.example` on [::]:80",
    ),
    (
        "SITE\nserver_name = \"a.example\"\nname = \"one\"\nSITE\nserver_name = \"b.example\"\nname = \"one\"\n",
        "10:8 two sites are called `one`",
    ),
    (
        "SITE\nname = \"one\"\n[[sites]]\nname = \"two\"\nserver_name = \"a\"\nlisten = 80\nipv6_only = true\nroot = \"public\"\n",
        "8:10 two sites listen on [::]:80 with different `ipv6_only` or `unix_socket_mode`",
    ),
    (
        "SITE\nproxy_protocol_from = \"::1\"\n[[sites]]\nname = \"two\"\nserver_name = \"a\"\nlisten = 80\nroot = \"public\"\n",
        "8:10 two sites listen on [::]:80 with different `proxy_protocol_from`",
    ),
    (
        "SITE\nserver_name = \"b\"\n[[sites]]\nserver_name = \"example.com\"\nlisten_tls = 80\nroot = \"public\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n",
        "7:14 two sites listen on [::]:80 in clear text and with TLS",
    ),
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
    (
        "SITE\nforce_https = true\n",
        "4:15 `force_https` has no effect; the site has no `listen_tls`",
    ),
    ("SITE\nhsts = {}\n", "4:8 `hsts` has no effect"),
    ("SITE\ncors = true\n", "4:8 the key `origins` is missing"),
    (
        "SITE\ncors.origins = \"shop.example\"\n",
        "4:16 `shop.example` is not an origin",
    ),
    (
        "SITE\ncors = { origins = \"*\", credentials = true }\n",
        "4:39 a response for all origins comes without credentials",
    ),
    (
        "SITE\ncors = { origins = [\"*\", \"https://a.example\"] }\n",
        "4:21 `*` is all origins already",
    ),
    (
        "SITE\nbasic_auth = {}\n",
        "4:14 the key `users_file` is missing",
    ),
    (
        "SITE\nbasic_auth.users_file = \"none\"\n",
        "4:25 cannot read ",
    ),
    (
        "SITE\nbasic_auth.users_file = \"jwt.key\"\n",
        "4:25 line 1: expected `name:hash`",
    ),
    (
        "SITE\njwt = { algorithm = \"none\", key_file = \"jwt.key\" }\n",
        "4:21 `none` is not an algorithm that is supported",
    ),
    (
        "SITE\njwt = { algorithm = \"RS256\", key_file = \"jwt.key\" }\n",
        "4:41 this is no public key of the algorithm in PEM",
    ),
    (
        "SITE\njwt = { algorithm = \"HS256\", key_file = \"public\" }\n",
        "4:41 cannot read ",
    ),
    (
        "SITE\nallow = [\"10.0.0.0/8\", \"@offices\"]\n",
        "4:24 there is no list `offices`",
    ),
    (
        "[global.lists]\nnames = [\"a\"]\nSITE\ndeny = \"@names\"\n",
        "6:8 the list `names` has texts",
    ),
    (
        "SITE\nallow = \"@\"\n",
        "4:9 `@`: the name of the list is missing",
    ),
    (
        "SITE\njwt = { algorithm = \"HS256\" }\n",
        "4:7 the keys of tokens come from one place",
    ),
    (
        "SITE\njwt = { key_file = \"jwt.key\" }\n",
        "4:7 a key is for one algorithm",
    ),
    (
        "SITE\njwt = { key_file = \"jwt.key\", algorithm = [\"HS256\", \"HS512\"] }\n",
        "4:43 a key is for one algorithm",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", algorithm = [\"RS256\", \"HS256\"] }\n",
        "4:69 an algorithm with a secret, where keys are public",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example\" }\n",
        "4:20 `https://id.example` is not a URL",
    ),
    (
        "SITE\njwt = { jwks_url = \"http://id.example/keys?p=1\" }\n",
        "4:20 keys come in clear text",
    ),
    (
        "SITE\njwt = { jwks_url = \"http://127.0.0.1/keys\", tls = { ca = \"cert.pem\" } }\n",
        "4:51 `tls` has no effect; the keys come in clear text",
    ),
    (
        "SITE\njwt = { jwks_file = \"jwks.json\", tls = { ca = \"cert.pem\" } }\n",
        "4:40 `tls` without `jwks_url`; nothing is fetched",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = {} }\n",
        "4:53 the key `ca` is missing",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = { ca = \"jwks.json\" } }\n",
        "4:60 ",
    ),
    (
        "SITE\njwt = { jwks_url = \"https://id.example/keys\", tls = { ca = \"missing.pem\" } }\n",
        "4:60 ",
    ),
    (
        "[[global.bots]]\nname = \"a\"\nkeys_file = \"jwks.json\"\ntls = { ca = \"cert.pem\" }\nSITE\n",
        "4:7 `tls` without `directory`; nothing is fetched",
    ),
    (
        "SITE\njwt = { jwks_file = \"jwt.key\" }\n",
        "4:21 this is no JSON Web Key Set",
    ),
    (
        "SITE\nforward_auth = { uri = \"/a\" }\n",
        "4:16 the key `to` is missing",
    ),
    (
        "SITE\nforward_auth = { to = \"http://a.example/a\", uri = \"/b\" }\n",
        "4:51 two paths of the authority",
    ),
    (
        "SITE\nforward_auth = { to = \"accounts\" }\n",
        "4:23 the site has no group of origins `accounts`",
    ),
    (
        "SITE\nforward_auth = { to = \"unix:/run/a.sock\", host = \"$proxy_host\" }\n",
        "4:50 `$proxy_host` without a URL whose host it could be",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\n",
        "4:1 the limit has neither `rate`, `quota`, `concurrent` nor `bandwidth`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nburst = 3\n",
        "7:9 `burst` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nrate = \"1/s\"\n",
        "6:9 `quota` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/fortnight\"\n",
        "6:9 `1/fortnight`: the windows are hour, day and month",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"connection\"\n",
        "7:7 a quota by the connection ends with it",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"user_agent\"\ntiers = { a = \"1/s\" }\n",
        "8:15 a tier of a `quota` is a quota",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nquota = \"1/day\"\nkey = \"user_agent\"\ntiers = { a = \"1mb/day\" }\n",
        "8:9 `tiers` and `quota` count different things",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"user_agent\"\ntiers = { file = \"missing.txt\" }\n",
        "8:18 cannot read ",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"user_agent\"\ntiers = { a = \"1/month\" }\n",
        "8:15 a tier of a `rate` is a rate",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nconcurrent = 1\n",
        "7:14 `concurrent` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nqueue = 1\n",
        "7:9 `queue` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1mb/m\"\ndelay = 1\n",
        "7:9 `delay` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/m\"\nkey = \"user_agent\"\ntiers = { a = \"1mb/m\" }\n",
        "8:9 `tiers` and `rate` count different things",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nconcurrent = 1\ncount = \"status == 401\"\n",
        "7:9 `count` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nbandwidth = \"1mb/s\"\nstatus = 429\n",
        "7:10 `status` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nbandwidth = \"1mb/s\"\n",
        "7:13 `bandwidth` and `rate` exclude each other",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"all\"\nban = \"1m\"\n",
        "8:7 `ban` needs a key that has the client",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nban_after = 3\n",
        "7:13 `ban_after` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nconcurrent = 1\nburst = 1\n",
        "7:9 `burst` has no effect",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a b\"\nrate = \"1/s\"\n",
        "5:8 `a b` is not a name of letters",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"header\"\n",
        "7:7 `header`: there is no fact `header`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = \"status\"\n",
        "7:7 `status`: requests cannot be counted by `status`",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nkey = []\n",
        "7:7 `key`: there is no fact",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\ntiers = { b = \"2/s\" }\n",
        "7:9 `tiers` need a key that is one text",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/fortnight\"\n",
        "6:8 `1/fortnight`: the units are s, m, h and d",
    ),
    (
        "SITE\n[[sites.limits]]\nname = \"a\"\nrate = \"1/s\"\nstatus = 200\n",
        "7:10 the number is out of range",
    ),
    (
        "SITE\nlimits = [{ name = \"a\", rate = \"1/s\" }, { name = \"a\", rate = \"2/s\" }]\n",
        "4:50 two limits have the name `a`",
    ),
    (
        "SITE\nsecurity_headers.content_security_policy = \"a\"\nsecurity_headers.content_security_policy_report_only = \"b\"\n",
        "5:56 `content_security_policy` and `content_security_policy_report_only` exclude each other",
    ),
    (
        "SITE\npreset = \"drupal\"\n",
        "4:10 `drupal` is not a preset; expected \"static\"",
    ),
    ("SITE\nindex = \"a/b\"\n", "4:9 `a/b` is not a file name"),
    ("SITE\ntry_files = [\"uri\", \"=404\"]\n", "4:13 "),
    (
        "SITE\ntry_files = [\"$uri\", \"/i.php?q=$url\"]\n",
        "4:13 there is no variable $url",
    ),
    (
        "SITE\nmime = { xyz = \"text\" }\n",
        "4:16 `text` is not a media type",
    ),
    ("SITE\ncharset = \"a b\"\n", "4:11 `a b` is not a charset"),
    (
        "SITE\ncache_control = { \"*.{css\" = \"no-store\" }\n",
        "4:19 `*.{css`: ",
    ),
    (
        "SITE\nerror_pages = { 200 = \"/a\" }\n",
        "4:17 `200` is not an error status from 400 to 599",
    ),
    (
        "SITE\nerror_pages = { 404 = \"a\" }\n",
        "4:23 `a` is not a path of the site",
    ),
    (
        "SITE\nheaders.set = { \"a b\" = \"c\" }\n",
        "4:17 `a b` is not a field name",
    ),
    (
        "SITE\nheaders.set = { connection = \"close\" }\n",
        "4:17 this field belongs to the connection",
    ),
    (
        "SITE\nheaders.set = { a = \"$nope\" }\n",
        "4:17 there is no variable $nope",
    ),
    (
        "SITE\nrewrite = [{ from = \"(\", to = \"/\" }]\n",
        "4:21 `(`: regex parse error: error: unclosed group; expected a regular expression",
    ),
    (
        "SITE\nrewrite = [{ from = \"a\", to = \"b\" }]\n",
        "4:31 a replacement starts with a slash",
    ),
    (
        "SITE\nrewrite = [{ from = \"a\", to = \"/b\", when = \"-x a\" }]\n",
        "4:44 `-x a`: a condition is ",
    ),
    (
        "SITE\nrewrite = [{ from = \"a\", to = \"/b\", then = \"lst\" }]\n",
        "4:44 `lst` is not what happens then; expected ",
    ),
    (
        "SITE\nrules = [{ when = 'pth == \"/\"', deny = 403 }]\n",
        "4:20 unknown fact or condition `pth`; did you mean `path`?",
    ),
    (
        "SITE\nrules = [{ when = { path = \"/a\", methd = \"GET\" }, deny = 403 }]\n",
        "4:34 unknown fact or condition `methd`; did you mean `method`?",
    ),
    (
        "SITE\nrules = [{ when = \"status == 404\", deny = 403 }]\n",
        "4:20 `status` is known with the response",
    ),
    (
        "[global]\nlists = { a = { networks = \"none\" } }\nrules = [{ when = \"client in @a\", deny = 403 }]\nSITE\n",
        "2:28 cannot read ",
    ),
    (
        "[global]\nlists = { a = [\"10.0.0.0/8\", \"x\"] }\nrules = [{ when = \"client in @a\", deny = 403 }]\nSITE\n",
        "2:30 not a network; the others in this list are networks",
    ),
    (
        "[global]\nconditions = { a = \"tsl\" }\nrules = [{ when = \"a\", deny = 403 }]\nSITE\n",
        "2:21 unknown fact or condition `tsl`; did you mean `tls`?",
    ),
    (
        "[global]\nconditions = { a = \"b\", b = \"not a\" }\nSITE\n",
        "2:16 the condition `a` is about itself",
    ),
    (
        "SITE\nrules = [{ when = \"tls and not tls\", deny = 403 }]\n",
        "4:20 it is never true",
    ),
    (
        "SITE\nrules = [{ when = \"tls\" }]\n",
        "4:10 the rule does nothing",
    ),
    (
        "SITE\nrules = [{ deny = 403, allow = true }]\n",
        "4:32 `deny` and `allow` exclude each other",
    ),
    (
        "SITE\nrules = [{ deny = 302 }]\n",
        "4:19 no status of an error",
    ),
    (
        "SITE\nrules = [{ jump = \"a\" }]\n",
        "4:19 there is no chain `a`; no chain is defined here",
    ),
    (
        "SITE\nrules = [{ on = \"response\", rewrite = \"/a\" }]\n",
        "4:39 `rewrite` is for requests",
    ),
    (
        "SITE\nrules = [{ jump = \"a\" }]\nchains = { a = [{ on = \"response\", deny = 403 }] }\n",
        "5:24 a rule of a chain is for requests",
    ),
    (
        "SITE\nrules = [{ close = true, deny = 403 }]\n",
        "4:20 `deny` and `close` exclude each other",
    ),
    (
        "SITE\nrules = [{ cache = false, deny = 403 }]\n",
        "4:20 `cache` has no effect; `deny` ends the way of the request",
    ),
    (
        "SITE\nrules = [{ close = true, headers.set = { a = \"b\" } }]\n",
        "4:26 `headers` has no effect; `close` ends the way of the request",
    ),
    (
        "SITE\nrules = [{ on = \"response\", limit = \"a\" }]\nlimits = [{ name = \"a\", rate = \"1/s\", by_rules = true }]\n",
        "4:37 `limit` is for requests",
    ),
    (
        "SITE\nrules = [{ limit = \"a\" }]\nlimits = [{ name = \"b\", rate = \"1/s\", by_rules = true }]\n",
        "4:20 there is no limit `a`; expected one of b",
    ),
    (
        "SITE\nrules = [{ limit = \"a\" }]\nlimits = [{ name = \"a\", rate = \"1/s\" }]\n",
        "4:20 the limit applies to all requests",
    ),
    (
        "[global]\nrules = [{ limit = \"a\" }]\nSITE\nlimits = [{ name = \"a\", rate = \"1/s\", by_rules = true }]\n",
        "2:20 there is no limit `a`; expected the `name` of a limit, and there is none",
    ),
    (
        "[global]\nlimits = [{ name = \"a\", rate = \"1/s\" }, { name = \"a\", rate = \"1/m\" }]\nSITE\n",
        "2:50 two limits have the name `a`",
    ),
    (
        "SITE\nrules = [{ location = \"/b/\" }]\nlocations = [{ path = \"/a/\" }]\n",
        "4:23 there is no location `/b/`; expected one of /a/",
    ),
    (
        "[global]\nrules = [{ location = \"/a/\" }]\nSITE\n",
        "2:23 `location` is for rules of a site or a location; this rule is for all sites",
    ),
    (
        "SITE\nrules = [{ delay = \"2m\" }]\n",
        "4:20 the number is out of range; expected a number of seconds from 0 to 60",
    ),
    (
        "SITE\nrules = [{ rewrite = \"a\" }]\n",
        "4:22 the target of a rewrite begins with a slash",
    ),
    (
        "SITE\nreturn = { status = 301 }\n",
        "4:10 a redirect without a destination",
    ),
    (
        "SITE\nreturn = { status = 200, location = \"/\" }\n",
        "4:21 ",
    ),
    (
        "SITE\nreturn = { status = 301, location = \"/\", text = \"a\" }\n",
        "4:49 `text` and `location` exclude each other",
    ),
    (
        "SITE\nreturn = { status = 99 }\n",
        "4:21 the number is out of range; expected a whole number from 200 to 599",
    ),
    (
        "SITE\n[[sites.locations]]\nroot = \"public\"\n",
        "4:1 the key `path` is missing; expected `path` in this table",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"~ (\"\n",
        "5:8 `~ (`: the regular expression has an error",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"a\"\n",
        "5:8 `a`: a location's path starts with a slash",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\n[[sites.locations]]\npath = \"^~ /a\"\n",
        "7:8 two locations are for `^~ /a`",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nalias = \"other\"\nroot = \"public\"\n",
        "6:9 `alias` and `root` exclude each other",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"~ a\"\nalias = \"other\"\n",
        "6:9 `alias` in a location with a regular expression",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"return\"\n",
        "6:11 the handler `return` has no response",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"static\"\nreturn = { status = 404 }\n",
        "7:10 `return` has no effect",
    ),
    (
        "SITE\n[[sites.locations]]\npath = \"/a\"\nhandler = \"proxy\"\n",
        "6:11 `proxy` is not a handler; expected \"static\" or \"return\" or \"reverse_proxy\"",
    ),
    (
        "SITE\nname = \"${NOPE}\"\n",
        "4:8 the environment variable NOPE is not set; read here; set it, or give a default: ${NOPE:-default}",
    ),
    (
        "SITE\nname = \"${NOPE\"\n",
        "4:8 `${NOPE` names no environment variable",
    ),
    (
        "include = \"no.toml\"\nSITE\n",
        "1:11 cannot read no.toml: there is no such file or folder",
    ),
    (
        "include = \"a[.toml\"\nSITE\n",
        "1:11 `a[.toml` is not a pattern of paths",
    ),
    (
        "include = \"/dev/zero\"\nSITE\n",
        "1:11 cannot read /dev/zero: it is not a file",
    ),
];

#[test]
fn reports_all_mistakes_in_one_run_and_in_order() {
    let text = "[global]\nworker_threads = -1\nkeepalive = 1\n\n[[sites]]\nlisten = 0x1FFFF\n\
                root = \"nothere\"\nlisting = \"yes\"\n\n[[sites.locations]]\npath = \"a\"\n\n\
                [[sites]]\nlisten_tls = 443\nroot = \"public\"\n";
    let positions: Vec<_> = findings(text)
        .iter()
        .map(|finding| finding.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        positions,
        ["2:18", "3:1", "6:10", "7:8", "8:11", "11:8", "14:14"]
    );
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    let folder = folder();
    let text = "[[sites]]\nlisten = 80\nroot = \"public\"\nlistin = true\n";
    let shown = parse_in(folder.path(), text).unwrap_err().to_string();
    assert_eq!(
        shown,
        "error: unknown key `listin`\n \
         --> apus.toml:4:1\n  \
         |\n\
         4 | listin = true\n  \
         | ^^^^^^ no such key in this table\n  \
         |\n  \
         = help: did you mean `listing`?\n\n\
         1 error"
    );
}

#[test]
fn shows_the_position_of_a_conflicting_key_too() {
    let folder = folder();
    let text = "[[sites]]\nlisten = 80\nroot = \"public\"\n[[sites.locations]]\npath = \"/a\"\n\
                [[sites.locations]]\npath = \"^~ /a\"\n";
    let shown = parse_in(folder.path(), text).unwrap_err().to_string();
    assert!(shown.contains("---- the other one"), "{shown}");
}

#[test]
fn colours_are_only_for_terminals() {
    let folder = folder();
    let mistakes = parse_in(folder.path(), "a = 1").unwrap_err();
    assert!(!mistakes.render(false).contains('\u{1b}'));
    assert!(mistakes.render(true).contains('\u{1b}'));
}

#[test]
fn a_certificate_that_expires_soon_is_a_warning() {
    let folder = folder();
    let mut parameters = rcgen::CertificateParams::new(["example.com".to_owned()]).unwrap();
    parameters.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(3);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    fs::write(folder.path().join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let text = "[[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    let warnings = parse_in(folder.path(), text).unwrap().warnings;
    assert_eq!((warnings.errors(), warnings.warnings()), (0, 1));
    assert!(warnings.to_string().contains("expires soon"));
}

#[test]
fn a_private_key_that_everybody_can_read_is_a_warning() {
    let folder = folder();
    let key = folder.path().join("key.pem");
    fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
    let text = "[[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\" }\n";
    let warnings = parse_in(folder.path(), text).unwrap().warnings;
    assert_eq!((warnings.errors(), warnings.warnings()), (0, 1));
    assert!(warnings.to_string().contains("chmod 600"), "{warnings}");
}

#[test]
fn a_key_log_is_a_warning_and_nothing_is_made_when_it_is_read() {
    let folder = folder();
    let text = "[global]\ntls_key_log = \"public/keys.log\"\n\
                [[sites]]\nlisten_tls = 443\nroot = \"public\"\n\
                tls = { cert = \"cert.pem\", key = \"key.pem\", http3.qlog = \"public/qlog\" }\n";
    let plan = parse_in(folder.path(), text).unwrap();
    let warnings = plan.warnings.to_string();
    assert!(
        warnings.contains("whoever reads it can decrypt the traffic"),
        "{warnings}"
    );
    assert_eq!(
        plan.global.tls_key_log.as_deref(),
        Some(&*folder.path().join("public/keys.log"))
    );
    let http3 = plan.sites[0].http3.as_ref().unwrap();
    let qlog = folder.path().join("public/qlog");
    assert_eq!(http3.qlog.as_deref(), Some(&*qlog));
    // Nothing is made when a configuration is read.
    assert!(!qlog.exists() && !folder.path().join("public/keys.log").exists());
}

#[test]
fn the_defaults_are_those_of_the_engine() {
    let folder = folder();
    let plan = parse_in(folder.path(), SITE).unwrap();
    assert_eq!(plan.global.limits, Limits::default());
    assert!(plan.warnings.is_empty());
}

#[test]
fn included_files_hold_sites_and_their_mistakes_are_located_there() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "sites/a.toml",
        "[[sites]]\nname = \"a\"\nlisten = 81\nroot = \"../public\"\n",
    );
    write(
        "sites/b.toml",
        "[[sites]]\nname = \"b\"\nlisten = 82\nroot = \"../other\"\n",
    );
    let text = format!("include = [\"sites/*.toml\"]\n{SITE}");
    write("apus.toml", &text);
    let plan = config::load(&folder.path().join("apus.toml")).unwrap();
    let names: Vec<_> = plan.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["site-1", "a", "b"]);
    let Some(HandlerPlan::Files(files)) = &plan.sites[1].handler else {
        panic!("the site serves files");
    };
    let FilesRoot::Root(root) = &files.root else {
        panic!("the site has a root");
    };
    assert_eq!(
        root.canonicalize().unwrap(),
        folder.path().join("public").canonicalize().unwrap()
    );

    write(
        "sites/b.toml",
        "[global]\n\n[[sites]]\nlisten = 82\nrot = \"../other\"\n",
    );
    let mistakes = config::load(&folder.path().join("apus.toml"))
        .unwrap_err()
        .to_json();
    let places: Vec<_> = mistakes
        .as_array()
        .unwrap()
        .iter()
        .map(|mistake| {
            let file = mistake["file"].as_str().unwrap();
            let file = file.rsplit('/').next().unwrap();
            format!(
                "{file}:{}: {}",
                mistake["line"],
                mistake["message"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            "b.toml:1: `[global]` stands in an included file",
            "b.toml:3: the site has nothing to serve",
            "b.toml:5: unknown key `rot`",
        ]
    );
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("apus.toml", &format!("include = \"sites/a.toml\"\n{SITE}"));
    write("sites/a.toml", "include = \"../apus.toml\"\n");
    let mistakes = config::load(&folder.path().join("apus.toml")).unwrap_err();
    assert_eq!(mistakes.errors(), 1, "{mistakes}");
    assert!(
        mistakes.to_string().contains("sites/a.toml:1:11"),
        "{mistakes}"
    );
}

#[test]
fn sites_for_old_clients_have_certificates_with_rsa_keys_beside_others() {
    let kinds = |tls: &str| {
        let text = format!(
            "[global]\nacme_agree = true\n[[sites]]\nserver_name = \"example.com\"\nlisten_tls = 443\n\
             root = \"public\"\ntls = {{ {tls} }}\n"
        );
        let plan = parse_in(folder().path(), &text).unwrap();
        let orders = plan.sites[0].acme.iter();
        orders
            .map(|one| one.settings.key_type.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(""), ["p256"]);
    assert_eq!(kinds("policy = \"modern\""), ["p256"]);
    assert_eq!(kinds("policy = \"legacy\""), ["p256", "rsa2048"]);
    let given = kinds("policy = \"legacy\", acme_key_type = \"p384\"");
    assert_eq!(given, ["p384"]);
}

#[test]
fn http_2_is_offered_before_http_1_1() {
    let folder = folder();
    let offered = |keys: &str| {
        let tls = format!("tls = {{ cert = \"cert.pem\", key = \"key.pem\"{keys} }}");
        let text = format!("[[sites]]\nlisten_tls = 443\nroot = \"public\"\n{tls}\n");
        let plan = parse_in(folder.path(), &text).unwrap();
        let alpn = plan.sites[0].tls.clone().unwrap().alpn;
        let names = alpn
            .into_iter()
            .map(|name| String::from_utf8(name).unwrap());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(offered(""), "h2 http/1.1 http/1.0");
    assert_eq!(offered(", protocols = \"http/1.1\""), "http/1.1 http/1.0");
    assert_eq!(offered(", protocols = [\"h2\"]"), "h2");
    assert_eq!(
        offered(", protocols = [\"http/1.1\", \"h2\"]"),
        "http/1.1 http/1.0 h2"
    );
}

#[test]
fn the_limits_of_http_2_have_their_defaults_and_bounds() {
    let folder = folder();
    let limits = |global: &str| {
        let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
        parse_in(folder.path(), &format!("[global]\n{global}\n{site}"))
            .map(|plan| plan.global.limits)
    };
    let default = limits("").unwrap();
    let engine = Limits::default();
    assert_eq!(
        default.h2_max_concurrent_streams,
        engine.h2_max_concurrent_streams
    );
    assert_eq!(default.h2_max_frame_size, engine.h2_max_frame_size);
    assert_eq!(
        default.h2_requests_per_connection,
        engine.h2_requests_per_connection
    );
    assert_eq!(default.h2_ping_interval, engine.h2_ping_interval);
    assert_eq!(default.h2_receive_window, engine.h2_receive_window);
    let widest = limits(
        "h2_max_concurrent_streams = 32768\nh2_max_frame_size = 16777215\n\
         h2_ping_interval = 0\nh2_receive_window = 2097151",
    )
    .unwrap();
    assert_eq!(widest.h2_max_concurrent_streams, 32_768);
    assert_eq!(widest.h2_max_frame_size, 16_777_215);
    assert!(widest.h2_ping_interval.is_zero());
    assert!(widest.h2_receive_window <= i32::MAX as u32);
    for beyond in [
        "h2_max_concurrent_streams = 0",
        "h2_max_concurrent_streams = 32769",
        "h2_max_frame_size = 16383",
        "h2_max_frame_size = 16777216",
        "h2_receive_window = 255",
        "h2_receive_window = 2097152",
    ] {
        assert!(limits(beyond).is_err(), "{beyond}");
    }
}

#[test]
fn the_environment_fills_in_strings() {
    let folder = folder();
    let text = "[[sites]]\nlisten = \"127.0.0.1:${PORT}\"\nroot = \"${DIR:-public}\"\n";
    let plan = parse_in(folder.path(), text).unwrap();
    assert_eq!(
        plan.sites[0].listeners[0].address.to_string(),
        "127.0.0.1:8081"
    );
}

#[test]
fn reports_a_missing_file() {
    let mistakes = config::load(Path::new("/no/such/apus.toml")).unwrap_err();
    assert!(
        mistakes
            .to_string()
            .starts_with("error: cannot read /no/such/apus.toml: there is no such"),
        "{mistakes}"
    );
}

#[test]
fn the_examples_of_the_guides_are_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let mut examples = 0;
    for guide in fs::read_dir(docs).unwrap() {
        let path = guide.unwrap().path();
        // The files of `apus bench` are tested with it.
        let is_other = path.ends_with("benchmarking.md");
        if is_other || path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let guide = fs::read_to_string(&path).unwrap();
        let in_guide = guide
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        for example in in_guide {
            examples += 1;
            let text = match example {
                part if part.starts_with("[[sites.") => format!("{SITE}{part}"),
                part if part.starts_with("[sites.fastcgi") => {
                    format!("{SITE}php_fastcgi = \"[::1]:9\"\n{part}")
                }
                part if part.starts_with("[sites.tls.") => {
                    let tls =
                        "[sites.tls]\ncert = \"example.com.pem\"\nkey = \"example.com.key\"\n";
                    format!("{SITE}listen_tls = 443\n{tls}{part}")
                }
                part if part.starts_with("[sites.tls]") => {
                    format!("{SITE}listen_tls = 443\n{part}")
                }
                whole => whole.to_owned(),
            };
            // The folders, files and users that they name are not there.
            let mut others = findings(&text);
            let missing = [
                "there is no such file or folder",
                "there is no folder",
                "there is no socket",
                "there is no /index.php in",
                "there is no user `app`",
            ];
            others.retain(|finding| !missing.iter().any(|what| finding.contains(what)));
            assert!(others.is_empty(), "{}\n{text}\n{others:#?}", path.display());
        }
    }
    assert!(examples > 5);
}

#[test]
fn long_values_are_cut_in_messages() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(5000);
    let text = format!(
        "[[sites]]\nname = \"{long}\"\nlisten = \"{long}\"\nroot = \".\"\n{long} = 1\n\
         charset = \"{long}=\"\n[[sites]]\nname = \"{long}\"\nlisten = 1\nroot = \".\"\n"
    );
    let mistakes = parse_in(folder.path(), &text).unwrap_err();
    assert!(mistakes.errors() >= 3);
    for line in mistakes.render(false).lines() {
        assert!(line.chars().count() < 1000, "{line}");
    }
}
