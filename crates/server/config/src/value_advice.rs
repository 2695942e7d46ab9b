//! Advice about values that are written as other servers, or other formats than TOML, have them.

use toml::de::DeValue;

/// The longest text that is repeated in advice.
const LONGEST: usize = 200;

/// Advice about a value of a key, by its text.
struct TextAdvice {
    /// The keys; none for all.
    keys: &'static [&'static str],
    /// Whether it is about this text.
    applies: fn(&str) -> bool,
    help: fn(&str) -> String,
}

/// A value that can be read, but says something else than what was meant.
pub(super) struct MistakenText {
    keys: &'static [&'static str],
    applies: fn(&str) -> bool,
    /// What is wrong with it.
    pub(super) title: &'static str,
    /// What was expected.
    pub(super) label: &'static str,
    pub(super) help: fn(&str) -> String,
}

/// Advice about texts that are refused. The first that applies is given.
const REFUSED: &[TextAdvice] = &[
    TextAdvice {
        keys: &[],
        applies: |text| text.ends_with(';'),
        help: |_| "a value has no `;` at its end".to_owned(),
    },
    TextAdvice {
        keys: &["listen", "listen_tls"],
        applies: |text| text.contains(' '),
        help: |text| {
            let (address, parameters) = text.split_once(' ').unwrap_or((text, ""));
            let address = written_address(address);
            let with = |word: &str| parameters.split(' ').any(|parameter| parameter == word);
            if with("ssl") || with("quic") {
                format!("write listen_tls = {address}; HTTP/2 and HTTP/3 are on by default")
            } else if with("default_server") {
                format!(
                    "write listen = {address}; a site without `server_name` is for all other hosts"
                )
            } else if with("proxy_protocol") {
                format!(
                    "write listen = {address}, and proxy_protocol_from with the addresses of the proxies"
                )
            } else {
                format!("write listen = {address}; an address has no parameters")
            }
        },
    },
    TextAdvice {
        keys: &["listen", "listen_tls"],
        applies: |text| text.contains("://"),
        help: |text| {
            let (scheme, rest) = text.split_once("://").unwrap_or_default();
            let key = if scheme == "https" {
                "listen_tls"
            } else {
                "listen"
            };
            let authority = rest.split('/').next().unwrap_or_default();
            let default = if scheme == "https" { "443" } else { "80" };
            let port = match authority.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_ok() => port,
                _ => default,
            };
            format!(
                "an address has no scheme: write {key} = {port}; the name goes into `server_name`"
            )
        },
    },
    TextAdvice {
        keys: &["listen", "listen_tls"],
        applies: |text| text.starts_with('/') || text.ends_with(".sock"),
        help: |text| format!("write \"unix:{text}\" for a Unix socket"),
    },
    TextAdvice {
        keys: &["listen", "listen_tls"],
        applies: |text| {
            let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            matches!(port, Some(Ok(_)))
        },
        help: |text| {
            let port = text.rsplit(':').next().unwrap_or_default();
            format!(
                "a listener has an address, not a name: write listen = {port}, with the name as `server_name`"
            )
        },
    },
    TextAdvice {
        keys: &["server_name", "names"],
        applies: |text| text.contains("://") || text.starts_with("//") || text.contains('/'),
        help: |text| {
            let rest = text.split_once("//").map_or(text, |(_, rest)| rest);
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host_of(authority);
            if rest.trim_end_matches('/') == authority {
                format!("a server name has no scheme and no path: write \"{host}\"")
            } else {
                format!(
                    "a server name has no scheme and no path: write \"{host}\", and the path in [[sites.locations]]"
                )
            }
        },
    },
    TextAdvice {
        keys: &["server_name", "names"],
        applies: |text| !text.starts_with('~') && text.contains([' ', ',']),
        help: |text| {
            let names = text.split([' ', ',']).filter(|name| !name.is_empty());
            format!("several names are a list: [{}]", quoted(names))
        },
    },
    TextAdvice {
        keys: &["server_name", "names"],
        applies: |text| !text.starts_with('~') && host_of(text) != text,
        help: |text| {
            let port = text.rsplit(':').next().unwrap_or_default();
            format!(
                "a server name has no port: write \"{}\", and listen = {port}",
                host_of(text)
            )
        },
    },
    TextAdvice {
        keys: &["php_fastcgi"],
        applies: |text| text.contains("://"),
        help: |text| {
            let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
            format!("write \"{}\"", rest.trim_end_matches('/'))
        },
    },
    TextAdvice {
        keys: &["upstream", "mirror"],
        applies: |text| text.starts_with('/'),
        help: |text| format!("write \"unix:{text}\" for a Unix socket"),
    },
    TextAdvice {
        keys: &["upstream", "mirror"],
        applies: |text| text.starts_with("ws://") || text.starts_with("wss://"),
        help: |text| {
            let url = text.replacen("ws", "http", 1);
            format!("write \"{url}\": WebSocket begins with a request of HTTP")
        },
    },
    TextAdvice {
        keys: &["upstream", "mirror"],
        applies: |text| text.starts_with("fastcgi://") || text.starts_with("php://"),
        help: |text| {
            let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
            format!("write php_fastcgi = \"{}\"", rest.trim_end_matches('/'))
        },
    },
    TextAdvice {
        keys: &["addr", "nodes"],
        applies: |text| text.contains(' '),
        help: |text| {
            let (address, _) = text.split_once(' ').unwrap_or((text, ""));
            format!(
                "a node with parameters is a table: {{ addr = \"{address}\", weight = 2, backup = true }}"
            )
        },
    },
    TextAdvice {
        keys: &["addr", "nodes"],
        applies: |text| text.starts_with('/'),
        help: |text| format!("write \"unix:{text}\" for a Unix socket"),
    },
    TextAdvice {
        keys: &["allow", "deny"],
        applies: |text| matches!(text, "*" | "all" | "any"),
        help: |_| {
            "with `allow`, all others are denied; all addresses are [\"0.0.0.0/0\", \"::/0\"]"
                .to_owned()
        },
    },
    TextAdvice {
        keys: &[
            "trusted_proxies",
            "proxy_protocol_from",
            "trusted_clients",
            "allow",
            "deny",
        ],
        applies: |text| text == "localhost",
        help: |_| "write [\"127.0.0.0/8\", \"::1\"]".to_owned(),
    },
    TextAdvice {
        keys: &["trusted_proxies", "proxy_protocol_from", "trusted_clients"],
        applies: |text| matches!(text, "*" | "all" | "any"),
        help: |_| {
            "write [\"0.0.0.0/0\", \"::/0\"], with which every client can say who it is".to_owned()
        },
    },
    TextAdvice {
        keys: &["origins"],
        applies: |text| !text.contains("://"),
        help: |text| format!("write \"https://{text}\": an origin has a scheme"),
    },
    TextAdvice {
        keys: &["protocols", "protocol"],
        applies: |text| protocol(text).is_some(),
        help: |text| format!("write \"{}\"", protocol(text).unwrap_or_default()),
    },
    TextAdvice {
        keys: &["min_version"],
        applies: |text| tls_version(text).is_some(),
        help: |text| format!("write \"{}\"", tls_version(text).unwrap_or_default()),
    },
    TextAdvice {
        keys: &["min_version"],
        applies: |text| {
            text.to_ascii_lowercase().contains('1') || text.to_ascii_lowercase().contains("ssl")
        },
        help: |_| "versions before TLS 1.2 are not supported: RFC 8996 forbids them".to_owned(),
    },
    TextAdvice {
        keys: &["strategy"],
        applies: |text| strategy(text).is_some(),
        help: |text| strategy(text).unwrap_or_default().to_owned(),
    },
    TextAdvice {
        keys: &["path"],
        applies: |text| !text.starts_with(['/', '=', '~', '^']) && !text.is_empty(),
        help: |text| format!("write \"/{text}\""),
    },
    TextAdvice {
        keys: &["then"],
        applies: |text| matches!(text, "301" | "302" | "permanently" | "temporary"),
        help: |text| match text {
            "302" | "temporary" => "write \"redirect\" for 302".to_owned(),
            _ => "write \"permanent\" for 301".to_owned(),
        },
    },
];

