//! A request that is forwarded on behalf of the cache, and the response to it.

use std::sync::Arc;

use crate::policy::{OriginResponse, PresentedRequest, Timestamp};
use apus_http::{Method, Request, Response, RuleChoice};

use super::settings::CacheSettings;

/// A copy of a request without its body, for use while its response is awaited.
pub(super) struct RequestSnapshot {
    request: Request,
    settings: Arc<CacheSettings>,
}

impl RequestSnapshot {
    pub(super) fn of(request: &Request, settings: &Arc<CacheSettings>) -> Self {
        let mut copy = request.without_body();
        *copy.extensions_mut() = request.extensions().clone();
        Self {
            request: copy,
            settings: Arc::clone(settings),
        }
    }

    /// Forgets the record of the request.
    pub(super) fn remove_record(&mut self) {
        self.request.remove_record();
    }

    pub(super) fn presented(&self) -> PresentedRequest<'_> {
        self.settings.presented(&self.request)
    }

    /// A GET request for the same target on behalf of the cache, without what layers attached to the one of the client. It goes where rules
    /// sent that one, as the key says.
    pub(super) fn to_fetch_request(&self) -> Request {
        let mut request = self.request.without_body();
        if let Some(choice) = RuleChoice::of(&self.request) {
            request.extensions_mut().insert(choice.clone());
        }
        request.set_method(Method::GET);
        request
    }
}

/// A response, with the times of the request and the receipt.
pub(super) struct FetchedResponse {
    pub(super) response: Response,
    pub(super) requested: Timestamp,
    pub(super) received: Timestamp,
}

impl FetchedResponse {
    pub(super) fn as_origin_response(&self) -> OriginResponse<'_> {
        OriginResponse {
            status: self.response.status(),
            headers: self.response.headers(),
            requested: self.requested,
            received: self.received,
        }
    }
}
