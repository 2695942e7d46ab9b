//! Assembles the sites and listeners of the engine from the plan of a configuration.

mod cache_key_trace;
mod origins;
mod sni_check;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use apus_access::{Bans, Glitches};
use apus_acme::{HttpChallengeService, OnDemandNames, PendingChallenges};
use apus_files::{Files, VariantStore};
use apus_http::{Glitch, RequestRecords, ServiceFactory};
use apus_net::tls::{
    ChallengeCertificates, ClientAuth, OnDemandCertificates, TicketSecrets, TlsSettings, TlsSite,
};
use apus_net::{ClientFilter, ClientRefusal, Http3Settings, ListenAddress, ListenerPlan};
use apus_proxy::PathForm;
use apus_sites::{
    ChallengeStates, Location, LocationPattern, RuleCounters, Site, SiteMetrics, Sites,
    TrafficWatch,
};
use apus_transport::tls::Certificate;

use crate::maintenance::MaintenanceSwitches;
use crate::otlp_export::TRACED_RECORDS;
use apus_access_log::AccessLogs;
use apus_config as config;
pub use origins::{OriginServices, groups};
use sni_check::SniCheck;
use tokio::sync::watch;

/// The least memory for the static files of a location.
const MIN_FILE_CACHE_BYTES: u64 = 1024 * 1024;

/// Resources of the process that outlive a plan.
#[derive(Clone, Copy, Debug)]
pub struct ProcessResources<'a> {
    /// The files of access logs.
    pub logs: &'a AccessLogs,
    /// Compressed variants of files.
    pub variants: &'a Arc<VariantStore>,
    /// The services for origins.
    pub origins: OriginServices<'a>,
    /// The responses to certificate authorities.
    pub challenges: &'a Arc<PendingChallenges>,
    /// Certificates for names that are first seen in a handshake.
    pub on_demand: &'a Arc<OnDemandNames>,
    /// The secrets of session tickets, for plans that store them.
    pub tickets: &'a Arc<TicketSecrets>,
    /// How often rules applied.
    pub rule_counters: &'a RuleCounters,
    /// Where requests are counted while somebody watches.
    pub traffic: &'a TrafficWatch,
    /// Where the requests of sites are counted for metrics, in plans that have them.
    pub metrics: &'a SiteMetrics,
    /// Where what happened to the last requests is kept, in plans that keep some.
    pub records: &'a RequestRecords,
    /// The maintenance of sites by command.
    pub maintenance: &'a MaintenanceSwitches,
    /// What the challenges of sites remember.
    pub challenge_states: &'a ChallengeStates,
    /// The bans of clients; `None`: no client is banned.
    pub bans: Option<&'a Arc<Bans>>,
    /// What clients do wrong; `None`: it is not counted.
    pub glitches: Option<&'a Arc<Glitches>>,
}

