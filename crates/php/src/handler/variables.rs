//! The variables of a program: CGI meta-variables (RFC 3875 section 4.1), and those of PHP.
//!
//! Nothing that a client sends can take the place of what we say: its fields all get `HTTP_` in front,
//! those whose names would become the same variable are left out, and so is `Proxy`, which programs
//! would take for the proxy to send their own requests through (httpoxy, CVE-2016-5385).

use std::cell::RefCell;

use crate::wire::{FixedVariables, Message};
use apus_codec::fastcgi::Params;
use apus_http::{Peer, Request, Version, is_identity_field};
use smallvec::SmallVec;

use super::script::Script;
use super::settings::PhpSettings;
use apus_proxy::forward::{Text, address, decimal};

/// What the variables of a request take, mostly.
const TYPICAL: usize = 2048;

/// What takes in variables: the parameters of a FastCGI request, or the frame for a resident worker.
pub(super) trait Told {
    /// A variable whose value is these parts, one behind the other.
    fn push_parts(&mut self, name: &str, value: &[&[u8]]);

    /// A field of the request, as a variable.
    fn push_field(&mut self, name: &str, value: &[u8]);
}

impl Told for Params {
    fn push_parts(&mut self, name: &str, value: &[&[u8]]) {
        self.push_parts(name, value);
    }

    fn push_field(&mut self, name: &str, value: &[u8]) {
        self.push_field(name, value);
    }
}

impl Told for Message {
    fn push_parts(&mut self, name: &str, value: &[&[u8]]) {
        match (name, value) {
            (TARGET, [target]) => self.push_target(name.as_bytes(), target),
            _ => self.push_parts(name.as_bytes(), value),
        }
    }

    fn push_field(&mut self, name: &str, value: &[u8]) {
        self.push_field(name.as_bytes(), value);
    }
}

/// What logs call a request by.
const TARGET: &str = "REQUEST_URI";

/// What is the same for all requests to a site.
pub(super) struct Variables {
    fixed: Params,
    /// The program that a worker was asked for last, which mostly is the same again.
    last: RefCell<Option<(Script, FixedVariables)>>,
}

impl Variables {
    pub(super) fn new(settings: &PhpSettings) -> Self {
        let mut fixed = Params::new();
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", &*settings.server_software),
            // PHP refuses to run without it where it was built to be careful.
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
        Self {
            fixed,
            last: RefCell::default(),
        }
    }

    /// The variables of a request that a program is to answer over FastCGI, but for the length of its
    /// content.
    pub(super) fn params(
        &self,
        request: &Request,
        script: &Script,
        settings: &PhpSettings,
    ) -> Params {
        let mut params = Params::with_capacity(room(request));
        params.append(&self.fixed);
        tell_script(&mut params, script, settings);
        Telling {
            request,
            script,
            settings,
            told: &mut params,
        }
        .all();
        params
    }

    /// The same in the frame for a worker.
    pub(super) fn message(
        &self,
        request: &Request,
        script: &Script,
        settings: &PhpSettings,
    ) -> Message {
        let mut last = self.last.borrow_mut();
        let is_last = last.as_ref().is_some_and(|(last, _)| last == script);
        let (_, fixed) = match &mut *last {
            Some(last) if is_last => last,
            last => last.insert((script.clone(), self.fixed_for(script, settings))),
        };
        let mut message = Message::request(fixed, room(request));
        Telling {
            request,
            script,
            settings,
            told: &mut message,
        }
        .all();
        message
    }

    fn fixed_for(&self, script: &Script, settings: &PhpSettings) -> FixedVariables {
        let mut params = self.fixed.clone();
        tell_script(&mut params, script, settings);
        let variables = params.iter();
        variables.fold(FixedVariables::new(), |fixed, (name, value)| {
            fixed.with(name, value)
        })
    }
}

/// What the variables of a request take, mostly.
fn room(request: &Request) -> usize {
    TYPICAL.saturating_add(request.headers().wire().len())
}

