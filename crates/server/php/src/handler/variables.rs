//! The variables of a script: CGI meta-variables (RFC 3875 section 4.1), and the variables that PHP adds.
//!
//! A client cannot replace a variable of the server: its header fields get the prefix `HTTP_`, and fields whose names
//! map to the same variable are left out. `Proxy` is left out, too, as programs would use it as the proxy for their
//! own requests (httpoxy, CVE-2016-5385).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::{FixedVariables, RequestFrame};
use apus_codec::fastcgi::Params;
use apus_http::{Headers, Peer, RemoteUser, Request, Version, is_identity_field, path};
use smallvec::SmallVec;

use super::script::Script;
use super::settings::PhpSettings;
use apus_proxy::request_headers::{ShortText, format_address, push_decimal};

/// The typical size of the variables of a request, without header fields.
const TYPICAL_LEN: usize = 2048;

/// A destination of variables: the parameters of a FastCGI request, or the frame for a resident worker.
pub(super) trait ParamSink {
    /// Adds a variable whose value is the concatenation of these parts.
    fn push_parts(&mut self, name: &str, value: &[&[u8]]);

    /// Adds a header field of the request as a variable.
    fn push_field(&mut self, name: &str, value: &[u8]);

    /// Adds variables that were encoded before.
    fn push_encoded(&mut self, variables: &Params);
}

impl ParamSink for Params {
    fn push_parts(&mut self, name: &str, value: &[&[u8]]) {
        self.push_parts(name, value);
    }

    fn push_field(&mut self, name: &str, value: &[u8]) {
        self.push_field(name, value);
    }

    fn push_encoded(&mut self, variables: &Params) {
        self.append(variables);
    }
}

impl ParamSink for RequestFrame {
    fn push_parts(&mut self, name: &str, value: &[&[u8]]) {
        match (name, value) {
            (TARGET, [target]) => self.push_target(name.as_bytes(), target),
            _ => self.push_parts(name.as_bytes(), value),
        }
    }

    fn push_field(&mut self, name: &str, value: &[u8]) {
        self.push_field(name.as_bytes(), value);
    }

    fn push_encoded(&mut self, variables: &Params) {
        for (name, value) in variables.iter() {
            self.push_parts(name, &[value]);
        }
    }
}

/// The variable with the request target, which log lines show.
const TARGET: &str = "REQUEST_URI";

/// The variables of a site.
pub(super) struct Variables {
    /// A number that is unique in the process.
    id: u64,
    /// The variables that are the same for all requests.
    fixed: Params,
    /// The script of the last request over FastCGI, with its variables: mostly it is the same again.
    last_params: RefCell<Option<(Script, Params)>>,
    /// The same for the last request to a worker.
    last: RefCell<Option<(Script, FixedVariables)>>,
}

/// The variables about a connection. Most of its requests have the same.
struct ConnectionVariables {
    params: Params,
    /// The site that they are for.
    site: u64,
    authority: Box<str>,
    version: Version,
    is_secure: bool,
}

impl Variables {
    pub(super) fn new(settings: &PhpSettings) -> Self {
        let mut fixed = Params::new();
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", &*settings.server_software),
            // PHP that is built with `--enable-force-cgi-redirect` requires it.
            ("REDIRECT_STATUS", "200"),
        ] {
            if !is_replaced(settings, name) {
                fixed.push(name, value);
            }
        }
        if let Some(name) = &settings.server_name
            && !is_replaced(settings, "SERVER_NAME")
        {
            fixed.push("SERVER_NAME", &**name);
        }
        for (name, value) in &settings.params {
            if let Some(text) = value.as_text().filter(|text| !text.is_empty())
                && **name != *TARGET
            {
                fixed.push(&**name, text);
            }
        }
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST_ID.fetch_add(1, Ordering::Relaxed),
            fixed,
            last_params: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// The FastCGI parameters of a request, without `CONTENT_LENGTH`.
    pub(super) fn params(
        &self,
        request: &Request,
        script: &Script,
        settings: &PhpSettings,
    ) -> Params {
        let mut params = Params::with_capacity(estimate_len(request));
        let mut last = self.last_params.borrow_mut();
        let (_, fixed) = of_script(&mut last, script, || self.params_of(script, settings));
        params.append(fixed);
        CgiParams {
            request,
            script,
            settings,
            sink: &mut params,
        }
        .push_all(self.id);
        params
    }

