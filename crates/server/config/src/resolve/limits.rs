//! The limits of a site or a location.

use std::sync::Arc;

use apus_conditions::{Condition, FactStage, RequestLimits};
use apus_handler::middleware::{Layer, Middleware};
use apus_http::Request;
use apus_layers::{
    BandwidthLimit, ConcurrentRequests, ConditionalLayer, LimitHandle, LimitKey, QuotaLimit,
    RateLimit, TimeZone,
};

use super::conditions::Conditions;
use super::tiers;
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::layers::Limit;
use crate::source::{Setting, SourceSpan};
use crate::string_type::limit::{BandwidthText, BodyDirection, QuotaText, RateText};

/// A limit as a layer, and as the status of a server knows it.
#[derive(Clone, Debug)]
pub(super) struct ResolvedLimit {
    pub(super) layer: Layer,
    pub(super) handle: LimitHandle,
    /// Where `by_rules` stands, if it applies only where a rule names it.
    pub(super) by_rules: Option<SourceSpan>,
    /// Whether it limits the bandwidth of requests, so that clients wait.
    pub(super) limits_requests: bool,
    /// What conditions may ask; `None` if that is nothing.
    pub(super) readable: Option<ReadableLimit>,
}

/// A limit whose state conditions may ask for.
#[derive(Clone, Debug)]
pub(super) enum ReadableLimit {
    Rate(RateLimit),
    Quota(QuotaLimit),
}

/// The limits of a place whose state conditions may ask for.
pub(super) fn readable(limits: &[ResolvedLimit]) -> RequestLimits {
    let mut readable = RequestLimits::default();
    for limit in limits {
        let name = limit.handle.name();
        match limit.readable.clone() {
            Some(ReadableLimit::Rate(own)) => {
                readable.add(name, Arc::new(move |request: &Request| own.left(request)));
            }
            Some(ReadableLimit::Quota(own)) => {
                readable.add(name, Arc::new(move |request: &Request| own.left(request)));
            }
            None => {}
        }
    }
    readable
}

/// The limits of a place and of what it is in: of a location and its site, of a site and the whole server. A limit of the place takes the
/// position of the outer one with its name.
pub(super) fn resolve(
    own: &[Setting<Limit>],
    outer: &[ResolvedLimit],
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Vec<ResolvedLimit> {
    let mut limits = outer.to_vec();
    for (at, keys) in own.iter().enumerate() {
        let name = &keys.name;
        let mut before = own.iter().take(at);
        if let Some(other) = before.find(|other| other.name.value == name.value) {
            reader.report(
                Finding::error(
                    &name.span,
                    format!("two limits have the name `{}`", shown(&name.0)),
                    "expected a name that no other limit has",
                )
                .related(&other.name.span, "the other one"),
            );
            continue;
        }
        let position = limits
            .iter()
            .position(|limit| limit.handle.name() == name.0);
        if !*keys.enabled {
            match position {
                Some(position) => {
                    limits.remove(position);
                }
                None => reader.report(Finding::warning(
                    &keys.enabled.span,
                    "the limit has no effect",
                    "no limit further out has this name",
                )),
            }
            continue;
        }
        let limit = limit(keys, conditions, reader)
            .and_then(|limit| with_condition(limit, keys, (conditions, reader)));
        match (
            position.and_then(|position| limits.get_mut(position)),
            limit,
        ) {
            (_, None) => {}
            (Some(outer), Some(limit)) => *outer = limit,
            (None, Some(limit)) => limits.push(limit),
        }
    }
    limits
}

/// The limit for the requests that its condition holds for.
fn with_condition(
    limit: ResolvedLimit,
    keys: &Setting<Limit>,
    (conditions, reader): (&Conditions, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let Some(when) = &keys.when else {
        return Some(limit);
    };
    // A limit by the user comes behind the authentication.
    let stage = if limit.handle.key().needs_authentication() {
        FactStage::Authentication
    } else {
        FactStage::Request
    };
    let condition = conditions.compile(when, stage, reader)?;
    let name = limit.layer.name().to_owned();
    let layer = ConditionalLayer::around(condition, limit.layer);
    Some(ResolvedLimit {
        layer: Layer::named(&name, keys, layer),
        ..limit
    })
}

fn limit(
    keys: &Setting<Limit>,
    conditions: &Conditions,
    reader: &mut ConfigReader<'_>,
) -> Option<ResolvedLimit> {
    let facts = keys.key.0.iter().map(|fact| &*fact.value.0);
    let parsed = conditions.limit_key(facts);
    let key = match parsed.and_then(|key| key.with_geo_databases(conditions.geo())) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("`key`: {error}");
            reader.report(Finding::error(&keys.key.span, message, "expected a fact"));
            return None;
        }
    };
    if let Some(ban) = keys.ban.as_ref().filter(|_| !key.has_client()) {
        reader.report(
            Finding::error(
                &ban.span,
                "`ban` needs a key that has the client",
                "clients would be banned for what others did",
            )
            .related(&keys.key.span, "the key")
            .help("add \"client\" to the key"),
        );
        return None;
    }
    if keys.ban.is_none() {
        let unused = [("ban_after", given(&keys.ban_after))];
        refuse_unused(&unused, "no `ban`", reader)?;
    }
    let kinds = [
        keys.rate.as_ref().map(|rate| ("rate", &rate.span)),
        keys.quota.as_ref().map(|quota| ("quota", &quota.span)),
        keys.concurrent
            .as_ref()
            .map(|requests| ("concurrent", &requests.span)),
        keys.bandwidth
            .as_ref()
            .map(|bandwidth| ("bandwidth", &bandwidth.span)),
    ];
    let mut kinds = kinds.into_iter().flatten();
    if let (Some((first, first_span)), Some((second, span))) = (kinds.next(), kinds.next()) {
        reader.report(
            Finding::error(
                span,
                format!("`{second}` and `{first}` exclude each other"),
                "expected one of them",
            )
            .related(first_span, "the other one")
            .help("write two limits"),
        );
        return None;
    }
    if keys.rate.is_some() || keys.quota.is_some() {
        let count = match &keys.count {
            Some(when) => Some(conditions.compile(when, FactStage::Response, reader)?),
            None => None,
        };
        if let Some(rate) = &keys.rate {
            return rate_limit((keys, count), rate, (key, reader));
        }
        if let Some(quota) = &keys.quota {
            let zone = conditions.zone();
            return quota_limit((keys, count), (quota, zone), (key, reader));
        }
    }
    if let Some(concurrent) = &keys.concurrent {
        let requests = u32::try_from(concurrent.0).unwrap_or(u32::MAX);
        return concurrent_requests(keys, requests, (key, reader));
    }
    if let Some(bandwidth) = &keys.bandwidth {
        return bandwidth_limit(keys, bandwidth, (key, reader));
    }
    if !reader.has_wrong(&keys.span, &["rate", "quota", "concurrent", "bandwidth"]) {
        reader.report(Finding::error(
            &keys.span,
            "the limit has neither `rate`, `quota`, `concurrent` nor `bandwidth`",
            "expected rate = \"100/s\", quota = \"10000/day\", concurrent = 10 or bandwidth = \"1mb/s\" in this table",
        ));
    }
    None
}

