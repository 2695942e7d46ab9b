//! The keys of PHP: its servers or workers, the scripts that are run, and their parameters.

mod workers;

pub use workers::default_pool_folder;

use std::path::{Path, PathBuf};

use apus_cache::policy::CacheNamePattern;
use apus_client::{Address, Timeouts};
use apus_files::Symlinks;
use apus_patterns::Glob;
use apus_php::handler::PhpSettings;
use apus_sites::{LocationSettings, Preset};
use apus_upstream::plan::{self, NodePlan};

use super::cache;
use super::conditions::Conditions;
use super::proxy::{hold_request, hold_response, path_form, service_settings};
use super::templates::check_template;
use super::upstream::{FastcgiGroup, GroupUser, SiteUpstreams, response_limits};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, ConfigTable, shown};
use crate::plan::{FilesPlan, PhpPlan};
use crate::raw::Site;
use crate::raw::php as keys;
use crate::source::{Setting, SourceSpan};
use crate::string_type::php::{PhpAddress, PhpServer};
use crate::string_type::{LocationPath, PathPattern, SiteHost};
use crate::value::{OneOrMore, Switch};

/// Resolves the PHP handler of a site or of a location.
pub(super) struct PhpResolver<'a> {
    pub(super) site: &'a Setting<Site>,
    pub(super) groups: &'a SiteUpstreams<'a>,
    pub(super) conditions: &'a Conditions,
    /// The servers.
    pub(super) servers: &'a Setting<OneOrMore<PhpAddress>>,
    /// Whether the location names them itself.
    pub(super) has_servers: bool,
    /// The location; `None` for the site.
    pub(super) pattern: Option<&'a Setting<LocationPath>>,
    pub(super) own: Option<&'a Setting<keys::Fastcgi>>,
    pub(super) site_keys: Option<&'a Setting<keys::Fastcgi>>,
    pub(super) preset: Option<Preset>,
    /// The static files beside the scripts, if there is a root.
    pub(super) files: Option<FilesPlan>,
    /// The path of the location that an alias replaces.
    pub(super) prefix: &'a str,
}

