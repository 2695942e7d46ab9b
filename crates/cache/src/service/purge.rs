//! Taking stored responses out by request: `PURGE` with a token.

use std::borrow::Cow;

use crate::policy::{Key, KeyRules, PresentedRequest};
use crate::store::{Purge, Purged};
use apus_http::{HeaderValue, Request, Response, StatusCode, header};

use apus_http::path::{self, InvalidPath};

/// What is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// Only of the site with this name.
    pub site: Option<Box<str>>,
    /// Which responses.
    pub what: Purged,
    /// Whether they become stale rather than go.
    pub soft: bool,
}

impl PurgeRequest {
    /// The responses for one URL, in all their forms.
    ///
    /// # Errors
    /// A request for it would be refused for its path.
    pub fn url(
        rules: &KeyRules,
        scheme: &str,
        authority: &str,
        target: &str,
    ) -> Result<Purged, InvalidPath> {
        let target = sent_on(target)?;
        Ok(of_uri(
            &Key::of_uri(rules, scheme, authority, &target),
            rules,
        ))
    }

    /// The responses for all URLs that begin with this one.
    ///
    /// # Errors
    /// A request for it would be refused for its path.
    pub fn prefix(
        rules: &KeyRules,
        scheme: &str,
        authority: &str,
        target: &str,
    ) -> Result<Purged, InvalidPath> {
        let key = Key::of_uri(rules, scheme, authority, &sent_on(target)?);
        Ok(Purged::Prefix(key.uri().into()))
    }

    pub(super) fn to_purge(&self) -> Purge {
        Purge {
            site: self.site.clone(),
            what: self.what.clone(),
            soft: self.soft,
        }
    }
}

/// A target as the requests for it are sent on, and what they get is stored.
fn sent_on(target: &str) -> Result<Cow<'_, str>, InvalidPath> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    Ok(match (path::sent_on(path)?, query) {
        (Cow::Borrowed(_), _) => Cow::Borrowed(target),
        (path, None) => path,
        (path, Some(query)) => Cow::Owned(format!("{path}?{query}")),
    })
}

/// What is stored for a target.
pub(super) fn of_uri(key: &Key, rules: &KeyRules) -> Purged {
    match rules.variants_of(key) {
        Some(prefix) => Purged::Prefix(prefix),
        None => Purged::Key(key.bytes().into()),
    }
}

/// Who may purge by requests with the method `PURGE`.
#[derive(Clone, Debug)]
pub struct PurgeAccess {
    /// What `Authorization: Bearer` has to hold. Not empty.
    pub token: Box<str>,
}

impl PurgeAccess {
    /// Whether the request shows the token. The time it takes does not tell how much of it is right.
    pub(super) fn allows(&self, request: &Request) -> bool {
        let mut lines = request.headers().get_all("authorization");
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let Some((scheme, shown)) = line.split_at_checked(7) else {
            return false;
        };
        let wanted = self.token.as_bytes();
        if !scheme.eq_ignore_ascii_case(b"bearer ") || wanted.is_empty() {
            return false;
        }
        let differing = shown
            .iter()
            .zip(wanted.iter().cycle())
            .fold(shown.len() ^ wanted.len(), |all, (one, other)| {
                all | usize::from(one ^ other)
            });
        differing == 0
    }
}

/// What a `PURGE` asks for: the URL it is sent to; with `Purge-Prefix` all that begins with it, with
/// `Purge-Tag` what has one of these tags; with `Purge-Soft` they become stale.
pub(super) fn read(
    request: &Request,
    presented: &PresentedRequest<'_>,
    rules: &KeyRules,
    site: &str,
) -> Vec<PurgeRequest> {
    let headers = request.headers();
    let purge = |what| PurgeRequest {
        site: Some(site.into()),
        what,
        soft: headers.contains("purge-soft"),
    };
    let tags: Vec<PurgeRequest> = headers
        .get_all("purge-tag")
        .flat_map(|line| line.split(|byte| byte.is_ascii_whitespace() || *byte == b','))
        .filter(|tag| !tag.is_empty())
        .map(|tag| purge(Purged::Tag(tag.into())))
        .collect();
    if !tags.is_empty() {
        return tags;
    }
    let uri = rules.uri(presented);
    vec![purge(match headers.contains("purge-prefix") {
        true => Purged::Prefix(uri.uri().into()),
        false => of_uri(&uri, rules),
    })]
}

/// The answer to a `PURGE`.
pub(super) fn answer(is_allowed: bool) -> Response {
    match is_allowed {
        true => Response::new(StatusCode::NO_CONTENT),
        false => Response::new(StatusCode::UNAUTHORIZED).with_header(
            &header::WWW_AUTHENTICATE,
            &HeaderValue::from_static("Bearer"),
        ),
    }
}
