//! `SignedUrls`: URLs that only the application can make, and that may expire.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_handler::middleware::{Middleware, Next};
use apus_handler::{Error, ResponseMarker};
use apus_http::{Request, ResponseFuture, StatusCode};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Key;
use crate::access::{self, AccessCheck, AccessDecision};

/// Signs URLs, and is the layer that rejects requests for other URLs with 403: for links in mails and downloads, which
/// need no log-in.
///
/// ```
/// # use apus_handler::Layered;
/// # use apus_http::{Request, Response, StatusCode, service_fn};
/// # use apus_layers::auth::{Key, SignedUrls};
/// use std::time::Duration;
///
/// let key = Key::new("a secret of at least thirty-two bytes")?;
/// let urls = SignedUrls::new(&key);
/// let link = urls.sign_for("/invitations/7?from=ada", Duration::from_secs(3600));
///
/// # let invitations = || service_fn(|_: Request| Response::text(StatusCode::OK, "come").into());
/// let invitations = Layered::new(invitations).layer(urls);
/// # use apus_testkit::get;
/// # assert_eq!(get(&link).to(&invitations).status, 200);
/// # assert_eq!(get(&link.replace('7', "8")).to(&invitations).status, 403);
/// # assert_eq!(get("/invitations/7").to(&invitations).status, 403);
/// # Ok::<(), apus_layers::auth::KeyError>(())
/// ```
///
/// The signature (HMAC-SHA256) is of the path and the query as they are written, and is the last parameter. It is not of
/// the host and the method: applications that share a key accept each other's URLs. A URL can be used until it expires, and
/// by everyone who has it.
#[derive(Clone)]
pub struct SignedUrls {
    key: hmac::Key,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// The parameter with the second after which a URL is not valid, since 1970.
const EXPIRES: &str = "expires=";

/// The parameter with the signature.
const SIGNATURE: &str = "signature=";

impl SignedUrls {
    /// URLs that are signed with a key.
    pub fn new(key: &Key) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key.derive(b"signed urls")),
            clock: Arc::new(apus_clock::now),
        }
    }

    /// Replaces the clock of the application.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// A path, with or without a query, as a URL that does not expire.
    pub fn sign(&self, path: &str) -> String {
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, path.as_bytes()));
        format!("{path}{}{SIGNATURE}{signature}", separator(path))
    }

    /// A path, with or without a query, as a URL that is valid for this time, in whole seconds.
    pub fn sign_for(&self, path: &str, lifetime: Duration) -> String {
        self.sign_until(path, self.now().saturating_add(lifetime.as_secs()))
    }

    /// A path, with or without a query, as a URL that is valid up to and including this second since 1970.
    pub fn sign_until(&self, path: &str, second: u64) -> String {
        self.sign(&format!("{path}{}{EXPIRES}{second}", separator(path)))
    }

    /// Checks the URL of a request, as the client sent it.
    ///
    /// # Errors
    /// 403: it has no valid signature, or has expired.
    pub fn verify(&self, request: &Request) -> Result<(), Error> {
        let invalid = || Error::forbidden("the link is not valid");
        let target = request.original_target();
        let query = target.query().ok_or_else(invalid)?;
        let (signed, signature) = match query.rsplit_once('&') {
            Some((rest, signature)) => (format!("{}?{rest}", target.path()), signature),
            None => (target.path().to_owned(), query),
        };
        let signature = signature.strip_prefix(SIGNATURE).ok_or_else(invalid)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| invalid())?;
        hmac::verify(&self.key, signed.as_bytes(), &signature).map_err(|_| invalid())?;
        // It is the last one, which only this type writes.
        let (_, last) = signed.rsplit_once(['?', '&']).unwrap_or_default();
        let expires = last.strip_prefix(EXPIRES).map(str::parse::<u64>);
        match expires {
            Some(Ok(second)) if self.now() > second => {
                Err(Error::new(StatusCode::FORBIDDEN, "the link has expired"))
            }
            Some(Err(_)) => Err(invalid()),
            _ => Ok(()),
        }
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

fn separator(path: &str) -> char {
    if path.contains('?') { '&' } else { '?' }
}

impl AccessCheck for SignedUrls {
    fn name(&self) -> &'static str {
        "signed_url"
    }

    fn check(&self, request: &Request) -> AccessDecision {
        match self.verify(request) {
            Ok(()) => AccessDecision::ADMITTED,
            Err(error) => AccessDecision::refused(error),
        }
    }
}

impl Middleware<ResponseMarker> for SignedUrls {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        access::pass(self, request, next)
    }
}

impl fmt::Debug for SignedUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedUrls").finish_non_exhaustive()
    }
}