/// Tells which program is meant.
fn tell_script(params: &mut Params, script: &Script, settings: &PhpSettings) {
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

/// Whether a site has a value of its own for a variable.
fn is_replaced(settings: &PhpSettings, name: &str) -> bool {
    let mut own = settings.params.iter();
    own.any(|(own, _)| **own == *name)
}

/// Tells the length of the content, which may be known only when it was taken in.
pub(super) fn content_length(told: &mut impl Told, length: u64, settings: &PhpSettings) {
    if !is_replaced(settings, "CONTENT_LENGTH") {
        told.push_parts("CONTENT_LENGTH", &[length.to_string().as_bytes()]);
    }
}

/// Tells what differs from one request to the next.
struct Telling<'a, T> {
    request: &'a Request,
    script: &'a Script,
    settings: &'a PhpSettings,
    told: &'a mut T,
}

impl<T: Told> Telling<'_, T> {
    fn all(mut self) {
        self.request();
        self.connection();
        self.fields();
        self.own();
    }

    fn push(&mut self, name: &str, value: &[&[u8]]) {
        if !is_replaced(self.settings, name) {
            self.told.push_parts(name, value);
        }
    }

    fn request(&mut self) {
        let request = self.request;
        self.push("REQUEST_METHOD", &[request.method().as_str().as_bytes()]);
        let sent = request.original_target().path_and_query();
        self.push(TARGET, &[sent.as_bytes()]);
        self.push("QUERY_STRING", &[request.query().unwrap_or("").as_bytes()]);
        let protocol = match request.version() {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2.0",
            Version::HTTP_3 => "HTTP/3.0",
            _ => "HTTP/1.1",
        };
        self.push("SERVER_PROTOCOL", &[protocol.as_bytes()]);
        if let Some(kind) = request.headers().get("content-type") {
            self.push("CONTENT_TYPE", &[kind]);
        }
        if self.settings.server_name.is_none() {
            self.push("SERVER_NAME", &[request.host().unwrap_or("").as_bytes()]);
        }
    }

    fn connection(&mut self) {
        let request = self.request;
        let client = request.client();
        match client.ip {
            Some(ip) => self.push("REMOTE_ADDR", &[&address(ip)]),
            None => self.push("REMOTE_ADDR", &[b"unix:"]),
        }
        if let Some(port) = client.port {
            self.push("REMOTE_PORT", &[&number(port)]);
        }
        if let Peer::Ip(local) = request.connection().local {
            self.push("SERVER_ADDR", &[&address(local.ip())]);
        }
        if let Some(port) = request.port() {
            self.push("SERVER_PORT", &[&number(port)]);
        }
        self.push("REQUEST_SCHEME", &[request.scheme().as_bytes()]);
        if request.is_secure() {
            self.push("HTTPS", &[b"on"]);
        }
    }

    /// The fields of the request.
    fn fields(&mut self) {
        let request = self.request;
        let headers = request.headers();
        if let Some(host) = request.authority() {
            self.push("HTTP_HOST", &[host.as_bytes()]);
        }
        // What is left of these was not written by the client.
        let takes_identity = request.are_identity_fields_removed();
        for (at, (name, value)) in headers.iter().enumerate() {
            if is_written_otherwise(name)
                || (!takes_identity && is_identity_field(name))
                || !self.is_plain(name)
            {
                continue;
            }
            let is_again = headers.iter().take(at).any(|(other, _)| other == name);
            if is_again || self.is_own_field(name) {
                continue;
            }
            let mut lines = headers.get_all(name);
            if lines.nth(1).is_none() {
                self.told.push_field(name, value);
                continue;
            }
            // HTTP/2 may send cookies one by one (RFC 9113 section 8.2.3).
            let between: &[u8] = if name == "cookie" { b"; " } else { b", " };
            let lines: SmallVec<[&[u8]; 8]> = headers.get_all(name).collect();
            self.told.push_field(name, &lines.join(between));
        }
    }

    /// Whether a field's name becomes that of one variable and of no other field.
    fn is_plain(&self, name: &str) -> bool {
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

    fn is_own_field(&self, name: &str) -> bool {
        let mut own = self.settings.params.iter();
        own.any(|(own, _)| {
            own.strip_prefix("HTTP_")
                .is_some_and(|own| is_same_variable(own, name))
        })
    }

    /// What the site has of its own, where it depends on the request.
    fn own(&mut self) {
        for (name, value) in &self.settings.params {
            if value.as_text().is_none() || **name == *TARGET {
                let value = value.text(self.request, &self.settings.site, &self.script.root);
                if !value.is_empty() {
                    self.told.push_parts(name, &[value.as_ref()]);
                }
            }
        }
    }
}

