//! Groups of origins, which a site defines or a URL names.

mod health;
mod http3;
mod node;

pub(super) use node::trusting;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use apus_client::{Protocol, ProxyHead, ResponseRules, Timeouts};
use apus_layers::auth::RemoteKeySet;
use apus_proxy::ProxySettings;
use apus_upstream::plan::{
    BudgetPlan, ConnectionPoolPlan, DnsPlan, GroupPlan, HashKey, NodePlan, QueuePlan, RetryOn,
    RetryPlan, SameSite, StickyPlan, Strategy,
};
use http::StatusCode;

use super::small;
use crate::diagnostics::{Finding, nearest};
use crate::keys::{ConfigReader, ConfigTable, shown};
use crate::origin_handle::OriginHandle;
use crate::plan::UpstreamPlan;
use crate::raw::{self, upstream as keys};
use crate::source::{Setting, SourceSpan};
use crate::string_type::origin::{NodeAddress, RetryCause, Statuses, UpstreamName, UpstreamTarget};
use crate::value::{FilePath, Time};

/// The groups that a site can send requests to.
pub(super) struct SiteUpstreams<'a> {
    /// `None`: the whole server.
    site: Option<&'a Setting<raw::Site>>,
    /// The prefix of their names, which makes them unique among all sites.
    site_name: String,
    named: Vec<NamedGroup>,
    /// The groups of URLs and of PHP.
    unnamed: RefCell<Vec<UpstreamPlan>>,
    /// The groups to which layers send requests.
    origin_handles: RefCell<Vec<OriginHandle>>,
    /// The sets of keys that are fetched, with their URLs.
    key_sets: RefCell<Vec<(String, RemoteKeySet)>>,
}

struct NamedGroup {
    name: String,
    span: SourceSpan,
    is_used: Cell<bool>,
    /// `None` after errors in it were reported.
    upstream: Option<UpstreamPlan>,
}

/// The kind of handler that names a group.
#[derive(Clone, Copy)]
pub(super) enum GroupUser {
    Proxy,
    Php,
}

impl GroupUser {
    /// What was probably meant by a name that no group has.
    fn advice(self, name: &str) -> String {
        let is_socket = name.ends_with(".sock") || name.ends_with(".socket");
        match self {
            Self::Php if is_socket => {
                format!("write \"./{name}\" for a socket in this folder, or its whole path")
            }
            Self::Php => format!(
                "add [[sites.upstreams]] with name = \"{name}\" and protocol = \"fastcgi\" to the site, or \
                 write \"{name}:9000\" for a server, or \"/run/php/{name}.sock\" for a socket"
            ),
            Self::Proxy if is_socket => {
                format!("write \"unix:{name}\" for a socket in this folder")
            }
            Self::Proxy => format!(
                "add [[sites.upstreams]] with name = \"{name}\" to the site, or write \"http://{name}\""
            ),
        }
    }
}

/// The facts of a group that a handler needs.
pub(super) struct GroupReference {
    /// The name among the groups of all sites.
    pub(super) name: String,
    /// Whether its nodes use TLS.
    pub(super) is_tls: bool,
    /// Whether their protocol is FastCGI.
    pub(super) is_fastcgi: bool,
}

/// A group of FastCGI servers, by the keys of a table `fastcgi`.
pub(super) struct FastcgiGroup<'a> {
    /// The suffix of its name; empty for the site itself.
    pub(super) suffix: String,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) pool_size: usize,
    pub(super) idle_timeout: Duration,
    pub(super) queue: Option<&'a Setting<keys::Queue>>,
    pub(super) retry: Option<&'a Setting<keys::Retry>>,
    pub(super) timeouts: Timeouts,
    pub(super) responses: ResponseRules,
    pub(super) span: &'a SourceSpan,
}

impl GroupReference {
    /// The scheme of requests to its nodes.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

impl<'a> SiteUpstreams<'a> {
    /// The groups of a site; `site_name` is the prefix of their names.
    pub(super) fn new(
        site: &'a Setting<raw::Site>,
        site_name: &str,
        reader: &mut ConfigReader<'_>,
    ) -> Self {
        let mut named: Vec<NamedGroup> = Vec::new();
        for raw in &site.upstreams.0 {
            let name = &raw.name;
            if let Some(other) = named.iter().find(|other| other.name == name.0) {
                reader.report(
                    Finding::error(
                        &name.span,
                        format!("two groups of the site are called `{}`", shown(&name.0)),
                        "expected a name that no other group of the site has",
                    )
                    .related(&other.span, "the other one"),
                );
                continue;
            }
            named.push(NamedGroup {
                name: name.0.clone(),
                span: name.span.clone(),
                is_used: Cell::new(false),
                upstream: group(raw, format!("{site_name}/{}", name.0), reader),
            });
        }
        Self {
            site: Some(site),
            named,
            ..Self::of_server(site_name)
        }
    }

