//! A client of a site with a host name: curl, which keeps cookies and connects to the address of the
//! server.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::server::Server;
use crate::clients::Curl;

/// The scheme and the version of HTTP that a visitor uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Http1,
    Http2,
    Tls,
}

impl ClientProtocol {
    pub(crate) const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Tls];

    fn scheme(self) -> &'static str {
        if self == Self::Tls { "https" } else { "http" }
    }

    fn curl_option(self) -> &'static str {
        match self {
            Self::Http1 => "--http1.1",
            Self::Http2 => "--http2-prior-knowledge",
            Self::Tls => "--http2",
        }
    }
}

/// A visitor with its own cookies.
pub(crate) struct Visitor {
    cookies: TempDir,
    protocol: ClientProtocol,
}

impl Visitor {
    pub(crate) fn new(protocol: ClientProtocol) -> Self {
        Self {
            cookies: tempfile::tempdir().unwrap(),
            protocol,
        }
    }

    fn jar(&self) -> PathBuf {
        self.cookies.path().join("jar")
    }

    /// curl with these cookies.
    fn curl(&self, server: &Server) -> Curl {
        let jar = self.jar();
        let jar = jar.to_str().unwrap();
        let port = if self.protocol == ClientProtocol::Tls {
            443
        } else {
            80
        };
        let address = if self.protocol == ClientProtocol::Tls {
            server.tls()
        } else {
            server.clear()
        };
        let to = format!("{}:{port}:{address}", server.host());
        Curl::new()
            .args(&["--noproxy", "*", "--insecure", self.protocol.curl_option()])
            .args(&["--cookie", jar, "--cookie-jar", jar, "--connect-to", &to])
    }

    fn url(&self, server: &Server, path: &str) -> String {
        format!("{}://{}{path}", self.protocol.scheme(), server.host())
    }

    /// The response to a request with these arguments of curl.
    pub(crate) fn request(&self, server: &Server, path: &str, arguments: &[&str]) -> PageResponse {
        let head = self.cookies.path().join("head");
        let reply = self
            .curl(server)
            .args(&["--dump-header", head.to_str().unwrap()])
            .args(arguments)
            .get(&self.url(server, path));
        PageResponse {
            status: reply.status,
            head: last_head(&fs::read_to_string(head).unwrap()),
            body: reply.body,
        }
    }

    pub(crate) fn get(&self, server: &Server, path: &str) -> PageResponse {
        self.request(server, path, &[])
    }

    /// Sends a form.
    pub(crate) fn post(
        &self,
        server: &Server,
        path: &str,
        fields: &[(&str, &str)],
    ) -> PageResponse {
        let pairs: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut arguments = Vec::new();
        for pair in &pairs {
            arguments.extend(["--data-urlencode", pair]);
        }
        self.request(server, path, &arguments)
    }
}

/// The final response after redirects and interim responses.
#[derive(Debug)]
pub(crate) struct PageResponse {
    pub(crate) status: u16,
    /// Names in lower case, with all their values.
    pub(crate) head: BTreeMap<String, Vec<String>>,
    pub(crate) body: Vec<u8>,
}

impl PageResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first value of a field.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.head.get(name).map_or("", |values| &values[0])
    }
}

/// The fields of the last of these heads. The `header_json` of curl 7.88 lacks everything between two
/// fields of the same name.
fn last_head(heads: &str) -> BTreeMap<String, Vec<String>> {
    let head = heads.trim_end().rsplit("\r\n\r\n").next().unwrap();
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for line in head.lines() {
        if let Some((name, value)) = line.split_once(':') {
            let values = fields.entry(name.to_ascii_lowercase()).or_default();
            values.push(value.trim().to_owned());
        }
    }
    fields
}

/// The text between two texts in a page.
pub(crate) fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = page
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before:?} in {page}"));
    let (found, _) = rest
        .split_once(after)
        .unwrap_or_else(|| panic!("no {after:?} in {rest}"));
    found
}
