//! A client of servers that URLs name, over TLS or in clear text: certificate authorities, collectors of metrics, and servers of the operator.
//!
//! Whole requests and whole responses, one after the other. What serves clients uses connections and their pools.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use apus_http::{Body, BodyError, Frame, Headers, Method, StatusCode};
use apus_transport::tls::TlsError;
use bytes::{Bytes, BytesMut};
use http::Uri;
use rustls::pki_types::CertificateDer;

use crate::{
    Address, ClientRequest, ClientRequestHead, ClientResponse, ClientTlsSettings, ConnectionReturn,
    Http1Client, MultiplexedClient, Origin, OriginConnection, Protocol, ProxyHead, RequestFailure,
    RequestTemplate, ResponseRules, Timeouts, Tls, connect,
};

/// The most bytes of a response that are read. The longest are chains of certificates, of some kilobytes each.
const MAX_BYTES: usize = 1024 * 1024;

/// A client of servers that URLs name. It belongs to one thread, as connections do.
pub struct UrlClient {
    /// The authorities that may sign the certificates of servers; `None` means those that the system trusts.
    authorities: Option<Vec<CertificateDer<'static>>>,
    only_https: bool,
    protocol: Protocol,
    /// By the name of the server. Reading what the system trusts takes milliseconds, and names come from the configuration.
    tls: RefCell<HashMap<String, Tls>>,
    /// The last connection, for the next request to the same server. An order takes a dozen.
    idle: Rc<LastConnection>,
    /// The last connection of HTTP/2, and whom it leads to: the authority, which names the host and the port.
    shared: RefCell<Option<(String, MultiplexedClient)>>,
}

#[derive(Default)]
struct LastConnection(RefCell<Option<(Origin, Http1Client)>>);

/// Takes a connection back, if the client is still there.
struct LastConnectionReturn {
    idle: Rc<LastConnection>,
    origin: Origin,
}

/// A request whose body is in memory.
#[derive(Clone, Debug)]
pub struct UrlRequest {
    /// The method.
    pub method: Method,
    /// The URL, with `http` or `https`.
    pub url: Uri,
    /// Its fields.
    pub headers: Headers,
    /// Its body; a request with an empty one has none.
    pub body: Bytes,
}

/// A whole response.
#[derive(Debug)]
pub struct UrlResponse {
    /// The status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: Headers,
    /// The body.
    pub body: Bytes,
    /// The trailer section; empty without one.
    pub trailers: Headers,
}

/// Why there is no whole response.
#[derive(Debug)]
#[non_exhaustive]
pub enum UrlRequestError {
    /// The URL is not one that this client can reach.
    Url(&'static str),
    /// The name of the server has no address.
    Resolve(std::io::Error),
    /// TLS cannot be used.
    Tls(TlsError),
    /// Nothing of the request was sent.
    Unsent(String),
    /// There is no response to what was sent.
    Unanswered(String),
    /// The response broke off.
    Body(BodyError),
    /// The response has more bytes than are read.
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
    pub fn new(authorities: Option<Vec<CertificateDer<'static>>>) -> Self {
        Self {
            authorities,
            only_https: false,
            protocol: Protocol::Http1,
            tls: RefCell::default(),
            idle: Rc::default(),
            shared: RefCell::default(),
        }
    }

    /// Refuses URLs without TLS.
    #[must_use]
    pub fn only_https(mut self) -> Self {
        self.only_https = true;
        self
    }

    /// Uses HTTP/2, in clear text with prior knowledge.
    #[must_use]
    pub fn http2(mut self) -> Self {
        self.protocol = Protocol::Http2;
        self
    }

    /// Sends a request, and reads the response.
    ///
    /// # Errors
    /// There is no whole response.
    pub async fn send(&self, request: UrlRequest) -> Result<UrlResponse, UrlRequestError> {
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
                te_trailers: self.protocol == Protocol::Http2,
                expects_continue: false,
                params: None,
            }),
            interim: None,
            timeouts: Rc::new(Timeouts::default()),
            stderr: None,
        };
        let body = || Body::Bytes(request.body.clone());
        if self.protocol == Protocol::Http2 {
            return self.send_shared(&target, tls, &template, body()).await;
        }
        if let Some((origin, connection)) = self.idle.take(&target, tls.as_ref()) {
            match self.exchange(origin, connection, &template, body()).await {
                // The server closed it while the request was on its way to the socket.
                Err(UrlRequestError::Unsent(_)) => {}
                result => return result,
            }
        }
        let (origin, connection) = self.connect_to(&target, tls, &template.timeouts).await?;
        let OriginConnection::Http1(connection) = connection else {
            return Err(UrlRequestError::Url("the server does not speak HTTP/1.1"));
        };
        self.exchange(origin, connection, &template, body()).await
    }

    /// Sends a request over a connection that others may use, too.
    async fn send_shared(
        &self,
        target: &UrlTarget<'_>,
        tls: Option<Tls>,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<UrlResponse, UrlRequestError> {
        let known = self.shared.borrow().clone();
        let known = known.filter(|(authority, connection)| {
            authority == target.authority && !connection.is_closed() && connection.has_room()
        });
        let connection = match known {
            Some((_, connection)) => connection,
            None => {
                let (_, connection) = self.connect_to(target, tls, &template.timeouts).await?;
                let OriginConnection::Multiplexed(connection) = connection else {
                    return Err(UrlRequestError::Url("the server does not speak HTTP/2"));
                };
                let kept = (target.authority.to_owned(), connection.clone());
                self.shared.replace(Some(kept));
                connection
            }
        };
        let response = connection.send_attempt(template, body).await;
        let read = match response {
            Ok(response) => read(response).await,
            Err(failure) => Err(UrlRequestError::of(failure)),
        };
        if read.is_err() {
            self.shared.replace(None);
        }
        read
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

    /// Connects to the first address of a server that accepts.
    async fn connect_to(
        &self,
        target: &UrlTarget<'_>,
        tls: Option<Tls>,
        timeouts: &Timeouts,
    ) -> Result<(Origin, OriginConnection), UrlRequestError> {
        let addresses = tokio::net::lookup_host((target.host, target.port))
            .await
            .map_err(UrlRequestError::Resolve)?;
        let mut failure = UrlRequestError::Url("the name of the server has no address");
        for address in addresses {
            let origin = Origin {
                address: Address::Ip(address),
                tls: tls.clone(),
                protocol: self.protocol,
                proxy_head: ProxyHead::None,
                responses: ResponseRules::default(),
            };
            match connect(&origin, None, timeouts).await {
                Ok(connection) => return Ok((origin, connection)),
                Err(error) => failure = UrlRequestError::of(error),
            }
        }
        Err(failure)
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
    let mut trailers = Headers::new();
    while let Some(frame) = response.body.frame().await {
        let data = match frame.map_err(UrlRequestError::Body)? {
            Frame::Data(data) => data,
            Frame::Trailers(fields) => {
                trailers = fields;
                continue;
            }
            Frame::File(_) => continue,
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
        trailers,
    })
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

impl fmt::Debug for UrlClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlClient").finish_non_exhaustive()
    }
}

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
