//! Requests that tell who the client is (RFC 9111 sections 3.5 and 7.3).

use apus_http::fields::{DeltaSeconds, ResponseDirectives};

use super::names::cookies;
use super::rules::{Credentials, Sharing};
use super::{PresentedRequest, Refusal};

impl Credentials {
    /// Whether the response to this request may be stored for all.
    pub(super) fn allow_storing(
        &self,
        request: &PresentedRequest<'_>,
        directives: &ResponseDirectives,
    ) -> Result<(), Refusal> {
        let is_shared =
            directives.public || matches!(directives.s_maxage, Some(DeltaSeconds::Valid(_)));
        if self.authorization == Sharing::Declared
            && !is_shared
            && !directives.must_revalidate
            && has_authorization(request)
        {
            return Err(Refusal::Authorization);
        }
        if self.authorization == Sharing::Declared && !is_shared && request.has_certificate {
            return Err(Refusal::ClientCertificate);
        }
        if self.cookies == Sharing::Declared && !is_shared && self.has_session(request) {
            return Err(Refusal::SessionCookie);
        }
        Ok(())
    }

    /// Whether this request may be answered with a response whose origin did not name a lifetime.
    pub(super) fn allow_undeclared(&self, request: &PresentedRequest<'_>) -> bool {
        let is_known = self.authorization == Sharing::Declared
            && (has_authorization(request) || request.has_certificate);
        let has_session = self.cookies == Sharing::Declared && self.has_session(request);
        !is_known && !has_session
    }

    fn has_session(&self, request: &PresentedRequest<'_>) -> bool {
        request
            .headers
            .get_all("cookie")
            .flat_map(cookies)
            .any(|cookie| {
                cookie.may_mean(&self.session_cookies)
                    && !cookie.always_means(&self.harmless_cookies)
            })
    }
}

fn has_authorization(request: &PresentedRequest<'_>) -> bool {
    request.headers.contains("authorization")
}