/// Texts that are not refused by their type.
pub(super) const MISTAKEN: &[MistakenText] = &[
    MistakenText {
        keys: &["try_files"],
        applies: |text| {
            let mut words = text.split_whitespace().skip(1).peekable();
            words.peek().is_some() && words.all(|word| word.starts_with(['$', '/', '=', '@']))
        },
        title: "several paths in one string",
        label: "expected a list of paths",
        help: |text| format!("write try_files = [{}]", quoted(text.split_whitespace())),
    },
    MistakenText {
        keys: &["index"],
        applies: |text| {
            let mut words = text.split_whitespace();
            words.clone().nth(1).is_some() && words.all(|word| word.contains('.'))
        },
        title: "several names in one string",
        label: "expected a list of names",
        help: |text| format!("write index = [{}]", quoted(text.split_whitespace())),
    },
    MistakenText {
        keys: &["access_log"],
        applies: |text| matches!(text, "off" | "none" | "false" | "no"),
        title: "the access log would be a file of this name",
        label: "expected false, a path, or a table",
        help: |_| "write access_log = false for none".to_owned(),
    },
    MistakenText {
        keys: &["access_log"],
        applies: |text| text.starts_with("syslog:"),
        title: "the access log would be a file of this name",
        label: "expected a table with `syslog`",
        help: |text| {
            let server = text.split(['=', ',']).nth(1).unwrap_or("127.0.0.1");
            let port = if server.contains(':') { "" } else { ":514" };
            format!("write access_log = {{ syslog = \"udp://{server}{port}\" }}")
        },
    },
    MistakenText {
        keys: &["access_log"],
        applies: |text| {
            let last = text.rsplit_once(' ').map(|(_, last)| last);
            matches!(last, Some("combined" | "json" | "main" | "common"))
        },
        title: "a path and a format in one string",
        label: "expected a path, or a table",
        help: |text| {
            let (path, format) = text.rsplit_once(' ').unwrap_or((text, ""));
            let format = if format == "json" { "json" } else { "combined" };
            format!(
                "write access_log = {{ path = \"{}\", format = \"{format}\" }}",
                path.trim_end()
            )
        },
    },
];

