//! The plan of a configuration: its valid values, in the types of the services that they configure.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apus_access::{Bans, GlitchThreshold, LimitStates};
use apus_acme::{AcmeSettings, ManagedCertificate, SharedStorageAddress};
use apus_cache::service::CacheSettings;
use apus_cache::store::{DiskSettings, StoreSettings};
use apus_client::ClientTlsSettings;
use apus_compress::Compression;
use apus_conditions::{Condition, GeoDatabases, RequestLimits, RequestMaps};
use apus_control::OperatorAccounts;
use apus_files::{Symlinks, TryFiles};
use apus_http::{Network, TraceSampling, TrustedProxies};
use apus_layers::auth::RemoteKeySet;
use apus_layers::{Bots, LimitHandle};
use apus_net::tls::{TlsSettings, TlsSite, UnknownName};
use apus_net::{Http3Settings, Limits, ListenAddress, SystemAccount};
use apus_patterns::Glob;
use apus_php::handler::PhpSettings;
use apus_php::plan::WorkerPoolPlan;
use apus_private_files::PrivateFiles;
use apus_proxy::ProxySettings;
use apus_sites::{
    BrowserChallenge, ForceHttps, Hsts, LocationPattern, LocationSettings, Maintenance,
    ReturnHandler, Rules, ServerName,
};
use apus_telemetry::OtlpSettings;
use apus_upstream::plan::GroupPlan;
use http::HeaderValue;

use super::diagnostics::Diagnostics;
use super::fetched_key_sets::FetchedKeySets;
use super::origin_handle::OriginHandle;
pub use super::raw::LogLevel;
use super::source::SourceSpan;
use apus_access_log::AccessLogSettings;

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The settings of the whole server.
    pub global: GlobalPlan,
    /// The limits of all sites together, which are among the layers of each site.
    pub limits: Vec<LimitHandle>,
    /// The sites, in the order of the file.
    pub sites: Vec<SitePlan>,
    /// The groups of origins of all sites.
    pub upstreams: Vec<UpstreamPlan>,
    /// Warnings about the configuration.
    pub warnings: Diagnostics,
    /// The files that it names and that no site sends.
    pub private: PrivateFiles,
}

/// The settings of the whole server.
#[derive(Clone, Debug)]
pub struct GlobalPlan {
    /// Worker threads.
    pub workers: NonZeroUsize,
    /// The limits for clients.
    pub limits: Limits,
    /// Whether HTTP/2 with prior knowledge is accepted in clear text.
    pub h2c: bool,
    /// The user that a server started as root switches to; `None`: the default.
    pub account: Option<SystemAccount>,
    /// The path of the control socket; `None`: the default.
    pub control_socket: Option<PathBuf>,
    /// The address of the operator.
    pub admin: Option<AdminPlan>,
    /// What is counted of sites; `None`: nothing.
    pub metrics: Option<SiteMetricsPlan>,
    /// How many of the last requests of each worker are kept.
    pub explained_requests: usize,
    /// The store of cached responses.
    pub cache: CacheStorePlan,
    /// Bytes of memory for small static files, per worker, of all sites together.
    pub static_cache_bytes: u64,
    /// Bytes of memory that responses may take beyond the chunk that each of them is sending.
    pub response_memory_bytes: u64,
    /// Whether responses have the field `Server`.
    pub server_header: bool,
    /// The result of a TLS handshake for a name that no site has.
    pub unknown_name: UnknownName,
    /// The level of the application log.
    pub log_level: LogLevel,
    /// The proxies whose fields about clients are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The folder of certificates that are ordered by ACME; `None`: the default.
    pub acme_folder: Option<PathBuf>,
    /// The storage of certificates that several machines share.
    pub acme_storage: Option<SharedStorageAddress>,
    /// Whether the secrets of session tickets are in that folder, too.
    pub stores_tickets: bool,
    /// The databases of places.
    pub geo_databases: Arc<GeoDatabases>,
    /// Bans of clients.
    pub bans: BanPlan,
    /// What clients do wrong.
    pub glitches: GlitchPlan,
    /// Bots that prove who they are.
    pub bots: BotPlan,
    /// The folder of what the server remembers over restarts; `None`: the default.
    pub state_folder: Option<PathBuf>,
    /// The file of the secrets of TLS connections.
    pub tls_key_log: Option<PathBuf>,
    /// The collector of metrics.
    pub otlp: Option<OtlpPlan>,
}

/// A collector of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpPlan {
    /// How it is reached.
    pub settings: OtlpSettings,
    /// The time between two messages with metrics; `None`: they are not pushed.
    pub interval: Option<Duration>,
    /// Which requests are traced; `None`: none.
    pub traces: Option<TracePlan>,
}

