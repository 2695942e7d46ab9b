//! Servers and clients at sockets of the loopback interface.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use apus_quic::{
    QuicClientTls, QuicConnection, QuicEndpoint, QuicEvent, QuicKeys, QuicServerTls, QuicSettings,
    QuicWorkers, SelectServerTls, Steering, StreamError, StreamEvent, StreamId, StreamRead,
};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) const V4: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
pub(crate) const V6: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
pub(crate) const ALPN: &[u8] = b"test";

/// The authority of all certificates.
static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
});

pub(crate) fn roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.der().clone()).unwrap();
    Arc::new(roots)
}

/// A certificate for this name, and its key.
pub(crate) fn certificate(name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &*AUTHORITY).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    (vec![certificate.der().clone()], key)
}

/// TLS of a site.
pub(crate) fn server_config(name: &str, wants_client_certificate: bool) -> ServerConfig {
    let (chain, key) = certificate(name);
    let builder = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = if wants_client_certificate {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots(), default_provider().into());
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

pub(crate) fn site(name: &str) -> Arc<QuicServerTls> {
    Arc::new(QuicServerTls::new(server_config(name, false), false).unwrap())
}

/// Sites by their names.
pub(crate) struct Sites(pub(crate) HashMap<&'static str, Arc<QuicServerTls>>);

impl SelectServerTls for Sites {
    fn select(
        &self,
        server_name: Option<&str>,
        _client: Option<std::net::IpAddr>,
    ) -> Option<Arc<QuicServerTls>> {
        self.0.get(server_name?).cloned()
    }
}

/// One site, `localhost`.
pub(crate) fn one_site() -> Arc<dyn SelectServerTls> {
    Arc::new(Sites(HashMap::from([("localhost", site("localhost"))])))
}

pub(crate) fn client_config() -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots())
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

pub(crate) fn client_tls() -> QuicClientTls {
    QuicClientTls::new(Arc::new(client_config())).unwrap()
}

pub(crate) fn new_workers() -> Arc<QuicWorkers> {
    QuicWorkers::new(QuicKeys::generate().unwrap(), Steering::default())
}

/// An endpoint whose task runs in the background.
pub(crate) fn endpoint(
    workers: &Arc<QuicWorkers>,
    address: SocketAddr,
    settings: QuicSettings,
    sites: Option<Arc<dyn SelectServerTls>>,
) -> QuicEndpoint {
    let socket = match sites {
        Some(_) => workers.bind(address).unwrap(),
        None => workers.bind_client(address).unwrap(),
    };
    let (endpoint, task) = QuicEndpoint::new(socket, settings, sites).unwrap();
    tokio::task::spawn_local(task);
    endpoint
}

pub(crate) fn server_with(settings: QuicSettings) -> QuicEndpoint {
    endpoint(&new_workers(), V4, settings, Some(one_site()))
}

pub(crate) fn server() -> QuicEndpoint {
    server_with(QuicSettings::default())
}

pub(crate) fn client_with(settings: QuicSettings) -> QuicEndpoint {
    endpoint(&new_workers(), V4, settings, None)
}

pub(crate) fn client() -> QuicEndpoint {
    client_with(QuicSettings::default())
}

/// A server that sends back what it gets, and a connection to it.
pub(crate) async fn echo_pair() -> (QuicEndpoint, QuicConnection) {
    let server = server();
    echo_all(&server);
    let connection = connect(&client(), &server).await;
    (server, connection)
}

pub(crate) fn begin(client: &QuicEndpoint, server: &QuicEndpoint) -> QuicConnection {
    client
        .connect(server.local_address(), "localhost", &client_tls())
        .unwrap()
}

pub(crate) async fn connect(client: &QuicEndpoint, server: &QuicEndpoint) -> QuicConnection {
    let connection = begin(client, server);
    connected(&connection).await;
    connection
}

pub(crate) async fn next_event(connection: &QuicConnection) -> QuicEvent {
    within(poll_fn(|cx| connection.poll_event(cx))).await
}

/// Tests wait at most this long.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("it takes too long")
}

pub(crate) async fn connected(connection: &QuicConnection) -> bool {
    match next_event(connection).await {
        QuicEvent::Connected {
            early_data_accepted,
        } => early_data_accepted,
        other => panic!("{other:?}"),
    }
}

/// How a connection ends.
pub(crate) async fn closed(connection: &QuicConnection) -> apus_quic::QuicCloseReason {
    loop {
        if let QuicEvent::Closed(reason) = next_event(connection).await {
            return reason;
        }
    }
}