    /// The frame for a worker with the same variables.
    pub(super) fn message(
        &self,
        request: &Request,
        script: &Script,
        settings: &PhpSettings,
    ) -> RequestFrame {
        let mut last = self.last.borrow_mut();
        let (_, fixed) = of_script(&mut last, script, || {
            let params = self.params_of(script, settings);
            let variables = params.iter();
            variables.fold(FixedVariables::new(), |fixed, (name, value)| {
                fixed.with(name, value)
            })
        });
        let mut message = RequestFrame::request(fixed, estimate_len(request));
        CgiParams {
            request,
            script,
            settings,
            sink: &mut message,
        }
        .push_all(self.id);
        message
    }

    /// The variables of the site and of a script.
    fn params_of(&self, script: &Script, settings: &PhpSettings) -> Params {
        let mut params = self.fixed.clone();
        push_script(&mut params, script, settings);
        params
    }
}

/// What was made for the last script; if that is another one, `make` makes it.
fn of_script<'a, T>(
    last: &'a mut Option<(Script, T)>,
    script: &Script,
    make: impl FnOnce() -> T,
) -> &'a (Script, T) {
    if last.as_ref().is_some_and(|(last, _)| last != script) {
        *last = None;
    }
    last.get_or_insert_with(|| (script.clone(), make()))
}

impl ConnectionVariables {
    /// The variables of a request. If they equal the variables of the connection's last request, they are shared with it.
    fn of(request: &Request, settings: &PhpSettings, site: u64) -> Rc<Self> {
        let make = || Self::new(request, settings, site);
        if request.is_forwarded() {
            return Rc::new(make());
        }
        let is_current = |kept: &Self| {
            kept.site == site
                && *kept.authority == *request.authority().unwrap_or_default()
                && kept.version == request.version()
                && kept.is_secure == request.is_secure()
        };
        request.connection().kept.get_or_make(is_current, make)
    }

    fn new(request: &Request, settings: &PhpSettings, site: u64) -> Self {
        let mut params = Params::new();
        let mut push = |name: &str, value: &[u8]| {
            if !is_replaced(settings, name) {
                params.push(name, value);
            }
        };
        let protocol: &[u8] = match request.version() {
            Version::HTTP_10 => b"HTTP/1.0",
            Version::HTTP_2 => b"HTTP/2.0",
            Version::HTTP_3 => b"HTTP/3.0",
            _ => b"HTTP/1.1",
        };
        push("SERVER_PROTOCOL", protocol);
        if settings.server_name.is_none() {
            push("SERVER_NAME", request.host().unwrap_or("").as_bytes());
        }
        let client = request.client();
        match client.ip {
            Some(ip) => push("REMOTE_ADDR", &format_address(ip)),
            None => push("REMOTE_ADDR", b"unix:"),
        }
        if let Some(port) = client.port {
            push("REMOTE_PORT", &number(port));
        }
        if let Peer::Ip(local) = request.connection().local {
            push("SERVER_ADDR", &format_address(local.ip()));
        }
        if let Some(port) = request.port() {
            push("SERVER_PORT", &number(port));
        }
        push("REQUEST_SCHEME", request.scheme().as_bytes());
        if request.is_secure() {
            push("HTTPS", b"on");
        }
        if let Some(host) = request.authority() {
            push("HTTP_HOST", host.as_bytes());
        }
        Self {
            params,
            site,
            authority: request.authority().unwrap_or_default().into(),
            version: request.version(),
            is_secure: request.is_secure(),
        }
    }
}

/// An estimate of the size of a request's variables.
fn estimate_len(request: &Request) -> usize {
    TYPICAL_LEN.saturating_add(request.headers().wire().len())
}