/// Advice about a text that was refused.
pub(super) fn of_text(key: &str, text: &str) -> Option<String> {
    let text = text.trim();
    let applies =
        |one: &&TextAdvice| (one.keys.is_empty() || one.keys.contains(&key)) && (one.applies)(text);
    REFUSED.iter().find(applies).map(|one| (one.help)(text))
}

/// What is mistaken about a text that its type accepts.
pub(super) fn mistaken(key: &str, text: &str) -> Option<&'static MistakenText> {
    let mut all = MISTAKEN.iter();
    all.find(|one| one.keys.contains(&key) && (one.applies)(text))
}

/// Advice about a value of the wrong type.
pub(super) fn of_type(key: &str, value: &DeValue<'_>, expected: &str) -> Option<String> {
    let is_text = expected.starts_with("a string")
        || expected.starts_with('"')
        || expected.starts_with("a path")
        || expected.starts_with("a text");
    match value {
        // A long text is no mistaken one.
        DeValue::String(text) if text.len() > LONGEST => None,
        DeValue::String(text) => of_text_for_table(key, text)
            .or_else(|| of_boolean(text, expected))
            .or_else(|| of_number(key, text, expected)),
        DeValue::Integer(_) | DeValue::Float(_) => {
            let number = written_number(value);
            match key {
                "return" => Some(format!("write return = {{ status = {number} }}")),
                "keepalive" => Some(format!("write keepalive = {{ max_idle = {number} }}")),
                "queue" => Some(format!("write queue = {{ max = {number} }}")),
                "retry" => Some(format!("write retry = {{ tries = {number} }}")),
                "hsts" => Some(format!("write hsts = {{ max_age = {number} }}")),
                _ if expected == "true or false" && number == "1" => Some("write true".to_owned()),
                _ if expected == "true or false" && number == "0" => Some("write false".to_owned()),
                _ if is_text => Some(format!("write \"{number}\", with quotes")),
                _ => None,
            }
        }
        DeValue::Boolean(true) => match key {
            "hsts" => Some("write hsts = {} for the defaults of the table".to_owned()),
            "compress" => {
                Some("compression is on; compress = { gzip = false } turns a coding off".to_owned())
            }
            "tls" => Some(
                "write listen_tls = 443, and tls = { cert = \"cert.pem\", key = \"key.pem\" }, or acme_email in [global]"
                    .to_owned(),
            ),
            _ if expected.contains("a number of seconds") => Some("write a time as \"30s\"".to_owned()),
            _ => None,
        },
        DeValue::Boolean(false) => match key {
            "hsts" | "tls" | "proxy" | "keepalive" | "queue" | "retry" => {
                Some(format!("leave `{key}` out"))
            }
            "compress" => Some(
                "write compress = { gzip = false, brotli = false, zstd = false }".to_owned(),
            ),
            _ if expected.contains("a number of") => Some("write 0, if the key allows it".to_owned()),
            _ => None,
        },
        DeValue::Table(_) if expected == "a list of tables" => match key {
            "sites" => Some("write [[sites]], with two brackets, above the keys of each site".to_owned()),
            "locations" | "upstreams" => Some(format!(
                "write [[sites.{key}]], with two brackets, below the [[sites]] that it belongs to"
            )),
            _ => Some(format!("write [[...{key}]], with two brackets, or {key} = [{{ ... }}]")),
        },
        DeValue::Array(_) if expected == "a table" => match key {
            "global" => Some("write [global], with one bracket".to_owned()),
            _ => Some(format!("there is one table `{key}`: write it with one bracket")),
        },
        DeValue::Array(_) if !expected.contains("list") => {
            Some("write one value, without [ and ]".to_owned())
        }
        DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => None,
    }
}

