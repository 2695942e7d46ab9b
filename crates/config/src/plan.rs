//! A resolved configuration: every value is valid, and every file was read.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use apus_cache::service::CacheSettings;
use apus_cache::store::{DiskSettings, Settings};
use apus_compress::Compression;
use apus_files::{Symlinks, TryFiles};
use apus_http::{Network, TrustedProxies};
use apus_net::tls::{TlsSite, UnknownName};
use apus_net::{Account, Limits, ListenAddress, client};
use apus_patterns::Glob;
use apus_php::handler::PhpSettings;
use apus_php::plan::PoolPlan;
use apus_proxy::ProxySettings;
use apus_sites::{Accel, FieldChange, Hsts, Pattern, Return, Rewrite, ServerName};
use apus_upstream::plan::GroupPlan;
use http::HeaderValue;

use super::diagnostics::Diagnostics;
pub use super::raw::LogLevel;
use super::source::Place;
use apus_access_log::Format;

/// What a configuration says.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What goes for the whole server.
    pub global: Global,
    /// The sites, in the order of the file.
    pub sites: Vec<Site>,
    /// The groups of origins of all sites.
    pub upstreams: Vec<Upstream>,
    /// What works, but not as somebody may think, or not for long.
    pub warnings: Diagnostics,
}

/// What goes for the whole server.
#[derive(Clone, Debug)]
pub struct Global {
    /// Worker threads.
    pub workers: NonZeroUsize,
    /// What one client may cost.
    pub limits: Limits,
    /// Whether HTTP/2 is spoken in clear text with clients that begin with it unasked.
    pub h2c: bool,
    /// The user that the server becomes which is started as root; `None`: the default.
    pub account: Option<Account>,
    /// Where the control socket is, if not in the place for it.
    pub control_socket: Option<PathBuf>,
    /// Where stored answers are kept.
    pub cache: CacheStore,
    /// Bytes of memory for small static files, per worker, of all sites together.
    pub static_cache_bytes: u64,
    /// Bytes of memory that responses may take beyond their own pieces.
    pub response_memory_bytes: u64,
    /// Whether responses tell the name of the server.
    pub server_header: bool,
    /// What a TLS client meets that asks for a name which no site has.
    pub unknown_name: UnknownName,
    /// What the server tells about its own work.
    pub log_level: LogLevel,
    /// The proxies in front whose word about clients is taken.
    pub trusted_proxies: TrustedProxies,
}

/// Where stored answers are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStore {
    /// In memory.
    pub settings: Settings,
    /// On disk; `None`: not there.
    pub disk: Option<DiskSettings>,
}

/// A site.
#[derive(Clone, Debug)]
pub struct Site {
    /// What logs call it.
    pub name: String,
    /// Its host names.
    pub server_names: Vec<ServerName>,
    /// Whether it answers for hosts that no other site has.
    pub is_fallback: bool,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// TLS; there if one of the listeners has it.
    pub tls: Option<TlsSite>,
    /// Whether requests in clear text are redirected to `https`.
    pub force_https: bool,
    /// Strict Transport Security.
    pub hsts: Option<Hsts>,
    /// Where its requests are logged.
    pub access_log: Option<AccessLog>,
    /// What is compressed.
    pub compression: Compression,
    /// Whether compressed files beside a file are sent in its place.
    pub precompressed: bool,
    /// What it does with requests that no location is for.
    pub content: Content,
    /// Its locations.
    pub locations: Vec<Location>,
}

/// Where a site listens.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address.
    pub address: ListenAddress,
    /// Whether connections start with a TLS handshake.
    pub tls: bool,
    /// Whose connections start with a PROXY protocol head.
    pub proxy_protocol_from: Vec<Network>,
    /// Where the configuration says so.
    pub(super) place: Place,
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The file.
    pub path: PathBuf,
    /// What a line looks like.
    pub format: Format,
}

/// A group of origins.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The group, but for the TLS of its nodes. Its name is the site's, a slash, and its own; where a
    /// URL stands for the group, that.
    pub group: GroupPlan,
    /// The TLS of each node; `None` is clear text.
    pub tls: Vec<Option<client::TlsSettings>>,
}

impl Upstream {
    /// Whether its nodes speak TLS: all do, or none.
    pub fn is_tls(&self) -> bool {
        self.tls.iter().any(Option::is_some)
    }
}

impl Plan {
    /// Has the files of all folders that programs of PHP are in know of them, whichever site or location
    /// it is that runs them.
    pub(super) fn mark_programs(&mut self) {
        let folders: Vec<PathBuf> = (self.sites.iter().flat_map(Site::contents))
            .filter_map(|content| match &content.handler {
                Some(Handler::Php(php)) => Some(php.files.as_ref()?.root.folder().to_owned()),
                _ => None,
            })
            .collect();
        for site in &mut self.sites {
            let locations = site.locations.iter_mut();
            let contents = locations.map(|location| &mut location.content);
            for content in contents.chain([&mut site.content]) {
                if let Some(Handler::Files(files)) = &mut content.handler {
                    let own = files.root.folder();
                    files.has_programs = (folders.iter())
                        .any(|folder| own.starts_with(folder) || folder.starts_with(own));
                }
            }
        }
    }