/// Which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePlan {
    /// Those that are sampled.
    pub sampling: TraceSampling,
    /// Those that take as long are traced, too; `None`: none.
    pub slow: Option<Duration>,
}

/// The address of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlan {
    /// Where it listens.
    pub addresses: Vec<ListenAddress>,
    /// Whose clients may use it.
    pub allowed: Vec<Network>,
    /// The names by which clients may use it, beside addresses and `localhost`.
    pub names: Vec<String>,
    /// Who may use its API.
    pub accounts: OperatorAccounts,
    /// TLS; `None`: clear text.
    pub tls: Option<AdminTlsPlan>,
}

/// TLS of the address of the operator. Equal ones are made of the same files.
#[derive(Clone, Debug)]
pub struct AdminTlsPlan {
    /// The settings.
    pub settings: Arc<TlsSettings>,
    /// The digest of its files.
    pub digest: [u8; 32],
}

impl PartialEq for AdminTlsPlan {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for AdminTlsPlan {}

/// What is counted of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteMetricsPlan {
    /// How many sites have series of their own.
    pub max_sites: usize,
}

/// Bans of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanPlan {
    /// Files with networks that are banned.
    pub files: Vec<PathBuf>,
    /// Networks that are never banned, proxies among them.
    pub never: Vec<Network>,
    /// The longest ban that repetition leads to.
    pub longest: Duration,
    /// After this time without a ban, earlier ones are forgotten.
    pub forget_after: Duration,
    /// The most bans, without those of the files.
    pub most: usize,
}

/// What clients do wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlitchPlan {
    /// When connections are refused for it; `None`: never.
    pub threshold: Option<GlitchThreshold>,
    /// The proxies, whose connections have the requests of others.
    pub proxies: Vec<Network>,
}

/// Bots that prove who they are.
#[derive(Clone, Debug, Default)]
pub struct BotPlan {
    /// The bots.
    pub bots: Bots,
    /// The groups from which their keys are fetched.
    pub origin_handles: Vec<OriginHandle>,
    /// The sets of keys that are fetched, with their URLs.
    pub key_sets: Vec<(String, RemoteKeySet)>,
}

/// The store of cached responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStorePlan {
    /// The store in memory.
    pub settings: StoreSettings,
    /// The store on disk, if there is one.
    pub disk: Option<DiskSettings>,
}

/// A site.
#[derive(Clone, Debug)]
pub struct SitePlan {
    /// Its name in logs.
    pub name: String,
    /// Its host names.
    pub server_names: Vec<ServerName>,
    /// Whether it serves hosts that no other site has.
    pub is_fallback: bool,
    /// The addresses that it listens on.
    pub listeners: Vec<ListenerPlan>,
    /// TLS; set if one of the listeners has it.
    pub tls: Option<TlsSite>,
    /// Its certificates that are ordered by ACME; TLS has none until they are read from the folder.
    pub acme: Vec<ManagedCertificate>,
    /// Whether each of its names has its own certificate.
    pub is_certified_by_name: bool,
    /// Its certificates for names that are first seen in a handshake.
    pub on_demand: Option<OnDemandPlan>,
    /// Where its other certificates come from; `None` if it has none.
    pub certificate_origin: Option<CertificateOrigin>,
    /// HTTP/3, if it offers that.
    pub http3: Option<Http3Settings>,
    /// The redirect of requests in clear text to `https`.
    pub force_https: Option<ForceHttps>,
    /// Strict Transport Security.
    pub hsts: Option<Hsts>,
    /// Maintenance, which may be off.
    pub maintenance: Maintenance,
    /// What challenges browsers.
    pub challenge: Option<BrowserChallenge>,
    /// Its access log.
    pub access_log: Option<AccessLogPlan>,
    /// The settings of compression.
    pub compression: Compression,
    /// Which responses are compressed, if not all.
    pub compress_when: Option<Condition>,
    /// Whether a precompressed file is sent in place of the file beside it.
    pub precompressed: bool,
    /// The handler of requests that match no location, if the site has one.
    pub handler: Option<HandlerPlan>,
    /// The settings for the whole site.
    pub settings: LocationSettings,
    /// The rules that come before the locations: of all sites, then its own.
    pub rules: Vec<Rules>,
    /// The maps of all sites.
    pub maps: Option<RequestMaps>,
    /// Its limits, which are among the layers of the settings, with the pattern of the location for those of a location.
    pub limits: Vec<(Option<String>, LimitHandle)>,
    /// The limits whose state conditions ask for; `None` if none does.
    pub readable_limits: Option<RequestLimits>,
    /// The groups to which its layers send requests of their own.
    pub origin_handles: Vec<OriginHandle>,
    /// The sets of keys that are fetched, with their URLs.
    pub key_sets: Vec<(String, RemoteKeySet)>,
    /// Its locations.
    pub locations: Vec<LocationPlan>,
}

