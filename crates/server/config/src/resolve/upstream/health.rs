//! The keys of health: passive, active checks, circuit breaker, outlier ejection.

use apus_upstream::plan::{BreakerPlan, CheckKind, CheckPlan, EjectionPlan, PassivePlan, RatePlan};

use super::{not_below, percent, statuses};
use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::upstream::{Check, CheckType, Protocol, Upstream};
use crate::resolve::small;
use crate::source::SourceSpan;

pub(super) fn passive(raw: &Upstream, reader: &mut ConfigReader<'_>) -> Option<PassivePlan> {
    let passive = raw.passive.table(&raw.passive.span, reader)?;
    Some(PassivePlan {
        max_fails: small(passive.max_fails.0),
        fail_timeout: passive.fail_timeout.0,
    })
}

/// The outer `None` is for errors.
pub(super) fn check(raw: &Upstream, reader: &mut ConfigReader<'_>) -> Option<Option<CheckPlan>> {
    let Some(check) = raw.check.table(&raw.check.span, reader) else {
        return Some(None);
    };
    let text = |text: &str| Box::from(text);
    refuse_others(&check, reader)?;
    if *raw.protocol == Protocol::FastCgi && *check.r#type != CheckType::Tcp {
        reader.report(
            Finding::error(
                &raw.check.span,
                "FastCGI nodes do not support this check",
                "expected `type = \"tcp\"` in it",
            )
            .related(&raw.protocol.span, "the protocol"),
        );
        return None;
    }
    Some(Some(CheckPlan {
        kind: match *check.r#type {
            CheckType::Tcp => CheckKind::Connect,
            CheckType::Grpc => CheckKind::Grpc {
                service: check
                    .service
                    .as_ref()
                    .map_or("".into(), |name| text(&name.0)),
            },
            CheckType::Http => CheckKind::Http {
                target: check.path.as_ref().map_or("/".into(), |path| text(&path.0)),
                host: check.host.as_ref().map(|host| text(&host.0)),
                statuses: statuses(check.status.0.iter().map(|set| set.value)),
                contains: check.contains.as_ref().map(|part| text(&part.0)),
            },
        },
        interval: check.interval.0,
        jitter: percent(check.jitter.0),
        timeout: check.timeout.0,
        rise: small(check.rise.0),
        fall: small(check.fall.0),
    }))
}

/// Reports keys of another kind of check.
fn refuse_others(check: &Check, reader: &mut ConfigReader<'_>) -> Option<()> {
    let status = Some(&check.status.span).filter(|_| check.status.given);
    let keys: [(&str, Option<&SourceSpan>, CheckType); 5] = [
        (
            "path",
            check.path.as_ref().map(|key| &key.span),
            CheckType::Http,
        ),
        (
            "host",
            check.host.as_ref().map(|key| &key.span),
            CheckType::Http,
        ),
        ("status", status, CheckType::Http),
        (
            "contains",
            check.contains.as_ref().map(|key| &key.span),
            CheckType::Http,
        ),
        (
            "service",
            check.service.as_ref().map(|key| &key.span),
            CheckType::Grpc,
        ),
    ];
    let mut is_right = Some(());
    for (name, span, of) in keys {
        if let Some(span) = span
            && *check.r#type != of
        {
            let kind = if of == CheckType::Grpc {
                "grpc"
            } else {
                "http"
            };
            reader.report(Finding::error(
                span,
                format!("`{name}` has no effect"),
                format!("it is for checks of the type `{kind}`"),
            ));
            is_right = None;
        }
    }
    is_right
}

/// The outer `None` is for errors.
pub(super) fn breaker(
    raw: &Upstream,
    reader: &mut ConfigReader<'_>,
) -> Option<Option<BreakerPlan>> {
    let Some(breaker) = raw.breaker.table(&raw.breaker.span, reader) else {
        return Some(None);
    };
    not_below(
        ("open_for", &breaker.open_for),
        ("max_open_for", &breaker.max_open_for),
        reader,
    )?;
    Some(Some(BreakerPlan {
        percent: percent(breaker.percent.0),
        min_requests: small(breaker.min_requests.0),
        window: breaker.window.0,
        open_for: breaker.open_for.0,
        max_open_for: breaker.max_open_for.0,
        probes: small(breaker.probes.0),
    }))
}

/// The outer `None` is for errors.
pub(super) fn ejection(
    raw: &Upstream,
    reader: &mut ConfigReader<'_>,
) -> Option<Option<EjectionPlan>> {
    let Some(ejection) = raw.ejection.table(&raw.ejection.span, reader) else {
        return Some(None);
    };
    not_below(
        ("time", &ejection.time),
        ("max_time", &ejection.max_time),
        reader,
    )?;
    let rate = ejection.rate.table(&ejection.rate.span, reader);
    if rate.is_none() && ejection.consecutive.0 == 0 {
        reader.report(Finding::error(
            &ejection.rate.span,
            "`ejection` has no effect",
            "expected `consecutive` above 0, or `rate`",
        ));
        return None;
    }
    Some(Some(EjectionPlan {
        consecutive: small(ejection.consecutive.0),
        rate: rate.map(|rate| RatePlan {
            interval: rate.interval.0,
            margin: percent(rate.margin.0),
            min_requests: small(rate.min_requests.0),
        }),
        time: ejection.time.0,
        max_time: ejection.max_time.0,
        max_percent: percent(ejection.max_percent.0),
        keep: ejection.keep.size(),
    }))
}