/// Builds the plan of the engine. Opens access logs, but no sockets. The [`groups`] of origins have to be
/// applied before its services are created.
///
/// # Errors
/// An access log cannot be opened.
pub fn assemble(
    plan: &config::ServerPlan,
    resources: ProcessResources<'_>,
) -> io::Result<apus_net::EnginePlan> {
    let addresses: Vec<_> = distinct_listeners(plan)
        .into_iter()
        .map(|listener| (listener, members(plan, &listener.address)))
        .collect();
    // Addresses with the same sites share their services, and so the memory of these.
    let mut shared: Vec<&[usize]> = Vec::new();
    for (_, members) in &addresses {
        if !shared.contains(&members.as_slice()) {
            shared.push(members);
        }
    }
    for handle in plan.origin_handles() {
        handle.connect(resources.origins.of_layer(handle));
    }
    let context = AssemblyContext {
        cache_bytes: cache_bytes(plan, &shared),
        resources,
        counts_sites: plan.global.metrics.is_some(),
        records: resources
            .records
            .with_capacity(kept_records(plan))
            .traced(traces(plan).map(|traces| traces.sampling)),
    };
    let sites = plan
        .sites
        .iter()
        .map(|site| build(site, &context))
        .collect::<io::Result<Vec<_>>>()?;
    let groups = shared
        .iter()
        .map(|members| group(plan, members, &sites, resources))
        .collect::<io::Result<Vec<_>>>()?;
    let orders_certificates = plan
        .sites
        .iter()
        .any(|site| !site.acme.is_empty() || site.on_demand.is_some());
    let mut listeners = Vec::with_capacity(addresses.len());
    for (listener, members) in &addresses {
        let Some((_, service)) = shared
            .iter()
            .zip(&groups)
            .find(|(known, _)| *known == members)
        else {
            continue;
        };
        listeners.push(ListenerPlan {
            address: listener.address.clone(),
            tls: if listener.tls {
                let settings = tls_settings(plan, members, resources.tickets)?;
                let settings = settings.with_challenges(
                    Arc::clone(resources.challenges) as Arc<dyn ChallengeCertificates>
                );
                Some(Arc::new(if has_on_demand(plan, members) {
                    settings.with_on_demand(
                        Arc::clone(resources.on_demand) as Arc<dyn OnDemandCertificates>
                    )
                } else {
                    settings
                }))
            } else {
                None
            },
            http2: plan.global.h2c && !listener.tls,
            http3: if listener.tls {
                http3_settings(plan, members)
            } else {
                None
            },
            proxy_protocol_from: listener.proxy_protocol_from.clone(),
            service: {
                let service = if listener.tls && needs_sni_check(plan, members) {
                    Arc::new(SniCheck(service.clone())) as Arc<dyn ServiceFactory>
                } else {
                    Arc::new(service.clone())
                };
                if orders_certificates {
                    Arc::new(HttpChallengeService::new(
                        service,
                        Arc::clone(resources.challenges),
                    ))
                } else {
                    service
                }
            },
        });
    }
    Ok(apus_net::EnginePlan {
        workers: plan.global.workers,
        limits: plan.global.limits.clone(),
        server_field: plan.global.server_header.then(|| "Apus".into()),
        listeners,
        http3_secret: None,
        client_filter: client_filter(resources),
        is_secondary: false,
    })
}

/// The listeners of all sites, each address once; sites on one address have equal listeners.
fn distinct_listeners(plan: &config::ServerPlan) -> Vec<&config::ListenerPlan> {
    let mut distinct: Vec<&config::ListenerPlan> = Vec::new();
    for listener in plan.sites.iter().flat_map(|site| &site.listeners) {
        if distinct
            .iter()
            .all(|known| known.address != listener.address)
        {
            distinct.push(listener);
        }
    }
    distinct
}

/// The indexes of the sites on an address.
fn members(plan: &config::ServerPlan, address: &ListenAddress) -> Vec<usize> {
    let listens =
        |site: &config::SitePlan| site.listeners.iter().any(|one| one.address == *address);
    plan.sites
        .iter()
        .enumerate()
        .filter(|(_, site)| listens(site))
        .map(|(position, _)| position)
        .collect()
}

/// Whether one of several sites requests client certificates, so that a request must be for the
/// site of the handshake.
fn needs_sni_check(plan: &config::ServerPlan, members: &[usize]) -> bool {
    let requests_certificates = |position: &usize| {
        let tls = plan.sites.get(*position).and_then(|site| site.tls.as_ref());
        tls.is_some_and(|tls| !matches!(tls.client_auth, ClientAuth::None))
    };
    members.len() > 1 && members.iter().any(requests_certificates)
}

/// The settings of HTTP/3 at an address; its sites have equal ones.
fn http3_settings(plan: &config::ServerPlan, members: &[usize]) -> Option<Http3Settings> {
    members
        .iter()
        .filter_map(|position| plan.sites.get(*position))
        .find_map(|site| site.http3.clone())
}

/// Whether one of the sites orders certificates on demand.
fn has_on_demand(plan: &config::ServerPlan, members: &[usize]) -> bool {
    let mut sites = members.iter().filter_map(|at| plan.sites.get(*at));
    sites.any(|site| site.on_demand.is_some())
}