/// Advice about a text in place of a table.
fn of_text_for_table(key: &str, text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    Some(match key {
        "return" => match (first.parse::<u16>(), words.next()) {
            (Ok(status @ (301 | 302 | 303 | 307 | 308)), Some(location)) => {
                format!("write return = {{ status = {status}, location = \"{location}\" }}")
            }
            (Ok(status), Some(_)) => {
                let text = text.split_once(' ').map_or("", |(_, rest)| rest.trim());
                let text = text.trim_matches(['"', '\'']);
                format!("write return = {{ status = {status}, text = \"{text}\" }}")
            }
            (Ok(status), None) => format!("write return = {{ status = {status} }}"),
            (Err(_), _) if first.contains("://") || first.starts_with('/') => {
                format!("write return = {{ status = 302, location = \"{first}\" }}")
            }
            (Err(_), _) => format!("write return = {{ status = 200, text = \"{text}\" }}"),
        },
        "rewrite" => match (first, words.next()) {
            (from, Some(to)) => {
                let then = match words.next() {
                    Some(then @ ("last" | "break" | "redirect" | "permanent")) => {
                        format!(", then = \"{then}\"")
                    }
                    _ => String::new(),
                };
                format!("write rewrite = [{{ from = '{from}', to = \"{to}\"{then} }}]")
            }
            _ => "write rewrite = [{ from = \"^/old$\", to = \"/new\" }]".to_owned(),
        },
        "error_pages" => match (first, text.rsplit(' ').next()) {
            (status, Some(page)) if page.starts_with('/') => {
                format!("write error_pages = {{ {status} = \"{page}\" }}")
            }
            _ => "write error_pages = { 404 = \"/404.html\" }".to_owned(),
        },
        "proxy" => format!("write upstream = \"{text}\"; `proxy` changes requests and responses"),
        "fastcgi" => format!("write php_fastcgi = \"{text}\"; `fastcgi` has the settings of it"),
        "basic_auth" => format!("write basic_auth = {{ users_file = \"{text}\" }}"),
        "cors" => format!("write cors = {{ origins = \"{text}\" }}"),
        "locations" => format!("write [[sites.locations]], and path = \"{text}\" below it"),
        "tls" => "write tls = { cert = \"cert.pem\", key = \"key.pem\" }".to_owned(),
        "headers" | "request_headers" => match text.split_once(':') {
            Some((name, value)) => {
                format!("write {key}.set = {{ {name} = \"{}\" }}", value.trim())
            }
            None => format!("write {key}.set = {{ X-Name = \"value\" }}"),
        },
        "cache_control" => format!("write cache_control = {{ \"*\" = \"{text}\" }}"),
        _ => return None,
    })
}

