//! Mistakes of files, fields and rewrites.

/// A file, and what is found wrong with it. `SITE` stands for a site without mistakes of three lines.
pub(super) const MISTAKES: &[(&str, &str)] = &[
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
];
