//! The handlers and settings of a site and of its locations, and the keys that locations inherit.

mod files;
mod handler;
mod shadowed_locations;

use std::cell::{Cell, OnceCell, RefCell};

use apus_http::StatusCode;
use apus_layers::LimitHandle;
use apus_sites::{ErrorPage, LocationSettings, Preset, RewriteFlag, RewriteRule};

use super::access::AccessKeys;
use super::layers::LocationLayers;
use super::limits::ResolvedLimit;
use super::proxy::ProxyResolver;
use super::responses::{field_changes, return_handler};
use super::rules::RulePlace;
use super::templates::{check_template, check_text};
use super::upstream::SiteUpstreams;
use super::upstream_choices::{self, RuleChoices};
use super::{GlobalDefaults, php};
use crate::diagnostics::Finding;
use crate::keys::{ConfigReader, shown};
use crate::plan::{FilesRoot, HandlerPlan, LocationPlan};
use crate::raw::{self, RewriteThen};
use crate::source::Setting;
use crate::string_type::one_line;
use crate::string_type::origin::UpstreamName;
use crate::string_type::php::PhpAddress;
use crate::value::OneOrMore;

/// A handler, and the settings that follow from its keys.
type ResolvedHandler = (HandlerPlan, LocationSettings);

/// Resolves the handlers and settings of one site.
pub(super) struct SiteResolver<'a> {
    site: &'a Setting<raw::Site>,
    /// The name of the site.
    name: &'a str,
    defaults: &'a GlobalDefaults,
    groups: &'a SiteUpstreams<'a>,
    /// What rules choose.
    choices: &'a RuleChoices<'a>,
    /// The keys of the site that have an effect so far.
    effective: EffectiveKeys,
    /// The layers of the site, which its locations share.
    layers: OnceCell<LocationLayers>,
    /// The layers of the location that was resolved last, if it has its own.
    own_layers: RefCell<Option<LocationLayers>>,
    /// The limits so far, with the pattern of the location for those of a location.
    limits: RefCell<Vec<(Option<String>, LimitHandle)>>,
}

#[derive(Default)]
struct EffectiveKeys {
    root: Cell<bool>,
    upstream: Cell<bool>,
    proxy: Cell<bool>,
    php: Cell<bool>,
}

impl<'a> SiteResolver<'a> {
    pub(super) fn new(
        (site, name): (&'a Setting<raw::Site>, &'a str),
        defaults: &'a GlobalDefaults,
        groups: &'a SiteUpstreams<'a>,
        choices: &'a RuleChoices<'a>,
    ) -> Self {
        Self {
            site,
            name,
            defaults,
            groups,
            choices,
            effective: EffectiveKeys::default(),
            layers: OnceCell::new(),
            own_layers: RefCell::default(),
            limits: RefCell::default(),
        }
    }

    /// The limits that rules may name: of the site, or with those of the location that was resolved last.
    pub(super) fn limits_for_rules(&self, of_location: bool) -> Vec<ResolvedLimit> {
        let of_site = self.layers.get();
        let of_location = self.own_layers.borrow_mut().take().filter(|_| of_location);
        let layers = of_location.as_ref().or(of_site);
        layers.map_or_else(Vec::new, |layers| layers.limits().to_vec())
    }

    /// The limits of the site and its locations, after [`Self::resolve`].
    pub(super) fn into_limits(self) -> Vec<(Option<String>, LimitHandle)> {
        self.limits.into_inner()
    }

