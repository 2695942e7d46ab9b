//! Facts about the connection of a request: its two ends, and TLS.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Facts about the connection of a request.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The number of the connection, which is unique in this process.
    pub id: u64,
    /// The client, from the PROXY protocol of a trusted sender, or else from the socket.
    pub peer: Peer,
    /// The address that the client reached.
    pub local: Peer,
    /// The result of the TLS handshake; `None` without TLS.
    pub tls: Option<TlsInfo>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An IPv4 or IPv6 address and port. IPv4-mapped IPv6 addresses are given as IPv4.
    Ip(SocketAddr),
    /// A Unix socket; the other side has no address.
    Unix,
}

impl Peer {
    /// The IP address, if there is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip()),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix:"),
        }
    }
}

/// The result of a TLS handshake.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    /// The protocol version.
    pub version: TlsVersion,
    /// The cipher suite by its IANA name.
    pub cipher: &'static str,
    /// The server name that the client requested, in lower case.
    pub server_name: Option<Arc<str>>,
    /// The names of the certificate of this connection. A request for another host is misdirected (RFC
    /// 9110 section 15.5.20).
    pub certificate_names: Arc<[Box<str>]>,
    /// The verified certificate of the client; `None` if it sent none.
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

/// A client certificate whose chain was verified.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The whole certificate in DER form.
    pub der: Box<[u8]>,
    /// The subject's distinguished name (RFC 4514).
    pub subject: String,
    /// The serial number in hexadecimal.
    pub serial: String,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl TlsVersion {
    /// The usual name, as in access logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }
}
