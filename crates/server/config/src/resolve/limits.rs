//! The limits of a site or a location.

use apus_handler::middleware::{Layer, Middleware};
use apus_layers::{ConcurrentRequests, LimitHandle, LimitKey, RateLimit};

use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::raw::layers::Limit;
use crate::source::{Setting, SourceSpan};
use crate::string_type::limit::RateText;

/// A limit as a layer, and as the status of a server knows it.
#[derive(Clone, Debug)]
pub(super) struct ResolvedLimit {
    pub(super) layer: Layer,
    pub(super) handle: LimitHandle,
    /// Where `by_rules` stands, if it applies only where a rule names it.
    pub(super) by_rules: Option<SourceSpan>,
}

/// The limits of the site and of a place in it. A limit of the place takes the position of a limit of the site with its name.
pub(super) fn resolve(
    own: &[Setting<Limit>],
    site: &[ResolvedLimit],
    reader: &mut ConfigReader<'_>,
) -> Vec<ResolvedLimit> {
    let mut limits = site.to_vec();
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
                    "no limit of the site has this name",
                )),
            }
            continue;
        }
        let limit = limit(keys, reader);
        match (
            position.and_then(|position| limits.get_mut(position)),
            limit,
        ) {
            (_, None) => {}
            (Some(of_site), Some(limit)) => *of_site = limit,
            (None, Some(limit)) => limits.push(limit),
        }
    }
    limits
}

fn limit(keys: &Setting<Limit>, reader: &mut ConfigReader<'_>) -> Option<ResolvedLimit> {
    let facts = keys.key.0.iter().map(|fact| &*fact.value.0);
    let key = match LimitKey::parse(facts) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("`key`: {error}");
            reader.report(Finding::error(&keys.key.span, message, "expected a fact"));
            return None;
        }
    };
    match (&keys.rate, &keys.concurrent) {
        (Some(rate), None) => rate_limit(keys, rate, (key, reader)),
        (None, Some(concurrent)) => {
            let unused = [
                ("delay", given(&keys.delay)),
                ("tiers", given(&keys.tiers)),
                ("keys", given(&keys.keys)),
                ("burst", keys.burst.as_ref().map(|burst| &burst.span)),
            ];
            refuse_unused(&unused, "`concurrent`", reader)?;
            let requests = u32::try_from(concurrent.0).unwrap_or(u32::MAX);
            let queue = u32::try_from(keys.queue.0).unwrap_or(u32::MAX);
            let mut limit = ConcurrentRequests::new(requests)
                .name(&keys.name.0)
                .by_key(key)
                .queue(queue, keys.queue_timeout.0);
            if let Some(status) = &keys.status {
                limit = limit.status(status.0);
            }
            if *keys.dry_run {
                limit = limit.dry_run();
            }
            let handle = limit.handle().clone();
            Some(resolved(handle, keys, limit))
        }
        (Some(rate), Some(concurrent)) => {
            reader.report(
                Finding::error(
                    &concurrent.span,
                    "`concurrent` and `rate` exclude each other",
                    "expected one of them",
                )
                .related(&rate.span, "the other one")
                .help("write two limits"),
            );
            None
        }
        (None, None) => {
            if !reader.has_wrong(&keys.span, &["rate", "concurrent"]) {
                reader.report(Finding::error(
                    &keys.span,
                    "the limit has neither `rate` nor `concurrent`",
                    "expected rate = \"100/s\" or concurrent = 10 in this table",
                ));
            }
            None
        }
    }
}

fn rate_limit(
    keys: &Setting<Limit>,
    rate: &RateText,
    (key, reader): (LimitKey, &mut ConfigReader<'_>),
) -> Option<ResolvedLimit> {
    let unused = [
        ("queue", given(&keys.queue)),
        ("queue_timeout", given(&keys.queue_timeout)),
    ];
    refuse_unused(&unused, "`rate`", reader)?;
    if keys.tiers.given && !key.is_one_text() {
        reader.report(
            Finding::error(
                &keys.tiers.span,
                "`tiers` need a key that is one text",
                "the rates are for values of the key",
            )
            .related(&keys.key.span, "the key")
            .help("write key = \"header.x-api-key\", or another fact"),
        );
        return None;
    }
    let with_rate =
        |rate: &RateText| RateLimit::new(rate.requests, rate.period).delay(keys.delay.0);
    let mut limit = with_rate(rate)
        .name(&keys.name.0)
        .by_key(key)
        .remembered_clients(keys.keys.size());
    if let Some(burst) = &keys.burst {
        limit = limit.burst(u32::try_from(burst.0).unwrap_or(u32::MAX));
    }
    for (value, rate) in &keys.tiers.0 {
        limit = limit.tier(&value.0, &with_rate(rate));
    }
    if let Some(status) = &keys.status {
        limit = limit.status(status.0);
    }
    if *keys.dry_run {
        limit = limit.dry_run();
    }
    let handle = limit.handle().clone();
    Some(resolved(handle, keys, limit))
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
