//! The listeners of sites; sites on one address need equal listeners.

use apus_http::Network;
use apus_net::ListenAddress;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::plan::ListenerPlan;
use crate::raw::Site;
use crate::source::{Setting, SourceSpan};
use crate::string_type::ListenSpec;
use crate::value::FilePath;

/// The listeners of one site.
pub(super) fn listeners(
    site: &Setting<Site>,
    trusts_proxies: bool,
    reader: &mut ConfigReader<'_>,
) -> Vec<ListenerPlan> {
    let proxy_protocol_from = networks(site);
    let clear = site.listen.0.iter().map(|listen| (listen, false));
    let tls = site.listen_tls.0.iter().map(|listen| (listen, true));
    let mut listeners: Vec<ListenerPlan> = Vec::new();
    for (listen, tls) in clear.chain(tls) {
        let address = address(site, listen);
        if listeners.iter().any(|other| other.address == address) {
            reader.report(Finding::error(
                &listen.span,
                format!("the site listens on {address} twice"),
                "expected an address that the site does not have yet",
            ));
            continue;
        }
        listeners.push(ListenerPlan {
            address,
            tls,
            proxy_protocol_from: proxy_protocol_from.clone(),
            span: listen.span.clone(),
        });
    }
    if listeners.is_empty() && !reader.has_wrong(&site.span, &["listen", "listen_tls"]) {
        reader.report(
            Finding::error(
                &site.span,
                "the site listens nowhere",
                "expected `listen` or `listen_tls` in this site",
            )
            .help("add listen = 80, or another port or address"),
        );
    }
    if !reader.has_wrong(&site.span, &["listen", "listen_tls"]) {
        no_effect(site, &listeners, trusts_proxies, reader);
    }
    listeners
}

/// Reports keys without effect.
fn no_effect(
    site: &Setting<Site>,
    listeners: &[ListenerPlan],
    trusts_proxies: bool,
    reader: &mut ConfigReader<'_>,
) {
    let mut report = |span: &SourceSpan, key: &str, why: &str| {
        reader.report(Finding::error(
            span,
            format!("`{key}` has no effect"),
            why.to_owned(),
        ));
    };
    let has =
        |test: fn(&ListenAddress) -> bool| listeners.iter().any(|listener| test(&listener.address));
    if site.ipv6_only.given
        && !has(
            |address| matches!(address, ListenAddress::Tcp { address, .. } if address.is_ipv6()),
        )
    {
        report(
            &site.ipv6_only.span,
            "ipv6_only",
            "the site does not listen on IPv6",
        );
    }
    if site.unix_socket_mode.given && !has(|address| matches!(address, ListenAddress::Unix { .. }))
    {
        report(
            &site.unix_socket_mode.span,
            "unix_socket_mode",
            "the site does not listen on a Unix socket",
        );
    }
    // A proxy in front may terminate TLS.
    if site.listen_tls.0.is_empty() && !trusts_proxies {
        if *site.force_https {
            report(
                &site.force_https.span,
                "force_https",
                "the site has no `listen_tls`, and no proxy in front is trusted",
            );
        }
        if let Some(hsts) = &site.hsts {
            report(
                &hsts.span,
                "hsts",
                "the site has no `listen_tls`, and no proxy in front is trusted",
            );
        }
    }
}

/// Reports differences between the listeners of two sites on one address.
pub(super) fn check(sites: &[Setting<Site>], reader: &mut ConfigReader<'_>) {
    let all: Vec<_> = sites
        .iter()
        .flat_map(|site| {
            let clear = site.listen.0.iter().map(move |listen| (listen, false));
            let tls = site.listen_tls.0.iter().map(move |listen| (listen, true));
            clear
                .chain(tls)
                .map(move |(listen, tls)| (site, listen, tls))
        })
        .collect();
    for (at, (site, listen, tls)) in all.iter().enumerate() {
        let others = all.get(..at).unwrap_or_default();
        let Some((other_site, other, other_tls)) = others.iter().find(|(other_site, other, _)| {
            !std::ptr::eq(*other_site, *site) && other.value == listen.value
        }) else {
            continue;
        };
        let what = if tls != other_tls {
            "in clear text and with TLS"
        } else if networks(site) != networks(other_site) {
            "with different `proxy_protocol_from`"
        } else if address(site, listen) != address(other_site, other) {
            "with different `ipv6_only` or `unix_socket_mode`"
        } else {
            continue;
        };
        reader.report(
            Finding::error(
                &listen.span,
                format!("two sites listen on {} {what}", address(site, listen)),
                "expected the same on one address",
            )
            .related(&other.span, "the other one"),
        );
    }
}

/// Reports a site that listens at the path of the control socket.
pub(super) fn check_control_socket(
    control: &Setting<FilePath>,
    sites: &[Setting<Site>],
    reader: &mut ConfigReader<'_>,
) {
    let mut listeners = sites
        .iter()
        .flat_map(|site| site.listen.0.iter().chain(&site.listen_tls.0));
    let is_same =
        |listen: &&Setting<ListenSpec>| listen.value == ListenSpec::Unix(control.value.0.clone());
    if let Some(listen) = listeners.find(is_same) {
        reader.report(
            Finding::error(
                &listen.span,
                "a site listens at the path of the control socket",
                "expected another path",
            )
            .related(&control.span, "the control socket"),
        );
    }
}

fn address(site: &Setting<Site>, listen: &Setting<ListenSpec>) -> ListenAddress {
    listen.address(*site.ipv6_only, site.unix_socket_mode.0)
}

fn networks(site: &Setting<Site>) -> Vec<Network> {
    site.proxy_protocol_from
        .0
        .iter()
        .map(|network| network.value.0)
        .collect()
}