/// Adds the variables of the script.
fn push_script(params: &mut Params, script: &Script, settings: &PhpSettings) {
    let prefix = settings.prefix.as_bytes();
    let mut push = |name: &str, value: &[&[u8]]| {
        if !is_replaced(settings, name) {
            params.push_parts(name, value);
        }
    };
    push("SCRIPT_FILENAME", &[&script.root, &script.path]);
    push("SCRIPT_NAME", &[prefix, &script.path]);
    push("DOCUMENT_ROOT", &[&script.root]);
    push("DOCUMENT_URI", &[prefix, &script.path, &script.path_info]);
    push("PATH_INFO", &[&script.path_info]);
    if !script.path_info.is_empty() {
        push("PATH_TRANSLATED", &[&script.root, &script.path_info]);
    }
}

/// Whether the settings of a site replace a variable.
fn is_replaced(settings: &PhpSettings, name: &str) -> bool {
    let mut params = settings.params.iter();
    params.any(|(param, _)| **param == *name)
}

/// Adds `CONTENT_LENGTH`, which may be known only after the body was buffered.
pub(super) fn content_length(sink: &mut impl ParamSink, length: u64, settings: &PhpSettings) {
    if !is_replaced(settings, "CONTENT_LENGTH") {
        sink.push_parts("CONTENT_LENGTH", &[length.to_string().as_bytes()]);
    }
}

/// Adds the variables that differ from one request to the next.
struct CgiParams<'a, T> {
    request: &'a Request,
    script: &'a Script,
    settings: &'a PhpSettings,
    sink: &'a mut T,
}

impl<T: ParamSink> CgiParams<'_, T> {
    /// Adds them; `site` is the number of the site's variables.
    fn push_all(mut self, site: u64) {
        self.push_request();
        let connection = ConnectionVariables::of(self.request, self.settings, site);
        self.sink.push_encoded(&connection.params);
        self.push_header_fields();
        self.push_site_params();
    }

    fn push(&mut self, name: &str, value: &[&[u8]]) {
        if !is_replaced(self.settings, name) {
            self.sink.push_parts(name, value);
        }
    }

    fn push_request(&mut self) {
        let request = self.request;
        self.push("REQUEST_METHOD", &[request.method().as_str().as_bytes()]);
        let sent = request.original_target();
        // A script may take dot segments literally, where a location was selected without them.
        let resolved = match path::has_dot_segment(sent.path()) {
            Ok(true) => path::normalise_encoded(sent.path()).ok(),
            _ => None,
        };
        match (&resolved, sent.query()) {
            (None, _) => self.push(TARGET, &[sent.path_and_query().as_bytes()]),
            (Some(path), None) => self.push(TARGET, &[path.as_bytes()]),
            (Some(path), Some(query)) => {
                self.push(TARGET, &[path.as_bytes(), b"?", query.as_bytes()]);
            }
        }
        self.push("QUERY_STRING", &[request.query().unwrap_or("").as_bytes()]);
        if let Some(kind) = request.headers().get("content-type") {
            self.push("CONTENT_TYPE", &[kind]);
        }
        if let Some(user) = RemoteUser::of(request) {
            self.push("REMOTE_USER", &[user.name.as_bytes()]);
            self.push("AUTH_TYPE", &[user.scheme.as_bytes()]);
        }
    }

    /// Adds the header fields of the request.
    fn push_header_fields(&mut self) {
        let request = self.request;
        let headers = request.headers();
        // Identity fields that are left come from a trusted proxy.
        let takes_identity = request.are_identity_fields_removed();
        for (at, (name, value)) in headers.iter().enumerate() {
            if has_other_variable(name)
                || (!takes_identity && is_identity_field(name))
                || !self.is_unambiguous(name)
            {
                continue;
            }
            let is_repeated = headers.iter().take(at).any(|(other, _)| other == name);
            if is_repeated || self.is_replaced_field(name) {
                continue;
            }
            let mut lines = headers.get_all(name);
            if lines.nth(1).is_none() {
                self.sink.push_field(name, value);
                continue;
            }
            if has_one_value(name) {
                let last = headers.get_all(name).last().unwrap_or(value);
                self.sink.push_field(name, last);
                continue;
            }
            // HTTP/2 may split cookies into several field lines (RFC 9113 section 8.2.3).
            let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
            let lines: SmallVec<[&[u8]; 8]> = headers.get_all(name).collect();
            self.sink.push_field(name, &lines.join(separator));
        }
    }

    /// Whether no other field's name can map to the same variable.
    fn is_unambiguous(&self, name: &str) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.bytes().all(is_letter) {
            return true;
        }
        self.settings.underscores
            && name.bytes().all(|byte| is_letter(byte) || byte == b'_')
            && !self
                .request
                .headers()
                .iter()
                .any(|(other, _)| other != name && is_same_variable(other, name))
    }

    /// Whether the settings of the site replace the variable of a field.
    fn is_replaced_field(&self, name: &str) -> bool {
        let mut params = self.settings.params.iter();
        params.any(|(param, _)| {
            param
                .strip_prefix("HTTP_")
                .is_some_and(|field| is_same_variable(field, name))
        })
    }

    /// Adds the variables of the site's settings that depend on the request.
    fn push_site_params(&mut self) {
        for (name, value) in &self.settings.params {
            if value.as_text().is_none() || **name == *TARGET {
                let value = value.text(self.request, &self.settings.site, &self.script.root);
                if !value.is_empty() {
                    self.sink.push_parts(name, &[value.as_ref()]);
                }
            }
        }
    }
}

