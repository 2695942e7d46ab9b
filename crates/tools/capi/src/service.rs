//! Services of the engine that an application mounts: files, redirects, proxies, caches, PHP.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use apus::cached::{Cache, CacheSettings, Cached};
use apus::files::Files;
use apus::php::{Php, PhpSettings};
use apus::proxy::{HostHeader, PathForm, Proxy, ProxySettings};
use apus::upstream::plan::{GroupPlan, HashKey, NodePlan, NodeTarget, Strategy};
use apus::upstream::{Address, Protocol, ResponseRules, Upstreams};
use apus::{
    HeaderValue, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
    header,
};
use apus_patterns::Glob;

use crate::error::{ApusStatus, CallError, FirstFailure, SetUp};
use crate::ffi::{object, protect, setup};
use crate::request::field_value;
use crate::response::redirect_status;
use crate::text::{name, optional_name};
use crate::user::OwnedData;

/// A service of the engine, to be mounted: files, a proxy, PHP, a cache, a redirect, the sites of an apus.toml.
pub struct ApusService {
    factory: Arc<dyn ServiceFactory>,
    owned: OwnedData,
    /// The first call on what it was made of that failed.
    failure: FirstFailure,
}

impl ApusService {
    pub(crate) fn new(factory: impl ServiceFactory + 'static) -> Self {
        Self::owning(factory, Arc::default(), FirstFailure::default())
    }

    /// A service with its data, and the first call on what it was made of that failed.
    pub(crate) fn owning(
        factory: impl ServiceFactory + 'static,
        owned: OwnedData,
        failure: FirstFailure,
    ) -> Self {
        Self {
            factory: Arc::new(factory),
            owned,
            failure,
        }
    }
}

/// A service with the data of the application in it, which is freed with its last copy.
pub(crate) struct SharedService {
    factory: Arc<dyn ServiceFactory>,
    owned: OwnedData,
}

