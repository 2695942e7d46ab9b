//! Requests and responses without sockets, clients with and without sockets, the log of a test, frames of HTTP/2, packets of
//! QUIC, a scripted server, certificates, a relay of UDP packets, ports, databases and other processes, and waiting for
//! conditions, for the tests of several crates.
//!
//! # Modules
//!
//! `bodies`, `h2`, `quic`, `scripted`: messages without sockets, frames, packets, and a server that does what a test
//! says. `local_client` calls a service on a runtime as a worker has it, and `socket_client` sends the bytes of a test. `log` collects what a test logs.
//! `name_server` has the records of a test. `certificates`, `ports`, `process`, `udp_relay`: what tests over sockets need. `geo_database` writes a MaxMind DB. `database` starts PostgreSQL, MariaDB and Redis, `empty_database` is a
//! new database for a test, and `object_store` starts s3rver. `wait`: tests wait for conditions, never for a time.

#![forbid(unsafe_code)]

mod bodies;
mod certificates;
mod database;
mod empty_database;
mod geo_database;
pub mod h2;
mod local_client;
mod log;
mod name_server;
mod object_store;
mod ports;
mod process;
mod properties;
pub mod quic;
pub mod scripted;
mod socket_client;
mod udp_relay;
mod wait;

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use apus_http::{
    Body, BodyError, BodyStream, ConnectionInfo, Extensions, Frame, Headers, Method, Peer, Request,
    RequestParts, Response, Service, ServiceFactory, StatusCode, Target, TlsInfo, TlsVersion,
    Version, service_fn,
};

pub use bodies::{body_bytes, collect, frames, ready_frames};
pub use certificates::{CertificateAuthority, IssuedCertificate};
pub use database::{DatabaseKind, DatabaseServer};
pub use empty_database::EmptyDatabase;
pub use geo_database::geo_database;
pub use local_client::LocalClient;
pub use log::{LogBuffer, logged};
pub use name_server::TestNameServer;
pub use object_store::ObjectStore;
pub use ports::free_port;
pub use process::{ReadyProcess, may_start_servers, process_folder};
pub use properties::cases;
pub use socket_client::{SocketClient, SocketReply, request_text};
pub use udp_relay::UdpRelay;
pub use wait::{WaitCondition, eventually, eventually_async, wait_until};

/// Runs a future on a runtime as a worker has it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().block_on(&current_thread_runtime(), future)
}

fn current_thread_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The builder of a request.
pub struct RequestBuilder {
    method: Method,
    target: String,
    headers: Headers,
    body: Body,
    certificate_names: Option<Vec<Box<str>>>,
    extensions: Extensions,
    peer: SocketAddr,
}

/// A GET request for this target, with the host `example.com`.
pub fn get(target: &str) -> RequestBuilder {
    ask("GET", target)
}

/// A request with this method for this target, with the host `example.com`.
pub fn ask(method: &str, target: &str) -> RequestBuilder {
    RequestBuilder {
        method: method.parse().unwrap(),
        target: target.to_owned(),
        headers: Headers::new(),
        body: Body::Empty,
        certificate_names: None,
        extensions: Extensions::new(),
        peer: "192.0.2.7:50000".parse().unwrap(),
    }
    .with("host", "example.com")
}

impl RequestBuilder {
    /// Sets a field.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.try_insert(name, value).unwrap();
        self
    }

    /// Adds field lines: `"Name: value"`.
    pub fn lines(mut self, lines: &[&str]) -> Self {
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            self.headers.try_append(name, value.trim()).unwrap();
        }
        self
    }

    /// Sends the request from this address, in place of 192.0.2.7:50000.
    pub fn peer(mut self, address: impl Into<SocketAddr>) -> Self {
        self.peer = address.into();
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request over TLS, to a certificate for these names.
    pub fn tls(mut self, names: &[&str]) -> Self {
        self.certificate_names = Some(names.iter().map(|name| Box::from(*name)).collect());
        self
    }

    /// Adds an extension.
    pub fn extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }

    /// The request, to 192.0.2.1:8080.
    pub fn request(self) -> Request {
        Request::new(RequestParts {
            target: Target::parse(&self.method, &self.target).unwrap(),
            method: self.method,
            version: Version::HTTP_11,
            headers: self.headers,
            body: self.body,
            connection: Rc::new(ConnectionInfo {
                kept: apus_http::KeptValue::default(),
                id: 1,
                peer: Peer::Ip(self.peer),
                local: Peer::Ip("192.0.2.1:8080".parse().unwrap()),
                tls: self.certificate_names.map(|names| TlsInfo {
                    version: TlsVersion::Tls13,
                    cipher: "TLS13_AES_128_GCM_SHA256",
                    alpn: None,
                    fingerprint: None,
                    server_name: None,
                    certificate_names: names.into(),
                    client_certificate: None,
                }),
            }),
            extensions: self.extensions,
        })
    }

    /// The response of a service.
    pub fn of(self, service: &Rc<dyn Service>) -> Reply {
        let request = self.request();
        block_on(async { Reply::read(service.call(request).wait().await).await })
    }

    /// The response of a new service.
    pub fn to(self, factory: &(impl ServiceFactory + ?Sized)) -> Reply {
        self.of(&factory.service())
    }
}

/// A response and its whole body.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The fields.
    pub headers: Headers,
    /// The body, without its framing.
    pub content: Vec<u8>,
}

impl Reply {
    /// Reads the body of a response.
    pub async fn read(mut response: Response) -> Self {
        let mut content = Vec::new();
        let mut body = response.take_body();
        while let Some(frame) = body.frame().await {
            match frame.unwrap() {
                Frame::Data(bytes) => content.extend_from_slice(&bytes),
                Frame::File(range) => {
                    let mut bytes = vec![0; range.len as usize];
                    std::os::unix::fs::FileExt::read_exact_at(
                        &*range.file,
                        &mut bytes,
                        range.offset,
                    )
                    .unwrap();
                    content.extend_from_slice(&bytes);
                }
                Frame::Trailers(_) => {}
            }
        }
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            content,
        }
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    /// The values of all lines of a field.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.headers.get_all(name);
        values.map(|value| std::str::from_utf8(value).unwrap())
    }

    /// The members of the lines of a list field, in lower case.
    pub fn members(&self, name: &str) -> Vec<String> {
        let lines = self.fields(name).flat_map(|line| line.split(','));
        lines.map(|member| member.trim().to_lowercase()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}

/// A factory of services that respond with `name` and the target of the request.
pub fn echo(name: &'static str) -> impl ServiceFactory {
    move || {
        service_fn(move |request: Request| {
            Response::text(
                StatusCode::OK,
                format!("{name} {}", request.target().path_and_query()),
            )
            .into()
        })
    }
}

/// A body that is sent in pieces.
pub struct PieceStream(std::collections::VecDeque<bytes::Bytes>);

impl PieceStream {
    /// Creates a body with one frame for each piece.
    pub fn of(pieces: &[&str]) -> Self {
        let pieces = pieces.iter();
        Self(
            pieces
                .map(|piece| bytes::Bytes::copy_from_slice(piece.as_bytes()))
                .collect(),
        )
    }
}

impl BodyStream for PieceStream {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        std::task::Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::Data(piece))))
    }
}
