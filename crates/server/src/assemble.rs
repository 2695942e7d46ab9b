//! From a configuration to the plan of the engine: sites, and the listeners of each.

mod caching;
mod origins;
mod same_name;

use std::io;
use std::sync::Arc;

use apus_files::{Files, Variants};
use apus_http::{ServiceFactory, StatusCode};
use apus_net::tls::{ClientAuth, TlsSettings, TlsSite};
use apus_net::{ListenAddress, Listener};
use apus_sites::{ErrorPage, ForceHttps, Location, Pattern, Settings, Site, Sites};

use apus_access_log::AccessLogs;
use apus_config as config;
pub use origins::{Origins, groups};
use same_name::SameName;

/// The least memory that a place of static files gets.
const LEAST_CACHE: u64 = 1024 * 1024;

/// What outlives the plans that are assembled with it.
#[derive(Clone, Copy, Debug)]
pub struct Lasting<'a> {
    /// Files that are logged to.
    pub logs: &'a AccessLogs,
    /// Compressed forms of files.
    pub variants: &'a Arc<Variants>,
    /// Who answers for proxies.
    pub origins: Origins<'a>,
}

/// Builds what `plan` says. Access logs are opened, sockets are not. Its [`groups`] of origins have to
/// be in force before its services are made.
///
/// # Errors
/// An access log cannot be opened.
pub fn assemble(plan: &config::Plan, lasting: Lasting<'_>) -> io::Result<apus_net::Plan> {
    let addresses: Vec<_> = distinct_listeners(plan)
        .into_iter()
        .map(|listener| (listener, members(plan, &listener.address)))
        .collect();
    // Addresses with the same sites share them, and so what their services keep in memory.
    let mut shared: Vec<&[usize]> = Vec::new();
    for (_, members) in &addresses {
        if !shared.contains(&members.as_slice()) {
            shared.push(members);
        }
    }
    let kept = Kept {
        cache_bytes: cache_bytes(plan, &shared),
        lasting,
    };
    let sites = plan
        .sites
        .iter()
        .map(|site| build(site, &kept))
        .collect::<io::Result<Vec<_>>>()?;
    let groups = shared
        .iter()
        .map(|members| group(plan, members, &sites))
        .collect::<io::Result<Vec<_>>>()?;
    let mut listeners = Vec::with_capacity(addresses.len());
    for (listener, members) in &addresses {
        let Some((_, service)) = shared
            .iter()
            .zip(&groups)
            .find(|(known, _)| *known == members)
        else {
            continue;
        };
        listeners.push(Listener {
            address: listener.address.clone(),
            tls: match listener.tls {
                true => Some(tls_settings(plan, members)?),
                false => None,
            },
            http2: plan.global.h2c && !listener.tls,
            proxy_protocol_from: listener.proxy_protocol_from.clone(),
            service: if listener.tls && is_mixed(plan, members) {
                Arc::new(SameName(service.clone())) as Arc<dyn ServiceFactory>
            } else {
                Arc::new(service.clone())
            },
        });
    }
    Ok(apus_net::Plan {
        workers: plan.global.workers,
        limits: plan.global.limits.clone(),
        server_field: plan.global.server_header.then(|| "Apus".into()),
        listeners,
    })
}

