//! Keys of sites: their names, where they listen, TLS, and which locations they have.

/// A key, what the table holds without it, and with it. What stands for `sites.` is inside a site.
pub(super) const KEYS: &[(&str, &str, &str)] = &[
    ("sites", "", "sites = [{ listen = 80, root = \"public\" }]"),
    ("sites.name", "", "name = \"blog\""),
    (
        "sites.server_name",
        "",
        "server_name = [\"example.com\", \"*.example.com\", \"_\"]",
    ),
    (
        "sites.listen",
        "",
        "listen = [\"unix:apus.sock\", \"[::1]:80\", \"systemd:web\"]",
    ),
    (
        "sites.listen_tls",
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\" }",
        "listen_tls = 444\ntls = { cert = \"cert.pem\", key = \"key.pem\" }",
    ),
    ("global.state_folder", "", "state_folder = \"state\""),
    ("sites.maintenance", "", "maintenance = true"),
    (
        "sites.maintenance.on",
        "maintenance = {}",
        "maintenance = { on = false }",
    ),
    (
        "sites.maintenance.until",
        "maintenance = {}",
        "maintenance = { until = 2099-12-01T06:00:00+01:00 }",
    ),
    (
        "sites.maintenance.allow",
        "maintenance = {}",
        "maintenance = { allow = [\"10.0.0.0/8\", \"unix:\"] }",
    ),
    (
        "sites.maintenance.page",
        "maintenance = {}",
        "maintenance = { page = \"/sorry.html\" }",
    ),
    ("sites.challenge", "", "challenge = true"),
    (
        "sites.challenge.preset",
        "challenge = true",
        "challenge = { preset = \"under_attack\" }",
    ),
    (
        "sites.challenge.level",
        "challenge = true",
        "challenge = { level = 2 }",
    ),
    (
        "sites.challenge.weights",
        "challenge = true",
        "challenge = { weights = [{ add = 5 }] }",
    ),
    (
        "sites.challenge.levels",
        "challenge = true",
        "challenge = { levels = [1, 2, 3] }",
    ),
    (
        "sites.challenge.rate",
        "challenge = true",
        "challenge = { rate = \"200/s\" }",
    ),
    (
        "sites.challenge.errors",
        "challenge = true",
        "challenge = { errors = 30 }",
    ),
    (
        "sites.challenge.load",
        "challenge = true",
        "challenge = { load = 80 }",
    ),
    (
        "sites.challenge.allow",
        "challenge = true",
        "challenge = { allow = [\"10.0.0.0/8\", \"unix:\"] }",
    ),
    (
        "sites.challenge.bots",
        "challenge = true",
        "challenge = { bots = false }",
    ),
    (
        "sites.challenge.except",
        "challenge = true",
        "challenge = { except = 'path starts_with \"/api/\"' }",
    ),
    (
        "sites.challenge.lifetime",
        "challenge = true",
        "challenge = { lifetime = \"1h\" }",
    ),
    (
        "sites.challenge.key_file",
        "challenge = true",
        "challenge = { key_file = \"jwt.key\" }",
    ),
    (
        "sites.challenge.difficulty",
        "challenge = true",
        "challenge = { difficulty = 10 }",
    ),
    (
        "sites.challenge.max_difficulty",
        "challenge = true",
        "challenge = { max_difficulty = 20 }",
    ),
    (
        "sites.challenge.weights.when",
        "challenge = { weights = [{ add = 5 }] }",
        "challenge = { weights = [{ when = 'tls', add = 5 }] }",
    ),
    (
        "sites.challenge.weights.add",
        "challenge = { weights = [{ add = 5 }] }",
        "challenge = { weights = [{ add = -5 }] }",
    ),
    ("sites.ipv6_only", "", "ipv6_only = true"),
    (
        "sites.unix_socket_mode",
        "listen = \"unix:a\"",
        "listen = \"unix:a\"\nunix_socket_mode = \"0600\"",
    ),
    (
        "sites.proxy_protocol_from",
        "",
        "proxy_protocol_from = [\"10.0.0.0/8\", \"unix:\"]",
    ),
    (
        "sites.tls",
        "",
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\" }",
    ),
    ("sites.tls.cert", TLS, OTHER_TLS),
    ("sites.tls.key", TLS, OTHER_TLS),
    ("sites.tls.certificates", TLS, PAIRS),
    ("sites.tls.certificates.cert", TLS, PAIRS),
    ("sites.tls.certificates.key", TLS, PAIRS),
    ("sites.tls.protocols", TLS, TLS_PROTOCOLS),
    (
        "sites.tls.http3",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3 = { send_window = 99 } }",
    ),
    (
        "sites.tls.http3.receive_window",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.receive_window = 99 }",
    ),
    (
        "sites.tls.http3.stream_receive_window",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.stream_receive_window = 99 }",
    ),
    (
        "sites.tls.http3.send_window",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.send_window = 99 }",
    ),
    (
        "sites.tls.http3.max_idle_timeout",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.max_idle_timeout = 9 }",
    ),
    (
        "sites.tls.http3.early_data",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.early_data = false }",
    ),
    (
        "sites.tls.http3.retry",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.retry = \"always\" }",
    ),
    (
        "sites.tls.http3.congestion",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.congestion = \"bbr\" }",
    ),
    (
        "sites.tls.http3.qlog",
        TLS,
        "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", http3.qlog = \"qlog\" }",
    ),
    ("sites.tls.min_version", TLS, TLS_13),
    ("sites.tls.policy", TLS, TLS_LEGACY),
    ("sites.tls.client_auth", TLS_CLIENT, TLS_OPTIONAL),
    ("sites.tls.client_ca", TLS, TLS_CLIENT),
    ("sites.tls.client_crl", TLS_CLIENT, TLS_REVOKED),
    ("sites.force_https", TLS, TLS_FORCED),
    ("sites.hsts", TLS, TLS_HSTS),
    ("sites.hsts.max_age", TLS_HSTS, TLS_HSTS_AGE),
    (
        "sites.hsts.include_subdomains",
        TLS_HSTS,
        TLS_HSTS_SUBDOMAINS,
    ),
    ("sites.hsts.preload", TLS_HSTS, TLS_HSTS_PRELOAD),
    ("sites.preset", "", "preset = \"spa\""),
    ("sites.access_log", "", "access_log = \"access.log\""),
    (
        "sites.access_log.path",
        "access_log.path = \"a\"",
        "access_log.path = \"b\"",
    ),
    (
        "sites.access_log.syslog",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", syslog = [\"udp://[::1]\", \"unix:/dev/log\"] }",
    ),
    (
        "sites.access_log.journald",
        "access_log = { journald = true }",
        "access_log = { journald = \"journal\" }",
    ),
    (
        "sites.access_log.facility",
        "access_log = { journald = true }",
        "access_log = { journald = true, facility = \"daemon\" }",
    ),
    (
        "sites.access_log.app_name",
        "access_log = { journald = true }",
        "access_log = { journald = true, app_name = \"shop\" }",
    ),
    (
        "sites.access_log.syslog_format",
        "access_log = { syslog = \"udp://[::1]\" }",
        "access_log = { syslog = \"udp://[::1]\", syslog_format = \"rfc3164\" }",
    ),
    (
        "sites.access_log.sample",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", sample = 0 }",
    ),
    (
        "sites.access_log.sample_slow",
        "access_log = { path = \"a\", sample = 0.5 }",
        "access_log = { path = \"a\", sample = 0.5, sample_slow = \"2s\" }",
    ),
    (
        "sites.access_log.hide",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", hide = \"sid\" }",
    ),
    (
        "sites.access_log.format",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", format = \"json\" }",
    ),
    (
        "sites.access_log.when",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", when = \"status == 404\" }",
    ),
    ("sites.compress", "", "compress = { gzip = false }"),
    ("sites.compress.gzip", "", "compress.gzip = false"),
    ("sites.compress.brotli", "", "compress.brotli = false"),
    ("sites.compress.zstd", "", "compress.zstd = false"),
    (
        "sites.compress.precompressed",
        "",
        "compress.precompressed = false",
    ),
    (
        "sites.compress.min_length",
        "",
        "compress.min_length = 0.25",
    ),
    (
        "sites.compress.when",
        "",
        "compress.when = \"not cookie.session exists\"",
    ),
    ("sites.compress.gzip_level", "", "compress.gzip_level = 1"),
    (
        "sites.compress.brotli_level",
        "",
        "compress.brotli_level = 11",
    ),
    ("sites.compress.zstd_level", "", "compress.zstd_level = 1"),
    ("sites.locations", "", "locations = [{ path = \"/a/\" }]"),
    (
        "sites.locations.path",
        "locations = [{ path = \"/a/\" }]",
        "locations = [{ path = \"= /a/\" }]",
    ),
    (
        "sites.locations.handler",
        "",
        "locations = [{ path = \"/a/\", handler = \"static\" }]",
    ),
    (
        "sites.locations.internal",
        "locations = [{ path = \"/a/\" }]",
        "locations = [{ path = \"/a/\", internal = true }]",
    ),
    (
        "sites.locations.alias",
        "locations = [{ path = \"/a/\" }]",
        "locations = [{ path = \"/a/\", alias = \"other\" }]",
    ),
];

