//! Proxies whose requests come back to themselves, by a listener of the same configuration.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use apus_client::Address;
use apus_upstream::plan::NodeTarget;

use crate::diagnostics::Finding;
use crate::keys::ConfigReader;
use crate::raw::upstream::NodeEntry;
use crate::raw::{LocationKeys, Site};
use crate::source::{Setting, SourceSpan};
use crate::string_type::origin::{NodeAddress, ProxyHost, UpstreamName, UpstreamTarget};
use crate::string_type::{ListenSpec, SiteHost};

/// A proxy: its site, and its location unless the site itself is the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ProxyPosition {
    site: usize,
    location: Option<usize>,
}

/// Warns of proxies whose requests come back to them.
pub(super) fn check(sites: &[Setting<Site>], reader: &mut ConfigReader<'_>) {
    let loops = ProxyLoops { sites };
    let positions = sites.iter().enumerate().flat_map(|(site, raw)| {
        let of_site = std::iter::once(ProxyPosition {
            site,
            location: None,
        });
        let count = raw.locations.0.len();
        of_site.chain((0..count).map(move |location| ProxyPosition {
            site,
            location: Some(location),
        }))
    });
    for start in positions {
        let Some(upstream) = loops.own_upstream(start) else {
            continue;
        };
        let Some((address, listener)) = loops.way_back(start) else {
            continue;
        };
        let what = match start.location {
            Some(_) => "location",
            None => "site",
        };
        reader.report(
            Finding::warning(
                &upstream.span,
                format!("requests to this upstream come back to this {what}"),
                format!("`{address}` is a listener of this configuration"),
            )
            .related(&listener, "this one")
            .help("name the address of the application behind it"),
        );
    }
}

struct ProxyLoops<'a> {
    sites: &'a [Setting<Site>],
}

impl<'a> ProxyLoops<'a> {
    fn keys(&self, at: ProxyPosition) -> Option<&'a LocationKeys> {
        let site = self.sites.get(at.site)?;
        match at.location {
            None => Some(&site.keys),
            Some(location) => Some(&site.locations.0.get(location)?.keys),
        }
    }

    /// The upstream that the keys of a site or a location name.
    fn own_upstream(&self, at: ProxyPosition) -> Option<&'a Setting<UpstreamName>> {
        let keys = self.keys(at)?;
        keys.upstream.as_ref().filter(|_| keys.r#return.is_none())
    }

    /// The upstream of a location, which may be inherited from its site.
    fn upstream(&self, at: ProxyPosition) -> Option<&'a Setting<UpstreamName>> {
        let keys = self.keys(at)?;
        let has_other =
            keys.r#return.is_some() || keys.root.is_some() || keys.php_fastcgi.is_some();
        match self.own_upstream(at) {
            Some(own) => Some(own),
            None if has_other => None,
            None => self.own_upstream(ProxyPosition {
                location: None,
                ..at
            }),
        }
    }

    /// A path that a proxy gets; `None` if an expression selects it.
    fn first_path(&self, at: ProxyPosition) -> Option<String> {
        let Some(location) = at.location else {
            return Some("/".to_owned());
        };
        let location = self.sites.get(at.site)?.locations.0.get(location)?;
        location.path.value.0.literal().map(str::to_owned)
    }

    /// The address and the listener of the first step by which requests come back to `start`.
    fn way_back(&self, start: ProxyPosition) -> Option<(String, SourceSpan)> {
        let target = LoopTarget {
            path: self.first_path(start),
            hosts: self.sites.get(start.site).map(names).unwrap_or_default(),
        };
        self.steps(start, &target).into_iter().find_map(|first| {
            let mut seen = vec![start];
            let mut open = vec![(first.to, first.target)];
            while let Some((at, target)) = open.pop() {
                if at == start {
                    return Some((first.address, first.listener));
                }
                if !seen.contains(&at) {
                    seen.push(at);
                    let steps = self.steps(at, &target).into_iter();
                    open.extend(steps.map(|step| (step.to, step.target)));
                }
            }
            None
        })
    }

    /// The proxies of this configuration that get the requests of a proxy.
    fn steps(&self, at: ProxyPosition, target: &LoopTarget) -> Vec<LoopStep> {
        let (Some(upstream), Some(site)) = (self.upstream(at), self.sites.get(at.site)) else {
            return Vec::new();
        };
        let path = self.path_at_origin(at, upstream, target.path.clone());
        let host = self.host(at);
        let mut steps = Vec::new();
        for node in nodes(site, upstream) {
            let hosts = match &host {
                ProxyHost::Client | ProxyHost::Raw => target.hosts.clone(),
                ProxyHost::Origin => node.host().into_iter().collect(),
                ProxyHost::Fixed(host) => {
                    let name = host
                        .rsplit_once(':')
                        .map_or(host.as_str(), |(name, _)| name);
                    vec![name.to_ascii_lowercase()]
                }
            };
            let Some((to, listener)) = self.site_at(node, &names(site), &hosts) else {
                continue;
            };
            let location = match &path {
                Some(path) => self.select(to, path),
                // The same expression matches the same path.
                None if to == at.site => at.location,
                None => continue,
            };
            steps.push(LoopStep {
                to: ProxyPosition { site: to, location },
                target: LoopTarget {
                    path: path.clone(),
                    hosts,
                },
                address: node.text.clone(),
                listener,
            });
        }
        steps
    }

    fn path_at_origin(
        &self,
        at: ProxyPosition,
        upstream: &UpstreamName,
        path: Option<String>,
    ) -> Option<String> {
        match (&upstream.path, path) {
            (None, path) => path,
            (Some(base), Some(path)) => {
                let own = self.first_path(at).unwrap_or_default();
                let rest = path.strip_prefix(&own).unwrap_or_default();
                Some(format!("{base}{rest}"))
            }
            (Some(base), None) => Some(base.clone()),
        }
    }

    /// The `Host` of the requests of a proxy.
    fn host(&self, at: ProxyPosition) -> ProxyHost {
        let of_site = ProxyPosition {
            location: None,
            ..at
        };
        let tables = [at, of_site].map(|at| self.keys(at)?.proxy.as_ref());
        let mut given = tables
            .into_iter()
            .flatten()
            .filter(|proxy| proxy.host.given);
        given
            .next()
            .map_or(ProxyHost::Client, |proxy| proxy.host.value.clone())
    }

    /// The site that gets requests for one of these hosts at a node, with its listener. `own` are the names of the site with the proxy.
    fn site_at(
        &self,
        node: &NodeAddress,
        own: &[String],
        hosts: &[String],
    ) -> Option<(usize, SourceSpan)> {
        let at_listener: Vec<_> = self
            .sites
            .iter()
            .enumerate()
            .filter_map(|(at, site)| Some((at, names(site), listener_of(site, node, own)?)))
            .collect();
        let mut all = at_listener.iter();
        let named = all.find(|(_, names, _)| names.iter().any(|name| hosts.contains(name)));
        let fallback = || at_listener.iter().find(|(_, names, _)| names.is_empty());
        let (at, _, listener) = named.or_else(fallback).or(at_listener.first())?;
        Some((*at, listener.clone()))
    }

    /// The location of a site for a path.
    fn select(&self, site: usize, path: &str) -> Option<usize> {
        let locations = &self.sites.get(site)?.locations.0;
        let all = || locations.iter().map(|one| &one.path.value.0).enumerate();
        if let Some((at, _)) = all().find(|(_, one)| one.is_exact() && one.is_match(path)) {
            return Some(at);
        }
        let prefixes = all().filter(|(_, one)| one.literal().is_some() && !one.is_exact());
        let longest = prefixes
            .filter(|(_, one)| one.is_match(path))
            .max_by_key(|(_, one)| one.literal().map(str::len));
        if let Some((at, _)) = longest.filter(|(_, one)| one.is_final()) {
            return Some(at);
        }
        let expression = all().find(|(_, one)| one.literal().is_none() && one.is_match(path));
        expression.or(longest).map(|(at, _)| at)
    }
}

