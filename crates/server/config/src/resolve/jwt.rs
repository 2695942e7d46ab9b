//! The keys of JSON Web Tokens.

use apus_layers::auth::jsonwebtoken::Algorithm;
use apus_layers::auth::{JwtAuth, KeySet, RemoteKeySet};
use apus_proxy::{Forwarding, HostHeader, ProxySettings};

use super::admission_check::AdmissionCheck;
use super::tls;
use super::upstream::{SiteUpstreams, with_authorities};
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::layers::{self as keys, JwtAlgorithm};
use crate::source::{Setting, SourceSpan};
use crate::string_type::origin::{FetchUrl, UpstreamTarget};
use crate::value::FilePath;

type Auth = JwtAuth<serde_json::Value>;

/// The check of tokens.
pub(super) fn check(
    (raw, span): (&keys::Jwt, &SourceSpan),
    groups: &SiteUpstreams<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<AdmissionCheck> {
    if let (Some(tls), None) = (&raw.tls, &raw.jwks_url)
        && !reader.has_wrong(span, &["jwks_url"])
    {
        reader.report(Finding::error(
            &tls.span,
            "`tls` without `jwks_url`",
            "nothing is fetched",
        ));
        return None;
    }
    let mut auth = match (&raw.key_file, &raw.jwks_file, &raw.jwks_url) {
        (Some(file), None, None) => by_key(raw, (file, span), reader)?,
        (None, Some(file), None) => {
            let auth = by_file(file, reader);
            with_algorithms(raw, auth?, reader)?
        }
        (None, None, Some(url)) => {
            let keys = remote((url, raw.tls.as_ref()), groups, reader)?;
            with_algorithms(raw, Auth::remote_key_set(keys), reader)?
        }
        _ if reader.has_wrong(span, &["key_file", "jwks_file", "jwks_url"]) => return None,
        _ => {
            reader.report(Finding::error(
                span,
                "the keys of tokens come from one place",
                "expected one of `key_file`, `jwks_file` and `jwks_url`",
            ));
            return None;
        }
    };
    auth = auth.leeway(raw.leeway.0);
    if let Some(issuer) = &raw.issuer {
        auth = auth.issuer(&issuer.0);
    }
    if let Some(audience) = &raw.audience {
        auth = auth.audience(&audience.0);
    }
    if *raw.optional {
        auth = auth.optional();
    }
    Some(AdmissionCheck {
        admits_everybody: raw.optional.value.then(|| raw.optional.span.clone()),
        ..AdmissionCheck::new(raw, auth)
    })
}

/// Tokens that are signed with the one key of a file.
fn by_key(
    raw: &keys::Jwt,
    (file, span): (&Setting<FilePath>, &SourceSpan),
    reader: &mut ConfigReader<'_>,
) -> Option<Auth> {
    let [of_key] = &*raw.algorithm.0 else {
        if reader.has_wrong(span, &["algorithm"]) {
            return None;
        }
        let place = if raw.algorithm.given {
            &raw.algorithm.span
        } else {
            span
        };
        reader.report(Finding::error(
            place,
            "a key is for one algorithm",
            "expected `algorithm` with the one of `key_file`",
        ));
        return None;
    };
    let key = tls::file(file, reader)?;
    let auth = match Auth::from_key(algorithm(of_key.value), &key) {
        Ok(auth) => auth,
        Err(error) => {
            reader.report(Finding::error(
                &file.span,
                error.to_string(),
                "in this file",
            ));
            return None;
        }
    };
    if of_key.value.is_secret() {
        tls::warn_of_readers(file, reader);
    }
    Some(auth)
}

/// Tokens that are signed with a key of the set in a file.
fn by_file(file: &Setting<FilePath>, reader: &mut ConfigReader<'_>) -> Option<Auth> {
    let text = tls::file(file, reader)?;
    match KeySet::parse(&text) {
        Ok(keys) => Some(Auth::key_set(keys)),
        Err(error) => {
            reader.report(Finding::error(
                &file.span,
                error.to_string(),
                "in this file",
            ));
            None
        }
    }
}

/// The set at a URL, by TLS with authorities of its own if there is a table for it.
pub(super) fn remote(
    (url, tls): (&Setting<FetchUrl>, Option<&Setting<keys::FetchTls>>),
    groups: &SiteUpstreams<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<RemoteKeySet> {
    let UpstreamTarget::Origin {
        node,
        authority: Some(authority),
        protocol,
    } = &url.origin.target
    else {
        return None;
    };
    let host = node.host().unwrap_or_default();
    let is_local = host == "localhost" || host.starts_with("127.") || host == "::1";
    if node.tls != Some(true) && !is_local {
        reader.report(Finding::warning(
            &url.span,
            "keys come in clear text",
            "whoever is between can replace them; expected https",
        ));
    }
    if let Some(tls) = tls.filter(|_| node.tls != Some(true)) {
        reader.report(
            Finding::error(
                &tls.span,
                "`tls` has no effect",
                "the keys come in clear text",
            )
            .related(&url.span, "expected https here"),
        );
        return None;
    }
    let node = Setting {
        value: node.clone(),
        span: url.span.clone(),
        given: true,
    };
    let ca = tls.map(|tls| &tls.ca);
    let group = groups.of_url((&node, *protocol), ca, reader)?;
    let settings = ProxySettings {
        site: groups.site_name().into(),
        host: HostHeader::Fixed(authority.as_str().into()),
        scheme: group.scheme(),
        // The request is of no client.
        forwarding: Forwarding {
            x_forwarded: false,
            ..Forwarding::default()
        },
        ..ProxySettings::default()
    };
    let handle = groups.origin_handle(group.name, settings);
    match RemoteKeySet::new(handle, &url.text) {
        Ok(keys) => {
            groups.add_key_set(&with_authorities(&url.text, ca), &keys);
            Some(keys)
        }
        Err(error) => {
            reader.report(Finding::error(&url.span, error.to_string(), "in this URL"));
            None
        }
    }
}

/// Accepts only the algorithms that the key names.
fn with_algorithms(raw: &keys::Jwt, auth: Auth, reader: &mut ConfigReader<'_>) -> Option<Auth> {
    let mut algorithms = raw.algorithm.0.iter();
    if let Some(secret) = algorithms.find(|algorithm| algorithm.is_secret()) {
        reader.report(Finding::error(
            &secret.span,
            "an algorithm with a secret, where keys are public",
            "expected an algorithm with a public key",
        ));
        return None;
    }
    let algorithms = raw.algorithm.0.iter();
    let algorithms: Vec<_> = algorithms.map(|one| algorithm(one.value)).collect();
    Some(if algorithms.is_empty() {
        auth
    } else {
        auth.algorithms(&algorithms)
    })
}

fn algorithm(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Hs384 => Algorithm::HS384,
        JwtAlgorithm::Hs512 => Algorithm::HS512,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}
