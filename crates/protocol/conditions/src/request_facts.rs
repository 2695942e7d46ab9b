//! `RequestFacts`: what is known of an HTTP request and its response.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use apus_http::fields::{CacheResult, cookies};
use apus_http::{
    ClientGlitches, Headers, RemoteUser, Request, Response, ServerLoad, TlsVersion, VerifiedClaims,
    Version,
};

use crate::bot::{BotClaim, BotProof};
use crate::claims;
use crate::fact::{Fact, FactKind};
use crate::facts::Facts;
use crate::limits::RequestLimits;
use crate::map::RequestMaps;
use crate::variables::RequestVariables;

/// Words that rules attach to a request, for later rules: an extension of the request.
#[derive(Clone, Debug, Default)]
pub struct Tags(Vec<Arc<str>>);

impl Tags {
    /// Whether a request has a tag.
    pub fn has(request: &Request, tag: &str) -> bool {
        let tags = request.extensions().get::<Self>();
        tags.is_some_and(|tags| tags.0.iter().any(|known| **known == *tag))
    }

    /// Gives a request a tag.
    pub fn add(request: &mut Request, tag: &Arc<str>) {
        if Self::has(request, tag) {
            return;
        }
        match request.extensions_mut().get_mut::<Self>() {
            Some(tags) => tags.0.push(Arc::clone(tag)),
            None => {
                request.extensions_mut().insert(Self(vec![Arc::clone(tag)]));
            }
        }
    }
}

/// The facts of a request, and of its response if there is one.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    request: &'a Request,
    response: Option<(&'a Response, Duration)>,
}

impl<'a> RequestFacts<'a> {
    /// The facts of a request.
    pub fn new(request: &'a Request) -> Self {
        Self {
            request,
            response: None,
        }
    }

    /// The facts of a request and of the response that came after this time.
    #[must_use]
    pub fn with_response(mut self, response: &'a Response, time: Duration) -> Self {
        self.response = Some((response, time));
        self
    }

    /// The one value of a fact of the request that has at most one.
    fn text(&self, fact: &Fact) -> Option<Cow<'a, [u8]>> {
        let request = self.request;
        let tls = request.connection().tls.as_ref();
        let certificate = || tls?.client_certificate.as_deref();
        let text = match fact.kind() {
            FactKind::Scheme => request.scheme(),
            FactKind::RequestHost => request.host()?,
            FactKind::Method => request.method().as_str(),
            FactKind::QueryText => request.query()?,
            FactKind::RequestType => return media_type(request.headers()),
            FactKind::Protocol => match request.version() {
                Version::HTTP_09 | Version::HTTP_10 => "http/1.0",
                Version::HTTP_2 => "h2",
                Version::HTTP_3 => "h3",
                _ => "http/1.1",
            },
            FactKind::TlsVersion => match tls?.version {
                TlsVersion::Tls12 => "1.2",
                TlsVersion::Tls13 => "1.3",
            },
            FactKind::TlsCipher => tls?.cipher,
            FactKind::TlsAlpn => tls?.alpn?,
            FactKind::TlsFingerprint => tls?.fingerprint.as_deref()?,
            FactKind::CertificateIssuer => &certificate()?.issuer,
            FactKind::ServerNameIndication => tls?.server_name.as_deref()?,
            FactKind::CertificateSubject => &certificate()?.subject,
            FactKind::CertificateSerial => &certificate()?.serial,
            FactKind::Bot => BotClaim::verified(request)?,
            FactKind::BotClaimed => &BotClaim::of(request)?.name,
            FactKind::User => {
                let name = RemoteUser::noted(request)?.name;
                return Some(Cow::Owned(name.as_bytes().to_vec()));
            }
            FactKind::ResponseType => return media_type(self.response?.0.headers()),
            FactKind::CacheOutcome => match self.response?.0.cache()? {
                CacheResult::Hit => "hit",
                CacheResult::Stale => "stale",
                CacheResult::Revalidated => "revalidated",
                CacheResult::Expired => "expired",
                CacheResult::Miss => "miss",
                CacheResult::Bypass => "bypass",
            },
            FactKind::Upstream => {
                let origin = self.response?.0.origin()?;
                return Some(Cow::Owned(origin.address.as_bytes().to_vec()));
            }
            _ => return None,
        };
        Some(Cow::Borrowed(text.as_bytes()))
    }
}