fn tls_settings(
    plan: &config::ServerPlan,
    members: &[usize],
    tickets: &Arc<TicketSecrets>,
) -> io::Result<TlsSettings> {
    let mut member_sites: Vec<&config::SitePlan> = members
        .iter()
        .filter_map(|position| plan.sites.get(*position))
        .collect();
    // The fallback site is also the one for unknown names in a handshake.
    member_sites.sort_by_key(|site| !site.is_fallback);
    let needs_sni_check = needs_sni_check(plan, members);
    let sites: Vec<TlsSite> = member_sites
        .into_iter()
        .filter_map(|site| Some((site, site.tls.clone()?)))
        .flat_map(|(site, mut tls)| {
            if needs_sni_check {
                // A wildcard in a certificate may match the name of another site.
                let own: Vec<_> = site.server_names.iter().map(ToString::to_string).collect();
                tls.names.retain(|name| own.contains(name));
            }
            if site.is_certified_by_name {
                by_name(&tls)
            } else {
                vec![tls]
            }
        })
        .collect();
    let tickets = plan.global.stores_tickets.then_some(tickets);
    TlsSettings::with_tickets(&sites, plan.global.unknown_name, tickets).map_err(io::Error::other)
}

/// A site for each name, with its certificates. The requests of a connection are for names of its certificate then.
fn by_name(site: &TlsSite) -> Vec<TlsSite> {
    let of_name = |name: &String| {
        let is_for = |certificate: &&Certificate| {
            let mut names = certificate.names().iter();
            names.any(|covered| **covered == **name)
        };
        TlsSite {
            names: vec![name.clone()],
            certificates: site.certificates.iter().filter(is_for).cloned().collect(),
            ..site.clone()
        }
    };
    site.names.iter().map(of_name).collect()
}

/// The service of the sites on one address.
fn group(
    plan: &config::ServerPlan,
    members: &[usize],
    sites: &[Site],
    resources: ProcessResources<'_>,
) -> io::Result<Sites> {
    let mut group = Sites::new().trusted_proxies(plan.global.trusted_proxies.clone());
    if let Some(bans) = resources.bans {
        group = group.bans(Arc::clone(bans));
    }
    if let Some(glitches) = resources.glitches {
        group = group.glitches(Arc::clone(glitches));
    }
    let bots = &plan.global.bots.bots;
    if !bots.is_empty() {
        group = group.bots(bots.clone());
    }
    for position in members {
        let (Some(site), Some(plan)) = (sites.get(*position), plan.sites.get(*position)) else {
            continue;
        };
        group = if plan.is_fallback {
            group.fallback(site.clone())
        } else {
            group.site(site.clone())
        }
        .map_err(io::Error::other)?;
    }
    Ok(group)
}

fn traces(plan: &config::ServerPlan) -> Option<config::TracePlan> {
    plan.global.otlp.as_ref()?.traces
}

/// How many records each worker keeps.
pub(crate) fn kept_records(plan: &config::ServerPlan) -> usize {
    let explained = plan.global.explained_requests;
    match traces(plan) {
        Some(_) => explained.max(TRACED_RECORDS),
        None => explained,
    }
}

/// The memory for the static files of each location, so that a worker stays within its limit.
fn cache_bytes(plan: &config::ServerPlan, groups: &[&[usize]]) -> u64 {
    let serves_files = |handler: &&config::HandlerPlan| match handler {
        config::HandlerPlan::Files(_) => true,
        config::HandlerPlan::Php(php) => php.files.is_some(),
        config::HandlerPlan::Return(_) | config::HandlerPlan::Proxy(_) => false,
    };
    let locations = groups
        .iter()
        .flat_map(|members| members.iter())
        .filter_map(|position| plan.sites.get(*position))
        .flat_map(config::SitePlan::handlers)
        .filter(serves_files)
        .count();
    match plan.global.static_cache_bytes {
        0 => 0,
        bytes => (bytes / (locations as u64).max(1)).max(MIN_FILE_CACHE_BYTES),
    }
}

/// Refuses the connections of banned clients, and counts what clients do wrong.
struct RefusedClients {
    bans: Arc<Bans>,
    glitches: Arc<Glitches>,
}

impl ClientFilter for RefusedClients {
    fn refuses(&self, client: IpAddr) -> Option<ClientRefusal> {
        if self.bans.is_banned(client) {
            return Some(ClientRefusal::Banned);
        }
        self.glitches
            .refuses(client)
            .then_some(ClientRefusal::Glitches)
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.bans.changes())
    }

    fn note(&self, client: IpAddr, glitch: Glitch) {
        self.glitches.note(client, glitch);
    }
}