/// Whether two names map to the same variable.
fn is_same_variable(one: &str, other: &str) -> bool {
    let letter = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_uppercase(),
        _ => b'_',
    };
    one.len() == other.len() && one.bytes().map(letter).eq(other.bytes().map(letter))
}

/// Whether a field that has one value (RFC 9110 section 5.3) is repeated. Joined, the values would be one useless
/// value, and one of them may have passed a check that the other one has not.
pub(super) fn has_repeated_field(headers: &Headers) -> bool {
    const SINGLE: [&str; 10] = [
        "authorization",
        "content-length",
        "content-range",
        "content-type",
        "if-modified-since",
        "if-range",
        "if-unmodified-since",
        "origin",
        "proxy-authorization",
        "range",
    ];
    let mut seen = 0_u16;
    headers.iter().any(|(name, _)| {
        let field = SINGLE.iter().position(|single| *single == name);
        let bit = field.map_or(0, |at| 1 << at);
        let is_repeated = seen & bit != 0;
        seen |= bit;
        is_repeated
    })
}

/// Whether the last one of repeated lines applies, as behind nginx, where joined values would be none.
fn has_one_value(name: &str) -> bool {
    matches!(
        name,
        "access-control-request-method"
            | "date"
            | "from"
            | "max-forwards"
            | "referer"
            | "sec-fetch-dest"
            | "sec-fetch-mode"
            | "sec-fetch-site"
            | "sec-fetch-user"
            | "user-agent"
    )
}

/// Whether a field has a variable without the prefix `HTTP_`, or none.
fn has_other_variable(name: &str) -> bool {
    matches!(
        name,
        "host" | "trailer" | "expect" | "content-type" | "content-length" | "proxy"
    )
}

