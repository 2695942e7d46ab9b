//! What is cached, and where it is kept.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{Key, NamePattern, Rules};
use crate::store::{DiskSettings, Figures, Recorded, Settings, Store};
use apus_http::path::{self, InvalidPath};
use apus_http::{Network, Request, Target};
use tokio::sync::Semaphore;

use super::cached::presented;
use super::purge::{PurgeAccess, PurgeRequest};
use super::uses::Uses;
use apus_patterns::Glob;

/// More compressed forms of long content are not made at a time.
const FORMS_AT_ONCE: usize = 2;

/// What is stored, for all sites and workers. It outlives configurations.
#[derive(Clone, Debug)]
pub struct Cache(pub(super) Arc<Kept>);

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) store: Store,
    pub(super) uses: Uses,
    /// A permit for each compressed form that may be made at a time.
    pub(super) forming: Arc<Semaphore>,
}

impl Cache {
    /// An empty cache in memory.
    pub fn new(settings: Settings) -> Self {
        Self::of(Store::new(settings))
    }

    /// A cache in memory and on disk, with what is on disk already. Blocks for a few reads.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(settings: Settings, disk: DiskSettings) -> io::Result<Self> {
        Store::open(settings, disk).map(Self::of)
    }

    fn of(store: Store) -> Self {
        Self(Arc::new(Kept {
            store,
            uses: Uses::default(),
            forming: Arc::new(Semaphore::new(FORMS_AT_ONCE)),
        }))
    }

    /// Takes stored responses out, or makes them stale. It holds at once; what it returns tells when
    /// it would hold after a crash.
    pub fn purge(&self, purge: &PurgeRequest) -> Recorded {
        self.0.store.purge(&purge.to_purge())
    }

    /// Ends the use of the disk, with everything written. Blocks.
    ///
    /// # Errors
    /// Not everything could be written: more has to be fetched after a restart.
    pub fn close(&self) -> io::Result<()> {
        self.0.store.close()
    }

    /// What it has done and holds.
    pub fn figures(&self) -> Figures {
        self.0.store.figures()
    }
}

/// How a location caches.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// What may be stored and sent.
    pub rules: Rules,
    /// Whether the target in the key is the one that the client sent, whatever rewrites made of it: for
    /// programs, which see that one. Else it is the one that is sent on.
    pub by_sent_target: bool,
    /// Requests with what an origin may take for one of these cookies are not answered from the cache, nor are their answers
    /// stored.
    pub bypass_cookies: Vec<NamePattern>,
    /// Nor those with one of these fields, in lower case.
    pub bypass_headers: Vec<Box<str>>,
    /// Nor those for one of these paths, as the client sent it or as rewrites made it.
    pub bypass_paths: Vec<Glob>,
    /// Networks of clients whose directives count, if the rules have those of trusted clients count.
    pub trusted: Vec<Network>,
    /// How long a request waits for the answer to another one, before it goes to the origin itself.
    pub lock_timeout: Duration,
    /// Whether answers say in `Cache-Status` what the cache did (RFC 9211).
    pub status_field: bool,
    /// Whether answers say so in `X-FastCGI-Cache` too, in the words of nginx.
    pub fastcgi_field: bool,
    /// Who may purge by requests; `None`: nobody.
    pub purge: Option<PurgeAccess>,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            by_sent_target: false,
            bypass_cookies: Vec::new(),
            bypass_headers: Vec::new(),
            bypass_paths: Vec::new(),
            trusted: Vec::new(),
            lock_timeout: Duration::from_secs(5),
            status_field: true,
            fastcgi_field: false,
            purge: None,
        }
    }
}

impl CacheSettings {
    /// The key under which the answer to a request is stored.
    pub fn key(&self, request: &Request) -> Key {
        let mut presented = presented(request, self);
        // One that cannot be sent on is refused, whatever its key.
        let path = presented.path;
        let path = path::sent_on(path).unwrap_or(Cow::Borrowed(path));
        presented.path = &path;
        self.rules.key.key(&presented)
    }

    /// The target that counts for the key of a request.
    pub(super) fn target<'a>(&self, request: &'a Request) -> &'a Target {
        match self.by_sent_target {
            true => request.original_target(),
            false => request.target(),
        }
    }

    /// Whether a request goes past what is stored.
    pub fn is_bypassed(&self, request: &Request) -> bool {
        let headers = request.headers();
        if (self.bypass_headers.iter()).any(|name| headers.contains(name)) {
            return true;
        }
        // What a body asks for is not in the key, and what switches protocols has no response to store.
        request.has_body()
            || request.upgrade().is_some()
            || self.is_of_bypassed_path(request)
            || NamePattern::any_cookie(&self.bypass_cookies, headers)
    }

    fn is_of_bypassed_path(&self, request: &Request) -> bool {
        // A path that has no one meaning may be any.
        let is_bypassed = |path: Result<&[u8], InvalidPath>| {
            path.ok().is_none_or(|path| {
                let mut globs = self.bypass_paths.iter();
                globs.any(|glob| glob.matches(path))
            })
        };
        if self.bypass_paths.is_empty() {
            return false;
        }
        let sent = path::matched(request.original_target().path());
        is_bypassed(request.normal_path())
            || request.is_rewritten() && is_bypassed(sent.as_deref().map_err(|error| *error))
    }
}
