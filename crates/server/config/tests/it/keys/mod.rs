//! Every key there is: it is accepted, it is in the reference, and it changes the plan.

mod caching;
mod certificates;
mod location_keys;
mod php;
mod proxying;
mod rules;
mod server;
mod sites;
mod upstreams;

use std::collections::BTreeSet;
use std::path::Path;

use apus_config as config;

use crate::documents::{folder, parse_in};

fn plan(folder: &Path, text: &str) -> String {
    match parse_in(folder, text) {
        Ok(plan) => format!("{plan:?}"),
        Err(diagnostics) => panic!("{text}\n{diagnostics}"),
    }
}

/// The file in which the table of `key` holds `lines`.
fn file(key: &str, lines: &str) -> String {
    let default = |key: &str, line: &str| {
        if lines.contains(key) {
            String::new()
        } else {
            format!("{line}\n")
        }
    };
    let site = |lines: &str| {
        let listen = if lines.lines().any(|line| line.starts_with("listen =")) {
            ""
        } else {
            "listen = 80\n"
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
    for (key, without, with) in server::KEYS.iter().chain(sites::KEYS) {
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
    for (key, without, with) in location_keys::KEYS {
        let site = format!("sites.{key}");
        let of_site = |keys: &str| file(&site, &keys.replace("\", basic", "\"\nbasic"));
        try_key(&site, of_site(without), of_site(with));
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
        if key.split('.').next() == Some("limits") {
            let global = format!("global.{key}");
            try_key(&global, file(&global, without), file(&global, with));
        }
    }
    let with_tls = "[[sites]]\nserver_name = \"a.example\"\nlisten_tls = 443\nroot = \"public\"\ntls = { cert = \"cert.pem\", key = \"key.pem\", \
        client_auth = \"optional\", client_ca = \"cert.pem\" }\n";
    let required = "client_certificate = \"required\"";
    for (of, text) in [
        ("sites", required.to_owned()),
        (
            "sites.locations",
            format!("locations = [{{ path = \"/a/\", {required} }}]"),
        ),
    ] {
        let without = text.replace("required", "optional");
        try_key(
            &format!("{of}.client_certificate"),
            format!("{with_tls}{without}\n"),
            format!("{with_tls}{text}\n"),
        );
    }
    let of_proxy = proxying::PROXY.iter().map(|key| ("proxy", key));
    let of_cache = caching::CACHE.iter().map(|key| ("cache", key));
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
    let with_php = |of: &str, keys: &str| {
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
        let other = with_php(of, "").replace("[::1]:1", "/run/php.sock");
        try_key(&key, with_php(of, ""), other);
        let key = format!("{of}.fastcgi");
        try_key(&key, with_php(of, ""), with_php(of, "underscores = true"));
        for (key, without, with) in php::FASTCGI {
            let key = format!("{of}.fastcgi.{key}");
            try_key(&key, with_php(of, without), with_php(of, with));
        }
        for (key, with) in php::WORKERS {
            let program = ["arguments", "environment", "user", "group"].contains(key);
            let workers = |keys: &str| {
                let text = with_php(of, &format!("workers = {{ {keys} }}"));
                if program {
                    text.replace("[::1]:1", "/usr/bin/php-cgi")
                } else {
                    text
                }
            };
            let key = format!("{of}.fastcgi.workers.{key}");
            try_key(&key, workers(""), workers(with));
        }
        for (key, without, with) in caching::CACHE {
            let cached = |keys: &str| with_php(of, &format!("cache = {{ {keys} }}"));
            let key = format!("{of}.fastcgi.cache.{key}");
            try_key(&key, cached(without), cached(with));
        }
    }
    let ordered = |global: &str, tls: &str| {
        let site = "[[sites]]\nserver_name = \"example.com\"\nlisten = 80\nlisten_tls = 443\nroot = \"public\"\n";
        format!("[global]\n{global}\n{site}tls = {{ {tls} }}\n")
    };
    for (key, without, with) in certificates::GLOBAL {
        let key = format!("global.{key}");
        try_key(&key, ordered(without, ""), ordered(with, ""));
    }
    for (key, without, with) in certificates::TLS {
        let agreed = "acme_email = \"a@example.com\"";
        let key = format!("sites.tls.{key}");
        try_key(&key, ordered(agreed, without), ordered(agreed, with));
    }
    let store = |keys: &str| {
        let site = "[[sites]]\nlisten = 80\nupstream = \"unix:/a\"\ncache = true\n";
        format!("[global]\ncache = {{ {keys} }}\n{site}")
    };
    try_key("global.cache", store(""), store("memory_size = 5"));
    for (key, without, with) in caching::CACHE_STORE {
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
    let trusting = |more: &str| {
        format!(
            "[global]\ntrusted_proxies = [\"10.0.0.0/8\", \"unix:\"]\n{more}\n{}",
            one.0
        )
    };
    try_key("global.trusted_proxies", one.0.clone(), trusting(""));
    for (key, line) in [
        (
            "trusted_proxies_header",
            "trusted_proxies_header = \"Forwarded\"",
        ),
        (
            "trusted_proxies_pass",
            "trusted_proxies_pass = [\"CF-Connecting-IP\"]",
        ),
    ] {
        try_key(&format!("global.{key}"), trusting(""), trusting(line));
    }
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
        let nodes = if keys.starts_with("nodes") {
            ""
        } else {
            "nodes = \"127.0.0.1:1\", "
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
    for (key, without, with) in upstreams::UPSTREAM {
        let key = format!("sites.upstreams.{key}");
        try_key(&key, group("app", without), group("app", with));
    }
    for (key, without, with) in rules::RULES {
        for place in ["global", "sites", "sites.locations"] {
            let of = |rule: &str| rules::file(place, rule);
            if place == "global" && ["location", "upstream"].contains(key) {
                // It names what only a site has.
                assert!(parse_in(folder.path(), &of(with)).is_err());
                try_key(
                    &format!("global.rules.{key}"),
                    of("tag = \"a\""),
                    of("tag = \"b\""),
                );
                continue;
            }
            try_key(&format!("{place}.rules.{key}"), of(without), of(with));
        }
    }
    for (key, without, with) in rules::OTHERS {
        let whole = |lines: &str| {
            if lines.contains("[[sites]]") {
                lines.to_owned()
            } else {
                format!("{lines}[[sites]]\nlisten = 80\nroot = \"public\"\n")
            }
        };
        try_key(key, whole(without), whole(with));
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
fn defaults_in_the_reference_are_written_as_in_the_file() {
    let reference = config::reference();
    let wrong = reference.lines().find(|line| line.contains("null"));
    assert_eq!(wrong, None);
}

#[test]
fn the_reference_the_page_of_variables_and_the_schema_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let schema = serde_json::to_string_pretty(&config::schema()).unwrap() + "\n";
    for (name, text) in [
        ("reference.md", config::reference()),
        ("variables.md", config::variables()),
        ("apus.schema.json", schema),
        ("equivalents.md", config::equivalents()),
    ] {
        let path = root.join(name);
        if std::env::var_os("APUS_BLESS").is_some() {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "docs/{name} is stale; APUS_BLESS=1 cargo test -p apus-config writes it anew"
        );
    }
}
