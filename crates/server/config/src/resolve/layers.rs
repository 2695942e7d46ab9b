//! The layers of a site or a location: request ids, security headers, CORS, time-out, limits, access.

use apus_handler::middleware::Layer;
use apus_http::HeaderName;
use apus_layers::{Cors, LimitHandle, RequestIds, SecurityHeaders, Timeout};
use http::header;

use super::access::{AccessKeys, AccessLayers};
use super::limits::{self, ResolvedLimit};
use super::switched::switched;
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::LocationKeys;
use crate::raw::layers::{self as keys, CorsHeader, CorsOrigin};
use crate::source::Setting;
use crate::value::Seconds;

/// The layers of a site or a location, the outermost first.
#[derive(Clone, Debug, Default)]
pub(super) struct LocationLayers {
    request_id: Option<Layer>,
    security_headers: Option<Layer>,
    cors: Option<Layer>,
    request_timeout: Option<Layer>,
    access: AccessLayers,
    limits: Vec<ResolvedLimit>,
}

impl LocationLayers {
    /// The layers by the keys of a place, and the site's layers for keys that the place does not have. Layers of
    /// the site are shared, not made again.
    pub(super) fn resolve(
        keys: AccessKeys<'_>,
        site: &Self,
        reader: &mut ConfigReader<'_>,
    ) -> Self {
        let own = keys.own;
        Self {
            request_id: switched(
                own.request_id.as_ref(),
                &site.request_id,
                reader,
                |keys, _, _| {
                    let field = HeaderName::from_bytes(keys.header.0.as_bytes()).ok()?;
                    Some(Layer::named(
                        "request_id",
                        keys,
                        RequestIds::new().field(field),
                    ))
                },
            ),
            security_headers: switched(
                own.security_headers.as_ref(),
                &site.security_headers,
                reader,
                |keys, _, reader| security_headers(keys, reader),
            ),
            cors: switched(own.cors.as_ref(), &site.cors, reader, |keys, _, reader| {
                cors(keys, reader)
            }),
            request_timeout: match &own.request_timeout {
                None => site.request_timeout.clone(),
                Some(Setting {
                    value: Seconds(time),
                    ..
                }) => (!time.is_zero())
                    .then(|| Layer::named("request_timeout", time, Timeout::new(*time))),
            },
            access: AccessLayers::resolve(keys, &site.access, reader),
            limits: limits::resolve(&own.limits.0, &site.limits, keys.conditions, reader),
        }
    }

    /// The layers of the whole server, which are limits.
    pub(super) fn of_limits(limits: Vec<ResolvedLimit>) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// All limits, as the status of a server knows them.
    pub(super) fn handles(&self) -> impl Iterator<Item = &LimitHandle> {
        self.limits.iter().map(|limit| &limit.handle)
    }

    /// Whether a place has a key of a layer.
    pub(super) fn has_keys(own: &LocationKeys) -> bool {
        own.request_id.is_some()
            || own.security_headers.is_some()
            || own.cors.is_some()
            || own.request_timeout.is_some()
            || AccessLayers::has_keys(own)
            || !own.limits.0.is_empty()
    }

    /// The limits of a place itself, without those of its site.
    pub(super) fn own_limits<'a>(
        &'a self,
        own: &'a LocationKeys,
    ) -> impl Iterator<Item = &'a LimitHandle> {
        let is_own = |limit: &&LimitHandle| {
            let mut names = own.limits.0.iter();
            names.any(|keys| keys.name.0 == limit.name())
        };
        self.handles().filter(is_own)
    }

    /// The limits of a place, with those of its site.
    pub(super) fn limits(&self) -> &[ResolvedLimit] {
        &self.limits
    }

    /// The layers, the outermost first.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Layer> {
        // A limit by the user comes after who authenticates it, all others before: a password costs more to check than a request to
        // count.
        let (by_user, others): (Vec<_>, Vec<_>) = self
            .limits
            .into_iter()
            .filter(|limit| limit.by_rules.is_none())
            .partition(|limit| limit.handle.key().needs_authentication());
        // The time-out does not count the time in which a client has to wait, so it is around the body whose client waits.
        let (of_requests, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|limit| limit.limits_requests);
        let fields = [self.request_id, self.security_headers, self.cors];
        let layers = |limits: Vec<ResolvedLimit>| limits.into_iter().map(|limit| limit.layer);
        fields
            .into_iter()
            .flatten()
            .chain(layers(of_requests))
            .chain(self.request_timeout)
            .chain(layers(others))
            .chain(self.access.into_iter())
            .chain(layers(by_user))
    }
}

