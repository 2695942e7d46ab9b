//! Resolving keys to a plan: inheritance, conflicts between keys, and files that must exist.

mod access;
mod access_log;
mod acme;
mod admin;
mod admission_check;
mod bans;
mod bots;
mod cache;
mod challenge;
mod compress;
mod conditions;
mod forward_auth;
mod glitches;
mod http3;
mod jwt;
mod layers;
mod limits;
mod listen;
mod maps;
mod otlp;
mod php;
mod proxy;
mod proxy_loops;
mod responses;
mod rules;
mod site;
mod site_names;
mod switched;
mod templates;
mod tiers;
mod tls;
mod upstream;
mod upstream_choices;
mod value_files;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::SystemTime;

use apus_conditions::GeoDatabases;
use apus_http::TrustedProxies;
use apus_net::tls::UnknownName;
use apus_net::{AccountError, Limits, ListenAddress, SystemAccount};
use apus_private_files::PrivateFiles;
use apus_sites::{ForceHttps, Hsts, Maintenance, MaintenanceState, Rules};

use super::diagnostics::{Diagnostics, Finding};
use super::keys::{ConfigReader, ConfigTable, shown};
use super::plan::{
    AccessLogPlan, AdminPlan, BanPlan, BotPlan, CacheStorePlan, GlitchPlan, GlobalPlan,
    ListenerPlan, OtlpPlan, ServerPlan, SitePlan, UpstreamPlan,
};
use super::raw;
use super::source::{Setting, SourceSpan};
use super::string_type::SiteHost;
use super::value::{Switch, Text};
use acme::AcmeDefaults;
use compress::CompressDefaults;
use conditions::Conditions;
use layers::LocationLayers;
pub use php::default_pool_folder;
use rules::RulePlace;
pub use tiers::tiers_of_text;
use upstream::SiteUpstreams;
use upstream_choices::RuleChoices;

/// Resolves the plan; `None` after errors were reported.
pub(super) fn plan(file: raw::File, reader: &mut ConfigReader<'_>) -> Option<ServerPlan> {
    let top = SourceSpan {
        file: 0,
        bytes: 0..0,
    };
    let global_place = file.global.as_ref().map(|global| global.span.clone());
    let raw_global = match file.global {
        Some(global) => global.value,
        None => raw::Global::absent(&top, reader)?,
    };
    reader.template_names = templates::names(&raw_global, &file.sites.0);
    let conditions = Conditions::resolve(&raw_global, reader);
    let compress = raw_global.compress.as_ref();
    let mut defaults = GlobalDefaults {
        access_log: None,
        compress: CompressDefaults::resolve(compress, &top, &conditions, reader)?,
        max_body_bytes: raw_global.client_max_body_size.value.0,
        trusts_proxies: !raw_global.trusted_proxies.0.is_empty(),
        acme: AcmeDefaults::new(&raw_global, global_place.as_ref(), reader),
        conditions,
        rules: None,
        layers: LocationLayers::default(),
    };
    let limits = limits::resolve(&raw_global.limits.0, &[], &defaults.conditions, reader);
    defaults.layers = LocationLayers::of_limits(limits);
    let of_all = raw_global.access_log.as_ref();
    defaults.access_log =
        of_all.and_then(|log| access_log::resolve(log, &defaults.conditions, reader));
    let place = RulePlace {
        conditions: &defaults.conditions,
        chains: &raw_global.chains.value,
        locations: None,
        choices: None,
        limits: defaults.layers.limits().to_vec(),
    };
    defaults.rules = place.resolve("global", &raw_global.rules.value, reader);
    let cache = match &raw_global.cache {
        Some(raw) => cache::store(raw, reader),
        None => Some(CacheStorePlan::default()),
    };
    let cache_place = raw_global.cache.as_ref().map(|cache| cache.span.clone());
    if let Some(control) = &raw_global.control_socket {
        listen::check_control_socket(control, &file.sites.0, reader);
    }
    let admin = admin::plan(&raw_global, &file.sites.0, reader);
    let otlp = otlp::plan(&raw_global, reader);
    let bans = bans::plan(&raw_global, &file.sites.0, &top, reader)?;
    let glitches = glitches::plan(&raw_global, &file.sites.0, reader);
    let (bots, mut upstreams) = bots::plan(&raw_global, reader);
    let parts = GlobalParts {
        admin,
        otlp,
        cache: cache.unwrap_or_default(),
        bans,
        glitches,
        bots,
        geo_databases: Arc::clone(defaults.conditions.geo()),
    };
    let mut global = global(raw_global, parts, reader);
    for name in request_id_fields(&file.sites.0) {
        global.trusted_proxies = global.trusted_proxies.request_id(name);
    }
    if file.sites.0.is_empty()
        && !reader.has_wrong(&top, &["sites"])
        && !(file.sites.given && reader.findings.iter().any(Finding::is_error))
    {
        reader.report(
            Finding::error(
                &file.sites.span,
                "there is no site",
                "expected [[sites]] here or in an included file",
            )
            .help("the least is: [[sites]], listen = 8080, root = \"public\""),
        );
    }
    listen::check(&file.sites.0, reader);
    http3::check(&file.sites.0, reader);
    proxy_loops::check(&file.sites.0, reader);
    let names = site_names::of(&file.sites.0);
    let sites: Vec<_> = file
        .sites
        .value
        .0
        .into_iter()
        .zip(names)
        .filter_map(|(raw, name)| {
            let resolved = site(&raw, name, &defaults, reader)?;
            for upstream in resolved.upstreams {
                // The same URL in two sites is the same group.
                let name = &upstream.group.name;
                if !upstreams.iter().any(|known| known.group.name == *name) {
                    upstreams.push(upstream);
                }
            }
            Some((resolved.site, resolved.spans))
        })
        .collect();
    check_names(&sites, reader);
    let asks_for_limits = defaults.conditions.ask_for_limits();
    let mut plan = ServerPlan {
        global,
        limits: defaults.layers.handles().cloned().collect(),
        sites: sites
            .into_iter()
            .map(|(site, _)| SitePlan {
                // Without a condition that asks, no request gets them.
                readable_limits: site.readable_limits.filter(|_| asks_for_limits),
                ..site
            })
            .collect(),
        upstreams,
        warnings: Diagnostics::default(),
        private: PrivateFiles::default(),
    };
    plan.mark_scripts();
    let unused = cache_place.filter(|_| plan.caches().next().is_none());
    if let Some(span) = unused.filter(|_| !reader.findings.iter().any(Finding::is_error)) {
        reader.report(
            Finding::warning(&span, "nothing is cached", "no site uses this").help(
                "add cache = true to a site or location with an `upstream`, or to its table \
                     `fastcgi`",
            ),
        );
    }
    Some(plan)
}