    /// The pools of PHP that stays in memory.
    pub fn pools(&self) -> impl Iterator<Item = &PoolPlan> {
        self.sites.iter().flat_map(|site| {
            site.contents()
                .filter_map(|content| match &content.handler {
                    Some(Handler::Php(php)) => php.workers.as_ref(),
                    _ => None,
                })
        })
    }

    /// How answers are cached, with the name of the site, for each place where they are.
    pub fn caches(&self) -> impl Iterator<Item = (&str, &CacheSettings)> {
        self.sites.iter().flat_map(|site| {
            site.contents()
                .filter_map(|content| match &content.handler {
                    Some(Handler::Proxy(proxy)) => Some((&*site.name, proxy.cache.as_ref()?)),
                    Some(Handler::Php(php)) => Some((&*site.name, php.cache.as_ref()?)),
                    _ => None,
                })
        })
    }
}

impl Site {
    /// What it does with requests, itself and in its locations.
    fn contents(&self) -> impl Iterator<Item = &Content> {
        let locations = self.locations.iter().map(|location| &location.content);
        [&self.content].into_iter().chain(locations)
    }
}

/// A location.
#[derive(Clone, Debug)]
pub struct Location {
    /// Which paths it is for.
    pub pattern: Pattern,
    /// Whether it is for requests alone that the site sends there itself.
    pub internal: bool,
    /// What it does with requests.
    pub content: Content,
}

/// What a site or a location does with requests.
#[derive(Clone, Debug)]
pub struct Content {
    /// What answers; `None` in a site that leaves all to its locations.
    pub handler: Option<Handler>,
    /// Changes of fields of responses.
    pub response_fields: Vec<FieldChange>,
    /// Changes of fields of requests.
    pub request_fields: Vec<FieldChange>,
    /// Pages in place of error responses: the first and the last status, and a path of the site.
    pub error_pages: Vec<ErrorPage>,
    /// The largest content of a request in bytes; 0 is no limit.
    pub max_body_bytes: u64,
    /// Rules that give requests another path.
    pub rewrites: Vec<Rewrite>,
}

/// A page in place of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The first status that it is for.
    pub first: u16,
    /// The last status that it is for.
    pub last: u16,
    /// A path of the site.
    pub path: String,
}

/// What answers requests.
#[derive(Clone, Debug)]
pub enum Handler {
    /// Files.
    Files(Files),
    /// A fixed answer.
    Return(Return),
    /// Origins.
    Proxy(Box<Proxy>),
    /// PHP, and the files beside its programs.
    Php(Box<Php>),
}

/// How PHP is asked.
#[derive(Clone, Debug)]
pub struct Php {
    /// The files beside its programs; `None` where these are not on this machine.
    pub files: Option<Files>,
    /// The name of the group of FastCGI servers.
    pub upstream: String,
    /// Which programs are run, and what they are told.
    pub settings: PhpSettings,
    /// Workers that have the application in memory.
    pub workers: Option<PoolPlan>,
    /// Whether error responses of programs get the error pages of the site.
    pub intercept_errors: bool,
    /// What programs may have the site answer in their place.
    pub accel: Option<Accel>,
    /// How their answers are cached; `None`: not at all.
    pub cache: Option<CacheSettings>,
}

/// How origins are asked.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The name of their group.
    pub upstream: String,
    /// What is done with requests and answers on their way.
    pub settings: ProxySettings,
    /// Whether error responses of origins get the error pages of the site.
    pub intercept_errors: bool,
    /// What origins may have the site answer in their place.
    pub accel: Option<Accel>,
    /// How their answers are cached; `None`: not at all.
    pub cache: Option<CacheSettings>,
}

/// How files are served.
#[derive(Clone, Debug)]
pub struct Files {
    /// The folder.
    pub root: Root,
    /// Files that stand for a folder.
    pub index: Vec<String>,
    /// Paths to try in turn.
    pub try_files: Option<TryFiles>,
    /// The page that answers for paths without a file, in a single-page application.
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
    /// Paths at which there is nothing for anybody.
    pub protected: Vec<Glob>,
    /// Whether programs of PHP are in the folder, or it is in theirs, so that what is left of them and
    /// what they include is nobody's business.
    pub has_programs: bool,
}

/// The folder that files are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// The path of a request is added to it.
    Root(PathBuf),
    /// What follows the location's path in that of a request is added to it.
    Alias(PathBuf),
}

impl Root {
    fn folder(&self) -> &Path {
        match self {
            Self::Root(folder) | Self::Alias(folder) => folder,
        }
    }
}