impl ServerPlan {
    /// The rules of all sites and locations.
    pub fn rules(&self) -> impl Iterator<Item = &Rules> {
        self.sites.iter().flat_map(|site| {
            let locations = site.locations.iter();
            let of_locations = locations.filter_map(|location| location.rules.as_ref());
            site.rules.iter().chain(of_locations)
        })
    }
}

/// Certificates of a site for names that are first seen in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandPlan {
    /// How they are ordered.
    pub settings: AcmeSettings,
    /// Names that may have one.
    pub allowed: Vec<String>,
    /// The URL that is asked about other names.
    pub ask: Option<String>,
    /// The most orders in an hour.
    pub orders_per_hour: u32,
}

/// Where the certificates of a site come from, if they are not ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateOrigin {
    /// From these files.
    Files(Vec<PathBuf>),
    /// From the local certificate authority.
    LocalAuthority,
}

/// A location.
#[derive(Clone, Debug)]
pub struct LocationPlan {
    /// The paths that it matches.
    pub pattern: LocationPattern,
    /// Whether it only serves internal redirects.
    pub internal: bool,
    /// Its handler.
    pub handler: HandlerPlan,
    /// The settings of the location, which refine the settings of the site.
    pub settings: LocationSettings,
    /// Its rules.
    pub rules: Option<Rules>,
}

/// An address that a site listens on.
#[derive(Clone, Debug)]
pub struct ListenerPlan {
    /// The address.
    pub address: ListenAddress,
    /// Whether connections start with a TLS handshake.
    pub tls: bool,
    /// The networks whose connections start with a PROXY protocol header.
    pub proxy_protocol_from: Vec<Network>,
    /// The address in the configuration.
    pub(super) span: SourceSpan,
}

/// An access log.
#[derive(Clone, Debug)]
pub struct AccessLogPlan {
    /// Its places and its format.
    pub settings: AccessLogSettings,
    /// The requests that are logged; `None`: all.
    pub when: Option<Condition>,
}

/// A group of origins.
#[derive(Clone, Debug)]
pub struct UpstreamPlan {
    /// The group, without the TLS of its nodes. Its name is `site/group`, or the URL of a single origin.
    pub group: GroupPlan,
    /// The TLS of each node; `None` is clear text.
    pub tls: Vec<Option<ClientTlsSettings>>,
}

impl UpstreamPlan {
    /// Whether its nodes use TLS: all of them do, or none.
    pub fn is_tls(&self) -> bool {
        self.tls.iter().any(Option::is_some)
    }
}

impl ServerPlan {
    /// Sets [`FilesPlan::has_scripts`] of all folders that contain PHP scripts of any site or location.
    pub(super) fn mark_scripts(&mut self) {
        let folders: Vec<PathBuf> = (self.sites.iter().flat_map(SitePlan::handlers))
            .filter_map(|handler| match handler {
                HandlerPlan::Php(php) => Some(php.files.as_ref()?.root.folder().to_owned()),
                _ => None,
            })
            .collect();
        for site in &mut self.sites {
            let locations = site.locations.iter_mut();
            let handlers = locations.map(|location| &mut location.handler);
            for handler in handlers.chain(&mut site.handler) {
                if let HandlerPlan::Files(files) = handler {
                    let own = files.root.folder();
                    files.has_scripts = (folders.iter())
                        .any(|folder| own.starts_with(folder) || folder.starts_with(own));
                }
            }
        }
    }

    /// Continues what the limits of an earlier configuration have counted, and has those that ban clients do so here.
    pub fn continue_limits(&self, states: &LimitStates, bans: Option<&Arc<Bans>>) {
        for (site, location, limit) in self.limits() {
            limit.continue_in(states, site, location);
            if let Some(bans) = bans {
                limit.use_bans(bans);
            }
        }
    }

    /// Continues with the keys that were fetched for an earlier configuration.
    pub fn continue_key_sets(&self, known: &mut FetchedKeySets) {
        let sets = self.sites.iter().flat_map(|site| &site.key_sets);
        let sets = sets.chain(&self.global.bots.key_sets);
        known.continue_with(sets.cloned().collect());
        known.continue_bots(&self.global.bots.bots);
    }

    /// The limits, with their sites if they are not those of all sites, and the patterns of their locations if they are limits of a location.
    pub fn limits(&self) -> impl Iterator<Item = (Option<&str>, Option<&str>, &LimitHandle)> {
        let of_sites = self.sites.iter().flat_map(|site| {
            let limits = site.limits.iter();
            limits.map(|(location, limit)| (Some(&*site.name), location.as_deref(), limit))
        });
        let of_all = self.limits.iter().map(|limit| (None, None, limit));
        of_all.chain(of_sites)
    }

