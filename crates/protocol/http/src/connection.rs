//! Facts about the connection of a request: its two ends, and TLS.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
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
    /// What a service prepared for the next requests of the connection.
    pub kept: KeptValue,
}

/// A value that is the same for all requests of a connection, and that a service makes once. There is room for
/// one; another service that keeps its own replaces it.
#[derive(Default)]
pub struct KeptValue(RefCell<Option<Rc<dyn Any>>>);

impl KeptValue {
    /// The value, if one of this type is kept and `is_current` holds; else `make` makes it.
    pub fn get_or_make<T: Any>(
        &self,
        is_current: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Rc<T> {
        let known = self.0.borrow().clone();
        match known.and_then(|known| known.downcast().ok()) {
            Some(known) if is_current(&known) => known,
            _ => {
                let made = Rc::new(make());
                self.0.replace(Some(Rc::clone(&made) as Rc<dyn Any>));
                made
            }
        }
    }
}

/// A copy keeps nothing, because its facts may be changed next.
impl Clone for KeptValue {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for KeptValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptValue").finish_non_exhaustive()
    }
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
    /// The protocol selected by ALPN (RFC 7301), if it is one of HTTP.
    pub alpn: Option<&'static str>,
    /// The fingerprint JA4 of the client, if something asks for it ([`TlsFingerprints`](crate::TlsFingerprints)).
    pub fingerprint: Option<Arc<str>>,
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
    /// The issuer's distinguished name (RFC 4514).
    pub issuer: String,
    /// The alternative names of the subject: hosts, mail addresses, URIs and IP addresses (RFC 5280 section 4.2.1.6).
    pub names: Vec<String>,
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