/// The keys of `[global]` that sites inherit.
struct GlobalDefaults {
    access_log: Option<AccessLogPlan>,
    compress: CompressDefaults,
    max_body_bytes: u64,
    /// Whether a proxy in front is trusted.
    trusts_proxies: bool,
    /// The keys of ACME.
    acme: AcmeDefaults,
    /// The names that conditions may use.
    conditions: Conditions,
    /// The rules for all sites.
    rules: Option<Rules>,
    /// The layers that sites inherit: the limits of all sites together.
    layers: LocationLayers,
}

/// Parts of the settings of the whole server that are resolved before.
struct GlobalParts {
    admin: Option<AdminPlan>,
    otlp: Option<OtlpPlan>,
    cache: CacheStorePlan,
    bans: BanPlan,
    glitches: GlitchPlan,
    bots: BotPlan,
    geo_databases: Arc<GeoDatabases>,
}

fn global(
    raw: raw::Global,
    GlobalParts {
        admin,
        otlp,
        cache,
        bans,
        glitches,
        bots,
        geo_databases,
    }: GlobalParts,
    reader: &mut ConfigReader<'_>,
) -> GlobalPlan {
    if raw.client_target_size.0 > raw.client_header_size.0 && raw.client_target_size.given {
        reader.report(
            Finding::error(
                &raw.client_target_size.span,
                "a request target longer than a whole head",
                "expected at most `client_header_size`",
            )
            .related(&raw.client_header_size.span, "the head's size"),
        );
    }
    if let Some(path) = &raw.tls_key_log {
        reader.report(
            Finding::warning(
                &path.span,
                "the secrets of TLS connections are written to a file",
                "whoever reads it can decrypt the traffic",
            )
            .help("remove `tls_key_log` and the file when you have found what you look for"),
        );
    }
    let trusted_proxies = trusted_proxies(&raw, reader);
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    GlobalPlan {
        workers: NonZeroUsize::new(raw.worker_threads.size()).unwrap_or(cores),
        limits: Limits {
            worker_connections: raw.worker_connections.size(),
            max_connections: raw.max_connections.size(),
            connections_per_address: raw.connections_per_address.size(),
            target_bytes: raw.client_target_size.size(),
            head_bytes: raw.client_header_size.size(),
            head_fields: raw.client_header_fields.size(),
            head_timeout: raw.client_header_timeout.0,
            handshake_timeout: raw.handshake_timeout.0,
            idle_timeout: raw.keepalive_timeout.0,
            body_timeout: raw.client_body_timeout.0,
            body_rate: raw.client_body_rate.0,
            send_timeout: raw.send_timeout.0,
            send_rate: raw.send_rate.0,
            drain_bytes: raw.discard_body_size.0,
            requests_per_connection: raw.keepalive_requests.0,
            h2_max_concurrent_streams: small(raw.h2_max_concurrent_streams.0),
            h2_max_tunnels: raw.h2_max_tunnels.size(),
            h2_max_frame_size: small(raw.h2_max_frame_size.0),
            h2_requests_per_connection: raw.h2_max_requests_per_conn.0,
            h2_ping_interval: raw.h2_ping_interval.0,
            h2_receive_window: small(raw.h2_receive_window.value.0),
            websocket_memory: raw.websocket_memory.value.0,
            h3_receive_memory: raw.request_memory.value.0,
            stop_timeout: raw.stop_timeout.0,
        },
        h2c: *raw.h2c,
        account: account(raw.user.as_ref(), raw.group.as_ref(), reader),
        metrics: admin::metrics(&raw, reader),
        explained_requests: admin::explained_requests(&raw),
        control_socket: raw.control_socket.map(|path| path.value.0),
        admin,
        otlp,
        cache,
        static_cache_bytes: raw.static_cache_size.value.0,
        response_memory_bytes: raw.response_memory.value.0,
        server_header: *raw.server_header,
        unknown_name: if *raw.ssl_reject_unknown {
            UnknownName::Reject
        } else {
            UnknownName::FirstSite
        },
        log_level: *raw.log_level,
        trusted_proxies,
        acme_folder: raw.acme_folder.map(|path| path.value.0),
        acme_storage: raw.acme_storage.as_ref().map(|address| address.0.clone()),
        stores_tickets: *raw.tls_tickets == raw::TicketStorage::Stored,
        bans,
        glitches,
        geo_databases,
        bots,
        state_folder: raw.state_folder.map(|path| path.value.0),
        tls_key_log: raw.tls_key_log.map(|path| path.value.0),
    }
}