/// The listeners of all sites, no address twice; two sites on one address agree about it.
fn distinct_listeners(plan: &config::Plan) -> Vec<&config::Listener> {
    let mut distinct: Vec<&config::Listener> = Vec::new();
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

/// The sites on an address, by their position.
fn members(plan: &config::Plan, address: &ListenAddress) -> Vec<usize> {
    let listens = |site: &config::Site| site.listeners.iter().any(|one| one.address == *address);
    plan.sites
        .iter()
        .enumerate()
        .filter(|(_, site)| listens(site))
        .map(|(position, _)| position)
        .collect()
}

/// Whether one of several sites asks for client certificates, so that it matters which of them a
/// handshake was with.
fn is_mixed(plan: &config::Plan, members: &[usize]) -> bool {
    let asks = |position: &usize| {
        let tls = plan.sites.get(*position).and_then(|site| site.tls.as_ref());
        tls.is_some_and(|tls| !matches!(tls.client_auth, ClientAuth::None))
    };
    members.len() > 1 && members.iter().any(asks)
}

fn tls_settings(plan: &config::Plan, members: &[usize]) -> io::Result<Arc<TlsSettings>> {
    let mut members_said: Vec<&config::Site> = members
        .iter()
        .filter_map(|position| plan.sites.get(*position))
        .collect();
    // The site for other hosts is the one for other names, too.
    members_said.sort_by_key(|site| !site.is_fallback);
    let is_mixed = is_mixed(plan, members);
    let sites: Vec<TlsSite> = members_said
        .into_iter()
        .filter_map(|site| {
            let mut tls = site.tls.clone()?;
            if is_mixed {
                // A name that only a certificate has might be another site's by its wildcard.
                let own: Vec<_> = site.server_names.iter().map(ToString::to_string).collect();
                tls.names.retain(|name| own.contains(name));
            }
            Some(tls)
        })
        .collect();
    TlsSettings::new(&sites, plan.global.unknown_name)
        .map(Arc::new)
        .map_err(io::Error::other)
}

/// The sites on one address, as one service.
fn group(plan: &config::Plan, members: &[usize], sites: &[Site]) -> io::Result<Sites> {
    let mut group = Sites::new().trusted_proxies(plan.global.trusted_proxies.clone());
    for position in members {
        let (Some(site), Some(said)) = (sites.get(*position), plan.sites.get(*position)) else {
            continue;
        };
        group = if said.is_fallback {
            group.fallback(site.clone())
        } else {
            group.site(site.clone())
        }
        .map_err(io::Error::other)?;
    }
    Ok(group)
}

/// The memory of each place of static files, so that all of a worker keep to the limit.
fn cache_bytes(plan: &config::Plan, groups: &[&[usize]]) -> u64 {
    let serves_files = |content: &config::Content| {
        u64::from(match &content.handler {
            Some(config::Handler::Files(_)) => true,
            Some(config::Handler::Php(php)) => php.files.is_some(),
            _ => false,
        })
    };
    let places: u64 = groups
        .iter()
        .flat_map(|members| members.iter())
        .filter_map(|position| plan.sites.get(*position))
        .map(|site| {
            let locations = site.locations.iter();
            let locations = locations.map(|location| serves_files(&location.content));
            serves_files(&site.content) + locations.sum::<u64>()
        })
        .sum();
    match plan.global.static_cache_bytes {
        0 => 0,
        bytes => (bytes / places.max(1)).max(LEAST_CACHE),
    }
}

/// What services are built with.
struct Kept<'a> {
    /// What each place of files keeps in memory, on each worker.
    cache_bytes: u64,
    lasting: Lasting<'a>,
}

fn build(said: &config::Site, kept: &Kept<'_>) -> io::Result<Site> {
    let mut site = Site::new(&said.name)
        .settings(settings(&said.content))
        .compression(said.compression);
    for name in &said.server_names {
        site = site.server_name(name.clone());
    }
    // What the site itself does is its outermost location; one of its own for "/" replaces it.
    if let Some(handler) = &said.content.handler {
        let everywhere: Pattern = "/".parse().map_err(io::Error::other)?;
        site = site.location(location(everywhere, handler, said, kept));
    }
    for own in &said.locations {
        if let Some(handler) = &own.content.handler {
            let mut location =
                location(own.pattern.clone(), handler, said, kept).settings(settings(&own.content));
            if own.internal {
                location = location.internal();
            }
            site = site.location(location);
        }
    }
    if said.force_https {
        site = site.force_https(ForceHttps {
            port: https_port(said).unwrap_or(443),
            ..ForceHttps::default()
        });
    }
    if let Some(hsts) = said.hsts {
        site = site.hsts(hsts);
    }
    if let Some(log) = &said.access_log {
        let logs = kept.lasting.logs;
        let opened = logs
            .open(&log.path, log.format.clone(), &said.name)
            .map_err(|error| {
                let path = log.path.display();
                io::Error::new(
                    error.kind(),
                    format!("cannot open the access log {path}: {error}"),
                )
            })?;
        site = site.observer(Arc::new(opened));
    }
    Ok(site)
}

fn https_port(site: &config::Site) -> Option<u16> {
    let mut secure = site.listeners.iter().filter(|listener| listener.tls);
    secure.find_map(|listener| match listener.address {
        ListenAddress::Tcp { address, .. } => Some(address.port()),
        ListenAddress::Unix { .. } | ListenAddress::Inherited { .. } => None,
    })
}

fn location(
    pattern: Pattern,
    handler: &config::Handler,
    site: &config::Site,
    kept: &Kept<'_>,
) -> Location {
    match handler {
        config::Handler::Return(answer) => Location::respond(pattern, answer.clone()),
        config::Handler::Proxy(said) => kept.lasting.origins.location(pattern, said, site),
        config::Handler::Php(said) => {
            let origins = kept.lasting.origins;
            match &said.files {
                Some(files) => {
                    let files = files_of(&pattern, files, site, kept);
                    let files = files.programs(origins.programs(said, site).0);
                    Location::files(pattern, files)
                }
                None => {
                    let name = format!("fastcgi {}", said.upstream);
                    Location::service(pattern, &name, origins.programs(said, site))
                }
            }
        }
        config::Handler::Files(said) => {
            let files = files_of(&pattern, said, site, kept);
            Location::files(pattern, files)
        }
    }
}

