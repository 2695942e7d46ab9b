//! Requests that identify the client (RFC 9111 sections 3.5 and 7.3).

use apus_http::fields::{DeltaSeconds, ResponseDirectives};

use super::names::cookies;
use super::rules::{CredentialRules, SharingRule};
use super::{PresentedRequest, StoreRefusal};

impl CredentialRules {
    /// Checks whether the response to this request may be stored for all clients.
    pub(super) fn allow_storing(
        &self,
        request: &PresentedRequest<'_>,
        directives: &ResponseDirectives,
    ) -> Result<(), StoreRefusal> {
        let is_shared =
            directives.public || matches!(directives.s_maxage, Some(DeltaSeconds::Valid(_)));
        if self.authorization == SharingRule::Declared
            && !is_shared
            && !directives.must_revalidate
            && has_authorization(request)
        {
            return Err(StoreRefusal::Authorization);
        }
        // A certificate names the client as `Authorization` does, but RFC 9111 section 3.5 lets `must-revalidate` share
        // responses to `Authorization` only.
        if self.authorization == SharingRule::Declared && !is_shared && request.has_certificate {
            return Err(StoreRefusal::ClientCertificate);
        }
        if self.cookies == SharingRule::Declared && !is_shared && self.has_session(request) {
            return Err(StoreRefusal::SessionCookie);
        }
        Ok(())
    }

    /// Whether this request may get a stored response whose origin did not set a lifetime.
    pub(super) fn allow_undeclared(&self, request: &PresentedRequest<'_>) -> bool {
        let is_identified = self.authorization == SharingRule::Declared
            && (has_authorization(request) || request.has_certificate);
        let has_session = self.cookies == SharingRule::Declared && self.has_session(request);
        !is_identified && !has_session
    }

    fn has_session(&self, request: &PresentedRequest<'_>) -> bool {
        request
            .headers
            .get_all("cookie")
            .flat_map(cookies)
            .any(|cookie| {
                cookie.may_match(&self.session_cookies)
                    && !cookie.always_matches(&self.harmless_cookies)
            })
    }
}

fn has_authorization(request: &PresentedRequest<'_>) -> bool {
    request.headers.contains("authorization")
}
