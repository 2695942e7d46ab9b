//! The keys of HTTP/3; sites on one address share its connections, and need the same settings.

use apus_net::{CongestionControl, Http3Settings, RetryMode};

use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable};
use crate::raw::{Congestion, Http3, Protocol, Retry, Site, Tls};
use crate::source::Setting;

/// HTTP/3 of one site, and whether clients may send early data; `None` if the site does not offer it.
pub(super) fn of_site(
    tls: &Setting<Tls>,
    reader: &mut ConfigReader<'_>,
) -> Option<(Http3Settings, bool)> {
    if !is_offered(tls) {
        if let Some(table) = &tls.http3 {
            reader.report(Finding::error(
                &table.span,
                "`http3` has no effect",
                "`protocols` of the site does not have \"h3\"",
            ));
        }
        return None;
    }
    let keys = keys(tls, reader)?;
    Some((settings(&keys), *keys.early_data))
}

/// Reports sites on one address with different settings.
pub(super) fn check(sites: &[Setting<Site>], reader: &mut ConfigReader<'_>) {
    for (at, site) in sites.iter().enumerate() {
        let Some(tls) = offering(site) else { continue };
        let Some(own) = keys(tls, reader) else {
            continue;
        };
        for other in sites.get(..at).unwrap_or_default() {
            let Some(other_tls) = offering(other).filter(|_| share_an_address(site, other)) else {
                continue;
            };
            let Some(others) = keys(other_tls, reader) else {
                continue;
            };
            if settings(&own) == settings(&others) {
                continue;
            }
            let span = |tls: &Setting<Tls>| {
                let table = tls.http3.as_ref();
                table.map_or_else(|| tls.span.clone(), |table| table.span.clone())
            };
            reader.report(
                Finding::error(
                    &span(tls),
                    "two sites on one address have different settings of HTTP/3",
                    "expected the same; only `early_data` may differ",
                )
                .related(&span(other_tls), "the other one"),
            );
            break;
        }
    }
}

/// TLS of a site that offers HTTP/3.
fn offering(site: &Site) -> Option<&Setting<Tls>> {
    site.tls.as_ref().filter(|tls| is_offered(tls))
}

fn is_offered(tls: &Tls) -> bool {
    let protocols = &tls.protocols.0;
    protocols.iter().any(|one| one.value == Protocol::Http3)
}

fn share_an_address(one: &Site, other: &Site) -> bool {
    let addresses = &other.listen_tls.0;
    one.listen_tls.0.iter().any(|listen| {
        addresses
            .iter()
            .any(|address| address.value == listen.value)
    })
}

/// The table, or its defaults.
fn keys(tls: &Setting<Tls>, reader: &mut ConfigReader<'_>) -> Option<Http3> {
    match &tls.http3 {
        Some(table) => Some(table.value.clone()),
        None => Http3::absent(&tls.span, reader),
    }
}

fn settings(keys: &Http3) -> Http3Settings {
    let window = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    Http3Settings {
        receive_window: window(keys.receive_window.size()),
        stream_receive_window: window(keys.stream_receive_window.size()),
        send_window: window(keys.send_window.size()),
        max_idle_timeout: keys.max_idle_timeout.0,
        retry: match *keys.retry {
            Retry::Auto => RetryMode::Auto,
            Retry::Always => RetryMode::Always,
            Retry::Never => RetryMode::Never,
        },
        congestion: match *keys.congestion {
            Congestion::Cubic => CongestionControl::Cubic,
            Congestion::Bbr => CongestionControl::Bbr,
        },
        qlog: keys.qlog.as_ref().map(|folder| folder.value.0.clone()),
    }
}
