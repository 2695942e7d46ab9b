//! A site: what is to be done with the requests of a virtual host.

use std::fmt;
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_layers::ForceHttps;

use super::fields::Hsts;
use super::location::Pattern;
use super::observe::Observer;
use super::respond::Return;
use super::settings::Settings;
use apus_compress::Compression;
use apus_files::Files;
use apus_patterns::ServerName;

/// A site: its names, its locations, and what holds for all of them.
#[derive(Clone)]
pub struct Site {
    pub(super) name: Arc<str>,
    pub(super) server_names: Vec<ServerName>,
    pub(super) locations: Vec<Location>,
    pub(super) settings: Settings,
    pub(super) force_https: Option<ForceHttps>,
    pub(super) hsts: Option<Hsts>,
    pub(super) compression: Option<Compression>,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// A part of a site and what answers there.
#[derive(Clone)]
pub struct Location {
    pub(super) pattern: Pattern,
    pub(super) handler: Handler,
    pub(super) settings: Settings,
    pub(super) is_internal: bool,
    pub(super) takes_encoded_slash: bool,
}

#[derive(Clone)]
pub(super) enum Handler {
    Return(Return),
    Files(Box<Files>),
    Service {
        name: Arc<str>,
        factory: Arc<dyn ServiceFactory>,
    },
}

impl Site {
    /// A site without locations; the name is for logs and people.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            server_names: Vec::new(),
            locations: Vec::new(),
            settings: Settings::new(),
            force_https: None,
            hsts: None,
            compression: None,
            observer: None,
        }
    }

    /// The name for logs and people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a name by which requests find the site.
    #[must_use]
    pub fn server_name(mut self, name: ServerName) -> Self {
        self.server_names.push(name);
        self
    }

    /// Adds a location; one for the same paths that was added before is replaced.
    #[must_use]
    pub fn location(mut self, location: Location) -> Self {
        self.locations
            .retain(|other| !other.pattern.is_same(&location.pattern));
        self.locations.push(location);
        self
    }

    /// What holds for the whole site.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Redirects clear-text requests.
    #[must_use]
    pub fn force_https(mut self, force: ForceHttps) -> Self {
        self.force_https = Some(force);
        self
    }

    /// Tells browsers, over TLS, to come back over TLS.
    #[must_use]
    pub fn hsts(mut self, hsts: Hsts) -> Self {
        self.hsts = Some(hsts);
        self
    }

    /// Compresses what is not files; those have [`Files::compression`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// What makes the services of its locations.
    pub(super) fn factories(&self) -> impl Iterator<Item = &dyn ServiceFactory> {
        let handlers = self.locations.iter().map(|location| &location.handler);
        handlers.filter_map(|handler| match handler {
            Handler::Service { factory, .. } => Some(&**factory),
            Handler::Return(_) | Handler::Files(_) => None,
        })
    }

    /// Watches the requests of the site.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("name", &self.name)
            .field("server_names", &self.server_names)
            .field("locations", &self.locations)
            .finish_non_exhaustive()
    }
}

impl Location {
    /// A location where a service answers. `name` is what `apus explain` calls it.
    pub fn service(pattern: Pattern, name: &str, factory: impl ServiceFactory + 'static) -> Self {
        Self {
            pattern,
            handler: Handler::Service {
                name: name.into(),
                factory: Arc::new(factory),
            },
            settings: Settings::new(),
            is_internal: false,
            takes_encoded_slash: false,
        }
    }

    /// A location of static files.
    pub fn files(pattern: Pattern, files: Files) -> Self {
        Self {
            pattern,
            handler: Handler::Files(Box::new(files)),
            settings: Settings::new(),
            is_internal: false,
            takes_encoded_slash: false,
        }
    }

    /// A location that always answers the same.
    pub fn respond(pattern: Pattern, answer: Return) -> Self {
        Self {
            pattern,
            handler: Handler::Return(answer),
            settings: Settings::new(),
            is_internal: false,
            takes_encoded_slash: false,
        }
    }

    /// What holds here besides what holds for the site.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Takes paths with an encoded slash, which are answered with 400 elsewhere: for services that send
    /// paths on as they came, to applications for which `%2F` is not a slash. The location is found as
    /// if it were one.
    #[must_use]
    pub fn takes_encoded_slash(mut self) -> Self {
        self.takes_encoded_slash = true;
        self
    }

    /// Keeps the location for requests that the site sends here itself: by a rewrite, `try_files`, an
    /// error page or `X-Accel-Redirect`. For clients there is nothing here.
    #[must_use]
    pub fn internal(mut self) -> Self {
        self.is_internal = true;
        self
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location")
            .field("pattern", &self.pattern)
            .finish_non_exhaustive()
    }
}
