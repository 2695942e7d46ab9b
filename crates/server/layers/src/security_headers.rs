//! Fields that restrict what browsers do with a response: Content Security Policy and others.

use std::sync::Arc;
use std::time::Duration;

use apus_http::{HeaderName, HeaderValue, Request, ResponseFuture, StatusCode, header};
use apus_tokens::nonce;

use apus_handler::{Error, FromRequestHead, Matched, Middleware, Next, RouteCheck};

use crate::{Hsts, HstsField};

/// The placeholder of the nonce in a policy.
const NONCE: &str = "{nonce}";

/// A layer that adds fields which restrict browsers to all responses. It keeps a field that a response has.
///
/// | field | value unless changed |
/// | --- | --- |
/// | `Content-Security-Policy` | `base-uri 'self'; frame-ancestors 'self'; object-src 'none'` |
/// | `X-Content-Type-Options` | `nosniff` |
/// | `X-Frame-Options` | `SAMEORIGIN` |
/// | `Referrer-Policy` | `strict-origin-when-cross-origin` |
/// | `Cross-Origin-Opener-Policy` | `same-origin` |
/// | `Strict-Transport-Security` | none; see [`SecurityHeaders::hsts`] |
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    policy: ContentSecurityPolicy,
    hsts: Option<Hsts>,
    others: Arc<Vec<(HeaderName, HeaderValue)>>,
}

#[derive(Clone, Debug)]
enum ContentSecurityPolicy {
    None,
    Fixed(HeaderName, HeaderValue),
    /// With [`NONCE`] in it.
    WithNonce(HeaderName, Arc<str>),
}

impl Default for SecurityHeaders {
    fn default() -> Self {
        Self::new()
    }
}

impl SecurityHeaders {
    /// The fields of the table.
    pub fn new() -> Self {
        let others = [
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "SAMEORIGIN"),
            (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
        ];
        Self {
            policy: ContentSecurityPolicy::None,
            hsts: None,
            others: Arc::new(
                others
                    .map(|(name, value)| (name, HeaderValue::from_static(value)))
                    .into(),
            ),
        }
        .content_security_policy("base-uri 'self'; frame-ancestors 'self'; object-src 'none'")
    }

    /// What pages may load and run. `{nonce}` is replaced by a number that is new for each response, as in
    /// `script-src 'nonce-{nonce}'`; a handler takes it as [`CspNonce`] for the scripts that it writes.
    #[must_use]
    pub fn content_security_policy(self, policy: &str) -> Self {
        self.policy(header::CONTENT_SECURITY_POLICY, policy)
    }

    /// As [`SecurityHeaders::content_security_policy`], but browsers only report violations, to the
    /// endpoint in the policy.
    #[must_use]
    pub fn content_security_policy_report_only(self, policy: &str) -> Self {
        self.policy(header::CONTENT_SECURITY_POLICY_REPORT_ONLY, policy)
    }

    fn policy(mut self, name: HeaderName, policy: &str) -> Self {
        self.policy = match HeaderValue::from_str(policy) {
            Ok(_) if policy.contains(NONCE) => {
                ContentSecurityPolicy::WithNonce(name, policy.into())
            }
            Ok(value) => ContentSecurityPolicy::Fixed(name, value),
            Err(_) => {
                tracing::error!(policy, "this content security policy cannot be a field");
                // Browsers load nothing, so the error is noticed.
                ContentSecurityPolicy::Fixed(name, HeaderValue::from_static("default-src 'none'"))
            }
        };
        self
    }

    /// Makes browsers use TLS only, for this host; see [`Hsts`].
    #[must_use]
    pub fn hsts(mut self, hsts: impl Into<Hsts>) -> Self {
        self.hsts = Some(hsts.into());
        self
    }

    /// As [`SecurityHeaders::hsts`], for all subdomains too.
    #[must_use]
    pub fn hsts_with_subdomains(self, max_age: Duration) -> Self {
        self.hsts(Hsts {
            include_subdomains: true,
            ..Hsts::new(max_age)
        })
    }

    /// As [`SecurityHeaders::hsts_with_subdomains`], with the consent to be on the list that comes with
    /// browsers.
    #[must_use]
    pub fn hsts_preload(self, max_age: Duration) -> Self {
        self.hsts(Hsts {
            include_subdomains: true,
            preload: true,
            ..Hsts::new(max_age)
        })
    }

    /// Sets a field to another value, or one that is not in the table, as `Permissions-Policy`.
    #[must_use]
    pub fn set(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self = self.without(&name);
        Arc::make_mut(&mut self.others).push((name, value));
        self
    }

    /// Leaves a field out.
    #[must_use]
    pub fn without(mut self, name: &HeaderName) -> Self {
        match &self.policy {
            ContentSecurityPolicy::Fixed(known, _) | ContentSecurityPolicy::WithNonce(known, _)
                if known == name =>
            {
                self.policy = ContentSecurityPolicy::None;
            }
            _ => Arc::make_mut(&mut self.others).retain(|(known, _)| known != name),
        }
        self
    }
}

/// The nonce in the content security policy of this response: an extractor, where
/// [`SecurityHeaders::content_security_policy`] has `{nonce}` in it.
#[derive(Clone, Debug)]
pub struct CspNonce(Arc<str>);

impl CspNonce {
    /// The value of the attribute `nonce`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// 128 random bits.
    fn new() -> Option<Self> {
        Some(Self(nonce().ok()?.into()))
    }
}

impl std::fmt::Display for CspNonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromRequestHead for CspNonce {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        request.extensions().get().cloned().ok_or_else(|| {
            Error::not_provided("a handler takes CspNonce, but no policy of a layer has a nonce")
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake(
                "the handler takes CspNonce, and no layer `SecurityHeaders` around it has a policy with a nonce",
            );
        }
    }
}

impl Middleware<()> for SecurityHeaders {
    fn changes_only_fields(&self) -> bool {
        true
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        if matches!(self.policy, ContentSecurityPolicy::WithNonce(..)) {
            route.provide::<CspNonce>();
        }
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let policy = match &self.policy {
            ContentSecurityPolicy::None => None,
            ContentSecurityPolicy::Fixed(name, value) => Some((name.clone(), value.clone())),
            ContentSecurityPolicy::WithNonce(name, policy) => {
                let Some(nonce) = CspNonce::new() else {
                    tracing::error!("the system gives no random numbers");
                    return ResponseFuture::Now(StatusCode::INTERNAL_SERVER_ERROR.into());
                };
                let value = HeaderValue::from_str(&policy.replace(NONCE, nonce.as_str()));
                request.extensions_mut().insert(nonce);
                value.ok().map(|value| (name.clone(), value))
            }
        };
        let hsts = (self.hsts).and_then(|hsts| HstsField::for_request(hsts, &request));
        let others = self.others.clone();
        next.call_and_change(request, move |mut response| {
            if let Some(hsts) = hsts {
                hsts.set_if_missing(&mut response);
            }
            for (name, value) in policy.iter().chain(&*others) {
                if !response.headers().contains(name) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        })
    }
}
