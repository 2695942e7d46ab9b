//! Keys of the table `proxy` of sites and locations.

/// A key, what the table holds without it, and with it.
pub(super) const PROXY: &[(&str, &str, &str)] = &[
    ("host", "", "host = \"app.example\""),
    ("x_forwarded", "", "x_forwarded = false"),
    ("forwarded", "", "forwarded = true"),
    ("path", "", "path = \"raw\""),
    ("via", "", "via = false"),
    ("underscores", "", "underscores = true"),
    ("upgrade", "", "upgrade = [\"websocket\", \"echo\"]"),
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
    (
        "hold_response.disk",
        "hold_response = true",
        "hold_response = { disk = 7 }",
    ),
    (
        "hold_response.folder",
        "hold_response = true",
        "hold_response = { folder = \"other\" }",
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
