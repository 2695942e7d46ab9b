//! The request that a service gets.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use http::{Method, StatusCode, Version};

use crate::client::ForwardedInfo;
use crate::fields::PageLanguage;
use crate::path::{self, InvalidPath, PathForms};
use crate::request_id::RequestNumber;
use crate::request_record::{RequestEvent, RequestRecord};
use crate::{
    Authority, Body, Client, ConnectionInfo, ErrorFormat, Extensions, FieldSet, Headers,
    HopByHopFields, Interim, InvalidTarget, KnownField, RequestId, Target, list,
};

/// A request: head, body, connection, and the extensions that layers attach.
///
/// The facts of a request are established once, and all services read them here: the
/// [client](Self::client), the [scheme](Self::scheme), [authority](Self::authority) and
/// [port](Self::port) that it used, the [normal form of the path](Self::normal_path), and whether the
/// request [has a body](Self::has_body). Its [fields](Self::headers) are end-to-end: hop-by-hop fields (RFC
/// 9110 section 7.6.1) and the fields that `Connection` names are removed before a service gets it.
pub struct Request {
    head: Box<Head>,
    /// The target that the client sent, if it was replaced.
    original_target: Option<Box<Target>>,
    /// The forms of the path; `None` for one that is in its normal form.
    path: OnceCell<Result<Option<Box<PathForms>>, InvalidPath>>,
    /// The preferred format of errors, once it was asked for.
    error_format: Cell<Option<Option<ErrorFormat>>>,
    /// What a router found for the method, the host and the path.
    routed: OnceCell<Rc<dyn Any>>,
    authority: Authority,
    /// The client as trusted proxies describe it, if the request came through one.
    forwarded: Option<Rc<ForwardedInfo>>,
    are_identity_fields_removed: bool,
    has_body: bool,
    body: Body,
    connection: Rc<ConnectionInfo>,
    interim: Interim,
    extensions: Extensions,
    number: RequestNumber,
    arrived: Option<Instant>,
    record: Option<RequestRecord>,
}

/// The head of a request. A codec creates it in its final place, a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target; a rewrite replaces it.
    pub target: Target,
    /// The protocol version of the request.
    pub version: Version,
    /// The field lines of end-to-end fields.
    pub headers: Headers,
    /// The content of the hop-by-hop fields.
    pub hop_by_hop: HopByHopFields,
}

/// The parts of a [`Request`].
pub struct RequestParts {
    /// The method.
    pub method: Method,
    /// The target; a rewrite replaces it.
    pub target: Target,
    /// The protocol version of the request.
    pub version: Version,
    /// The field lines.
    pub headers: Headers,
    /// The body.
    pub body: Body,
    /// The connection.
    pub connection: Rc<ConnectionInfo>,
    /// Values that layers attach for inner layers. Without any, they cost no allocation.
    pub extensions: Extensions,
}

impl Request {
    /// Creates a request from its parts. The fields may include hop-by-hop fields.
    pub fn new(parts: RequestParts) -> Self {
        let RequestParts {
            method,
            target,
            version,
            mut headers,
            body,
            connection,
            extensions,
        } = parts;
        let hop_by_hop = HopByHopFields::take(&mut headers, version);
        let head = Head {
            method,
            target,
            version,
            headers,
            hop_by_hop,
        };
        Self {
            extensions,
            ..Self::from_head(Box::new(head), body, connection)
        }
    }

    /// Creates a request that came over a connection.
    pub fn from_head(head: Box<Head>, body: Body, connection: Rc<ConnectionInfo>) -> Self {
        Self {
            authority: authority_of(&head, connection.tls.is_some()),
            head,
            original_target: None,
            path: OnceCell::new(),
            error_format: Cell::new(None),
            routed: OnceCell::new(),
            forwarded: None,
            are_identity_fields_removed: false,
            has_body: !body.is_empty(),
            body,
            connection,
            interim: Interim::default(),
            extensions: Extensions::new(),
            number: RequestNumber::next(),
            arrived: None,
            record: None,
        }
    }