/// The filter of clients of a server that runs.
fn client_filter(resources: ProcessResources<'_>) -> Option<Arc<dyn ClientFilter>> {
    Some(Arc::new(RefusedClients {
        bans: Arc::clone(resources.bans?),
        glitches: Arc::clone(resources.glitches?),
    }))
}

/// The resources for the services of a plan.
struct AssemblyContext<'a> {
    /// The memory for the static files of each location, on each worker.
    cache_bytes: u64,
    resources: ProcessResources<'a>,
    /// Whether requests are counted by site.
    counts_sites: bool,
    /// Where what happened to the last requests is kept.
    records: RequestRecords,
}

fn build(plan: &config::SitePlan, context: &AssemblyContext<'_>) -> io::Result<Site> {
    let switch = context.resources.maintenance.of(&plan.name);
    let mut site = Site::new(&plan.name)
        .settings(plan.settings.clone())
        .maintenance(plan.maintenance.clone().switch(&switch))
        .traffic(context.resources.traffic)
        .compression(plan.compression);
    for name in &plan.server_names {
        site = site.server_name(name.clone());
    }
    if let Some(condition) = &plan.compress_when {
        site = site.compress_when(condition.clone());
    }
    for rules in &plan.rules {
        site = site.rules(rules.clone().counters(context.resources.rule_counters));
    }
    if context.counts_sites {
        site = site.metrics(context.resources.metrics);
    }
    if context.records.is_on() {
        site = site.records(&context.records);
    }
    if let Some(maps) = &plan.maps {
        site = site.maps(maps.clone());
    }
    if let Some(limits) = &plan.readable_limits {
        site = site.limits(limits.clone());
    }
    // The site's own handler is its location `/`, which an explicit location `/` replaces.
    if let Some(handler) = &plan.handler {
        site = site.location(location(
            LocationPattern::everywhere(),
            handler,
            plan,
            context,
        ));
    }
    for own in &plan.locations {
        let mut location = location(own.pattern.clone(), &own.handler, plan, context)
            .settings(own.settings.clone());
        if own.internal {
            location = location.internal();
        }
        if let Some(rules) = &own.rules {
            location = location.rules(rules.clone().counters(context.resources.rule_counters));
        }
        site = site.location(location);
    }
    if let Some(challenge) = &plan.challenge {
        let state = context.resources.challenge_states.of(&plan.name);
        site = site.challenge(challenge.clone().state(&state));
    }
    if let Some(force) = plan.force_https {
        site = site.force_https(force);
    }
    if let Some(hsts) = plan.hsts {
        site = site.hsts(hsts);
    }
    if let Some(log) = &plan.access_log {
        let logs = context.resources.logs;
        let opened = logs.open(&log.settings, &plan.name).map_err(|error| {
            let path = log.settings.file.clone().unwrap_or_default();
            let message = format!("cannot open the access log {}: {error}", path.display());
            io::Error::new(error.kind(), message)
        })?;
        site = site.observer(Arc::new(opened));
        if let Some(condition) = &log.when {
            site = site.observed_when(condition.clone());
        }
    }
    Ok(site)
}

fn location(
    pattern: LocationPattern,
    handler: &config::HandlerPlan,
    site: &config::SitePlan,
    context: &AssemblyContext<'_>,
) -> Location {
    let origins = context.resources.origins;
    match handler {
        config::HandlerPlan::Return(handler) => Location::respond(pattern, handler.clone()),
        config::HandlerPlan::Proxy(proxy) => origins.location(pattern, proxy, site),
        config::HandlerPlan::Php(php) => {
            let is_raw = php.settings.path_form == PathForm::Raw;
            let location = match &php.files {
                Some(files) => {
                    let files = files_of(&pattern, files, site, context).encoded_slashes(is_raw);
                    Location::files(pattern, files.programs(origins.php(php, site).0))
                }
                None => {
                    let name = format!("fastcgi {}", php.upstream);
                    Location::service(pattern, &name, origins.php(php, site)).redirect_to_slash()
                }
            };
            if is_raw {
                location.allow_encoded_slash()
            } else {
                location
            }
        }
        config::HandlerPlan::Files(files) => {
            let files = files_of(&pattern, files, site, context);
            Location::files(pattern, files)
        }
    }
}