/// What a request is for.
struct LoopTarget {
    /// Its path; `None` if an expression selects it.
    path: Option<String>,
    /// The hosts that it can have.
    hosts: Vec<String>,
}

/// A request of a proxy to another one of the same configuration.
struct LoopStep {
    to: ProxyPosition,
    target: LoopTarget,
    /// The address of the node as it is written.
    address: String,
    listener: SourceSpan,
}

/// The names of a site, without patterns; empty for the site of all other names.
fn names(site: &Setting<Site>) -> Vec<String> {
    let names = site.server_name.0.iter();
    names
        .filter_map(|host| match &host.value {
            SiteHost::Name(_, text) => Some(text.to_ascii_lowercase()),
            SiteHost::Other => None,
        })
        .collect()
}

/// The nodes of an upstream.
fn nodes<'a>(site: &'a Setting<Site>, upstream: &'a UpstreamName) -> Vec<&'a NodeAddress> {
    match &upstream.target {
        UpstreamTarget::Origin { node, .. } => vec![node],
        UpstreamTarget::Group(name) => {
            let mut groups = site.upstreams.0.iter();
            let group = groups.find(|group| group.name.0 == *name);
            let nodes = group.into_iter().flat_map(|group| &group.nodes.value.0);
            nodes
                .map(|node| match &node.value {
                    NodeEntry::Address(address) => address,
                    NodeEntry::Table(table) => &table.addr.value,
                })
                .collect()
        }
    }
}

/// The listener of a site that has the address of a node. `names` are the names of the site with the proxy.
fn listener_of(site: &Setting<Site>, node: &NodeAddress, names: &[String]) -> Option<SourceSpan> {
    let mut listeners = site.listen.0.iter().chain(&site.listen_tls.0);
    let found = listeners.find(|listen| match (&listen.value, &node.target) {
        (ListenSpec::Port(port), NodeTarget::Address(Address::Ip(address))) => {
            address.port() == *port && is_of_this_machine(address.ip())
        }
        (ListenSpec::Tcp(own), NodeTarget::Address(Address::Ip(address))) => {
            is_same_address(*own, *address)
        }
        (ListenSpec::Port(port), NodeTarget::Name { host, port: named }) => {
            port == named && (is_localhost(host) || names.iter().any(|name| **name == **host))
        }
        (ListenSpec::Tcp(own), NodeTarget::Name { host, port }) => {
            let is_local = own.ip().is_unspecified() || own.ip().is_loopback();
            own.port() == *port && is_local && is_localhost(host)
        }
        (ListenSpec::Unix(path), NodeTarget::Address(Address::Unix(node))) => *path == **node,
        _ => false,
    });
    found.map(|listen| listen.span.clone())
}

fn is_same_address(own: SocketAddr, node: SocketAddr) -> bool {
    own.port() == node.port()
        && (own.ip() == node.ip()
            || (own.ip().is_unspecified() && is_of_this_machine(node.ip()))
            || (node.ip().is_unspecified() && own.ip().is_loopback()))
}

fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Whether this machine has an address, to which only then a socket can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
}
