//! The names of sites in logs: those that are given, and others that no site has.

use std::collections::BTreeSet;

use crate::raw::Site;
use crate::source::Setting;
use crate::string_type::{ListenSpec, SiteHost};

/// The names of the sites, in their order. Only names that are given can be equal.
pub(super) fn of(sites: &[Setting<Site>]) -> Vec<String> {
    let given = |site: &Setting<Site>| site.name.as_ref().map(|name| name.0.clone());
    let mut taken: BTreeSet<String> = sites.iter().filter_map(given).collect();
    sites
        .iter()
        .enumerate()
        .map(|(at, site)| {
            if let Some(name) = given(site) {
                return name;
            }
            let host = site
                .server_name
                .0
                .iter()
                .find_map(|host| match &host.value {
                    SiteHost::Name(name, _) => Some(name.to_string()),
                    SiteHost::Other => None,
                });
            let numbered = |number: usize| format!("site-{number}");
            let ports = ports(site).map(|port| host.as_ref().map(|host| format!("{host}:{port}")));
            let own = host.clone().into_iter().chain(ports.flatten());
            let name = own
                .chain((at + 1..).map(numbered))
                .find(|name| !taken.contains(name))
                .unwrap_or_else(|| numbered(at + 1));
            taken.insert(name.clone());
            name
        })
        .collect()
}

/// The ports of a site.
fn ports(site: &Setting<Site>) -> impl Iterator<Item = u16> {
    let all = site.listen.0.iter().chain(&site.listen_tls.0);
    all.filter_map(|listen| match &listen.value {
        ListenSpec::Port(port) => Some(*port),
        ListenSpec::Tcp(address) => Some(address.port()),
        ListenSpec::Unix(_) | ListenSpec::Inherited(_) => None,
    })
}
