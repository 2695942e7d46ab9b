//! The keys of forward authentication.

use apus_http::HeaderName;
use apus_layers::auth::{AnswerKey, ForwardAuth};
use apus_proxy::{HostHeader, ProxySettings, RedirectRule};

use super::admission_check::AdmissionCheck;
use super::upstream::SiteUpstreams;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::layers::{self as keys, ForwardAuthKey};
use crate::source::Setting;
use crate::string_type::FieldName;
use crate::string_type::origin::{ProxyHost, UpstreamTarget};

/// The check of clients by another service.
pub(super) fn check(
    raw: &keys::ForwardAuth,
    groups: &SiteUpstreams<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<AdmissionCheck> {
    let uri = match (&raw.uri, &raw.to.path) {
        (Some(uri), Some(_)) => {
            reader.report(
                Finding::error(
                    &uri.span,
                    "two paths of the authority",
                    "expected one of them",
                )
                .related(&raw.to.span, "the other one"),
            );
            return None;
        }
        (Some(uri), None) => uri.0.as_str(),
        (None, Some(path)) => path.as_str(),
        (None, None) => "/",
    };
    let host = host(raw, reader);
    let group = groups.of_upstream(&raw.to, reader)?;
    let settings = ProxySettings {
        site: groups.site_name().into(),
        host: host?,
        scheme: group.scheme(),
        // Where the client logs in is not a part of this site.
        redirects: vec![RedirectRule::keep()],
        ..ProxySettings::default()
    };
    let handle = groups.origin_handle(group.name, settings);
    let auth = match ForwardAuth::new(handle, uri) {
        Ok(auth) => auth,
        Err(error) => {
            reader.report(Finding::error(
                &raw.to.span,
                error.to_string(),
                "in this path",
            ));
            return None;
        }
    };
    let mut auth = auth
        .copy(names(&raw.copy_headers.0))
        .copy_to_response(names(&raw.response_headers.0));
    auth = if raw.request_headers.0.iter().any(|name| name.0 == "*") {
        auth.send_all()
    } else {
        auth.send(names(&raw.request_headers.0))
    };
    if let Some(name) = raw.user_header.as_ref().and_then(name) {
        auth = auth.user_from(name);
    }
    if let Some(cache) = raw.cache.table(&raw.cache.span, reader) {
        auth = auth.remember(cache.time.0, cache.size.size());
        auth = auth.remember_by(cache.key.0.iter().map(|key| match key.value {
            ForwardAuthKey::Method => AnswerKey::Method,
            ForwardAuthKey::Scheme => AnswerKey::Scheme,
            ForwardAuthKey::Host => AnswerKey::Host,
            ForwardAuthKey::Path => AnswerKey::Path,
            ForwardAuthKey::Uri => AnswerKey::Uri,
        }));
    }
    Some(AdmissionCheck::new(raw, auth))
}

fn host(raw: &keys::ForwardAuth, reader: &mut ConfigReader<'_>) -> Option<HostHeader> {
    let of_url = match &raw.to.target {
        UpstreamTarget::Origin { authority, .. } => authority.as_deref(),
        UpstreamTarget::Group(_) => None,
    };
    let fixed = |host: &str| HostHeader::Fixed(host.into());
    let Some(host) = &raw.host else {
        return Some(of_url.map_or(HostHeader::Client, fixed));
    };
    match (&host.value, of_url) {
        (ProxyHost::Client, _) => Some(HostHeader::Client),
        (ProxyHost::Raw, _) => Some(HostHeader::AsSent),
        (ProxyHost::Fixed(host), _) => Some(fixed(host)),
        (ProxyHost::Origin, Some(host)) => Some(fixed(host)),
        (ProxyHost::Origin, None) => {
            reader.report(
                Finding::error(
                    &host.span,
                    "`$proxy_host` without a URL whose host it could be",
                    "expected `$http_host` or a name",
                )
                .related(&raw.to.span, "the authority"),
            );
            None
        }
    }
}

fn names(names: &[Setting<FieldName>]) -> Vec<HeaderName> {
    names.iter().filter_map(name).collect()
}

fn name(name: &Setting<FieldName>) -> Option<HeaderName> {
    HeaderName::from_bytes(name.0.as_bytes()).ok()
}