impl PhpResolver<'_> {
    /// The handler with its settings. All parts are checked before the first error ends it.
    pub(super) fn handler(
        self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<(PhpPlan, LocationSettings)> {
        let keys = self.keys(reader)?;
        let upstream = self.group(&keys, reader);
        let cache = self.cache(&keys, reader);
        let hold_request = hold_request(&keys.hold_request, reader);
        let hold_response = hold_response(&keys.hold_response, reader);
        let mut location = service_settings(&keys.intercept_errors, &keys.accel, reader);
        if let Some(files) = &self.files {
            location = location.root(files.root.folder());
        }
        let settings = self.settings(&keys);
        if self.files.is_none() && settings.script_root.is_none() {
            reader.report(
                Finding::error(
                    &self.servers.span,
                    "PHP without the folder of its programs",
                    "expected `root` beside it",
                )
                .help(
                    "add root = \"/srv/app\", or, where the programs are not on this machine, \
                     script_root to [sites.fastcgi]",
                ),
            );
            return None;
        }
        self.warn(&keys, &settings, reader);
        let root = settings.root.as_deref();
        let front = settings.front_controller.as_deref();
        let workers = self.workers(&keys, root, front, reader)?;
        // Paths without a file go to the script of the workers.
        let front = settings.front_controller.clone().or_else(|| {
            let workers = workers.as_ref()?;
            let script = workers.script.strip_prefix(&workers.root).ok()?;
            Some(format!("/{}", script.display()).into())
        });
        let settings = PhpSettings {
            front_controller: front,
            hold_request: hold_request?,
            hold_response: hold_response?,
            ..settings
        };
        for (_, value) in &keys.params.0 {
            let template = &value.value.0;
            check_template(template, &value.span, reader);
        }
        let php = PhpPlan {
            files: self.files,
            upstream: upstream?,
            settings,
            workers,
            cache: cache?,
        };
        Some((php, location))
    }

    fn settings(&self, keys: &keys::Fastcgi) -> PhpSettings {
        let files = self.files.as_ref();
        let root = files.map(|files| files.root.folder().to_owned());
        let preset = self.preset;
        let front = keys.front_controller.as_ref().map(|path| path.0.as_str());
        PhpSettings {
            root,
            symlinks: files.map_or(Symlinks::default(), |files| files.symlinks),
            prefix: self.prefix.into(),
            script_root: keys.script_root.as_ref().map(|root| root.0.as_str().into()),
            resolve_root: *keys.resolve_root,
            hidden_files: files.is_some_and(|files| files.hidden_files),
            index: match files {
                Some(files) => files
                    .index
                    .iter()
                    .map(|name| name.as_str().into())
                    .collect(),
                None => vec!["index.php".into()],
            },
            front_controller: front
                .or_else(|| preset.and_then(Preset::front_controller))
                .map(Into::into),
            no_php: globs(&keys.no_php)
                .chain(preset.into_iter().flat_map(Preset::no_php))
                .collect(),
            protected: globs(&keys.protected)
                .chain(preset.into_iter().flat_map(Preset::protected))
                .collect(),
            site: self.groups.site_name().into(),
            server_name: self.server_name(),
            server_software: preset
                .and_then(Preset::server_software)
                .unwrap_or("Apus")
                .into(),
            underscores: *keys.underscores,
            path_form: path_form(&keys.path),
            params: keys
                .params
                .0
                .iter()
                .map(|(name, value)| (name.0.as_str().into(), value.0.clone()))
                .collect(),
            hidden: keys
                .hide
                .0
                .iter()
                .map(|name| name.0.to_ascii_lowercase().into())
                .collect(),
            ..PhpSettings::default()
        }
    }

    /// The first exact name of the site.
    fn server_name(&self) -> Option<Box<str>> {
        let mut names = self.site.server_name.0.iter();
        names.find_map(|host| match &host.value {
            SiteHost::Name(name, _) => Some(name.to_string())
                .filter(|name| !name.contains('*') && !name.starts_with('~'))
                .map(Into::into),
            SiteHost::Other => None,
        })
    }

    /// The keys of the location, and the site's keys that the location does not give.
    fn keys(&self, reader: &mut ConfigReader<'_>) -> Option<keys::Fastcgi> {
        let (own, site) = match (self.own, self.site_keys) {
            (None, None) => return keys::Fastcgi::absent(&self.servers.span, reader),
            (Some(one), None) | (None, Some(one)) => return Some(one.value.clone()),
            (Some(own), Some(site)) => (own, site),
        };
        Some(keys::Fastcgi {
            front_controller: either(&own.front_controller, &site.front_controller),
            no_php: own.no_php.or(&site.no_php).clone(),
            protected: own.protected.or(&site.protected).clone(),
            script_root: either(&own.script_root, &site.script_root),
            resolve_root: own.resolve_root.or(&site.resolve_root).clone(),
            params: own.params.or(&site.params).clone(),
            path: own.path.or(&site.path).clone(),
            response_header_size: (own.response_header_size)
                .or(&site.response_header_size)
                .clone(),
            response_header_fields: (own.response_header_fields)
                .or(&site.response_header_fields)
                .clone(),
            underscores: own.underscores.or(&site.underscores).clone(),
            hide: own.hide.or(&site.hide).clone(),
            pool_size: own.pool_size.or(&site.pool_size).clone(),
            idle_timeout: own.idle_timeout.or(&site.idle_timeout).clone(),
            queue: either(&own.queue, &site.queue),
            retry: either(&own.retry, &site.retry),
            connect_timeout: own.connect_timeout.or(&site.connect_timeout).clone(),
            first_byte_timeout: own.first_byte_timeout.or(&site.first_byte_timeout).clone(),
            read_timeout: own.read_timeout.or(&site.read_timeout).clone(),
            write_timeout: own.write_timeout.or(&site.write_timeout).clone(),
            hold_request: own.hold_request.or(&site.hold_request).clone(),
            hold_response: own.hold_response.or(&site.hold_response).clone(),
            intercept_errors: own.intercept_errors.or(&site.intercept_errors).clone(),
            accel: own.accel.or(&site.accel).clone(),
            cache: own.cache.or(&site.cache).clone(),
            workers: own.workers.or(&site.workers).clone(),
            cache_field: own.cache_field.or(&site.cache_field).clone(),
        })
    }

    /// The name of the group of FastCGI servers.
    fn group(&self, keys: &keys::Fastcgi, reader: &mut ConfigReader<'_>) -> Option<String> {
        let mut nodes: Vec<NodePlan> = Vec::new();
        for server in &self.servers.0 {
            match &server.value.0 {
                PhpServer::Group(name) if self.servers.0.len() == 1 => {
                    return self.named(name, &server.span, reader);
                }
                PhpServer::Group(name) => {
                    reader.report(
                        Finding::error(
                            &server.span,
                            format!("a group of the site, `{}`, among addresses", shown(name)),
                            "expected an address",
                        )
                        .help("name one group, or only addresses"),
                    );
                    return None;
                }
                PhpServer::Program(_) if self.servers.0.len() == 1 => {}
                PhpServer::Program(program) => {
                    reader.report(Finding::error(
                        &server.span,
                        format!("a program, `{}`, among addresses", program.display()),
                        "expected only the program, or only addresses",
                    ));
                    return None;
                }
                PhpServer::Node(address) => {
                    if nodes.iter().any(|known| *known.name == *address.text) {
                        reader.report(Finding::error(
                            &server.span,
                            "the same address twice",
                            "expected another one",
                        ));
                        return None;
                    }
                    nodes.push(NodePlan {
                        max_requests: super::small(keys.pool_size.0),
                        ..NodePlan::new(address.text.as_str(), address.target.clone())
                    });
                }
            }
        }
        if let [server] = self.servers.0.as_slice()
            && matches!(server.value.0, PhpServer::Program(_))
        {
            // The workers handle all requests, so there is no group.
            return self.report_unused(reader).map(|()| String::new());
        }
        if nodes.is_empty() {
            reader.report(Finding::error(
                &self.servers.span,
                "PHP is nowhere",
                "expected at least one address",
            ));
            return None;
        }
        // A location with its own keys about connections gets a separate group.
        let is_own = self.has_servers || self.own.is_some_and(|own| !of_group(own).is_empty());
        let pattern = self.pattern.filter(|_| is_own);
        let suffix = pattern.map(|pattern| format!(" {}", pattern.value.0));
        self.groups.fastcgi(
            FastcgiGroup {
                suffix: suffix.unwrap_or_default(),
                nodes,
                pool_size: keys.pool_size.size(),
                idle_timeout: keys.idle_timeout.0,
                queue: keys.queue.as_ref(),
                retry: keys.retry.as_ref(),
                timeouts: Timeouts {
                    connect: keys.connect_timeout.0,
                    first_byte: keys.first_byte_timeout.0,
                    read: keys.read_timeout.0,
                    write: keys.write_timeout.0,
                    ..Timeouts::default()
                },
                responses: response_limits(
                    keys.response_header_size.value.0,
                    keys.response_header_fields.value.0,
                ),
                span: &self.servers.span,
            },
            reader,
        )
    }

    /// Reports keys about FastCGI servers that have no effect with a program; `None` if there are
    /// any. A site's keys have an effect if a location uses PHP elsewhere.
    fn report_unused(&self, reader: &mut ConfigReader<'_>) -> Option<()> {
        let is_server = |server: &Setting<PhpAddress>| !matches!(server.0, PhpServer::Program(_));
        let mut locations = self.site.locations.0.iter();
        let is_used = locations.any(|location| {
            let servers = location.keys.php_fastcgi.as_ref();
            servers.is_some_and(|servers| servers.0.iter().any(is_server))
        });
        let of_site = self
            .site_keys
            .filter(|_| self.pattern.is_none() && !is_used);
        let unused: Vec<_> = (self.own.into_iter().chain(of_site))
            .flat_map(|keys| of_group(keys))
            .collect();
        for (key, span) in &unused {
            let finding = Finding::error(
                span,
                format!("`{key}` has no effect"),
                "PHP is a program here, whose workers run the scripts",
            )
            .related(&self.servers.span, "this program");
            let instead = match *key {
                "pool_size" => "max",
                "idle_timeout" => "idle_timeout",
                "queue" => "queue",
                "first_byte_timeout" | "read_timeout" => "execution_timeout",
                _ => "",
            };
            reader.report(match instead {
                "" => finding,
                instead => finding.help(format!("the key of `workers` is `{instead}`")),
            });
        }
        unused.is_empty().then_some(())
    }

    /// A group of the site, which has its own keys about connections.
    fn named(
        &self,
        name: &str,
        span: &SourceSpan,
        reader: &mut ConfigReader<'_>,
    ) -> Option<String> {
        for keys in self.own.iter().chain(&self.site_keys) {
            if let Some((key, at)) = of_group(keys).first() {
                reader.report(
                    Finding::error(
                        at,
                        format!("`{key}` has no effect"),
                        "the group of the site has its own keys for connections",
                    )
                    .related(span, "this group"),
                );
                return None;
            }
        }
        let found = self.groups.named(name, GroupUser::Php, span, reader)?;
        if !found.is_fastcgi {
            reader.report(
                Finding::error(
                    span,
                    format!("the group `{}` does not speak FastCGI", shown(name)),
                    "requests to PHP are sent over FastCGI",
                )
                .help("add protocol = \"fastcgi\" to the group"),
            );
            return None;
        }
        Some(found.name)
    }

    /// The cache of responses. The outer `None` is for errors.
    fn cache(
        &self,
        keys: &keys::Fastcgi,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Option<apus_cache::service::CacheSettings>> {
        let own = self.own.map(|own| &own.cache).filter(|cache| cache.given);
        let of_site = self.site_keys.map(|site| &site.cache);
        let of_site = of_site.filter(|cache| cache.given);
        let settings = cache::settings(own, of_site, self.conditions, reader)?;
        let Some(mut settings) = settings else {
            if keys.cache_field.given && *keys.cache_field {
                reader.report(Finding::error(
                    &keys.cache_field.span,
                    "`cache_field` has no effect",
                    "nothing is cached",
                ));
                return None;
            }
            return Some(None);
        };
        if settings.rules.ttl.is_empty() {
            reader.report(
                Finding::warning(
                    &keys.cache.span,
                    "only what PHP says a time for is stored",
                    "most applications say none for their pages",
                )
                .help("add ttl = 60, for how many seconds a page may be old"),
            );
        }
        let known = || Preset::session_cookies(self.preset).map(CacheNamePattern::new);
        settings.bypass_cookies.extend(known());
        let is_set = (own.into_iter().chain(of_site))
            .any(|key| matches!(&key.value, Switch::As(cache) if cache.session_cookies.given));
        if !is_set && self.preset.is_some_and(Preset::is_php) {
            // The preset knows the session cookies of the application.
            settings.rules.credentials.session_cookies = known().collect();
        }
        let uncached = self.preset.and_then(Preset::uncached);
        settings.bypass_paths.extend(uncached);
        settings.fastcgi_field = *keys.cache_field;
        settings.by_sent_target = true;
        Some(Some(settings))
    }

    /// Warns about missing sockets and scripts.
    fn warn(&self, keys: &keys::Fastcgi, settings: &PhpSettings, reader: &mut ConfigReader<'_>) {
        for server in &self.servers.0 {
            if let PhpServer::Node(address) = &server.value.0
                && let plan::NodeTarget::Address(Address::Unix(socket)) = &address.target
                && matches!(socket.try_exists(), Ok(false))
            {
                let finding = Finding::warning(
                    &server.span,
                    format!("there is no socket {}", socket.display()),
                    "requests to PHP are sent here",
                );
                let others = sockets_beside(socket);
                reader.report(if others.is_empty() {
                    finding.help("start PHP-FPM, or see `listen` in its configuration")
                } else {
                    finding.help(format!("there is {}", others.join(", ")))
                });
            }
        }
        let (Some(root), Some(front)) = (&settings.root, &settings.front_controller) else {
            return;
        };
        let front_file = root.join(front.trim_start_matches('/'));
        // A folder that this user cannot reach was reported with the root.
        if front_file.is_file() || front_file.try_exists().is_err() {
            return;
        }
        let span = match (&keys.front_controller, &self.site.preset) {
            (Some(key), _) => &key.span,
            (None, Some(preset)) => &preset.span,
            (None, None) => &self.servers.span,
        };
        let finding = Finding::warning(
            span,
            format!("there is no {front} in {}", root.display()),
            "it handles the requests for paths without a file",
        );
        let public = root.join("public");
        reader.report(if public.join("index.php").is_file() {
            finding.help(format!("is root = \"{}\" meant?", public.display()))
        } else {
            finding
        });
    }
}

/// The given keys about the group.
fn of_group(keys: &keys::Fastcgi) -> Vec<(&'static str, &SourceSpan)> {
    fn one<'a, T>(
        name: &'static str,
        key: &'a Setting<T>,
    ) -> Option<(&'static str, &'a SourceSpan)> {
        key.given.then_some((name, &key.span))
    }
    [
        one("pool_size", &keys.pool_size),
        one("idle_timeout", &keys.idle_timeout),
        one("connect_timeout", &keys.connect_timeout),
        one("first_byte_timeout", &keys.first_byte_timeout),
        one("read_timeout", &keys.read_timeout),
        one("write_timeout", &keys.write_timeout),
        one("response_header_size", &keys.response_header_size),
        one("response_header_fields", &keys.response_header_fields),
        keys.queue.as_ref().map(|key| ("queue", &key.span)),
        keys.retry.as_ref().map(|key| ("retry", &key.span)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The key of the location, or else of the site.
fn either<T: Clone>(own: &Option<Setting<T>>, site: &Option<Setting<T>>) -> Option<Setting<T>> {
    own.as_ref().or(site.as_ref()).cloned()
}

fn globs(patterns: &OneOrMore<PathPattern>) -> impl Iterator<Item = Glob> {
    patterns.0.iter().map(|pattern| pattern.value.0.clone())
}

/// Other PHP sockets in the folder of a missing one.
fn sockets_beside(socket: &Path) -> Vec<String> {
    let entries = socket.parent().and_then(|folder| folder.read_dir().ok());
    let paths = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let is_socket = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "sock")
    };
    let mut found: Vec<_> = paths
        .filter(is_socket)
        .map(|path| path.display().to_string())
        .collect();
    found.sort();
    found.truncate(3);
    found
}