    /// The handler and the settings of the site, and its locations.
    pub(super) fn resolve(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<(Option<HandlerPlan>, LocationSettings, Vec<LocationPlan>)> {
        let site = self.site(reader);
        let locations = self.locations(reader);
        let ((handler, settings), locations) = (site?, locations?);
        self.report_unused(handler.as_ref(), &locations, reader);
        Some((handler, settings, locations))
    }

    fn preset(&self) -> Option<Preset> {
        self.site.preset.as_ref().map(|preset| match preset.value {
            raw::Preset::Static => Preset::Static,
            raw::Preset::Spa => Preset::Spa,
            raw::Preset::Wordpress => Preset::Wordpress,
            raw::Preset::Typecho => Preset::Typecho,
            raw::Preset::Laravel => Preset::Laravel,
        })
    }

    /// The handler and the settings of the site itself. The preset's field changes come before the
    /// changes of the site, its rewrites after the site's.
    fn site(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<(Option<HandlerPlan>, LocationSettings)> {
        let resolved = self.site_handler(reader);
        let is_valid = resolved.is_some();
        let (handler, settings) = resolved.flatten().unzip();
        let preset = self.preset();
        let fields = preset.into_iter().flat_map(Preset::response_fields);
        let settings = fields.fold(
            settings.unwrap_or_default(),
            LocationSettings::response_field,
        );
        let settings = self.settings(&self.site.keys, settings, reader);
        let rewrites = preset.into_iter().flat_map(Preset::rewrites);
        is_valid.then(|| (handler, rewrites.fold(settings, LocationSettings::rewrite)))
    }

    /// The outer `None` is for errors, the inner one for a site that has only locations.
    fn site_handler(&self, reader: &mut ConfigReader<'_>) -> Option<Option<ResolvedHandler>> {
        let own = &self.site.keys;
        let root = own.root.as_ref().map(|root| files::folder(root, reader));
        if let (Some(upstream), Some(php)) = (&own.upstream, &own.php_fastcgi) {
            reader.report(
                Finding::error(
                    &php.span,
                    "`php_fastcgi` and `upstream` exclude each other",
                    "expected one of them",
                )
                .related(&upstream.span, "the other one")
                .help("write one of them in a location"),
            );
            return None;
        }
        let handler = match (&own.r#return, &own.upstream, &own.php_fastcgi, root) {
            (Some(keys), ..) => return_handler(keys, reader)
                .map(|handler| (HandlerPlan::Return(handler), LocationSettings::new())),
            (None, Some(upstream), ..) => self.proxy(upstream, None, reader),
            (None, None, Some(php), root) => {
                self.effective.root.set(root.is_some());
                let root = root.map(|root| root.map(FilesRoot::Root));
                self.php(php, root, None, reader)
            }
            (None, None, None, Some(root)) => {
                self.effective.root.set(true);
                self.files_handler(own, root.map(FilesRoot::Root), reader)
            }
            (None, None, None, None)
                if reader.has_wrong(
                    &self.site.span,
                    &["root", "return", "upstream", "php_fastcgi"],
                ) =>
            {
                None
            }
            (None, None, None, None) if !self.site.locations.given => {
                reader.report(
                    Finding::error(
                        &self.site.span,
                        "the site has nothing to serve",
                        "expected `root`, `return`, `upstream`, `php_fastcgi` or \
                         `[[sites.locations]]`",
                    )
                    .help("add root = \"public\", or another folder"),
                );
                None
            }
            (None, None, None, None) => return Some(None),
        };
        handler.map(Some)
    }

    /// The handler for static files below `root`.
    fn files_handler(
        &self,
        own: &raw::LocationKeys,
        root: Option<FilesRoot>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<ResolvedHandler> {
        let files = self.files(own, root, reader)?;
        let settings = LocationSettings::new().root(files.root.folder());
        Some((HandlerPlan::Files(files), settings))
    }

    /// The reverse proxy of a location, or of the site if `location` is `None`.
    fn proxy(
        &self,
        upstream: &Setting<UpstreamName>,
        location: Option<&Setting<raw::Location>>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<ResolvedHandler> {
        self.effective.proxy.set(true);
        let is_own = |location: &&Setting<raw::Location>| location.keys.upstream.is_some();
        let pattern = location.filter(is_own).map(|location| &location.path);
        if pattern.is_none() {
            self.effective.upstream.set(true);
        }
        ProxyResolver {
            groups: self.groups,
            choices: self.choices,
            conditions: &self.defaults.conditions,
            upstream,
            pattern,
            own: location.and_then(|location| location.keys.proxy.as_ref()),
            site_keys: self.site.keys.proxy.as_ref(),
            cache: location.and_then(|location| location.keys.cache.as_ref()),
            cache_of_site: self.site.keys.cache.as_ref(),
        }
        .handler(reader)
        .map(|(proxy, settings)| (HandlerPlan::Proxy(Box::new(proxy)), settings))
    }

    /// The PHP handler of a location, or of the site if `location` is `None`. `root` is the folder, if
    /// there is one; `Some(None)` if it has an error.
    fn php(
        &self,
        servers: &Setting<OneOrMore<PhpAddress>>,
        root: Option<Option<FilesRoot>>,
        location: Option<&Setting<raw::Location>>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<ResolvedHandler> {
        let site = &self.site.keys;
        let own = location.map_or(site, |location| &location.keys);
        self.effective.php.set(true);
        let path = location.map(|location| location.path.value.0.to_string());
        let prefix = match (&root, &path) {
            (Some(Some(FilesRoot::Alias(_))), Some(path)) => {
                path.find('/').and_then(|at| path.get(at..))
            }
            _ => None,
        };
        let files = match root {
            None => None,
            Some(root) => {
                let mut files = self.files(own, root, reader)?;
                if !own.index.or(&site.index).given {
                    files.index.insert(0, "index.php".to_owned());
                }
                Some(files)
            }
        };
        php::PhpResolver {
            site: self.site,
            groups: self.groups,
            conditions: &self.defaults.conditions,
            servers,
            has_servers: own.php_fastcgi.is_some(),
            pattern: location.map(|location| &location.path),
            own: location.and_then(|location| location.keys.fastcgi.as_ref()),
            site_keys: site.fastcgi.as_ref(),
            preset: self.preset(),
            files,
            prefix: prefix.unwrap_or_default().trim_end_matches('/'),
        }
        .handler(reader)
        .map(|(mut php, settings)| {
            if let Some(cache) = &mut php.cache {
                cache.rules.key.rule_choice = self.choices.are_in_keys;
            }
            (HandlerPlan::Php(Box::new(php)), settings)
        })
    }

    /// Reports PHP keys of the site without effect, and a PHP preset without PHP.
    fn report_unused_php(&self, reader: &mut ConfigReader<'_>) {
        let own = &self.site.keys;
        if self.effective.php.get() {
            return;
        }
        let servers = own.php_fastcgi.as_ref();
        let servers = servers.map(|key| ("php_fastcgi", &key.span));
        let keys = own.fastcgi.as_ref().map(|key| ("fastcgi", &key.span));
        for (key, span) in servers.into_iter().chain(keys) {
            reader.report(Finding::error(
                span,
                format!("`{key}` has no effect"),
                "neither the site nor a location runs PHP",
            ));
        }
        let php = self.site.preset.as_ref();
        let is_php = self.preset().is_some_and(Preset::is_php);
        if let Some(preset) = php.filter(|_| is_php && own.php_fastcgi.is_none()) {
            reader.report(
                Finding::error(
                    &preset.span,
                    "a preset of PHP, and nothing that runs PHP",
                    "expected `php_fastcgi` in the site",
                )
                .help("add php_fastcgi = \"/run/php/php-fpm.sock\""),
            );
        }
    }

    /// Reports keys of the site without effect.
    fn report_unused(
        &self,
        handler: Option<&HandlerPlan>,
        locations: &[LocationPlan],
        reader: &mut ConfigReader<'_>,
    ) {
        self.report_unused_php(reader);
        self.warn_beside_return(locations, reader);
        let own = &self.site.keys;
        if let Some(upstream) = own
            .upstream
            .as_ref()
            .filter(|_| !self.effective.upstream.get())
        {
            reader.report(Finding::error(
                &upstream.span,
                "`upstream` has no effect",
                "the site has a `return`, and its locations say what they do themselves",
            ));
        }
        let proxy = own.proxy.as_ref().map(|key| ("proxy", &key.span));
        let cache = own.cache.as_ref().map(|key| ("cache", &key.span));
        for (key, span) in proxy.into_iter().chain(cache) {
            if !self.effective.proxy.get() {
                reader.report(Finding::error(
                    span,
                    format!("`{key}` has no effect"),
                    "neither the site nor a location has an `upstream`",
                ));
            }
        }
        let Some(upstream) = &own.upstream else {
            return;
        };
        let has_files = handler
            .into_iter()
            .chain(locations.iter().map(|location| &location.handler))
            .any(|handler| matches!(handler, HandlerPlan::Files(_) | HandlerPlan::Php(_)));
        for (key, span) in files::given(own) {
            if (key == "root" && !self.effective.root.get()) || !has_files {
                reader.report(
                    Finding::error(
                        span,
                        format!("`{key}` has no effect"),
                        "the site sends requests to its `upstream`",
                    )
                    .related(&upstream.span, "here"),
                );
            }
        }
    }

    /// Warns of keys of files without effect in a site that responds with its `return`.
    fn warn_beside_return(&self, locations: &[LocationPlan], reader: &mut ConfigReader<'_>) {
        let own = &self.site.keys;
        let Some(keys) = &own.r#return else { return };
        let mut handlers = locations.iter().map(|location| &location.handler);
        let has_files =
            handlers.any(|handler| matches!(handler, HandlerPlan::Files(_) | HandlerPlan::Php(_)));
        for (key, span) in files::given(own) {
            if !has_files || (key == "root" && !self.effective.root.get()) {
                reader.report(
                    Finding::warning(
                        span,
                        format!("`{key}` has no effect"),
                        "the site responds with its `return`, and no location uses this key",
                    )
                    .related(&keys.span, "here")
                    .help("write the `return` in a location, or leave one of the two out"),
                );
            }
        }
    }

    /// Its locations.
    fn locations(&self, reader: &mut ConfigReader<'_>) -> Option<Vec<LocationPlan>> {
        let raw = &self.site.locations.0;
        for (at, location) in raw.iter().enumerate() {
            let before = raw.get(..at).unwrap_or_default();
            let path = location.path.value.0.to_string();
            if let Some(other) = before
                .iter()
                .find(|other| same(&other.path.value.0.to_string(), &path))
            {
                reader.report(
                    Finding::error(
                        &location.path.span,
                        format!("two locations are for `{}`", shown(&path)),
                        "expected a path that no other location has",
                    )
                    .related(&other.path.span, "the other one"),
                );
            }
        }
        shadowed_locations::check(raw, reader);
        let locations: Vec<_> = raw
            .iter()
            .map(|location| self.location(location, reader))
            .collect();
        locations.into_iter().collect()
    }

    fn location(
        &self,
        location: &Setting<raw::Location>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<LocationPlan> {
        let handler_keys = ["return", "handler", "upstream", "php_fastcgi"];
        let resolved = if reader.has_wrong(&location.span, &handler_keys) {
            None
        } else {
            self.handler(location, reader)
        };
        let (handler, settings) = resolved.unzip();
        let known = self.limits.borrow().len();
        let settings = self.settings(&location.keys, settings.unwrap_or_default(), reader);
        for (of, _) in self.limits.borrow_mut().iter_mut().skip(known) {
            *of = Some(location.path.value.0.to_string());
        }
        let place = RulePlace {
            conditions: &self.defaults.conditions,
            chains: &self.site.chains,
            locations: Some(&self.site.locations.0),
            choices: Some(self.choices),
            limits: self.limits_for_rules(true),
        };
        let title = format!("{} {}", self.name, location.path.value.0);
        let rules = place.resolve(&title, &location.rules, reader);
        if let Some(handler) = &handler {
            upstream_choices::check_location(location, handler, reader);
        }
        Some(LocationPlan {
            pattern: location.path.value.0.clone(),
            internal: *location.internal,
            handler: handler?,
            settings,
            rules,
        })
    }

    fn handler(
        &self,
        location: &Setting<raw::Location>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<ResolvedHandler> {
        let own = &location.keys;
        let kind = handler::of(location, &self.site.keys, reader)?;
        match kind {
            raw::Handler::Return => match &own.r#return {
                Some(keys) => return_handler(keys, reader)
                    .map(|handler| (HandlerPlan::Return(handler), LocationSettings::new())),
                None => report_missing(
                    location,
                    "the handler `return` has no response",
                    "expected the key `return` in this location",
                    reader,
                ),
            },
            raw::Handler::Static => {
                let root = self.root(location, reader);
                self.files_handler(own, root, reader)
            }
            raw::Handler::Fastcgi => {
                let site = &self.site.keys;
                let has_root = location.alias.is_some()
                    || own.root.is_some()
                    || site.root.is_some()
                    || reader.has_wrong(&location.span, &["root", "alias"])
                    || reader.has_wrong(&self.site.span, &["root"]);
                let root = has_root.then(|| self.root(location, reader));
                match own.php_fastcgi.as_ref().or(site.php_fastcgi.as_ref()) {
                    Some(servers) => self.php(servers, root, Some(location), reader),
                    None if reader.has_wrong(&self.site.span, &["php_fastcgi"]) => None,
                    None => report_missing(
                        location,
                        "nothing runs PHP here",
                        "expected the key `php_fastcgi` in this location or its site",
                        reader,
                    ),
                }
            }
            raw::Handler::ReverseProxy => {
                let of_site = self.site.keys.upstream.as_ref();
                match own.upstream.as_ref().or(of_site) {
                    Some(upstream) => self.proxy(upstream, Some(location), reader),
                    None if reader.has_wrong(&self.site.span, &["upstream"]) => None,
                    None => report_missing(
                        location,
                        "the handler `reverse_proxy` has no origins",
                        "expected the key `upstream` in this location or its site",
                        reader,
                    ),
                }
            }
        }
    }

    /// Adds the keys of a site or of a location to `settings`.
    fn settings(
        &self,
        own: &raw::LocationKeys,
        mut settings: LocationSettings,
        reader: &mut ConfigReader<'_>,
    ) -> LocationSettings {
        for change in field_changes(own.headers.as_ref(), reader) {
            settings = settings.response_field(change);
        }
        for change in field_changes(own.request_headers.as_ref(), reader) {
            settings = settings.request_field(change);
        }
        for rule in &own.rewrite.0 {
            if let Some(rule) = rewrite(rule, reader) {
                settings = settings.rewrite(rule);
            }
        }
        // The last page for a status is used, so pages for one status come after those for a class.
        let (classes, single): (Vec<_>, Vec<_>) = own
            .error_pages
            .0
            .iter()
            .partition(|(statuses, _)| statuses.first != statuses.last);
        for (statuses, page) in classes.into_iter().chain(single) {
            for status in statuses.first..=statuses.last {
                if let Ok(status) = StatusCode::from_u16(status) {
                    settings = settings.error_page(status, ErrorPage::Path(page.0.clone()));
                }
            }
        }
        settings = self.layers(own, settings, reader);
        let limit = own.client_max_body_size.as_ref();
        let limit = limit.or(self.site.keys.client_max_body_size.as_ref());
        settings.body_limit(limit.map_or(self.defaults.max_body_bytes, |size| size.0))
    }
}

impl SiteResolver<'_> {
    /// Adds the layers of the site, or the layers of a location that has some.
    fn layers(
        &self,
        own: &raw::LocationKeys,
        settings: LocationSettings,
        reader: &mut ConfigReader<'_>,
    ) -> LocationSettings {
        let tls = self.site.tls.as_ref();
        let keys = AccessKeys {
            own,
            groups: self.groups,
            conditions: &self.defaults.conditions,
            requests_certificates: tls.is_some_and(|tls| *tls.client_auth != raw::ClientAuth::None),
        };
        let (layers, settings) = match self.layers.get() {
            None => {
                let layers = LocationLayers::resolve(keys, &self.defaults.layers, reader);
                (self.layers.get_or_init(|| layers).clone(), settings)
            }
            Some(site) if LocationLayers::has_keys(own) => (
                LocationLayers::resolve(keys, site, reader),
                settings.without_layers_of_site(),
            ),
            Some(_) => return settings,
        };
        let own_limits = layers.own_limits(own);
        let own_limits = own_limits.map(|limit| (None, limit.clone()));
        self.limits.borrow_mut().extend(own_limits);
        self.own_layers.replace(Some(layers.clone()));
        layers
            .into_iter()
            .fold(settings, LocationSettings::shared_layer)
    }
}

/// Whether two locations match the same paths, by their text.
fn same(one: &str, two: &str) -> bool {
    let plain = |text: &str| text.trim_start_matches("^~").trim_start().to_owned();
    plain(one) == plain(two)
}

fn rewrite(rule: &Setting<raw::Rewrite>, reader: &mut ConfigReader<'_>) -> Option<RewriteRule> {
    let flag = match rule.then.value {
        RewriteThen::Continue => RewriteFlag::Continue,
        RewriteThen::Last => RewriteFlag::Last,
        RewriteThen::Break => RewriteFlag::Break,
        RewriteThen::Redirect => RewriteFlag::Redirect,
        RewriteThen::Permanent => RewriteFlag::Permanent,
    };
    check_text(&rule.to.0, &rule.to.span, reader);
    for test in &rule.when.0 {
        check_template(test.value.0.path(), &test.span, reader);
    }
    let made = RewriteRule::new(&rule.from.0, &rule.to.0, flag)
        .map_err(|error| {
            // The expression was parsed before, so the error is in the replacement.
            let message = one_line(&error.to_string());
            reader.report(Finding::error(&rule.to.span, message, "in this rule"));
        })
        .ok()?;
    Some(
        rule.when
            .0
            .iter()
            .fold(made, |rule, test| rule.when(test.value.0.clone())),
    )
}

/// Reports that the handler of a location lacks a key.
fn report_missing<T>(
    location: &Setting<raw::Location>,
    problem: &str,
    expected: &str,
    reader: &mut ConfigReader<'_>,
) -> Option<T> {
    let handler = location.handler.as_ref();
    let span = handler.map_or(&location.span, |handler| &handler.span);
    reader.report(Finding::error(span, problem, expected));
    None
}