fn number(number: u16) -> ShortText {
    let mut text = ShortText::new();
    push_decimal(number, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::rc::Rc;

    use apus_http::{
        Body, ConnectionInfo, Extensions, Method, RequestParts, Target, TrustedProxies,
    };

    use super::*;
    use apus_sites::Template;

    struct RequestFixture<'a> {
        target: &'a str,
        version: Version,
        lines: &'a [(&'a str, &'a str)],
    }

    impl RequestFixture<'_> {
        fn build(&self) -> Request {
            let address = |text: &str| Peer::Ip(text.parse::<SocketAddr>().unwrap());
            self.build_on(&Rc::new(ConnectionInfo {
                kept: apus_http::KeptValue::default(),
                id: 1,
                peer: address("192.0.2.7:999"),
                local: address("198.51.100.1:8080"),
                tls: None,
            }))
        }

        fn build_on(&self, connection: &Rc<ConnectionInfo>) -> Request {
            let mut headers = Headers::new();
            for (name, value) in self.lines {
                headers.try_append(name, value).unwrap();
            }
            Request::new(RequestParts {
                method: Method::GET,
                target: Target::parse(&Method::GET, self.target).unwrap(),
                version: self.version,
                headers,
                body: Body::Empty,
                connection: Rc::clone(connection),
                extensions: Extensions::new(),
            })
        }
    }

    /// The variables about a connection and about a script are kept for later requests, which may differ in all
    /// that these variables tell.
    #[test]
    fn requests_of_one_connection_get_their_own_variables() {
        let on = |connection: Option<&Rc<ConnectionInfo>>, host: &str, version: Version| {
            let request = RequestFixture {
                target: "/",
                version,
                lines: &[("host", host), ("x-forwarded-for", "203.0.113.5")],
            };
            match connection {
                Some(connection) => request.build_on(connection),
                None => request.build(),
            }
        };
        let first = on(None, "a.example", Version::HTTP_11);
        let again = |host: &str, version| on(Some(first.connection()), host, version);
        let settings = PhpSettings::default();
        let named = PhpSettings {
            server_name: Some("named.example".into()),
            ..PhpSettings::default()
        };
        let (site, other_site) = (Variables::new(&settings), Variables::new(&named));
        let value = |params: &Params, name: &str| {
            let value = params.get(name).unwrap_or_default().to_vec();
            String::from_utf8(value).unwrap()
        };
        let script_a = script("/a.php");
        let of_first = site.params(&first, &script_a, &settings);
        for (host, version, port, protocol) in [
            ("b.example:81", Version::HTTP_11, "81", "HTTP/1.1"),
            ("b.example:81", Version::HTTP_2, "81", "HTTP/2.0"),
            ("a.example", Version::HTTP_10, "80", "HTTP/1.0"),
        ] {
            let params = site.params(&again(host, version), &script("/b.php"), &settings);
            assert_eq!(value(&params, "HTTP_HOST"), host);
            assert_eq!(value(&params, "SERVER_PORT"), port);
            assert_eq!(value(&params, "SERVER_PROTOCOL"), protocol);
            assert_eq!(value(&params, "SCRIPT_NAME"), "/b.php");
        }
        let request = again("a.example", Version::HTTP_11);
        let params = other_site.params(&request, &script_a, &named);
        assert_eq!(value(&params, "SERVER_NAME"), "named.example");
        let mut forwarded = again("a.example", Version::HTTP_11);
        TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]).establish(&mut forwarded);
        let params = site.params(&forwarded, &script_a, &settings);
        assert_eq!(value(&params, "REMOTE_ADDR"), "203.0.113.5");
        let params = site.params(&again("a.example", Version::HTTP_11), &script_a, &settings);
        assert_eq!(sorted(&params), sorted(&of_first));
        assert_eq!(value(&params, "REMOTE_ADDR"), "192.0.2.7");
    }

    fn with(lines: &[(&str, &str)], settings: &PhpSettings) -> Vec<(String, String)> {
        let request = RequestFixture {
            target: "/a%20b?c=d",
            version: Version::HTTP_11,
            lines,
        };
        params(&request.build(), settings)
    }

    fn params(request: &Request, settings: &PhpSettings) -> Vec<(String, String)> {
        let params = Variables::new(settings).params(request, &script("/index.php"), settings);
        sorted(&params)
    }

    fn script(path: &str) -> Script {
        Script {
            path: path.as_bytes().into(),
            path_info: b"/more"[..].into(),
            root: b"/srv/app"[..].into(),
            why: "",
        }
    }

    fn sorted(params: &Params) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut sorted: Vec<_> = params
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        sorted.sort();
        sorted
    }

    /// Parses the variables of a frame, which are in the format of `serialize()`.
    fn read(message: &RequestFrame) -> Vec<(String, String)> {
        let text = String::from_utf8(message.as_bytes().to_vec()).unwrap();
        let mut rest = text.split_once(":{").unwrap().1;
        let mut strings = Vec::new();
        while let Some((len, behind)) = rest.strip_prefix("s:").and_then(|s| s.split_once(":\"")) {
            let len = len.parse::<usize>().unwrap();
            strings.push(behind[..len].to_owned());
            rest = behind[len..].strip_prefix("\";").unwrap();
        }
        assert_eq!(rest, "");
        let mut pairs: Vec<_> = strings
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect();
        pairs.sort();
        pairs
    }

    #[test]
    fn workers_get_the_same_variables_as_over_fastcgi() {
        let template = |text: &str| Template::parse(text).unwrap();
        let replaced = PhpSettings {
            server_name: Some("example.com".into()),
            params: vec![
                ("REQUEST_URI".into(), template("/always")),
                ("DOCUMENT_ROOT".into(), template("/elsewhere")),
                ("HTTP_X_USER".into(), template("$host")),
            ],
            ..PhpSettings::default()
        };
        let lines = [("host", "a.example"), ("x-user", "evil"), ("accept", "*/*")];
        let test_request = RequestFixture {
            target: "/a?b",
            version: Version::HTTP_11,
            lines: &lines,
        };
        let request = test_request.build();
        for (settings, target) in [
            (PhpSettings::default(), &b"/a?b"[..]),
            (replaced, b"/always"),
        ] {
            let variables = Variables::new(&settings);
            // The second of two scripts does not get the variables of the first.
            for path in ["/index.php", "/index.php", "/other.php"] {
                let script = script(path);
                let message = variables.message(&request, &script, &settings);
                let params = variables.params(&request, &script, &settings);
                assert_eq!(read(&message), sorted(&params));
                assert_eq!(message.target(), target);
            }
        }
    }

    fn value<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = params.iter().filter(|(other, _)| other == name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} is there twice");
        first.map(|(_, value)| &**value)
    }

    #[test]
    fn sets_the_variables_that_applications_know_from_nginx() {
        let settings = PhpSettings {
            prefix: "/blog".into(),
            server_name: Some("example.com".into()),
            ..PhpSettings::default()
        };
        let params = with(
            &[
                ("host", "www.example.com:8080"),
                ("content-type", "text/plain"),
                ("accept-language", "de"),
                ("authorization", "Basic eDp5"),
            ],
            &settings,
        );
        let expected = [
            ("CONTENT_TYPE", "text/plain"),
            ("DOCUMENT_ROOT", "/srv/app"),
            ("DOCUMENT_URI", "/blog/index.php/more"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("HTTP_ACCEPT_LANGUAGE", "de"),
            ("HTTP_AUTHORIZATION", "Basic eDp5"),
            ("HTTP_HOST", "www.example.com:8080"),
            ("PATH_INFO", "/more"),
            ("PATH_TRANSLATED", "/srv/app/more"),
            ("QUERY_STRING", "c=d"),
            ("REDIRECT_STATUS", "200"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "999"),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_SCHEME", "http"),
            ("REQUEST_URI", "/a%20b?c=d"),
            ("SCRIPT_FILENAME", "/srv/app/index.php"),
            ("SCRIPT_NAME", "/blog/index.php"),
            ("SERVER_ADDR", "198.51.100.1"),
            ("SERVER_NAME", "example.com"),
            ("SERVER_PORT", "8080"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", &*settings.server_software),
        ];
        let params: Vec<_> = params.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(params, expected);
    }

    #[test]
    fn a_field_cannot_set_the_proxy_of_the_application() {
        let params = with(
            &[("proxy", "evil:1"), ("host", "a")],
            &PhpSettings::default(),
        );
        assert_eq!(value(&params, "HTTP_PROXY"), None);
    }

    #[test]
    fn ambiguous_names_do_not_replace_a_variable() {
        let lines = [
            ("x-user", "good"),
            ("x_user", "evil"),
            ("x.user", "evil"),
            ("only_this", "1"),
            ("content_type", "evil"),
        ];
        let careful = with(&lines, &PhpSettings::default());
        assert_eq!(value(&careful, "HTTP_X_USER"), Some("good"));
        assert_eq!(value(&careful, "HTTP_ONLY_THIS"), None);
        let settings = PhpSettings {
            underscores: true,
            ..PhpSettings::default()
        };
        let params = with(&lines, &settings);
        assert_eq!(value(&params, "HTTP_X_USER"), Some("good"));
        assert_eq!(value(&params, "HTTP_ONLY_THIS"), Some("1"));
        assert_eq!(value(&params, "CONTENT_TYPE"), None);
    }

    #[test]
    fn joins_the_lines_of_a_field_with_commas_and_of_cookies_with_semicolons() {
        let test_request = RequestFixture {
            target: "/",
            version: Version::HTTP_2,
            lines: &[
                ("cookie", "a=1"),
                ("x-tag", "one"),
                ("cookie", "b=2"),
                ("x-tag", "two"),
                ("cookie", "c=3"),
            ],
        };
        let params = params(&test_request.build(), &PhpSettings::default());
        assert_eq!(value(&params, "HTTP_COOKIE"), Some("a=1; b=2; c=3"));
        assert_eq!(value(&params, "HTTP_X_TAG"), Some("one, two"));
        assert_eq!(value(&params, "SERVER_PROTOCOL"), Some("HTTP/2.0"));
    }

    #[test]
    fn an_untrusted_client_cannot_set_its_identity() {
        let lines = [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_proto", "https"),
            ("x-real-ip", "127.0.0.1"),
            ("x-original-url", "/admin"),
            ("client-ip", "127.0.0.1"),
        ];
        let params = with(&lines, &PhpSettings::default());
        assert_eq!(value(&params, "REMOTE_ADDR"), Some("192.0.2.7"));
        assert_eq!(value(&params, "HTTPS"), None);
        assert_eq!(value(&params, "SERVER_PORT"), Some("8080"));
        assert!(
            params.iter().all(|(name, _)| !name.starts_with("HTTP_")),
            "{params:?}"
        );
    }

    #[test]
    fn a_trusted_proxy_sets_the_identity_of_the_client() {
        let test_request = RequestFixture {
            target: "/",
            version: Version::HTTP_11,
            lines: &[
                ("host", "inner:8080"),
                ("x-forwarded-for", "127.0.0.1, 203.0.113.5, 192.0.2.9"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "A.example"),
                ("x_forwarded_for", "evil"),
            ],
        };
        let mut request = test_request.build();
        let proxies = TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]);
        proxies.establish(&mut request);
        let settings = PhpSettings {
            underscores: true,
            ..PhpSettings::default()
        };
        let params = params(&request, &settings);
        for (name, expected) in [
            ("REMOTE_ADDR", Some("203.0.113.5")),
            ("REMOTE_PORT", None),
            ("HTTPS", Some("on")),
            ("REQUEST_SCHEME", Some("https")),
            ("SERVER_PORT", Some("443")),
            ("SERVER_NAME", Some("a.example")),
            ("HTTP_HOST", Some("a.example")),
            ("HTTP_X_FORWARDED_FOR", None),
        ] {
            assert_eq!(value(&params, name), expected, "{name}");
        }
    }

    #[test]
    fn the_settings_of_a_site_replace_all_other_variables() {
        let template = |text: &str| Template::parse(text).unwrap();
        let settings = PhpSettings {
            params: vec![
                ("APP_ENV".into(), template("production")),
                ("SERVER_SOFTWARE".into(), template("")),
                ("SERVER_NAME".into(), template("$host")),
                ("HTTP_X_USER".into(), template("nobody")),
            ],
            ..PhpSettings::default()
        };
        let params = with(&[("host", "A.example:80"), ("x-user", "evil")], &settings);
        assert_eq!(value(&params, "APP_ENV"), Some("production"));
        assert_eq!(value(&params, "SERVER_SOFTWARE"), None);
        assert_eq!(value(&params, "SERVER_NAME"), Some("a.example"));
        assert_eq!(value(&params, "HTTP_X_USER"), Some("nobody"));
    }

    #[test]
    fn a_rewritten_request_keeps_the_target_of_the_client() {
        let test_request = RequestFixture {
            target: "/pretty?x=1",
            version: Version::HTTP_11,
            lines: &[],
        };
        let mut request = test_request.build();
        request.set_path_and_query("/index.php?y=2").unwrap();
        let params = params(&request, &PhpSettings::default());
        assert_eq!(value(&params, "REQUEST_URI"), Some("/pretty?x=1"));
        assert_eq!(value(&params, "QUERY_STRING"), Some("y=2"));
    }

    #[test]
    fn connection_specific_fields_are_left_out() {
        let lines = [
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "5"),
        ];
        let params = with(&lines, &PhpSettings::default());
        assert!(
            params.iter().all(|(name, _)| !name.starts_with("HTTP_")),
            "{params:?}"
        );
    }
}
