//! Services of the engine that an application mounts: files, redirects, proxies, caches, PHP.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use apus::cached::{Cache, CacheSettings, Cached};
use apus::files::Files;
use apus::php::{Php, PhpSettings};
use apus::proxy::{Proxy, ProxySettings};
use apus::upstream::plan::{GroupPlan, HashKey, NodePlan, NodeTarget, Strategy};
use apus::upstream::{Address, Protocol, Upstreams};
use apus::{
    HeaderValue, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
    header,
};
use apus_patterns::Glob;

use crate::app::{ApusApp, OwnedData};
use crate::border::{object, protect, status};
use crate::error::{ApusStatus, CallError};
use crate::request::field_value;
use crate::response::redirect_status;
use crate::text::{name, optional_name};

/// A service of the engine, to be mounted: files, a proxy, PHP, a cache, a redirect, the sites of an apus.toml.
pub struct ApusService {
    factory: Arc<dyn ServiceFactory>,
    owned: OwnedData,
}

impl ApusService {
    pub(crate) fn new(factory: impl ServiceFactory + 'static) -> Self {
        Self {
            factory: Arc::new(factory),
            owned: Arc::default(),
        }
    }
}

/// A service with the data of the application in it, which is freed with its last copy.
pub(crate) struct SharedService {
    factory: Arc<dyn ServiceFactory>,
    owned: OwnedData,
}

impl SharedService {
    pub(crate) fn of(service: ApusService) -> Self {
        let ApusService { factory, owned } = service;
        Self { factory, owned }
    }
}

/// The service of a worker, with the data of its application.
struct OwningService {
    service: Rc<dyn Service>,
    _owned: OwnedData,
}

impl Service for OwningService {
    fn call(&self, request: Request) -> ResponseFuture {
        self.service.call(request)
    }
}

impl ServiceFactory for SharedService {
    fn service(&self) -> Rc<dyn Service> {
        let service = self.factory.service();
        match self.owned.is_empty() {
            true => service,
            false => Rc::new(OwningService {
                service,
                _owned: self.owned.clone(),
            }),
        }
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.factory.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.factory.routes()
    }
}

/// The settings of apus_files_new(). Set `size` to sizeof(apus_files_options), all others to 0 for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusFilesOptions {
    /// sizeof(apus_files_options).
    pub size: usize,
    /// The name of the page of a folder (index.html).
    pub index: *const c_char,
    /// Lists folders that have no such page.
    pub listing: bool,
    /// Serves files whose names begin with a dot.
    pub hidden_files: bool,
    /// The page that answers paths without a file, with status 200: an application of one page.
    pub spa: *const c_char,
    /// The value of Cache-Control of all files.
    pub cache_control: *const c_char,
    /// The memory for small files, in bytes (64 MiB).
    pub cache_bytes: u64,
}

/// Checks the size of a structure that C filled in.
pub(crate) fn check_size<T>(size: usize) -> Result<(), CallError> {
    let expected = size_of::<T>();
    match size == expected {
        true => Ok(()),
        false => Err(CallError::invalid(
            format!("`size` to be {expected}"),
            size.to_string(),
            "set it to the sizeof of the structure, and compile with the header of this library",
        )),
    }
}

/// The files of a folder. `options` may be NULL. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_files_new(
    root: *const c_char,
    options: Option<&ApusFilesOptions>,
) -> Option<Box<ApusService>> {
    object("apus_files_new", || {
        let root = name(root, "root")?;
        if !Path::new(root).is_dir() {
            return Err(CallError::invalid(
                "the path of a folder",
                format!("{root:?}"),
                "create the folder, or see the current directory of the program",
            ));
        }
        let mut files = Files::new(root);
        if let Some(options) = options {
            check_size::<ApusFilesOptions>(options.size)?;
            if let Some(index) = optional_name(options.index, "index")? {
                files = files.index([index]);
            }
            if let Some(page) = optional_name(options.spa, "spa")? {
                files = files.spa(page);
            }
            if let Some(value) = optional_name(options.cache_control, "cache_control")? {
                let value = field_value(value.as_bytes())?;
                let all = Glob::parse("/**")
                    .map_err(|error| CallError::invalid("a glob", error.to_string(), ""))?;
                files = files.cache_control([(all, value)]);
            }
            if options.cache_bytes > 0 {
                files = files.cache(options.cache_bytes);
            }
            files = files
                .listing(options.listing)
                .hidden_files(options.hidden_files);
        }
        Ok(ApusService::new(files))
    })
}