/// The files of a location.
fn files_of(
    pattern: &LocationPattern,
    plan: &config::FilesPlan,
    site: &config::SitePlan,
    context: &AssemblyContext<'_>,
) -> Files {
    let mut files = match &plan.root {
        config::FilesRoot::Root(root) => Files::new(root),
        config::FilesRoot::Alias(alias) => {
            Files::new(alias).strip_prefix(plain_path(&pattern.to_string()))
        }
    }
    .index(plan.index.iter().map(String::as_str))
    .listing(plan.listing)
    .cache_control(plan.cache_control.iter().cloned())
    .media_types(plan.mime.iter().cloned())
    .charset(plan.charset.clone())
    .hidden_files(plan.hidden_files)
    .symlinks(plan.symlinks)
    .protected(plan.protected.iter().cloned())
    .compression(site.compression)
    .precompressed(site.precompressed)
    .cache(context.cache_bytes)
    .variants(Arc::clone(context.resources.variants));
    if let Some(list) = &plan.try_files {
        files = files.try_files(list.clone());
    }
    if let Some(page) = &plan.spa {
        files = files.spa(page);
    }
    if plan.has_scripts {
        files = files.beside_programs();
    }
    files
}

/// The path in `= /path`, `^~ /path` and `/path`.
fn plain_path(pattern: &str) -> &str {
    pattern
        .find('/')
        .and_then(|at| pattern.get(at..))
        .unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use apus_http::{
        Body, ConnectionInfo, Headers, Method, Peer, Request, RequestParts, Response, StatusCode,
        Target, TlsInfo, TlsVersion, Version,
    };
    use apus_upstream::plan::GroupPlan;

    use super::*;

    fn plan(folder: &Path, text: &str) -> apus_net::EnginePlan {
        let plan = config::parse_str(text, "apus.toml", folder, &|_| None);
        let plan = plan.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        assembled(&plan).unwrap()
    }

    fn assembled(plan: &config::ServerPlan) -> io::Result<apus_net::EnginePlan> {
        let resources = ProcessResources {
            logs: &AccessLogs::new().0,
            variants: &Arc::new(VariantStore::new(0)),
            origins: OriginServices::DryRun,
            challenges: &Arc::default(),
            on_demand: &Arc::default(),
            tickets: &Arc::default(),
            rule_counters: &RuleCounters::default(),
            traffic: &TrafficWatch::default(),
            metrics: &SiteMetrics::default(),
            records: &RequestRecords::new(0),
            maintenance: &MaintenanceSwitches::default(),
            challenge_states: &ChallengeStates::default(),
            bans: None,
            glitches: None,
        };
        assemble(plan, resources)
    }

    fn get(listener: &ListenerPlan, host: &str, path: &str) -> Response {
        get_over(listener, host, path, None)
    }

    fn get_over(listener: &ListenerPlan, host: &str, path: &str, tls: Option<TlsInfo>) -> Response {
        get_in(Version::HTTP_11, listener, host, path, tls)
    }

    fn get_in(
        version: Version,
        listener: &ListenerPlan,
        host: &str,
        path: &str,
        tls: Option<TlsInfo>,
    ) -> Response {
        let mut headers = Headers::new();
        headers.try_append("host", host).unwrap();
        let request = Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, path).unwrap(),
            version,
            headers,
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                kept: apus_http::KeptValue::default(),
                id: 1,
                peer: Peer::Ip("192.0.2.1:5000".parse().unwrap()),
                local: Peer::Ip("192.0.2.2:80".parse().unwrap()),
                tls,
            }),
            extensions: Default::default(),
        });
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap()
            .block_on(async { listener.service.service().call(request).wait().await })
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("one/index.html", "one"),
            ("one/style.css", "a {}"),
            ("two/index.html", "the second"),
            ("two/404.html", "lost"),
            ("alias/a.txt", "a"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn the_host_selects_among_the_sites_of_one_address() {
        let folder = folder();
        let plan = plan(
            folder.path(),
            r#"
            [[sites]]
            server_name = "one.example"
            listen = [80, 81]
            root = "one"
            [[sites]]
            listen = [80, 81]
            root = "two"
            error_pages = { 4xx = "/404.html" }
            client_max_body_size = 1
            "#,
        );
        assert_eq!(plan.listeners.len(), 2);
        for listener in &plan.listeners {
            let length = |host: &str| get(listener, host, "/").body().len();
            assert_eq!(length("one.example"), Some(3));
            assert_eq!(length("other.example"), Some(10));
            let missing = get(listener, "two.example", "/nothing");
            assert_eq!(missing.status(), StatusCode::NOT_FOUND);
            assert_eq!(missing.body().len(), Some(4));
        }
    }

    #[test]
    fn locations_respond_as_configured() {
        let folder = folder();
        let plan = plan(
            folder.path(),
            r#"
            [global]
            static_cache_size = 0
            [[sites]]
            listen = 80
            root = "one"
            headers.set = { x-site = "$host" }
            cache_control = { "*.css" = "max-age=60" }
            [[sites.locations]]
            path = "/files/"
            alias = "alias"
            [[sites.locations]]
            path = "= /old"
            return = { status = 301, location = "/new" }
            [[sites.locations]]
            path = "~ ^/say/(.*)$"
            return = { status = 200, text = "you say $1" }
            headers.set = { x-location = "say" }
            "#,
        );
        let get = |path: &str| get(&plan.listeners[0], "example.com", path);
        assert_eq!(get("/files/a.txt").body().len(), Some(1));
        assert_eq!(get("/files/b.txt").status(), StatusCode::NOT_FOUND);
        let old = get("/old");
        assert_eq!(old.status(), StatusCode::MOVED_PERMANENTLY);
        assert!(old.headers().get_str("location").unwrap().ends_with("/new"));
        let say = get("/say/hello");
        assert_eq!(say.body().len(), Some("you say hello".len() as u64));
        assert_eq!(say.headers().get_str("x-location"), Some("say"));
        assert_eq!(say.headers().get_str("x-site"), Some("example.com"));
        let css = get("/style.css");
        assert_eq!(css.headers().get_str("cache-control"), Some("max-age=60"));
    }

    #[test]
    fn a_single_page_application_has_its_page_for_every_path() {
        let folder = folder();
        let text = "[[sites]]\nlisten = 80\nroot = \"one\"\npreset = \"spa\"\n";
        let plan = plan(folder.path(), text);
        let get = |path: &str| get(&plan.listeners[0], "example.com", path);
        assert_eq!(get("/users/1").body().len(), Some(3));
        assert_eq!(get("/users/1").status(), StatusCode::OK);
    }

    #[test]
    fn keys_of_a_site_override_those_of_its_preset() {
        let folder = folder();
        let field = |more: &str, path: &str, name: &str| {
            let text = format!("[[sites]]\nlisten = 80\nroot = \"one\"\n{more}\n");
            let response = get(&plan(folder.path(), &text).listeners[0], "a.example", path);
            response.headers().get_str(name).map(str::to_owned)
        };
        let preset = "preset = \"static\"\n";
        let with = |more: &str| preset.to_owned() + more;
        assert_eq!(field("", "/", "x-content-type-options"), None);
        for path in ["/", "/style.css", "/none"] {
            let guard = field(preset, path, "x-content-type-options");
            assert_eq!(guard.as_deref(), Some("nosniff"), "{path}");
        }
        let removed = with("headers.remove = \"x-content-type-options\"");
        assert_eq!(field(&removed, "/", "x-content-type-options"), None);
        assert_eq!(
            field(preset, "/", "cache-control").as_deref(),
            Some("no-cache")
        );
        let own = with("cache_control = { \"*.html\" = \"max-age=5\" }");
        assert_eq!(
            field(&own, "/", "cache-control").as_deref(),
            Some("max-age=5")
        );
    }

    #[test]
    fn a_handshake_for_one_site_gives_no_access_to_one_that_requires_certificates() {
        let folder = folder();
        let made = rcgen::generate_simple_self_signed(["*.example".to_owned()]).unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(
            folder.path().join("key.pem"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
        let site = |name: &str, more: &str| {
            format!(
                "[[sites]]\nserver_name = \"{name}.example\"\nlisten_tls = 443\nroot = \"one\"\n\
                 tls = {{ cert = \"cert.pem\", key = \"key.pem\"{more} }}\n"
            )
        };
        let open = site("open", "");
        let closed = site(
            "closed",
            ", client_auth = \"required\", client_ca = \"cert.pem\"",
        );
        let status = |text: &str, name: &str, host: &str| {
            let plan = plan(folder.path(), text);
            let tls = TlsInfo {
                version: TlsVersion::Tls13,
                cipher: "TLS13_AES_128_GCM_SHA256",
                alpn: None,
                fingerprint: None,
                server_name: Some(name.into()),
                certificate_names: Arc::new(["*.example".into()]),
                client_certificate: None,
            };
            // A browser may bring requests for all names of a certificate over one connection
            // (RFC 9113 section 9.1.1).
            let [one, two] = [Version::HTTP_11, Version::HTTP_2].map(|version| {
                get_in(version, &plan.listeners[0], host, "/", Some(tls.clone())).status()
            });
            assert_eq!(one, two, "{name} {host}");
            two
        };
        let mixed = open.clone() + &closed;
        assert_eq!(
            status(&mixed, "open.example", "open.example"),
            StatusCode::OK
        );
        assert_eq!(
            status(&mixed, "open.example", "closed.example"),
            StatusCode::MISDIRECTED_REQUEST
        );
        assert_eq!(
            status(&open, "open.example", "other.example"),
            StatusCode::OK
        );
        assert_eq!(
            status(&open, "open.example", "elsewhere.test"),
            StatusCode::MISDIRECTED_REQUEST
        );
        let plan = plan(folder.path(), &mixed);
        let refused = get(&plan.listeners[0], "closed.example", "/");
        assert!(!refused.body().is_empty(), "an error page is missing");
    }

    #[test]
    fn cleartext_http_2_is_enabled_unless_it_is_configured_off() {
        let folder = folder();
        let http2 = |global: &str| {
            let site = "[[sites]]\nlisten = 80\nroot = \"one\"\n";
            plan(folder.path(), &format!("{global}{site}")).listeners[0].http2
        };
        assert!(http2(""));
        assert!(!http2("[global]\nh2c = false\n"));
    }

    #[test]
    fn internal_locations_are_not_found_by_clients() {
        let folder = folder();
        let text = "[[sites]]\nlisten = 80\nroot = \"one\"\n\
                    [[sites.locations]]\npath = \"/internal/\"\ninternal = true\nalias = \"alias\"\n\
                    [[sites.locations]]\npath = \"/a/\"\n\
                    rewrite = [{ from = \"^/a/(.*)\", to = \"/internal/$1\", then = \"last\" }]\n";
        let plan = plan(folder.path(), text);
        let status = |path: &str| get(&plan.listeners[0], "a.example", path).status();
        assert_eq!(status("/internal/a.txt"), StatusCode::NOT_FOUND);
        assert_eq!(status("/a/a.txt"), StatusCode::OK);
    }

    #[test]
    fn nodes_have_their_configured_tls() {
        let folder = folder();
        let text = "[[sites]]\nlisten = 80\nupstream = \"app\"\n\
                    [[sites.upstreams]]\nname = \"app\"\nnodes = [\"10.0.0.1:1\", \"App:2\"]\n\
                    tls = { verify = false }\n\
                    [[sites.locations]]\npath = \"/a/\"\nupstream = \"http://app/\"\n";
        let plan = config::parse_str(text, "apus.toml", folder.path(), &|_| None).unwrap();
        let groups = groups(&plan).unwrap();
        let names = |group: &GroupPlan| {
            let tls = group.nodes.iter().map(|node| node.tls.as_ref());
            tls.map(|tls| tls.map(|tls| tls.server_name()))
                .collect::<Vec<_>>()
        };
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(names(&groups[0]), [name("10.0.0.1"), name("app")]);
        assert_eq!(names(&groups[1]), [None]);
    }

    #[test]
    fn an_access_log_that_cannot_be_opened_is_named() {
        let folder = folder();
        let text = "[[sites]]\nlisten = 80\nroot = \"one\"\naccess_log = \"one\"\n";
        let plan = config::parse_str(text, "apus.toml", folder.path(), &|_| None).unwrap();
        let error = assembled(&plan).err().unwrap();
        assert!(error.to_string().contains("access log"), "{error}");
    }
}