fn security_headers(keys: &keys::SecurityHeaders, reader: &mut ConfigReader<'_>) -> Option<Layer> {
    let policy = &keys.content_security_policy;
    let reported = &keys.content_security_policy_report_only;
    let mut headers = SecurityHeaders::new();
    headers = match (text(&policy.0), text(&reported.0)) {
        ("", "") => headers.without(&header::CONTENT_SECURITY_POLICY),
        (_, "") => headers.content_security_policy(text(&policy.0)),
        (_, reported_text) if !policy.given || text(&policy.0).is_empty() => {
            headers.content_security_policy_report_only(reported_text)
        }
        _ => {
            reader.report(
                Finding::error(
                    &reported.span,
                    "`content_security_policy` and `content_security_policy_report_only` exclude each other",
                    "expected one of them",
                )
                .related(&policy.span, "the other one"),
            );
            return None;
        }
    };
    let others = [
        (header::X_CONTENT_TYPE_OPTIONS, &keys.content_type_options),
        (header::X_FRAME_OPTIONS, &keys.frame_options),
        (header::REFERRER_POLICY, &keys.referrer_policy),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            &keys.opener_policy,
        ),
        (
            HeaderName::from_static("permissions-policy"),
            &keys.permissions_policy,
        ),
    ];
    for (name, value) in others {
        headers = if value.0.is_empty() {
            headers.without(&name)
        } else {
            headers.set(name, value.0.clone())
        };
    }
    Some(Layer::named("security_headers", keys, headers))
}

fn cors(keys: &keys::Cors, reader: &mut ConfigReader<'_>) -> Option<Layer> {
    let any = keys
        .origins
        .0
        .iter()
        .find(|origin| matches!(origin.value, CorsOrigin::Any));
    if let Some(any) = any {
        let other = match keys.origins.0.len() {
            1 if !*keys.credentials => {
                return Some(Layer::named(
                    "cors",
                    keys,
                    with_keys(Cors::any_origin(), keys),
                ));
            }
            1 => (
                &keys.credentials.span,
                "a response for all origins comes without credentials",
            ),
            _ => (&any.span, "`*` is all origins already"),
        };
        reader.report(Finding::error(
            other.0,
            other.1,
            "expected a list of origins without `*`",
        ));
        return None;
    }
    let mut cors = Cors::new();
    for origin in &keys.origins.0 {
        if let CorsOrigin::Origin(origin) = &origin.value {
            cors = cors.origin(origin);
        }
    }
    if *keys.credentials {
        cors = cors.credentials();
    }
    Some(Layer::named("cors", keys, with_keys(cors, keys)))
}

/// The keys that do not depend on the origins.
fn with_keys<Origins>(cors: Cors<Origins>, keys: &keys::Cors) -> Cors<Origins> {
    let cors = cors.methods(keys.methods.0.iter().map(|method| method.0.clone()));
    let is_any = |header: &Setting<CorsHeader>| matches!(header.value, CorsHeader::Any);
    let cors = if keys.headers.0.iter().any(is_any) {
        cors.any_request_header()
    } else {
        cors.request_headers(
            keys.headers
                .0
                .iter()
                .filter_map(|header| match &header.value {
                    CorsHeader::Name(name) => Some(name.clone()),
                    CorsHeader::Any => None,
                }),
        )
    };
    let exposed = keys.expose_headers.0.iter();
    let exposed = exposed.filter_map(|name| HeaderName::from_bytes(name.0.as_bytes()).ok());
    cors.exposed_headers(exposed).max_age(keys.max_age.0)
}

fn text(value: &http::HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}