    /// A copy of the request with all its facts, but without body, interim responses, offer of another
    /// protocol, and extensions.
    pub fn without_body(&self) -> Self {
        let mut head = self.head.clone();
        head.hop_by_hop.upgrade = None;
        Self {
            head,
            original_target: self.original_target.clone(),
            path: self.path.clone(),
            error_format: self.error_format.clone(),
            routed: OnceCell::new(),
            authority: self.authority.clone(),
            forwarded: self.forwarded.clone(),
            are_identity_fields_removed: self.are_identity_fields_removed,
            has_body: false,
            body: Body::Empty,
            connection: Rc::clone(&self.connection),
            interim: Interim::default(),
            extensions: Extensions::new(),
            number: self.number.clone(),
            arrived: self.arrived,
            record: self.record.clone(),
        }
    }

    /// Splits the request into its parts.
    pub fn into_parts(self) -> RequestParts {
        let Head {
            method,
            target,
            version,
            headers,
            hop_by_hop: _,
        } = *self.head;
        RequestParts {
            method,
            target,
            version,
            headers,
            body: self.body,
            connection: self.connection,
            extensions: self.extensions,
        }
    }

    /// The id of the request: the same in logs, in the response, and towards origins.
    pub fn id(&self) -> RequestId {
        self.number.id()
    }

    /// Gives the request the id that a trusted proxy, or the request that it belongs to, has for it.
    pub fn set_id(&mut self, id: RequestId) {
        self.number = RequestNumber::Known(id);
    }

    /// When the first byte of its head arrived, if a connection has noted that.
    pub fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    /// Sets [`Request::arrived`].
    pub fn set_arrived(&mut self, at: Instant) {
        self.arrived = Some(at);
    }

    pub(crate) fn host_bytes(&self) -> &[u8] {
        self.authority.host_bytes()
    }

    pub(crate) fn number(&self) -> &RequestNumber {
        &self.number
    }

    /// The record of the request, if there is one.
    pub fn record(&self) -> Option<&RequestRecord> {
        self.record.as_ref()
    }

    pub(crate) fn set_record(&mut self, record: RequestRecord) {
        self.record = Some(record);
    }

    /// Has no record any more: for a copy that is sent on behalf of nobody.
    pub fn remove_record(&mut self) {
        self.record = None;
    }

    /// Adds an event to the record of the request, if there is one; `event` is not called otherwise.
    #[inline]
    pub fn note(&self, event: impl FnOnce() -> RequestEvent) {
        if let Some(record) = &self.record {
            record.note(event());
        }
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// Changes the method.
    pub fn set_method(&mut self, method: Method) {
        self.head.method = method;
        self.routed = OnceCell::new();
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.head.target
    }

    /// The path as it was sent, percent-encoded.
    pub fn path(&self) -> &str {
        self.head.target.path()
    }

    /// The query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.head.target.query()
    }

    /// Replaces path and query, as a rewrite does.
    ///
    /// # Errors
    /// The text is not in origin form.
    pub fn set_path_and_query(&mut self, text: &str) -> Result<(), InvalidTarget> {
        if !text.starts_with('/') {
            return Err(InvalidTarget);
        }
        let target = Target::parse(&Method::GET, text)?;
        let replaced = std::mem::replace(&mut self.head.target, target);
        self.path = OnceCell::new();
        self.routed = OnceCell::new();
        self.original_target
            .get_or_insert_with(|| Box::new(replaced));
        Ok(())
    }

    /// Restores the target that the client sent.
    pub fn restore_target(&mut self) {
        if let Some(original) = self.original_target.take() {
            self.head.target = *original;
            self.path = OnceCell::new();
            self.routed = OnceCell::new();
        }
    }

