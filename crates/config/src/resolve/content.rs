//! What a site and its locations do with requests, and what locations inherit.

mod files;
mod kind;

use std::cell::Cell;

use apus_sites::{FieldChange, InvalidReturn, Preset, Return, Rewrite, RewriteFlag};
use http::HeaderValue;

use super::proxy::Said;
use super::upstream::Groups;
use super::{Inherited, php};
use crate::diagnostics::Finding;
use crate::keys::{Reader, shown};
use crate::plan::{Content, ErrorPage, Handler, Location, Root};
use crate::raw::{self, Then};
use crate::source::{At, Place};
use crate::value::Several;
use crate::word::origin::UpstreamName;
use crate::word::php::PhpAddress;
use crate::word::{FieldName, FieldValue, one_line};

/// Resolves the contents of one site.
pub(super) struct Resolver<'a> {
    site: &'a At<raw::Site>,
    inherited: &'a Inherited,
    groups: &'a Groups<'a>,
    /// What of the site has an effect so far.
    used: Used,
}

#[derive(Default)]
struct Used {
    root: Cell<bool>,
    upstream: Cell<bool>,
    proxy: Cell<bool>,
    php: Cell<bool>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        site: &'a At<raw::Site>,
        inherited: &'a Inherited,
        groups: &'a Groups<'a>,
    ) -> Self {
        Self {
            site,
            inherited,
            groups,
            used: Used::default(),
        }
    }

    /// What the site does itself, and its locations.
    pub(super) fn contents(&self, reader: &mut Reader<'_>) -> Option<(Content, Vec<Location>)> {
        let content = self.site(reader);
        let locations = self.locations(reader);
        let (content, locations) = (content?, locations?);
        self.refuse_unused(&content, &locations, reader);
        Some((content, locations))
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

    fn site(&self, reader: &mut Reader<'_>) -> Option<Content> {
        let mut content = self.own(reader)?;
        if let Some(preset) = self.preset() {
            let own = std::mem::take(&mut content.response_fields);
            content.response_fields = preset.response_fields().chain(own).collect();
            content.rewrites.extend(preset.rewrites());
        }
        Some(content)
    }

    fn own(&self, reader: &mut Reader<'_>) -> Option<Content> {
        let own = &self.site.content;
        let root = own.root.as_ref().map(|root| files::folder(root, reader));
        if let (Some(upstream), Some(php)) = (&own.upstream, &own.php_fastcgi) {
            reader.report(
                Finding::error(
                    &php.place,
                    "`php_fastcgi` and `upstream` exclude each other",
                    "expected one of them",
                )
                .related(&upstream.place, "the other one")
                .help("write one of them in a location"),
            );
            return None;
        }
        let handler = match (&own.r#return, &own.upstream, &own.php_fastcgi, root) {
            (Some(answer), ..) => fixed(answer, reader).map(Handler::Return),
            (None, Some(upstream), ..) => self.proxy(upstream, None, reader),
            (None, None, Some(php), root) => {
                self.used.root.set(root.is_some());
                let root = root.map(|root| root.map(Root::Root));
                self.php(php, root, None, reader)
            }
            (None, None, None, Some(root)) => {
                self.used.root.set(true);
                self.files(own, root.map(Root::Root), reader)
                    .map(Handler::Files)
            }
            (None, None, None, None)
                if reader.has_wrong(
                    &self.site.place,
                    &["root", "return", "upstream", "php_fastcgi"],
                ) =>
            {
                None
            }
            (None, None, None, None) if !self.site.locations.given => {
                reader.report(
                    Finding::error(
                        &self.site.place,
                        "the site has nothing to serve",
                        "expected `root`, `return`, `upstream`, `php_fastcgi` or \
                         `[[sites.locations]]`",
                    )
                    .help("add root = \"public\", or another folder"),
                );
                None
            }
            (None, None, None, None) => return self.content(own, None, reader),
        };
        self.content(own, Some(handler), reader)
    }

    /// The handler that asks origins; `location` is the one that does, `None` the site.
    fn proxy(
        &self,
        upstream: &At<UpstreamName>,
        location: Option<&At<raw::Location>>,
        reader: &mut Reader<'_>,
    ) -> Option<Handler> {
        let of_site = self.site.content.proxy.as_ref();
        self.used.proxy.set(true);
        let is_own = |location: &&At<raw::Location>| location.content.upstream.is_some();
        let pattern = location.filter(is_own).map(|location| &location.path);
        if pattern.is_none() {
            self.used.upstream.set(true);
        }
        Said {
            groups: self.groups,
            upstream,
            pattern,
            own: location.and_then(|location| location.content.proxy.as_ref()),
            of_site,
            cache: location.and_then(|location| location.content.cache.as_ref()),
            cache_of_site: self.site.content.cache.as_ref(),
        }
        .handler(reader)
        .map(|proxy| Handler::Proxy(Box::new(proxy)))
    }

    /// The handler that has PHP run programs; `location` is the one that does, `None` the site. `root` is
    /// the folder, where there is one; `Some(None)` if it has a mistake.
    fn php(
        &self,
        servers: &At<Several<PhpAddress>>,
        root: Option<Option<Root>>,
        location: Option<&At<raw::Location>>,
        reader: &mut Reader<'_>,
    ) -> Option<Handler> {
        let site = &self.site.content;
        let own = location.map_or(site, |location| &location.content);
        self.used.php.set(true);
        let path = location.map(|location| location.path.value.0.to_string());
        let prefix = match (&root, &path) {
            (Some(Some(Root::Alias(_))), Some(path)) => {
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
        php::Said {
            site: self.site,
            groups: self.groups,
            servers,
            has_servers: own.php_fastcgi.is_some(),
            pattern: location.map(|location| &location.path),
            own: location.and_then(|location| location.content.fastcgi.as_ref()),
            of_site: site.fastcgi.as_ref(),
            preset: self.preset(),
            files,
            prefix: prefix.unwrap_or_default().trim_end_matches('/'),
        }
        .handler(reader)
        .map(|php| Handler::Php(Box::new(php)))
    }

    /// Reports keys of the site about PHP that change nothing, and a preset that lacks it.
    fn refuse_unused_php(&self, reader: &mut Reader<'_>) {
        let own = &self.site.content;
        if self.used.php.get() {
            return;
        }
        let servers = own.php_fastcgi.as_ref();
        let servers = servers.map(|key| ("php_fastcgi", &key.place));
        let keys = own.fastcgi.as_ref().map(|key| ("fastcgi", &key.place));
        for (key, place) in servers.into_iter().chain(keys) {
            reader.report(Finding::error(
                place,
                format!("`{key}` has no effect"),
                "neither the site nor a location has PHP answer",
            ));
        }
        let php = self.site.preset.as_ref();
        let is_php = self.preset().is_some_and(Preset::is_php);
        if let Some(preset) = php.filter(|_| is_php && own.php_fastcgi.is_none()) {
            reader.report(
                Finding::error(
                    &preset.place,
                    "a preset of PHP, and nothing that runs PHP",
                    "expected `php_fastcgi` in the site",
                )
                .help("add php_fastcgi = \"/run/php/php-fpm.sock\""),
            );
        }
    }

    /// Reports keys of the site about origins, and beside them, that change nothing.
    fn refuse_unused(&self, content: &Content, locations: &[Location], reader: &mut Reader<'_>) {
        self.refuse_unused_php(reader);
        let own = &self.site.content;
        if let Some(upstream) = own.upstream.as_ref().filter(|_| !self.used.upstream.get()) {
            reader.report(Finding::error(
                &upstream.place,
                "`upstream` has no effect",
                "the site has a `return`, and its locations say what they do themselves",
            ));
        }
        let proxy = own.proxy.as_ref().map(|key| ("proxy", &key.place));
        let cache = own.cache.as_ref().map(|key| ("cache", &key.place));
        for (key, place) in proxy.into_iter().chain(cache) {
            if !self.used.proxy.get() {
                reader.report(Finding::error(
                    place,
                    format!("`{key}` has no effect"),
                    "neither the site nor a location has an `upstream`",
                ));
            }
        }
        let Some(upstream) = &own.upstream else {
            return;
        };
        let is_files = |content: &Content| {
            matches!(content.handler, Some(Handler::Files(_) | Handler::Php(_)))
        };
        let has_files =
            is_files(content) || locations.iter().any(|location| is_files(&location.content));
        for (key, place) in files::given(own) {
            if (key == "root" && !self.used.root.get()) || !has_files {
                reader.report(
                    Finding::error(
                        place,
                        format!("`{key}` has no effect"),
                        "the site sends requests to its `upstream`",
                    )
                    .related(&upstream.place, "here"),
                );
            }
        }
    }

    /// Its locations.
    fn locations(&self, reader: &mut Reader<'_>) -> Option<Vec<Location>> {
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
                        &location.path.place,
                        format!("two locations are for `{}`", shown(&path)),
                        "expected a path that no other location has",
                    )
                    .related(&other.path.place, "the other one"),
                );
            }
        }
        let locations: Vec<_> = raw
            .iter()
            .map(|location| {
                self.location(location, reader).map(|content| Location {
                    pattern: location.path.value.0.clone(),
                    internal: *location.internal,
                    content,
                })
            })
            .collect();
        locations.into_iter().collect()
    }

    fn location(&self, location: &At<raw::Location>, reader: &mut Reader<'_>) -> Option<Content> {
        let own = &location.content;
        let handler = if reader.has_wrong(
            &location.place,
            &["return", "handler", "upstream", "php_fastcgi"],
        ) {
            None
        } else {
            self.handler(location, reader)
        };
        self.content(own, Some(handler), reader)
    }

    fn handler(&self, location: &At<raw::Location>, reader: &mut Reader<'_>) -> Option<Handler> {
        let own = &location.content;
        let kind = kind::of(location, &self.site.content, reader)?;
        match kind {
            raw::Handler::Return => match &own.r#return {
                Some(answer) => fixed(answer, reader).map(Handler::Return),
                None => lacks(
                    location,
                    "the handler `return` has no answer",
                    "expected the key `return` in this location",
                    reader,
                ),
            },
            raw::Handler::Static => {
                let root = self.root(location, reader);
                self.files(own, root, reader).map(Handler::Files)
            }
            raw::Handler::Fastcgi => {
                let site = &self.site.content;
                let has_root = location.alias.is_some()
                    || own.root.is_some()
                    || site.root.is_some()
                    || reader.has_wrong(&location.place, &["root", "alias"])
                    || reader.has_wrong(&self.site.place, &["root"]);
                let root = has_root.then(|| self.root(location, reader));
                match own.php_fastcgi.as_ref().or(site.php_fastcgi.as_ref()) {
                    Some(servers) => self.php(servers, root, Some(location), reader),
                    None if reader.has_wrong(&self.site.place, &["php_fastcgi"]) => None,
                    None => lacks(
                        location,
                        "nothing runs PHP here",
                        "expected the key `php_fastcgi` in this location or its site",
                        reader,
                    ),
                }
            }
            raw::Handler::ReverseProxy => {
                let of_site = self.site.content.upstream.as_ref();
                match own.upstream.as_ref().or(of_site) {
                    Some(upstream) => self.proxy(upstream, Some(location), reader),
                    None if reader.has_wrong(&self.site.place, &["upstream"]) => None,
                    None => lacks(
                        location,
                        "the handler `reverse_proxy` has no origins",
                        "expected the key `upstream` in this location or its site",
                        reader,
                    ),
                }
            }
        }
    }

    /// `handler` is `None` for none, and `Some(None)` if it has a mistake.
    fn content(
        &self,
        own: &raw::Content,
        handler: Option<Option<Handler>>,
        reader: &mut Reader<'_>,
    ) -> Option<Content> {
        let site = &self.site.content;
        let response_fields = fields(own.headers.as_ref(), reader);
        let request_fields = fields(own.request_headers.as_ref(), reader);
        let rewrites: Vec<_> = own
            .rewrite
            .0
            .iter()
            .filter_map(|rule| rewrite(rule, reader))
            .collect();
        Some(Content {
            handler: handler.map_or(Some(None), |handler| handler.map(Some))?,
            response_fields,
            request_fields,
            error_pages: own
                .error_pages
                .0
                .iter()
                .map(|(status, page)| ErrorPage {
                    first: status.first,
                    last: status.last,
                    path: page.0.clone(),
                })
                .collect(),
            max_body_bytes: own
                .client_max_body_size
                .as_ref()
                .or(site.client_max_body_size.as_ref())
                .map_or(self.inherited.max_body_bytes, |size| size.0),
            rewrites,
        })
    }
}