/// A redirect of all requests.
struct Redirection {
    status: StatusCode,
    location: HeaderValue,
}

impl Service for Redirection {
    fn call(&self, _: Request) -> ResponseFuture {
        Response::new(self.status)
            .with_header(&header::LOCATION, &self.location)
            .into()
    }
}

/// A redirect of all requests to `location`, with status 301, 302, 303, 307 or 308. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_redirect_new(
    code: c_int,
    location: *const c_char,
) -> Option<Box<ApusService>> {
    object("apus_redirect_new", || {
        let status = redirect_status(code)?;
        let location = field_value(name(location, "location")?.as_bytes())?;
        Ok(ApusService::new(move || Redirection {
            status,
            location: location.clone(),
        }))
    })
}

/// A group of origin servers of a proxy.
#[derive(Debug, Default)]
pub struct ApusUpstream {
    nodes: Vec<NodePlan>,
    strategy: Strategy,
}

/// An empty group of origin servers. Free it by apus_upstream_free(), unless apus_proxy_new() takes it over.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_new() -> Option<Box<ApusUpstream>> {
    object("apus_upstream_new", || Ok(ApusUpstream::default()))
}

fn address_of(text: &str) -> Result<Address, CallError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(Path::new(path).into()));
    }
    let address: Result<SocketAddr, _> = text.parse();
    address.map(Address::Ip).map_err(|_| {
        CallError::invalid(
            "an address as 127.0.0.1:9000, [::1]:9000 or unix:/run/app.sock",
            format!("{text:?}"),
            "write the IP address and the port of the origin; for names, use an apus.toml",
        )
    })
}

/// Adds an origin: `127.0.0.1:9000`, `[::1]:9000`, `unix:/run/app.sock`. `weight` is 1 to 65,535.
/// Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_node(
    upstream: Option<&mut ApusUpstream>,
    address: *const c_char,
    weight: u32,
) -> ApusStatus {
    status("apus_upstream_node", || {
        let upstream = upstream.ok_or_else(|| CallError::null("upstream"))?;
        let text = name(address, "address")?;
        let address = address_of(text)?;
        if !(1..=65_535).contains(&weight) {
            return Err(CallError::invalid(
                "a weight of 1 to 65,535",
                weight.to_string(),
                "1 is the usual one",
            ));
        }
        let node = NodePlan::new(text, NodeTarget::Address(address));
        upstream.nodes.push(NodePlan { weight, ..node });
        Ok(())
    })
}

/// How an origin is chosen: `round_robin`, `least_conn`, `ip_hash`, `p2c`. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_strategy(
    upstream: Option<&mut ApusUpstream>,
    strategy: *const c_char,
) -> ApusStatus {
    status("apus_upstream_strategy", || {
        let upstream = upstream.ok_or_else(|| CallError::null("upstream"))?;
        upstream.strategy = match name(strategy, "strategy")? {
            "round_robin" => Strategy::RoundRobin,
            "least_conn" => Strategy::LeastConnections,
            "ip_hash" => Strategy::ConsistentHash(HashKey::Address),
            "p2c" => Strategy::BestOfTwo,
            other => {
                return Err(CallError::invalid(
                    "round_robin, least_conn, ip_hash or p2c",
                    format!("{other:?}"),
                    "an apus.toml has more strategies",
                ));
            }
        };
        Ok(())
    })
}

