//! Every key there is: it is accepted, it is in the reference, and it changes the plan.

use std::collections::BTreeSet;
use std::path::Path;

use apus_server::config;

use crate::config::{folder, parse_in};

/// A key, what the table holds without it, and with it. What stands for `sites.` is inside a site,
/// for `global.` inside `[global]`; other keys are at the top.
const KEYS: &[(&str, &str, &str)] = &[
    ("include", "", "include = \"sites/*.toml\""),
    ("global", "", "global = { keepalive_timeout = 5 }"),
    ("global.worker_threads", "", "worker_threads = 77"),
    ("global.worker_connections", "", "worker_connections = 7"),
    ("global.max_connections", "", "max_connections = 7"),
    (
        "global.connections_per_address",
        "",
        "connections_per_address = 7",
    ),
    (
        "global.keepalive_timeout",
        "",
        "keepalive_timeout = \"1m30s\"",
    ),
    ("global.keepalive_requests", "", "keepalive_requests = 7"),
    ("global.h2c", "", "h2c = false"),
    (
        "global.h2_max_concurrent_streams",
        "",
        "h2_max_concurrent_streams = 7",
    ),
    ("global.h2_max_frame_size", "", "h2_max_frame_size = 32768"),
    (
        "global.h2_max_requests_per_conn",
        "",
        "h2_max_requests_per_conn = 7",
    ),
    (
        "global.h2_ping_interval",
        "",
        "h2_ping_interval = \"500ms\"",
    ),
    ("global.h2_receive_window", "", "h2_receive_window = 256"),
    (
        "global.client_max_body_size",
        "",
        "client_max_body_size = 0.5",
    ),
    ("global.client_header_size", "", "client_header_size = 16"),
    (
        "global.client_header_fields",
        "",
        "client_header_fields = 7",
    ),
    ("global.client_target_size", "", "client_target_size = 1.5"),
    (
        "global.client_header_timeout",
        "",
        "client_header_timeout = 7",
    ),
    ("global.handshake_timeout", "", "handshake_timeout = 7"),
    ("global.client_body_timeout", "", "client_body_timeout = 7"),
    ("global.client_body_rate", "", "client_body_rate = 7"),
    ("global.discard_body_size", "", "discard_body_size = 7"),
    ("global.send_timeout", "", "send_timeout = 7"),
    ("global.stop_timeout", "", "stop_timeout = 0.5"),
    (
        "global.control_socket",
        "",
        "control_socket = \"apus.sock\"",
    ),
    ("global.static_cache_size", "", "static_cache_size = 7"),
    ("global.server_header", "", "server_header = false"),
    ("global.ssl_reject_unknown", "", "ssl_reject_unknown = true"),
    ("global.access_log", "", "access_log = \"access.log\""),
    (
        "global.access_log.path",
        "access_log.path = \"a\"",
        "access_log.path = \"b\"",
    ),
    (
        "global.access_log.format",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", format = \"$status\" }",
    ),
    ("global.log_level", "", "log_level = \"debug\""),
    ("global.compress", "", "compress = { gzip = false }"),
    ("global.compress.gzip", "", "compress.gzip = false"),
    ("global.compress.brotli", "", "compress.brotli = false"),
    ("global.compress.zstd", "", "compress.zstd = false"),
    (
        "global.compress.precompressed",
        "",
        "compress.precompressed = false",
    ),
    ("global.compress.min_length", "", "compress.min_length = 2"),
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
    ("sites.tls.min_version", TLS, TLS_13),
    ("sites.tls.client_auth", TLS_CLIENT, TLS_OPTIONAL),
    ("sites.tls.client_ca", TLS, TLS_CLIENT),
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
        "sites.access_log.format",
        "access_log = { path = \"a\" }",
        "access_log = { path = \"a\", format = \"json\" }",
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

/// Keys that sites and locations have alike.
const CONTENT: &[(&str, &str, &str)] = &[
    ("root", "", "root = \"other\""),
    ("index", "", "index = [\"a.html\", \"b.html\"]"),
    ("try_files", "", "try_files = [\"$uri\", \"=404\"]"),
    ("listing", "", "listing = true"),
    ("hidden_files", "", "hidden_files = true"),
    ("symlinks", "", "symlinks = \"all\""),
    ("mime", "", "mime = { xyz = \"text/x-xyz\" }"),
    ("charset", "", "charset = \"\""),
    (
        "cache_control",
        "",
        "cache_control = { \"*.css\" = \"max-age=60\" }",
    ),
    ("headers", "", "headers = { remove = \"server\" }"),
    ("headers.set", "", "headers.set = { x-a = \"$host\" }"),
    ("headers.add", "", "headers.add = { x-a = \"b\" }"),
    ("headers.remove", "", "headers.remove = \"x-a\""),
    (
        "request_headers",
        "",
        "request_headers = { remove = \"cookie\" }",
    ),
    (
        "request_headers.set",
        "",
        "request_headers.set = { x-a = \"b\" }",
    ),
    (
        "request_headers.add",
        "",
        "request_headers.add = { x-a = \"b\" }",
    ),
    (
        "request_headers.remove",
        "",
        "request_headers.remove = \"x-a\"",
    ),
    (
        "error_pages",
        "",
        "error_pages = { 404 = \"/404.html\", 5xx = \"/50x.html\" }",
    ),
    ("client_max_body_size", "", "client_max_body_size = 7"),
    ("rewrite", "", "rewrite = [{ from = \"^/a\", to = \"/b\" }]"),
    (
        "rewrite.from",
        "rewrite = [{ from = \"^/a\", to = \"/b\" }]",
        "rewrite = [{ from = \"^/c\", to = \"/b\" }]",
    ),
    (
        "rewrite.to",
        "rewrite = [{ from = \"^/a\", to = \"/b\" }]",
        "rewrite = [{ from = \"^/a\", to = \"/c\" }]",
    ),
    (
        "rewrite.then",
        "rewrite = [{ from = \"^/a\", to = \"/b\" }]",
        "rewrite = [{ from = \"^/a\", to = \"/b\", then = \"permanent\" }]",
    ),
    (
        "rewrite.when",
        "rewrite = [{ from = \"^/a\", to = \"/b\" }]",
        "rewrite = [{ from = \"^/a\", to = \"/b\", when = \"!-f $request_filename\" }]",
    ),
    ("return", "", "return = { status = 404 }"),
    (
        "return.status",
        "return.status = 404",
        "return.status = 410",
    ),
    (
        "return.location",
        "return = { status = 301, location = \"/a\" }",
        "return = { status = 301, location = \"/b\" }",
    ),
    (
        "return.text",
        "return.status = 404",
        "return = { status = 404, text = \"gone\" }",
    ),
    (
        "return.content_type",
        "return = { status = 404, text = \"gone\" }",
        "return = { status = 404, text = \"gone\", content_type = \"text/x\" }",
    ),
];

/// Keys of the table `cache` of sites and locations.
const CACHE: &[(&str, &str, &str)] = &[
    ("ttl", "", "ttl = 5"),
    ("ttl_overrides", "ttl = 5", "ttl = 5, ttl_overrides = true"),
    ("max_ttl", "", "max_ttl = 5"),
    ("heuristic", "", "heuristic = false"),
    ("heuristic.percent", "", "heuristic = { percent = 20 }"),
    ("heuristic.max", "", "heuristic = { max = 20 }"),
    (
        "heuristic.with_query",
        "",
        "heuristic = { with_query = true }",
    ),
    ("stale_while_revalidate", "", "stale_while_revalidate = 5"),
    ("stale_if_error", "", "stale_if_error = \"1h\""),
    ("max_size", "", "max_size = 1"),
    ("minimum_uses", "", "minimum_uses = 2"),
    ("ignore", "", "ignore = \"vary\""),
    ("targeted", "", "targeted = []"),
    ("accel_expires", "", "accel_expires = false"),
    ("set_cookie", "", "set_cookie = \"keep\""),
    ("authorization", "", "authorization = \"always\""),
    ("cookies", "", "cookies = \"always\""),
    ("session_cookies", "", "session_cookies = \"sid\""),
    ("harmless_cookies", "", "harmless_cookies = []"),
    ("client_directives", "", "client_directives = \"honour\""),
    ("trusted_clients", "", "trusted_clients = \"::1\""),
    ("store_errors", "", "store_errors = true"),
    ("store_parts", "", "store_parts = false"),
    ("refuse_disguised", "", "refuse_disguised = false"),
    ("tag_fields", "", "tag_fields = \"X-Tags\""),
    ("hide_tags", "", "hide_tags = false"),
    ("key", "", "key = { scheme = false, device = true }"),
    ("key.scheme", "", "key = { scheme = false }"),
    ("key.host", "", "key = { host = \"example.com\" }"),
    ("key.query", "", "key = { query = false }"),
    (
        "key.query.except",
        "",
        "key = { query = { except = \"a*\" } }",
    ),
    ("key.sort_query", "", "key = { sort_query = true }"),
    ("key.headers", "", "key = { headers = \"Accept-Language\" }"),
    ("key.cookies", "", "key = { cookies = \"lang\" }"),
    ("key.device", "", "key = { device = true }"),
    ("bypass_cookies", "", "bypass_cookies = \"wordpress_*\""),
    ("bypass_headers", "", "bypass_headers = \"X-Preview\""),
    ("lock_timeout", "", "lock_timeout = 1"),
    ("status_field", "", "status_field = false"),
    ("purge_token", "", "purge_token = \"0123456789abcdef\""),
];

/// Keys of `[global.cache]`.
const CACHE_STORE: &[(&str, &str, &str)] = &[
    ("memory_size", "", "memory_size = 10"),
    ("memory_object_size", "", "memory_object_size = 0.5"),
    ("max_variants", "", "max_variants = 3"),
    ("shared_window", "", "shared_window = 128"),
    ("shared_lag", "", "shared_lag = 2"),
    ("dir", "", "dir = \"stored\", size = 5"),
    (
        "size",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 6",
    ),
    (
        "object_size",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 5, object_size = 1",
    ),
    (
        "min_free",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 5, min_free = 1",
    ),
    (
        "threads",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 5, threads = 1",
    ),
    (
        "write_buffer",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 5, write_buffer = 64",
    ),
    (
        "open_files",
        "dir = \"stored\", size = 5",
        "dir = \"stored\", size = 5, open_files = 7",
    ),
];

/// Keys of the table `proxy` of sites and locations.
const PROXY: &[(&str, &str, &str)] = &[
    ("host", "", "host = \"app.example\""),
    ("x_forwarded", "", "x_forwarded = false"),
    ("forwarded", "", "forwarded = true"),
    ("via", "", "via = false"),
    ("underscores", "", "underscores = true"),
    ("hide", "", "hide = [\"X-Powered-By\"]"),
    (
        "redirects",
        "",
        "redirects = { \"http://internal/\" = \"/\" }",
    ),
    ("cookies", "", "cookies = { secure = true }"),
    (
        "cookies.domains",
        "",
        "cookies.domains = { \"internal\" = \"\" }",
    ),
    ("cookies.paths", "", "cookies.paths = { \"/app/\" = \"/\" }"),
    ("cookies.secure", "", "cookies.secure = true"),
    ("cookies.http_only", "", "cookies.http_only = true"),
    ("cookies.same_site", "", "cookies.same_site = \"lax\""),
    ("replace", "", "replace = { \"</head>\" = \"<x></head>\" }"),
    (
        "replace_types",
        "replace = { a = \"b\" }",
        "replace = { a = \"b\" }, replace_types = [\"text/css\", \"*\"]",
    ),
    ("hold_request", "", "hold_request = true"),
    (
        "hold_request.memory",
        "hold_request = true",
        "hold_request = { memory = 7 }",
    ),
    (
        "hold_request.disk",
        "hold_request = true",
        "hold_request = { disk = 7 }",
    ),
    (
        "hold_request.folder",
        "hold_request = true",
        "hold_request = { folder = \"other\" }",
    ),
    ("hold_response", "", "hold_response = true"),
    (
        "hold_response.memory",
        "hold_response = true",
        "hold_response = { memory = 7 }",
    ),
    ("tunnel_timeout", "", "tunnel_timeout = \"5m\""),
    ("intercept_errors", "", "intercept_errors = true"),
    ("accel", "", "accel = true"),
    (
        "accel.files",
        "accel = true",
        "accel = { files = { \"/srv/files/\" = \"/internal/\" } }",
    ),
    ("mirror", "", "mirror = \"http://127.0.0.1:2\""),
    (
        "mirror.upstream",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:3\" }",
    ),
    (
        "mirror.percent",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:2\", percent = 7 }",
    ),
    (
        "mirror.unsafe_methods",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:2\", unsafe_methods = true }",
    ),
    (
        "mirror.max_requests",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:2\", max_requests = 7 }",
    ),
    (
        "mirror.memory",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:2\", memory = 7 }",
    ),
    (
        "mirror.timeout",
        "mirror = \"http://127.0.0.1:2\"",
        "mirror = { upstream = \"http://127.0.0.1:2\", timeout = 7 }",
    ),
];

/// Keys of PHP that stays in memory.
const WORKERS: &[(&str, &str)] = &[
    ("mode", "mode = \"worker\""),
    ("script", "script = \"/worker.php\""),
    ("min", "min = 1"),
    ("max", "max = 7"),
    ("max_requests", "max_requests = 7"),
    ("max_memory", "max_memory = 7"),
    ("max_age", "max_age = 7"),
    ("execution_timeout", "execution_timeout = 7"),
    ("boot_timeout", "boot_timeout = 7"),
    ("idle_timeout", "idle_timeout = 7"),
    ("stop_timeout", "stop_timeout = 7"),
    ("queue", "queue = 7"),
    ("queue_timeout", "queue_timeout = 7"),
    ("tasks", "tasks = 7"),
    ("development", "development = true"),
    ("leaks", "leaks = \"refuse\""),
    ("arguments", "arguments = [\"-d\", \"memory_limit=1G\"]"),
    ("environment", "environment = { APP_ENV = \"production\" }"),
    ("folder", "folder = \"/run/php-workers\""),
];

/// Keys of PHP over FastCGI.
const FASTCGI: &[(&str, &str, &str)] = &[
    ("front_controller", "", "front_controller = \"/app.php\""),
    ("no_php", "", "no_php = \"/uploads/**\""),
    ("protected", "", "protected = \"/xmlrpc.php\""),
    ("script_root", "", "script_root = \"/srv/app\""),
    ("resolve_root", "", "resolve_root = false"),
    ("params", "", "params = { APP_ENV = \"production\" }"),
    ("underscores", "", "underscores = true"),
    ("hide", "", "hide = \"X-Powered-By\""),
    ("workers", "", "workers = true"),
    ("pool_size", "", "pool_size = 7"),
    ("idle_timeout", "", "idle_timeout = 0"),
    ("queue", "", "queue = { max = 7 }"),
    ("queue.max", "", "queue.max = 7"),
    ("queue.timeout", "", "queue.timeout = 7"),
    ("retry", "", "retry = { tries = 1 }"),
    ("retry.tries", "", "retry.tries = 7"),
    ("retry.within", "", "retry.within = 7"),
    ("retry.on", "", "retry.on = [503, \"timeout\"]"),
    ("retry.non_idempotent", "", "retry.non_idempotent = true"),
    ("retry.hedge", "", "retry.hedge = 0.05"),
    ("retry.budget", "", "retry.budget = { percent = 7 }"),
    ("retry.budget.percent", "", "retry.budget.percent = 7"),
    (
        "retry.budget.min_per_second",
        "",
        "retry.budget.min_per_second = 7",
    ),
    ("connect_timeout", "", "connect_timeout = 7"),
    ("first_byte_timeout", "", "first_byte_timeout = 7"),
    ("read_timeout", "", "read_timeout = 7"),
    ("write_timeout", "", "write_timeout = 7"),
    ("hold_request", "", "hold_request = false"),
    ("hold_request.memory", "", "hold_request = { memory = 7 }"),
    ("hold_request.disk", "", "hold_request = { disk = 7 }"),
    (
        "hold_request.folder",
        "",
        "hold_request = { folder = \"other\" }",
    ),
    ("hold_response", "", "hold_response = false"),
    ("hold_response.memory", "", "hold_response = { memory = 7 }"),
    ("intercept_errors", "", "intercept_errors = true"),
    ("accel", "", "accel = true"),
    (
        "accel.files",
        "accel = true",
        "accel = { files = { \"/srv/files/\" = \"/internal/\" } }",
    ),
    ("cache", "", "cache = true"),
    (
        "cache_field",
        "cache = true",
        "cache = true, cache_field = true",
    ),
];

const UPSTREAM: &[(&str, &str, &str)] = &[
    (
        "nodes",
        "nodes = \"127.0.0.1:1\"",
        "nodes = [\"127.0.0.1:1\", \"unix:app.sock\"]",
    ),
    (
        "nodes.addr",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"[::1]:1\" }]",
    ),
    (
        "nodes.name",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", name = \"one\" }]",
    ),
    (
        "nodes.weight",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", weight = 2 }]",
    ),
    (
        "nodes.backup",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", backup = true }]",
    ),
    (
        "nodes.drain",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", drain = true }]",
    ),
    (
        "nodes.down",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", down = true }]",
    ),
    (
        "nodes.max_conns",
        "nodes = [{ addr = \"127.0.0.1:1\" }]",
        "nodes = [{ addr = \"127.0.0.1:1\", max_conns = 5 }]",
    ),
    ("strategy", "", "strategy = \"p2c\""),
    (
        "hash",
        "strategy = \"hash\", hash = \"uri\"",
        "strategy = \"hash\", hash = \"cookie:id\"",
    ),
    ("protocol", "", "protocol = \"h2\""),
    ("send_proxy", "", "send_proxy = \"v2\""),
    ("failure_statuses", "", "failure_statuses = [500, \"4xx\"]"),
    ("slow_start", "", "slow_start = 30"),
    ("total_timeout", "", "total_timeout = 30"),
    ("connect_timeout", "", "connect_timeout = \"500ms\""),
    (
        "tls_timeout",
        "tls = { verify = false }",
        "tls = { verify = false }, tls_timeout = \"500ms\"",
    ),
    ("first_byte_timeout", "", "first_byte_timeout = \"500ms\""),
    ("read_timeout", "", "read_timeout = \"500ms\""),
    ("write_timeout", "", "write_timeout = \"500ms\""),
    ("tls", "", "tls = { ca = \"cert.pem\" }"),
    (
        "tls.verify",
        "tls = { ca = \"cert.pem\" }",
        "tls = { verify = false }",
    ),
    (
        "tls.ca",
        "tls = { ca = \"cert.pem\" }",
        "tls = { ca = \"other-cert.pem\" }",
    ),
    (
        "tls.cert",
        "tls = { ca = \"cert.pem\" }",
        "tls = { ca = \"cert.pem\", cert = \"cert.pem\", key = \"key.pem\" }",
    ),
    (
        "tls.key",
        "tls = { ca = \"cert.pem\" }",
        "tls = { ca = \"cert.pem\", cert = \"other-cert.pem\", key = \"other-key.pem\" }",
    ),
    (
        "tls.server_name",
        "tls = { ca = \"cert.pem\" }",
        "tls = { ca = \"cert.pem\", server_name = \"example.com\" }",
    ),
    (
        "tls.min_version",
        "tls = { ca = \"cert.pem\" }",
        "tls = { ca = \"cert.pem\", min_version = \"1.3\" }",
    ),
    ("sticky", "", "sticky = true"),
    (
        "sticky.name",
        "sticky = true",
        "sticky = { name = \"route\" }",
    ),
    (
        "sticky.path",
        "sticky = true",
        "sticky = { path = \"/app/\" }",
    ),
    (
        "sticky.domain",
        "sticky = true",
        "sticky = { domain = \".example.com\" }",
    ),
    (
        "sticky.max_age",
        "sticky = true",
        "sticky = { max_age = 60 }",
    ),
    (
        "sticky.secure",
        "sticky = true",
        "sticky = { secure = true }",
    ),
    (
        "sticky.http_only",
        "sticky = true",
        "sticky = { http_only = false }",
    ),
    (
        "sticky.same_site",
        "sticky = true",
        "sticky = { same_site = \"strict\" }",
    ),
    ("breaker", "", "breaker = true"),
    (
        "breaker.percent",
        "breaker = true",
        "breaker = { percent = 7 }",
    ),
    (
        "breaker.min_requests",
        "breaker = true",
        "breaker = { min_requests = 7 }",
    ),
    (
        "breaker.window",
        "breaker = true",
        "breaker = { window = 7 }",
    ),
    (
        "breaker.open_for",
        "breaker = true",
        "breaker = { open_for = 7 }",
    ),
    (
        "breaker.max_open_for",
        "breaker = true",
        "breaker = { max_open_for = 7 }",
    ),
    (
        "breaker.probes",
        "breaker = true",
        "breaker = { probes = 7 }",
    ),
    ("ejection", "", "ejection = true"),
    (
        "ejection.consecutive",
        "ejection = true",
        "ejection = { consecutive = 7 }",
    ),
    (
        "ejection.rate",
        "ejection = true",
        "ejection = { rate = false }",
    ),
    (
        "ejection.time",
        "ejection = true",
        "ejection = { time = 7 }",
    ),
    (
        "ejection.max_time",
        "ejection = true",
        "ejection = { max_time = 70 }",
    ),
    (
        "ejection.max_percent",
        "ejection = true",
        "ejection = { max_percent = 7 }",
    ),
    (
        "ejection.keep",
        "ejection = true",
        "ejection = { keep = 7 }",
    ),
    (
        "ejection.rate.interval",
        "ejection = true",
        "ejection = { rate = { interval = 7 } }",
    ),
    (
        "ejection.rate.margin",
        "ejection = true",
        "ejection = { rate = { margin = 7 } }",
    ),
    (
        "ejection.rate.min_requests",
        "ejection = true",
        "ejection = { rate = { min_requests = 7 } }",
    ),
    ("check", "", "check = true"),
    (
        "check.path",
        "check = true",
        "check = { path = \"/health\" }",
    ),
    ("check.host", "check = true", "check = { host = \"app\" }"),
    (
        "check.status",
        "check = true",
        "check = { status = [204, \"3xx\"] }",
    ),
    (
        "check.contains",
        "check = true",
        "check = { contains = \"ok\" }",
    ),
    ("check.interval", "check = true", "check = { interval = 7 }"),
    ("check.jitter", "check = true", "check = { jitter = 7 }"),
    ("check.timeout", "check = true", "check = { timeout = 7 }"),
    ("check.rise", "check = true", "check = { rise = 7 }"),
    ("check.fall", "check = true", "check = { fall = 7 }"),
    ("check.type", "check = true", "check = { type = \"tcp\" }"),
    (
        "check.service",
        "check = { type = \"grpc\" }",
        "check = { type = \"grpc\", service = \"app\" }",
    ),
    ("passive", "", "passive = false"),
    ("passive.max_fails", "", "passive = { max_fails = 7 }"),
    ("passive.fail_timeout", "", "passive = { fail_timeout = 7 }"),
    ("keepalive", "", "keepalive = { max_idle = 0 }"),
    ("keepalive.max_idle", "", "keepalive.max_idle = 7"),
    ("keepalive.idle_timeout", "", "keepalive.idle_timeout = 7"),
    ("keepalive.max_requests", "", "keepalive.max_requests = 7"),
    ("keepalive.max_age", "", "keepalive.max_age = 7"),
    (
        "queue",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }, queue = { max = 7 }",
    ),
    (
        "queue.max",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }, queue.max = 7",
    ),
    (
        "queue.timeout",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }",
        "nodes = { addr = \"127.0.0.1:1\", max_conns = 5 }, queue.timeout = 7",
    ),
    ("retry", "", "retry = { tries = 1 }"),
    ("retry.tries", "", "retry.tries = 7"),
    ("retry.within", "", "retry.within = 7"),
    ("retry.on", "", "retry.on = [503, \"timeout\"]"),
    ("retry.non_idempotent", "", "retry.non_idempotent = true"),
    ("retry.hedge", "", "retry.hedge = 0.05"),
    ("retry.budget", "", "retry.budget = { percent = 7 }"),
    ("retry.budget.percent", "", "retry.budget.percent = 7"),
    (
        "retry.budget.min_per_second",
        "",
        "retry.budget.min_per_second = 7",
    ),
    (
        "dns",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns = { ipv6 = false }",
    ),
    (
        "dns.servers",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns.servers = [\"192.0.2.53\", \"[::1]:5353\"]",
    ),
    (
        "dns.min_ttl",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns.min_ttl = 7",
    ),
    (
        "dns.max_ttl",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns.max_ttl = 7",
    ),
    (
        "dns.timeout",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns.timeout = 7",
    ),
    (
        "dns.ipv6",
        "nodes = \"app.example:80\"",
        "nodes = \"app.example:80\", dns.ipv6 = false",
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
const TLS_CLIENT: &str = "listen_tls = 443\ntls = { cert = \"cert.pem\", key = \"key.pem\", \
    client_auth = \"required\", client_ca = \"cert.pem\" }";
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

fn plan(folder: &Path, text: &str) -> String {
    match parse_in(folder, text) {
        Ok(plan) => format!("{plan:?}"),
        Err(diagnostics) => panic!("{text}\n{diagnostics}"),
    }
}

/// The file in which the table of `key` holds `lines`.
fn file(key: &str, lines: &str) -> String {
    let default = |key: &str, line: &str| match lines.contains(key) {
        true => String::new(),
        false => format!("{line}\n"),
    };
    let site = |lines: &str| {
        let listen = match lines.lines().any(|line| line.starts_with("listen =")) {
            true => "",
            false => "listen = 80\n",
        };
        let root = default("root =", "root = \"public\"");
        format!("[[sites]]\n{listen}{root}{lines}\n")
    };
    if key.starts_with("sites.") {
        site(lines)
    } else if key.starts_with("global.") {
        format!("[global]\n{lines}\n{}", site(""))
    } else if key == "sites" {
        match lines {
            "" => site(""),
            lines => lines.replace("80", "81"),
        }
    } else {
        format!("{lines}\n{}", site(""))
    }
}

#[test]
fn every_key_changes_the_plan() {
    let folder = folder();
    let included = "[[sites]]\nlisten = 82\nroot = \"../public\"\n";
    std::fs::write(folder.path().join("sites/a.toml"), included).unwrap();
    let mut tried = BTreeSet::new();
    let mut try_key = |key: &str, without: String, with: String| {
        let (without, with) = (plan(folder.path(), &without), plan(folder.path(), &with));
        assert_ne!(without, with, "{key} changes nothing");
        tried.insert(key.to_owned());
    };
    for (key, without, with) in KEYS {
        if *key == "sites.locations.handler" {
            let of = |handler: &str| {
                let fixed = "return = { status = 404 }";
                file(
                    key,
                    &format!("locations = [{{ path = \"/a/\", {handler}{fixed} }}]"),
                )
            };
            assert!(parse_in(folder.path(), &of("handler = \"static\", ")).is_err());
            plan(folder.path(), &of("handler = \"return\", "));
        }
        try_key(key, file(key, without), file(key, with));
    }
    for (key, without, with) in CONTENT {
        let site = format!("sites.{key}");
        try_key(&site, file(&site, without), file(&site, with));
        let location = format!("sites.locations.{key}");
        let of = |keys: &str| {
            let keys = match keys {
                "" => String::new(),
                keys => format!(", {keys}"),
            };
            let lines = format!("locations = [{{ path = \"/a/\"{keys} }}]");
            file(&location, &lines).replace("[[sites]]\n", "[[sites]]\nroot = \"public\"\n")
        };
        let once = |text: String| match text.matches("root = \"public\"").count() {
            2.. => text.replacen("root = \"public\"\n", "", 1),
            _ => text,
        };
        try_key(&location, once(of(without)), once(of(with)));
    }
    let of_proxy = PROXY.iter().map(|key| ("proxy", key));
    let of_cache = CACHE.iter().map(|key| ("cache", key));
    for (name, (key, without, with)) in of_proxy.chain(of_cache) {
        let table = |keys: &str, of: &str| match of {
            "sites" => format!("upstream = \"http://[::1]:1\"\n{name} = {{ {keys} }}"),
            _ => format!(
                "locations = [{{ path = \"/a/\", upstream = \"http://[::1]:1\", {name} = {{ {keys} }} }}]"
            ),
        };
        for of in ["sites", "sites.locations"] {
            let key = format!("{of}.{name}.{key}");
            let of = |keys| format!("[[sites]]\nlisten = 80\n{}\n", table(keys, of));
            try_key(&key, of(without), of(with));
        }
    }
    let php = |of: &str, keys: &str| {
        let php = "php_fastcgi = \"[::1]:1\"";
        let site = "[[sites]]\nlisten = 80\nroot = \"public\"\n";
        match of {
            "sites" => format!("{site}{php}\nfastcgi = {{ {keys} }}\n"),
            _ => {
                format!("{site}locations = [{{ path = \"/a/\", {php}, fastcgi = {{ {keys} }} }}]\n")
            }
        }
    };
    for of in ["sites", "sites.locations"] {
        let key = format!("{of}.php_fastcgi");
        let other = php(of, "").replace("[::1]:1", "/run/php.sock");
        try_key(&key, php(of, ""), other);
        let key = format!("{of}.fastcgi");
        try_key(&key, php(of, ""), php(of, "underscores = true"));
        for (key, without, with) in FASTCGI {
            let key = format!("{of}.fastcgi.{key}");
            try_key(&key, php(of, without), php(of, with));
        }
        for (key, with) in WORKERS {
            let program = ["arguments", "environment"].contains(key);
            let workers = |keys: &str| {
                let text = php(of, &format!("workers = {{ {keys} }}"));
                match program {
                    true => text.replace("[::1]:1", "/usr/bin/php-cgi"),
                    false => text,
                }
            };
            let key = format!("{of}.fastcgi.workers.{key}");
            try_key(&key, workers(""), workers(with));
        }
        for (key, without, with) in CACHE {
            let cached = |keys: &str| php(of, &format!("cache = {{ {keys} }}"));
            let key = format!("{of}.fastcgi.cache.{key}");
            try_key(&key, cached(without), cached(with));
        }
    }
    let store = |keys: &str| {
        let site = "[[sites]]\nlisten = 80\nupstream = \"unix:/a\"\ncache = true\n";
        format!("[global]\ncache = {{ {keys} }}\n{site}")
    };
    try_key("global.cache", store(""), store("memory_size = 5"));
    for (key, without, with) in CACHE_STORE {
        try_key(&format!("global.cache.{key}"), store(without), store(with));
    }
    let origins = |upstream: &str| {
        let site = "[[sites]]\nlisten = 80\n";
        (
            format!("{site}{upstream}\n"),
            format!("{site}root = \"public\"\nlocations = [{{ path = \"/a/\", {upstream} }}]\n"),
        )
    };
    let (one, two) = (
        origins("upstream = \"unix:/a\""),
        origins("upstream = \"http://a/b/\""),
    );
    try_key("sites.upstream", one.0, two.0);
    try_key("sites.locations.upstream", one.1, two.1);
    let (one, two) = (
        origins("upstream = \"unix:/a\""),
        origins("upstream = \"unix:/a\"\nproxy = { via = false }"),
    );
    let trusting = format!(
        "[global]\ntrusted_proxies = [\"10.0.0.0/8\", \"unix:\"]\n{}",
        one.0
    );
    try_key("global.trusted_proxies", one.0.clone(), trusting);
    try_key("sites.proxy", one.0, two.0);
    try_key(
        "sites.locations.proxy",
        one.1,
        two.1.replace("\nproxy", ", proxy"),
    );
    let (one, two) = (
        origins("upstream = \"unix:/a\""),
        origins("upstream = \"unix:/a\"\ncache = true"),
    );
    try_key("sites.cache", one.0, two.0);
    try_key(
        "sites.locations.cache",
        one.1,
        two.1.replace("\ncache", ", cache"),
    );
    let group = |name: &str, keys: &str| {
        let nodes = match keys.starts_with("nodes") {
            true => "",
            false => "nodes = \"127.0.0.1:1\", ",
        };
        let name = format!("name = \"{name}\"");
        format!(
            "[[sites]]\nlisten = 80\nupstream = {}\nupstreams = [{{ {name}, {nodes}{keys} }}]\n",
            name.trim_start_matches("name = ")
        )
    };
    try_key("sites.upstreams.name", group("a", ""), group("b", ""));
    try_key(
        "sites.upstreams",
        "[[sites]]\nlisten = 80\nupstream = \"unix:/a\"\n".to_owned(),
        group("a", ""),
    );
    for (key, without, with) in UPSTREAM {
        let key = format!("sites.upstreams.{key}");
        try_key(&key, group("app", without), group("app", with));
    }
    let mut known = BTreeSet::new();
    collect(&config::schema(), "", &mut known);
    assert_eq!(tried, known, "keys without a test, or tests without a key");
}

/// The paths of all keys in a schema.
fn collect(schema: &serde_json::Value, path: &str, paths: &mut BTreeSet<String>) {
    let inner = ["anyOf"]
        .iter()
        .filter_map(|key| schema[key].as_array())
        .flatten();
    for schema in inner.chain(schema.get("items")) {
        collect(schema, path, paths);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        collect(schema, &path, paths);
        paths.insert(path);
    }
}

#[test]
fn the_reference_and_the_schema_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let schema = serde_json::to_string_pretty(&config::schema()).unwrap() + "\n";
    for (name, text) in [
        ("reference.md", config::reference()),
        ("apus.schema.json", schema),
    ] {
        let path = root.join(name);
        if std::env::var_os("APUS_BLESS").is_some() {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "docs/{name} is stale; APUS_BLESS=1 cargo test -p apus-server writes it anew"
        );
    }
}