/// The files of a location.
fn files_of(
    pattern: &Pattern,
    said: &config::Files,
    site: &config::Site,
    kept: &Kept<'_>,
) -> Files {
    let mut files = match &said.root {
        config::Root::Root(root) => Files::new(root),
        config::Root::Alias(alias) => {
            Files::new(alias).strip_prefix(plain_path(&pattern.to_string()))
        }
    }
    .index(said.index.iter().map(String::as_str))
    .listing(said.listing)
    .cache_control(said.cache_control.iter().cloned())
    .media_types(said.mime.iter().cloned())
    .charset(said.charset.clone())
    .hidden_files(said.hidden_files)
    .symlinks(said.symlinks)
    .protected(said.protected.iter().cloned())
    .compression(site.compression)
    .precompressed(site.precompressed)
    .cache(kept.cache_bytes)
    .variants(Arc::clone(kept.lasting.variants));
    if let Some(list) = &said.try_files {
        files = files.try_files(list.clone());
    }
    if let Some(page) = &said.spa {
        files = files.spa(page);
    }
    if said.has_programs {
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

fn settings(content: &config::Content) -> Settings {
    let mut settings = Settings::new().body_limit(content.max_body_bytes);
    let files = match &content.handler {
        Some(config::Handler::Files(files)) => Some(files),
        Some(config::Handler::Php(php)) => php.files.as_ref(),
        _ => None,
    };
    if let Some(files) = files {
        settings = settings.root(match &files.root {
            config::Root::Root(root) | config::Root::Alias(root) => root,
        });
    }
    let of_service = match &content.handler {
        Some(config::Handler::Proxy(proxy)) => Some((proxy.intercept_errors, &proxy.accel)),
        Some(config::Handler::Php(php)) => Some((php.intercept_errors, &php.accel)),
        _ => None,
    };
    if let Some((intercept_errors, accel)) = of_service {
        settings = settings.intercept_errors(intercept_errors);
        if let Some(accel) = accel {
            settings = settings.accel(accel.clone());
        }
    }
    for rule in &content.rewrites {
        settings = settings.rewrite(rule.clone());
    }
    for change in &content.request_fields {
        settings = settings.request_field(change.clone());
    }
    for change in &content.response_fields {
        settings = settings.response_field(change.clone());
    }
    // The last page for a status counts: pages for one status come behind those for a class.
    let (classes, single): (Vec<_>, Vec<_>) = content
        .error_pages
        .iter()
        .partition(|page| page.first != page.last);
    for page in classes.into_iter().chain(single) {
        for status in page.first..=page.last {
            if let Ok(status) = StatusCode::from_u16(status) {
                settings = settings.error_page(status, ErrorPage::Path(page.path.clone()));
            }
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use apus_http::{
        Body, ConnectionInfo, Headers, Method, Peer, Request, RequestParts, Response, Target,
        TlsInfo, TlsVersion, Version,
    };
    use apus_upstream::plan::GroupPlan;

    use super::*;

    fn plan(folder: &Path, text: &str) -> apus_net::Plan {
        let plan = config::parse_str(text, "apus.toml", folder, &|_| None);
        let plan = plan.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        assembled(&plan).unwrap()
    }

    fn assembled(plan: &config::Plan) -> io::Result<apus_net::Plan> {
        let lasting = Lasting {
            logs: &AccessLogs::new().0,
            variants: &Arc::new(Variants::new(0)),
            origins: Origins::Named,
        };
        assemble(plan, lasting)
    }

    fn get(listener: &Listener, host: &str, path: &str) -> Response {
        get_over(listener, host, path, None)
    }

    fn get_over(listener: &Listener, host: &str, path: &str, tls: Option<TlsInfo>) -> Response {
        get_in(Version::HTTP_11, listener, host, path, tls)
    }

    fn get_in(
        version: Version,
        listener: &Listener,
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
    fn sites_on_one_address_are_told_apart_by_host() {
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
    fn locations_answer_with_what_they_say() {
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
    fn what_a_site_says_itself_goes_before_its_preset() {
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
    fn a_handshake_with_one_site_does_not_open_one_that_wants_certificates() {
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
    fn http_2_in_clear_text_is_spoken_unless_it_is_turned_off() {
        let folder = folder();
        let http2 = |global: &str| {
            let site = "[[sites]]\nlisten = 80\nroot = \"one\"\n";
            plan(folder.path(), &format!("{global}{site}")).listeners[0].http2
        };
        assert!(http2(""));
        assert!(!http2("[global]\nh2c = false\n"));
    }

    #[test]
    fn what_is_internal_is_for_the_site_alone() {
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
    fn nodes_get_the_tls_that_is_said_for_them() {
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