/// Frees a group that was not taken over. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_free(upstream: Option<Box<ApusUpstream>>) {
    protect("apus_upstream_free", || drop(upstream));
}

/// The name of the only group of its set.
const GROUP: &str = "upstream";

fn group_of(plan: GroupPlan) -> Upstreams {
    let upstreams = Upstreams::new();
    upstreams.apply(vec![plan]);
    upstreams
}

/// A reverse proxy in front of a group, which it takes over. NULL is an error (APUS_INVALID: there is no origin).
#[unsafe(no_mangle)]
pub extern "C" fn apus_proxy_new(upstream: Option<Box<ApusUpstream>>) -> Option<Box<ApusService>> {
    object("apus_proxy_new", || {
        let ApusUpstream { nodes, strategy } =
            *upstream.ok_or_else(|| CallError::null("upstream"))?;
        if nodes.is_empty() {
            return Err(CallError::invalid(
                "a group with an origin",
                "an empty one",
                "add origins by apus_upstream_node()",
            ));
        }
        let plan = GroupPlan {
            strategy,
            ..GroupPlan::new(GROUP, nodes)
        };
        Ok(ApusService::new(Proxy::new(
            &group_of(plan),
            GROUP,
            ProxySettings::default(),
        )))
    })
}

/// A shared cache (RFC 9111) of at most `bytes` in memory in front of a service, which it takes over. NULL is an error
/// (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_cache_new(
    service: Option<Box<ApusService>>,
    bytes: u64,
) -> Option<Box<ApusService>> {
    object("apus_cache_new", || {
        let service = *service.ok_or_else(|| CallError::null("service"))?;
        if bytes == 0 {
            return Err(CallError::invalid(
                "the bytes of the cache",
                "0",
                "pass 67108864, for example",
            ));
        }
        let settings = apus_cache::store::StoreSettings {
            memory_bytes: bytes,
            ..apus_cache::store::StoreSettings::default()
        };
        let cache = Cache::new(settings);
        let inner = SharedService::of(service);
        Ok(ApusService::new(Cached::new(
            &cache,
            "",
            CacheSettings::default(),
            inner,
        )))
    })
}

/// PHP over FastCGI: `address` is `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`, `root` the folder of the scripts. Files
/// that are not scripts are served from there, too; paths without a file go to `index.php`. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_php_new(
    address: *const c_char,
    root: *const c_char,
) -> Option<Box<ApusService>> {
    object("apus_php_new", || {
        let address_text = name(address, "address")?;
        let address = address_of(address_text)?;
        let root = name(root, "root")?;
        if !Path::new(root).is_dir() {
            return Err(CallError::invalid(
                "the path of a folder",
                format!("{root:?}"),
                "create the folder, or see the current directory of the program",
            ));
        }
        let node = NodePlan::new(address_text, NodeTarget::Address(address));
        let plan = GroupPlan {
            protocol: Protocol::FastCgi,
            ..GroupPlan::new(GROUP, vec![node])
        };
        let settings = PhpSettings {
            front_controller: Some("/index.php".into()),
            ..PhpSettings::new(root)
        };
        let php = Arc::new(Php::new(&group_of(plan), GROUP, settings));
        let files = Files::new(root).index(["index.php", "index.html"]);
        let files = files.programs(php);
        Ok(ApusService::new(files))
    })
}

/// An application as a service. Takes it over. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_service(app: Option<Box<ApusApp>>) -> Option<Box<ApusService>> {
    object("apus_app_service", || {
        let (app, owned) = app.ok_or_else(|| CallError::null("app"))?.into_parts();
        Ok(ApusService {
            factory: Arc::new(app),
            owned,
        })
    })
}

/// Frees a service that was not taken over. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_service_free(service: Option<Box<ApusService>>) {
    protect("apus_service_free", || drop(service));
}
