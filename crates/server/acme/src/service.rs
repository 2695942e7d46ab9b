//! The responses to `http-01` (RFC 8555 section 8.3), in front of the services of a listener.

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    HeaderName, HeaderValue, Method, Request, Response, ResponseFuture, RouteInfo, Service,
    ServiceFactory, StatusCode,
};

use crate::challenges::PendingChallenges;

/// The folder of the responses.
const FOLDER: &str = "/.well-known/acme-challenge/";

/// Responds to the challenges of open orders, before the redirects, rules and authentication of the inner service, which
/// gets all other requests.
pub struct HttpChallengeService {
    inner: Arc<dyn ServiceFactory>,
    challenges: Arc<PendingChallenges>,
}

impl HttpChallengeService {
    /// In front of `inner`.
    pub fn new(inner: Arc<dyn ServiceFactory>, challenges: Arc<PendingChallenges>) -> Self {
        Self { inner, challenges }
    }

    fn around(&self, inner: Rc<dyn Service>) -> Rc<dyn Service> {
        Rc::new(ChallengeResponder {
            inner,
            challenges: Arc::clone(&self.challenges),
        })
    }
}

impl ServiceFactory for HttpChallengeService {
    fn service(&self) -> Rc<dyn Service> {
        self.around(self.inner.service())
    }

    fn outermost_service(&self) -> Option<Rc<dyn Service>> {
        Some(self.around(self.inner.outermost_service()?))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.inner.check()
    }

    fn check_outermost(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.inner.check_outermost()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}

impl std::fmt::Debug for HttpChallengeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpChallengeService")
            .field("challenges", &self.challenges)
            .finish_non_exhaustive()
    }
}

struct ChallengeResponder {
    inner: Rc<dyn Service>,
    challenges: Arc<PendingChallenges>,
}

impl Service for ChallengeResponder {
    fn call(&self, request: Request) -> ResponseFuture {
        if self.challenges.is_empty() {
            return self.inner.call(request);
        }
        match self.key_authorization(&request) {
            Some(text) => response(text).into(),
            None => self.inner.call(request),
        }
    }
}

impl ChallengeResponder {
    fn key_authorization(&self, request: &Request) -> Option<String> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        let token = request.path().strip_prefix(FOLDER)?;
        self.challenges.key_authorization(token)
    }
}

fn response(key_authorization: String) -> Response {
    Response::new(StatusCode::OK)
        .with_header(
            &HeaderName::from_static("content-type"),
            &HeaderValue::from_static("application/octet-stream"),
        )
        .with_body(key_authorization)
}
