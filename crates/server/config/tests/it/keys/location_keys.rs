//! Keys that sites and locations have alike.

/// A key, what the table holds without it, and with it.
pub(super) const KEYS: &[(&str, &str, &str)] = &[
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
    ("request_id", "", "request_id = true"),
    (
        "request_id.header",
        "request_id = true",
        "request_id.header = \"x-id\"",
    ),
    ("security_headers", "", "security_headers = true"),
    (
        "security_headers.content_security_policy",
        "security_headers = true",
        "security_headers.content_security_policy = \"default-src 'self'\"",
    ),
    (
        "security_headers.content_security_policy_report_only",
        "security_headers = true",
        "security_headers.content_security_policy_report_only = \"default-src 'self'\"",
    ),
    (
        "security_headers.content_type_options",
        "security_headers = true",
        "security_headers.content_type_options = \"\"",
    ),
    (
        "security_headers.frame_options",
        "security_headers = true",
        "security_headers.frame_options = \"DENY\"",
    ),
    (
        "security_headers.referrer_policy",
        "security_headers = true",
        "security_headers.referrer_policy = \"no-referrer\"",
    ),
    (
        "security_headers.opener_policy",
        "security_headers = true",
        "security_headers.opener_policy = \"\"",
    ),
    (
        "security_headers.permissions_policy",
        "security_headers = true",
        "security_headers.permissions_policy = \"camera=()\"",
    ),
    ("cors", "", "cors = { origins = \"https://a.example\" }"),
    (
        "cors.origins",
        "cors = { origins = \"https://a.example\" }",
        "cors.origins = \"*\"",
    ),
    (
        "cors.methods",
        "cors = { origins = \"https://a.example\" }",
        "cors = { origins = \"https://a.example\", methods = [\"GET\", \"PUT\"] }",
    ),
    (
        "cors.headers",
        "cors = { origins = \"https://a.example\" }",
        "cors = { origins = \"https://a.example\", headers = \"*\" }",
    ),
    (
        "cors.expose_headers",
        "cors = { origins = \"https://a.example\" }",
        "cors = { origins = \"https://a.example\", expose_headers = \"x-a\" }",
    ),
    (
        "cors.credentials",
        "cors = { origins = \"https://a.example\" }",
        "cors = { origins = \"https://a.example\", credentials = true }",
    ),
    (
        "cors.max_age",
        "cors = { origins = \"https://a.example\" }",
        "cors = { origins = \"https://a.example\", max_age = 60 }",
    ),
    ("request_timeout", "", "request_timeout = 30"),
    ("allow", "", "allow = [\"10.0.0.0/8\", \"unix:\"]"),
    ("deny", "", "deny = \"10.0.0.0/8\""),
    (
        "satisfy",
        "basic_auth = { users_file = \"htpasswd\" }",
        "satisfy = \"any\", basic_auth = { users_file = \"htpasswd\" }",
    ),
    ("referers", "", "referers = true"),
    (
        "referers.allow",
        "referers = true",
        "referers.allow = [\"blocked\", \"*.example.com\"]",
    ),
    ("signed_url", "", "signed_url = { key_file = \"jwt.key\" }"),
    (
        "signed_url.key_file",
        "signed_url = { key_file = \"jwt.key\" }",
        "signed_url = { key_file = \"other-jwt.key\" }",
    ),
    (
        "basic_auth",
        "",
        "basic_auth = { users_file = \"htpasswd\" }",
    ),
    (
        "basic_auth.users_file",
        "basic_auth = { users_file = \"htpasswd\" }",
        "basic_auth.users_file = \"other-htpasswd\"",
    ),
    (
        "basic_auth.realm",
        "basic_auth = { users_file = \"htpasswd\" }",
        "basic_auth = { users_file = \"htpasswd\", realm = \"staff\" }",
    ),
    (
        "basic_auth.failures_per_minute",
        "basic_auth = { users_file = \"htpasswd\" }",
        "basic_auth = { users_file = \"htpasswd\", failures_per_minute = 0 }",
    ),
    (
        "jwt",
        "",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
    ),
    (
        "jwt.algorithm",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS512\", key_file = \"jwt.key\" }",
    ),
    (
        "jwt.key_file",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS256\", key_file = \"other-jwt.key\" }",
    ),
    (
        "jwt.jwks_file",
        "jwt = { jwks_file = \"jwks.json\" }",
        "jwt = { jwks_file = \"other-jwks.json\" }",
    ),
    (
        "jwt.jwks_url",
        "jwt = { jwks_url = \"https://a.example/keys\" }",
        "jwt = { jwks_url = \"https://b.example/keys\" }",
    ),
    (
        "jwt.tls",
        "jwt = { jwks_url = \"https://a.example/keys\" }",
        "jwt = { jwks_url = \"https://a.example/keys\", tls = { ca = \"cert.pem\" } }",
    ),
    (
        "jwt.tls.ca",
        "jwt = { jwks_url = \"https://a.example/keys\", tls = { ca = \"cert.pem\" } }",
        "jwt = { jwks_url = \"https://a.example/keys\", tls = { ca = \"other-cert.pem\" } }",
    ),
    (
        "jwt.issuer",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\", issuer = \"a\" }",
    ),
    (
        "jwt.audience",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\", audience = \"a\" }",
    ),
    (
        "jwt.leeway",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\", leeway = 5 }",
    ),
    (
        "jwt.optional",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\" }",
        "jwt = { algorithm = \"HS256\", key_file = \"jwt.key\", optional = true }",
    ),
    (
        "forward_auth",
        "",
        "forward_auth = { to = \"http://a.example\" }",
    ),
    (
        "forward_auth.to",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://b.example\" }",
    ),
    (
        "forward_auth.uri",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", uri = \"/verify\" }",
    ),
    (
        "forward_auth.host",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", host = \"b.example\" }",
    ),
    (
        "forward_auth.request_headers",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", request_headers = \"*\" }",
    ),
    (
        "forward_auth.copy_headers",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", copy_headers = \"X-A\" }",
    ),
    (
        "forward_auth.response_headers",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", response_headers = \"X-A\" }",
    ),
    (
        "forward_auth.user_header",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", user_header = \"X-A\" }",
    ),
    (
        "forward_auth.cache",
        "forward_auth = { to = \"http://a.example\" }",
        "forward_auth = { to = \"http://a.example\", cache = true }",
    ),
    (
        "forward_auth.cache.time",
        "forward_auth = { to = \"http://a.example\", cache = true }",
        "forward_auth = { to = \"http://a.example\", cache.time = 60 }",
    ),
    (
        "forward_auth.cache.key",
        "forward_auth = { to = \"http://a.example\", cache = true }",
        "forward_auth = { to = \"http://a.example\", cache.key = [\"host\"] }",
    ),
    (
        "forward_auth.cache.size",
        "forward_auth = { to = \"http://a.example\", cache = true }",
        "forward_auth = { to = \"http://a.example\", cache.size = 5 }",
    ),
    ("limits", "", "limits = [{ name = \"a\", rate = \"10/s\" }]"),
    (
        "limits.name",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"b\", rate = \"10/s\" }]",
    ),
    (
        "limits.rate",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/m\" }]",
    ),
    (
        "limits.key",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", key = [\"client\", \"header.x-api-key\"] }]",
    ),
    (
        "limits.quota",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", quota = \"10/day\" }]",
    ),
    (
        "limits.burst",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", burst = 3 }]",
    ),
    (
        "limits.delay",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", delay = 3 }]",
    ),
    (
        "limits.tiers",
        "limits = [{ name = \"a\", rate = \"10/s\", key = \"header.x-api-key\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", key = \"header.x-api-key\", tiers = { gold = \"1/s\" } }]",
    ),
    (
        "limits.keys",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", keys = 7 }]",
    ),
    (
        "limits.status",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", status = 420 }]",
    ),
    (
        "limits.dry_run",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", dry_run = true }]",
    ),
    (
        "limits.when",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", when = \"tls\" }]",
    ),
    (
        "limits.by_rules",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", by_rules = true }]",
    ),
    (
        "limits.enabled",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", enabled = false }]",
    ),
    (
        "limits.queue",
        "limits = [{ name = \"a\", concurrent = 10 }]",
        "limits = [{ name = \"a\", concurrent = 10, queue = 5 }]",
    ),
    (
        "limits.queue_timeout",
        "limits = [{ name = \"a\", concurrent = 10 }]",
        "limits = [{ name = \"a\", concurrent = 10, queue_timeout = 5 }]",
    ),
    (
        "limits.concurrent",
        "limits = [{ name = \"a\", concurrent = 10 }]",
        "limits = [{ name = \"a\", concurrent = 11 }]",
    ),
    (
        "limits.count",
        "limits = [{ name = \"a\", rate = \"10/m\" }]",
        "limits = [{ name = \"a\", rate = \"10/m\", count = \"status in [401, 403]\" }]",
    ),
    (
        "limits.ban",
        "limits = [{ name = \"a\", rate = \"10/s\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", ban = \"10m\" }]",
    ),
    (
        "limits.ban_after",
        "limits = [{ name = \"a\", rate = \"10/s\", ban = \"10m\" }]",
        "limits = [{ name = \"a\", rate = \"10/s\", ban = \"10m\", ban_after = 3 }]",
    ),
    (
        "limits.bandwidth",
        "limits = [{ name = \"a\", bandwidth = \"1mb/s\" }]",
        "limits = [{ name = \"a\", bandwidth = \"2mb/s\" }]",
    ),
    (
        "limits.direction",
        "limits = [{ name = \"a\", bandwidth = \"1mb/s\" }]",
        "limits = [{ name = \"a\", bandwidth = \"1mb/s\", direction = \"request\" }]",
    ),
    (
        "limits.after",
        "limits = [{ name = \"a\", bandwidth = \"1mb/s\" }]",
        "limits = [{ name = \"a\", bandwidth = \"1mb/s\", after = \"10mb\" }]",
    ),
];
