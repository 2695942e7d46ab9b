//! A fuzz target of a server of HTTP/3 as a whole: packets, frames of QUIC, and what they carry.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use apus_http::{Request, Response, ResponseFuture, StatusCode, service_fn};
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_net::{Engine, EnginePlan, Http3Settings, ListenAddress, ListenerPlan, RetryMode};
use apus_testkit::CertificateAuthority;
use apus_testkit::quic::frame::{ServerFrame, integers, kind, stream};
use apus_testkit::quic::{INITIAL_DATAGRAM, PacketLevel, RawQuicClient, RawQuicOptions};
use apus_transport::tls::Certificate;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;

/// INTERNAL_ERROR of QUIC (RFC 9000 section 20.1), `internal_error` of TLS in it, and H3_INTERNAL_ERROR.
const QUIC_INTERNAL_ERROR: u64 = 0x1;
const TLS_INTERNAL_ERROR: u64 = 0x100 + 80;
const H3_INTERNAL_ERROR: u64 = 0x102;

/// The control stream with empty SETTINGS, and the streams of QPACK.
const STREAMS: [(u64, &[u8]); 3] = [(2, &[0x0, 0x4, 0x0]), (6, &[0x2]), (10, &[0x3])];

/// GET for `/` of `a`: HEADERS with `:method`, `:scheme` and `:path` of the static table, and `:authority`.
const GET: [u8; 10] = [0x1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];

/// A server that runs as long as the process, and TLS of its clients.
struct FuzzServer {
    _engine: Engine,
    address: SocketAddr,
    options: RawQuicOptions,
}

/// Whether a worker has panicked. The panic of a task ends a connection only.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// An honest client, which lives as long as its thread.
struct Witness {
    runtime: Runtime,
    client: RawQuicClient,
    next_request: u64,
}

thread_local! {
    static WITNESS: RefCell<Option<Witness>> = const { RefCell::new(None) };
}

/// Packets after a byte that says what they are, each after its length: frames in 1-RTT packets, on a connection of
/// HTTP/3 or without its streams, frames in Initial packets, or datagrams, also as large as a first one. The server closes the connection or not; the
/// fault is never its own, and another connection of the same worker is served.
pub fn quic_connection(data: &[u8]) {
    let Some((mode, mut rest)) = data.split_first() else {
        return;
    };
    let mut packets = Vec::new();
    while let Some((length, after)) = rest.split_first() {
        let (packet, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        packets.push(packet);
    }
    WITNESS.with_borrow_mut(|witness| {
        let witness = witness.get_or_insert_with(Witness::new);
        let server = server();
        let Witness {
            runtime,
            client,
            next_request,
        } = witness;
        runtime.block_on(async {
            let mut peer = send(server, *mode, &packets).await;
            // The worker has read what came before this request.
            let id = *next_request;
            *next_request += 4;
            client.send_frames(&stream(id, 0, &GET, true)).await;
            client
                .wait_for(
                    "a response",
                    |frame| matches!(frame, ServerFrame::Stream { stream, .. } if *stream == id),
                )
                .await;
            for frame in peer.receive(Duration::ZERO).await {
                let ServerFrame::Close {
                    code,
                    by_application,
                    reason,
                } = frame
                else {
                    continue;
                };
                let own_faults: &[u64] = if by_application {
                    &[H3_INTERNAL_ERROR]
                } else {
                    &[QUIC_INTERNAL_ERROR, TLS_INTERNAL_ERROR]
                };
                assert!(!own_faults.contains(&code), "{code:x} {reason}");
            }
        });
        assert!(!HAS_PANICKED.load(Ordering::SeqCst), "a worker panicked");
    });
}

/// Sends the packets of an input, and closes the connection.
async fn send(server: &FuzzServer, mode: u8, packets: &[&[u8]]) -> RawQuicClient {
    let FuzzServer {
        address, options, ..
    } = server;
    let level = match mode % 4 {
        0 | 1 => PacketLevel::Application,
        _ => PacketLevel::Initial,
    };
    let mut peer = match level {
        PacketLevel::Application => RawQuicClient::connect(*address, options).await,
        _ => RawQuicClient::silent(*address, options).await,
    };
    if mode.is_multiple_of(4) {
        let streams = STREAMS.map(|(id, bytes)| stream(id, 0, bytes, false));
        peer.send_frames(&streams.concat()).await;
    }
    for packet in packets {
        match mode % 4 {
            3 => {
                let mut datagram = packet.to_vec();
                if mode & 0x4 != 0 {
                    datagram.resize(INITIAL_DATAGRAM, 0);
                }
                peer.send_datagram(&datagram).await;
            }
            _ => peer.send(level, packet).await,
        }
    }
    let close = integers(&[kind::CONNECTION_CLOSE, 0, 0, 0]);
    peer.send(level, &close).await;
    peer
}

impl Witness {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let server = server();
        let client = runtime.block_on(async {
            let mut client = RawQuicClient::connect(server.address, &server.options).await;
            let streams = STREAMS.map(|(id, bytes)| stream(id, 0, bytes, false));
            client.send_frames(&streams.concat()).await;
            client
        });
        Self {
            runtime,
            client,
            next_request: 0,
        }
    }
}

fn server() -> &'static FuzzServer {
    static SERVER: OnceLock<FuzzServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_worker = |name: &str| name.starts_with("apus-worker");
            if thread::current().name().is_some_and(is_worker) {
                HAS_PANICKED.store(true, Ordering::SeqCst);
            }
            report(info);
        }));
        FuzzServer::start()
    })
}

impl FuzzServer {
    fn start() -> Self {
        let authority = CertificateAuthority::generate();
        let issued = authority.ecdsa(&["a"]);
        let certificate =
            Certificate::from_pem(issued.pem.as_bytes(), issued.key.as_bytes()).unwrap();
        let site = TlsSite::new(vec!["a".into()], vec![certificate]);
        let settings = TlsSettings::new(&[site], UnknownName::FirstSite).unwrap();
        let address = ListenAddress::tcp(([127, 0, 0, 1], 0));
        let listener = ListenerPlan {
            tls: Some(Arc::new(settings)),
            http3: Some(Http3Settings {
                retry: RetryMode::Never,
                ..Http3Settings::default()
            }),
            ..ListenerPlan::new(address, Arc::new(|| service_fn(echo)))
        };
        let engine = Engine::start(EnginePlan::new(NonZeroUsize::MIN, vec![listener])).unwrap();
        let listening = engine.status().listening;
        let Some(ListenAddress::Tcp { address, .. }) = listening.first() else {
            panic!("it listens on no TCP address")
        };
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
            .unwrap();
        let mut tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        Self {
            address: *address,
            options: RawQuicOptions::new(tls, "a"),
            _engine: engine,
        }
    }
}

/// Responds with the body of the request.
fn echo(mut request: Request) -> ResponseFuture {
    let body = request.take_body();
    Response::new(StatusCode::OK).with_body(body).into()
}
