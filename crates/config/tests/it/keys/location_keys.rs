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
];