/// Whether two locations, as they are written, are for the same paths.
fn same(one: &str, two: &str) -> bool {
    let plain = |text: &str| text.trim_start_matches("^~").trim_start().to_owned();
    plain(one) == plain(two)
}

fn fixed(answer: &At<raw::Return>, reader: &mut Reader<'_>) -> Option<Return> {
    let status = answer.status.value.0;
    let made = match (&answer.location, &answer.text) {
        (Some(location), Some(text)) => {
            reader.report(
                Finding::error(
                    &text.place,
                    "`text` and `location` exclude each other",
                    "expected one of them",
                )
                .related(&location.place, "the other one"),
            );
            return None;
        }
        (Some(location), None) => {
            Return::redirect(status, &location.0).map_err(|error| (error, location.place.clone()))
        }
        (None, Some(text)) => HeaderValue::from_str(&answer.content_type.0)
            .map_err(|_| InvalidReturn::Status)
            .and_then(|kind| Return::text(status, kind, &text.0))
            .map_err(|error| (error, text.place.clone())),
        (None, None) if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) => {
            reader.report(Finding::error(
                &answer.place,
                "a redirect without a destination",
                "expected `location` here",
            ));
            return None;
        }
        (None, None) => Ok(Return::status(status)),
    };
    made.map_err(|(error, place)| {
        let place = match error {
            InvalidReturn::Status => &answer.status.place,
            _ => &place,
        };
        reader.report(Finding::error(place, error.to_string(), "in this answer"));
    })
    .ok()
}