    /// The groups to which layers send requests of their own.
    pub fn origin_handles(&self) -> impl Iterator<Item = &OriginHandle> {
        let of_sites = self.sites.iter().flat_map(|site| &site.origin_handles);
        of_sites.chain(&self.global.bots.origin_handles)
    }

    /// The pools of resident PHP workers.
    pub fn pools(&self) -> impl Iterator<Item = &WorkerPoolPlan> {
        let handlers = self.sites.iter().flat_map(SitePlan::handlers);
        handlers.filter_map(|handler| match handler {
            HandlerPlan::Php(php) => php.workers.as_ref(),
            _ => None,
        })
    }

    /// The settings of each handler with a cache, with the name of its site.
    pub fn caches(&self) -> impl Iterator<Item = (&str, &CacheSettings)> {
        self.sites.iter().flat_map(|site| {
            site.handlers().filter_map(|handler| match handler {
                HandlerPlan::Proxy(proxy) => Some((&*site.name, proxy.cache.as_ref()?)),
                HandlerPlan::Php(php) => Some((&*site.name, php.cache.as_ref()?)),
                _ => None,
            })
        })
    }
}

impl SitePlan {
    /// The handlers of the site and of its locations.
    pub fn handlers(&self) -> impl Iterator<Item = &HandlerPlan> {
        let locations = self.locations.iter().map(|location| &location.handler);
        self.handler.iter().chain(locations)
    }
}

/// The handler of a site or of a location.
#[derive(Clone, Debug)]
pub enum HandlerPlan {
    /// Static files.
    Files(FilesPlan),
    /// A status, a redirect or a text.
    Return(ReturnHandler),
    /// A reverse proxy.
    Proxy(Box<ProxyPlan>),
    /// PHP, and the static files beside its scripts.
    Php(Box<PhpPlan>),
}

/// The handler for PHP.
#[derive(Clone, Debug)]
pub struct PhpPlan {
    /// The static files beside its scripts; `None` where these are on another machine.
    pub files: Option<FilesPlan>,
    /// The name of the group of FastCGI servers.
    pub upstream: String,
    /// Which scripts are run, and with which parameters.
    pub settings: PhpSettings,
    /// The pool of resident workers.
    pub workers: Option<WorkerPoolPlan>,
    /// The cache of their responses.
    pub cache: Option<CacheSettings>,
}

/// The handler for origins.
#[derive(Clone, Debug)]
pub struct ProxyPlan {
    /// The name of the group of origins.
    pub upstream: String,
    /// The changes of requests and responses.
    pub settings: ProxySettings,
    /// The groups that rules may choose instead.
    pub choices: Vec<ProxyChoice>,
    /// The cache of their responses.
    pub cache: Option<CacheSettings>,
}

/// Origins that rules may choose in place of those of a location.
#[derive(Clone, Debug)]
pub struct ProxyChoice {
    /// The name of the group of origins.
    pub upstream: String,
    /// The changes of requests to them and of their responses.
    pub settings: ProxySettings,
}

/// The handler for static files. It is not [`apus_files::Files`], which owns memory of the process.
#[derive(Clone, Debug)]
pub struct FilesPlan {
    /// The folder.
    pub root: FilesRoot,
    /// The index files of a folder.
    pub index: Vec<String>,
    /// Paths to try in turn.
    pub try_files: Option<TryFiles>,
    /// The page for paths without a file, in a single-page application.
    pub spa: Option<String>,
    /// Whether folders are listed.
    pub listing: bool,
    /// Whether names that start with a dot are served.
    pub hidden_files: bool,
    /// Which symbolic links are followed.
    pub symlinks: Symlinks,
    /// Media types by extension.
    pub mime: Vec<(String, String)>,
    /// The charset of text files.
    pub charset: Option<String>,
    /// `Cache-Control` by pattern.
    pub cache_control: Vec<(Glob, HeaderValue)>,
    /// Paths that are never served.
    pub protected: Vec<Glob>,
    /// Whether the folder contains PHP scripts or lies in a folder that does, so that backups and
    /// included files are not served.
    pub has_scripts: bool,
}

/// The folder of static files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesRoot {
    /// The whole path of a request is appended to it.
    Root(PathBuf),
    /// The path of a request is appended to it, without the path of the location.
    Alias(PathBuf),
}

impl FilesRoot {
    /// The folder, of either kind.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Root(folder) | Self::Alias(folder) => folder,
        }
    }
}