/// Advice about a text in place of a boolean.
fn of_boolean(text: &str, expected: &str) -> Option<String> {
    if !expected.starts_with("true") {
        return None;
    }
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" | "enabled" => Some("write true, without quotes".to_owned()),
        "off" | "no" | "false" | "0" | "disabled" | "none" => {
            Some("write false, without quotes".to_owned())
        }
        _ => None,
    }
}

/// Advice about a text in place of a number.
fn of_number(key: &str, text: &str, expected: &str) -> Option<String> {
    if !expected.starts_with("a whole number") {
        return None;
    }
    let text = text.trim();
    if key == "worker_threads" && text == "auto" {
        return Some("write 0 for one per core, or leave `worker_threads` out".to_owned());
    }
    if matches!(text, "unlimited" | "infinity" | "none" | "off") {
        return Some("write 0, if the key allows it".to_owned());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    match text.split_at(digits) {
        ("", _) => None,
        (number, "") => Some(format!("write {number}, without quotes")),
        (_, "%") => Some(format!(
            "write {}: it is a number of percent",
            text.trim_end_matches('%')
        )),
        (number, _) => Some(format!("it is a number without a unit: write {number}")),
    }
}

/// A number as it is written.
fn written_number(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        _ => String::new(),
    }
}

/// An address as a value: a port without quotes.
fn written_address(text: &str) -> String {
    let port = text.strip_prefix("*:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => port.to_string(),
        Err(_) => format!("\"{text}\""),
    }
}

/// The host of an authority, without a port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            host
        }
        _ => authority,
    }
}

fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

/// What a protocol of a site is called.
fn protocol(text: &str) -> Option<&'static str> {
    Some(match text.to_ascii_lowercase().as_str() {
        "http3" | "http/3" | "quic" | "3" => "h3",
        "http2" | "http/2" | "http/2.0" | "2" => "h2",
        "http1" | "http1.1" | "http11" | "h1" | "1.1" | "http/1" => "http/1.1",
        _ => return None,
    })
}

/// What a version of TLS is called.
fn tls_version(text: &str) -> Option<&'static str> {
    Some(match text.to_ascii_lowercase().as_str() {
        "tlsv1.2" | "tls1.2" | "tls 1.2" | "tls12" | "tls1_2" => "1.2",
        "tlsv1.3" | "tls1.3" | "tls 1.3" | "tls13" | "tls1_3" => "1.3",
        _ => return None,
    })
}

/// What a strategy of a group is called.
fn strategy(text: &str) -> Option<&'static str> {
    Some(match text.to_ascii_lowercase().replace('-', "_").as_str() {
        "roundrobin" | "rr" | "wrr" | "weighted_round_robin" => {
            "write \"round_robin\"; `weight` of the nodes counts"
        }
        "source" | "client_ip_hash" => "write strategy = \"ip_hash\"",
        "uri_hash" => "write strategy = \"hash\", hash = \"uri\"",
        "cookie" => "write sticky = true",
        "first" => "write backup = true in the other nodes",
        _ => return None,
    })
}
