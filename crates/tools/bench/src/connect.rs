//! Opening a connection: TCP, and TLS for `https`.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use apus_transport::descriptors::DescriptorPermit;
use apus_transport::tls::TlsStream;
use apus_transport::{StreamSocket, Transport};
use rustls::{ClientConnection, HandshakeKind};
use tokio::net::{TcpSocket, TcpStream};

use crate::failure::LoadFailure;
use crate::tls::ConnectionTls;

/// Bytes that the kernel keeps for a slow client.
const SLOW_RECEIVE_BUFFER: u32 = 16 * 1024;

/// Opens the connections of a worker.
pub(crate) struct Connector {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<ConnectionTls>,
    /// How long a connection may take.
    pub(crate) timeout: Duration,
    /// Whether the kernel has to keep little of what a server sends, so that the server notices a slow client.
    pub(crate) reads_slowly: bool,
}

/// A connection that was opened.
pub(crate) struct OpenedConnection {
    pub(crate) transport: Transport,
    /// How long that took, with TLS.
    pub(crate) took: Duration,
    /// Whether TLS resumed a session.
    pub(crate) resumed: bool,
}

/// Why a connection was not opened.
#[derive(Debug)]
pub(crate) struct OpeningFailure {
    pub(crate) kind: LoadFailure,
    pub(crate) cause: String,
}

impl Connector {
    /// Opens a connection.
    pub(crate) async fn open(&self) -> Result<OpenedConnection, OpeningFailure> {
        let began = Instant::now();
        let socket = match tokio::time::timeout(self.timeout, self.socket()).await {
            Ok(socket) => socket.map_err(|error| OpeningFailure {
                kind: LoadFailure::of_connect(&error),
                cause: format!("connecting to {}: {error}", self.address),
            })?,
            Err(_) => {
                return Err(OpeningFailure {
                    kind: LoadFailure::ConnectTimeout,
                    cause: format!("{} did not accept within {:?}", self.address, self.timeout),
                });
            }
        };
        let Some(tls) = &self.tls else {
            return Ok(OpenedConnection {
                transport: Transport::Clear(socket),
                took: began.elapsed(),
                resumed: false,
            });
        };
        let failed = |cause: String| OpeningFailure {
            kind: LoadFailure::Tls,
            cause: format!("TLS handshake with {}: {cause}", self.address),
        };
        let session = ClientConnection::new(tls.config.clone(), tls.name.clone())
            .map_err(|error| failed(error.to_string()))?;
        let mut stream = Box::new(TlsStream::new(socket, session));
        let handshake = poll_fn(|cx| stream.poll_handshake(cx));
        match tokio::time::timeout(self.timeout, handshake).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(failed("the server closed the connection".to_owned()));
            }
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("it did not end within {:?}", self.timeout))),
        }
        let offered = tls.config.alpn_protocols.first().map(Vec::as_slice);
        if offered == Some(b"h2") && !stream.is_http2() {
            return Err(failed("the server does not offer HTTP/2".to_owned()));
        }
        let resumed = stream.session().handshake_kind() == Some(HandshakeKind::Resumed);
        Ok(OpenedConnection {
            transport: Transport::Tls(stream),
            took: began.elapsed(),
            resumed,
        })
    }

    async fn socket(&self) -> io::Result<StreamSocket> {
        let permit = DescriptorPermit::of_origin().await?;
        let socket = if self.reads_slowly {
            let socket = match self.address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.set_recv_buffer_size(SLOW_RECEIVE_BUFFER)?;
            socket.connect(self.address).await?
        } else {
            TcpStream::connect(self.address).await?
        };
        // The connection works without it, too.
        let _ = socket.set_nodelay(true);
        Ok(StreamSocket::Tcp(socket, permit))
    }
}