impl SharedService {
    /// The service, and the first call that failed before.
    pub(crate) fn of(service: ApusService) -> (Self, FirstFailure) {
        let ApusService {
            factory,
            owned,
            failure,
        } = service;
        (Self { factory, owned }, failure)
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
        if self.owned.is_empty() {
            service
        } else {
            Rc::new(OwningService {
                service,
                _owned: self.owned.clone(),
            })
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
    /// The page that answers requests for a page without a file, with status 200: an application of one page. Missing scripts,
    /// images and data stay 404.
    pub spa: *const c_char,
    /// The value of Cache-Control of all files.
    pub cache_control: *const c_char,
    /// The memory for small files, in bytes (64 MiB).
    pub cache_bytes: u64,
}

/// Checks the size of a structure that C filled in.
pub(crate) fn check_size<T>(size: usize) -> Result<(), CallError> {
    let expected = size_of::<T>();
    if size == expected {
        Ok(())
    } else {
        Err(CallError::invalid(
            format!("`size` to be {expected}"),
            size.to_string(),
            "set it to the sizeof of the structure, and compile with the header of this library",
        ))
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
    path_form: PathForm,
    host: Option<HostHeader>,
    responses: ResponseRules,
    failure: FirstFailure,
}

impl SetUp for ApusUpstream {
    const NAME: &'static str = "upstream";

    fn first_failure(&mut self) -> Option<&mut FirstFailure> {
        Some(&mut self.failure)
    }
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
    setup("apus_upstream_node", upstream, |upstream| {
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
    setup("apus_upstream_strategy", upstream, |upstream| {
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

/// The path that origins get: `normalized`, as the client sent it with `//` as one slash and dot segments resolved, or `raw`,
/// byte for byte as the client sent it; paths with dot segments then get 400. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_path(
    upstream: Option<&mut ApusUpstream>,
    form: *const c_char,
) -> ApusStatus {
    setup("apus_upstream_path", upstream, |upstream| {
        upstream.path_form = path_form_of(name(form, "form")?)?;
        Ok(())
    })
}

/// Whether a text has only characters of `host[:port]`.
fn is_host(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// The `Host` that origins get: `raw` for the client's host exactly as it was sent, otherwise this host. By default it is
/// the client's host in lower case and without the default port. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_host(
    upstream: Option<&mut ApusUpstream>,
    host: *const c_char,
) -> ApusStatus {
    setup("apus_upstream_host", upstream, |upstream| {
        upstream.host = Some(match name(host, "host")? {
            "raw" => HostHeader::AsSent,
            host if is_host(host) => HostHeader::Fixed(host.into()),
            other => {
                return Err(CallError::invalid(
                    "raw, or a host as app.example or app.example:8080",
                    format!("{other:?}"),
                    "leave it out for the host of the client",
                ));
            }
        });
        Ok(())
    })
}

/// Whether responses are accepted as old origins send them, where no recipient reads that in another way: lines that end with
/// LF alone, lines without a colon, which are dropped, and equal repetitions of Content-Length. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_lenient(
    upstream: Option<&mut ApusUpstream>,
    is_lenient: bool,
) -> ApusStatus {
    setup("apus_upstream_lenient", upstream, |upstream| {
        upstream.responses.is_lenient = is_lenient;
        Ok(())
    })
}

/// The largest head of a response, in bytes, and its most field lines; by default 65,536 and 256. A larger head is a 502.
/// Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_upstream_response_head(
    upstream: Option<&mut ApusUpstream>,
    bytes: u32,
    fields: u32,
) -> ApusStatus {
    setup("apus_upstream_response_head", upstream, |upstream| {
        if !(1024..=1 << 20).contains(&bytes) || !(1..=10_000).contains(&fields) {
            return Err(CallError::invalid(
                "1,024 to 1,048,576 bytes and 1 to 10,000 fields",
                format!("{bytes} bytes and {fields} fields"),
                "65536 and 256 are the defaults",
            ));
        }
        upstream.responses.head_bytes = bytes;
        upstream.responses.fields = fields;
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
        let ApusUpstream {
            nodes,
            strategy,
            path_form,
            host,
            responses,
            failure,
        } = *upstream.ok_or_else(|| CallError::null("upstream"))?;
        if nodes.is_empty() {
            return failure.check(Err(CallError::invalid(
                "a group with an origin",
                "an empty one",
                "add origins by apus_upstream_node()",
            )));
        }
        let plan = GroupPlan {
            strategy,
            responses,
            ..GroupPlan::new(GROUP, nodes)
        };
        let settings = ProxySettings {
            host: host.unwrap_or(HostHeader::Client),
            path_form,
            ..ProxySettings::default()
        };
        let proxy = Proxy::new(&group_of(plan), GROUP, settings);
        Ok(ApusService {
            failure,
            ..ApusService::new(proxy)
        })
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
        let (inner, failure) = SharedService::of(service);
        let cached = Cached::new(&cache, "", CacheSettings::default(), inner);
        Ok(ApusService {
            failure,
            ..ApusService::new(cached)
        })
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
        php(
            name(address, "address")?,
            name(root, "root")?,
            PathForm::Normalized,
        )
    })
}

/// As apus_php_new(), with the form of paths: `raw` passes paths with `%2F` on to scripts in `REQUEST_URI`, as applications
/// need that have slashes in names (the application of the mount has to allow them: apus_app_allow_encoded_slashes());
/// `normalized` is the form of apus_php_new(), by which they get 400. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_php_new_with_path(
    address: *const c_char,
    root: *const c_char,
    form: *const c_char,
) -> Option<Box<ApusService>> {
    object("apus_php_new_with_path", || {
        let form = path_form_of(name(form, "form")?)?;
        php(name(address, "address")?, name(root, "root")?, form)
    })
}

fn path_form_of(text: &str) -> Result<PathForm, CallError> {
    match text {
        "normalized" => Ok(PathForm::Normalized),
        "raw" => Ok(PathForm::Raw),
        other => Err(CallError::invalid(
            "normalized or raw",
            format!("{other:?}"),
            "normalized is the default",
        )),
    }
}

fn php(address_text: &str, root: &str, path_form: PathForm) -> Result<ApusService, CallError> {
    let address = address_of(address_text)?;
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
        path_form,
        ..PhpSettings::new(root)
    };
    let php = Arc::new(Php::new(&group_of(plan), GROUP, settings));
    let files = Files::new(root)
        .index(["index.php", "index.html"])
        .encoded_slashes(path_form == PathForm::Raw);
    Ok(ApusService::new(files.programs(php)))
}

/// Frees a service that was not taken over. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_service_free(service: Option<Box<ApusService>>) {
    protect("apus_service_free", || drop(service));
}
