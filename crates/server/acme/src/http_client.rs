//! A client of servers that URLs name, over TLS or in clear text: certificate authorities, and servers of the operator.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientResponse, ClientTlsSettings, ConnectionReturn,
    Http1Client, Origin, OriginConnection, Protocol, ProxyHead, RequestFailure, RequestTemplate,
    ResponseRules, Timeouts, Tls, connect,
};
use apus_http::{Body, BodyError, Frame, Headers, Method, StatusCode};
use apus_transport::tls::TlsError;
use bytes::{Bytes, BytesMut};
use http::Uri;
use rustls::pki_types::CertificateDer;

/// The most bytes of a response that are read. The longest are chains of certificates, of some kilobytes each.
const MAX_BYTES: usize = 1024 * 1024;

/// A client of servers that URLs name. It belongs to one thread, as connections do.
pub(crate) struct UrlClient {
    /// The authorities that may sign the certificates of servers; `None` means those that the system trusts.
    authorities: Option<Vec<CertificateDer<'static>>>,
    only_https: bool,
    /// By the name of the server. Reading what the system trusts takes milliseconds, and names come from the configuration.
    tls: RefCell<HashMap<String, Tls>>,
    /// The last connection, for the next request to the same server. An order takes a dozen.
    idle: Rc<LastConnection>,
}

#[derive(Default)]
struct LastConnection(RefCell<Option<(Origin, Http1Client)>>);

/// Takes a connection back, if the client is still there.
struct LastConnectionReturn {
    idle: Rc<LastConnection>,
    origin: Origin,
}

/// A request whose body is in memory.
#[derive(Clone)]
pub(crate) struct UrlRequest {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// A whole response.
pub(crate) struct UrlResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// Why there is no whole response.
#[derive(Debug)]
pub(crate) enum UrlRequestError {
    /// The URL is not one that this client can reach.
    Url(&'static str),
    /// The name of the server has no address.
    Resolve(std::io::Error),
    Tls(TlsError),
    /// Nothing of the request was sent.
    Unsent(String),
    /// There is no response to what was sent.
    Unanswered(String),
    Body(BodyError),
    /// The response has more than [`MAX_BYTES`].
    TooLong,
}

/// A server, and what a request to it begins with.
struct UrlTarget<'a> {
    is_secure: bool,
    host: &'a str,
    port: u16,
    authority: &'a str,
    path: &'a str,
}

impl UrlClient {
    /// A client that trusts servers whose certificates these authorities signed; `None` means those that the system trusts.
    pub(crate) fn new(authorities: Option<Vec<CertificateDer<'static>>>) -> Self {
        Self {
            authorities,
            only_https: false,
            tls: RefCell::default(),
            idle: Rc::default(),
        }
    }

    /// Refuses URLs without TLS.
    pub(crate) fn only_https(mut self) -> Self {
        self.only_https = true;
        self
    }

    /// Sends a request, and reads the response.
    pub(crate) async fn send(&self, request: UrlRequest) -> Result<UrlResponse, UrlRequestError> {
        let target = UrlTarget::of(&request.url)?;
        if self.only_https && !target.is_secure {
            return Err(UrlRequestError::Url("expected a URL with https"));
        }
        let tls = self.tls(&target)?;
        let template = RequestTemplate {
            head: Rc::new(ClientRequestHead {
                method: request.method,
                scheme: if target.is_secure { "https" } else { "http" },
                authority: target.authority.into(),
                target: target.path.into(),
                headers: request.headers,
                upgrade: None,
                te_trailers: false,
                expects_continue: false,
                params: None,
            }),
            interim: None,
            timeouts: Rc::new(Timeouts::default()),
            stderr: None,
        };
        let body = || Body::Bytes(request.body.clone());
        if let Some((origin, connection)) = self.idle.take(&target, tls.as_ref()) {
            match self.exchange(origin, connection, &template, body()).await {
                // The server closed it while the request was on its way to the socket.
                Err(UrlRequestError::Unsent(_)) => {}
                result => return result,
            }
        }
        let (origin, connection) = connect_to(&target, tls, &template.timeouts).await?;
        self.exchange(origin, connection, &template, body()).await
    }

    /// TLS for a server; `None` without.
    fn tls(&self, target: &UrlTarget<'_>) -> Result<Option<Tls>, UrlRequestError> {
        if !target.is_secure {
            return Ok(None);
        }
        if let Some(tls) = self.tls.borrow().get(target.host) {
            return Ok(Some(tls.clone()));
        }
        let tls = Tls::new(&ClientTlsSettings {
            authorities: self.authorities.clone(),
            ..ClientTlsSettings::new(target.host)
        });
        let tls = tls.map_err(UrlRequestError::Tls)?;
        let mut known = self.tls.borrow_mut();
        known.insert(target.host.to_owned(), tls.clone());
        Ok(Some(tls))
    }

