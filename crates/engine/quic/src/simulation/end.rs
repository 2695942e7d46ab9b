//! One end of the simulated path: an endpoint without sockets and tasks, whose connection is driven as
//! [`EndpointTask`](crate::EndpointTask) drives the connections of a worker.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use apus_quic_protocol::{
    Connection, ConnectionEvent, ConnectionHandle, ConnectionStats, DatagramEvent, DatagramSource,
    EndpointConfig, ProtocolEndpoint, ServerConfig, StartObserver,
};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::connection_id::EndpointConnectionIds;
use crate::keys::QuicKeys;
use crate::qlog::QlogFolders;
use crate::settings::QuicSettings;
use crate::simulation::path::PathDirection;
use crate::tls::{
    QuicClientTls, QuicServerTls, SelectServerTls, ServerTlsSelection, initial_suite,
};

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);
/// Packets that are made at a time, as with GSO.
const SEGMENTS: usize = 44;

/// The certificate of the server. Its size is always the same, as the size of its signatures, so that every run sends
/// the same packets.
static CERTIFICATE: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from_slice(&[1]));
    CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ED25519).unwrap()).unwrap()
});

fn observer(settings: &QuicSettings, qlog: &QlogFolders) -> Option<Arc<dyn StartObserver>> {
    qlog.open(settings.qlog.as_deref()?)
}

pub(super) struct End {
    settings: QuicSettings,
    endpoint: ProtocolEndpoint,
    peer: SocketAddr,
    connection: Option<(ConnectionHandle, Connection)>,
    packets: Vec<u8>,
    /// After the connection, whose end it writes.
    _qlog: QlogFolders,
}

impl End {
    pub(super) fn client(settings: QuicSettings, now: Instant) -> Self {
        let qlog = QlogFolders::default();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CERTIFICATE.der().clone()).unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = QuicClientTls::new(Arc::new(tls))
            .unwrap()
            .config(settings.transport(observer(&settings, &qlog)));
        let mut end = Self::new(settings, (None, qlog), SERVER);
        let connection = end.endpoint.connect(now, &config, SERVER, "localhost");
        end.connection = Some(connection.unwrap());
        end
    }

    pub(super) fn server(settings: QuicSettings) -> Self {
        let qlog = QlogFolders::default();
        let config = ServerConfig {
            tls: Arc::new(ServerTlsSelection {
                sites: Arc::new(OneSite),
            }),
            tokens: QuicKeys::generate().unwrap().tokens,
            transport: settings.transport(observer(&settings, &qlog)),
        };
        Self::new(settings, (Some(config), qlog), CLIENT)
    }

    fn new(
        settings: QuicSettings,
        (server, qlog): (Option<ServerConfig>, QlogFolders),
        peer: SocketAddr,
    ) -> Self {
        let keys = QuicKeys::generate().unwrap();
        let config = EndpointConfig {
            reset_key: keys.reset,
            initial_suite: initial_suite().unwrap(),
            can_discover_mtu: true,
            seed: Some(1),
        };
        let generator = EndpointConnectionIds {
            key: keys.connection_id,
            endpoint: 0,
        };
        Self {
            settings,
            endpoint: ProtocolEndpoint::new(config, server.map(Arc::new), Box::new(generator)),
            peer,
            connection: None,
            packets: Vec::new(),
            _qlog: qlog,
        }
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        Some(&mut self.connection.as_mut()?.1)
    }

    pub(super) fn statistics(&self) -> Option<ConnectionStats> {
        Some(self.connection.as_ref()?.1.stats())
    }

    /// Handles packets that have arrived, and timers that are due.
    pub(super) fn handle_input(&mut self, now: Instant, from_peer: &mut PathDirection) {
        while let Some(packet) = from_peer.receive(now) {
            self.handle_packet(now, packet);
        }
        if let Some(connection) = self.connection()
            && connection.poll_timeout().is_some_and(|at| at <= now)
        {
            connection.handle_timeout(now);
        }
        self.settle();
    }

    fn handle_packet(&mut self, now: Instant, mut packet: Vec<u8>) {
        self.packets.clear();
        let source = DatagramSource {
            remote: self.peer,
            local_ip: None,
            ecn: None,
        };
        match self
            .endpoint
            .handle(now, source, &mut packet, &mut self.packets)
        {
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.connection = self.endpoint.accept(now, incoming);
            }
            Some(DatagramEvent::Connection(_)) => {
                if let Some(connection) = self.connection() {
                    connection.handle_datagram(now, source, &mut packet);
                }
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Sends what the connection has.
    pub(super) fn send(&mut self, now: Instant, to_peer: &mut PathDirection) {
        while let Some((_, connection)) = &mut self.connection {
            self.packets.clear();
            let Some(transmit) = connection.poll_transmit(now, SEGMENTS, &mut self.packets) else {
                break;
            };
            let size = transmit.segment_size.unwrap_or(transmit.size);
            for packet in self.packets[..transmit.size].chunks(size) {
                to_peer.send(now, packet);
            }
            self.settle();
        }
    }

    /// As `EndpointState::settle`.
    fn settle(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        let in_flight = connection.congestion_window();
        connection.set_send_window(self.settings.send_window_for(in_flight));
        while let Some(event) = connection.poll_endpoint_event() {
            if let Some(ids) = self.endpoint.handle_event(*handle, event) {
                connection.add_ids(ids);
            }
        }
    }

    pub(super) fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.connection()?.poll()
    }

    pub(super) fn next_timer(&mut self) -> Option<Instant> {
        self.connection()?.poll_timeout()
    }
}

struct OneSite;

impl SelectServerTls for OneSite {
    fn select(
        &self,
        _: Option<&str>,
        _client: Option<std::net::IpAddr>,
    ) -> Option<Arc<QuicServerTls>> {
        let key = PrivatePkcs8KeyDer::from(CERTIFICATE.key().serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CERTIFICATE.der().clone()], PrivateKeyDer::from(key))
            .unwrap();
        Some(Arc::new(QuicServerTls::new(config, false).unwrap()))
    }
}
