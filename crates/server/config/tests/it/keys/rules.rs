//! The keys of rules: of the whole server, of a site and of a location.

/// The key, and two rules that differ in it.
pub(super) const RULES: &[(&str, &str, &str)] = &[
    ("name", "deny = 403", "name = \"a\", deny = 403"),
    ("when", "deny = 403", "when = \"tls\", deny = 403"),
    ("on", "deny = 403", "on = \"response\", deny = 403"),
    ("dry_run", "deny = 403", "dry_run = true, deny = 403"),
    ("tag", "deny = 403", "tag = \"a\", deny = 403"),
    ("set", "deny = 403", "set = { a = \"$host\" }, deny = 403"),
    (
        "request_headers",
        "deny = 403",
        "request_headers.set = { a = \"b\" }",
    ),
    (
        "request_headers.set",
        "deny = 403",
        "request_headers.set = { a = \"b\" }",
    ),
    (
        "request_headers.add",
        "deny = 403",
        "request_headers.add = { a = \"b\" }",
    ),
    (
        "request_headers.remove",
        "deny = 403",
        "request_headers.remove = \"a\"",
    ),
    ("headers", "deny = 403", "headers.set = { a = \"b\" }"),
    ("headers.set", "deny = 403", "headers.set = { a = \"b\" }"),
    ("headers.add", "deny = 403", "headers.add = { a = \"b\" }"),
    ("headers.remove", "deny = 403", "headers.remove = \"a\""),
    ("log", "deny = 403", "log = false, deny = 403"),
    ("cache", "tag = \"a\"", "cache = false, tag = \"a\""),
    ("location", "tag = \"a\"", "location = \"/a/\""),
    (
        "upstream",
        "upstream = \"http://[::1]:2\"",
        "upstream = \"http://[::1]:3\"",
    ),
    ("limit", "tag = \"a\"", "limit = \"a\""),
    ("delay", "deny = 403", "delay = 2, deny = 403"),
    ("close", "deny = 403", "close = true"),
    ("rewrite", "deny = 403", "rewrite = \"/a\""),
    ("jump", "deny = 403", "jump = \"chain\""),
    ("ban", "deny = 403", "ban = \"10m\""),
    ("challenge", "deny = 403", "challenge = true"),
    ("deny", "deny = 403", "deny = 404"),
    ("return", "deny = 403", "return = { status = 404 }"),
    (
        "return.status",
        "return = { status = 403 }",
        "return = { status = 404 }",
    ),
    (
        "return.location",
        "return = { status = 301, location = \"/a\" }",
        "return = { status = 301, location = \"/b\" }",
    ),
    (
        "return.text",
        "return = { status = 403 }",
        "return = { status = 403, text = \"a\" }",
    ),
    (
        "return.content_type",
        "return = { status = 403, text = \"a\" }",
        "return = { status = 403, text = \"a\", content_type = \"text/html\" }",
    ),
    ("allow", "deny = 403", "allow = true"),
    ("leave", "deny = 403", "leave = true"),
];

/// A file in which a place has one rule.
pub(super) fn file(place: &str, rule: &str) -> String {
    let chains = "chains = { chain = [{ deny = 403 }] }\n";
    let limit = "limits = [{ name = \"a\", rate = \"1/s\", by_rules = true }]\n";
    let handler = if rule.contains("upstream") {
        "upstream = \"http://[::1]:1\""
    } else {
        "root = \"public\""
    };
    let site = format!("[[sites]]\nlisten = 80\n{handler}\n{limit}");
    match place {
        "global" => format!("[global]\n{limit}{chains}rules = [{{ {rule} }}]\n{site}"),
        "sites" => {
            format!("{site}{chains}rules = [{{ {rule} }}]\nlocations = [{{ path = \"/a/\" }}]\n")
        }
        _ => format!("{site}{chains}locations = [{{ path = \"/a/\", rules = [{{ {rule} }}] }}]\n"),
    }
}

/// Keys beside rules, and the lines that stand in the file with them and without.
pub(super) const OTHERS: &[(&str, &str, &str)] = &[
    (
        "global.rules",
        "[global]\n",
        "[global]\nrules = [{ deny = 403 }]\n",
    ),
    (
        "global.chains",
        "[global]\nrules = [{ deny = 403 }]\nchains = { a = [{ deny = 403 }] }\n",
        "[global]\nrules = [{ deny = 403 }]\nchains = { a = [{ deny = 404 }] }\n",
    ),
    (
        "global.conditions",
        "[global]\nrules = [{ deny = 403, when = \"a\" }]\nconditions = { a = \"tls\" }\n",
        "[global]\nrules = [{ deny = 403, when = \"a\" }]\nconditions = { a = { path = \"/b\" } }\n",
    ),
    (
        "global.lists",
        "[global]\nrules = [{ deny = 403, when = \"client in @a\" }]\nlists = { a = \"10.0.0.0/8\" }\n",
        "[global]\nrules = [{ deny = 403, when = \"client in @a\" }]\nlists = { a = [\"10.0.0.0/8\", \"::1\"] }\n",
    ),
    (
        "global.maps",
        "[global]\nmaps.a = { from = \"path\", values = { \"/a\" = \"b\" } }\n",
        "[global]\nmaps.b = { from = \"path\", values = { \"/a\" = \"b\" } }\n",
    ),
    (
        "global.maps",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"b\" } }\n",
        "[global]\nmaps.a = { from = \"referer\", values = { a = \"b\" } }\n",
    ),
    (
        "global.maps",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"b\" } }\n",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"b\" }, default = \"c\" }\n",
    ),
    (
        "global.maps",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"b\" } }\n",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"c\" } }\n",
    ),
    (
        "global.maps",
        "[global]\nmaps.a = { from = \"user_agent\", values = { a = \"b\" } }\n",
        "[global]\nmaps.a = { from = \"user_agent\", file = \"plans.map\" }\n",
    ),
    (
        "global.time_zone",
        "[global]\nrules = [{ deny = 403, when = \"time < 08:00\" }]\ntime_zone = \"UTC\"\n",
        "[global]\nrules = [{ deny = 403, when = \"time < 08:00\" }]\ntime_zone = \"Europe/Berlin\"\n",
    ),
    (
        "global.geo_databases",
        "[global]\ngeo_databases = \"geo.mmdb\"\n",
        "[global]\ngeo_databases = [\"geo.mmdb\", \"other-geo.mmdb\"]\n",
    ),
    (
        "sites.rules",
        "",
        "[[sites]]\nlisten = 80\nroot = \"public\"\nrules = [{ deny = 403 }]\n",
    ),
    (
        "sites.chains",
        "[[sites]]\nlisten = 80\nroot = \"public\"\nrules = [{ deny = 403 }]\n",
        "[[sites]]\nlisten = 80\nroot = \"public\"\nrules = [{ deny = 403 }]\nchains = { a = [{ deny = 403 }] }\n",
    ),
    (
        "sites.locations.rules",
        "[[sites]]\nlisten = 80\nroot = \"public\"\nlocations = [{ path = \"/a\" }]\n",
        "[[sites]]\nlisten = 80\nroot = \"public\"\nlocations = [{ path = \"/a\", rules = [{ deny = 403 }] }]\n",
    ),
];