/// A limit with the keys about its refusals, which limits of each kind have under the same names.
macro_rules! with_refusals {
    ($limit:ident, $keys:ident) => {{
        let mut limit = $limit;
        if let Some(status) = &$keys.status {
            limit = limit.status(status.0);
        }
        if let Some(ban) = &$keys.ban {
            let refusals = u32::try_from($keys.ban_after.0).unwrap_or(u32::MAX);
            limit = limit.ban_after(refusals, ban.0);
        }
        if *$keys.dry_run {
            limit = limit.dry_run();
        }
        limit
    }};
}

fn concurrent_requests(
    keys: &Setting<Limit>,
    requests: u32,
    (key, reader): (LimitKey, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let unused = [
        ("delay", given(&keys.delay)),
        ("tiers", given(&keys.tiers)),
        ("keys", given(&keys.keys)),
        ("burst", keys.burst.as_ref().map(|burst| &burst.span)),
        ("direction", given(&keys.direction)),
        ("after", given(&keys.after)),
        ("count", keys.count.as_ref().map(|count| &count.span)),
    ];
    refuse_unused(&unused, "`concurrent`", reader)?;
    let queue = u32::try_from(keys.queue.0).unwrap_or(u32::MAX);
    let limit = ConcurrentRequests::new(requests)
        .name(&keys.name.0)
        .by_key(key)
        .queue(queue, keys.queue_timeout.0);
    let limit = with_refusals!(limit, keys);
    let handle = limit.handle().clone();
    Some(resolved(handle, keys, limit))
}

fn bandwidth_limit(
    keys: &Setting<Limit>,
    bandwidth: &BandwidthText,
    (key, reader): (LimitKey, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let unused = [
        ("delay", given(&keys.delay)),
        ("tiers", given(&keys.tiers)),
        ("burst", keys.burst.as_ref().map(|burst| &burst.span)),
        ("queue", given(&keys.queue)),
        ("queue_timeout", given(&keys.queue_timeout)),
        ("status", keys.status.as_ref().map(|status| &status.span)),
        ("dry_run", given(&keys.dry_run)),
        ("ban", keys.ban.as_ref().map(|ban| &ban.span)),
        ("count", keys.count.as_ref().map(|count| &count.span)),
    ];
    refuse_unused(&unused, "`bandwidth`, and refuses nothing", reader)?;
    let mut limit = BandwidthLimit::per_second(bandwidth.0)
        .name(&keys.name.0)
        .by_key(key)
        .after(keys.after.0)
        .remembered_keys(keys.keys.size());
    if *keys.direction == BodyDirection::Request {
        limit = limit.of_requests();
    }
    let handle = limit.handle().clone();
    let limits_requests = limit.is_of_requests();
    Some(ResolvedLimit {
        limits_requests,
        ..resolved(handle, keys, limit)
    })
}

fn rate_limit(
    (keys, count): (&Setting<Limit>, Option<Condition>),
    rate: &RateText,
    (key, reader): (LimitKey, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let unused = [
        ("queue", given(&keys.queue)),
        ("queue_timeout", given(&keys.queue_timeout)),
        ("direction", given(&keys.direction)),
        ("after", given(&keys.after)),
    ];
    refuse_unused(&unused, "`rate`", reader)?;
    if rate.is_bytes || count.is_some() {
        let unused = [("delay", given(&keys.delay))];
        refuse_unused(&unused, "responses that it counts", reader)?;
    }
    let tiers = tiers::resolve::<RateText>((keys, "rate"), &key, reader)?;
    if tiers.iter().any(|(_, tier)| tier.is_bytes != rate.is_bytes) {
        reader.report(Finding::error(
            &keys.tiers.span,
            "`tiers` and `rate` count different things",
            "expected requests or bytes in all of them",
        ));
        return None;
    }
    let with_rate = |rate: &RateText| RateLimit::new(rate.units, rate.period).delay(keys.delay.0);
    let mut limit = with_rate(rate)
        .name(&keys.name.0)
        .by_key(key)
        .remembered_clients(keys.keys.size());
    if let Some(burst) = &keys.burst {
        limit = limit.burst(u32::try_from(burst.0).unwrap_or(u32::MAX));
    }
    limit = match (rate.is_bytes, count) {
        (true, condition) => limit.count_bytes(condition),
        (false, Some(condition)) => limit.count_responses(condition),
        (false, None) => limit,
    };
    for (value, rate) in &tiers {
        limit = limit.tier(value, &with_rate(rate));
    }
    let limit = with_refusals!(limit, keys);
    let handle = limit.handle().clone();
    let readable = Some(ReadableLimit::Rate(limit.clone()));
    Some(ResolvedLimit {
        readable,
        ..resolved(handle, keys, limit)
    })
}

fn quota_limit(
    (keys, count): (&Setting<Limit>, Option<Condition>),
    (quota, zone): (&QuotaText, TimeZone),
    (key, reader): (LimitKey, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let unused = [
        ("burst", keys.burst.as_ref().map(|burst| &burst.span)),
        ("delay", given(&keys.delay)),
        ("queue", given(&keys.queue)),
        ("queue_timeout", given(&keys.queue_timeout)),
        ("direction", given(&keys.direction)),
        ("after", given(&keys.after)),
    ];
    refuse_unused(&unused, "`quota`", reader)?;
    if key.has_connection() {
        reader.report(Finding::error(
            &keys.key.span,
            "a quota by the connection ends with it",
            "expected \"client\", or another key",
        ));
        return None;
    }
    let tiers = tiers::resolve::<QuotaText>((keys, "quota"), &key, reader)?;
    let is_other =
        |tier: &QuotaText| (tier.is_bytes, tier.window) != (quota.is_bytes, quota.window);
    if tiers.iter().any(|(_, tier)| is_other(tier)) {
        reader.report(Finding::error(
            &keys.tiers.span,
            "`tiers` and `quota` count different things, or have different windows",
            "expected requests or bytes in all of them, and one window",
        ));
        return None;
    }
    let mut limit = QuotaLimit::new(quota.units, quota.window)
        .zone(zone)
        .name(&keys.name.0)
        .by_key(key)
        .remembered_keys(keys.keys.size());
    limit = match (quota.is_bytes, count) {
        (true, condition) => limit.count_bytes(condition),
        (false, Some(condition)) => limit.count_responses(condition),
        (false, None) => limit,
    };
    for (value, tier) in &tiers {
        limit = limit.tier(value, tier.units);
    }
    let limit = with_refusals!(limit, keys);
    let handle = limit.handle().clone();
    let readable = Some(ReadableLimit::Quota(limit.clone()));
    Some(ResolvedLimit {
        readable,
        ..resolved(handle, keys, limit)
    })
}

fn resolved(
    handle: LimitHandle,
    keys: &Setting<Limit>,
    limit: impl Middleware<()>,
) -> ResolvedLimit {
    ResolvedLimit {
        layer: Layer::named(&format!("limit {}", handle.name()), keys, limit),
        handle,
        by_rules: keys.by_rules.then(|| keys.by_rules.span.clone()),
        limits_requests: false,
        readable: None,
    }
}

fn given<T>(setting: &Setting<T>) -> Option<&SourceSpan> {
    setting.given.then_some(&setting.span)
}

/// Reports keys that have no effect beside another one.
fn refuse_unused(
    unused: &[(&str, Option<&SourceSpan>)],
    beside: &str,
    reader: &mut ConfigReader<'_>,
) -> Option<()> {
    let mut is_valid = true;
    for (key, span) in unused {
        if let Some(span) = span {
            let message = format!("`{key}` has no effect");
            reader.report(Finding::error(
                span,
                message,
                format!("the limit has {beside}"),
            ));
            is_valid = false;
        }
    }
    is_valid.then_some(())
}