fn rewrite(rule: &At<raw::Rewrite>, reader: &mut Reader<'_>) -> Option<Rewrite> {
    let flag = match rule.then.value {
        Then::Continue => RewriteFlag::Continue,
        Then::Last => RewriteFlag::Last,
        Then::Break => RewriteFlag::Break,
        Then::Redirect => RewriteFlag::Redirect,
        Then::Permanent => RewriteFlag::Permanent,
    };
    let made = Rewrite::new(&rule.from.0, &rule.to.0, flag)
        .map_err(|error| {
            // The expression was read before, so this is about the replacement.
            let message = one_line(&error.to_string());
            reader.report(Finding::error(&rule.to.place, message, "in this rule"));
        })
        .ok()?;
    Some(
        rule.when
            .0
            .iter()
            .fold(made, |rule, test| rule.when(test.value.0.clone())),
    )
}

fn fields(raw: Option<&At<raw::Fields>>, reader: &mut Reader<'_>) -> Vec<FieldChange> {
    let Some(raw) = raw else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    let mut push = |made: Result<FieldChange, apus_sites::InvalidChange>, place: &Place| match made
    {
        Ok(change) => changes.push(change),
        Err(error) => {
            reader.report(Finding::error(place, error.to_string(), "in this change"));
        }
    };
    for name in &raw.remove.0 {
        push(FieldChange::remove(&name.0), &name.place);
    }
    type Entry = (At<FieldName>, At<FieldValue>);
    for (name, value) in &raw.set.0 as &Vec<Entry> {
        push(FieldChange::set(&name.0, &value.0), &name.place);
    }
    for (name, value) in &raw.add.0 as &Vec<Entry> {
        push(FieldChange::add(&name.0, &value.0), &name.place);
    }
    changes
}

/// Tells that the handler of a location has nothing to work with.
fn lacks<T>(
    location: &At<raw::Location>,
    problem: &str,
    expected: &str,
    reader: &mut Reader<'_>,
) -> Option<T> {
    let handler = location.handler.as_ref();
    let place = handler.map_or(&location.place, |handler| &handler.place);
    reader.report(Finding::error(place, problem, expected));
    None
}