pub(crate) async fn accept(server: &QuicEndpoint) -> QuicConnection {
    within(server.accept()).await.unwrap()
}

/// Runs an echo for each connection of a server.
pub(crate) fn echo_all(server: &QuicEndpoint) {
    let server = server.clone();
    tokio::task::spawn_local(async move {
        while let Some(connection) = server.accept().await {
            tokio::task::spawn_local(echo(connection));
        }
    });
}

/// Sends back what comes on each bidirectional stream.
pub(crate) async fn echo(connection: QuicConnection) {
    let mut streams: HashMap<StreamId, EchoStream> = HashMap::new();
    loop {
        match poll_fn(|cx| connection.poll_event(cx)).await {
            QuicEvent::Stream(
                StreamEvent::Opened(id) | StreamEvent::Readable(id) | StreamEvent::Writable(id),
            ) => {
                let stream = streams.entry(id).or_default();
                if stream.turn(&connection, id).is_err() {
                    streams.remove(&id);
                }
            }
            QuicEvent::Stream(
                StreamEvent::Finished(id) | StreamEvent::Stopped { stream: id, .. },
            ) => {
                streams.remove(&id);
            }
            QuicEvent::Closed(_) => return,
            QuicEvent::Connected { .. } | QuicEvent::Stream(StreamEvent::Available(_)) => {}
        }
    }
}

#[derive(Default)]
struct EchoStream {
    unsent: VecDeque<Bytes>,
    has_ended: bool,
    is_finished: bool,
}

impl EchoStream {
    fn turn(&mut self, connection: &QuicConnection, id: StreamId) -> Result<(), StreamError> {
        loop {
            if !self.unsent.is_empty() {
                connection.write(id, self.unsent.make_contiguous())?;
                self.unsent.retain(|chunk| !chunk.is_empty());
            }
            if !self.unsent.is_empty() || self.is_finished {
                return Ok(());
            }
            if self.has_ended {
                self.is_finished = true;
                return connection.finish(id);
            }
            match connection.read(id, 64 << 10, |chunk| self.unsent.push_back(chunk))? {
                StreamRead::Finished => self.has_ended = true,
                StreamRead::Blocked if self.unsent.is_empty() => return Ok(()),
                StreamRead::Blocked | StreamRead::Limited => {}
            }
        }
    }
}

/// Writes all of it, and the end.
pub(crate) async fn write_all(connection: &QuicConnection, stream: StreamId, data: &Bytes) {
    let mut chunks = [data.clone()];
    loop {
        connection.write(stream, &mut chunks).unwrap();
        if chunks[0].is_empty() {
            return connection.finish(stream).unwrap();
        }
        if let QuicEvent::Closed(reason) = next_event(connection).await {
            panic!("{reason}");
        }
    }
}

/// Reads until the end of a stream.
pub(crate) async fn read_all(
    connection: &QuicConnection,
    stream: StreamId,
) -> Result<Vec<u8>, StreamError> {
    let mut data = Vec::new();
    loop {
        let read = connection.read(stream, usize::MAX, |chunk| data.extend_from_slice(&chunk))?;
        if read == StreamRead::Finished {
            return Ok(data);
        }
        if let QuicEvent::Closed(reason) = next_event(connection).await {
            panic!("{reason}");
        }
    }
}

/// The stream that the peer opens next.
pub(crate) async fn opened(connection: &QuicConnection) -> StreamId {
    loop {
        match next_event(connection).await {
            QuicEvent::Stream(StreamEvent::Opened(stream)) => return stream,
            QuicEvent::Closed(reason) => panic!("{reason}"),
            _ => {}
        }
    }
}

/// Opens a stream, sends data and its end, and returns what an echo server sends back.
pub(crate) async fn exchange(connection: &QuicConnection, data: &Bytes) -> Vec<u8> {
    let stream = connection.open(apus_quic::Dir::Bi).unwrap();
    let mut chunks = [data.clone()];
    let mut is_finished = false;
    let mut echoed = Vec::new();
    loop {
        if !is_finished {
            connection.write(stream, &mut chunks).unwrap();
            if chunks[0].is_empty() {
                connection.finish(stream).unwrap();
                is_finished = true;
            }
        }
        let read = connection.read(stream, usize::MAX, |chunk| echoed.extend_from_slice(&chunk));
        if read.unwrap() == StreamRead::Finished {
            return echoed;
        }
        if let QuicEvent::Closed(reason) = next_event(connection).await {
            panic!("{reason}");
        }
    }
}

/// Data that repeats nowhere soon.
pub(crate) fn data(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}
