//! Purging stored responses by requests with the method `PURGE` and a token.

use std::borrow::Cow;

use crate::policy::{KeyRules, PresentedRequest, RequestKey};
pub use crate::store::PurgeRequest;
use crate::store::PurgeSelector;
use apus_http::{HeaderValue, Request, Response, StatusCode, header};

use apus_http::path::{self, InvalidPath};

impl PurgeRequest {
    /// The responses for one URL, in all variants.
    ///
    /// # Errors
    /// The path is invalid, so that requests for it are rejected.
    pub fn url(
        rules: &KeyRules,
        scheme: &str,
        authority: &str,
        target: &str,
    ) -> Result<PurgeSelector, InvalidPath> {
        let target = normal_target(target)?;
        Ok(selector_of(
            &RequestKey::of_uri(rules, scheme, authority, &target),
            rules,
        ))
    }

    /// The responses for all URLs that begin with this one.
    ///
    /// # Errors
    /// The path is invalid, so that requests for it are rejected.
    pub fn prefix(
        rules: &KeyRules,
        scheme: &str,
        authority: &str,
        target: &str,
    ) -> Result<PurgeSelector, InvalidPath> {
        let key = RequestKey::of_uri(rules, scheme, authority, &normal_target(target)?);
        Ok(PurgeSelector::Prefix(key.uri().into()))
    }
}

/// The normal form of a target, in which requests are forwarded and responses are stored.
fn normal_target(target: &str) -> Result<Cow<'_, str>, InvalidPath> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    Ok(match (path::normalise_encoded(path)?, query) {
        (Cow::Borrowed(_), _) => Cow::Borrowed(target),
        (path, None) => path,
        (path, Some(query)) => Cow::Owned(format!("{path}?{query}")),
    })
}

/// All stored responses for a target.
pub(super) fn selector_of(key: &RequestKey, rules: &KeyRules) -> PurgeSelector {
    match rules.variants_of(key) {
        Some(prefix) => PurgeSelector::Prefix(prefix),
        None => PurgeSelector::Key(key.bytes().into()),
    }
}

/// Which requests with the method `PURGE` are allowed.
#[derive(Clone, Debug)]
pub struct PurgeAccess {
    /// The token that `Authorization: Bearer` has to contain. Not empty.
    pub token: Box<str>,
}

impl PurgeAccess {
    /// Whether the request has the token. The comparison takes the same time however many bytes are
    /// right.
    pub(super) fn allows(&self, request: &Request) -> bool {
        let mut lines = request.headers().get_all("authorization");
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let Some((scheme, presented_token)) = line.split_at_checked(7) else {
            return false;
        };
        let wanted = self.token.as_bytes();
        if !scheme.eq_ignore_ascii_case(b"bearer ") || wanted.is_empty() {
            return false;
        }
        let differing = presented_token
            .iter()
            .zip(wanted.iter().cycle())
            .fold(presented_token.len() ^ wanted.len(), |all, (one, other)| {
                all | usize::from(one ^ other)
            });
        differing == 0
    }
}

/// What a `PURGE` request names: its URL; with `Purge-Prefix` all URLs that begin with it; with
/// `Purge-Tag` the responses with one of these tags. With `Purge-Soft` they become stale instead.
pub(super) fn read(
    request: &Request,
    presented: &PresentedRequest<'_>,
    rules: &KeyRules,
    site: &str,
) -> Vec<PurgeRequest> {
    let headers = request.headers();
    let purge = |selector| PurgeRequest {
        site: Some(site.into()),
        selector,
        soft: headers.contains("purge-soft"),
    };
    let tags: Vec<PurgeRequest> = headers
        .get_all("purge-tag")
        .flat_map(|line| line.split(|byte| byte.is_ascii_whitespace() || *byte == b','))
        .filter(|tag| !tag.is_empty())
        .map(|tag| purge(PurgeSelector::Tag(tag.into())))
        .collect();
    if !tags.is_empty() {
        return tags;
    }
    let uri = rules.uri(presented);
    vec![purge(if headers.contains("purge-prefix") {
        PurgeSelector::Prefix(uri.uri().into())
    } else {
        selector_of(&uri, rules)
    })]
}

/// The response to a `PURGE` request.
pub(super) fn response(is_allowed: bool) -> Response {
    if is_allowed {
        Response::new(StatusCode::NO_CONTENT)
    } else {
        Response::new(StatusCode::UNAUTHORIZED).with_header(
            &header::WWW_AUTHENTICATE,
            &HeaderValue::from_static("Bearer"),
        )
    }
}