/// The proxies in front of the server, and what they say of clients.
fn trusted_proxies(raw: &raw::Global, reader: &mut ConfigReader<'_>) -> TrustedProxies {
    let networks = &raw.trusted_proxies;
    if networks.0.is_empty() {
        let header = raw
            .trusted_proxies_header
            .given
            .then_some(&raw.trusted_proxies_header.span);
        let pass = raw
            .trusted_proxies_pass
            .given
            .then_some(&raw.trusted_proxies_pass.span);
        for span in [header, pass].into_iter().flatten() {
            reader.report(
                Finding::warning(span, "no proxy is trusted", "this is for `trusted_proxies`")
                    .help("add trusted_proxies with the addresses of the proxies in front"),
            );
        }
    }
    let trusted = TrustedProxies::new(networks.0.iter().map(|network| network.value.0));
    let trusted = match *raw.trusted_proxies_header {
        raw::TrustedHeader::XForwardedFor => trusted,
        raw::TrustedHeader::Forwarded => trusted.forwarded(),
    };
    let names = raw.trusted_proxies_pass.0.iter();
    names.fold(trusted, |trusted, name| trusted.pass(&*name.0))
}

/// The fields in which sites and locations send request ids, and in which they expect the ids of proxies.
fn request_id_fields(sites: &[Setting<raw::Site>]) -> impl Iterator<Item = &str> {
    let places = sites.iter().flat_map(|site| {
        let locations = site.locations.0.iter().map(|location| &location.keys);
        std::iter::once(&site.keys).chain(locations)
    });
    places.filter_map(|keys| match &keys.request_id.as_ref()?.value {
        Switch::Off => None,
        Switch::On => Some("x-request-id"),
        Switch::As(table) => Some(&*table.header.0),
    })
}