impl Facts for RequestFacts<'_> {
    fn any_text(&self, fact: &Fact, each: &mut dyn FnMut(Cow<'_, [u8]>) -> bool) -> bool {
        let headers = self.request.headers();
        let name = fact.name().unwrap_or_default();
        let mut line = |value: &[u8]| each(Cow::Borrowed(value));
        match fact.kind() {
            FactKind::RequestPath => self
                .request
                .normal_path()
                .is_ok_and(|path| line(path) || script(path).is_some_and(line)),
            FactKind::RequestField => headers.get_all(name).any(line),
            FactKind::UserAgent => headers.get_all("user-agent").any(line),
            FactKind::Referer => headers.get_all("referer").any(line),
            FactKind::Cookie => cookies(headers)
                .filter(|cookie| cookie.name == Some(name.as_bytes()))
                .any(|cookie| line(cookie.value)),
            FactKind::QueryParameter => {
                let query = self.request.query().unwrap_or_default().as_bytes();
                form_urlencoded::parse(query)
                    .filter(|(key, _)| key == name)
                    .any(|(_, value)| line(value.as_bytes()))
            }
            FactKind::CertificateName => {
                let tls = self.request.connection().tls.as_ref();
                tls.and_then(|tls| tls.client_certificate.as_deref())
                    .is_some_and(|certificate| {
                        certificate.names.iter().any(|name| line(name.as_bytes()))
                    })
            }
            FactKind::Claim => VerifiedClaims::of(self.request)
                .is_some_and(|claims| claims::any_value(&claims.0, name, &mut line)),
            FactKind::ResponseField => self
                .response
                .is_some_and(|(response, _)| response.headers().get_all(name).any(line)),
            FactKind::RuleVariable => {
                RequestVariables::value(self.request, name).is_some_and(|value| line(&value))
            }
            FactKind::MapValue => RequestMaps::of(self.request)
                .and_then(|maps| maps.value(name, self))
                .is_some_and(|value| line(value.as_bytes())),
            _ => self.text(fact).is_some_and(each),
        }
    }

    fn number(&self, fact: &Fact) -> Option<u64> {
        match fact.kind() {
            FactKind::RequestLength => length(self.request.headers()),
            FactKind::Load => ServerLoad::busy().map(u64::from),
            FactKind::Connections => ServerLoad::connections(),
            FactKind::Glitches => Some(ClientGlitches::of(self.address())),
            FactKind::LimitLeft => RequestLimits::left(self.request, fact.name()?),
            FactKind::Status => Some(self.response?.0.status().as_u16().into()),
            FactKind::ResponseLength => {
                let response = self.response?.0;
                // A response to HEAD declares the length that GET has (RFC 9110 section 9.3.2).
                let sent = response.body().len();
                let declared = || length(response.headers());
                (sent.filter(|length| *length > 0))
                    .or_else(declared)
                    .or(sent)
            }
            FactKind::TimeTaken => u64::try_from(self.response?.1.as_millis()).ok(),
            _ => None,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.request.client().ip
    }

    fn flag(&self, fact: &Fact) -> bool {
        match fact.kind() {
            FactKind::IsTls => self.request.is_secure(),
            FactKind::BotFalse => {
                BotClaim::of(self.request).is_some_and(|claim| claim.proof == BotProof::Refuted)
            }
            FactKind::Tag => Tags::has(self.request, fact.name().unwrap_or_default()),
            _ => false,
        }
    }

    fn request_id(&self) -> String {
        self.request.id().to_string()
    }
}

/// The path of the script that a path with `PATH_INFO` runs (RFC 3875 section 4.1.5): `/login.php` of `/login.php/a`. A rule about
/// the script would be passed by with a slash behind it otherwise.
fn script(path: &[u8]) -> Option<&[u8]> {
    let at = path.windows(5).position(|part| part == b".php/")?;
    path.get(..at.saturating_add(4))
}

/// The media type, in lower case and without parameters (RFC 9110 section 8.3.1).
fn media_type(headers: &Headers) -> Option<Cow<'static, [u8]>> {
    let value = headers.get("content-type")?;
    let essence = value.split(|byte| *byte == b';').next()?;
    Some(Cow::Owned(essence.trim_ascii().to_ascii_lowercase()))
}

fn length(headers: &Headers) -> Option<u64> {
    headers.get_str("content-length")?.parse().ok()
}