    /// The target that the client sent, before any rewrite.
    pub fn original_target(&self) -> &Target {
        self.original_target.as_deref().unwrap_or(&self.head.target)
    }

    /// Whether the path or the query was replaced.
    pub fn is_rewritten(&self) -> bool {
        self.original_target.is_some()
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The field lines.
    pub fn headers(&self) -> &Headers {
        &self.head.headers
    }

    /// The field lines to change.
    pub fn headers_mut(&mut self) -> &mut Headers {
        // They may change `Accept`.
        self.error_format.set(None);
        &mut self.head.headers
    }

    /// The body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The body to read.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Takes the body, and leaves an empty one.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Ends the body with an error after more than `max` bytes.
    pub fn limit_body(&mut self, max: u64) {
        let body = self.take_body();
        self.body = body.limit(max);
    }

    /// Whether the request has a body, or may have one: a body without a declared length may be empty. It
    /// stays true after the body is taken.
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// The path in its normal form (see [`path::normalise`]), with an encoded slash as a slash. Locations
    /// and rules match it.
    ///
    /// # Errors
    /// Servers would disagree about the normal form; the response is 400.
    pub fn normal_path(&self) -> Result<&[u8], InvalidPath> {
        Ok(match self.path_forms()? {
            None => self.path().as_bytes(),
            Some(forms) => &forms.normal,
        })
    }

    /// As [`Request::normal_path`], for services that do not read an encoded slash as a slash.
    ///
    /// # Errors
    /// As [`Request::normal_path`], and if the path has an encoded slash.
    pub fn plain_path(&self) -> Result<&[u8], InvalidPath> {
        match self.path_forms()? {
            Some(forms) if forms.has_encoded_slash => Err(InvalidPath::EncodedSlash),
            _ => self.normal_path(),
        }
    }

    /// The path that is forwarded to another server (see [`path::normalise_encoded`]). Its decoded form is
    /// [`Request::normal_path`].
    ///
    /// # Errors
    /// As [`Request::normal_path`].
    pub fn forwarded_path(&self) -> Result<&str, InvalidPath> {
        Ok(match self.path_forms()? {
            None => self.path(),
            Some(forms) => &forms.encoded,
        })
    }

    /// The status of the response if the path has no normal form. `OPTIONS *` applies to the server as a whole (RFC
    /// 9110 section 9.3.7), and CONNECT has no path.
    pub fn invalid_path_status(&self) -> StatusCode {
        match *self.method() {
            Method::OPTIONS if self.path() == "*" => StatusCode::NO_CONTENT,
            Method::CONNECT => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn path_forms(&self) -> Result<Option<&PathForms>, InvalidPath> {
        let resolve = || Ok(path::resolve(self.path())?.map(Box::new));
        match self.path.get_or_init(resolve) {
            Ok(forms) => Ok(forms.as_deref()),
            Err(error) => Err(*error),
        }
    }

    /// The format that the client prefers for the bodies of errors (RFC 9110 section 12.5.1); `None` without a
    /// preference.
    ///
    /// Most responses are no errors, and who responds to one rarely has the request any more. So this is a value that
    /// outlives the request and needs no copy of `Accept`; the field is read at most once.
    pub fn error_format(&self) -> Option<ErrorFormat> {
        self.error_format.get().unwrap_or_else(|| {
            let preferred = ErrorFormat::preferred(&self.head.headers);
            self.error_format.set(Some(preferred));
            preferred
        })
    }

    /// The language of the error page for a client that prefers HTML; `None` for others, for whom `Accept-Language` is not read.
    pub fn error_page_language(&self) -> Option<PageLanguage> {
        (self.error_format() == Some(ErrorFormat::Html))
            .then(|| PageLanguage::preferred(&self.head.headers))
    }

    /// What a router noted for this request by [`Request::set_routed`]. It is forgotten when the method, the path or the
    /// authority changes, as a router may find something else then.
    pub fn routed(&self) -> Option<&Rc<dyn Any>> {
        self.routed.get()
    }

    /// Takes what a router noted for this request.
    pub fn take_routed(&mut self) -> Option<Rc<dyn Any>> {
        self.routed.take()
    }

    /// Notes what a router found for this request, unless another one has noted something.
    pub fn set_routed(&self, found: Rc<dyn Any>) {
        let _ = self.routed.set(found);
    }

    /// The connection. Its other end may be a proxy; the sender of the request is [`Request::client`].
    pub fn connection(&self) -> &Rc<ConnectionInfo> {
        &self.connection
    }

    /// The client: the other end of the connection, or the client that a trusted proxy names.
    pub fn client(&self) -> Client {
        match &self.forwarded {
            Some(forwarded) => forwarded.client,
            None => self.connection.peer.into(),
        }
    }

    /// Whether a trusted proxy describes the client; else all is known from the connection and the head.
    pub fn is_forwarded(&self) -> bool {
        self.forwarded.is_some()
    }

    /// The trusted proxies that the request came through, the one next to the client first.
    pub fn proxies(&self) -> &[IpAddr] {
        self.forwarded
            .as_ref()
            .map_or(&[], |forwarded| &forwarded.proxies)
    }

    /// Whether the client used TLS, to this server or to the trusted proxy that it reached.
    pub fn is_secure(&self) -> bool {
        match &self.forwarded {
            Some(forwarded) => forwarded.is_secure,
            None => self.connection.tls.is_some(),
        }
    }

    /// The scheme that the client used: `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// The port that the client used: the port of [`Request::authority`], or the default of the scheme.
    /// Without an authority it is the one that the connection reached; `None` if that is a Unix socket.
    pub fn port(&self) -> Option<u16> {
        if self.authority.is_empty() {
            return Client::from(self.connection.local).port;
        }
        let default = if self.is_secure() { 443 } else { 80 };
        Some(self.authority.port().unwrap_or(default))
    }

    /// `host [":" port]` that the client used, in its normal form: from a trusted proxy, from the target,
    /// or from the `Host` field (RFC 9112 section 3.3).
    pub fn authority(&self) -> Option<&str> {
        Some(self.authority.as_str()).filter(|authority| !authority.is_empty())
    }

    /// The authority exactly as the client sent it: its case, and a port even if it is the default one. If a trusted
    /// proxy names another one, this is [`Request::authority`].
    pub fn sent_authority(&self) -> Option<&str> {
        let sent = sent_authority(&self.head).and_then(|sent| std::str::from_utf8(sent).ok());
        let is_same = |sent: &&str| {
            let normal = Authority::normalise(sent.as_bytes(), self.is_secure());
            normal.is_some_and(|normal| normal == self.authority)
        };
        sent.filter(is_same).or_else(|| self.authority())
    }

    /// The host of [`Request::authority`] without its port, in lower case.
    pub fn host(&self) -> Option<&str> {
        Some(self.authority.host()).filter(|host| !host.is_empty())
    }

    /// The protocols of `Upgrade`, where the client offers to switch to one of them (RFC 9110 section 7.8);
    /// the protocol of an extended CONNECT (RFC 8441).
    pub fn upgrade(&self) -> Option<&str> {
        self.head.hop_by_hop.upgrade.as_deref()
    }

    /// Whether `Upgrade` offers a protocol.
    pub fn offers_upgrade_to(&self, protocol: &str) -> bool {
        self.upgrade()
            .is_some_and(|offered| list::has_member(offered.as_bytes(), protocol))
    }

    /// Whether the client takes trailer fields (`TE: trailers`).
    pub fn accepts_trailers(&self) -> bool {
        self.head.hop_by_hop.accepts_trailers
    }

    /// The authority that the request itself names, for a scheme.
    pub(crate) fn authority_as_sent(&self, is_secure: bool) -> Authority {
        authority_of(&self.head, is_secure)
    }

    /// Sets the client and the authority that trusted proxies name.
    pub(crate) fn set_forwarded(&mut self, forwarded: ForwardedInfo, authority: Authority) {
        self.authority = authority;
        self.routed = OnceCell::new();
        self.forwarded = Some(Rc::new(forwarded));
    }

    /// Removes identity fields, except for those for which `is_kept` returns true.
    pub(crate) fn remove_identity_fields(&mut self, is_kept: impl Fn(&[u8]) -> bool) {
        if self.head.headers.has_any(FieldSet::IDENTITY) {
            self.head
                .headers
                .retain_fields(|field, name, _| !FieldSet::IDENTITY.has(field) || is_kept(name));
        }
        self.are_identity_fields_removed = true;
    }

    /// Whether the identity fields that the configuration does not trust were removed (see
    /// [`crate::TrustedProxies`]). No identity field that is left comes from the client then.
    pub fn are_identity_fields_removed(&self) -> bool {
        self.are_identity_fields_removed
    }

    /// The sender of interim responses, such as 103 Early Hints, before the final response. For a request
    /// without a connection it drops them.
    pub fn interim(&self) -> &Interim {
        &self.interim
    }

    /// Replaces the sender of interim responses.
    pub fn set_interim(&mut self, interim: Interim) {
        self.interim = interim;
    }

    /// Values that layers attached.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Values that layers attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// The authority that a head names, as it was sent.
fn sent_authority(head: &Head) -> Option<&[u8]> {
    let named = head.target.authority().map(str::as_bytes);
    named.or_else(|| head.headers.values_of(KnownField::Host).next())
}

fn authority_of(head: &Head, is_secure: bool) -> Authority {
    sent_authority(head)
        .and_then(|authority| Authority::normalise(authority, is_secure))
        .unwrap_or_default()
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.head.method)
            .field("target", &self.head.target)
            .field("version", &self.head.version)
            .field("headers", &self.head.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;

    fn request() -> Request {
        Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, "/a?b").unwrap(),
            version: Version::HTTP_11,
            headers: Headers::new(),
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                kept: crate::KeptValue::default(),
                id: 1,
                peer: Peer::Unix,
                local: Peer::Unix,
                tls: None,
            }),
            extensions: Extensions::new(),
        })
    }

    #[test]
    fn a_changed_accept_changes_the_format_of_errors() {
        let mut request = request();
        assert_eq!(request.error_format(), None);
        let headers = request.headers_mut();
        headers.try_append("accept", "application/json").unwrap();
        assert_eq!(request.error_format(), Some(ErrorFormat::Json));
        let copy = request.without_body();
        request.headers_mut().remove("accept");
        assert_eq!(request.error_format(), None);
        assert_eq!(copy.error_format(), Some(ErrorFormat::Json));
    }

    #[test]
    fn what_a_router_found_is_forgotten_when_the_method_or_the_path_changes() {
        let mut request = request();
        let changes: [fn(&mut Request); 3] = [
            |request| request.set_method(Method::HEAD),
            |request| request.set_path_and_query("/b").unwrap(),
            Request::restore_target,
        ];
        for change in changes {
            request.set_routed(Rc::new(1));
            request.set_routed(Rc::new(2));
            request.headers_mut().remove("accept");
            let found = request.routed().and_then(|found| found.downcast_ref());
            assert_eq!(found, Some(&1));
            change(&mut request);
            assert!(request.routed().is_none());
        }
    }

    #[test]
    fn a_rewritten_request_still_knows_what_the_client_sent() {
        let mut request = request();
        assert!(!request.is_rewritten());
        assert_eq!(request.original_target().as_str(), "/a?b");
        request.set_path_and_query("/c").unwrap();
        request.set_path_and_query("/d?e").unwrap();
        assert!(request.is_rewritten());
        assert_eq!(request.target().as_str(), "/d?e");
        assert_eq!(request.original_target().as_str(), "/a?b");
    }
}