/// The account that `user` and `group` name; without a user, the one that is the default.
pub(super) fn account(
    user: Option<&Setting<Text>>,
    group: Option<&Setting<Text>>,
    reader: &mut ConfigReader<'_>,
) -> Option<SystemAccount> {
    let group_name = group.map(|group| group.0.as_str());
    let found = match (user, group) {
        (None, None) => return None,
        (Some(user), _) => SystemAccount::find(&user.0, group_name),
        (None, Some(_)) => SystemAccount::unprivileged(group_name),
    };
    let error = match found {
        Ok(account) => return Some(account),
        Err(error) => error,
    };
    let span = match (&error, user, group) {
        (AccountError::Group(_), _, Some(group)) => &group.span,
        (_, Some(user), _) => &user.span,
        (_, None, Some(group)) => &group.span,
        (_, None, None) => return None,
    };
    reader.report(Finding::error(
        span,
        error.to_string(),
        "expected a name or number",
    ));
    None
}

/// A number whose key allows none that is larger than the type.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// As [`small`].
fn tiny(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// A resolved site, with the spans for checks across sites.
struct ResolvedSite {
    site: SitePlan,
    spans: SiteSpans,
    upstreams: Vec<UpstreamPlan>,
}

fn site(
    raw: &Setting<raw::Site>,
    name: String,
    defaults: &GlobalDefaults,
    reader: &mut ConfigReader<'_>,
) -> Option<ResolvedSite> {
    let spans = SiteSpans {
        name: raw
            .name
            .as_ref()
            .map_or_else(|| raw.span.clone(), |name| name.span.clone()),
        hosts: raw
            .server_name
            .0
            .iter()
            .map(|host| host.span.clone())
            .collect(),
        site: raw.span.clone(),
    };
    let listeners = listen::listeners(raw, defaults.trusts_proxies, reader);
    let resolved_tls = tls::site(raw, &defaults.acme, reader);
    let access_log = match &raw.access_log {
        Some(log) => access_log::resolve(log, &defaults.conditions, reader),
        None => defaults.access_log.clone(),
    };
    let names: Vec<_> = raw
        .server_name
        .0
        .iter()
        .filter_map(|host| match &host.value {
            SiteHost::Name(name, _) => Some(name.clone()),
            SiteHost::Other => None,
        })
        .collect();
    let groups = SiteUpstreams::new(raw, &name, reader);
    let choices = RuleChoices::of_site(raw, &groups, reader);
    let resolver = site::SiteResolver::new((raw, &name), defaults, &groups, &choices);
    let (handler, settings, locations) = resolver.resolve(reader)?;
    groups.warn_of_unused(reader);
    let handlers = locations.iter().map(|location| &location.handler);
    choices.check_site(handler.iter().chain(handlers), reader);
    let place = RulePlace {
        conditions: &defaults.conditions,
        chains: &raw.chains,
        locations: Some(&raw.locations.0),
        choices: Some(&choices),
        limits: resolver.limits_for_rules(false),
    };
    let own = place.resolve(&name, &raw.rules, reader);
    let readable_limits = limits::readable(&place.limits);
    let limits = resolver.into_limits();
    let rules: Vec<Rules> = defaults.rules.iter().cloned().chain(own).collect();
    let of_locations = locations.iter().filter_map(|own| own.rules.as_ref());
    let challenge = challenge::resolve(
        raw.challenge.as_ref(),
        rules.iter().chain(of_locations),
        &defaults.conditions,
        reader,
    );
    let compress = (defaults.compress).of_site(raw.compress.as_ref(), &defaults.conditions, reader);
    let site = SitePlan {
        name,
        is_fallback: names.len() < raw.server_name.0.len() || names.is_empty(),
        server_names: names,
        acme: resolved_tls
            .as_ref()
            .map_or_else(Vec::new, |tls| tls.acme.clone()),
        is_certified_by_name: resolved_tls
            .as_ref()
            .is_some_and(|tls| tls.is_certified_by_name),
        on_demand: resolved_tls.as_ref().and_then(|tls| tls.on_demand.clone()),
        certificate_origin: resolved_tls.as_ref().and_then(|tls| tls.origin.clone()),
        http3: resolved_tls.as_ref().and_then(|tls| tls.http3.clone()),
        tls: resolved_tls.map(|resolved| resolved.tls),
        force_https: raw.force_https.then(|| ForceHttps {
            port: https_port(&listeners).unwrap_or(443),
            ..ForceHttps::default()
        }),
        hsts: raw.hsts.as_ref().map(|hsts| Hsts {
            max_age: hsts.max_age.0.as_secs(),
            include_subdomains: *hsts.include_subdomains,
            preload: *hsts.preload,
        }),
        maintenance: maintenance(raw.maintenance.as_ref(), reader),
        challenge,
        access_log,
        listeners,
        compression: compress.compression,
        compress_when: compress.when,
        precompressed: compress.precompressed,
        handler,
        settings,
        rules,
        maps: defaults.conditions.maps().cloned(),
        limits,
        readable_limits: Some(readable_limits),
        origin_handles: groups.origin_handles(),
        key_sets: groups.key_sets(),
        locations,
    };
    Some(ResolvedSite {
        site,
        spans,
        upstreams: groups.into_plans(),
    })
}

/// The maintenance of a site. Without the key, it is off, until a command turns it on.
fn maintenance(
    raw: Option<&Setting<Switch<raw::Maintenance>>>,
    reader: &mut ConfigReader<'_>,
) -> Maintenance {
    let Some(keys) = raw.and_then(|raw| raw.table(&raw.span, reader)) else {
        return Maintenance::new().state(MaintenanceState::Off);
    };
    if let Some(until) = &keys.until
        && until.0 <= SystemTime::now()
        && *keys.on
    {
        reader.report(Finding::warning(
            &until.span,
            "the maintenance is over",
            "this moment has passed",
        ));
    }
    let state = match (*keys.on, keys.until) {
        (false, _) => MaintenanceState::Off,
        (true, None) => MaintenanceState::On,
        (true, Some(until)) => MaintenanceState::Until(until.value.0),
    };
    let maintenance = Maintenance::new()
        .state(state)
        .allow(keys.allow.0.iter().map(|network| network.value.0));
    match &keys.page {
        Some(page) => maintenance.page(&page.0),
        None => maintenance,
    }
}

/// The places of a site's table and of its names.
struct SiteSpans {
    site: SourceSpan,
    name: SourceSpan,
    hosts: Vec<SourceSpan>,
}

/// Reports names that two sites have. There may be thousands of sites with dozens of names each, so each name is looked up.
fn check_names(sites: &[(SitePlan, SiteSpans)], reader: &mut ConfigReader<'_>) {
    let mut names: HashMap<&str, &SiteSpans> = HashMap::new();
    let mut hosts: HashMap<(&ListenAddress, String), Vec<(usize, &SourceSpan)>> = HashMap::new();
    let mut fallbacks: HashMap<&ListenAddress, Vec<(usize, &SiteSpans)>> = HashMap::new();
    for (at, (site, spans)) in sites.iter().enumerate() {
        if let Some(other) = names.insert(&site.name, spans) {
            reader.report(
                Finding::error(
                    &spans.name,
                    format!("two sites are called `{}`", shown(&site.name)),
                    "expected a name that no other site has",
                )
                .related(&other.name, "the other one")
                .help("give one of them another `name`; logs tell sites apart by it"),
            );
            names.insert(&site.name, other);
            continue;
        }
        // Sites that share several addresses are told of the first one.
        let mut told = HashSet::new();
        let mut addresses: Vec<&ListenAddress> = Vec::new();
        for listener in &site.listeners {
            if !addresses.contains(&&listener.address) {
                addresses.push(&listener.address);
            }
        }
        for address in addresses {
            for (name, span) in site.server_names.iter().zip(&spans.hosts) {
                let name = name.to_string();
                let known = hosts.entry((address, name.clone())).or_default();
                for (other, other_span) in known.iter().filter(|(other, _)| *other != at) {
                    if told.insert((*other, Some(name.clone()))) {
                        reader.report(
                            Finding::error(
                                span,
                                format!("two sites are for the host `{name}` on {address}"),
                                "expected a host that no other site is for",
                            )
                            .related(other_span, "the other one"),
                        );
                    }
                }
                known.push((at, span));
            }
            if site.is_fallback {
                let known = fallbacks.entry(address).or_default();
                for (other, other_spans) in known.iter() {
                    if told.insert((*other, None)) {
                        reader.report(
                            Finding::error(
                                &spans.site,
                                format!("two sites are for all other hosts on {address}"),
                                "this one, for it has no `server_name` or `_`",
                            )
                            .related(&other_spans.site, "the other one")
                            .help("give one of them a `server_name`"),
                        );
                    }
                }
                known.push((at, spans));
            }
        }
    }
}

/// The port of the first TLS listener over TCP.
fn https_port(listeners: &[ListenerPlan]) -> Option<u16> {
    let mut secure = listeners.iter().filter(|listener| listener.tls);
    secure.find_map(|listener| match listener.address {
        ListenAddress::Tcp { address, .. } => Some(address.port()),
        ListenAddress::Unix { .. } | ListenAddress::Inherited { .. } => None,
    })
}