/// Whether two names become that of the same variable.
fn is_same_variable(one: &str, other: &str) -> bool {
    let letter = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_uppercase(),
        _ => b'_',
    };
    one.len() == other.len() && one.bytes().map(letter).eq(other.bytes().map(letter))
}

/// Whether a field has a variable of another name, or must have none.
fn is_written_otherwise(name: &str) -> bool {
    matches!(
        name,
        "host" | "trailer" | "expect" | "content-type" | "content-length" | "proxy"
    )
}

fn number(number: u16) -> Text {
    let mut text = Text::new();
    decimal(number, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::rc::Rc;

    use apus_http::{Body, ConnectionInfo, Headers, Method, RequestParts, Target, TrustedProxies};
    use http::Extensions;

    use super::*;
    use apus_sites::Template;

    struct Asked<'a> {
        target: &'a str,
        version: Version,
        lines: &'a [(&'a str, &'a str)],
    }

    impl Asked<'_> {
        fn request(&self) -> Request {
            let mut headers = Headers::new();
            for (name, value) in self.lines {
                headers.try_append(name, value).unwrap();
            }
            let address = |text: &str| Peer::Ip(text.parse::<SocketAddr>().unwrap());
            Request::new(RequestParts {
                method: Method::GET,
                target: Target::parse(&Method::GET, self.target).unwrap(),
                version: self.version,
                headers,
                body: Body::Empty,
                connection: Rc::new(ConnectionInfo {
                    id: 1,
                    peer: address("192.0.2.7:999"),
                    local: address("198.51.100.1:8080"),
                    tls: None,
                }),
                extensions: Extensions::new(),
            })
        }
    }

    fn with(lines: &[(&str, &str)], settings: &PhpSettings) -> Vec<(String, String)> {
        let asked = Asked {
            target: "/a%20b?c=d",
            version: Version::HTTP_11,
            lines,
        };
        told(&asked.request(), settings)
    }

    fn told(request: &Request, settings: &PhpSettings) -> Vec<(String, String)> {
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
        let mut told: Vec<_> = params
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        told.sort();
        told
    }

    /// What a frame says: text in PHP's own form, its pieces told by their lengths.
    fn read(message: &Message) -> Vec<(String, String)> {
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
    fn workers_are_told_the_same_as_over_fastcgi() {
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
        let asked = Asked {
            target: "/a?b",
            version: Version::HTTP_11,
            lines: &lines,
        };
        let request = asked.request();
        for (settings, target) in [
            (PhpSettings::default(), &b"/a?b"[..]),
            (replaced, b"/always"),
        ] {
            let variables = Variables::new(&settings);
            // The second of two programs is not told of the first.
            for path in ["/index.php", "/index.php", "/other.php"] {
                let script = script(path);
                let message = variables.message(&request, &script, &settings);
                let params = variables.params(&request, &script, &settings);
                assert_eq!(read(&message), sorted(&params));
                assert_eq!(message.target(), target);
            }
        }
    }

    fn value<'a>(told: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = told.iter().filter(|(known, _)| known == name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} is there twice");
        first.map(|(_, value)| &**value)
    }

    #[test]
    fn tells_what_applications_know_from_nginx() {
        let settings = PhpSettings {
            prefix: "/blog".into(),
            server_name: Some("example.com".into()),
            ..PhpSettings::default()
        };
        let told = with(
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
        let told: Vec<_> = told.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn no_field_becomes_the_proxy_of_the_application() {
        let told = with(
            &[("proxy", "evil:1"), ("host", "a")],
            &PhpSettings::default(),
        );
        assert_eq!(value(&told, "HTTP_PROXY"), None);
    }

    #[test]
    fn names_that_become_the_same_variable_do_not_take_its_place() {
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
        let told = with(&lines, &settings);
        assert_eq!(value(&told, "HTTP_X_USER"), Some("good"));
        assert_eq!(value(&told, "HTTP_ONLY_THIS"), Some("1"));
        assert_eq!(value(&told, "CONTENT_TYPE"), None);
    }

    #[test]
    fn lines_of_one_field_are_joined_and_cookies_as_cookies_are() {
        let asked = Asked {
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
        let told = told(&asked.request(), &PhpSettings::default());
        assert_eq!(value(&told, "HTTP_COOKIE"), Some("a=1; b=2; c=3"));
        assert_eq!(value(&told, "HTTP_X_TAG"), Some("one, two"));
        assert_eq!(value(&told, "SERVER_PROTOCOL"), Some("HTTP/2.0"));
    }

    #[test]
    fn a_stranger_does_not_say_who_it_is() {
        let lines = [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_proto", "https"),
            ("x-real-ip", "127.0.0.1"),
            ("x-original-url", "/admin"),
            ("client-ip", "127.0.0.1"),
        ];
        let told = with(&lines, &PhpSettings::default());
        assert_eq!(value(&told, "REMOTE_ADDR"), Some("192.0.2.7"));
        assert_eq!(value(&told, "HTTPS"), None);
        assert_eq!(value(&told, "SERVER_PORT"), Some("8080"));
        assert!(
            told.iter().all(|(name, _)| !name.starts_with("HTTP_")),
            "{told:?}"
        );
    }

    #[test]
    fn a_trusted_proxy_says_who_the_client_is() {
        let asked = Asked {
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
        let mut request = asked.request();
        let proxies = TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]);
        proxies.establish(&mut request);
        let settings = PhpSettings {
            underscores: true,
            ..PhpSettings::default()
        };
        let told = told(&request, &settings);
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
            assert_eq!(value(&told, name), expected, "{name}");
        }
    }

    #[test]
    fn what_a_site_says_itself_goes_before_everything() {
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
        let told = with(&[("host", "A.example:80"), ("x-user", "evil")], &settings);
        assert_eq!(value(&told, "APP_ENV"), Some("production"));
        assert_eq!(value(&told, "SERVER_SOFTWARE"), None);
        assert_eq!(value(&told, "SERVER_NAME"), Some("a.example"));
        assert_eq!(value(&told, "HTTP_X_USER"), Some("nobody"));
    }

    #[test]
    fn a_rewritten_request_is_told_as_the_client_sent_it() {
        let asked = Asked {
            target: "/pretty?x=1",
            version: Version::HTTP_11,
            lines: &[],
        };
        let mut request = asked.request();
        request.set_path_and_query("/index.php?y=2").unwrap();
        let told = told(&request, &PhpSettings::default());
        assert_eq!(value(&told, "REQUEST_URI"), Some("/pretty?x=1"));
        assert_eq!(value(&told, "QUERY_STRING"), Some("y=2"));
    }

    #[test]
    fn what_is_about_the_connection_is_not_told() {
        let lines = [
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("content-length", "5"),
        ];
        let told = with(&lines, &PhpSettings::default());
        assert!(
            told.iter().all(|(name, _)| !name.starts_with("HTTP_")),
            "{told:?}"
        );
    }
}