    /// The groups of URLs in `[global]`.
    pub(super) fn of_server(name: &str) -> Self {
        Self {
            site: None,
            site_name: name.to_owned(),
            named: Vec::new(),
            unnamed: RefCell::default(),
            origin_handles: RefCell::default(),
            key_sets: RefCell::default(),
        }
    }

    /// The name of the site in logs.
    pub(super) fn site_name(&self) -> &str {
        &self.site_name
    }

    /// The group of this name.
    pub(super) fn named(
        &self,
        name: &str,
        user: GroupUser,
        span: &SourceSpan,
        reader: &mut ConfigReader<'_>,
    ) -> Option<GroupReference> {
        let Some(group) = self.named.iter().find(|group| group.name == name) else {
            let has_mistakes = self.site.is_some_and(|site| {
                reader.has_left_out(&site.upstreams.span)
                    || reader.has_wrong(&site.span, &["upstreams"])
            });
            if !has_mistakes {
                let names = self.named.iter().map(|group| group.name.as_str());
                let finding = Finding::error(
                    span,
                    format!("the site has no group of origins `{}`", shown(name)),
                    match user {
                        GroupUser::Proxy => "expected the name of one of its `upstreams`, or a URL",
                        GroupUser::Php => {
                            "expected the name of one of its `upstreams`, the path of a socket, or \"host:port\""
                        }
                    },
                );
                reader.report(match nearest(name, names) {
                    Some(near) => finding.help(format!("did you mean \"{near}\"?")),
                    None => finding.help(user.advice(&shown(name))),
                });
            }
            return None;
        };
        group.is_used.set(true);
        group.upstream.as_ref().map(|upstream| GroupReference {
            name: upstream.group.name.to_string(),
            is_tls: upstream.is_tls(),
            is_fastcgi: upstream.group.protocol == Protocol::FastCgi,
        })
    }

    /// The name of a group of FastCGI servers, which is added if it is new.
    pub(super) fn fastcgi(
        &self,
        group: FastcgiGroup<'_>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<String> {
        let queue = table(group.queue, group.span, reader)?;
        let retry = retry(group.retry, group.span, reader)?;
        let name = format!("{}/php{}", self.site_name, group.suffix);
        let mut unnamed = self.unnamed.borrow_mut();
        if unnamed.iter().all(|known| *known.group.name != *name) {
            unnamed.push(UpstreamPlan {
                tls: vec![None; group.nodes.len()],
                group: GroupPlan {
                    protocol: Protocol::FastCgi,
                    pool: ConnectionPoolPlan {
                        max_idle: if group.idle_timeout.is_zero() {
                            0
                        } else {
                            group.pool_size
                        },
                        idle_timeout: group.idle_timeout,
                        ..ConnectionPoolPlan::default()
                    },
                    queue: QueuePlan {
                        max_waiting: queue.max.size(),
                        timeout: queue.timeout.0,
                    },
                    retry,
                    timeouts: group.timeouts,
                    responses: group.responses,
                    ..GroupPlan::new(name.as_str(), group.nodes)
                },
            });
        }
        Some(name)
    }

