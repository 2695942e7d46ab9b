//! HTTP/3 load: connections with a fixed number of open requests each, on one thread.
//!
//! Each connection has a socket of its own, up to [`MOST_SOCKETS`], as browsers have. The load begins once all connections
//! stand and the warm-up is over; then it prints `begin`, and `end` when it is over, so that the CPU time of the server
//! between both can be taken. The last line is a JSON object with what was seen.

mod connection;
mod statistics;
mod verifier;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_quic::{QuicClientTls, QuicEndpoint, QuicKeys, QuicSettings, QuicWorkers, Steering};
use clap::Parser;
use http::Uri;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::task::LocalSet;

use crate::connection::{Target, hold_connection, make_connections};
use crate::statistics::Statistics;
use crate::verifier::AnyCertificate;

/// The most sockets. Further connections share them.
const MOST_SOCKETS: usize = 64;
/// What a server may send over a connection before it is read. Where this end is the bottleneck, what was sent waits in
/// its sockets: the larger the window, the longer a new connection takes to get its share.
const RECEIVE_WINDOW: u32 = 1 << 20;
/// The same with `--once`, where this end shall not be what limits a download.
const DOWNLOAD_WINDOW: u32 = 8 << 20;
/// How long opening the connections may take.
const OPENING: Duration = Duration::from_secs(60);

/// HTTP/3 load on one thread. Certificates are not verified.
#[derive(Parser)]
struct Arguments {
    /// https://ADDRESS:PORT/PATH
    url: Uri,
    /// Connections.
    #[arg(short, long, default_value_t = 64)]
    connections: usize,
    /// Open requests of each connection.
    #[arg(short = 'm', long, default_value_t = 10)]
    streams: usize,
    /// Seconds of load.
    #[arg(short, long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds of load before.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// A new connection for each request: full handshakes.
    #[arg(long)]
    handshakes: bool,
    /// With --handshakes: resume a session of the same server.
    #[arg(long, requires = "handshakes")]
    resume: bool,
    /// One request on each connection, which then stays open until the standard input ends.
    #[arg(long, conflicts_with = "handshakes")]
    hold: bool,
    /// One request on each connection, without a warm-up. It ends when all have their responses.
    #[arg(long, conflicts_with_all = ["handshakes", "hold"])]
    once: bool,
    /// Bytes that each body must have.
    #[arg(long)]
    length: Option<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let target = Rc::new(Target::new(&arguments.url, arguments.length)?);
    let statistics = Rc::new(Statistics::new(arguments.connections));
    let certificates = Arc::new(AnyCertificate::new(default_provider()));
    let count = arguments.connections.min(MOST_SOCKETS);
    let window = match arguments.once {
        true => DOWNLOAD_WINDOW,
        false => RECEIVE_WINDOW,
    };
    let endpoints = (0..count)
        .map(|_| endpoint(target.address, window))
        .collect::<Result<Vec<_>, _>>()?;
    let begin = Instant::now();
    if arguments.once {
        statistics.begin();
    }
    for endpoint in endpoints.iter().cycle().take(arguments.connections) {
        // Each resumes sessions of its own.
        let tls = client_tls(arguments.resume, &certificates)?;
        let endpoint = endpoint.clone();
        let (target, statistics) = (Rc::clone(&target), Rc::clone(&statistics));
        let streams = arguments.streams;
        if arguments.handshakes {
            tokio::task::spawn_local(make_connections(endpoint, tls, target, statistics));
        } else {
            let held = arguments.hold || arguments.once;
            tokio::task::spawn_local(hold_connection(
                endpoint, tls, target, statistics, streams, held,
            ));
        }
    }
    while !arguments.handshakes && statistics.settled() < arguments.connections {
        if arguments.once && statistics.has_errors() {
            break;
        }
        if !arguments.once && begin.elapsed() > OPENING {
            let settled = statistics.settled();
            return Err(format!("only {settled} connections after {OPENING:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if arguments.once {
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}", statistics.report(seconds, certificates.count()));
        return Ok(());
    }
    if arguments.hold {
        println!("begin");
        return hold().await;
    }
    tokio::time::sleep(Duration::from_secs_f64(arguments.warm_up)).await;
    println!("begin");
    statistics.begin();
    let (began, certificates_before) = (Instant::now(), certificates.count());
    tokio::time::sleep(Duration::from_secs_f64(arguments.seconds)).await;
    let seconds = began.elapsed().as_secs_f64();
    statistics.end();
    println!("end");
    let full_handshakes = certificates.count() - certificates_before;
    println!("{}", statistics.report(seconds, full_handshakes));
    Ok(())
}

/// Runs the connections until the standard input ends.
async fn hold() -> Result<(), Box<dyn Error>> {
    tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await??;
    Ok(())
}

/// A socket for some connections.
fn endpoint(server: SocketAddr, window: u32) -> Result<QuicEndpoint, Box<dyn Error>> {
    let workers = QuicWorkers::new(QuicKeys::generate()?, Steering::default());
    let own: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let settings = QuicSettings {
        receive_window: window,
        stream_receive_window: window,
        max_idle_timeout: Duration::from_secs(300),
        max_bidirectional_streams: 0,
        ..QuicSettings::default()
    };
    let (endpoint, task) = QuicEndpoint::new(workers.bind_client(own)?, settings, None)?;
    tokio::task::spawn_local(task);
    Ok(endpoint)
}

fn client_tls(
    resume: bool,
    certificates: &Arc<AnyCertificate>,
) -> Result<QuicClientTls, Box<dyn Error>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(certificates) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.resumption = if resume {
        Resumption::in_memory_sessions(1)
    } else {
        Resumption::disabled()
    };
    Ok(QuicClientTls::new(Arc::new(config))?)
}