const TLS: &str = "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\" }";
const OTHER_TLS: &str =
    "listen_tls = 443\ntls = { cert = \"other-cert.pem\", key = \"other-key.pem\" }";
const PAIRS: &str = "listen_tls = 443\ntls = { certificates = [\
    { cert = \"cert.pem\", key = \"key.pem\" }, \
    { cert = \"other-cert.pem\", key = \"other-key.pem\" }] }";
const TLS_PROTOCOLS: &str = "listen_tls = 443\n\
    tls = { cert = \"cert.pem\", key = \"key.pem\", protocols = \"http/1.1\" }";
const TLS_13: &str =
    "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", min_version = \"1.3\" }";
const TLS_LEGACY: &str =
    "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", policy = \"legacy\" }";
const TLS_CLIENT: &str = "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", \
    client_auth = \"required\", client_ca = \"cert.pem\" }";
const TLS_REVOKED: &str = "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", \
    client_auth = \"required\", client_ca = \"cert.pem\", client_crl = \"crl.pem\" }";
const TLS_OPTIONAL: &str = "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", \
    client_auth = \"optional\", client_ca = \"cert.pem\" }";
const TLS_FORCED: &str =
    "listen_tls = 443\nforce_https = true\ntls = { cert = \"cert.pem\", key = \"key.pem\" }";
const TLS_HSTS: &str =
    "listen_tls = 443\nhsts = {}\ntls = { cert = \"cert.pem\", key = \"key.pem\" }";
const TLS_HSTS_AGE: &str =
    "listen_tls = 443\nhsts.max_age = 60\ntls = { cert = \"cert.pem\", key = \"key.pem\" }";
const TLS_HSTS_SUBDOMAINS: &str = "listen_tls = 443\nhsts.include_subdomains = true\n\
    tls = { cert = \"cert.pem\", key = \"key.pem\" }";
const TLS_HSTS_PRELOAD: &str =
    "listen_tls = 443\nhsts.preload = true\ntls = { cert = \"cert.pem\", key = \"key.pem\" }";
