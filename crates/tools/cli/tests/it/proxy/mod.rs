//! The binary in front of origins: real servers, and scripted origins that break the protocol. The class of
//! attacks on upstreams in ATTACKS.md of the project is here, by subject.

mod choices;
mod descriptors;
mod dns;
mod expectations;
mod families;
mod faults;
mod groups;
mod grpc;
mod http3;
mod mirror;
mod nodes;
mod origins;
mod reload;
mod representations;
mod requests;
mod responses;
pub(crate) mod scripted_origin;
mod websocket;

pub(crate) use origins::Origin;

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::clients::{Curl, certificate};
use crate::h2_client::Peer;
use crate::harness::{Apus, Home, connect, free_port};
use crate::wire::{Received, Wire};

/// The bytes of memory by which the server may grow after its start, whatever an origin sends.
const MEMORY: u64 = 64 << 20;

/// The configuration of a server whose one site passes requests to a group of origins.
#[derive(Default)]
pub(crate) struct Configuration {
    global: String,
    site: String,
    nodes: Vec<String>,
    group: String,
    location: String,
    proxy: String,
    after: String,
    port: u16,
    tls: bool,
}

impl Configuration {
    pub(crate) fn of(nodes: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::of_names(nodes.into_iter().map(|node| node.to_string()))
    }

    fn of_names(nodes: impl IntoIterator<Item = String>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A line of `[global]`.
    pub(crate) fn global(mut self, line: &str) -> Self {
        self.global += &format!("{line}\n");
        self
    }

    /// Lines of the site, including other tables of it.
    fn site(mut self, lines: &str) -> Self {
        self.site += &format!("{lines}\n");
        self
    }

    /// A line of the group of origins.
    pub(crate) fn group(mut self, line: &str) -> Self {
        self.group += &format!("{line}\n");
        self
    }

    /// A line of the location that passes requests to the group.
    pub(crate) fn location(mut self, line: &str) -> Self {
        self.location += &format!("{line}\n");
        self
    }

    /// Lines after the site.
    pub(crate) fn after(mut self, lines: &str) -> Self {
        self.after += &format!("{lines}\n");
        self
    }

    /// A line of the table `proxy` of the location.
    fn proxy(mut self, line: &str) -> Self {
        self.proxy += &format!("{line}\n");
        self
    }

    /// Listens on this port, which stays when the configuration changes.
    pub(crate) fn at(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Listens with TLS, too.
    pub(crate) fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    fn text(&self) -> String {
        let mut text = format!("[global]\n{}[[sites]]\n", self.global);
        let _ = write!(
            text,
            "server_name = [\"localhost\", \"_\"]\nlisten = [\"127.0.0.1:{}\"]\n",
            self.port
        );
        if self.tls {
            let port = free_port();
            let _ = write!(
                text,
                "listen_tls = [\"127.0.0.1:{port}\"]\n\
                 tls = {{ cert = \"front.pem\", key = \"front.key\" }}\n"
            );
        }
        let nodes = self.nodes.iter().map(|node| format!("\"{node}\""));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        let _ = write!(
            text,
            "{}\n[[sites.upstreams]]\nname = \"app\"\nnodes = [{nodes}]\n{}\
             [[sites.locations]]\npath = \"/\"\nhandler = \"reverse_proxy\"\nupstream = \"app\"\n\
             {}[sites.locations.proxy]\n{}{}",
            self.site, self.group, self.location, self.proxy, self.after
        );
        text
    }

    /// Starts the server in a new folder.
    pub(crate) fn serve(self) -> Front {
        self.serve_in(Home::new())
    }

    pub(crate) fn serve_in(self, home: Home) -> Front {
        self.serve_through(&[], home)
    }

    /// Starts the server by a program that executes it.
    pub(crate) fn serve_through(self, program: &[&str], home: Home) -> Front {
        if self.tls {
            certificate(&home, "front", "localhost");
        }
        Front::serve_through(program, home, &self.text())
    }
}

/// A server in front of origins.
pub(crate) struct Front {
    pub(crate) home: Home,
    pub(crate) apus: Apus,
    at_start: u64,
    /// The server between it and its origins.
    between: Option<Box<Front>>,
}

impl Front {
    /// A server with no configuration but the addresses of the origins.
    pub(crate) fn of(nodes: impl IntoIterator<Item = SocketAddr>) -> Self {
        Configuration::of(nodes).serve()
    }

    fn serve(home: Home, configuration: &str) -> Self {
        Self::serve_through(&[], home, configuration)
    }

    fn serve_through(program: &[&str], home: Home, configuration: &str) -> Self {
        home.write("apus.toml", configuration);
        let apus = home.serve_through(program, &[]);
        let mut front = Self {
            home,
            apus,
            at_start: 0,
            between: None,
        };
        front.at_start = front.resident();
        front
    }

    /// A server in front of this one, which must listen with TLS. It speaks HTTP/3 to it.
    fn behind_http3(self, configuration: impl FnOnce(Configuration) -> Configuration) -> Self {
        let port = self.tls_authority().rsplit_once(':').unwrap().1.to_owned();
        let authority = self.authority_file();
        let front = Configuration::of_names([format!("https://127.0.0.1:{port}")])
            .group("protocol = \"h3\"")
            .group(&format!(
                "tls = {{ ca = \"{}\", server_name = \"localhost\" }}",
                authority.display()
            ));
        // The name of its certificate.
        let front = front.proxy("host = \"localhost\"");
        let mut front = configuration(front).serve();
        front.between = Some(Box::new(self));
        front
    }

    /// A server in front of this one, which speaks HTTP/2 in clear text to it.
    fn behind_http2(self) -> Self {
        let front = Configuration::of([self.apus.address()]).group("protocol = \"h2\"");
        let mut front = front.serve();
        front.between = Some(Box::new(self));
        front
    }

    /// The server between this one and its origins.
    fn between(&mut self) -> &mut Front {
        self.between.as_mut().expect("a server between")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.apus.address())
    }

    /// The host and port for TLS.
    pub(crate) fn tls_authority(&self) -> String {
        let url = self.apus.urls().iter().find(|url| url.starts_with("https"));
        let authority = url.unwrap().split('/').nth(2).unwrap();
        authority.replace("127.0.0.1", "localhost")
    }

    /// The certificate that clients have to trust.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.home.path("front.pem")
    }

    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.apus.address())
    }

    /// An HTTP/2 client in clear text.
    pub(crate) fn open(&self) -> Peer<std::net::TcpStream> {
        Peer::open(connect(self.apus.address()))
    }

    /// The response to these bytes over a new connection, whatever follows it.
    pub(crate) fn request(&self, request: impl AsRef<[u8]>) -> Received {
        let mut wire = self.connect();
        wire.send(request);
        wire.read()
    }

    pub(crate) fn get(&self, path: &str) -> Received {
        self.request(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// The output of `apus status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let (json, _) = self.home.expect(&["status", "--json"], 0);
        serde_json::from_str(&json).unwrap()
    }

    pub(crate) fn reload(&self) {
        self.home.expect(&["reload"], 0);
    }

    /// The resident memory of the server in bytes.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.apus.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes: u64 = line
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap();
        kilobytes << 10
    }

    pub(crate) fn assert_memory_is_bounded(&self) {
        let grown = self.resident().saturating_sub(self.at_start);
        assert!(grown < MEMORY, "{} MB more than at start", grown >> 20);
    }
}

/// The options of curl for the versions of HTTP.
pub(crate) const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// curl with the option of this version.
pub(crate) fn curl(version: &str) -> Curl {
    Curl::new().args(&[version, "--noproxy", "*"])
}