    async fn exchange(
        &self,
        origin: Origin,
        mut connection: Http1Client,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<UrlResponse, UrlRequestError> {
        // In clear text nothing would say that the name of another request still has this address.
        if origin.tls.is_some() {
            connection.set_connection_return(Rc::new(LastConnectionReturn {
                idle: Rc::clone(&self.idle),
                origin,
            }));
        }
        let request = ClientRequest {
            template: template.clone(),
            body,
        };
        let response = connection
            .send(request)
            .await
            .map_err(UrlRequestError::of)?;
        read(response).await
    }
}

/// Reads the whole of a response.
async fn read(mut response: ClientResponse) -> Result<UrlResponse, UrlRequestError> {
    let mut body = BytesMut::new();
    while let Some(frame) = response.body.frame().await {
        let Frame::Data(data) = frame.map_err(UrlRequestError::Body)? else {
            continue;
        };
        if body.len().saturating_add(data.len()) > MAX_BYTES {
            return Err(UrlRequestError::TooLong);
        }
        body.extend_from_slice(&data);
    }
    Ok(UrlResponse {
        status: response.status,
        headers: response.headers,
        body: body.freeze(),
    })
}

/// Connects to the first address of a server that accepts.
async fn connect_to(
    target: &UrlTarget<'_>,
    tls: Option<Tls>,
    timeouts: &Timeouts,
) -> Result<(Origin, Http1Client), UrlRequestError> {
    let addresses = tokio::net::lookup_host((target.host, target.port))
        .await
        .map_err(UrlRequestError::Resolve)?;
    let mut failure = UrlRequestError::Url("the name of the server has no address");
    for address in addresses {
        let origin = origin(address, tls.clone());
        match connect(&origin, None, timeouts).await {
            Ok(OriginConnection::Http1(connection)) => return Ok((origin, connection)),
            // What is asked for is HTTP/1.1.
            Ok(OriginConnection::Multiplexed(_) | OriginConnection::FastCgi(_)) => {}
            Err(error) => failure = UrlRequestError::of(error),
        }
    }
    Err(failure)
}

fn origin(address: SocketAddr, tls: Option<Tls>) -> Origin {
    Origin {
        address: Address::Ip(address),
        tls,
        protocol: Protocol::Http1,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    }
}

impl LastConnection {
    /// The connection, if it leads to this server and can carry a request.
    fn take(&self, target: &UrlTarget<'_>, tls: Option<&Tls>) -> Option<(Origin, Http1Client)> {
        let (origin, mut connection) = self.0.take()?;
        // TLS is of one name.
        let is_same_server = origin.tls.as_ref() == tls
            && matches!(&origin.address, Address::Ip(address) if address.port() == target.port);
        (is_same_server && connection.is_usable()).then_some((origin, connection))
    }
}

impl ConnectionReturn<Http1Client> for LastConnectionReturn {
    fn return_connection(&self, connection: Http1Client) {
        self.idle.0.replace(Some((self.origin.clone(), connection)));
    }
}

impl<'a> UrlTarget<'a> {
    fn of(url: &'a Uri) -> Result<Self, UrlRequestError> {
        let is_secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlRequestError::Url("expected a URL with http or https")),
        };
        let authority = url
            .authority()
            .ok_or(UrlRequestError::Url("expected a URL with a host"))?;
        let host = authority.host();
        let written = authority.as_str();
        Ok(Self {
            is_secure,
            // An IPv6 address stands in brackets (RFC 3986 section 3.2.2).
            host: host.trim_start_matches('[').trim_end_matches(']'),
            port: url.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            // Not with the part before `@`, which is not for the server (RFC 9110 section 4.2.4).
            authority: written.rsplit('@').next().unwrap_or(written),
            path: url.path_and_query().map_or("/", |path| path.as_str()),
        })
    }
}

impl UrlRequestError {
    /// Without the body of the request, which belongs to this thread.
    fn of(failure: RequestFailure) -> Self {
        let why = failure.to_string();
        if failure.request_sent {
            Self::Unanswered(why)
        } else {
            Self::Unsent(why)
        }
    }
}

impl fmt::Display for UrlRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => f.write_str(why),
            Self::Resolve(error) => write!(f, "the name of the server has no address: {error}"),
            Self::Tls(error) => error.fmt(f),
            Self::Unsent(why) | Self::Unanswered(why) => f.write_str(why),
            Self::Body(error) => write!(f, "the response broke off: {error}"),
            Self::TooLong => write!(f, "the response has more than {MAX_BYTES} bytes"),
        }
    }
}

impl std::error::Error for UrlRequestError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_to_connect_and_what_to_ask_for() {
        for (url, expected) in [
            (
                "https://ca.example/dir",
                Some((true, "ca.example", 443, "ca.example", "/dir")),
            ),
            (
                "http://a.example",
                Some((false, "a.example", 80, "a.example", "/")),
            ),
            (
                "http://a.example:81/b?c",
                Some((false, "a.example", 81, "a.example:81", "/b?c")),
            ),
            (
                "https://u:p@a.example/",
                Some((true, "a.example", 443, "a.example", "/")),
            ),
            (
                "https://[::1]:8443/x",
                Some((true, "::1", 8443, "[::1]:8443", "/x")),
            ),
            ("ftp://a.example/", None),
            ("/path", None),
        ] {
            let uri: Uri = url.parse().unwrap();
            let target = UrlTarget::of(&uri).ok();
            let found =
                target.map(|own| (own.is_secure, own.host, own.port, own.authority, own.path));
            assert_eq!(found, expected, "{url}");
        }
    }
}