    /// The group of the single origin of a URL, with defaults. Its certificate is of an authority in the file, if there is one.
    pub(super) fn of_url(
        &self,
        (address, protocol): (&Setting<NodeAddress>, Protocol),
        ca: Option<&Setting<FilePath>>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<GroupReference> {
        let name = with_authorities(&address.text, ca);
        let mut unnamed = self.unnamed.borrow_mut();
        let is_tls = address.tls == Some(true);
        if !unnamed.iter().any(|known| *known.group.name == *name) {
            let (node, tls) = node::alone(address, ca, reader)?;
            unnamed.push(UpstreamPlan {
                group: GroupPlan {
                    protocol,
                    ..GroupPlan::new(name.as_str(), vec![node])
                },
                tls: vec![tls],
            });
        }
        Some(GroupReference {
            name,
            is_tls,
            is_fastcgi: false,
        })
    }

    /// The group of HTTP origins that a key names, which is added if it is a URL.
    pub(super) fn of_upstream(
        &self,
        upstream: &Setting<UpstreamName>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<GroupReference> {
        match &upstream.target {
            UpstreamTarget::Group(name) => {
                let found = self.named(name, GroupUser::Proxy, &upstream.span, reader)?;
                if found.is_fastcgi {
                    reader.report(
                        Finding::error(
                            &upstream.span,
                            "a group that speaks FastCGI, where HTTP is spoken",
                            "expected another group",
                        )
                        .help("programs of PHP are run by the key `php_fastcgi`"),
                    );
                    return None;
                }
                Some(found)
            }
            UpstreamTarget::Origin { node, protocol, .. } => {
                let node = Setting {
                    value: node.clone(),
                    span: upstream.span.clone(),
                    given: true,
                };
                self.of_url((&node, *protocol), None, reader)
            }
        }
    }

    /// The service for requests that a layer sends to a group.
    pub(super) fn origin_handle(&self, group: String, settings: ProxySettings) -> OriginHandle {
        let handle = OriginHandle::new(group, settings);
        self.origin_handles.borrow_mut().push(handle.clone());
        handle
    }

    /// The groups to which layers send requests.
    pub(super) fn origin_handles(&self) -> Vec<OriginHandle> {
        self.origin_handles.borrow().clone()
    }

    /// Adds a set of keys that is fetched from a URL.
    pub(super) fn add_key_set(&self, url: &str, keys: &RemoteKeySet) {
        let mut key_sets = self.key_sets.borrow_mut();
        key_sets.push((url.to_owned(), keys.clone()));
    }

    /// The sets of keys that are fetched, with their URLs.
    pub(super) fn key_sets(&self) -> Vec<(String, RemoteKeySet)> {
        self.key_sets.borrow().clone()
    }

    /// Warns about unused groups.
    pub(super) fn warn_of_unused(&self, reader: &mut ConfigReader<'_>) {
        for group in self.named.iter().filter(|group| !group.is_used.get()) {
            reader.report(
                Finding::warning(
                    &group.span,
                    format!("nothing uses the group `{}`", shown(&group.name)),
                    "its nodes get no requests",
                )
                .help(format!(
                    "add {} = \"{}\" to a location, or to the site",
                    match &group.upstream {
                        Some(upstream) if upstream.group.protocol == Protocol::FastCgi => {
                            "php_fastcgi"
                        }
                        _ => "upstream",
                    },
                    shown(&group.name)
                )),
            );
        }
    }

    /// All groups.
    pub(super) fn into_plans(self) -> Vec<UpstreamPlan> {
        let named = self.named.into_iter().filter_map(|group| group.upstream);
        named.chain(self.unnamed.into_inner()).collect()
    }
}

/// The name of what comes from an origin with these authorities: what was got from one with others is not taken for it.
pub(super) fn with_authorities(url: &str, ca: Option<&Setting<FilePath>>) -> String {
    match ca {
        None => url.to_owned(),
        Some(ca) => format!("{url} by {}", ca.value.0.display()),
    }
}

/// A group of a site. All parts are checked before the first error ends it.
fn group(
    raw: &Setting<keys::Upstream>,
    name: String,
    reader: &mut ConfigReader<'_>,
) -> Option<UpstreamPlan> {
    let nodes = node::nodes(raw, reader);
    let sticky = sticky(raw, reader);
    let strategy = strategy(raw, reader);
    let active = health::check(raw, reader);
    let breaker = health::breaker(raw, reader);
    let ejection = health::ejection(raw, reader);
    let retry = retry(raw.retry.as_ref(), &raw.span, reader);
    let dns = dns(raw, reader);
    let (nodes, tls) = nodes?;
    http3::check(raw, &tls, reader)?;
    if raw.tls_timeout.given && tls.iter().all(Option::is_none) {
        reader.report(Finding::error(
            &raw.tls_timeout.span,
            "`tls_timeout` has no effect",
            "requests to the nodes of the group are sent in clear text",
        ));
    }
    Some(UpstreamPlan {
        group: GroupPlan {
            name: name.into(),
            strategy: strategy?,
            sticky: sticky?,
            protocol: match *raw.protocol {
                keys::Protocol::Http1 => Protocol::Http1,
                keys::Protocol::Http2 => Protocol::Http2,
                keys::Protocol::Http3 => Protocol::Http3,
                keys::Protocol::Auto => Protocol::Auto,
                keys::Protocol::FastCgi => Protocol::FastCgi,
            },
            proxy_head: match raw.send_proxy.as_deref() {
                None => ProxyHead::None,
                Some(keys::ProxyHead::V1) => ProxyHead::V1,
                Some(keys::ProxyHead::V2) => ProxyHead::V2,
            },
            responses: ResponseRules {
                is_lenient: *raw.lenient,
                ..response_limits(
                    raw.response_header_size.value.0,
                    raw.response_header_fields.value.0,
                )
            },
            pool: pool(raw, reader)?,
            queue: queue(raw, &nodes, reader)?,
            passive: health::passive(raw, reader),
            active: active?,
            breaker: breaker?,
            ejection: ejection?,
            failure_statuses: statuses(raw.failure_statuses.0.iter().map(|set| set.value)),
            slow_start: raw.slow_start.0,
            retry: retry?,
            timeouts: Timeouts {
                connect: raw.connect_timeout.0,
                tls: raw.tls_timeout.0,
                first_byte: raw.first_byte_timeout.0,
                read: raw.read_timeout.0,
                write: raw.write_timeout.0,
            },
            total_timeout: raw.total_timeout.as_ref().map(|time| time.0),
            dns: dns?,
            nodes,
        },
        tls,
    })
}

/// The limits of the heads of responses.
pub(super) fn response_limits(bytes: u64, fields: u64) -> ResponseRules {
    ResponseRules {
        head_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        fields: u32::try_from(fields).unwrap_or(u32::MAX),
        is_lenient: false,
    }
}

fn strategy(raw: &keys::Upstream, reader: &mut ConfigReader<'_>) -> Option<Strategy> {
    let is_hash = *raw.strategy == keys::Strategy::Hash;
    match &raw.hash {
        Some(hash) if !is_hash => {
            reader.report(
                Finding::error(
                    &hash.span,
                    "`hash` has no effect",
                    "the strategy of the group is another",
                )
                .help("add strategy = \"hash\""),
            );
            return None;
        }
        None if is_hash => {
            reader.report(
                Finding::error(
                    &raw.strategy.span,
                    "the strategy `hash` has no key",
                    "expected the key `hash` in this group",
                )
                .help("add hash = \"uri\", or another key"),
            );
            return None;
        }
        _ => {}
    }
    Some(match *raw.strategy {
        keys::Strategy::RoundRobin | keys::Strategy::Weighted => Strategy::RoundRobin,
        keys::Strategy::LeastConn => Strategy::LeastConnections,
        keys::Strategy::LeastTime => Strategy::LeastTime,
        keys::Strategy::BestOfTwo => Strategy::BestOfTwo,
        keys::Strategy::Random => Strategy::Random,
        keys::Strategy::IpHash => Strategy::ConsistentHash(HashKey::Address),
        keys::Strategy::Hash => Strategy::ConsistentHash(raw.hash.as_ref()?.value.0.clone()),
    })
}

/// The outer `None` is for errors.
fn sticky(raw: &keys::Upstream, reader: &mut ConfigReader<'_>) -> Option<Option<StickyPlan>> {
    let Some(sticky) = raw.sticky.table(&raw.sticky.span, reader) else {
        return Some(None);
    };
    if let Some(same_site) = &sticky.same_site
        && same_site.value == keys::SameSite::None
        && !*sticky.secure
    {
        reader.report(
            Finding::error(
                &same_site.span,
                "`same_site = \"none\"` without `secure`",
                "browsers refuse such a cookie",
            )
            .help("add secure = true"),
        );
        return None;
    }
    Some(Some(StickyPlan {
        name: sticky.name.0.as_str().into(),
        path: sticky.path.0.as_str().into(),
        domain: sticky
            .domain
            .as_ref()
            .map(|domain| domain.0.as_str().into()),
        max_age: sticky.max_age.as_ref().map(|age| age.0),
        secure: *sticky.secure,
        http_only: *sticky.http_only,
        same_site: sticky.same_site.as_deref().copied().map(same_site),
    }))
}

/// The value for the plan.
pub(super) fn same_site(raw: keys::SameSite) -> SameSite {
    match raw {
        keys::SameSite::Strict => SameSite::Strict,
        keys::SameSite::Lax => SameSite::Lax,
        keys::SameSite::None => SameSite::None,
    }
}

fn pool(
    raw: &Setting<keys::Upstream>,
    reader: &mut ConfigReader<'_>,
) -> Option<ConnectionPoolPlan> {
    let keepalive = table(raw.keepalive.as_ref(), &raw.span, reader)?;
    Some(ConnectionPoolPlan {
        max_idle: keepalive.max_idle.size(),
        idle_timeout: keepalive.idle_timeout.0,
        max_requests: keepalive.max_requests.0,
        max_age: keepalive.max_age.0,
    })
}

fn queue(
    raw: &Setting<keys::Upstream>,
    nodes: &[NodePlan],
    reader: &mut ConfigReader<'_>,
) -> Option<QueuePlan> {
    if let Some(queue) = &raw.queue
        && nodes.iter().all(|node| node.max_requests == 0)
    {
        reader.report(
            Finding::error(
                &queue.span,
                "`queue` has no effect",
                "no node of the group has `max_conns`, so no request ever waits",
            )
            .help("write nodes as { addr = \"...\", max_conns = 50 }"),
        );
        return None;
    }
    let queue = table(raw.queue.as_ref(), &raw.span, reader)?;
    Some(QueuePlan {
        max_waiting: queue.max.size(),
        timeout: queue.timeout.0,
    })
}

fn retry(
    given: Option<&Setting<keys::Retry>>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<RetryPlan> {
    let retry = table(given, span, reader)?;
    if retry.tries.0 == 1 {
        let within = retry.within.as_ref().map(|key| ("within", &key.span));
        let on = retry.on.given.then_some(("on", &retry.on.span));
        let any_method = retry.non_idempotent.given;
        let any_method = any_method.then_some(("non_idempotent", &retry.non_idempotent.span));
        if let Some((key, span)) = within.or(on).or(any_method) {
            reader.report(
                Finding::error(
                    span,
                    format!("`{key}` has no effect"),
                    "nothing is tried again",
                )
                .related(&retry.tries.span, "for this is 1"),
            );
            return None;
        }
    }
    let budget = table(retry.budget.as_ref(), span, reader)?;
    let mut on = RetryOn {
        error: false,
        timeout: false,
        statuses: Vec::new(),
    };
    let mut sets = Vec::new();
    for cause in &retry.on.0 {
        match cause.value {
            RetryCause::Error => on.error = true,
            RetryCause::Timeout => on.timeout = true,
            RetryCause::Status(set) => sets.push(set),
        }
    }
    on.statuses = statuses(sets);
    Some(RetryPlan {
        tries: small(retry.tries.0),
        within: retry.within.as_ref().map(|time| time.0),
        on,
        non_idempotent: *retry.non_idempotent,
        budget: BudgetPlan {
            percent: percent(budget.percent.0),
            min_per_second: small(budget.min_per_second.0),
        },
        hedge: retry.hedge.as_ref().map(|time| time.0),
    })
}

fn dns(raw: &Setting<keys::Upstream>, reader: &mut ConfigReader<'_>) -> Option<DnsPlan> {
    if let Some(dns) = &raw.dns
        && !raw.nodes.0.iter().any(|node| node::is_name(node))
    {
        reader.report(Finding::error(
            &dns.span,
            "`dns` has no effect",
            "the nodes of the group have no names to resolve",
        ));
        return None;
    }
    let dns = table(raw.dns.as_ref(), &raw.span, reader)?;
    not_below(("min_ttl", &dns.min_ttl), ("max_ttl", &dns.max_ttl), reader)?;
    Some(DnsPlan {
        servers: dns.servers.0.iter().map(|server| server.value.0).collect(),
        min_ttl: dns.min_ttl.0,
        max_ttl: dns.max_ttl.0,
        timeout: dns.timeout.0,
        ipv6: *dns.ipv6,
    })
}

/// The table, or its defaults.
fn table<T: ConfigTable + Clone>(
    given: Option<&Setting<T>>,
    span: &SourceSpan,
    reader: &mut ConfigReader<'_>,
) -> Option<T> {
    match given {
        Some(table) => Some(table.value.clone()),
        None => T::absent(span, reader),
    }
}

/// Reports a maximum that is less than its minimum.
fn not_below<const MAX: u64>(
    (least_name, least): (&str, &Setting<Time<MAX>>),
    (most_name, most): (&str, &Setting<Time<MAX>>),
    reader: &mut ConfigReader<'_>,
) -> Option<()> {
    let seconds = |time: Duration| time.as_secs_f64();
    if most.0 >= least.0 {
        return Some(());
    }
    let span = if most.given { &most.span } else { &least.span };
    reader.report(Finding::error(
        span,
        format!("`{most_name}` is less than `{least_name}`"),
        format!(
            "`{least_name}` is {} s, `{most_name}` {} s",
            seconds(least.0),
            seconds(most.0)
        ),
    ));
    None
}

/// All statuses of the sets.
fn statuses(sets: impl IntoIterator<Item = Statuses>) -> Vec<StatusCode> {
    sets.into_iter()
        .flat_map(|set| set.first..=set.last)
        .filter_map(|status| StatusCode::from_u16(status).ok())
        .collect()
}

/// A number whose key allows at most 100.
fn percent(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(100)
}
