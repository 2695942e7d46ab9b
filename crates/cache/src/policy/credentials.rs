//! Requests that tell who the client is (RFC 9111 sections 3.5 and 7.3).

use apus_http::fields::{DeltaSeconds, ResponseDirectives};

use super::rules::{Credentials, Sharing};
use super::{NamePattern, PresentedRequest, Refusal};

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
        if self.cookies == Sharing::Declared && !is_shared && self.has_session(request) {
            return Err(Refusal::SessionCookie);
        }
        Ok(())
    }

    /// Whether this request may be answered with a response whose origin did not name a lifetime.
    pub(super) fn allow_undeclared(&self, request: &PresentedRequest<'_>) -> bool {
        let is_known = self.authorization == Sharing::Declared && has_authorization(request);
        let has_session = self.cookies == Sharing::Declared && self.has_session(request);
        !is_known && !has_session
    }

    fn has_session(&self, request: &PresentedRequest<'_>) -> bool {
        request
            .headers
            .get_all("cookie")
            .flat_map(cookies)
            .any(|(name, _)| {
                NamePattern::any_matches(&self.session_cookies, name)
                    && !NamePattern::any_matches(&self.harmless_cookies, name)
            })
    }
}

fn has_authorization(request: &PresentedRequest<'_>) -> bool {
    request.headers.contains("authorization")
}

/// The cookies of a line, as name and value. One without `=` has no name (RFC 6265bis section 5.7).
pub(super) fn cookies(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|byte| *byte == b';')
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (
                pair.get(..at).unwrap_or_default(),
                pair.get(at.saturating_add(1)..).unwrap_or_default(),
            ),
            None => (&b""[..], pair),
        })
}
